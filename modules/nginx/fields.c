/* Rate limit fields on answers, passed and rejected alike: a header filter, and what it shows. */
#include "ngx_http_weir.h"

static ngx_http_output_header_filter_pt next_header_filter;

const struct weir__rule *ngx_http_weir_rule(const ngx_http_weir_ask_t *ask, ngx_uint_t row,
                                            const ngx_http_weir_limit_t **ret_conf)
{
    ngx_uint_t i = 0;
    while (i + 1 < ask->count && row >= ask->requests[i].limit->count)
        row -= ask->requests[i++].limit->count;
    *ret_conf = ask->confs[i];
    return &ask->requests[i].limit->rules[row];
}

/* The questions to be shown: the enforced ones, or where there are none those in dry run. */
static ngx_uint_t shown(const ngx_http_weir_ctx_t *ctx, const ngx_http_weir_ask_t *ret[2])
{
    ngx_uint_t n = 0;
    for (int phase = 0; phase < 2; phase++) {
        if (ctx->shown[phase])
            ret[n++] = ctx->shown[phase];
    }
    for (int phase = 0; phase < 2 && n == 0; phase++) {
        if (ctx->shadow[phase])
            ret[n++] = ctx->shadow[phase];
    }
    return n;
}

ngx_int_t ngx_http_weir_shown(const ngx_http_weir_ctx_t *ctx, weir_decision *ret,
                              const ngx_http_weir_limit_t **ret_binding,
                              const struct weir__rule **ret_rule)
{
    const ngx_http_weir_ask_t *asks[2];
    weir_decision each[2];
    ngx_uint_t n = shown(ctx, asks);
    if (n == 0)
        return NGX_DECLINED;
    for (ngx_uint_t i = 0; i < n; i++)
        each[i] = asks[i]->folded;
    if (n == 1)
        *ret = each[0];
    else
        weir__fold(each, n, ret);
    const ngx_http_weir_ask_t *bound = n > 1 && ret->binding == 1 ? asks[1] : asks[0];
    *ret_rule = ngx_http_weir_rule(bound, bound->folded.binding, ret_binding);
    return NGX_OK;
}

/* ---- the filter ---- */

/* The names as HTTP/1 likes to see them; HTTP/2 has them in lower case in any case. */
static const ngx_str_t *pretty(const char *name)
{
    static const ngx_str_t names[] = {
        ngx_string("RateLimit"),           ngx_string("RateLimit-Policy"),
        ngx_string("RateLimit-Limit"),     ngx_string("RateLimit-Reset"),
        ngx_string("RateLimit-Remaining"), ngx_string("X-RateLimit-Limit"),
        ngx_string("X-RateLimit-Reset"),   ngx_string("X-RateLimit-Remaining"),
        ngx_string("Retry-After")};
    size_t len = ngx_strlen(name), i = 0;
    while (i + 1 < WEIR__COUNT(names) && /* length and one letter tell them apart */
           (names[i].len != len || ngx_tolower(names[i].data[len - 5]) != name[len - 5]))
        i++;
    return &names[i];
}

static bool is_ours(const ngx_table_elt_t *field, bool retry_after)
{
    static const ngx_str_t starts[] = {ngx_string("RateLimit-"), ngx_string("X-RateLimit-"),
                                       ngx_string("X-Rate-Limit-")};
    static const ngx_str_t whole = ngx_string("RateLimit"), retry = ngx_string("Retry-After");
    const ngx_str_t *key = &field->key;
    if (key->len == whole.len && !ngx_strncasecmp(key->data, whole.data, whole.len))
        return true;
    if (key->len == retry.len && !ngx_strncasecmp(key->data, retry.data, retry.len))
        return retry_after;
    for (size_t i = 0; i < WEIR__COUNT(starts); i++) {
        if (key->len > starts[i].len && !ngx_strncasecmp(key->data, starts[i].data, starts[i].len))
            return true;
    }
    return false;
}

/* Takes out what an upstream said of its own limits. Its Retry-After stays, unless there is one of ours:
 * then the upstream only wrote our error page. */
static void remove_others(ngx_http_request_t *r, bool retry_after)
{
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part; part = part->next) {
        ngx_table_elt_t *fields = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (is_ours(&fields[i], retry_after))
                fields[i].hash = 0;
        }
    }
}

static ngx_int_t push(ngx_http_request_t *r, const char *name, const char *value, size_t len)
{
    ngx_table_elt_t *field = ngx_list_push(&r->headers_out.headers);
    u_char *copy = ngx_pnalloc(r->pool, len);
    if (!field || !copy)
        return NGX_ERROR;
    ngx_memcpy(copy, value, len);
    ngx_memzero(field, sizeof *field);
    field->hash = 1;
    field->key = *pretty(name);
    field->value = (ngx_str_t){len, copy};
    return NGX_OK;
}

/* The name of a limit as a C string, in the request's pool; NULL: none. */
static const char *name_of(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf)
{
    u_char *text = conf->name.len ? ngx_pnalloc(r->pool, conf->name.len + 1) : NULL;
    if (text) {
        ngx_memcpy(text, conf->name.data, conf->name.len);
        text[conf->name.len] = 0;
    }
    return (const char *)text;
}

static size_t rate(ngx_http_request_t *r, const ngx_http_weir_ask_t *ask, struct weir__rated *ret)
{
    for (ngx_uint_t i = 0; i < ask->limits; i++) {
        const ngx_http_weir_limit_t *conf;
        ret[i].rule = ngx_http_weir_rule(ask, i, &conf);
        ret[i].row = &ask->rows[i];
        ret[i].name = name_of(r, conf);
    }
    return ask->limits;
}

static ngx_int_t add_fields(ngx_http_request_t *r, const ngx_http_weir_ctx_t *ctx,
                            enum weir__field_style style, bool replace)
{
    struct weir__rated rated[2 * WEIR_LIMITS_MAX];
    struct weir__rate_fields fields;
    weir_decision folded = {0}, each[2];
    ngx_uint_t n = 0;
    size_t count = 0;
    for (int phase = 0; phase < 2; phase++) {
        const ngx_http_weir_ask_t *ask = ctx->shown[phase];
        if (!ask)
            continue;
        each[n] = ask->folded;
        each[n++].binding = (uint8_t)(ask->folded.binding + count);
        count += rate(r, ask, rated + count);
    }
    if (n == 0)
        return NGX_OK;
    weir__fold(each, n, &folded);
    folded.binding = each[n > 1 ? folded.binding : 0].binding;
    weir__rate_fields(style, rated, count, &folded, &fields);
    if (replace)
        remove_others(r, ctx->rejected);
    for (size_t i = 0; i < fields.count; i++) {
        if (push(r, fields.items[i].name, fields.items[i].value, fields.items[i].value_len) !=
            NGX_OK)
            return NGX_ERROR;
    }
    return NGX_OK;
}

/* The fields of the main request's answer. */
static ngx_int_t add_all(ngx_http_request_t *r, const ngx_http_weir_ctx_t *ctx)
{
    if (r != r->main || !ctx->conf || ctx->conf->headers == WEIR__FIELDS_OFF)
        return NGX_OK;
    if (ctx->status == NGX_HTTP_WEIR_OVERLOADED && push(r, "retry-after", "1", 1) != NGX_OK)
        return NGX_ERROR;
    ngx_uint_t style = ctx->conf->headers & ~(ngx_uint_t)NGX_HTTP_WEIR_REPLACE;
    return add_fields(r, ctx, style, ctx->conf->headers != style);
}

static ngx_int_t header_filter(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_ctx(r);
    if (!ctx)
        return next_header_filter(r);
    if (ctx->charges)
        ngx_http_weir_charge_judge(ctx, false);
    if (add_all(r, ctx) != NGX_OK)
        return NGX_ERROR;
    ngx_int_t rc = next_header_filter(r);
    if (ctx->charges)
        ngx_http_weir_charge_judge(ctx, true);
    return rc;
}

ngx_int_t ngx_http_weir_fields_init(ngx_conf_t *cf)
{
    (void)cf;
    next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = header_filter;
    return NGX_OK;
}
