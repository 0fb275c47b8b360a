/*
 * weir: one limit, one meaning, everywhere it is enforced.
 *
 * This header is the library's manual. In one breath:
 *
 *     weir_store *store = NULL;
 *     weir_limit *limit = NULL;
 *     weir_decision d;
 *     if (weir_store_open("memory:64m", &store, NULL) ||
 *         weir_limit_parse("token-bucket 100/s burst 200", &limit, NULL) ||
 *         weir_take(store, weir_key_text("user:42"), limit, 1, &d))
 *         return -1;
 *     if (d.allowed)
 *         serve();
 *     else
 *         refuse_until(d.retry_after_us);
 *
 * Rules that hold for every function here
 *   - 0 is success, a negative WEIR_E… is failure. "Denied" is a decision, never a failure.
 *   - `ret` parameters are written on success only; on failure they are left as they were.
 *   - A weir_error may be NULL. If given, it is filled on failure with a message for people. Every
 *     verb
 *     has a form with one: a parameter `err`, or the member `error` of a weir_request.
 *   - NULL where a store, a limit, a text or room for a result is expected gives WEIR_EINVAL.
 *     Functions that return no code and must not get NULL are marked WEIR_NONNULL.
 *   - Free and close functions accept NULL. The library never prints, never exits, sets no
 *     handlers.
 *   - Times are microseconds. Points in time count from the Unix epoch.
 *   - -1 means one thing: WEIR_NEVER.
 *
 * Structures that grow
 *   - weir_request, weir_wait_options, weir_decision, weir_limit_numbers and weir_zone_info have
 *     spare room. New members take it, so sizes and offsets never change while the soname is
 *     libweir.so.0. A program may be newer or older than the library.
 *   - What a program leaves out of a request, of options or of a limit's numbers is zero, spare
 *     room included: use an initialiser, weir_request_make or memset. Anything else in the spare
 *     room is WEIR_EINVAL. Zero always means "as before".
 *   - The library sets the spare room of what it returns to zero.
 *
 * Threads, fork, cancellation and signals
 *                 memory:                    shm:, file:               redis://
 *   threads       any number at once, in all kinds of stores. Close a store, free a limit and set a
 *                 clock only when no call runs.
 *   fork          the child has a copy that  the child shares it       the child connects by itself
 *                 shares nothing             with its parent           in its first call
 *   fork with     do not use it in the       as above                  as above
 *   other threads child: one of them may
 *                 have held a lock
 *   kill -9       nothing is left            others go on; no charge   a call that was sent may be
 *                                            is lost                   charged
 *   cancellation  a verb may be cancelled (pthread_cancel) only where a wait sleeps: weir_wait,
 *                 weir_wait_for, weir_wait_with, weir_acquire_wait. It then leaves its queue and
 *                 gives back what it was charged. No other verb is a cancellation point.
 *                 Asynchronous cancellation is not supported.
 *   signals       no function may be called from a signal handler. A handler that returns disturbs
 *                 nothing: calls and sleeps go on. A wait can ask to be interrupted: see
 *                 weir_wait_with.
 *
 * Caveats
 *   - `shm:` and `file:` zones hold robust mutexes of this C library: processes of one host share
 *     them, hosts (network file systems) do not.
 *   - A zone has a fixed size. When it is full, states that are back to fresh go first (nobody can
 *     tell), then those that cost least. Size it so that the latter does not happen; `weir zone`
 *     counts both. With `full=deny` the latter never happens: new keys get WEIR_EFULL.
 *   - Keys are kept as a keyed hash (64 bits and their place) under the zone's random secret, never
 *     as text.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header. Everything else that has a version reads it here. */
#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0
#define WEIR_VERSION_NUMBER                                                                        \
    (WEIR_VERSION_MAJOR * 10000 + WEIR_VERSION_MINOR * 100 + WEIR_VERSION_PATCH)
#define WEIR_STRING_(x) #x
#define WEIR_STRING(x) WEIR_STRING_(x)
#define WEIR_VERSION                                                                               \
    WEIR_STRING(WEIR_VERSION_MAJOR)                                                                \
    "." WEIR_STRING(WEIR_VERSION_MINOR) "." WEIR_STRING(WEIR_VERSION_PATCH)

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#define WEIR_MUST_CHECK __attribute__((warn_unused_result))
#define WEIR_NONNULL __attribute__((nonnull))
#define WEIR_NONNULL_FIRST __attribute__((nonnull(1)))
#else
#define WEIR_API
#define WEIR_MUST_CHECK
#define WEIR_NONNULL
#define WEIR_NONNULL_FIRST
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that runs, as text. WEIR_VERSION is the header's. Never NULL. */
WEIR_API const char *weir_version(void);

/* ---- errors ------------------------------------------------------------------------------- */

/* One list gives the codes, their names and their texts. */
#define WEIR_ERRORS(X)                                                                             \
    X(EINVAL, 1, "an argument is outside its bounds")                                              \
    X(ESYNTAX, 2, "the limit text cannot be read")                                                 \
    X(EURL, 3, "the store address cannot be read")                                                 \
    X(ENOMEM, 4, "out of memory")                                                                  \
    X(ESYSTEM, 5, "the system refused")                                                            \
    X(ETRUNCATED, 6, "the zone file is shorter than it says")                                      \
    X(EFOREIGN, 7, "not a weir zone")                                                              \
    X(EVERSION, 8, "a zone of another version or machine")                                         \
    X(EOWNER, 9, "the zone belongs to somebody else")                                              \
    X(EDAMAGED, 10, "the zone is damaged")                                                         \
    X(EFULL, 11, "the zone has no room for this state")                                            \
    X(EBUSY, 12, "the zone is held by a process that does not answer")                             \
    X(ENOLEASE, 13, "no such lease")                                                               \
    X(ERECEIPT, 14, "the receipt cannot be read")                                                  \
    X(EUNSUPPORTED, 15, "this limit does not do that")                                             \
    X(ESHARED, 16, "two limits of one key would share a state")                                    \
    X(ESLOTS, 17, "the keys live in different slots of the cluster; give them one {hash tag}")     \
    X(EUNREACHABLE, 18, "no server could be reached in time")                                      \
    X(ESETTLED, 19, "settled before, nothing changed")                                             \
    X(ECANCELED, 20, "the wait was cancelled, nothing is charged")                                 \
    X(EINTR, 21, "a signal interrupted the wait, nothing is charged")                              \
    X(EGONE, 22, "another zone is at the path by now; close the store and open it again")

enum weir_code {
    WEIR_OK = 0,
#define WEIR_ERROR_CODE(name, number, text) WEIR_##name = -number,
    WEIR_ERRORS(WEIR_ERROR_CODE)
#undef WEIR_ERROR_CODE
};

typedef struct weir_error {
    int code;          /* a WEIR_E…, or 0 */
    int column;        /* limit text and store addresses: where, counted from 1; otherwise 0 */
    char message[512]; /* names the value, what was expected and what to do */
} weir_error;

/* The short text of a code ("the zone is damaged"); never NULL. */
WEIR_API const char *weir_strerror(int code);

/* The name of a code ("EDAMAGED"); never NULL. */
WEIR_API const char *weir_errname(int code);

/* ---- limits ------------------------------------------------------------------------------- */

#define WEIR_LIMITS_MAX 16 /* limits of one call, over all its keys */
#define WEIR_KEY_MAX 65536 /* bytes of a key; at least 1 */
#define WEIR_COST_MAX INT64_C(1000000000000)
#define WEIR_DURATION_MAX INT64_C(31622400000000) /* 366 days */

/* One or several limits, "token-bucket 10/s burst 20, fixed-window 1000/d". Immutable. */
typedef struct weir_limit weir_limit;

/* Reads limit text (NUL-terminated). On failure err->column says where. */
WEIR_API WEIR_MUST_CHECK int weir_limit_parse(const char *text, weir_limit **ret, weir_error *err);

/* Reads limit text of a given length, which need not end with a NUL. */
WEIR_API WEIR_MUST_CHECK int weir_limit_parse_n(const char *text, size_t len, weir_limit **ret,
                                                weir_error *err);

/* The kinds of limits, as numbers. */
enum weir_kind {
    WEIR_TOKEN_BUCKET = 1,
    WEIR_STEPPED, /* token-bucket … stepped */
    WEIR_LEAKY_BUCKET,
    WEIR_FIXED_WINDOW,
    WEIR_FROM_FIRST, /* fixed-window … from-first */
    WEIR_SLIDING_LOG,
    WEIR_SLIDING_WINDOW,
    WEIR_SLIDING_COUNTER,
    WEIR_SMOOTH,
    WEIR_WARMUP,
    WEIR_CONCURRENT
};

/* What a fixed window's period may be instead of a duration. */
enum weir_unit { WEIR_MONTH = 1, WEIR_YEAR };

/* One limit in numbers. What is left out is 0 and means what leaving it out of the text means. What
 * the kind does not have must be 0. In
 *
 *     weir_limit_numbers numbers = {.kind = WEIR_TOKEN_BUCKET, .count = 100, .period_us = 1000000};
 *
 * it is "token-bucket 100/s". */
typedef struct weir_limit_numbers {
    int32_t kind; /* a weir_kind */
    bool nodelay; /* leaky-bucket */
    uint8_t unit; /* fixed-window: a weir_unit, and period_us 0; or 0 */
    /* fixed-window: when a week (1 mon … 7 sun, in from_day), a month or a year starts; 0: the
     * first day, and a week as it does without. A year has both numbers. */
    uint8_t from_month, from_day;
    int64_t count;           /* the 100 of "100/s"; concurrent: how much at once */
    int64_t period_us;       /* concurrent: the lease, or 0: a minute */
    int64_t burst;           /* token-bucket (0: the count), leaky-bucket */
    int64_t delay;           /* leaky-bucket: so many go ahead without delay */
    int64_t precision_us;    /* sliding-window; 0: a tenth of the period */
    int64_t burst_for_us;    /* smooth; 0: a second */
    int64_t over_us;         /* warmup: must be given */
    int64_t cold_millionths; /* warmup, 2500000 is "cold 2.5"; 0: 3 */
    int64_t zone_minutes; /* fixed-window: how far local clocks are ahead of UTC, 480 is "+08:00" */
    int64_t cost;         /* its own, whatever the request costs; 0: it has none */
    uint64_t spare[5];
} weir_limit_numbers;

/* Makes a limit of 1 to WEIR_LIMITS_MAX of them, without text to read: for limits from a database.
 * It is the same as the limit that weir_limit_parse makes of its text. Numbers out of bounds are
 * WEIR_EINVAL, and the message names the member. */
WEIR_API WEIR_MUST_CHECK int weir_limit_make(const weir_limit_numbers *numbers, size_t n,
                                             weir_limit **ret, weir_error *err);

/* Frees a limit. NULL is fine. */
WEIR_API void weir_limit_free(weir_limit *limit);

/* How many limits it holds, 1 to WEIR_LIMITS_MAX; 0 of NULL. */
WEIR_API size_t weir_limit_count(const weir_limit *limit);

/* The canonical text, which lives as long as the limit; "" of NULL. */
WEIR_API const char *weir_limit_text(const weir_limit *limit);

/* The name of limit i, counted from 0 ("token-bucket"); NULL if there is no such limit. */
WEIR_API const char *weir_limit_kind(const weir_limit *limit, size_t i);

/* How much limit i admits in a period, the 100 of "100/s"; of `concurrent` how much at once. 0 if
 * there is no such limit. */
WEIR_API int64_t weir_limit_amount(const weir_limit *limit, size_t i);

/* The period of limit i, a second in "100/s"; of a month or a year the longest there is, 31 or 366
 * days; of `concurrent` the lease. 0 if there is no such limit. */
WEIR_API int64_t weir_limit_period_us(const weir_limit *limit, size_t i);

/* The burst of limit i; 0 if it has none, or if there is no such limit. */
WEIR_API int64_t weir_limit_burst(const weir_limit *limit, size_t i);

/* The cost of limit i's own, the 1 of "concurrent 5 cost 1"; 0 if it is charged what the request
 * costs, or if there is no such limit. */
WEIR_API int64_t weir_limit_cost(const weir_limit *limit, size_t i);

/* ---- stores ------------------------------------------------------------------------------- */

typedef struct weir_store weir_store;

/*
 * Opens a store:
 *   memory:64m                    private memory, this process only
 *   shm:/name?size=64m            shared memory, processes of one host, until reboot
 *   file:/path?size=64m           a mapped file, survives restarts
 *   redis://host:6379             Redis or Valkey, a whole fleet; options: docs/REDIS-STORE.md
 * Sizes take k, m, g (powers of 1024). Without a size a new zone gets 64m, an existing one keeps
 * its own. With another size than the existing one's, its states are carried over into a zone of
 * that size, if nobody else has it open; otherwise it is refused. `large=25%` (0 to 90) sets the
 * share of the zone kept for logs, windows and leases; new zones get 12%. `mode=0660&group=NAME`
 * (or a number) shares a zone with the members of a group; otherwise it is its owner's only.
 * `full=deny`: where a new key finds no room, the call fails with WEIR_EFULL. Without it, or with
 * `full=evict`, the zone forgets another key that is in use (docs/ZONE.md). `create=no` opens the
 * zone that is there, as it is, whatever size and large say, and fails where there is none.
 */
WEIR_API WEIR_MUST_CHECK int weir_store_open(const char *url, weir_store **ret, weir_error *err);

/* Closes a store. NULL is fine. */
WEIR_API void weir_store_close(weir_store *store);

/* A clock of your own. `now` gives microseconds since the epoch; `sleep` is what weir_wait sleeps
 * with (NULL: it returns at once). */
typedef struct weir_clock {
    int64_t (*now)(void *context);
    void (*sleep)(void *context, int64_t microseconds);
    void *context;
} weir_clock;

/* Replaces the store's clock: for replay and tests, never in production, where the owner of the
 * state owns the clock. NULL is the system's clock. Not while calls run. */
WEIR_API WEIR_NONNULL_FIRST void weir_store_set_clock(weir_store *store, const weir_clock *clock);

/* ---- keys --------------------------------------------------------------------------------- */

/* What is limited: 1 to WEIR_KEY_MAX bytes, borrowed for the call. Any other length is WEIR_EINVAL.
 * Two words, made to be passed by value. */
typedef struct weir_key {
    const void *data;
    size_t len;
} weir_key;

/* Makes a key of any bytes. */
static inline weir_key weir_key_bytes(const void *data, size_t len)
{
    weir_key key = {data, len};
    return key;
}

/* Makes a key of a NUL-terminated string. NULL makes a key that every verb refuses. */
static inline weir_key weir_key_text(const char *text)
{
    return weir_key_bytes(text, text ? __builtin_strlen(text) : 0);
}

/* A key that was hashed once, for hot paths. It borrows the key's bytes: they live as long as it is
 * used. weir_key_hash fills it; its members are the library's own. */
typedef struct weir_hashed_key {
    weir_key key;
    uint64_t hash[2];
    uint64_t store; /* the store it was hashed for */
    uint64_t spare;
} weir_hashed_key;

/* Hashes a key once for this store. weir_take_hashed and the member `hashed` of a request use it.
 * It works with other stores, too: they hash the bytes again. */
WEIR_API WEIR_MUST_CHECK int weir_key_hash(const weir_store *store, weir_key key,
                                           weir_hashed_key *ret);

/* ---- decisions ---------------------------------------------------------------------------- */

#define WEIR_NEVER INT64_C(-1) /* retry_after_us: the cost exceeds the limit */

typedef struct weir_decision {
    int64_t limit;          /* the most that a fresh state admits at once */
    int64_t remaining;      /* what is left, in whole units */
    int64_t retry_after_us; /* 0 if allowed; when the same request would be allowed; WEIR_NEVER */
    int64_t reset_after_us; /* when the state cannot be told from a fresh one */
    int64_t delay_us;       /* how long to wait before going ahead */
    int64_t time_us;        /* when it was decided, by the store's clock */
    int64_t charged;        /* what the store was charged: 0 if denied, a peek, or degraded */
    uint64_t lease;         /* weir_acquire: names the lease; otherwise 0 */
    bool allowed;           /* may it go ahead */
    bool degraded;          /* decided by a local fallback: the store was out of reach */
    uint8_t binding;        /* which limit bound: index into the limits, in the order given */
    uint8_t receipt[5];     /* weir_receipt's own: the id it has given */
    int32_t code;           /* weir_take_many: 0, or why this request was not decided */
    bool full;              /* servers only: denied because the store has no room, not by a limit */
    bool local;             /* decided from a slice, or by a denial that is still known: no call */
    bool uneven;            /* the call's requests were charged different amounts: weir_receipt */
    bool closed;            /* denied by fail=closed, because the store was out of reach */
    int64_t granted; /* what the caller may use: the cost, or less with `least`; 0 if denied */
    uint64_t spare[1];
} weir_decision;

/* Decides and charges. Cost 0 asks without charging. Limits that shape (leaky-bucket, smooth,
 * warmup) may answer with any delay, the others with none. */
WEIR_API WEIR_MUST_CHECK int weir_take(weir_store *store, weir_key key, const weir_limit *limit,
                                       int64_t cost, weir_decision *ret);

/* weir_take with a key that was hashed before. */
WEIR_API WEIR_MUST_CHECK int weir_take_hashed(weir_store *store, const weir_hashed_key *key,
                                              const weir_limit *limit, int64_t cost,
                                              weir_decision *ret);

/* Says what take would answer, with remaining and reset_after as they stand. Charges nothing. */
WEIR_API WEIR_MUST_CHECK int weir_peek(weir_store *store, weir_key key, const weir_limit *limit,
                                       int64_t cost, weir_decision *ret);

/* Forgets a key, all its limits. */
WEIR_API WEIR_MUST_CHECK int weir_reset(weir_store *store, weir_key key);

/* weir_reset with a message on failure. */
WEIR_API WEIR_MUST_CHECK int weir_reset_key(weir_store *store, weir_key key, weir_error *err);

/* ---- requests: the long form -------------------------------------------------------------- */

#define WEIR_COST_NONE INT64_MIN          /* cost: nothing is charged */
#define WEIR_WAIT_DEFAULT (INT64_MIN + 1) /* wait_us: what weir_take does, see there */
#define WEIR_WAIT_ANY INT64_MAX /* wait_us: as long as it takes (token-bucket: 366 days) */

/* One request with everything that can be said. What is left out is 0 and has a meaning: in
 *
 *     weir_request request = {.key = weir_key_text("user:42"), .limit = limit};
 *
 * it costs 1 and accepts no delay. weir_request_make accepts the delays that weir_take does. */
typedef struct weir_request {
    weir_key key;
    const weir_limit *limit;
    int64_t cost;          /* 0: it costs 1; WEIR_COST_NONE: it asks without charging */
    int64_t wait_us;       /* the longest acceptable delay, WEIR_WAIT_ANY or WEIR_WAIT_DEFAULT */
    weir_decision *detail; /* NULL, or room for one decision per limit */
    bool acquire;          /* hold a lease of the `concurrent` limit: see weir_acquire */
    uint8_t spare_bytes[7];
    const weir_hashed_key *hashed; /* NULL, or the key; then `key` is not read */
    weir_error *error;             /* NULL, or filled where this request fails */
    int64_t least; /* 0, or the least that it also takes: `granted` says how much it got */
    uint64_t spare[2];
    int64_t waited_us; /* redis://: how long it has waited for this call already, as in a queue of
                        * the caller's: the deadline is over so much earlier. Servers that lately
                        * took longer than what is left of it are not asked */
} weir_request;

/* Makes a request with the defaults: cost 1, default wait, no detail. (Member by member, so that
 * compilers write it where it is wanted instead of copying it.) */
static inline weir_request weir_request_make(weir_key key, const weir_limit *limit)
{
    weir_request request;
    request.key = key;
    request.limit = limit;
    request.cost = 1;
    request.wait_us = WEIR_WAIT_DEFAULT;
    request.detail = (weir_decision *)0;
    request.acquire = false;
    for (size_t i = 0; i < sizeof request.spare_bytes; i++)
        request.spare_bytes[i] = 0;
    request.hashed = (const weir_hashed_key *)0;
    request.error = (weir_error *)0;
    request.least = 0;
    request.spare[0] = request.spare[1] = 0;
    request.waited_us = 0;
    return request;
}

/* Takes all or nothing over several keys: all are charged or none, at one instant. At most
 * WEIR_LIMITS_MAX limits together. `ret` is the folded answer. Its binding counts the limits of all
 * requests in order. What it charged is the first request's; each detail row has its own. With
 * n = 1 this is weir_take with a wait, detail and a message. A failure that is no single request's
 * fills the error of the first.
 *
 * A request with a `least`, from 1 to its cost, also takes less than its cost: as much as all its
 * limits allow together, but not less than this. It is for costs that are known only later, such as
 * tokens of a language model: ask for what it may need, use what is granted, settle what it was.
 *
 *     weir_request request = {.key = key, .limit = limit, .cost = 4000, .least = 500};
 *
 * All requests of a call that have a least get the same amount, which is `granted` of the folded
 * answer. Limits with a cost of their own are charged that. Limits that shape must have one, and
 * wait_us is 0 or WEIR_WAIT_DEFAULT (WEIR_EINVAL, WEIR_EUNSUPPORTED). */
WEIR_API WEIR_MUST_CHECK int weir_take_all(weir_store *store, const weir_request *requests,
                                           size_t n, weir_decision *ret);

/* weir_take_all that charges nothing. */
WEIR_API WEIR_MUST_CHECK int weir_peek_all(weir_store *store, const weir_request *requests,
                                           size_t n, weir_decision *ret);

/* Decides many independent requests, each by itself, in order, all at one reading of the clock (but
 * for one whose log or window has a newer entry by then: it reads the clock again).
 * Much faster than one by one when the keys are many. `rets` has room for n. Returns 0, or the code
 * of the first request that failed. A request that fails stops no other one: its decision has the
 * code, the others have code 0 and are decided. */
WEIR_API WEIR_MUST_CHECK int weir_take_many(weir_store *store, const weir_request *requests,
                                            size_t n, weir_decision *rets);

/* ---- waiting ------------------------------------------------------------------------------ */

/* Takes, sleeping the delay or retry_after, until allowed or max_wait_us (0 or more, or
 * WEIR_WAIT_ANY) has passed. The threads of a process that wait for a state of a key are served
 * first come, first served, whatever each asks for: the first waits for its cost, the others behind
 * it. Between processes only the limits that give reservations (token-bucket, leaky-bucket, smooth,
 * warmup) keep the order. weir_take does not wait, so it does not queue. A request that cannot make
 * it in time is denied at once if that is known, otherwise at its deadline. It is charged nothing
 * then. */
WEIR_API WEIR_MUST_CHECK int weir_wait(weir_store *store, weir_key key, const weir_limit *limit,
                                       int64_t cost, int64_t max_wait_us, weir_decision *ret);

/* weir_wait with a request: with detail, a message, and with `acquire` for a lease: see
 * weir_acquire_wait. Its wait_us must be left out. */
WEIR_API WEIR_MUST_CHECK int weir_wait_for(weir_store *store, const weir_request *request,
                                           int64_t max_wait_us, weir_decision *ret);

/* What waits can be cancelled by from another thread. One may serve many waits, at the same time or
 * one after the other. It belongs to the process that made it. */
typedef struct weir_waiter weir_waiter;

/* Makes a waiter. */
WEIR_API WEIR_MUST_CHECK int weir_waiter_create(weir_waiter **ret, weir_error *err);

/* Cancels every wait that uses it, and every later one. Any thread may call it, any number of
 * times. A wait that was just served is not cancelled: what the wait returns says which of both
 * happened. NULL is fine. */
WEIR_API void weir_waiter_cancel(weir_waiter *waiter);

/* Frees a waiter that no wait uses any more. NULL is fine. */
WEIR_API void weir_waiter_free(weir_waiter *waiter);

/* How long to wait, and what ends a wait early. What is left out is 0 and has a meaning: in
 *
 *     weir_wait_options options = {.max_wait_us = 2000000, .cancel_fd = &fd};
 *
 * nobody else can cancel it, and signals do not interrupt it. */
typedef struct weir_wait_options {
    int64_t max_wait_us;  /* as in weir_wait: 0 or more, or WEIR_WAIT_ANY */
    weir_waiter *waiter;  /* NULL, or what other threads cancel it by */
    const int *cancel_fd; /* NULL, or a descriptor that cancels it by being readable or closed by
                             its peer: an eventfd, a pipe, a client's socket */
    bool interruptible;   /* a signal whose handler returns during a sleep ends it: WEIR_EINTR */
    uint8_t spare_bytes[7];
    uint64_t spare[4];
} weir_wait_options;

/* weir_wait_for that can be cancelled. WEIR_ECANCELED: it was, and what had been reserved for it is
 * given back. WEIR_EINTR: the same by a signal; one that comes just before the sleep is missed, and
 * a descriptor is not. 0: it was decided, and the decision counts, also if it was cancelled too
 * late. If the store cannot be reached to give a reservation back, that code comes back and the
 * charge stays. */
WEIR_API WEIR_MUST_CHECK int weir_wait_with(weir_store *store, const weir_request *request,
                                            const weir_wait_options *options, weir_decision *ret);

/* ---- correcting a charge ------------------------------------------------------------------ */

#define WEIR_RECEIPT_SIZE 64

/* Writes the receipt of a take: opaque text, NUL-terminated, to hand to weir_settle later. The
 * first call gives the decision a random id, and later ones repeat it: take receipts of one
 * decision, not of copies. A decision and its detail rows have one id from the start. Where
 * weir_take_all charged its requests different amounts (`uneven`), the folded decision has no
 * receipt: the text is empty, and weir_settle refuses it. Settle each request by a receipt of its
 * detail rows. */
WEIR_API WEIR_NONNULL void weir_receipt(weir_decision *decision, char ret[WEIR_RECEIPT_SIZE]);

/* Corrects the charge named by the receipt to the real cost, once. Limits with a cost of their own
 * are left alone. WEIR_ESETTLED says that it was done before and that nothing changed, so a settle
 * whose answer got lost may be sent again. docs/SPEC.md says for how long receipts are remembered.
 * Concurrent limits are refused (WEIR_EUNSUPPORTED). What the local fallback of this store has
 * charged is corrected there, and the servers are charged the real cost; if that is 0, they are not
 * needed. Otherwise WEIR_EUNREACHABLE says that they were not reached. */
WEIR_API WEIR_MUST_CHECK int weir_settle(weir_store *store, weir_key key, const weir_limit *limit,
                                         const char *receipt, int64_t actual_cost, weir_error *err);

/* ---- leases: `concurrent` ----------------------------------------------------------------- */

/* Takes and holds a lease: on success ret->lease names what is held. The limits must hold one
 * `concurrent`. The long form is weir_take_all with `acquire` set. Over several keys one lease
 * names what is held under all of them, and each key is renewed and released by itself. */
WEIR_API WEIR_MUST_CHECK int weir_acquire(weir_store *store, weir_key key, const weir_limit *limit,
                                          int64_t cost, weir_decision *ret);

/* weir_acquire that waits until there are slots, first come, first served within the process, or
 * until max_wait_us has passed. A release wakes it: at once in this process, and in a zone also
 * from other processes. A lease that expires wakes it, too. On redis:// one thread of the process
 * asks again, after 10 ms at first and up to 250 ms later. The long form is weir_wait_for with
 * `acquire` set. */
WEIR_API WEIR_MUST_CHECK int weir_acquire_wait(weir_store *store, weir_key key,
                                               const weir_limit *limit, int64_t cost,
                                               int64_t max_wait_us, weir_decision *ret);

/* Starts the lease's time again; WEIR_ENOLEASE if it has lapsed. */
WEIR_API WEIR_MUST_CHECK int weir_renew(weir_store *store, weir_key key, const weir_limit *limit,
                                        uint64_t lease);

/* Gives the slots back; WEIR_ENOLEASE if it has lapsed. On redis:// a release that returns
 * WEIR_EUNREACHABLE is sent again when the server is back, so the next one may find nothing. */
WEIR_API WEIR_MUST_CHECK int weir_release(weir_store *store, weir_key key, const weir_limit *limit,
                                          uint64_t lease);

/* weir_renew with a message on failure. */
WEIR_API WEIR_MUST_CHECK int weir_renew_lease(weir_store *store, weir_key key,
                                              const weir_limit *limit, uint64_t lease,
                                              weir_error *err);

/* weir_release with a message on failure. */
WEIR_API WEIR_MUST_CHECK int weir_release_lease(weir_store *store, weir_key key,
                                                const weir_limit *limit, uint64_t lease,
                                                weir_error *err);

/* ---- event loops -------------------------------------------------------------------------- */

/* A descriptor for an event loop, which cannot sleep in weir_acquire_wait. It tells of slots of a
 * key that were released. It belongs to the process that opened it. */
typedef struct weir_wakeup weir_wakeup;

/* Opens a wake-up for the leases of a key. The limits must hold one `concurrent`. Close it before
 * the store. The first one of a `shm:` or `file:` store starts a thread, which ends when the store
 * is closed. */
WEIR_API WEIR_MUST_CHECK int weir_wakeup_open(weir_store *store, weir_key key,
                                              const weir_limit *limit, weir_wakeup **ret,
                                              weir_error *err);

/* The descriptor to poll for reading (never read, write or close it); -1 of NULL. It is readable
 * from the first release on that comes after weir_wakeup_open or weir_wakeup_arm. Then call
 * weir_wakeup_arm and acquire again. If that is denied, wait for the descriptor again, but no
 * longer than retry_after_us, because a lease that expires is no release. It may also be readable
 * without a reason: `shm:` and `file:` after a second, `redis://` after 50 to 100 ms, since nobody
 * tells it what other processes do. */
WEIR_API int weir_wakeup_fd(const weir_wakeup *wakeup);

/* Makes the descriptor quiet until the next release. Call it before acquiring, not after it. */
WEIR_API WEIR_MUST_CHECK int weir_wakeup_arm(weir_wakeup *wakeup);

/* Closes a wake-up. NULL is fine. */
WEIR_API void weir_wakeup_close(weir_wakeup *wakeup);

/* ---- what a store was asked --------------------------------------------------------------- */

/* Takes of this process on one store, since it was opened. */
typedef struct weir_counts {
    uint64_t allowed;  /* may go ahead; with those that have to wait first */
    uint64_t denied;   /* may not */
    uint64_t delayed;  /* of the allowed: those with a delay */
    uint64_t failed;   /* not decided: the call returned a code, such as WEIR_EFULL or WEIR_EBUSY */
    uint64_t degraded; /* of the allowed and denied: decided by a local fallback */
    uint64_t spare[3];
} weir_counts;

/* Adds up how the store decided every take: weir_take, weir_take_all, weir_take_many, weir_acquire,
 * and each time that a wait asks. Peeks do not count, nor do calls with invalid arguments. Every
 * store can tell, also a redis:// one. Counting costs takes next to nothing: each thread counts by
 * itself. While other threads take, the sum is that of a moment within the call; once they are done
 * it is exact. A child of fork goes on from its parent's counts. */
WEIR_API WEIR_MUST_CHECK int weir_store_counts(const weir_store *store, weir_counts *ret);

/* ---- what a zone holds -------------------------------------------------------------------- */

typedef struct weir_zone_info {
    uint64_t size;            /* bytes in total */
    uint64_t keys;            /* states held (a key under three limits counts three) */
    uint64_t capacity;        /* states there is room for */
    uint64_t large_bytes;     /* room for logs, windows and leases */
    uint64_t large_used;      /* of it in use */
    uint64_t limits;          /* different limits in use */
    uint64_t evicted_fresh;   /* evictions nobody could notice */
    uint64_t evicted_unused;  /* live states evicted whose last take was not denied */
    uint64_t evicted_soonest; /* live states evicted while they were being denied */
    uint64_t repairs;         /* times a dead process's work was put in order */
    uint64_t refused;         /* requests refused because there was no room for their state */
    uint64_t limits_max;      /* different limits there is room for */
    /* Settled receipts forgotten within their hour, for lack of room: settled again, they count
     * twice. */
    uint64_t evicted_receipts;
    uint64_t spare[3];
} weir_zone_info;

/* How full a zone is, and what was evicted. WEIR_EUNSUPPORTED for redis:// stores. */
WEIR_API WEIR_MUST_CHECK int weir_store_info(weir_store *store, weir_zone_info *ret);

/* Whether a store is sound. Of a zone it checks every byte that can be checked; WEIR_EDAMAGED with
 * the place in err. WEIR_EGONE if another file is at its path, WEIR_ESYSTEM if none is there. Of a
 * redis:// store it says what is known, and asks nobody: WEIR_EUNREACHABLE while a server cannot be
 * reached, WEIR_ESYSTEM after one has refused a call. */
WEIR_API WEIR_MUST_CHECK int weir_store_check(weir_store *store, weir_error *err);

/* ---- for other languages ------------------------------------------------------------------ */

/* Bindings call these: nothing is passed by value, a key is a pointer and a length, and every verb
 * has room for a message. docs/BINDINGS.md shows how to write a binding. */

/* The version of the library that runs, as a number: compare it with WEIR_VERSION_NUMBER. */
WEIR_API int weir_version_number(void);

/* How many error codes there are. They are -1 down to minus this number, and weir_errname names
 * each. */
WEIR_API int weir_error_count(void);

/* The size of a structure by its name, "weir_decision"; 0: there is no such structure. */
WEIR_API size_t weir_sizeof(const char *structure);

/* Where a member begins, in bytes: of "weir_decision" and "granted" it is 80; -1: there is no such
 * member. A binding compares its own layout when it is loaded. */
WEIR_API int weir_offsetof(const char *structure, const char *member);

/* Whether calls of this store wait for a network: those of redis:// do. A binding lets other
 * threads run meanwhile. False of NULL. */
WEIR_API bool weir_store_blocks(const weir_store *store);

/* Stops the store's clock at this time, or moves it there; a wait moves it instead of sleeping.
 * WEIR_NEVER: the system's clock again. For tests in languages that cannot give a weir_clock; as
 * with weir_store_set_clock, never in production, and not while calls run. */
WEIR_API WEIR_MUST_CHECK int weir_store_set_time(weir_store *store, int64_t time_us);

/* weir_request_make into room of the caller's. */
WEIR_API WEIR_NONNULL_FIRST void weir_request_init(weir_request *ret, const void *key, size_t len,
                                                   const weir_limit *limit);

/* weir_take. */
WEIR_API WEIR_MUST_CHECK int weir_take_n(weir_store *store, const void *key, size_t len,
                                         const weir_limit *limit, int64_t cost, weir_decision *ret,
                                         weir_error *err);

/* weir_peek. */
WEIR_API WEIR_MUST_CHECK int weir_peek_n(weir_store *store, const void *key, size_t len,
                                         const weir_limit *limit, int64_t cost, weir_decision *ret,
                                         weir_error *err);

/* weir_wait. */
WEIR_API WEIR_MUST_CHECK int weir_wait_n(weir_store *store, const void *key, size_t len,
                                         const weir_limit *limit, int64_t cost, int64_t max_wait_us,
                                         weir_decision *ret, weir_error *err);

/* weir_acquire. */
WEIR_API WEIR_MUST_CHECK int weir_acquire_n(weir_store *store, const void *key, size_t len,
                                            const weir_limit *limit, int64_t cost,
                                            weir_decision *ret, weir_error *err);

/* weir_renew. */
WEIR_API WEIR_MUST_CHECK int weir_renew_n(weir_store *store, const void *key, size_t len,
                                          const weir_limit *limit, uint64_t lease, weir_error *err);

/* weir_release. */
WEIR_API WEIR_MUST_CHECK int weir_release_n(weir_store *store, const void *key, size_t len,
                                            const weir_limit *limit, uint64_t lease,
                                            weir_error *err);

/* weir_settle. */
WEIR_API WEIR_MUST_CHECK int weir_settle_n(weir_store *store, const void *key, size_t len,
                                           const weir_limit *limit, const char *receipt,
                                           int64_t actual_cost, weir_error *err);

/* weir_reset. */
WEIR_API WEIR_MUST_CHECK int weir_reset_n(weir_store *store, const void *key, size_t len,
                                          weir_error *err);

/* weir_wakeup_open. */
WEIR_API WEIR_MUST_CHECK int weir_wakeup_open_n(weir_store *store, const void *key, size_t len,
                                                const weir_limit *limit, weir_wakeup **ret,
                                                weir_error *err);

/* The one spelling of a path that comes with a request, as policies compare it (docs/POLICIES.md):
 * %XX is decoded once, // is /, dot segments are resolved, and the query, parameters after a ; and
 * spaces and dots at the end of a segment are left out. So /%6cogin, //login and /login;x are
 * /login, but /login/ is not. `ret` has room for len + 1 bytes; no 0 is written behind them.
 * WEIR_EINVAL for a path with a control character: no honest client sends one. */
WEIR_API WEIR_MUST_CHECK int weir_path(const char *path, size_t len, char *ret, size_t size,
                                       size_t *ret_len, weir_error *err);

#define WEIR_FIELDS_SIZE 12288 /* room for the fields of any decision, with the 0 behind them */

/* Writes the HTTP fields that tell of a decision, as the server does: RateLimit, RateLimit-Policy,
 * Retry-After. One line each, "name: value\n", names in lower case; then a 0. `requests` are those
 * that weir_take_all was given: each with `detail`, which it has filled. `folded` is its answer.
 * `names` is NULL, or has what the fields call each limit, in the order of all limits; NULL in it
 * is the word of the algorithm. `style` is "ietf", "ietf-06", "x-ratelimit", "openai",
 * "retry-after" or "off": docs/SERVER.md has all of them. WEIR_EINVAL also where `size` is too
 * small. */
WEIR_API WEIR_MUST_CHECK int weir_fields(const char *style, const weir_request *requests, size_t n,
                                         const char *const *names, const weir_decision *folded,
                                         char *ret, size_t size, weir_error *err);

/* ---- Redis over sockets of the program's own ----------------------------------------------- */

/* For event loops that have their own sockets, such as nginx's or asyncio's. The library writes the
 * commands and reads the replies. The program sends and receives the bytes, and keeps the deadline.
 * Addresses, limits, answers and the local fallback are those of redis:// stores
 * (docs/REDIS-STORE.md), but there is only one server: no Cluster and no Sentinel, and no
 * engine=function (WEIR_EUNSUPPORTED). No function here waits for anything. One thread at a time
 * uses a weir_redis and its calls. A child of fork may go on with it, over connections of its own.
 *
 *     weir_redis_ask ─► weir_redis_write ─► send ─► receive ─► weir_redis_read ─► 0: its answer
 *                             ▲                        ▲             │
 *                             │                        └── MORE ─────┤
 *                             └─────────── AGAIN ──────────────────┤
 *     not in time, or WEIR_EUNREACHABLE ─► weir_redis_fall_back      ┘ */
typedef struct weir_redis weir_redis;

/* A question to the server, until it is answered. Others may be in progress at the same time. */
typedef struct weir_redis_call weir_redis_call;

/* Reads an address and makes the local fallback. It connects to nothing. */
WEIR_API WEIR_MUST_CHECK int weir_redis_open(const char *url, weir_redis **ret, weir_error *err);

/* Closes it; its calls are freed before. NULL is fine. */
WEIR_API void weir_redis_close(weir_redis *redis);

/* Where to connect to: a host, or the path of a socket if it begins with a slash. "" of NULL. */
WEIR_API const char *weir_redis_host(const weir_redis *redis);

/* The port; 0 if the host is a path, or of NULL. */
WEIR_API int weir_redis_port(const weir_redis *redis);

/* Whether to use TLS: 0 no, 1 yes, 2 yes, and the certificate must be valid for the host. */
WEIR_API int weir_redis_tls(const weir_redis *redis);

/* How long a call may take. 0 of NULL. */
WEIR_API int64_t weir_redis_deadline_us(const weir_redis *redis);

/* Makes a call. The verb is "take" (also with `acquire` in requests), "peek" (one request),
 * "settle", "reset", "renew" or "release" (one request each). Requests are as for weir_take_all;
 * their details are not used. "settle" needs a receipt, and the cost of its request is the real
 * one. "renew" and "release" need a lease. Otherwise these are NULL and 0. Nothing is borrowed. */
WEIR_API WEIR_MUST_CHECK int weir_redis_ask(weir_redis *redis, const char *verb,
                                            const weir_request *requests, size_t n,
                                            const char *receipt, uint64_t lease,
                                            weir_redis_call **ret, weir_error *err);

/* Frees a call, answered or not. NULL is fine. */
WEIR_API void weir_redis_call_free(weir_redis_call *call);

/* Says what to send now. The bytes live until the next use of the call. `fresh`: it goes over a
 * connection on which nothing was sent yet. */
WEIR_API WEIR_MUST_CHECK int weir_redis_write(weir_redis_call *call, bool fresh, const char **ret,
                                              size_t *ret_len, weir_error *err);

#define WEIR_REDIS_MORE 1  /* weir_redis_read: receive more, then call it again */
#define WEIR_REDIS_AGAIN 2 /* weir_redis_read: write again, and send over the same connection */

/* Reads what was received. `ret_used` says how many bytes of it are this call's: the others are for
 * the call that was sent next over this connection. 0: it is answered. WEIR_REDIS_MORE,
 * WEIR_REDIS_AGAIN: see there. WEIR_EUNREACHABLE: the server does not decide it, so fall back.
 * WEIR_ESETTLED and WEIR_ENOLEASE are answers, too. Any other code: it is refused. */
WEIR_API WEIR_MUST_CHECK int weir_redis_read(weir_redis_call *call, const char *data, size_t len,
                                             size_t *ret_used, weir_error *err);

/* Whether the connection may be used again: every byte of the answer was read, and the server is
 * fit. Close it otherwise. */
WEIR_API bool weir_redis_is_clean(const weir_redis_call *call);

/* Decides in the server's place, as fail= of the address says. Only takes, peeks and leases that
 * the local fallback gave; otherwise WEIR_EUNREACHABLE. A slot that the server grants all the same
 * stays taken until its lease expires. */
WEIR_API WEIR_MUST_CHECK int weir_redis_fall_back(weir_redis_call *call, weir_error *err);

/* The answer to a take or a peek: row -1 is the decision, 0 and on are those of its limits, over
 * all requests in order. NULL: there is no such row, or no answer. */
WEIR_API const weir_decision *weir_redis_decision(const weir_redis_call *call, int row);

/* For tests: stops the clock at this time, as weir_store_set_time does. The server needs the module
 * with test-clock, or engine=lua. */
WEIR_API WEIR_MUST_CHECK int weir_redis_set_time(weir_redis *redis, int64_t time_us);

/* ---- short names -------------------------------------------------------------------------- */

/* weir_key_text, shorter. */
static inline weir_key weir_text(const char *text)
{
    return weir_key_text(text);
}

/* weir_key_bytes, shorter. */
static inline weir_key weir_bytes(const void *data, size_t len)
{
    return weir_key_bytes(data, len);
}

/* weir_request_make, shorter. */
static inline weir_request weir_ask(weir_key key, const weir_limit *limit)
{
    return weir_request_make(key, limit);
}

#ifdef __cplusplus
}
#endif

#endif
