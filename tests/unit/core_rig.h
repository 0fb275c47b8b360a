/*
 * A state under a rule, driven as a store drives it, with nothing in between: load, judge, charge
 * if allowed, report. Time is whatever the test says.
 */
#ifndef WEIR_CORE_RIG_H
#define WEIR_CORE_RIG_H

#include "base/random.h"
#include "limit/limit.h"
#include "test.h"

#include <stdlib.h>

#define RIG_CELLS 4096
#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
/* A whole day since the epoch, so that windows of every length up to a day begin there. */
#define T0 (INT64_C(19000) * DAY)

struct rig {
    struct weir__rule rule;
    struct weir__rule written_under;
    struct weir__state state;
    struct weir__cell cells[RIG_CELLS];
};

static inline struct weir__rule rule_of(const char *text)
{
    struct weir__rule rules[WEIR_LIMITS_MAX];
    size_t count = 0;
    weir_error err = {0};
    int code = weir__rules_parse(text, rules, &count, &err);
    if (code || count != 1) {
        printf("FAIL \"%s\": %s\n", text, err.message);
        exit(1);
    }
    return rules[0];
}

/* A fresh key. */
static inline void rig_init(struct rig *rig, const char *text)
{
    memset(rig, 0, sizeof *rig);
    rig->rule = rig->written_under = rule_of(text);
    rig->state.ring.cells = rig->cells;
    rig->state.ring.capacity = RIG_CELLS;
}

/* The state as of t, as a store sees it. */
static inline struct weir__state rig_load(const struct rig *rig, int64_t t)
{
    bool same = !memcmp(&rig->rule, &rig->written_under, sizeof rig->rule);
    struct weir__state state = rig->state;
    weir__load(&rig->rule, same ? &rig->rule : &rig->written_under, &state, t);
    return state;
}

static inline void rig_store(struct rig *rig, const struct weir__state *state)
{
    rig->state = *state;
    rig->written_under = rig->rule;
    if (!state->present)
        rig->state.ring.len = 0, rig->state.ring.sum = 0;
}

static inline weir_decision rig_ask(struct rig *rig, int64_t t, int64_t cost, int64_t wait,
                                    bool peek)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(&rig->rule);
    struct weir__request request = {t, cost, weir__wait_for(&rig->rule, wait)};
    struct weir__state state = rig_load(rig, t);
    weir_decision d = {.time_us = t};
    algorithm->judge(&rig->rule, &state, &request, &d);
    d.granted = d.allowed ? cost : 0;
    if (d.allowed && cost > 0 && !peek) {
        algorithm->charge(&rig->rule, &state, &request);
        d.charged = cost;
        rig_store(rig, &state);
    }
    algorithm->report(&rig->rule, &state, t, &d);
    return d;
}

static inline weir_decision take(struct rig *rig, int64_t t, int64_t cost, int64_t wait)
{
    return rig_ask(rig, t, cost, wait, false);
}

static inline weir_decision peek(struct rig *rig, int64_t t, int64_t cost, int64_t wait)
{
    return rig_ask(rig, t, cost, wait, true);
}

/* The charge c0 made at t0 becomes c1. */
static inline bool settle(struct rig *rig, int64_t t, int64_t t0, int64_t c0, int64_t c1)
{
    struct weir__correction correction = {
        .now_us = t, .charged_at_us = t0, .charged = c0, .actual = c1};
    struct weir__state state = rig_load(rig, t);
    bool changed = weir__algorithm_of(&rig->rule)->settle(&rig->rule, &state, &correction);
    if (changed)
        rig_store(rig, &state);
    return changed;
}

/* Other numbers from now on. */
static inline void rig_change(struct rig *rig, const char *text)
{
    rig->rule = rule_of(text);
}

static inline void check_six(const weir_decision *d, const char *file, int line, bool allowed,
                             int64_t limit, int64_t remaining, int64_t retry, int64_t reset,
                             int64_t delay)
{
    char what[400];
    bool good = d->allowed == allowed && d->limit == limit && d->remaining == remaining &&
                d->retry_after_us == retry && d->reset_after_us == reset && d->delay_us == delay;
    snprintf(what, sizeof what,
             "got %d %lld %lld %lld %lld %lld, expected %d %lld %lld %lld %lld %lld", d->allowed,
             (long long)d->limit, (long long)d->remaining, (long long)d->retry_after_us,
             (long long)d->reset_after_us, (long long)d->delay_us, allowed, (long long)limit,
             (long long)remaining, (long long)retry, (long long)reset, (long long)delay);
    test_check(good, file, line, what);
}

/* allowed, limit, remaining, retry_after, reset_after, delay */
#define CHECK_SIX(decision, ...)                                                                   \
    do {                                                                                           \
        weir_decision six = (decision);                                                            \
        check_six(&six, __FILE__, __LINE__, __VA_ARGS__);                                          \
    } while (0)

#define DEFAULT WEIR_WAIT_DEFAULT

#endif
