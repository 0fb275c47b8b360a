/* Goals of suggestions: the one that is used if nobody asks for one, whether a log says enough
 * about a goal, and what to do if no limit meets it. */
#include "desk/suggest.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define USUAL_KEYS 10000       /* millionths: 1 % */
#define USUAL_LEAST 1          /* key that may be denied, if there are too few for that */
#define USUAL_LEAST_OF 10      /* but of fewer keys nobody */
#define LOG_MOST 1000          /* requests that a log remembers in a limit that is to be tried */
#define HEAVY_FOR_REQUESTS 0.1 /* of the requests: whoever stops such a key denies that much */

int64_t desk_goal_keys(const struct desk_goal *goal, int64_t keys)
{
    assert(goal->keys >= 0);
    double part = (double)goal->keys / (double)DESK_MILLION;
    return weir__max((int64_t)(part * (double)keys + 1e-9), goal->least);
}

bool desk_goal_give_up(struct desk_suggest *suggest, enum desk_verdict verdict, const char *format,
                       ...)
{
    va_list args;
    va_start(args, format);
    suggest->verdict = verdict;
    vsnprintf(suggest->reason, sizeof suggest->reason, format, args);
    va_end(args);
    return false;
}

void desk_goal_advise(struct desk_suggest *suggest, const char *text)
{
    snprintf(suggest->advice, sizeof suggest->advice, "%s", text);
}

const struct desk_key *desk_goal_heavy_key(const struct desk_suggest *suggest, double part)
{
    const struct desk_engine *whole = suggest->whole;
    const struct desk_key *top;
    bool about;
    if (desk_engine_heaviest(whole, &top, 1) == 0 || desk_engine_distinct(whole, &about) < 2)
        return NULL;
    bool heavy = (double)top->requests >= part * (double)whole->requests;
    bool suspect =
        suggest->suspects.answers && desk_suspects_has(suggest->suspects.answers, top->hash);
    return heavy && !top->spared && !(suspect && suggest->goal.requests >= 0) ? top : NULL;
}

/* ---- the usual goal ---- */

static void goal_choose_usual(struct desk_suggest *suggest, const struct desk_part *part)
{
    struct desk_goal *goal = &suggest->goal;
    if (!goal->usual || goal->keys >= 0)
        return;
    bool few = desk_part_keys(part) < USUAL_LEAST_OF;
    goal->keys = few ? 0 : USUAL_KEYS;
    goal->least = few ? 0 : USUAL_LEAST;
}

/* ---- whether the log says enough ---- */

/* The part of so many that is two of them, in percent, rounded up to 0.01: one is the least that
 * can be chosen by, and the other half of the log may have one more. */
static double goal_least_percent(int64_t count)
{
    return (double)weir__min(weir__div_up(20000, weir__max(count, 1)), 10000) / 100;
}

/* A part of the log is too short for the goal: goals that it is long enough for, and a limit to try
 * that suits most keys as they are. */
static void goal_advise_larger(struct desk_suggest *suggest, const struct desk_part *part)
{
    const size_t span = suggest->peak_count > 1 ? 1 : 0; /* a minute, or a second */
    const int64_t most = desk_nice[desk_nice_up(suggest->peaks[span][2] + 1)];
    struct weir__buffer out = weir__buffer_over(suggest->advice, sizeof suggest->advice);
    weir__put_format(&out,
                     "Use a longer log, or a goal that this one is long enough for: --deny-keys "
                     "%g%%",
                     goal_least_percent(desk_part_keys(part)));
    if (!desk_goal_heavy_key(suggest, HEAVY_FOR_REQUESTS))
        weir__put_format(&out, ", or --deny-requests %g%%",
                         goal_least_percent(desk_part_requests(part)));
    weir__put_text(&out, ".");
    if (suggest->peak_count > 0)
        weir__put_format(&out,
                         " Or try a limit with the same options: weir replay \"%s %" PRId64
                         "/%s\" LOG; 99%% of the keys asked for less in a %s.",
                         most <= LOG_MOST ? "sliding-log" : "sliding-counter", most,
                         span ? "m" : "s", span ? "minute" : "second");
}

static const char *const goal_part_names[] = {"first", "second"};

/* Whether a part has requests that a limit can be for. */
static bool goal_has_requests(struct desk_suggest *suggest, size_t i)
{
    const struct desk_part *part = &suggest->parts[i];
    if (part->requests == 0) {
        desk_goal_advise(suggest, "Use a log of a longer time, or with traffic in both halves.");
        return desk_goal_give_up(suggest, DESK_TOO_SHORT, "The %s half of the log has no requests.",
                                 goal_part_names[i]);
    }
    if (desk_part_requests(part) > part->spared)
        return true;
    if (part->spared == 0) {
        desk_goal_advise(suggest, "Use a log of a longer time, or select more with --where.");
        return desk_goal_give_up(suggest, DESK_TOO_SHORT,
                                 "The %s half of the log has only requests of suspects: keys "
                                 "that got hardly a good answer.",
                                 goal_part_names[i]);
    }
    desk_goal_advise(suggest, "Spare fewer keys. If nobody at all is to be denied, use "
                              "--deny-keys 0% instead of --spare.");
    return desk_goal_give_up(suggest, DESK_TOO_SHORT,
                             "The %s half of the log has only requests of keys that are to be "
                             "spared.",
                             goal_part_names[i]);
}

bool desk_goal_is_clear(struct desk_suggest *suggest, size_t i)
{
    const struct desk_part *part = &suggest->parts[i];
    const struct desk_goal *goal = &suggest->goal;
    goal_choose_usual(suggest, part);
    if (!goal_has_requests(suggest, i))
        return false;
    if (goal->keys > 0 && desk_goal_keys(goal, desk_part_keys(part)) < 1) {
        goal_advise_larger(suggest, part);
        return desk_goal_give_up(suggest, DESK_TOO_SHORT,
                                 "%g%% of %" PRId64
                                 " keys is less than one key: the %s half of the log has too few "
                                 "keys for this goal; it needs %" PRId64 ".",
                                 (double)goal->keys / 1e4, desk_part_keys(part), goal_part_names[i],
                                 weir__div_up(DESK_MILLION, goal->keys));
    }
    if (goal->requests > 0 && desk_part_requests(part) * goal->requests < DESK_MILLION) {
        goal_advise_larger(suggest, part);
        return desk_goal_give_up(suggest, DESK_TOO_SHORT,
                                 "%g%% of %" PRId64
                                 " requests is less than one request: the %s half of the log is "
                                 "too short for this goal; it needs %" PRId64 ".",
                                 (double)goal->requests / 1e4, desk_part_requests(part),
                                 goal_part_names[i], weir__div_up(DESK_MILLION, goal->requests));
    }
    return true;
}

/* ---- the verdict ---- */

/* A goal in requests that one key alone exceeds. */
static bool goal_conclude_heavy(struct desk_suggest *suggest)
{
    const struct desk_goal *goal = &suggest->goal;
    const struct desk_key *key = desk_goal_heavy_key(suggest, HEAVY_FOR_REQUESTS);
    if (!key || goal->requests < 0)
        return false;
    double part = (double)key->requests / (double)suggest->whole->requests;
    if (part * (double)DESK_MILLION <= (double)goal->requests)
        return false;
    struct weir__buffer out = weir__buffer_over(suggest->advice, sizeof suggest->advice);
    int64_t keys =
        weir__min(desk_part_keys(&suggest->parts[0]), desk_part_keys(&suggest->parts[1]));
    double least = goal_least_percent(keys);
    desk_goal_give_up(suggest, DESK_NO_LIMIT,
                      "One key makes %.1f%% of the requests. A limit that stops it denies more "
                      "than %g%% of them.",
                      100 * part, (double)goal->requests / 1e4);
    weir__put_format(&out,
                     "Ask for a goal in keys instead: --deny-keys %g%%. If this key must pass, "
                     "name it with --spare.",
                     least > 1 ? least : 1);
    return true;
}

void desk_goal_conclude(struct desk_suggest *suggest)
{
    size_t meeting = 0;
    if (suggest->count == 0) {
        desk_goal_give_up(suggest, DESK_NO_LIMIT,
                          "No limit keeps this goal in the first half of the log.");
        desk_goal_advise(suggest,
                         suggest->goal.protect > 0
                             ? "Protect more, spare fewer keys, or allow more denials."
                             : "Allow more denials, spare fewer keys, choose another --key, or "
                               "count in a larger unit: --cost bytes/1000.");
        return;
    }
    if (!desk_goal_is_clear(suggest, 1))
        return;
    for (size_t i = 0; i < suggest->count; i++)
        meeting += suggest->suggestions[i].meets;
    if (meeting > 0 || goal_conclude_heavy(suggest))
        return;
    desk_goal_give_up(suggest, DESK_NO_LIMIT,
                      "What kept the goal in the first half of the log misses it in the second: "
                      "the traffic changes too much.");
    desk_goal_advise(suggest, "Use a longer log, or a goal with more room.");
}
