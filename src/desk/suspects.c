/*
 * Suspects: keys that asked several times, and nearly every answer refused them: 401, 403 or 429.
 * An attack from many addresses looks like this. One guess of many may succeed: that must not hide
 * the attack. A goal must not protect suspects, so they are left out of it. Of all other answers a
 * suspect has at most one of twenty in the whole log: also of 404, which may be a link that is
 * broken, and of 5xx, which are the server's fault. Who is to be spared is none.
 *
 * What holds: without a status in the log nobody is one. A filter on the status hides answers: then
 * the log is read once more without this filter. Where all keys are like this, nobody is one. If
 * keys had to be forgotten, their answers were, too: then nobody is one.
 */
#include "desk/suggest.h"

const char *const desk_suspects_carried[1] = {"status"};

#define OTHERWISE_ONE_OF 20 /* answers; so with fewer requests every answer must refuse */
#define MINUTE_US INT64_C(60000000)
#define MANY 10 /* fewer can be named */
#define SLOW 2  /* a limit that lets more than half through does not stop them */

/* A line without a readable status says nothing: it is taken for an answer that refuses nobody. */
static bool suspects_is_refusal(const struct desk_arrival *arrival)
{
    struct weir__span status;
    int64_t number;
    if (arrival->carried_len == 0 || !desk_arrival_value(arrival, 0, &status) ||
        !weir__span_whole(status, 100, 599, &number))
        return false;
    for (size_t i = 0; i < DESK_REFUSALS; i++) {
        if (number == desk_refusals[i])
            return true;
    }
    return false;
}

int desk_suspects_note(struct desk_engine *engine, const struct desk_arrival *arrival)
{
    struct desk_key *key = desk_keys_get(engine, arrival);
    if (!key)
        return WEIR_ENOMEM;
    *desk_key_noted(engine, key) += !suspects_is_refusal(arrival);
    return 0;
}

bool desk_suspects_has(const struct desk_engine *answers, const uint64_t hash[2])
{
    const struct desk_key *key = desk_engine_find(answers, hash);
    return key && key->requests >= DESK_SUSPECT_LEAST &&
           *desk_key_noted(answers, key) <= key->requests / OTHERWISE_ONE_OF;
}

/* All answers of a log with a filter on the status. */
static int suspects_read_hidden(struct desk_suggest *suggest, weir_error *err)
{
    static const struct desk_candidate nobody = {.name = "nobody"};
    const struct desk_part all = {.from_us = INT64_MIN, .to_us = INT64_MAX};
    struct desk_engine_options options = {.candidates = &nobody,
                                          .count = 1,
                                          .memory = desk_suggest_quarters(suggest, 1),
                                          .notes = true};
    int code = desk_engine_make(&options, &suggest->suspects.hidden, err);
    if (code)
        return code;
    struct desk_pass pass = {
        .engine = suggest->suspects.hidden, .answers = true, .every_status = true};
    return desk_suggest_read(suggest, &all, pass, err);
}

int desk_suspects_find(struct desk_suggest *suggest, weir_error *err)
{
    struct desk_suspects *suspects = &suggest->suspects;
    const struct desk_engine *whole = suggest->whole;
    int code = suggest->options.by_status ? suspects_read_hidden(suggest, err) : 0;
    if (code)
        return code;
    const struct desk_engine *answers = suspects->hidden ? suspects->hidden : whole;
    suspects->forgotten = answers->forgotten > 0;
    for (size_t i = 0; i < whole->entries && !suspects->forgotten; i++) {
        const struct desk_key *key = desk_engine_key(whole, i);
        if (!key || key->spared || !desk_suspects_has(answers, key->hash))
            continue;
        suspects->keys++;
        suspects->some_unrefused |=
            *desk_key_noted(answers, desk_engine_find(answers, key->hash)) > 0;
    }
    if (suspects->keys == (int64_t)whole->keys) /* there is nobody that they differ from */
        suspects->keys = 0;
    suspects->answers = suspects->keys > 0 ? answers : NULL;
    return 0;
}

/* Whether there are many, and no suggestion that meets the goal denies half of their requests. */
static bool suspects_are_slow(const struct desk_suggest *suggest)
{
    const struct desk_part *parts = suggest->parts;
    int64_t most = 0, requests = parts[0].suspect_requests + parts[1].suspect_requests;
    for (size_t i = 0; i < suggest->count; i++) {
        const struct desk_suggestion *it = &suggest->suggestions[i];
        if (it->meets)
            most = weir__max(most, it->chosen.suspects_denied + it->outcome.suspects_denied);
    }
    return suggest->judged && suggest->suspects.keys >= MANY && SLOW * most < requests;
}

/* Requests of one minute of the clock, all keys together. */
static void suspects_note_minute(struct desk_asked *it, int64_t time_us, bool suspect)
{
    int64_t minute = time_us / MINUTE_US;
    if (minute != it->minute)
        it->all = it->others = 0;
    it->minute = minute;
    it->all++;
    it->others += !suspect;
    it->all_most = weir__max(it->all_most, it->all);
    it->others_most = weir__max(it->others_most, it->others);
}

void desk_suspects_ask(const struct desk_pass *pass, const struct desk_arrival *arrival)
{
    const struct desk_suggest *suggest = pass->suggest;
    const struct desk_key *key = desk_engine_find(suggest->whole, arrival->hash);
    bool suspect =
        key && !key->spared && desk_suspects_has(suggest->suspects.answers, arrival->hash);
    suspects_note_minute(pass->asked, arrival->time_us, suspect);
    if (suspect)
        desk_asked_note(pass->asked, arrival);
}

/* The whole log once more: what suspects asked for, and what a tight window would have done. */
static int suspects_look_closely(struct desk_suggest *suggest, weir_error *err)
{
    const struct desk_part all = {.from_us = INT64_MIN, .to_us = INT64_MAX};
    const struct desk_candidate candidate = {"tight", suggest->tight.limit, false,
                                             suggest->tight.exempt};
    struct desk_pass pass = {.asked = &suggest->suspects.asked};
    struct desk_outcome outcome;
    int code = 0;
    if (candidate.limit)
        code = desk_suggest_engine(suggest, &candidate, 1, false, &pass.engine, err);
    if (code == 0)
        code = desk_suggest_read(suggest, &all, pass, err);
    if (code == 0 && pass.engine) {
        desk_outcome_read(suggest, pass.engine, 0, &outcome);
        suggest->tight.suspects_denied = outcome.suspects_denied;
        suggest->tight.others_denied = outcome.others_denied;
        suggest->tight.others_keys_denied = outcome.others_keys_denied;
    }
    desk_engine_free(pass.engine);
    return code;
}

int desk_suspects_look(const struct desk_search searches[2], weir_error *err)
{
    struct desk_suggest *suggest = searches[0].suggest;
    suggest->suspects.slow = suspects_are_slow(suggest);
    if (!suggest->suspects.slow)
        return 0;
    int code = suggest->goal.protect == 0 ? desk_tight_find(searches, err) : 0;
    return code ? code : suspects_look_closely(suggest, err);
}
