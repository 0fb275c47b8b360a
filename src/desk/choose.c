/*
 * Choosing from the limits that were tried. What a limit is good for is whom it stops: keys that
 * lose at least half of their requests. To take a few requests from a busy key is not worth it. Of
 * those that keep the goal, one is chosen that stops nearly as much as any and denies as few keys
 * as possible. If none stops anything, one that denies nobody. It has room, if that costs little:
 * half of it would not have denied more keys.
 *
 * Suspects count as stopped, but not as denied. Those of the second part also say whether a limit
 * that leaves spared keys out is worth it: the goal does not judge them.
 */
#include "desk/suggest.h"

#include <assert.h>
#include <inttypes.h>

#define NEARLY 0.9 /* of the most that any stops */
#define NEARLY_WITH_ROOM 0.7
#define WORTH_STOPPING 0.005 /* of all requests */
#define WORTH_LEAST 100      /* requests: fewer in half a log are no reason to deny a key */
#define WORTH_GOAL 0.1       /* of the requests that the goal allows to deny */
#define WORTH_BOTH 1.05      /* as much as the better one alone */
#define WORTH_FIRST 0.5      /* of the most that any stops: what stops less does not come first */
#define WORTH_SPARING 0.5    /* of what a limit stops that leaves the spared keys out */
#define WORTH_STRICT 3       /* times as strict as one that suits the keys left out, too */
#define BURST_STEPS 2
#define ROOM_LEAST 3      /* requests: half of a small number is little */
#define PROTECT_ROOM 0.9  /* of what is protected, for limits of single keys */
#define QUEUE_OF_PERIOD 2 /* a queue for all is as long as the half of a period */

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
    const struct desk_outcome *outcome = &row->outcomes[size];
    const double protect = PROTECT_ROOM * (double)search->suggest->goal.protect;
    return !row->dropped && outcome->seen && desk_search_keeps(search, outcome) &&
           (protect == 0 || (double)outcome->highest <= protect);
}

static int64_t choose_most_of(const struct desk_search *search, enum desk_kind kind)
{
    int64_t most = -1;
    for (size_t i = 0; i < search->row_count; i++) {
        const struct desk_row *row = &search->rows[i];
        for (int size = row->first; row->kind == kind && size <= row->last; size++) {
            if (choose_is_open(search, row, size))
                most = weir__max(most, row->outcomes[size].stopped_denied);
        }
    }
    return most;
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

    if (x->others_keys_denied != y->others_keys_denied)
        return x->others_keys_denied < y->others_keys_denied;
    return choose_weight(a) < choose_weight(b);
}

/* What the best one stops; 0: next to nothing, for which no key is worth being denied. */
static double choose_most_worth(const struct desk_search *search, enum desk_kind kind)
{
    const struct desk_goal *goal = &search->suggest->goal;
    double most = (double)choose_most_of(search, kind), all = (double)search->part.requests;
    double worth = goal->requests >= 0 ? WORTH_GOAL * (double)goal->requests / (double)DESK_MILLION
                                       : WORTH_STOPPING;
    bool asked = goal->requests >= 0;
    return most >= worth * all && (asked || most >= WORTH_LEAST) ? most : 0;
}

/* The busiest key of the next part may be busier: how much room a limit has for that. */
enum choose_room { CHOOSE_ANY, CHOOSE_STEPS, CHOOSE_TWICE };

/* Whether a limit that was tried and is at most half as large denies no more keys. */
static bool choose_is_twice(const struct desk_search *search, struct choose_pick pick)
{
    const struct desk_row *own = pick.row;
    for (size_t i = 0; i < search->row_count; i++) {
        const struct desk_row *row = &search->rows[i];
        bool half = own->kind == DESK_KIND_BUCKET
                        ? (double)row->rate / (double)row->period_us <=
                              (double)own->rate / (double)own->period_us / 2
                        : row == own;
        for (int size = row->first; row->kind == own->kind && half && size <= row->last; size++) {
            int64_t most = weir__min(desk_nice[pick.size] / 2, desk_nice[pick.size] - ROOM_LEAST);
            if (row->outcomes[size].seen && desk_nice[size] <= most &&
                row->outcomes[size].others_keys_denied <= choose_outcome(pick)->others_keys_denied)
                return true;
        }
    }
    return false;
}

/* Whether it is a few sizes above the first one of its row that denies no more keys: two for a
 * burst, which costs little. */
static bool choose_is_steps(struct choose_pick pick)
{
    const struct desk_row *row = pick.row;
    int least = row->hi;
    while (least < pick.size &&
           (!row->outcomes[least].seen ||
            row->outcomes[least].others_keys_denied > choose_outcome(pick)->others_keys_denied))
        least++;
    return pick.size >= least + (row->kind == DESK_KIND_BUCKET ? BURST_STEPS : 1);
}

static bool choose_has_room(const struct desk_search *search, struct choose_pick pick,
                            enum choose_room room)
{
    switch (room) {
    case CHOOSE_ANY:
        return true;
    case CHOOSE_STEPS:
        return choose_is_steps(pick);
    case CHOOSE_TWICE:
        break;
    }
    return choose_is_twice(search, pick);
}

/* The best of a kind that stops enough and has so much room. */
static struct choose_pick choose_best(const struct desk_search *search, enum desk_kind kind,
                                      double enough, enum choose_room room)
{
    struct choose_pick best = {NULL, 0};
    for (size_t i = 0; i < search->row_count; i++) {
        const struct desk_row *row = &search->rows[i];
        for (int size = row->hi; row->kind == kind && size <= row->last; size++) {
            struct choose_pick it = {row, size};
            if (choose_is_open(search, row, size) &&
                (double)row->outcomes[size].stopped_denied >= enough &&
                (!best.row || choose_is_better(it, best)) && choose_has_room(search, it, room))
                best = it;
        }
    }
    return best;
}

static struct choose_pick choose_pick(const struct desk_search *search, enum desk_kind kind)
{
    double most = choose_most_worth(search, kind);
    struct choose_pick best = choose_best(search, kind, NEARLY_WITH_ROOM * most, CHOOSE_TWICE);
    if (!best.row)
        best = choose_best(search, kind, NEARLY_WITH_ROOM * most, CHOOSE_STEPS);
    return best.row ? best : choose_best(search, kind, NEARLY * most, CHOOSE_ANY);
}

/* ---- suggestions ---- */

static int choose_add(struct desk_suggest *suggest, enum desk_kind kind, const char *text,
                      bool total, weir_error *err)
{
    assert(suggest->count < DESK_SUGGESTIONS);
    struct desk_suggestion *it = &suggest->suggestions[suggest->count];
    *it = (struct desk_suggestion){.kind = kind, .total = total};
    int code = weir_limit_parse(text, &it->limit, err);
    if (code == 0)
        suggest->count++;
    return code;
}

static void choose_drop_last(struct desk_suggest *suggest)
{
    struct desk_suggestion *it = &suggest->suggestions[--suggest->count];
    weir_limit_free(it->limit);
    it->limit = NULL;
}

/* What a limit stops that was picked; -1: there is none. */
static double choose_effect(struct choose_pick pick)
{
    return pick.row ? (double)choose_outcome(pick)->stopped_denied : -1;
}

/* Suspects of the second part: what limits stop of them. The second one leaves spared keys out. */
static int choose_try_suspects(struct desk_suggest *suggest, const struct choose_pick picks[2],
                               double rets[2], weir_error *err)
{
    struct desk_candidate candidates[2] = {{.name = NULL}};
    weir_limit *limits[2] = {NULL};
    struct desk_engine *engine = NULL;
    int code = 0;
    for (int i = 0; i < 2 && code == 0; i++) {
        char text[WEIR__RULE_TEXT_MAX];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        desk_row_put(&buffer, picks[i].row, picks[i].size);
        code = weir_limit_parse(text, &limits[i], err);
        candidates[i] = (struct desk_candidate){"tried", limits[i], false, i == 1};
    }
    if (code == 0)
        code = desk_suggest_engine(suggest, candidates, 2, false, &engine, err);
    if (code == 0)
        code = desk_suggest_pass(suggest, &suggest->parts[1], engine, err);
    for (int i = 0; i < 2; i++)
        rets[i] = code == 0 ? (double)engine->tallies[i].suspects_stopped : 0;
    desk_engine_free(engine); /* before its limits */
    for (int i = 0; i < 2; i++)
        weir_limit_free(limits[i]);
    return code;
}

/* Whether a limit stops too little that is loose enough for the keys that are to be spared, beside
 * one that leaves them out. */
static int choose_exempts(struct desk_suggest *suggest, struct choose_pick loose,
                          struct choose_pick exempt, bool *ret, weir_error *err)
{
    const struct choose_pick picks[2] = {loose, exempt};
    double suspects[2] = {0, 0};
    int code = 0;
    *ret = exempt.row && choose_effect(loose) < WORTH_SPARING * choose_effect(exempt);
    if (!*ret && loose.row && exempt.row && suggest->suspects.keys > 0)
        code = choose_try_suspects(suggest, picks, suspects, err);
    *ret = *ret || suspects[0] < WORTH_SPARING * suspects[1];
    return code;
}

/* The best of a kind that is loose enough for the keys that are to be spared. If it stops too
 * little of the rest, the best that leaves these keys out. */
static int choose_add_kind(struct desk_search *search, const struct desk_search *other,
                           enum desk_kind kind, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    const struct desk_search *from = search;
    struct choose_pick pick = choose_pick(search, kind);
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (other) {
        struct choose_pick exempt = choose_pick(other, kind);
        bool exempts;
        int code = choose_exempts(suggest, pick, exempt, &exempts, err);
        if (code)
            return code;
        pick = exempts ? exempt : pick;
        from = exempts ? other : search;
    }
    if (!pick.row)
        return 0;
    desk_row_put(&buffer, pick.row, pick.size);
    int code = choose_add(suggest, kind, text, false, err);
    if (code)
        return code;
    struct desk_suggestion *it = &suggest->suggestions[suggest->count - 1];
    it->chosen = *choose_outcome(pick);
    it->roomy = choose_is_twice(from, pick);
    it->exempt = from == other;
    return 0;
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
        candidates[i] = (struct desk_candidate){"tried", it->limit, it->total, it->exempt};
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
            good =
                good && it.chosen.stopped_denied > 0 &&
                (double)it.chosen.stopped_denied >=
                    WORTH_BOTH * (double)weir__max(suggest->suggestions[0].chosen.stopped_denied,
                                                   suggest->suggestions[1].chosen.stopped_denied);
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
    int code = choose_add(suggest, DESK_KIND_BOTH, text, false, err);
    if (code)
        return code;
    suggest->suggestions[2].exempt =
        suggest->suggestions[0].exempt || suggest->suggestions[1].exempt;
    return choose_try(search, 2, err);
}

/* A key is left out of a limit only if the limit denies it: they are tried without that. */
static int choose_check_exempt(struct desk_search *search, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    struct desk_candidate candidates[DESK_SUGGESTIONS];
    struct desk_outcome outcomes[DESK_SUGGESTIONS];
    bool any = false;
    for (size_t i = 0; i < suggest->count; i++) {
        const struct desk_suggestion *it = &suggest->suggestions[i];
        candidates[i] = (struct desk_candidate){"tried", it->limit, it->total, false};
        any |= it->exempt;
    }
    int code = any ? desk_search_try(search, candidates, suggest->count, outcomes, err) : 0;
    for (size_t i = 0; i < suggest->count && any && code == 0; i++) {
        struct desk_suggestion *it = &suggest->suggestions[i];
        it->exempt = it->exempt && outcomes[i].spared_denied > 0;
        it->would_deny = it->exempt ? outcomes[i].spared_denied : 0;
    }
    if (code == 0 && any && suggest->suggestions[suggest->count - 1].strict &&
        !suggest->suggestions[suggest->count - 1].exempt)
        choose_drop_last(suggest); /* it suits those keys, too */
    return code;
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
    int code = choose_add(suggest, DESK_KIND_QUEUE, text, true, err);
    buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%s %" PRId64 "/%s%s",
                     goal->protect <= 100000 ? "sliding-log" : "sliding-counter", goal->protect,
                     unit, cost);
    if (code == 0)
        code = choose_add(suggest, DESK_KIND_WINDOW, text, true, err);
    return code ? code : choose_try(search, from, err);
}

/* What a window lets through in a second. */
static double choose_rate(int64_t count, int64_t period_us)
{
    return 1e6 * (double)count / (double)period_us;
}

/* Whether a window is far stricter than all that are suggested. */
static bool choose_is_far(const struct desk_suggest *suggest, struct choose_pick pick)
{
    const double rate = choose_rate(desk_nice[pick.size], pick.row->period_us);
    for (size_t i = 0; i < suggest->count; i++) {
        const struct weir__rule *rule = &suggest->suggestions[i].limit->rules[0];
        if (suggest->suggestions[i].kind == DESK_KIND_WINDOW &&
            choose_rate(rule->count, rule->period_us) < WORTH_STRICT * rate)
            return false;
    }
    return true;
}

/* Adds a strict window: keys are left out of it. */
static int choose_add_strict(struct desk_search *search, struct choose_pick pick, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    desk_row_put(&buffer, pick.row, pick.size);
    int code = choose_add(suggest, DESK_KIND_WINDOW, text, false, err);
    if (code)
        return code;
    struct desk_suggestion *it = &suggest->suggestions[suggest->count - 1];
    it->chosen = *choose_outcome(pick);
    it->roomy = choose_is_twice(search, pick);
    it->exempt = it->strict = true;
    return 0;
}

/* Beside a window that is loose because of the keys to be spared: one that leaves them out, even if
 * it stopped nobody in the first part. Whom it stops later, nobody knows yet. */
static int choose_spared_strict(struct desk_search *other, weir_error *err)
{
    struct choose_pick pick = choose_pick(other, DESK_KIND_WINDOW);
    return pick.row && choose_is_far(other->suggest, pick) ? choose_add_strict(other, pick, err)
                                                           : 0;
}

int desk_choose(struct desk_search *search, struct desk_search *other, weir_error *err)
{
    int code = choose_add_kind(search, other, DESK_KIND_BUCKET, err);
    if (search->suggest->goal.protect > 0)
        return code ? code : choose_totals(search, err);
    if (code == 0)
        code = choose_add_kind(search, other, DESK_KIND_WINDOW, err);
    if (code == 0)
        code = choose_both(search, err);
    if (code == 0 && other)
        code = choose_spared_strict(other, err);
    return code ? code : choose_check_exempt(search, err);
}

int desk_choose_heavy(struct desk_search *search, bool *ret_added, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    struct choose_pick pick = choose_pick(search, DESK_KIND_WINDOW);
    bool far = pick.row && choose_is_far(suggest, pick);
    *ret_added = false;
    if (!pick.row || (!far && suggest->suspects.keys == 0))
        return 0;
    int code = choose_add_strict(search, pick, err);
    if (code)
        return code;
    struct desk_suggestion *it = &suggest->suggestions[suggest->count - 1];
    it->heavy = *ret_added = true;
    it->first_or_none = !far;
    return 0;
}

/* ---- one that is harmless ---- */

int desk_choose_gentle(const struct desk_search *search, weir_error *err)
{
    struct desk_suggestion *it = &search->suggest->gentle;
    struct choose_pick pick = choose_best(search, DESK_KIND_BUCKET, 0, CHOOSE_TWICE);
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (!pick.row || choose_outcome(pick)->others_keys_denied > 0)
        return 0;
    *it = (struct desk_suggestion){.kind = DESK_KIND_BUCKET, .gentle = true, .roomy = true};
    it->chosen = *choose_outcome(pick);
    desk_row_put(&buffer, pick.row, pick.size);
    return weir_limit_parse(text, &it->limit, err);
}

bool desk_choose_add_gentle(struct desk_suggest *suggest)
{
    bool hurt = suggest->gentle.limit != NULL && suggest->count > 0;
    for (size_t i = 0; i < suggest->count; i++)
        hurt = hurt && (suggest->suggestions[i].hurts_people || suggest->suggestions[i].heavy);
    if (!hurt)
        return false;
    assert(suggest->count < DESK_SUGGESTIONS);
    suggest->suggestions[suggest->count++] = suggest->gentle;
    suggest->gentle.limit = NULL;
    return true;
}

/* ---- their order ---- */

/* What is denied to suspects of the whole log. */
static int64_t choose_of_suspects(const struct desk_suggestion *it)
{
    return it->chosen.suspects_denied + it->outcome.suspects_denied;
}

/* Whether the one without heavy keys comes first: it meets the goal, and no other that does denies
 * suspects half as much without stopping a friend. */
static bool choose_heavy_first(const struct desk_suggest *suggest)
{
    int64_t heavy = 0, others = 0;
    for (size_t i = 0; i < suggest->count; i++) {
        const struct desk_suggestion *it = &suggest->suggestions[i];
        int64_t *most = it->heavy ? &heavy : &others;
        bool harmless = it->meets && !it->stops_friend && !it->hurts_people;
        *most = harmless ? weir__max(*most, choose_of_suspects(it)) : *most;
    }
    return WORTH_FIRST * (double)heavy > (double)others;
}

/* What comes first: 0, 1, 2, 3. To protect something, meeting the goal is all that is asked for. */
static int choose_class(const struct desk_suggest *suggest, const struct desk_suggestion *it)
{
    int64_t most = 0, suspects = 0;
    bool heavy_first = choose_heavy_first(suggest);
    for (size_t i = 0; i < suggest->count; i++) {
        const struct desk_suggestion *other = &suggest->suggestions[i];
        if (!other->meets || other->heavy || other->hurts_people)
            continue;
        most = weir__max(most, other->outcome.stopped_denied);
        suspects = weir__max(suspects, choose_of_suspects(other));
    }
    if (it->heavy)
        return heavy_first ? 0 : 3;
    if (!it->meets)
        return 2;
    bool useful = suggest->goal.protect > 0 ||
                  ((double)it->outcome.stopped_denied >= WORTH_FIRST * (double)most &&
                   (double)choose_of_suspects(it) >= WORTH_FIRST * (double)suspects);
    return useful && !heavy_first && !it->hurts_people ? 0 : 1;
}

static bool choose_comes_first(const struct desk_suggest *suggest, const struct desk_suggestion *a,
                               const struct desk_suggestion *b)
{
    int x = choose_class(suggest, a), y = choose_class(suggest, b);
    if (x != y)
        return x < y;
    if (a->outcome.others_keys_denied != b->outcome.others_keys_denied)
        return a->outcome.others_keys_denied < b->outcome.others_keys_denied;
    return !a->exempt && b->exempt;
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

static const char *choose_kind_name(enum desk_kind kind)
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

const char *desk_suggestion_name(const struct desk_suggestion *it)
{
    return it->strict ? "strict" : it->gentle ? "gentle" : choose_kind_name(it->kind);
}
