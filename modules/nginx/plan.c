/* A request and the limits of its location, to a question: keys, limits and costs for this request. */
#include "ngx_http_weir.h"

#define BARE_SECONDS 60 /* how often a key is logged whose variables are empty */

/* Texts with variables, read before; this worker's. */
static struct weir__limit_cache texts;

void ngx_http_weir_plan_end(void)
{
    weir__limit_cache_clear(&texts);
}

/* Text beside variables that are all empty: not an exemption, but one state for all such requests. */
static void warn_bare(ngx_http_request_t *r, ngx_http_weir_limit_t *limit, const ngx_str_t *key)
{
    if (limit->bare_at && ngx_time() - limit->bare_at < BARE_SECONDS)
        return;
    limit->bare_at = ngx_time();
    ngx_log_error(
        NGX_LOG_WARN, r->connection->log, 0,
        "weir: the variables of key \"%V\" are empty: all such requests share the state of "
        "\"%V\"; to exempt them write unless=, in %V:%ui",
        &limit->key_text, key, &limit->place.file, limit->place.line);
}

/* Whether the limit does not apply to this request; what cannot be read exempts nobody. */
static bool is_exempt(ngx_http_request_t *r, const ngx_http_weir_limit_t *limit)
{
    ngx_str_t value;
    return limit->unless && ngx_http_complex_value(r, limit->unless, &value) == NGX_OK &&
           value.len > 0 && !(value.len == 1 && value.data[0] == '0');
}

/* The key of a limit for this request; false: it has none. */
static bool read_key(ngx_http_request_t *r, ngx_http_weir_limit_t *limit, weir_key *ret)
{
    ngx_str_t key;
    if (limit->key_index != NGX_CONF_UNSET) {
        const ngx_http_variable_value_t *value =
            ngx_http_get_flushed_variable(r, (ngx_uint_t)limit->key_index);
        key = value && !value->not_found ? (ngx_str_t){value->len, value->data}
                                         : (ngx_str_t){0, NULL};
    } else if (ngx_http_complex_value(r, &limit->key, &key) != NGX_OK) {
        return false;
    }
    if (limit->key_fixed_len && key.len == limit->key_fixed_len)
        warn_bare(r, limit, &key);
    *ret = weir_key_bytes(key.data, ngx_min(key.len, WEIR_KEY_MAX));
    return key.len > 0;
}

/* A value as a log may have it: without what ends lines, and not too long. */
struct shown {
    char text[112];
};

static struct shown show(const ngx_str_t *value)
{
    struct shown ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    for (size_t i = 0; i < value->len && i < 100; i++) {
        char c = (char)value->data[i];
        weir__put(&buffer, (u_char)c < 0x20 || c == 0x7f ? "?" : &c, 1);
    }
    if (value->len > 100)
        weir__put_text(&buffer, "...");
    return ret;
}

static void free_limit(void *data)
{
    weir_limit_free(data);
}

ngx_int_t ngx_http_weir_free_with(ngx_pool_t *pool, weir_limit *limit)
{
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(pool, 0);
    if (!cleanup) {
        weir_limit_free(limit);
        return NGX_ERROR;
    }
    cleanup->handler = free_limit;
    cleanup->data = limit;
    return NGX_OK;
}

/* "20" is short for "concurrent 20", also where a variable says so. */
static ngx_int_t complete_number(ngx_http_request_t *r, ngx_str_t *text)
{
    static const char word[] = "concurrent ";
    size_t len = sizeof word - 1;
    if (text->data[0] < '0' || text->data[0] > '9')
        return NGX_OK;
    u_char *whole = ngx_pnalloc(r->pool, len + text->len);
    if (!whole)
        return NGX_ERROR;
    ngx_memcpy(ngx_cpymem(whole, word, len), text->data, text->len);
    *text = (ngx_str_t){len + text->len, whole};
    return NGX_OK;
}

/* A limit whose text has variables, kept until the request ends. */
static ngx_int_t read_limit(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf,
                            enum weir__verb verb, const weir_limit **ret)
{
    ngx_str_t text;
    weir_error err;
    if (ngx_http_complex_value(r, conf->text, &text) != NGX_OK)
        return NGX_ERROR;
    *ret = NULL;
    if (text.len == 0)
        return NGX_OK;
    if (verb == WEIR__VERB_ACQUIRE && complete_number(r, &text) != NGX_OK)
        return NGX_ERROR;
    if (weir__limit_cache_needs_turn(&texts))
        weir__limit_cache_turn(&texts);
    const weir_limit *limit = weir__limit_cached(&texts, (const char *)text.data, text.len, &err);
    if (!limit) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "weir: the limit \"%s\": %s in %V:%ui",
                      show(&text).text, err.message, &conf->place.file, conf->place.line);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    *ret = weir__limit_ref(limit);
    return ngx_http_weir_free_with(r->pool, (weir_limit *)limit);
}

static ngx_int_t read_cost(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf, int64_t *ret)
{
    ngx_str_t text;
    if (ngx_http_complex_value(r, conf->cost, &text) != NGX_OK)
        return NGX_ERROR;
    if (text.len == 0 || (weir__resp_read_integer((const char *)text.data, text.len, ret) &&
                          *ret >= 0 && *ret <= WEIR_COST_MAX))
        return NGX_OK;
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "weir: no cost is \"%s\"; a whole number up to 10^12 is, in %V:%ui",
                  show(&text).text, &conf->place.file, conf->place.line);
    return NGX_HTTP_BAD_REQUEST;
}

/* Whether a limit is of the kind that the verb is for: texts with variables say so late. */
static ngx_int_t check_verb(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf,
                            const weir_limit *limit, enum weir__verb verb)
{
    bool wanted = verb == WEIR__VERB_ACQUIRE;
    if (weir__has_leases(limit) == wanted && (!wanted || limit->count == 1))
        return NGX_OK;
    ngx_log_error(
        NGX_LOG_ERR, r->connection->log, 0,
        "weir: \"%s\" cannot be used here; weir_conn takes one concurrent limit, weir_limit "
        "all others, in %V:%ui",
        weir_limit_text(limit), &conf->place.file, conf->place.line);
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* Adds what one limit asks; none of it where its key or its text is empty. */
static ngx_int_t add(ngx_http_request_t *r, ngx_http_weir_limit_t *conf, ngx_http_weir_ask_t *ask)
{
    weir_request *request = &ask->requests[ask->count];
    weir_key key;
    if (is_exempt(r, conf) || !read_key(r, conf, &key))
        return NGX_OK;
    *request = weir_request_make(key, conf->limit);
    request->wait_us = conf->wait_us;
    request->acquire = ask->verb == WEIR__VERB_ACQUIRE;
    if (conf->text) {
        ngx_int_t rc = read_limit(r, conf, ask->verb, &request->limit);
        if (rc != NGX_OK || !request->limit)
            return rc;
        rc = check_verb(r, conf, request->limit, ask->verb);
        if (rc != NGX_OK)
            return rc;
    }
    if (conf->cost) {
        ngx_int_t rc = read_cost(r, conf, &request->cost);
        if (rc != NGX_OK)
            return rc;
    }
    if (conf->on || conf->charge_if)
        ask->depends = 1;
    ask->confs[ask->count++] = conf;
    ask->limits += request->limit->count;
    return NGX_OK;
}

/* In one piece, with room for a row each: few texts hold more limits than one. */
static ngx_http_weir_ask_t *make(ngx_pool_t *pool, ngx_uint_t n, enum weir__verb verb)
{
    ngx_http_weir_ask_t *ask;
    size_t each = sizeof *ask->requests + sizeof *ask->rows + sizeof(void *);
    ask = ngx_palloc(pool, sizeof *ask + n * each);
    if (!ask)
        return NULL;
    ask->verb = verb;
    ask->count = ask->limits = 0;
    ask->failed = 0;
    ask->depends = ask->met = ask->local = 0;
    ask->requests = (weir_request *)(ask + 1);
    ask->rows = (weir_decision *)(ask->requests + n);
    ask->confs = (const ngx_http_weir_limit_t **)(ask->rows + n);
    return ask;
}

static ngx_int_t make_rows(ngx_http_request_t *r, ngx_http_weir_ask_t *ask, ngx_uint_t room)
{
    if (ask->limits > WEIR_LIMITS_MAX) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "weir: %ui limits are to be decided together, there can be 16; in %V:%ui",
                      ask->limits, &ask->confs[0]->place.file, ask->confs[0]->place.line);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (ask->limits > room)
        ask->rows = ngx_palloc(r->pool, ask->limits * sizeof *ask->rows);
    if (!ask->rows)
        return NGX_ERROR;
    weir_decision *rows = ask->rows;
    for (ngx_uint_t i = 0; i < ask->count; i++) {
        ask->requests[i].detail = rows;
        rows += ask->requests[i].limit->count;
    }
    return NGX_OK;
}

ngx_int_t ngx_http_weir_plan(ngx_http_request_t *r, ngx_http_weir_limit_t *const *limits,
                             ngx_uint_t n, enum weir__verb verb, ngx_http_weir_ask_t **ret)
{
    ngx_http_weir_ask_t *ask = make(r->pool, n, verb);
    *ret = NULL;
    if (!ask)
        return NGX_ERROR;
    for (ngx_uint_t i = 0; i < n; i++) {
        ngx_int_t rc = add(r, limits[i], ask);
        if (rc != NGX_OK)
            return rc;
    }
    if (ask->count == 0)
        return NGX_OK;
    if (ask->count > 1 && !ngx_http_weir_meet(r->pool, ask))
        return NGX_ERROR;
    *ret = ask;
    return make_rows(r, ask, n);
}
