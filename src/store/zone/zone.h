/*
 * The zone: limit states in one contiguous region, the same code over private memory, shared
 * memory, a mapped file and nginx's shared zone.
 *
 *   ┌────────┬──────────┬────────┬──────┬──────────────────────────┬───────────┬──────────────────┐
 *   │ header │ stripes  │ arenas │ rows │ table: pages of groups   │ block map │ blocks           │
 *   └────────┴──────────┴────────┴──────┴──────────────────────────┴───────────┴──────────────────┘
 *     secret   locks,     lists    the    pages of 256 (or 32)       a byte a    logs, windows,
 *     layout   counters   of free  rules  groups of 5 slots          64 bytes    leases
 *                         blocks
 *
 * What holds, whenever no lock is held (and, with the repairs named, after a process died):
 *   1. Offsets only, never pointers; every one read from the region is checked before use.
 *   2. A key's states lie in its reach: the group its hash names (home) and up to 7 others of the
 *      same
 *      page, in an order of the key's own. home.far says how far to look. One stripe's lock covers
 *      a
 *      page.
 *   3. A slot with tag 0 is empty, and its state is frozen or zeros. Otherwise its 16-byte state
 *      names a
 *      row that exists, and is sealed with the tag and the generation of that row.
 *   4. A state is written by one 16-byte store or swap: it is the old one or the new one, never a
 *      mix.
 *      A large state's block is complete before its slot names it; its header is one store, too.
 *      Small states change without a lock, by swaps (zone/take.h), unless they are frozen. Only who
 *      holds
 *      the stripe freezes one, and thaws it before it lets go. Large ones change under the lock.
 *   5. A death between the stores of one charge leaves a charge nobody was told of, an entry or
 *      lease
 *      twice, an empty log, or a sum that the repair of the stripe counts again. Never a charge
 *      less.
 *   6. A used block names the one slot it is for, and has done so since it was allocated, by
 *      somebody who
 *      held that slot's stripe. So whoever holds that stripe and sees that the slot does not name
 *      the
 *      block knows that it is nobody's (a death left it), and may free it.
 *
 * docs/THREADS.md argues why no charge is lost.
 *
 * Locks, in this order: rows, stripes by number, one arena. In a private zone a word to spin on; in
 * a shared one a robust process-shared mutex, whose next owner repairs what a dead one left.
 */
#ifndef WEIR_ZONE_H
#define WEIR_ZONE_H

#include "core/core.h"
#include "store/store.h"
#include "store/zone/swap.h"

#include <pthread.h>
#include <stdatomic.h>

#define WEIR__ZONE_MAGIC UINT64_C(0x656e6f5a72696577)  /* "weirZone" */
#define WEIR__ZONE_UNMADE UINT64_C(0x3f6e6f5a72696577) /* "weirZon?": in the making */
#define WEIR__ZONE_VERSION 2
#define WEIR__ZONE_SIZE_MIN (UINT64_C(64) << 10)
#define WEIR__ZONE_SIZE_MAX (UINT64_C(1) << 38)

#define WEIR__SLOTS 5       /* in a group */
#define WEIR__REACH 8       /* groups a key may lie in */
#define WEIR__ROWS_MAX 2047 /* in the layout: 11 bits; row 0 is that of marks, of no limit */
#define WEIR__BLOCK_UNIT 64
#define WEIR__ORDER_MAX 16  /* the largest block: 4 MiB, 262,142 cells */
#define WEIR__ARENA_BITS 16 /* log2 of an arena's units: one block of the largest order */

/* Slots hold sealed states (zone/pack.c). */
struct weir__group {
    _Atomic uint64_t head; /* bits 0–2: far; 24–28: whether a slot's last take was denied */
    _Atomic uint64_t tags[WEIR__SLOTS];
    struct weir__packed states[WEIR__SLOTS];
};
_Static_assert(sizeof(struct weir__group) == 128, "a group is two cache lines");

enum weir__counter {
    WEIR__KEYS,
    WEIR__EVICTED_FRESH,
    WEIR__EVICTED_UNUSED,
    WEIR__EVICTED_SOONEST,
    WEIR__REPAIRS,
    WEIR__REFUSED, /* new states, where no live one may go for them */
    WEIR__COUNTERS
};

/* A lock and what it covers counts of. Two cache lines: neighbours do not disturb each other. */
struct weir__stripe {
    union {
        pthread_mutex_t robust;
        _Atomic uint32_t word;
        uint8_t room[48];
    };
    uint64_t owner;                /* the weir__zone.owner of who has it; 0: nobody */
    _Atomic int64_t held_until_us; /* it was held for too long: nobody waits in full until then */
    uint64_t counters[WEIR__COUNTERS];
    struct weir__bell bell; /* rung when leases of its keys are released */
    uint64_t spare[7 - WEIR__COUNTERS];
};
_Static_assert(sizeof(struct weir__stripe) == 128, "a stripe is two cache lines");

/* Where everything is, from the size alone: kept in the header, and checked against it. */
struct weir__layout {
    uint64_t size;
    uint32_t stripes; /* a power of two */
    uint32_t rows;    /* of those in the layout; row 0 included */
    uint32_t pages;
    uint32_t page_bits; /* log2 of a page's groups */
    uint32_t units;     /* of 64 bytes, for blocks */
    uint32_t arenas;    /* of 4 MiB of them, the last one may be smaller */
    uint32_t chunks;    /* of further rows: how many there may be */
    uint32_t index_words;
    uint64_t stripes_at, arenas_at, rows_at, taken_at, index_at, chunks_at, table_at, map_at,
        blocks_at;
};

/* Programs share a zone only if they agree on what its locks are, on the order of its bytes, and on
 * whether states are swapped without a lock. */
enum weir__libc { WEIR__LIBC_UNKNOWN, WEIR__GLIBC, WEIR__MUSL, WEIR__BIONIC, WEIR__UCLIBC };

#if defined(__UCLIBC__)
#define WEIR__LIBC WEIR__UCLIBC
#elif defined(__GLIBC__)
#define WEIR__LIBC WEIR__GLIBC
#elif defined(__BIONIC__)
#define WEIR__LIBC WEIR__BIONIC
#else
#define WEIR__LIBC WEIR__MUSL /* which has no name of its own */
#endif

#define WEIR__MACHINE_BYTES 0x0f /* of a word */
#define WEIR__MACHINE_BIG 0x10   /* big-endian */
#define WEIR__MACHINE_SWAPS 0x20 /* states are swapped without a lock */
#define WEIR__MACHINE                                                                              \
    (sizeof(void *) | (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? WEIR__MACHINE_BIG : 0) |           \
     (WEIR__HAS_SWAP ? WEIR__MACHINE_SWAPS : 0))

struct weir__zone_header {
    uint64_t magic;
    uint32_t version;
    uint16_t mutex_size; /* of its C library */
    uint8_t libc;        /* whose locks these are: enum weir__libc */
    uint8_t machine;     /* WEIR__MACHINE of who made it */
    struct weir__layout layout;
    uint64_t secret[2];
    uint64_t boot[2];       /* which boot of the machine wrote last */
    uint64_t check;         /* over all above but boot */
    _Atomic uint32_t dirty; /* opened and not closed since */
    uint32_t large_percent;
    _Atomic uint32_t sweeps;         /* for rows to free, that came to their end */
    _Atomic uint32_t rows_taken;     /* in use or retired */
    _Atomic uint32_t chunks_made;    /* of the layout's */
    _Atomic uint32_t chunks_refused; /* the large area had no room for the last one */
    uint32_t chunk_hand;             /* where the search for a free row goes on */
    uint32_t spare;
    _Atomic int64_t swept_us;    /* when rows were last swept */
    _Atomic int64_t evicted_us;  /* when live states last went for rows */
    _Atomic uint64_t dead[64];   /* owners whose death was counted, by their number */
    _Atomic int64_t lease_units; /* in blocks of leases: the arenas' together */
    struct weir__bell bell; /* rung with every stripe's, where a thread listens for many keys */
};

/* What follows from an arena's part of the map; its lock (weir__arena_lock) covers both. */
struct weir__block_arena {
    uint32_t free[WEIR__ORDER_MAX + 1]; /* first free block of each order, unit + 1; 0: none */
    uint32_t orders;                    /* a bit for each order of which there is a free one */
    uint32_t hand;         /* where the search for blocks to evict goes on, from its first unit */
    uint32_t place;        /* likewise, for places to be cleared */
    uint32_t chance;       /* the last random number */
    uint32_t damaged;      /* its map cannot be read: nothing is taken from it or given to it */
    _Atomic uint32_t used; /* units; read without the lock, too */
    _Atomic uint32_t leases;
    _Atomic uint32_t rows; /* of chunks */
    /* For other blocks, and for those of leases: how far the search for fresh states has come; 0:
     * none is under way. And then none of their states is fresh before that time. */
    uint32_t lapse_hand[2];
    uint32_t spare;
    _Atomic int64_t lapses_us[2];
};
_Static_assert(sizeof(struct weir__block_arena) == 128, "an arena is two cache lines");

/* At the start of every block; cells follow. */
struct weir__block {
    uint32_t head, len; /* this and sum: one 16-byte store */
    int64_t sum;
    _Atomic uint32_t group; /* whose it is; read without its stripe's lock, so a guess */
    _Atomic uint32_t slot;
    _Atomic int64_t lapses_us; /* when its state is fresh, or 0: unknown; a guess, too */
};
_Static_assert(sizeof(struct weir__block) == 32, "two cells' worth");

/* What this process knows of its sweep for rows to free; whoever owns it also guards what is
 * pinned (zone/sweep.c). */
struct weir__sweep {
    _Atomic bool is_idle;  /* rows were not scarce when somebody last looked */
    _Atomic int32_t owner; /* the process whose thread is at it; 0: nobody is */
    uint32_t stage;
    uint64_t cursor; /* the next page, rule or row of the stage */
    int64_t begun_us, now_us;
    bool forced;                      /* whatever was evicted lately */
    bool evicts;                      /* live states went */
    bool wanted[2];                   /* rows of wide, of narrow limits are short */
    uint32_t lightest;                /* rows that weigh so much go with their live states … */
    uint32_t quota;                   /* … so many of them */
    uint16_t *verdicts, *generations; /* for each row; malloc'ed together */
    uint64_t *known;                  /* rows that were taken when it began */
};

/* A process's view of a zone. The layout is its own copy: nobody can change it under its feet. */
struct weir__zone {
    uint8_t *base;
    struct weir__layout layout;
    struct weir__zone_header *header;
    struct weir__stripe *stripes; /* then one for the rows, then one for each arena */
    struct weir__block_arena *arenas;
    struct weir__rule *rows;
    _Atomic uint64_t *taken;  /* a bit for each row (zone/rows.h) */
    _Atomic uint32_t *index;  /* from rules to rows */
    _Atomic uint32_t *chunks; /* their first units, plus one; 0: not made yet */
    struct weir__group *groups;
    _Atomic uint8_t *map;  /* of units */
    _Atomic uint8_t *room; /* of arenas: 1 + order of the largest free block, 0: none; a guess */
    uint8_t *blocks;
    uint64_t group_count;
    uint64_t secret[2];
    _Atomic int64_t look_at_us; /* when to look what became of its file: INT64_MAX never */
    uint64_t serial;            /* of this view, never 0: what hints and hashed keys are good for */
    struct weir__rule *pinned;  /* sorted: whose rows no sweep of this view frees */
    size_t pinned_count;
    struct weir__sweep sweep;
    bool shared;
    uint64_t owner;                /* names this process in the locks that it has; random */
    struct weir__zone *next;       /* in the list of those that forks look at (zone/lock.c) */
    bool swaps;                    /* states may be swapped without a lock */
    int64_t patience_us;           /* for a lock; 0: as long as it takes (weir__zone_be_patient) */
    _Atomic int64_t held_until_us; /* patience ended a moment ago: why a request failed */
    bool keeps;                    /* full=deny: no live state is forgotten for another */
    bool full_denies;              /* no room is told as a denial, not as WEIR_EFULL */
    uint8_t apart[64];       /* what is written at every eviction, from what every take reads */
    _Atomic uint64_t chance; /* who goes, of equals */
};

/* One limit of a request, as the zone sees it. */
struct weir__op {
    const struct weir__rule *rule;
    uint32_t row;
    uint32_t generation; /* of the row when it was found */
    uint64_t tag;
    uint32_t home;
    struct weir__request request;
    uint64_t lease_id; /* acquire: not 0 */
    int64_t ahead_us;  /* of the first op: entries up to here may be later than the request */
    weir_decision *ret;
    /* filled under way */
    struct weir__state state;
    const struct weir__rule *written_under;
    struct weir__group *group; /* NULL: absent */
    unsigned slot;
    bool frozen;    /* small: the slot's state is, by us */
    bool has_block; /* large: unit and order are its block's */
    unsigned order;
    uint32_t unit;
};

/* ---- zone/open.c: making and opening ---- */

/* The layout for a size; false if the size is useless. */
bool weir__zone_plan(uint64_t size, unsigned large_percent, struct weir__layout *ret);
/* Makes an empty zone in memory that is zeroed but for the magic. */
int weir__zone_format(uint8_t *base, uint64_t size, unsigned large_percent, bool shared,
                      struct weir__zone *ret, weir_error *err);
/* Before the first key: the tags of these keys were made with another one. Nobody else has the zone
 * open. */
void weir__zone_set_secret(struct weir__zone *zone, const uint64_t secret[2]);
/* Opens one that is there: checks header and layout, not the contents. */
int weir__zone_attach(uint8_t *base, uint64_t size, bool shared, struct weir__zone *ret,
                      weir_error *err);
/* Nobody else has it open: new locks, repairs, full check. */
int weir__zone_recover(struct weir__zone *zone, weir_error *err);
int weir__zone_info(struct weir__zone *zone, weir_zone_info *ret);

/* ---- zone/lock.c ---- */

void weir__stripes_init(struct weir__zone *zone);
/* Who locks waits at most so long, 100 ms unless this is called; 0: as long as it takes. Beyond it
 * the request fails with WEIR__HELD and nothing is changed. After that, for a second, others wait
 * only a moment for the same lock. */
void weir__zone_be_patient(struct weir__zone *zone, int64_t us);
/* After WEIR__WANTED: lets others go on; whether patience lasts. *since_us: 0 at first. */
bool weir__zone_waits(struct weir__zone *zone, int64_t *since_us);
/* Whether somebody was found to hold a lock too long just now. */
bool weir__zone_is_held(struct weir__zone *zone);
/* Words of private zones. */
enum { WEIR__WORD_FREE, WEIR__WORD_HELD, WEIR__WORD_DEAD, WEIR__WORD_FORKING };
/* Puts `to` into a word that is free or dead; 0, EOWNERDEAD or EBUSY. */
int weir__word_lock(_Atomic uint32_t *word, uint32_t to, int64_t most_us);
static inline bool weir__word_swap(_Atomic uint32_t *word, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* These: false where patience ended. */
bool weir__stripe_lock_slow(struct weir__zone *zone, uint32_t stripe);
bool weir__stripe_trylock(struct weir__zone *zone, uint32_t stripe);
bool weir__stripes_lock_all(struct weir__zone *zone) __attribute__((warn_unused_result));
void weir__stripes_unlock_all(struct weir__zone *zone);

static inline bool weir__word_trylock(_Atomic uint32_t *word)
{
    uint32_t free = 0;
    return atomic_compare_exchange_strong_explicit(word, &free, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

__attribute__((warn_unused_result)) static inline bool weir__stripe_lock(struct weir__zone *zone,
                                                                         uint32_t stripe)
{
    if (zone->shared || WEIR__UNLIKELY(!weir__word_trylock(&zone->stripes[stripe].word)))
        return weir__stripe_lock_slow(zone, stripe);
    return true;
}

static inline void weir__stripe_unlock(struct weir__zone *zone, uint32_t stripe)
{
    if (zone->shared) {
        zone->stripes[stripe].owner = 0;
        pthread_mutex_unlock(&zone->stripes[stripe].robust);
    } else
        atomic_store_explicit(&zone->stripes[stripe].word, 0, memory_order_release);
}

static inline uint32_t weir__rows_stripe(const struct weir__zone *zone)
{
    return zone->layout.stripes;
}

static inline uint32_t weir__arena_lock(const struct weir__zone *zone, uint32_t arena)
{
    assert(arena < zone->layout.arenas);
    return zone->layout.stripes + 1 + arena;
}

/* Locks of all sorts. */
static inline uint32_t weir__lock_count(const struct weir__layout *layout)
{
    return layout->stripes + 1 + layout->arenas;
}

/* ---- zone/fork.c ---- */

/* From now on, until it is left, a child of fork finds the private locks free, or inherits what
 * they cover. The zone must stay where it is. 0 or WEIR_ENOMEM. */
int weir__zone_watch_forks(struct weir__zone *zone);
void weir__zone_leave_forks(struct weir__zone *zone);

/* ---- marks: settled receipts ---- */

/* A mark is a window of an hour in a place of its own, named by key, state and receipt. It is there
 * while the receipt is remembered, and is evicted before any limit's state. Marks need no row of
 * the zone's: theirs is row 0, so that limits cannot crowd them out, nor they a limit. */
#define WEIR__MARK_ROW 0
extern const struct weir__rule weir__mark_rule;

static inline bool weir__is_mark(const struct weir__rule *rule)
{
    return rule->flags & WEIR__MARK;
}

/* ---- zone/rows.c ---- */

/* A row's number: 11 bits of low part, 9 of high part. */
#define WEIR__ROW_LOW_BITS 11
#define WEIR__ROW_HIGH_BITS 9
#define WEIR__ROW_BITS (WEIR__ROW_LOW_BITS + WEIR__ROW_HIGH_BITS)
#define WEIR__ROW_LOW_MASK ((UINT32_C(1) << WEIR__ROW_LOW_BITS) - 1)
#define WEIR__ROW_HIGH_MASK ((UINT32_C(1) << WEIR__ROW_HIGH_BITS) - 1)

/* Rows beyond those of the layout lie in blocks. The first of a chunk's places is the block's
 * header, so there is no row whose high part is a multiple of 64 other than 0. */
#define WEIR__CHUNK_ORDER 6
#define WEIR__CHUNK_ROWS 64
#define WEIR__LOW_CHUNKS 8 /* chunks with rows of one low part */
_Static_assert(WEIR__CHUNK_ROWS *WEIR__LOW_CHUNKS == WEIR__ROW_HIGH_MASK + 1, "all high parts");
_Static_assert(sizeof(struct weir__rule) * WEIR__CHUNK_ROWS == 64 << WEIR__CHUNK_ORDER, "fits");

/* The row of a rule, made if need be; 0 where there is no room. It is good while the row has that
 * generation. */
uint32_t weir__row_find(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us,
                        uint32_t *ret_generation);

/* Gives each of these rules a row, and has this process keep it, until the next call: n are sorted
 * by weir__rule_order, no two alike. They are malloc'ed, and the zone's from now on unless a code
 * comes back: WEIR__HELD, or WEIR_EFULL. */
int weir__rows_pin(struct weir__zone *zone, struct weir__rule *rules, size_t n, int64_t now_us);
int weir__rule_order(const void *a, const void *b);

/* How many rows there can be of rules of that class; and of both together. */
uint32_t weir__rows_most(const struct weir__zone *zone, bool narrow);
static inline uint32_t weir__rows_all(const struct weir__layout *layout)
{
    return layout->rows - 1 + layout->chunks * (WEIR__CHUNK_ROWS - 1);
}

/* After a death with the rows' lock held: counts. The lock is held. */
void weir__rows_repair(struct weir__zone *zone);
/* Whether every row makes sense, some at a time; no lock is held. WEIR_EDAMAGED: *ret_row does
 * not; or WEIR__HELD. */
int weir__rows_check(struct weir__zone *zone, uint32_t *ret_row);
/* A block that says it is a chunk of rows, or was to be one: frees it where it is not. No lock is
 * held. False: a lock is held by somebody. */
struct weir__sample;
bool weir__chunk_free_nobodys(struct weir__zone *zone, const struct weir__sample *it);
/* Nobody else has the zone open: builds the index again. */
void weir__rows_recover(struct weir__zone *zone);

/* The number of the chunk that a row would lie in; it may be beyond all chunks. */
static inline uint32_t weir__row_chunk(const struct weir__zone *zone, uint32_t row)
{
    uint32_t low = row & WEIR__ROW_LOW_MASK, high = row >> WEIR__ROW_LOW_BITS;
    return (zone->layout.rows - 1 - low) * WEIR__LOW_CHUNKS + high / WEIR__CHUNK_ROWS;
}

static inline struct weir__block *weir__block_at(const struct weir__zone *zone, uint32_t unit);

/* Where a row lies; NULL: nowhere. */
static inline struct weir__rule *weir__row_place(const struct weir__zone *zone, uint32_t row)
{
    if (WEIR__LIKELY(row < zone->layout.rows))
        return &zone->rows[row];
    uint32_t chunk = weir__row_chunk(zone, row),
             in = (row >> WEIR__ROW_LOW_BITS) % WEIR__CHUNK_ROWS;
    if ((row & WEIR__ROW_LOW_MASK) >= zone->layout.rows || chunk >= zone->layout.chunks || in == 0)
        return NULL;
    uint32_t unit = atomic_load_explicit(&zone->chunks[chunk], memory_order_acquire);
    if (unit == 0 || unit - 1 + (UINT64_C(1) << WEIR__CHUNK_ORDER) > zone->layout.units)
        return NULL;
    return (struct weir__rule *)weir__block_at(zone, unit - 1) + in;
}

/* The row a slot names, or NULL where it cannot be. */
static inline const struct weir__rule *weir__row_at(const struct weir__zone *zone, uint32_t row)
{
    if (WEIR__UNLIKELY(row == WEIR__MARK_ROW))
        return &weir__mark_rule;
    const struct weir__rule *rule = weir__row_place(zone, row);
    bool sound = rule && rule->kind < WEIR__KIND_COUNT && rule->count > 0 && rule->period_us > 0;
    return WEIR__LIKELY(sound) ? rule : NULL;
}

/* Of the row's use: even while it is in use, odd when retired. What a state is sealed with. Of a
 * row that is nowhere: one that no row has. */
static inline uint32_t weir__row_generation(const struct weir__zone *zone, uint32_t row)
{
    if (row == WEIR__MARK_ROW)
        return 0;
    const struct weir__rule *rule = weir__row_place(zone, row);
    return WEIR__LIKELY(rule != NULL) ? __atomic_load_n(&rule->generation, __ATOMIC_ACQUIRE)
                                      : UINT32_MAX;
}

/* What a limit remembers of its row: the row, its generation, and of which zone it is, as many bits
 * of the serial as fit. 0: nothing. */
#define WEIR__HINT_GENERATION_AT WEIR__ROW_BITS
#define WEIR__HINT_SERIAL_AT (WEIR__HINT_GENERATION_AT + 16)

static inline bool weir__hint_is_of(const struct weir__zone *zone, uint64_t hint)
{
    return (hint ^ zone->serial << WEIR__HINT_SERIAL_AT) >> WEIR__HINT_SERIAL_AT == 0 && hint != 0;
}

static inline uint32_t weir__hint_row(uint64_t hint)
{
    return (uint32_t)hint & ((UINT32_C(1) << WEIR__ROW_BITS) - 1);
}

static inline uint32_t weir__hint_generation(uint64_t hint)
{
    return (uint32_t)(hint >> WEIR__HINT_GENERATION_AT) & UINT16_MAX;
}

/* Whether the row that an op was given is no longer its limit's. Asked after the state was read. */
static inline bool weir__op_is_stale(const struct weir__zone *zone, const struct weir__op *op)
{
    return weir__row_generation(zone, op->row) != op->generation;
}

/* ---- zone/pack.c ---- */

#define WEIR__TIME_BITS 54
#define WEIR__REST_AT (WEIR__ROW_LOW_BITS + WEIR__TIME_BITS)
#define WEIR__ROW_HIGH_AT 118
#define WEIR__FROZEN (UINT64_C(1) << 63) /* in hi */

/* Shapes that need the bits of the row's high part for themselves. */
static inline bool weir__is_narrow(const struct weir__rule *rule)
{
    enum weir__shape shape = weir__algorithm_of(rule)->shape;
    return shape == WEIR__SHAPE_PAIR || shape == WEIR__SHAPE_PERMITS;
}

/* Whether a low part is that of a narrow row, in use or last. That row may be written meanwhile,
 * but then no state has this low part, or it stays wide. */
static inline bool weir__low_is_narrow(const struct weir__zone *zone, uint32_t low)
{
    if (low == WEIR__MARK_ROW || low >= zone->layout.rows)
        return false;
    struct weir__rule rule = {.kind = __atomic_load_n(&zone->rows[low].kind, __ATOMIC_RELAXED)};
    return rule.kind < WEIR__KIND_COUNT && weir__is_narrow(&rule);
}

/* The row of a state, sealed or not. Where the row of its low part is a narrow one, there is no
 * high part. */
static inline uint32_t weir__packed_row(const struct weir__zone *zone, struct weir__packed packed)
{
    uint32_t low = packed.lo & WEIR__ROW_LOW_MASK;
    uint32_t high = packed.hi >> (WEIR__ROW_HIGH_AT - 64) & WEIR__ROW_HIGH_MASK;
    if (WEIR__LIKELY(high == 0))
        return low;
    return weir__low_is_narrow(zone, low) ? low : low | high << WEIR__ROW_LOW_BITS;
}

/* Whether a state is one of this row, whose rule is that of row `row`. */
static inline bool weir__packed_is_of(struct weir__packed packed, const struct weir__rule *rule,
                                      uint32_t row)
{
    uint64_t high = packed.hi >> (WEIR__ROW_HIGH_AT - 64) & WEIR__ROW_HIGH_MASK;
    return ((packed.lo ^ row) & WEIR__ROW_LOW_MASK) == 0 &&
           (high == row >> WEIR__ROW_LOW_BITS || weir__is_narrow(rule));
}

static inline bool weir__is_frozen(struct weir__packed packed)
{
    return packed.hi & WEIR__FROZEN;
}

/* A state as it lies in a slot: all but row and frozen bit (and what narrow shapes keep in the
 * place of the row's high part) XOR a pad of the tag and the row's generation. So one state is
 * never the same bytes for two keys, nor for two limits that had one row. Sealing twice gives the
 * state back. */
static inline struct weir__packed weir__seal(struct weir__packed packed, uint64_t tag,
                                             uint32_t generation)
{
    uint64_t use = generation >> 1;
    uint64_t lo = tag ^ use * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hi = (tag << 32 | tag >> 32) ^ use * UINT64_C(0xd1342543de82ef95);
    packed.lo ^= lo & ~(uint64_t)WEIR__ROW_LOW_MASK;
    packed.hi ^= hi & ((UINT64_C(1) << (WEIR__ROW_HIGH_AT - 64)) - 1);
    return packed;
}

/* Buckets and fixed windows: newest time, and debt or count less one. Not sealed. */
static inline struct weir__packed weir__pack_amount(uint32_t row, int64_t at, int64_t amount)
{
    uint64_t time = (uint64_t)at, rest = (uint64_t)amount - 1;
    uint64_t low = row & WEIR__ROW_LOW_MASK, high = row >> WEIR__ROW_LOW_BITS;
    assert(amount >= 1 && amount <= WEIR__EXACT_MAX);
    return (struct weir__packed){low | time << WEIR__ROW_LOW_BITS,
                                 time >> (64 - WEIR__ROW_LOW_BITS) | rest << (WEIR__REST_AT - 64) |
                                     high << (WEIR__ROW_HIGH_AT - 64)};
}

static inline int64_t weir__packed_at(struct weir__packed packed)
{
    uint64_t high = packed.hi & ((UINT64_C(1) << (WEIR__REST_AT - 64)) - 1);
    return (int64_t)(packed.lo >> WEIR__ROW_LOW_BITS | high << (64 - WEIR__ROW_LOW_BITS));
}

static inline int64_t weir__packed_amount(struct weir__packed packed)
{
    uint64_t rest = packed.hi >> (WEIR__REST_AT - 64) & ((UINT64_C(1) << 53) - 1);
    return (int64_t)rest + 1;
}

/* The two counts of a sliding counter. */
struct weir__counts {
    int64_t before, now;
};

static inline struct weir__counts weir__packed_counts(struct weir__packed packed)
{
    const uint64_t mask = (UINT64_C(1) << 31) - 1;
    uint64_t rest = packed.hi >> (WEIR__REST_AT - 64);
    return (struct weir__counts){(int64_t)(rest & mask), (int64_t)(rest >> 31 & mask)};
}

/* A small state under a row, not sealed. */
struct weir__packed weir__pack_small(const struct weir__rule *rule, uint32_t row,
                                     const struct weir__state *state);
/* A state of a key under a row, sealed and not frozen. */
struct weir__packed weir__pack(const struct weir__zone *zone, const struct weir__rule *rule,
                               uint32_t row, uint64_t tag, const struct weir__state *state,
                               uint32_t unit, unsigned order);
/* Reads a sealed state of a key; false where it makes no sense. *ret_unit and *ret_order: large
 * states'. */
bool weir__unpack(const struct weir__zone *zone, uint64_t tag, struct weir__packed sealed,
                  const struct weir__rule **ret_rule, struct weir__state *ret, uint32_t *ret_unit,
                  unsigned *ret_order);

/* Reads a small state that is not sealed. */
void weir__unpack_small(const struct weir__rule *rule, struct weir__packed clear,
                        struct weir__state *ret);

/* ---- zone/take.c ---- */

/* A take or peek of a small state that is there already, without a lock. 0, WEIR__STALE, or
 * WEIR__LOCKED: nothing was done, it needs the stripe's lock. */
int weir__zone_take_free(struct weir__zone *zone, const struct weir__op *op, enum weir__mode mode);

/* ---- zone/table.c ---- */

/* A key's place follows from its tag alone: the top bits say where it begins to look, the low ones
 * how it goes on. */
static inline uint32_t weir__home_of(const struct weir__zone *zone, uint64_t tag)
{
    return (uint32_t)((unsigned __int128)tag * zone->group_count >> 64);
}

static inline uint64_t weir__tag_of(const uint64_t hash[2])
{
    return hash[0] | !hash[0]; /* 0 means empty */
}

static inline uint32_t weir__stripe_of(const struct weir__zone *zone, uint32_t group)
{
    return group >> zone->layout.page_bits & (zone->layout.stripes - 1);
}

/* The d-th group to look for a key in: home, then on through its page by a step of the key's
 * own. */
static inline struct weir__group *weir__group_at(const struct weir__zone *zone, uint32_t home,
                                                 uint64_t tag, uint32_t d)
{
    uint32_t mask = (1u << zone->layout.page_bits) - 1;
    uint32_t step = (uint32_t)tag | 1; /* odd: never the same group twice */
    return &zone->groups[(home & ~mask) | ((home + d * step) & mask)];
}

static inline void weir__prefetch_group(const struct weir__group *group)
{
    __builtin_prefetch(group, 1);
    __builtin_prefetch((const char *)group + 64, 1);
}

static inline void weir__prefetch_home(const struct weir__zone *zone, uint32_t home)
{
    weir__prefetch_group(&zone->groups[home]);
}

#define WEIR__FAR_MASK UINT64_C(7)
#define WEIR__DENIED_AT 24

/* How many groups beyond home keys of this home were ever put in. It only grows, under the lock. */
static inline uint32_t weir__group_far(const struct weir__group *group)
{
    return atomic_load_explicit(&group->head, memory_order_relaxed) & WEIR__FAR_MASK;
}

/* Changes some bits of the head; others may set theirs meanwhile. */
static inline void weir__group_set(struct weir__group *group, uint64_t mask, uint64_t bits)
{
    uint64_t head = atomic_load_explicit(&group->head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&group->head, &head, (head & ~mask) | bits,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Whether the last take of a slot's state was denied. A hint for eviction: it may be the last
 * owner's. */
static inline bool weir__slot_denied(const struct weir__group *group, unsigned slot)
{
    uint64_t head = atomic_load_explicit(&group->head, memory_order_relaxed);
    return head >> (WEIR__DENIED_AT + slot) & 1;
}

static inline void weir__slot_deny(struct weir__group *group, unsigned slot)
{
    if (!weir__slot_denied(group, slot))
        atomic_fetch_or_explicit(&group->head, UINT64_C(1) << (WEIR__DENIED_AT + slot),
                                 memory_order_relaxed);
}

static inline void weir__slot_allow(struct weir__group *group, unsigned slot)
{
    if (weir__slot_denied(group, slot))
        atomic_fetch_and_explicit(&group->head, ~(UINT64_C(1) << (WEIR__DENIED_AT + slot)),
                                  memory_order_relaxed);
}

/* Notes what was decided about a slot's state; `denied` is what was noted of it before the state
 * was written: another core may have the line by now. A denial counts where half of the limit is
 * used up or more: a cost that does not fit into the rest says little about the key. */
static inline void weir__slot_note(struct weir__group *group, unsigned slot, bool denied,
                                   const weir_decision *decision)
{
    bool refused = !decision->allowed && decision->remaining <= decision->limit / 2;
    if (WEIR__UNLIKELY(denied && decision->charged > 0))
        weir__slot_allow(group, slot);
    else if (WEIR__UNLIKELY(!denied && refused))
        weir__slot_deny(group, slot);
}

static inline uint64_t weir__slot_tag(const struct weir__group *group, unsigned slot)
{
    return atomic_load_explicit(&group->tags[slot], memory_order_acquire);
}

static inline void weir__slot_set_tag(struct weir__group *group, unsigned slot, uint64_t tag)
{
    atomic_store_explicit(&group->tags[slot], tag, memory_order_release);
}

/* Reads a slot that is not empty; false where its state makes no sense. */
static inline bool weir__slot_unpack(const struct weir__zone *zone, const struct weir__group *group,
                                     unsigned slot, const struct weir__rule **ret_rule,
                                     struct weir__state *ret, uint32_t *ret_unit,
                                     unsigned *ret_order)
{
    return weir__unpack(zone, weir__slot_tag(group, slot), weir__load16(&group->states[slot]),
                        ret_rule, ret, ret_unit, ret_order);
}

/* ---- what the holder of a stripe's lock does to a slot ----
 *
 * Others swap small states without the lock, so whoever reads one in order to write it freezes it
 * first. From then on it is still, and others wait for the lock. A slot that is empty has a frozen
 * state, or zeros if it was never used. */

static inline _Atomic uint64_t *weir__slot_high(struct weir__group *group, unsigned slot)
{
    return (_Atomic uint64_t *)&group->states[slot].hi;
}

/* Freezes a state, whatever it is; the state. */
static inline struct weir__packed weir__slot_freeze(struct weir__group *group, unsigned slot)
{
    atomic_fetch_or(weir__slot_high(group, slot), WEIR__FROZEN);
    return weir__load16(&group->states[slot]);
}

/* Freezes a state if it is still that one. */
static inline bool weir__slot_freeze_if(struct weir__group *group, unsigned slot,
                                        struct weir__packed sealed)
{
    struct weir__packed frozen = {sealed.lo, sealed.hi | WEIR__FROZEN};
    return weir__swap16(&group->states[slot], &sealed, frozen);
}

static inline void weir__slot_thaw(struct weir__group *group, unsigned slot)
{
    atomic_fetch_and(weir__slot_high(group, slot), ~WEIR__FROZEN);
}

/* The new state of a slot that is frozen, large or empty: nobody else writes it. */
static inline void weir__slot_put(struct weir__group *group, unsigned slot,
                                  struct weir__packed sealed)
{
    weir__store16(&group->states[slot], sealed);
}

static inline uint32_t weir__slot_row(const struct weir__zone *zone,
                                      const struct weir__group *group, unsigned slot)
{
    return weir__packed_row(zone, weir__load16(&group->states[slot]));
}

/* Finds an op's state, freezes it if it is small, and unpacks it; absent: group NULL and a state
 * not present. */
int weir__table_find(struct weir__zone *zone, struct weir__op *op);
/* A slot for an op that has none, evicting if need be; none of `ops` is evicted. WEIR_EFULL: none
 * may go. */
int weir__table_place(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                      size_t n);
#define WEIR__FULL_RETRY_US 1000000 /* nobody whom the zone refused need ask again before */
/* After WEIR_EFULL: how long until a state in an op's reach is fresh, or a while. */
int64_t weir__table_room_in(const struct weir__zone *zone, const struct weir__op *op);
/* Writes an op's state into its slot, or empties the slot of one no longer present. */
void weir__table_write(struct weir__zone *zone, struct weir__op *op);
/* Empties a slot; true: it had this block, which is nobody's now. */
bool weir__slot_drop(struct weir__zone *zone, struct weir__group *group, unsigned slot,
                     uint32_t *ret_unit, unsigned *ret_order);
/* Thaws what weir__table_find froze and nobody wrote. */
void weir__table_thaw(struct weir__op *ops, size_t n);
/* Empties a slot and frees its block. */
void weir__slot_clear(struct weir__zone *zone, struct weir__group *group, unsigned slot);
/* The same, if its state is still the one that was judged; false: somebody charged it meanwhile. */
bool weir__slot_clear_if(struct weir__zone *zone, struct weir__group *group, unsigned slot,
                         struct weir__packed judged);
/* All states of a key; whether one of them was not fresh. */
bool weir__table_reset(struct weir__zone *zone, uint64_t tag, int64_t now_us);

/* ---- zone/arena.c, zone/block.c, zone/place.c ---- */

/* A byte of the map, where a block starts; 0 inside of one. */
#define WEIR__MAP_FREE 0x80
#define WEIR__MAP_LEASE 0x40 /* never evicted while a lease in it lasts */
#define WEIR__MAP_ROWS 0x20  /* a chunk of rows: never evicted */
#define WEIR__MAP_ORDER 0x1f /* order + 1 */

#define WEIR__NO_GROUP UINT32_MAX /* owner of a chunk of rows; its slot is the chunk's number */
#define WEIR__NO_UNIT UINT32_MAX

/* A block to be had. Its owner's stripe (or the rows' lock) is held. */
struct weir__want {
    uint32_t group, slot; /* owner */
    unsigned order;
    unsigned flags; /* WEIR__MAP_LEASE or WEIR__MAP_ROWS */
    uint32_t has;   /* the block the owner has now, which stays; WEIR__NO_UNIT: none */
};

/* A used block that was looked at, and whose it says it is. */
struct weir__sample {
    uint32_t unit;
    unsigned order;
    uint32_t group;
    unsigned slot;
};

/* What a search stops at. */
struct weir__sampling {
    unsigned order; /* at least */
    size_t by_hand; /* so many from the arena's hand on, the others at random */
    unsigned steps; /* that the hand does at most */
};

#define WEIR__SAMPLED_MARKS 1024  /* bytes of the map that are looked at under one lock … */
#define WEIR__LAPSES_AT_ONCE 4096 /* … and where one time of each block is */
#define WEIR__SAMPLED_AT_RANDOM 32
#define WEIR__SAMPLED_LEASES 2 /* among others: they go only if they have lapsed */
#define WEIR__CLEARED_MAX 1024 /* blocks that are evicted or moved for one larger one */

static inline struct weir__block *weir__block_at(const struct weir__zone *zone, uint32_t unit)
{
    return (struct weir__block *)(zone->blocks + (uint64_t)unit * WEIR__BLOCK_UNIT);
}

/* The block of a chunk of rows. */
static inline struct weir__want weir__chunk_want(uint32_t chunk)
{
    return (struct weir__want){WEIR__NO_GROUP, chunk, WEIR__CHUNK_ORDER, WEIR__MAP_ROWS,
                               WEIR__NO_UNIT};
}

static inline uint8_t weir__map_at(const struct weir__zone *zone, uint32_t unit)
{
    assert(unit < zone->layout.units);
    return atomic_load_explicit(&zone->map[unit], memory_order_acquire);
}

static inline uint32_t weir__block_cells(unsigned order)
{
    return (4u << order) - 2;
}

static inline unsigned weir__block_flags(const struct weir__rule *rule)
{
    return weir__algorithm_of(rule)->leases ? WEIR__MAP_LEASE : 0;
}

unsigned weir__order_for(int64_t cells);

void weir__blocks_init(struct weir__zone *zone);
/* The arena where an owner's blocks are looked for first. There is one at least. */
uint32_t weir__arena_for(const struct weir__zone *zone, const struct weir__want *want);
/* A block that is free; WEIR_EFULL: there is none. Or WEIR__HELD. */
int weir__block_alloc(struct weir__zone *zone, const struct weir__want *want, uint32_t *ret_unit);
/* Gives a block back that the slot has let go of, or never named. Its stripe is held. Where the
 * arena's lock is not to be had, the block is nobody's until somebody looks for such. */
void weir__block_free(struct weir__zone *zone, uint32_t unit, unsigned order,
                      const struct weir__group *group, unsigned slot);
/* Likewise, where the block says it is that slot's; whether it did. */
bool weir__block_free_owned(struct weir__zone *zone, uint32_t unit, unsigned order, uint32_t group,
                            unsigned slot);
/* Whether a used block of that order starts there. */
bool weir__block_is_used(const struct weir__zone *zone, uint32_t unit, unsigned order);
/* Some used blocks of an arena, in a bounded number of steps. */
size_t weir__block_sample(struct weir__zone *zone, uint32_t arena,
                          const struct weir__sampling *sampling, struct weir__sample *ret,
                          size_t room);
/* Whether an arena has blocks that may be evicted: neither leases nor rows. */
bool weir__arena_has_others(const struct weir__zone *zone, uint32_t arena);
/* Some blocks, of leases or others, whose states may be fresh by now: goes on where the last such
 * search stopped. *ret_more: it has not seen all of the arena. */
size_t weir__block_lapsed(struct weir__zone *zone, uint32_t arena, bool leases, int64_t now_us,
                          struct weir__sample *ret, size_t room, bool *ret_more);
/* A used block's state was written, and is fresh from then on. Its stripe is held. */
void weir__block_note(struct weir__zone *zone, uint32_t unit, bool leases, int64_t fresh_at);
/* A death may have left blocks that are nobody's: searches look at all of them again. */
void weir__blocks_forget_lapses(struct weir__zone *zone);
/* The used blocks from a unit on, to the end of its arena at most; moves the unit on. SIZE_MAX:
 * held. */
size_t weir__block_list(struct weir__zone *zone, uint32_t *unit, struct weir__sample *ret,
                        size_t room);

/* An aligned place for a large block is chosen, and what is free of it becomes the owner's. The
 * others' blocks of it become the owner's one by one, when their slots have let go of them. Then
 * all of them are joined, or given back. */

/* The best of the next places of an arena. *left: how many are still to be looked at, at first
 * UINT32_MAX. False: none of those can be cleared. */
bool weir__place_choose(struct weir__zone *zone, uint32_t arena, const struct weir__want *want,
                        uint32_t *left, uint32_t *ret_place);
/* The others' blocks from a unit on, which moves on. SIZE_MAX: give up. */
size_t weir__place_others(struct weir__zone *zone, uint32_t place, const struct weir__want *want,
                          uint32_t *unit, struct weir__sample *ret, size_t room);
bool weir__place_own(struct weir__zone *zone, const struct weir__sample *it,
                     const struct weir__want *want);
bool weir__place_join(struct weir__zone *zone, uint32_t place, const struct weir__want *want);
void weir__place_give(struct weir__zone *zone, uint32_t place, const struct weir__want *want);

/* Leases fill half of the units at most. */
bool weir__leases_fit(struct weir__zone *zone, unsigned order);
void weir__leases_recount(struct weir__zone *zone);
/* Bytes in use. */
uint64_t weir__blocks_used(const struct weir__zone *zone);
/* After a death: lists and counts from the map. The arena's lock is held. */
void weir__arena_repair(struct weir__zone *zone, uint32_t arena);
bool weir__arena_is_sound(struct weir__zone *zone, uint32_t arena, bool *ret_held);
/* Nobody else has the zone open: map, owners and lists from the table. */
void weir__blocks_recover(struct weir__zone *zone);
/* For that: a block that is there; false where it cannot be. */
bool weir__block_claim(struct weir__zone *zone, uint32_t unit, const struct weir__want *want);

/* ---- zone/hunt.c ---- */

/* A block, free or made so by evicting others; none of `ops`, whose stripes are held, is evicted.
 * Other stripes are only tried. WEIR_EFULL: there is no room, or no more for leases. Or
 * WEIR__HELD, or WEIR__WANTED. */
int weir__block_get(struct weir__zone *zone, const struct weir__op *ops, size_t n, int64_t now_us,
                    const struct weir__want *want, uint32_t *ret_unit);
/* Reads whose a block says it is, without a lock: a guess. */
void weir__block_guess(const struct weir__zone *zone, struct weir__sample *it);
/* Whether a slot names a block; its stripe is held. */
bool weir__slot_names(const struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                      uint32_t unit);

/* ---- zone/large.c ---- */

/* Copies a ring into a block, oldest first; the state has it there from now on. */
void weir__ring_move(struct weir__zone *zone, struct weir__state *state, uint32_t unit,
                     unsigned order);
/* Gives an op's ring room for one more cell (leases: two, a renewal needs one), evicting if need
 * be; none of `ops` is evicted. Codes are those of weir__block_get. The op's slot must be placed; a
 * block got for an absent state is the caller's to free if the request fails. */
int weir__ring_reserve(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                       size_t n);

/* ---- zone/check.c ---- */

/* Everything that can be checked, page by page, one lock at a time. Blocks that are nobody's are
 * freed. */
int weir__zone_check(struct weir__zone *zone, weir_error *err);
/* After a death: sums, newest times and counts of the stripe's states. Its lock is held. */
void weir__stripe_repair(struct weir__zone *zone, uint32_t stripe);

/* ---- zone/apply.c ---- */

/* Internal: a rule's row is no longer its. */
#define WEIR__STALE (-1000)
/* Internal: a lock is held longer than we wait for it; WEIR_EBUSY for callers. */
#define WEIR__HELD (-1001)
/* Internal: this needs the stripe's lock. */
#define WEIR__LOCKED (-1003)
/* Internal: room may be had under a stripe that another holds, who may want one of ours: let go of
 * them and try again. Nothing was changed. */
#define WEIR__WANTED (-1004)
/* Internal: the clock was read before the locks were ours, and others were served in between. A log
 * or window has an entry of ops->ahead_us, which is later. The caller reads the clock again. */
#define WEIR__BEHIND (-1002)

/* An all-or-nothing group at one instant: n ops, at most WEIR_LIMITS_MAX, each with its own
 * answer. */
int weir__zone_apply(struct weir__zone *zone, struct weir__op *ops, size_t n, enum weir__mode mode);
/* The same, with locks at once. */
int weir__zone_apply_locked(struct weir__zone *zone, struct weir__op *ops, size_t n,
                            enum weir__mode mode);
/* ops: of n limits, and where the receipt has an id of n marks behind them. A limit
 * whose mark is there was settled before; WEIR_ESETTLED: all of them were. */
int weir__zone_settle(struct weir__zone *zone, struct weir__op *ops, size_t n,
                      const struct weir__correction *correction);
int weir__zone_lease(struct weir__zone *zone, struct weir__op *op, enum weir__lease_verb verb);
/* Leases of a stripe's keys were released: who waits for one is woken. No lock is held. */
void weir__zone_ring(struct weir__zone *zone, uint32_t stripe);
/* *ret_live: whether there was a state that is not fresh. */
int weir__zone_reset(struct weir__zone *zone, uint64_t tag, int64_t now_us, bool *ret_live);
/* Every state of a key as it stands now, room for WEIR__SHOWN_MAX. */
int weir__zone_show(struct weir__zone *zone, uint64_t tag, int64_t now_us, struct weir__shown *ret,
                    size_t *ret_count);

#endif
