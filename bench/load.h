/*
 * A load generator lean enough that the server is what is measured: one thread that never sleeps,
 * so that the server pays for no wake-up of ours, request bytes made beforehand, replies read in
 * place.
 *
 *   load_main.c     the command line and the line of results
 *   load_loop.c     sockets, closed loop and open loop
 *   load_requests.c the bytes of requests, one for each key
 *   load_resp.c load_http.c load_h2.c  what each protocol sends and reads (load_hpack.c: headers)
 *   load_latency.c  the histogram
 *
 * A load is one kind of request over some connections. A connection sends `batch` requests at once
 * and has up to `depth` unanswered: a pipeline is sent whole and awaited whole (batch = depth),
 * streams of HTTP/2 one by one (batch = 1). In a closed loop the next batch follows the answer; in
 * an open loop batches have fixed times, and a latency is counted from when the request was due,
 * sent or not.
 */
#ifndef WEIR_BENCH_LOAD_H
#define WEIR_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_DIGITS = 10, PLACES_MAX = 4, CONNECTIONS_MAX = 1000, DEPTH_MAX = 256, LOADS_MAX = 2 };
enum { IN_SIZE = 1 << 16, STARTS = 1024 };

/* ---- latency ---- */

enum { LATENCY_FINE_BITS = 6, LATENCY_CELLS = (64 - LATENCY_FINE_BITS) << LATENCY_FINE_BITS };

struct latency {
    uint64_t count;
    int64_t max_ns;
    uint32_t cells[LATENCY_CELLS];
};

void latency_add(struct latency *it, int64_t ns);
int64_t latency_at(const struct latency *it, double share); /* 0.99: the 99th percentile */

/* ---- requests ---- */

enum order {
    ORDER_RANDOM, /* any key, each as likely */
    ORDER_EACH,   /* every key in turn */
    ORDER_FRESH   /* numbers counted up: keys never seen */
};

struct template
{
    char *bytes;
    size_t len, size;
};

/* Requests of one length side by side, `spare` of them twice so that a batch never wraps. */
struct requests {
    char *bytes;
    size_t each;
    uint64_t count, next, number, seed;
    enum order order;
    size_t places[PLACES_MAX]; /* of the key's number */
    unsigned place_count;
};

void template_add(struct template *it, const void *bytes, size_t len);
void template_text(struct template *it, const char *text);
void requests_make(struct requests *ret, const struct template *template, enum order order,
                   uint64_t keys, uint64_t first);
const char *requests_next(struct requests *it, unsigned count);

/* ---- loads ---- */

struct connection;
struct load;

struct protocol {
    const char *name;
    const char *words; /* what the command line gives */
    /* The template of a request from the words of the command line. */
    void (*compose)(struct load *load, char **words, int count, struct template *ret);
    /* Says hello on a new connection; the connection is in use when it is `ready`. NULL: at
     * once. */
    void (*greet)(struct connection *it);
    /* Puts a batch into `out`; false: not now, as the server has not made room. */
    bool (*put)(struct connection *it, unsigned count);
    /* Reads whole answers and returns how many bytes they took. */
    size_t (*take)(struct connection *it, const char *in, size_t len);
};

extern const struct protocol load_resp, load_http, load_grpc;

struct tally {
    uint64_t sent, allowed, denied, others, errors;
    struct latency latency;
};

struct load {
    const struct protocol *protocol;
    struct requests requests;
    struct connection *connections;
    unsigned count, batch, depth, turn;
    double rate; /* 0: closed loop */
    int64_t began;
    double interval_ns;
    uint64_t arrivals; /* batches of the open loop so far */
    uint64_t left;     /* requests to send yet */
    uint64_t unanswered;
    struct tally tally;
    struct template head, first_head; /* of gRPC */
};

struct h2;

struct connection {
    struct load *load;
    struct h2 *h2;
    const char *out;
    size_t out_len, out_sent;
    int fd;
    bool ready;
    unsigned unanswered;
    uint64_t sent, answered;
    int64_t due_ns;         /* of the batch being put */
    int64_t starts[STARTS]; /* by the request's number */
    size_t in_len;
    char in[IN_SIZE];
};

enum answer { ALLOWED, DENIED, OTHER, FAILED };

/* Notes the answer of the oldest request, or of request `number` where they overtake. */
void load_answered(struct connection *it, enum answer answer);
void load_answered_number(struct connection *it, uint64_t number, enum answer answer);
/* Tells of the first failed answer only; counts none. */
void load_complain(struct connection *it, const char *what, const char *text, size_t len);

void load_open(struct load *it, uint16_t port);
/* Runs all loads for so long, or until each has sent what is left; the share of time without
 * work. */
double load_run(struct load *loads, unsigned count, double seconds);
int64_t load_now_ns(void);

__attribute__((format(printf, 1, 2), noreturn)) void load_die(const char *format, ...);
void *load_allocate(size_t size);

#endif
