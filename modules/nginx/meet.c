/*
 * Two keys of a request that turn out to be equal, under limits that would share a state: an API key that
 * is somebody's address, an account named like its only user. `nginx -t` warns of configurations in which
 * that can happen. Then one limit is left, no laxer than either: the smaller of their counts and bursts,
 * the larger of their costs. So nobody gains anything by sending such a key.
 */
#include "ngx_http_weir.h"

#define TEXT_ROOM ((size_t)WEIR_LIMITS_MAX * WEIR__RULE_TEXT_MAX)

/* A limit of the request's own, to be changed; a question to Redis may outlive the request, and keep it.
 * NULL: no memory. */
static weir_limit *own(ngx_pool_t *pool, weir_request *request)
{
    weir_limit *copy = calloc(1, sizeof *copy + TEXT_ROOM);
    if (!copy || ngx_http_weir_free_with(pool, copy) != NGX_OK)
        return NULL;
    copy->text = (char *)(copy + 1);
    copy->count = request->limit->count;
    ngx_memcpy(copy->rules, request->limit->rules, sizeof copy->rules);
    request->limit = copy;
    return copy;
}

static void tighten(struct weir__rule *rule, const struct weir__rule *other)
{
    rule->count = ngx_min(rule->count, other->count);
    rule->burst = ngx_min(rule->burst, other->burst);
    rule->extra = ngx_min(rule->extra, other->extra);
    weir__rule_derive(rule);
}

/* Redis is told the limits as text. */
static void write_text(weir_limit *limit)
{
    struct weir__buffer buffer = weir__buffer_over(limit->text, TEXT_ROOM);
    for (size_t i = 0; i < limit->count; i++) {
        weir__put_text(&buffer, i ? ", " : "");
        weir__put_rule(&buffer, &limit->rules[i]);
    }
}

/* The index of the rule of `limit` that shares a state with this one, or the count. */
static size_t partner(const weir_limit *limit, const struct weir__rule *rule)
{
    size_t i = 0;
    while (i < limit->count && !weir__rule_same_state(&limit->rules[i], rule))
        i++;
    return i;
}

/* Moves what `late` shares with `early` over to it. */
static bool merge(ngx_pool_t *pool, weir_request *early, weir_request *late)
{
    weir_limit *kept = NULL, *rest = NULL;
    for (size_t i = 0; i < late->limit->count;) {
        size_t at = partner(early->limit, &late->limit->rules[i]);
        if (at == early->limit->count) {
            i++;
            continue;
        }
        if (!kept && (!(kept = own(pool, early)) || !(rest = own(pool, late))))
            return false;
        tighten(&kept->rules[at], &rest->rules[i]);
        early->cost = ngx_max(early->cost, late->cost);
        rest->count--;
        ngx_memmove(&rest->rules[i], &rest->rules[i + 1],
                    (rest->count - i) * sizeof rest->rules[0]);
    }
    if (kept) {
        write_text(kept);
        write_text(rest);
    }
    return true;
}

static bool are_equal(weir_key a, weir_key b)
{
    return a.len == b.len && !ngx_memcmp(a.data, b.data, a.len);
}

/* A request without limits is none. */
static void remove_request(ngx_http_weir_ask_t *ask, ngx_uint_t i)
{
    ask->count--;
    for (; i < ask->count; i++) {
        ask->requests[i] = ask->requests[i + 1];
        ask->confs[i] = ask->confs[i + 1];
    }
}

bool ngx_http_weir_meet(ngx_pool_t *pool, ngx_http_weir_ask_t *ask)
{
    for (ngx_uint_t i = 1; i < ask->count;) {
        weir_request *late = &ask->requests[i];
        for (ngx_uint_t j = 0; j < i && late->limit->count > 0; j++) {
            weir_request *early = &ask->requests[j];
            if (ask->confs[i]->zone != ask->confs[j]->zone || !are_equal(early->key, late->key))
                continue;
            bool stricter = late->limit->rules[0].count < early->limit->rules[0].count;
            size_t before = late->limit->count;
            if (!merge(pool, early, late))
                return false;
            if (late->limit->count < before)
                ask->met = 1;
            if (late->limit->count == 0 && stricter) /* it goes by the name of the one that binds */
                ask->confs[j] = ask->confs[i];
        }
        if (late->limit->count == 0)
            remove_request(ask, i);
        else
            i++;
    }
    ask->limits = 0;
    for (ngx_uint_t i = 0; i < ask->count; i++)
        ask->limits += ask->requests[i].limit->count;
    return true;
}
