/* See show.h. */
#include "core/show.h"

#define MANY (2 * WEIR__PAIR_MAX) /* as much as both windows of a pair hold */

const char weir__shown_names[WEIR__SHOWN_NUMBERS][10] = {"period", "precision", "count", "spent",
                                                         "stored", "entries",   "at",    "fresh"};

void weir__shown_numbers(const struct weir__shown *shown, int64_t ret[WEIR__SHOWN_NUMBERS])
{
    const int64_t numbers[WEIR__SHOWN_NUMBERS] = {
        shown->rule.period_us, weir__distinct(&shown->rule),
        shown->count,          shown->spent,
        shown->stored,         shown->entries,
        shown->at_us,          shown->fresh_us};
    for (size_t i = 0; i < WEIR__SHOWN_NUMBERS; i++)
        ret[i] = weir__min(numbers[i], WEIR__EXACT_MAX); /* a damaged time may say more */
}

/* What counts of a state that was loaded. */
static int64_t show_spent(const struct weir__rule *rule, const struct weir__state *state,
                          int64_t now_us)
{
    struct weir__rule wide = *rule;
    weir_decision row = {0};
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
        if (weir__algorithm_of(rule)->unit != WEIR__UNIT_TICK)
            return state->amount;
        return weir__div_up(state->amount, rule->period_us / weir__tick_us(rule));
    case WEIR__SHAPE_COUNT:
        return state->amount;
    case WEIR__SHAPE_RING:
        return state->ring.sum;
    case WEIR__SHAPE_PAIR:
        wide.count = MANY;
        weir__algorithm_of(rule)->report(&wide, state, now_us, &row);
        return MANY - row.remaining;
    case WEIR__SHAPE_PERMITS:
        break;
    }
    return 0;
}

void weir__show(const struct weir__rule *rule, bool whole, const struct weir__state *stored,
                int64_t fresh_us, int64_t now_us, struct weir__shown *ret)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    bool permits = algorithm->shape == WEIR__SHAPE_PERMITS;
    struct weir__state state = *stored;
    weir_decision row = {0};
    *ret = (struct weir__shown){.rule = *rule,
                                .whole = whole,
                                .count = whole ? rule->count : 0,
                                .remaining = -1,
                                .retry_after_us = -1,
                                .at_us = weir__newest_us(rule, stored),
                                .fresh_us = fresh_us};
    if (permits)
        ret->stored =
            stored->stored < (double)WEIR__EXACT_MAX ? (int64_t)stored->stored : WEIR__EXACT_MAX;
    state.present = now_us < fresh_us;
    if (!state.present)
        state.ring.len = state.ring.sum = 0;
    if (whole || (state.present && !permits))
        algorithm->load(rule, &state, now_us);
    if (whole) {
        struct weir__request one = {now_us, 1, weir__wait_for(rule, WEIR_WAIT_DEFAULT)};
        algorithm->judge(rule, &state, &one, &row);
        ret->retry_after_us = row.retry_after_us;
        algorithm->report(rule, &state, now_us, &row);
        ret->remaining = row.remaining;
    }
    if (now_us >= fresh_us)
        return;
    ret->spent = show_spent(rule, &state, now_us);
    ret->entries = weir__is_large(rule) ? state.ring.len : 0;
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
                                .retry_after_us = -1,
                                .entries = numbers[5],
                                .at_us = numbers[6],
                                .fresh_us = numbers[7]};
}
