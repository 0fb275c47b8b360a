/* From a log and a goal to limits: see suggest.h. */
#include "desk/suggest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
#define SPAN_LEAST_US (10 * SECOND_US)
#define Z_95 1.96

/* ---- passes ---- */

int desk_pass_take(const struct desk_pass *pass, const struct desk_arrival *arrival)
{
    static const weir_decision passed = {.allowed = true};
    if (arrival->time_us < pass->from_us || arrival->time_us >= pass->to_us)
        return 0;
    for (size_t i = 0; i < pass->profile_count; i++)
        desk_profile_note(pass->profiles[i], arrival);
    if (pass->asked)
        desk_suspects_ask(pass, arrival);
    if (!pass->engine)
        return 0;
    if (!pass->engine->options.candidates[0].limit) {
        int code = desk_engine_note(pass->engine, arrival, &passed);
        return code || !pass->answers ? code : desk_suspects_note(pass->engine, arrival);
    }
    return desk_engine_take(pass->engine, arrival, NULL);
}

int desk_suggest_read(struct desk_suggest *suggest, const struct desk_part *part,
                      struct desk_pass pass, weir_error *err)
{
    pass.suggest = suggest;
    pass.from_us = part->from_us;
    pass.to_us = part->to_us;
    pass.number = ++suggest->passes;
    int code = suggest->options.read(suggest->options.context, &pass, err);
    if (code == 0 && pass.engine)
        desk_engine_end(pass.engine);
    return code;
}

int desk_suggest_pass(struct desk_suggest *suggest, const struct desk_part *part,
                      struct desk_engine *engine, weir_error *err)
{
    return desk_suggest_read(suggest, part, (struct desk_pass){.engine = engine}, err);
}

void desk_outcome_read(const struct desk_suggest *suggest, const struct desk_engine *engine,
                       size_t candidate, struct desk_outcome *ret)
{
    const struct desk_tally *tally = &engine->tallies[candidate];
    const size_t span = suggest->goal.protect_us == 60 * SECOND_US ? 2 : 0;
    *ret = (struct desk_outcome){
        .denied = tally->denied,
        .keys_denied = tally->keys_denied,
        .others_denied = tally->denied - tally->suspects_denied,
        .others_keys_denied = tally->keys_denied - tally->suspect_keys_denied,
        .suspects_denied = tally->suspects_denied,
        .suspects_stopped = tally->suspects_stopped,
        .stopped_denied = tally->stopped_denied,
        .keys_stopped = tally->keys_stopped,
        .spared_denied = suggest->options.spare_count > 0 ? tally->spared_denied : 0,
        .highest = tally->rates->highest[span],
        .part_high = desk_share_of_time(engine, candidate, true).high,
        .seen = true};
}

/* ---- reading the whole, and judging ---- */

/* What is known of the whole log takes one, hidden answers another, and what is tried or judged
 * the rest. */
int64_t desk_suggest_quarters(const struct desk_suggest *suggest, int quarters)
{
    return weir__max(suggest->options.memory / 4 * quarters, DESK_MEMORY_LEAST);
}

int64_t desk_suggest_memory(const struct desk_suggest *suggest)
{
    return desk_suggest_quarters(suggest, suggest->options.by_status ? 2 : 3);
}

int desk_suggest_engine(const struct desk_suggest *suggest, const struct desk_candidate *candidates,
                        size_t count, bool peaks, struct desk_engine **ret, weir_error *err)
{
    bool told = suggest->options.spare_count > 0; /* whom to spare */
    struct desk_engine_options options = {
        .candidates = candidates,
        .count = count,
        .wait_us = WEIR_WAIT_DEFAULT,
        .memory = desk_suggest_memory(suggest),
        .peaks = peaks,
        .spare = told ? suggest->options.spare : suggest->heavy.texts,
        .spare_count = told ? suggest->options.spare_count : suggest->heavy.count,
        .answers = suggest->suspects.answers};
    return desk_engine_make(&options, ret, err);
}

void desk_part_read(const struct desk_suggest *suggest, struct desk_part *part,
                    const struct desk_engine *engine)
{
    bool about;
    part->keys = desk_engine_distinct(engine, &about);
    part->requests = engine->requests;
    part->spared = suggest->options.spare_count > 0 ? engine->spared_requests : 0;
    part->suspect_keys = weir__min(engine->suspect_keys, part->keys);
    part->suspect_requests = engine->suspect_requests;
    part->suspects_from_us = engine->suspects_from_us;
    part->suspects_to_us = engine->suspects_to_us;
}

static int suggest_read_whole(struct desk_suggest *suggest, weir_error *err)
{
    static const struct desk_candidate nobody = {.name = "nobody"};
    struct desk_engine_options options = {.candidates = &nobody,
                                          .count = 1,
                                          .memory = desk_suggest_quarters(suggest, 1),
                                          .peaks = true,
                                          .notes = true,
                                          .spare = suggest->options.spare,
                                          .spare_count = suggest->options.spare_count};
    struct desk_part all = {.from_us = INT64_MIN, .to_us = INT64_MAX};
    int code = desk_engine_make(&options, &suggest->whole, err);
    const struct desk_pass pass = {.engine = suggest->whole, .answers = true};
    if (code == 0)
        code = desk_suggest_read(suggest, &all, pass, err);
    if (code == 0 && desk_peaks_read(suggest))
        code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    if (code || suggest->whole->requests == 0)
        return code;
    code = desk_suspects_find(suggest, err);
    if (code)
        return code;
    size_t unmatched = desk_engine_unmatched(suggest->whole);
    if (unmatched == suggest->options.spare_count)
        return 0;
    suggest->unmatched = 1 + unmatched; /* a word that no key is like would spare nobody */
    if (suggest->options.selects)
        return 0;
    return weir__fail(err, WEIR_EINVAL, 0, "no key of the log is to be spared");
}

/* Two halves of its time. The second begins at a whole second, so that it can be cut out of the log
 * by anybody. */
static bool suggest_divide(struct desk_suggest *suggest)
{
    const struct desk_engine *whole = suggest->whole;
    if (whole->requests == 0) {
        desk_goal_advise(suggest, "Look at the lines that were left out, and at --where.");
        return desk_goal_give_up(suggest, DESK_TOO_SHORT, "The log has no requests.");
    }
    int64_t span_us = whole->last_us - whole->first_us;
    int64_t middle_us = (whole->first_us + span_us / 2) / SECOND_US * SECOND_US;
    suggest->parts[0] = (struct desk_part){.from_us = whole->first_us, .to_us = middle_us};
    suggest->parts[1] = (struct desk_part){.from_us = middle_us, .to_us = whole->last_us + 1};
    if (span_us >= SPAN_LEAST_US)
        return true;
    desk_goal_advise(suggest, "Use a log of hours, better of days.");
    return desk_goal_give_up(suggest, DESK_TOO_SHORT,
                             "The log is only %.3g s long: it needs 10 s at the very least.",
                             (double)span_us / 1e6);
}

bool desk_suggest_meets(const struct desk_suggest *suggest, const struct desk_engine *engine,
                        size_t candidate, const struct desk_outcome *outcome)
{
    const struct desk_goal *goal = &suggest->goal;
    const struct desk_part *part = &suggest->parts[1];
    double others = desk_share_of_time(engine, candidate, true).part;
    return desk_part_requests(part) > part->spared && outcome->spared_denied == 0 &&
           (goal->keys < 0 ||
            outcome->others_keys_denied <= desk_goal_keys(goal, desk_part_keys(part))) &&
           (goal->requests < 0 || others * (double)DESK_MILLION <= (double)goal->requests) &&
           (goal->protect == 0 || outcome->highest <= goal->protect);
}

/* The second part, under the limits that were chosen. */
static int suggest_judge(struct desk_suggest *suggest, weir_error *err)
{
    desk_engine_free(suggest->judged); /* before its candidates change */
    suggest->judged = NULL;
    for (size_t i = 0; i < suggest->count; i++) {
        const struct desk_suggestion *it = &suggest->suggestions[i];
        suggest->candidates[i] =
            (struct desk_candidate){desk_suggestion_name(it), it->limit, it->total, it->exempt};
    }
    struct desk_part *part = &suggest->parts[1];
    struct desk_engine *engine;
    int code =
        desk_suggest_engine(suggest, suggest->candidates, suggest->count, false, &engine, err);
    if (code)
        return code;
    suggest->judged = engine;
    code = desk_suggest_pass(suggest, part, engine, err);
    if (code)
        return code;
    desk_part_read(suggest, part, engine);
    suggest->lossy |= desk_engine_is_lossy(engine);
    for (size_t i = 0; i < suggest->count; i++) {
        struct desk_suggestion *it = &suggest->suggestions[i];
        struct desk_outcome *outcome = &it->outcome;
        desk_outcome_read(suggest, engine, i, outcome);
        it->keys = desk_share_of(outcome->keys_denied, part->keys, Z_95);
        it->requests = desk_share_of_time(engine, i, false);
        it->others_part = desk_share_of_time(engine, i, true).part;
        it->meets = desk_suggest_meets(suggest, engine, i, outcome);
    }
    return 0;
}

/* ---- heavy keys ---- */

static void suggest_drop_last(struct desk_suggest *suggest)
{
    struct desk_suggestion *it = &suggest->suggestions[--suggest->count];
    weir_limit_free(it->limit);
    it->limit = NULL;
}

/* What the whole log says about the heavy keys, which of them the strict limit, the last one, would
 * deny, and whether others stop a friend among them. */
static int suggest_look_closely(struct desk_suggest *suggest, weir_error *err)
{
    const struct desk_part all = {.from_us = INT64_MIN, .to_us = INT64_MAX};
    struct desk_candidate candidates[DESK_SUGGESTIONS] = {{.name = NULL}};
    struct desk_profile *profiles[DESK_HEAVY];
    struct desk_engine *engine;
    for (size_t i = 0; i < suggest->count; i++)
        candidates[i] =
            (struct desk_candidate){"tried", suggest->suggestions[i].limit, false, false};
    int code = desk_suggest_engine(suggest, candidates, suggest->count, false, &engine, err);
    if (code)
        return code;
    for (size_t i = 0; i < suggest->heavy.count; i++)
        profiles[i] = &suggest->heavy.keys[i].profile;
    const struct desk_pass pass = {
        .engine = engine, .profiles = profiles, .profile_count = suggest->heavy.count};
    code = desk_suggest_read(suggest, &all, pass, err);
    for (size_t i = 0; i + 1 < suggest->count && code == 0; i++)
        suggest->suggestions[i].stops_friend = desk_heavy_stops_friend(&suggest->heavy, engine, i);
    if (code == 0)
        desk_heavy_keep_denied(&suggest->heavy, engine, suggest->count - 1);
    desk_engine_free(engine);
    if (code || suggest->heavy.count > 0)
        return code;
    suggest_drop_last(suggest);
    return 0;
}

/* Beside limits that are loose because of a few heavy keys, or that may stop one of them together
 * with suspects: a strict one that leaves them out. */
static int suggest_offer_strict(struct desk_suggest *suggest, struct desk_search *search,
                                weir_error *err)
{
    bool added = false;
    memset(search, 0, sizeof *search);
    search->suggest = suggest;
    search->exempt = search->strict = true;
    int code = desk_search_run(search, err);
    if (code == 0)
        code = desk_choose_heavy(search, &added, err);
    if (code == 0 && added)
        code = suggest_look_closely(suggest, err);
    if (code == 0 && !added)
        suggest->heavy.count = 0;
    return code;
}

/* ---- all of it ---- */

/* Tries limits that are loose enough for the keys that are to be spared, and limits that leave
 * these out, where that can be pasted. Then it chooses. */
static int suggest_choose(struct desk_suggest *suggest, struct desk_search *searches,
                          weir_error *err)
{
    const struct desk_suggest_options *options = &suggest->options;
    bool both = options->spare_count > 0 && options->can_exempt && suggest->goal.protect == 0;
    searches[0].suggest = searches[1].suggest = suggest;
    searches[1].exempt = true;
    searches[0].looks = options->spare_count == 0 && options->can_exempt;
    int code = desk_search_run(&searches[0], err);
    if (code == 0 && both && suggest->verdict == DESK_SUGGESTED)
        code = desk_search_run(&searches[1], err);
    if (code || suggest->verdict != DESK_SUGGESTED)
        return code;
    code = desk_choose(&searches[0], both ? &searches[1] : NULL, err);
    if (code == 0 && suggest->goal.protect == 0)
        code = desk_choose_gentle(&searches[0], err);
    if (code == 0 && suggest->heavy.count > 0)
        code = suggest_offer_strict(suggest, &searches[1], err);
    return code;
}

/* In order, and judged in this order. A strict limit that only would be of use in the first place
 * is dropped from another one. */
static int suggest_put_in_order(struct desk_suggest *suggest, weir_error *err)
{
    bool changed = desk_choose_order(suggest);
    if (suggest->count > 1 && suggest->suggestions[suggest->count - 1].first_or_none) {
        desk_engine_free(suggest->judged); /* before its limit */
        suggest->judged = NULL;
        suggest_drop_last(suggest);
        suggest->heavy.count = 0;
        changed = true;
    }
    return changed ? suggest_judge(suggest, err) : 0; /* the engine has its candidates in order */
}

/* Beside limits that hurt people: one that denies nobody. If the second part says that it does, it
 * is of no use. */
static int suggest_offer_gentle(struct desk_suggest *suggest, weir_error *err)
{
    if (!desk_choose_add_gentle(suggest))
        return 0;
    int code = suggest_judge(suggest, err);
    if (code || suggest->suggestions[suggest->count - 1].outcome.others_keys_denied == 0)
        return code;
    desk_engine_free(suggest->judged); /* before its limit */
    suggest->judged = NULL;
    suggest_drop_last(suggest);
    return suggest_judge(suggest, err);
}

/* Chooses, judges, and looks at what came out. */
static int suggest_work(struct desk_suggest *suggest, struct desk_search *searches, weir_error *err)
{
    int code = suggest_choose(suggest, searches, err);
    if (code || suggest->verdict != DESK_SUGGESTED)
        return code;
    if (suggest->count > 0)
        code = suggest_judge(suggest, err);
    if (code == 0)
        code = desk_hurt_find(suggest, err);
    if (code == 0)
        code = suggest_offer_gentle(suggest, err);
    if (code == 0)
        code = suggest_put_in_order(suggest, err);
    if (code == 0)
        code = desk_suspects_look(searches, err);
    if (code == 0)
        desk_goal_conclude(suggest);
    return code;
}

static int suggest_run(struct desk_suggest *suggest, weir_error *err)
{
    int code = suggest_read_whole(suggest, err);
    if (code || !suggest_divide(suggest))
        return code;
    struct desk_search *searches = calloc(2, sizeof *searches);
    if (!searches)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    code = suggest_work(suggest, searches, err);
    free(searches);
    return code;
}

int desk_suggest(const struct desk_suggest_options *options, struct desk_suggest **ret,
                 weir_error *err)
{
    struct desk_suggest *suggest = calloc(1, sizeof *suggest);
    *ret = suggest;
    if (!suggest)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    assert(options->memory >= DESK_MEMORY_LEAST && options->read);
    suggest->options = *options;
    suggest->goal = options->goal;
    return suggest_run(suggest, err);
}

void desk_suggest_free(struct desk_suggest *suggest)
{
    if (!suggest)
        return;
    desk_engine_free(suggest->whole);
    desk_engine_free(suggest->suspects.hidden);
    desk_engine_free(suggest->judged); /* before its limits */
    weir_limit_free(suggest->gentle.limit);
    weir_limit_free(suggest->tight.limit);
    for (size_t i = 0; i < DESK_SUGGESTIONS; i++)
        weir_limit_free(suggest->suggestions[i].limit);
    free(suggest);
}
