/*
 * What lies where in a zone, and what holds.
 *
 *   ┌────────┬──────────┬────────┬──────┬──────────────────────────┬───────────┬──────────────────┐
 *   │ header │ stripes  │ arenas │ rows │ table: pages of groups   │ block map │ blocks           │
 *   └────────┴──────────┴────────┴──────┴──────────────────────────┴───────────┴──────────────────┘
 *     secret   locks,     counts   the    pages of 256 (or 32)       a byte a    logs, windows,
 *     layout   counters   of free  rules  groups of 5 slots          64 bytes    leases
 *                         blocks
 *
 * What holds, whenever no lock is held (and, with the repairs named, after a process died):
 *
 *   1. Offsets only, never pointers; every one read from the region is checked before use.
 *
 *   2. A key's states lie in its reach: the group its hash names (home) and up to 7 others of the
 *      same page, in an order of the key's own. home.far says how far to look. One stripe's lock
 *      covers a page.
 *
 *   3. A slot with tag 0 is empty, and its state is frozen or zeros. Otherwise its 16-byte state
 *      names a row that exists, and is sealed with the tag and the generation of that row.
 *
 *   4. A state is written by one 16-byte store or swap: it is the old one or the new one, never a
 *      mix. A large state's block is complete before its slot names it; its header is one store,
 *      too. Small states change without a lock, by swaps (zone/take.h), unless they are frozen.
 *      Only who holds the stripe freezes one, and thaws it before it lets go. Large ones change
 *      under the lock.
 *
 *   5. A death between the stores of one charge leaves a charge nobody was told of, an entry or
 *      lease twice, an empty log, or a sum that the repair of the stripe counts again. Never a
 *      charge less.
 *
 *   6. A used block names the one slot it is for, and has done so since it was allocated, by
 *      somebody who held that slot's stripe. So whoever holds that stripe and sees that the slot
 *      does not name the block knows that it is nobody's (a death left it), and may free it.
 *
 *   7. After a death the pages of its stripe are torn: weir__page_mend repairs one before its first
 *      use, and counts its keys. WEIR__KEYS counts those of whole pages.
 *
 * Locks, in this order: rows, stripes by number, one arena. In a private zone a word to spin on; in
 * a shared one a robust process-shared mutex, whose next owner repairs what a dead one left.
 */
#ifndef WEIR_ZONE_LAYOUT_H
#define WEIR_ZONE_LAYOUT_H

#include "core/core.h"
#include "store/store.h"
#include "store/zone/swap.h"

#include <pthread.h>
#include <stdatomic.h>

#define WEIR__ZONE_MAGIC UINT64_C(0x656e6f5a72696577)  /* "weirZone" */
#define WEIR__ZONE_UNMADE UINT64_C(0x3f6e6f5a72696577) /* "weirZon?": in the making */
#define WEIR__ZONE_VERSION 3
#define WEIR__ZONE_SIZE_MIN (UINT64_C(64) << 10)
#define WEIR__ZONE_SIZE_MAX (UINT64_C(1) << 38)

#define WEIR__SLOTS 5       /* in a group */
#define WEIR__REACH 8       /* groups a key may lie in */
#define WEIR__ROWS_MAX 2047 /* in the layout: 11 bits; row 0 is that of marks, of no limit */
#define WEIR__BLOCK_UNIT 64
#define WEIR__ORDER_MAX 16  /* the largest block: 4 MiB, 262,142 cells */
#define WEIR__PAGES_MAX 64  /* of a stripe: fewer */
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
    WEIR__REFUSED, /* requests that found no room: a slot, a block, a row */
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
    uint64_t torn;          /* a bit for each of its pages that nobody repaired since a death */
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
    _Atomic uint64_t marks_lost; /* that had to go in their hour, or found no room */
};

/* What follows from an arena's part of the map; its lock (weir__arena_lock) covers both. */
struct weir__block_arena {
    uint16_t free[WEIR__ORDER_MAX + 1]; /* so many blocks of each order are free */
    uint16_t near[WEIR__ORDER_MAX + 1]; /* from here on one is looked for, from its first unit */
    uint32_t orders;                    /* a bit for each order of which there is a free one */
    uint32_t hand;         /* where the search for blocks to evict goes on, from its first unit */
    uint32_t place;        /* likewise, for places to be cleared */
    uint32_t chance;       /* the last random number */
    uint32_t damaged;      /* its map cannot be read: nothing is taken from it or given to it */
    _Atomic uint32_t used; /* units; read without the lock, too */
    _Atomic uint32_t leases;
    _Atomic uint32_t rows; /* of chunks */
    /* Each for other blocks, and for those of leases. */
    _Atomic uint32_t
        lapse_hand[2]; /* how far the search for fresh states has come; 0: nobody searches */
    uint32_t spare;
    _Atomic int64_t lapses_us[2]; /* while nobody searches, no state is fresh before this time */
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
    /* filled while it is decided */
    struct weir__state state;
    const struct weir__rule *written_under;
    struct weir__group *group; /* NULL: absent */
    unsigned slot;
    bool frozen;    /* small: the slot's state is, by us */
    bool has_block; /* large: unit and order are its block's */
    unsigned order;
    uint32_t unit;
};

#endif
