/*
 * Latencies in cells: exact below 64 ns, above that 64 cells to every doubling, so that a
 * percentile is told to within 1.6 percent however long the tail.
 */
#include "load.h"

enum { FINE = 1 << LATENCY_FINE_BITS };

static unsigned cell_of(uint64_t ns)
{
    if (ns < FINE)
        return (unsigned)ns;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - LATENCY_FINE_BITS;
    return ((shift + 1) << LATENCY_FINE_BITS) + (unsigned)((ns >> shift) & (FINE - 1));
}

/* The largest latency that falls into the cell. */
static int64_t cell_end(unsigned cell)
{
    if (cell < FINE)
        return cell;
    unsigned shift = (cell >> LATENCY_FINE_BITS) - 1;
    return (int64_t)((((uint64_t)(cell & (FINE - 1)) + FINE + 1) << shift) - 1);
}

void latency_add(struct latency *it, int64_t ns)
{
    ns = ns < 0 ? 0 : ns;
    it->cells[cell_of((uint64_t)ns)]++;
    it->count++;
    it->max_ns = ns > it->max_ns ? ns : it->max_ns;
}

int64_t latency_at(const struct latency *it, double share)
{
    uint64_t due = (uint64_t)((double)it->count * share), seen = 0;
    due = due < 1 ? 1 : due;
    for (unsigned cell = 0; cell < LATENCY_CELLS; cell++) {
        seen += it->cells[cell];
        if (seen >= due)
            return cell_end(cell) < it->max_ns ? cell_end(cell) : it->max_ns;
    }
    return it->max_ns;
}
