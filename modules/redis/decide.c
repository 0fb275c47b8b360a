/* Requests to decisions: hold every key, judge every limit, charge all or none. */
#include "weir_redis.h"

#include "core/ring.h"

#include <string.h>

uint64_t allowed_count, denied_count;

struct decision_run {
    struct held held[WEIR_LIMITS_MAX];
    size_t held_count;
    struct op ops[WEIR_LIMITS_MAX];
    struct weir__request asked[WEIR_LIMITS_MAX];
    size_t op_count;
};

static bool decide_same_name(RedisModuleString *a, RedisModuleString *b)
{
    size_t a_len, b_len;
    const char *a_text = rm_StringPtrLen(a, &a_len), *b_text = rm_StringPtrLen(b, &b_len);
    return a_len == b_len && !memcmp(a_text, b_text, a_len);
}

/* The key of a request, held once however often it is named. */
static struct held *decide_hold(RedisModuleCtx *ctx, struct decision_run *run,
                                RedisModuleString *name, bool writing)
{
    for (size_t i = 0; i < run->held_count; i++) {
        if (decide_same_name(run->held[i].name, name))
            return &run->held[i];
    }
    WEIR__CHECK(run->held_count < WEIR_LIMITS_MAX);
    struct held *held = &run->held[run->held_count];
    if (!held_open(ctx, name, writing, held))
        return NULL;
    run->held_count++;
    return held;
}

static bool decide_shares_state(const struct decision_run *run, const struct op *op)
{
    for (size_t i = 0; i < run->op_count; i++) {
        if (run->ops[i].held == op->held && weir__rule_same_state(run->ops[i].rule, op->rule))
            return true;
    }
    return false;
}

static bool decide_load(RedisModuleCtx *ctx, struct decision_run *run,
                        const struct request *request, bool writing, int64_t now)
{
    run->held_count = run->op_count = 0;
    const struct weir__command *command = &request->command;
    for (size_t i = 0; i < command->count; i++) {
        const struct weir__command_ask *ask = &command->asks[i];
        struct held *held = decide_hold(ctx, run, request->names[i], writing);
        if (!held)
            return false;
        for (size_t j = 0; j < ask->limit->count; j++) {
            WEIR__CHECK(run->op_count < WEIR_LIMITS_MAX);
            struct op *op = &run->ops[run->op_count];
            op->held = held;
            op->rule = &ask->limit->rules[j];
            if (command->count > 1 && decide_shares_state(run, op)) {
                reply_error(
                    ctx,
                    "WEIRSHARED two limits of one key are of the same kind and period and would "
                    "share a state; use another period or key");
                return false;
            }
            if (!op_load(ctx, op, now, ask->cost))
                return false;
            run->asked[run->op_count++] =
                (struct weir__request){now, ask->cost, weir__wait_for(op->rule, command->wait_us)};
        }
    }
    return true;
}

static void decide_charge(struct op *op, const struct weir__request *asked, uint64_t lease,
                          weir_decision *row)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(op->rule);
    if (algorithm->leases) {
        weir__lease_acquire(op->rule, &op->state, asked->cost, lease);
        row->lease = lease;
        /* A lease that lapses before others stands before them. */
        op->many_cells =
            weir__ring_last(&op->state.ring)->stamp > op->state.at + op->rule->period_us;
    } else {
        algorithm->charge(op->rule, &op->state, asked);
    }
    row->charged = asked->cost;
    op->changed = true;
}

static void decide_charge_all(struct decision_run *run, uint64_t lease, weir_decision *rows)
{
    for (size_t i = 0; i < run->op_count; i++) {
        if (run->asked[i].cost == 0)
            continue;
        op_reserve_cell(&run->ops[i], INT64_MAX);
        decide_charge(&run->ops[i], &run->asked[i], lease, &rows[i]);
    }
}

static bool decide_has_room(struct decision_run *run, int64_t now)
{
    for (size_t i = 0; i < run->op_count; i++)
        run->ops[i].changed = run->asked[i].cost > 0;
    for (size_t i = 0; i < run->held_count; i++) {
        if (!held_has_room(&run->held[i], run->ops, run->op_count, now))
            return false;
    }
    return true;
}

int reply_no_room(RedisModuleCtx *ctx)
{
    return reply_error(ctx, "WEIRFULL the key holds %d live limits already; use another key",
                       WEIR_LIMITS_MAX);
}

/* Writing comes last: it may move a value, and with it the cells that states point to. */
static bool decide_judge(RedisModuleCtx *ctx, struct decision_run *run, bool take, uint64_t lease,
                         int64_t now, weir_decision *rows)
{
    bool allowed = true;
    for (size_t i = 0; i < run->op_count; i++) {
        const struct op *op = &run->ops[i];
        rows[i] = (weir_decision){.time_us = now};
        weir__algorithm_of(op->rule)->judge(op->rule, &op->state, &run->asked[i], &rows[i]);
        allowed = allowed && rows[i].allowed;
    }
    bool charging = allowed && take;
    if (charging && !decide_has_room(run, now)) {
        reply_no_room(ctx);
        return false;
    }
    if (charging)
        decide_charge_all(run, lease, rows);
    for (size_t i = 0; i < run->op_count; i++) {
        const struct op *op = &run->ops[i];
        weir__algorithm_of(op->rule)->report(op->rule, &op->state, now, &rows[i]);
    }
    for (size_t i = 0; i < run->held_count && charging; i++)
        held_write(ctx, &run->held[i], run->ops, run->op_count, now);
    return true;
}

bool decide(RedisModuleCtx *ctx, const struct request *request, bool take, uint64_t lease,
            weir_decision *rows, weir_decision *ret)
{
    struct decision_run run;
    int64_t now = now_us();
    bool done = decide_load(ctx, &run, request, take, now) &&
                decide_judge(ctx, &run, take, lease, now, rows);
    for (size_t i = 0; i < run.op_count; i++)
        op_free(&run.ops[i]);
    for (size_t i = 0; i < run.held_count; i++)
        held_close(&run.held[i]);
    if (!done)
        return false;
    weir__fold(rows, run.op_count, ret);
    *(ret->allowed ? &allowed_count : &denied_count) += take;
    ret->charged = ret->allowed && take ? request->command.asks[0].cost : 0;
    return true;
}
