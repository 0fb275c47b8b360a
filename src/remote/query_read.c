/* From replies to answers. The module and the scripts reply in the same form. */
#include "remote/query.h"

#include "limit/limit.h"
#include "limit/receipt.h"
#include "store/store.h"
#include "wire/decision.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Servers before 7.0 put the name of the script and its line before its error:
 * "ERR Error running script (call to f_…): @user_script:9: @user_script: 9: -OOM …". */
static void query_unwrap_error(const char **text, size_t *len)
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

static void query_keep_error(char ret[WEIR__ERROR_MAX], const char *text, size_t len)
{
    query_unwrap_error(&text, &len);
    snprintf(ret, WEIR__ERROR_MAX, "%.*s", (int)(len < 255 ? len : 255), text);
}

static void query_fail(struct weir__redis_query *query, const char *text, size_t len)
{
    query->failed = true;
    query_keep_error(query->error, text, len);
}

/* The numbers of a row; false: it is not a row. */
static bool query_read_row(const struct weir__resp_node *nodes, weir_decision *ret)
{
    int64_t numbers[WEIR__ROW_NUMBERS];
    for (size_t i = 0; i < WEIR__ROW_NUMBERS; i++) {
        if (nodes[i].type != WEIR__RESP_INTEGER)
            return false;
        numbers[i] = nodes[i].integer;
    }
    *ret = weir__row_of(numbers);
    return ret->limit >= 0 && ret->limit <= WEIR__EXACT_MAX;
}

/* The receipt says when it was decided, by the server's clock. */
static bool query_read_receipt(const char *data, const struct weir__resp_node *node,
                               weir_decision *ret)
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

/* Completes each limit's row: when it was decided, what it granted and was charged, its lease.
 * Where a request has a least, the server says what the rows granted. */
static void query_complete_rows(const struct weir__redis_query *query, const weir_decision *folded,
                                weir_decision *rows)
{
    bool charged = folded->allowed && !weir__verb_reads(query->verb);
    bool grants = weir__redis_query_grants(query);
    bool told = grants && weir__redis_query_wants_detail(query);
    for (size_t i = 0; i < query->count; i++) {
        const weir_limit *limit = query->requests[i].limit;
        size_t leased = weir__leased(limit);
        for (size_t j = 0; j < limit->count; j++, rows++) {
            rows->time_us = folded->time_us;
            int64_t whole = grants ? folded->granted : query->requests[i].cost;
            if (!told)
                rows->granted = rows->allowed ? weir__limit_asked(limit, j, whole) : 0;
            rows->charged = charged ? rows->granted : 0;
            rows->lease =
                j == leased && rows->charged && query->requests[i].acquire ? folded->lease : 0;
        }
    }
}

/* What was granted: of the cost as much as the server says, where it says it. */
static bool query_read_granted(const struct weir__resp_node *node, int64_t most, int64_t *ret)
{
    *ret = node->integer;
    return node->type == WEIR__RESP_INTEGER && node->integer >= 0 && node->integer <= most;
}

/* [six integers, receipt, (granted), (the lease), (binding, one row per limit)] */
static bool query_read_decision(struct weir__redis_query *query, const char *data,
                                const struct weir__resp_node *nodes)
{
    bool acquire = query->verb == WEIR__VERB_ACQUIRE,
         detail = weir__redis_query_wants_detail(query), grants = weir__redis_query_grants(query);
    size_t elements = WEIR__ROW_NUMBERS + 1 + grants + acquire + (detail ? 1 + query->limits : 0);
    size_t numbers = WEIR__ROW_NUMBERS + grants; /* of a row */
    const struct weir__resp_node *node = &nodes[1];
    weir_decision folded, row;
    if (nodes[0].type != WEIR__RESP_ARRAY || nodes[0].len != elements ||
        !query_read_row(node, &folded))
        return false;
    node += WEIR__ROW_NUMBERS;
    if (!query_read_receipt(data, node++, &folded))
        return false;
    folded.granted = folded.allowed ? query->requests[0].cost : 0;
    folded.limit += detail ? 0 : query->withheld[0];
    int64_t most = weir__budget_of(query->requests, query->count).most;
    if (grants && !query_read_granted(node++, most, &folded.granted))
        return false;
    if (acquire)
        folded.lease = (uint64_t)(node++)->integer;
    if (!detail) {
        if (query->rows) {
            query->rows[0] = folded;
            query_complete_rows(query, &folded, query->rows);
        }
        *query->ret = folded;
        return true;
    }
    folded.binding = (uint8_t)(node++)->integer;
    if (folded.binding >= query->limits)
        return false;
    folded.limit += query->withheld[folded.binding];
    for (size_t i = 0; i < query->limits; i++, node += 1 + numbers) {
        if (node->type != WEIR__RESP_ARRAY || node->len != numbers ||
            !query_read_row(node + 1, &row) ||
            (grants && !query_read_granted(node + numbers, WEIR_COST_MAX, &row.granted)))
            return false;
        row.limit += query->withheld[i];
        if (query->rows)
            query->rows[i] = row;
    }
    if (query->rows)
        query_complete_rows(query, &folded, query->rows);
    *query->ret = folded;
    return true;
}

static bool query_is_text(const char *data, const struct weir__resp_node *node, const char *text)
{
    return node->type == WEIR__RESP_BULK && node->len == strlen(text) &&
           !memcmp(data + node->at, text, node->len);
}

/* ["algorithm", its name, then names and numbers alternately] */
static bool query_read_state(const char *data, const struct weir__resp_node *nodes,
                             struct weir__shown *ret)
{
    int64_t numbers[WEIR__SHOWN_NUMBERS];
    int kind = 0;
    if (nodes[0].type != WEIR__RESP_ARRAY || nodes[0].len != 2 + 2 * WEIR__SHOWN_NUMBERS)
        return false;
    while (kind < WEIR__KIND_COUNT &&
           !query_is_text(data, &nodes[2], weir__kind_name((enum weir__kind)kind)))
        kind++;
    for (size_t i = 0; i < WEIR__SHOWN_NUMBERS; i++) {
        const struct weir__resp_node *pair = &nodes[3 + 2 * i];
        if (!query_is_text(data, &pair[0], weir__shown_names[i]) ||
            pair[1].type != WEIR__RESP_INTEGER)
            return false;
        numbers[i] = pair[1].integer;
    }
    weir__shown_of(kind, numbers, ret);
    return kind < WEIR__KIND_COUNT;
}

static bool query_read_show(struct weir__redis_query *query, const char *data,
                            const struct weir__resp_node *nodes)
{
    if (nodes[0].type != WEIR__RESP_ARRAY || nodes[0].len > WEIR_LIMITS_MAX)
        return false;
    for (size_t i = 0; i < nodes[0].len; i++) {
        if (!query_read_state(data, &nodes[1 + i * (3 + 2 * WEIR__SHOWN_NUMBERS)],
                              &query->shown[i]))
            return false;
    }
    query->shown_count = nodes[0].len;
    return true;
}

/* OK, or SETTLED: it was settled before. */
static bool query_read_settled(struct weir__redis_query *query, const char *data,
                               const struct weir__resp_node *nodes)
{
    static const char settled[] = "SETTLED", ok[] = "OK";
    const char *text = data + nodes[0].at;
    if (nodes[0].type != WEIR__RESP_SIMPLE)
        return false;
    query->integer = nodes[0].len == sizeof settled - 1 && !memcmp(text, settled, nodes[0].len);
    return query->integer || (nodes[0].len == sizeof ok - 1 && !memcmp(text, ok, nodes[0].len));
}

void weir__redis_query_read(struct weir__call *call, unsigned i, const char *data,
                            const struct weir__resp_node *nodes)
{
    struct weir__redis_query *query = (struct weir__redis_query *)call;
    bool error = nodes[0].type == WEIR__RESP_ERROR, last = i + 1 == call->replies;
    assert(call->read == weir__redis_query_read && i < call->replies);
    if (WEIR__UNLIKELY(query->never))
        return weir__redis_query_never(query);
    if (error && last)
        return query_fail(query, data + nodes[0].at, nodes[0].len);
    if (error && !query->before[0])
        query_keep_error(query->before, data + nodes[0].at, nodes[0].len);
    if (!last)
        return;
    if (query->before[0] && query->by_module &&
        query->time_us >= 0) /* it was decided by the wrong clock */
        return query_fail(query, query->before, strlen(query->before));
    bool good = true; /* the call's own answer counts, whoever loaded its script */
    if (weir__verb_decides(query->verb))
        good = query_read_decision(query, data, nodes);
    else if (query->verb == WEIR__VERB_SHOW)
        good = query_read_show(query, data, nodes);
    else if (query->verb == WEIR__VERB_SETTLE)
        good = query_read_settled(query, data, nodes);
    else if ((good = nodes[0].type == WEIR__RESP_INTEGER))
        query->integer = nodes[0].integer;
    if (!good) {
        static const char what[] = "WEIRREPLY the server's reply has an unexpected form";
        query_fail(query, what, sizeof what - 1);
    }
}
