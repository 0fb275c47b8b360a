/*
 * After a death: a stripe is repaired page by page, each page by the first who needs it, and
 * nothing is counted twice or forgotten, however many deaths there are.
 */
#include "base/hash.h"
#include "core/ring.h"
#include "store_inside.h"
#include "store_test.h"

#include <sys/wait.h>

enum { KEYS = 20000 };
static _Atomic int64_t now = START;

static const char *key_name(int i)
{
    static char name[32];
    snprintf(name, sizeof name, "key %d", i);
    return name;
}

static void fill(weir_store *store, const weir_limit *limit)
{
    for (int i = 0; i < KEYS; i++)
        test_take(store, key_name(i), limit, 1);
}

/* Freezes every state of a stripe and dies with its lock, as in the middle of many requests. */
static void die_with(struct weir__zone *zone, uint32_t stripe)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (!weir__stripe_lock(zone, stripe))
            _exit(1);
        for (uint64_t g = 0; g < zone->group_count; g++) {
            for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
                if (weir__stripe_of(zone, (uint32_t)g) == stripe &&
                    weir__slot_tag(&zone->groups[g], slot))
                    weir__slot_freeze(&zone->groups[g], slot);
            }
        }
        zone->stripes[stripe].counters[WEIR__KEYS] += 1000; /* what it died in the middle of */
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
}

static int count_frozen(const struct weir__zone *zone, uint64_t page)
{
    int frozen = 0;
    for (uint64_t g = page << zone->layout.page_bits; g < (page + 1) << zone->layout.page_bits; g++)
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++)
            frozen += weir__slot_tag(&zone->groups[g], slot) &&
                      weir__is_frozen(weir__load16(&zone->groups[g].states[slot]));
    return frozen;
}

/* A key whose place is a page. */
static int key_of_page(struct weir__zone *zone, uint64_t page)
{
    for (int i = 0; i < KEYS; i++) {
        uint64_t hash[2];
        weir_key key = weir_key_text(key_name(i));
        weir__hash(zone->secret, key.data, key.len, hash);
        if (weir__home_of(zone, weir__tag_of(hash)) >> zone->layout.page_bits == page)
            return i;
    }
    test_give_up("key_of_page", "no key has its place there");
    return 0;
}

/* Of two pages of a stripe only the one that somebody needs is put in order. */
static void test_page_by_page(weir_store *store, const weir_limit *limit)
{
    struct weir__zone *zone = test_zone(store);
    uint64_t pages[2] = {0, zone->layout.stripes};
    CHECK(zone->layout.pages > zone->layout.stripes);
    die_with(zone, 0);
    CHECK(count_frozen(zone, pages[0]) > 0 && count_frozen(zone, pages[1]) > 0);
    test_take(store, key_name(key_of_page(zone, pages[0])), limit, 1);
    CHECK_INT(count_frozen(zone, pages[0]), 0);
    CHECK(count_frozen(zone, pages[1]) > 0);
    CHECK(zone->stripes[0].torn != 0);
    die_with(zone, 0); /* another death while half of it is repaired */
    test_take(store, key_name(key_of_page(zone, pages[1])), limit, 1);
    CHECK(count_frozen(zone, pages[0]) > 0);
    CHECK_INT(count_frozen(zone, pages[1]), 0);
    CHECK_INT(test_info(store).keys, KEYS);
    CHECK_INT(zone->stripes[0].torn, 0);
    CHECK_INT(count_frozen(zone, pages[0]), 0);
    CHECK_INT(test_info(store).repairs, 2);
    test_sound(store);
}

/* What is still torn when all have closed a zone is repaired by who opens it. */
static void test_closed(weir_store *store)
{
    struct weir__zone *zone = test_zone(store);
    die_with(zone, 1);
    CHECK(weir__stripe_lock(zone, 1));
    CHECK(zone->stripes[1].torn != 0);
    weir__stripe_unlock(zone, 1);
    weir_store_close(store);
    store = test_open(test_url(TEST_SHM, "repair", ""), &now);
    zone = test_zone(store);
    CHECK_INT(zone->stripes[1].torn, 0);
    CHECK_INT(test_info(store).keys, KEYS);
    zone->stripes[1].torn = 1; /* as of one who died at opening it, and had counted this page */
    weir_store_close(store);
    store = test_open(test_url(TEST_SHM, "repair", ""), &now);
    CHECK_INT(test_zone(store)->stripes[1].torn, 0);
    CHECK_INT(test_info(store).keys, KEYS);
    weir_store_close(store);
}

enum { LOGS = 300, PAIRS = LOGS / 2 };

/* Dies in the middle of a charge of every log of a zone: the newest entry has it, the sum and the
 * newest time do not have it yet. */
static void die_charging(struct weir__zone *zone)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        for (uint32_t i = 0; i < zone->layout.stripes; i++) {
            if (!weir__stripe_lock(zone, i))
                _exit(1);
        }
        for (uint64_t g = 0; g < zone->group_count; g++) {
            for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
                const struct weir__rule *rule;
                struct weir__state state = {0};
                uint32_t unit;
                unsigned order;
                if (!weir__slot_tag(&zone->groups[g], slot) ||
                    !weir__slot_unpack(zone, &zone->groups[g], slot, &rule, &state, &unit, &order))
                    continue;
                struct weir__cell *cell = weir__ring_last(&state.ring);
                cell->stamp += 5000000;
                cell->count += 3;
            }
        }
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
}

/* Takes of two keys at once find what the entries say; of the other logs the check does. */
static void test_sums(void)
{
    weir_store *store = test_open(test_url(TEST_SHM, "sums", "size=1m&large=40%"), &now);
    weir_limit *log = test_limit("sliding-log 10/d");
    for (int i = 0; i < LOGS; i++)
        test_take(store, key_name(i), log, 2);
    die_charging(test_zone(store));
    now += 6000000;
    for (int i = 0; i < PAIRS / 2; i++) {
        char names[2][32];
        weir_request both[2];
        weir_decision decision, rows[2];
        for (int j = 0; j < 2; j++) {
            snprintf(names[j], sizeof names[j], "%s", key_name(i + j * PAIRS));
            both[j] = weir_request_make(weir_key_text(names[j]), log);
            both[j].detail = &rows[j];
        }
        CHECK_INT(weir_take_all(store, both, 2, &decision), 0);
        CHECK_INT(rows[0].remaining, 10 - 2 - 3 - 1);
        CHECK_INT(rows[1].remaining, 10 - 2 - 3 - 1);
    }
    test_sound(store);
    weir_limit_free(log);
    weir_store_close(store);
    test_remove(TEST_SHM, "sums");
}

/* Bits of pages that there are not: damage, and no harm. */
static void test_damaged(weir_store *store)
{
    struct weir__zone *zone = test_zone(store);
    uint64_t keys = zone->stripes[0].counters[WEIR__KEYS];
    zone->stripes[0].torn = UINT64_MAX << 63;
    CHECK_INT(test_info(store).keys, KEYS);
    CHECK_INT(zone->stripes[0].torn, 0);
    CHECK_INT(zone->stripes[0].counters[WEIR__KEYS], keys);
}

static uint64_t count_states(const struct weir__zone *zone)
{
    uint64_t states = 0;
    for (uint64_t g = 0; g < zone->group_count; g++)
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++)
            states += weir__slot_tag(&zone->groups[g], slot) != 0;
    return states;
}

/* Who needs room meets torn pages everywhere, and gets it. What goes for it is counted once. */
static void test_room(void)
{
    weir_store *store = test_open_patiently(test_url(TEST_SHM, "room", "size=1m&large=5%"), &now);
    weir_limit *log = test_limit("sliding-log 10/d"), *lease = test_limit("concurrent 1");
    struct weir__zone *zone = test_zone(store);
    for (int i = 0; i < 3000; i++)
        test_take(store, key_name(i), log, 1);
    for (uint32_t i = 0; i < zone->layout.stripes; i++)
        die_with(zone, i);
    for (int i = 3000; i < 4000; i++)
        CHECK(test_take(store, key_name(i), i % 5 ? log : lease, 1).allowed);
    CHECK_INT(test_info(store).keys, count_states(zone));
    for (uint32_t i = 0; i < zone->layout.stripes; i++)
        die_with(zone, i);
    now += INT64_C(2) * 86400 * 1000000; /* all of them are fresh, and go first */
    for (int i = 4000; i < 5000; i++)
        CHECK(test_take(store, key_name(i), log, 1).allowed);
    CHECK_INT(test_info(store).keys, count_states(zone));
    test_sound(store);
    weir_limit_free(log);
    weir_limit_free(lease);
    weir_store_close(store);
    test_remove(TEST_SHM, "room");
}

/* Has blocks for leases of an empty slot and dies before the slot names one. */
static void die_with_blocks(struct weir__zone *zone, int blocks)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct weir__want want = {.flags = WEIR__MAP_LEASE, .has = WEIR__NO_UNIT};
        uint32_t unit;
        if (!weir__stripe_lock(zone, 0))
            _exit(1);
        while (weir__stripe_of(zone, want.group) != 0 ||
               weir__slot_tag(&zone->groups[want.group], want.slot))
            want.group++;
        for (int i = 0; i < blocks; i++) {
            if (weir__block_alloc(zone, &want, &unit))
                _exit(2);
        }
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
}

/* Leases fill their half. What a death leaves of it to nobody is found by the next one who needs
 * it, though no lease lapses for a long time: from when somebody has inherited the lock. */
static void test_nobodys(void)
{
    enum { LEFT = 5 };
    weir_store *store = test_open_patiently(test_url(TEST_SHM, "left", "size=1m&large=5%"), &now);
    weir_limit *limit = test_limit("concurrent 1");
    uint64_t leases[LEFT] = {0};
    weir_decision decision;
    int held = 0;
    while (held < 3000 &&
           weir_acquire(store, weir_key_text(key_name(held)), limit, 1, &decision) == 0) {
        if (held < LEFT)
            leases[held] = decision.lease;
        held++;
    }
    CHECK(held > 100 && held < 3000);
    for (int i = 0; i < LEFT; i++)
        CHECK_INT(weir_release(store, weir_key_text(key_name(i)), limit, leases[i]), 0);
    die_with_blocks(test_zone(store), LEFT);
    CHECK_INT(test_info(store).repairs, 1);
    for (int i = 0; i < LEFT; i++)
        CHECK_INT(weir_acquire(store, weir_key_text(key_name(i)), limit, 1, &decision), 0);
    CHECK_INT(weir_acquire(store, weir_key_text("another"), limit, 1, &decision), WEIR_EFULL);
    test_sound(store);
    weir_limit_free(limit);
    weir_store_close(store);
    test_remove(TEST_SHM, "left");
}

int main(void)
{
    weir_limit *limit = test_limit("fixed-window 100/d");
    weir_store *store = test_open(test_url(TEST_SHM, "repair", "size=2m&large=0%"), &now);
    fill(store, limit);
    CHECK_INT(test_info(store).keys, KEYS);
    test_page_by_page(store, limit);
    test_damaged(store);
    test_closed(store);
    test_remove(TEST_SHM, "repair");
    test_room();
    test_sums();
    test_nobodys();
    weir_limit_free(limit);
    return test_report();
}
