/* Parameters of a request by their names, from a query or from JSON. See http.h. */
#include "server/http/http.h"

#include "base/duration.h"
#include "policy/view.h"

#include <string.h>

void server_params_begin(const struct server_conn *conn, struct server_params *ret)
{
    memset(ret, 0, offsetof(struct server_params, said));
    ret->said_count = 0;
    ret->cost = SERVER_COST_UNSAID;
    ret->wait_us = WEIR_WAIT_DEFAULT;
    ret->actual = -1;
    ret->style = conn->thread->server->config.style;
}

static int params_shown(struct weir__span text)
{
    return (int)(text.len > 60 ? 60 : text.len);
}

static void params_read_whole(struct weir__span value, const char *what, int64_t least,
                              int64_t most, int64_t *ret, struct weir__buffer *why)
{
    weir_error err;
    if (weir__read_whole(value, what, least, most, ret, &err))
        weir__put_text(why, err.message);
}

/* Seconds as JSON writes numbers. */
static bool params_read_seconds(struct weir__span value, int64_t *ret)
{
    struct weir__json_node number;
    weir_error err;
    char copy[32];
    if (value.len > sizeof copy)
        return false;
    memcpy(copy, value.data, value.len);
    return weir__json_read(copy, value.len, &number, 1, &err) == 1 &&
           number.type == WEIR__JSON_NUMBER && weir__json_seconds(&number, ret) &&
           *ret <= WEIR_DURATION_MAX;
}

/* Seconds as decimals, a duration with its unit, or any. */
static void params_read_wait(struct weir__span value, int64_t *ret, struct weir__buffer *why)
{
    const char *reason;
    if (weir__span_is_word(value, "any"))
        *ret = WEIR_WAIT_ANY;
    else if (params_read_seconds(value, ret))
        return;
    else if (value.len == 0 || value.len > 64 ||
             weir__wait_parse(value.data, value.len, ret, &reason) != value.len)
        weir__put_format(
            why,
            "wait must be seconds up to 366 days (0.5), a duration (500ms) or any, not "
            "\"%.*s\"",
            params_shown(value), value.data);
}

static void params_read_flag(struct weir__span value, const char *what, bool *ret,
                             struct weir__buffer *why)
{
    if (weir__span_is(value, "1") || weir__span_is_word(value, "true") || value.len == 0)
        *ret = true;
    else if (weir__span_is(value, "0") || weir__span_is_word(value, "false"))
        *ret = false;
    else
        weir__put_format(why, "%s must be true or false, not \"%.*s\"", what, params_shown(value),
                         value.data);
}

static void params_read_deny_status(struct weir__span value, int *ret, struct weir__buffer *why)
{
    int64_t status = 0;
    params_read_whole(value, "deny_status", 400, 599, &status, why);
    *ret = (int)status;
}

static void params_read_style(struct weir__span value, struct server_params *params,
                              struct weir__buffer *why)
{
    params->styled = weir__field_style_read(value.data, value.len, &params->style);
    if (!params->styled)
        weir__put_format(why, "headers must be ietf, ietf-06, x-ratelimit or off, not \"%.*s\"",
                         params_shown(value), value.data);
}

/* Every parameter there is; each may be given once. */
enum param {
    PARAM_KEY,
    PARAM_LIMIT,
    PARAM_POLICY,
    PARAM_KEY_FROM,
    PARAM_COST,
    PARAM_WAIT,
    PARAM_DENY_STATUS,
    PARAM_HEADERS,
    PARAM_HOLD,
    PARAM_DETAIL,
    PARAM_RECEIPT,
    PARAM_ACTUAL,
    PARAM_LEASE,
    PARAMS
};

static enum param params_which(struct weir__span name)
{
    static const char *const names[PARAMS] = {
        [PARAM_KEY] = "key",
        [PARAM_LIMIT] = "limit",
        [PARAM_POLICY] = "policy",
        [PARAM_KEY_FROM] = "key_from",
        [PARAM_COST] = "cost",
        [PARAM_WAIT] = "wait",
        [PARAM_DENY_STATUS] = "deny_status",
        [PARAM_HEADERS] = "headers",
        [PARAM_HOLD] = "hold",
        [PARAM_DETAIL] = "detail",
        [PARAM_RECEIPT] = "receipt",
        [PARAM_ACTUAL] = "actual",
        [PARAM_LEASE] = "lease",
    };
    enum param param = PARAM_KEY;
    while (param < PARAMS && !weir__span_is(name, names[param]))
        param++;
    return param;
}

/* Notes that it is given; twice is an error: two readers could go by different ones. */
static bool params_once(struct server_params *params, enum param param, struct weir__span name,
                        struct weir__buffer *why)
{
    if (params->given & 1u << param) {
        weir__put_format(why, "\"%.*s\" is given twice", params_shown(name), name.data);
        return false;
    }
    params->given |= 1u << param;
    return true;
}

bool server_params_set(struct server_params *params, struct weir__span name,
                       struct weir__span value, struct weir__buffer *why)
{
    enum param param = params_which(name);
    if (param == PARAMS)
        return false;
    if (!params_once(params, param, name, why))
        return true;
    switch (param) {
    case PARAM_KEY:
        params->key = value;
        params->has_key = true;
        break;
    case PARAM_LIMIT:
        params->limit = value;
        params->has_limit = true;
        break;
    case PARAM_POLICY:
        params->policy = value;
        params->has_policy = true;
        break;
    case PARAM_KEY_FROM:
        weir__attribute_fold((char *)value.data, value.len); /* decoded, or the body: ours */
        params->key_from = value;
        params->has_key_from = true;
        break;
    case PARAM_COST:
        params_read_whole(value, "cost", 0, WEIR_COST_MAX, &params->cost, why);
        break;
    case PARAM_WAIT:
        params_read_wait(value, &params->wait_us, why);
        break;
    case PARAM_DENY_STATUS:
        params_read_deny_status(value, &params->deny_status, why);
        break;
    case PARAM_HEADERS:
        params_read_style(value, params, why);
        break;
    case PARAM_HOLD:
        params_read_flag(value, "hold", &params->hold, why);
        break;
    case PARAM_DETAIL:
        params_read_flag(value, "detail", &params->detail, why);
        break;
    case PARAM_RECEIPT:
        params->receipt = value;
        params->has_receipt = true;
        break;
    case PARAM_ACTUAL:
        params_read_whole(value, "actual", 0, WEIR_COST_MAX, &params->actual, why);
        break;
    case PARAM_LEASE:
        params_read_whole(value, "lease", 1, (int64_t)WEIR__LEASE_MASK, &params->lease, why);
        break;
    case PARAMS:
        break;
    }
    return true;
}

/* ---- queries ---- */

static bool params_bad(struct server_conn *conn, struct server_response *ret, const char *why)
{
    server_count(&conn->thread->counters->faults[SERVER_HTTP][SERVER_FAULT_INVALID], 1);
    server_response_problem(ret, 400, "%s", why);
    return false;
}

/* attr.NAME=value; what is wrong goes to why. */
static void params_add_said(struct server_params *params, struct weir__span name,
                            struct weir__span value, struct weir__buffer *why)
{
    weir__attribute_fold((char *)name.data, name.len);
    for (size_t i = 0; i < params->said_count; i++) {
        if (params->said[i].name.len == name.len &&
            !memcmp(params->said[i].name.data, name.data, name.len)) {
            weir__put_format(why, "\"attr.%.*s\" is given twice", params_shown(name), name.data);
            return;
        }
    }
    if (params->said_count == SERVER_ATTRIBUTES_MAX) {
        weir__put_text(why, "at most 32 attributes per request");
        return;
    }
    params->said[params->said_count].name = name;
    params->said[params->said_count++].value = value;
}

bool server_params_query(struct server_conn *conn, const struct weir__http_request *request,
                         struct server_params *params, struct server_response *ret)
{
    struct weir__query query = {request->query, false};
    struct weir__span name, value;
    char text[400];
    struct weir__buffer why = weir__buffer_over(text, sizeof text);
    if (!request->query.data)
        return true;
    char *room = server_batch_room(conn, request->query.len);
    if (!room)
        return params_bad(conn, ret, "the query is too long");
    while (weir__query_next(&query, room, &name, &value)) {
        room += name.len + value.len;
        if (name.len > 5 && !memcmp(name.data, "attr.", 5))
            params_add_said(params, (struct weir__span){name.data + 5, name.len - 5}, value, &why);
        else if (!server_params_set(params, name, value, &why))
            weir__put_format(&why,
                             "unknown parameter \"%.*s\": expected key, key_from, limit, policy, "
                             "cost, wait, hold, detail, headers, deny_status or attr.NAME",
                             params_shown(name), name.data);
        if (why.len > 0)
            return params_bad(conn, ret, text);
    }
    return !query.bad || params_bad(conn, ret, "the query has a broken % escape");
}

/* ---- JSON ---- */

static bool params_set_key_base64(struct weir__span value, struct server_params *params)
{
    int64_t len =
        weir__base64_decode((char *)value.data, value.len); /* the body is ours to change */
    if (len < 0)
        return false;
    params->key = (struct weir__span){value.data, (size_t)len};
    return params->has_key = true;
}

/* Whether another of an object's names is that of node i. */
static bool params_is_twice(const struct weir__json_node *nodes,
                            const struct weir__json_node *object, uint32_t i)
{
    for (uint32_t j = (uint32_t)(object - nodes) + 1; j < object->next; j = nodes[j + 1].next) {
        if (j != i && nodes[j].len == nodes[i].len &&
            !memcmp(nodes[j].text, nodes[i].text, nodes[i].len))
            return true;
    }
    return false;
}

/* Attributes are single values, with names in one spelling: the body is ours to change. */
static void params_set_attributes(struct server_params *params,
                                  const struct weir__json_node *object, struct weir__buffer *why)
{
    const struct weir__json_node *nodes = params->nodes;
    uint32_t first = (uint32_t)(object - nodes) + 1;
    params->attributes = object;
    for (uint32_t i = first; i < object->next && why->len == 0; i = nodes[i + 1].next) {
        struct weir__span name = {nodes[i].text, nodes[i].len};
        enum weir__json_type type = nodes[i + 1].type;
        weir__attribute_fold((char *)name.data, name.len);
        if (type == WEIR__JSON_OBJECT || type == WEIR__JSON_ARRAY)
            weir__put_format(why,
                             "attribute \"%.*s\" cannot be %s: an attribute is a text, a number, "
                             "true, false or null",
                             params_shown(name), name.data,
                             type == WEIR__JSON_OBJECT ? "an object" : "an array");
    }
    /* Names that JSON told apart may be the same now. Only fields' and a server's own are
     * folded. */
    for (uint32_t i = first; i < object->next && why->len == 0; i = nodes[i + 1].next) {
        bool folds = nodes[i].len > 7 ? !memcmp(nodes[i].text, "header.", 7) : nodes[i].len <= 6;
        if (folds && params_is_twice(nodes, object, i))
            weir__put_format(why, "attribute \"%.*s\" is given twice, in another spelling",
                             (int)weir__min((int64_t)nodes[i].len, 60), nodes[i].text);
    }
}

static void params_set_member(struct server_params *params, struct weir__span name,
                              const struct weir__json_node *node, struct weir__buffer *why)
{
    struct weir__span value = {node->text, node->len};
    bool object = node->type == WEIR__JSON_OBJECT, array = node->type == WEIR__JSON_ARRAY;
    if (weir__span_is(name, "attributes") && object) {
        params_set_attributes(params, node, why);
    } else if (weir__span_is(name, "requests") && array) {
        params->requests = node;
    } else if (object || array || node->type == WEIR__JSON_NULL) {
        weir__put_format(why, "\"%.*s\" cannot be %s", params_shown(name), name.data,
                         object  ? "an object"
                         : array ? "an array"
                                 : "null");
    } else if (weir__span_is(name, "key_base64")) {
        if (!params_once(params, PARAM_KEY, weir__span_of("key"), why))
            return;
        if (node->type != WEIR__JSON_STRING || !params_set_key_base64(value, params))
            weir__put_text(why, "key_base64 is not base64");
    } else {
        if (node->type == WEIR__JSON_BOOL)
            value = weir__span_of(node->truth ? "true" : "false");
        int64_t whole; /* 1e3 and 1.0 are whole numbers in JSON */
        char digits[24];
        struct weir__buffer text = weir__buffer_over(digits, sizeof digits);
        if (node->type == WEIR__JSON_NUMBER && !weir__span_is(name, "wait") &&
            weir__json_integer(node, 0, INT64_MAX, &whole)) {
            weir__put_int(&text, whole);
            value = (struct weir__span){digits, text.len};
        }
        bool wants_text = weir__span_is(name, "key") || weir__span_is(name, "limit") ||
                          weir__span_is(name, "policy") || weir__span_is(name, "key_from") ||
                          weir__span_is(name, "receipt");
        if (wants_text && node->type != WEIR__JSON_STRING)
            weir__put_format(why, "\"%.*s\" must be a string", params_shown(name), name.data);
        else if (!server_params_set(params, name, value, why))
            weir__put_format(why, "unknown member \"%.*s\"", params_shown(name), name.data);
    }
}

bool server_params_json(struct server_conn *conn, struct weir__http_request *request,
                        struct weir__json_node *nodes, struct server_params *params,
                        struct server_response *ret)
{
    weir_error err;
    char text[640];
    struct weir__buffer why = weir__buffer_over(text, sizeof text);
    int count = weir__json_read((char *)request->body.data, request->body.len, nodes,
                                SERVER_JSON_NODES, &err);
    if (count < 0) {
        weir__put_format(&why, "the body is not JSON: %.500s", err.message);
        return params_bad(conn, ret, text);
    }
    if (nodes[0].type != WEIR__JSON_OBJECT)
        return params_bad(conn, ret, "the body must be a JSON object, like {\"key\":\"user:42\"}");
    params->nodes = nodes;
    for (uint32_t i = 1; i < nodes[0].next;) {
        struct weir__span name = {nodes[i].text, nodes[i].len};
        params_set_member(params, name, &nodes[i + 1], &why);
        if (why.len > 0)
            return params_bad(conn, ret, text);
        i = nodes[i + 1].next;
    }
    return true;
}
