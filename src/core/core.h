/*
 * The heart: what each limit decides. Pure functions of (rule, state, time, request); no clock, no
 * allocation, no I/O, no globals. Every formula of docs/SPEC.md stands in exactly one place here.
 *
 * A store drives an algorithm in this order, holding the state still meanwhile:
 *
 *     load    state as stored        ─► state as of now (absent becomes fresh)
 *     judge   allowed, retry, delay     writes nothing
 *     charge  only if every limit of the request allowed it, and the cost is not 0
 *     report  remaining, reset          of the state as it then stands
 *
 * An algorithm is one line in WEIR__KINDS and one file, which ends with its row: a struct
 * weir__algorithm with its functions and with every fact that others need to know about it.
 * Nobody else asks which kind a rule is. CONTRIBUTING.md has the steps.
 */
#ifndef WEIR_CORE_H
#define WEIR_CORE_H

#include "base/base.h"

#include <assert.h>

/* Every kind and the suffix of its row's name. The numbers are stored in zones and in Redis and
 * are arguments of the Lua scripts: a new kind goes to the end. lua/assemble.py reads this list. */
#define WEIR__KINDS(X)                                                                             \
    X(TOKEN_BUCKET, token_bucket)                                                                  \
    X(STEPPED, stepped)                                                                            \
    X(LEAKY_BUCKET, leaky_bucket)                                                                  \
    X(FIXED_WINDOW, fixed_window)                                                                  \
    X(FROM_FIRST, from_first)                                                                      \
    X(SLIDING_LOG, sliding_log)                                                                    \
    X(SLIDING_WINDOW, sliding_window)                                                              \
    X(SLIDING_COUNTER, sliding_counter)                                                            \
    X(SMOOTH, smooth)                                                                              \
    X(WARMUP, warmup)                                                                              \
    X(CONCURRENT, concurrent)                                                                      \
    X(CALENDAR, calendar)

#define WEIR__KIND_NUMBER(KIND, name) WEIR__##KIND,
enum weir__kind { WEIR__KINDS(WEIR__KIND_NUMBER) WEIR__KIND_COUNT };
#undef WEIR__KIND_NUMBER

/* WEIR__MARK: not a limit, but what zones remember settled receipts by. */
enum { WEIR__NODELAY = 1, WEIR__MARK = 2 };

/* One limit in numbers: what its text says, then what follows from it. No padding and no pointers:
 * rules are compared bytewise and kept in zones. */
struct weir__rule {
    uint8_t kind;             /* enum weir__kind */
    uint8_t flags;            /* WEIR__NODELAY, WEIR__MARK */
    uint16_t generation;      /* of a row in a zone; 0 everywhere else */
    uint32_t cold_millionths; /* warmup: cold factor */
    int64_t count;            /* N */
    int64_t period_us;        /* W; concurrent: the lease */
    int64_t burst;            /* buckets */
    int64_t extra;            /* see enum weir__extra */
    int64_t ticks;            /* where `at` is in ticks: w, the period in ticks = units per token */
    int64_t cap;              /* likewise: the units that a full bucket holds */
    int64_t horizon_us;       /* a state further ahead than this is nonsense */
};
_Static_assert(sizeof(struct weir__rule) == 64, "a rule is one cache line");

/* An entry of a log, a slot of a window (stamp: its last), or a lease (stamp: its expiry). */
struct weir__cell {
    int64_t stamp;
    union {
        int64_t count;  /* log and window: >= 1 */
        uint64_t lease; /* concurrent: id << WEIR__LEASE_SHIFT | slots held */
    };
} __attribute__((packed)); /* may lie at any address: Redis strings are not aligned */
_Static_assert(sizeof(struct weir__cell) == 16, "stores count on it");

/* The highest count of a limit that keeps one cell per request. */
#define WEIR__LOG_COUNT_MAX 100000

/* No ring grows beyond this, whatever is settled into it. */
#define WEIR__CELLS_MAX (UINT32_C(1) << 17)

/* A ring of cells, oldest stamp first. The memory is the store's: it makes room before a charge. */
struct weir__ring {
    struct weir__cell *cells;
    uint32_t capacity;
    uint32_t head;
    uint32_t len;
    int64_t sum; /* of all counts */
};

struct weir__state {
    bool present;   /* something is stored */
    int64_t at;     /* newest time, in the row's unit; shape PERMITS: the next free time */
    int64_t amount; /* debt, count, or the current window's count */
    int64_t before; /* shape PAIR: the previous window's count */
    double stored;  /* shape PERMITS */
    int64_t now_us; /* set by load: t', never before `at` */
    struct weir__ring ring;
    /* 16 aligned bytes by which others know head, len and sum of a ring in shared memory, where a
     * process may die between any two stores; NULL: nobody looks before the change is complete. */
    uint64_t *ring_header;
};

struct weir__request {
    int64_t now_us;  /* t */
    int64_t cost;    /* 0 … 10^12 */
    int64_t wait_us; /* resolved: see weir__wait_for */
};

struct weir__scale;

/* A correction of the charge c0 made at t0. */
struct weir__correction {
    int64_t now_us, charged_at_us, charged, actual;
    uint64_t id;  /* of the receipt; 0: none, so nobody knows whether it was settled before */
    bool anytime; /* a refund: a zone remembers its id whatever window it was found in */
};

/* How long settled receipts are remembered at most. */
#define WEIR__SETTLED_US INT64_C(3600000000)

/* What a state is made of besides `at`. Stores pack shapes, not kinds. */
enum weir__shape {
    WEIR__SHAPE_DEBT,    /* amount, which shrinks by the count it was last charged under */
    WEIR__SHAPE_COUNT,   /* amount, within one window */
    WEIR__SHAPE_PAIR,    /* before and amount, each at most WEIR__PAIR_MAX */
    WEIR__SHAPE_PERMITS, /* stored */
    WEIR__SHAPE_RING     /* ring: the state is large */
};

#define WEIR__PAIR_MAX INT64_C(2000000000)

/* What `at` of a state counts in. UNIT_END: µs, and it is not the newest time of the state but the
 * end of its window. */
enum weir__unit { WEIR__UNIT_US, WEIR__UNIT_TICK, WEIR__UNIT_PERIOD, WEIR__UNIT_END };

/* What `extra` of a rule says. */
enum weir__extra {
    WEIR__EXTRA_NONE,
    WEIR__EXTRA_DELAY,     /* a count: so many go ahead without delay */
    WEIR__EXTRA_PRECISION, /* µs: the length of a slot. Another precision is another state */
    WEIR__EXTRA_SPAN,      /* µs: burst-for, over */
    WEIR__EXTRA_CALENDAR   /* unit, anchor and zone (core/calendar.h): others are another state */
};

/* The row of an algorithm. The flags are facts that somebody asks for; false is the usual case. */
struct weir__algorithm {
    const char *name;      /* in the limit language; siblings share it */
    const char *full_name; /* with what tells it from its siblings: "fixed-window from-first" */
    const char *example;   /* a good limit, for messages */
    enum weir__shape shape;
    enum weir__unit unit;
    enum weir__extra extra;
    bool shapes;    /* answers with delays, waits by default */
    bool waits;     /* heeds wait at all */
    bool leases;    /* has acquire, renew, release; its period is the length of a lease */
    bool quick;     /* core/bucket.h decides it, so that the zone may take the short cut */
    bool flows;     /* refills evenly and serves reservations in order: can pace bytes */
    bool overflows; /* waits, but may also be full: asking again later is of use */
    bool by_time;   /* judges by time alone: a higher cost is admitted just the same */
    bool aligned;   /* its windows begin at multiples of the period */
    bool fixed_end; /* charging more does not move when it ends */
    bool sliced;    /* units may be taken ahead (docs/SLICES.md); if it shapes: with nodelay only */

    void (*load)(const struct weir__rule *, struct weir__state *, int64_t now_us);
    void (*judge)(const struct weir__rule *, const struct weir__state *,
                  const struct weir__request *, weir_decision *);
    void (*charge)(const struct weir__rule *, struct weir__state *, const struct weir__request *);
    void (*report)(const struct weir__rule *, const struct weir__state *, int64_t now_us,
                   weir_decision *);
    /* After load; false: nothing changed. NULL: refused. May add one cell. */
    bool (*settle)(const struct weir__rule *, struct weir__state *,
                   const struct weir__correction *);
    /* From when on a stored state is as good as absent, whatever comes; before load. */
    int64_t (*fresh_at)(const struct weir__rule *, const struct weir__state *);
    /* How much of its limit a stored state withholds now, in 1/2^20 of it: what its user would
     * get back if it were forgotten. From fresh_at on 0, until then at least 1. Before load;
     * large states: about. */
    uint32_t (*share)(const struct weir__rule *, const struct weir__state *, int64_t now_us);
    /* The same for many states; NULL: they are asked one by one (core/scale.h). */
    void (*scale)(const struct weir__rule *, int64_t now_us, struct weir__scale *ret);

    /* What is wrong with a rule that parsed, so that all arithmetic stays exact below 2^53; NULL:
     * nothing. The rest needs a good rule. */
    const char *(*flaw)(const struct weir__rule *);
    /* The most that a fresh state admits at once; INT64_MAX: anything. */
    int64_t (*most)(const struct weir__rule *);
    /* How long a state that is used up takes to be fresh again, if nothing else comes. */
    int64_t (*window_us)(const struct weir__rule *);
    /* The window that holds a time, where windows differ in length or do not start at multiples of
     * the period; else NULL. */
    void (*window)(const struct weir__rule *, int64_t us, int64_t *ret_start, int64_t *ret_end);
    /* How far ahead of the clock an honest state may be; at least a minute is granted anyway. */
    int64_t (*ahead_us)(const struct weir__rule *);
    /* How long a flood takes to show all that the limit does; three periods are shown anyway. */
    int64_t (*flood_us)(const struct weir__rule *);
};

#define WEIR__KIND_ROW(KIND, name) extern const struct weir__algorithm weir__algorithm_##name;
WEIR__KINDS(WEIR__KIND_ROW)
#undef WEIR__KIND_ROW

extern const struct weir__algorithm *const weir__algorithms[WEIR__KIND_COUNT];

static inline const struct weir__algorithm *weir__algorithm_of(const struct weir__rule *rule)
{
    assert(rule->kind < WEIR__KIND_COUNT);
    return weir__algorithms[rule->kind];
}

#define WEIR__SHARE_ONE (UINT32_C(1) << 20)

/* part of whole as a share: 1 … WEIR__SHARE_ONE, for a state that is not fresh. */
static inline uint32_t weir__share_of(int64_t part, int64_t whole)
{
    assert(whole >= 1);
    if (part >= whole)
        return WEIR__SHARE_ONE;
    uint64_t share = whole < INT64_C(1) << 43 ? (uint64_t)part * WEIR__SHARE_ONE / (uint64_t)whole
                                              : (uint64_t)part / ((uint64_t)whole >> 20);
    return part <= 0 || share == 0 ? 1 : (uint32_t)share;
}

/* The usual answers of a row. */
const char *weir__rule_no_flaw(const struct weir__rule *rule);
int64_t weir__rule_count(const struct weir__rule *rule);
int64_t weir__rule_period_us(const struct weir__rule *rule);

/* Fills in ticks, cap and horizon from the rest. */
void weir__rule_derive(struct weir__rule *rule);
/* Whether two rules speak of one state: same kind and period, and weir__distinct; where the period
 * is the length of a lease, the kind alone. */
bool weir__rule_same_state(const struct weir__rule *a, const struct weir__rule *b);
/* The most cells that a large state under this rule can need. */
int64_t weir__rule_cells(const struct weir__rule *rule);

/* Whether states under this rule are rings. */
static inline bool weir__is_large(const struct weir__rule *rule)
{
    return weir__algorithm_of(rule)->shape == WEIR__SHAPE_RING;
}

/* The length of a slot, or 0: the limit has no slots. */
static inline int64_t weir__precision(const struct weir__rule *rule)
{
    return weir__algorithm_of(rule)->extra == WEIR__EXTRA_PRECISION ? rule->extra : 0;
}

/* What a state is known by besides kind and period: its precision, its calendar, or 0. */
static inline int64_t weir__distinct(const struct weir__rule *rule)
{
    enum weir__extra extra = weir__algorithm_of(rule)->extra;
    bool distinct = extra == WEIR__EXTRA_PRECISION || extra == WEIR__EXTRA_CALENDAR;
    return distinct ? rule->extra : 0;
}

/* How long a state that is used up takes to be fresh again; of windows that differ in length, the
 * length of the one that holds the time. */
static inline int64_t weir__window_us(const struct weir__rule *rule, int64_t now_us)
{
    int64_t start, end;
    if (WEIR__LIKELY(!weir__algorithm_of(rule)->window))
        return weir__algorithm_of(rule)->window_us(rule);
    weir__algorithm_of(rule)->window(rule, now_us, &start, &end);
    return end - start;
}

/* A tick is 1 µs for periods up to a minute, else 1 ms. */
#define WEIR__FINE_PERIOD_MAX_US INT64_C(60000000)

static inline int64_t weir__tick_us(const struct weir__rule *rule)
{
    return rule->period_us <= WEIR__FINE_PERIOD_MAX_US ? 1 : 1000;
}

/* The microseconds that `at` of a state counts in. */
static inline int64_t weir__unit_us(const struct weir__rule *rule)
{
    switch (weir__algorithm_of(rule)->unit) {
    case WEIR__UNIT_US:
    case WEIR__UNIT_END:
        break;
    case WEIR__UNIT_TICK:
        return weir__tick_us(rule);
    case WEIR__UNIT_PERIOD:
        return rule->period_us;
    }
    return 1;
}

/* The newest time in a state; of a window that is known by its end: its start. */
static inline int64_t weir__newest_us(const struct weir__rule *rule,
                                      const struct weir__state *state)
{
    int64_t start, end;
    if (WEIR__LIKELY(weir__algorithm_of(rule)->unit != WEIR__UNIT_END))
        return state->at * weir__unit_us(rule);
    weir__algorithm_of(rule)->window(rule, state->at - 1, &start, &end);
    return start;
}

/* Whether settle looks for the entry or window of the time at which it was charged. */
static inline bool weir__settles_by_time(const struct weir__rule *rule)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    switch (algorithm->shape) {
    case WEIR__SHAPE_COUNT:
    case WEIR__SHAPE_PAIR:
        return true;
    case WEIR__SHAPE_RING:
        return !algorithm->leases;
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_PERMITS:
        break;
    }
    return false;
}

/* The caller's wait (WEIR_WAIT_DEFAULT, WEIR_WAIT_ANY or µs) as this rule takes it. */
static inline int64_t weir__wait_for(const struct weir__rule *rule, int64_t wait_us)
{
    bool shapes = weir__algorithm_of(rule)->shapes;
    if (wait_us == WEIR_WAIT_DEFAULT)
        return shapes ? WEIR_WAIT_ANY : 0;
    return shapes ? wait_us : weir__min(wait_us, WEIR_DURATION_MAX);
}

/* A wait as scripts take it: -1 the default, -2 any. */
static inline int64_t weir__script_wait(int64_t wait_us)
{
    return wait_us == WEIR_WAIT_DEFAULT ? -1 : wait_us == WEIR_WAIT_ANY ? -2 : wait_us;
}

/* Whether a state read from untrusted memory is within the bounds that all formulas rely on. */
bool weir__state_sound(const struct weir__rule *rule, const struct weir__state *state);

/* Whether a stored state is as good as absent: back to fresh under its rule, or nonsense. */
bool weir__is_fresh(const struct weir__rule *rule, const struct weir__state *state, int64_t now_us);

/* The share of its limit that a stored state withholds now; 0 exactly where weir__is_fresh. */
uint32_t weir__state_share(const struct weir__rule *rule, const struct weir__state *state,
                           int64_t now_us);

/* load, with two rules of every store before it: a state whose newest time lies beyond the horizon
 * is absent, and so is one that had come back to fresh under the rule it was written under (NULL:
 * the caller has seen to that). */
void weir__load(const struct weir__rule *rule, const struct weir__rule *written_under,
                struct weir__state *state, int64_t now_us);

/* The most that a limit which does not shape would allow now. Of a loaded state. */
int64_t weir__left(const struct weir__rule *rule, const struct weir__state *state, int64_t now_us);

/* ---- leases (concurrent.c) ---- */

#define WEIR__LEASE_SHIFT 17 /* slots held fit below: at most 100,000 */
#define WEIR__LEASE_MASK ((UINT64_C(1) << 47) - 1)

/* After load: holds cost slots under an id of at most 47 bits. */
void weir__lease_acquire(const struct weir__rule *rule, struct weir__state *state, int64_t cost,
                         uint64_t id);
/* After load: false if there is no such lease. */
bool weir__lease_renew(const struct weir__rule *rule, struct weir__state *state, uint64_t id);
bool weir__lease_release(struct weir__state *state, uint64_t id);

/* ---- fold.c ---- */

/* One answer out of those of n limits (n >= 1). */
void weir__fold(const weir_decision *rows, size_t n, weir_decision *ret);

#endif
