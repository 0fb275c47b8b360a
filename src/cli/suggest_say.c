/* What `weir suggest` says about a log and about its suggestions: the same words in the terminal,
 * in JSON and on the page. What comes from the log is masked. */
#include "cli/suggest.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define SPARED_NAMED 3 /* keys */
#define FEW_KEYS 10    /* fewer say little */
#define THIN 0.8       /* of what the goal permits: more leaves little room */
#define SECOND_US INT64_C(1000000)
#define HEAVY 0.5 /* of all requests: a key that should be known by name */

struct suggest_text suggest_percent(double part)
{
    struct suggest_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    double percent = 100 * part;
    weir__put_format(&buffer,
                     percent >= 10    ? "%.1f%%"
                     : percent >= 0.1 ? "%.2f%%"
                                      : "%.2g%%",
                     percent);
    return ret;
}

static const char *say_s(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* ---- the goal ---- */

void suggest_put_goal(struct weir__buffer *buffer, const struct desk_goal *goal)
{
    const char *and = "";
    if (goal->keys == 0)
        weir__put_text(buffer, "deny nobody");
    if (goal->keys > 0)
        weir__put_format(buffer, "deny at most %g%% of the keys%s", (double)goal->keys / 1e4,
                         goal->least > 0 ? ", or one key of fewer than 100" : "");
    and = buffer->len ? ", and " : "";
    if (goal->requests >= 0)
        weir__put_format(buffer, "%sdeny at most %g%% of the requests", and,
                         (double)goal->requests / 1e4);
    and = buffer->len ? ", and " : "";
    if (goal->protect > 0)
        weir__put_format(buffer, "%slet at most %" PRId64 " requests per %s through", and,
                         goal->protect, goal->protect_us == 1000000 ? "second" : "minute");
}

/* ---- the log ---- */

static struct suggest_text say_time(int64_t us)
{
    struct suggest_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    desk_put_time(&buffer, us);
    return ret;
}

void suggest_put_part(struct weir__buffer *out, const struct desk_part *part)
{
    struct suggest_text from = say_time(part->from_us), to = say_time(part->to_us);
    bool same = strlen(to.text) > 11 && !strncmp(from.text, to.text, 11); /* the day */
    weir__put_format(out, "%s to %s: %" PRId64 " request%s of %" PRId64 " key%s", from.text,
                     to.text + (same ? 11 : 0), part->requests, say_s(part->requests), part->keys,
                     say_s(part->keys));
}

void suggest_put_spared(struct weir__buffer *out, const struct desk_suggest *result)
{
    const struct desk_engine *whole = result->whole;
    const struct desk_key *top[SPARED_NAMED];
    size_t n = desk_engine_spared(whole, top, SPARED_NAMED);
    for (size_t i = 0; i < n; i++) {
        struct weir__span key = desk_key_text(whole, top[i]);
        weir__put_format(out, "%s%s with %" PRId64 " request%s", i ? ", " : "",
                         cli_show(key.data, key.len).text, top[i]->requests,
                         say_s(top[i]->requests));
    }
    if (whole->spared_keys > (int64_t)n)
        weir__put_format(out, " and %" PRId64 " more; %" PRId64 " requests in all",
                         whole->spared_keys - (int64_t)n, whole->spared_requests);
}

/* To deny few requests, a limit must let the heaviest key pass: that is seldom what is meant. */
bool suggest_put_heavy(struct weir__buffer *out, const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    const struct desk_goal *goal = &result->goal;
    double least = goal->requests >= 0 ? 10 * (double)goal->requests / DESK_MILLION : HEAVY;
    const struct desk_key *key = desk_goal_heavy_key(result, least < HEAVY ? least : HEAVY);
    if (!key || !result->judged || goal->protect > 0)
        return false;
    struct weir__span text = desk_key_text(result->whole, key);
    weir__put_format(out, "%s alone makes %s of the requests. ", cli_show(text.data, text.len).text,
                     suggest_percent((double)key->requests / (double)result->whole->requests).text);
    if (goal->requests >= 0)
        weir__put_format(out,
                         "A limit that stops it denies more than %g%%: to stop it, use --deny-keys "
                         "instead. ",
                         (double)goal->requests / 1e4);
    weir__put_text(out, "If it is your own proxy, --key or --field must name the real client. If "
                        "it must pass, name it with --spare.");
    return true;
}

/* ---- why ---- */

static const char *why_period(int64_t us)
{
    switch (us) {
    case 1000000:
        return "second";
    case 10000000:
        return "10 seconds";
    case 60000000:
        return "minute";
    case INT64_C(3600000000):
        return "hour";
    default:
        assert(us == INT64_C(86400000000));
        return "day";
    }
}

/* What a limit lets a key do, in numbers of this limit. */
static void why_put_meaning(struct weir__buffer *out, const struct suggest *suggest,
                            const weir_limit *limit)
{
    const struct desk_engine *whole = suggest->result->whole;
    bool costs = whole->cost != whole->requests, answers = suggest_status(suggest) != NULL;
    const char *unit = costs ? "" : answers ? " such answers" : " times";
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        const char *each = suggest->key_text[0] == '\'' ? "" : "Each ";
        if (i == 0)
            weir__put_format(out, "%s%s may %s ", each, *each ? suggest->key_text : "All together",
                             costs     ? "use"
                             : answers ? "get"
                                       : "ask");
        else
            weir__put_text(out, ", and ");
        bool bucket = weir__algorithm_of(rule)->shape == WEIR__SHAPE_DEBT;
        if (!bucket)
            weir__put_format(out, "%" PRId64 "%s within %s%s, fast or slowly", rule->count, unit,
                             rule->period_us == 10 * SECOND_US     ? ""
                             : rule->period_us == 3600 * SECOND_US ? "an "
                                                                   : "a ",
                             why_period(rule->period_us));
        else if (rule->burst == 1 && !costs)
            weir__put_format(out, "%s every %s", answers ? "one such answer" : "once",
                             cli_exact(rule->period_us / rule->count).text);
        else
            weir__put_format(out, "%" PRId64 "%s at once, then %" PRId64 " per %s", rule->burst,
                             unit, rule->count, why_period(rule->period_us));
    }
    weir__put_text(out, ". ");
}

static void why_put_total(struct weir__buffer *out, const struct suggest *suggest,
                          const struct desk_suggestion *it)
{
    const struct desk_goal *goal = &suggest->result->goal;
    const char *unit = why_period(goal->protect_us);
    if (it->kind == DESK_KIND_QUEUE)
        weir__put_format(out,
                         "Whoever asks, at most %" PRId64 " go ahead per %s; up to %" PRId64
                         " more wait for their turn, at most half a %s, and the rest is denied.",
                         goal->protect, unit, goal->protect / 2, unit);
    else
        weir__put_format(out,
                         "Whoever asks, at most %" PRId64
                         " go ahead in any %s; nobody waits, what is too much is denied at once.",
                         goal->protect, unit);
}

/* What it did in the first half. */
static void why_put_first(struct weir__buffer *out, const struct desk_suggestion *it)
{
    const struct desk_outcome *did = &it->chosen;
    if (did->denied == 0) {
        weir__put_format(out, "In the first half nobody would have been denied%s.",
                         it->roomy ? ", and half as much would have been enough" : "");
        return;
    }
    weir__put_format(out, "In the first half it denied %" PRId64 " request%s of %" PRId64 " key%s",
                     did->denied, say_s(did->denied), did->keys_denied, say_s(did->keys_denied));
    if (did->keys_stopped == did->keys_denied)
        weir__put_format(out, ", at least half of what %s asked for",
                         did->keys_stopped == 1 ? "it" : "each");
    else if (did->keys_stopped > 0)
        weir__put_format(out, "; %" PRId64 " of them lost at least half of what they asked for",
                         did->keys_stopped);
    weir__put_format(out, ".%s", it->roomy ? " Half as much would have denied no more keys." : "");
}

void suggest_put_why(struct weir__buffer *out, const struct suggest *suggest, size_t i)
{
    const struct desk_suggestion *it = &suggest->result->suggestions[i];
    if (it->total) {
        why_put_total(out, suggest, it);
        return;
    }
    why_put_meaning(out, suggest, it->limit);
    if (suggest->result->goal.protect > 0) {
        weir__put_format(out,
                         "In the first half, all keys together then came to at most %" PRId64
                         ". It is not a guarantee, because many keys can still add up.",
                         it->chosen.highest);
        return;
    }
    if (it->kind == DESK_KIND_BOTH)
        weir__put_text(out, "In the first half, both together stopped more than each alone. ");
    why_put_first(out, it);
}

/* ---- what it did ---- */

void suggest_put_requests(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_share *share = &result->suggestions[i].requests;
    weir__put_format(out, "%" PRId64 " of %" PRId64 " requests, %s; expect %s to %s",
                     result->judged->tallies[i].denied, result->parts[1].requests,
                     suggest_percent(share->part).text, suggest_percent(share->low).text,
                     suggest_percent(share->high).text);
}

void suggest_put_keys(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_share *share = &result->suggestions[i].keys;
    weir__put_format(out, "%" PRId64 " of %" PRId64 " keys, %s; expect %s to %s",
                     result->judged->tallies[i].keys_denied, result->parts[1].keys,
                     suggest_percent(share->part).text, suggest_percent(share->low).text,
                     suggest_percent(share->high).text);
}

void suggest_put_exempt(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_suggestion *it = &result->suggestions[i];
    if (it->exempt)
        weir__put_format(out,
                         "left out: it would deny them, %" PRId64 " requests in the first half",
                         it->would_deny);
    else if (it->outcome.spared_denied == 0)
        weir__put_text(out, "never denied by this limit, so it needs no exemption");
    else
        weir__put_format(out, "%" PRId64 " of their requests were denied",
                         it->outcome.spared_denied);
}

/* Which goal was missed, and by how much. */
static void meets_put_missed(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_suggestion *it = &result->suggestions[i];
    const struct desk_goal *goal = &result->goal;
    weir__put_text(out, "missed: ");
    if (it->outcome.spared_denied > 0)
        weir__put_format(out, "%" PRId64 " request%s of keys to be spared %s denied",
                         it->outcome.spared_denied, say_s(it->outcome.spared_denied),
                         it->outcome.spared_denied == 1 ? "was" : "were");
    else if (goal->keys >= 0 &&
             it->outcome.keys_denied > desk_goal_keys(goal, result->parts[1].keys))
        weir__put_format(out, "%s of the keys were denied, and the goal is %g%%",
                         suggest_percent(it->keys.part).text, (double)goal->keys / 1e4);
    else if (goal->requests >= 0 && it->requests.part * DESK_MILLION > (double)goal->requests)
        weir__put_format(out, "%s of the requests were denied, and the goal is %g%%",
                         suggest_percent(it->requests.part).text, (double)goal->requests / 1e4);
    else if (goal->protect > 0 && it->outcome.highest > goal->protect)
        weir__put_format(out, "%" PRId64 " went ahead, and the goal is %" PRId64,
                         it->outcome.highest, goal->protect);
    else
        weir__put_text(out, "there were no requests");
}

/* What was denied, and what the goal permits. True: there is little room between them. */
static bool meets_put_room(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_suggestion *it = &result->suggestions[i];
    const struct desk_goal *goal = &result->goal;
    int64_t most = goal->keys >= 0 ? desk_goal_keys(goal, result->parts[1].keys) : 0;
    int64_t denied = it->outcome.keys_denied;
    bool thin = false;
    if (goal->keys >= 0 && most == 0)
        weir__put_text(out, ": nobody was denied");
    else if (goal->keys >= 0)
        weir__put_format(out, ": %" PRId64 " key%s denied, and the goal permits %" PRId64, denied,
                         say_s(denied), most);
    thin = most > 0 && (double)denied > THIN * (double)most;
    if (goal->requests < 0)
        return thin;
    weir__put_format(out, "%s %s of the requests denied, and the goal permits %g%%",
                     goal->keys >= 0 ? ";" : ":", suggest_percent(it->requests.part).text,
                     (double)goal->requests / 1e4);
    return thin || it->requests.part * DESK_MILLION > THIN * (double)goal->requests;
}

void suggest_put_meets(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_goal *goal = &result->goal;
    if (!result->suggestions[i].meets) {
        meets_put_missed(out, result, i);
        return;
    }
    struct weir__buffer room = weir__buffer_growing();
    bool thin = meets_put_room(&room, result, i);
    weir__put_text(out, thin ? "met, with little room" : "met");
    weir__put_text(out, room.data);
    if (goal->keys >= 0 && result->parts[1].keys < FEW_KEYS)
        weir__put_text(out, "; so few keys say little about another day");
    weir__buffer_free(&room);
}

const char *suggest_order(const struct desk_suggest *result)
{
    return result->verdict != DESK_SUGGESTED ? "These were tried; the gentlest comes first."
           : result->goal.protect > 0
               ? "Choose one of these. Those that meet the goal come first; of them the gentlest, "
                 "which denies the fewest keys."
           : result->options.spare_count > 0
               ? "Choose one of these. Those that meet the goal and stop much come first; of them "
                 "the gentlest, which denies the fewest keys, then one without exemptions."
               : "Choose one of these. Those that meet the goal and stop much come first; of them "
                 "the gentlest, which denies the fewest keys.";
}
