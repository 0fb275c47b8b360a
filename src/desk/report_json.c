/* A report for machines: see report.h. docs/CLI.md says what the members are. */
#include "desk/report.h"

#include <assert.h>
#include <string.h>

void desk_report_part(struct weir__buffer *buffer, const struct desk_shown *shown, size_t i)
{
    if (shown->limit && i < shown->limit->count)
        weir__put_limit(buffer, shown->limit, i);
    else if (i < shown->part_count)
        weir__put_text(buffer, shown->parts[i]);
}

static void json_put_key(struct weir__json *json, const struct desk_engine *engine,
                         const struct desk_key *key)
{
    struct weir__span text = desk_key_text(engine, key);
    weir__json_put_key(json, text.data, text.len);
    if (key->text_cut)
        weir__json_put_bool(json, "shortened", true);
}

static void json_put_most(struct weir__json *json, const struct desk_engine *engine,
                          size_t candidate, bool delayed)
{
    const struct desk_key *top[DESK_TOP];
    size_t n = delayed ? desk_engine_most_delayed(engine, candidate, top, DESK_TOP)
                       : desk_engine_most_denied(engine, candidate, top, DESK_TOP);
    weir__json_open(json, delayed ? "most_delayed" : "most_denied", '[');
    for (size_t i = 0; i < n; i++) {
        const struct desk_mark *mark = desk_key_mark(engine, top[i], candidate);
        weir__json_open(json, NULL, '{');
        json_put_key(json, engine, top[i]);
        weir__json_put_int(json, "requests", top[i]->requests);
        weir__json_put_int(json, delayed ? "delayed" : "denied",
                           delayed ? mark->delayed : mark->denied);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

void desk_report_put_most(struct weir__json *json, const struct desk_engine *engine,
                          size_t candidate)
{
    json_put_most(json, engine, candidate, false);
    weir__json_put_int(json, "keys_delayed", engine->tallies[candidate].keys_delayed);
    json_put_most(json, engine, candidate, true);
}

static void json_put_timeline(struct weir__json *json, const struct desk_engine *engine,
                              size_t candidate)
{
    const struct desk_timeline *timeline = &engine->timeline;
    const struct desk_bin *bins = engine->tallies[candidate].bins;
    weir__json_open(json, "timeline", '{');
    weir__json_put_seconds(json, "start", timeline->start_us);
    weir__json_put_seconds(json, "span", timeline->width_us * (int64_t)timeline->count);
    weir__json_put_seconds(json, "bin", timeline->width_us);
    weir__json_open(json, "allowed", '[');
    for (size_t i = 0; i < timeline->count; i++)
        weir__json_put_int(json, NULL, bins[i].allowed);
    weir__json_close(json, ']');
    weir__json_open(json, "denied", '[');
    for (size_t i = 0; i < timeline->count; i++)
        weir__json_put_int(json, NULL, bins[i].denied);
    weir__json_close(json, ']');
    weir__json_open(json, "delayed", '[');
    for (size_t i = 0; i < timeline->count; i++)
        weir__json_put_int(json, NULL, bins[i].delayed);
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

static void json_put_denied_by(struct weir__json *json, const struct desk_shown *shown,
                               const struct desk_tally *tally)
{
    size_t parts = shown->limit ? shown->limit->count : shown->part_count;
    weir__json_open(json, "denied_by", '[');
    for (size_t i = 0; i < parts && i < DESK_PARTS_MAX; i++) {
        struct weir__buffer name = weir__buffer_growing();
        desk_report_part(&name, shown, i);
        weir__json_open(json, NULL, '{');
        weir__json_put_text(json, "limit", name.data, name.len);
        weir__json_put_int(json, "denied", tally->denied_by[i]);
        weir__json_close(json, '}');
        weir__buffer_free(&name);
    }
    weir__json_close(json, ']');
}

static void json_put_most_shadowed(struct weir__json *json, const struct desk_engine *engine)
{
    const struct desk_key *top[DESK_TOP];
    size_t n = desk_engine_most_noted(engine, top, DESK_TOP);
    weir__json_open(json, "most_shadow_denied", '[');
    for (size_t i = 0; i < n; i++) {
        weir__json_open(json, NULL, '{');
        json_put_key(json, engine, top[i]);
        weir__json_put_int(json, "requests", top[i]->requests);
        weir__json_put_int(json, "denied", *desk_key_noted(engine, top[i]));
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void json_put_shadow(struct weir__json *json, const struct desk_engine *engine,
                            const struct desk_shown *shown)
{
    if (!shown->shadowed)
        return;
    weir__json_put_int(json, "shadow_denied", shown->shadow_denied);
    weir__json_open(json, "shadow_denied_by", '[');
    for (size_t i = 0; i < shown->part_count; i++) {
        if (shown->shadowed[i] == 0)
            continue;
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "limit", shown->parts[i]);
        weir__json_put_int(json, "denied", shown->shadowed[i]);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
    json_put_most_shadowed(json, engine);
}

static void json_put_delays(struct weir__json *json, const struct desk_tally *tally)
{
    weir__json_put_seconds(json, "longest_delay", tally->longest_delay_us);
    weir__json_open(json, "delays", '{');
    weir__json_put_seconds(json, "p50", desk_tally_delay_us(tally, 0.5));
    weir__json_put_seconds(json, "p90", desk_tally_delay_us(tally, 0.9));
    weir__json_put_seconds(json, "p99", desk_tally_delay_us(tally, 0.99));
    weir__json_close(json, '}');
}

static void json_put_candidate(struct weir__json *json, const struct desk_report *report, size_t i)
{
    const struct desk_engine *engine = report->engine;
    const struct desk_tally *tally = &engine->tallies[i];
    weir__json_put_int(json, "allowed", tally->allowed);
    weir__json_put_int(json, "denied", tally->denied);
    weir__json_put_int(json, "delayed", tally->delayed);
    weir__json_put_int(json, "cost_allowed", tally->cost_allowed);
    weir__json_put_int(json, "cost_denied", tally->cost_denied);
    weir__json_put_int(json, "keys_denied", tally->keys_denied);
    weir__json_put_int(json, "requests_of_keys_denied", tally->requests_of_denied);
    if (engine->options.spare_count > 0)
        weir__json_put_int(json, "spared_would_deny", tally->spared_would_deny);
    weir__json_put_seconds(json, "longest_locked_out", tally->longest_locked_us);
    json_put_delays(json, tally);
    weir__json_open(json, "highest_admitted", '{');
    weir__json_put_int(json, "1s", tally->rates->highest[0]);
    weir__json_put_int(json, "10s", tally->rates->highest[1]);
    weir__json_put_int(json, "1m", tally->rates->highest[2]);
    weir__json_close(json, '}');
    if (engine->options.candidates[i].limit) {
        weir__json_put_int(json, "states", tally->states_peak);
        weir__json_put_int(json, "memory", tally->memory);
    }
    json_put_denied_by(json, &report->shown[i], tally);
    json_put_shadow(json, engine, &report->shown[i]);
    desk_report_put_most(json, engine, i);
    json_put_timeline(json, engine, i);
}

/* ---- the log ---- */

static void json_put_files(struct weir__json *json, const struct desk_facts *facts)
{
    weir__json_open(json, "files", '[');
    for (size_t i = 0; i < facts->file_count; i++) {
        const struct desk_file_facts *file = &facts->files[i];
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "file", file->path);
        weir__json_put_string(json, "format", file->format ? file->format : "empty");
        weir__json_put_string(json, "packing", file->packing);
        weir__json_put_int(json, "lines", file->lines);
        weir__json_put_int(json, "unreadable", file->unreadable);
        weir__json_put_bool(json, "zone_assumed", file->zone_assumed);
        weir__json_put_string(json, "damage", file->damage);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void json_put_examples(struct weir__json *json, const struct desk_facts *facts)
{
    weir__json_open(json, "examples", '[');
    for (size_t i = 0; i < facts->example_count; i++) {
        const struct desk_example *example = &facts->examples[i];
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "file", example->path);
        weir__json_put_int(json, "line", example->line);
        weir__json_put_int(json, "column", example->column);
        weir__json_put_string(json, "why", example->why);
        weir__json_put_string(json, "text", example->text);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

void desk_report_put_log(struct weir__json *json, const struct desk_facts *facts)
{
    weir__json_open(json, "log", '{');
    weir__json_put_int(json, "lines", facts->lines);
    weir__json_put_int(json, "filtered", facts->filtered);
    weir__json_put_int(json, "keyless", facts->keyless);
    weir__json_put_int(json, "unreadable", facts->unreadable);
    weir__json_put_int(json, "out_of_order", facts->out_of_order);
    weir__json_put_int(json, "late", facts->late);
    weir__json_put_int(json, "crowded", facts->crowded);
    weir__json_put_int(json, "spread", facts->spread);
    weir__json_put_int(json, "jumps", facts->jumps);
    weir__json_open(json, "where", '[');
    for (size_t i = 0; i < facts->where_count; i++)
        weir__json_put_string(json, NULL, facts->where[i]);
    weir__json_close(json, ']');
    weir__json_put_string(json, "unseen_where", facts->unseen_where);
    weir__json_put_string(json, "hint", facts->hint[0] ? facts->hint : NULL);
    json_put_files(json, facts);
    json_put_examples(json, facts);
    weir__json_close(json, '}');
}

static void json_put_keys(struct weir__json *json, const struct desk_engine *engine)
{
    struct desk_spread spread;
    const struct desk_key *top[DESK_TOP];
    size_t n = desk_engine_heaviest(engine, top, DESK_TOP);
    desk_engine_spread(engine, &spread);
    weir__json_open(json, "requests_per_key", '{');
    weir__json_put_int(json, "p50", spread.median);
    weir__json_put_int(json, "p90", spread.p90);
    weir__json_put_int(json, "p99", spread.p99);
    weir__json_put_int(json, "most", spread.most);
    weir__json_close(json, '}');
    weir__json_open(json, "heaviest", '[');
    for (size_t i = 0; i < n; i++) {
        weir__json_open(json, NULL, '{');
        json_put_key(json, engine, top[i]);
        weir__json_put_int(json, "requests", top[i]->requests);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

void desk_report_put_spared(struct weir__json *json, const struct desk_engine *engine)
{
    const struct desk_key *top[DESK_TOP];
    size_t n = desk_engine_spared(engine, top, DESK_TOP);
    weir__json_put_int(json, "keys", engine->spared_keys);
    weir__json_put_int(json, "requests", engine->spared_requests);
    weir__json_open(json, "heaviest", '[');
    for (size_t i = 0; i < n; i++) {
        weir__json_open(json, NULL, '{');
        json_put_key(json, engine, top[i]);
        weir__json_put_int(json, "requests", top[i]->requests);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

void desk_report_json(const struct desk_report *report, struct weir__json *json)
{
    const struct desk_engine *engine = report->engine;
    bool any = engine->requests > 0, about;
    int64_t keys = desk_engine_distinct(engine, &about);
    if (!report->several)
        weir__json_put_string(json, report->shown[0].limit ? "limits" : "policies",
                              report->shown[0].text);
    weir__json_put_int(json, "requests", engine->requests);
    weir__json_put_int(json, "keys", keys);
    weir__json_put_bool(json, "approximate", desk_engine_is_lossy(engine));
    weir__json_put_int(json, "keys_forgotten", engine->forgotten);
    weir__json_put_seconds(json, "first", any ? engine->first_us : -1);
    weir__json_put_seconds(json, "last", any ? engine->last_us : -1);
    if (report->several) {
        weir__json_open(json, "candidates", '[');
        for (size_t i = 0; i < engine->count; i++) {
            weir__json_open(json, NULL, '{');
            weir__json_put_string(json, "name", report->shown[i].name);
            weir__json_put_string(json, report->shown[i].limit ? "limits" : "policies",
                                  report->shown[i].text);
            json_put_candidate(json, report, i);
            weir__json_close(json, '}');
        }
        weir__json_close(json, ']');
    } else {
        json_put_candidate(json, report, 0);
    }
    json_put_keys(json, engine);
    if (engine->options.spare_count > 0) {
        weir__json_open(json, "spared", '{');
        desk_report_put_spared(json, engine);
        weir__json_close(json, '}');
    }
    if (report->facts)
        desk_report_put_log(json, report->facts);
    if (report->more)
        report->more(json, report->context);
}
