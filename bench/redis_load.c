/*
 * Load for a Redis server, lean enough that the server is what is measured.
 *
 *   redis-load PORT DB CONNECTIONS PIPELINE COMMANDS KEYS ORDER REPLICAS TEMPLATE [THEN]
 *
 * TEMPLATE is a file with one command in RESP, whose runs of ten '#' stand for a key's number:
 * random below KEYS, or every one in turn (ORDER is random or each). Each connection sends PIPELINE
 * commands, awaits their replies, and so on. With THEN, a second command for the same keys follows
 * each such batch; fifteen '@' in it stand for the last integer of the first one's reply (a lease).
 * Thirteen '~' are the time in milliseconds, for scripts that live by the client's clock.
 *
 * It prints: seconds, the server's CPU microseconds, replies whose first integer is 1, is 0,
 * others, errors. The CPU is that of INFO, from after the connections were made until all was
 * answered and, with REPLICAS, had got to them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KEY_DIGITS = 10, LEASE_DIGITS = 15, TIME_DIGITS = 13, PLACES_MAX = 4 };
enum { PIPELINE_MAX = 256, CONNECTIONS_MAX = 1000 };
enum { TEMPLATE_MAX = 8 << 20, IN_SIZE = 1 << 16, PATIENCE_MS = 20000 };

struct template
{
    char *bytes;
    size_t len;
    size_t keys[PLACES_MAX], leases[PLACES_MAX], times[PLACES_MAX];
    size_t key_count, lease_count, time_count;
};

struct connection {
    int fd;
    char *out[2];     /* PIPELINE copies of either template, patched */
    size_t len, sent; /* of the batch under way */
    bool crowded;     /* waits for room to send */
    int step;         /* which template */
    unsigned size;    /* commands of the batch */
    unsigned awaited; /* replies to come */
    uint64_t keys[PIPELINE_MAX];
    uint64_t leases[PIPELINE_MAX];
    size_t in_len;
    char in[IN_SIZE];
};

struct reply {
    bool error, any;
    int64_t first, last; /* integers in it */
};

static struct template templates[2];
static int steps;
static unsigned pipeline;
static uint64_t left, key_count, next_key, seed;
static bool in_turn;
static uint64_t ones, zeros, others, errors;

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("redis-load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void *allocate(size_t size)
{
    void *p = calloc(1, size);
    if (!p)
        die("no memory");
    return p;
}

static uint64_t number(const char *text, const char *what, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value < least || value > most)
        die("%s must be %llu to %llu, not %s", what, (unsigned long long)least,
            (unsigned long long)most, text);
    return value;
}

/* ---- commands ---- */

static size_t find_runs(const struct template *it, char letter, size_t run, size_t *ret)
{
    size_t count = 0;
    for (size_t i = 0; i + run <= it->len;) {
        size_t n = 0;
        while (n < run && it->bytes[i + n] == letter)
            n++;
        if (n < run) {
            i += n + 1;
            continue;
        }
        if (count == PLACES_MAX)
            die("more than %d places for numbers", PLACES_MAX);
        ret[count++] = i;
        i += run;
    }
    return count;
}

static void read_template(const char *path, struct template *ret)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        die("%s: %s", path, strerror(errno));
    ret->bytes = allocate(TEMPLATE_MAX);
    ret->len = fread(ret->bytes, 1, TEMPLATE_MAX, file);
    fclose(file);
    if (ret->len == 0 || ret->len == TEMPLATE_MAX)
        die("%s: expected one command of less than %d bytes", path, TEMPLATE_MAX);
    ret->key_count = find_runs(ret, '#', KEY_DIGITS, ret->keys);
    ret->lease_count = find_runs(ret, '@', LEASE_DIGITS, ret->leases);
    ret->time_count = find_runs(ret, '~', TIME_DIGITS, ret->times);
}

static void put_digits(char *to, int digits, uint64_t value)
{
    while (digits-- > 0) {
        to[digits] = (char)('0' + value % 10);
        value /= 10;
    }
}

static uint64_t time_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static uint64_t pick(void)
{
    if (in_turn)
        return next_key++ % key_count;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed >> 32) * key_count >> 32;
}

/* The next batch into `out`; false: all is done. */
static bool next_batch(struct connection *it)
{
    it->step = steps == 2 && it->size > 0 ? !it->step : 0;
    if (it->step == 0) {
        it->size = left < pipeline ? (unsigned)left : pipeline;
        left -= it->size;
        for (unsigned i = 0; i < it->size; i++)
            it->keys[i] = pick();
    }
    const struct template *template = &templates[it->step];
    uint64_t now = template->time_count ? time_ms() : 0;
    for (unsigned i = 0; i < it->size; i++) {
        char *command = it->out[it->step] + i * template->len;
        for (size_t j = 0; j < template->key_count; j++)
            put_digits(command + template->keys[j], KEY_DIGITS, it->keys[i]);
        for (size_t j = 0; j < template->lease_count; j++)
            put_digits(command + template->leases[j], LEASE_DIGITS, it->leases[i]);
        for (size_t j = 0; j < template->time_count; j++)
            put_digits(command + template->times[j], TIME_DIGITS, now);
    }
    it->len = it->size * template->len;
    it->sent = 0;
    it->awaited = it->size;
    return it->size > 0;
}

/* ---- replies ---- */

/* Reads "123\r\n"; NULL: not all there. */
static const char *read_line(const char *p, const char *end, int64_t *ret)
{
    int64_t value = 0;
    bool negative = p < end && *p == '-';
    for (p += negative; p < end && *p >= '0' && *p <= '9'; p++)
        value = value * 10 + (*p - '0');
    *ret = negative ? -value : value;
    return end - p >= 2 ? p + 2 : NULL;
}

/* The end of the reply that begins here, or NULL while it is not all there. */
static const char *read_reply(const char *p, const char *end, struct reply *ret)
{
    int64_t value;
    *ret = (struct reply){.error = p < end && *p == '-'};
    for (int64_t due = 1; due > 0; due--) {
        if (p == end)
            return NULL;
        char kind = *p++;
        if (kind == '+' || kind == '-') {
            const char *line = memchr(p, '\n', (size_t)(end - p));
            if (!line)
                return NULL;
            p = line + 1;
            continue;
        }
        if (kind != ':' && kind != '$' && kind != '*')
            die("no reply begins with byte %d", kind);
        p = read_line(p, end, &value);
        if (!p)
            return NULL;
        if (kind == ':') {
            ret->first = ret->any ? ret->first : value;
            ret->last = value;
            ret->any = true;
        } else if (kind == '*') {
            due += value > 0 ? value : 0;
        } else if (value >= 0) {
            if (end - p < value + 2)
                return NULL;
            p += value + 2;
        }
    }
    return p;
}

static void count_reply(const struct reply *reply, const char *text, size_t len)
{
    if (reply->error && errors++ == 0)
        fprintf(stderr, "redis-load: %.*s", (int)len, text);
    else if (reply->any && reply->first == 1)
        ones++;
    else if (reply->any && reply->first == 0)
        zeros++;
    else if (!reply->error)
        others++;
}

static void take_replies(struct connection *it)
{
    const char *p = it->in, *end = it->in + it->in_len, *next;
    struct reply reply;
    while (it->awaited > 0 && (next = read_reply(p, end, &reply))) {
        it->leases[it->size - it->awaited] = (uint64_t)reply.last;
        count_reply(&reply, p, (size_t)(next - p));
        it->awaited--;
        p = next;
    }
    it->in_len = (size_t)(end - p);
    if (it->in_len == IN_SIZE || (it->awaited == 0 && it->in_len))
        die("a reply too long, or one too many");
    memmove(it->in, p, it->in_len);
}

/* ---- sockets ---- */

static int dial(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        die("port %u: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* One command as text, its reply into `ret`, by a blocking socket. */
static void ask(int fd, const char *command, char *ret, size_t size)
{
    struct reply reply;
    size_t len = 0;
    if (send(fd, command, strlen(command), MSG_NOSIGNAL) != (ssize_t)strlen(command))
        die("cannot send: %s", strerror(errno));
    do {
        ssize_t n = recv(fd, ret + len, size - 1 - len, 0);
        if (n <= 0)
            die("the server hung up");
        len += (size_t)n;
    } while (!read_reply(ret, ret + len, &reply));
    ret[len] = 0;
    if (reply.error)
        die("%s: %s", command, ret);
}

static double cpu_us(int control)
{
    char text[4096];
    ask(control, "INFO cpu\r\n", text, sizeof text);
    const char *sys = strstr(text, "used_cpu_sys:"), *user = strstr(text, "used_cpu_user:");
    if (!sys || !user)
        die("INFO cpu does not tell the CPU");
    return 1e6 * (strtod(sys + strlen("used_cpu_sys:"), NULL) +
                  strtod(user + strlen("used_cpu_user:"), NULL));
}

/* What was written has got to the replicas. */
static void settle(int control, unsigned replicas)
{
    char text[256];
    if (replicas == 0)
        return;
    ask(control, "SET redis-load:end 1\r\n", text, sizeof text);
    snprintf(text, sizeof text, "WAIT %u %d\r\n", replicas, PATIENCE_MS);
    ask(control, text, text, sizeof text);
    if (strtoul(text + 1, NULL, 10) < replicas)
        die("a replica does not keep up");
}

static void open_connection(struct connection *it, uint16_t port, const char *db)
{
    char text[64];
    it->fd = dial(port);
    snprintf(text, sizeof text, "SELECT %s\r\n", db);
    ask(it->fd, text, text, sizeof text);
    fcntl(it->fd, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < steps; i++) {
        it->out[i] = allocate(pipeline * templates[i].len);
        for (unsigned j = 0; j < pipeline; j++)
            memcpy(it->out[i] + j * templates[i].len, templates[i].bytes, templates[i].len);
    }
}

static void flush(int epoll, struct connection *it)
{
    while (it->sent < it->len) {
        ssize_t n = send(it->fd, it->out[it->step] + it->sent, it->len - it->sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            die("cannot send: %s", strerror(errno));
        if (n < 0)
            break;
        it->sent += (size_t)n;
    }
    if (it->crowded == (it->sent < it->len))
        return;
    it->crowded = it->sent < it->len;
    struct epoll_event event = {it->crowded ? EPOLLIN | EPOLLOUT : EPOLLIN, {.ptr = it}};
    epoll_ctl(epoll, EPOLL_CTL_MOD, it->fd, &event);
}

/* Serves one connection; false: it is done. */
static bool serve(int epoll, struct connection *it)
{
    if (it->sent < it->len)
        flush(epoll, it);
    ssize_t n = recv(it->fd, it->in + it->in_len, IN_SIZE - it->in_len, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        die("the server hung up");
    if (n < 0)
        return true;
    it->in_len += (size_t)n;
    take_replies(it);
    if (it->awaited > 0)
        return true;
    if (!next_batch(it))
        return false;
    flush(epoll, it);
    return true;
}

static void run(struct connection *connections, unsigned count)
{
    int epoll = epoll_create1(0);
    unsigned busy = 0;
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event event = {EPOLLIN, {.ptr = &connections[i]}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event);
        if (!next_batch(&connections[i]))
            continue;
        busy++;
        flush(epoll, &connections[i]);
    }
    while (busy > 0) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, PATIENCE_MS);
        if (n <= 0)
            die("the server does not answer");
        for (int i = 0; i < n; i++)
            busy -= !serve(epoll, events[i].data.ptr);
    }
    close(epoll);
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 10 && argc != 11)
        die("expected PORT DB CONNECTIONS PIPELINE COMMANDS KEYS random|each REPLICAS TEMPLATE "
            "[THEN]");
    uint16_t port = (uint16_t)number(argv[1], "PORT", 1, 65535);
    unsigned count = (unsigned)number(argv[3], "CONNECTIONS", 1, CONNECTIONS_MAX);
    pipeline = (unsigned)number(argv[4], "PIPELINE", 1, PIPELINE_MAX);
    left = number(argv[5], "COMMANDS", 1, UINT32_MAX);
    key_count = number(argv[6], "KEYS", 1, UINT32_MAX);
    in_turn = !strcmp(argv[7], "each");
    unsigned replicas = (unsigned)number(argv[8], "REPLICAS", 0, 100);
    seed = (uint64_t)(seconds() * 1e9) * UINT64_C(0x9E3779B97F4A7C15) | 1;
    steps = argc - 9;
    for (int i = 0; i < steps; i++)
        read_template(argv[9 + i], &templates[i]);
    left = steps == 2 ? (left + 1) / 2 : left;

    struct connection *connections = allocate(count * sizeof *connections);
    for (unsigned i = 0; i < count; i++)
        open_connection(&connections[i], port, argv[2]);
    int control = dial(port);
    double cpu = cpu_us(control), start = seconds();
    run(connections, count);
    double wall = seconds() - start;
    settle(control, replicas);
    cpu = cpu_us(control) - cpu;
    printf("%.6f %.1f %llu %llu %llu %llu\n", wall, cpu, (unsigned long long)ones,
           (unsigned long long)zeros, (unsigned long long)others, (unsigned long long)errors);
    return 0;
}
