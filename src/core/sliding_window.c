/*
 * Sliding window: slots of `precision`, each remembering its last stamp, which a charge renews. A
 * slot counts whole until its last charge is a period old: never more than N in any span of W, at
 * most one precision too strict, exact for a lone request.
 */
#include "core/algorithms.h"
#include "core/ring.h"

void weir__sliding_window_charge(const struct weir__rule *rule, struct weir__state *state,
                                 const struct weir__request *request)
{
    struct weir__ring *ring = &state->ring;
    if (weir__stamps_join(rule, state)) {
        weir__ring_last(ring)->count += request->cost;
        weir__ring_last(ring)->stamp = state->now_us;
    } else {
        weir__state_append(state, (struct weir__cell){state->now_us, {request->cost}});
    }
    ring->sum += request->cost;
    state->at = state->now_us;
    state->present = true;
}
