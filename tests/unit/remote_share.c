/* While no server decides. A limit's share of one of several processes: sound, at least 1, together
 * at most the limit. the local fallback: what each fail= answers, and in a zone what a share lets
 * through. */
#include "limit/limit.h"
#include "limit/receipt.h"
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

static void test_shares(void)
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
}

/* ---- the local fallback ---- */

#define NOW 1800000000000000

static weir_limit *limit_of(const char *text)
{
    weir_limit *limit = NULL;
    CHECK(weir_limit_parse(text, &limit, NULL) == 0);
    return limit;
}

static void test_blank(enum weir__redis_fail fail, bool allowed)
{
    struct weir__fallback fallback = {.fail = fail, .peers = 1};
    weir_limit *limit = limit_of("token-bucket 10/s burst 20, fixed-window 5/m");
    weir_decision rows[2], ret;
    weir_request request = weir_request_make(weir_key_text("ann"), limit);
    request.detail = rows;
    for (int i = 0; i < 100; i++) {
        CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, NOW, &ret), 0);
        CHECK(ret.closed == !allowed);
        CHECK(ret.allowed == allowed && ret.degraded && rows[0].degraded && rows[1].degraded);
        CHECK_INT(ret.time_us, NOW);
        CHECK_INT(ret.limit,
                  allowed ? 5 : 20); /* of denials that last equally long, the first binds */
        CHECK_INT(ret.remaining, allowed ? 5 : 0);
        CHECK_INT(ret.retry_after_us, allowed ? 0 : 1000000);
        CHECK_INT(rows[0].limit, 20);
    }
    weir_limit_free(limit);
}

/* Takes until it is denied; how many were let through. */
static int take_all(const struct weir__fallback *fallback, const weir_request *request,
                    weir_decision *ret)
{
    int allowed = 0;
    do {
        CHECK_INT(weir__fallback_decide(fallback, request, 1, WEIR__TAKE, NOW, ret), 0);
        CHECK(ret->degraded && ret->charged == 0);
        allowed += ret->allowed;
    } while (ret->allowed && allowed < 1000);
    return allowed;
}

static void test_local(weir_store *zone, int32_t n, int expected)
{
    struct weir__fallback fallback = {.fail = WEIR__FAIL_LOCAL, .peers = n, .local = zone};
    weir_limit *limit = limit_of("token-bucket 1/366d burst 20");
    char key[16];
    weir_decision row, ret;
    snprintf(key, sizeof key, "take:%d", n);
    weir_request request = weir_request_make(weir_key_text(key), limit);
    request.detail = &row;
    CHECK_INT(take_all(&fallback, &request, &ret), expected);
    CHECK(!row.allowed && row.degraded);
    request.cost = 20; /* more than a share, no more than the limit: not never */
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__PEEK, NOW, &ret), 0);
    CHECK(!ret.allowed && ret.retry_after_us > 0);
    request.cost = 21;
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__PEEK, NOW, &ret), 0);
    CHECK_INT(ret.retry_after_us, WEIR_NEVER);
    weir_limit_free(limit);
}

/* A slot of a share is given back under the whole limit. */
static void test_leases(weir_store *zone, int32_t n, int expected)
{
    struct weir__fallback fallback = {.fail = WEIR__FAIL_LOCAL, .peers = n, .local = zone};
    weir_limit *limit = limit_of("concurrent 6 lease 1h");
    char text[16];
    weir_decision ret;
    snprintf(text, sizeof text, "slots:%d", n);
    weir_key key = weir_key_text(text);
    weir_request request = weir_request_make(key, limit);
    request.acquire = true;
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, NOW, &ret), 0);
    uint64_t lease = ret.lease;
    CHECK(ret.allowed && ret.degraded && lease != 0);
    CHECK_INT(take_all(&fallback, &request, &ret), expected - 1);
    CHECK_INT(weir_renew(zone, key, limit, lease), 0);
    CHECK_INT(weir_release(zone, key, limit, lease), 0);
    CHECK_INT(weir_release(zone, key, limit, lease), WEIR_ENOLEASE);
    CHECK_INT(take_all(&fallback, &request, &ret), 1);
    weir_limit_free(limit);
}

static void test_group(weir_store *zone)
{
    struct weir__fallback fallback = {.fail = WEIR__FAIL_LOCAL, .peers = 2, .local = zone};
    weir_limit *few = limit_of("fixed-window 4/366d"), *many = limit_of("sliding-log 10/366d");
    weir_decision rows[2], ret;
    weir_request requests[] = {weir_request_make(weir_key_text("few"), few),
                               weir_request_make(weir_key_text("many"), many)};
    requests[0].detail = &rows[0];
    requests[1].detail = &rows[1];
    for (int i = 0; i < 4; i++) {
        CHECK_INT(weir__fallback_decide(&fallback, requests, 2, WEIR__TAKE, NOW, &ret), 0);
        CHECK_INT(ret.allowed, i < 2);
        CHECK_INT(rows[1].remaining, i < 2 ? 4 - i : 3);
    }
    CHECK_INT(ret.binding, 0);
    weir_limit_free(few);
    weir_limit_free(many);
}

/* Room that a request of cost 0 sees. */
static int64_t left(const struct weir__fallback *fallback, weir_key key, const weir_limit *limit)
{
    weir_decision ret;
    weir_request request = weir_request_make(key, limit);
    CHECK_INT(weir__fallback_decide(fallback, &request, 1, WEIR__PEEK, NOW, &ret), 0);
    return ret.remaining;
}

static int settle(const struct weir__fallback *fallback, weir_key key, const weir_limit *limit,
                  weir_decision *decision, int64_t actual)
{
    char receipt[WEIR_RECEIPT_SIZE];
    struct weir__correction correction = {.actual = actual};
    weir_receipt(decision, receipt);
    CHECK(weir__receipt_read(receipt, &correction));
    CHECK_INT(correction.charged, 0); /* the servers were charged nothing */
    return weir__fallback_settle(fallback, key, limit, &correction);
}

/* What the zone was charged is corrected there, once, and only what this fallback has charged. */
static void test_settle(weir_store *zone)
{
    struct weir__fallback fallback = {WEIR__FAIL_LOCAL, 2, zone, weir__charges_create()};
    struct weir__fallback other = {WEIR__FAIL_LOCAL, 2, zone, weir__charges_create()};
    weir_limit *limit = limit_of("sliding-log 20/h"), *more = limit_of("fixed-window 40/h");
    weir_key ann = weir_key_text("settle:ann"), bob = weir_key_text("settle:bob");
    weir_decision first, rows[2], ret;
    weir_request request = weir_request_make(ann, limit);
    request.cost = 3;
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, NOW, &first), 0);
    CHECK_INT(left(&fallback, ann, limit), 7);
    CHECK_INT(settle(&other, ann, limit, &first, 0), WEIR_EUNREACHABLE);
    CHECK_INT(settle(&fallback, bob, limit, &first, 0), WEIR_EUNREACHABLE);
    CHECK_INT(left(&fallback, ann, limit), 7);
    CHECK_INT(settle(&fallback, ann, limit, &first, 1), 0);
    CHECK_INT(left(&fallback, ann, limit), 9);
    CHECK_INT(settle(&fallback, ann, limit, &first, 0), WEIR_ESETTLED);
    CHECK_INT(left(&fallback, ann, limit), 9);

    weir_request both[] = {weir_request_make(ann, limit), weir_request_make(bob, more)};
    both[0].detail = &rows[0];
    both[1].detail = &rows[1];
    both[1].cost = 5;
    CHECK_INT(weir__fallback_decide(&fallback, both, 2, WEIR__TAKE, NOW, &ret), 0);
    CHECK_INT(left(&fallback, ann, limit), 8);
    CHECK_INT(left(&fallback, bob, more), 15);
    CHECK_INT(settle(&fallback, ann, limit, &rows[0], 0), 0);
    CHECK_INT(settle(&fallback, bob, more, &rows[1], 0), 0);
    CHECK_INT(left(&fallback, ann, limit), 9);
    CHECK_INT(left(&fallback, bob, more), 20);

    request.cost = 1;
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, NOW, &first), 0);
    for (uint64_t i = 1; i <= WEIR__CHARGES_MAX; i++)
        weir__charges_note(fallback.charges, i, bob, 1);
    CHECK_INT(settle(&fallback, ann, limit, &first, 0), WEIR_EUNREACHABLE); /* too long ago */
    CHECK_INT(left(&fallback, ann, limit), 8);
    weir__charges_free(fallback.charges);
    weir__charges_free(other.charges);
    weir_limit_free(limit);
    weir_limit_free(more);
}

int main(void)
{
    weir_store *zone = NULL;
    test_shares();
    test_blank(WEIR__FAIL_OPEN, true);
    test_blank(WEIR__FAIL_CLOSED, false);
    if (CHECK(weir_store_open("memory:1m", &zone, NULL) == 0)) {
        test_local(zone, 1, 20);
        test_local(zone, 4, 5);
        test_local(zone, 50, 1);
        test_leases(zone, 1, 6);
        test_leases(zone, 3, 2);
        test_group(zone);
        test_settle(zone);
        weir_store_close(zone);
    }
    return test_report();
}
