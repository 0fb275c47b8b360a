/* See playground.h: plays the arrivals against each limit, measures, and writes the answer. Counts and
 * bins are requests; what is held against a limit's promise is their costs, key by key. */
#include "sim/playground.h"

#include "limit/explain.h"
#include "sim/replay.h"
#include "sim/timeline.h"
#include "sim/virtual_clock.h"
#include "wire/json.h"

#include <stdlib.h>

#define BINS_WANTED 150 /* at most, where a width that people read easily allows it */
#define BINS_LEAST 30   /* fewer only if there is no such width */
#define STOP_EVERY 256  /* requests between two looks whether anybody still waits */
#define MILLION INT64_C(1000000)
#define TRILLION INT64_C(1000000000000)

/* When one request of a key went ahead. */
struct departure {
    int64_t at_us;
    uint32_t key;
};

/* A load under way: its arrivals, and what one limit after the other made of them. */
struct run {
    const struct weir__load *load;
    const struct weir__play_arrival *arrivals;
    size_t count;
    int64_t start_us, bin_us;
    size_t bins;
    struct departure *departures; /* room for all */
    const atomic_bool *stop;      /* NULL: it never is */
};

struct outcome {
    size_t admitted;
    int64_t denied, delayed, after_end, longest_delay_us;
    int64_t admitted_bins[WEIR__BINS_MAX]; /* by when they came */
    int64_t ahead_bins[WEIR__BINS_MAX];    /* by when they go ahead */
    int64_t waited_bins[WEIR__BINS_MAX];   /* those of them that were told to wait */
};

/* ---- bins ---- */

/* Widths that axes are read by, from 10 us to a week: 100 bins over the shortest load, 53 over the
 * longest. */
static const int64_t widths_us[] = {
    10,         20,          50,          100,         200,         500,          1000,
    2000,       5000,        10000,       20000,       50000,       100000,       200000,
    500000,     1000000,     2000000,     5000000,     10000000,    15000000,     30000000,
    60000000,   120000000,   300000000,   600000000,   900000000,   1800000000,   3600000000,
    7200000000, 10800000000, 21600000000, 43200000000, 86400000000, 172800000000, 604800000000};

/* Whether bins of this width show the load and not themselves: enough requests in each, and of a steady
 * load equally many. */
static bool shows_the_load(const struct weir__load *load, int64_t width_us)
{
    __int128 trillionths = (__int128)load->rate_millionths * width_us;
    if (load->rate_millionths == 0)
        return true;
    if (load->kind == WEIR__POISSON)
        return trillionths >= 4 * (__int128)TRILLION;
    return trillionths >= 8 * (__int128)TRILLION && trillionths % TRILLION == 0;
}

/* The smallest width with few enough bins; a larger one if that shows the load better. */
static int64_t choose_width(const struct weir__load *load)
{
    size_t i = 0;
    while (weir__div_up(load->span_us, widths_us[i]) > BINS_WANTED)
        i++;
    for (size_t j = i; j < WEIR__COUNT(widths_us); j++) {
        if (load->span_us / widths_us[j] < BINS_LEAST)
            break;
        if (shows_the_load(load, widths_us[j]))
            return widths_us[j];
    }
    return widths_us[i];
}

static void count_in_bin(const struct run *run, int64_t *bins, int64_t at_us)
{
    bins[at_us / run->bin_us]++;
}

/* ---- playing ---- */

static void note(struct run *run, const struct weir__play_arrival *arrival,
                 const weir_decision *decision, struct outcome *outcome)
{
    if (!decision->allowed) {
        outcome->denied++;
        return;
    }
    int64_t ahead_us = arrival->at_us + decision->delay_us;
    run->departures[outcome->admitted++] = (struct departure){ahead_us, arrival->key};
    outcome->delayed += decision->delay_us > 0;
    outcome->longest_delay_us = weir__max(outcome->longest_delay_us, decision->delay_us);
    count_in_bin(run, outcome->admitted_bins, arrival->at_us);
    if (ahead_us >= run->load->span_us) {
        outcome->after_end++;
        return;
    }
    count_in_bin(run, outcome->ahead_bins, ahead_us);
    if (decision->delay_us > 0)
        count_in_bin(run, outcome->waited_bins, ahead_us);
}

static int decide_all(struct run *run, const weir_limit *limit, weir_store *store,
                      struct outcome *ret)
{
    struct weir__virtual_clock clock = {run->start_us};
    weir_request request = weir_request_make(weir_key_bytes(NULL, 0), limit);
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
        int code = weir_take_all(store, &request, 1, &decision);
        if (code)
            return code;
        note(run, &run->arrivals[i], &decision, ret);
    }
    return 0;
}

/* ---- the most in any span ---- */

static int by_key_and_time(const void *a, const void *b)
{
    const struct departure *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->at_us < y->at_us ? -1 : x->at_us > y->at_us;
}

struct crowd {
    int64_t requests, from_us;
};

/* The first of the fullest, of one key, over sorted departures; a span's first instant counts, its last
 * does not. */
static struct crowd fullest(const struct departure *departures, size_t count, int64_t span_us)
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

static void put_bins(struct weir__json *json, const char *name, const int64_t *bins, size_t count)
{
    weir__json_open(json, name, '[');
    for (size_t i = 0; i < count; i++)
        weir__json_put_int(json, NULL, bins[i]);
    weir__json_close(json, ']');
}

/* What a limit did to one key in its own period, beside what it promises. Several limits that delay each
 * other keep their promises for what is charged, not for when it goes ahead: then there is no bound. */
static void put_rule(struct weir__json *json, const struct weir__rule *rule, const struct run *run,
                     const struct outcome *outcome, bool alone)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    struct weir__facts facts;
    weir__put_rule(&buffer, rule);
    weir__explain(rule, &facts);
    bool bounded = facts.most != WEIR__UNBOUNDED &&
                   (!facts.requests_of_one || run->load->cost == 1) &&
                   (alone || outcome->delayed == 0);
    struct crowd most = fullest(run->departures, outcome->admitted, rule->period_us);
    weir__json_open(json, NULL, '{');
    weir__json_put_text(json, "limit", text, buffer.len);
    weir__json_put_text(json, "meaning", facts.what, __builtin_strlen(facts.what));
    weir__json_put_text(json, "guarantee", facts.guarantee, __builtin_strlen(facts.guarantee));
    weir__json_put_int(json, "count", rule->count);
    weir__json_put_seconds(json, "span", rule->period_us);
    weir__json_put_int(json, "most", run->load->cost * most.requests);
    weir__json_put_seconds(json, "most_from", most.from_us);
    if (bounded)
        weir__json_put_int(json, "bound", facts.most);
    else
        weir__json_put_null(json, "bound");
    if (rule->kind == WEIR__FIXED_WINDOW || rule->kind == WEIR__SLIDING_COUNTER)
        weir__json_put_seconds(json, "first_edge",
                               (rule->period_us - run->start_us % rule->period_us) %
                                   rule->period_us);
    weir__json_put_int(json, "key_bytes", facts.key_bytes);
    weir__json_close(json, '}');
}

static void put_outcome(struct weir__json *json, const weir_limit *limit, const struct run *run,
                        const struct outcome *outcome)
{
    const char *text = weir_limit_text(limit);
    weir__json_open(json, NULL, '{');
    weir__json_put_text(json, "limit", text, __builtin_strlen(text));
    weir__json_put_int(json, "admitted", (int64_t)outcome->admitted);
    weir__json_put_int(json, "denied", outcome->denied);
    weir__json_put_int(json, "delayed", outcome->delayed);
    weir__json_put_int(json, "after_end", outcome->after_end);
    weir__json_put_seconds(json, "longest_delay", outcome->longest_delay_us);
    put_bins(json, "admitted_bins", outcome->admitted_bins, run->bins);
    put_bins(json, "ahead_bins", outcome->ahead_bins, run->bins);
    put_bins(json, "waited_bins", outcome->waited_bins, run->bins);
    weir__json_open(json, "rules", '[');
    for (size_t i = 0; i < limit->count; i++)
        put_rule(json, &limit->rules[i], run, outcome, limit->count == 1);
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

static void put_load(struct weir__json *json, const struct run *run)
{
    int64_t bins[WEIR__BINS_MAX] = {0};
    for (size_t i = 0; i < run->count; i++)
        count_in_bin(run, bins, run->arrivals[i].at_us);
    weir__json_put_seconds(json, "seconds", run->load->span_us);
    weir__json_put_int(json, "requests", (int64_t)run->count);
    weir__json_put_int(json, "keys", run->load->keys);
    weir__json_put_int(json, "cost", run->load->cost);
    weir__json_put_seconds(json, "bin", run->bin_us);
    put_bins(json, "arrivals", bins, run->bins);
}

/* ---- all of it ---- */

static int play_limit(struct run *run, const weir_limit *limit, struct weir__json *json,
                      weir_error *err)
{
    char url[96];
    struct weir__buffer buffer = weir__buffer_over(url, sizeof url);
    weir_store *store = NULL;
    struct outcome outcome;
    weir__replay_store_url(limit, (int64_t)run->count, &buffer);
    int code = weir_store_open(url, &store, err);
    if (code)
        return code;
    code = decide_all(run, limit, store, &outcome);
    weir_store_close(store);
    if (code)
        return weir__fail(err, code, 0, "limit \"%s\": %s", weir_limit_text(limit),
                          weir_strerror(code));
    qsort(run->departures, outcome.admitted, sizeof *run->departures, by_key_and_time);
    put_outcome(json, limit, run, &outcome);
    return 0;
}

static int play_all(const struct weir__play *play, struct run *run, struct weir__buffer *out,
                    weir_error *err)
{
    struct weir__json json = {.out = out};
    int code = 0;
    weir__json_open(&json, NULL, '{');
    put_load(&json, run);
    weir__json_open(&json, "limits", '[');
    for (size_t i = 0; code == 0 && i < play->limit_count; i++)
        code = play_limit(run, play->limits[i], &json, err);
    weir__json_close(&json, ']');
    weir__json_close(&json, '}');
    if (code == 0 && out->cut)
        code = weir__fail(err, WEIR_ENOMEM, 0, "the answer is longer than the %zu bytes given",
                          out->size);
    return code;
}

/* A text may hold several limits, and each of them is work. */
static int64_t most_requests(const struct weir__play *play)
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
    struct run run = {.load = &play.load, .stop = stop};
    size_t before = ret->len;
    int code = weir__play_read(body, len, &play, err);
    if (code)
        return code;
    code = weir__load_arrivals(&play.load, most_requests(&play), &arrivals, &run.count, err);
    if (code == 0) {
        run.arrivals = arrivals;
        run.start_us = weir__load_start_us(&play.load);
        run.bin_us = choose_width(&play.load);
        run.bins = (size_t)weir__div_up(play.load.span_us, run.bin_us);
        run.departures = malloc(run.count * sizeof *run.departures);
        code = run.departures ? play_all(&play, &run, ret, err)
                              : weir__fail(err, WEIR_ENOMEM, 0, "%s", weir_strerror(WEIR_ENOMEM));
    }
    if (code) { /* half an answer is none */
        ret->len = before;
        ret->data[before] = 0;
        ret->cut = false;
    }
    free(run.departures);
    free(arrivals);
    weir__play_free(&play);
    return code;
}
