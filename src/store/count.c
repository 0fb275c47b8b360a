/* How a store decided: each thread adds to the counts of its seat (store.h), and whoever asks adds
 * them up. */
#include "store/store.h"

static void count_sum(weir_store *store, const struct weir__seat_counts *sum)
{
    uint32_t seat = weir__seat_take();
    struct weir__seat_counts *own = &store->seats[seat / WEIR__SEAT_BYTES];
    _Atomic uint64_t *to[] = {&own->decided[0], &own->decided[1], &own->delayed, &own->failed,
                              &own->degraded};
    const uint64_t by[] = {sum->decided[0], sum->decided[1], sum->delayed, sum->failed,
                           sum->degraded};
    for (size_t i = 0; i < WEIR__COUNT(by); i++) {
        if (by[i] && seat)
            weir__count_add(to[i], by[i]);
        else if (by[i]) /* others without a seat may be at it */
            atomic_fetch_add_explicit(to[i], by[i], memory_order_relaxed);
    }
}

void weir__store_count(weir_store *store, int code, const weir_decision *decision)
{
    struct weir__seat_counts sum = {.failed = code != 0};
    if (code == 0) {
        sum.decided[decision->allowed] = 1;
        sum.delayed = decision->delay_us != 0;
        sum.degraded = decision->degraded;
    }
    count_sum(store, &sum);
}

void weir__store_count_many(weir_store *store, const weir_decision *decisions, size_t n)
{
    uint64_t allowed = 0, delayed = 0, failed = 0, degraded = 0;
    for (size_t i = 0; i < n; i++) {
        const weir_decision *it = &decisions[i]; /* all zeros but for its code where it failed */
        failed += it->code != 0;
        allowed += it->allowed;
        delayed += it->delay_us != 0;
        degraded += it->degraded;
    }
    assert(allowed + failed <= n);
    struct weir__seat_counts sum = {.decided = {n - allowed - failed, allowed},
                                    .delayed = delayed,
                                    .failed = failed,
                                    .degraded = degraded};
    count_sum(store, &sum);
}

static uint64_t count_read(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

int weir_store_counts(const weir_store *store, weir_counts *ret)
{
    if (!store || !ret)
        return WEIR_EINVAL;
    *ret = (weir_counts){0};
    for (size_t seat = 0; seat < WEIR__SEATS; seat++) {
        const struct weir__seat_counts *own = &store->seats[seat];
        ret->allowed += count_read(&own->decided[true]);
        ret->denied += count_read(&own->decided[false]);
        ret->delayed += count_read(&own->delayed);
        ret->failed += count_read(&own->failed);
        ret->degraded += count_read(&own->degraded);
    }
    return 0;
}
