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
 * Adding an algorithm: one file with these functions, one line in algorithms.c.
 */
#ifndef WEIR_CORE_H
#define WEIR_CORE_H

#include "base/base.h"

enum weir__kind {
    WEIR__TOKEN_BUCKET,
    WEIR__STEPPED,
    WEIR__LEAKY_BUCKET,
    WEIR__FIXED_WINDOW,
    WEIR__FROM_FIRST,
    WEIR__SLIDING_LOG,
    WEIR__SLIDING_WINDOW,
    WEIR__SLIDING_COUNTER,
    WEIR__SMOOTH,
    WEIR__WARMUP,
    WEIR__CONCURRENT,
    WEIR__KINDS
};

/* WEIR__MARK: not a limit, but what zones remember settled receipts by. */
enum { WEIR__NODELAY = 1, WEIR__MARK = 2 };

/* One limit in numbers: what its text says, then what follows from it. No padding and no pointers:
 * rules are compared bytewise and kept in zones. */
struct weir__rule {
    uint8_t kind;  /* enum weir__kind */
    uint8_t flags; /* WEIR__NODELAY, WEIR__MARK */
    uint16_t zero;
    uint32_t cold_millionths; /* warmup: cold factor */
    int64_t count;            /* N */
    int64_t period_us;        /* W; concurrent: the lease */
    int64_t burst;            /* buckets */
    int64_t extra;            /* leaky: delay count; µs: precision, burst-for, over */
    int64_t ticks;            /* buckets: w, the period in ticks = units a token */
    int64_t cap;              /* buckets: units a full bucket holds */
    int64_t horizon_us;       /* a state further ahead than this is nonsense */
};
_Static_assert(sizeof(struct weir__rule) == 64, "a rule is one cache line");

/* Fills in ticks, cap and horizon from the rest. */
void weir__rule_derive(struct weir__rule *rule);
/* Whether two rules speak of one state: same kind and period, and precision; concurrent always. */
bool weir__rule_same_state(const struct weir__rule *a, const struct weir__rule *b);

/* An entry of a log, a slot of a window (stamp: its last), or a lease (stamp: its expiry). */
struct weir__cell {
    int64_t stamp;
    union {
        int64_t count;  /* log and window: >= 1 */
        uint64_t lease; /* concurrent: id << WEIR__LEASE_SHIFT | slots held */
    };
} __attribute__((packed)); /* may lie at any address: Redis strings are not aligned */
_Static_assert(sizeof(struct weir__cell) == 16, "stores count on it");

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
    bool present; /* something is stored */
    int64_t at; /* newest time: ticks (buckets), µs, window number (sliding counter), next free */
    int64_t amount; /* debt, count, or the current window's */
    int64_t before; /* sliding counter: the previous window's */
    double stored;  /* smooth, warmup: permits */
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

/* A correction of the charge c0 made at t0. */
struct weir__correction {
    int64_t now_us, charged_at_us, charged, actual;
    uint64_t
        id; /* of the receipt; 0: it has none, and nobody can tell whether it was settled before */
};

/* How long settled receipts are remembered at most. */
#define WEIR__SETTLED_US INT64_C(3600000000)

struct weir__algorithm {
    const char *name; /* as in the limit language */
    bool shapes;      /* answers with delays, waits by default */
    bool waits;       /* heeds wait at all */
    bool large;       /* state is a ring */
    bool leases;      /* has acquire, renew, release */
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
};

extern const struct weir__algorithm weir__algorithms[WEIR__KINDS];

static inline const struct weir__algorithm *weir__algorithm_of(const struct weir__rule *rule)
{
    return &weir__algorithms[rule->kind];
}

/* The most cells a state under this rule can need (large ones only). */
int64_t weir__rule_cells(const struct weir__rule *rule);

/* The caller's wait (WEIR_WAIT_DEFAULT, WEIR_WAIT_ANY or µs) as this rule takes it. */
static inline int64_t weir__wait_for(const struct weir__rule *rule, int64_t wait_us)
{
    if (wait_us == WEIR_WAIT_DEFAULT)
        wait_us = weir__algorithm_of(rule)->shapes ? WEIR_WAIT_ANY : 0;
    if (wait_us > WEIR_DURATION_MAX && !weir__algorithm_of(rule)->shapes)
        wait_us = WEIR_DURATION_MAX;
    return wait_us;
}

/* Whether a state read from untrusted memory is within the bounds that all formulas rely on. */
bool weir__state_sound(const struct weir__rule *rule, const struct weir__state *state);

/* Whether a stored state is as good as absent: back to fresh under its rule, or nonsense. */
bool weir__is_fresh(const struct weir__rule *rule, const struct weir__state *state, int64_t now_us);

/* load, with two rules of every store before it: a state whose newest time lies beyond the horizon
 * is absent, and so is one that had come back to fresh under the rule it was written under (NULL: the
 * caller has seen to that). */
void weir__load(const struct weir__rule *rule, const struct weir__rule *written_under,
                struct weir__state *state, int64_t now_us);

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
