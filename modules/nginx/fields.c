/*
 * What clients, logs and upstreams see of a decision: the rate limit fields of answers, passed and
 * rejected alike, by a header filter; and the variables.
 */
#include "ngx_http_weir.h"

#include "wire/address.h"

static ngx_http_output_header_filter_pt fields_next_filter;

const struct weir__rule *ngx_http_weir_rule(const ngx_http_weir_plan_t *plan, ngx_uint_t row,
                                            const ngx_http_weir_limit_t **ret_conf)
{
    ngx_uint_t i = 0;
    while (i + 1 < plan->count && row >= plan->requests[i].limit->count)
        row -= plan->requests[i++].limit->count;
    *ret_conf = plan->confs[i];
    return &plan->requests[i].limit->rules[row];
}

struct weir__rule_text ngx_http_weir_bound_text(const ngx_http_weir_plan_t *plan)
{
    ngx_uint_t i = 0, row = plan->folded.binding;
    while (i + 1 < plan->count && row >= plan->requests[i].limit->count)
        row -= plan->requests[i++].limit->count;
    return weir__limit_text_of(plan->requests[i].limit, row);
}

/* The plans to be shown: the enforced ones; where there are none, those in dry run. */
static ngx_uint_t fields_shown_plans(const ngx_http_weir_ctx_t *ctx,
                                     const ngx_http_weir_plan_t *ret[2])
{
    ngx_uint_t n = 0;
    for (int phase = 0; phase < 2; phase++) {
        if (ctx->shown[phase])
            ret[n++] = ctx->shown[phase];
    }
    if (n > 0)
        return n;
    for (int phase = 0; phase < 2; phase++) {
        if (ctx->shadow[phase])
            ret[n++] = ctx->shadow[phase];
    }
    return n;
}

/* ---- the filter ---- */

/* Whether a field's name ends in that of a limit. */
static bool fields_is_named(const char *name)
{
    static const ngx_str_t starts[] = {ngx_string("x-ratelimit-limit-"),
                                       ngx_string("x-ratelimit-remaining-"),
                                       ngx_string("x-ratelimit-reset-")};
    for (size_t i = 0; i < WEIR__COUNT(starts); i++) {
        if (!ngx_strncmp(name, starts[i].data, starts[i].len))
            return true;
    }
    return false;
}

/* The names as people write them in HTTP/1; HTTP/2 has them in lower case anyway. */
static const ngx_str_t *fields_pretty_name(const char *name)
{
    static const ngx_str_t names[] = {
        ngx_string("RateLimit"),           ngx_string("RateLimit-Policy"),
        ngx_string("RateLimit-Limit"),     ngx_string("RateLimit-Reset"),
        ngx_string("RateLimit-Remaining"), ngx_string("X-RateLimit-Limit"),
        ngx_string("X-RateLimit-Reset"),   ngx_string("X-RateLimit-Remaining"),
        ngx_string("Retry-After")};
    size_t len = ngx_strlen(name), i = 0;
    while (i + 1 < WEIR__COUNT(names) && /* length and one letter identify them */
           (names[i].len != len || ngx_tolower(names[i].data[len - 5]) != name[len - 5]))
        i++;
    return &names[i];
}

static bool fields_is_ours(const ngx_table_elt_t *field, bool retry_after)
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

/* Removes what an upstream said about its own limits. Its Retry-After stays, unless we add one:
 * then the upstream only wrote our error page. */
static void fields_remove_others(ngx_http_request_t *r, bool retry_after)
{
    for (ngx_list_part_t *part = &r->headers_out.headers.part; part; part = part->next) {
        ngx_table_elt_t *fields = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (fields_is_ours(&fields[i], retry_after))
                fields[i].hash = 0;
        }
    }
}

static ngx_int_t fields_push(ngx_http_request_t *r, const char *name, const char *value, size_t len)
{
    size_t name_len = fields_is_named(name) ? ngx_strlen(name) : 0;
    ngx_table_elt_t *field = ngx_list_push(&r->headers_out.headers);
    u_char *copy = ngx_pnalloc(r->pool, len + name_len);
    if (!field || !copy)
        return NGX_ERROR;
    ngx_memcpy(copy, value, len);
    ngx_memcpy(copy + len, name, name_len);
    ngx_memzero(field, sizeof *field);
    field->hash = 1;
    field->key = name_len ? (ngx_str_t){name_len, copy + len} : *fields_pretty_name(name);
    field->value = (ngx_str_t){len, copy};
    return NGX_OK;
}

/* The name of a limit as a C string, in the request's pool; NULL: it has no name. */
static const char *fields_name_of(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf)
{
    u_char *text = conf->name.len ? ngx_pnalloc(r->pool, conf->name.len + 1) : NULL;
    if (text) {
        ngx_memcpy(text, conf->name.data, conf->name.len);
        text[conf->name.len] = 0;
    }
    return (const char *)text;
}

static size_t fields_collect(ngx_http_request_t *r, const ngx_http_weir_plan_t *plan,
                             struct weir__rated *ret)
{
    for (ngx_uint_t i = 0; i < plan->limits; i++) {
        const ngx_http_weir_limit_t *conf;
        ret[i].rule = ngx_http_weir_rule(plan, i, &conf);
        ret[i].row = &plan->rows[i];
        ret[i].name = fields_name_of(r, conf);
    }
    return plan->limits;
}

static ngx_int_t fields_add(ngx_http_request_t *r, const ngx_http_weir_ctx_t *ctx,
                            enum weir__field_style style, bool replace)
{
    struct weir__rated rated[2 * WEIR_LIMITS_MAX];
    struct weir__rate_fields fields;
    weir_decision folded = {0}, each[2];
    ngx_uint_t n = 0;
    size_t count = 0;
    for (int phase = 0; phase < 2; phase++) {
        const ngx_http_weir_plan_t *plan = ctx->shown[phase];
        if (!plan)
            continue;
        each[n] = plan->folded;
        each[n++].binding = (uint8_t)(plan->folded.binding + count);
        count += fields_collect(r, plan, rated + count);
    }
    if (n == 0)
        return NGX_OK;
    weir__fold(each, n, &folded);
    folded.binding = each[n > 1 ? folded.binding : 0].binding;
    weir__rate_fields(style, rated, count, &folded, &fields);
    if (replace)
        fields_remove_others(r, ctx->rejected);
    for (size_t i = 0; i < fields.count; i++) {
        if (fields_push(r, fields.items[i].name, fields.items[i].value,
                        fields.items[i].value_len) != NGX_OK)
            return NGX_ERROR;
    }
    return NGX_OK;
}

/* The fields of the main request's answer. */
static ngx_int_t fields_add_all(ngx_http_request_t *r, const ngx_http_weir_ctx_t *ctx)
{
    if (r != r->main || !ctx->conf || ctx->conf->headers == WEIR__FIELDS_OFF)
        return NGX_OK;
    if (ctx->status == NGX_HTTP_WEIR_OVERLOADED && fields_push(r, "retry-after", "1", 1) != NGX_OK)
        return NGX_ERROR;
    ngx_uint_t style = ctx->conf->headers & ~(ngx_uint_t)NGX_HTTP_WEIR_REPLACE;
    return fields_add(r, ctx, style, ctx->conf->headers != style);
}

static ngx_int_t fields_filter(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_ctx(r);
    if (!ctx)
        return fields_next_filter(r);
    if (ctx->charges)
        ngx_http_weir_charge_judge(ctx, false);
    if (fields_add_all(r, ctx) != NGX_OK)
        return NGX_ERROR;
    ngx_int_t rc = fields_next_filter(r);
    if (ctx->charges)
        ngx_http_weir_charge_judge(ctx, true);
    return rc;
}

ngx_int_t ngx_http_weir_fields_init(ngx_conf_t *cf)
{
    (void)cf;
    fields_next_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = fields_filter;
    return NGX_OK;
}

/* ---- the variables ---- */

/* What a variable shows: where in a decision its number or flag stands, and a flag beside it. */
#define NUMBER(field) offsetof(weir_decision, field)
#define IN_SECONDS ((uintptr_t)1 << 16) /* whole seconds, rounded up */

static ngx_int_t variable_set_nothing(ngx_http_variable_value_t *value)
{
    value->not_found = 1;
    return NGX_OK;
}

static ngx_int_t variable_set_text(ngx_http_variable_value_t *value, const u_char *data, size_t len)
{
    value->data = (u_char *)data;
    value->len = (unsigned)len & 0x0fffffff;
    value->valid = 1;
    value->no_cacheable = 0;
    value->not_found = 0;
    return NGX_OK;
}

/* A subrequest has its own, or else that of the main request. */
static const ngx_http_weir_ctx_t *variable_ctx(ngx_http_request_t *r)
{
    const ngx_http_weir_ctx_t *own = r == r->main ? NULL : ngx_http_weir_ctx(r);
    return own ? own : ngx_http_weir_ctx(r->main);
}

static ngx_int_t variable_get_status(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                                     uintptr_t data)
{
    static const char *const words[] = {
        [NGX_HTTP_WEIR_PASSED] = "PASSED",     [NGX_HTTP_WEIR_DELAYED] = "DELAYED",
        [NGX_HTTP_WEIR_DEGRADED] = "DEGRADED", [NGX_HTTP_WEIR_DRY_RUN] = "DRY_RUN",
        [NGX_HTTP_WEIR_REJECTED] = "REJECTED", [NGX_HTTP_WEIR_FULL] = "FULL",
        [NGX_HTTP_WEIR_CLOSED] = "CLOSED",     [NGX_HTTP_WEIR_OVERLOADED] = "OVERLOADED"};
    const ngx_http_weir_ctx_t *ctx = variable_ctx(r);
    (void)data;
    if (!ctx || ctx->status == NGX_HTTP_WEIR_NONE)
        return variable_set_nothing(value);
    const char *word = words[ctx->status];
    return variable_set_text(value, (const u_char *)word, ngx_strlen(word));
}

/* What was decided, and by which limit; false: nothing was. */
static bool variable_decision(ngx_http_request_t *r, weir_decision *ret,
                              const ngx_http_weir_limit_t **ret_binding,
                              const ngx_http_weir_plan_t **ret_bound)
{
    const ngx_http_weir_ctx_t *ctx = variable_ctx(r);
    const ngx_http_weir_plan_t *plans[2];
    weir_decision each[2];
    ngx_uint_t n = ctx ? fields_shown_plans(ctx, plans) : 0;
    if (n == 0)
        return false;
    for (ngx_uint_t i = 0; i < n; i++)
        each[i] = plans[i]->folded;
    if (n == 1)
        *ret = each[0];
    else
        weir__fold(each, n, ret);
    ret->degraded = each[0].degraded || each[n - 1].degraded;
    const ngx_http_weir_plan_t *bound = n > 1 && ret->binding == 1 ? plans[1] : plans[0];
    ngx_http_weir_rule(bound, bound->folded.binding, ret_binding);
    *ret_bound = bound;
    return true;
}

/* The decimal number as a text in the request's pool. */
static ngx_int_t variable_set_number(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                                     int64_t number)
{
    u_char *digits = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (!digits)
        return NGX_ERROR;
    return variable_set_text(value, digits, (size_t)(ngx_sprintf(digits, "%L", number) - digits));
}

static ngx_int_t variable_get_number(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                                     uintptr_t data)
{
    weir_decision decision;
    const ngx_http_weir_limit_t *binding;
    const ngx_http_weir_plan_t *bound;
    int64_t number;
    if (!variable_decision(r, &decision, &binding, &bound))
        return variable_set_nothing(value);
    memcpy(&number, (const char *)&decision + (data & ~IN_SECONDS), sizeof number);
    if (number < 0)
        return variable_set_nothing(value);
    if (data & IN_SECONDS)
        number = number / 1000000 + (number % 1000000 > 0);
    return variable_set_number(r, value, number);
}

/* What the caller may use: of plans with a least the smallest amount, else the first cost. */
static ngx_int_t variable_get_granted(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                                      uintptr_t data)
{
    const ngx_http_weir_ctx_t *ctx = variable_ctx(r);
    const ngx_http_weir_plan_t *plans[2];
    ngx_uint_t n = ctx ? fields_shown_plans(ctx, plans) : 0;
    bool grants = false;
    (void)data;
    if (n == 0)
        return variable_set_nothing(value);
    int64_t granted = plans[0]->folded.granted;
    for (ngx_uint_t i = 0; i < n; i++) {
        int64_t own = plans[i]->folded.granted;
        if (!plans[i]->folded.allowed)
            return variable_set_number(r, value, 0);
        if (weir__budget_of(plans[i]->requests, plans[i]->count).least == 0)
            continue;
        granted = grants ? ngx_min(granted, own) : own;
        grants = true;
    }
    return variable_set_number(r, value, granted);
}

/* 1 or 0: whether it is so. */
static ngx_int_t variable_get_flag(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                                   uintptr_t data)
{
    weir_decision decision;
    const ngx_http_weir_limit_t *binding;
    const ngx_http_weir_plan_t *bound;
    bool flag;
    if (!variable_decision(r, &decision, &binding, &bound))
        return variable_set_nothing(value);
    memcpy(&flag, (const char *)&decision + data, sizeof flag);
    return variable_set_number(r, value, flag);
}

/* The limit that decided; while the status is DRY_RUN, the one that would have refused. */
static ngx_int_t variable_get_binding(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                                      uintptr_t data)
{
    weir_decision decision;
    const ngx_http_weir_limit_t *binding;
    const ngx_http_weir_plan_t *bound;
    const ngx_http_weir_ctx_t *ctx = variable_ctx(r);
    (void)data;
    if (ctx && ctx->status == NGX_HTTP_WEIR_DRY_RUN) {
        assert(ctx->would);
        bound = ctx->would;
        ngx_http_weir_rule(bound, bound->folded.binding, &binding);
    } else if (!variable_decision(r, &decision, &binding, &bound)) {
        return variable_set_nothing(value);
    }
    if (binding->name.len)
        return variable_set_text(value, binding->name.data, binding->name.len);
    char *canonical = ngx_pnalloc(r->pool, WEIR__RULE_TEXT_MAX);
    if (!canonical)
        return NGX_ERROR;
    strcpy(canonical, ngx_http_weir_bound_text(bound).text);
    return variable_set_text(value, (const u_char *)canonical, strlen(canonical));
}

/* The client's address, or its network, as policies and all packages write it. It is read from
 * nginx's own text, which realip may have changed. What is no address ("unix:") stays as it is. */
static ngx_int_t variable_get_network(ngx_http_request_t *r, ngx_http_variable_value_t *value,
                                      uintptr_t data)
{
    const ngx_str_t *text = &r->connection->addr_text;
    struct weir__address address;
    char room[NGX_SOCKADDR_STRLEN];
    (void)data;
    if (!weir__address_read((const char *)text->data, text->len, &address))
        return variable_set_text(value, text->data, text->len);
    struct weir__buffer network = weir__buffer_over(room, sizeof room);
    weir__put_masked(&network, address, WEIR__IP_BITS4, WEIR__IP_BITS6);
    u_char *copy = ngx_pnalloc(r->pool, network.len);
    if (!copy)
        return NGX_ERROR;
    ngx_memcpy(copy, room, network.len);
    return variable_set_text(value, copy, network.len);
}

ngx_int_t ngx_http_weir_variables_add(ngx_conf_t *cf)
{
    static const struct {
        ngx_str_t name;
        ngx_http_get_variable_pt get;
        uintptr_t data;
    } all[] = {
        {ngx_string("weir_status"), variable_get_status, 0},
        {ngx_string("weir_limit"), variable_get_number, NUMBER(limit)},
        {ngx_string("weir_remaining"), variable_get_number, NUMBER(remaining)},
        {ngx_string("weir_retry_after"), variable_get_number, NUMBER(retry_after_us) | IN_SECONDS},
        {ngx_string("weir_retry_after_us"), variable_get_number, NUMBER(retry_after_us)},
        {ngx_string("weir_reset"), variable_get_number, NUMBER(reset_after_us) | IN_SECONDS},
        {ngx_string("weir_reset_us"), variable_get_number, NUMBER(reset_after_us)},
        {ngx_string("weir_delay"), variable_get_number, NUMBER(delay_us) | IN_SECONDS},
        {ngx_string("weir_delay_us"), variable_get_number, NUMBER(delay_us)},
        {ngx_string("weir_granted"), variable_get_granted, 0},
        {ngx_string("weir_degraded"), variable_get_flag, NUMBER(degraded)},
        {ngx_string("weir_local"), variable_get_flag, NUMBER(local)},
        {ngx_string("weir_binding"), variable_get_binding, 0},
        {ngx_string("weir_network"), variable_get_network, 0},
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
