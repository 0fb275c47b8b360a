/* The `weir replay` that shows suggestions over time, with all options of this log: to be copied
 * into a shell. Words are quoted for it, and masked. */
#include "cli/suggest.h"

#include "base/span.h"

#include <ctype.h>
#include <string.h>

#define LINE 76       /* columns; longer ones are broken */
#define PATHS_NAMED 8 /* of more logs none is named */

/* A command that is being written. */
struct command {
    struct weir__buffer *out;
    bool broken; /* into lines */
    size_t line; /* where the last one begins */
};

static bool command_is_plain(const char *text)
{
    const char *p = text;
    while (isalnum((unsigned char)*p) || (*p && strchr("_./:=@%+,-", *p)))
        p++;
    return p > text && !*p;
}

/* A word in single quotes, where it needs them. */
static void command_quote(struct weir__buffer *out, const char *text)
{
    bool plain = command_is_plain(text);
    weir__put_text(out, plain ? "" : "'");
    for (size_t len = strlen(text), at = 0; at < len;) {
        size_t step = weir__utf8_length(text + at, len - at);
        if (text[at] == '\'')
            weir__put_text(out, "'\\''");
        else if (weir__utf8_is_harmful(text + at, step))
            weir__put_text(out, "?");
        else
            weir__put(out, text + at, step);
        at += step > 0 ? step : 1;
    }
    weir__put_text(out, plain ? "" : "'");
}

/* An option and its value stay together. */
static void command_put(struct command *it, const char *option, const char *value)
{
    struct weir__buffer words = weir__buffer_growing();
    weir__put_text(&words, option);
    weir__put_text(&words, value && *option ? " " : "");
    if (value)
        command_quote(&words, value);
    bool fits = it->out->len - it->line + 1 + words.len + 2 <= LINE;
    if (it->broken && !fits) {
        weir__put_text(it->out, " \\\n");
        it->line = it->out->len;
        weir__put_text(it->out, "   ");
    }
    weir__put_format(it->out, " %s", words.data);
    weir__buffer_free(&words);
}

static void command_put_list(struct command *it, const char *option, const struct cli_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        command_put(it, option, list->texts[i]);
}

static void command_put_text(struct command *it, const char *option, const char *value)
{
    if (value)
        command_put(it, option, value);
}

/* How the log is read. Limits for all together have one key, and count requests. */
static void command_put_reading(struct command *it, const struct suggest *suggest, bool total)
{
    const struct cli_logs *logs = &suggest->logs;
    command_put_text(it, "--format", logs->options.format);
    command_put_text(it, "--key", total ? "'all'" : logs->options.key);
    command_put_list(it, "--where", &logs->where);
    command_put_text(it, "--cost", total ? NULL : logs->options.cost);
    command_put_list(it, "--template", &logs->templates);
    command_put_list(it, "--field", &logs->fields);
    command_put_text(it, "--timezone", logs->options.timezone);
    if (logs->disorder_us > 0)
        command_put(it, "--disorder", cli_exact(logs->disorder_us).text);
    if (logs->no_spread)
        command_put(it, "--no-spread", NULL);
    command_put_text(it, "--memory", logs->memory_text);
}

static void command_put_paths(struct command *it, const struct suggest *suggest)
{
    const struct cli_logs *logs = &suggest->logs;
    bool named = suggest->begin < 0 && logs->path_count <= PATHS_NAMED;
    for (size_t i = 0; i < logs->path_count && named; i++)
        command_put(it, "", logs->paths[i]);
    if (!named)
        command_put(it, suggest->begin < 0 ? "LOG…" : "LOG", NULL);
}

static void command_put_limit(struct command *it, const char *name, const weir_limit *limit)
{
    struct weir__buffer text = weir__buffer_growing();
    weir__put_format(&text, "%s=%s", name, weir_limit_text(limit));
    command_put(it, "--limit", text.data);
    weir__buffer_free(&text);
}

static enum suggest_group command_group(const struct desk_suggestion *it)
{
    return it->total ? SUGGEST_TOTAL : it->heavy ? SUGGEST_STRICT : SUGGEST_EACH;
}

bool suggest_put_command(struct weir__buffer *out, const struct suggest *suggest,
                         enum suggest_group group, bool broken)
{
    const struct desk_suggest *result = suggest->result;
    struct command it = {out, broken, out->len};
    const struct desk_suggestion tight = {.exempt = result->tight.exempt,
                                          .heavy = desk_tight_is_heavy(result)};
    const char *const *spare = NULL;
    size_t count = 0, spared = 0;
    weir__put_text(out, "weir replay");
    for (size_t i = 0; i < result->count; i++) {
        const struct desk_suggestion *one = &result->suggestions[i];
        if (command_group(one) != group)
            continue;
        command_put_limit(&it, desk_suggestion_name(one), one->limit);
        if (one->exempt)
            spared = suggest_left_out(suggest, one, &spare);
        count++;
    }
    if (result->tight.limit && command_group(&tight) == group) {
        command_put_limit(&it, "tight", result->tight.limit);
        if (tight.exempt)
            spared = suggest_left_out(suggest, &tight, &spare);
        count++;
    }
    for (size_t i = 0; i < spared; i++)
        command_put(&it, "--spare", spare[i]);
    command_put_reading(&it, suggest, group == SUGGEST_TOTAL);
    command_put(&it, "--report", "report.html");
    command_put_paths(&it, suggest);
    return count > 0;
}
