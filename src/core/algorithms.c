/* The table of algorithms, and what all limits share. */
#include "core/core.h"

#define MINUTE_US INT64_C(60000000)

#define ROW_OF(KIND, name) [WEIR__##KIND] = &weir__algorithm_##name,
const struct weir__algorithm *const weir__algorithms[WEIR__KIND_COUNT] = {WEIR__KINDS(ROW_OF)};

/* ---- rules ---- */

const char *weir__rule_no_flaw(const struct weir__rule *rule)
{
    (void)rule;
    return NULL;
}

int64_t weir__rule_count(const struct weir__rule *rule)
{
    return rule->count;
}

int64_t weir__rule_period_us(const struct weir__rule *rule)
{
    return rule->period_us;
}

/* A thread that read the clock and was then held up must not find its key's state absurd, so the
 * horizon is never under a minute. */
void weir__rule_derive(struct weir__rule *rule)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    assert(rule->count >= 1 && rule->period_us >= 1);
    if (algorithm->unit == WEIR__UNIT_TICK) {
        rule->ticks = rule->period_us / weir__tick_us(rule);
        rule->cap = algorithm->most(rule) * rule->ticks;
    }
    rule->horizon_us = weir__max(MINUTE_US, algorithm->ahead_us(rule));
}

bool weir__rule_same_state(const struct weir__rule *a, const struct weir__rule *b)
{
    if (a->kind != b->kind)
        return false;
    if (weir__algorithm_of(a)->leases)
        return true;
    return a->period_us == b->period_us && weir__distinct(a) == weir__distinct(b);
}

int64_t weir__rule_cells(const struct weir__rule *rule)
{
    int64_t precision = weir__precision(rule);
    assert(weir__is_large(rule));
    return precision > 0 ? rule->period_us / precision + 2 : rule->count;
}

/* ---- states ---- */

/* Whether a window that is known by its end ends where one of its rule does; the last one of all
 * ends at 2^53. */
__attribute__((noinline)) static bool state_ends_at_edge(const struct weir__rule *rule,
                                                         const struct weir__state *state)
{
    int64_t start, end;
    if (state->at < 1)
        return false;
    weir__algorithm_of(rule)->window(rule, state->at - 1, &start, &end);
    return weir__saturated(end) == state->at;
}

/* Every stored time is a time, every amount exact. */
bool weir__state_sound(const struct weir__rule *rule, const struct weir__state *state)
{
    bool pair = weir__algorithm_of(rule)->shape == WEIR__SHAPE_PAIR;
    int64_t most = pair ? WEIR__PAIR_MAX : WEIR__EXACT_MAX;
    return state->at >= 0 && state->at <= WEIR__EXACT_MAX / weir__unit_us(rule) &&
           state->amount >= 0 && state->amount <= most && state->before >= 0 &&
           state->before <= most &&
           (WEIR__LIKELY(!weir__algorithm_of(rule)->window) || state_ends_at_edge(rule, state));
}

static void state_forget(struct weir__state *state)
{
    state->present = false;
    state->ring.len = 0;
    state->ring.sum = 0;
}

__attribute__((noinline, cold)) static bool
state_is_too_far(const struct weir__rule *rule, const struct weir__state *state, int64_t now_us)
{
    return weir__newest_us(rule, state) - now_us > rule->horizon_us;
}

/* `at` is the newest time, or the end of a window, which is later. */
static inline bool state_is_nonsense(const struct weir__rule *rule, const struct weir__state *state,
                                     int64_t now_us)
{
    return WEIR__UNLIKELY(state->at * weir__unit_us(rule) - now_us > rule->horizon_us) &&
           state_is_too_far(rule, state, now_us);
}

bool weir__is_fresh(const struct weir__rule *rule, const struct weir__state *state, int64_t now_us)
{
    return now_us >= weir__algorithm_of(rule)->fresh_at(rule, state) ||
           state_is_nonsense(rule, state, now_us);
}

uint32_t weir__state_share(const struct weir__rule *rule, const struct weir__state *state,
                           int64_t now_us)
{
    if (WEIR__UNLIKELY(state_is_nonsense(rule, state, now_us)))
        return 0;
    uint32_t share = weir__algorithm_of(rule)->share(rule, state, now_us);
    assert(share <= WEIR__SHARE_ONE && (share == 0) == weir__is_fresh(rule, state, now_us));
    return share;
}

void weir__load(const struct weir__rule *rule, const struct weir__rule *written_under,
                struct weir__state *state, int64_t now_us)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    assert(!written_under || written_under->kind == rule->kind);
    if (state->present && state_is_nonsense(rule, state, now_us))
        state_forget(state);
    if (state->present && written_under && now_us >= algorithm->fresh_at(written_under, state))
        state_forget(state);
    algorithm->load(rule, state, now_us);
}

int64_t weir__left(const struct weir__rule *rule, const struct weir__state *state, int64_t now_us)
{
    weir_decision it = {0};
    assert(!weir__algorithm_of(rule)->shapes);
    weir__algorithm_of(rule)->report(rule, state, now_us, &it);
    return it.remaining;
}
