/*
 * Trying limits on the first part of a log. Limits stand in rows: in a row only the size differs,
 * so on one side all keep the goal and on the other none does. Every pass tries up to 64 limits at
 * once, some of each row between the ends that are known, until every edge is found.
 */
#include "desk/suggest.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)
#define HORIZON_US MINUTE_US /* an empty bucket is full again within this */
#define RATES_MOST 22        /* rows of buckets at first */
#define RATES_KEPT 6         /* and once it is known which rates can keep the goal at all */
#define RATES_FREE 4         /* and of those that can deny nobody */
#define FREE_STEPS 3         /* sizes that are tried beyond the first one that denies nobody */
#define BEYOND_ROUNDS 3
#define WINDOW_PROBES 8
#define ROUNDS_MOST 12
#define PROTECT_KEYS 10000 /* millionths */
#define KEY_BYTES 200      /* of an entry without candidates, about */
#define CANDIDATE_BYTES 40
#define DOUBT_Z 0.84 /* of a bound that holds in four cases of five */

/* Round numbers, one power of ten in each line. */
#define DECADE(n) n, n / 10 * 15, 2 * n, 3 * n, 5 * n
const int64_t desk_nice[DESK_NICE] = {
    /* clang-format off */
    1, 2, 3, 5,
    DECADE(INT64_C(10)), DECADE(INT64_C(100)), DECADE(INT64_C(1000)), DECADE(INT64_C(10000)),
    DECADE(INT64_C(100000)), DECADE(INT64_C(1000000)), DECADE(INT64_C(10000000)),
    DECADE(INT64_C(100000000)), DECADE(INT64_C(1000000000)), DECADE(INT64_C(10000000000)),
    DECADE(INT64_C(100000000000)), INT64_C(1000000000000),
    /* clang-format on */
};
#undef DECADE

int desk_nice_up(int64_t number)
{
    int i = 0;
    while (i + 1 < DESK_NICE && desk_nice[i] < number)
        i++;
    return i;
}

/* The last one that is at most this; -1: none. */
static int search_nice_down(int64_t number)
{
    int i = DESK_NICE - 1;
    while (i >= 0 && desk_nice[i] > number)
        i--;
    return i;
}

/* ---- rows ---- */

static const char *search_unit(int64_t period_us)
{
    static const struct {
        int64_t us;
        const char *unit;
    } units[] = {{SECOND_US, "s"},
                 {10 * SECOND_US, "10s"},
                 {MINUTE_US, "m"},
                 {60 * MINUTE_US, "h"},
                 {24 * 60 * MINUTE_US, "d"}};
    size_t i = 0;
    while (i + 1 < WEIR__COUNT(units) && units[i].us != period_us)
        i++;
    assert(units[i].us == period_us);
    return units[i].unit;
}

void desk_row_put(struct weir__buffer *buffer, const struct desk_row *row, int size)
{
    assert(size >= 0 && size < DESK_NICE);
    if (row->kind == DESK_KIND_BUCKET)
        weir__put_format(buffer, "token-bucket %" PRId64 "/%s burst %" PRId64, row->rate,
                         search_unit(row->period_us), desk_nice[size]);
    else
        weir__put_format(buffer, "sliding-counter %" PRId64 "/%s", desk_nice[size],
                         search_unit(row->period_us));
}

static struct desk_row *search_add_row(struct desk_search *search, enum desk_kind kind,
                                       int64_t rate, int64_t period_us, int first, int last)
{
    assert(search->row_count < DESK_ROWS_MAX);
    struct desk_row *row = &search->rows[search->row_count++];
    memset(row, 0, sizeof *row);
    row->kind = kind;
    row->rate = rate;
    row->period_us = period_us;
    row->first = first;
    row->last = last;
    row->lo = first - 1;
    row->hi = last + 1;
    return row;
}

/* Bursts of a rate: from what a second brings to what fills it again within the horizon. */
static void search_add_bucket(struct desk_search *search, int64_t rate, int64_t period_us,
                              int64_t horizon_us)
{
    int64_t exact = (INT64_C(1) << 53) / period_us - 1; /* the largest burst that is decided */
    int64_t least = weir__max(rate * SECOND_US / period_us, 1);
    double most = (double)rate * (double)horizon_us / (double)period_us;
    int first = desk_nice_up(least);
    int last = search_nice_down(weir__min(most < 1e12 ? (int64_t)most : INT64_C(1) << 40, exact));
    if (last < first && desk_nice[first] <= exact)
        last = first;
    if (last >= first)
        search_add_row(search, DESK_KIND_BUCKET, rate, period_us, first, last);
}

static void search_add_buckets(struct desk_search *search, int64_t half_us)
{
    static const int64_t in_a_minute[] = {1, 2, 3, 5, 10, 15, 20, 30};
    const int slow = (int)WEIR__COUNT(in_a_minute);
    int64_t horizon_us = weir__max(weir__min(HORIZON_US, half_us / 2), SECOND_US);
    int top = desk_nice_up(search->suggest->peaks[0][DESK_PERCENTILES - 1]);
    int first = weir__max(top - RATES_MOST + 1, -slow);
    for (int i = first; i <= top; i++) {
        if (i < 0)
            search_add_bucket(search, in_a_minute[i + slow], MINUTE_US, horizon_us);
        else
            search_add_bucket(search, desk_nice[i], SECOND_US, horizon_us);
    }
}

/* Windows of which the first part has at least two; of a short log a shorter one. */
static void search_add_windows(struct desk_search *search, int64_t half_us)
{
    const struct desk_suggest *suggest = search->suggest;
    const int64_t counts_most = 1000000000; /* of a sliding counter */
    size_t rows = search->row_count;
    for (size_t i = 1; i < suggest->peak_count; i++) {
        int64_t most = suggest->peaks[i][DESK_PERCENTILES - 1];
        if (half_us < 2 * desk_peak_us[i])
            break;
        search_add_row(search, DESK_KIND_WINDOW, 0, desk_peak_us[i], 0,
                       desk_nice_up(weir__min(2 * weir__min(most, counts_most), counts_most)));
    }
    if (search->row_count > rows)
        return;
    int64_t most = weir__min(suggest->peaks[0][DESK_PERCENTILES - 1], counts_most / 20);
    int64_t period_us = half_us >= 20 * SECOND_US ? 10 * SECOND_US : SECOND_US;
    search_add_row(search, DESK_KIND_WINDOW, 0, period_us, 0,
                   desk_nice_up(2 * most * (period_us / SECOND_US)));
}

/* ---- the goal ---- */

/* Millionths of the keys that may be denied; -1: any. To protect, limits of single keys should deny
 * few of them, too. */
static int64_t search_keys_goal(const struct desk_goal *goal)
{
    bool asked = goal->keys >= 0 || goal->requests >= 0;
    return asked || goal->protect == 0 ? goal->keys : PROTECT_KEYS;
}

/* Keys that may be denied in the first part: fewer than the goal allows, because the next part will
 * be a little different. One, if the goal allows one. */
static int64_t search_keys_allowed(const struct desk_search *search, int64_t goal)
{
    double part = (double)goal / (double)DESK_MILLION;
    struct desk_goal asked = {.keys = goal, .least = search->suggest->goal.least};
    int64_t keys = desk_part_keys(&search->part), k = desk_goal_keys(&asked, keys);
    while (k > 1 && desk_share_of(k, keys, DOUBT_Z).high > part)
        k--;
    return k;
}

/* Likewise: also a part that is worse than it was here stays below the goal. */
static bool search_denies_few_requests(const struct desk_search *search,
                                       const struct desk_outcome *outcome)
{
    double part = (double)search->suggest->goal.requests / (double)DESK_MILLION;
    return outcome->others_denied == 0 ||
           ((double)outcome->others_denied <= part * (double)desk_part_requests(&search->part) &&
            outcome->part_high <= part);
}

bool desk_search_keeps(const struct desk_search *search, const struct desk_outcome *outcome)
{
    const struct desk_goal *goal = &search->suggest->goal;
    int64_t keys = search_keys_goal(goal);
    assert(outcome->seen);
    return (keys < 0 || outcome->others_keys_denied <= search_keys_allowed(search, keys)) &&
           (goal->requests < 0 || search_denies_few_requests(search, outcome)) &&
           outcome->spared_denied == 0;
}

/* ---- passes ---- */

struct search_probe {
    struct desk_row *row;
    int size;
};

struct search_probes {
    struct search_probe items[DESK_CANDIDATES_MAX];
    size_t count, most;
};

static void search_add_probe(struct search_probes *probes, struct desk_row *row, int size)
{
    if (probes->count == probes->most || row->outcomes[size].seen)
        return;
    row->outcomes[size].seen = true;
    probes->items[probes->count++] = (struct search_probe){row, size};
}

/* Some sizes between the ends, evenly. */
static void search_add_between(struct search_probes *probes, struct desk_row *row, int wanted)
{
    int inside = row->hi - row->lo - 1, lo = row->lo;
    int n = weir__min(wanted, inside);
    for (int i = 0; i < n; i++)
        search_add_probe(probes, row, lo + (i + 1) * (inside + 1) / (n + 1));
}

int desk_search_try(struct desk_search *search, const struct desk_candidate *candidates,
                    size_t count, struct desk_outcome *rets, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    struct desk_engine *engine;
    int code = desk_suggest_engine(suggest, candidates, count, search->looks, &engine, err);
    if (code)
        return code;
    code = desk_suggest_pass(suggest, &suggest->parts[0], engine, err);
    if (code == 0) {
        desk_part_read(suggest, &search->part, engine);
        suggest->lossy |= desk_engine_is_lossy(engine);
        for (size_t i = 0; i < count; i++)
            desk_outcome_read(suggest, engine, i, &rets[i]);
    }
    if (code == 0 && search->looks)
        desk_heavy_find(suggest, engine);
    search->looks = false;
    desk_engine_free(engine);
    return code;
}

static int search_run_probes(struct desk_search *search, struct search_probes *probes,
                             weir_error *err)
{
    struct desk_candidate candidates[DESK_CANDIDATES_MAX] = {{.name = NULL}};
    struct desk_outcome outcomes[DESK_CANDIDATES_MAX];
    weir_limit *limits[DESK_CANDIDATES_MAX] = {NULL};
    int code = 0;
    for (size_t i = 0; i < probes->count && code == 0; i++) {
        char text[WEIR__RULE_TEXT_MAX];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        desk_row_put(&buffer, probes->items[i].row, probes->items[i].size);
        code = weir_limit_parse(text, &limits[i], err);
        assert(code == 0 || code == WEIR_ENOMEM);
        candidates[i] = (struct desk_candidate){"probe", limits[i], false, search->exempt};
    }
    if (code == 0)
        code = desk_search_try(search, candidates, probes->count, outcomes, err);
    for (size_t i = 0; i < probes->count; i++) {
        if (code == 0)
            probes->items[i].row->outcomes[probes->items[i].size] = outcomes[i];
        weir_limit_free(limits[i]);
    }
    return code;
}

/* So many that all keys fit into the memory. */
static size_t search_most_probes(const struct desk_search *search)
{
    const struct desk_suggest *suggest = search->suggest;
    bool about;
    int64_t keys = weir__max(desk_engine_distinct(suggest->whole, &about), 1);
    int64_t fit = (desk_suggest_memory(suggest) / keys - KEY_BYTES) / CANDIDATE_BYTES;
    return (size_t)weir__max(weir__min(fit, DESK_CANDIDATES_MAX), 16);
}

/* What a pass found moves the edges of the rows. */
static void search_note_probes(const struct desk_search *search, const struct search_probes *probes)
{
    for (size_t i = 0; i < probes->count; i++) {
        struct desk_row *row = probes->items[i].row;
        int size = probes->items[i].size;
        if (desk_search_keeps(search, &row->outcomes[size]))
            row->hi = (int)weir__min(row->hi, size);
        else
            row->lo = (int)weir__max(row->lo, size);
    }
}

/* The loosest bucket of every rate says which rates are of use. */
static int search_first(struct desk_search *search, struct search_probes *probes, weir_error *err)
{
    for (size_t i = 0; i < search->row_count; i++) {
        struct desk_row *row = &search->rows[i];
        if (row->kind == DESK_KIND_BUCKET)
            search_add_probe(probes, row, row->last);
        else
            search_add_between(probes, row, WINDOW_PROBES);
    }
    return search_run_probes(search, probes, err);
}

/* Keeps the lowest rates that can keep the goal, and the lowest that can deny nobody. */
static void search_drop_rates(struct desk_search *search)
{
    size_t kept = 0, idle = 0;
    for (size_t i = 0; i < search->row_count; i++) {
        struct desk_row *row = &search->rows[i];
        if (row->kind != DESK_KIND_BUCKET)
            continue;
        bool keeps = row->hi <= row->last;
        bool denies_nobody = keeps && row->outcomes[row->last].others_keys_denied == 0;
        row->dropped = !keeps || (kept >= RATES_KEPT && (!denies_nobody || idle >= RATES_FREE));
        kept += !row->dropped;
        idle += !row->dropped && denies_nobody;
    }
}

static size_t search_open_rows(const struct desk_search *search)
{
    size_t count = 0;
    for (size_t i = 0; i < search->row_count; i++)
        count += !search->rows[i].dropped && search->rows[i].hi - search->rows[i].lo > 1;
    return count;
}

static int search_run_round(struct desk_search *search, struct search_probes *probes,
                            weir_error *err)
{
    int code = probes->count > 0 ? search_run_probes(search, probes, err) : 0;
    if (code == 0)
        search_note_probes(search, probes);
    return code;
}

/* One more pass, on what is between the ends. */
static int search_round(struct desk_search *search, weir_error *err)
{
    struct search_probes probes = {.most = search_most_probes(search)};
    int64_t rows = weir__max((int64_t)search_open_rows(search), 1);
    int each = weir__max((int)((int64_t)probes.most / rows), 1);
    for (size_t i = 0; i < search->row_count; i++) {
        if (!search->rows[i].dropped)
            search_add_between(&probes, &search->rows[i], each);
    }
    return search_run_round(search, &probes, err);
}

/* The last size of a row that is worth a try: a few beyond the first one that denies nobody. */
static int search_last_worth(const struct desk_row *row)
{
    int size = row->hi;
    while (size < row->last &&
           !(row->outcomes[size].seen && row->outcomes[size].others_keys_denied == 0))
        size++;
    return (int)weir__min(size + FREE_STEPS, row->last);
}

/* One more pass, on what is looser than the edge. *ret_more: there is more to be tried. */
static int search_beyond(struct desk_search *search, bool *ret_more, weir_error *err)
{
    struct search_probes probes = {.most = search_most_probes(search)};
    int last[DESK_ROWS_MAX];
    size_t before = 1;
    for (size_t i = 0; i < search->row_count; i++)
        last[i] = search->rows[i].dropped ? -1 : search_last_worth(&search->rows[i]);
    while (before != probes.count) { /* one size of each row after the other */
        before = probes.count;
        for (size_t i = 0; i < search->row_count; i++) {
            struct desk_row *row = &search->rows[i];
            int size = row->hi;
            while (size <= last[i] && row->outcomes[size].seen)
                size++;
            if (size <= last[i])
                search_add_probe(&probes, row, size);
        }
    }
    *ret_more = probes.count == probes.most;
    return search_run_round(search, &probes, err);
}

int desk_search_run(struct desk_search *search, weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    struct search_probes probes = {.most = DESK_CANDIDATES_MAX};
    int64_t half_us = suggest->parts[0].to_us - suggest->parts[0].from_us;
    search->row_count = 0;
    if (!search->strict)
        search_add_buckets(search, half_us);
    search_add_windows(search, half_us);
    int code = search_first(search, &probes, err);
    if (code)
        return code;
    search->part.from_us = suggest->parts[0].from_us;
    search->part.to_us = suggest->parts[0].to_us;
    suggest->parts[0] = search->part;
    if (!desk_goal_is_clear(suggest, 0))
        return 0;
    search_note_probes(search, &probes);
    search_drop_rates(search);
    for (int i = 0; i < ROUNDS_MOST && search_open_rows(search) > 0 && code == 0; i++)
        code = search_round(search, err);
    bool more = true;
    for (int i = 0; i < BEYOND_ROUNDS && more && code == 0; i++)
        code = search_beyond(search, &more, err);
    return code;
}
