/* What `weir suggest` prints for people. What comes from the log is masked. */
#include "cli/suggest.h"

#include <inttypes.h>
#include <string.h>

#define LABELS 16 /* columns */
#define WORST 3   /* keys that are named */

struct print_text {
    char text[160];
};

/* 0.25%: three digits, also of small parts. */
static struct print_text print_percent(double part)
{
    struct print_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    double percent = 100 * part;
    weir__put_format(&buffer,
                     percent >= 10    ? "%.1f%%"
                     : percent >= 0.1 ? "%.2f%%"
                                      : "%.2g%%",
                     percent);
    return ret;
}

/* Up to eight digits; 12345678901 as 12.3G. */
static struct print_text print_short(int64_t number)
{
    static const char suffixes[] = "MGTPE";
    struct print_text ret;
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

static struct print_text print_time(int64_t us)
{
    struct print_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    desk_put_time(&buffer, us);
    return ret;
}

void suggest_put_goal(struct weir__buffer *buffer, const struct desk_goal *goal)
{
    const char *and = "";
    if (goal->keys >= 0)
        weir__put_format(buffer, "deny at most %g%% of the keys", (double)goal->keys / 1e4);
    and = buffer->len ? ", and " : "";
    if (goal->requests >= 0)
        weir__put_format(buffer, "%sdeny at most %g%% of the requests", and,
                         (double)goal->requests / 1e4);
    and = buffer->len ? ", and " : "";
    if (goal->protect > 0)
        weir__put_format(buffer, "%slet at most %" PRId64 " requests per %s through", and,
                         goal->protect, goal->protect_us == 1000000 ? "second" : "minute");
}

/* ---- why ---- */

static void why_of_totals(struct weir__buffer *out, const struct suggest *suggest,
                          const struct desk_suggestion *it)
{
    const struct desk_goal *goal = &suggest->result->goal;
    const char *unit = goal->protect_us == 1000000 ? "second" : "minute";
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

void suggest_put_why(struct weir__buffer *out, const struct suggest *suggest, size_t i)
{
    const struct desk_suggestion *it = &suggest->result->suggestions[i];
    if (it->total) {
        why_of_totals(out, suggest, it);
        return;
    }
    if (suggest->result->goal.protect > 0) {
        weir__put_format(
            out,
            "It holds back only the busiest keys; in the first half, all keys together "
            "then came to at most %" PRId64
            ". It is not a guarantee, because many keys can still add up.",
            it->chosen.highest);
        return;
    }
    switch (it->kind) {
    case DESK_KIND_BUCKET:
        weir__put_text(out, "It allows short bursts and stops floods within seconds. ");
        break;
    case DESK_KIND_WINDOW:
        weir__put_text(out, "It counts over a longer time, so it also stops those who ask slowly "
                            "but without end. ");
        break;
    case DESK_KIND_BOTH:
        weir__put_text(out, "The bucket stops floods, the window those who go on for long: "
                            "together they stop more than each alone. ");
        return;
    case DESK_KIND_QUEUE:
        break;
    }
    if (it->chosen.denied == 0)
        weir__put_text(out, "In the first half nobody would have been denied, with a little room.");
    else
        weir__put_format(out,
                         "In the first half it denied %" PRId64 " request%s of %" PRId64
                         " key%s; a tighter one hits more keys and stops little more.",
                         it->chosen.denied, it->chosen.denied == 1 ? "" : "s",
                         it->chosen.keys_denied, it->chosen.keys_denied == 1 ? "" : "s");
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
           cli_about(whole->last_us - whole->first_us).text);
}

void suggest_put_part(struct weir__buffer *out, const struct desk_part *part)
{
    struct print_text from = print_time(part->from_us), to = print_time(part->to_us);
    bool same = strlen(to.text) > 11 && !strncmp(from.text, to.text, 11); /* the day */
    weir__put_format(out, "%s to %s: %" PRId64 " request%s of %" PRId64 " key%s", from.text,
                     to.text + (same ? 11 : 0), part->requests, part->requests == 1 ? "" : "s",
                     part->keys, part->keys == 1 ? "" : "s");
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

/* To deny few requests, a limit must let the heaviest key pass: that is seldom what is meant. */
static void print_heavy_key(const struct suggest *suggest)
{
    const struct desk_suggest *result = suggest->result;
    const struct desk_key *top;
    if (!result->judged || result->goal.requests < 0 ||
        desk_engine_heaviest(result->whole, &top, 1) == 0)
        return;
    double part = (double)top->requests / (double)result->whole->requests;
    if (part * DESK_MILLION <= 10 * (double)result->goal.requests || part > 0.99)
        return;
    struct weir__span key = desk_key_text(result->whole, top);
    char text[400];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(
        &buffer,
        "%s alone makes %s of the requests. To stop it, more than %g%% must be denied. "
        "If that is what you want, use --deny-keys.",
        cli_show(key.data, key.len).text, print_percent(part).text,
        (double)result->goal.requests / 1e4);
    cli_print_labelled("note", LABELS, text);
}

static void print_spared(const struct desk_suggest *result)
{
    char text[320];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (result->spared_keys == 0)
        return;
    weir__put_format(&buffer, "%zu key%s with %" PRId64 " request%s; ", result->spared_keys,
                     result->spared_keys == 1 ? "" : "s", result->spared_requests,
                     result->spared_requests == 1 ? "" : "s");
    weir__put_text(&buffer,
                   result->exempt
                       ? "left out of the limit: one that is loose enough for them would stop "
                         "little. The figures below are without them"
                       : "the limits are loose enough for them");
    cli_print_labelled("spared", LABELS, text);
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
        weir__put_text(&buffer, ", as nothing else was asked for (--deny-keys, --deny-requests, "
                                "--protect)");
    putchar('\n');
    cli_print_labelled("goal", LABELS, text);
    if (result->parts[0].requests > 0)
        print_part("chosen on", &result->parts[0], "");
    if (result->judged)
        print_part("judged on", &result->parts[1], ", which were not used to choose");
    print_spared(result);
    print_heavy_key(suggest);
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

static void print_worst(const struct desk_engine *engine, size_t candidate)
{
    const struct desk_key *top[WORST];
    size_t n = desk_engine_most_denied(engine, candidate, top, WORST);
    for (size_t i = 0; i < n; i++) {
        struct weir__span key = desk_key_text(engine, top[i]);
        char text[200];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_format(&buffer, "%s: %" PRIu32 " of %" PRId64, cli_show(key.data, key.len).text,
                         desk_key_mark(engine, top[i], candidate)->denied, top[i]->requests);
        cli_print_labelled(i == 0 ? "most denied" : "", LABELS, text);
    }
    if (engine->tallies[candidate].keys_denied > (int64_t)n && n > 0) {
        char rest[48];
        struct weir__buffer buffer = weir__buffer_over(rest, sizeof rest);
        weir__put_format(&buffer, "and %" PRId64 " more",
                         engine->tallies[candidate].keys_denied - (int64_t)n);
        cli_print_labelled("", LABELS, rest);
    }
}

void suggest_put_requests(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_share *share = &result->suggestions[i].requests;
    weir__put_format(out, "%" PRId64 " of %" PRId64 " requests, %s; expect %s to %s",
                     result->judged->tallies[i].denied, result->parts[1].requests,
                     print_percent(share->part).text, print_percent(share->low).text,
                     print_percent(share->high).text);
}

void suggest_put_keys(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_share *share = &result->suggestions[i].keys;
    weir__put_format(out, "%" PRId64 " of %" PRId64 " keys, %s; expect %s to %s",
                     result->judged->tallies[i].keys_denied, result->parts[1].keys,
                     print_percent(share->part).text, print_percent(share->low).text,
                     print_percent(share->high).text);
}

static void print_figures(const struct desk_suggest *result, size_t i)
{
    const struct desk_suggestion *it = &result->suggestions[i];
    const struct desk_tally *tally = &result->judged->tallies[i];
    char text[320];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    suggest_put_requests(&buffer, result, i);
    cli_print_labelled("denied", LABELS, text);
    buffer = weir__buffer_over(text, sizeof text);
    suggest_put_keys(&buffer, result, i);
    cli_print_labelled("", LABELS, text);
    print_worst(result->judged, i);
    if (tally->delayed > 0) {
        buffer = weir__buffer_over(text, sizeof text);
        weir__put_format(&buffer, "%" PRId64 " requests, half at most %s, 99%% at most %s",
                         tally->delayed, cli_about(desk_tally_delay_us(tally, 0.5)).text,
                         cli_about(desk_tally_delay_us(tally, 0.99)).text);
        cli_print_labelled("delayed", LABELS, text);
    }
    if (result->goal.protect == 0)
        return;
    buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%" PRId64 " in a %s", it->outcome.highest,
                     result->goal.protect_us == 1000000 ? "second" : "minute");
    cli_print_labelled("went ahead", LABELS, text);
}

void suggest_put_meets(struct weir__buffer *out, const struct desk_suggest *result, size_t i)
{
    const struct desk_suggestion *it = &result->suggestions[i];
    const struct desk_goal *goal = &result->goal;
    bool keys = goal->keys >= 0 && it->keys.high * DESK_MILLION > (double)goal->keys;
    bool requests =
        goal->requests >= 0 && it->requests.high * DESK_MILLION > (double)goal->requests;
    weir__put_text(out, it->meets ? "met" : "missed");
    if (it->outcome.spared_denied > 0)
        weir__put_format(out, "; %" PRId64 " request%s of keys to be spared %s denied",
                         it->outcome.spared_denied, it->outcome.spared_denied == 1 ? "" : "s",
                         it->outcome.spared_denied == 1 ? "was" : "were");
    else if (it->meets && keys)
        weir__put_format(out, " here; on other days up to %s of the keys may be denied",
                         print_percent(it->keys.high).text);
    else if (it->meets && requests)
        weir__put_format(out, " here; on other days up to %s of the requests may be denied",
                         print_percent(it->requests.high).text);
}

static void print_meets(const struct desk_suggest *result, size_t i)
{
    char text[160];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    struct cli_style style = cli_style_of(stdout);
    bool meets = result->suggestions[i].meets;
    suggest_put_meets(&buffer, result, i);
    size_t word = strlen(meets ? "met" : "missed");
    printf("  %s%-*s%s%s%.*s%s%s\n", style.bold, LABELS - 2, "goal", style.off,
           meets ? style.good : style.bad, (int)word, text, style.off, text + word);
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
    printf("\n%s%zu. %s%s  %s%s%s%s\n", style.bold, i + 1, weir_limit_text(it->limit), style.off,
           style.dim, it->total ? "for all together" : "for each ",
           it->total ? "" : suggest->key_text, style.off);
    suggest_put_why(&why, suggest, i);
    cli_print_labelled("why", LABELS, why.data);
    weir__buffer_free(&why);
    print_figures(result, i);
    print_meets(result, i);
    print_paste(suggest, i);
}

const char *suggest_order(const struct desk_suggest *result)
{
    return result->verdict != DESK_SUGGESTED ? "These were tried; the gentlest comes first."
           : result->goal.protect > 0
               ? "Choose one of these. Those that meet the goal come first; of them the gentlest, "
                 "which denies the fewest keys."
               : "Choose one of these. Those that meet the goal and stop much come first; of them "
                 "the gentlest, which denies the fewest keys.";
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
        printf("\n%s%s%s\n", style.bad,
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
    if (result->count > 0 && result->judged) {
        print_shared_hint(suggest);
        putchar('\n');
        cli_print_wrapped("\"expect\": if the traffic stays like this, the part that is denied is "
                          "within these, in 95 of 100 cases. See it over time: weir replay LIMIT "
                          "--report report.html LOG",
                          0);
    }
}
