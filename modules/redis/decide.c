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
    int64_t granted; /* to the asks with a least */
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
    int64_t least = weir__command_budget(command).least;
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
            int64_t cost = weir__limit_asked(ask->limit, j, ask->least ? least : ask->cost);
            if (!op_load(ctx, op, now, cost))
                return false;
            run->asked[run->op_count++] =
                (struct weir__request){now, cost, weir__wait_for(op->rule, command->wait_us)};
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

/* Whether limit j of an ask is charged what is granted. */
static bool decide_is_granted(const struct weir__command_ask *ask, size_t j)
{
    return ask->least && weir__limit_varies(ask->limit, j);
}

/* Asks with a least were judged by it. What all their limits allow together becomes their cost;
 * where the command is denied, each limit shows what it would allow alone. */
static void decide_grant(struct decision_run *run, const struct weir__command *command,
                         bool allowed, weir_decision *rows)
{
    const struct weir__budget budget = weir__command_budget(command);
    int64_t together = budget.most;
    size_t at = 0;
    for (size_t i = 0; i < command->count; i++) {
        for (size_t j = 0; j < command->asks[i].limit->count; j++, at++) {
            const struct op *op = &run->ops[at];
            if (!rows[at].allowed || !decide_is_granted(&command->asks[i], j))
                continue;
            int64_t left = weir__left(op->rule, &op->state, run->asked[at].now_us);
            rows[at].granted = weir__min(budget.most, left);
            together = weir__min(together, rows[at].granted);
        }
    }
    for (size_t i = 0, k = 0; i < command->count && allowed; i++) {
        for (size_t j = 0; j < command->asks[i].limit->count; j++, k++) {
            if (decide_is_granted(&command->asks[i], j))
                run->asked[k].cost = rows[k].granted = together;
        }
    }
    run->granted = together;
}

/* Writing comes last: it may move a value, and with it the cells that states point to. */
static bool decide_judge(RedisModuleCtx *ctx, struct decision_run *run,
                         const struct weir__command *command, bool take, uint64_t lease,
                         int64_t now, weir_decision *rows)
{
    bool allowed = true;
    for (size_t i = 0; i < run->op_count; i++) {
        const struct op *op = &run->ops[i];
        rows[i] = (weir_decision){.time_us = now};
        weir__algorithm_of(op->rule)->judge(op->rule, &op->state, &run->asked[i], &rows[i]);
        rows[i].granted = rows[i].allowed ? run->asked[i].cost : 0;
        allowed = allowed && rows[i].allowed;
    }
    if (command->tells_granted)
        decide_grant(run, command, allowed, rows);
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
                decide_judge(ctx, &run, &request->command, take, lease, now, rows);
    for (size_t i = 0; i < run.op_count; i++)
        op_free(&run.ops[i]);
    for (size_t i = 0; i < run.held_count; i++)
        held_close(&run.held[i]);
    if (!done)
        return false;
    weir__fold(rows, run.op_count, ret);
    for (size_t i = 0; i < run.op_count; i++) /* one id for all that is held */
        ret->lease = rows[i].lease ? rows[i].lease : ret->lease;
    *(ret->allowed ? &allowed_count : &denied_count) += take;
    const struct weir__command_ask *first = &request->command.asks[0];
    int64_t whole = first->cost;
    if (weir__command_budget(&request->command).least)
        whole = run.granted;
    ret->granted = ret->allowed ? whole : 0;
    ret->charged = !ret->allowed || !take ? 0 : first->least ? whole : first->cost;
    return true;
}
