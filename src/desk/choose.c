/*
 * Choosing from the limits that were tried. Of those that keep the goal, one that denies nearly as
 * many requests as any, and as few keys as possible: more keys for little more effect are not worth
 * it. It then gets a little room, where that changes little.
 */
#include "desk/suggest.h"

#include <assert.h>
#include <inttypes.h>

#define NEARLY 0.9          /* of the most requests that are denied */
#define WORTH_DENYING 0.005 /* of all requests */
#define WORTH_GOAL 0.1      /* of the requests that the goal allows to deny */
#define WORTH_BOTH 1.05     /* as much as the better one alone */
#define WORTH_FIRST 0.5     /* of the most that any denies: what denies less does not come first */
#define PROTECT_ROOM 0.9    /* of what is protected, for limits of single keys */
#define BURST_STEPS 2       /* of room */
#define QUEUE_OF_PERIOD 2   /* a queue for all is as long as the half of a period */

struct choose_pick {
    const struct desk_row *row; /* NULL: none */
    int size;
};

static const struct desk_outcome *choose_outcome(struct choose_pick pick)
{
    return &pick.row->outcomes[pick.size];
}

static bool choose_is_open(const struct desk_search *search, const struct desk_row *row, int size)
{
    return !row->dropped && row->outcomes[size].seen &&
           desk_search_keeps(search, &row->outcomes[size]);
}

static int64_t choose_most_of(const struct desk_search *search, enum desk_kind kind)
{
    int64_t most = -1;
    for (size_t i = 0; i < search->row_count; i++) {
        const struct desk_row *row = &search->rows[i];
        for (int size = row->first; row->kind == kind && size <= row->last; size++) {
            if (choose_is_open(search, row, size))
                most = weir__max(most, row->outcomes[size].denied);
        }
    }
    return most;
}

int64_t desk_choose_most(const struct desk_search *search)
{
    return weir__max(choose_most_of(search, DESK_KIND_BUCKET),
                     choose_most_of(search, DESK_KIND_WINDOW));
}

/* What a key gets through in a minute, for a long time. */
static double choose_weight(struct choose_pick pick)
{
    double minutes = (double)pick.row->period_us / 60e6, size = (double)desk_nice[pick.size];
    return pick.row->kind == DESK_KIND_BUCKET ? (double)pick.row->rate / minutes + size
                                              : size / minutes;
}

/* Whether a is better than b, both of which deny enough. */
static bool choose_is_better(struct choose_pick a, struct choose_pick b)
{
    const struct desk_outcome *x = &a.row->outcomes[a.size], *y = &b.row->outcomes[b.size];

    if (x->keys_denied != y->keys_denied)
        return x->keys_denied < y->keys_denied;
    return choose_weight(a) < choose_weight(b);
}

/* The least that a limit must deny to be of use: nearly the most that any denies. If even that is
 * next to nothing, no key is worth being denied for it. */
static double choose_enough(const struct desk_search *search, enum desk_kind kind)
{
    const struct desk_goal *goal = &search->suggest->goal;
    double most = (double)choose_most_of(search, kind), all = (double)search->requests;
    double worth = goal->requests >= 0 ? WORTH_GOAL * (double)goal->requests / (double)DESK_MILLION
                                       : WORTH_DENYING;
    return most >= worth * all ? NEARLY * most : 0;
}

/* Whether a size has room above the first one that keeps the goal, because the busiest key of the
 * next part may be busier: two steps for a burst, which costs little, a small one for a window. */
static bool choose_has_room(struct choose_pick pick)
{
    int least = pick.row->hi;
    assert(least <= pick.size);
    if (pick.row->kind == DESK_KIND_BUCKET)
        return pick.size >= least + BURST_STEPS;
    bool large = desk_nice[least] >= 5 && desk_nice[least + 1] * 10 > desk_nice[least] * 17;
    return large || pick.size > least;
}

/* The best of a kind that denies enough; `room`: and has room. */
static struct choose_pick choose_best(const struct desk_search *search, enum desk_kind kind,
                                      double enough, bool room)
{
    struct choose_pick best = {NULL, 0};
    for (size_t i = 0; i < search->row_count; i++) {
        const struct desk_row *row = &search->rows[i];
        for (int size = row->hi; row->kind == kind && size <= row->last; size++) {
            struct choose_pick it = {row, size};
            if (choose_is_open(search, row, size) && (double)row->outcomes[size].denied >= enough &&
                (!room || choose_has_room(it)) && (!best.row || choose_is_better(it, best)))
                best = it;
        }
    }
    return best;
}

static struct choose_pick choose_pick(const struct desk_search *search, enum desk_kind kind)
{
    double enough = choose_enough(search, kind);
    struct choose_pick best = choose_best(search, kind, enough, true);
    return best.row ? best : choose_best(search, kind, enough, false);
}

/* ---- suggestions ---- */

static int choose_add(struct desk_suggest *suggest, enum desk_kind kind, const char *text,
                      bool total, const struct desk_outcome *outcome, weir_error *err)
{
    assert(suggest->count < DESK_SUGGESTIONS);
    struct desk_suggestion *it = &suggest->suggestions[suggest->count];
    *it = (struct desk_suggestion){.kind = kind, .total = total};
    if (outcome)
        it->chosen = *outcome;
    int code = weir_limit_parse(text, &it->limit, err);
    if (code == 0)
        suggest->count++;
    return code;
}

static int choose_add_pick(struct desk_suggest *suggest, struct choose_pick pick, weir_error *err)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (!pick.row)
        return 0;
    desk_row_put(&buffer, pick.row, pick.size);
    return choose_add(suggest, pick.row->kind, text, false, &pick.row->outcomes[pick.size], err);
}

/* One for all keys together may deny many keys, unless that was asked for. */
static bool choose_keeps(const struct desk_search *search, const struct desk_suggestion *it)
{
    const struct desk_goal *goal = &search->suggest->goal;
    bool asked = goal->keys >= 0 || goal->requests >= 0;
    bool few = it->total && !asked ? it->chosen.spared_denied == 0
                                   : desk_search_keeps(search, &it->chosen);
    return few && (goal->protect == 0 || it->chosen.highest <= goal->protect);
}

/* Tries those that were added from `from` on, and drops the ones that do not keep the goal. */
static int choose_try(struct desk_search *search, size_t from, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    struct desk_candidate candidates[DESK_SUGGESTIONS];
    struct desk_outcome outcomes[DESK_SUGGESTIONS];
    size_t count = suggest->count - from;
    for (size_t i = 0; i < count; i++) {
        const struct desk_suggestion *it = &suggest->suggestions[from + i];
        candidates[i] = (struct desk_candidate){"tried", it->limit, it->total};
    }
    int code = count > 0 ? desk_search_try(search, candidates, count, outcomes, err) : 0;
    if (code)
        return code;
    suggest->count = from;
    for (size_t i = 0; i < count; i++) {
        struct desk_suggestion it = suggest->suggestions[from + i];
        it.chosen = outcomes[i];
        bool good = choose_keeps(search, &it);
        if (it.kind == DESK_KIND_BOTH)
            good = good && it.chosen.denied > 0 &&
                   (double)it.chosen.denied >=
                       WORTH_BOTH * (double)weir__max(suggest->suggestions[0].chosen.denied,
                                                      suggest->suggestions[1].chosen.denied);
        suggest->suggestions[from + i].limit = NULL;
        if (good)
            suggest->suggestions[suggest->count++] = it;
        else
            weir_limit_free(it.limit);
    }
    return 0;
}

/* A bucket and a window together. */
static int choose_both(struct desk_search *search, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    char text[2 * WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (suggest->count != 2)
        return 0;
    weir__put_format(&buffer, "%s, %s", weir_limit_text(suggest->suggestions[0].limit),
                     weir_limit_text(suggest->suggestions[1].limit));
    int code = choose_add(suggest, DESK_KIND_BOTH, text, false, NULL, err);
    return code ? code : choose_try(search, 2, err);
}

/* Limits for all keys together: one that lets requests wait, one that denies. The goal counts
 * requests, so each costs 1 here, whatever it costs its key. */
static int choose_totals(struct desk_search *search, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    const struct desk_goal *goal = &suggest->goal;
    const char *unit = goal->protect_us == 1000000 ? "s" : "m";
    const char *cost = suggest->whole->cost == suggest->whole->requests ? "" : " cost 1";
    size_t from = suggest->count;
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "leaky-bucket %" PRId64 "/%s burst %" PRId64 "%s", goal->protect,
                     unit, goal->protect / QUEUE_OF_PERIOD, cost);
    int code = choose_add(suggest, DESK_KIND_QUEUE, text, true, NULL, err);
    buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%s %" PRId64 "/%s%s",
                     goal->protect <= 100000 ? "sliding-log" : "sliding-counter", goal->protect,
                     unit, cost);
    if (code == 0)
        code = choose_add(suggest, DESK_KIND_WINDOW, text, true, NULL, err);
    return code ? code : choose_try(search, from, err);
}

int desk_choose(struct desk_search *search, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    const double protect = PROTECT_ROOM * (double)suggest->goal.protect;
    struct choose_pick bucket = choose_pick(search, DESK_KIND_BUCKET);
    struct choose_pick window = choose_pick(search, DESK_KIND_WINDOW);
    if (suggest->goal.protect > 0) {
        if (bucket.row && (double)choose_outcome(bucket)->highest > protect)
            bucket.row = NULL;
        int code = choose_add_pick(suggest, bucket, err);
        return code ? code : choose_totals(search, err);
    }
    int code = choose_add_pick(suggest, bucket, err);
    if (code == 0)
        code = choose_add_pick(suggest, window, err);
    return code ? code : choose_both(search, err);
}

/* ---- their order ---- */

/* What comes first: 0, 1, 2. To protect something, meeting the goal is all that is asked for. */
static int choose_class(const struct desk_suggest *suggest, const struct desk_suggestion *it)
{
    int64_t most = 0;
    for (size_t i = 0; i < suggest->count; i++) {
        if (suggest->suggestions[i].meets)
            most = weir__max(most, suggest->suggestions[i].outcome.denied);
    }
    if (!it->meets)
        return 2;
    bool useful =
        suggest->goal.protect > 0 || (double)it->outcome.denied >= WORTH_FIRST * (double)most;
    return useful ? 0 : 1;
}

static bool choose_comes_first(const struct desk_suggest *suggest, const struct desk_suggestion *a,
                               const struct desk_suggestion *b)
{
    int x = choose_class(suggest, a), y = choose_class(suggest, b);
    return x != y ? x < y : a->outcome.keys_denied < b->outcome.keys_denied;
}

bool desk_choose_order(struct desk_suggest *suggest)
{
    bool changed = false;
    for (size_t i = 1; i < suggest->count; i++) {
        struct desk_suggestion *list = suggest->suggestions;
        for (size_t j = i; j > 0 && choose_comes_first(suggest, &list[j], &list[j - 1]); j--) {
            struct desk_suggestion it = list[j];
            list[j] = list[j - 1];
            list[j - 1] = it;
            changed = true;
        }
    }
    return changed;
}

const char *desk_kind_name(enum desk_kind kind)
{
    switch (kind) {
    case DESK_KIND_BUCKET:
        return "bucket";
    case DESK_KIND_WINDOW:
        return "window";
    case DESK_KIND_BOTH:
        return "both";
    case DESK_KIND_QUEUE:
        break;
    }
    return "queue";
}
