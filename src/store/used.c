/* What is used under a limit, by the state itself: a settle can charge more than the limit has, so
 * what is left does not tell it. */
#include "store/store.h"

const struct weir__shown *weir__shown_under(const struct weir__shown *states, size_t n,
                                            const struct weir__rule *rule)
{
    const struct weir__shown *found = NULL;
    for (size_t i = 0; i < n; i++) {
        if (states[i].rule.kind == rule->kind && weir__rule_same_state(&states[i].rule, rule))
            found = &states[i];
    }
    return found;
}

/* Whether a window was last charged under another count: the limit of another plan. */
static bool used_differs(const struct weir__shown *state, const struct weir__rule *rule)
{
    return state->whole && weir__algorithm_of(rule)->shape == WEIR__SHAPE_COUNT &&
           state->rule.count != rule->count;
}

void weir__store_used(weir_store *store, weir_key key, const weir_limit *limit,
                      struct weir__used ret[])
{
    struct weir__shown states[WEIR__SHOWN_MAX];
    size_t count = 0;
    const bool known = weir__store_show(store, key, states, &count) == 0;
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        const struct weir__shown *state = weir__shown_under(states, known ? count : 0, rule);
        const bool counts = weir__algorithm_of(rule)->shape != WEIR__SHAPE_PERMITS;
        ret[i] = (struct weir__used){.amount = !known || !counts ? -1 : state ? state->spent : 0};
        if (!state || !used_differs(state, rule))
            continue;
        ret[i].differs = true;
        ret[i].last = state->rule;
        ret[i].last_left = state->remaining;
    }
}
