/*
 * `weir suggest`: which limit should I set? It reads a log several times, chooses limits on its
 * first half, judges them on the second, and prints texts to paste.
 */
#include "cli/suggest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPARED_MOST 200 /* bytes */
#define WIDE_MOST 256   /* bytes of paths: longer lists are left as they are */
#define LATE_PART 10    /* at most a tenth of the lines may be late */

/* Whether a text can stand in a policy: it has no control characters. */
static bool suggest_is_clean(const char *text)
{
    size_t len = strlen(text), step;
    for (size_t at = 0; at < len; at += step) {
        step = weir__utf8_length(text + at, len - at);
        if (step == 0 || weir__utf8_is_harmful(text + at, step))
            return false;
    }
    return true;
}

/* A key of one part can be named in a policy's allow, if the log has it as a request has it. */
static bool suggest_can_exempt(const struct suggest *suggest)
{
    static const char *const not_as_it_is[] = {"'", "hash(", "ip("};
    if (suggest->key_count != 1 || suggest->logs.templates.count > 0)
        return false;
    for (size_t i = 0; i < WEIR__COUNT(not_as_it_is); i++) {
        if (!strncmp(suggest->key[0].data, not_as_it_is[i], strlen(not_as_it_is[i])))
            return false;
    }
    for (size_t i = 0; i < suggest->spare.count; i++) {
        const char *text = suggest->spare.texts[i];
        if (strlen(text) > SPARED_MOST || !suggest_is_clean(text)) /* longer keys are shortened */
            return false;
    }
    return true;
}

/* All passes read the same bytes, unless somebody overwrites them. */
static void suggest_check_same(const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    int64_t read = result->parts[0].requests + result->parts[1].requests;
    bool gone = !result->judged && result->passes > (result->suspects.hidden ? 2 : 1) &&
                result->parts[0].requests == 0;
    if ((result->judged && read != result->whole->requests) || gone)
        fprintf(stderr,
                "weir suggest: the log changed while it was read: %" PRId64
                " requests at first, %" PRId64 " later; the figures are of both\n",
                result->whole->requests, read);
}

/* Late lines count at the time of others. If they are many, peaks are made of them, and no limit
 * that suits these is worth anything. */
static void suggest_check_order(const struct suggest *suggest)
{
    struct desk_suggest *result = suggest->result;
    int64_t late = suggest->facts.late;
    if (late <= suggest->facts.lines / LATE_PART)
        return;
    result->verdict = DESK_TOO_SHORT;
    result->count = 0;
    snprintf(result->reason, sizeof result->reason,
             "%" PRId64 " of %" PRId64
             " lines are too far out of order: when they came is unknown.",
             late, suggest->facts.lines);
    snprintf(result->advice, sizeof result->advice,
             "Sort the lines by time (if the newest is the first: tac), name the logs of several "
             "servers one by one, or use --disorder.");
}

/* There are lines, but none has a key. */
static void suggest_check_key(const struct suggest *suggest)
{
    const struct desk_facts *facts = &suggest->facts;
    struct desk_suggest *result = suggest->result;
    if (facts->arrivals > 0 || facts->keyless == 0)
        return;
    snprintf(result->reason, sizeof result->reason, "No line has a value for the key%s%s.",
             facts->unseen_key ? " " : "",
             facts->unseen_key ? cli_show_text(facts->unseen_key).text : "");
    snprintf(result->advice, sizeof result->advice,
             "Say which field it is, as described above, or choose another --key.");
}

/* The filter without conditions on the status. True: there are such conditions. */
static bool suggest_put_every_status(struct suggest *suggest)
{
    const struct cli_list *where = &suggest->logs.where;
    struct cli_list *every = &suggest->every_status;
    for (size_t i = 0; i < where->count; i++) {
        const char *text = where->texts[i];
        if (strncmp(text, "status=", 7) && strncmp(text, "status!=", 8))
            every->texts[every->count++] = text;
    }
    return every->count < where->count;
}

/* --where with all spellings of its path that the texts to paste limit. Nothing, unless one of its
 * conditions names paths. */
static void suggest_put_wide(struct suggest *suggest)
{
    const struct cli_list *where = &suggest->logs.where;
    struct cli_list *wide = &suggest->wide;
    const char *paths = NULL;
    for (size_t i = 0; i < where->count; i++) {
        const char *values = suggest_path_values(where->texts[i]);
        if (values && paths)
            return;
        paths = values ? values : paths;
    }
    if (!paths || strlen(paths) > WIDE_MOST)
        return;
    suggest->wide_path = weir__buffer_growing();
    weir__put_text(&suggest->wide_path, "lower(path)=");
    suggest_put_paths(&suggest->wide_path, paths, true);
    for (size_t i = 0; i < where->count; i++)
        wide->texts[wide->count++] =
            suggest_path_values(where->texts[i]) ? suggest->wide_path.data : where->texts[i];
}

static int suggest_run(struct suggest *suggest)
{
    suggest_put_wide(suggest);
    weir_error err = {0};
    struct desk_suggest_options options = {.goal = suggest->goal,
                                           .spare = suggest->spare.texts,
                                           .spare_count = suggest->spare.count,
                                           .by_status = suggest_put_every_status(suggest),
                                           .selects = suggest->logs.where.count > 0,
                                           .can_exempt = suggest_can_exempt(suggest),
                                           .memory = suggest->logs.memory,
                                           .context = suggest,
                                           .read = suggest_input_read};
    int code = desk_suggest(&options, &suggest->result, &err);
    int spare = CLI_OK;
    if ((code == 0 || code == WEIR_EINVAL) && suggest->result && suggest->result->unmatched > 0)
        spare = cli_logs_tell_spare(suggest->call, &suggest->logs,
                                    suggest->spare.texts[suggest->result->unmatched - 1]);
    if (spare)
        return spare;
    if (code)
        return cli_fail(suggest->call, code == WEIR_EINVAL ? CLI_USAGE : CLI_FAILED, "%s",
                        err.message[0] ? err.message : weir_strerror(code));
    code = cli_logs_check_readable(suggest->call, &suggest->facts);
    if (code == CLI_OK)
        code = suggest_key_read(suggest);
    if (code)
        return code;
    suggest_check_same(suggest);
    suggest_check_order(suggest);
    suggest_check_key(suggest);
    if (suggest->json)
        suggest_print_json(suggest);
    else
        suggest_print(suggest);
    code = suggest_write_report(suggest);
    int damage = cli_logs_check_damage(suggest->call, &suggest->facts);
    if (code || damage)
        return code ? code : damage;
    return suggest->result->verdict == DESK_SUGGESTED ? CLI_OK : CLI_DENIED;
}

static int cmd_suggest(const struct cli_call *call)
{
    struct suggest *suggest = calloc(1, sizeof *suggest);
    const char **paths = calloc(CLI_MANY_LOGS + 1, sizeof *paths);
    if (!suggest || !paths) {
        free(suggest);
        free(paths);
        return cli_fail(call, CLI_FAILED, "out of memory");
    }
    suggest->call = call;
    suggest->logs.paths = paths;
    const struct cli_option options[] = {
        {"deny-keys", CLI_TEXT, &suggest->keys_text, 0},
        {"deny-requests", CLI_TEXT, &suggest->requests_text, 0},
        {"protect", CLI_TEXT, &suggest->protect_text, 0},
        {"spare", CLI_LIST, &suggest->spare, 0},
        CLI_LOGS_OPTIONS(&suggest->logs),
        {"report", CLI_TEXT, &suggest->report_path, 0},
        {"json", CLI_FLAG, &suggest->json, 0},
    };
    const struct cli_operand operands[] = {{"LOG", paths, CLI_MANY_LOGS}};
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = cli_logs_read(call, &suggest->logs);
    suggest_where_join(suggest);
    if (code == CLI_OK)
        code = suggest_goal_read(suggest);
    if (code == CLI_OK)
        code = cli_logs_check_report(call, &suggest->logs, suggest->report_path);
    if (code == CLI_OK)
        code = suggest_input_open(suggest);
    if (code == CLI_OK)
        code = suggest_run(suggest);
    desk_suggest_free(suggest->result);
    weir__buffer_free(&suggest->wide_path);
    for (size_t i = 0; i < suggest->joined_count; i++)
        weir__buffer_free(&suggest->joined[i]);
    suggest_input_close(suggest);
    free(suggest);
    free(paths);
    return code;
}

const struct cli_command cli_suggest = {
    .name = "suggest",
    .summary = "find limits that suit a log and a goal",
    .run = cmd_suggest,
};
