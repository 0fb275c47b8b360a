/* A limit's share of one of several processes: sound, at least 1, together at most the limit. */
#include "limit/limit.h"
#include "remote/remote.h"

#include "test.h"

static const char *const texts[] = {
    "token-bucket 10/s burst 20",
    "token-bucket 1/d",
    "token-bucket 7/m burst 100 stepped",
    "leaky-bucket 10/s",
    "leaky-bucket 10/s burst 5",
    "leaky-bucket 10/s burst 9 delay 4",
    "leaky-bucket 100/m burst 50 nodelay",
    "fixed-window 100/m",
    "fixed-window 3/h from-first",
    "sliding-log 5/m",
    "sliding-window 240/h precision 1m",
    "sliding-counter 1000/h",
    "smooth 5/s burst-for 2s",
    "warmup 5/s over 3s cold 3",
    "concurrent 20 lease 30s",
    "token-bucket 1000g/366d burst 284",
    "token-bucket 10/s burst 20, fixed-window 1000/d, concurrent 7",
};
static const int32_t peers[] = {1, 2, 3, 7, 10, 64, 1000, 1000000};

static void check_rule(const struct weir__rule *whole, const struct weir__rule *share, int32_t n)
{
    int64_t most = whole->count > n ? whole->count : n;
    CHECK(weir__rule_sound(share));
    CHECK(share->count >= 1 && share->count * n <= most);
    CHECK_INT(share->kind, whole->kind);
    CHECK_INT(share->period_us, whole->period_us);
    if (whole->kind == WEIR__LEAKY_BUCKET) {
        int64_t room = whole->burst + 1 > n ? whole->burst + 1 : n;
        CHECK(share->burst >= 0 && (share->burst + 1) * n <= room);
    } else if (whole->burst > 0) {
        CHECK(share->burst >= 1 && share->burst * n <= (whole->burst > n ? whole->burst : n));
    }
    if (n == 1)
        CHECK(!memcmp(whole, share, sizeof *whole));
}

int main(void)
{
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        weir_limit *limit = NULL;
        if (!CHECK(weir_limit_parse(texts[i], &limit, NULL) == 0))
            continue;
        for (size_t j = 0; j < WEIR__COUNT(peers); j++) {
            weir_limit share;
            weir__share(limit, peers[j], &share);
            CHECK_INT(share.count, limit->count);
            for (size_t k = 0; k < limit->count; k++)
                check_rule(&limit->rules[k], &share.rules[k], peers[j]);
        }
        weir_limit_free(limit);
    }
    return test_report();
}
