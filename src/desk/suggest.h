/*
 * Which limit should I set? From a log and a goal to two or three limits of different kinds.
 *
 *     whole log ──► first part ──► first part … ──► second part
 *     suggest.c     search.c: limits are tried     suggest.c: the chosen ones are judged
 *     peaks.c       choose.c: the best are chosen  goal.c: whether that is enough
 *
 * The log is read several times: once to know its span and its keys, a few times the first half of
 * its time to choose, and once the rest to judge what was chosen. What is judged was never looked
 * at while choosing. So the figures say what to expect of traffic that nobody has seen.
 *
 * What holds: sizes of limits are round numbers, and each was tried itself. A limit is only chosen
 * if it kept the goal in the first part. Keys never get into texts that are to be pasted. A key
 * that is to be spared is left out of a limit only if that limit denies it.
 */
#ifndef WEIR_DESK_SUGGEST_H
#define WEIR_DESK_SUGGEST_H

#include "desk/engine.h"

#define DESK_SUGGESTIONS 3
#define DESK_PERCENTILES 5
#define DESK_MILLION INT64_C(1000000)

extern const double desk_percentiles[DESK_PERCENTILES]; /* 0.5 … 1 */

/* ---- what is asked for ---- */

struct desk_goal {
    int64_t keys;       /* millionths of the keys that may be denied; -1: nobody asked */
    int64_t requests;   /* millionths of the requests; -1: nobody asked */
    int64_t protect;    /* requests that may go ahead in a period, all keys together; 0: any */
    int64_t protect_us; /* a second or a minute */
    bool usual;         /* nothing was asked for: desk_suggest chose the goal */
    int64_t least;      /* of the usual goal: so many keys may be denied, however few there are */
};

struct desk_pass;

struct desk_suggest_options {
    struct desk_goal goal;
    const char *const *spare; /* keys or networks that no limit may deny */
    size_t spare_count;
    bool selects;    /* the log is filtered: a word of spare may be of others */
    bool can_exempt; /* keys that are spared can be left out of a limit by what is pasted */
    int64_t memory;
    void *context;
    /* Reads the log once and hands every arrival to desk_pass_take. 0 or a WEIR_E…. */
    int (*read)(void *context, struct desk_pass *pass, weir_error *err);
};

/* ---- what comes out ---- */

enum desk_verdict {
    DESK_SUGGESTED,
    DESK_NO_LIMIT,  /* none was found that keeps the goal */
    DESK_TOO_SHORT, /* the log says too little about this goal */
};

/* What a limit did in a part of the log. */
struct desk_outcome {
    int64_t denied, keys_denied;
    int64_t stopped_denied, keys_stopped; /* of keys that lost at least half of their requests */
    int64_t spared_denied;                /* requests of keys that are to be spared */
    int64_t highest;  /* requests that went ahead in a period of goal.protect_us */
    double part_high; /* the part of the requests that is denied is likely below this */
    bool seen;
};

struct desk_part {
    int64_t from_us, to_us; /* without to_us */
    int64_t requests, keys;
    int64_t spared; /* requests of keys that are to be spared */
};

/* A part of all, and what it may be: with a chance of 95 % it is within these. */
struct desk_share {
    double part, low, high; /* 0 … 1 */
};

enum desk_kind { DESK_KIND_BUCKET, DESK_KIND_WINDOW, DESK_KIND_BOTH, DESK_KIND_QUEUE };

struct desk_suggestion {
    enum desk_kind kind;
    weir_limit *limit;
    bool total;                  /* one state for all keys together */
    bool exempt;                 /* keys to be spared are left out of it: it would deny them */
    int64_t would_deny;          /* then: of their requests in the first part */
    bool roomy;                  /* half of it would not have denied more keys */
    struct desk_outcome chosen;  /* in the first part */
    struct desk_outcome outcome; /* in the second part */
    struct desk_share keys, requests;
    bool meets; /* the goal, in the second part */
};

struct desk_suggest {
    struct desk_suggest_options options;
    struct desk_goal goal; /* the one that is used */
    enum desk_verdict verdict;
    char reason[256], advice[384]; /* of a verdict that is not DESK_SUGGESTED */
    struct desk_engine *whole;     /* of the whole log: peaks, no candidate */
    struct desk_engine *judged;    /* of the second part: a candidate for each suggestion */
    struct desk_candidate candidates[DESK_SUGGESTIONS];
    struct desk_suggestion suggestions[DESK_SUGGESTIONS];
    size_t count;
    struct desk_part parts[2];
    int64_t peaks[DESK_PEAKS][DESK_PERCENTILES];
    size_t peak_count; /* spans that the log is long enough for */
    size_t unmatched;  /* 1 + which of options.spare no key is like; WEIR_EINVAL unless `selects` */
    int passes;        /* that were made */
    bool lossy;        /* keys were forgotten while choosing or judging */
};

/* *ret is set also on errors, and freed by desk_suggest_free. 0 or a WEIR_E…. */
int desk_suggest(const struct desk_suggest_options *options, struct desk_suggest **ret,
                 weir_error *err);
void desk_suggest_free(struct desk_suggest *suggest);

/* The name of a kind: "token-bucket". */
const char *desk_kind_name(enum desk_kind kind);

/* ---- one pass ---- */

struct desk_pass {
    const struct desk_suggest *suggest;
    struct desk_engine *engine;
    int64_t from_us, to_us; /* without to_us */
    int number;             /* from 1 */
};

int desk_pass_take(const struct desk_pass *pass, const struct desk_arrival *arrival);

/* ---- parts of it ---- */

/* search.c: limits that were tried, by kind and size. */

#define DESK_NICE 60 /* round numbers: 1, 2, 3, 5, 10, 15, 20, 30, 50 … 10^12 */
extern const int64_t desk_nice[DESK_NICE];
/* The place of the first round number that is at least this; the last one for anything above. */
int desk_nice_up(int64_t number);

#define DESK_ROWS_MAX 32

/* Limits that differ only in their size: bursts of a rate, or counts of a period. */
struct desk_row {
    enum desk_kind kind; /* a bucket or a window */
    int64_t rate;        /* of buckets: tokens in a period */
    int64_t period_us;
    int first, last; /* sizes: places in desk_nice */
    int lo, hi;      /* up to lo none keeps the goal, from hi on all do */
    bool dropped;
    struct desk_outcome outcomes[DESK_NICE];
};

struct desk_search {
    struct desk_suggest *suggest;
    bool exempt; /* keys that are to be spared are left out */
    struct desk_row rows[DESK_ROWS_MAX];
    size_t row_count;
    struct desk_part part; /* the first one, as it was read */
};

/* The text of a limit. */
void desk_row_put(struct weir__buffer *buffer, const struct desk_row *row, int size);
/* Tries limits on the first part until the edge of the goal is known in every row. */
int desk_search_run(struct desk_search *search, weir_error *err);
/* Tries these limits in one pass; outcomes go to rets. */
int desk_search_try(struct desk_search *search, const struct desk_candidate *candidates,
                    size_t count, struct desk_outcome *rets, weir_error *err);
/* Whether an outcome denies few enough in the first part, with some room. */
bool desk_search_keeps(const struct desk_search *search, const struct desk_outcome *outcome);

/* choose.c: the suggestions, from what was tried. `other`: the same with the spared keys left out;
 * may be NULL. */
int desk_choose(struct desk_search *search, struct desk_search *other, weir_error *err);
/* Puts judged suggestions in order: first those that meet the goal and stop at least half of what
 * any of these stops, then others that meet it, then those that miss it. Of each, the gentlest
 * first: the one that denies the fewest keys. True: the order has changed. */
bool desk_choose_order(struct desk_suggest *suggest);

/* goal.c */
/* How many of so many keys may be denied. */
int64_t desk_goal_keys(const struct desk_goal *goal, int64_t keys);
/* Whether a part says enough about the goal, which is chosen now if nobody asked for one. False:
 * the verdict is given. */
bool desk_goal_is_clear(struct desk_suggest *suggest, size_t part);
/* A verdict that is not DESK_SUGGESTED, and why. Returns false. */
bool desk_goal_give_up(struct desk_suggest *suggest, enum desk_verdict verdict, const char *format,
                       ...) __attribute__((format(printf, 3, 4)));
void desk_goal_advise(struct desk_suggest *suggest, const char *text);
/* The verdict on what was judged. */
void desk_goal_conclude(struct desk_suggest *suggest);
/* The key that makes at least this part of all requests, unless it is spared or the only one; NULL:
 * none does. */
const struct desk_key *desk_goal_heavy_key(const struct desk_suggest *suggest, double part);

/* suggest.c */
/* Bytes for an engine that tries or judges. */
int64_t desk_suggest_memory(const struct desk_suggest *suggest);
int desk_suggest_engine(const struct desk_suggest *suggest, const struct desk_candidate *candidates,
                        size_t count, struct desk_engine **ret, weir_error *err);
/* How many requests and keys there were. */
void desk_part_read(struct desk_part *part, const struct desk_engine *engine);
int desk_suggest_pass(struct desk_suggest *suggest, const struct desk_part *part,
                      struct desk_engine *engine, weir_error *err);
void desk_outcome_read(const struct desk_suggest *suggest, const struct desk_engine *engine,
                       size_t candidate, struct desk_outcome *ret);

/* peaks.c */
int desk_peaks_read(struct desk_suggest *suggest);
/* Wilson's interval; z 1.96: 95 %. */
struct desk_share desk_share_of(int64_t part, int64_t all, double z);
/* An interval for the part of the requests that a candidate denied. Requests of one time are alike,
 * so it is made of ten blocks of time. */
struct desk_share desk_share_of_time(const struct desk_engine *engine, size_t candidate);

#endif
