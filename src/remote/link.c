/*
 * A link's calls: how they get in, wait and get out.
 *
 *            keeper connects                     reply read by the leader ─► DONE
 *     NEW ──────────────────► UP   submit ─► WAITING ── deadline passed ───► LATE (leaves a hole)
 *      │ keeper cannot        │                  └───── link goes DOWN ────► LOST
 *      ▼                      │ hung up, garbage, 3 deadlines missed, broken on purpose
 *     DOWN ◄──────────────────┘
 *      └── keeper connects ─► UP
 *
 * What holds while the lock is held:
 *   1. Replies come in the order of the commands: reply number n belongs to ring[n mod size], and
 *      answered <= submitted <= answered + size. A call that gave up left NULL there.
 *   2. At most one thread leads. It alone reads the socket, without the lock. It is the thread of a
 *      waiting call, or the keeper's. When its own call is over it wakes another one to lead.
 *   3. At most one thread flushes. It alone writes to the socket, without the lock, and `sending`
 *      is its own meanwhile. What other threads submit goes out with its next write: so calls share
 *      round trips.
 *   4. The socket is closed by the keeper alone, when the link is DOWN and users is 0.
 *   5. No thread waits beyond its own deadline, whatever the others do.
 *   6. While it is UP, what is posted was submitted, before `posted_mark`.
 */
#include "remote/link.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUT_START 16384
#define NO_FD (-1)

static const struct weir__resp_limits link_limits = {
    .depth = 4, .bulk = 4096, .line = 8192, .message = WEIR__LINK_REPLY};

/* ---- making and ending ---- */

int weir__link_init(struct weir__link *link, int wake_fd)
{
    link->state = WEIR__LINK_NEW;
    link->conn = (struct weir__conn){NO_FD, NULL};
    link->wake_fd = wake_fd;
    link->out_size = link->sending_size = OUT_START;
    link->out = malloc(OUT_START);
    link->sending = malloc(OUT_START);
    snprintf(link->why, sizeof link->why, "not connected yet");
    weir__lock_init(&link->lock);
    weir__cond_init(&link->changed);
    return link->out && link->sending ? 0 : -1;
}

void weir__link_destroy(struct weir__link *link, bool forked)
{
    if (forked)
        weir__conn_abandon(&link->conn);
    else
        weir__conn_close(&link->conn);
    free(link->out);
    free(link->sending);
    free(link->posted);
}

/* ---- going down; the lock is held ---- */

/* What holds, see above. */
static void link_check(const struct weir__link *link)
{
    WEIR__ASSERT_LOCKED(&link->lock);
    assert(link->answered <= link->submitted &&
           link->submitted - link->answered <= WEIR__LINK_RING);
    assert(link->sending_at <= link->sending_len && link->sending_len <= link->sending_size);
    assert(link->out_len <= link->out_size && link->in_start <= link->in_end);
    (void)link;
}

static void link_finish_call(struct weir__call *call, enum weir__call_status status)
{
    assert(call->status == WEIR__CALL_WAITING);
    call->status = status;
    pthread_cond_signal(&call->wake);
}

static void link_go_down(struct weir__link *link, const char *why)
{
    link_check(link);
    if (link->state != WEIR__LINK_UP)
        return;
    link->state = WEIR__LINK_DOWN;
    snprintf(link->why, sizeof link->why, "%s", why);
    for (; link->answered < link->submitted; link->answered++) {
        struct weir__call *call = link->ring[link->answered % WEIR__LINK_RING];
        if (call && call->status == WEIR__CALL_WAITING)
            link_finish_call(call, WEIR__CALL_LOST);
    }
    weir__conn_shut(&link->conn);
    pthread_cond_broadcast(&link->changed);
    uint64_t one = 1;
    (void)!write(link->wake_fd, &one, sizeof one);
}

void weir__link_break(const struct weir__call *call, const char *why)
{
    struct weir__link *link = call->link;
    weir__lock_take(&link->lock);
    if (call->connection == link->connection)
        link_go_down(link, why);
    weir__lock_release(&link->lock);
}

void weir__link_forget_module(const struct weir__call *call)
{
    struct weir__link *link = call->link;
    weir__lock_take(&link->lock);
    if (call->connection == link->connection)
        link->server = (struct weir__server){0};
    weir__lock_release(&link->lock);
}

void weir__link_forget_lease(const struct weir__call *call)
{
    struct weir__link *link = call->link;
    weir__lock_take(&link->lock);
    if (call->connection == link->connection)
        link->server.unnamed = true;
    weir__lock_release(&link->lock);
}

/* To the socket, without the lock: it is not closed until link_leave. */
static void link_enter(struct weir__link *link)
{
    assert(link->state == WEIR__LINK_UP && link->conn.fd >= 0);
    link->users++;
    weir__lock_release(&link->lock);
}

static void link_leave(struct weir__link *link)
{
    weir__lock_take(&link->lock);
    assert(link->users > 0);
    if (--link->users == 0 && link->state != WEIR__LINK_UP)
        pthread_cond_broadcast(&link->changed);
}

/* ---- reading; the lock is held ---- */

/* Gives one reply to its call, which borrows `data` meanwhile; false: nobody asked for it. */
static bool link_hand_out(struct weir__link *link, const char *data)
{
    if (link->nodes[0].type == WEIR__RESP_PUSH)
        return true;
    if (link->answered == link->submitted)
        return false;
    struct weir__call *call = link->ring[link->answered++ % WEIR__LINK_RING];
    if (link->posted_len && link->answered >= link->posted_mark)
        link->posted_len = link->posted_replies = 0;
    if (!call)
        return true;
    assert(call->link == link && call->seen < call->replies);
    call->read(call, call->seen++, data, link->nodes);
    if (call->seen == call->replies) {
        link->misses = 0;
        link_finish_call(call, WEIR__CALL_DONE);
    }
    return true;
}

static void link_parse(struct weir__link *link)
{
    while (link->state == WEIR__LINK_UP && link->in_start < link->in_end) {
        char *data = link->in + link->in_start;
        enum weir__resp_status status =
            weir__resp_next(&link->reader, data, link->in_end - link->in_start);
        if (status == WEIR__RESP_NEED_MORE)
            break;
        if (status == WEIR__RESP_BROKEN || !link_hand_out(link, data)) {
            link_go_down(link, "the server sent something that is not a reply");
            return;
        }
        link->in_start += link->reader.size;
    }
    memmove(link->in, link->in + link->in_start, link->in_end - link->in_start);
    link->in_end -= link->in_start;
    link->in_start = 0;
}

/* Reads until the socket has no more. Only the leader. */
static void link_receive(struct weir__link *link)
{
    bool drained = false;
    assert(link->led);
    while (link->state == WEIR__LINK_UP && !drained) {
        assert(link->in_end < sizeof link->in); /* a reply is shorter than the room */
        link_enter(link);
        long n = weir__conn_read(&link->conn, link->in + link->in_end,
                                 sizeof link->in - link->in_end, &drained);
        link_leave(link);
        if (n < 0)
            link_go_down(link, "the server closed the connection");
        if (n <= 0)
            return;
        link->in_end += (size_t)n;
        link_parse(link);
    }
}

/* ---- writing; the lock is held ---- */

static bool link_has_unsent(const struct weir__link *link)
{
    return link->sending_at < link->sending_len || weir__conn_holds(&link->conn);
}

/* The next bytes to write: the rest of the last ones, or what was submitted since. */
static bool link_next_bytes(struct weir__link *link)
{
    assert(link->flushing && link->sending_at <= link->sending_len);
    if (link->sending_at == link->sending_len && link->out_len > 0) {
        char *empty = link->sending;
        size_t size = link->sending_size;
        link->sending = link->out;
        link->sending_size = link->out_size;
        link->sending_len = link->out_len;
        link->sending_at = 0;
        link->out = empty;
        link->out_size = size;
        link->out_len = 0;
    }
    return link_has_unsent(link);
}

static void link_write_out(struct weir__link *link, int64_t deadline_us)
{
    struct weir__patience patience = {deadline_us, NO_FD};
    if (link->flushing)
        return;
    link->flushing = true;
    while (link->state == WEIR__LINK_UP && link_next_bytes(link)) {
        link_enter(link);
        long n = weir__conn_write(&link->conn, link->sending + link->sending_at,
                                  link->sending_len - link->sending_at);
        bool waits = n == 0 && link_has_unsent(link);
        bool late = waits && weir__conn_wait(&link->conn, POLLOUT, &patience) == 0;
        link_leave(link);
        if (n < 0)
            link_go_down(link, "the server closed the connection");
        else
            link->sending_at += (size_t)n;
        if (late)
            break;
    }
    link->flushing = false;
}

void weir__link_flush(struct weir__link *link, int64_t deadline_us)
{
    weir__lock_take(&link->lock);
    if (link->state == WEIR__LINK_UP)
        link_write_out(link, deadline_us);
    weir__lock_release(&link->lock);
}

/* ---- submitting ---- */

static bool link_grow(struct weir__link *link)
{
    size_t size = link->out_size * 2;
    char *more = size <= WEIR__LINK_OUT ? realloc(link->out, size) : NULL;
    if (!more)
        return false;
    link->out = more;
    link->out_size = size;
    return true;
}

/* Writes the call's commands behind the others; the replies they will get, 0: no room. */
static unsigned link_append(struct weir__link *link, struct weir__call *call)
{
    for (;;) {
        struct weir__buffer buffer = {
            .data = link->out, .size = link->out_size, .len = link->out_len};
        unsigned replies = call->write(call, &link->server, &buffer);
        if (!buffer.cut) {
            if (link->submitted + replies - link->answered > WEIR__LINK_RING)
                return 0;
            assert(replies > 0 && buffer.len > link->out_len && buffer.len <= link->out_size);
            link->out_len = buffer.len;
            return replies;
        }
        if (!link_grow(link))
            return 0;
    }
}

enum weir__call_status weir__link_submit(struct weir__link *link, struct weir__call *call)
{
    call->link = link;
    call->seen = 0;
    call->status = WEIR__CALL_DOWN;
    weir__lock_take(&link->lock);
    if (link->state == WEIR__LINK_UP) {
        call->replies = link_append(link, call);
        call->first = link->submitted;
        call->connection = link->connection;
        call->status = call->replies ? WEIR__CALL_WAITING : WEIR__CALL_FULL;
        for (unsigned i = 0; i < call->replies; i++)
            link->ring[link->submitted++ % WEIR__LINK_RING] = call;
    }
    enum weir__call_status status = call->status;
    if (status == WEIR__CALL_WAITING)
        weir__cond_init(&call->wake);
    weir__lock_release(&link->lock);
    return status;
}

/* ---- posting; the lock is held ---- */

/* Replies that nobody wants. */
static void link_expect_none(struct weir__link *link, unsigned replies)
{
    for (unsigned i = 0; i < replies; i++)
        link->ring[link->submitted++ % WEIR__LINK_RING] = NULL;
    link->posted_mark = link->submitted;
}

/* Keeps the call's commands for the next connection; false: there is no room. */
static bool link_keep_posted(struct weir__link *link, struct weir__call *call)
{
    if (!link->posted)
        link->posted = malloc(WEIR__LINK_POSTED);
    if (!link->posted)
        return false;
    struct weir__buffer buffer = {
        .data = link->posted, .size = WEIR__LINK_POSTED, .len = link->posted_len};
    call->anew = link->posted_len == 0;
    unsigned replies = call->write(call, &link->server, &buffer);
    if (buffer.cut || link->posted_replies + replies > WEIR__LINK_RING / 2)
        return false;
    if (memmem(link->posted, link->posted_len, link->posted + link->posted_len,
               buffer.len - link->posted_len))
        return true; /* it is there already: somebody tries again and again */
    link->posted_len = buffer.len;
    link->posted_replies += replies;
    return true;
}

void weir__link_post(struct weir__link *link, struct weir__call *call)
{
    weir__lock_take(&link->lock);
    unsigned replies = link->state == WEIR__LINK_UP ? link_append(link, call) : 0;
    if (replies > 0 || link->state != WEIR__LINK_UP)
        link_keep_posted(link, call);
    if (replies > 0) {
        link_expect_none(link, replies);
        link_write_out(link, 0);
    }
    weir__lock_release(&link->lock);
}

/* On a new connection. */
static void link_post_again(struct weir__link *link)
{
    assert(link->out_len == 0 && link->submitted == 0);
    while (link->posted_len > link->out_size && link_grow(link))
        ;
    if (link->posted_len == 0 || link->posted_len > link->out_size)
        return;
    memcpy(link->out, link->posted, link->posted_len);
    link->out_len = link->posted_len;
    link_expect_none(link, link->posted_replies);
    link_write_out(link, 0);
}

/* ---- awaiting; the lock is held ---- */

/* The oldest call that still waits leads from now on. */
static void link_pass_lead(struct weir__link *link)
{
    for (uint64_t i = link->answered; i < link->submitted && !link->led; i++) {
        struct weir__call *call = link->ring[i % WEIR__LINK_RING];
        if (call && call->status == WEIR__CALL_WAITING) {
            pthread_cond_signal(&call->wake);
            return;
        }
    }
}

static void link_lead(struct weir__link *link, const struct weir__call *call)
{
    struct weir__patience patience = {call->deadline_us, NO_FD};
    assert(!link->led);
    link->led = true;
    while (call->status == WEIR__CALL_WAITING) {
        short events = link->flushing || !link_has_unsent(link) ? POLLIN : POLLIN | POLLOUT;
        link_enter(link);
        int came = weir__conn_wait(&link->conn, events, &patience);
        link_leave(link);
        if (came <= 0)
            break;
        if (came & POLLOUT)
            link_write_out(link, call->deadline_us);
        if (came & POLLIN)
            link_receive(link);
    }
    link->led = false;
    link_pass_lead(link);
}

/* Leads for as long as there is something to read. */
static void link_read_ready(struct weir__link *link)
{
    assert(!link->led);
    link->led = true;
    link_receive(link);
    link->led = false;
    link_pass_lead(link);
}

static void link_give_up(struct weir__link *link, struct weir__call *call)
{
    for (uint64_t i = call->first + call->seen; i < call->first + call->replies; i++)
        link->ring[i % WEIR__LINK_RING] = NULL;
    assert(call->status == WEIR__CALL_WAITING && link->state == WEIR__LINK_UP);
    call->status = WEIR__CALL_LATE;
    /* Calls that were in progress together miss together: that is one miss. */
    if (call->first >= link->miss_mark && !call->quiet) {
        link->misses++;
        link->miss_mark = link->submitted;
    }
    if (link->misses >= WEIR__LINK_MISSES)
        link_go_down(link, "the server does not answer in time");
    else if (!link->led)
        link_pass_lead(link);
}

enum weir__call_status weir__link_await(struct weir__call *call)
{
    struct weir__link *link = call->link;
    weir__lock_take(&link->lock);
    link_check(link);
    while (call->status == WEIR__CALL_WAITING) {
        bool late = weir__mono_us() >= call->deadline_us;
        if (late && !link->led)
            link_read_ready(link); /* perhaps this thread is late, not the reply */
        if (late && call->status == WEIR__CALL_WAITING)
            link_give_up(link, call);
        else if (!late && !link->led)
            link_lead(link, call);
        else if (!late)
            weir__cond_wait(&call->wake, &link->lock, call->deadline_us);
    }
    weir__lock_release(&link->lock);
    pthread_cond_destroy(&call->wake);
    return call->status;
}

bool weir__link_wait(struct weir__link *link, int64_t deadline_us, bool patient)
{
    weir__lock_take(&link->lock);
    while (link->state != WEIR__LINK_UP && (patient || link->state == WEIR__LINK_NEW) &&
           weir__mono_us() < deadline_us)
        weir__cond_wait(&link->changed, &link->lock, deadline_us);
    bool up = link->state == WEIR__LINK_UP;
    weir__lock_release(&link->lock);
    return up;
}

void weir__link_why(struct weir__link *link, char ret[WEIR__WHY_SIZE])
{
    weir__lock_take(&link->lock);
    memcpy(ret, link->why, WEIR__WHY_SIZE);
    weir__lock_release(&link->lock);
}

/* ---- the keeper's side ---- */

void weir__link_start(struct weir__link *link, const struct weir__conn *conn,
                      const struct weir__server *server)
{
    assert(conn->fd >= 0);
    weir__lock_take(&link->lock);
    assert(link->state != WEIR__LINK_UP && link->conn.fd < 0);
    assert(link->users == 0 && !link->led && !link->flushing);
    link->conn = *conn;
    link->server = *server;
    link->connection++;
    link->misses = 0;
    link->out_len = link->sending_len = link->sending_at = 0;
    link->submitted = link->answered = link->miss_mark = 0;
    link->in_start = link->in_end = 0;
    weir__resp_begin(&link->reader, WEIR__RESP_REPLIES, &link_limits, link->nodes,
                     WEIR__LINK_NODES);
    link->state = WEIR__LINK_UP;
    link_post_again(link);
    pthread_cond_broadcast(&link->changed);
    weir__lock_release(&link->lock);
}

void weir__link_stop(struct weir__link *link, const char *why)
{
    weir__lock_take(&link->lock);
    link_go_down(link, why);
    while (link->users > 0)
        weir__cond_wait(&link->changed, &link->lock, WEIR__NO_DEADLINE);
    assert(link->state != WEIR__LINK_UP && link->users == 0);
    weir__conn_close(&link->conn);
    weir__lock_release(&link->lock);
}

void weir__link_failed(struct weir__link *link, const char *why)
{
    weir__lock_take(&link->lock);
    assert(link->state != WEIR__LINK_UP);
    link->state = WEIR__LINK_DOWN;
    snprintf(link->why, sizeof link->why, "%s", why);
    pthread_cond_broadcast(&link->changed);
    weir__lock_release(&link->lock);
}

void weir__link_tend(struct weir__link *link)
{
    weir__lock_take(&link->lock);
    if (link->state == WEIR__LINK_UP && !link->led)
        link_read_ready(link);
    weir__lock_release(&link->lock);
}
