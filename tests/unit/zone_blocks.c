/*
 * Blocks by themselves: every unit can be had and is had once, what is given back is whole again,
 * what a death left is found, leases keep their half, and a damaged map leads nobody out of the
 * zone.
 */
#include "store_inside.h"
#include "store_test.h"

#include "base/random.h"

static _Atomic int64_t now = START;
static uint64_t chance = 5;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)(weir__random_next(&chance) % n);
}

/* As if for a slot that is empty. */
static struct weir__want want_of(uint32_t group, unsigned order)
{
    return (struct weir__want){group, 0, order, 0, WEIR__NO_UNIT};
}

static void give(struct weir__zone *zone, uint32_t group, uint32_t unit, unsigned order)
{
    CHECK(weir__block_free_owned(zone, unit, order, group, 0));
}

/* Every arena's map, read from its first unit on: blocks without gaps; and how many units are
 * used. */
static uint64_t read_map(const struct weir__zone *zone)
{
    uint64_t used = 0;
    for (uint32_t unit = 0; unit < zone->layout.units;) {
        uint8_t mark = weir__map_at(zone, unit);
        unsigned order = (mark & WEIR__MAP_ORDER) - 1u;
        if ((mark & WEIR__MAP_ORDER) == 0 || order > WEIR__ORDER_MAX || unit % (1u << order) != 0 ||
            (uint64_t)unit + (UINT64_C(1) << order) > zone->layout.units)
            test_give_up("the map", "it cannot be read");
        for (uint32_t i = 1; i < 1u << order; i++)
            CHECK_INT(weir__map_at(zone, unit + i), 0);
        used += mark & WEIR__MAP_FREE ? 0 : UINT64_C(1) << order;
        unit += 1u << order;
    }
    CHECK_INT(weir__blocks_used(zone), used * WEIR__BLOCK_UNIT);
    return used;
}

/* Nothing is used, and everything is as large as it can be. */
static void expect_whole(const struct weir__zone *zone)
{
    CHECK_INT(read_map(zone), 0);
    for (uint32_t i = 0; i < zone->layout.arenas; i++) {
        uint32_t left = zone->layout.units - (i << WEIR__ARENA_BITS);
        unsigned order = WEIR__ORDER_MAX;
        while (1u << order > left)
            order--;
        CHECK_INT(zone->room[i], order + 1);
    }
}

/* Every unit once, then none; in any order back. */
static void test_exhausted(void)
{
    weir_store *store = test_open("memory:16m?large=80%", &now);
    struct weir__zone *zone = test_zone(store);
    uint32_t units = zone->layout.units, unit;
    uint8_t *taken = calloc(units, 1);
    uint32_t *owners = calloc(units, sizeof *owners), *order = calloc(units, sizeof *order);
    CHECK(zone->layout.arenas > 2);
    for (uint32_t i = 0; i < units; i++) {
        struct weir__want want = want_of(random_below((uint32_t)zone->group_count), 0);
        CHECK_INT(weir__block_alloc(zone, &want, &unit), 0);
        CHECK(unit < units && !taken[unit]);
        taken[unit] = 1;
        owners[unit] = want.group;
        order[i] = unit;
    }
    struct weir__want one = want_of(0, 0);
    CHECK_INT(weir__block_alloc(zone, &one, &unit), WEIR_EFULL);
    CHECK_INT(read_map(zone), units);
    for (uint32_t i = units - 1; i > 0; i--) {
        uint32_t j = random_below(i + 1), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (uint32_t i = 0; i < units; i++) {
        CHECK(!weir__block_free_owned(zone, order[i], 0, owners[order[i]] + 1, 0));
        give(zone, owners[order[i]], order[i], 0);
        CHECK(!weir__block_free_owned(zone, order[i], 0, owners[order[i]], 0));
    }
    expect_whole(zone);
    free(taken);
    free(owners);
    free(order);
    weir_store_close(store);
}

/* Blocks of all sizes come and go, they are counted again now and then: nothing overlaps, nothing
 * is lost. */
static void test_fragmented(void)
{
    enum { HELD = 3000 };
    static struct weir__sample held[HELD];
    weir_store *store = test_open("memory:8m?large=70%", &now);
    struct weir__zone *zone = test_zone(store);
    uint8_t *taken = calloc(zone->layout.units, 1);
    size_t count = 0;
    for (int i = 0; i < 100000; i++) {
        struct weir__want want = want_of(random_below((uint32_t)zone->group_count), 0);
        struct weir__sample it = {.order = random_below(9), .group = want.group};
        want.order = it.order;
        if (count < HELD && random_below(5) < 3 && weir__block_alloc(zone, &want, &it.unit) == 0) {
            for (uint32_t u = it.unit; u < it.unit + (1u << it.order); u++)
                CHECK_INT(taken[u]++, 0);
            held[count++] = it;
        } else if (count > 0) {
            size_t gone = random_below((uint32_t)count);
            it = held[gone];
            held[gone] = held[--count];
            memset(taken + it.unit, 0, 1u << it.order);
            give(zone, it.group, it.unit, it.order);
        }
        if (i % 5000 == 0) {
            uint64_t used = read_map(zone);
            weir__arena_repair(zone, random_below(zone->layout.arenas));
            CHECK_INT(read_map(zone), used);
        }
    }
    while (count-- > 0)
        give(zone, held[count].group, held[count].unit, held[count].order);
    expect_whole(zone);
    free(taken);
    weir_store_close(store);
}

/* Counts that were scribbled over are made again from the map. */
static void test_wrong_counts(void)
{
    weir_store *store = test_open("memory:1m?large=50%", &now);
    struct weir__zone *zone = test_zone(store);
    for (int i = 0; i < 300; i++) {
        struct weir__want want = want_of(1, random_below(6));
        uint32_t unit;
        if (i % 3 == 0) {
            for (unsigned order = 0; order <= WEIR__ORDER_MAX; order++)
                zone->arenas[0].free[order] = random_below(2) ? (uint16_t)chance : 1;
            for (unsigned order = 0; order <= WEIR__ORDER_MAX; order++)
                zone->arenas[0].near[order] = (uint16_t)weir__random_next(&chance);
            zone->arenas[0].orders = (uint32_t)weir__random_next(&chance);
        }
        if (i % 3 == 1)
            memset(zone->blocks + random_below(zone->layout.units) * WEIR__BLOCK_UNIT, i, 8);
        CHECK_INT(weir__block_alloc(zone, &want, &unit), 0);
        read_map(zone);
        give(zone, 1, unit, want.order);
    }
    weir__arena_repair(zone, 0);
    expect_whole(zone);
    weir_store_close(store);
}

/* What nobody's slot names is found by a check, and by whoever needs room. */
static void test_nobodys(void)
{
    weir_store *store = test_open("memory:1m?large=50%", &now);
    struct weir__zone *zone = test_zone(store);
    weir_limit *limit = test_limit("sliding-log 9/h");
    test_take(store, "key", limit, 1);
    for (uint32_t i = 0; i < 100; i++) {
        struct weir__want want = want_of(i, i % 4);
        uint32_t unit;
        CHECK_INT(weir__block_alloc(zone, &want, &unit), 0);
    }
    CHECK(read_map(zone) > 100);
    test_sound(store);
    CHECK_INT(read_map(zone), 1);
    uint32_t unit = 0, units = 0;
    for (struct weir__want want = want_of(7, 0); weir__block_alloc(zone, &want, &unit) == 0;)
        units++;
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "new %d", i);
        CHECK_INT(test_take(store, key, limit, 1).allowed, true);
    }
    CHECK(units > 7000);
    CHECK_INT(test_info(store).evicted_unused + test_info(store).evicted_soonest, 0);
    test_sound(store);
    CHECK_INT(read_map(zone), 1001);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* ---- leases ---- */

static int acquire(weir_store *store, const weir_limit *limit, int i, weir_decision *ret)
{
    char key[24];
    snprintf(key, sizeof key, "lease %d", i);
    return weir_acquire(store, weir_key_text(key), limit, 1, ret);
}

/* Half of the room, then no more; and whatever else is asked for, nobody is admitted beside who
 * holds one. */
static void test_leases(void)
{
    weir_store *store = test_open("memory:256k?large=40%", &now);
    weir_limit *one = test_limit("concurrent 1 lease 1h"), *log = test_limit("sliding-log 9/h");
    uint64_t half = test_info(store).large_bytes / 2;
    weir_decision decision = {0};
    int held = 0;
    while (acquire(store, one, held, &decision) == 0 && held < 5000)
        held += decision.allowed;
    CHECK_INT((uint64_t)held, half / WEIR__BLOCK_UNIT);
    for (int i = 0; i < 20000; i++) {
        char key[24];
        snprintf(key, sizeof key, "log %d", i);
        CHECK_INT(test_take(store, key, log, 1).allowed, true);
        if (i % 100 == 0)
            CHECK_INT(acquire(store, one, held + i, &decision), WEIR_EFULL);
    }
    for (int i = 0; i < held; i++) {
        CHECK_INT(acquire(store, one, i, &decision), 0);
        CHECK_INT(decision.allowed, false);
    }
    test_sound(store);
    now += 2 * HOUR; /* lapsed ones make way */
    for (int i = 0; i < held / 2; i++) {
        CHECK_INT(acquire(store, one, 100000 + i, &decision), 0);
        CHECK_INT(decision.allowed, true);
    }
    test_sound(store);
    weir_limit_free(one);
    weir_limit_free(log);
    weir_store_close(store);
}

/* ---- damage ---- */

/* A zone between two pages that nobody may touch. */
static uint8_t *guarded(size_t size, struct weir__zone *ret)
{
    const size_t page = 4096;
    uint8_t *base =
        mmap(NULL, size + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base, page, PROT_NONE) ||
        mprotect(base + page + size, page, PROT_NONE) ||
        weir__zone_format(base + page, size, 60, false, ret, NULL))
        test_give_up("a zone between guards", "cannot be made");
    return base;
}

static void damage(struct weir__zone *zone)
{
    uint32_t n = 1 + random_below(20);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t unit = random_below(zone->layout.units);
        zone->map[unit] = (uint8_t)weir__random_next(&chance);
        memset(zone->blocks + (uint64_t)random_below(zone->layout.units) * WEIR__BLOCK_UNIT,
               (int)random_below(256), 24);
    }
    if (random_below(2))
        zone->arenas[0].hand = (uint32_t)weir__random_next(&chance);
    if (random_below(2))
        zone->arenas[0].place = (uint32_t)weir__random_next(&chance);
    zone->arenas[0].free[random_below(WEIR__ORDER_MAX + 1)] = (uint16_t)weir__random_next(&chance);
    zone->arenas[0].near[random_below(WEIR__ORDER_MAX + 1)] = (uint16_t)weir__random_next(&chance);
    zone->arenas[0].orders = (uint32_t)weir__random_next(&chance);
}

static void test_damaged(void)
{
    const size_t size = 128 << 10;
    struct weir__zone zone;
    uint8_t *base = guarded(size, &zone);
    weir_error err;
    int found = 0;
    for (int round = 0; round < 3000; round++) {
        weir__blocks_init(&zone);
        memset(zone.arenas, 0, sizeof *zone.arenas);
        weir__arena_repair(&zone, 0);
        for (int i = 0; i < 100; i++) {
            struct weir__want want =
                want_of(random_below((uint32_t)zone.group_count), random_below(4));
            uint32_t unit = 0;
            if (i == 30)
                damage(&zone);
            weir__block_get(&zone, NULL, 0, now, &want, &unit);
            weir__block_free_owned(&zone, random_below(zone.layout.units), random_below(4),
                                   want.group, 0);
            CHECK(unit < zone.layout.units);
        }
        found += weir__zone_check(&zone, &err) == WEIR_EDAMAGED;
    }
    CHECK(found > 100);
    munmap(base, size + 8192);
}

int main(void)
{
    test_exhausted();
    test_fragmented();
    test_wrong_counts();
    test_nobodys();
    test_leases();
    test_damaged();
    return test_report();
}
