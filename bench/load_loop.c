/*
 * Sockets and the two loops. It never sleeps: a server that wakes a client pays for it, and does so
 * more or less often as the two happen to run. Sockets are edge-triggered, so that a wait costs no
 * more for what was there before.
 */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS INT64_C(20000000000)
enum { EVENTS = 128 };

int64_t load_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- answers ---- */

void load_answered_number(struct connection *it, uint64_t number, enum answer answer)
{
    struct tally *tally = &it->load->tally;
    if (it->unanswered == 0)
        load_die("an answer that nobody asked for");
    it->unanswered--;
    it->load->unanswered--;
    it->answered++;
    tally->allowed += answer == ALLOWED;
    tally->denied += answer == DENIED;
    tally->others += answer == OTHER;
    tally->errors += answer == FAILED;
    latency_add(&tally->latency, it->due_ns - it->starts[number % STARTS]);
}

void load_answered(struct connection *it, enum answer answer)
{
    load_answered_number(it, it->answered, answer);
}

void load_complain(struct connection *it, const char *what, const char *text, size_t len)
{
    if (it->load->tally.errors == 0)
        fprintf(stderr, "load: %s: %.*s\n", what, (int)(len < 400 ? len : 400), text);
}

/* ---- sockets ---- */

static void flush(struct connection *it)
{
    while (it->out_sent < it->out_len) {
        ssize_t n = send(it->fd, it->out + it->out_sent, it->out_len - it->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            load_die("cannot send: %s", strerror(errno));
        it->out_sent += (size_t)n;
    }
}

/* Reads what is there and takes the answers in it; false: nothing was there. */
static bool receive(struct connection *it)
{
    size_t room = IN_SIZE - it->in_len;
    ssize_t n = recv(it->fd, it->in + it->in_len, room, 0);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0)
        load_die("the server hung up: %s", n < 0 ? strerror(errno) : "end of the connection");
    it->due_ns = load_now_ns();
    it->in_len += (size_t)n;
    size_t used = it->load->protocol->take(it, it->in, it->in_len);
    it->in_len -= used;
    if (it->in_len == IN_SIZE)
        load_die("an answer of more than %d bytes", IN_SIZE);
    if (it->in_len)
        memmove(it->in, it->in + used, it->in_len);
    return (size_t)n == room;
}

static void open_one(struct connection *it, uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = PATIENCE_NS / 1000000000};
    int one = 1;
    it->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (it->fd < 0 || connect(it->fd, (struct sockaddr *)&to, sizeof to))
        load_die("port %u: %s", port, strerror(errno));
    setsockopt(it->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(it->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (it->load->protocol->greet) {
        it->load->protocol->greet(it);
        flush(it);
        while (!it->ready) {
            receive(it);
            flush(it);
        }
    }
    fcntl(it->fd, F_SETFL, O_NONBLOCK);
}

void load_open(struct load *it, uint16_t port)
{
    it->connections = load_allocate(it->count * sizeof *it->connections);
    for (unsigned i = 0; i < it->count; i++) {
        it->connections[i].load = it;
        open_one(&it->connections[i], port);
    }
}

/* ---- loops ---- */

/* Sends a batch that was due at `due`; false: this connection has no room for one. */
static bool send_batch(struct connection *it, int64_t due)
{
    struct load *load = it->load;
    unsigned size = load->left < load->batch ? (unsigned)load->left : load->batch;
    if (size == 0 || it->unanswered + size > load->depth || !load->protocol->put(it, size))
        return false;
    for (unsigned i = 0; i < size; i++)
        it->starts[(it->sent + i) % STARTS] = due;
    it->sent += size;
    it->unanswered += size;
    load->unanswered += size;
    load->left -= size;
    load->tally.sent += size;
    return true;
}

static void fill(struct connection *it, int64_t now)
{
    while (send_batch(it, now))
        continue;
    flush(it);
}

/* Sends what is due by the schedule, to whichever connection has room, in turn. */
static void arrive(struct load *it, int64_t now)
{
    while (it->left) {
        int64_t due = it->began + (int64_t)((double)it->arrivals * it->interval_ns);
        unsigned tries = 0;
        if (due > now)
            return;
        while (tries < it->count && !send_batch(&it->connections[it->turn], due)) {
            it->turn = (it->turn + 1) % it->count;
            tries++;
        }
        if (tries == it->count)
            return;
        flush(&it->connections[it->turn]);
        it->turn = (it->turn + 1) % it->count;
        it->arrivals++;
    }
}

static void serve(struct connection *it, bool open_loop)
{
    if (it->out_sent < it->out_len)
        flush(it);
    bool more;
    do {
        more = receive(it);
        if (open_loop)
            flush(it);
        else
            fill(it, load_now_ns());
    } while (more);
}

static void begin(struct load *it, double seconds, int64_t now)
{
    it->began = now;
    it->arrivals = 0;
    it->interval_ns = it->rate > 0 ? 1e9 * it->batch / it->rate : 0;
    if (it->rate && it->left == UINT64_MAX)
        it->left = (uint64_t)(seconds * it->rate) / it->batch * it->batch;
    for (unsigned i = 0; !it->rate && i < it->count; i++)
        fill(&it->connections[i], now);
}

static bool over(struct load *loads, unsigned count, int64_t now, int64_t end)
{
    bool idle = true;
    for (unsigned i = 0; i < count; i++) {
        if (now >= end && !loads[i].rate)
            loads[i].left = 0;
        idle = idle && !loads[i].left && !loads[i].unanswered;
    }
    return idle;
}

static int watch(struct load *loads, unsigned count)
{
    int epoll = epoll_create1(0);
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < loads[i].count; j++) {
            struct connection *it = &loads[i].connections[j];
            struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLET, {.ptr = it}};
            epoll_ctl(epoll, EPOLL_CTL_ADD, it->fd, &event);
        }
    }
    return epoll;
}

double load_run(struct load *loads, unsigned count, double seconds)
{
    int epoll = watch(loads, count);
    int64_t now = load_now_ns(), began = now, busy_at = now, idle_ns = 0;
    int64_t end = seconds > 0 ? now + (int64_t)(seconds * 1e9) : INT64_MAX;
    for (unsigned i = 0; i < count; i++)
        begin(&loads[i], seconds, now);
    while (!over(loads, count, now, end)) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(epoll, events, EVENTS, 0);
        for (int i = 0; i < n; i++) {
            struct connection *it = events[i].data.ptr;
            serve(it, it->load->rate > 0);
        }
        for (unsigned i = 0; i < count; i++) {
            if (loads[i].rate > 0)
                arrive(&loads[i], load_now_ns());
        }
        int64_t before = now;
        now = load_now_ns();
        if (n > 0)
            busy_at = now;
        else
            idle_ns += now - before;
        if (now - busy_at > PATIENCE_NS)
            load_die("the server does not answer");
    }
    close(epoll);
    return (double)idle_ns / (double)(now - began + 1);
}
