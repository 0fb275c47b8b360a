/* Receipts: any text is refused or settles within bounds, and the store stays sound. The first two
 * bytes choose the limit and the real cost, the rest is the receipt. */
#include "fuzz.h"

#include "limit/limit.h"
#include "sim/virtual_clock.h"

static const char *const limits[] = {
    "token-bucket 10/s burst 20",
    "token-bucket 10/s burst 20 stepped",
    "leaky-bucket 10/s burst 5",
    "fixed-window 100/m",
    "fixed-window 100/m from-first",
    "sliding-log 5/m",
    "sliding-window 240/h precision 1m",
    "sliding-counter 1000/h",
    "smooth 5/s burst-for 2s",
    "warmup 5/s over 3s",
    "concurrent 20",
    "token-bucket 1000g/us, leaky-bucket 1/366d burst 100, sliding-log 100/s, warmup 1/d over 1d",
};

static const int64_t costs[] = {0, 1, 2, 100, 100001, WEIR_COST_MAX};

static void check_answer(weir_store *store, const weir_limit *limit)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    weir_request request = {.key = weir_key_text("k"), .limit = limit, .detail = rows};
    EXPECT(weir_peek_all(store, &request, 1, &folded) == 0, "peek fails");
    for (size_t i = 0; i < weir_limit_count(limit); i++)
        EXPECT(rows[i].remaining >= 0 && rows[i].reset_after_us >= 0 &&
                   rows[i].retry_after_us >= -1,
               "limit %zu: remaining %lld, reset %lld, retry %lld", i, (long long)rows[i].remaining,
               (long long)rows[i].reset_after_us, (long long)rows[i].retry_after_us);
}

static void settle(weir_store *store, const weir_limit *limit, const char *receipt, int64_t cost)
{
    weir_error err = {0};
    int code = weir_settle(store, weir_key_text("k"), limit, receipt, cost, &err);
    EXPECT(code == 0 || code == WEIR_ERECEIPT || code == WEIR_EUNSUPPORTED, "code %d: %s", code,
           err.message);
    EXPECT(code == 0 || (err.code == code && err.message[0]), "no message");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    const char *text = limits[fuzz_byte(&input) % WEIR__COUNT(limits)];
    int64_t cost = costs[fuzz_byte(&input) % WEIR__COUNT(costs)];
    char *receipt = fuzz_text(input.data, input.size);
    struct weir__virtual_clock clock = {INT64_C(1700000000000000)};
    weir_store *store = NULL;
    weir_limit *limit = NULL;
    weir_decision decision;
    weir_error err = {0};
    fuzz_random_reset();
    EXPECT(weir_store_open("memory:64k?large=50%", &store, &err) == 0, "%s", err.message);
    EXPECT(weir_limit_parse(text, &limit, &err) == 0, "%s", err.message);
    weir__virtual_clock_install(&clock, store);
    EXPECT(weir_take(store, weir_key_text("k"), limit, 1, &decision) == 0, "take fails");
    clock.now_us++;
    settle(store, limit, receipt, cost);
    check_answer(store, limit);
    settle(store, limit, receipt, cost);
    check_answer(store, limit);
    EXPECT(weir_store_check(store, &err) == 0, "%s", err.message);
    weir_limit_free(limit);
    weir_store_close(store);
    free(receipt);
    return 0;
}
