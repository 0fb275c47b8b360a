/* How fast a stream may flow: see pace.h. */
#include "cli/pace.h"

#include <assert.h>
#include <string.h>

#define PACE_BURST_MOST (INT64_C(1) << 26) /* a burst that is made larger */

bool cli_pace_can(const weir_limit *limit)
{
    return limit->count == 1 && weir__algorithm_of(&limit->rules[0])->flows;
}

static int64_t pace_flow(const struct weir__rule *rule, int64_t us)
{
    return (int64_t)((__int128)rule->count * us / rule->period_us);
}

int64_t cli_pace_flow(const weir_limit *limit, int64_t us)
{
    return pace_flow(&limit->rules[0], us);
}

/* How long units take to flow, rounded up. */
static int64_t pace_time_us(const struct weir__rule *rule, int64_t units)
{
    assert(units <= CLI_PACE_PIECE_MOST); /* times 366 days is within 63 bits */
    return weir__div_up(units * rule->period_us, rule->count);
}

/* ---- opening ---- */

static int64_t pace_now(void *context)
{
    const struct cli_pace *pace = context;
    return pace->clock.now(pace->clock.context) - pace->behind_us;
}

static int64_t pace_mono(void *context)
{
    (void)context;
    return weir__mono_us();
}

static void pace_set_pieces(struct cli_pace *pace)
{
    const struct weir__rule *rule = &pace->limit->rules[0];
    pace->most = weir__min(rule->burst, CLI_PACE_PIECE_MOST);
    int64_t piece = weir__min(pace_flow(rule, CLI_PACE_PIECE_US), rule->burst / 2);
    pace->piece = weir__max(1, weir__min(piece, pace->most));
}

/* The same rate, with a burst that is not too small. */
static int pace_widen(const weir_limit *limit, weir_limit **ret, weir_error *err)
{
    const struct weir__rule *rule = &limit->rules[0];
    const int64_t least = weir__min(pace_flow(rule, CLI_PACE_SMALL_US), PACE_BURST_MOST);
    const weir_limit_numbers numbers = {
        .kind = WEIR_TOKEN_BUCKET,
        .count = rule->count,
        .period_us = rule->period_us,
        .burst = weir__max(rule->burst, least),
    };
    assert(cli_pace_can(limit));
    return weir_limit_make(&numbers, 1, ret, err);
}

int cli_pace_open(const weir_limit *limit, const weir_clock *clock, struct cli_pace *ret,
                  weir_error *err)
{
    *ret = (struct cli_pace){.key = weir_key_text("stream")};
    ret->clock = clock ? *clock : (weir_clock){.now = pace_mono};
    int code = pace_widen(limit, &ret->limit, err);
    if (code == 0)
        code = weir_store_open("memory:1m", &ret->store, err);
    if (code) {
        weir_limit_free(ret->limit);
        return code;
    }
    weir_store_set_clock(ret->store, &(weir_clock){.now = pace_now, .context = ret});
    pace_set_pieces(ret);
    /* what the burst was made larger by is not there at the beginning */
    int64_t extra = ret->limit->rules[0].burst - limit->rules[0].burst;
    if (extra > 0)
        code = weir_take(ret->store, ret->key, ret->limit, extra, &ret->last);
    if (code)
        cli_pace_close(ret);
    return code;
}

int cli_pace_share(const weir_limit *limit, weir_store *store, weir_key key, struct cli_pace *ret,
                   weir_error *err)
{
    const struct weir__rule *rule = &limit->rules[0];
    const int64_t least = pace_flow(rule, CLI_PACE_SMALL_US);
    if (rule->burst < least)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "limit \"%s\": streams that share a limit need a burst of at least what "
                          "flows in 20ms: expected burst %lld or more",
                          weir_limit_text(limit), (long long)least);
    *ret = (struct cli_pace){.store = store, .key = key, .shared = true};
    int code = weir_limit_parse(weir_limit_text(limit), &ret->limit, err);
    if (code == 0)
        pace_set_pieces(ret);
    return code;
}

void cli_pace_close(struct cli_pace *pace)
{
    if (!pace->shared)
        weir_store_close(pace->store);
    weir_limit_free(pace->limit);
    pace->store = NULL;
    pace->limit = NULL;
}

/* ---- paying ---- */

int cli_pace_pay(struct cli_pace *pace, int64_t units, int64_t *ret_units, int64_t *ret_wait_us)
{
    assert(units >= 1 && pace->paid == 0);
    weir_decision decision;
    weir_request request = weir_request_make(pace->key, pace->limit);
    request.cost =
        weir__min(units, weir__min(pace->most, weir__max(pace->piece, pace->last.remaining)));
    request.wait_us = WEIR_WAIT_ANY;
    int code = weir__take_all(pace->store, &request, 1, &decision);
    if (code)
        return code;
    assert(decision.retry_after_us != WEIR_NEVER);
    pace->last = decision;
    pace->paid = decision.allowed ? request.cost : 0;
    *ret_units = pace->paid;
    *ret_wait_us = decision.allowed ? decision.delay_us : weir__max(1, decision.retry_after_us);
    return 0;
}

/* The debt would be less than this piece from `until` on. But the piece goes out only now, so from
 * now on its whole cost is owed. A tick is the rounding of reset_after. */
void cli_pace_sent(struct cli_pace *pace)
{
    assert(pace->paid > 0);
    const struct weir__rule *rule = &pace->limit->rules[0];
    const int64_t until = pace->last.time_us + pace->last.reset_after_us -
                          pace_time_us(rule, pace->paid) - weir__tick_us(rule);
    pace->paid = 0;
    if (pace->shared)
        return;
    pace->behind_us += weir__max(0, pace_now(pace) - until);
}
