/*
 * Limits of sliced stores: asked for with less than their size, so that what the peers hold in
 * slices is never too much (docs/SLICES.md). It is the same limit with a smaller burst or count, so
 * the state is the same one.
 */
#include "remote/query.h"

#include "limit/limit.h"
#include "remote/slices.h"
#include "store/store.h"

#include <string.h>

static int64_t withhold_size(const struct weir__rule *rule)
{
    return weir__algorithm_of(rule)->most(rule);
}

/* What a request asks of its limit at least, if it is allowed. */
static int64_t withhold_asked(const struct weir__redis_query *query, size_t i, size_t j)
{
    const weir_request *request = &query->requests[i];
    const struct weir__budget budget = weir__budget_of(query->requests, query->count);
    return weir__limit_asked(request->limit, j, request->least ? budget.least : request->cost);
}

/* By how much less, at most all but one. */
static int64_t withhold_from(struct weir__redis_query *query, size_t i, size_t j, size_t row,
                             int64_t less)
{
    const weir_limit *limit = query->requests[i].limit;
    int64_t rest = withhold_size(&limit->rules[j]) - less, asked = withhold_asked(query, i, j);
    bool own = !weir__limit_varies(limit, j);
    if (asked > 0 && (rest < 1 || (own && asked > rest)))
        query->never |= UINT32_C(1) << row; /* the server would refuse such a limit */
    query->reduced = true;
    return rest < 1 ? less + rest - 1 : less;
}

void weir__redis_query_withhold(struct weir__redis_query *query, const int64_t *at_least)
{
    const struct weir__slicing slicing = weir__slicing_of(query->url);
    size_t row = 0;
    if (slicing.share == 0 || !weir__verb_decides(query->verb))
        return;
    for (size_t i = 0; i < query->count; i++) {
        const weir_limit *limit = query->requests[i].limit;
        for (size_t j = 0; j < limit->count; j++, row++) {
            struct weir__slice_terms terms;
            int64_t less = at_least ? at_least[row] : 0;
            if (weir__slice_terms(&slicing, &limit->rules[j], &terms))
                less = weir__max(less, terms.withheld);
            query->withheld[row] = less > 0 ? withhold_from(query, i, j, row, less) : 0;
        }
    }
}

struct weir__rule weir__redis_query_rule(const struct weir__redis_query *query, size_t i, size_t j,
                                         int64_t *ret_cost)
{
    const weir_limit *limit = query->requests[i].limit;
    struct weir__rule rule = limit->rules[j];
    size_t row = j;
    *ret_cost = weir_limit_cost(limit, j);
    if (WEIR__LIKELY(!query->reduced))
        return rule;
    for (size_t before = 0; before < i; before++)
        row += query->requests[before].limit->count;
    assert(row < query->limits);
    if (query->withheld[row])
        weir__rule_withhold(&rule, query->withheld[row]);
    *ret_cost = weir__min(*ret_cost, withhold_size(&rule)); /* less: only where nothing is asked */
    return rule;
}

/* What a fresh state would say: nobody was asked. */
static weir_decision withhold_row(const struct weir__redis_query *query, size_t i, size_t j,
                                  size_t row)
{
    const struct weir__rule *rule = &query->requests[i].limit->rules[j];
    int64_t size = weir__min(withhold_size(rule), WEIR_COST_MAX);
    int64_t rest = size - query->withheld[row], asked = withhold_asked(query, i, j);
    bool never = query->never & UINT32_C(1) << row || asked > rest;
    return (weir_decision){.limit = size,
                           .remaining = rest,
                           .retry_after_us = never ? WEIR_NEVER : 0,
                           .time_us = query->time_us >= 0 ? query->time_us : weir__clock_us(),
                           .allowed = !never};
}

void weir__redis_query_never(struct weir__redis_query *query)
{
    weir_decision rows[WEIR_LIMITS_MAX];
    size_t row = 0;
    assert(query->never && query->limits <= WEIR_LIMITS_MAX);
    for (size_t i = 0; i < query->count; i++) {
        for (size_t j = 0; j < query->requests[i].limit->count; j++, row++)
            rows[row] = withhold_row(query, i, j, row);
    }
    weir__fold(rows, row, query->ret);
    assert(!query->ret->allowed);
    if (query->rows)
        memcpy(query->rows, rows, row * sizeof *rows);
}
