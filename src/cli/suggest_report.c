/* The page of `weir suggest --report`: what the terminal says about each suggestion, with charts of
 * the second half of the log. */
#include "cli/suggest.h"

#include <assert.h>

#define SAID 32 /* lines about the log, or about one suggestion */

/* Lines and the room that their texts are in. */
struct report_lines {
    struct desk_said said[SAID];
    struct weir__buffer texts[SAID];
    size_t count;
};

static struct weir__buffer *report_line(struct report_lines *lines, const char *label, bool code)
{
    assert(lines->count < SAID);
    lines->said[lines->count] = (struct desk_said){.label = label, .code = code};
    lines->texts[lines->count] = weir__buffer_growing();
    return &lines->texts[lines->count++];
}

/* The last line is not needed. */
static void report_unsay(struct report_lines *lines)
{
    weir__buffer_free(&lines->texts[--lines->count]);
}

/* Texts move while they grow: only now it is known where they are. */
static const struct desk_said *report_lines_end(struct report_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        lines->said[i].text = lines->texts[i].data;
    return lines->said;
}

static void report_lines_free(struct report_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        weir__buffer_free(&lines->texts[i]);
}

static void report_say_log(const struct suggest *suggest, struct report_lines *lines)
{
    const struct desk_suggest *result = suggest->result;
    suggest_put_goal(report_line(lines, "goal", false), &result->goal);
    suggest_put_part(report_line(lines, "chosen on", false), &result->parts[0]);
    struct weir__buffer *judged = report_line(lines, "judged on", false);
    suggest_put_part(judged, &result->parts[1]);
    weir__put_text(judged, ". They were not used to choose. The charts show them.");
    if (result->options.spare_count > 0)
        suggest_put_spared(report_line(lines, "to spare", false), result);
    if (result->suspects.keys > 0)
        suggest_put_suspects(report_line(lines, "suspects", false), result);
    struct weir__buffer *slow = report_line(lines, "hint", false);
    suggest_put_slow(slow, suggest);
    if (slow->len == 0)
        report_unsay(lines);
    if (!suggest_put_heavy(report_line(lines, "note", false), suggest))
        report_unsay(lines);
    if (result->count > 1)
        weir__put_text(report_line(lines, "order", false), suggest_order(result));
    for (int group = 0; group < SUGGEST_GROUPS; group++) {
        struct weir__buffer *line = report_line(lines, "replay", true);
        if (!suggest_put_command(line, suggest, (enum suggest_group)group, true))
            report_unsay(lines);
    }
}

static void report_say_left_out(const struct desk_suggest *result, struct report_lines *lines)
{
    suggest_put_decide(report_line(lines, "left out", false), result);
    for (size_t i = 0; i < result->heavy.count; i++)
        suggest_put_heavy_key(report_line(lines, "", false), result, i);
}

static void report_say_hurt(const struct suggest *suggest, size_t i, struct report_lines *lines)
{
    bool more = true;
    for (size_t k = 0; more; k++) {
        struct weir__buffer *line = report_line(lines, k == 0 ? "whom it hurts" : "", false);
        more = suggest_put_hurt(line, suggest, i, k);
        if (line->len == 0)
            report_unsay(lines);
    }
}

static void report_say_suggestion(const struct suggest *suggest, size_t i,
                                  struct report_lines *lines)
{
    const struct desk_suggest *result = suggest->result;
    struct suggest_paste paste;
    suggest_put_why(report_line(lines, "why", false), suggest, i);
    suggest_put_requests(report_line(lines, "denied", false), result, i);
    suggest_put_keys(report_line(lines, "", false), result, i);
    report_say_hurt(suggest, i, lines);
    if (result->suspects.keys > 0)
        suggest_put_stops(report_line(lines, "suspects", false), result, i);
    if (result->options.spare_count > 0)
        suggest_put_exempt(report_line(lines, "spared", false), result, i);
    if (result->suggestions[i].heavy)
        report_say_left_out(result, lines);
    suggest_put_meets(report_line(lines, "goal", false), result, i);
    suggest_paste_make(suggest, i, &paste);
    bool policy = !paste.no_policy.message[0];
    weir__put_text(report_line(lines, "policy", policy),
                   policy ? paste.file.data : paste.no_policy.message);
    weir__put_text(report_line(lines, "nginx", !paste.no_nginx),
                   paste.no_nginx ? paste.no_nginx : paste.nginx.data);
    struct weir__buffer *notes = paste.note_count > 0 ? report_line(lines, "note", false) : NULL;
    for (size_t n = 0; n < paste.note_count; n++)
        weir__put_format(notes, "%s%s", n ? " " : "", paste.notes[n].data);
    suggest_paste_free(&paste);
}

int suggest_write_report(const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    struct desk_shown shown[DESK_SUGGESTIONS];
    struct report_lines about[DESK_SUGGESTIONS] = {0}, log = {0};
    struct weir__buffer names[DESK_SUGGESTIONS];
    if (!suggest->report_path)
        return CLI_OK;
    if (result->count == 0 || !result->judged)
        return cli_fail(suggest->call, CLI_DENIED, "no limit was suggested, so there is no report");
    for (size_t i = 0; i < result->count; i++) {
        const char *text = weir_limit_text(result->suggestions[i].limit);
        report_say_suggestion(suggest, i, &about[i]);
        names[i] = weir__buffer_growing();
        weir__put_format(&names[i], "%s%s", text,
                         result->suggestions[i].strict ? ", with exemptions" : "");
        shown[i] = (struct desk_shown){.name = names[i].data,
                                       .limit = result->suggestions[i].limit,
                                       .text = text,
                                       .said = report_lines_end(&about[i]),
                                       .said_count = about[i].count};
    }
    report_say_log(suggest, &log);
    struct desk_report report = {.engine = result->judged,
                                 .shown = shown,
                                 .facts = &suggest->facts,
                                 .key = suggest->key_text,
                                 .command = "weir suggest",
                                 .heading = "Which limit should I set?",
                                 .said = report_lines_end(&log),
                                 .said_count = log.count,
                                 .several = true};
    int code = cli_write_report(suggest->call, &report, suggest->report_path);
    for (size_t i = 0; i < result->count; i++) {
        report_lines_free(&about[i]);
        weir__buffer_free(&names[i]);
    }
    report_lines_free(&log);
    return code;
}
