/* A thread's loop: waits, accepts, hands events to connections, brings batches back, sweeps. */
#include "server/conn.h"

#include "base/clock.h"
#include "server/grpc/grpc.h"
#include "server/http/http.h"
#include "server/listen.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 256
#define SWEEP_EVERY_US 1000000
#define WAIT_MAX_MS 1000
#define WAIT_DRAINING_MS 50
#define PORTION 64 /* answers that are due, or back, between two looks at events */

void server_thread_wake(struct server_thread *thread)
{
    uint64_t one = 1;
    ssize_t written = write(thread->wake, &one, sizeof one);
    (void)written; /* a full counter wakes as well */
}

static bool loop_watch(int epoll, int fd, void *data, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = data};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* ---- turns ---- */

/*
 * Turns: how long one connection may keep a thread busy while others wait. Bounded by the time
 * that its requests take, not by their bytes: forty bytes may ask for the metrics.
 *
 *     event ─► fed ─► all done                                           ─► epoll
 *       │        └─► its turn is over ─► queue ─► fed, one turn at a time ─┘  when nothing is left
 *       └─► it took long the last time ───┘
 *
 * What holds: a connection in the queue is not read. After a turn of the queue, or a few short
 * ones, the loop looks for events, so whoever asks little waits for one turn, however many ask
 * much. Who is alone goes on.
 */

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
        now_us - thread->now_us >= LAP_US || server_held_due_us(&thread->held) <= now_us)
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

/* Feeds the first of those that wait. */
static void turn_next(struct server_thread *thread)
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

/* ---- batches that askers bring back ---- */

static void loop_take_back(struct server_thread *thread)
{
    uint64_t count;
    ssize_t got = read(thread->wake, &count, sizeof count);
    (void)got;
    struct server_batch *batch = atomic_exchange(&thread->back, NULL), *in_order = NULL;
    while (batch) { /* a stack: the first one in is the last one out */
        struct server_batch *next = batch->next;
        batch->next = in_order;
        in_order = batch;
        batch = next;
    }
    *thread->returned_last = in_order;
    while (*thread->returned_last)
        thread->returned_last = &(*thread->returned_last)->next;
}

/* A portion of them: others wait, too. */
static void loop_answer_returned(struct server_thread *thread, size_t most)
{
    for (size_t i = 0; thread->returned && i < most; i++) {
        struct server_batch *batch = thread->returned;
        thread->returned = batch->next;
        if (!thread->returned)
            thread->returned_last = &thread->returned;
        server_batch_back(batch);
    }
}

static int loop_wait_ms(const struct server_thread *thread)
{
    int64_t most = thread->accepting ? WAIT_MAX_MS : WAIT_DRAINING_MS;
    if (thread->queue_first || thread->returned)
        return 0;
    if (thread->held.count == 0)
        return (int)most;
    int64_t us = server_held_due_us(&thread->held) - weir__mono_us();
    return us <= 0 ? 0 : (int)weir__min(most, weir__div_up(us, 1000));
}

/* ---- once a second, and on the way out ---- */

/* Who waits in sockets that only we have is let in; in the others, the next server does that. */
static void loop_stop_accepting(struct server_thread *thread)
{
    if (!thread->accepting)
        return;
    for (size_t i = 0; i < thread->listener_count; i++) {
        struct server_listener *it = &thread->listeners[i];
        epoll_ctl(thread->epoll, EPOLL_CTL_DEL, it->fd, NULL);
        if (!server_opened.shared && !atomic_load(&thread->server->handed_over))
            while (server_conn_accept(thread, it))
                ;
        server_listener_close(it);
    }
    thread->accepting = false;
    atomic_fetch_sub(&thread->server->accepting, 1);
    for (struct server_conn *conn = thread->conns, *next; conn; conn = next) {
        next = conn->next;
        if (conn->protocol && conn->protocol->drain)
            conn->protocol->drain(conn);
    }
}

static void loop_sweep(struct server_thread *thread)
{
    thread->swept_us = thread->now_us;
    if (thread->paused && thread->accepting) {
        thread->paused = false;
        for (size_t i = 0; i < thread->listener_count; i++)
            loop_watch(thread->epoll, thread->listeners[i].fd, &thread->listeners[i],
                       EPOLLIN | EPOLLEXCLUSIVE);
    }
    for (struct server_conn *conn = thread->conns, *next; conn; conn = next) {
        next = conn->next;
        server_conn_sweep(conn);
    }
}

static void loop_turn(struct server_thread *thread)
{
    struct server *server = thread->server;
    thread->now_us = weir__mono_us();
    server_top_advance(thread->top, weir__clock_us());
    if (WEIR__UNLIKELY(!thread->rules ||
                       thread->rules->generation != atomic_load(&server->rules_generation))) {
        thread->receipts.limit = NULL; /* the old ones' limits may be gone */
        thread->rules = server_rules_newest(server, thread->rules);
    }
    bool draining = atomic_load(&server->draining);
    if (draining)
        loop_stop_accepting(thread);
    if (draining || thread->now_us - thread->swept_us >= SWEEP_EVERY_US)
        loop_sweep(thread);
}

static void loop_handle(struct server_thread *thread, const struct epoll_event *event)
{
    void *data = event->data.ptr;
    if (!data) {
        loop_take_back(thread);
        return;
    }
    if (data >= (void *)thread->listeners &&
        data < (void *)(thread->listeners + thread->listener_count)) {
        if (thread->accepting)
            server_conn_accept(thread, data);
        return;
    }
    server_conn_event(data, event->events);
}

static void *loop_run(void *argument)
{
    struct server_thread *thread = argument;
    struct epoll_event events[EVENTS_MAX];
    while (!atomic_load(&thread->server->stopping)) {
        int count = epoll_wait(thread->epoll, events, EVENTS_MAX, loop_wait_ms(thread));
        loop_turn(thread);
        for (int i = 0; i < count; i++) {
            thread->events_left = count - i - 1;
            loop_handle(thread, &events[i]);
        }
        loop_answer_returned(thread, PORTION);
        if (WEIR__UNLIKELY(thread->held.count > 0))
            server_held_answer_due(thread, PORTION);
        turn_next(thread);
        if (WEIR__UNLIKELY(thread->graves != NULL))
            server_conn_bury(thread);
    }
    server_held_answer_early(thread);
    while (thread->conns)
        server_conn_kill(thread->conns);
    return NULL;
}

/* ---- making and ending ---- */

static void loop_clear_pool(struct server_pool *pool)
{
    while (pool->first)
        free(server_pool_take(pool, 0));
}

static void loop_free(struct server_thread *thread)
{
    thread->now_us = INT64_MAX; /* whatever was held is due, and what askers had is back */
    loop_take_back(thread);
    loop_answer_returned(thread, SIZE_MAX);
    server_held_answer_due(thread, SIZE_MAX);
    server_conn_bury(thread);
    for (size_t i = 0; i < thread->listener_count; i++)
        server_listener_close(&thread->listeners[i]);
    free(thread->listeners);
    if (thread->rules)
        server_rules_release(thread->rules);
    weir__limit_cache_clear(&thread->cache);
    if (thread->epoll >= 0)
        close(thread->epoll);
    if (thread->wake >= 0)
        close(thread->wake);
    server_batch_destroy(thread);
    server_held_end(thread);
    free(thread->in);
    free(thread->out.data);
    loop_clear_pool(&thread->decisions);
    loop_clear_pool(&thread->streams);
    loop_clear_pool(&thread->calls);
    free(thread->request);
    free(thread->nodes);
    free(thread->response);
    free(thread->grpc_room);
    free(thread->grpc);
    free(thread);
}

static int loop_make_rooms(struct server_thread *thread, weir_error *err)
{
    char *out = malloc(SERVER_OUT_SIZE);
    thread->in = malloc(SERVER_IN_SIZE);
    thread->request = malloc(sizeof *thread->request);
    thread->nodes = malloc(SERVER_JSON_NODES * sizeof *thread->nodes);
    thread->response = calloc(1, sizeof *thread->response);
    thread->grpc_room = malloc(SERVER_GRPC_ROOM);
    thread->open_batch = server_batch_create(thread);
    if (out)
        thread->out = weir__buffer_over(out, SERVER_OUT_SIZE);
    if (!out || !thread->in || !thread->request || !thread->nodes || !thread->response ||
        !thread->grpc_room || !thread->open_batch)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a thread of the server");
    return 0;
}

static int loop_begin(struct server_thread *thread, weir_error *err)
{
    thread->epoll = epoll_create1(EPOLL_CLOEXEC);
    thread->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (thread->epoll < 0 || thread->wake < 0 ||
        !loop_watch(thread->epoll, thread->wake, NULL, EPOLLIN))
        return weir__fail(err, WEIR_ESYSTEM, 0, "no event loop: %s", strerror(errno));
    int code = loop_make_rooms(thread, err);
    if (code)
        return code;
    code = server_listeners_for(thread->server, thread->index, &thread->listeners,
                                &thread->listener_count, err);
    for (size_t i = 0; i < thread->listener_count && code == 0; i++) {
        if (!loop_watch(thread->epoll, thread->listeners[i].fd, &thread->listeners[i],
                        EPOLLIN | EPOLLEXCLUSIVE))
            code = weir__fail(err, WEIR_ESYSTEM, 0, "cannot watch a listener: %s", strerror(errno));
    }
    return code;
}

int server_thread_start(struct server *server, int index, weir_error *err)
{
    struct server_thread *thread = calloc(1, sizeof *thread);
    if (!thread)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a thread of the server");
    thread->server = server;
    thread->index = index;
    thread->next_id = (uint64_t)index + 1;
    thread->epoll = thread->wake = -1;
    thread->returned_last = &thread->returned;
    thread->counters = server_metrics_thread(server->metrics, (size_t)index);
    thread->top = server_top_thread(server->top, (size_t)index);
    if (server->access_log)
        thread->log = server_access_log_thread(server->access_log, (size_t)index);
    thread->accepting = true;
    thread->now_us = thread->swept_us = weir__mono_us();
    int code = loop_begin(thread, err);
    if (code == 0 && pthread_create(&thread->thread, NULL, loop_run, thread))
        code = weir__fail(err, WEIR_ESYSTEM, 0, "no thread: %s", strerror(errno));
    if (code) {
        loop_free(thread);
        return code;
    }
    atomic_fetch_add(&server->accepting, 1);
    server->threads[server->thread_count++] = thread;
    return 0;
}

void server_thread_join(struct server_thread *thread)
{
    pthread_join(thread->thread, NULL);
    loop_free(thread);
}
