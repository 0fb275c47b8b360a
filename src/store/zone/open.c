/* Making and opening zones: the layout, the header and what is checked of it. */
#include "store/zone/zone.h"

#include "base/hash.h"
#include "base/random.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define HEADER_SIZE 4096
/* Large pages fill evenly, so that a zone can be three quarters full and no key finds its reach
 * full; small zones cannot afford the remainder. */
#define LARGE_ZONE (UINT64_C(1) << 20)
#define LARGE_PAGE_BITS 8
#define SMALL_PAGE_BITS 5
#define PATIENCE_US 100000 /* for a lock: its holder works for microseconds, dies, or is stopped */
#define STRIPES_ENOUGH 1024
#define STRIPE_SIZE_MAX (UINT64_C(1) << 20)

_Static_assert(sizeof(struct weir__zone_header) <= HEADER_SIZE, "the header fits its page");

static uint64_t align(uint64_t offset, uint64_t to)
{
    return (offset + to - 1) / to * to;
}

/* As many as threads could ever want, and one per MiB at least: whoever goes through a stripe is
 * done in no time. */
static uint32_t plan_stripes(uint64_t size, uint64_t page_size)
{
    uint32_t stripes = 1;
    while ((stripes < STRIPES_ENOUGH || stripes * STRIPE_SIZE_MAX < size) &&
           stripes * UINT64_C(2) <= size / page_size / 2)
        stripes *= 2;
    assert(size / page_size / stripes < WEIR__PAGES_MAX);
    return stripes;
}

static uint32_t arenas_for(uint64_t units)
{
    return (uint32_t)((units + (1u << WEIR__ARENA_BITS) - 1) >> WEIR__ARENA_BITS);
}

/* Rows: one in the layout for every 4 KiB, and with those in chunks one for every 640 bytes, as far
 * as these need no more than seven eighths of the large area and only the upper half of the low
 * parts. Returns what finding them takes beyond the rows: the large area's share, too, so that
 * small states have the room they always had. */
static uint64_t plan_rows(unsigned large_percent, struct weir__layout *layout)
{
    uint64_t rows = layout->size / 4096, all = layout->size / 640;
    rows = rows < 64 ? 64 : rows > WEIR__ROWS_MAX ? WEIR__ROWS_MAX : rows;
    layout->rows = (uint32_t)rows + 1;
    uint64_t chunks = all > rows ? (all - rows + WEIR__CHUNK_ROWS - 2) / (WEIR__CHUNK_ROWS - 1) : 0;
    uint64_t room = layout->size / 100 * large_percent / 8 * 7 /
                    ((uint64_t)WEIR__BLOCK_UNIT << WEIR__CHUNK_ORDER);
    uint64_t most = layout->rows / 2 * (uint64_t)WEIR__LOW_CHUNKS;
    chunks = layout->size < LARGE_ZONE ? 0 : chunks;
    chunks = chunks > room ? room : chunks;
    layout->chunks = (uint32_t)(chunks > most ? most : chunks);
    layout->index_words = weir__rows_all(layout) / 4 * 5 + 4;
    layout->taken_at = layout->rows_at + layout->rows * sizeof(struct weir__rule);
    layout->index_at =
        layout->taken_at + ((WEIR__ROW_LOW_MASK + 1) / 64 + layout->chunks) * sizeof(uint64_t);
    layout->chunks_at = layout->index_at + layout->index_words * sizeof(uint32_t);
    layout->table_at = align(layout->chunks_at + layout->chunks * sizeof(uint32_t), 4096);
    return layout->chunks > 0 ? layout->table_at - layout->taken_at : 0;
}

bool weir__zone_plan(uint64_t size, unsigned large_percent, struct weir__layout *ret)
{
    if (size < WEIR__ZONE_SIZE_MIN || size > WEIR__ZONE_SIZE_MAX || large_percent > 90)
        return false;
    struct weir__layout layout = {.size = size};
    layout.page_bits = size < LARGE_ZONE ? SMALL_PAGE_BITS : LARGE_PAGE_BITS;
    uint64_t page_size = sizeof(struct weir__group) << layout.page_bits;
    layout.stripes = plan_stripes(size, page_size);
    layout.stripes_at = HEADER_SIZE;
    layout.arenas = arenas_for(size / 100 * large_percent / (WEIR__BLOCK_UNIT + 1)); /* at most */
    layout.arenas_at = layout.stripes_at + weir__lock_count(&layout) * sizeof(struct weir__stripe);
    layout.rows_at = layout.arenas_at + layout.arenas * sizeof(struct weir__block_arena);
    uint64_t rows_extra = plan_rows(large_percent, &layout);
    uint64_t rest = size - layout.table_at;
    uint64_t large = (rest + rows_extra) / 100 * large_percent;
    uint64_t units = (large > rows_extra ? large - rows_extra : 0) / (WEIR__BLOCK_UNIT + 1);
    uint64_t apart = WEIR__BLOCK_UNIT + layout.arenas;
    uint64_t most = (rest - page_size - apart) / (WEIR__BLOCK_UNIT + 1); /* one page stays */
    units = units > most ? most : units;
    layout.units = (uint32_t)(units > UINT32_MAX - 1 ? UINT32_MAX - 1 : units);
    assert(arenas_for(layout.units) <= layout.arenas);
    layout.arenas = arenas_for(layout.units);
    rest -= (uint64_t)layout.units * (WEIR__BLOCK_UNIT + 1) + apart;
    layout.pages = (uint32_t)(rest / page_size);
    layout.map_at = layout.table_at + layout.pages * page_size;
    layout.blocks_at = align(layout.map_at + layout.units + layout.arenas, WEIR__BLOCK_UNIT);
    *ret = layout;
    return true;
}

uint64_t weir__zone_sum(const struct weir__zone_header *header, uint32_t version)
{
    struct weir__zone_header copy;
    memset(&copy, 0, sizeof copy);
    memcpy(&copy, header, offsetof(struct weir__zone_header, boot));
    copy.magic = WEIR__ZONE_MAGIC; /* which is written last */
    copy.version = version;
    uint64_t key[2] = {WEIR__ZONE_MAGIC, version}, hash[2];
    weir__hash(key, &copy, offsetof(struct weir__zone_header, boot), hash);
    return hash[0];
}

bool weir__zone_is_whole(const struct weir__zone *zone)
{
    const struct weir__zone_header *header = zone->header;
    return header->magic == WEIR__ZONE_MAGIC && header->version == WEIR__ZONE_VERSION &&
           header->check == weir__zone_sum(header, WEIR__ZONE_VERSION) &&
           !memcmp(zone->secret, header->secret, sizeof zone->secret) &&
           !memcmp(&zone->layout, &header->layout, sizeof zone->layout);
}

static void view(uint8_t *base, const struct weir__layout *layout, bool shared,
                 struct weir__zone *ret)
{
    static _Atomic uint64_t serials;
    struct weir__zone zone = {
        .base = base,
        .layout = *layout,
        .header = (struct weir__zone_header *)base,
        .stripes = (struct weir__stripe *)(base + layout->stripes_at),
        .rows = (struct weir__rule *)(base + layout->rows_at),
        .taken = (_Atomic uint64_t *)(base + layout->taken_at),
        .index = (_Atomic uint32_t *)(base + layout->index_at),
        .chunks = (_Atomic uint32_t *)(base + layout->chunks_at),
        .groups = (struct weir__group *)(base + layout->table_at),
        .arenas = (struct weir__block_arena *)(base + layout->arenas_at),
        .map = (_Atomic uint8_t *)(base + layout->map_at),
        .room = (_Atomic uint8_t *)(base + layout->map_at + layout->units),
        .blocks = base + layout->blocks_at,
        .group_count = (uint64_t)layout->pages << layout->page_bits,
        .serial = atomic_fetch_add(&serials, 1) + 1,
        .shared = shared,
        .look_at_us = INT64_MAX,
        .owner = weir__random_distinct() | 1,
        .swaps = weir__zone_has_swap(),
        .patience_us = shared ? PATIENCE_US : WEIR__OWN_PATIENCE_US,
    };
    memcpy(zone.secret, zone.header->secret, sizeof zone.secret);
    zone.chance = weir__random_distinct();
    *ret = zone;
}

int weir__zone_format(uint8_t *base, uint64_t size, unsigned large_percent, bool shared,
                      struct weir__zone *ret, weir_error *err)
{
    struct weir__zone_header *header = (struct weir__zone_header *)base;
    if (!weir__zone_plan(size, large_percent, &header->layout))
        return weir__fail(err, WEIR_EURL, 0, "a zone of %llu bytes is too small",
                          (unsigned long long)size);
    if (weir__random_bytes(header->secret, sizeof header->secret))
        return weir__fail(err, WEIR_ESYSTEM, 0, "no randomness for the zone's secret: %m");
    header->version = WEIR__ZONE_VERSION;
    header->mutex_size = sizeof(pthread_mutex_t);
    header->libc = WEIR__LIBC;
    header->machine = WEIR__MACHINE;
    header->large_percent = large_percent;
    view(base, &header->layout, shared, ret);
    weir__stripes_init(ret);
    weir__blocks_init(ret);
    header->check = weir__zone_sum(header, WEIR__ZONE_VERSION);
    atomic_signal_fence(memory_order_seq_cst);
    header->magic = WEIR__ZONE_MAGIC; /* from here on it is a zone */
    return 0;
}

void weir__zone_set_secret(struct weir__zone *zone, const uint64_t secret[2])
{
    memcpy(zone->header->secret, secret, sizeof zone->header->secret);
    memcpy(zone->secret, secret, sizeof zone->secret);
    zone->header->check = weir__zone_sum(zone->header, WEIR__ZONE_VERSION);
}

/* "glibc, 64 bits, little-endian, swaps" */
static void open_put_platform(unsigned libc, unsigned machine, char *ret, size_t room)
{
    static const char *const names[] = {"an unknown C library", "glibc", "musl", "bionic",
                                        "uClibc"};
    snprintf(ret, room, "%s, %u bits, %s, %s", libc < WEIR__COUNT(names) ? names[libc] : names[0],
             (machine & WEIR__MACHINE_BYTES) * 8,
             machine & WEIR__MACHINE_BIG ? "big-endian" : "little-endian",
             machine & WEIR__MACHINE_SWAPS ? "16-byte swaps" : "no 16-byte swaps");
}

static int open_refuse_platform(const struct weir__zone_header *header, weir_error *err)
{
    char its[80], ours[80];
    open_put_platform(header->libc, header->machine, its, sizeof its);
    open_put_platform(WEIR__LIBC, WEIR__MACHINE, ours, sizeof ours);
    return weir__fail(err, WEIR_EVERSION, 0,
                      "it was made by another kind of program (%s) than this one (%s), and they "
                      "cannot share its locks; use one kind for all, or remove it and let weir "
                      "make a new one",
                      its, ours);
}

static bool open_is_platform(const struct weir__zone_header *header)
{
    return header->libc == WEIR__LIBC && header->machine == WEIR__MACHINE &&
           header->mutex_size == sizeof(pthread_mutex_t);
}

int weir__zone_fail_part(weir_error *err, const char *part)
{
    return weir__fail(err, WEIR_EDAMAGED, 0, "its %s is damaged; " WEIR__ZONE_REMEDY, part);
}

int weir__zone_fail_short(weir_error *err, uint64_t size, uint64_t expected)
{
    return weir__fail(err, WEIR_ETRUNCATED, 0,
                      "it is truncated: %llu bytes of %llu; " WEIR__ZONE_REMEDY,
                      (unsigned long long)size, (unsigned long long)expected);
}

int weir__zone_attach(uint8_t *base, uint64_t size, bool shared, struct weir__zone *ret,
                      weir_error *err)
{
    const struct weir__zone_header *header = (const struct weir__zone_header *)base;
    struct weir__layout planned;
    if (size < HEADER_SIZE || header->magic != WEIR__ZONE_MAGIC)
        return weir__fail(err, WEIR_EFOREIGN, 0, "it is not a weir zone; choose another path");
    if (header->version != WEIR__ZONE_VERSION)
        return weir__fail(
            err, WEIR_EVERSION, 0,
            "it is a zone of version %u, this weir makes version %u; remove it and let "
            "weir make a new one",
            header->version, WEIR__ZONE_VERSION);
    if (!open_is_platform(header))
        return open_refuse_platform(header, err);
    if (header->check != weir__zone_sum(header, WEIR__ZONE_VERSION))
        return weir__zone_fail_part(err, "header");
    if (header->layout.size > size)
        return weir__zone_fail_short(err, size, header->layout.size);
    if (!weir__zone_plan(header->layout.size, header->large_percent, &planned) ||
        memcmp(&planned, &header->layout, sizeof planned))
        return weir__zone_fail_part(err, "layout");
    view(base, &header->layout, shared, ret);
    return 0;
}

/* The sum is written first: who dies before the version is there leaves a zone of version 2 with
 * the sum of the next one, which is raised again. */
void weir__zone_raise(uint8_t *base)
{
    struct weir__zone_header *header = (struct weir__zone_header *)base;
    uint64_t sum = weir__zone_sum(header, WEIR__ZONE_VERSION);
    if (header->version != WEIR__ZONE2_VERSION || !open_is_platform(header) ||
        (header->check != sum && header->check != weir__zone_sum(header, WEIR__ZONE2_VERSION)))
        return;
    header->dirty = 1; /* everything is counted again */
    header->check = sum;
    atomic_signal_fence(memory_order_seq_cst);
    header->version = WEIR__ZONE_VERSION;
}

/* A stripe with a torn page is counted from its beginning: who died while opening it may have
 * counted that page already. */
int weir__zone_recover(struct weir__zone *zone, weir_error *err)
{
    weir__stripes_init(zone);
    for (uint32_t i = 0; i < zone->layout.stripes; i++) {
        if (zone->header->dirty || zone->stripes[i].torn)
            weir__stripe_tear(zone, i);
        while (weir__stripe_mend_one(zone, i))
            ;
    }
    weir__rows_recover(zone);
    weir__blocks_recover(zone); /* always: a damaged map or free list could not be told otherwise */
    return weir__zone_check(zone, err);
}

/* Locks a stripe whose pages are all whole, so that it knows how many keys it has; false: it is
 * held. */
static bool open_lock_whole(struct weir__zone *zone, uint32_t lock)
{
    for (;;) {
        if (!weir__stripe_lock(zone, lock))
            return false;
        if (lock >= zone->layout.stripes || !weir__stripe_mend_one(zone, lock))
            return true;
        weir__stripe_unlock(zone, lock);
    }
}

int weir__zone_info(struct weir__zone *zone, weir_zone_info *ret)
{
    weir_zone_info info = {
        .size = zone->layout.size,
        .capacity = zone->group_count * WEIR__SLOTS,
        .limits_max = weir__rows_all(&zone->layout),
        .large_bytes = (uint64_t)zone->layout.units * WEIR__BLOCK_UNIT,
        .large_used = weir__blocks_used(zone),
        .evicted_receipts = atomic_load(&zone->header->marks_lost),
    };
    for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++) {
        if (!open_lock_whole(zone, i))
            return WEIR_EBUSY;
        const uint64_t *counters = zone->stripes[i].counters;
        info.keys += counters[WEIR__KEYS];
        info.evicted_fresh += counters[WEIR__EVICTED_FRESH];
        info.evicted_unused += counters[WEIR__EVICTED_UNUSED];
        info.evicted_soonest += counters[WEIR__EVICTED_SOONEST];
        info.repairs += counters[WEIR__REPAIRS];
        info.refused += counters[WEIR__REFUSED];
        if (i == weir__rows_stripe(zone))
            info.limits = atomic_load(&zone->header->rows_taken);
        weir__stripe_unlock(zone, i);
    }
    *ret = info;
    return 0;
}
