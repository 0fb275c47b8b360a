/*
 * Waiting for a limit. Limits that heed a wait give a reservation at once, in order, or say that it
 * cannot be in time; the others are asked again after their retry_after.
 */
#include "store/store.h"

#include "base/clock.h"

#include <assert.h>
#include <string.h>

static void sleep_for(const weir_store *store, int64_t us)
{
    if (!store->clock.now)
        weir__clock_sleep_us(us);
    else if (store->clock.sleep)
        store->clock.sleep(store->clock.context, us);
}

/* A virtual clock that cannot be slept by: then nothing is gained by asking again. */
static bool can_sleep(const weir_store *store)
{
    return !store->clock.now || store->clock.sleep;
}

/* Whether waiting is of no use: a limit will never admit it, or gives out its turns in order and has
 * none in time. A full leaky bucket, too, if it is the queue that takes too long, which what costs
 * nothing is told at once; else there will be room after retry_after. */
static bool is_hopeless(weir_store *store, weir_request request, const weir_decision *rows)
{
    weir_decision free_rows[WEIR_LIMITS_MAX], folded;
    bool full = false;
    for (size_t i = 0; i < request.limit->count; i++) {
        const struct weir__rule *rule = &request.limit->rules[i];
        if (rows[i].allowed ||
            !(rows[i].retry_after_us == WEIR_NEVER || weir__algorithm_of(rule)->waits))
            continue;
        if (rows[i].retry_after_us == WEIR_NEVER || !weir__algorithm_of(rule)->overflows)
            return true;
        full = true;
    }
    request.cost = 0;
    request.detail = free_rows;
    if (!full || weir__peek_all(store, &request, 1, &folded))
        return full;
    for (size_t i = 0; i < request.limit->count; i++) {
        if (weir__algorithm_of(&request.limit->rules[i])->overflows && !free_rows[i].allowed)
            return true;
    }
    return false;
}

/* By this process's clock alone: a store elsewhere may have another. */
static int64_t left_until(const weir_store *store, int64_t deadline)
{
    return weir__max(0, deadline - weir__store_now(store));
}

int weir__wait(weir_store *store, const weir_request *asked, int64_t max_wait_us,
               weir_decision *ret)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    weir_request request = *asked;
    int64_t left = weir__min(max_wait_us, WEIR_DURATION_MAX);
    int64_t deadline = weir__store_now(store) + left;
    assert(max_wait_us >= 0 && !asked->acquire);
    request.detail = rows;
    for (;;) {
        request.wait_us = left;
        int code = weir__take_all(store, &request, 1, &folded);
        if (code)
            return code;
        if (folded.allowed || !can_sleep(store) || is_hopeless(store, request, rows) ||
            folded.retry_after_us > left_until(store, deadline))
            break;
        sleep_for(store, folded.retry_after_us);
        left = left_until(store, deadline);
    }
    if (folded.allowed && folded.delay_us > 0)
        sleep_for(store, folded.delay_us);
    if (asked->detail)
        memcpy(asked->detail, rows, asked->limit->count * sizeof *rows);
    *ret = folded;
    return 0;
}

int weir_wait(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              int64_t max_wait_us, weir_decision *ret)
{
    weir_request request = weir_request_make(key, limit);
    request.cost = cost;
    return store && ret && max_wait_us >= 0 ? weir__wait(store, &request, max_wait_us, ret)
                                            : WEIR_EINVAL;
}
