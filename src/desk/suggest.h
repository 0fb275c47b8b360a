/*
 * Which limit should I set? From a log and a goal to two or three limits of different kinds.
 *
 *     whole log ──► first part ──► first part … ──► second part
 *     suggest.c     search.c: limits are tried     suggest.c: the chosen ones are judged
 *     peaks.c       choose.c: the best are chosen  goal.c: whether that is enough
 *     suspects.c                                   hurt.c: whom they deny besides suspects
 *     heavy.c                                      profile.c: a closer look at some keys
 *                                                  tight.c: if they do not stop suspects
 *
 * The log is read several times: once to know its span and its keys, a few times the first half of
 * its time to choose, and once the rest to judge what was chosen. What is judged was never looked
 * at while choosing. So the figures say what to expect of traffic that nobody has seen.
 *
 * What holds: sizes of limits are round numbers, and each was tried itself. A limit is only chosen
 * if it kept the goal in the first part. A key that is to be spared is left out of a limit only if
 * that limit denies it. Keys of the log get into texts that are to be pasted only if they are
 * addresses or plain words: heavy.c.
 */
#ifndef WEIR_DESK_SUGGEST_H
#define WEIR_DESK_SUGGEST_H

#include "desk/engine.h"

#define DESK_SUGGESTIONS 5
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
    bool by_status;  /* a filter on the status hides answers */
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
    int64_t others_denied, others_keys_denied; /* of keys that are no suspects: the goal's */
    int64_t suspects_denied, suspects_stopped;
    int64_t stopped_denied, keys_stopped; /* of keys that lost at least half of their requests */
    int64_t spared_denied;                /* requests of keys that are to be spared */
    int64_t highest;  /* requests that went ahead in a period of goal.protect_us */
    double part_high; /* the part of the others' requests that is denied is likely below this */
    bool seen;
};

struct desk_part {
    int64_t from_us, to_us; /* without to_us */
    int64_t requests, keys;
    int64_t spared; /* requests of keys that are to be spared */
    int64_t suspect_keys, suspect_requests;
    int64_t suspects_from_us, suspects_to_us; /* the first and the last of these requests */
};

/* What the goal is about: keys that are no suspects. */
static inline int64_t desk_part_keys(const struct desk_part *part)
{
    return part->keys - part->suspect_keys;
}

static inline int64_t desk_part_requests(const struct desk_part *part)
{
    return part->requests - part->suspect_requests;
}

/* A part of all, and what it may be: with a chance of 95 % it is within these. */
struct desk_share {
    double part, low, high; /* 0 … 1 */
};

/* ---- keys that are looked at closely (profile.c) ---- */

#define DESK_HEAVY_TEXT 64 /* bytes, with the 0 */
#define DESK_AGENTS 8      /* that are told apart */
#define DESK_REFUSALS 3    /* statuses: 401, 403, 429 */

extern const int desk_refusals[DESK_REFUSALS];
/* What must be carried for desk_profile_note and desk_asked_note. */
extern const char *const desk_profile_carried[4];

struct desk_agent {
    char text[DESK_HEAVY_TEXT]; /* its beginning */
    bool cut;
    int64_t requests;
};

/* The text that most requests have: each request votes for its own, and against the one that leads.
 * If nearly all have one text, it leads nearly from the beginning. */
struct desk_vote {
    char text[DESK_HEAVY_TEXT];
    int64_t requests; /* at least so many have it */
    int64_t votes;    /* of requests that were seen */
};

/* What several keys asked for, and the busiest minute of the clock. */
struct desk_asked {
    struct desk_vote path, method;
    int64_t requests;
    int64_t minute, all, others;   /* requests in the last minute: of all keys, of all others */
    int64_t all_most, others_most; /* in any minute */
};

/* What the whole log says about a key. */
struct desk_profile {
    uint64_t hash[2];
    int64_t requests, answers, good; /* answers: lines with a status; good ones are below 400 */
    int64_t refused[DESK_REFUSALS];
    struct desk_agent agents[DESK_AGENTS];
    size_t agent_count;
    bool more_agents;
    struct desk_vote path;    /* if nearly all its requests have one path: that one */
    int64_t middle_us, early; /* when the second part begins; its requests before that */
};

/* Whether most of its answers are good. */
bool desk_profile_is_served(const struct desk_profile *profile);
/* Whether it asks in both parts, and most of its answers are good: it was there before, and served.
 * Of a key that only comes in one part nobody knows what it is. */
bool desk_profile_is_good(const struct desk_profile *profile);
/* Counts an arrival of the whole log, if it is of this key. */
void desk_profile_note(struct desk_profile *profile, const struct desk_arrival *arrival);
void desk_asked_note(struct desk_asked *asked, const struct desk_arrival *arrival);

#define DESK_HURT 8 /* of each suggestion */

/* A key that a suggestion denies though it is no suspect (hurt.c), in the whole log. */
struct desk_hurt {
    struct desk_profile profile;
    int64_t requests, denied;
};

enum desk_kind { DESK_KIND_BUCKET, DESK_KIND_WINDOW, DESK_KIND_BOTH, DESK_KIND_QUEUE };

struct desk_suggestion {
    enum desk_kind kind;
    weir_limit *limit;
    bool total;                  /* one state for all keys together */
    bool exempt;                 /* keys to be spared are left out of it: it would deny them */
    bool strict;                 /* it suits all others than the keys that are left out */
    bool heavy;                  /* strict, and these are the heavy ones, not those to be spared */
    bool first_or_none;          /* a strict one that others equal, unless they stop a friend */
    bool gentle;                 /* denied nobody in the first part: desk_choose_gentle */
    int64_t would_deny;          /* then: of their requests in the first part */
    bool roomy;                  /* half of it would not have denied more keys */
    struct desk_outcome chosen;  /* in the first part */
    struct desk_outcome outcome; /* in the second part */
    struct desk_share keys, requests;
    double others_part; /* of the requests of keys that are no suspects */
    bool meets;         /* the goal, in the second part */
    bool stops_friend;  /* in the whole log: desk_heavy_stops_friend */
    struct desk_hurt hurt[DESK_HURT];
    size_t hurt_count;
    int64_t hurt_keys; /* all that there are */
    int64_t denied;    /* in the whole log */
    double good_part;  /* of these requests, at least: those of good keys */
    bool denies_good;  /* that is most of them */
    bool hurts_people; /* and it is not one key that may be a program */
};

/* ---- heavy keys (heavy.c): a few that ask for far more than all others ---- */

#define DESK_HEAVY 5

struct desk_heavy_key {
    char text[DESK_HEAVY_TEXT];
    struct desk_profile profile;
    int64_t would_deny; /* what the strict limit would deny it */
};

struct desk_heavy {
    struct desk_heavy_key keys[DESK_HEAVY];
    const char *texts[DESK_HEAVY]; /* of the keys */
    size_t count;
};

/* ---- suspects (suspects.c): keys that are nearly always refused; no goal protects them ---- */

#define DESK_SUSPECT_LEAST 5 /* requests: with fewer it may be a mistyped password */

extern const char *const desk_suspects_carried[1];

struct desk_suspects {
    struct desk_engine *hidden;        /* of a log with a filter on the status: all answers */
    const struct desk_engine *answers; /* says who is one; NULL: nobody is */
    int64_t keys;                      /* suspects of the whole log */
    bool some_unrefused;               /* one of them had an answer that did not refuse it */
    bool forgotten;                    /* too many keys for the memory, so nobody is one */
    bool slow;               /* they are many, and no suggestion that meets the goal stops them */
    struct desk_asked asked; /* then: what they asked for */
};

/* ---- a window that would stop suspects that no suggestion stops (tight.c) ---- */

struct desk_tight {
    weir_limit *limit; /* NULL: there is none, or it is not needed */
    bool exempt;       /* it leaves out the keys to be spared, or the heavy ones */
    int64_t suspects_denied, others_denied, others_keys_denied; /* in the whole log */
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
    struct desk_suggestion gentle; /* for the case that all others hurt people; may have no limit */
    struct desk_part parts[2];
    int64_t peaks[DESK_PEAKS][DESK_PERCENTILES];
    size_t peak_count; /* spans that the log is long enough for */
    struct desk_heavy heavy;
    struct desk_suspects suspects;
    struct desk_tight tight;
    size_t unmatched; /* 1 + which of options.spare no key is like; WEIR_EINVAL unless `selects` */
    int passes;       /* that were made */
    bool lossy;       /* keys were forgotten while choosing or judging */
};

/* *ret is set also on errors, and freed by desk_suggest_free. 0 or a WEIR_E…. */
int desk_suggest(const struct desk_suggest_options *options, struct desk_suggest **ret,
                 weir_error *err);
void desk_suggest_free(struct desk_suggest *suggest);

/* The name of a suggestion: "bucket", "window", "strict", "gentle". */
const char *desk_suggestion_name(const struct desk_suggestion *it);

/* ---- one pass ---- */

struct desk_pass {
    const struct desk_suggest *suggest;
    struct desk_engine *engine;           /* NULL: only profiles are made */
    int64_t from_us, to_us;               /* without to_us */
    int number;                           /* from 1 */
    struct desk_profile *const *profiles; /* keys to look at closely */
    size_t profile_count;
    struct desk_asked *asked; /* what suspects ask for; NULL: it is not noted */
    bool answers;             /* good answers are noted */
    bool every_status;        /* without the filter on the status */
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
    bool exempt; /* keys that are to be spared are left out, or the heavy ones */
    bool strict; /* only windows are tried */
    bool looks;  /* the next pass also finds the heavy keys */
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
/* Keeps one in suggest->gentle that denied nobody in the first part. */
int desk_choose_gentle(const struct desk_search *search, weir_error *err);
/* Adds it, if all others hurt people; the one without heavy keys does not count, because it is only
 * for those who leave these out. True: it was added. */
bool desk_choose_add_gentle(struct desk_suggest *suggest);
/* Adds the strict window that leaves the heavy keys out, if it is far stricter than the one that
 * was chosen, or if there are suspects. *ret_added: it was added. */
int desk_choose_heavy(struct desk_search *search, bool *ret_added, weir_error *err);
/* Puts judged suggestions in order: first those that meet the goal and stop at least half of what
 * any of these stops, of all keys and of suspects, unless they mostly deny good keys. Then others
 * that meet it, then those that miss it. Of each, the gentlest first: the one that denies the
 * fewest keys. The one without heavy keys is the last, unless only it stops suspects without a
 * friend. True: the order has changed. */
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
/* The key that makes at least this part of all requests, unless it is spared or the only one, or a
 * suspect, which a goal in requests does not protect; NULL: none does. */
const struct desk_key *desk_goal_heavy_key(const struct desk_suggest *suggest, double part);

/* heavy.c */
/* Finds them in an engine of the first part that knows peaks. None: `heavy` is empty. */
void desk_heavy_find(struct desk_suggest *suggest, const struct desk_engine *engine);
/* Keeps those that a limit, which the engine tried on the whole log, would deny. */
void desk_heavy_keep_denied(struct desk_heavy *heavy, const struct desk_engine *engine,
                            size_t candidate);
/* Whether one stops a heavy key that is mostly answered well. */
bool desk_heavy_stops_friend(const struct desk_heavy *heavy, const struct desk_engine *engine,
                             size_t candidate);

/* suspects.c */
/* Notes whether an answer was good. 0 or WEIR_ENOMEM. */
int desk_suspects_note(struct desk_engine *engine, const struct desk_arrival *arrival);
/* Who is one, once the whole log was read. */
int desk_suspects_find(struct desk_suggest *suggest, weir_error *err);
/* Of suspects that no suggestion stops: what they asked for, and what would stop them. */
int desk_suspects_look(const struct desk_search searches[2], weir_error *err);
/* Notes an arrival of the whole log, and what it asked for if it is of a suspect. */
void desk_suspects_ask(const struct desk_pass *pass, const struct desk_arrival *arrival);

/* tight.c: a window that stops suspects and keeps the goal in both parts, if there is one. */
int desk_tight_find(const struct desk_search searches[2], weir_error *err);

/* Whether it leaves out the heavy keys. */
static inline bool desk_tight_is_heavy(const struct desk_suggest *suggest)
{
    return suggest->tight.exempt && suggest->options.spare_count == 0;
}

/* hurt.c: whom the suggestions deny that is no suspect, in the whole log. */
int desk_hurt_find(struct desk_suggest *suggest, weir_error *err);

/* suggest.c */
/* Reads a part once more. */
int desk_suggest_read(struct desk_suggest *suggest, const struct desk_part *part,
                      struct desk_pass pass, weir_error *err);
/* So many quarters of the memory. */
int64_t desk_suggest_quarters(const struct desk_suggest *suggest, int quarters);
/* Bytes for an engine that tries or judges. */
int64_t desk_suggest_memory(const struct desk_suggest *suggest);
int desk_suggest_engine(const struct desk_suggest *suggest, const struct desk_candidate *candidates,
                        size_t count, bool peaks, struct desk_engine **ret, weir_error *err);
/* How many requests and keys there were. */
void desk_part_read(const struct desk_suggest *suggest, struct desk_part *part,
                    const struct desk_engine *engine);
int desk_suggest_pass(struct desk_suggest *suggest, const struct desk_part *part,
                      struct desk_engine *engine, weir_error *err);
/* Whether what a candidate did in the second part, which was judged already, meets the goal. */
bool desk_suggest_meets(const struct desk_suggest *suggest, const struct desk_engine *engine,
                        size_t candidate, const struct desk_outcome *outcome);
void desk_outcome_read(const struct desk_suggest *suggest, const struct desk_engine *engine,
                       size_t candidate, struct desk_outcome *ret);

/* peaks.c */
int desk_peaks_read(struct desk_suggest *suggest);
/* Wilson's interval; z 1.96: 95 %. */
struct desk_share desk_share_of(int64_t part, int64_t all, double z);
/* An interval for the part of the requests that a candidate denied. Requests of one time are alike,
 * so it is made of ten blocks of time. `others`: without suspects. */
struct desk_share desk_share_of_time(const struct desk_engine *engine, size_t candidate,
                                     bool others);

#endif
