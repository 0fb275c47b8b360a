/* Sliding log: every charge with its own stamp; exact. One cell an instant. */
#include "core/algorithms.h"
#include "core/ring.h"

void weir__sliding_log_charge(const struct weir__rule *rule, struct weir__state *state,
                              const struct weir__request *request)
{
    struct weir__ring *ring = &state->ring;
    if (weir__stamps_join(rule, state))
        weir__ring_last(ring)->count += request->cost;
    else
        weir__state_append(state, (struct weir__cell){state->now_us, {request->cost}});
    ring->sum += request->cost;
    state->at = state->now_us;
    state->present = true;
}
