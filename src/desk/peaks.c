/* Figures for suggestions: percentiles of what keys ask for at their busiest, and intervals that
 * say how far figures can be trusted. */
#include "desk/suggest.h"

#include <math.h>
#include <stdlib.h>

#define BLOCKS 10
#define T_OF_BLOCKS 2.262 /* Student's t for 9 degrees of freedom, 95 % */

const double desk_percentiles[DESK_PERCENTILES] = {0.5, 0.9, 0.99, 0.999, 1};

static int peaks_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A span of which the log has at least one. */
static size_t peaks_spans(const struct desk_engine *engine)
{
    int64_t span_us = engine->last_us - engine->first_us;
    size_t count = 1;
    while (count < DESK_PEAKS && span_us >= desk_peak_us[count])
        count++;
    return count;
}

int desk_peaks_read(struct desk_suggest *suggest)
{
    const struct desk_engine *engine = suggest->whole;
    int64_t *sorted = calloc(engine->entries + 1, sizeof *sorted);
    if (!sorted)
        return WEIR_ENOMEM;
    suggest->peak_count = engine->requests > 0 ? peaks_spans(engine) : 0;
    for (size_t span = 0; span < suggest->peak_count; span++) {
        size_t count = 0;
        for (size_t i = 0; i < engine->entries; i++) {
            const struct desk_key *key = desk_engine_key(engine, i);
            if (key)
                sorted[count++] = desk_key_peaks(engine, key)[span].peak;
        }
        qsort(sorted, count, sizeof *sorted, peaks_compare);
        for (size_t p = 0; p < DESK_PERCENTILES && count > 0; p++) {
            size_t rank = (size_t)ceil(desk_percentiles[p] * (double)count - 1e-9);
            suggest->peaks[span][p] = sorted[rank > 0 ? rank - 1 : 0];
        }
    }
    free(sorted);
    return 0;
}

struct desk_share desk_share_of(int64_t part, int64_t all, double z)
{
    if (all <= 0)
        return (struct desk_share){0, 0, 1};
    double n = (double)all, p = (double)part / n, zz = z * z;
    double middle = (p + zz / (2 * n)) / (1 + zz / n);
    double half = z / (1 + zz / n) * sqrt(p * (1 - p) / n + zz / (4 * n * n));
    double low = part > 0 ? middle - half : 0, high = part < all ? middle + half : 1;
    return (struct desk_share){p, low > 0 ? low : 0, high < 1 ? high : 1};
}

/* Denied by requests in each block; the spread of the blocks says how far the whole can be off. */
struct desk_share desk_share_of_time(const struct desk_engine *engine, size_t candidate,
                                     bool others)
{
    const struct desk_bin *bins = engine->tallies[candidate].bins;
    double denied[BLOCKS] = {0}, all[BLOCKS] = {0}, sum = 0, total = 0, squares = 0;
    size_t count = engine->timeline.count;
    for (size_t i = 0; i < count; i++) {
        size_t block = i * BLOCKS / count;
        denied[block] += (double)(bins[i].denied - (others ? bins[i].suspects_denied : 0));
        all[block] += (double)(bins[i].denied + bins[i].allowed - (others ? bins[i].suspects : 0));
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        sum += denied[i];
        total += all[i];
    }
    if (total == 0 || count < BLOCKS)
        return (struct desk_share){total > 0 ? sum / total : 0, 0, 1};
    double part = sum / total;
    for (size_t i = 0; i < BLOCKS; i++)
        squares += (denied[i] - part * all[i]) * (denied[i] - part * all[i]);
    double error = sqrt(squares * BLOCKS / (BLOCKS - 1)) / total;
    /* Where nothing was denied: three in all would not have been unlikely to be missed. */
    double high = sum > 0 ? part + T_OF_BLOCKS * error : 3 / total;
    double low = part - T_OF_BLOCKS * error;
    return (struct desk_share){part, low > 0 ? low : 0, high < 1 ? high : 1};
}
