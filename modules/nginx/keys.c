/*
 * weir_keys zone=NAME: one key of a zone of this nginx, to help a user that is locked out.
 *
 *     GET    /keys?key=account:ann    its states and the clock, as /v1/show writes them
 *     DELETE /keys?key=account:ann    forgets it, as /v1/reset: true if there was something
 *
 * Both say how many new keys the zone has refused, if it has, and that they know nothing of Redis,
 * if a weir_store keeps states of the zone's limits there.
 *
 * The key is percent-encoded, so that every key can be written, also a binary address. A page of
 * another site can make a browser send a GET or a POST, but not a DELETE.
 */
#include "ngx_http_weir.h"

#include "wire/decision.h"
#include "wire/http1.h"
#include "wire/json.h"

#define KEYS_BODY_MAX (WEIR__SHOWN_MAX * 512 + 512) /* states of a key: below 500 bytes each */
#define KEYS_OF_FLEET                                                                              \
    "limits with weir_store have their states in Redis, not here: see weir show and weir reset"
#define KEYS_LOGGED_MAX 100 /* bytes of a key in the log */

/* Reads the key into `room`, which is as long as the arguments. NULL: done; else what is wrong. */
static const char *keys_read(const ngx_http_request_t *r, char *room, weir_key *ret)
{
    struct weir__query query = {.rest = {(const char *)r->args.data, r->args.len}};
    struct weir__span name, value;
    *ret = (weir_key){0};
    while (weir__query_next(&query, room, &name, &value)) {
        if (!weir__span_is(name, "key"))
            return "unknown argument: expected only key, like ?key=user:42";
        if (ret->data)
            return "the argument key is given twice; give it once";
        *ret = (weir_key){value.data, value.len};
        room += name.len + value.len;
    }
    if (query.bad)
        return "a percent sign in the arguments without two hexadecimal digits after it; write it "
               "as %25";
    if (!ret->data)
        return "a key is needed: ?key= with the key as weir_limit has it, percent-encoded";
    return weir__key_in_bounds(*ret) ? NULL
                                     : "the key must not be empty, and have at most 65536 bytes";
}

static void keys_put_error(struct weir__json *json, const char *why)
{
    weir__json_put_string(json, "title", "Bad Request");
    weir__json_put_int(json, "status", NGX_HTTP_BAD_REQUEST);
    weir__json_put_string(json, "detail", why);
}

/* A full zone (full=deny) refuses users that it has no key of: then no key explains it. */
static void keys_put_refused(struct weir__json *json, const ngx_http_weir_zone_t *zone)
{
    weir_zone_info info;
    if (weir_store_info(zone->store, &info) == 0 && info.refused > 0)
        weir__json_put_uint(json, "refused", info.refused);
}

static int keys_put_states(struct weir__json *json, weir_store *zone, weir_key key)
{
    struct weir__shown states[WEIR__SHOWN_MAX];
    size_t count = 0;
    int code = weir__store_show(zone, key, states, &count);
    if (code)
        return code;
    weir__json_put_int(json, "now", weir__store_now(zone));
    weir__json_open(json, "states", '[');
    for (size_t i = 0; i < count; i++)
        weir__json_put_state(json, &states[i]);
    weir__json_close(json, ']');
    return 0;
}

static int keys_forget(ngx_http_request_t *r, struct weir__json *json,
                       const ngx_http_weir_zone_t *zone, weir_key key)
{
    bool there = false;
    int code = weir__store_reset(zone->store, key, &there);
    if (code)
        return code;
    weir__json_put_bool(json, "reset", there);
    char room[8 * KEYS_LOGGED_MAX];
    struct weir__buffer quoted = weir__buffer_over(room, sizeof room);
    struct weir__json text = {&quoted, false};
    weir__json_put_text(&text, NULL, key.data, ngx_min(key.len, KEYS_LOGGED_MAX));
    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0, "weir_keys: zone \"%V\": key %*s %s",
                  &zone->name, quoted.len, room, there ? "is forgotten" : "was not there");
    return 0;
}

/* Writes the body; the status of the answer. */
static ngx_int_t keys_write(ngx_http_request_t *r, struct weir__buffer *to)
{
    const ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    struct weir__json json = {to, false};
    char *room = ngx_pnalloc(r->pool, r->args.len + 1);
    weir_key key;
    if (!room)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    const char *why = keys_read(r, room, &key);
    int code = 0;
    weir__json_open(&json, NULL, '{');
    ngx_http_weir_set_clock(r, conf);
    if (why)
        keys_put_error(&json, why);
    else if (r->method == NGX_HTTP_DELETE)
        code = keys_forget(r, &json, conf->keys, key);
    else
        code = keys_put_states(&json, conf->keys->store, key);
    if (!why && !code) {
        keys_put_refused(&json, conf->keys);
        if (conf->keys->has_fleet)
            weir__json_put_string(&json, "note", KEYS_OF_FLEET);
    }
    weir__json_close(&json, '}');
    weir__put(to, "\n", 1);
    if (code || to->cut) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "weir_keys: zone \"%V\": %s",
                      &conf->keys->name, code ? weir_strerror(code) : "the answer is too long");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    return why ? NGX_HTTP_BAD_REQUEST : NGX_HTTP_OK;
}

static ngx_int_t keys_answer(ngx_http_request_t *r)
{
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD | NGX_HTTP_DELETE)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    ngx_buf_t *body = ngx_create_temp_buf(r->pool, KEYS_BODY_MAX);
    if (!body)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    struct weir__buffer buffer = weir__buffer_over((char *)body->pos, KEYS_BODY_MAX);
    ngx_int_t status = keys_write(r, &buffer);
    if (status == NGX_HTTP_INTERNAL_SERVER_ERROR)
        return status;
    body->last = body->pos + buffer.len;
    static const ngx_str_t type = ngx_string("application/json");
    return ngx_http_weir_send(r, (ngx_uint_t)status, &type, body);
}

char *ngx_http_weir_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_weir_loc_conf_t *conf = data;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (conf->keys)
        return "is duplicate";
    if (words[1].len <= 5 || ngx_strncmp(words[1].data, "zone=", 5))
        return ngx_http_weir_word_fail(cf, &words[1],
                                       "expected zone= with the name of a weir_zone");
    ngx_str_t name = {words[1].len - 5, words[1].data + 5};
    conf->keys = ngx_http_weir_zone_named(cf, &name);
    core->handler = keys_answer;
    return conf->keys ? NGX_CONF_OK : NGX_CONF_ERROR;
}
