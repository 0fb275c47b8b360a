/* A running server as a store: see server_store.h. Questions and answers are docs/SERVER.md's. */
#include "cli/server_store.h"

#include "base/span.h"
#include "cli/http_client.h"
#include "store/store.h"
#include "wire/http1.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>

#define NODES_MAX 4096  /* of an answer */
#define RECEIPT_MAX 512 /* bytes */
#define BODY_SPARE 1024 /* of a question, beside its texts */
#define ESCAPED_MAX 6   /* bytes that one byte may take in JSON */
#define ATTRIBUTES_MAX 64

struct server_store {
    weir_store base;
    struct cli_http http;
    const char *address;
    weir_error why; /* of the last call that failed */
    char receipt[RECEIPT_MAX];
    struct cli_http_reply reply;
    struct weir__json_node nodes[NODES_MAX];
};

static struct server_store *server_of(weir_store *store)
{
    return (struct server_store *)store;
}

/* ---- asking ---- */

/* A question on its way. */
struct body {
    struct weir__buffer text;
    struct weir__json json;
};

static bool begin(struct body *body, size_t bytes)
{
    size_t room = bytes * ESCAPED_MAX + BODY_SPARE;
    char *text = malloc(room);
    if (!text)
        return false;
    body->text = weir__buffer_over(text, room);
    body->json = (struct weir__json){&body->text, false};
    weir__json_open(&body->json, NULL, '{');
    return true;
}

static void put(struct body *body, const char *name, const char *text)
{
    weir__json_put_text(&body->json, name, text, strlen(text));
}

static bool begin_for(struct body *body, weir_key key, const weir_limit *limit, size_t more)
{
    const char *text = limit ? weir_limit_text(limit) : "";
    if (!begin(body, key.len + strlen(text) + more))
        return false;
    weir__json_put_key(&body->json, key.data, key.len);
    if (limit)
        put(body, "limit", text);
    return true;
}

static int fail(struct server_store *server, int code, const char *format, ...) WEIR__PRINTF(3, 4);

static int fail(struct server_store *server, int code, const char *format, ...)
{
    char text[sizeof server->why.message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return weir__fail(&server->why, code, 0, "%s: %s", cli_show_text(server->address).text, text);
}

/* The code for an answer that is no decision, with the server's own words. */
static int refused(struct server_store *server)
{
    const struct weir__json_node *detail = NULL;
    int status = server->reply.status;
    if (status == 401 || status == 403)
        return fail(server, WEIR_ESYSTEM,
                    "it wants a token (status %d): say --token TOKEN, or set WEIR_TOKEN or "
                    "WEIR_ADMIN_TOKEN",
                    status);
    int count =
        weir__json_read(server->reply.body, server->reply.len, server->nodes, NODES_MAX, NULL);
    if (count > 0 && server->nodes[0].type == WEIR__JSON_OBJECT)
        detail = weir__json_member(server->nodes, server->nodes, "detail");
    if (!detail || detail->type != WEIR__JSON_STRING)
        return fail(server, WEIR_ESYSTEM,
                    "something answers there, but not as weir does: status %d; say the address of "
                    "`weir serve`",
                    status);
    int code = status == 404   ? WEIR_ENOLEASE
               : status == 501 ? WEIR_EUNSUPPORTED
               : status < 500  ? WEIR_EINVAL
               : status == 503 ? WEIR_EBUSY
                               : WEIR_ESYSTEM;
    char words[sizeof server->why.message];
    size_t len = weir__min(detail->len, sizeof words - 1);
    for (size_t i = 0; i < len; i++) /* they go to a terminal */
        words[i] =
            (unsigned char)detail->text[i] < ' ' || detail->text[i] == 0x7f ? '?' : detail->text[i];
    words[len] = 0;
    return fail(server, code, "%s", words);
}

/* Asks, and frees the question. 0: the answer is in server->nodes, and its status one of a decision. */
static int ask(struct server_store *server, const char *path, struct body *body)
{
    weir_error err = {0};
    weir__json_close(&body->json, '}');
    server->why.message[0] = 0;
    int code = body->text.cut ? weir__fail(&err, WEIR_EINVAL, 0, "the question is too long")
                              : cli_http_post(&server->http, path, body->text.data, body->text.len,
                                              &server->reply, &err);
    free(body->text.data);
    if (code == WEIR_EUNREACHABLE)
        return fail(server, code, "%.300s; is `weir serve` running there?", err.message);
    if (code) /* whatever it is, the arguments are not to blame */
        return fail(server, code == WEIR_ENOMEM ? code : WEIR_ESYSTEM, "%s", err.message);
    if (server->reply.status != 200 && server->reply.status != 429)
        return refused(server);
    return 0;
}

static int strange(struct server_store *server)
{
    return fail(server, WEIR_ESYSTEM,
                "something answers there, but not as weir does; say the address of `weir serve`");
}

/* The same, and the answer is read. */
static int ask_and_read(struct server_store *server, const char *path, struct body *body)
{
    int code = ask(server, path, body);
    if (code)
        return code;
    int count =
        weir__json_read(server->reply.body, server->reply.len, server->nodes, NODES_MAX, NULL);
    return count > 0 && server->nodes[0].type == WEIR__JSON_OBJECT ? 0 : strange(server);
}

static int no_memory(struct server_store *server)
{
    return fail(server, WEIR_ENOMEM, "out of memory");
}

/* ---- decisions ---- */

static bool read_integer(const struct server_store *server, const struct weir__json_node *object,
                         const char *name, int64_t *ret)
{
    const struct weir__json_node *node = weir__json_member(server->nodes, object, name);
    return node && weir__json_integer(node, 0, INT64_MAX, ret);
}

static bool read_bool(const struct server_store *server, const struct weir__json_node *object,
                      const char *name, bool *ret)
{
    const struct weir__json_node *node = weir__json_member(server->nodes, object, name);
    if (!node || node->type != WEIR__JSON_BOOL)
        return false;
    *ret = node->truth;
    return true;
}

static bool read_time(const struct server_store *server, const struct weir__json_node *object,
                      const char *name, int64_t *ret)
{
    const struct weir__json_node *node = weir__json_member(server->nodes, object, name);
    *ret = WEIR_NEVER;
    return node && (node->type == WEIR__JSON_NULL || weir__json_seconds(node, ret));
}

static bool read_decision(const struct server_store *server, const struct weir__json_node *object,
                          weir_decision *ret)
{
    *ret = (weir_decision){0};
    return object->type == WEIR__JSON_OBJECT &&
           read_bool(server, object, "allowed", &ret->allowed) &&
           read_integer(server, object, "limit", &ret->limit) &&
           read_integer(server, object, "remaining", &ret->remaining) &&
           read_time(server, object, "retry_after", &ret->retry_after_us) &&
           read_time(server, object, "reset_after", &ret->reset_after_us) &&
           read_time(server, object, "delay", &ret->delay_us);
}

static bool read_rows(const struct server_store *server, size_t count, weir_decision *rows)
{
    const struct weir__json_node *list = weir__json_member(server->nodes, server->nodes, "limits");
    if (!list || list->type != WEIR__JSON_ARRAY || list->len != count)
        return false;
    const struct weir__json_node *item = list + 1;
    for (size_t i = 0; i < count; i++, item = &server->nodes[item->next]) {
        if (!read_decision(server, item, &rows[i]))
            return false;
    }
    return true;
}

static void keep_receipt(struct server_store *server)
{
    const struct weir__json_node *receipt =
        weir__json_member(server->nodes, server->nodes, "receipt");
    server->receipt[0] = 0;
    if (receipt && receipt->type == WEIR__JSON_STRING && receipt->len < sizeof server->receipt)
        memcpy(server->receipt, receipt->text, receipt->len + 1);
}

static int take_answer(struct server_store *server, const weir_request *request, weir_decision *ret)
{
    int64_t lease = 0, binding = 0;
    if (!read_decision(server, server->nodes, ret) ||
        !read_bool(server, server->nodes, "degraded", &ret->degraded) ||
        !read_integer(server, server->nodes, "binding", &binding))
        return strange(server);
    if (request->acquire && (!read_integer(server, server->nodes, "lease", &lease)))
        return strange(server);
    if (request->detail && !read_rows(server, request->limit->count, request->detail))
        return strange(server);
    ret->binding = (uint8_t)weir__min(binding, WEIR_LIMITS_MAX - 1);
    ret->lease = (uint64_t)lease;
    keep_receipt(server);
    ret->charged = server->receipt[0] ? request->cost : 0;
    return 0;
}

static int decide(weir_store *store, const weir_request *requests, size_t n, enum weir__mode mode,
                  int64_t now, weir_decision *ret)
{
    struct server_store *server = server_of(store);
    struct body body;
    (void)now;
    if (n != 1)
        return fail(server, WEIR_EUNSUPPORTED, "one key at a time");
    if (!begin_for(&body, weir__key_bytes(requests->key), requests->limit, 0))
        return no_memory(server);
    weir__json_put_int(&body.json, "cost", requests->cost);
    if (requests->wait_us == WEIR_WAIT_ANY)
        put(&body, "wait", "any");
    else if (requests->wait_us != WEIR_WAIT_DEFAULT)
        weir__json_put_seconds(&body.json, "wait", requests->wait_us);
    if (requests->detail)
        weir__json_put_bool(&body.json, "detail", true);
    int code = ask_and_read(server,
                            mode == WEIR__PEEK  ? "/v1/peek"
                            : requests->acquire ? "/v1/acquire"
                                                : "/v1/take",
                            &body);
    return code ? code : take_answer(server, requests, ret);
}

/* ---- the other verbs ---- */

static int change_lease(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                        uint64_t lease, enum weir__lease_verb verb, int64_t now)
{
    struct server_store *server = server_of(store);
    struct body body;
    (void)i, (void)now;
    if (!begin_for(&body, weir__key_bytes(key), limit, 0))
        return no_memory(server);
    weir__json_put_uint(&body.json, "lease", lease);
    return ask_and_read(server, verb == WEIR__RENEW ? "/v1/renew" : "/v1/release", &body);
}

static int reset(weir_store *store, weir_key key, int64_t now, bool *ret)
{
    struct server_store *server = server_of(store);
    struct body body;
    (void)now;
    if (!begin_for(&body, weir__key_bytes(key), NULL, 0))
        return no_memory(server);
    int code = ask_and_read(server, "/v1/reset", &body);
    if (code)
        return code;
    return read_bool(server, server->nodes, "reset", ret) ? 0 : strange(server);
}

/* A state as /v1/show has it. A server with a zone tells its whole limit, one with Redis what Redis keeps. */
static bool read_shown(const struct server_store *server, const struct weir__json_node *object,
                       struct weir__shown *ret)
{
    int64_t numbers[WEIR__SHOWN_NUMBERS];
    int kind = 0;
    if (object->type != WEIR__JSON_OBJECT)
        return false;
    const struct weir__json_node *name = weir__json_member(server->nodes, object, "algorithm");
    const struct weir__json_node *limit = weir__json_member(server->nodes, object, "limit");
    while (name && name->type == WEIR__JSON_STRING && kind < WEIR__KIND_COUNT &&
           strcmp(name->text, weir__kind_name((enum weir__kind)kind)) != 0)
        kind++;
    for (size_t i = 0; i < WEIR__SHOWN_NUMBERS; i++) {
        if (!read_integer(server, object, weir__shown_names[i], &numbers[i]))
            return false;
    }
    if (!name || name->type != WEIR__JSON_STRING || kind == WEIR__KIND_COUNT)
        return false;
    weir__shown_of(kind, numbers, ret);
    if (!read_integer(server, object, "remaining", &ret->remaining))
        ret->remaining = -1;
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

static int show(weir_store *store, weir_key key, int64_t now, struct weir__shown *ret,
                size_t *ret_count)
{
    struct server_store *server = server_of(store);
    struct body body;
    (void)now;
    if (!begin_for(&body, weir__key_bytes(key), NULL, 0))
        return no_memory(server);
    int code = ask_and_read(server, "/v1/show", &body);
    if (code)
        return code;
    const struct weir__json_node *list = weir__json_member(server->nodes, server->nodes, "states");
    if (!list || list->type != WEIR__JSON_ARRAY || list->len > WEIR__SHOWN_MAX)
        return strange(server);
    const struct weir__json_node *item = list + 1;
    for (size_t i = 0; i < list->len; i++, item = &server->nodes[item->next]) {
        if (!read_shown(server, item, &ret[i]))
            return strange(server);
    }
    *ret_count = list->len;
    return 0;
}

int cli_server_settle(weir_store *store, weir_key key, const weir_limit *limit, const char *receipt,
                      int64_t actual, weir_error *err)
{
    struct server_store *server = server_of(store);
    struct body body;
    int code;
    if (begin_for(&body, key, limit, strlen(receipt))) {
        put(&body, "receipt", receipt);
        weir__json_put_int(&body.json, "actual", actual);
        code = ask_and_read(server, "/v1/settle", &body);
    } else {
        code = no_memory(server);
    }
    bool before = false;
    if (code == 0 && read_bool(server, server->nodes, "before", &before) && before)
        return WEIR_ESETTLED;
    return code ? weir__fail(err, code, 0, "%s", server->why.message) : 0;
}

static bool why(weir_store *store, weir_error *err)
{
    *err = server_of(store)->why;
    return err->message[0] != 0;
}

static void close_server(weir_store *store)
{
    cli_http_close(&server_of(store)->http);
    free(store);
}

static const struct weir__engine engine = {
    .decide = decide,
    .change_lease = change_lease,
    .reset = reset,
    .show = show,
    .why = why,
    .close = close_server,
};

bool cli_is_server(const weir_store *store)
{
    return store->engine == &engine;
}

const char *cli_server_receipt(const weir_store *store)
{
    const struct server_store *server = (const struct server_store *)store;
    return cli_is_server(store) && server->receipt[0] ? server->receipt : NULL;
}

/* ---- explain ---- */

/* "path=/login&user=ann" as an object. False: it is not such a text, or there is no memory. */
static bool put_attributes(struct body *body, const char *text)
{
    struct weir__query query = {{text, strlen(text)}, false};
    struct weir__span name, value;
    char *room = malloc(strlen(text) + 1);
    if (!room)
        return false;
    weir__json_open(&body->json, "attributes", '{');
    while (weir__query_next(&query, room, &name, &value)) {
        char word[256];
        if (name.len >= sizeof word || memchr(name.data, 0, name.len)) {
            query.bad = true;
            break;
        }
        memcpy(word, name.data, name.len);
        word[name.len] = 0;
        weir__json_put_text(&body->json, word, value.data, value.len);
    }
    weir__json_close(&body->json, '}');
    free(room);
    return !query.bad;
}

int cli_server_explain(weir_store *store, const struct cli_server_question *question,
                       struct weir__span *ret, weir_error *err)
{
    struct server_store *server = server_of(store);
    struct body body;
    size_t bytes = (question->key ? question->key->len : 0) +
                   (question->limits ? strlen(question->limits) : 0) +
                   (question->policy ? strlen(question->policy) : 0) +
                   (question->attributes ? 2 * strlen(question->attributes) : 0);
    if (!begin(&body, bytes))
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    if (question->key)
        weir__json_put_key(&body.json, question->key->data, question->key->len);
    if (question->limits)
        put(&body, "limit", question->limits);
    if (question->policy)
        put(&body, "policy", question->policy);
    if (question->attributes && !put_attributes(&body, question->attributes)) {
        free(body.text.data);
        return weir__fail(err, WEIR_EINVAL, 0,
                          "--request: expected NAME=VALUE&NAME=VALUE, encoded like a query, not "
                          "\"%s\"",
                          cli_show_text(question->attributes).text);
    }
    int code = ask(server, "/v1/explain", &body);
    *ret = (struct weir__span){server->reply.body, server->reply.len};
    return code ? weir__fail(err, code, 0, "%s", server->why.message) : 0;
}

/* ---- opening ---- */

const char *cli_token(const char *given)
{
    const char *const admin = getenv("WEIR_ADMIN_TOKEN"), *const data = getenv("WEIR_TOKEN");
    return given ? given : admin && *admin ? admin : data && *data ? data : NULL;
}

static int open_server(const struct cli_call *call, const struct cli_server *where,
                       weir_store **ret)
{
    weir_error err = {0};
    struct server_store *server = calloc(1, sizeof *server);
    if (!server)
        return cli_fail(call, CLI_FAILED, "out of memory");
    if (cli_http_open(where->url, cli_token(where->token), &server->http, &err)) {
        free(server);
        return cli_fail(call, CLI_USAGE, "--server %s", err.message);
    }
    server->base.engine = &engine;
    server->address = where->url;
    *ret = &server->base;
    return CLI_OK;
}

int cli_open_server_or_store(const struct cli_call *call, const struct cli_server *server,
                             const char *url, weir_store **ret)
{
    if (server->url && url)
        return cli_fail(call, CLI_USAGE,
                        "--server and --store: name one, the server has a store of its own");
    if (server->token && !server->url)
        return cli_fail(call, CLI_USAGE, "--token is for a server; name it with --server URL");
    return server->url ? open_server(call, server, ret) : cli_open_store(call, url, ret);
}
