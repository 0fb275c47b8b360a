/*
 * Waiting for a limit. Limits that heed a wait give a reservation at once, in order, or say that it
 * cannot be in time; the others are asked again after their retry_after.
 */
#include "store/store.h"

#include "base/clock.h"

static void sleep_for(const weir_store *store, int64_t us)
{
    if (!store->clock.now)
        weir__clock_sleep_us(us);
    else if (store->clock.sleep)
        store->clock.sleep(store->clock.context, us);
}

/* Whether a limit that hands out reservations denied: then waiting for it is of no use. */
static bool denied_for_good(const weir_limit *limit, const weir_decision *rows)
{
    for (size_t i = 0; i < limit->count; i++) {
        if (!rows[i].allowed &&
            (rows[i].retry_after_us == WEIR_NEVER || weir__algorithm_of(&limit->rules[i])->waits))
            return true;
    }
    return false;
}

int weir_wait(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              int64_t max_wait_us, weir_decision *ret)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    if (max_wait_us < 0)
        return WEIR_EINVAL;
    int64_t left = weir__min(max_wait_us, WEIR_DURATION_MAX);
    int64_t deadline = weir__store_now(store) + left;
    for (;;) {
        weir_request request = {key, limit, cost, left, rows, false};
        int code = weir_take_all(store, &request, 1, &folded);
        if (code)
            return code;
        if (folded.allowed && folded.delay_us > 0)
            sleep_for(store, folded.delay_us);
        left = deadline - folded.time_us;
        if (folded.allowed || denied_for_good(limit, rows) || folded.retry_after_us > left)
            break;
        sleep_for(store, folded.retry_after_us);
        left = weir__max(0, deadline - weir__store_now(store));
    }
    *ret = folded;
    return 0;
}
