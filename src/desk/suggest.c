/* From a log and a goal to limits: see suggest.h. */
#include "desk/suggest.h"

#include "policy/view.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
#define USUAL_KEYS 10000    /* millionths: 1 % */
#define USUAL_REQUESTS 1000 /* 0.1 % */
#define SPAN_LEAST_US (10 * SECOND_US)
#define WORTH_SPARING 0.5 /* of what is denied if spared keys are left out */
#define Z_95 1.96
#define LOG_MOST 1000 /* requests that a log remembers in a limit that is to be tried */

/* ---- passes ---- */

int desk_pass_take(const struct desk_pass *pass, const struct desk_arrival *arrival)
{
    static const weir_decision passed = {.allowed = true};
    const struct desk_suggest *suggest = pass->suggest;
    if (arrival->time_us < pass->from_us || arrival->time_us >= pass->to_us)
        return 0;
    if (suggest->exempt && desk_suggest_spares(suggest, arrival->hash))
        return 0;
    if (!pass->engine->options.candidates[0].limit)
        return desk_engine_note(pass->engine, arrival, &passed);
    return desk_engine_take(pass->engine, arrival, NULL);
}

int desk_suggest_pass(struct desk_suggest *suggest, const struct desk_part *part,
                      struct desk_engine *engine, weir_error *err)
{
    struct desk_pass pass = {.suggest = suggest,
                             .engine = engine,
                             .from_us = part->from_us,
                             .to_us = part->to_us,
                             .number = ++suggest->passes};
    int code = suggest->options.read(suggest->options.context, &pass, err);
    if (code == 0)
        desk_engine_end(engine);
    return code;
}

void desk_outcome_read(const struct desk_suggest *suggest, const struct desk_engine *engine,
                       size_t candidate, struct desk_outcome *ret)
{
    const struct desk_tally *tally = &engine->tallies[candidate];
    const size_t span = suggest->goal.protect_us == 60 * SECOND_US ? 2 : 0;
    *ret = (struct desk_outcome){.denied = tally->denied,
                                 .keys_denied = tally->keys_denied,
                                 .highest = tally->rates->highest[span],
                                 .part_high = desk_share_of_time(engine, candidate).high,
                                 .seen = true};
    for (size_t i = 0; i < suggest->spared_size; i++) {
        const uint64_t *hash = suggest->spared[i];
        const struct desk_key *key = hash[0] | hash[1] ? desk_engine_find(engine, hash) : NULL;
        if (key)
            ret->spared_denied += desk_key_mark(engine, key, candidate)->denied;
    }
}

/* ---- keys that are to be spared ---- */

static size_t spared_slot(const struct desk_suggest *suggest, const uint64_t hash[2])
{
    size_t i = hash[1] & (suggest->spared_size - 1);
    const uint64_t(*spared)[2] = (const uint64_t(*)[2])suggest->spared;
    while ((spared[i][0] | spared[i][1]) && (spared[i][0] != hash[0] || spared[i][1] != hash[1]))
        i = (i + 1) & (suggest->spared_size - 1);
    return i;
}

bool desk_suggest_spares(const struct desk_suggest *suggest, const uint64_t hash[2])
{
    if (suggest->spared_size == 0)
        return false;
    const uint64_t *found = suggest->spared[spared_slot(suggest, hash)];
    return (found[0] | found[1]) != 0;
}

/* The text of the key, or a network that its address is in. */
static bool spared_matches(const char *text, struct weir__span key)
{
    struct weir__network asked, has;
    if (strlen(text) == key.len && !memcmp(text, key.data, key.len))
        return true;
    return !weir__network_read(text, strlen(text), &asked) &&
           !weir__network_read(key.data, key.len, &has) && weir__networks_overlap(&asked, &has);
}

static bool spared_find(const struct desk_suggest *suggest, const struct desk_key *key,
                        bool *ret_used)
{
    struct weir__span text = desk_key_text(suggest->whole, key);
    bool found = false;
    for (size_t i = 0; i < suggest->options.spare_count && !key->text_cut; i++) {
        if (spared_matches(suggest->options.spare[i], text))
            found = ret_used[i] = true;
    }
    return found;
}

/* Finds the keys of the log that are to be spared. A word that no key matches is a mistake: it
 * would spare nobody. */
static int spared_read(struct desk_suggest *suggest, weir_error *err)
{
    const struct desk_suggest_options *options = &suggest->options;
    const struct desk_engine *engine = suggest->whole;
    size_t count = 0, size = 16;
    if (options->spare_count == 0)
        return 0;
    bool *used = calloc(options->spare_count, sizeof *used);
    for (size_t i = 0; used && i < engine->entries; i++) {
        const struct desk_key *key = desk_engine_key(engine, i);
        count += key && spared_find(suggest, key, used);
    }
    while (size < 2 * count + 2)
        size *= 2;
    suggest->spared = calloc(size, sizeof *suggest->spared);
    if (!used || !suggest->spared) {
        free(used);
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    }
    suggest->spared_size = size;
    for (size_t i = 0; i < engine->entries; i++) {
        const struct desk_key *key = desk_engine_key(engine, i);
        if (!key || !spared_find(suggest, key, used))
            continue;
        memcpy(suggest->spared[spared_slot(suggest, key->hash)], key->hash, sizeof key->hash);
        suggest->spared_keys++;
        suggest->spared_requests += key->requests;
    }
    size_t unused = 0;
    while (unused < options->spare_count && used[unused])
        unused++;
    free(used);
    if (unused == options->spare_count)
        return 0;
    suggest->unmatched = 1 + unused;
    return weir__fail(err, WEIR_EINVAL, 0, "no key of the log is to be spared");
}

/* ---- whether the log says enough ---- */

__attribute__((format(printf, 3, 4))) static bool
suggest_give_up(struct desk_suggest *suggest, enum desk_verdict verdict, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    suggest->verdict = verdict;
    vsnprintf(suggest->reason, sizeof suggest->reason, format, args);
    va_end(args);
    return false;
}

static void suggest_advise(struct desk_suggest *suggest, const char *text)
{
    snprintf(suggest->advice, sizeof suggest->advice, "%s", text);
}

/* The part of so many that is two of them, in percent, rounded up to 0.01: one is the least that
 * can be chosen by, and the other half of the log may have one more. */
static double suggest_least_percent(int64_t count)
{
    return (double)weir__min(weir__div_up(20000, weir__max(count, 1)), 10000) / 100;
}

/* A part of the log is too short for the goal: goals that it is long enough for, and a limit to try
 * that suits most keys as they are. */
static void suggest_advise_larger(struct desk_suggest *suggest, const struct desk_part *part)
{
    const size_t span = suggest->peak_count > 1 ? 1 : 0; /* a minute, or a second */
    const int64_t most = desk_nice[desk_nice_up(suggest->peaks[span][2] + 1)];
    struct weir__buffer out = weir__buffer_over(suggest->advice, sizeof suggest->advice);
    weir__put_format(&out,
                     "Use a longer log, or a goal that this one is long enough for: --deny-keys "
                     "%g%%, or --deny-requests %g%%.",
                     suggest_least_percent(part->keys), suggest_least_percent(part->requests));
    if (suggest->peak_count > 0)
        weir__put_format(&out,
                         " Or try a limit with the same options: weir replay \"%s %" PRId64
                         "/%s\" LOG; 99%% of the keys asked for less in a %s.",
                         most <= LOG_MOST ? "sliding-log" : "sliding-counter", most,
                         span ? "m" : "s", span ? "minute" : "second");
}

/* Nobody asked for a goal: the usual one that the log says enough about. */
static void suggest_usual_goal(struct desk_suggest *suggest, const struct desk_part *part)
{
    struct desk_goal *goal = &suggest->goal;
    if (!goal->usual || goal->keys >= 0 || goal->requests >= 0)
        return;
    if (part->keys * USUAL_KEYS >= DESK_MILLION)
        goal->keys = USUAL_KEYS;
    else
        goal->requests = USUAL_REQUESTS;
}

static const char *const suggest_part_names[] = {"first", "second"};

bool desk_suggest_is_long_enough(struct desk_suggest *suggest, size_t i)
{
    const struct desk_part *part = &suggest->parts[i];
    const struct desk_goal *goal = &suggest->goal;
    suggest_usual_goal(suggest, part);
    if (part->requests == 0) {
        suggest_advise(suggest, "Use a log of a longer time, or with traffic in both halves.");
        return suggest_give_up(suggest, DESK_TOO_SHORT, "The %s half of the log has no requests.",
                               suggest_part_names[i]);
    }
    if (goal->keys > 0 && part->keys * goal->keys < DESK_MILLION) {
        suggest_advise_larger(suggest, part);
        return suggest_give_up(suggest, DESK_TOO_SHORT,
                               "%g%% of %" PRId64
                               " keys is less than one key: the %s half of the log has too few "
                               "keys for this goal; it needs %" PRId64 ".",
                               (double)goal->keys / 1e4, part->keys, suggest_part_names[i],
                               weir__div_up(DESK_MILLION, goal->keys));
    }
    if (goal->requests > 0 && part->requests * goal->requests < DESK_MILLION) {
        suggest_advise_larger(suggest, part);
        return suggest_give_up(suggest, DESK_TOO_SHORT,
                               "%g%% of %" PRId64
                               " requests is less than one request: the %s half of the log is too "
                               "short for this goal; it needs %" PRId64 ".",
                               (double)goal->requests / 1e4, part->requests, suggest_part_names[i],
                               weir__div_up(DESK_MILLION, goal->requests));
    }
    return true;
}

/* ---- reading the whole, and judging ---- */

/* So many quarters. What is known of the whole log takes one, what is tried or judged the rest. */
static int64_t suggest_part_of_memory(const struct desk_suggest *suggest, int quarters)
{
    return weir__max(suggest->options.memory / 4 * quarters, DESK_MEMORY_LEAST);
}

int64_t desk_suggest_memory(const struct desk_suggest *suggest)
{
    return suggest_part_of_memory(suggest, 3);
}

static int suggest_read_whole(struct desk_suggest *suggest, weir_error *err)
{
    static const struct desk_candidate nobody = {"nobody", NULL, false};
    struct desk_engine_options options = {.candidates = &nobody,
                                          .count = 1,
                                          .memory = suggest_part_of_memory(suggest, 1),
                                          .peaks = true};
    struct desk_part all = {.from_us = INT64_MIN, .to_us = INT64_MAX};
    int code = desk_engine_make(&options, &suggest->whole, err);
    if (code == 0)
        code = desk_suggest_pass(suggest, &all, suggest->whole, err);
    if (code == 0 && desk_peaks_read(suggest))
        code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    if (code == 0)
        code = suggest->whole->requests > 0 ? spared_read(suggest, err) : 0;
    return code;
}

/* Two halves of its time. The second begins at a whole second, so that it can be cut out of the log
 * by anybody. */
static bool suggest_divide(struct desk_suggest *suggest)
{
    const struct desk_engine *whole = suggest->whole;
    if (whole->requests == 0) {
        suggest_advise(suggest, "Look at the lines that were left out, and at --where.");
        return suggest_give_up(suggest, DESK_TOO_SHORT, "The log has no requests.");
    }
    int64_t span_us = whole->last_us - whole->first_us;
    int64_t middle_us = (whole->first_us + span_us / 2) / SECOND_US * SECOND_US;
    suggest->parts[0] = (struct desk_part){.from_us = whole->first_us, .to_us = middle_us};
    suggest->parts[1] = (struct desk_part){.from_us = middle_us, .to_us = whole->last_us + 1};
    if (span_us >= SPAN_LEAST_US)
        return true;
    suggest_advise(suggest, "Use a log of hours, better of days.");
    return suggest_give_up(suggest, DESK_TOO_SHORT,
                           "The log is only %.3g s long: it needs 10 s at the very least.",
                           (double)span_us / 1e6);
}

/* The second part, under the limits that were chosen. */
static int suggest_judge(struct desk_suggest *suggest, weir_error *err)
{
    const struct desk_goal *goal = &suggest->goal;
    struct desk_engine_options options = {.candidates = suggest->candidates,
                                          .count = suggest->count,
                                          .wait_us = WEIR_WAIT_DEFAULT,
                                          .memory = desk_suggest_memory(suggest)};
    desk_engine_free(suggest->judged); /* before its candidates change */
    suggest->judged = NULL;
    for (size_t i = 0; i < suggest->count; i++) {
        const struct desk_suggestion *it = &suggest->suggestions[i];
        suggest->candidates[i] =
            (struct desk_candidate){desk_kind_name(it->kind), it->limit, it->total};
    }
    int code = desk_engine_make(&options, &suggest->judged, err);
    if (code == 0)
        code = desk_suggest_pass(suggest, &suggest->parts[1], suggest->judged, err);
    if (code)
        return code;
    struct desk_part *part = &suggest->parts[1];
    bool about;
    part->keys = desk_engine_distinct(suggest->judged, &about);
    part->requests = suggest->judged->requests;
    suggest->lossy |= desk_engine_is_lossy(suggest->judged);
    for (size_t i = 0; i < suggest->count; i++) {
        struct desk_suggestion *it = &suggest->suggestions[i];
        struct desk_outcome *outcome = &it->outcome;
        desk_outcome_read(suggest, suggest->judged, i, outcome);
        it->keys = desk_share_of(outcome->keys_denied, part->keys, Z_95);
        it->requests = desk_share_of_time(suggest->judged, i);
        it->meets =
            part->requests > 0 && outcome->spared_denied == 0 &&
            (goal->keys < 0 || it->keys.part * (double)DESK_MILLION <= (double)goal->keys) &&
            (goal->requests < 0 ||
             it->requests.part * (double)DESK_MILLION <= (double)goal->requests) &&
            (goal->protect == 0 || outcome->highest <= goal->protect);
    }
    return 0;
}

/* ---- all of it ---- */

/* Limits that spare the keys by being loose enough; if that stops too little of the rest, the keys
 * are left out instead. */
static int suggest_search(struct desk_suggest *suggest, struct desk_search *search, weir_error *err)
{
    int code = desk_search_run(search, err);
    if (code || suggest->verdict != DESK_SUGGESTED || suggest->spared_keys == 0 ||
        !suggest->options.can_exempt || suggest->goal.protect > 0)
        return code;
    const struct desk_part first = suggest->parts[0];
    struct desk_search *other = calloc(1, sizeof *other);
    if (!other)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    other->suggest = suggest;
    suggest->exempt = true;
    code = desk_search_run(other, err);
    suggest->exempt =
        code == 0 && suggest->verdict == DESK_SUGGESTED &&
        (double)desk_choose_most(search) < WORTH_SPARING * (double)desk_choose_most(other);
    if (suggest->exempt) {
        *search = *other;
    } else {
        suggest->parts[0] = first;
        suggest->verdict = DESK_SUGGESTED;
    }
    free(other);
    return code;
}

static void suggest_conclude(struct desk_suggest *suggest)
{
    size_t meeting = 0;
    if (suggest->count == 0) {
        suggest_give_up(suggest, DESK_NO_LIMIT,
                        "No limit keeps this goal in the first half of the log.");
        suggest_advise(suggest,
                       suggest->goal.protect > 0
                           ? "Protect more, spare fewer keys, or allow more denials."
                           : "Allow more denials, spare fewer keys, choose another --key, or "
                             "count in a larger unit: --cost bytes/1000.");
        return;
    }
    if (!desk_suggest_is_long_enough(suggest, 1))
        return;
    for (size_t i = 0; i < suggest->count; i++)
        meeting += suggest->suggestions[i].meets;
    if (meeting > 0)
        return;
    suggest_give_up(suggest, DESK_NO_LIMIT,
                    "What kept the goal in the first half of the log misses it in the second: the "
                    "traffic changes too much.");
    suggest_advise(suggest, "Use a longer log, or a goal with more room.");
}

static int suggest_run(struct desk_suggest *suggest, weir_error *err)
{
    int code = suggest_read_whole(suggest, err);
    if (code || !suggest_divide(suggest))
        return code;
    struct desk_search *search = calloc(1, sizeof *search);
    if (!search)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    search->suggest = suggest;
    code = suggest_search(suggest, search, err);
    if (code == 0 && suggest->verdict == DESK_SUGGESTED)
        code = desk_choose(search, err);
    free(search);
    if (code || suggest->verdict != DESK_SUGGESTED)
        return code;
    if (suggest->count > 0)
        code = suggest_judge(suggest, err);
    if (code == 0 && desk_choose_order(suggest)) /* the engine has its candidates in this order */
        code = suggest_judge(suggest, err);
    if (code == 0)
        suggest_conclude(suggest);
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
    desk_engine_free(suggest->judged); /* before its limits */
    for (size_t i = 0; i < DESK_SUGGESTIONS; i++)
        weir_limit_free(suggest->suggestions[i].limit);
    free(suggest->spared);
    free(suggest);
}
