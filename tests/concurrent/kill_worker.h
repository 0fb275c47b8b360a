/*
 * What the processes do that kill.c kills: charge limits of every kind in one zone, where every
 * answer is counted, and disturb another, far too small one, where things are evicted all the time.
 *
 * A worker counts an answer after it was told. Killed in between, it leaves a charge nobody was
 * told of; so at any moment what is counted is at most what is charged, and that is at most the
 * limit.
 */
#ifndef WEIR_KILL_WORKER_H
#define WEIR_KILL_WORKER_H

#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "base/random.h"

#include <signal.h>
#include <sys/prctl.h>

#define WORKERS 4
#define GENERATIONS 16 /* alive at once: each kill begins a new one, with keys of its own */
#define N 120
#define HOLD 30 /* leases */

/* The kinds of charge, in the zone that is counted. */
static const struct kind {
    const char *limit;
    int64_t cost, actual; /* settled to that, if it differs */
    bool group;           /* charged together with a key of the same limit */
} kinds[] = {
    {"token-bucket 120/366d", 1, 1, false},
    {"token-bucket 120/366d stepped", 1, 1, false},
    {"leaky-bucket 1/366d burst 119 nodelay", 1, 1, false},
    {"fixed-window 120/366d", 1, 1, false},
    {"fixed-window 120/year zone +14:00", 1, 1, false},
    {"sliding-counter 120/366d", 1, 1, false},
    {"sliding-log 120/366d", 1, 1, false},
    {"sliding-window 120/h precision 20s", 1, 1, false},
    {"concurrent 120 lease 366d", 1, 1, false},
    {"token-bucket 120/300d, sliding-log 120/200d", 1, 1, false},
    {"fixed-window 120/300d, sliding-log 120/300d", 1, 1, true},
    {"token-bucket 120/200d, sliding-log 120/100d", 3, 1, false},
};

#define KINDS (sizeof kinds / sizeof kinds[0])

struct page {
    _Atomic int64_t now;
    _Atomic uint32_t generation;
    _Atomic uint32_t told[GENERATIONS][KINDS];
    _Atomic long held[GENERATIONS];
    _Atomic long wrong; /* codes that should not come, leases beyond the count */
    _Atomic int code;   /* the last of them */
    struct {
        _Atomic uint32_t generation; /* whose keys it may be charging */
        _Atomic uint64_t actions;
    } worker[WORKERS];
};

struct worker {
    struct page *page;
    int number;
    uint64_t chance;
    weir_store *counted, *small;
    weir_limit *limits[KINDS], *leases, *odd[80];
    uint32_t generation; /* of the leases held */
    uint64_t held[4];
};

static inline uint64_t worker_random(struct worker *worker, uint64_t below)
{
    return weir__random_next(&worker->chance) % below;
}

static inline weir_key kind_key(char room[32], uint32_t generation, size_t kind, bool other)
{
    snprintf(room, 32, "%u/%zu%s", generation, kind, other ? "/other" : "");
    return weir_key_text(room);
}

static inline void worker_expect(struct worker *worker, int code, bool expected)
{
    if (expected)
        return;
    worker->page->code = code;
    worker->page->wrong++;
}

static inline void worker_strict(struct worker *worker, int code)
{
    worker_expect(worker, code, code == 0);
}

/* In a zone far too small some states have no room, and leases are evicted. */
static inline void worker_judge(struct worker *worker, int code)
{
    worker_expect(worker, code, code == 0 || code == WEIR_EFULL || code == WEIR_ENOLEASE);
}

/* ---- the zone that is counted ---- */

static inline void worker_charge(struct worker *worker, uint32_t generation)
{
    size_t kind = worker_random(worker, KINDS);
    const struct kind *it = &kinds[kind];
    char rooms[2][32], receipt[WEIR_RECEIPT_SIZE];
    weir_decision decision = {0};
    weir_request requests[2];
    for (int i = 0; i < 2; i++) {
        requests[i] =
            weir_request_make(kind_key(rooms[i], generation, kind, i == 1), worker->limits[kind]);
        requests[i].cost = it->cost;
    }
    int code = it->group ? weir_take_all(worker->counted, requests, 2, &decision)
                         : weir_take(worker->counted, requests[0].key, worker->limits[kind],
                                     it->cost, &decision);
    worker_strict(worker, code);
    if (!decision.allowed)
        return;
    worker->page->told[generation % GENERATIONS][kind] += (uint32_t)it->actual;
    if (it->actual == it->cost)
        return;
    weir_receipt(&decision, receipt);
    worker_strict(worker, weir_settle(worker->counted, requests[0].key, worker->limits[kind],
                                      receipt, it->actual, NULL));
}

/* What is held is counted after it is held, and no longer before it is let go. */
static inline void worker_hold(struct worker *worker, uint32_t generation)
{
    char room[32];
    _Atomic long *held = &worker->page->held[generation % GENERATIONS];
    weir_key key = kind_key(room, generation, KINDS, false);
    if (worker->generation != generation)
        memset(worker->held, 0, sizeof worker->held);
    worker->generation = generation;
    uint64_t *lease = &worker->held[worker_random(worker, 4)];
    if (*lease && worker_random(worker, 3) == 0) {
        worker_strict(worker, weir_renew(worker->counted, key, worker->leases, *lease));
    } else if (*lease) {
        uint64_t id = *lease;
        *lease = 0;
        --*held;
        worker_strict(worker, weir_release(worker->counted, key, worker->leases, id));
    } else {
        weir_decision decision = {0};
        worker_strict(worker, weir_acquire(worker->counted, key, worker->leases, 1, &decision));
        *lease = decision.lease;
        if (decision.allowed && ++*held > HOLD)
            worker->page->wrong++;
    }
}

/* ---- the small zone ---- */

static inline weir_limit *odd_limit(int i)
{
    static const struct {
        const char *name, *period;
    } forms[] = {{"token-bucket", "/s"},
                 {"sliding-log", "/10ms"},
                 {"sliding-window", "/20ms"},
                 {"fixed-window", "/10ms"},
                 {"concurrent", " lease 5ms"}};
    return test_limit_of("%s %d%s", forms[i % 5].name, 20 + i, forms[i % 5].period);
}

static inline void worker_disturb(struct worker *worker)
{
    char room[32];
    weir_decision decision = {0};
    weir_request requests[3];
    char rooms[3][32];
    uint64_t limits = (uint64_t)worker->page->now / 20000 % 80; /* they drift: rows come free */
    for (int i = 0; i < 3; i++) {
        snprintf(rooms[i], sizeof rooms[i], "%d", (int)worker_random(worker, 500) * 3 + i);
        const weir_limit *limit = worker->odd[(limits + worker_random(worker, 30)) % 80];
        requests[i] = weir_request_make(weir_key_text(rooms[i]), limit);
    }
    uint64_t what = worker_random(worker, 20);
    if (what == 0) {
        snprintf(room, sizeof room, "%d", (int)worker_random(worker, 1500));
        worker_judge(worker, weir_reset(worker->small, weir_key_text(room)));
    } else if (what < 5) {
        worker_judge(worker, weir_take_all(worker->small, requests, 3, &decision));
    } else {
        worker_judge(worker,
                     weir_take(worker->small, requests[0].key, requests[0].limit, 1, &decision));
    }
}

/* ---- until it is killed ---- */

static inline void worker_run(struct page *page, int number, uint64_t seed, const char *counted,
                              const char *small)
{
    struct worker worker = {.page = page, .number = number, .chance = seed};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    worker.counted = test_open_patiently(counted, &page->now);
    worker.small = test_open_patiently(small, &page->now);
    for (size_t i = 0; i < KINDS; i++)
        worker.limits[i] = test_limit(kinds[i].limit);
    for (int i = 0; i < 80; i++)
        worker.odd[i] = odd_limit(i);
    worker.leases = test_limit_of("concurrent %d lease 366d", HOLD);
    for (;;) {
        /* Announced first: a generation is looked at when everybody has announced a later one. */
        uint32_t generation = page->generation;
        page->worker[number].generation = generation;
        for (int i = 0; i < 20; i++) {
            worker_charge(&worker, generation);
            worker_hold(&worker, generation);
            worker_disturb(&worker);
            page->now++;
            page->worker[number].actions++;
        }
    }
}

#endif
