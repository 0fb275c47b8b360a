/*
 * What a full zone does with new keys: it never grows, throws out what nobody can miss first, then
 * the least used that is soonest fresh, then the soonest fresh; counts each; looks no further than
 * the new key's reach. Every single eviction is held to that.
 */
#include "store_inside.h"
#include "store_test.h"

#include "base/hash.h"
#include "base/random.h"

#define REACH_SLOTS (WEIR__REACH * WEIR__SLOTS)

static _Atomic int64_t now = START;

static void name_key(char key[24], const char *what, long i)
{
    snprintf(key, 24, "%.8s %ld", what, i);
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

/* Who was charged again and again outlives any number of keys seen once. */
static void test_least_used_first(void)
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
    bool fresh;
    unsigned use;
    int64_t fresh_at;
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
                                .use = weir__slot_use(group, slot)};
            ret->room = ret->room || it->tag == 0;
            if (it->tag == 0)
                continue;
            CHECK(weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order));
            it->fresh = weir__is_fresh(rule, &state, now);
            it->fresh_at = weir__algorithm_of(rule)->fresh_at(rule, &state);
        }
    }
}

/* Whether a should go before b. */
static bool goes_first(const struct seen *a, const struct seen *b)
{
    if (a->fresh != b->fresh)
        return a->fresh;
    if ((a->use == 0) != (b->use == 0))
        return a->use == 0;
    return a->fresh_at < b->fresh_at;
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
            CHECK(!goes_first(&book->slots[i], gone));
    }
    bool any_fresh = false;
    for (unsigned i = 0; i < REACH_SLOTS; i++)
        any_fresh = any_fresh || book->slots[i].fresh;
    CHECK_INT(gone->fresh, any_fresh);
    weir_zone_info info = test_info(store);
    CHECK_INT(info.evicted_fresh - book->info.evicted_fresh, gone->fresh);
    CHECK_INT(info.evicted_unused - book->info.evicted_unused, !gone->fresh && gone->use == 0);
    CHECK_INT(info.evicted_soonest - book->info.evicted_soonest, !gone->fresh && gone->use > 0);
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
        if (!news) /* it is used, from now on */
            test_take(store, key, limit, 1);
        now += (int64_t)(weir__random_next(&chance) % 20000);
    }
    CHECK(info.evicted_fresh > 1000);
    CHECK(info.evicted_unused > 1000);
    CHECK(info.evicted_soonest > 100);
    test_sound(store);
    for (int i = 0; i < LIMITS; i++)
        weir_limit_free(limits[i]);
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
    test_least_used_first();
    test_by_the_book();
    test_reset();
    return test_report();
}
