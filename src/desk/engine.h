/*
 * The engine of the desk: arrivals in, figures out. It decides every arrival under several
 * candidate limits at once and adds up what they did:
 *
 *     arrival ──► its key ──► decisions ──► tallies
 *                 keys.c      judge.c       tally.c
 *
 * The core decides, in the order that core/core.h asks for, so a candidate answers what a store
 * answers. All that the engine knows about a key lies in one entry: how often it came, and for each
 * candidate its state and its denials. So an arrival costs about one cache miss, however many
 * candidates there are.
 *
 * What holds: memory is bounded by options->memory. Beyond the bound keys are forgotten, first
 * those that make no difference: nobody denied them and their states are fresh. `lossy` counts the
 * others: while it is 0, every decision and every count of requests is exact. The same arrivals
 * give the same figures.
 */
#ifndef WEIR_DESK_ENGINE_H
#define WEIR_DESK_ENGINE_H

#include "desk/desk.h"
#include "limit/limit.h"

#define DESK_CANDIDATES_MAX 64
#define DESK_BINS 480
#define DESK_PARTS_MAX 64 /* what denied: limits of a list, or limits of policies */
#define DESK_MEMORY_LEAST (INT64_C(1) << 20)
#define DESK_MEMORY_USUAL (INT64_C(1) << 30)
#define DESK_TEXT_MAX 248 /* bytes of a key that are kept; longer ones are shortened */
#define DESK_SPANS 3      /* of highest rates: 1 s, 10 s, 1 min */
#define DESK_PEAKS 4      /* of keys: 1 s, 1 min, 1 h, 1 day */

extern const int64_t desk_span_us[DESK_SPANS];
extern const int64_t desk_peak_us[DESK_PEAKS];

struct desk_candidate {
    const char *name;
    const weir_limit *limit; /* NULL: somebody else decides, see desk_engine_note */
    bool total;              /* one state for all keys together */
    bool spares;             /* keys that are spared are left out: not limited */
};

struct desk_engine_options {
    const struct desk_candidate *candidates; /* they live as long as the engine */
    size_t count;                            /* 1 … DESK_CANDIDATES_MAX */
    int64_t wait_us;                         /* WEIR_WAIT_DEFAULT, WEIR_WAIT_ANY or µs */
    int64_t memory;                          /* bytes; 0: DESK_MEMORY_USUAL */
    bool peaks;                              /* of each key, by cost */
    const char *const *spare;                /* keys or networks; they live as long as the engine */
    size_t spare_count;
    bool notes;                        /* each key has a number for desk_key_noted */
    const struct desk_engine *answers; /* who is a suspect: suspects.c; NULL: nobody */
};

/* ---- what is known of a key ---- */

struct desk_peak {
    int64_t bin; /* its number since 1970 */
    int64_t sum, peak;
};

/* What one candidate did to a key. */
struct desk_mark {
    int64_t since_us; /* 1 + the first denial after the last admission; 0: it is not locked out */
    uint32_t denied, delayed;
};

struct desk_key {
    uint64_t hash[2];
    int64_t requests, cost; /* of requests 0: the entry is free */
    int64_t last_us;
    uint32_t text; /* its place, in units of 8 bytes */
    uint8_t text_len, text_room;
    bool text_cut : 1;
    bool spared : 1;
    bool suspect : 1; /* nearly every answer refused it: desk_engine_options.answers */
    /* Then struct desk_peak of DESK_PEAKS if they are wanted, the number of desk_key_noted if it
     * is wanted, a mark for each candidate, and the states. */
};

/* ---- what a candidate did ---- */

struct desk_bin {
    int64_t allowed, denied, delayed;  /* the delayed are allowed, too */
    int64_t suspects, suspects_denied; /* of them those of suspects */
};

#define DESK_DELAY_STEPS 16 /* of a power of two: delays are known to 6 % */
#define DESK_DELAY_BUCKETS (48 * DESK_DELAY_STEPS)
#define DESK_AHEAD_SECONDS 4096 /* how far ahead delayed requests are told apart */

struct desk_rates {
    int64_t second;                     /* the newest that has begun */
    uint32_t ahead[DESK_AHEAD_SECONDS]; /* admitted, by when they go ahead */
    int64_t sums[DESK_SPANS], highest[DESK_SPANS];
    bool started;
};

struct desk_tally {
    int64_t allowed, denied, delayed;
    int64_t cost_allowed, cost_denied; /* saturating */
    int64_t keys_denied, keys_delayed; /* keys that were denied at least once; delayed */
    /* Of keys, complete once desk_engine_end was called. A key is stopped if it lost at least half
     * of its requests: of the others that were denied, a limit takes only a little. */
    int64_t requests_of_denied;                /* all requests of the keys that were denied */
    int64_t keys_stopped, stopped_denied;      /* and what these were denied */
    int64_t spared_denied;                     /* requests of keys that are spared */
    int64_t suspects_denied, suspects_stopped; /* of suspects; and of those that were stopped */
    int64_t suspect_keys_denied;
    int64_t spared_would_deny; /* of keys that it leaves out: what it would deny them otherwise */
    int64_t longest_delay_us, longest_locked_us;
    uint64_t locked_hash[2]; /* of the key that was locked out longest */
    int64_t denied_by[DESK_PARTS_MAX];
    struct desk_bin *bins; /* of the timeline */
    uint32_t *delays;      /* a histogram; NULL: nothing was delayed */
    struct desk_rates *rates;
    /* States that are in use at once: those of this window of the limit and the one before. */
    int64_t window_from_us, window_us, window_states[2], states_peak;
    int64_t memory; /* bytes that a zone needs for the peak, about; by desk_engine_end */
};

/* ---- the timeline: bins that become wider as time passes ---- */

struct desk_timeline {
    int64_t start_us, width_us; /* start is a multiple of width */
    size_t count;               /* bins in use; 0: nothing has come */
    size_t step;                /* which width */
};

/* ---- the engine ---- */

struct desk_engine {
    struct desk_engine_options options;
    size_t count;
    struct desk_tally tallies[DESK_CANDIDATES_MAX];
    struct desk_timeline timeline;
    int64_t bin_from_us, bin_to_us; /* of the bin that was used last */
    size_t bin;
    int64_t requests, cost; /* cost saturates */
    int64_t first_us, last_us;
    int64_t now_us; /* of the newest arrival */
    /* spare.c */
    struct desk_spared *spared; /* one for each of options.spare */
    int64_t spared_keys,
        spared_requests; /* a key that was forgotten and comes again counts again */
    int64_t suspect_keys, suspect_requests;   /* likewise */
    int64_t suspects_from_us, suspects_to_us; /* the first and the last of these */
    /* keys.c */
    size_t stride;                        /* bytes of an entry */
    size_t notes_at, marks_at, states_at; /* in an entry */
    size_t state_at[DESK_CANDIDATES_MAX];
    struct desk_key *all; /* the states of candidates that are total; not a key by itself */
    uint64_t *index;      /* open addressing: 32 bits of the hash, entry + 1 */
    size_t index_size;    /* a power of two */
    char **chunks;        /* of entries */
    size_t chunk_entries, chunk_count, chunk_room;
    char **texts;
    size_t text_chunks, text_room, text_used; /* used: of the last chunk */
    size_t keys, entries;                     /* keys that are known; entries that were made */
    size_t hand;                              /* where the search for keys to forget goes on */
    int64_t used;                             /* bytes of all of it */
    int64_t forgotten, lossy;                 /* keys; of them those that made a difference */
    uint8_t *registers;                       /* count distinct keys once some are forgotten */
};

int desk_engine_make(const struct desk_engine_options *options, struct desk_engine **ret,
                     weir_error *err);
void desk_engine_free(struct desk_engine *engine);

/* Decides under every candidate that has a limit. rets (may be NULL) has room for the count, and
 * gets whole decisions. 0 or WEIR_ENOMEM. */
int desk_engine_take(struct desk_engine *engine, const struct desk_arrival *arrival,
                     weir_decision *rets);
/* Adds up what was decided elsewhere, one decision for each candidate: limits of the same request.
 * Their `binding` is which part bound. */
int desk_engine_note(struct desk_engine *engine, const struct desk_arrival *arrival,
                     const weir_decision *decisions);
/* Nothing more comes: completes the figures. */
void desk_engine_end(struct desk_engine *engine);

/* Asks for memory ahead: first the one, a few arrivals later the other. */
void desk_engine_expect(const struct desk_engine *engine, const uint64_t hash[2]);
void desk_engine_expect_key(const struct desk_engine *engine, const uint64_t hash[2]);

/* ---- reading the figures ---- */

/* Entry i, below engine->entries; NULL: it is free. */
const struct desk_key *desk_engine_key(const struct desk_engine *engine, size_t i);
struct weir__span desk_key_text(const struct desk_engine *engine, const struct desk_key *key);
const struct desk_mark *desk_key_mark(const struct desk_engine *engine, const struct desk_key *key,
                                      size_t candidate);
/* NULL unless they were wanted. */
const struct desk_peak *desk_key_peaks(const struct desk_engine *engine,
                                       const struct desk_key *key);
/* A key by its hash; NULL: it is not known. */
const struct desk_key *desk_engine_find(const struct desk_engine *engine, const uint64_t hash[2]);
/* Distinct keys; *ret_about: some were forgotten, so it is an estimate. */
int64_t desk_engine_distinct(const struct desk_engine *engine, bool *ret_about);
/* Whether figures may be off because keys were forgotten. */
static inline bool desk_engine_is_lossy(const struct desk_engine *engine)
{
    return engine->lossy > 0;
}

/* The first of options.spare that no key is like; their count: there is none. */
size_t desk_engine_unmatched(const struct desk_engine *engine);

/* The keys that a candidate denied most, most first; of equals by their texts. How many. */
size_t desk_engine_most_denied(const struct desk_engine *engine, size_t candidate,
                               const struct desk_key **ret, size_t n);
/* Likewise, without suspects. */
size_t desk_engine_most_hurt(const struct desk_engine *engine, size_t candidate,
                             const struct desk_key **ret, size_t n);
/* The keys that it delayed most. */
size_t desk_engine_most_delayed(const struct desk_engine *engine, size_t candidate,
                                const struct desk_key **ret, size_t n);
/* The keys of which most was noted. */
size_t desk_engine_most_noted(const struct desk_engine *engine, const struct desk_key **ret,
                              size_t n);
/* The keys with most requests. */
size_t desk_engine_heaviest(const struct desk_engine *engine, const struct desk_key **ret,
                            size_t n);
/* The keys that asked for most in one of the spans desk_peak_us, without suspects; only if peaks
 * were wanted. */
size_t desk_engine_busiest(const struct desk_engine *engine, size_t peak,
                           const struct desk_key **ret, size_t n);
/* Those of desk_engine_heaviest that are spared. */
size_t desk_engine_spared(const struct desk_engine *engine, const struct desk_key **ret, size_t n);

/* Keys by how many requests they have: 1, 2 … 9, 10 … 99, 100 … 999 and so on. */
#define DESK_CLASSES 12
struct desk_spread {
    int64_t keys[DESK_CLASSES], requests[DESK_CLASSES];
    size_t classes;                 /* that have keys: up to the last of them */
    int64_t median, p90, p99, most; /* requests of a key; known to 6 % above 16 */
};
void desk_engine_spread(const struct desk_engine *engine, struct desk_spread *ret);

/* The delay that this part (0 … 1) of the delayed requests do not exceed. */
int64_t desk_tally_delay_us(const struct desk_tally *tally, double part);

/* ---- parts of it ---- */

/* keys.c: finds or makes the entry; NULL: no memory. */
struct desk_key *desk_keys_get(struct desk_engine *engine, const struct desk_arrival *arrival);
int desk_keys_make(struct desk_engine *engine);
void desk_keys_free(struct desk_engine *engine);
/* More memory for a state; the bound is kept by forgetting keys other than `keep`. */
void *desk_keys_grow(struct desk_engine *engine, void *old, size_t old_size, size_t size,
                     const struct desk_key *keep);

/* spare.c */
int desk_spare_make(struct desk_engine *engine);
void desk_spare_free(struct desk_engine *engine);
/* Whether a key is spared; it remembers which word it is like. */
bool desk_spare_has(struct desk_engine *engine, struct weir__span key);

/* suspects.c */
/* Whether an engine whose answers were noted says that a key is a suspect. */
bool desk_suspects_has(const struct desk_engine *answers, const uint64_t hash[2]);

/* judge.c */
void desk_judge_layout(struct desk_engine *engine);
int desk_judge(struct desk_engine *engine, size_t candidate, struct desk_key *key,
               const struct desk_arrival *arrival, bool whole, weir_decision *ret);
/* Whether forgetting the states of a key changes nothing. */
bool desk_judge_is_fresh(const struct desk_engine *engine, const struct desk_key *key);
void desk_judge_drop(struct desk_engine *engine, struct desk_key *key);

/* tally.c */
int desk_tally_make(struct desk_engine *engine, size_t candidate);
void desk_tally_free(struct desk_tally *tally);
int desk_tally_arrival(struct desk_engine *engine, struct desk_key *key,
                       const struct desk_arrival *arrival);
int desk_tally_add(struct desk_engine *engine, size_t candidate, struct desk_key *key,
                   const struct desk_arrival *arrival, const weir_decision *decision);
void desk_tally_state(struct desk_tally *tally, int64_t now_us, int64_t newest_us);
/* A key is forgotten: what it adds to sums that are made at the end. */
void desk_tally_forget(struct desk_engine *engine, const struct desk_key *key);
void desk_tally_end(struct desk_engine *engine, size_t candidate);

static inline struct desk_mark *desk_marks(const struct desk_engine *engine, struct desk_key *key)
{
    return (struct desk_mark *)((char *)key + engine->marks_at);
}

/* What whoever made the engine counts of a key: answers that did not refuse it (suspects.c), or
 * requests that limits in shadow would deny (weir replay). */
static inline int64_t *desk_key_noted(const struct desk_engine *engine, const struct desk_key *key)
{
    return (int64_t *)((char *)key + engine->notes_at);
}

static inline void desk_add_saturating(int64_t *sum, int64_t amount)
{
    if (WEIR__UNLIKELY(__builtin_add_overflow(*sum, amount, sum)))
        *sum = INT64_MAX;
}

/* The bucket of a number: exact below 16, then 16 for each power of two. */
static inline size_t desk_bucket_of(int64_t number)
{
    if (number < DESK_DELAY_STEPS)
        return (size_t)number;
    int power = 63 - __builtin_clzll((unsigned long long)number);
    size_t bucket = (size_t)(power - 3) * DESK_DELAY_STEPS +
                    (size_t)(number >> (power - 4) & (DESK_DELAY_STEPS - 1));
    return bucket < DESK_DELAY_BUCKETS ? bucket : DESK_DELAY_BUCKETS - 1;
}

/* The largest number of a bucket. */
static inline int64_t desk_bucket_top(size_t bucket)
{
    if (bucket < DESK_DELAY_STEPS)
        return (int64_t)bucket;
    int power = (int)(bucket / DESK_DELAY_STEPS) + 3;
    int64_t step = INT64_C(1) << (power - 4);
    return (INT64_C(1) << power) + (int64_t)(bucket % DESK_DELAY_STEPS + 1) * step - 1;
}

#endif
