/*
 * A decision on the wire: each shape is encoded here, once.
 *
 *     numbers   allowed, limit, remaining, retry_after, reset_after, delay: the row of every RESP
 *               reply, in microseconds. WEIR_NEVER is -1.
 *     RESP      row, receipt, [granted], [lease], [binding, one row per limit]
 *               Granted, also of rows, is told to requests with a least. (docs/PROTOCOL.md)
 *     JSON      the same six as members, in seconds, and granted. Never is null. (docs/SERVER.md)
 *
 * and the words of verdicts, which answers, logs and the command line share.
 */
#ifndef WEIR_WIRE_DECISION_H
#define WEIR_WIRE_DECISION_H

#include "base/span.h"
#include "core/show.h"
#include "wire/json.h"
#include "wire/resp.h"

/* ---- verdicts ---- */

/* What decided a request. */
#define WEIR__VERDICTS(X)                                                                          \
    X(NONE, "none")             /* no policy applies: allowed */                                   \
    X(ALLOW, "allow")           /* an allow list has it and no other policy applies: no charge */  \
    X(DENY, "deny")             /* a deny list has it, or an attribute is missing */               \
    X(LIMITS, "limits")         /* limits decided */                                               \
    X(MISSING, "missing")       /* logs only: denied since an attribute is missing */              \
    X(UNREADABLE, "unreadable") /* logs only: a call of Envoy that weir cannot read */

enum weir__verdict {
#define X(constant, word) WEIR__VERDICT_##constant,
    WEIR__VERDICTS(X)
#undef X
};

const char *weir__verdict_word(enum weir__verdict verdict);

/* ---- numbers ---- */

#define WEIR__ROW_NUMBERS 6

static inline void weir__row_numbers(const weir_decision *row, int64_t ret[WEIR__ROW_NUMBERS])
{
    ret[0] = row->allowed;
    ret[1] = row->limit;
    ret[2] = row->remaining;
    ret[3] = row->retry_after_us;
    ret[4] = row->reset_after_us;
    ret[5] = row->delay_us;
}

/* And back. */
static inline weir_decision weir__row_of(const int64_t numbers[WEIR__ROW_NUMBERS])
{
    return (weir_decision){.allowed = numbers[0] != 0,
                           .limit = numbers[1],
                           .remaining = numbers[2],
                           .retry_after_us = numbers[3],
                           .reset_after_us = numbers[4],
                           .delay_us = numbers[5]};
}

/* redis-cell's reply: limited, limit, remaining, retry_after, reset_after. Seconds are rounded up;
 * -1 is never, or not limited. */
#define WEIR__THROTTLE_NUMBERS 5
void weir__throttle_numbers(const weir_decision *decision, int64_t ret[WEIR__THROTTLE_NUMBERS]);

/* ---- RESP ---- */

/* The bytes of a row at most. */
#define WEIR__RESP_ROW_MAX (WEIR__ROW_NUMBERS * WEIR__RESP_NUMBER_LINE)

/* Writes a row's six lines where there are WEIR__RESP_ROW_MAX bytes; the byte behind them. */
char *weir__resp_write_row(char *to, const weir_decision *row);
/* A whole reply. granted: to a request with a least. lease: the reply to an acquire. rows: one per
 * limit, or NULL. */
void weir__resp_put_decision(struct weir__buffer *out, const weir_decision *decision,
                             struct weir__span receipt, bool granted, bool lease,
                             const weir_decision *rows, size_t row_count);
void weir__resp_put_throttle(struct weir__buffer *out, const weir_decision *decision);
/* WEIR.SHOW: one array of names and values per state. */
void weir__resp_put_states(struct weir__buffer *out, const struct weir__shown *states, size_t n);

/* ---- JSON ---- */

/* The seven members of a row or a decision. */
void weir__json_put_decision(struct weir__json *json, const weir_decision *decision);
/* The same without "allowed" and "granted". */
void weir__json_put_numbers(struct weir__json *json, const weir_decision *decision);
/* The canonical text of limit i, and of a rule. */
void weir__json_put_limit(struct weir__json *json, const char *name, const weir_limit *limit,
                          size_t i);
void weir__json_put_rule(struct weir__json *json, const char *name, const struct weir__rule *rule);
/* What a key holds, as an object. */
void weir__json_put_state(struct weir__json *json, const struct weir__shown *state);

#endif
