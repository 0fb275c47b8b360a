/* See explain.h. The bounds follow from docs/SPEC.md; tests/homes/cli/cli_explain.sh attacks
 * them. */
#include "limit/explain.h"

#include "base/duration.h"
#include "limit/calendar.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#define SLOT_BYTES 40 /* a slot of a zone's table at a sensible fill */
#define CELL_BYTES 16
#define BLOCK_HEADER_BYTES 32

struct writer {
    struct weir__facts *facts;
    struct weir__buffer what, guarantee;
    char period[48], extra[48];
};

static void explain_span(char *ret, size_t size, int64_t microseconds)
{
    struct weir__buffer buffer = weir__buffer_over(ret, size);
    weir__put_duration(&buffer, microseconds, false);
}

static void explain_bound(struct weir__facts *facts, int64_t most, int64_t worst_burst)
{
    facts->most = most;
    facts->worst_burst = worst_burst;
}

/* ---- buckets ---- */

static void explain_token_bucket(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, rule->burst + rule->count, rule->burst);
    weir__put_format(&w->what,
                     "A bucket with room for %" PRId64 ", refilled by %" PRId64
                     " every %s, evenly; a request takes its cost out of it, or is denied.",
                     rule->burst, rule->count, w->period);
    weir__put_format(
        &w->guarantee,
        "never more than %" PRId64 " in any %s: the burst of %" PRId64 ", and %" PRId64
        " refilled meanwhile (in any Y: %" PRId64 " + %" PRId64 " * Y/%s, rounded down)",
        w->facts->most, w->period, rule->burst, rule->count, rule->burst, rule->count, w->period);
}

static void explain_stepped(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, rule->burst + rule->count, rule->burst);
    weir__put_format(
        &w->what,
        "A bucket with room for %" PRId64 ", refilled by %" PRId64
        " at once every %s from its first use on; a request takes its cost out of it, or "
        "is denied.",
        rule->burst, rule->count, w->period);
    weir__put_format(
        &w->guarantee,
        "never more than %" PRId64 " in any %s: the burst of %" PRId64
        ", and one refill of %" PRId64 " (in any Y: %" PRId64 " + %" PRId64 " for each %s begun)",
        w->facts->most, w->period, rule->burst, rule->count, rule->burst, rule->count, w->period);
    if (rule->count > rule->burst)
        weir__put_format(&w->guarantee, "; if nobody waits, never more than %" PRId64,
                         2 * rule->burst);
}

static void explain_leaky_nodelay(struct writer *w, const struct weir__rule *rule)
{
    int64_t room = rule->burst + 1;
    explain_bound(w->facts, room + rule->count, room);
    weir__put_format(
        &w->what,
        "A bucket with room for %" PRId64 ", leaking %" PRId64
        " every %s, evenly; a request that fits goes ahead at once, others are denied.",
        room, rule->count, w->period);
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64 " in any %s: a bucketful of %" PRId64
                     ", and %" PRId64 " leaked meanwhile (in any Y: %" PRId64 " + %" PRId64
                     " * Y/%s, rounded down)",
                     w->facts->most, w->period, room, rule->count, room, rule->count, w->period);
}

/* Requests go ahead when what was before them has leaked down to the delay count. */
static void explain_leaky_bucket(struct writer *w, const struct weir__rule *rule)
{
    if (rule->flags & WEIR__NODELAY) {
        explain_leaky_nodelay(w, rule);
        return;
    }
    int64_t at_once = rule->extra + 1;
    explain_bound(w->facts, at_once + rule->count, at_once);
    w->facts->requests_of_one = true;
    weir__put_format(&w->what, "A queue that lets %" PRId64 " through every %s, evenly spaced",
                     rule->count, w->period);
    if (rule->extra > 0)
        weir__put_format(&w->what, ", the first %" PRId64 " of a burst at once", at_once);
    if (rule->burst > 0)
        weir__put_format(&w->what,
                         "; room for %" PRId64 " to wait (the answer says how long), others are "
                         "denied.",
                         rule->burst - rule->extra);
    else
        weir__put_text(&w->what, "; one that comes too early is denied.");
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64
                     " go ahead in any %s if each costs 1 (in any Y: %" PRId64 " + %" PRId64
                     " * Y/%s, rounded down); at most %" PRId64 " are accepted at one instant",
                     w->facts->most, w->period, at_once, rule->count, w->period, rule->burst + 1);
}

/* ---- windows ---- */

static void explain_fixed_window(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, 2 * rule->count, rule->count);
    weir__put_format(&w->what,
                     "Counts in windows of %s aligned to the clock (UTC); each admits %" PRId64
                     ", then denies until the next begins.",
                     w->period, rule->count);
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64 " in an aligned %s, but up to %" PRId64
                     " in any %s: a window filled at its end, then the next at its beginning",
                     rule->count, w->period, w->facts->most, w->period);
}

/* "calendar months from day 15 (UTC+08:00)" */
static void explain_put_calendar(struct weir__buffer *out, const struct weir__rule *rule)
{
    struct weir__calendar calendar = weir__calendar_of(rule);
    switch (calendar.unit) {
    case WEIR__SPAN:
        weir__put_text(out, "windows of ");
        weir__put_duration(out, rule->period_us, false);
        weir__put_text(out, " aligned to the clock");
        break;
    case WEIR__WEEK:
        weir__put_text(out, "weeks from ");
        break;
    case WEIR__MONTH:
        weir__put_text(out, "calendar months from day ");
        break;
    case WEIR__YEAR:
        weir__put_text(out, "calendar years from ");
        break;
    }
    if (calendar.unit != WEIR__SPAN)
        weir__put_anchor(out, calendar);
    weir__put_text(out, " (UTC");
    if (calendar.zone != 0)
        weir__put_zone(out, calendar.zone);
    weir__put_text(out, ")");
    if (calendar.unit == WEIR__MONTH && calendar.anchor > 28)
        weir__put_text(out, ", or the last day of a shorter month");
}

/* A month may be three days shorter than the longest, a year one: so a span as long as the longest
 * may hold a whole window and parts of both its neighbours. */
static void explain_calendar(struct writer *w, const struct weir__rule *rule)
{
    struct weir__calendar calendar = weir__calendar_of(rule);
    bool uneven = calendar.unit == WEIR__MONTH || calendar.unit == WEIR__YEAR;
    explain_bound(w->facts, (uneven ? 3 : 2) * rule->count, rule->count);
    weir__put_text(&w->what, "Counts in ");
    explain_put_calendar(&w->what, rule);
    weir__put_format(&w->what, "; each admits %" PRId64 ", then denies until the next begins.",
                     rule->count);
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64 " in a window, but up to %" PRId64
                     " in any %s: a window filled at its end, then %sthe next at its beginning",
                     rule->count, w->facts->most,
                     !uneven                        ? w->period
                     : calendar.unit == WEIR__MONTH ? "31 days"
                                                    : "366 days",
                     uneven ? "a short one, then " : "");
}

/* The request that opened the first of two windows lies outside any span that reaches the second.
 */
static void explain_from_first(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, 2 * rule->count - 1, rule->count);
    weir__put_format(&w->what,
                     "Counts in windows of %s, each opened by the first request after the last one "
                     "closed; each admits %" PRId64 ".",
                     w->period, rule->count);
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64 " in a window, but up to %" PRId64
                     " in any %s: a window filled at its end, then a new one",
                     rule->count, w->facts->most, w->period);
}

static void explain_sliding_log(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, rule->count, rule->count);
    weir__put_format(
        &w->what,
        "Remembers the time of each admitted request; admits while the total of the last %s "
        "is at most %" PRId64 ".",
        w->period, rule->count);
    weir__put_format(&w->guarantee, "never more than %" PRId64 " in any %s; exact", rule->count,
                     w->period);
}

static void explain_sliding_window(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, rule->count, rule->count);
    weir__put_format(&w->what,
                     "Counts in slots of %s; admits while the total of the last %s is at most "
                     "%" PRId64 ". A slot counts until its last request is %s old.",
                     w->extra, w->period, rule->count, w->period);
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64
                     " in any %s; a request may be denied up to %s longer "
                     "than necessary",
                     rule->count, w->period, w->extra);
}

static void explain_sliding_counter(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, 2 * rule->count, rule->count);
    weir__put_format(
        &w->what,
        "Counts two aligned windows of %s and weighs the earlier by how much of it the "
        "last %s still covers; admits while that estimate is at most %" PRId64 ".",
        w->period, w->period, rule->count);
    weir__put_format(&w->guarantee,
                     "about %" PRId64 " in any %s if requests come evenly; never more than %" PRId64
                     ", and that only if one window is filled at its very end",
                     rule->count, w->period, w->facts->most);
}

/* ---- Guava ---- */

/* The least time between two requests of cost 1, whatever the rounding: Guava cuts each interval to
 * whole microseconds, and its doubles may land just below a whole one. 0: no such time. */
static double least_interval_us(const struct weir__rule *rule)
{
    return floor((double)rule->period_us / (double)rule->count * (1 - 1e-9));
}

static void explain_unbounded(struct writer *w)
{
    explain_bound(w->facts, WEIR__UNBOUNDED, WEIR__UNBOUNDED);
    weir__put_text(
        &w->guarantee,
        "none: Guava counts intervals in whole microseconds, and this one rounds to 0; use "
        "token-bucket for such rates");
}

static const char anyway[] =
    " (a request of any cost goes ahead in its turn, the next ones pay for it)";

static void explain_smooth(struct writer *w, const struct weir__rule *rule)
{
    double interval = least_interval_us(rule);
    double saved = (double)rule->extra * (double)rule->count / (double)rule->period_us;
    w->facts->requests_of_one = true;
    weir__put_format(
        &w->what,
        "Guava's SmoothBursty: spaces requests at %" PRId64
        " every %s and saves up to %.15g permits while idle; a request goes ahead and the "
        "next one waits for it.",
        rule->count, w->period, saved);
    if (interval < 1) {
        explain_unbounded(w);
        return;
    }
    double stable = (double)rule->period_us / (double)rule->count;
    int64_t whole = (int64_t)saved;
    bool rest_is_free = (1 - (saved - (double)whole)) * stable < 1;
    explain_bound(w->facts, 1 + (int64_t)(saved + (double)rule->period_us / interval),
                  whole + 1 + rest_is_free);
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64
                     " go ahead in any %s if each costs 1: what was saved, "
                     "one on credit, and the rate%s",
                     w->facts->most, w->period, anyway);
}

static void explain_warmup(struct writer *w, const struct weir__rule *rule)
{
    double interval = least_interval_us(rule);
    w->facts->requests_of_one = true;
    weir__put_format(
        &w->what,
        "Guava's SmoothWarmingUp: spaces requests at %" PRId64
        " every %s when warm; after idling it starts %.6g times slower and warms up over "
        "%s.",
        rule->count, w->period, rule->cold_millionths / 1e6, w->extra);
    if (interval < 1) {
        explain_unbounded(w);
        return;
    }
    explain_bound(w->facts, 1 + (int64_t)((double)(rule->period_us + 1) / interval), 1);
    weir__put_format(&w->guarantee,
                     "never more than %" PRId64 " go ahead in any %s if each costs 1%s",
                     w->facts->most, w->period, anyway);
}

/* ---- leases ---- */

static void explain_concurrent(struct writer *w, const struct weir__rule *rule)
{
    explain_bound(w->facts, rule->count, rule->count);
    w->facts->span_us = 0;
    weir__put_format(&w->what,
                     "At most %" PRId64
                     " slots are held at a time; a lease that is neither released "
                     "nor renewed lapses after %s.",
                     rule->count, w->period);
    weir__put_format(&w->guarantee, "never more than %" PRId64 " held at any instant", rule->count);
}

#define EXPLAINER_OF(KIND, name) [WEIR__##KIND] = explain_##name,
static void (*const explainers[WEIR__KIND_COUNT])(struct writer *, const struct weir__rule *) = {
    WEIR__KINDS(EXPLAINER_OF)};

/* A large state keeps its cells in a block that doubles as it grows; leases have one to spare. */
static int64_t explain_key_bytes(const struct weir__rule *rule)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    if (!weir__is_large(rule))
        return SLOT_BYTES;
    int64_t block = 64;
    while (block < BLOCK_HEADER_BYTES + CELL_BYTES * (weir__rule_cells(rule) + algorithm->leases))
        block *= 2;
    return SLOT_BYTES + block;
}

void weir__explain(const struct weir__rule *rule, struct weir__facts *ret)
{
    *ret = (struct weir__facts){.span_us = rule->period_us, .key_bytes = explain_key_bytes(rule)};
    struct writer writer = {
        .facts = ret,
        .what = weir__buffer_over(ret->what, sizeof ret->what),
        .guarantee = weir__buffer_over(ret->guarantee, sizeof ret->guarantee),
    };
    explain_span(writer.period, sizeof writer.period, rule->period_us);
    explain_span(writer.extra, sizeof writer.extra, rule->extra);
    explainers[rule->kind](&writer, rule);
    assert(!writer.what.cut && !writer.guarantee.cut);
}

bool weir__explain_edges(const struct weir__rule *rule, int64_t now_us,
                         char ret[WEIR__EDGES_SHOWN][WEIR__EDGE_MAX])
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    int64_t start, end = now_us;
    if (!algorithm->window)
        return false;
    for (int i = 0; i < WEIR__EDGES_SHOWN; i++) {
        algorithm->window(rule, end, &start, &end);
        struct weir__buffer buffer = weir__buffer_over(ret[i], WEIR__EDGE_MAX);
        weir__put_time(&buffer, end, weir__calendar_of(rule).zone);
    }
    return true;
}

void weir__explain_limit(const weir_limit *limit, size_t i, struct weir__facts *ret)
{
    weir__explain(&limit->rules[i], ret);
    if (weir__limit_varies(limit, i))
        return;
    size_t len = strlen(ret->what);
    struct weir__buffer buffer = weir__buffer_over(ret->what + len, sizeof ret->what - len);
    weir__put_format(&buffer, " Each request is charged %lld here, whatever it costs.",
                     (long long)limit->costs[i]);
    assert(!buffer.cut);
}

void weir__explain_began(const struct weir__rule *rule, int64_t now_us, char ret[WEIR__EDGE_MAX])
{
    struct weir__buffer buffer = weir__buffer_over(ret, WEIR__EDGE_MAX);
    int64_t start, end;
    weir__algorithm_of(rule)->window(rule, now_us, &start, &end);
    weir__put_time(&buffer, start, weir__calendar_of(rule).zone);
}
