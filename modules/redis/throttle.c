/*
 * CL.THROTTLE key max_burst count period [quantity]: redis-cell's command and reply, on a token bucket
 * of count per period seconds and a burst of max_burst + 1. Seconds are rounded up, never early; a
 * quantity beyond the limit is limited with retry_after -1 and charges nothing; quantity 0 peeks.
 */
#include "weir_redis.h"

/* The rule of the arguments, checked as limit text would be. */
static bool read_rule(RedisModuleCtx *ctx, RedisModuleString **argv, struct weir__rule *ret)
{
    int64_t burst, count, seconds;
    if (!read_number(ctx, argv[2], "max_burst", 0, WEIR_COST_MAX - 1, &burst) ||
        !read_number(ctx, argv[3], "count", 1, WEIR_COST_MAX, &count) ||
        !read_number(ctx, argv[4], "period", 1, WEIR_DURATION_MAX / 1000000, &seconds))
        return false;
    *ret = (struct weir__rule){.kind = WEIR__TOKEN_BUCKET,
                               .count = count,
                               .period_us = seconds * 1000000,
                               .burst = burst + 1};
    char reason[256];
    struct weir__buffer why = weir__buffer_over(reason, sizeof reason);
    if (weir__rule_check(ret, &why))
        return true;
    reply_error(ctx, "ERR %s", reason);
    return false;
}

static long long seconds_up(int64_t us)
{
    return us < 0 ? -1 : weir__div_up(us, 1000000);
}

int throttle_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    static weir_limit limit = {.count = 1};
    struct request request = {.count = 1, .wait_us = WEIR_WAIT_DEFAULT};
    weir_decision row, folded;
    if (argc != 5 && argc != 6)
        return rm_WrongArity(ctx);
    request.asks[0] = (struct ask){argv[1], &limit, 1};
    if (!key_in_bounds(ctx, argv[1]) || !read_rule(ctx, argv, &limit.rules[0]) ||
        (argc == 6 &&
         !read_number(ctx, argv[5], "quantity", 0, WEIR_COST_MAX, &request.asks[0].cost)) ||
        !decide(ctx, &request, true, 0, &row, &folded))
        return RM_OK;
    rm_ReplyWithArray(ctx, 5);
    rm_ReplyWithLongLong(ctx, !folded.allowed);
    rm_ReplyWithLongLong(ctx, folded.limit);
    rm_ReplyWithLongLong(ctx, folded.remaining);
    rm_ReplyWithLongLong(ctx, folded.allowed ? -1 : seconds_up(folded.retry_after_us));
    return rm_ReplyWithLongLong(ctx, seconds_up(folded.reset_after_us));
}
