/* What `weir replay` prints for people: figures, charts, the worst keys, and what was not read. */
#include "cli/replay.h"

#include "sim/plot.h"

#include <inttypes.h>
#include <string.h>

#define CHART_ROWS 8
#define CHART_MOST 120 /* columns */
#define CHARTS_MOST 8  /* candidates with a chart of their own */
#define FEW 3          /* worst keys where there are several candidates */
/* Columns from which on tables have more. The table of keys: columns of it, of its first two
 * columns, of a name and of a key. */
#define WIDE 100
#define WIDE_SPARED 114
#define TABLE_MOST 100
#define KEY_COLUMNS 22
#define NAME_LEAST 6
#define NAME_MOST 12
#define KEY_LEAST 20

/* ---- numbers ---- */

struct print_text {
    char text[48];
};

/* 1234567 bytes as 1.2m, rounded up, as stores take it: powers of 1024. */
static struct print_text print_size(int64_t bytes)
{
    static const char suffixes[] = "kmgt";
    struct print_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    int64_t size = weir__div_up(bytes, 1024);
    size_t i = 0;
    for (; size >= 10240 && i < 3; i++)
        size = weir__div_up(size, 1024);
    weir__put_format(&buffer, "%" PRId64 "%c", size, suffixes[i]);
    return ret;
}

static struct print_text print_percent(int64_t part, int64_t all)
{
    struct print_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    weir__put_format(&buffer, "%.2f%%", desk_percent(part, all));
    return ret;
}

/* ---- the chart ---- */

static void print_chart(const struct desk_engine *engine, size_t candidate)
{
    const struct desk_timeline *from = &engine->timeline;
    const struct desk_bin *bins = engine->tallies[candidate].bins;
    struct cli_style style = cli_style_of(stdout);
    int width = cli_width(stdout) - CLI_CHART_GUTTER - 1;
    size_t most = (size_t)weir__max(20, weir__min(width, CHART_MOST));
    size_t each = (from->count + most - 1) / most;
    size_t count = (from->count + each - 1) / each;
    struct weir__timeline timeline;
    weir__timeline_init(&timeline, from->start_us, from->width_us * (int64_t)(each * count), count);
    for (size_t i = 0; i < from->count; i++) {
        timeline.bins[i / each].through += bins[i].allowed;
        timeline.bins[i / each].denied += bins[i].denied;
    }
    size_t bar = count * 2 <= most ? most / count : 1;
    struct weir__plot plot = {&timeline, bar > 4 ? 4 : bar, CHART_ROWS,
                              weir__timeline_peak(&timeline), style.colour};
    char first[40], last[40];
    struct weir__buffer buffer = weir__buffer_over(first, sizeof first);
    desk_put_time(&buffer, engine->first_us);
    buffer = weir__buffer_over(last, sizeof last);
    desk_put_time(&buffer, engine->last_us);
    putchar('\n');
    cli_print_chart(&plot, first, last);
    buffer = weir__buffer_over(last, sizeof last);
    desk_put_zone(&buffer, engine->last_us);
    printf("%s%*sone bar is %s%s%s%s\n", style.dim, CLI_CHART_GUTTER, "",
           cli_exact(from->width_us * (int64_t)each).text, buffer.len ? "; times in" : "", last,
           style.off);
}

static void print_legend(void)
{
    cli_print_legend(cli_style_of(stdout).colour, "allowed", "denied");
}

/* ---- keys ---- */

static void print_key(const struct desk_engine *engine, const struct desk_key *key)
{
    struct weir__span text = desk_key_text(engine, key);
    printf("%s%s%s\n", cli_show(text.data, text.len).text, key->text_cut ? "…" : "",
           key->spared ? "  spared" : "");
}

/* A list that is cut says so. */
static void print_rest(int64_t keys, size_t shown)
{
    struct cli_style style = cli_style_of(stdout);
    if (keys > (int64_t)shown)
        printf("  %s%10s and %" PRId64 " more%s\n", style.dim, "", keys - (int64_t)shown,
               style.off);
}

static void print_most_denied(const struct desk_engine *engine, size_t candidate, size_t most)
{
    const struct desk_key *top[DESK_TOP];
    size_t n = desk_engine_most_denied(engine, candidate, top, most);
    struct cli_style style = cli_style_of(stdout);
    if (n == 0)
        return;
    printf("\n%sMost denied%s\n", style.bold, style.off);
    for (size_t i = 0; i < n; i++) {
        printf("  %10" PRIu32 " of %-10" PRId64 " ",
               desk_key_mark(engine, top[i], candidate)->denied, top[i]->requests);
        print_key(engine, top[i]);
    }
    print_rest(engine->tallies[candidate].keys_denied, n);
}

/* Whom limits in shadow would hurt. */
static void print_most_shadowed(const struct desk_report *report)
{
    const struct desk_engine *engine = report->engine;
    const struct desk_key *top[DESK_TOP];
    size_t n = report->shown[0].shadowed ? desk_engine_most_noted(engine, top, DESK_TOP) : 0;
    struct cli_style style = cli_style_of(stdout);
    if (n == 0)
        return;
    printf("\n%sMost denied, in shadow%s\n", style.bold, style.off);
    for (size_t i = 0; i < n; i++) {
        printf("  %10" PRId64 " of %-10" PRId64 " ", *desk_key_noted(engine, top[i]),
               top[i]->requests);
        print_key(engine, top[i]);
    }
}

/* Whom delays hurt: their requests are allowed, so they are in no list of denials. */
static void print_most_delayed(const struct desk_engine *engine, size_t candidate, size_t most)
{
    const struct desk_key *top[DESK_TOP];
    size_t n = desk_engine_most_delayed(engine, candidate, top, most);
    struct cli_style style = cli_style_of(stdout);
    if (n == 0)
        return;
    printf("\n%sMost delayed%s\n", style.bold, style.off);
    for (size_t i = 0; i < n; i++) {
        printf("  %10" PRIu32 " of %-10" PRId64 " ",
               desk_key_mark(engine, top[i], candidate)->delayed, top[i]->requests);
        print_key(engine, top[i]);
    }
    print_rest(engine->tallies[candidate].keys_delayed, n);
}

/* How many columns a candidate has in the table of keys. */
static int print_key_column(const struct desk_shown *shown)
{
    return 2 + (int)weir__min(weir__max((int64_t)strlen(shown->name), NAME_LEAST), NAME_MOST);
}

/* How many candidates have a column there: names and keys must fit. */
static size_t print_key_columns(const struct desk_report *report, size_t count)
{
    int room = (int)weir__min(cli_width(stdout), TABLE_MOST) - KEY_COLUMNS - KEY_LEAST;
    size_t fit = 0;
    while (fit < count && room >= print_key_column(&report->shown[fit]))
        room -= print_key_column(&report->shown[fit++]);
    return fit;
}

/* With several candidates also what each denied of them. */
static void print_heaviest(const struct desk_report *report)
{
    const struct desk_engine *engine = report->engine;
    const struct desk_key *top[DESK_TOP];
    size_t n = desk_engine_heaviest(engine, top, DESK_TOP);
    size_t candidates = report->several ? engine->count : 0;
    size_t columns = print_key_columns(report, candidates);
    struct cli_style style = cli_style_of(stdout);
    struct desk_spread spread;
    bool about;
    desk_engine_spread(engine, &spread);
    printf("\n%sRequests per key%s%s\n  half of the keys have at most %" PRId64 ", 90%% %" PRId64
           ", 99%% %" PRId64 "\n%s    requests  of all",
           style.bold, columns > 0 ? ", and how many of them each limit denied" : "", style.off,
           spread.median, spread.p90, spread.p99, style.dim);
    for (size_t c = 0; c < columns; c++)
        printf("%*.*s", print_key_column(&report->shown[c]), NAME_MOST, report->shown[c].name);
    printf("  key%s\n", style.off);
    for (size_t i = 0; i < n; i++) {
        printf("  %10" PRId64 "  %6s", top[i]->requests,
               print_percent(top[i]->requests, engine->requests).text);
        for (size_t c = 0; c < columns; c++)
            printf("%*" PRIu32, print_key_column(&report->shown[c]),
                   desk_key_mark(engine, top[i], c)->denied);
        fputs("  ", stdout);
        print_key(engine, top[i]);
    }
    print_rest(desk_engine_distinct(engine, &about), n);
    if (columns < candidates)
        printf("  %s%10s and %zu more limit%s: see --report or --json%s\n", style.dim, "",
               candidates - columns, candidates - columns == 1 ? "" : "s", style.off);
}

/* ---- one candidate ---- */

static void print_shadowed_by(const struct desk_shown *shown)
{
    if (!shown->shadowed || shown->shadow_denied == 0)
        return;
    printf("  would be denied by (shadow)\n");
    for (size_t i = 0; i < shown->part_count; i++) {
        if (shown->shadowed[i] > 0)
            printf("    %13" PRId64 "  %s\n", shown->shadowed[i],
                   cli_show_text(shown->parts[i]).text);
    }
}

static void print_denied_by(const struct desk_shown *shown, const struct desk_tally *tally)
{
    size_t parts = shown->limit ? shown->limit->count : shown->part_count;
    if (parts < 2 || tally->denied == 0)
        return;
    printf("  denied by\n");
    for (size_t i = 0; i < parts && i < DESK_PARTS_MAX; i++) {
        struct weir__buffer name = weir__buffer_growing();
        desk_report_part(&name, shown, i);
        if (tally->denied_by[i] > 0)
            printf("    %13" PRId64 "  %s\n", tally->denied_by[i], cli_show_text(name.data).text);
        weir__buffer_free(&name);
    }
}

static void print_totals(const struct desk_report *report, size_t i)
{
    const struct desk_engine *engine = report->engine;
    const struct desk_tally *tally = &engine->tallies[i];
    struct cli_style style = cli_style_of(stdout);
    int64_t all = tally->allowed + tally->denied;
    printf("  allowed        %s%10" PRId64 "%s  %s\n", style.good, tally->allowed, style.off,
           print_percent(tally->allowed, all).text);
    printf("  denied         %s%10" PRId64 "%s  %s\n", tally->denied ? style.bad : "",
           tally->denied, tally->denied ? style.off : "", print_percent(tally->denied, all).text);
    if (report->shown[i].shadowed)
        printf("  in shadow      %10" PRId64 "  %s  more would be denied by limits in shadow\n",
               report->shown[i].shadow_denied,
               print_percent(report->shown[i].shadow_denied, all).text);
    if (tally->denied > 0) {
        bool about;
        int64_t keys = desk_engine_distinct(engine, &about);
        printf("  keys denied    %10" PRId64 "  of %s%" PRId64
               ", %s; they make %s of the requests\n",
               tally->keys_denied, about ? "about " : "", keys,
               print_percent(tally->keys_denied, keys).text,
               print_percent(tally->requests_of_denied, all).text);
        printf("  denied for     %10s  at the longest", cli_about(tally->longest_locked_us).text);
        const struct desk_key *key = desk_engine_find(engine, tally->locked_hash);
        struct weir__span text = key ? desk_key_text(engine, key) : (struct weir__span){"", 0};
        bool named = key && tally->longest_locked_us > 0;
        printf("%s%s\n", named ? ": " : "", named ? cli_show(text.data, text.len).text : "");
    }
    if (engine->options.spare_count > 0)
        printf("  if not spared  %10" PRId64 "  more would be denied\n", tally->spared_would_deny);
    if (tally->delayed > 0)
        printf("  delayed        %10" PRId64 "  half at most %s, 99%% %s, the longest %s\n",
               tally->delayed, cli_about(desk_tally_delay_us(tally, 0.5)).text,
               cli_about(desk_tally_delay_us(tally, 0.99)).text,
               cli_about(tally->longest_delay_us).text);
    if (tally->cost_allowed + tally->cost_denied != all)
        printf("  cost           %10" PRId64 "  allowed, %" PRId64 " denied\n", tally->cost_allowed,
               tally->cost_denied);
    printf("  highest rate   %10" PRId64 "  admitted in a second, %" PRId64 " in 10s, %" PRId64
           " in a minute\n",
           tally->rates->highest[0], tally->rates->highest[1], tally->rates->highest[2]);
    if (tally->memory > 0)
        printf("  memory         %10s  for %" PRId64 " states at once, about\n",
               print_size(tally->memory).text, tally->states_peak);
    print_denied_by(&report->shown[i], tally);
    print_shadowed_by(&report->shown[i]);
}

static void print_classes(const struct weir__classes *classes)
{
    struct cli_style style = cli_style_of(stdout);
    if (classes->count == 0)
        return;
    printf("\n%sClasses%s\n", style.bold, style.off);
    for (size_t i = 0; i < classes->count; i++) {
        const struct weir__class *it = &classes->items[i];
        char share[16];
        struct weir__buffer text = weir__buffer_over(share, sizeof share);
        weir__put_share(&text, it->millionths);
        printf("  %10" PRId64 " of %-10" PRId64 " allowed  %s, %s: %s\n", it->allowed, it->requests,
               cli_show(it->name.data, it->name.len).text, share, weir_limit_text(it->limit));
    }
}

/* ---- several ---- */

static void print_table(const struct desk_report *report)
{
    const struct desk_engine *engine = report->engine;
    struct cli_style style = cli_style_of(stdout);
    bool spared = engine->options.spare_count > 0, about;
    bool wide = cli_width(stdout) >= (spared ? WIDE_SPARED : WIDE);
    int name = 4;
    int64_t keys = desk_engine_distinct(engine, &about);
    for (size_t i = 0; i < engine->count; i++)
        name = (int)weir__max(name, (int64_t)strlen(report->shown[i].name));
    printf("\n%s%-*s %9s %9s %7s %8s %7s %11s%s%s%s\n", style.bold, name, "", "allowed", "denied",
           "of all", "keys", "of all", "denied for", spared ? "  if not spared" : "",
           wide ? "    delayed    most/s    memory" : "", style.off);
    for (size_t i = 0; i < engine->count; i++) {
        const struct desk_tally *tally = &engine->tallies[i];
        printf("%-*s %s%9" PRId64 "%s %s%9" PRId64 " %7s%s %8" PRId64 " %7s %11s", name,
               report->shown[i].name, style.good, tally->allowed, style.off,
               tally->denied ? style.bad : "", tally->denied,
               print_percent(tally->denied, engine->requests).text, tally->denied ? style.off : "",
               tally->keys_denied, print_percent(tally->keys_denied, keys).text,
               cli_about(tally->longest_locked_us).text);
        if (spared)
            printf(" %14" PRId64, tally->spared_would_deny);
        if (wide)
            printf(" %10" PRId64 " %9" PRId64 " %9s", tally->delayed, tally->rates->highest[0],
                   print_size(tally->memory).text);
        putchar('\n');
    }
}

static void print_each(const struct desk_report *report)
{
    struct cli_style style = cli_style_of(stdout);
    for (size_t i = 0; i < report->engine->count && i < CHARTS_MOST; i++) {
        printf("\n%s%s%s  %s\n", style.bold, report->shown[i].name, style.off,
               report->shown[i].text);
        print_totals(report, i);
        print_chart(report->engine, i);
        print_legend();
        print_most_denied(report->engine, i, FEW);
        print_most_delayed(report->engine, i, FEW);
    }
    if (report->engine->count > CHARTS_MOST)
        printf("\n%zu candidates more: see --json or --report\n",
               report->engine->count - CHARTS_MOST);
}

/* ---- all of it ---- */

static void print_requests(const struct desk_report *report, bool policies)
{
    const struct desk_engine *engine = report->engine;
    bool about;
    int64_t keys = desk_engine_distinct(engine, &about);
    int64_t span = engine->requests > 0 ? engine->last_us - engine->first_us : 0;
    printf("  requests       %10" PRId64 "  of %s%" PRId64 " key%s", engine->requests,
           about ? "about " : "", keys, keys == 1 ? "" : "s");
    if (policies)
        printf(" (%s; policies have their own)", cli_show_text(report->key).text);
    printf(" over %s\n", cli_lasted(span).text);
    if (engine->spared_requests > 0)
        printf("  spared         %10" PRId64 "  of %" PRId64 " key%s, left out of %s\n",
               engine->spared_requests, engine->spared_keys, engine->spared_keys == 1 ? "" : "s",
               engine->count > 1 ? "every limit, also of your own" : "the limit");
    if (desk_engine_is_lossy(engine))
        printf("  approximate: %" PRId64 " keys in use were forgotten, so some answers are too "
               "lenient; use more --memory\n",
               engine->lossy);
}

void replay_print(const struct replay *replay, const struct desk_report *report)
{
    struct cli_style style = cli_style_of(stdout);
    const struct desk_engine *engine = report->engine;
    if (!replay->is_trace)
        cli_logs_print(report->facts);
    if (!report->several)
        printf("%s%s%s\n", style.bold, report->shown[0].text, style.off);
    print_requests(report, replay->policies != NULL);
    if (!replay->is_trace && engine->requests == 0 && report->facts->lines > 0)
        return; /* why is said above */
    if (report->several && engine->requests > 0) {
        print_table(report);
        print_each(report);
    } else {
        print_totals(report, 0);
        print_classes(&replay->classes);
        if (engine->requests > 0) {
            print_chart(engine, 0);
            print_legend();
        }
        print_most_denied(engine, 0, DESK_TOP);
        print_most_shadowed(report);
        print_most_delayed(engine, 0, DESK_TOP);
    }
    if (!replay->is_trace && engine->requests > 0)
        print_heaviest(report);
}
