/* Several limits, one answer. */
#include "core/core.h"

/* The denied limit that keeps the request waiting longest; never is longer than anything. */
static bool fold_waits_longer(const weir_decision *a, const weir_decision *b)
{
    if (a->allowed || b->allowed)
        return !a->allowed;
    if (a->retry_after_us == WEIR_NEVER || b->retry_after_us == WEIR_NEVER)
        return a->retry_after_us == WEIR_NEVER && b->retry_after_us != WEIR_NEVER;
    return a->retry_after_us > b->retry_after_us;
}

/* Which limit bound: of the denied the one that waits longest, else the one with least left. */
static size_t fold_binding(const weir_decision *rows, size_t n, bool allowed)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (allowed ? rows[i].remaining < rows[best].remaining
                    : fold_waits_longer(&rows[i], &rows[best]))
            best = i;
    }
    return best;
}

void weir__fold(const weir_decision *rows, size_t n, weir_decision *ret)
{
    assert(n >= 1);
    weir_decision folded = rows[0];
    for (size_t i = 1; i < n; i++) {
        folded.allowed = folded.allowed && rows[i].allowed;
        folded.reset_after_us = weir__max(folded.reset_after_us, rows[i].reset_after_us);
        folded.delay_us = weir__max(folded.delay_us, rows[i].delay_us);
        folded.local &= rows[i].local;
    }
    folded.binding = (uint8_t)fold_binding(rows, n, folded.allowed);
    folded.limit = rows[folded.binding].limit;
    folded.remaining = rows[folded.binding].remaining;
    folded.retry_after_us = rows[folded.binding].retry_after_us;
    folded.full = rows[folded.binding].full;
    folded.closed = rows[folded.binding].closed;
    if (!folded.allowed)
        folded.delay_us = folded.granted = 0;
    *ret = folded;
}
