// weir.h from C++: every function is called once, against the shared library. tests/api/cxx.sh compiles it.
#include <weir.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

static int passed, failed;

static void check(bool ok, const char *what)
{
    std::printf("%s %s\n", ok ? "ok  " : "FAIL", what);
    ok ? passed++ : failed++;
}

// A clock that stands still until it is told otherwise, or slept on.
static int64_t fake_now(void *context)
{
    return *static_cast<int64_t *>(context);
}

static void fake_sleep(void *context, int64_t us)
{
    *static_cast<int64_t *>(context) += us;
}

struct CloseStore {
    void operator()(weir_store *store) const { weir_store_close(store); }
};
struct FreeLimit {
    void operator()(weir_limit *limit) const { weir_limit_free(limit); }
};
using Store = std::unique_ptr<weir_store, CloseStore>;
using Limit = std::unique_ptr<weir_limit, FreeLimit>;

static Limit parse(const char *text)
{
    weir_limit *limit = nullptr;
    weir_error err{};
    if (weir_limit_parse(text, &limit, &err))
        std::printf("%s\n", err.message);
    return Limit(limit);
}

static void limits()
{
    weir_error err{};
    weir_limit *untouched = nullptr;
    Limit two = parse("TOKEN-BUCKET 10r/s burst 20, fixed-window 1k/60s");
    check(two && weir_limit_count(two.get()) == 2, "weir_limit_parse, weir_limit_count");
    check(std::string(weir_limit_text(two.get())) == "token-bucket 10/s burst 20, fixed-window 1000/m",
          "weir_limit_text");
    check(!std::strcmp(weir_limit_kind(two.get(), 1), "fixed-window") && weir_limit_amount(two.get(), 1) == 1000 &&
              weir_limit_period_us(two.get(), 1) == 60000000 && weir_limit_burst(two.get(), 0) == 20,
          "weir_limit_kind, weir_limit_amount, weir_limit_period_us, weir_limit_burst");
    weir_limit *some = nullptr;
    check(weir_limit_parse_n("smooth 1/s and more", 10, &some, &err) == 0, "weir_limit_parse_n");
    weir_limit_free(some);
    check(!std::strcmp(weir_version(), WEIR_VERSION), "weir_version");
    int code = weir_limit_parse("token-bucket 10", &untouched, &err);
    check(code == WEIR_ESYNTAX && err.code == code && err.column == 14 && !untouched,
          "a syntax error has a code and a column, and leaves ret alone");
    check(!std::strcmp(weir_errname(code), "ESYNTAX") && std::strlen(weir_strerror(code)) > 0,
          "weir_errname, weir_strerror");
    weir_limit_free(nullptr);
    weir_store_close(nullptr);
}

static void verbs(weir_store *store, int64_t &now)
{
    Limit bucket = parse("token-bucket 10/s burst 2");
    weir_decision d{};
    std::string name = "user:42";
    weir_key key = weir_key_bytes(name.data(), name.size());
    check(weir_take(store, key, bucket.get(), 1, &d) == WEIR_OK && d.allowed && d.remaining == 1 &&
              d.time_us == now && d.charged == 1,
          "weir_take");
    check(weir_peek(store, key, bucket.get(), 1, &d) == 0 && d.allowed && d.remaining == 1 &&
              d.charged == 0,
          "weir_peek");
    check(weir_take(store, key, bucket.get(), 3, &d) == 0 && !d.allowed &&
              d.retry_after_us == WEIR_NEVER,
          "a cost over the limit is denied for ever");
    check(weir_take(store, key, bucket.get(), -1, &d) == WEIR_EINVAL, "a negative cost is refused");
    weir_hashed_key hashed{};
    check(weir_key_hash(store, key, &hashed) == 0 &&
              weir_take_hashed(store, &hashed, bucket.get(), 1, &d) == 0 && d.allowed && d.remaining == 0,
          "weir_key_hash, weir_take_hashed");
    int64_t before = now;
    check(weir_wait(store, key, bucket.get(), 1, 1000000, &d) == 0 && d.allowed &&
              now == before + 100000,
          "weir_wait");
    weir_request request{};
    request.key = key;
    request.limit = bucket.get();
    check(weir_wait_for(store, &request, 1000000, &d) == 0 && d.allowed && now == before + 200000, "weir_wait_for");
    check(weir_reset_key(store, key, nullptr) == 0, "weir_reset_key");
    check(weir_reset(store, key) == 0 && weir_peek(store, key, bucket.get(), 1, &d) == 0 &&
              d.remaining == 2 && d.reset_after_us == 0,
          "weir_reset");
}

static void groups(weir_store *store)
{
    Limit bucket = parse("token-bucket 10/s burst 2"), window = parse("fixed-window 3/m, sliding-log 1/m");
    weir_decision d{}, rows[2]{}, many[4]{};
    weir_request both[] = {weir_request_make(weir_key_text("a"), bucket.get()), weir_request_make(weir_key_text("b"), window.get())};
    both[1].detail = rows;
    check(weir_take_all(store, both, 2, &d) == 0 && d.allowed && rows[1].remaining == 0, "weir_take_all");
    check(weir_take_all(store, both, 2, &d) == 0 && !d.allowed && d.binding == 2 && rows[0].remaining == 2,
          "denied by one, charged to none");
    check(weir_peek_all(store, both, 1, &d) == 0 && d.allowed && d.remaining == 1, "weir_peek_all");
    weir_request three[] = {weir_request_make(weir_key_text("c"), bucket.get()), weir_request_make(weir_key_text("c"), bucket.get()),
                            weir_request_make(weir_key_text("c"), bucket.get())};
    check(weir_take_many(store, three, 3, many) == 0 && many[1].allowed && !many[2].allowed,
          "weir_take_many");
}

static void settling(weir_store *store)
{
    Limit window = parse("fixed-window 100/m"), slots = parse("concurrent 1 lease 10s");
    weir_decision d{};
    weir_error err{};
    char receipt[WEIR_RECEIPT_SIZE];
    weir_key key = weir_key_text("s");
    check(weir_take(store, key, window.get(), 40, &d) == 0 && d.remaining == 60, "an estimate");
    weir_receipt(&d, receipt);
    check(weir_settle(store, key, window.get(), receipt, 10, &err) == 0 &&
              weir_peek(store, key, window.get(), 1, &d) == 0 && d.remaining == 90,
          "weir_receipt, weir_settle");
    check(weir_settle(store, key, window.get(), "?", 10, &err) == WEIR_ERECEIPT && err.message[0],
          "a bad receipt is refused with a message");
    check(weir_acquire(store, key, slots.get(), 1, &d) == 0 && d.allowed && d.lease != 0, "weir_acquire");
    uint64_t lease = d.lease;
    check(weir_acquire(store, key, slots.get(), 1, &d) == 0 && !d.allowed && d.lease == 0,
          "no second slot");
    check(weir_renew(store, key, slots.get(), lease) == 0, "weir_renew");
    check(weir_renew_lease(store, key, slots.get(), lease, &err) == 0, "weir_renew_lease");
    check(weir_release(store, key, slots.get(), lease) == 0, "weir_release");
    check(weir_release_lease(store, key, slots.get(), lease, &err) == WEIR_ENOLEASE && err.message[0],
          "weir_release_lease");
    check(weir_release(store, key, slots.get(), lease) == WEIR_ENOLEASE, "released once only");
}

int main()
{
    limits();
    weir_store *raw = nullptr;
    weir_error err{};
    check(weir_store_open("memory:1m", &raw, &err) == WEIR_OK, "weir_store_open");
    Store store(raw);
    int64_t now = INT64_C(1700000000000000);
    weir_clock clock = {fake_now, fake_sleep, &now};
    weir_store_set_clock(store.get(), &clock);
    verbs(store.get(), now);
    groups(store.get());
    settling(store.get());
    weir_zone_info info{};
    check(weir_store_info(store.get(), &info) == 0 && info.keys > 0 && info.size == 1 << 20,
          "weir_store_info");
    weir_counts counts{};
    check(weir_store_counts(store.get(), &counts) == 0 && counts.allowed > 0 && counts.failed == 0,
          "weir_store_counts");
    check(weir_store_check(store.get(), &err) == 0, "weir_store_check");
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
