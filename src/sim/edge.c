/* See edge.h. */
#include "sim/edge.h"

#include "sim/virtual_clock.h"

#define HOUR_US INT64_C(3600000000)
#define MINUTE_US INT64_C(60000000)
#define EDGE_US (HOUR_US * 480011) /* some day, 11:00 UTC */

/* When request i comes: each minute's share evenly spread over it. */
static int64_t arrival_us(int64_t i)
{
    if (i < WEIR__EDGE_BEFORE)
        return EDGE_US - MINUTE_US + i * MINUTE_US / WEIR__EDGE_BEFORE;
    return EDGE_US + (i - WEIR__EDGE_BEFORE) * MINUTE_US / WEIR__EDGE_AFTER;
}

static int play(weir_store *store, const weir_limit *limit, struct weir__edge *edge,
                weir_error *err)
{
    struct weir__virtual_clock clock = {0};
    weir__virtual_clock_install(&clock, store);
    for (int64_t i = 0; i < WEIR__EDGE_REQUESTS; i++) {
        weir_decision decision;
        clock.now_us = arrival_us(i);
        int code = weir_take(store, weir_key_text("edge"), limit, 1, &decision);
        if (code)
            return weir__fail(err, code, 0, "%s", weir_strerror(code));
        struct weir__bin *bin = weir__timeline_bin(&edge->timeline, clock.now_us);
        bin->through += decision.allowed;
        bin->denied += !decision.allowed;
        edge->admitted += decision.allowed;
        edge->denied += !decision.allowed;
    }
    return 0;
}

int weir__edge_run(const char *limits, size_t bins, struct weir__edge *ret, weir_error *err)
{
    weir_limit *limit = NULL;
    weir_store *store = NULL;
    *ret = (struct weir__edge){0};
    weir__timeline_init(&ret->timeline, EDGE_US - MINUTE_US, WEIR__EDGE_SPAN_US, bins);
    int code = weir_limit_parse(limits, &limit, err);
    if (code == 0)
        code = weir_store_open("memory:1m?large=50%", &store, err);
    if (code == 0)
        code = play(store, limit, ret, err);
    weir_store_close(store);
    weir_limit_free(limit);
    return code;
}
