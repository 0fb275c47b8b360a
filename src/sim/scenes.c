/* The flood and the edge: see scenes.h. */
#include "sim/scenes.h"

#include "limit/limit.h"
#include "sim/virtual_clock.h"

#include <assert.h>

/* ---- the flood ---- */

#define BINS 60 /* where no other number is better */
#define START_US INT64_C(1700000000000000)
#define SMOOTH_REQUESTS 6000 /* enough that a plot looks even */
#define REQUESTS_MAX 200000
#define PERIODS 3

/* The shape of the flood: how many requests, the cost of each, over which span. */
struct shape {
    int64_t requests, cost, span_us;
};

/* Long enough to see the burst used up, the queue filled, the warm-up done. */
static int64_t flood_span_of(const struct weir__rule *rule)
{
    __int128 span = (__int128)PERIODS * rule->period_us;
    int64_t longest = weir__algorithm_of(rule)->flood_us(rule);
    span = longest > span ? longest : span;
    return (int64_t)(span < WEIR__EXACT_MAX / 4 ? span : WEIR__EXACT_MAX / 4);
}

/* A large flood consists of larger requests, as far as the limit can admit them. */
static struct shape flood_shape_of(const struct weir__rule *rule, int64_t limit)
{
    struct shape shape = {.cost = 1, .span_us = flood_span_of(rule)};
    __int128 amount = (__int128)WEIR__FLOOD_TIMES * rule->count * shape.span_us / rule->period_us;
    __int128 cost = amount / SMOOTH_REQUESTS;
    if (cost > limit / 20)
        cost = limit / 20;
    if (cost > 1)
        shape.cost = (int64_t)cost;
    __int128 requests = amount / shape.cost;
    if (requests > REQUESTS_MAX) {
        shape.span_us = weir__max(1, (int64_t)(shape.span_us * (__int128)REQUESTS_MAX / requests));
        requests = REQUESTS_MAX;
    }
    shape.requests = weir__max(1, (int64_t)requests);
    return shape;
}

/* A number of bins that all hold equally many requests, if there is one: otherwise the plot would
 * show a pattern that the flood does not have. The span shrinks to what the bins cover. */
static size_t flood_choose_bins(const struct weir__rule *rule, struct shape *shape)
{
    int64_t steps = (int64_t)((__int128)shape->span_us * rule->count / rule->period_us);
    int64_t bins = steps;
    if (steps > WEIR__FLOOD_BINS_MAX) {
        bins = WEIR__FLOOD_BINS_MAX;
        while (bins > WEIR__FLOOD_BINS_MAX / 3 && steps % bins)
            bins--;
        if (steps % bins)
            return BINS;
    }
    int64_t span_us = (int64_t)((__int128)steps * rule->period_us / rule->count);
    shape->requests = (int64_t)((__int128)shape->requests * span_us / shape->span_us);
    shape->span_us = weir__max(1, span_us);
    shape->requests = weir__max(1, shape->requests);
    return (size_t)weir__max(1, bins);
}

static void flood_count(void *scene, int64_t arrival_us, const weir_decision *decision)
{
    struct weir__flood *flood = scene;
    if (!decision->allowed) {
        flood->denied += flood->cost;
        weir__timeline_bin(&flood->timeline, arrival_us)->denied += flood->cost;
        return;
    }
    flood->through += flood->cost;
    flood->longest_delay_us = weir__max(flood->longest_delay_us, decision->delay_us);
    struct weir__bin *bin = weir__timeline_bin(&flood->timeline, arrival_us + decision->delay_us);
    if (bin)
        bin->through += flood->cost;
    else
        flood->waiting += flood->cost;
}

/* Each request comes in the middle of its share of the span, well inside a bin. */
static int64_t flood_arrival_us(const void *scene, int64_t i)
{
    const struct weir__flood *flood = scene;
    __int128 halves = (__int128)(2 * i + 1) * flood->timeline.span_us;
    return flood->timeline.start_us + (int64_t)(halves / (2 * flood->requests));
}

/* Plays a scene in a store of its own: at each request's time, what becomes of it. */
static int scene_play(const weir_limit *limit, const char *url, int64_t requests, int64_t cost,
                      int64_t (*arrival_us)(const void *scene, int64_t i),
                      void (*count)(void *scene, int64_t arrival_us, const weir_decision *decision),
                      void *scene, weir_error *err)
{
    struct weir__virtual_clock clock = {0};
    weir_store *store = NULL;
    int code = weir_store_open(url, &store, err);
    if (code)
        return code;
    weir__virtual_clock_install(&clock, store);
    for (int64_t i = 0; i < requests && code == 0; i++) {
        weir_decision decision;
        clock.now_us = arrival_us(scene, i);
        code = weir_take(store, weir_key_text("scene"), limit, cost, &decision);
        if (code)
            weir__fail(err, code, 0, "%s", weir_strerror(code));
        else
            count(scene, clock.now_us, &decision);
    }
    weir_store_close(store);
    return code;
}

/* The most that a fresh state admits at once. */
static int64_t flood_limit_of(const struct weir__rule *rule)
{
    struct weir__state state = {0};
    struct weir__request request = {START_US, 1, weir__wait_for(rule, WEIR_WAIT_DEFAULT)};
    weir_decision decision = {0};
    weir__load(rule, rule, &state, START_US);
    weir__algorithm_of(rule)->judge(rule, &state, &request, &decision);
    return decision.limit;
}

int weir__flood_run(const struct weir__rule *rule, struct weir__flood *ret, weir_error *err)
{
    struct shape shape = flood_shape_of(rule, flood_limit_of(rule));
    int64_t start_us = START_US - START_US % rule->period_us + rule->period_us, before;
    if (weir__algorithm_of(rule)->window)
        weir__algorithm_of(rule)->window(rule, START_US, &before, &start_us);
    size_t bins = flood_choose_bins(rule, &shape);
    *ret = (struct weir__flood){
        .requests = shape.requests,
        .cost = shape.cost,
        .bin_amount = weir__max(1, shape.requests * shape.cost / (int64_t)bins),
    };
    weir__timeline_init(&ret->timeline, start_us, shape.span_us, bins);

    weir_limit *limit = NULL;
    int code = weir__limit_of_rules(rule, &(int64_t){0}, 1, &limit, err);
    if (code == 0)
        code = scene_play(limit, "memory:32m?large=50%", ret->requests, ret->cost, flood_arrival_us,
                          flood_count, ret, err);
    weir_limit_free(limit);
    return code;
}

/* ---- the edge ---- */

#define HOUR_US INT64_C(3600000000)
#define MINUTE_US INT64_C(60000000)
#define EDGE_US (HOUR_US * 480011) /* some day, 11:00 UTC */

/* When request i comes: each minute's share evenly spread over it. */
static int64_t edge_arrival_us(const void *scene, int64_t i)
{
    (void)scene;
    if (i < WEIR__EDGE_BEFORE)
        return EDGE_US - MINUTE_US + i * MINUTE_US / WEIR__EDGE_BEFORE;
    return EDGE_US + (i - WEIR__EDGE_BEFORE) * MINUTE_US / WEIR__EDGE_AFTER;
}

static void edge_count(void *scene, int64_t arrival_us, const weir_decision *decision)
{
    struct weir__edge *edge = scene;
    struct weir__bin *bin = weir__timeline_bin(&edge->timeline, arrival_us);
    assert(bin); /* the timeline covers all arrivals */
    *(decision->allowed ? &bin->through : &bin->denied) += 1;
    *(decision->allowed ? &edge->admitted : &edge->denied) += 1;
}

int weir__edge_run(const char *limits, size_t bins, struct weir__edge *ret, weir_error *err)
{
    weir_limit *limit = NULL;
    *ret = (struct weir__edge){0};
    weir__timeline_init(&ret->timeline, EDGE_US - MINUTE_US, WEIR__EDGE_SPAN_US, bins);
    int code = weir_limit_parse(limits, &limit, err);
    if (code == 0)
        code = scene_play(limit, "memory:1m?large=50%", WEIR__EDGE_REQUESTS, 1, edge_arrival_us,
                          edge_count, ret, err);
    weir_limit_free(limit);
    return code;
}
