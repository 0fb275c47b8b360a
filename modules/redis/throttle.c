/*
 * CL.THROTTLE: redis-cell's command and reply, on a token bucket. Seconds are rounded up, never early; a
 * quantity beyond the limit is limited with retry_after -1 and charges nothing; quantity 0 peeks.
 */
#include "weir_redis.h"

int throttle_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct request request;
    weir_decision row, folded;
    if (!read_request(ctx, WEIR__VERB_THROTTLE, argv, argc, &request) ||
        !decide(ctx, &request, true, 0, &row, &folded))
        return RM_OK;
    rm_ReplyWithArray(ctx, 5);
    rm_ReplyWithLongLong(ctx, !folded.allowed);
    rm_ReplyWithLongLong(ctx, folded.limit);
    rm_ReplyWithLongLong(ctx, folded.remaining);
    rm_ReplyWithLongLong(ctx, folded.allowed ? -1 : weir__throttle_seconds(folded.retry_after_us));
    return rm_ReplyWithLongLong(ctx, weir__throttle_seconds(folded.reset_after_us));
}
