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
#define HEAVY 0.5      /* of all requests: a key that should be known by name */
#define PROTECT_ROOM 2 /* times what came at most in a minute */
#define ONE_PATH 0.95  /* of the requests of a key: nearly all */
/* Of a path of the log, to be copied into a shell. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"

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

static void say_span(struct weir__buffer *out, int64_t from_us, int64_t to_us)
{
    struct suggest_text from = say_time(from_us), to = say_time(to_us);
    bool same = strlen(to.text) > 11 && !strncmp(from.text, to.text, 11); /* the day */
    weir__put_format(out, "%s to %s", from.text, to.text + (same ? 11 : 0));
    desk_put_zone(out, to_us);
}

void suggest_put_part(struct weir__buffer *out, const struct desk_part *part)
{
    say_span(out, part->from_us, part->to_us);
    weir__put_format(out, ": %" PRId64 " request%s of %" PRId64 " key%s", part->requests,
                     say_s(part->requests), part->keys, say_s(part->keys));
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

void suggest_put_suspects(struct weir__buffer *out, const struct desk_suggest *result)
{
    const struct desk_part *first = &result->parts[0], *second = &result->parts[1];
    int64_t keys = result->suspects.keys;
    int64_t requests = first->suspect_requests + second->suspect_requests;
    if (keys == 0 || requests == 0)
        return;
    int64_t from_us = (first->suspect_requests > 0 ? first : second)->suspects_from_us;
    int64_t to_us = (second->suspect_requests > 0 ? second : first)->suspects_to_us;
    weir__put_format(out, "%" PRId64 " key%s with %" PRId64 " requests and %s good answer (", keys,
                     say_s(keys), requests, result->suspects.some_unrefused ? "hardly a" : "no");
    say_span(out, from_us, to_us);
    weir__put_format(out, "). The goal does not protect %s.", keys == 1 ? "it" : "them");
}

static bool say_is_nearly_all(const struct desk_vote *vote, int64_t requests)
{
    return (double)vote->requests >= ONE_PATH * (double)requests && requests > 0;
}

/* A path that --where can select, and a shell passes on. */
static bool say_is_plain(const char *path)
{
    return path[0] == '/' && path[strspn(path, PLAIN)] == 0;
}

/* Suspects that ask for one thing stand out among the requests for it. False: they do not, or these
 * were selected already. */
static bool slow_put_where(struct weir__buffer *out, const struct suggest *suggest)
{
    const struct desk_asked *asked = &suggest->result->suspects.asked;
    const char *path = asked->path.text, *method = asked->method.text;
    if (!say_is_nearly_all(&asked->path, asked->requests) || !say_is_plain(path) ||
        suggest_selects_path(suggest))
        return false;
    bool one = say_is_nearly_all(&asked->method, asked->requests) &&
               method[strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == 0;
    for (size_t i = 0; i < suggest->logs.where.count; i++)
        one = one && strncmp(suggest->logs.where.texts[i], "method", strlen("method")) != 0;
    weir__put_format(out, "%s their requests are %s %s: try --where path=%s",
                     asked->path.requests == asked->requests ? "All" : "Nearly all",
                     one ? method : "for", path, path);
    if (one)
        weir__put_format(out, " --where method=%s", method);
    weir__put_text(out, ".");
    return true;
}

/* A window that is no suggestion: what it would do, and how to look at it. */
static void slow_put_tight(struct weir__buffer *out, const struct desk_suggest *result)
{
    const struct desk_tight *tight = &result->tight;
    int64_t requests = result->parts[0].suspect_requests + result->parts[1].suspect_requests;
    bool heavy = desk_tight_is_heavy(result);
    weir__put_format(out, "\"%s\"", weir_limit_text(tight->limit));
    for (size_t i = 0; heavy && i < result->heavy.count; i++)
        weir__put_format(out, "%s%s", i ? ", " : " without ",
                         cli_show_text(result->heavy.texts[i]).text);
    if (tight->exempt && !heavy)
        weir__put_text(out, " without the keys to be spared");
    weir__put_format(out, " would: in the whole log it denies %s of their requests, and ",
                     suggest_percent((double)tight->suspects_denied / (double)requests).text);
    if (tight->others_denied == 0)
        weir__put_text(out, "nobody else");
    else
        weir__put_format(out, "%" PRId64 " request%s of %" PRId64 " other key%s",
                         tight->others_denied, say_s(tight->others_denied),
                         tight->others_keys_denied, say_s(tight->others_keys_denied));
    weir__put_text(out, ". It was chosen with the suspects of both halves, so nothing has judged "
                        "it. The weir replay below shows it as \"tight\". ");
}

/* A limit for all together that the busiest minute of the others keeps with room; 0: the one with
 * the suspects hardly exceeds it, or as much is protected already. */
static int64_t slow_protect(const struct desk_suggest *result)
{
    const struct desk_asked *asked = &result->suspects.asked;
    const struct desk_goal *goal = &result->goal;
    int64_t rate = desk_nice[desk_nice_up(PROTECT_ROOM * asked->others_most)];
    int64_t minute = goal->protect_us == SECOND_US ? 60 * goal->protect : goal->protect;
    bool useful = asked->others_most > 0 && asked->all_most >= PROTECT_ROOM * rate;
    return useful && (minute == 0 || rate < minute) ? rate : 0;
}

/* What helps if no limit for each key does. */
static void slow_put_else(struct weir__buffer *out, const struct desk_suggest *result)
{
    int64_t rate = slow_protect(result);
    weir__put_format(out, "%s each account (docs/LOGIN.md)",
                     result->tight.limit ? "Or limit" : "Limit");
    if (rate > 0)
        weir__put_format(out,
                         ", or all together: --protect %" PRId64 "/m; without the suspects at "
                         "most %" PRId64 " came in a minute",
                         rate, result->suspects.asked.others_most);
    weir__put_text(out, ".");
}

void suggest_put_slow(struct weir__buffer *out, const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    int64_t requests = result->parts[0].suspect_requests + result->parts[1].suspect_requests;
    if (!result->suspects.slow)
        return;
    weir__put_format(out,
                     "None of these limits meets the goal and denies half of what the suspects "
                     "ask for: each asks only about %" PRId64 " times. ",
                     requests / result->suspects.keys);
    if (result->tight.limit)
        slow_put_tight(out, result);
    if (!slow_put_where(out, suggest))
        slow_put_else(out, result);
}

void suggest_put_stops(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_suggestion *it = &result->suggestions[i];
    int64_t requests = result->parts[0].suspect_requests + result->parts[1].suspect_requests;
    int64_t denied = it->chosen.suspects_denied + it->outcome.suspects_denied;
    const char *their = result->suspects.keys == 1 ? "its" : "their";
    if (requests == 0)
        return;
    if (denied == 0)
        weir__put_format(out, "none of %s requests would be denied: this limit does not stop %s",
                         their, result->suspects.keys == 1 ? "it" : "them");
    else
        weir__put_format(out, "%s of %s requests would be denied",
                         suggest_percent((double)denied / (double)requests).text, their);
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

/* "a minute", "an hour", "10 seconds" */
static struct suggest_text why_one_period(int64_t us)
{
    struct suggest_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    const char *article = us == 10 * SECOND_US ? "" : us == 3600 * SECOND_US ? "an " : "a ";
    weir__put_format(&buffer, "%s%s", article, why_period(us));
    return ret;
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
            weir__put_format(out, "%" PRId64 "%s within %s, fast or slowly", rule->count, unit,
                             why_one_period(rule->period_us).text);
        else if (rule->burst == 1 && !costs)
            weir__put_format(out, "%s every %s", answers ? "one such answer" : "once",
                             cli_exact(rule->period_us / rule->count).text);
        else
            weir__put_format(out, "%" PRId64 "%s at once, then %" PRId64 " per %s", rule->burst,
                             unit, rule->count, why_period(rule->period_us));
    }
    weir__put_text(out, ". ");
}

/* A sliding counter knows two numbers of a key, not the times of its requests. */
static void why_put_counter(struct weir__buffer *out, const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        struct suggest_text period = why_one_period(rule->period_us);
        if (weir__algorithm_of(rule)->shape == WEIR__SHAPE_PAIR)
            weir__put_format(out,
                             "Never more than %" PRId64 " at once; but whoever uses them up at the "
                             "end of %s of the clock gets as many during the next: up to "
                             "%" PRId64 " within %s. ",
                             rule->count, period.text, 2 * rule->count, period.text);
    }
}

static void why_put_queue(struct weir__buffer *out, const struct desk_goal *goal, const char *unit)
{
    int64_t waiting = goal->protect / 2;
    weir__put_format(out, "Whoever asks, at most %" PRId64 " go%s ahead per %s", goal->protect,
                     goal->protect == 1 ? "es" : "", unit);
    if (waiting > 0)
        weir__put_format(out,
                         "; up to %" PRId64 " more wait%s for %s turn, at most half a %s, and the "
                         "rest is denied.",
                         waiting, waiting == 1 ? "s" : "", waiting == 1 ? "its" : "their", unit);
    else
        weir__put_text(out, ", and the rest is denied.");
}

static void why_put_total(struct weir__buffer *out, const struct suggest *suggest,
                          const struct desk_suggestion *it)
{
    const struct desk_goal *goal = &suggest->result->goal;
    const char *unit = why_period(goal->protect_us);
    if (it->kind == DESK_KIND_QUEUE)
        why_put_queue(out, goal, unit);
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
        weir__put_format(out, "; %" PRId64 " of them lost at least half of what %s asked for",
                         did->keys_stopped, did->keys_stopped == 1 ? "it" : "they");
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
    why_put_counter(out, it->limit);
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
    if (it->gentle)
        weir__put_text(out, " It is offered because the others mostly deny keys that get good "
                            "answers: it only stops who asks for far more than these.");
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

void suggest_put_decide(struct weir__buffer *out, const struct desk_suggest *result)
{
    size_t count = result->heavy.count;
    weir__put_format(out,
                     "%zu key%s that it would deny. You must decide: keep a friend, like an office "
                     "or a probe, in `allow` or `geo` below; delete an attacker there.",
                     count, say_s((int64_t)count));
}

/* "mostly curl/8.5", or how many there are. */
static void say_agents(struct weir__buffer *out, const struct desk_profile *key)
{
    const struct desk_agent *most = &key->agents[0];
    for (size_t i = 1; i < key->agent_count; i++) {
        if (key->agents[i].requests > most->requests)
            most = &key->agents[i];
    }
    if (key->agent_count == 0)
        return;
    if (2 * most->requests > key->requests)
        weir__put_format(out, "; %sagent \"%s%s\"",
                         most->requests < key->requests ? "mostly the " : "",
                         cli_show_text(most->text).text, most->cut ? "…" : "");
    else
        weir__put_format(out, "; %zu%s agents", key->agent_count,
                         key->more_agents ? " or more" : "");
}

void suggest_put_heavy_key(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_heavy_key *heavy = &result->heavy.keys[i];
    const struct desk_profile *key = &heavy->profile;
    weir__put_format(out, "%s: %s of all requests; the limit would deny %s of them",
                     cli_show_text(heavy->text).text,
                     suggest_percent((double)key->requests / (double)result->whole->requests).text,
                     suggest_percent((double)heavy->would_deny / (double)key->requests).text);
    for (size_t s = 0; s < DESK_REFUSALS && key->answers > 0; s++) {
        if (key->refused[s] > 0)
            weir__put_format(out, "; %s of the answers were %d",
                             suggest_percent((double)key->refused[s] / (double)key->answers).text,
                             desk_refusals[s]);
    }
    say_agents(out, key);
}

/* Nearly all of its requests have one path, and --where can select it. */
static void say_path(struct weir__buffer *out, const struct suggest *suggest,
                     const struct desk_profile *key)
{
    const char *path = key->path.text;
    if (!say_is_nearly_all(&key->path, key->requests) || !say_is_plain(path) ||
        suggest_selects_path(suggest))
        return;
    double part = (double)key->path.requests / (double)key->requests;
    weir__put_format(out,
                     "; %s for %s: limit it alone with --where path=%s, or leave it out with "
                     "--where path!=%s",
                     suggest_percent(part).text, path, path, path);
}

bool suggest_put_hurt(struct weir__buffer *out, const struct suggest *suggest, size_t i, size_t k)
{
    const struct desk_suggest *result = suggest->result;
    const struct desk_suggestion *it = &result->suggestions[i];
    if (k == it->hurt_count && it->hurt_keys > (int64_t)k)
        weir__put_format(out, "and %" PRId64 " more", it->hurt_keys - (int64_t)k);
    if (k >= it->hurt_count)
        return false;
    const struct desk_hurt *hurt = &it->hurt[k];
    const struct desk_profile *profile = &hurt->profile;
    const struct desk_key *key = desk_engine_find(result->whole, profile->hash);
    struct weir__span text = key ? desk_key_text(result->whole, key) : weir__span_of("?");
    weir__put_format(out, "%s: %" PRId64 " of its %" PRId64 " requests denied in the whole log",
                     cli_show(text.data, text.len).text, hurt->denied, hurt->requests);
    if (profile->answers > 0)
        weir__put_format(out, "; %s of its answers were good",
                         suggest_percent((double)profile->good / (double)profile->answers).text);
    say_agents(out, profile);
    say_path(out, suggest, profile);
    return true;
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

/* The goal is about the others. */
static const char *meets_besides(const struct desk_part *part)
{
    return part->suspect_keys > 0 ? "besides the suspects " : "";
}

/* Which goal was missed, and by how much. */
static void meets_put_missed(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_suggestion *it = &result->suggestions[i];
    const struct desk_goal *goal = &result->goal;
    const struct desk_part *part = &result->parts[1];
    weir__put_text(out, "missed: ");
    if (it->outcome.spared_denied > 0)
        weir__put_format(out, "%" PRId64 " request%s of keys to be spared %s denied",
                         it->outcome.spared_denied, say_s(it->outcome.spared_denied),
                         it->outcome.spared_denied == 1 ? "was" : "were");
    else if (goal->keys >= 0 &&
             it->outcome.others_keys_denied > desk_goal_keys(goal, desk_part_keys(part)))
        weir__put_format(out, "%s%s of the keys were denied, and the goal is %g%%",
                         meets_besides(part),
                         suggest_percent((double)it->outcome.others_keys_denied /
                                         (double)weir__max(desk_part_keys(part), 1))
                             .text,
                         (double)goal->keys / 1e4);
    else if (goal->requests >= 0 && it->others_part * DESK_MILLION > (double)goal->requests)
        weir__put_format(out, "%s%s of the requests were denied, and the goal is %g%%",
                         meets_besides(part), suggest_percent(it->others_part).text,
                         (double)goal->requests / 1e4);
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
    const struct desk_part *part = &result->parts[1];
    const char *besides = meets_besides(part);
    int64_t most = goal->keys >= 0 ? desk_goal_keys(goal, desk_part_keys(part)) : 0;
    int64_t denied = it->outcome.others_keys_denied;
    bool thin = false;
    if (goal->keys >= 0 && most == 0)
        weir__put_format(out, ": %snobody was denied", besides);
    else if (goal->keys >= 0)
        weir__put_format(out, ": %s%" PRId64 " key%s denied, and the goal permits %" PRId64,
                         besides, denied, say_s(denied), most);
    thin = most > 0 && (double)denied > THIN * (double)most;
    if (goal->requests < 0)
        return thin;
    weir__put_format(out, "%s %s%s of the requests denied, and the goal permits %g%%",
                     goal->keys >= 0 ? ";" : ":", goal->keys >= 0 ? "" : besides,
                     suggest_percent(it->others_part).text, (double)goal->requests / 1e4);
    return thin || it->others_part * DESK_MILLION > THIN * (double)goal->requests;
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
    if (goal->keys >= 0 && desk_part_keys(&result->parts[1]) < FEW_KEYS)
        weir__put_text(out, "; so few keys say little about another day");
    if (result->suggestions[i].denies_good)
        weir__put_format(out,
                         ". But %s of what it denies in the whole log is of keys that mostly get "
                         "good answers in both halves: see whom it hurts",
                         suggest_percent(result->suggestions[i].good_part).text);
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
