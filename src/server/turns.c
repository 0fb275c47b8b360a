/*
 * Turns: how long one connection may keep a thread busy while others wait. Bounded by the time that its
 * requests take, not by their bytes: forty bytes may ask for the metrics.
 *
 *     event ─► fed ─► all done                                           ─► epoll
 *       │        └─► its turn is over ─► queue ─► fed, one turn at a time ─┘  when it has nothing left
 *       └─► it took long the last time ───┘
 *
 * What holds: a connection in the queue is not read. After a turn of the queue, or a few short ones, the loop
 * looks for events, so whoever asks little waits for one turn, however many ask much. Who is alone goes on.
 */
#include "server/conn.h"

#include <assert.h>
#include <sys/epoll.h>

#define TURN_US 200 /* of the queue */
#define EVENT_US 10 /* on an event, nobody knowing how much there is */
#define MUCH_US 50  /* who takes so long waits in the queue the next time */
#define LAP_US 5000 /* even who is alone lets the loop look at the time */

void server_turn_begin(struct server_thread *thread, bool queued)
{
    thread->turn_us = weir__mono_us();
    thread->turn_until_us = thread->turn_us + (queued ? TURN_US : EVENT_US);
}

void server_turn_end(struct server_conn *conn, bool rest)
{
    bool much = conn->queued || weir__mono_us() - conn->thread->turn_us >= MUCH_US;
    conn->bulk = much || (rest && conn->bulk);
}

bool server_turn_must_wait(struct server_conn *conn)
{
    const struct server_thread *thread = conn->thread;
    return conn->bulk && (thread->queue_first || thread->events_left > 0 || thread->returned);
}

/* Whether anything else is to be done. */
static bool turn_is_wanted(struct server_conn *conn, int64_t now_us)
{
    struct server_thread *thread = conn->thread;
    struct epoll_event events[2];
    if (thread->queue_first || thread->events_left > 0 || thread->returned ||
        now_us - thread->now_us >= LAP_US ||
        (thread->held_count > 0 && thread->held[0]->due_us <= now_us))
        return true;
    int count = epoll_wait(thread->epoll, events, WEIR__COUNT(events), 0);
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr != conn)
            return true;
    }
    return false;
}

bool server_turn_is_over(struct server_conn *conn)
{
    int64_t now_us = weir__mono_us();
    if (now_us < conn->thread->turn_until_us)
        return false;
    if (turn_is_wanted(conn, now_us)) {
        conn->yields = true;
        return true;
    }
    conn->thread->turn_until_us = now_us + TURN_US;
    return false;
}

void server_turn_queue(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    if (conn->queued)
        return;
    conn->queued = true;
    conn->queue_next = NULL;
    conn->queue_prev = thread->queue_last;
    if (thread->queue_last)
        thread->queue_last->queue_next = conn;
    else
        thread->queue_first = conn;
    thread->queue_last = conn;
}

void server_turn_leave(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    if (!conn->queued)
        return;
    conn->queued = false;
    if (conn->queue_prev)
        conn->queue_prev->queue_next = conn->queue_next;
    else
        thread->queue_first = conn->queue_next;
    if (conn->queue_next)
        conn->queue_next->queue_prev = conn->queue_prev;
    else
        thread->queue_last = conn->queue_prev;
}

void server_turn_next(struct server_thread *thread)
{
    int64_t until_us = thread->queue_first ? weir__mono_us() + TURN_US : 0;
    struct server_conn *conn;
    while ((conn = thread->queue_first)) {
        server_turn_leave(conn);
        assert(!conn->dead);
        server_conn_turn(conn);
        if (weir__mono_us() + MUCH_US >= until_us)
            break;
    }
}
