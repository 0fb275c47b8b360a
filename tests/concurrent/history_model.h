/*
 * The sequential model: what one call does to the states of a world when nobody else calls. It
 * drives the core as every store does (load, judge, charge, report) over states in plain memory,
 * without locks, slots or rows.
 */
#ifndef WEIR_HISTORY_MODEL_H
#define WEIR_HISTORY_MODEL_H

#include "history.h"

/* A state as a store keeps it. Compared bytewise: no padding, and what its shape does not have is
 * 0. */
struct model_state {
    int64_t at, amount, before;
    double stored;
    uint32_t present;
    uint32_t variant; /* it was written under */
};

/* A settled receipt, as a zone remembers it: until when for each limit of the key. */
struct model_mark {
    uint64_t id;
    int64_t until_us[HISTORY_RULES];
};

struct model {
    struct model_state states[HISTORY_STATES];
    uint64_t mark_count;
    struct model_mark marks[HISTORY_SETTLES]; /* by id */
};

/* What a call is answered. */
struct model_answer {
    int code;
    size_t rows_count;
    weir_decision decision;
    weir_decision rows[HISTORY_STATES];
};

/* One limit of a call. */
struct model_op {
    const struct weir__rule *rule;
    struct model_state *kept;
    uint32_t variant;
    struct weir__state state;
    struct weir__request request;
};

static inline struct model_state *model_state_of(struct model *model, size_t key, size_t rule)
{
    return &model->states[key * HISTORY_RULES + rule];
}

static inline void model_load(const struct history_world *world, struct model *model,
                              const struct history_part *part, size_t rule, int64_t now_us,
                              struct model_op *op)
{
    op->rule = history_rule(world, part, rule);
    op->kept = model_state_of(model, part->key, rule);
    op->variant = part->variant;
    op->state = (struct weir__state){.present = op->kept->present,
                                     .at = op->kept->at,
                                     .amount = op->kept->amount,
                                     .before = op->kept->before,
                                     .stored = op->kept->stored};
    op->request = (struct weir__request){now_us, part->cost, 0};
    op->request.wait_us = weir__wait_for(op->rule, part->wait_us);
    struct history_part written = *part;
    written.variant = (uint8_t)op->kept->variant;
    weir__load(op->rule, history_rule(world, &written, rule), &op->state, now_us);
}

/* What a store would keep of it. */
static inline void model_keep(struct model_op *op)
{
    const struct weir__state *state = &op->state;
    *op->kept = (struct model_state){0};
    if (!state->present)
        return;
    op->kept->present = 1;
    op->kept->variant = op->variant;
    op->kept->at = state->at;
    switch (weir__algorithm_of(op->rule)->shape) {
    case WEIR__SHAPE_PAIR:
        op->kept->before = state->before;
        op->kept->amount = state->amount;
        return;
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        op->kept->amount = state->amount;
        return;
    case WEIR__SHAPE_PERMITS:
        op->kept->stored = state->stored;
        return;
    case WEIR__SHAPE_RING:
        break;
    }
    abort(); /* large states are changed under a lock: other tests have them */
}

/* take and peek, over all parts at one instant. */
static inline void model_decide(const struct history_world *world, struct model *model,
                                const struct history_event *event, struct model_answer *ret)
{
    struct model_op ops[HISTORY_STATES];
    size_t n = 0;
    int64_t now = event->decision.time_us;
    bool allowed = true, takes = event->verb == HISTORY_TAKE;
    for (uint32_t i = 0; i < event->count; i++) {
        for (size_t rule = 0; rule < world->key[event->parts[i].key].rules; rule++, n++) {
            model_load(world, model, &event->parts[i], rule, now, &ops[n]);
            ret->rows[n] = (weir_decision){.time_us = now};
            weir__algorithm_of(ops[n].rule)
                ->judge(ops[n].rule, &ops[n].state, &ops[n].request, &ret->rows[n]);
            allowed = allowed && ret->rows[n].allowed;
        }
    }
    for (size_t i = 0; i < n; i++) {
        const struct weir__algorithm *algorithm = weir__algorithm_of(ops[i].rule);
        if (allowed && takes && ops[i].request.cost > 0) {
            algorithm->charge(ops[i].rule, &ops[i].state, &ops[i].request);
            ret->rows[i].charged = ops[i].request.cost;
            model_keep(&ops[i]);
        }
        algorithm->report(ops[i].rule, &ops[i].state, now, &ret->rows[i]);
    }
    ret->rows_count = n;
    weir__fold(ret->rows, n, &ret->decision);
    ret->decision.charged = allowed && takes ? event->parts[0].cost : 0;
}

/* The mark of a receipt, or where it would be. */
static inline size_t model_mark_at(const struct model *model, uint64_t id)
{
    size_t i = 0;
    while (i < model->mark_count && model->marks[i].id < id)
        i++;
    return i;
}

static inline bool model_is_settled(const struct model *model, uint64_t id, size_t rule,
                                    int64_t now_us)
{
    size_t i = model_mark_at(model, id);
    return i < model->mark_count && model->marks[i].id == id &&
           now_us < model->marks[i].until_us[rule];
}

static inline void model_remember(struct model *model, uint64_t id, size_t rule, int64_t until_us)
{
    size_t i = model_mark_at(model, id);
    if (i == model->mark_count || model->marks[i].id != id) {
        assert(model->mark_count < HISTORY_SETTLES);
        memmove(&model->marks[i + 1], &model->marks[i],
                (model->mark_count - i) * sizeof model->marks[0]);
        model->marks[i] = (struct model_mark){.id = id};
        model->mark_count++;
    }
    model->marks[i].until_us[rule] = until_us;
}

/* Until when a zone remembers that a loaded state is settled: SPEC, "A receipt settles once". */
static inline int64_t model_marked_until(const struct model_op *op,
                                         const struct weir__correction *correction)
{
    int64_t now = correction->now_us, until = now + WEIR__SETTLED_US;
    if (correction->actual > correction->charged)
        return until;
    if (!op->state.present)
        return now;
    return weir__min(until, weir__algorithm_of(op->rule)->fresh_at(op->rule, &op->state));
}

static inline void model_settle(const struct history_world *world, struct model *model,
                                const struct history_event *event, struct model_answer *ret)
{
    struct weir__correction correction = event->correction;
    const struct history_part *part = &event->parts[0];
    size_t rules = world->key[part->key].rules, left = rules;
    struct model_op ops[HISTORY_RULES];
    correction.now_us = event->now_us;
    for (size_t i = 0; i < rules; i++)
        model_load(world, model, part, i, event->now_us, &ops[i]);
    for (size_t i = 0; i < rules; i++)
        left -= model_is_settled(model, correction.id, i, event->now_us);
    if (left == 0) {
        ret->code = WEIR_ESETTLED;
        return;
    }
    for (size_t i = 0; i < rules; i++) {
        int64_t until = model_marked_until(&ops[i], &correction);
        if (model_is_settled(model, correction.id, i, event->now_us))
            continue;
        if (until > event->now_us)
            model_remember(model, correction.id, i, until);
        bool there = ops[i].kept->present || correction.actual > correction.charged;
        if (there && correction.actual != correction.charged &&
            weir__algorithm_of(ops[i].rule)->settle(ops[i].rule, &ops[i].state, &correction))
            model_keep(&ops[i]);
    }
}

/* Forgets the states of a key, and not its settled receipts. */
static inline void model_reset(struct model *model, const struct history_event *event)
{
    for (size_t i = 0; i < HISTORY_RULES; i++)
        *model_state_of(model, event->parts[0].key, i) = (struct model_state){0};
}

/* What a call changes and what it is answered. */
static inline void model_apply(const struct history_world *world, struct model *model,
                               const struct history_event *event, struct model_answer *ret)
{
    ret->code = 0;
    ret->rows_count = 0;
    switch (event->verb) {
    case HISTORY_TAKE:
    case HISTORY_PEEK:
        model_decide(world, model, event, ret);
        return;
    case HISTORY_RESET:
        model_reset(model, event);
        return;
    case HISTORY_SETTLE:
        model_settle(world, model, event, ret);
        return;
    }
}

/* ---- comparing ---- */

static inline bool model_same_decision(const weir_decision *a, const weir_decision *b)
{
    return a->limit == b->limit && a->remaining == b->remaining &&
           a->retry_after_us == b->retry_after_us && a->reset_after_us == b->reset_after_us &&
           a->delay_us == b->delay_us && a->time_us == b->time_us && a->charged == b->charged &&
           a->lease == b->lease && a->allowed == b->allowed && a->degraded == b->degraded &&
           a->binding == b->binding && a->code == b->code;
}

/* Whether it was decided by a time that its store was told. */
static inline bool model_time_is_read(const struct history_event *event)
{
    bool read = event->now_us == 0;
    for (uint32_t i = 0; i < event->readings && i < HISTORY_READINGS; i++)
        read = read || event->reading[i] == event->decision.time_us;
    return read;
}

/* Whether the event was answered like this, field for field. */
static inline bool model_explains(const struct history_event *event,
                                  const struct model_answer *answer)
{
    if (event->code != answer->code)
        return false;
    if (event->verb == HISTORY_RESET || event->verb == HISTORY_SETTLE)
        return true;
    bool same =
        model_same_decision(&event->decision, &answer->decision) && model_time_is_read(event);
    for (size_t i = 0; i < answer->rows_count && same && event->has_rows; i++)
        same = model_same_decision(&event->rows[i], &answer->rows[i]);
    return same;
}

#endif
