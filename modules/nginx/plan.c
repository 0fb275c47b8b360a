/*
 * The plan of a request under some limits of its location: the keys, limits and costs that are
 * decided together.
 */
#include "ngx_http_weir.h"

#define BARE_SECONDS 60 /* how often a key with empty variables is logged */

#define MERGED_TEXT_ROOM ((size_t)WEIR_LIMITS_MAX * WEIR__RULE_TEXT_MAX)

/* Texts with variables that were parsed before; of this worker. */
static struct weir__limit_cache plan_texts;

void ngx_http_weir_plan_end(void)
{
    weir__limit_cache_clear(&plan_texts);
}

/* Text with variables that are all empty. That is no exemption: all such requests share one
 * state. */
static void plan_warn_bare(ngx_http_request_t *r, ngx_http_weir_limit_t *limit,
                           const ngx_str_t *key)
{
    if (limit->bare_at && ngx_time() - limit->bare_at < BARE_SECONDS)
        return;
    limit->bare_at = ngx_time();
    ngx_log_error(
        NGX_LOG_ERR, r->connection->log, 0,
        "weir: the variables of key \"%V\" are empty: all such requests share the state of "
        "\"%V\"; to exempt them write unless=, in %V:%ui",
        &limit->key_text, key, &limit->place.file, limit->place.line);
}

/* Whether the limit does not apply to this request. What cannot be read exempts nobody. */
static bool plan_is_exempt(ngx_http_request_t *r, const ngx_http_weir_limit_t *limit)
{
    ngx_str_t value;
    return limit->unless && ngx_http_complex_value(r, limit->unless, &value) == NGX_OK &&
           ngx_http_weir_says_yes(&value);
}

/* The key of a limit for this request; false: there is no key. */
static bool plan_read_key(ngx_http_request_t *r, ngx_http_weir_limit_t *limit, weir_key *ret)
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
        plan_warn_bare(r, limit, &key);
    *ret = weir_key_bytes(key.data, ngx_min(key.len, WEIR_KEY_MAX));
    return key.len > 0;
}

/* A value for the log: without control characters, and not too long. */
struct plan_shown {
    char text[112];
};

static struct plan_shown plan_show_value(const ngx_str_t *value)
{
    struct plan_shown ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    for (size_t i = 0; i < value->len && i < 100; i++) {
        char c = (char)value->data[i];
        weir__put(&buffer, (u_char)c < 0x20 || c == 0x7f ? "?" : &c, 1);
    }
    if (value->len > 100)
        weir__put_text(&buffer, "...");
    return ret;
}

/* A variable's value may be set again while the key is still needed. */
ngx_int_t ngx_http_weir_keep_key(ngx_pool_t *pool, weir_key *key)
{
    weir_key bytes = *key;
    u_char *copy = ngx_pnalloc(pool, bytes.len);
    if (!copy)
        return NGX_ERROR;
    ngx_memcpy(copy, bytes.data, bytes.len);
    *key = weir_key_bytes(copy, bytes.len);
    return NGX_OK;
}

static void plan_free_limit(void *data)
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
    cleanup->handler = plan_free_limit;
    cleanup->data = limit;
    return NGX_OK;
}

/* "20" is short for "concurrent 20", also in a variable. */
static ngx_int_t plan_complete_number(ngx_http_request_t *r, ngx_str_t *text)
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
static ngx_int_t plan_read_limit(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf,
                                 enum weir__verb verb, const weir_limit **ret)
{
    ngx_str_t text;
    weir_error err;
    if (ngx_http_complex_value(r, conf->text, &text) != NGX_OK)
        return NGX_ERROR;
    *ret = NULL;
    if (text.len == 0)
        return NGX_OK;
    if (verb == WEIR__VERB_ACQUIRE && plan_complete_number(r, &text) != NGX_OK)
        return NGX_ERROR;
    if (weir__limit_cache_needs_turn(&plan_texts))
        weir__limit_cache_turn(&plan_texts);
    const weir_limit *limit =
        weir__limit_cached(&plan_texts, (const char *)text.data, text.len, &err);
    if (!limit) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "weir: the limit \"%s\": %s in %V:%ui",
                      plan_show_value(&text).text, err.message, &conf->place.file,
                      conf->place.line);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    *ret = weir__limit_ref(limit);
    return ngx_http_weir_free_with(r->pool, (weir_limit *)limit);
}

/* cost= and least=, which may be of variables; an empty one is left out. */
static ngx_int_t plan_read_number(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf,
                                  const char *what, int64_t from, int64_t *ret)
{
    ngx_http_complex_value_t *value = from == 0 ? conf->cost : conf->least;
    ngx_str_t text;
    int64_t number;
    if (!value)
        return NGX_OK;
    if (ngx_http_complex_value(r, value, &text) != NGX_OK)
        return NGX_ERROR;
    if (text.len == 0)
        return NGX_OK;
    if (weir__resp_read_integer((const char *)text.data, text.len, &number) && number >= from &&
        number <= WEIR_COST_MAX) {
        *ret = number;
        return NGX_OK;
    }
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "weir: invalid %s \"%s\": expected %L to 10^12, in %V:%ui", what,
                  plan_show_value(&text).text, from, &conf->place.file, conf->place.line);
    return NGX_HTTP_BAD_REQUEST;
}

/* Whether a limit is of the kind that the verb is for. Texts with variables show it only now. */
static ngx_int_t plan_check_verb(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf,
                                 const weir_limit *limit, enum weir__verb verb)
{
    bool wanted = verb == WEIR__VERB_ACQUIRE;
    if (weir__has_leases(limit) == wanted && (!wanted || limit->count == 1))
        return NGX_OK;
    ngx_log_error(
        NGX_LOG_ERR, r->connection->log, 0,
        "weir: \"%s\" cannot be used here; weir_conn takes one concurrent limit, weir_limit "
        "takes all others, in %V:%ui",
        weir_limit_text(limit), &conf->place.file, conf->place.line);
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* What is given back by the answer is given back by the request's cost. */
bool ngx_http_weir_depends_on_costs(const ngx_http_weir_limit_t *conf, const weir_limit *limit)
{
    return limit->costs && (conf->on || conf->charge_if);
}

int ngx_http_weir_check_least(const weir_limit *limit, weir_error *err)
{
    weir_request request = weir_request_make(weir_key_text("k"), limit);
    request.least = 1;
    return weir__least_check(&request, err);
}

static ngx_int_t plan_check_costs(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf,
                                  const weir_limit *limit)
{
    if (!ngx_http_weir_depends_on_costs(conf, limit))
        return NGX_OK;
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "weir: \"%s\" has a cost of its own, which cannot be used with on= and "
                  "charge_if=; give the directive a cost=, in %V:%ui",
                  weir_limit_text(limit), &conf->place.file, conf->place.line);
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* cost= and least= of a request. */
static ngx_int_t plan_read_costs(ngx_http_request_t *r, const ngx_http_weir_limit_t *conf,
                                 weir_request *request)
{
    weir_error err;
    ngx_int_t rc = plan_read_number(r, conf, "cost", 0, &request->cost);
    if (rc == NGX_OK)
        rc = plan_read_number(r, conf, "least", 1, &request->least);
    if (rc != NGX_OK)
        return rc;
    if (request->cost == 0) /* it asks for nothing, and does not bound what others get */
        request->least = 0;
    if (!request->least || !ngx_http_weir_check_least(request->limit, &err))
        return NGX_OK;
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "weir: \"%s\": %s, in %V:%ui",
                  weir_limit_text(request->limit), err.message, &conf->place.file,
                  conf->place.line);
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}

/* Adds one limit; not if its key or its text is empty. */
static ngx_int_t plan_add(ngx_http_request_t *r, ngx_http_weir_limit_t *conf,
                          ngx_http_weir_plan_t *plan)
{
    weir_request *request = &plan->requests[plan->count];
    weir_key key;
    assert(plan->verb == WEIR__VERB_TAKE || plan->verb == WEIR__VERB_ACQUIRE);
    if (plan_is_exempt(r, conf) || !plan_read_key(r, conf, &key))
        return NGX_OK;
    *request = weir_request_make(key, conf->limit);
    request->wait_us = conf->wait_us;
    request->acquire = plan->verb == WEIR__VERB_ACQUIRE;
    if (conf->text) {
        ngx_int_t rc = plan_read_limit(r, conf, plan->verb, &request->limit);
        if (rc != NGX_OK || !request->limit)
            return rc;
        rc = plan_check_verb(r, conf, request->limit, plan->verb);
        if (rc == NGX_OK)
            rc = plan_check_costs(r, conf, request->limit);
        if (rc != NGX_OK)
            return rc;
    }
    if (conf->cost || conf->least) {
        ngx_int_t rc = plan_read_costs(r, conf, request);
        if (rc != NGX_OK)
            return rc;
    }
    if (conf->on || conf->charge_if)
        plan->depends = 1;
    plan->confs[plan->count++] = conf;
    plan->limits += request->limit->count;
    return NGX_OK;
}

/* ---- equal keys ---- */

/*
 * Two keys of a request may turn out to be equal under limits that would share a state: an API key
 * that is somebody's address, an account named like its only user. `nginx -t` warns of
 * configurations in which that can happen. Then one limit is left, no laxer than either: the
 * smaller of their counts and bursts, the larger of their costs. So nobody gains anything by
 * sending such a key.
 */

/* A copy of a request's limit, to be changed. It has references of its own, since a query to Redis
 * may outlive the request. NULL: no memory. */
static weir_limit *plan_own_limit(ngx_pool_t *pool, weir_request *request)
{
    size_t costs = WEIR_LIMITS_MAX * sizeof *request->limit->costs;
    weir_limit *copy = calloc(1, sizeof *copy + costs + MERGED_TEXT_ROOM);
    if (!copy || ngx_http_weir_free_with(pool, copy) != NGX_OK)
        return NULL;
    copy->costs = (int64_t *)(copy + 1);
    copy->text = (char *)(copy + 1) + costs;
    copy->count = request->limit->count;
    ngx_memcpy(copy->rules, request->limit->rules, copy->count * sizeof copy->rules[0]);
    for (size_t i = 0; i < copy->count; i++)
        ((int64_t *)copy->costs)[i] = weir_limit_cost(request->limit, i);
    request->limit = copy;
    return copy;
}

/* The least that a request must get. */
static int64_t plan_needs(const weir_request *request)
{
    return request->least ? request->least : request->cost;
}

/* Those with a least are granted one amount, so each least is within each of their costs. */
static void plan_set_least(ngx_http_weir_plan_t *plan)
{
    const struct weir__budget budget = weir__budget_of(plan->requests, plan->count);
    for (ngx_uint_t i = 0; i < plan->count && budget.least; i++) {
        if (!plan->requests[i].least)
            continue;
        plan->requests[i].cost = budget.most;
        plan->requests[i].least = ngx_min(budget.least, budget.most);
    }
}

/* A cost of a limit's own is the larger of what both are asked for. */
static void plan_merge_costs(const weir_request *early, size_t at, const weir_request *late,
                             size_t i)
{
    int64_t *costs = (int64_t *)early->limit->costs;
    if (!weir__limit_varies(early->limit, at) || !weir__limit_varies(late->limit, i))
        costs[at] = ngx_max(weir__limit_asked(early->limit, at, early->cost),
                            weir__limit_asked(late->limit, i, late->cost));
}

static void plan_tighten(struct weir__rule *rule, const struct weir__rule *other)
{
    rule->count = ngx_min(rule->count, other->count);
    rule->burst = ngx_min(rule->burst, other->burst);
    rule->extra = ngx_min(rule->extra, other->extra);
    weir__rule_derive(rule);
}

/* Redis gets the limits as text. */
static void plan_write_text(weir_limit *limit)
{
    struct weir__buffer buffer = weir__buffer_over(limit->text, MERGED_TEXT_ROOM);
    for (size_t i = 0; i < limit->count; i++) {
        weir__put_text(&buffer, i ? ", " : "");
        weir__put_limit(&buffer, limit, i);
    }
}

/* The index of the rule of `limit` that shares a state with this one, or the count. */
static size_t plan_partner(const weir_limit *limit, const struct weir__rule *rule)
{
    size_t i = 0;
    while (i < limit->count && !weir__rule_same_state(&limit->rules[i], rule))
        i++;
    return i;
}

/* Moves the rules of `late` that share a state with `early` over to it. */
static bool plan_merge_pair(ngx_pool_t *pool, weir_request *early, weir_request *late)
{
    weir_limit *kept = NULL, *rest = NULL;
    for (size_t i = 0; i < late->limit->count;) {
        size_t at = plan_partner(early->limit, &late->limit->rules[i]);
        if (at == early->limit->count) {
            i++;
            continue;
        }
        if (!kept &&
            (!(kept = plan_own_limit(pool, early)) || !(rest = plan_own_limit(pool, late))))
            return false;
        plan_tighten(&kept->rules[at], &rest->rules[i]);
        plan_merge_costs(early, at, late, i);
        if (early->least || late->least)
            early->least = ngx_max(plan_needs(early), plan_needs(late));
        early->cost = ngx_max(early->cost, late->cost);
        rest->count--;
        ngx_memmove(&rest->rules[i], &rest->rules[i + 1],
                    (rest->count - i) * sizeof rest->rules[0]);
        ngx_memmove((int64_t *)&rest->costs[i], &rest->costs[i + 1],
                    (rest->count - i) * sizeof rest->costs[0]);
    }
    if (kept) {
        weir_error err;
        if (early->least && weir__least_check(early, &err)) /* it waits or shapes: all of it */
            early->least = 0;
        plan_write_text(kept);
        plan_write_text(rest);
    }
    return true;
}

static bool plan_keys_equal(weir_key a, weir_key b)
{
    return a.len == b.len && !ngx_memcmp(a.data, b.data, a.len);
}

/* For a request whose limits have all been merged into another. */
static void plan_remove_request(ngx_http_weir_plan_t *plan, ngx_uint_t i)
{
    plan->count--;
    for (; i < plan->count; i++) {
        plan->requests[i] = plan->requests[i + 1];
        plan->confs[i] = plan->confs[i + 1];
    }
}

static bool plan_merge(ngx_pool_t *pool, ngx_http_weir_plan_t *plan)
{
    for (ngx_uint_t i = 1; i < plan->count;) {
        weir_request *late = &plan->requests[i];
        for (ngx_uint_t j = 0; j < i && late->limit->count > 0; j++) {
            weir_request *early = &plan->requests[j];
            if (plan->confs[i]->zone != plan->confs[j]->zone ||
                !plan_keys_equal(early->key, late->key))
                continue;
            bool stricter = late->limit->rules[0].count < early->limit->rules[0].count;
            size_t before = late->limit->count;
            if (!plan_merge_pair(pool, early, late))
                return false;
            if (late->limit->count < before)
                plan->merged = 1;
            if (late->limit->count == 0 && stricter) /* it has the name of the stricter one */
                plan->confs[j] = plan->confs[i];
        }
        if (late->limit->count == 0)
            plan_remove_request(plan, i);
        else
            i++;
    }
    plan->limits = 0;
    for (ngx_uint_t i = 0; i < plan->count; i++)
        plan->limits += plan->requests[i].limit->count;
    return true;
}

/* ---- the plan ---- */

/* In one allocation, with room for one row per text: few texts hold several limits. */
static ngx_http_weir_plan_t *plan_alloc(ngx_pool_t *pool, ngx_uint_t n, enum weir__verb verb)
{
    ngx_http_weir_plan_t *plan;
    size_t each = sizeof *plan->requests + sizeof *plan->rows + sizeof(void *);
    plan = ngx_palloc(pool, sizeof *plan + n * each);
    if (!plan)
        return NULL;
    plan->verb = verb;
    plan->count = plan->limits = 0;
    plan->failed = 0;
    plan->depends = plan->merged = plan->local = plan->closed = 0;
    plan->requests = (weir_request *)(plan + 1);
    plan->rows = (weir_decision *)(plan->requests + n);
    plan->confs = (const ngx_http_weir_limit_t **)(plan->rows + n);
    return plan;
}

static ngx_int_t plan_make_rows(ngx_http_request_t *r, ngx_http_weir_plan_t *plan, ngx_uint_t room)
{
    if (plan->limits > WEIR_LIMITS_MAX) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "weir: too many limits are decided together: %ui, at most 16; in %V:%ui",
                      plan->limits, &plan->confs[0]->place.file, plan->confs[0]->place.line);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (plan->limits > room)
        plan->rows = ngx_palloc(r->pool, plan->limits * sizeof *plan->rows);
    if (!plan->rows)
        return NGX_ERROR;
    weir_decision *rows = plan->rows;
    for (ngx_uint_t i = 0; i < plan->count; i++) {
        plan->requests[i].detail = rows;
        rows += plan->requests[i].limit->count;
    }
    return NGX_OK;
}

ngx_int_t ngx_http_weir_plan_make(ngx_http_request_t *r, ngx_http_weir_limit_t *const *limits,
                                  ngx_uint_t n, enum weir__verb verb, ngx_http_weir_plan_t **ret)
{
    ngx_http_weir_plan_t *plan = plan_alloc(r->pool, n, verb);
    *ret = NULL;
    if (!plan)
        return NGX_ERROR;
    for (ngx_uint_t i = 0; i < n; i++) {
        ngx_int_t rc = plan_add(r, limits[i], plan);
        if (rc != NGX_OK)
            return rc;
    }
    if (plan->count == 0)
        return NGX_OK;
    if (plan->count > 1 && !plan_merge(r->pool, plan))
        return NGX_ERROR;
    *ret = plan;
    plan_set_least(plan);
    return plan_make_rows(r, plan, n);
}
