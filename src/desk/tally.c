/*
 * Adding up what candidates decided: totals, delays, lock-outs, highest rates, a timeline, states
 * in use. All of it is of constant size, but for what stands in the entries of keys.
 */
#include "desk/engine.h"

#include "core/core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)
#define HOUR_US (60 * MINUTE_US)
#define DAY_US (24 * HOUR_US)

const int64_t desk_span_us[DESK_SPANS] = {SECOND_US, 10 * SECOND_US, MINUTE_US};
const int64_t desk_peak_us[DESK_PEAKS] = {SECOND_US, MINUTE_US, HOUR_US, DAY_US};

int desk_tally_make(struct desk_engine *engine, size_t candidate)
{
    struct desk_tally *tally = &engine->tallies[candidate];
    const weir_limit *limit = engine->options.candidates[candidate].limit;
    for (size_t i = 0; limit && i < limit->count; i++)
        tally->window_us = weir__max(
            tally->window_us, weir__algorithm_of(&limit->rules[i])->window_us(&limit->rules[i]));
    tally->bins = calloc(DESK_BINS, sizeof *tally->bins);
    tally->rates = calloc(1, sizeof *tally->rates);
    return tally->bins && tally->rates ? 0 : WEIR_ENOMEM;
}

void desk_tally_free(struct desk_tally *tally)
{
    free(tally->bins);
    free(tally->delays);
    free(tally->rates);
}

/* ---- the timeline ---- */

/* Widths of bins. Each is a multiple of the one before it. */
static const int64_t widths_us[] = {
    1000,        2000,          10000,          20000,          100000,
    200000,      SECOND_US,     2 * SECOND_US,  10 * SECOND_US, 30 * SECOND_US,
    MINUTE_US,   2 * MINUTE_US, 10 * MINUTE_US, 30 * MINUTE_US, HOUR_US,
    2 * HOUR_US, 6 * HOUR_US,   12 * HOUR_US,   DAY_US,         2 * DAY_US,
    10 * DAY_US, 50 * DAY_US,   100 * DAY_US,   500 * DAY_US,   1000 * DAY_US,
};

/* Moves the bins of everybody: bin i becomes part of bin (i + shift) / factor. */
static void timeline_fold(struct desk_engine *engine, size_t shift, size_t factor)
{
    struct desk_timeline *timeline = &engine->timeline;
    for (size_t c = 0; c < engine->count; c++) {
        struct desk_bin folded[DESK_BINS] = {{.allowed = 0}};
        struct desk_bin *bins = engine->tallies[c].bins;
        for (size_t i = 0; i < timeline->count; i++) {
            struct desk_bin *to = &folded[(i + shift) / factor];
            to->allowed += bins[i].allowed;
            to->denied += bins[i].denied;
            to->delayed += bins[i].delayed;
            to->suspects += bins[i].suspects;
            to->suspects_denied += bins[i].suspects_denied;
        }
        memcpy(bins, folded, sizeof folded);
    }
    timeline->count = (timeline->count + shift + factor - 1) / factor;
    assert(timeline->count <= DESK_BINS);
}

/* The next width. The start is rounded down to a multiple of it. */
static void timeline_widen(struct desk_engine *engine)
{
    struct desk_timeline *timeline = &engine->timeline;
    assert(timeline->step + 1 < WEIR__COUNT(widths_us));
    int64_t width = widths_us[++timeline->step];
    int64_t start = timeline->start_us / width * width;
    size_t shift = (size_t)((timeline->start_us - start) / timeline->width_us);
    timeline_fold(engine, shift, (size_t)(width / timeline->width_us));
    timeline->start_us = start;
    timeline->width_us = width;
}

/* Makes the bin of a time the one that is used. */
static void timeline_find(struct desk_engine *engine, int64_t time_us)
{
    struct desk_timeline *timeline = &engine->timeline;
    if (timeline->count == 0) {
        timeline->width_us = widths_us[0];
        timeline->start_us = time_us / timeline->width_us * timeline->width_us;
    }
    while (time_us >= timeline->start_us &&
           time_us - timeline->start_us >= DESK_BINS * timeline->width_us)
        timeline_widen(engine);
    while (time_us < timeline->start_us) { /* only where times run back */
        int64_t start = time_us / timeline->width_us * timeline->width_us;
        int64_t shift = (timeline->start_us - start) / timeline->width_us;
        if (shift + (int64_t)timeline->count <= DESK_BINS) {
            timeline_fold(engine, (size_t)shift, 1);
            timeline->start_us = start;
        } else {
            timeline_widen(engine);
        }
    }
    engine->bin = (size_t)((time_us - timeline->start_us) / timeline->width_us);
    engine->bin_from_us = timeline->start_us + (int64_t)engine->bin * timeline->width_us;
    engine->bin_to_us = engine->bin_from_us + timeline->width_us;
    if (engine->bin >= timeline->count)
        timeline->count = engine->bin + 1;
    assert(timeline->count <= DESK_BINS);
}

/* ---- highest rates ---- */

/* A second is over: the sums over the last 1, 10 and 60 seconds that end with it. */
static void rates_end_second(struct desk_rates *rates)
{
    uint32_t *ahead = rates->ahead;
    int64_t second = rates->second;
    for (size_t i = 0; i < DESK_SPANS; i++) {
        int64_t length = desk_span_us[i] / SECOND_US;
        rates->sums[i] += ahead[second % DESK_AHEAD_SECONDS];
        if (second >= length)
            rates->sums[i] -= ahead[(second - length) % DESK_AHEAD_SECONDS];
        rates->highest[i] = weir__max(rates->highest[i], rates->sums[i]);
    }
    int64_t oldest = second - desk_span_us[DESK_SPANS - 1] / SECOND_US;
    if (oldest >= 0)
        ahead[oldest % DESK_AHEAD_SECONDS] = 0;
    rates->second++;
}

static void rates_advance(struct desk_rates *rates, int64_t second)
{
    int64_t most = DESK_AHEAD_SECONDS + desk_span_us[DESK_SPANS - 1] / SECOND_US;
    for (int64_t i = 0; rates->second < second && i < most; i++)
        rates_end_second(rates);
    if (rates->second < second) { /* long after all that was admitted */
        memset(rates->ahead, 0, sizeof rates->ahead);
        memset(rates->sums, 0, sizeof rates->sums);
        rates->second = second;
    }
}

/* A request was admitted that goes ahead at this time. Delays beyond the room count as the longest
 * that fits; times that run back count as now. */
static void rates_add(struct desk_rates *rates, int64_t now_us, int64_t delay_us)
{
    int64_t second = now_us / SECOND_US, goes = (now_us + delay_us) / SECOND_US;
    int64_t most = DESK_AHEAD_SECONDS - desk_span_us[DESK_SPANS - 1] / SECOND_US - 2;
    if (!rates->started) {
        rates->started = true;
        rates->second = second;
    }
    if (second > rates->second)
        rates_advance(rates, second);
    goes = weir__min(weir__max(goes, rates->second), rates->second + most);
    rates->ahead[goes % DESK_AHEAD_SECONDS]++;
}

/* ---- one decision ---- */

static int tally_delay(struct desk_tally *tally, int64_t delay_us)
{
    if (!tally->delays && !(tally->delays = calloc(DESK_DELAY_BUCKETS, sizeof *tally->delays)))
        return WEIR_ENOMEM;
    tally->delayed++;
    tally->delays[desk_bucket_of(delay_us)]++;
    tally->longest_delay_us = weir__max(tally->longest_delay_us, delay_us);
    return 0;
}

/* A key was denied, and not admitted since `since_us`. It is locked out until a request like this
 * one would be admitted: when it comes again is its own choice. */
static void tally_locked(struct desk_tally *tally, const struct desk_key *key, int64_t since_us,
                         const struct desk_arrival *arrival, const weir_decision *decision)
{
    int64_t us = weir__max(arrival->time_us - since_us, 0);
    if (decision->retry_after_us != WEIR_NEVER)
        desk_add_saturating(&us, decision->retry_after_us);
    if (us <= tally->longest_locked_us)
        return;
    tally->longest_locked_us = us;
    tally->locked_hash[0] = key->hash[0];
    tally->locked_hash[1] = key->hash[1];
}

int desk_tally_add(struct desk_engine *engine, size_t candidate, struct desk_key *key,
                   const struct desk_arrival *arrival, const weir_decision *decision)
{
    struct desk_tally *tally = &engine->tallies[candidate];
    struct desk_mark *mark = &desk_marks(engine, key)[candidate];
    struct desk_bin *bin = &tally->bins[engine->bin];
    assert(engine->bin < engine->timeline.count);
    bin->suspects += key->suspect;
    bin->suspects_denied += key->suspect && !decision->allowed;
    if (!decision->allowed) {
        tally->denied++;
        desk_add_saturating(&tally->cost_denied, arrival->cost);
        bin->denied++;
        tally->keys_denied += mark->denied == 0;
        tally->suspect_keys_denied += mark->denied == 0 && key->suspect;
        mark->denied += mark->denied < UINT32_MAX;
        if (mark->since_us == 0)
            mark->since_us = arrival->time_us + 1;
        tally_locked(tally, key, mark->since_us - 1, arrival, decision);
        tally->denied_by[decision->binding < DESK_PARTS_MAX ? decision->binding : 0]++;
        return 0;
    }
    tally->allowed++;
    desk_add_saturating(&tally->cost_allowed, arrival->cost);
    bin->allowed++;
    mark->since_us = 0;
    rates_add(tally->rates, arrival->time_us, decision->delay_us);
    if (WEIR__LIKELY(decision->delay_us == 0))
        return 0;
    bin->delayed++;
    tally->keys_delayed += mark->delayed == 0;
    mark->delayed += mark->delayed < UINT32_MAX;
    return tally_delay(tally, decision->delay_us);
}

void desk_tally_state(struct desk_tally *tally, int64_t now_us, int64_t newest_us)
{
    if (now_us >= tally->window_from_us + tally->window_us || tally->states_peak == 0) {
        bool next = tally->states_peak > 0 && now_us < tally->window_from_us + 2 * tally->window_us;
        tally->window_from_us = next ? tally->window_from_us + tally->window_us : now_us;
        tally->window_states[0] = next ? tally->window_states[1] : 0;
        tally->window_states[1] = 0;
    }
    if (newest_us >= tally->window_from_us)
        return;
    tally->window_states[1]++;
    tally->states_peak =
        weir__max(tally->states_peak, tally->window_states[0] + tally->window_states[1]);
}

static void tally_peaks(struct desk_peak *peaks, const struct desk_arrival *arrival)
{
    for (size_t i = 0; i < DESK_PEAKS; i++) {
        int64_t bin = arrival->time_us / desk_peak_us[i];
        if (peaks[i].bin != bin)
            peaks[i].sum = 0;
        peaks[i].bin = bin;
        desk_add_saturating(&peaks[i].sum, arrival->cost);
        peaks[i].peak = weir__max(peaks[i].peak, peaks[i].sum);
    }
}

/* How many requests suspects make, and when. */
static void tally_suspect(struct desk_engine *engine, int64_t time_us)
{
    if (engine->suspect_requests == 0 || time_us < engine->suspects_from_us)
        engine->suspects_from_us = time_us;
    engine->suspects_to_us = weir__max(engine->suspects_to_us, time_us);
    engine->suspect_requests++;
}

int desk_tally_arrival(struct desk_engine *engine, struct desk_key *key,
                       const struct desk_arrival *arrival)
{
    if (engine->requests == 0 || arrival->time_us < engine->first_us)
        engine->first_us = arrival->time_us;
    engine->last_us = weir__max(engine->last_us, arrival->time_us);
    engine->now_us = engine->last_us;
    engine->requests++;
    engine->spared_requests += key->spared;
    if (WEIR__UNLIKELY(key->suspect))
        tally_suspect(engine, arrival->time_us);
    desk_add_saturating(&engine->cost, arrival->cost);
    key->requests++;
    desk_add_saturating(&key->cost, arrival->cost);
    key->last_us = arrival->time_us;
    if (engine->options.peaks)
        tally_peaks((struct desk_peak *)(key + 1), arrival);
    return 0;
}

/* ---- the engine ---- */

void desk_engine_free(struct desk_engine *engine)
{
    if (!engine)
        return;
    desk_keys_free(engine);
    desk_spare_free(engine);
    for (size_t i = 0; i < engine->count; i++)
        desk_tally_free(&engine->tallies[i]);
    free(engine);
}

int desk_engine_make(const struct desk_engine_options *options, struct desk_engine **ret,
                     weir_error *err)
{
    struct desk_engine *engine = calloc(1, sizeof *engine);
    int code = engine ? 0 : WEIR_ENOMEM;
    assert(options->count >= 1 && options->count <= DESK_CANDIDATES_MAX);
    if (code == 0) {
        engine->options = *options;
        engine->count = options->count;
        if (options->memory == 0)
            engine->options.memory = DESK_MEMORY_USUAL;
        assert(engine->options.memory >= DESK_MEMORY_LEAST);
        engine->first_us = -1;
        desk_judge_layout(engine);
        code = desk_keys_make(engine);
        if (code == 0)
            code = desk_spare_make(engine);
        for (size_t i = 0; i < engine->count && code == 0; i++)
            code = desk_tally_make(engine, i);
    }
    if (code) {
        desk_engine_free(engine);
        return weir__fail(err, code, 0, "out of memory");
    }
    *ret = engine;
    return 0;
}

/* The entry of an arrival's key, and the bin of its time. */
static struct desk_key *engine_begin(struct desk_engine *engine, const struct desk_arrival *arrival)
{
    assert(arrival->time_us >= 0);
    if (arrival->time_us < engine->bin_from_us || arrival->time_us >= engine->bin_to_us)
        timeline_find(engine, arrival->time_us);
    return desk_keys_get(engine, arrival);
}

/* A key that a candidate spares is not limited. What the candidate would deny it is counted: its
 * state is its own, unless there is one for all keys. */
static int engine_spare(struct desk_engine *engine, size_t i, struct desk_key *key,
                        const struct desk_arrival *arrival, weir_decision *ret)
{
    weir_decision would = {.allowed = true};
    int code = engine->options.candidates[i].total
                   ? 0
                   : desk_judge(engine, i, key, arrival, false, &would);
    engine->tallies[i].spared_would_deny += !would.allowed;
    *ret = (weir_decision){.allowed = true, .time_us = arrival->time_us};
    return code;
}

/* What one candidate says. */
static int engine_decide(struct desk_engine *engine, size_t i, struct desk_key *key,
                         const struct desk_arrival *arrival, bool whole, weir_decision *ret)
{
    const struct desk_candidate *candidate = &engine->options.candidates[i];
    if (WEIR__UNLIKELY(key->spared) && candidate->spares)
        return engine_spare(engine, i, key, arrival, ret);
    int64_t before_us = key->requests > 0 ? key->last_us : -1;
    int code = desk_judge(engine, i, key, arrival, whole, ret);
    if (candidate->total)
        engine->tallies[i].states_peak = 1;
    else if (code == 0 && ret->allowed && arrival->cost > 0)
        desk_tally_state(&engine->tallies[i], arrival->time_us, before_us);
    return code;
}

int desk_engine_take(struct desk_engine *engine, const struct desk_arrival *arrival,
                     weir_decision *rets)
{
    struct desk_key *key = engine_begin(engine, arrival);
    if (!key)
        return WEIR_ENOMEM;
    for (size_t i = 0; i < engine->count; i++) {
        weir_decision decision;
        int code = engine_decide(engine, i, key, arrival, rets != NULL, &decision);
        if (code == 0)
            code = desk_tally_add(engine, i, key, arrival, &decision);
        if (code)
            return code;
        if (rets)
            rets[i] = decision;
    }
    return desk_tally_arrival(engine, key, arrival);
}

int desk_engine_note(struct desk_engine *engine, const struct desk_arrival *arrival,
                     const weir_decision *decisions)
{
    struct desk_key *key = engine_begin(engine, arrival);
    if (!key)
        return WEIR_ENOMEM;
    for (size_t i = 0; i < engine->count; i++) {
        int code = desk_tally_add(engine, i, key, arrival, &decisions[i]);
        if (code)
            return code;
    }
    return desk_tally_arrival(engine, key, arrival);
}

/* What a key adds to the sums over keys, when it is forgotten or all is over. */
static void tally_key(const struct desk_engine *engine, struct desk_tally *tally, size_t candidate,
                      const struct desk_key *key)
{
    int64_t denied = desk_key_mark(engine, key, candidate)->denied;
    if (denied == 0)
        return;
    bool stopped = 2 * denied >= key->requests;
    tally->requests_of_denied += key->requests;
    tally->keys_stopped += stopped;
    tally->stopped_denied += stopped ? denied : 0;
    tally->spared_denied += key->spared ? denied : 0;
    tally->suspects_denied += key->suspect ? denied : 0;
    tally->suspects_stopped += key->suspect && stopped ? denied : 0;
}

void desk_tally_forget(struct desk_engine *engine, const struct desk_key *key)
{
    for (size_t i = 0; i < engine->count; i++)
        tally_key(engine, &engine->tallies[i], i, key);
}

/* ---- the end ---- */

/* A zone has 40 bytes for each state. A ring has a block of at least 64 bytes beside it. */
static int64_t tally_memory(const struct desk_engine *engine, size_t candidate)
{
    const struct desk_tally *tally = &engine->tallies[candidate];
    const weir_limit *limit = engine->options.candidates[candidate].limit;
    int64_t each = 0;
    for (size_t i = 0; limit && i < limit->count; i++) {
        each += 40;
        if (weir__is_large(&limit->rules[i])) {
            int64_t cells = weir__min(weir__rule_cells(&limit->rules[i]), limit->rules[i].count);
            int64_t mean = tally->states_peak > 0 ? tally->allowed / tally->states_peak + 1 : 1;
            int64_t block = 64;
            while (block < 32 + 16 * weir__min(cells, mean))
                block *= 2;
            each += block;
        }
    }
    return each * tally->states_peak;
}

void desk_tally_end(struct desk_engine *engine, size_t candidate)
{
    struct desk_tally *tally = &engine->tallies[candidate];
    if (tally->rates->started)
        rates_advance(tally->rates, tally->rates->second + DESK_AHEAD_SECONDS);
    for (size_t i = 0; i < engine->entries; i++) {
        const struct desk_key *key = desk_engine_key(engine, i);
        if (key)
            tally_key(engine, tally, candidate, key);
    }
    tally->requests_of_denied = weir__min(tally->requests_of_denied, engine->requests);
    tally->memory = tally_memory(engine, candidate);
}

void desk_engine_end(struct desk_engine *engine)
{
    for (size_t i = 0; i < engine->count; i++)
        desk_tally_end(engine, i);
}
