/* What `weir suggest --json` prints; docs/CLI.md says what the members are. */
#include "cli/suggest.h"

#include <string.h>

static void json_put_part(struct weir__json *json, const char *name, const struct desk_part *part)
{
    weir__json_open(json, name, '{');
    weir__json_put_seconds(json, "from", part->from_us);
    weir__json_put_seconds(json, "to", part->to_us);
    weir__json_put_int(json, "requests", part->requests);
    weir__json_put_int(json, "keys", part->keys);
    weir__json_open(json, "suspects", '{');
    weir__json_put_int(json, "keys", part->suspect_keys);
    weir__json_put_int(json, "requests", part->suspect_requests);
    if (part->suspect_requests > 0) {
        weir__json_put_seconds(json, "first", part->suspects_from_us);
        weir__json_put_seconds(json, "last", part->suspects_to_us);
    }
    weir__json_close(json, '}');
    weir__json_close(json, '}');
}

static void json_put_goal(struct weir__json *json, const struct desk_goal *goal)
{
    weir__json_open(json, "goal", '{');
    if (goal->keys >= 0)
        weir__json_put_double(json, "deny_keys", (double)goal->keys / DESK_MILLION);
    if (goal->least > 0)
        weir__json_put_int(json, "at_least", goal->least);
    if (goal->requests >= 0)
        weir__json_put_double(json, "deny_requests", (double)goal->requests / DESK_MILLION);
    if (goal->protect > 0) {
        weir__json_put_int(json, "protect", goal->protect);
        weir__json_put_seconds(json, "protect_period", goal->protect_us);
    }
    weir__json_put_bool(json, "default", goal->usual);
    weir__json_close(json, '}');
}

static void json_put_peaks(struct weir__json *json, const struct desk_suggest *result)
{
    static const char *const names[DESK_PERCENTILES] = {"p50", "p90", "p99", "p99.9", "most"};
    weir__json_open(json, "peaks", '[');
    for (size_t i = 0; i < result->peak_count; i++) {
        weir__json_open(json, NULL, '{');
        weir__json_put_seconds(json, "span", desk_peak_us[i]);
        for (size_t p = 0; p < DESK_PERCENTILES; p++)
            weir__json_put_int(json, names[p], result->peaks[i][p]);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void json_put_share(struct weir__json *json, const char *name, struct desk_share share)
{
    weir__json_open(json, name, '{');
    weir__json_put_double(json, "part", share.part);
    weir__json_put_double(json, "low", share.low);
    weir__json_put_double(json, "high", share.high);
    weir__json_close(json, '}');
}

static void json_put_paste(struct weir__json *json, const struct suggest *suggest, size_t i)
{
    struct suggest_paste paste;
    suggest_paste_make(suggest, i, &paste);
    bool policy = !paste.no_policy.message[0];
    weir__json_put_string(json, "policy", policy ? paste.policy.data : NULL);
    weir__json_put_string(json, "policy_file", policy ? paste.file.data : NULL);
    weir__json_put_string(json, "nginx", paste.no_nginx ? NULL : paste.nginx.data);
    weir__json_open(json, "notes", '[');
    if (!policy)
        weir__json_put_string(json, NULL, paste.no_policy.message);
    if (paste.no_nginx)
        weir__json_put_string(json, NULL, paste.no_nginx);
    for (size_t n = 0; n < paste.note_count; n++)
        weir__json_put_string(json, NULL, paste.notes[n].data);
    weir__json_close(json, ']');
    suggest_paste_free(&paste);
}

/* The keys that the strict one leaves out, and what the log says about them. */
static void json_put_heavy(struct weir__json *json, const struct desk_suggest *result)
{
    weir__json_open(json, "left_out_keys", '[');
    for (size_t i = 0; i < result->heavy.count; i++) {
        const struct desk_heavy_key *heavy = &result->heavy.keys[i];
        const struct desk_profile *key = &heavy->profile;
        weir__json_open(json, NULL, '{');
        weir__json_put_key(json, heavy->text, strlen(heavy->text));
        weir__json_put_int(json, "requests", key->requests);
        weir__json_put_int(json, "would_deny", heavy->would_deny);
        weir__json_put_int(json, "answers", key->answers);
        for (size_t s = 0; s < DESK_REFUSALS; s++) {
            static const char *const names[DESK_REFUSALS] = {"401", "403", "429"};
            weir__json_put_int(json, names[s], key->refused[s]);
        }
        weir__json_open(json, "agents", '[');
        for (size_t a = 0; a < key->agent_count; a++) {
            weir__json_open(json, NULL, '{');
            weir__json_put_string(json, "agent", key->agents[a].text);
            weir__json_put_int(json, "requests", key->agents[a].requests);
            weir__json_close(json, '}');
        }
        weir__json_close(json, ']');
        weir__json_put_bool(json, "more_agents", key->more_agents);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

/* Keys that it denies though they are no suspects. */
static void json_put_hurt(struct weir__json *json, const struct desk_suggest *result,
                          const struct desk_suggestion *it)
{
    weir__json_put_bool(json, "denies_good", it->denies_good);
    weir__json_put_int(json, "hurt_keys", it->hurt_keys);
    weir__json_open(json, "hurts", '[');
    for (size_t k = 0; k < it->hurt_count; k++) {
        const struct desk_profile *profile = &it->hurt[k].profile;
        const struct desk_key *key = desk_engine_find(result->whole, profile->hash);
        struct weir__span text = key ? desk_key_text(result->whole, key) : weir__span_of("");
        weir__json_open(json, NULL, '{');
        weir__json_put_key(json, text.data, text.len);
        weir__json_put_int(json, "requests", it->hurt[k].requests);
        weir__json_put_int(json, "denied", it->hurt[k].denied);
        weir__json_put_int(json, "answers", profile->answers);
        weir__json_put_int(json, "good", profile->good);
        weir__json_put_int(json, "agents", (int64_t)profile->agent_count);
        weir__json_put_bool(json, "more_agents", profile->more_agents);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void json_put_suggestion(struct weir__json *json, const struct suggest *suggest, size_t i)
{
    const struct desk_suggest *result = suggest->result;
    const struct desk_suggestion *it = &result->suggestions[i];
    const struct desk_tally *tally = &result->judged->tallies[i];
    struct weir__buffer why = weir__buffer_growing();
    suggest_put_why(&why, suggest, i);
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "name", desk_suggestion_name(it));
    weir__json_put_string(json, "limits", weir_limit_text(it->limit));
    weir__json_put_bool(json, "total", it->total);
    weir__json_put_bool(json, "left_out", it->exempt);
    weir__json_put_bool(json, "strict", it->strict);
    if (it->heavy)
        json_put_heavy(json, result);
    weir__json_put_text(json, "why", why.data, why.len);
    weir__json_put_bool(json, "meets_goal", it->meets);
    weir__json_open(json, "chosen", '{');
    weir__json_put_int(json, "denied", it->chosen.denied);
    weir__json_put_int(json, "keys_denied", it->chosen.keys_denied);
    weir__json_put_int(json, "suspects_denied", it->chosen.suspects_denied);
    weir__json_close(json, '}');
    weir__json_open(json, "judged", '{');
    weir__json_put_int(json, "allowed", tally->allowed);
    weir__json_put_int(json, "denied", tally->denied);
    weir__json_put_int(json, "delayed", tally->delayed);
    weir__json_put_int(json, "keys_denied", tally->keys_denied);
    weir__json_put_int(json, "spared_denied", it->outcome.spared_denied);
    weir__json_put_int(json, "suspects_denied", it->outcome.suspects_denied);
    json_put_share(json, "requests_part", it->requests);
    json_put_share(json, "keys_part", it->keys);
    weir__json_put_int(json, "highest_1s", tally->rates->highest[0]);
    weir__json_put_int(json, "highest_1m", tally->rates->highest[2]);
    desk_report_put_most(json, result->judged, i);
    weir__json_close(json, '}');
    json_put_hurt(json, result, it);
    json_put_paste(json, suggest, i);
    weir__json_close(json, '}');
    weir__buffer_free(&why);
}

static void json_put_spared(struct weir__json *json, const struct desk_suggest *result)
{
    bool exempt = false;
    for (size_t i = 0; i < result->count; i++)
        exempt |= result->suggestions[i].exempt && !result->suggestions[i].heavy;
    weir__json_open(json, "spared", '{');
    desk_report_put_spared(json, result->whole);
    weir__json_put_bool(json, "left_out", exempt);
    weir__json_close(json, '}');
}

static void json_put_slow(struct weir__json *json, const struct suggest *suggest)
{
    struct weir__buffer slow = weir__buffer_growing();
    suggest_put_slow(&slow, suggest);
    weir__json_put_string(json, "suspects_hint", slow.len ? slow.data : NULL);
    weir__buffer_free(&slow);
}

/* Commands that show the suggestions over time. */
static void json_put_commands(struct weir__json *json, const struct suggest *suggest)
{
    weir__json_open(json, "replay", '[');
    for (int group = 0; group < SUGGEST_GROUPS; group++) {
        struct weir__buffer command = weir__buffer_growing();
        if (suggest_put_command(&command, suggest, (enum suggest_group)group, false))
            weir__json_put_text(json, NULL, command.data, command.len);
        weir__buffer_free(&command);
    }
    weir__json_close(json, ']');
}

void suggest_print_json(const struct suggest *suggest)
{
    static const char *const verdicts[] = {"suggested", "no limit", "too short"};
    const struct desk_suggest *result = suggest->result;
    const struct desk_engine *whole = result->whole;
    struct weir__json json = cli_json_begin('{');
    bool about;
    weir__json_put_string(&json, "verdict", verdicts[result->verdict]);
    weir__json_put_string(&json, "reason", result->reason[0] ? result->reason : NULL);
    weir__json_put_string(&json, "advice", result->advice[0] ? result->advice : NULL);
    json_put_goal(&json, &result->goal);
    weir__json_put_int(&json, "requests", whole->requests);
    weir__json_put_int(&json, "keys", desk_engine_distinct(whole, &about));
    weir__json_put_string(&json, "key", suggest->key_text);
    weir__json_put_bool(&json, "approximate", result->lossy);
    weir__json_put_seconds(&json, "first", whole->requests > 0 ? whole->first_us : -1);
    weir__json_put_seconds(&json, "last", whole->requests > 0 ? whole->last_us : -1);
    json_put_peaks(&json, result);
    json_put_part(&json, "chosen_on", &result->parts[0]);
    json_put_part(&json, "judged_on", &result->parts[1]);
    json_put_spared(&json, result);
    weir__json_put_int(&json, "suspects", result->suspects.keys);
    json_put_slow(&json, suggest);
    weir__json_open(&json, "suggestions", '[');
    for (size_t i = 0; i < result->count && result->judged; i++)
        json_put_suggestion(&json, suggest, i);
    weir__json_close(&json, ']');
    json_put_commands(&json, suggest);
    desk_report_put_log(&json, &suggest->facts);
    cli_json_end(&json, '}');
}
