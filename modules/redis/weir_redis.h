/*
 * weir as a Redis and Valkey module. A command flows one way:
 *
 *   arguments ─► request (request.c) ─► ops on loaded values (decide.c) ─► reply (commands.c)
 *                                          │ held keys (keys.c): bytes ⇄ sections, replication
 *
 * module.c loads it.
 *
 * What holds: decisions are made on the primary alone, by the server's clock; what is replicated is
 * their effect, with absolute times, and only when something changed. A value that is not weir's is
 * never written to.
 */
#ifndef WEIR_REDIS_H
#define WEIR_REDIS_H

#include "api.h"
#include "core/show.h"
#include "wire/command.h"
#include "wire/decision.h"
#include "wire/state.h"

/* ---- request.c: arguments and the time ---- */

struct request {
    struct weir__command command;
    RedisModuleString *names[WEIR_LIMITS_MAX]; /* of its keys */
};

/* A command's arguments; false: an error was replied. Its limits are good until the next one. */
bool read_request(RedisModuleCtx *ctx, enum weir__verb verb, RedisModuleString **argv, int argc,
                  struct request *ret);
/* A whole number of an argument within bounds; false: an error naming `what` was replied. */
bool read_number(RedisModuleCtx *ctx, RedisModuleString *argument, const char *what, int64_t least,
                 int64_t most, int64_t *ret);

/* Microseconds since the epoch, by the server's clock or the test clock. */
int64_t now_us(void);
/* Whether the test clock may be set at all: a load argument. */
extern bool test_clock_enabled;
void test_clock_set(int64_t microseconds);
/* When a key whose states are fresh from `fresh_us` on may go, in ms: rounded up. Under the test
 * clock a day from the real now. */
int64_t expire_at_ms(int64_t fresh_us);

/* ---- keys.c: values held open ---- */

struct held {
    RedisModuleString *name;
    RedisModuleKey *key;
    struct weir__value value;
    const uint8_t *marks; /* what the marks become; NULL: they stay */
    size_t marks_len;
    int64_t marks_until_us;
};

/* One limit's state on a held key. */
struct op {
    struct held *held;
    const struct weir__rule *rule;
    struct weir__section *section; /* NULL: none there */
    struct weir__state state;
    struct weir__cell *moved; /* a ring's new cells, ours to free; NULL: in place */
    bool changed;
    bool many_cells; /* more than the newest cell changed */
};

/* Opens a key and reads its value; false: an error was replied. */
bool held_open(RedisModuleCtx *ctx, RedisModuleString *name, bool writing, struct held *ret);
void held_close(struct held *held);
void reply_damaged(RedisModuleCtx *ctx, RedisModuleString *name);
/* Finds an op's section and loads its state at a time, to judge a cost (WEIR__EVERY_CELL: to change
 * any part of it); false: it is damaged, and an error was replied. */
bool op_load(RedisModuleCtx *ctx, struct op *op, int64_t now, int64_t cost);
/* Room in a ring for the cell that a charge now needs (a settle: if the entry of `charged_at` is
 * gone; else INT64_MAX); does nothing where none is. */
void op_reserve_cell(struct op *op, int64_t charged_at);
/* Whether the sections that the ops marked as changed may add fit into the key's value. */
bool held_has_room(const struct held *held, const struct op *ops, size_t n, int64_t now);
/* Writes the changed ops of one held key, replicates, sets its expiry. There is room. */
void held_write(RedisModuleCtx *ctx, struct held *held, struct op *ops, size_t n, int64_t now);
void op_free(struct op *op);
/* Deletes a held key, replicates and notifies; signalling is the caller's. */
void held_delete(RedisModuleCtx *ctx, struct held *held);

/* ---- commands.c, decide.c ---- */

/* Decides one request; false: an error was replied. rows has room for one row per limit. */
bool decide(RedisModuleCtx *ctx, const struct request *request, bool take, uint64_t lease,
            weir_decision *rows, weir_decision *ret);
int reply_error(RedisModuleCtx *ctx, const char *format, ...) WEIR__PRINTF(2, 3);
/* What a key without room is told. */
int reply_no_room(RedisModuleCtx *ctx);

rm_command take_command, peek_command, take_all_command, settle_command, reset_command,
    acquire_command, renew_command, release_command, throttle_command, clock_command, show_command;

/* Charging decisions since the module was loaded, for INFO. */
extern uint64_t allowed_count, denied_count;

#endif
