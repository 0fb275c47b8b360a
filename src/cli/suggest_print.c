/* What `weir suggest` prints for people. What comes from the log is masked. */
#include "cli/suggest.h"

#include <inttypes.h>
#include <string.h>

#define LABELS 16 /* columns */
#define WORST 8   /* keys that are named */

/* Up to eight digits; 12345678901 as 12.3G. */
static struct suggest_text print_short(int64_t number)
{
    static const char suffixes[] = "MGTPE";
    struct suggest_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    double value = (double)number / 1e6;
    size_t i = 0;
    for (; value >= 999.5 && i + 2 < sizeof suffixes; i++)
        value /= 1000;
    if (number < 100000000)
        weir__put_int(&buffer, number);
    else
        weir__put_format(&buffer, "%.3g%c", value, suffixes[i]);
    return ret;
}

/* ---- the log ---- */

static void print_peaks(const struct suggest *suggest)
{
    static const char *const spans[] = {"in 1 second", "in 1 minute", "in 1 hour", "in 1 day"};
    const struct desk_suggest *result = suggest->result;
    struct cli_style style = cli_style_of(stdout);
    if (result->peak_count == 0)
        return;
    printf("\n%sHow much one key asks for at its busiest%s%s\n", style.bold, style.off,
           suggest->logs.options.cost ? ", by cost" : "");
    printf("%s  %-*s%10s%10s%10s%10s%10s%s\n", style.dim, LABELS - 2, "of the keys", "half", "90%",
           "99%", "99.9%", "all", style.off);
    for (size_t i = 0; i < result->peak_count; i++) {
        printf("  %-*s", LABELS - 2, spans[i]);
        for (size_t p = 0; p < DESK_PERCENTILES; p++)
            printf("%10s", print_short(result->peaks[i][p]).text);
        putchar('\n');
    }
    printf("%s  99%% of the keys asked for at most %s in any second of the clock%s\n", style.dim,
           print_short(result->peaks[0][2]).text, style.off);
}

static void print_requests(const struct suggest *suggest)
{
    const struct desk_engine *whole = suggest->result->whole;
    bool about;
    int64_t keys = desk_engine_distinct(whole, &about);
    if (whole->requests == 0)
        return;
    printf("  requests       %10" PRId64 "  of %s%" PRId64 " key%s (%s) over %s\n", whole->requests,
           about ? "about " : "", keys, keys == 1 ? "" : "s", suggest->key_text,
           cli_lasted(whole->last_us - whole->first_us).text);
}

static void print_part(const char *label, const struct desk_part *part, const char *more)
{
    char text[256];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    suggest_put_part(&buffer, part);
    weir__put_text(&buffer, more);
    cli_print_labelled(label, LABELS, text);
}

/* ---- the goal ---- */

/* A line, unless there is nothing to say. */
static void print_said(const char *label, const struct weir__buffer *text)
{
    if (text->len > 0)
        cli_print_labelled(label, LABELS, text->data);
}

static void print_about_keys(const struct suggest *suggest)
{
    struct weir__buffer spared = weir__buffer_growing(), heavy = weir__buffer_growing();
    struct weir__buffer suspects = weir__buffer_growing(), slow = weir__buffer_growing();
    suggest_put_suspects(&suspects, suggest->result);
    print_said("suspects", &suspects);
    weir__buffer_free(&suspects);
    suggest_put_slow(&slow, suggest);
    print_said("hint", &slow);
    weir__buffer_free(&slow);
    suggest_put_spared(&spared, suggest->result);
    print_said("to spare", &spared);
    suggest_put_heavy(&heavy, suggest);
    print_said("note", &heavy);
    weir__buffer_free(&spared);
    weir__buffer_free(&heavy);
}

static void print_goal(const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    char text[320];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    suggest_put_goal(&buffer, &result->goal);
    if (buffer.len == 0) /* nobody asked for one, and the log did not come that far */
        return;
    if (result->goal.usual)
        weir__put_text(&buffer, ". This is the usual goal; --deny-keys, --deny-requests and "
                                "--protect set others.");
    putchar('\n');
    cli_print_labelled("goal", LABELS, text);
    if (result->parts[0].requests > 0)
        print_part("chosen on", &result->parts[0], "");
    if (result->judged)
        print_part("judged on", &result->parts[1], ", which were not used to choose");
    print_about_keys(suggest);
    if (result->lossy)
        cli_print_labelled("approximate", LABELS,
                           "keys were forgotten, so some answers are too lenient; use more "
                           "--memory");
}

/* Whoever is denied most may be many people: who has not said whom to spare, should know how. */
static void print_shared_hint(const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    bool denies = false;
    for (size_t i = 0; i < result->count; i++)
        denies |= result->judged->tallies[i].keys_denied > 0;
    if (!denies || suggest->spare.count > 0 || strncmp(suggest->key_text, "ip", 2))
        return;
    putchar('\n');
    cli_print_wrapped("An address may be shared, like that of an office: look at those that are "
                      "denied most. --spare ADDRESS spares one.",
                      0);
}

/* ---- suggestions ---- */

/* The keys that a suggestion denied most; or that it delayed most. */
static void print_worst(const struct desk_engine *engine, size_t candidate, bool delayed)
{
    const struct desk_key *top[WORST];
    const struct desk_tally *tally = &engine->tallies[candidate];
    size_t n = delayed ? desk_engine_most_delayed(engine, candidate, top, WORST)
                       : desk_engine_most_denied(engine, candidate, top, WORST);
    int64_t keys = delayed ? tally->keys_delayed : tally->keys_denied;
    for (size_t i = 0; i < n; i++) {
        struct weir__span key = desk_key_text(engine, top[i]);
        const struct desk_mark *mark = desk_key_mark(engine, top[i], candidate);
        char text[200];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_format(&buffer, "%s: %" PRIu32 " of %" PRId64, cli_show(key.data, key.len).text,
                         delayed ? mark->delayed : mark->denied, top[i]->requests);
        cli_print_labelled(i > 0 ? "" : delayed ? "most delayed" : "most denied", LABELS, text);
    }
    if (keys > (int64_t)n && n > 0) {
        char rest[48];
        struct weir__buffer buffer = weir__buffer_over(rest, sizeof rest);
        weir__put_format(&buffer, "and %" PRId64 " more", keys - (int64_t)n);
        cli_print_labelled("", LABELS, rest);
    }
}

/* Before the keys that were denied most: these are easily lost among suspects. */
static void print_hurt(const struct suggest *suggest, size_t i)
{
    bool more = true;
    for (size_t k = 0; more; k++) {
        struct weir__buffer text = weir__buffer_growing();
        more = suggest_put_hurt(&text, suggest, i, k);
        print_said(k == 0 ? "whom it hurts" : "", &text);
        weir__buffer_free(&text);
    }
}

static void print_figures(const struct suggest *suggest, size_t i)
{
    const struct desk_suggest *result = suggest->result;
    const struct desk_suggestion *it = &result->suggestions[i];
    const struct desk_tally *tally = &result->judged->tallies[i];
    char text[320];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    suggest_put_requests(&buffer, result, i);
    cli_print_labelled("denied", LABELS, text);
    buffer = weir__buffer_over(text, sizeof text);
    suggest_put_keys(&buffer, result, i);
    cli_print_labelled("", LABELS, text);
    print_hurt(suggest, i);
    print_worst(result->judged, i, false);
    if (tally->delayed > 0) {
        buffer = weir__buffer_over(text, sizeof text);
        weir__put_format(&buffer, "%" PRId64 " requests, half at most %s, 99%% at most %s",
                         tally->delayed, cli_about(desk_tally_delay_us(tally, 0.5)).text,
                         cli_about(desk_tally_delay_us(tally, 0.99)).text);
        cli_print_labelled("delayed", LABELS, text);
        print_worst(result->judged, i, true);
    }
    if (result->goal.protect == 0)
        return;
    buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%" PRId64 " in a %s", it->outcome.highest,
                     result->goal.protect_us == 1000000 ? "second" : "minute");
    cli_print_labelled("went ahead", LABELS, text);
}

static void print_exempt(const struct desk_suggest *result, size_t i)
{
    struct weir__buffer text = weir__buffer_growing(), stops = weir__buffer_growing();
    suggest_put_stops(&stops, result, i);
    print_said("suspects", &stops);
    weir__buffer_free(&stops);
    if (result->options.spare_count > 0)
        suggest_put_exempt(&text, result, i);
    print_said("spared", &text);
    weir__buffer_free(&text);
}

/* Who is left out of the strict limit. */
static void print_left_out(const struct desk_suggest *result)
{
    struct weir__buffer text = weir__buffer_growing();
    suggest_put_decide(&text, result);
    print_said("left out", &text);
    weir__buffer_free(&text);
    for (size_t i = 0; i < result->heavy.count; i++) {
        text = weir__buffer_growing();
        suggest_put_heavy_key(&text, result, i);
        print_said("", &text);
        weir__buffer_free(&text);
    }
}

static void print_meets(const struct desk_suggest *result, size_t i)
{
    struct weir__buffer text = weir__buffer_growing();
    struct cli_style style = cli_style_of(stdout);
    suggest_put_meets(&text, result, i);
    printf("  %s%-*s%s%s", style.bold, LABELS - 2, "goal", style.off,
           result->suggestions[i].meets ? style.good : style.bad);
    cli_print_wrapped(text.data, LABELS);
    fputs(style.off, stdout);
    weir__buffer_free(&text);
}

static void print_lines(const char *label, const struct weir__buffer *text)
{
    struct cli_style style = cli_style_of(stdout);
    const char *from = text->data, *end = text->data + text->len;
    for (bool first = true; from < end; first = false) {
        const char *newline = memchr(from, '\n', (size_t)(end - from));
        size_t len = (size_t)((newline ? newline : end) - from);
        printf("  %s%-*s%s%.*s\n", style.bold, LABELS - 2, first ? label : "", style.off, (int)len,
               from);
        from += len + 1;
    }
}

/* Why there is no policy: all of it, masked. */
static void print_no_policy(const char *message)
{
    struct weir__buffer text = weir__buffer_growing();
    for (size_t len = strlen(message), at = 0; at < len;) {
        size_t step = weir__utf8_length(message + at, len - at);
        if (weir__utf8_is_harmful(message + at, step))
            weir__put_text(&text, "?");
        else
            weir__put(&text, message + at, step);
        at += step > 0 ? step : 1;
    }
    cli_print_labelled("policy", LABELS, text.data);
    weir__buffer_free(&text);
}

static void print_paste(const struct suggest *suggest, size_t i)
{
    struct suggest_paste paste;
    suggest_paste_make(suggest, i, &paste);
    if (paste.no_policy.message[0])
        print_no_policy(paste.no_policy.message);
    else
        print_lines("policy", &paste.file);
    if (paste.no_nginx)
        cli_print_labelled("nginx", LABELS, paste.no_nginx);
    else
        print_lines("nginx", &paste.nginx);
    for (size_t n = 0; n < paste.note_count; n++)
        cli_print_labelled("note", LABELS, paste.notes[n].data);
    suggest_paste_free(&paste);
}

static void print_suggestion(const struct suggest *suggest, size_t i)
{
    const struct desk_suggest *result = suggest->result;
    const struct desk_suggestion *it = &result->suggestions[i];
    struct cli_style style = cli_style_of(stdout);
    struct weir__buffer why = weir__buffer_growing();
    printf("\n%s%zu. %s%s  %s%s%s%s%s\n", style.bold, i + 1, weir_limit_text(it->limit), style.off,
           style.dim, it->total ? "for all together" : "for each ",
           it->total ? "" : suggest->key_text, it->strict ? ", with exemptions" : "", style.off);
    suggest_put_why(&why, suggest, i);
    cli_print_labelled("why", LABELS, why.data);
    weir__buffer_free(&why);
    print_figures(suggest, i);
    print_exempt(result, i);
    if (it->heavy)
        print_left_out(result);
    print_meets(result, i);
    print_paste(suggest, i);
}

/* To be copied: as it is, in lines of its own. */
static void print_command(const struct suggest *suggest, enum suggest_group group)
{
    struct weir__buffer command = weir__buffer_growing();
    if (suggest_put_command(&command, suggest, group, true))
        printf("  %s\n", command.data);
    weir__buffer_free(&command);
}

static void print_end(const struct suggest *suggest)
{
    print_shared_hint(suggest);
    putchar('\n');
    cli_print_wrapped("\"expect\": if the traffic stays like this, the part that is denied is "
                      "within these, in 95 of 100 cases. See the whole log over time, also beside "
                      "a limit of your own (--limit mine=...):",
                      0);
    for (int group = 0; group < SUGGEST_GROUPS; group++)
        print_command(suggest, (enum suggest_group)group);
}

void suggest_print(const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    struct cli_style style = cli_style_of(stdout);
    cli_logs_print(&suggest->facts);
    print_requests(suggest);
    print_peaks(suggest);
    print_goal(suggest);
    if (result->verdict != DESK_SUGGESTED) {
        printf("%s%s%s%s\n", result->whole->requests > 0 ? "\n" : "", style.bad,
               result->verdict == DESK_NO_LIMIT ? "No limit meets the goal."
                                                : "The log says too little for a suggestion.",
               style.off);
        cli_print_labelled("reason", LABELS, result->reason);
        cli_print_labelled("what to do", LABELS, result->advice);
    }
    if (result->count > 1 && result->judged) {
        putchar('\n');
        cli_print_wrapped(suggest_order(result), 0);
    }
    for (size_t i = 0; i < result->count && result->judged; i++)
        print_suggestion(suggest, i);
    if (result->count > 0 && result->judged)
        print_end(suggest);
}
