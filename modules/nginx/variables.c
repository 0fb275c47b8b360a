/* The variables: what was decided, for logs, headers and upstreams. */
#include "ngx_http_weir.h"

enum number { LIMIT, REMAINING, RETRY_AFTER, RESET, DELAY, DEGRADED };

#define IN_SECONDS 16 /* a flag beside the number: whole seconds, rounded up */

static ngx_int_t nothing(ngx_http_variable_value_t *value)
{
    value->not_found = 1;
    return NGX_OK;
}

static ngx_int_t text(ngx_http_variable_value_t *value, const u_char *data, size_t len)
{
    value->data = (u_char *)data;
    value->len = (unsigned)len & 0x0fffffff;
    value->valid = 1;
    value->no_cacheable = 0;
    value->not_found = 0;
    return NGX_OK;
}

/* Of a subrequest: its own, or else the main request's. */
static const ngx_http_weir_ctx_t *ctx_of(ngx_http_request_t *r)
{
    const ngx_http_weir_ctx_t *own = r == r->main ? NULL : ngx_http_weir_ctx(r);
    return own ? own : ngx_http_weir_ctx(r->main);
}

static ngx_int_t get_status(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t data)
{
    static const char *const words[] = {
        [NGX_HTTP_WEIR_PASSED] = "PASSED",     [NGX_HTTP_WEIR_DELAYED] = "DELAYED",
        [NGX_HTTP_WEIR_DEGRADED] = "DEGRADED", [NGX_HTTP_WEIR_DRY_RUN] = "DRY_RUN",
        [NGX_HTTP_WEIR_REJECTED] = "REJECTED", [NGX_HTTP_WEIR_OVERLOADED] = "OVERLOADED"};
    const ngx_http_weir_ctx_t *ctx = ctx_of(r);
    (void)data;
    if (!ctx || ctx->status == NGX_HTTP_WEIR_NONE)
        return nothing(value);
    const char *word = words[ctx->status];
    return text(value, (const u_char *)word, ngx_strlen(word));
}

/* What was decided; NULL: nothing. */
static const weir_decision *decided(ngx_http_request_t *r, weir_decision *room,
                                    const ngx_http_weir_limit_t **ret_binding,
                                    const struct weir__rule **ret_rule)
{
    const ngx_http_weir_ctx_t *ctx = ctx_of(r);
    bool found = ctx && ngx_http_weir_shown(ctx, room, ret_binding, ret_rule) == NGX_OK;
    return found ? room : NULL;
}

static int64_t pick(const weir_decision *decision, enum number number)
{
    switch (number) {
    case LIMIT:
        return decision->limit;
    case REMAINING:
        return decision->remaining;
    case RETRY_AFTER:
        return decision->retry_after_us;
    case RESET:
        return decision->reset_after_us;
    case DELAY:
        return decision->delay_us;
    default:
        return decision->degraded;
    }
}

static ngx_int_t get_number(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t data)
{
    weir_decision room;
    const ngx_http_weir_limit_t *binding;
    const struct weir__rule *rule;
    const weir_decision *decision = decided(r, &room, &binding, &rule);
    int64_t number = decision ? pick(decision, data & ~(uintptr_t)IN_SECONDS) : WEIR_NEVER;
    if (number < 0)
        return nothing(value);
    if (data & IN_SECONDS)
        number = number / 1000000 + (number % 1000000 > 0);
    u_char *digits = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (!digits)
        return NGX_ERROR;
    return text(value, digits, (size_t)(ngx_sprintf(digits, "%L", number) - digits));
}

static ngx_int_t get_binding(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                             uintptr_t data)
{
    weir_decision room;
    const ngx_http_weir_limit_t *binding;
    const struct weir__rule *rule;
    (void)data;
    if (!decided(r, &room, &binding, &rule))
        return nothing(value);
    if (binding->name.len)
        return text(value, binding->name.data, binding->name.len);
    char *canonical = ngx_pnalloc(r->pool, WEIR__RULE_TEXT_MAX);
    if (!canonical)
        return NGX_ERROR;
    struct weir__buffer buffer = weir__buffer_over(canonical, WEIR__RULE_TEXT_MAX);
    weir__put_rule(&buffer, rule);
    return text(value, (const u_char *)canonical, buffer.len);
}

ngx_int_t ngx_http_weir_variables_add(ngx_conf_t *cf)
{
    static const struct {
        ngx_str_t name;
        ngx_http_get_variable_pt get;
        uintptr_t data;
    } all[] = {
        {ngx_string("weir_status"), get_status, 0},
        {ngx_string("weir_limit"), get_number, LIMIT},
        {ngx_string("weir_remaining"), get_number, REMAINING},
        {ngx_string("weir_retry_after"), get_number, RETRY_AFTER | IN_SECONDS},
        {ngx_string("weir_retry_after_us"), get_number, RETRY_AFTER},
        {ngx_string("weir_reset"), get_number, RESET | IN_SECONDS},
        {ngx_string("weir_reset_us"), get_number, RESET},
        {ngx_string("weir_delay"), get_number, DELAY | IN_SECONDS},
        {ngx_string("weir_delay_us"), get_number, DELAY},
        {ngx_string("weir_degraded"), get_number, DEGRADED},
        {ngx_string("weir_binding"), get_binding, 0},
    };
    for (size_t i = 0; i < WEIR__COUNT(all); i++) {
        ngx_str_t name = all[i].name;
        ngx_http_variable_t *variable = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
        if (!variable)
            return NGX_ERROR;
        variable->get_handler = all[i].get;
        variable->data = all[i].data;
    }
    return NGX_OK;
}
