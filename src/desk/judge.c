/*
 * What a candidate decides about an arrival of a key. The states of all its limits lie in the key's
 * entry; rings of logs, windows and leases lie beside it. The order of the calls is that of every
 * store (core/core.h), and a limit list is charged whole or not at all.
 */
#include "core/ring.h"
#include "desk/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CELLS 4

/* Where the cells of a large state lie. */
struct judge_ring {
    uint32_t capacity, head, len, spare;
    int64_t sum;
    struct weir__cell cells[];
};

struct judge_state {
    int64_t at; /* one more than in the core; 0: nothing is stored */
    int64_t amount;
    union {
        int64_t before;
        double stored;
        struct judge_ring *ring; /* of large states, also while nothing is stored; may be NULL */
    };
};

static struct judge_state *judge_states(const struct desk_engine *engine, struct desk_key *key,
                                        size_t candidate)
{
    return (struct judge_state *)((char *)key + engine->state_at[candidate]);
}

static size_t judge_ring_bytes(uint32_t capacity)
{
    return sizeof(struct judge_ring) + capacity * sizeof(struct weir__cell);
}

void desk_judge_layout(struct desk_engine *engine)
{
    size_t at = sizeof(struct desk_key);
    if (engine->options.peaks)
        at += DESK_PEAKS * sizeof(struct desk_peak);
    engine->notes_at = at;
    at += engine->options.notes ? sizeof(int64_t) : 0;
    engine->marks_at = at;
    at += engine->count * sizeof(struct desk_mark);
    engine->states_at = at;
    for (size_t i = 0; i < engine->count; i++) {
        const weir_limit *limit = engine->options.candidates[i].limit;
        engine->state_at[i] = at;
        at += (limit ? limit->count : 0) * sizeof(struct judge_state);
    }
    engine->stride = at;
}

/* ---- states ---- */

static void judge_load(const struct weir__rule *rule, const struct judge_state *stored,
                       struct weir__state *ret)
{
    *ret = (struct weir__state){.present = stored->at > 0, .at = stored->at - 1};
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        ret->amount = stored->amount;
        return;
    case WEIR__SHAPE_PAIR:
        ret->amount = stored->amount;
        ret->before = stored->before;
        return;
    case WEIR__SHAPE_PERMITS:
        ret->stored = stored->stored;
        return;
    case WEIR__SHAPE_RING:
        break;
    }
    const struct judge_ring *ring = stored->ring;
    if (ring)
        ret->ring = (struct weir__ring){.cells = stored->ring->cells,
                                        .capacity = ring->capacity,
                                        .head = ring->head,
                                        .len = ring->len,
                                        .sum = ring->sum};
}

static void judge_store(const struct weir__rule *rule, const struct weir__state *state,
                        struct judge_state *ret)
{
    ret->at = state->present ? state->at + 1 : 0;
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        ret->amount = state->amount;
        return;
    case WEIR__SHAPE_PAIR:
        ret->amount = state->amount;
        ret->before = state->before;
        return;
    case WEIR__SHAPE_PERMITS:
        ret->stored = state->stored;
        return;
    case WEIR__SHAPE_RING:
        break;
    }
    assert(ret->ring && state->ring.cells == ret->ring->cells);
    ret->ring->head = state->ring.head;
    ret->ring->len = state->ring.len;
    ret->ring->sum = state->ring.sum;
}

/* Room for what a charge may add to a ring. */
static int judge_reserve(struct desk_engine *engine, const struct desk_key *key,
                         const struct weir__rule *rule, struct judge_state *stored,
                         struct weir__state *state)
{
    struct weir__ring *ring = &state->ring;
    uint32_t cells = ring->len + 1 + weir__algorithm_of(rule)->leases;
    if (stored->ring && cells <= ring->capacity)
        return 0;
    uint32_t capacity = FIRST_CELLS;
    while (capacity < cells)
        capacity *= 2;
    size_t old = stored->ring ? judge_ring_bytes(stored->ring->capacity) : 0;
    struct judge_ring *grown = desk_keys_grow(engine, NULL, 0, judge_ring_bytes(capacity), key);
    if (!grown)
        return WEIR_ENOMEM;
    for (uint32_t i = 0; i < ring->len; i++)
        grown->cells[i] = *weir__ring_cell(ring, i);
    free(stored->ring);
    engine->used -= (int64_t)old;
    *grown = (struct judge_ring){.capacity = capacity, .len = ring->len, .sum = ring->sum};
    stored->ring = grown;
    ring->cells = grown->cells;
    ring->capacity = capacity;
    ring->head = 0;
    return 0;
}

bool desk_judge_is_fresh(const struct desk_engine *engine, const struct desk_key *key)
{
    for (size_t i = 0; i < engine->count; i++) {
        const weir_limit *limit = engine->options.candidates[i].limit;
        const struct judge_state *stored = judge_states(engine, (struct desk_key *)key, i);
        for (size_t j = 0; limit && j < limit->count; j++) {
            struct weir__state state;
            judge_load(&limit->rules[j], &stored[j], &state);
            if (state.present && !weir__is_fresh(&limit->rules[j], &state, engine->now_us))
                return false;
        }
    }
    return true;
}

void desk_judge_drop(struct desk_engine *engine, struct desk_key *key)
{
    for (size_t i = 0; i < engine->count; i++) {
        const weir_limit *limit = engine->options.candidates[i].limit;
        struct judge_state *stored = judge_states(engine, key, i);
        for (size_t j = 0; limit && j < limit->count; j++) {
            if (!weir__is_large(&limit->rules[j]) || !stored[j].ring)
                continue;
            engine->used -= (int64_t)judge_ring_bytes(stored[j].ring->capacity);
            free(stored[j].ring);
            stored[j].ring = NULL;
        }
    }
}

/* ---- deciding ---- */

/* Where the states of a candidate lie for a key: in its entry, or in the one for all keys. */
static struct judge_state *judge_states_for(const struct desk_engine *engine, struct desk_key *key,
                                            size_t candidate)
{
    return judge_states(engine, engine->options.candidates[candidate].total ? engine->all : key,
                        candidate);
}

/* Charges every limit of a list that allowed the request. */
static int judge_charge(struct desk_engine *engine, size_t candidate, const struct desk_key *key,
                        const struct weir__request *requests, struct weir__state *states,
                        struct judge_state *stored)
{
    const weir_limit *limit = engine->options.candidates[candidate].limit;
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        if (requests[i].cost == 0)
            continue;
        if (weir__is_large(rule)) {
            int code = judge_reserve(engine, key, rule, &stored[i], &states[i]);
            if (code)
                return code;
        }
        weir__algorithm_of(rule)->charge(rule, &states[i], &requests[i]);
        judge_store(rule, &states[i], &stored[i]);
    }
    return 0;
}

int desk_judge(struct desk_engine *engine, size_t candidate, struct desk_key *key,
               const struct desk_arrival *arrival, bool whole, weir_decision *ret)
{
    const weir_limit *limit = engine->options.candidates[candidate].limit;
    struct judge_state *stored = judge_states_for(engine, key, candidate);
    struct weir__state states[WEIR_LIMITS_MAX];
    struct weir__request requests[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX];
    bool allowed = true;
    assert(limit->count >= 1 && limit->count <= WEIR_LIMITS_MAX);
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        requests[i] =
            (struct weir__request){arrival->time_us, weir__limit_asked(limit, i, arrival->cost),
                                   weir__wait_for(rule, engine->options.wait_us)};
        judge_load(rule, &stored[i], &states[i]);
        weir__load(rule, rule, &states[i], arrival->time_us);
        rows[i] = (weir_decision){.time_us = arrival->time_us};
        weir__algorithm_of(rule)->judge(rule, &states[i], &requests[i], &rows[i]);
        rows[i].granted = rows[i].allowed ? requests[i].cost : 0;
        allowed = allowed && rows[i].allowed;
    }
    int code = allowed ? judge_charge(engine, candidate, key, requests, states, stored) : 0;
    for (size_t i = 0; i < limit->count && whole; i++) {
        rows[i].charged = allowed ? requests[i].cost : 0;
        weir__algorithm_of(&limit->rules[i])
            ->report(&limit->rules[i], &states[i], arrival->time_us, &rows[i]);
    }
    weir__fold(rows, limit->count, ret);
    return code;
}
