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
    int64_t numbers[WEIR__THROTTLE_NUMBERS];
    weir__throttle_numbers(&folded, numbers);
    rm_ReplyWithArray(ctx, WEIR__THROTTLE_NUMBERS);
    for (size_t i = 0; i < WEIR__THROTTLE_NUMBERS; i++)
        rm_ReplyWithLongLong(ctx, numbers[i]);
    return RM_OK;
}
