/* See playground.h: when the requests of a load come. Steady requests stand in the middle of their share
 * of time, bursts in the middle of theirs, so that nothing happens on the edge of a plot. */
#include "sim/playground.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>

#define MIDNIGHT_US INT64_C(1700006400000000)
#define TRILLION INT64_C(1000000000000)
#define EDGE_PART 10 /* an edge attack takes a tenth of the window on either side */

int64_t weir__load_start_us(const struct weir__load *load)
{
    if (load->kind != WEIR__EDGES)
        return MIDNIGHT_US;
    return MIDNIGHT_US - MIDNIGHT_US % load->every_us + load->every_us;
}

/* ---- one stream after the other: the i-th request of each, in order ---- */

/* How many halves of shares end within the span decides: none comes at its very end. */
static __int128 steady_count(const struct weir__load *load)
{
    __int128 doubled = (__int128)2 * load->rate_millionths * load->span_us;
    return (doubled + TRILLION - 1) / (2 * (__int128)TRILLION);
}

static int64_t steady_us(const struct weir__load *load, int64_t i)
{
    return (int64_t)((2 * (__int128)i + 1) * TRILLION / (2 * load->rate_millionths));
}

static __int128 burst_count(const struct weir__load *load)
{
    int64_t first = load->every_us / 2;
    if (load->span_us <= first)
        return 0;
    return (__int128)((load->span_us - first - 1) / load->every_us + 1) * load->burst;
}

static int64_t burst_us(const struct weir__load *load, int64_t i)
{
    return load->every_us / 2 + i / load->burst * load->every_us;
}

/* An upper bound: the last attack may be cut by the load's end. */
static __int128 edge_count(const struct weir__load *load)
{
    int64_t first = load->every_us - load->every_us / EDGE_PART;
    if (load->span_us <= first)
        return 0;
    int64_t attacks = (load->span_us - first - 1) / (2 * load->every_us) + 1;
    return (__int128)attacks * 2 * load->burst;
}

/* Every second edge, so that each window is spent once, all of it on one side. */
static int64_t edge_us(const struct weir__load *load, int64_t i)
{
    int64_t attack = i / (2 * load->burst), k = i % (2 * load->burst);
    int64_t edge = load->every_us + attack * 2 * load->every_us;
    int64_t part = load->every_us / EDGE_PART;
    return edge - part + (int64_t)((2 * (__int128)k + 1) * part / (2 * load->burst));
}

/* ---- arrivals ---- */

struct list {
    struct weir__play_arrival *arrivals;
    size_t count, room;
};

static bool add(struct list *list, int64_t at_us, int64_t key)
{
    if (list->count == list->room)
        return false;
    list->arrivals[list->count++] = (struct weir__play_arrival){at_us, (uint32_t)key};
    return true;
}

/* Two ordered streams become one. */
static void merge(const struct weir__load *load, int64_t steady, int64_t pattern,
                  int64_t (*pattern_us)(const struct weir__load *, int64_t), struct list *list)
{
    for (int64_t i = 0, j = 0; i < steady || j < pattern;) {
        int64_t steady_at = i < steady ? steady_us(load, i) : INT64_MAX;
        int64_t pattern_at = j < pattern ? pattern_us(load, j) : INT64_MAX;
        int64_t at = weir__min(steady_at, pattern_at);
        if (at >= load->span_us || !add(list, at, (i + j) % load->keys))
            return;
        if (steady_at <= pattern_at)
            i++;
        else
            j++;
    }
}

/* The time between two is exponential. A load is some standard deviations from the most, or it ends
 * early; its mean was checked. */
static void scatter(const struct weir__load *load, struct list *list)
{
    uint64_t random = (uint64_t)load->seed;
    double mean_us = (double)TRILLION / (double)load->rate_millionths, at = 0;
    for (;;) {
        double share = (double)(weir__random_next(&random) >> 11) * 0x1p-53;
        at -= log1p(-share) * mean_us;
        uint64_t key = weir__random_next(&random) % (uint64_t)load->keys;
        if (at >= (double)load->span_us || !add(list, (int64_t)at, (int64_t)key))
            return;
    }
}

static int refuse(__int128 requests, int64_t most, weir_error *err)
{
    if (requests == 0)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "load: no request comes within load.seconds; raise it, or load.rate");
    long long shown = requests > TRILLION ? TRILLION : (long long)requests;
    return weir__fail(err, WEIR_EINVAL, 0,
                      "load: it makes %s%lld requests a limit, and %lld are the most with so many "
                      "limits (%d over all of them); lower load.seconds, load.rate or load.burst",
                      requests > TRILLION ? "more than " : "", shown, (long long)most,
                      WEIR__PLAY_REQUESTS_MAX);
}

int weir__load_arrivals(const struct weir__load *load, int64_t most,
                        struct weir__play_arrival **ret, size_t *ret_count, weir_error *err)
{
    __int128 steady = load->rate_millionths ? steady_count(load) : 0, pattern = 0;
    if (load->kind == WEIR__BURSTS)
        pattern = burst_count(load);
    else if (load->kind == WEIR__EDGES)
        pattern = edge_count(load);
    if (steady + pattern == 0 || steady + pattern > most)
        return refuse(steady + pattern, most, err);

    struct list list = {.room = (size_t)(steady + pattern)};
    if (load->kind == WEIR__POISSON)
        list.room += 64 + 8 * (size_t)sqrt((double)steady);
    list.arrivals = malloc(list.room * sizeof *list.arrivals);
    if (!list.arrivals)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s", weir_strerror(WEIR_ENOMEM));
    if (load->kind == WEIR__POISSON)
        scatter(load, &list);
    else
        merge(load, (int64_t)steady, (int64_t)pattern,
              load->kind == WEIR__EDGES ? edge_us : burst_us, &list);
    if (list.count == 0) {
        free(list.arrivals);
        return refuse(0, most, err);
    }
    *ret = list.arrivals;
    *ret_count = list.count;
    return 0;
}
