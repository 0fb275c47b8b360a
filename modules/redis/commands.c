/* The WEIR.* commands: arguments in, replies out. */
#include "weir_redis.h"

#include "limit/receipt.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

static uint64_t test_lease;

/* With `tells_granted` a row has a seventh number. */
static void command_reply_row(RedisModuleCtx *ctx, const weir_decision *row, bool tells_granted)
{
    int64_t numbers[WEIR__ROW_NUMBERS];
    weir__row_numbers(row, numbers);
    for (size_t i = 0; i < WEIR__ROW_NUMBERS; i++)
        rm_ReplyWithLongLong(ctx, numbers[i]);
    if (tells_granted)
        rm_ReplyWithLongLong(ctx, row->granted);
}

/* Decides, charges if take, and replies. */
static int decide_and_reply(RedisModuleCtx *ctx, const struct request *request, bool take)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    char receipt[WEIR_RECEIPT_SIZE];
    size_t limits = 0;
    uint64_t lease = request->command.lease;
    if (request->command.acquires && !lease)
        lease = test_lease;
    if (request->command.acquires && !lease && weir__lease_id(&lease))
        return reply_error(ctx, "ERR no randomness for a lease");
    if (!decide(ctx, request, take, lease, rows, &folded))
        return RM_OK;
    for (size_t i = 0; i < request->command.count; i++)
        limits += request->command.asks[i].limit->count;
    weir_receipt(&folded, receipt);
    bool granted = request->command.tells_granted;
    rm_ReplyWithArray(ctx, (long)(WEIR__ROW_NUMBERS + 1 + granted + (lease != 0) +
                                  (request->command.detail ? 1 + limits : 0)));
    command_reply_row(ctx, &folded, false);
    rm_ReplyWithStringBuffer(ctx, receipt, strlen(receipt));
    if (granted)
        rm_ReplyWithLongLong(ctx, folded.granted);
    if (lease)
        rm_ReplyWithLongLong(ctx, (long long)folded.lease);
    if (!request->command.detail)
        return RM_OK;
    rm_ReplyWithLongLong(ctx, folded.binding);
    for (size_t i = 0; i < limits; i++) {
        rm_ReplyWithArray(ctx, WEIR__ROW_NUMBERS + granted);
        command_reply_row(ctx, &rows[i], granted);
    }
    return RM_OK;
}

static int decide_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                          enum weir__verb verb)
{
    struct request request;
    return read_request(ctx, verb, argv, argc, &request)
               ? decide_and_reply(ctx, &request, !weir__verb_reads(verb))
               : RM_OK;
}

int take_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    return decide_command(ctx, argv, argc, WEIR__VERB_TAKE);
}

int peek_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    return decide_command(ctx, argv, argc, WEIR__VERB_PEEK);
}

int take_all_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    if (rm_IsKeysPositionRequest(ctx)) {
        size_t len;
        const char *text = argc > 1 ? rm_StringPtrLen(argv[1], &len) : "";
        int n = atoi(text);
        for (int i = 0; i < n && i < WEIR_LIMITS_MAX && 2 + 3 * i < argc; i++)
            rm_KeyAtPos(ctx, 2 + 3 * i);
        return RM_OK;
    }
    return decide_command(ctx, argv, argc, WEIR__VERB_TAKEALL);
}

/* CL.THROTTLE: redis-cell's command and reply, on a token bucket. Seconds are rounded up, never
 * early. A quantity beyond the limit is limited with retry_after -1 and charges nothing; quantity 0
 * peeks. */
int throttle_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct request request;
    weir_decision row, folded;
    if (!read_request(ctx, WEIR__VERB_THROTTLE, argv, argc, &request) ||
        !decide(ctx, &request, true, 0, &row, &folded))
        return RM_OK;
    int64_t numbers[WEIR__THROTTLE_NUMBERS];
    weir__throttle_numbers(&folded, numbers);
    rm_ReplyWithArray(ctx, WEIR__THROTTLE_NUMBERS);
    for (size_t i = 0; i < WEIR__THROTTLE_NUMBERS; i++)
        rm_ReplyWithLongLong(ctx, numbers[i]);
    return RM_OK;
}

/* WEIR.ACQUIRE key limits [COST n] [LEAST n] [WAIT us|any] [LEASE id] [DETAIL] */
int acquire_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct request request;
    if (!read_request(ctx, WEIR__VERB_ACQUIRE, argv, argc, &request))
        return RM_OK;
    const weir_limit *limit = request.command.asks[0].limit;
    if (weir__leased(limit) == limit->count)
        return reply_error(ctx,
                           "ERR there is nothing to acquire: none of the limits is concurrent");
    return decide_and_reply(ctx, &request, true);
}

/* key limits id: loads the leases and changes one. */
static int change_lease(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, bool renew)
{
    struct request request;
    if (!read_request(ctx, renew ? WEIR__VERB_RENEW : WEIR__VERB_RELEASE, argv, argc, &request))
        return RM_OK;
    const weir_limit *limit = request.command.asks[0].limit;
    uint64_t id = request.command.lease;
    size_t i = weir__leased(limit);
    if (i == limit->count)
        return reply_error(ctx, "ERR there are no leases: none of the limits is concurrent");
    struct held held;
    int64_t now = now_us();
    if (!held_open(ctx, argv[1], true, &held))
        return RM_OK;
    struct op op = {.held = &held, .rule = &limit->rules[i]};
    if (!op_load(ctx, &op, now, WEIR__EVERY_CELL)) {
        held_close(&held);
        return RM_OK;
    }
    op.changed =
        renew ? weir__lease_renew(op.rule, &op.state, id) : weir__lease_release(&op.state, id);
    op.many_cells = true;
    held_write(ctx, &held, &op, 1, now);
    held_close(&held);
    return rm_ReplyWithLongLong(ctx, op.changed);
}

int renew_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    return change_lease(ctx, argv, argc, true);
}

int release_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    return change_lease(ctx, argv, argc, false);
}

/* Remembers that an op's receipt is settled: until its state is fresh, with the correction or
 * without it, and an hour at most. */
static void settle_mark(const struct op *op, int64_t before_us,
                        const struct weir__correction *correction, struct weir__mark *marks,
                        size_t *count)
{
    bool differs = correction->actual != correction->charged;
    int64_t after_us =
        differs && op->state.present ? weir__state_fresh_at(op->rule, &op->state) : 0;
    int64_t until_us =
        weir__min(correction->now_us + WEIR__SETTLED_US, weir__max(before_us, after_us));
    if (until_us > correction->now_us)
        marks[(*count)++] = (struct weir__mark){weir__mark_name(op->rule, correction), until_us};
}

/* Loads what is to be settled; the number of limits that were not settled before, -1: an error was
 * replied. */
static int settle_load(RedisModuleCtx *ctx, struct held *held, const weir_limit *limit,
                       const struct weir__correction *correction, struct op *ops, bool *settled)
{
    int left = 0;
    for (size_t i = 0; i < limit->count; i++) {
        struct op *op = &ops[i];
        *op = (struct op){.held = held, .rule = &limit->rules[i]};
        if (!op_load(ctx, op, correction->now_us, WEIR__EVERY_CELL))
            return -1;
        settled[i] = correction->id &&
                     weir__value_marked(&held->value, weir__mark_name(op->rule, correction),
                                        correction->now_us);
        left += !settled[i];
        /* a refund adds nothing */
        op->changed = !settled[i] && correction->actual > correction->charged;
    }
    return left;
}

static void settle_ops(struct held *held, struct op *ops, size_t n, const bool *settled,
                       const struct weir__correction *correction, uint8_t *room)
{
    struct weir__mark marks[WEIR_LIMITS_MAX];
    size_t marked = 0;
    for (size_t i = 0; i < n; i++) {
        struct op *op = &ops[i];
        int64_t before_us = op->section && op->state.present ? op->section->fresh_at : 0;
        if (settled[i])
            continue;
        if (correction->actual != correction->charged) {
            op_reserve_cell(op, correction->charged_at_us);
            op->changed = weir__algorithm_of(op->rule)->settle(op->rule, &op->state, correction);
            op->many_cells = true;
        }
        if (correction->id)
            settle_mark(op, before_us, correction, marks, &marked);
    }
    if (marked == 0)
        return;
    held->marks_len = weir__marks_write(&held->value, marks, marked, correction->now_us, room);
    held->marks = room;
    held->marks_until_us = weir__marks_until(room);
}

static int settle_all(RedisModuleCtx *ctx, RedisModuleString *key, const weir_limit *limit,
                      const struct weir__correction *correction)
{
    struct held held;
    struct op ops[WEIR_LIMITS_MAX];
    uint8_t room[WEIR__MARKS_ROOM];
    bool settled[WEIR_LIMITS_MAX];
    if (!held_open(ctx, key, true, &held))
        return RM_OK;
    int left = settle_load(ctx, &held, limit, correction, ops, settled);
    if (left <= 0) {
        held_close(&held);
        return left < 0 ? RM_OK : rm_ReplyWithSimpleString(ctx, "SETTLED");
    }
    bool fits = held_has_room(&held, ops, limit->count, correction->now_us);
    if (fits) {
        settle_ops(&held, ops, limit->count, settled, correction, room);
        held_write(ctx, &held, ops, limit->count, correction->now_us);
    }
    for (size_t i = 0; i < limit->count; i++)
        op_free(&ops[i]);
    held_close(&held);
    return fits ? rm_ReplyWithSimpleString(ctx, "OK") : reply_no_room(ctx);
}

/* WEIR.SETTLE key limits receipt actual */
int settle_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct weir__correction correction;
    struct request request;
    if (!read_request(ctx, WEIR__VERB_SETTLE, argv, argc, &request))
        return RM_OK;
    const weir_limit *limit = request.command.asks[0].limit;
    struct weir__span receipt = request.command.receipt;
    char text[WEIR_RECEIPT_SIZE] = "";
    if (receipt.len < sizeof text)
        memcpy(text, receipt.data, receipt.len);
    if (receipt.len >= sizeof text || strlen(text) != receipt.len ||
        !weir__receipt_read(text, &correction))
        return reply_error(ctx, "ERR invalid receipt \"%.*s\": expected what the take replied",
                           (int)(receipt.len > 64 ? 64 : receipt.len), receipt.data);
    correction.actual = request.command.actual;
    weir_error err;
    char part_text[WEIR__LIMITS_TEXT_MAX];
    weir_limit part;
    if (weir__settles(limit, &err))
        return reply_error(ctx, "ERR %s", err.message);
    correction.now_us = now_us();
    if (!limit->costs)
        return settle_all(ctx, argv[1], limit, &correction);
    weir__limit_part(limit, weir__limit_variable(limit), part_text, &part);
    return settle_all(ctx, argv[1], &part, &correction);
}

/* WEIR.RESET key */
int reset_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct held held;
    struct request request;
    if (!read_request(ctx, WEIR__VERB_RESET, argv, argc, &request) ||
        !held_open(ctx, argv[1], true, &held))
        return RM_OK;
    bool present = held.value.count > 0;
    if (held.value.len > 0) {
        held_delete(ctx, &held);
        rm_SignalModifiedKey(ctx, argv[1]);
    }
    held_close(&held);
    return rm_ReplyWithLongLong(ctx, present);
}

/* WEIR.SHOW key: every state it holds, as names and values in turn. */
int show_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    struct held held;
    struct request request;
    int64_t now = now_us();
    if (!read_request(ctx, WEIR__VERB_SHOW, argv, argc, &request) ||
        !held_open(ctx, argv[1], false, &held))
        return RM_OK;
    struct weir__shown shown[WEIR_LIMITS_MAX];
    size_t count = held.value.count;
    bool sound = weir__value_show(&held.value, now, shown);
    if (!sound)
        reply_damaged(ctx, held.name);
    held_close(&held);
    if (!sound)
        return RM_OK;
    rm_ReplyWithArray(ctx, (long)count);
    for (size_t i = 0; i < count; i++) {
        int64_t numbers[WEIR__SHOWN_NUMBERS];
        const char *name = weir__kind_name((enum weir__kind)shown[i].rule.kind);
        weir__shown_numbers(&shown[i], numbers);
        rm_ReplyWithArray(ctx, 2 + 2 * WEIR__SHOWN_NUMBERS);
        rm_ReplyWithStringBuffer(ctx, "algorithm", 9);
        rm_ReplyWithStringBuffer(ctx, name, strlen(name));
        for (size_t j = 0; j < WEIR__SHOWN_NUMBERS; j++) {
            rm_ReplyWithStringBuffer(ctx, weir__shown_names[j], strlen(weir__shown_names[j]));
            rm_ReplyWithLongLong(ctx, numbers[j]);
        }
    }
    return RM_OK;
}

/* WEIR.CLOCK us [lease]: the test clock, and the id of leases to come. There only if the module was
 * loaded with `test-clock`. */
int clock_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc)
{
    int64_t us, lease = 0;
    if (argc != 2 && argc != 3)
        return rm_WrongArity(ctx);
    if (!read_number(ctx, argv[1], "the time", 0, WEIR__EXACT_MAX - 1, &us) ||
        (argc == 3 &&
         !read_number(ctx, argv[2], "a lease id", 1, (int64_t)WEIR__LEASE_MASK, &lease)))
        return RM_OK;
    test_clock_set(us);
    test_lease = (uint64_t)lease;
    return rm_ReplyWithSimpleString(ctx, "OK");
}
