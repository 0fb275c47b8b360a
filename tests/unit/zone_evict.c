/*
 * What a full zone does with new keys: it never grows, and looks no further than the new key's
 * reach. First goes what nobody can miss, then a state of the limit with most states in reach, one
 * that is not being denied, with the smallest share. Every single eviction is held to that. With
 * full=deny no live state goes at all.
 */
#include "store/zone/evict.h"
#include "store_inside.h"
#include "store_test.h"

#include "base/hash.h"
#include "base/random.h"

#define REACH_SLOTS (WEIR__REACH * WEIR__SLOTS)

static _Atomic int64_t now = START;

static void name_key(char key[24], const char *what, long i)
{
    snprintf(key, 24, "%.8s %u", what, (unsigned)i);
}

static long resident_kb(void)
{
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &total, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Keys without end, in a zone of fixed size. */
static void test_flood(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("token-bucket 10/d");
    char key[24];
    for (long i = 0; i < 100000; i++) {
        name_key(key, "warm", i);
        test_take(store, key, limit, 1);
    }
    weir_zone_info before = test_info(store);
    long resident = resident_kb();
    for (long i = 0; i < 300000; i++) {
        name_key(key, "flood", i);
        test_take(store, key, limit, 1);
    }
    weir_zone_info info = test_info(store);
    CHECK(resident_kb() - resident < 256);
    CHECK_INT(info.size, 1 << 20);
    CHECK(info.keys <= info.capacity && info.keys > info.capacity * 9 / 10);
    CHECK_INT(info.evicted_fresh, 0);
    CHECK_INT(info.evicted_unused - before.evicted_unused, 300000 - (info.keys - before.keys));
    test_sound(store);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* Who has used up more of the limit outlives any number of keys that used less of it. */
static void test_smallest_share_first(void)
{
    enum { POPULAR = 60 };
    weir_store *store = test_open("memory:64k", &now);
    weir_limit *limit = test_limit("token-bucket 10/d");
    char key[24];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < POPULAR; i++) {
            name_key(key, "popular", i);
            test_take(store, key, limit, 1);
        }
    }
    for (long i = 0; i < 50000; i++) {
        name_key(key, "once", i);
        test_take(store, key, limit, 1);
    }
    for (int i = 0; i < POPULAR; i++) {
        name_key(key, "popular", i);
        CHECK_INT(test_peek(store, key, limit, 0).remaining, 6);
    }
    CHECK_INT(test_info(store).evicted_soonest, 0);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* ---- every eviction by the book ---- */

/* A slot as it was before the new key came. */
struct seen {
    uint64_t tag;
    uint32_t row;
    bool fresh, denied;
    uint32_t share;
};

struct book {
    struct weir__group *groups[WEIR__REACH];
    struct seen slots[REACH_SLOTS];
    bool room;
    weir_zone_info info;
};

static void look(weir_store *store, const char *key, struct book *ret)
{
    struct weir__zone *zone = test_zone(store);
    uint64_t hash[2];
    weir__hash(zone->secret, key, strlen(key), hash);
    ret->room = false;
    ret->info = test_info(store);
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        struct weir__group *group =
            weir__group_at(zone, weir__home_of(zone, weir__tag_of(hash)), weir__tag_of(hash), d);
        ret->groups[d] = group;
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            const struct weir__rule *rule = NULL;
            struct weir__state state = {0};
            uint32_t unit;
            unsigned order;
            struct seen *it = &ret->slots[d * WEIR__SLOTS + slot];
            *it = (struct seen){.tag = group->tags[slot],
                                .row = weir__slot_row(zone, group, slot),
                                .denied = weir__slot_denied(group, slot)};
            ret->room = ret->room || it->tag == 0;
            if (it->tag == 0)
                continue;
            CHECK(weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order));
            it->fresh = weir__is_fresh(rule, &state, now);
            it->share = weir__state_share(rule, &state, now);
            CHECK_INT(it->share == 0, it->fresh);
        }
    }
}

/* How many slots in reach are of the same row. */
static unsigned count_row(const struct book *book, uint32_t row)
{
    unsigned n = 0;
    for (unsigned i = 0; i < REACH_SLOTS; i++)
        n += book->slots[i].row == row;
    return n;
}

/* Whether a must go before b. Shares within a quarter may count as equal. */
static bool goes_first(const struct book *book, const struct seen *a, const struct seen *b)
{
    if (a->fresh != b->fresh)
        return a->fresh;
    if (a->row != b->row)
        return count_row(book, a->row) > count_row(book, b->row);
    if (a->denied != b->denied)
        return !a->denied;
    return (uint64_t)a->share * 5 < (uint64_t)b->share * 4;
}

/* Which slot the new key got, and whether its last owner was the right one to go. */
static void compare(weir_store *store, const struct book *book)
{
    const struct seen *gone = NULL;
    int changed = 0;
    for (unsigned i = 0; i < REACH_SLOTS; i++) {
        const struct weir__group *group = book->groups[i / WEIR__SLOTS];
        const struct seen *it = &book->slots[i];
        if (group->tags[i % WEIR__SLOTS] == it->tag &&
            weir__slot_row(test_zone(store), group, i % WEIR__SLOTS) == it->row)
            continue;
        gone = it;
        changed++;
    }
    CHECK_INT(changed, 1);
    if (!gone || book->room) {
        CHECK(gone && gone->tag == 0);
        return;
    }
    for (unsigned i = 0; i < REACH_SLOTS; i++) {
        if (!gone->fresh)
            CHECK(!goes_first(book, &book->slots[i], gone));
    }
    bool any_fresh = false;
    for (unsigned i = 0; i < REACH_SLOTS; i++)
        any_fresh = any_fresh || book->slots[i].fresh;
    CHECK_INT(gone->fresh, any_fresh);
    weir_zone_info info = test_info(store);
    CHECK_INT(info.evicted_fresh - book->info.evicted_fresh, gone->fresh);
    CHECK_INT(info.evicted_unused - book->info.evicted_unused, !gone->fresh && !gone->denied);
    CHECK_INT(info.evicted_soonest - book->info.evicted_soonest, !gone->fresh && gone->denied);
    CHECK_INT(info.keys, book->info.keys);
}

/* Keys of all sorts come and come back while time goes on. */
static void test_by_the_book(void)
{
    static const char *const texts[] = {"token-bucket 5/s",         "fixed-window 5/m",
                                        "token-bucket 5/h",         "sliding-counter 5/d",
                                        "leaky-bucket 5/m burst 9", "smooth 5/s"};
    enum { LIMITS = sizeof texts / sizeof texts[0] };
    weir_store *store = test_open("memory:64k?large=0", &now);
    weir_limit *limits[LIMITS];
    uint64_t chance = 7;
    for (int i = 0; i < LIMITS; i++)
        limits[i] = test_limit(texts[i]);
    weir_zone_info info;
    for (long i = 0; i < 30000; i++) {
        char key[24];
        struct book book;
        bool news = weir__random_next(&chance) % 3 == 0;
        name_key(key, "key", news ? i : (long)(weir__random_next(&chance) % 2500));
        const weir_limit *limit = limits[weir__random_next(&chance) % LIMITS];
        bool known = test_peek(store, key, limit, 1).reset_after_us > 0;
        look(store, key, &book);
        bool charged = test_take(store, key, limit, 1).allowed;
        info = test_info(store);
        if (charged && !known &&
            info.evicted_fresh + info.evicted_unused + info.evicted_soonest >
                book.info.evicted_fresh + book.info.evicted_unused + book.info.evicted_soonest)
            compare(store, &book);
        for (int again = 0; again < 9 && !news; again++) /* until it is denied, mostly */
            test_take(store, key, limit, 1);
        now += (int64_t)(weir__random_next(&chance) % 20000);
    }
    CHECK(info.evicted_fresh > 1000);
    CHECK(info.evicted_unused > 1000);
    test_sound(store);
    for (int i = 0; i < LIMITS; i++)
        weir_limit_free(limits[i]);
    weir_store_close(store);
}

/* ---- who stays ---- */

static void flood_with(weir_store *store, const weir_limit *limit, long n, int charges)
{
    char key[24];
    for (long i = 0; i < n; i++) {
        name_key(key, "flood", i);
        for (int j = 0; j < charges; j++)
            test_take(store, key, limit, 1);
    }
}

/* Who is being denied stays, whatever comes that is not; a charge, or a denial of a cost that
 * never fits, does not help. */
static void test_denied_stay(void)
{
    enum { KEYS = 60 };
    weir_limit *limit = test_limit("fixed-window 2/h from-first");
    weir_store *store = test_open("memory:64k", &now);
    char key[24];
    long lost = 0;
    for (int i = 0; i < KEYS; i++) {
        name_key(key, "denied", i);
        CHECK_INT(test_take(store, key, limit, 2).allowed, true);
        CHECK_INT(test_take(store, key, limit, 1).allowed, false);
        name_key(key, "used up", i);
        CHECK_INT(test_take(store, key, limit, 2).allowed, true);
        name_key(key, "greedy", i);
        CHECK_INT(test_take(store, key, limit, 1).allowed, true);
        CHECK_INT(test_take(store, key, limit, 9).allowed, false);
    }
    flood_with(store, limit, 50000, 2); /* as much as they have, and never denied */
    for (int i = 0; i < KEYS; i++) {
        name_key(key, "denied", i);
        CHECK_INT(test_take(store, key, limit, 1).allowed, false);
        name_key(key, "used up", i);
        lost += test_take(store, key, limit, 1).allowed;
    }
    CHECK(lost > KEYS * 9 / 10); /* at random, 25 times as many as there is room for */
    CHECK_INT(test_info(store).evicted_soonest, 0);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* A flood under one limit pays with states of that limit, also where those of another withhold
 * less. */
static void test_row_pays(void)
{
    enum { KEYS = 200 };
    weir_limit *few = test_limit("token-bucket 1000/h"), *flood = test_limit("fixed-window 1/h");
    weir_store *store = test_open("memory:64k", &now);
    char key[24];
    for (int i = 0; i < KEYS; i++) {
        name_key(key, "few", i);
        CHECK_INT(test_take(store, key, few, 1).allowed, true);
    }
    flood_with(store, flood, 50000, 2);
    for (int i = 0; i < KEYS; i++) {
        name_key(key, "few", i);
        CHECK_INT(test_peek(store, key, few, 0).remaining, 999);
    }
    weir_limit_free(few);
    weir_limit_free(flood);
    weir_store_close(store);
}

/* Leases never go. */
static void test_leases_stay(void)
{
    enum { KEYS = 50 };
    weir_limit *slots = test_limit("concurrent 1 lease 1h"),
               *flood = test_limit("fixed-window 1/h");
    weir_store *store = test_open("memory:64k?large=50%", &now);
    char key[24];
    for (int i = 0; i < KEYS; i++) {
        name_key(key, "lease", i);
        CHECK_INT(test_take(store, key, slots, 1).allowed, true);
    }
    flood_with(store, flood, 50000, 1);
    for (int i = 0; i < KEYS; i++) {
        name_key(key, "lease", i);
        CHECK_INT(test_take(store, key, slots, 1).allowed, false);
    }
    weir_limit_free(slots);
    weir_limit_free(flood);
    weir_store_close(store);
}

/* ---- full=deny ---- */

/* New keys until the zone refuses some; how many came in. */
static long fill(weir_store *store, const weir_limit *limit, long n)
{
    char key[24];
    long in = 0;
    for (long i = 0; i < n; i++) {
        weir_decision decision;
        memset(&decision, 7, sizeof decision);
        weir_decision before = decision;
        name_key(key, "fill", i);
        int code = weir_take(store, weir_key_text(key), limit, 1, &decision);
        CHECK(code == 0 || code == WEIR_EFULL);
        if (code)
            CHECK(!memcmp(&before, &decision, sizeof before)); /* nothing is said */
        in += code == 0;
    }
    return in;
}

/* A key that the zone refuses. */
static long find_refused(weir_store *store, const weir_limit *limit, long from, char key[24])
{
    weir_decision decision;
    for (long i = from; i < from + 10000; i++) {
        name_key(key, "other", i);
        if (weir_take(store, weir_key_text(key), limit, 1, &decision) == WEIR_EFULL)
            return i + 1;
    }
    CHECK(!"a zone that is full refuses somebody");
    return from;
}

/* Nobody is forgotten, known keys go on as ever, and what becomes fresh makes room. */
static void test_full_denies(void)
{
    weir_limit *limit = test_limit("fixed-window 2/h from-first");
    weir_store *store = test_open("memory:64k?full=deny", &now);
    char key[24];
    long in = fill(store, limit, 20000);
    weir_zone_info info = test_info(store);
    CHECK(in > (long)info.capacity * 9 / 10 && in <= (long)info.capacity);
    CHECK_INT(info.keys, in);
    CHECK_INT(info.refused, 20000 - in);
    CHECK_INT(info.evicted_fresh + info.evicted_unused + info.evicted_soonest, 0);
    long found = 0;
    for (long i = 0; i < 20000; i++) {
        name_key(key, "fill", i);
        found += test_peek(store, key, limit, 0).remaining == 1;
    }
    CHECK_INT(found, in);
    now += INT64_C(3600000000);
    CHECK(fill(store, limit, 1000) == 1000);
    test_sound(store);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* A group that finds no room for one of its limits leaves no trace of the others; so do settle
 * and acquire. */
static void test_full_denies_whole(void)
{
    weir_limit *limit = test_limit("fixed-window 2/h from-first");
    weir_limit *both = test_limit("fixed-window 2/h from-first, token-bucket 5/h");
    weir_limit *slots = test_limit("concurrent 1 lease 1h, token-bucket 5/h");
    weir_store *store = test_open("memory:64k?full=deny&large=30%", &now);
    weir_decision decision;
    char key[24];
    fill(store, limit, 20000);
    long from = 0;
    for (int i = 0; i < 100; i++) {
        from = find_refused(store, limit, from, key);
        weir_zone_info before = test_info(store);
        weir_request requests[] = {weir_request_make(weir_key_text("fill 0"), limit),
                                   weir_request_make(weir_key_text(key), both)};
        CHECK_INT(weir_take_all(store, requests, 2, &decision), WEIR_EFULL);
        CHECK_INT(weir_acquire(store, weir_key_text(key), slots, 1, &decision), WEIR_EFULL);
        CHECK_INT(weir_settle(store, weir_key_text(key), limit, "w3-1700000000000000-1-68719476736",
                              2, NULL),
                  WEIR_EFULL);
        CHECK_INT(weir_settle(store, weir_key_text(key), limit, "w3-1700000000000000-1-68719476736",
                              0, NULL),
                  0);
        CHECK_INT(weir_peek(store, weir_key_text(key), both, 1, &decision), 0);
        CHECK_INT(test_peek(store, "fill 0", limit, 0).remaining, 1);
        CHECK_INT(test_info(store).keys, before.keys);
        CHECK_INT(test_info(store).large_used, before.large_used);
    }
    test_sound(store);
    weir_limit_free(limit);
    weir_limit_free(both);
    weir_limit_free(slots);
    weir_store_close(store);
}

/* For servers it is a denial, with its own reason and a time at which there is room. */
static void test_full_is_a_denial(void)
{
    weir_limit *limit = test_limit("fixed-window 2/h from-first");
    weir_limit *both = test_limit("token-bucket 5/h, fixed-window 2/h from-first");
    weir_store *store = test_open("memory:64k?full=deny", &now);
    char key[24];
    fill(store, limit, 20000);
    find_refused(store, limit, 0, key);
    weir__store_deny_full(store);
    for (int i = 0; i < 2; i++) {
        weir_decision decision = test_take(store, key, i ? both : limit, 1);
        CHECK_INT(decision.allowed, false);
        CHECK_INT(decision.full, true);
        CHECK_INT(decision.charged, 0);
        CHECK_INT(decision.delay_us, 0);
        CHECK(decision.retry_after_us > INT64_C(3590000000) &&
              decision.retry_after_us <= INT64_C(3600000000));
    }
    weir_request many[] = {weir_request_make(weir_key_text(key), limit),
                           weir_request_make(weir_key_text("fill 0"), limit)};
    weir_decision decisions[2];
    CHECK_INT(weir_take_many(store, many, 2, decisions), 0);
    CHECK_INT(decisions[0].allowed, false);
    CHECK_INT(decisions[0].full, true);
    CHECK_INT(decisions[1].allowed, true);
    CHECK_INT(decisions[1].full, false);
    CHECK_INT(test_take(store, "fill 0", limit, 1).full, false); /* by its limit */
    weir_limit_free(limit);
    weir_limit_free(both);
    weir_store_close(store);
}

/* ---- reset ---- */

static void test_reset(void)
{
    weir_store *store = test_open("memory:1m?large=30%", &now);
    weir_limit *many = test_limit(
        "token-bucket 9/s, token-bucket 9/m, token-bucket 9/h, token-bucket 9/s stepped, "
        "leaky-bucket 9/m burst 9, fixed-window 9/m, fixed-window 9/m from-first, "
        "sliding-log 9/m, sliding-log 9/h, sliding-window 9/m, sliding-window 9/h, "
        "sliding-counter 9/m, smooth 9/s, warmup 9/s over 2s, concurrent 9, sliding-counter 9/h");
    for (int i = 0; i < 200; i++) {
        char key[24];
        name_key(key, "reset", i);
        CHECK_INT(test_take(store, key, many, 1).allowed, true);
        CHECK_INT(test_info(store).keys, 32 - (i == 0) * 16);
        if (i > 0) {
            name_key(key, "reset", i - 1);
            CHECK_INT(weir_reset(store, weir_key_text(key)), 0);
            CHECK_INT(test_info(store).keys, 16);
        }
    }
    CHECK_INT(weir_reset(store, weir_key_text("never seen")), 0);
    CHECK_INT(test_info(store).keys, 16);
    weir_limit_free(many);
    weir_store_close(store);
}

int main(void)
{
    test_flood();
    test_smallest_share_first();
    test_by_the_book();
    test_denied_stay();
    test_row_pays();
    test_leases_stay();
    test_full_denies();
    test_full_denies_whole();
    test_full_is_a_denial();
    test_reset();
    return test_report();
}
