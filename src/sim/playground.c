/*
 * The playground: see playground.h. First when the requests of a load come, then what each limit
 * decides about them, then the answer. Counts and bins are numbers of requests. What is compared
 * with the promise of a limit is the sum of their costs, key by key.
 */
#include "sim/playground.h"

#include "base/random.h"
#include "core/calendar.h"
#include "limit/explain.h"
#include "sim/plot.h"
#include "sim/private_store.h"
#include "sim/virtual_clock.h"
#include "store/store.h"
#include "wire/decision.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the load ---- */

/* Steady requests come in the middle of their share of time, bursts in the middle of theirs, so
 * that nothing happens on the edge of a plot. */

#define MIDNIGHT_US INT64_C(1700006400000000)
#define TRILLION INT64_C(1000000000000)
#define EDGE_PART 10 /* an edge attack takes a tenth of the window on either side */

int64_t weir__load_start_us(const struct weir__load *load)
{
    if (load->kind != WEIR__EDGES)
        return MIDNIGHT_US;
    return MIDNIGHT_US - MIDNIGHT_US % load->every_us + load->every_us;
}

/* For each stream: how many requests it has, and when its i-th request comes. */

/* A request comes in the middle of its share of time, so none comes at the very end of the span. */
static __int128 load_steady_count(const struct weir__load *load)
{
    __int128 doubled = (__int128)2 * load->rate_millionths * load->span_us;
    return (doubled + TRILLION - 1) / (2 * (__int128)TRILLION);
}

static int64_t load_steady_us(const struct weir__load *load, int64_t i)
{
    return (int64_t)((2 * (__int128)i + 1) * TRILLION / (2 * load->rate_millionths));
}

static __int128 load_burst_count(const struct weir__load *load)
{
    int64_t first = load->every_us / 2;
    if (load->span_us <= first)
        return 0;
    return (__int128)((load->span_us - first - 1) / load->every_us + 1) * load->burst;
}

static int64_t load_burst_us(const struct weir__load *load, int64_t i)
{
    return load->every_us / 2 + i / load->burst * load->every_us;
}

/* An upper bound: the last attack may be cut by the load's end. */
static __int128 load_edge_count(const struct weir__load *load)
{
    int64_t first = load->every_us - load->every_us / EDGE_PART;
    if (load->span_us <= first)
        return 0;
    int64_t attacks = (load->span_us - first - 1) / (2 * load->every_us) + 1;
    return (__int128)attacks * 2 * load->burst;
}

/* Every second edge, so that each window is used up once, all of it on one side. */
static int64_t load_edge_us(const struct weir__load *load, int64_t i)
{
    int64_t attack = i / (2 * load->burst), k = i % (2 * load->burst);
    int64_t edge = load->every_us + attack * 2 * load->every_us;
    int64_t part = load->every_us / EDGE_PART;
    return edge - part + (int64_t)((2 * (__int128)k + 1) * part / (2 * load->burst));
}

/* ---- arrivals ---- */

struct load_list {
    struct weir__play_arrival *arrivals;
    size_t count, room;
};

static bool load_add(struct load_list *list, int64_t at_us, int64_t key)
{
    if (list->count == list->room)
        return false;
    list->arrivals[list->count++] = (struct weir__play_arrival){at_us, (uint32_t)key};
    return true;
}

/* Two ordered streams become one. */
static void load_merge(const struct weir__load *load, int64_t steady, int64_t pattern,
                       int64_t (*pattern_us)(const struct weir__load *, int64_t),
                       struct load_list *list)
{
    for (int64_t i = 0, j = 0; i < steady || j < pattern;) {
        int64_t steady_at = i < steady ? load_steady_us(load, i) : INT64_MAX;
        int64_t pattern_at = j < pattern ? pattern_us(load, j) : INT64_MAX;
        int64_t at = weir__min(steady_at, pattern_at);
        if (at >= load->span_us || !load_add(list, at, (i + j) % load->keys))
            return;
        if (steady_at <= pattern_at)
            i++;
        else
            j++;
    }
}

/* The times between requests are exponential. The mean number of requests was checked before. There
 * is room for eight standard deviations more; a load beyond that ends early. */
static void load_scatter(const struct weir__load *load, struct load_list *list)
{
    uint64_t random = (uint64_t)load->seed;
    double mean_us = (double)TRILLION / (double)load->rate_millionths, at = 0;
    for (;;) {
        double share = (double)(weir__random_next(&random) >> 11) * 0x1p-53;
        at -= log1p(-share) * mean_us;
        uint64_t key = weir__random_next(&random) % (uint64_t)load->keys;
        if (at >= (double)load->span_us || !load_add(list, (int64_t)at, (int64_t)key))
            return;
    }
}

static int load_fail(__int128 requests, int64_t most, weir_error *err)
{
    if (requests == 0)
        return weir__fail(
            err, WEIR_EINVAL, 0,
            "load: no request comes within load.seconds; raise load.seconds or load.rate");
    long long shown = requests > TRILLION ? TRILLION : (long long)requests;
    return weir__fail(err, WEIR_EINVAL, 0,
                      "load: it makes %s%lld requests for each limit: expected at most %lld with "
                      "this many limits (%d over all of them); lower load.seconds, load.rate or "
                      "load.burst",
                      requests > TRILLION ? "more than " : "", shown, (long long)most,
                      WEIR__PLAY_REQUESTS_MAX);
}

int weir__load_arrivals(const struct weir__load *load, int64_t most,
                        struct weir__play_arrival **ret, size_t *ret_count, weir_error *err)
{
    __int128 steady = load->rate_millionths ? load_steady_count(load) : 0, pattern = 0;
    if (load->kind == WEIR__BURSTS)
        pattern = load_burst_count(load);
    else if (load->kind == WEIR__EDGES)
        pattern = load_edge_count(load);
    if (steady + pattern == 0 || steady + pattern > most)
        return load_fail(steady + pattern, most, err);

    struct load_list list = {.room = (size_t)(steady + pattern)};
    if (load->kind == WEIR__POISSON)
        list.room += 64 + 8 * (size_t)sqrt((double)steady);
    list.arrivals = malloc(list.room * sizeof *list.arrivals);
    if (!list.arrivals)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s", weir_strerror(WEIR_ENOMEM));
    if (load->kind == WEIR__POISSON)
        load_scatter(load, &list);
    else
        load_merge(load, (int64_t)steady, (int64_t)pattern,
                   load->kind == WEIR__EDGES ? load_edge_us : load_burst_us, &list);
    if (list.count == 0) {
        free(list.arrivals);
        return load_fail(0, most, err);
    }
    *ret = list.arrivals;
    *ret_count = list.count;
    return 0;
}

#define BINS_WANTED 150 /* at most, where a width that people read easily allows it */
#define BINS_LEAST 30   /* fewer only if there is no such width */
#define STOP_EVERY 256  /* requests between two checks whether the client is still there */

/* When one request of a key went ahead. */
struct departure {
    int64_t at_us;
    uint32_t key;
};

/* A load in progress: its arrivals, and what the limits decided about them, one after the other. */
struct play_run {
    const struct weir__play *play;
    const struct weir__load *load;
    const struct weir__play_arrival *arrivals;
    size_t count;
    int64_t start_us, bin_us;
    size_t bins;
    struct departure *departures; /* room for all */
    const atomic_bool *stop;      /* NULL: it is never stopped */
};

struct outcome {
    size_t admitted;
    int64_t requests, denied, delayed, after_end, longest_delay_us;
    int64_t came_bins[WEIR__BINS_MAX];
    int64_t admitted_bins[WEIR__BINS_MAX]; /* by when they came */
    int64_t ahead_bins[WEIR__BINS_MAX];    /* by when they go ahead */
    int64_t waited_bins[WEIR__BINS_MAX];   /* those of them that had to wait */
};

/* ---- bins ---- */

/* Widths that are easy to read on an axis, from 10 us to a week: 100 bins over the shortest load,
 * 53 over the longest. */
static const int64_t widths_us[] = {
    10,         20,          50,          100,         200,         500,          1000,
    2000,       5000,        10000,       20000,       50000,       100000,       200000,
    500000,     1000000,     2000000,     5000000,     10000000,    15000000,     30000000,
    60000000,   120000000,   300000000,   600000000,   900000000,   1800000000,   3600000000,
    7200000000, 10800000000, 21600000000, 43200000000, 86400000000, 172800000000, 604800000000};

/* Whether bins of this width show the load and not a pattern of their own: each bin has enough
 * requests, and with a steady load all have equally many. */
static bool play_width_fits(const struct weir__load *load, int64_t width_us)
{
    __int128 trillionths = (__int128)load->rate_millionths * width_us;
    if (load->rate_millionths == 0)
        return true;
    if (load->kind == WEIR__POISSON)
        return trillionths >= 4 * (__int128)TRILLION;
    return trillionths >= 8 * (__int128)TRILLION && trillionths % TRILLION == 0;
}

/* The smallest width with few enough bins; a larger one if that shows the load better. */
static int64_t play_choose_width(const struct weir__load *load)
{
    size_t i = 0;
    while (weir__div_up(load->span_us, widths_us[i]) > BINS_WANTED)
        i++;
    for (size_t j = i; j < WEIR__COUNT(widths_us); j++) {
        if (load->span_us / widths_us[j] < BINS_LEAST)
            break;
        if (play_width_fits(load, widths_us[j]))
            return widths_us[j];
    }
    return widths_us[i];
}

static void play_count_in_bin(const struct play_run *run, int64_t *bins, int64_t at_us)
{
    assert(at_us >= 0 && at_us / run->bin_us < (int64_t)run->bins);
    bins[at_us / run->bin_us]++;
}

/* ---- playing ---- */

static void play_count_decision(struct play_run *run, const struct weir__play_arrival *arrival,
                                const weir_decision *decision, struct outcome *outcome)
{
    outcome->requests++;
    play_count_in_bin(run, outcome->came_bins, arrival->at_us);
    if (!decision->allowed) {
        outcome->denied++;
        return;
    }
    int64_t ahead_us = arrival->at_us + decision->delay_us;
    run->departures[outcome->admitted++] = (struct departure){ahead_us, arrival->key};
    outcome->delayed += decision->delay_us > 0;
    outcome->longest_delay_us = weir__max(outcome->longest_delay_us, decision->delay_us);
    play_count_in_bin(run, outcome->admitted_bins, arrival->at_us);
    if (ahead_us >= run->load->span_us) {
        outcome->after_end++;
        return;
    }
    play_count_in_bin(run, outcome->ahead_bins, ahead_us);
    if (decision->delay_us > 0)
        play_count_in_bin(run, outcome->waited_bins, ahead_us);
}

/* The limit that request i is held against when limit `which` is played. Where keys are used in
 * turn, limits take turns after each round of them, so that each is used with each key. */
static size_t play_limit_of(const struct play_run *run, size_t which, size_t i)
{
    size_t keys = run->load->kind == WEIR__POISSON ? 1 : (size_t)run->load->keys;
    return run->play->shared ? i / keys % run->play->limit_count : which;
}

/* Decides all requests, and counts those that are held against limit `which`. */
static int play_decide_all(struct play_run *run, size_t which, weir_store *store,
                           struct outcome *ret)
{
    struct weir__virtual_clock clock = {run->start_us};
    weir_request request = weir_request_make(weir_key_bytes(NULL, 0), NULL);
    request.cost = run->load->cost;
    request.wait_us = run->load->wait_us;
    weir__virtual_clock_install(&clock, store);
    *ret = (struct outcome){0};
    for (size_t i = 0; i < run->count; i++) {
        weir_decision decision;
        if (i % STOP_EVERY == 0 && run->stop && atomic_load(run->stop))
            return WEIR_EBUSY;
        clock.now_us = run->start_us + run->arrivals[i].at_us;
        request.key = weir_key_bytes(&run->arrivals[i].key, sizeof run->arrivals[i].key);
        size_t limit = play_limit_of(run, which, i);
        request.limit = run->play->limits[limit];
        int code = weir__take_all(store, &request, 1, &decision);
        if (code)
            return code;
        if (limit == which)
            play_count_decision(run, &run->arrivals[i], &decision, ret);
    }
    return 0;
}

/* ---- the most in any span ---- */

static int play_by_key_and_time(const void *a, const void *b)
{
    const struct departure *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->at_us < y->at_us ? -1 : x->at_us > y->at_us;
}

struct crowd {
    int64_t requests, from_us;
};

/* The most requests of one key in any span, over sorted departures; of equals the first. The first
 * instant of a span counts, its last does not. */
static struct crowd play_most_in_span(const struct departure *departures, size_t count,
                                      int64_t span_us)
{
    struct crowd most = {0, 0};
    for (size_t first = 0, i = 0; i < count; i++) {
        while (departures[first].key != departures[i].key ||
               departures[i].at_us - departures[first].at_us >= span_us)
            first++;
        if ((int64_t)(i - first + 1) > most.requests)
            most = (struct crowd){(int64_t)(i - first + 1), departures[first].at_us};
    }
    return most;
}

/* ---- the answer ---- */

static void play_put_bins(struct weir__json *json, const char *name, const int64_t *bins,
                          size_t count)
{
    weir__json_open(json, name, '[');
    for (size_t i = 0; i < count; i++)
        weir__json_put_int(json, NULL, bins[i]);
    weir__json_close(json, ']');
}

/* How long after the start the first window begins, where all windows are as long as the period. */
static void play_put_edge(struct weir__json *json, const struct weir__rule *rule, int64_t start_us)
{
    int64_t begin = start_us - start_us % rule->period_us, end = begin + rule->period_us;
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    bool even = algorithm->aligned;
    if (algorithm->window) {
        enum weir__calendar_unit unit = weir__calendar_of(rule).unit;
        algorithm->window(rule, start_us, &begin, &end);
        even = unit == WEIR__SPAN || unit == WEIR__WEEK;
    }
    if (even)
        weir__json_put_seconds(json, "first_edge", begin == start_us ? 0 : end - start_us);
}

/* The most that a limit let through for one key in its own period, beside what it promises. Several
 * limits that delay each other keep their promises for what is charged, not for when it goes ahead:
 * then there is no bound. */
static void play_put_rule(struct weir__json *json, const weir_limit *limit, size_t i,
                          const struct play_run *run, const struct outcome *outcome)
{
    const struct weir__rule *rule = &limit->rules[i];
    bool alone = limit->count == 1;
    struct weir__facts facts;
    weir__explain(rule, &facts);
    bool bounded = facts.most != WEIR__UNBOUNDED && weir__limit_varies(limit, i) &&
                   (!facts.requests_of_one || run->load->cost == 1) &&
                   (alone || outcome->delayed == 0);
    struct crowd most = play_most_in_span(run->departures, outcome->admitted, rule->period_us);
    weir__json_open(json, NULL, '{');
    weir__json_put_limit(json, "limit", limit, i);
    weir__json_put_string(json, "meaning", facts.what);
    weir__json_put_string(json, "guarantee", facts.guarantee);
    weir__json_put_int(json, "count", rule->count);
    weir__json_put_seconds(json, "span", rule->period_us);
    weir__json_put_int(json, "most", run->load->cost * most.requests);
    weir__json_put_seconds(json, "most_from", most.from_us);
    if (bounded)
        weir__json_put_int(json, "bound", facts.most);
    else
        weir__json_put_null(json, "bound");
    play_put_edge(json, rule, run->start_us);
    weir__json_put_int(json, "key_bytes", facts.key_bytes);
    weir__json_close(json, '}');
}

static void play_put_outcome(struct weir__json *json, const weir_limit *limit,
                             const struct play_run *run, const struct outcome *outcome)
{
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "limit", weir_limit_text(limit));
    if (run->play->shared) {
        weir__json_put_int(json, "requests", outcome->requests);
        play_put_bins(json, "arrivals", outcome->came_bins, run->bins);
    }
    weir__json_put_int(json, "admitted", (int64_t)outcome->admitted);
    weir__json_put_int(json, "denied", outcome->denied);
    weir__json_put_int(json, "delayed", outcome->delayed);
    weir__json_put_int(json, "after_end", outcome->after_end);
    weir__json_put_seconds(json, "longest_delay", outcome->longest_delay_us);
    play_put_bins(json, "admitted_bins", outcome->admitted_bins, run->bins);
    play_put_bins(json, "ahead_bins", outcome->ahead_bins, run->bins);
    play_put_bins(json, "waited_bins", outcome->waited_bins, run->bins);
    weir__json_open(json, "rules", '[');
    for (size_t i = 0; i < limit->count; i++)
        play_put_rule(json, limit, i, run, outcome);
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

static void play_put_load(struct weir__json *json, const struct play_run *run)
{
    int64_t bins[WEIR__BINS_MAX] = {0};
    for (size_t i = 0; i < run->count; i++)
        play_count_in_bin(run, bins, run->arrivals[i].at_us);
    weir__json_put_seconds(json, "seconds", run->load->span_us);
    weir__json_put_int(json, "requests", (int64_t)run->count);
    weir__json_put_int(json, "keys", run->load->keys);
    weir__json_put_int(json, "cost", run->load->cost);
    weir__json_put_seconds(json, "bin", run->bin_us);
    play_put_bins(json, "arrivals", bins, run->bins);
}

/* ---- all of it ---- */

static int play_limit(struct play_run *run, size_t which, struct weir__json *json, weir_error *err)
{
    const weir_limit *limit = run->play->limits[which];
    char url[96];
    struct weir__buffer buffer = weir__buffer_over(url, sizeof url);
    weir_store *store = NULL;
    struct outcome outcome;
    weir__private_store_url(limit, (int64_t)run->count, &buffer);
    int code = weir_store_open(url, &store, err);
    if (code)
        return code;
    code = play_decide_all(run, which, store, &outcome);
    weir_store_close(store);
    if (code)
        return weir__fail(err, code, 0, "limit \"%s\": %s", weir_limit_text(limit),
                          weir_strerror(code));
    qsort(run->departures, outcome.admitted, sizeof *run->departures, play_by_key_and_time);
    play_put_outcome(json, limit, run, &outcome);
    return 0;
}

static int play_all(struct play_run *run, struct weir__buffer *out, weir_error *err)
{
    struct weir__json json = {.out = out};
    int code = 0;
    weir__json_open(&json, NULL, '{');
    play_put_load(&json, run);
    weir__json_open(&json, "limits", '[');
    for (size_t i = 0; code == 0 && i < run->play->limit_count; i++)
        code = play_limit(run, i, &json, err);
    weir__json_close(&json, ']');
    weir__json_close(&json, '}');
    if (code == 0 && out->cut)
        code = weir__fail(err, WEIR_ENOMEM, 0, "the answer is longer than the %zu bytes given",
                          out->size);
    return code;
}

/* A text may hold several limits, and each of them costs time. */
static int64_t play_most_requests(const struct weir__play *play)
{
    size_t rules = 0;
    for (size_t i = 0; i < play->limit_count; i++)
        rules += weir_limit_count(play->limits[i]);
    return WEIR__PLAY_REQUESTS_MAX / weir__max(1, (int64_t)rules);
}

int weir__simulate(char *body, size_t len, const atomic_bool *stop, struct weir__buffer *ret,
                   weir_error *err)
{
    struct weir__play play;
    struct weir__play_arrival *arrivals = NULL;
    struct play_run run = {.play = &play, .load = &play.load, .stop = stop};
    size_t before = ret->len;
    int code = weir__play_read(body, len, &play, err);
    if (code)
        return code;
    code = weir__load_arrivals(&play.load, play_most_requests(&play), &arrivals, &run.count, err);
    if (code == 0) {
        run.arrivals = arrivals;
        run.start_us = weir__load_start_us(&play.load);
        run.bin_us = play_choose_width(&play.load);
        run.bins = (size_t)weir__div_up(play.load.span_us, run.bin_us);
        assert(run.bins <= WEIR__BINS_MAX);
        run.departures = malloc((run.count + 1) * sizeof *run.departures); /* never of nothing */
        code = run.departures ? play_all(&run, ret, err)
                              : weir__fail(err, WEIR_ENOMEM, 0, "%s", weir_strerror(WEIR_ENOMEM));
    }
    if (code) { /* do not leave half an answer */
        ret->len = before;
        ret->data[before] = 0;
        ret->cut = false;
    }
    free(run.departures);
    free(arrivals);
    weir__play_free(&play);
    return code;
}
