/*
 * Threads that are cancelled in the middle of verbs. No verb is a cancellation point, except for
 * the sleep of a wait, so a thread ends between two of them and leaves no lock behind: nobody
 * hangs, and when all is quiet every verb works on every key.
 *
 *     cancel [COUNT [URL]]
 *
 * COUNT cancellations, of a store in memory and one in shared memory, or of the store at the URL.
 */
#include "../unit/store_test.h"
#include "base/random.h"

#include <pthread.h>

#define WORKERS 6
#define KEYS 40
#define PATIENCE_S 300 /* a thread that does not end in that time hangs */

enum { WINDOW, BUCKET, LOG, PAIR, SLOTS, LIMITS };
static const char *const texts[LIMITS] = {"fixed-window 1000000/h", "token-bucket 1000000/s",
                                          "sliding-log 50/s", "sliding-counter 1000000/h",
                                          "concurrent 5 lease 1m"};

struct worker {
    pthread_t thread;
    uint64_t chance;
    bool inside; /* a verb */
    bool cancelled_inside;
};

static weir_store *store;
static weir_limit *limits[LIMITS];
static struct worker workers[WORKERS];

static weir_key key_number(char room[16], uint64_t number)
{
    snprintf(room, 16, "key %d", (int)(number % KEYS));
    return weir_key_text(room);
}

/* ---- verbs ---- */

static int verb_take(uint64_t chance)
{
    char room[16];
    weir_decision decision;
    return weir_take(store, key_number(room, chance), limits[chance / KEYS % SLOTS], 1, &decision);
}

static int verb_peek(uint64_t chance)
{
    char room[16];
    weir_decision decision;
    return weir_peek(store, key_number(room, chance), limits[chance / KEYS % LIMITS], 1, &decision);
}

static int verb_group(uint64_t chance)
{
    char rooms[3][16];
    weir_request requests[3];
    weir_decision decision;
    for (uint64_t i = 0; i < 3; i++)
        requests[i] =
            weir_request_make(key_number(rooms[i], chance + i), limits[(chance + i) % SLOTS]);
    return weir_take_all(store, requests, 3, &decision);
}

static int verb_many(uint64_t chance)
{
    char rooms[5][16];
    weir_request requests[5];
    weir_decision decisions[5];
    for (uint64_t i = 0; i < 5; i++)
        requests[i] =
            weir_request_make(key_number(rooms[i], chance * i), limits[(chance + i) % SLOTS]);
    return weir_take_many(store, requests, 5, decisions);
}

static int verb_settle(uint64_t chance)
{
    char room[16], receipt[WEIR_RECEIPT_SIZE];
    weir_decision decision;
    weir_key key = key_number(room, chance);
    const weir_limit *limit = limits[chance / KEYS % SLOTS];
    int code = weir_take(store, key, limit, 3, &decision);
    if (code || !decision.allowed)
        return code;
    weir_receipt(&decision, receipt);
    return weir_settle(store, key, limit, receipt, (int64_t)(chance % 5), NULL);
}

static int verb_lease(uint64_t chance)
{
    char room[16];
    weir_decision decision = {0};
    weir_key key = key_number(room, chance);
    int code = weir_acquire(store, key, limits[SLOTS], 1, &decision);
    if (code || !decision.lease)
        return code;
    code = weir_renew(store, key, limits[SLOTS], decision.lease);
    int last = weir_release(store, key, limits[SLOTS], decision.lease);
    return code ? code : last;
}

static int verb_reset(uint64_t chance)
{
    char room[16];
    return weir_reset(store, key_number(room, chance));
}

static int verb_look(uint64_t chance)
{
    weir_zone_info info;
    int code = chance % 8 ? weir_store_info(store, &info) : weir_store_check(store, NULL);
    return code == WEIR_EUNSUPPORTED ? 0 : code;
}

static int (*const verbs[])(uint64_t chance) = {verb_take,  verb_take, verb_take,   verb_peek,
                                                verb_group, verb_many, verb_settle, verb_lease,
                                                verb_reset, verb_look};
#define VERBS (sizeof verbs / sizeof verbs[0])

/* ---- threads ---- */

static void note(void *context)
{
    struct worker *worker = context;
    worker->cancelled_inside = worker->inside;
}

static void *work(void *context)
{
    struct worker *worker = context;
    pthread_cleanup_push(note, worker);
    for (;;) {
        uint64_t chance = weir__random_next(&worker->chance);
        weir_decision decision;
        worker->inside = true;
        verbs[chance % VERBS](chance / VERBS);
        worker->inside = false;
        pthread_testcancel();
        if (chance % 16 == 0) { /* this one may end in its sleep */
            char room[16];
            int code =
                weir_wait(store, key_number(room, chance / 16), limits[LOG], 1, 2000, &decision);
            (void)code;
        }
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void start(struct worker *worker, uint64_t seed)
{
    worker->chance = seed;
    worker->inside = worker->cancelled_inside = false;
    if (pthread_create(&worker->thread, NULL, work, worker))
        test_give_up("pthread_create", "no thread");
}

static void stop(struct worker *worker)
{
    pthread_cancel(worker->thread);
    CHECK_INT(pthread_join(worker->thread, NULL), 0);
    CHECK(!worker->cancelled_inside);
}

/* Nobody else is there: no lock is held, and nothing is busy. */
static void expect_quiet(void)
{
    for (uint64_t chance = 0; chance < KEYS * LIMITS; chance++) {
        for (size_t i = 0; i < VERBS; i++) {
            int code = verbs[i](chance);
            test_check(code == 0 || code == WEIR_ENOLEASE, __FILE__, __LINE__, weir_strerror(code));
        }
    }
}

static void run(const char *url, int count, uint64_t seed)
{
    store = test_open(url, NULL);
    for (int i = 0; i < WORKERS; i++)
        start(&workers[i], weir__random_next(&seed));
    for (int i = 0; i < count; i++) {
        uint64_t chance = weir__random_next(&seed);
        alarm(PATIENCE_S);
        for (volatile uint64_t spins = chance / WORKERS % 20000; spins > 0; spins--)
            ;
        stop(&workers[chance % WORKERS]);
        start(&workers[chance % WORKERS], weir__random_next(&seed));
    }
    for (int i = 0; i < WORKERS; i++)
        stop(&workers[i]);
    expect_quiet();
    weir_store_close(store);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 200;
    for (int i = 0; i < LIMITS; i++)
        limits[i] = test_limit(texts[i]);
    if (argc > 2) {
        run(argv[2], count, 1);
    } else {
        run(test_url(TEST_MEMORY, "cancel", "size=1m&large=40%"), count, 1);
        run(test_url(TEST_SHM, "cancel", "size=1m&large=40%"), count, 2);
        test_remove(TEST_SHM, "cancel");
    }
    for (int i = 0; i < LIMITS; i++)
        weir_limit_free(limits[i]);
    return test_report();
}
