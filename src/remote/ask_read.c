/* Replies to decisions. Module and scripts answer alike. */
#include "remote/ask.h"

#include "limit/receipt.h"
#include "store/store.h"
#include "wire/decision.h"

#include <stdio.h>
#include <string.h>

/* Servers before 7.0 put the script and its line before an error that it ran into:
 * "ERR Error running script (call to f_…): @user_script:9: @user_script: 9: -OOM …". */
static void unwrap(const char **text, size_t *len)
{
    static const char mark[] = "@user_script:";
    const char *end = *text + *len, *from = *text;
    for (const char *at; (at = memmem(from, (size_t)(end - from), mark, sizeof mark - 1));) {
        at += sizeof mark - 1;
        from = at;
        at += at < end && *at == ' ';
        const char *digits = at;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
        if (at == digits || end - at < 3 || at[0] != ':' || at[1] != ' ')
            continue;
        at += at[2] == '-' ? 3 : 2;
        *text = from = at;
        *len = (size_t)(end - at);
    }
}

static void keep_error(char ret[WEIR__ERROR_MAX], const char *text, size_t len)
{
    unwrap(&text, &len);
    snprintf(ret, WEIR__ERROR_MAX, "%.*s", (int)(len < 255 ? len : 255), text);
}

static void fail(struct weir__ask *ask, const char *text, size_t len)
{
    ask->failed = true;
    keep_error(ask->error, text, len);
}

/* The numbers of a row; false: it is not one. */
static bool read_row(const struct weir__resp_node *nodes, weir_decision *ret)
{
    int64_t numbers[WEIR__ROW_NUMBERS];
    for (size_t i = 0; i < WEIR__ROW_NUMBERS; i++) {
        if (nodes[i].type != WEIR__RESP_INTEGER)
            return false;
        numbers[i] = nodes[i].integer;
    }
    *ret = weir__row_of(numbers);
    return true;
}

/* When it was decided, by the server's clock: the receipt says it. */
static bool read_receipt(const char *data, const struct weir__resp_node *node, weir_decision *ret)
{
    char text[WEIR_RECEIPT_SIZE];
    struct weir__correction charge;
    if (node->type != WEIR__RESP_BULK || node->len >= sizeof text)
        return false;
    memcpy(text, data + node->at, node->len);
    text[node->len] = 0;
    if (!weir__receipt_read(text, &charge))
        return false;
    ret->time_us = charge.charged_at_us;
    ret->charged = charge.charged;
    return true;
}

/* Completes each limit's row: what it was charged, when, and its lease. */
static void complete_rows(const struct weir__ask *ask, const weir_decision *folded,
                          weir_decision *rows)
{
    bool charged = folded->allowed && ask->verb != WEIR__VERB_PEEK;
    for (size_t i = 0; i < ask->count; i++) {
        const weir_limit *limit = ask->requests[i].limit;
        size_t leased = weir__leased(limit);
        for (size_t j = 0; j < limit->count; j++, rows++) {
            rows->time_us = folded->time_us;
            rows->charged = charged ? ask->requests[i].cost : 0;
            rows->lease = j == leased ? folded->lease : 0;
        }
    }
}

/* [six integers, receipt, (the lease), (binding, one row per limit)] */
static bool read_decision(struct weir__ask *ask, const char *data,
                          const struct weir__resp_node *nodes)
{
    bool acquire = ask->verb == WEIR__VERB_ACQUIRE, detail = ask->limits > 1;
    size_t elements = WEIR__ROW_NUMBERS + 1 + acquire + (detail ? 1 + ask->limits : 0);
    const struct weir__resp_node *node = &nodes[1];
    weir_decision folded, row;
    if (nodes[0].type != WEIR__RESP_ARRAY || nodes[0].len != elements || !read_row(node, &folded))
        return false;
    node += WEIR__ROW_NUMBERS;
    if (!read_receipt(data, node++, &folded))
        return false;
    if (acquire)
        folded.lease = (uint64_t)(node++)->integer;
    if (!detail) {
        if (ask->rows)
            ask->rows[0] = folded;
        *ask->ret = folded;
        return true;
    }
    folded.binding = (uint8_t)(node++)->integer;
    if (folded.binding >= ask->limits)
        return false;
    for (size_t i = 0; i < ask->limits; i++, node += 1 + WEIR__ROW_NUMBERS) {
        if (node->type != WEIR__RESP_ARRAY || node->len != WEIR__ROW_NUMBERS ||
            !read_row(node + 1, &row))
            return false;
        if (ask->rows)
            ask->rows[i] = row;
    }
    if (ask->rows)
        complete_rows(ask, &folded, ask->rows);
    *ask->ret = folded;
    return true;
}

static bool is_text(const char *data, const struct weir__resp_node *node, const char *text)
{
    return node->type == WEIR__RESP_BULK && node->len == strlen(text) &&
           !memcmp(data + node->at, text, node->len);
}

/* ["algorithm", name, then names and numbers in turn] */
static bool read_shown(const char *data, const struct weir__resp_node *nodes,
                       struct weir__shown *ret)
{
    int64_t numbers[WEIR__SHOWN_NUMBERS];
    int kind = 0;
    if (nodes[0].type != WEIR__RESP_ARRAY || nodes[0].len != 2 + 2 * WEIR__SHOWN_NUMBERS)
        return false;
    while (kind < WEIR__KINDS && !is_text(data, &nodes[2], weir__kind_name((enum weir__kind)kind)))
        kind++;
    for (size_t i = 0; i < WEIR__SHOWN_NUMBERS; i++) {
        const struct weir__resp_node *pair = &nodes[3 + 2 * i];
        if (!is_text(data, &pair[0], weir__shown_names[i]) || pair[1].type != WEIR__RESP_INTEGER)
            return false;
        numbers[i] = pair[1].integer;
    }
    weir__shown_of(kind, numbers, ret);
    return kind < WEIR__KINDS;
}

static bool read_show(struct weir__ask *ask, const char *data, const struct weir__resp_node *nodes)
{
    if (nodes[0].type != WEIR__RESP_ARRAY || nodes[0].len > WEIR_LIMITS_MAX)
        return false;
    for (size_t i = 0; i < nodes[0].len; i++) {
        if (!read_shown(data, &nodes[1 + i * (3 + 2 * WEIR__SHOWN_NUMBERS)], &ask->shown[i]))
            return false;
    }
    ask->shown_count = nodes[0].len;
    return true;
}

/* OK, or SETTLED: it was before. */
static bool read_settled(struct weir__ask *ask, const char *data,
                         const struct weir__resp_node *nodes)
{
    static const char settled[] = "SETTLED", ok[] = "OK";
    const char *text = data + nodes[0].at;
    if (nodes[0].type != WEIR__RESP_SIMPLE)
        return false;
    ask->integer = nodes[0].len == sizeof settled - 1 && !memcmp(text, settled, nodes[0].len);
    return ask->integer || (nodes[0].len == sizeof ok - 1 && !memcmp(text, ok, nodes[0].len));
}

void weir__ask_read(struct weir__call *call, unsigned i, const char *data,
                    const struct weir__resp_node *nodes)
{
    struct weir__ask *ask = (struct weir__ask *)call;
    bool error = nodes[0].type == WEIR__RESP_ERROR, last = i + 1 == call->replies;
    if (error && last)
        return fail(ask, data + nodes[0].at, nodes[0].len);
    if (error && !ask->before[0])
        keep_error(ask->before, data + nodes[0].at, nodes[0].len);
    if (!last)
        return;
    if (ask->before[0] && ask->by_module && ask->time_us >= 0) /* decided by another clock */
        return fail(ask, ask->before, strlen(ask->before));
    bool good = true; /* the call's own answer counts, whoever loaded its script */
    if (weir__verb_decides(ask->verb))
        good = read_decision(ask, data, nodes);
    else if (ask->verb == WEIR__VERB_SHOW)
        good = read_show(ask, data, nodes);
    else if (ask->verb == WEIR__VERB_SETTLE)
        good = read_settled(ask, data, nodes);
    else if ((good = nodes[0].type == WEIR__RESP_INTEGER))
        ask->integer = nodes[0].integer;
    if (!good) {
        static const char what[] = "WEIRREPLY the server's reply is of another form";
        fail(ask, what, sizeof what - 1);
    }
}
