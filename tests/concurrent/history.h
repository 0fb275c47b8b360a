/*
 * Histories: what many threads or processes asked one store, and what each was answered, with the
 * times of call and return. history_record.h makes them, history_check.h explains them or says that
 * nobody can.
 *
 * A world is what one history is about: up to three keys, each with one or two limits. The limits
 * of a key have two variants, which share their states but have other numbers. Nobody else uses
 * these keys, so their states begin absent.
 */
#ifndef WEIR_HISTORY_H
#define WEIR_HISTORY_H

#include "../unit/store_test.h"
#include "core/core.h"
#include "limit/limit.h"

#define HISTORY_HANDS 8    /* threads or processes */
#define HISTORY_EVENTS 500 /* of one of them */
#define HISTORY_KEYS 3
#define HISTORY_RULES 2 /* of one key */
#define HISTORY_STATES (HISTORY_KEYS * HISTORY_RULES)
#define HISTORY_VARIANTS 2
#define HISTORY_SETTLES 24   /* in one history */
#define HISTORY_READINGS 128 /* of the clock in one call that are kept */

enum history_verb { HISTORY_TAKE, HISTORY_PEEK, HISTORY_RESET, HISTORY_SETTLE };

/* One key of a request. */
struct history_part {
    uint8_t key, variant;
    int64_t cost, wait_us;
};

struct history_event {
    int64_t call_ns, return_ns; /* by the one monotonic clock of the machine */
    int64_t now_us;             /* what the store's clock said; 0: the system's, nobody saw it */
    uint32_t readings;          /* more than one where a window began meanwhile */
    int64_t reading[HISTORY_READINGS];
    enum history_verb verb;
    uint32_t count; /* of parts: reset and settle have one */
    struct history_part parts[HISTORY_KEYS];
    struct weir__correction correction; /* settle: but for its now_us */
    int code;
    weir_decision decision;
    weir_decision rows[HISTORY_STATES]; /* its details, if it has any */
    bool has_rows;
};

struct history_key {
    char name[48];
    size_t rules; /* of each variant */
    weir_limit *limits[HISTORY_VARIANTS];
};

struct history_world {
    size_t keys;
    struct history_key key[HISTORY_KEYS];
};

struct history {
    size_t hands;
    uint32_t count[HISTORY_HANDS];
    struct history_event events[HISTORY_HANDS][HISTORY_EVENTS];
};

/* ---- worlds ---- */

/* The small kinds, each in two variants. A period is a millisecond: a hot key comes to its limit
 * within it, by the real clock, too. */
static const char *const history_limits[][HISTORY_VARIANTS] = {
    {"token-bucket 400/ms burst 40", "token-bucket 300/ms burst 25"},
    {"token-bucket 400/ms burst 40 stepped", "token-bucket 300/ms burst 60 stepped"},
    {"leaky-bucket 400/ms burst 20", "leaky-bucket 300/ms burst 30 nodelay"},
    {"fixed-window 200/ms", "fixed-window 300/ms"},
    {"fixed-window 200/ms from-first", "fixed-window 300/ms from-first"},
    {"fixed-window 200/ms zone -03:30", "fixed-window 300/ms zone -03:30"},
    {"sliding-counter 200/ms", "sliding-counter 300/ms"},
    {"smooth 400/ms burst-for 50us", "smooth 300/ms burst-for 100us"},
    {"warmup 400/ms over 50us", "warmup 300/ms over 100us cold 5"},
};

#define HISTORY_LIMITS (sizeof history_limits / sizeof history_limits[0])
#define HISTORY_PERIOD_US 1000
#define HISTORY_TOKEN_US 3 /* about what one token takes */

/* A key under one of these, or under two that differ. */
static inline void history_key_make(struct history_key *key, int number, size_t first,
                                    size_t second)
{
    snprintf(key->name, sizeof key->name, "history/%d", number);
    key->rules = first == second ? 1 : 2;
    for (int i = 0; i < HISTORY_VARIANTS; i++) {
        key->limits[i] = first == second ? test_limit(history_limits[first][i])
                                         : test_limit_of("%s, %s", history_limits[first][i],
                                                         history_limits[second][i]);
    }
}

static inline void history_world_free(struct history_world *world)
{
    for (size_t i = 0; i < world->keys; i++) {
        for (int j = 0; j < HISTORY_VARIANTS; j++)
            weir_limit_free(world->key[i].limits[j]);
    }
}

static inline const struct weir__rule *history_rule(const struct history_world *world,
                                                    const struct history_part *part, size_t rule)
{
    assert(part->key < world->keys && part->variant < HISTORY_VARIANTS);
    assert(rule < world->key[part->key].rules);
    return &world->key[part->key].limits[part->variant]->rules[rule];
}

/* Of all parts. */
static inline int64_t history_cost(const struct history_event *event)
{
    int64_t cost = 0;
    for (uint32_t i = 0; i < event->count; i++)
        cost += event->parts[i].cost;
    return cost;
}

/* How many calls of a hand were under way together with one of another hand. */
static inline long history_overlaps_of(const struct history *history, size_t hand, size_t other)
{
    long overlaps = 0;
    const struct history_event *it = history->events[hand], *its = history->events[other];
    for (uint32_t i = 0, j = 0; i < history->count[hand]; i++) {
        while (j < history->count[other] && its[j].return_ns < it[i].call_ns)
            j++;
        overlaps += j < history->count[other] && its[j].call_ns <= it[i].return_ns;
    }
    return overlaps;
}

/* Pairs of hands that were at it at once, summed over their calls. */
static inline long history_overlaps(const struct history *history)
{
    long overlaps = 0;
    for (size_t i = 0; i < history->hands; i++) {
        for (size_t j = 0; j < history->hands; j++)
            overlaps += i == j ? 0 : history_overlaps_of(history, i, j);
    }
    return overlaps;
}

/* ---- words ---- */

static inline void history_print_decision(const char *who, const weir_decision *it)
{
    printf("        %s: allowed %d, limit %lld, remaining %lld, retry %lld, reset %lld, delay "
           "%lld, time %lld, charged %lld, binding %d, code %d\n",
           who, it->allowed, (long long)it->limit, (long long)it->remaining,
           (long long)it->retry_after_us, (long long)it->reset_after_us, (long long)it->delay_us,
           (long long)it->time_us, (long long)it->charged, it->binding, it->code);
}

static inline void history_print_event(const struct history_world *world,
                                       const struct history_event *event)
{
    static const char *const verbs[] = {"take", "peek", "reset", "settle"};
    printf("%s", verbs[event->verb]);
    for (uint32_t i = 0; i < event->count; i++) {
        const struct history_part *part = &event->parts[i];
        printf(" %s (%s) cost %lld wait %lld", world->key[part->key].name,
               weir_limit_text(world->key[part->key].limits[part->variant]), (long long)part->cost,
               (long long)part->wait_us);
    }
    if (event->verb == HISTORY_SETTLE)
        printf(" of %lld at %lld to %lld, id %llx", (long long)event->correction.charged,
               (long long)event->correction.charged_at_us, (long long)event->correction.actual,
               (unsigned long long)event->correction.id);
    printf(" at %lld ns to %lld ns, clock", (long long)event->call_ns, (long long)event->return_ns);
    for (uint32_t i = 0; i < event->readings && i < HISTORY_READINGS; i++)
        printf(" %lld", (long long)event->reading[i]);
    printf(": %s\n", weir_errname(event->code));
}

#endif
