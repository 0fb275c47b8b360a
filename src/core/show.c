/* See show.h. */
#include "core/show.h"

#include "core/bucket.h"

#define MANY INT64_C(4000000000) /* more than both windows of a counter hold */

const char weir__shown_names[WEIR__SHOWN_NUMBERS][10] = {"period", "precision", "count", "spent",
                                                         "stored", "entries",   "at",    "fresh"};

void weir__shown_numbers(const struct weir__shown *shown, int64_t ret[WEIR__SHOWN_NUMBERS])
{
    bool window = shown->rule.kind == WEIR__SLIDING_WINDOW;
    const int64_t numbers[WEIR__SHOWN_NUMBERS] = {
        shown->rule.period_us, window ? shown->rule.extra : 0,
        shown->count,          shown->spent,
        shown->stored,         shown->entries,
        shown->at_us,          shown->fresh_us};
    for (size_t i = 0; i < WEIR__SHOWN_NUMBERS; i++)
        ret[i] = weir__min(numbers[i], WEIR__EXACT_MAX); /* a damaged time may say more */
}

const char *weir__kind_name(enum weir__kind kind)
{
    if (kind == WEIR__STEPPED)
        return "token-bucket stepped";
    return kind == WEIR__FROM_FIRST ? "fixed-window from-first" : weir__algorithms[kind].name;
}

static int64_t at_us(const struct weir__rule *rule, int64_t at)
{
    switch ((enum weir__kind)rule->kind) {
    case WEIR__TOKEN_BUCKET:
    case WEIR__LEAKY_BUCKET:
        return at * weir__tick_us(rule);
    case WEIR__SLIDING_COUNTER:
        return at * rule->period_us;
    default:
        return at;
    }
}

/* What counts of a state that was loaded. */
static int64_t spent_of(const struct weir__rule *rule, const struct weir__state *state,
                        int64_t now_us)
{
    struct weir__rule wide = *rule;
    weir_decision row = {0};
    switch ((enum weir__kind)rule->kind) {
    case WEIR__TOKEN_BUCKET:
    case WEIR__LEAKY_BUCKET:
        return weir__div_up(state->amount, rule->period_us / weir__tick_us(rule));
    case WEIR__SLIDING_LOG:
    case WEIR__SLIDING_WINDOW:
    case WEIR__CONCURRENT:
        return state->ring.sum;
    case WEIR__SLIDING_COUNTER:
        wide.count = MANY;
        weir__algorithm_of(rule)->report(&wide, state, now_us, &row);
        return MANY - row.remaining;
    case WEIR__SMOOTH:
    case WEIR__WARMUP:
        return 0;
    default:
        return state->amount;
    }
}

void weir__show(const struct weir__rule *rule, bool whole, const struct weir__state *stored,
                int64_t fresh_us, int64_t now_us, struct weir__shown *ret)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    bool guava = rule->kind == WEIR__SMOOTH || rule->kind == WEIR__WARMUP;
    struct weir__state state = *stored;
    weir_decision row = {0};
    *ret = (struct weir__shown){.rule = *rule,
                                .whole = whole,
                                .count = whole ? rule->count : 0,
                                .remaining = -1,
                                .at_us = at_us(rule, stored->at),
                                .fresh_us = fresh_us};
    if (guava)
        ret->stored =
            stored->stored < (double)WEIR__EXACT_MAX ? (int64_t)stored->stored : WEIR__EXACT_MAX;
    state.present = now_us < fresh_us;
    if (!state.present)
        state.ring.len = state.ring.sum = 0;
    if (whole || (state.present && !guava))
        algorithm->load(rule, &state, now_us);
    if (whole) {
        algorithm->report(rule, &state, now_us, &row);
        ret->remaining = row.remaining;
    }
    if (now_us >= fresh_us)
        return;
    ret->spent = spent_of(rule, &state, now_us);
    ret->entries = algorithm->large ? state.ring.len : 0;
}

void weir__shown_of(int kind, const int64_t numbers[WEIR__SHOWN_NUMBERS], struct weir__shown *ret)
{
    *ret = (struct weir__shown){.rule.kind = (uint8_t)kind,
                                .rule.period_us = numbers[0],
                                .rule.extra = numbers[1],
                                .count = numbers[2],
                                .spent = numbers[3],
                                .stored = numbers[4],
                                .remaining = -1,
                                .entries = numbers[5],
                                .at_us = numbers[6],
                                .fresh_us = numbers[7]};
}
