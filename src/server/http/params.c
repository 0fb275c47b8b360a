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

/* ---- the parameters there are ---- */

struct reading;

struct param {
    const char *name;
    void (*read)(const struct reading *it);
    size_t at;           /* where it goes in struct server_params */
    int64_t least, most; /* of a number */
};

/* A value being read into `ret`; what is wrong with it goes to why. */
struct reading {
    const struct param *param;
    struct weir__span value;
    void *ret;
    struct weir__buffer *why;
};

static void params_read_text(const struct reading *it)
{
    *(struct weir__span *)it->ret = it->value;
}

/* The name of an attribute; the text is ours: decoded, or the body. */
static void params_read_name(const struct reading *it)
{
    weir__attribute_fold((char *)it->value.data, it->value.len);
    params_read_text(it);
}

static void params_read_whole(const struct reading *it)
{
    weir_error err;
    if (weir__read_whole(it->value, it->param->name, it->param->least, it->param->most, it->ret,
                         &err))
        weir__put_text(it->why, err.message);
}

/* Seconds as decimals, a duration with its unit, or any. */
static void params_read_wait(const struct reading *it)
{
    struct weir__span value = it->value;
    int64_t *wait_us = it->ret;
    const char *reason;
    if (weir__span_is_word(value, "any"))
        *wait_us = WEIR_WAIT_ANY;
    else if (!params_read_seconds(value, wait_us) &&
             (value.len == 0 || value.len > 64 ||
              weir__wait_parse(value.data, value.len, wait_us, &reason) != value.len))
        weir__put_format(it->why,
                         "wait must be seconds up to 366 days (0.5), a duration (500ms) or any, "
                         "not \"%.*s\"",
                         params_shown(value), value.data);
}

static void params_read_flag(const struct reading *it)
{
    struct weir__span value = it->value;
    bool no = weir__span_is(value, "0") || weir__span_is_word(value, "false");
    *(bool *)it->ret = !no;
    if (!no && !weir__span_is(value, "1") && !weir__span_is_word(value, "true") && value.len > 0)
        weir__put_format(it->why, "%s must be true or false, not \"%.*s\"", it->param->name,
                         params_shown(value), value.data);
}

static void params_read_style(const struct reading *it)
{
    if (!weir__field_style_read(it->value.data, it->value.len, it->ret))
        weir__put_format(
            it->why,
            "headers must be ietf, ietf-06, x-ratelimit, openai, retry-after or off, not "
            "\"%.*s\"",
            params_shown(it->value), it->value.data);
}

#define AT(member) offsetof(struct server_params, member)

static const struct param all_params[PARAMS] = {
    [PARAM_KEY] = {"key", params_read_text, AT(key), 0, 0},
    [PARAM_LIMIT] = {"limit", params_read_text, AT(limit), 0, 0},
    [PARAM_POLICY] = {"policy", params_read_text, AT(policy), 0, 0},
    [PARAM_KEY_FROM] = {"key_from", params_read_name, AT(key_from), 0, 0},
    [PARAM_COST] = {"cost", params_read_whole, AT(cost), 0, WEIR_COST_MAX},
    [PARAM_LEAST] = {"least", params_read_whole, AT(least), 1, WEIR_COST_MAX},
    [PARAM_WAIT] = {"wait", params_read_wait, AT(wait_us), 0, 0},
    [PARAM_DENY_STATUS] = {"deny_status", params_read_whole, AT(deny_status), 400, 599},
    [PARAM_HEADERS] = {"headers", params_read_style, AT(style), 0, 0},
    [PARAM_HOLD] = {"hold", params_read_flag, AT(hold), 0, 0},
    [PARAM_DETAIL] = {"detail", params_read_flag, AT(detail), 0, 0},
    [PARAM_ACQUIRE] = {"acquire", params_read_flag, AT(acquire), 0, 0},
    [PARAM_RECEIPT] = {"receipt", params_read_text, AT(receipt), 0, 0},
    [PARAM_ACTUAL] = {"actual", params_read_whole, AT(actual), 0, WEIR_COST_MAX},
    [PARAM_AMOUNT] = {"amount", params_read_whole, AT(amount), 1, WEIR_COST_MAX},
    [PARAM_ID] = {"id", params_read_text, AT(id), 0, 0},
    [PARAM_LEASE] = {"lease", params_read_whole, AT(lease), 1, (int64_t)WEIR__LEASE_MASK},
};

/* NULL: it is not one. */
static const struct param *params_find(struct weir__span name)
{
    for (size_t i = 0; i < PARAMS; i++) {
        if (weir__span_is(name, all_params[i].name))
            return &all_params[i];
    }
    return NULL;
}

/* Notes that it is given; twice is an error: two readers could go by different ones. */
static bool params_once(struct server_params *params, const struct param *param,
                        struct weir__buffer *why)
{
    bool *has = &params->has[param - all_params];
    if (*has)
        weir__put_format(why, "\"%s\" is given twice", param->name);
    *has = true;
    return why->len == 0;
}

static void params_set(struct server_params *params, const struct param *param,
                       struct weir__span value, struct weir__buffer *why)
{
    const struct reading it = {param, value, (char *)params + param->at, why};
    if (params_once(params, param, why))
        param->read(&it);
}

/* ---- queries ---- */

static bool params_bad(const struct server_http_call *call, const char *why)
{
    server_http_refuse(call, 400, why);
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

bool server_params_query(const struct server_http_call *call, struct server_params *params)
{
    struct weir__query query = {call->request->query, false};
    struct weir__span name, value;
    char text[400];
    struct weir__buffer why = weir__buffer_over(text, sizeof text);
    if (!query.rest.data)
        return true;
    char *room = server_batch_room(call->conn, query.rest.len);
    if (!room)
        return params_bad(call, "the query is too long");
    while (weir__query_next(&query, room, &name, &value)) {
        const struct param *param = params_find(name);
        room += name.len + value.len;
        if (name.len > 5 && !memcmp(name.data, "attr.", 5))
            params_add_said(params, (struct weir__span){name.data + 5, name.len - 5}, value, &why);
        else if (param)
            params_set(params, param, value, &why);
        else
            weir__put_format(&why,
                             "unknown parameter \"%.*s\": expected key, key_from, limit, policy, "
                             "cost, least, wait, hold, detail, headers, deny_status or attr.NAME",
                             params_shown(name), name.data);
        if (why.len > 0)
            return params_bad(call, text);
    }
    return !query.bad || params_bad(call, "the query has a broken % escape");
}

/* ---- JSON ---- */

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

/* A text, a number, or a truth value. */
static void params_set_single(struct server_params *params, struct weir__span name,
                              const struct weir__json_node *node, struct weir__buffer *why)
{
    const struct param *param = params_find(name);
    struct weir__span value = {node->text, node->len};
    int64_t whole; /* 1e3 and 1.0 are whole numbers in JSON */
    char digits[24];
    struct weir__buffer text = weir__buffer_over(digits, sizeof digits);
    if (node->type == WEIR__JSON_BOOL)
        value = weir__span_of(node->truth ? "true" : "false");
    if (node->type == WEIR__JSON_NUMBER && !weir__span_is(name, "wait") &&
        weir__json_integer(node, 0, INT64_MAX, &whole)) {
        weir__put_int(&text, whole);
        value = (struct weir__span){digits, text.len};
    }
    if (!param)
        weir__put_format(why, "unknown member \"%.*s\"%s", params_shown(name), name.data,
                         node->type == WEIR__JSON_OBJECT ? ": did you mean attributes?" : "");
    else if (node->type != WEIR__JSON_STRING &&
             (param->read == params_read_text || param->read == params_read_name))
        weir__put_format(why, "\"%s\" must be a string", param->name);
    else
        params_set(params, param, value, why);
}

static bool params_is_known(struct weir__span name)
{
    return params_find(name) || weir__span_is(name, "attributes") ||
           weir__span_is(name, "requests") || weir__span_is(name, "key_base64");
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
    } else if ((object || array || node->type == WEIR__JSON_NULL) && params_is_known(name)) {
        weir__put_format(why, "\"%.*s\" cannot be %s", params_shown(name), name.data,
                         object  ? "an object"
                         : array ? "an array"
                                 : "null");
    } else if (weir__span_is(name, "key_base64")) {
        if (!params_once(params, &all_params[PARAM_KEY], why))
            return;
        int64_t len =
            node->type == WEIR__JSON_STRING
                ? weir__base64_decode((char *)value.data, value.len) /* the body is ours */
                : -1;
        params->key = (struct weir__span){value.data, (size_t)len};
        if (len < 0)
            weir__put_text(why, "key_base64 is not base64");
    } else {
        params_set_single(params, name, node, why);
    }
}

bool server_params_json(const struct server_http_call *call, struct server_params *params)
{
    struct weir__json_node *nodes = call->conn->thread->nodes;
    weir_error err;
    char text[640];
    struct weir__buffer why = weir__buffer_over(text, sizeof text);
    int count = weir__json_read((char *)call->request->body.data, call->request->body.len, nodes,
                                SERVER_JSON_NODES, &err);
    if (count < 0)
        weir__put_format(&why, "the body is not JSON: %.500s", err.message);
    else if (nodes[0].type != WEIR__JSON_OBJECT)
        weir__put_text(&why, "the body must be a JSON object, like {\"key\":\"user:42\"}");
    params->nodes = nodes;
    for (uint32_t i = 1; why.len == 0 && i < nodes[0].next; i = nodes[i + 1].next)
        params_set_member(params, (struct weir__span){nodes[i].text, nodes[i].len}, &nodes[i + 1],
                          &why);
    return why.len == 0 || params_bad(call, text);
}
