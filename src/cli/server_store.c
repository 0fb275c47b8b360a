/* A running server as a store: see server_store.h. docs/SERVER.md describes requests and
 * answers. */
#include "cli/server_store.h"

#include "base/span.h"
#include "cli/http_client.h"
#include "store/store.h"
#include "wire/http1.h"
#include "wire/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAX 4096  /* of an answer */
#define RECEIPT_MAX 512 /* bytes */
#define RECEIPT_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

struct server_store {
    weir_store base;
    struct cli_http http;
    const char *address;
    weir_error why; /* of the last call that failed */
    char receipt[RECEIPT_MAX];
    int64_t now_us;           /* of the server; -1: it did not say */
    struct weir__buffer body; /* of the request */
    struct weir__json json;   /* over the body */
    struct cli_http_reply reply;
    struct weir__json_node nodes[NODES_MAX];
};

static const struct weir__engine server_engine;

static struct server_store *server_of(weir_store *store)
{
    assert(store->engine == &server_engine);
    return (struct server_store *)store;
}

/* ---- requests ---- */

/* Begins the body of a request, {"key":…,"limit":…; both may be NULL. */
static struct weir__json *server_begin(struct server_store *server, const weir_key *key,
                                       const char *limit)
{
    weir__buffer_free(&server->body);
    server->body = weir__buffer_growing();
    server->json = (struct weir__json){&server->body, false};
    weir__json_open(&server->json, NULL, '{');
    if (key)
        weir__json_put_key(&server->json, key->data, key->len);
    if (limit)
        weir__json_put_string(&server->json, "limit", limit);
    return &server->json;
}

static int server_fail(struct server_store *server, int code, const char *format, ...)
    WEIR__PRINTF(3, 4);

static int server_fail(struct server_store *server, int code, const char *format, ...)
{
    char text[sizeof server->why.message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return weir__fail(&server->why, code, 0, "%s: %s", cli_show_text(server->address).text, text);
}

/* Reads the answer into server->nodes; false: it is not a JSON object. */
static bool server_read_answer(struct server_store *server)
{
    int count =
        weir__json_read(server->reply.body, server->reply.len, server->nodes, NODES_MAX, NULL);
    return count > 0 && server->nodes[0].type == WEIR__JSON_OBJECT;
}

static const struct weir__json_node *server_member(const struct server_store *server,
                                                   const struct weir__json_node *object,
                                                   const char *name, enum weir__json_type type)
{
    return weir__json_typed(server->nodes, object, name, type);
}

/* The words of the server, harmless to a terminal, as many as there is room for. */
static void server_put_words(struct weir__buffer *out, const struct weir__json_node *detail)
{
    for (size_t at = 0; at < detail->len && !out->cut;) {
        size_t step = weir__utf8_length(detail->text + at, detail->len - at);
        bool plain = !weir__utf8_is_harmful(detail->text + at, step);
        weir__put(out, plain ? detail->text + at : "?", plain ? step : 1);
        at += step ? step : 1;
    }
}

/* The code for an answer that is not a decision, with the words of the server. */
static int server_fail_answer(struct server_store *server)
{
    int status = server->reply.status;
    const struct weir__json_node *detail =
        server_read_answer(server)
            ? server_member(server, server->nodes, "detail", WEIR__JSON_STRING)
            : NULL;
    char room[sizeof server->why.message];
    struct weir__buffer words = weir__buffer_over(room, sizeof room);
    if (detail)
        server_put_words(&words, detail);
    if (status == 401 || status == 403)
        return server_fail(server, WEIR_ESYSTEM,
                           "the server refuses (status %d): %.100s; use --token TOKEN, or set "
                           "WEIR_TOKEN or WEIR_ADMIN_TOKEN",
                           status, detail ? room : "it needs a token");
    if (!detail)
        return server_fail(
            server, WEIR_ESYSTEM,
            "this is not a weir server: it answered with status %d; use the address of "
            "`weir serve`",
            status);
    int code = status == 404   ? WEIR_ENOLEASE
               : status == 501 ? WEIR_EUNSUPPORTED
               : status < 500  ? WEIR_EINVAL
               : status == 503 ? WEIR_EBUSY
                               : WEIR_ESYSTEM;
    return server_fail(server, code, "%s", room);
}

/* Posts what was begun. 0: the reply has the status of a decision. */
static int server_post(struct server_store *server, const char *path)
{
    weir_error err = {0};
    weir__json_close(&server->json, '}');
    server->why.message[0] = 0;
    if (server->body.cut)
        return server_fail(server, WEIR_ENOMEM, "out of memory");
    int code = cli_http_post(&server->http, path, server->body.data, server->body.len,
                             &server->reply, &err);
    if (code == WEIR_EUNREACHABLE)
        return server_fail(server, code, "%.300s; is `weir serve` running there?", err.message);
    if (code) /* the arguments are not the reason */
        return server_fail(server, code == WEIR_ENOMEM ? code : WEIR_ESYSTEM, "%s", err.message);
    if (server->reply.status != 200 && server->reply.status != 429)
        return server_fail_answer(server);
    return 0;
}

static int server_fail_strange(struct server_store *server)
{
    return server_fail(server, WEIR_ESYSTEM,
                       "this is not a weir server; use the address of `weir serve`");
}

/* The same, and reads the answer. */
static int server_post_and_read(struct server_store *server, const char *path)
{
    int code = server_post(server, path);
    return code || server_read_answer(server) ? code : server_fail_strange(server);
}

/* ---- decisions ---- */

static bool server_read_integer(const struct server_store *server,
                                const struct weir__json_node *object, const char *name,
                                int64_t *ret)
{
    const struct weir__json_node *node = server_member(server, object, name, WEIR__JSON_NUMBER);
    return node && weir__json_integer(node, 0, INT64_MAX, ret);
}

static bool server_read_bool(const struct server_store *server,
                             const struct weir__json_node *object, const char *name, bool *ret)
{
    const struct weir__json_node *node = server_member(server, object, name, WEIR__JSON_BOOL);
    if (node)
        *ret = node->truth;
    return node;
}

static bool server_read_time(const struct server_store *server,
                             const struct weir__json_node *object, const char *name, int64_t *ret)
{
    const struct weir__json_node *node = weir__json_member(server->nodes, object, name);
    *ret = WEIR_NEVER;
    return node && (node->type == WEIR__JSON_NULL || weir__json_seconds(node, ret));
}

/* Servers that do not tell what is granted know no least. */
static bool server_read_decision(const struct server_store *server,
                                 const struct weir__json_node *object, int64_t cost,
                                 weir_decision *ret)
{
    *ret = (weir_decision){0};
    bool sound = server_read_bool(server, object, "allowed", &ret->allowed) &&
                 server_read_integer(server, object, "limit", &ret->limit) &&
                 server_read_integer(server, object, "remaining", &ret->remaining) &&
                 server_read_time(server, object, "retry_after", &ret->retry_after_us) &&
                 server_read_time(server, object, "reset_after", &ret->reset_after_us) &&
                 server_read_time(server, object, "delay", &ret->delay_us);
    if (sound && !server_read_integer(server, object, "granted", &ret->granted))
        ret->granted = ret->allowed ? cost : 0;
    return sound;
}

static bool server_read_rows(const struct server_store *server, size_t count, int64_t cost,
                             weir_decision *rows)
{
    const struct weir__json_node *list =
        server_member(server, server->nodes, "limits", WEIR__JSON_ARRAY);
    if (!list || list->len != count)
        return false;
    const struct weir__json_node *item = list + 1;
    for (size_t i = 0; i < count; i++, item = &server->nodes[item->next]) {
        if (!server_read_decision(server, item, cost, &rows[i]))
            return false;
    }
    return true;
}

/* Only one that can be printed: a server's words do not steer a terminal. */
static void server_keep_receipt(struct server_store *server)
{
    const struct weir__json_node *receipt =
        server_member(server, server->nodes, "receipt", WEIR__JSON_STRING);
    server->receipt[0] = 0;
    if (receipt && receipt->len < sizeof server->receipt &&
        strspn(receipt->text, RECEIPT_LETTERS) == receipt->len)
        memcpy(server->receipt, receipt->text, receipt->len + 1);
}

static int server_take_answer(struct server_store *server, const weir_request *request,
                              weir_decision *ret)
{
    int64_t lease = 0, binding = 0;
    if (!server_read_decision(server, server->nodes, request->cost, ret) ||
        !server_read_bool(server, server->nodes, "degraded", &ret->degraded) ||
        !server_read_integer(server, server->nodes, "binding", &binding))
        return server_fail_strange(server);
    if (request->acquire && (!server_read_integer(server, server->nodes, "lease", &lease)))
        return server_fail_strange(server);
    if (request->detail &&
        !server_read_rows(server, request->limit->count, request->cost, request->detail))
        return server_fail_strange(server);
    server_read_bool(server, server->nodes, "local", &ret->local); /* older servers do not say */
    ret->binding = (uint8_t)weir__min(binding, WEIR_LIMITS_MAX - 1);
    ret->lease = (uint64_t)lease;
    server_keep_receipt(server);
    ret->charged = server->receipt[0] && !ret->degraded ? ret->granted : 0;
    return 0;
}

static int server_decide(weir_store *store, const weir_request *requests, size_t n,
                         enum weir__mode mode, int64_t now, weir_decision *ret)
{
    struct server_store *server = server_of(store);
    (void)now;
    if (n != 1)
        return server_fail(server, WEIR_EUNSUPPORTED, "expected one key at a time");
    struct weir__json *json =
        server_begin(server, &requests->key, weir_limit_text(requests->limit));
    weir__json_put_int(json, "cost", requests->cost);
    if (requests->least)
        weir__json_put_int(json, "least", requests->least);
    if (requests->wait_us == WEIR_WAIT_ANY)
        weir__json_put_string(json, "wait", "any");
    else if (requests->wait_us != WEIR_WAIT_DEFAULT)
        weir__json_put_seconds(json, "wait", requests->wait_us);
    if (requests->detail)
        weir__json_put_bool(json, "detail", true);
    int code = server_post_and_read(server, mode == WEIR__PEEK  ? "/v1/peek"
                                            : requests->acquire ? "/v1/acquire"
                                                                : "/v1/take");
    return code ? code : server_take_answer(server, requests, ret);
}

/* ---- the other verbs ---- */

static int server_change_lease(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                               uint64_t lease, enum weir__lease_verb verb, int64_t now)
{
    struct server_store *server = server_of(store);
    (void)i, (void)now;
    weir__json_put_uint(server_begin(server, &key, weir_limit_text(limit)), "lease", lease);
    return server_post_and_read(server, verb == WEIR__RENEW ? "/v1/renew" : "/v1/release");
}

static int server_reset(weir_store *store, weir_key key, int64_t now, bool *ret)
{
    struct server_store *server = server_of(store);
    (void)now;
    server_begin(server, &key, NULL);
    int code = server_post_and_read(server, "/v1/reset");
    if (code)
        return code;
    return server_read_bool(server, server->nodes, "reset", ret) ? 0 : server_fail_strange(server);
}

/* A state as /v1/show prints it. A zone keeps the whole limit, Redis only a part of it. */
static bool server_read_shown(const struct server_store *server,
                              const struct weir__json_node *object, struct weir__shown *ret)
{
    const struct weir__json_node *name =
        server_member(server, object, "algorithm", WEIR__JSON_STRING);
    const struct weir__json_node *limit = weir__json_member(server->nodes, object, "limit");
    int64_t numbers[WEIR__SHOWN_NUMBERS];
    int kind = 0;
    while (name && kind < WEIR__KIND_COUNT &&
           strcmp(name->text, weir__kind_name((enum weir__kind)kind)) != 0)
        kind++;
    for (size_t i = 0; i < WEIR__SHOWN_NUMBERS; i++) {
        if (!server_read_integer(server, object, weir__shown_names[i], &numbers[i]))
            return false;
    }
    if (!name || kind == WEIR__KIND_COUNT)
        return false;
    weir__shown_of(kind, numbers, ret);
    if (!server_read_integer(server, object, "remaining", &ret->remaining))
        ret->remaining = -1;
    if (!server_read_time(server, object, "retry_after", &ret->retry_after_us))
        ret->retry_after_us = -1; /* an older one */
    struct weir__rule rules[WEIR_LIMITS_MAX];
    size_t count;
    if (!limit)
        return true;
    ret->whole = limit->type == WEIR__JSON_STRING &&
                 weir__rules_parse(limit->text, rules, &count, NULL) == 0 && count == 1;
    if (ret->whole)
        ret->rule = rules[0];
    return ret->whole;
}

static int server_show(weir_store *store, weir_key key, int64_t now, struct weir__shown *ret,
                       size_t *ret_count)
{
    struct server_store *server = server_of(store);
    (void)now;
    server_begin(server, &key, NULL);
    int code = server_post_and_read(server, "/v1/show");
    if (code)
        return code;
    if (!server_read_integer(server, server->nodes, "now", &server->now_us))
        server->now_us = -1; /* an older one */
    const struct weir__json_node *list =
        server_member(server, server->nodes, "states", WEIR__JSON_ARRAY);
    if (!list || list->len > WEIR__SHOWN_MAX)
        return server_fail_strange(server);
    const struct weir__json_node *item = list + 1;
    for (size_t i = 0; i < list->len; i++, item = &server->nodes[item->next]) {
        if (!server_read_shown(server, item, &ret[i]))
            return server_fail_strange(server);
    }
    *ret_count = list->len;
    return 0;
}

/* "path=/login&user=ann" as an object. False: the text is wrong, or there is no memory. */
static bool server_put_attributes(struct weir__json *json, const char *text)
{
    struct weir__query query = {weir__span_of(text), false};
    struct weir__span name, value;
    char *room = malloc(strlen(text) + 1);
    if (!room)
        return false;
    weir__json_open(json, "attributes", '{');
    while (weir__query_next(&query, room, &name, &value)) {
        char word[256];
        if (name.len >= sizeof word || memchr(name.data, 0, name.len)) {
            query.bad = true;
            break;
        }
        memcpy(word, name.data, name.len);
        word[name.len] = 0;
        weir__json_put_text(json, word, value.data, value.len);
    }
    weir__json_close(json, '}');
    free(room);
    return !query.bad;
}

/* What is wrong with attributes that could not be put. */
static int server_fail_attributes(struct server_store *server, const char *text)
{
    return weir__fail(&server->why, WEIR_EINVAL, 0,
                      "invalid --request \"%s\": expected NAME=VALUE&NAME=VALUE, encoded like a "
                      "query",
                      cli_show_text(text).text);
}

/* Begins the body of a settle or refund. NULL: the attributes are wrong. */
static struct weir__json *server_begin_charge(struct server_store *server,
                                              const struct cli_server_charge *charge)
{
    struct weir__json *json = server_begin(server, charge->key, charge->limit);
    if (charge->policy)
        weir__json_put_string(json, "policy", charge->policy);
    if (charge->attributes && !server_put_attributes(json, charge->attributes)) {
        server_fail_attributes(server, charge->attributes);
        return NULL;
    }
    return json;
}

int cli_server_settle(weir_store *store, const struct cli_server_settle *settle, weir_error *err)
{
    struct server_store *server = server_of(store);
    struct weir__json *json = server_begin_charge(server, &settle->charge);
    bool before = false;
    int code = json ? 0 : WEIR_EINVAL;
    if (json) {
        if (settle->cost >= 0)
            weir__json_put_int(json, "cost", settle->cost);
        if (settle->least > 0)
            weir__json_put_int(json, "least", settle->least);
        weir__json_put_string(json, "receipt", settle->receipt);
        weir__json_put_int(json, "actual", settle->actual);
        code = server_post_and_read(server, "/v1/settle");
    }
    if (code == 0 && server_read_bool(server, server->nodes, "before", &before) && before)
        return WEIR_ESETTLED;
    *err = server->why;
    return code;
}

/* What a row says was used, and which other limit it was last charged under, if any. */
static void server_read_used(const struct server_store *server, const struct weir__json_node *row,
                             struct cli_refunded *ret)
{
    const struct weir__json_node *last =
        server_member(server, row, "last_charged", WEIR__JSON_OBJECT);
    const struct weir__json_node *text =
        last ? server_member(server, last, "text", WEIR__JSON_STRING) : NULL;
    if (!server_read_integer(server, row, "used", &ret->used))
        ret->used = -1; /* an older server, or its store does not know */
    if (text && server_read_integer(server, last, "limit", &ret->last_limit) &&
        server_read_integer(server, last, "remaining", &ret->last_remaining))
        ret->last = text->text;
}

int cli_server_refund(weir_store *store, const struct cli_server_refund *refund,
                      struct cli_refunded ret[WEIR_LIMITS_MAX], size_t *ret_count)
{
    struct server_store *server = server_of(store);
    struct weir__json *json = server_begin_charge(server, &refund->charge);
    if (!json)
        return WEIR_EINVAL;
    if (refund->id)
        weir__json_put_string(json, "id", refund->id);
    weir__json_put_int(json, "amount", refund->amount);
    int code = server_post_and_read(server, "/v1/refund");
    bool before = false;
    if (code)
        return code;
    server_read_bool(server, server->nodes, "before", &before);
    const struct weir__json_node *rows =
        server_member(server, server->nodes, "limits", WEIR__JSON_ARRAY);
    if (!rows || rows->len < 1 || rows->len > WEIR_LIMITS_MAX)
        return server_fail_strange(server);
    const struct weir__json_node *row = rows + 1;
    for (size_t i = 0; i < rows->len; i++, row = &server->nodes[row->next]) {
        const struct weir__json_node *name = server_member(server, row, "name", WEIR__JSON_STRING);
        const struct weir__json_node *text = server_member(server, row, "text", WEIR__JSON_STRING);
        ret[i] =
            (struct cli_refunded){.name = name ? name->text : NULL, .text = text ? text->text : ""};
        if (!text || !server_read_integer(server, row, "given", &ret[i].given) ||
            !server_read_integer(server, row, "limit", &ret[i].limit) ||
            !server_read_integer(server, row, "remaining", &ret[i].remaining))
            return server_fail_strange(server);
        server_read_used(server, row, &ret[i]);
    }
    *ret_count = rows->len;
    return before ? WEIR_ESETTLED : 0;
}

static bool server_why(weir_store *store, weir_error *err)
{
    *err = server_of(store)->why;
    return err->message[0] != 0;
}

static void server_close(weir_store *store)
{
    cli_http_close(&server_of(store)->http);
    weir__buffer_free(&server_of(store)->body);
    free(store);
}

static const struct weir__engine server_engine = {
    .decide = server_decide,
    .change_lease = server_change_lease,
    .reset = server_reset,
    .show = server_show,
    .why = server_why,
    .close = server_close,
};

bool cli_is_server(const weir_store *store)
{
    return store->engine == &server_engine;
}

const char *cli_server_receipt(const weir_store *store)
{
    const struct server_store *server = (const struct server_store *)store;
    return cli_is_server(store) && server->receipt[0] ? server->receipt : NULL;
}

int64_t cli_server_now(const weir_store *store)
{
    assert(cli_is_server(store));
    return ((const struct server_store *)store)->now_us;
}

/* ---- explain ---- */

int cli_server_explain(weir_store *store, const struct cli_server_question *question,
                       struct weir__span *ret)
{
    struct server_store *server = server_of(store);
    struct weir__json *json = server_begin(server, question->key, question->limits);
    if (question->policy)
        weir__json_put_string(json, "policy", question->policy);
    if (question->attributes && !server_put_attributes(json, question->attributes))
        return server_fail_attributes(server, question->attributes);
    int code = server_post(server, "/v1/explain");
    *ret = (struct weir__span){server->reply.body, server->reply.len};
    return code;
}

/* ---- opening ---- */

const char *cli_token(const char *given)
{
    const char *const admin = getenv("WEIR_ADMIN_TOKEN"), *const data = getenv("WEIR_TOKEN");
    return given ? given : admin && *admin ? admin : data && *data ? data : NULL;
}

static int server_open(const struct cli_call *call, const struct cli_server *where,
                       weir_store **ret)
{
    weir_error err = {0};
    struct server_store *server = calloc(1, sizeof *server);
    if (!server)
        return cli_fail(call, CLI_FAILED, "out of memory");
    if (cli_http_open(where->url, cli_token(where->token), &server->http, &err)) {
        free(server);
        return cli_fail(call, CLI_USAGE, "--server: %s", err.message);
    }
    server->base.engine = &server_engine;
    server->address = where->url;
    *ret = &server->base;
    return CLI_OK;
}

int cli_open_server_or_store(const struct cli_call *call, const struct cli_server *server,
                             const char *url, weir_store **ret)
{
    if (server->url && url)
        return cli_fail(call, CLI_USAGE,
                        "--server and --store exclude each other: a server has its own store");
    if (server->token && !server->url)
        return cli_fail(call, CLI_USAGE, "--token needs --server URL");
    return server->url ? server_open(call, server, ret) : cli_open_store(call, url, ret);
}
