/* From a request to what is to be taken: see rls.h. */
#include "policy/envoy/rls.h"

#include <string.h>

/* ---- one descriptor ---- */

/* A reference to the limit of an item that brought its own. The cache may be full of what others still
 * use: then it is read for this plan alone. */
static int read_limit(struct weir__limit_cache *cache, const struct server_rls_item *item,
                      const weir_limit **ret, weir_error *err)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir_limit *own = NULL;
    weir_error why = {0};
    weir__envoy_put_limit(&buffer, item->requests_per_unit, item->unit);
    if (weir__limit_cache_needs_turn(cache)) {
        int code = weir_limit_parse(text, &own, err);
        *ret = own;
        return code;
    }
    const weir_limit *cached = weir__limit_cached(cache, text, buffer.len, &why);
    if (!cached)
        return weir__fail(err, why.code, 0, "%s", why.message);
    *ret = weir__limit_ref(cached);
    return 0;
}

/* A limit that the request brought wins over the configuration, and is enforced. */
static int bring(const struct server_rls_setup *setup,
                 const struct weir__rls_descriptor *descriptor, size_t i,
                 struct server_rls_plan *plan, weir_error *err)
{
    struct server_rls_item *item = &plan->items[i];
    if (descriptor->unit == WEIR__RLS_UNKNOWN_UNIT || descriptor->unit >= WEIR__RLS_UNITS)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "descriptor %zu brings a limit of the unit %u; there are 1 (second) to 7",
                          i + 1, descriptor->unit);
    if (!setup->cache)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "descriptor %zu brings a limit, which this server does not take", i + 1);
    item->unit = (enum weir__rls_unit)descriptor->unit;
    item->requests_per_unit = descriptor->requests_per_unit;
    item->denies = descriptor->requests_per_unit == 0;
    if (item->denies)
        return 0;
    int code = read_limit(setup->cache, item, &plan->held[plan->held_count], err);
    if (code)
        return code;
    item->limit = plan->held[plan->held_count++];
    return 0;
}

static void follow(const struct weir__envoy_rule *rule, struct server_rls_item *item)
{
    item->rule = rule;
    item->limit = rule->limit;
    item->denies = rule->denies;
    item->shadow = rule->shadow;
    item->quota = rule->quota && !rule->shadow;
    item->alone = item->alone || rule->charge_denied;
    item->unit = rule->unit;
    item->requests_per_unit = rule->requests_per_unit;
    item->outcome = rule->unlimited ? SERVER_RLS_UNLIMITED : SERVER_RLS_NONE;
}

static int set_hits(const struct weir__rls_request *request,
                    const struct weir__rls_descriptor *descriptor, struct server_rls_item *item,
                    weir_error *err)
{
    uint64_t hits = descriptor->has_hits ? descriptor->hits_addend
                                         : (uint64_t)weir__max(1, request->hits_addend);
    if (hits > (uint64_t)WEIR_COST_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "hits_addend %llu is more than 10^12",
                          (unsigned long long)hits);
    item->hits = item->cost = (int64_t)hits;
    item->refund = descriptor->is_negative_hits;
    return 0;
}

static int plan_item(const struct server_rls_setup *setup, const struct weir__rls_request *request,
                     const struct weir__envoy_domain *domain, size_t i,
                     struct server_rls_plan *plan, weir_error *err)
{
    const struct weir__rls_descriptor *descriptor = &request->descriptors[i];
    struct weir__span shared[WEIR__RLS_ENTRIES_MAX];
    struct server_rls_item *item = &plan->items[i];
    *item = (struct server_rls_item){.same_as = (uint8_t)i, .alone = plan->options.charge_denied};
    int code = set_hits(request, descriptor, item, err);
    if (code || !domain)
        return code;
    if (descriptor->has_limit) {
        code = bring(setup, descriptor, i, plan, err);
    } else {
        const struct weir__envoy_rule *rule = weir__envoy_match(
            setup->envoy, domain, descriptor->entries, descriptor->entry_count, shared);
        if (rule)
            follow(rule, item);
    }
    if (code || !item->limit)
        return code;
    size_t len;
    item->long_key =
        weir__envoy_put_key(plan->keys[i], request->domain, descriptor->entries,
                            descriptor->entry_count, descriptor->has_limit ? NULL : shared, &len);
    item->key = weir_key_bytes(plan->keys[i], len);
    return 0;
}

/* ---- all of them together ---- */

static bool names(const struct weir__envoy_rule *rule, const char *name)
{
    for (size_t i = 0; i < rule->replace_count; i++) {
        if (!strcmp(rule->replaces[i], name))
            return true;
    }
    return false;
}

/* Limits that another rule of the request replaces are out of force. */
static void replace(struct server_rls_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct server_rls_item *item = &plan->items[i];
        if (!item->rule || item->rule->unlimited || !item->rule->limit_name[0])
            continue;
        for (size_t j = 0; j < plan->count; j++) {
            const struct weir__envoy_rule *other = plan->items[j].rule;
            if (other && names(other, item->rule->limit_name)) {
                item->limit = NULL;
                item->denies = false;
                item->outcome = SERVER_RLS_REPLACED;
            }
        }
    }
}

static bool grouped(const struct server_rls_item *item)
{
    return item->limit && !item->alone && !item->shadow && !item->refund;
}

static bool same_key(const struct server_rls_item *a, const struct server_rls_item *b)
{
    return a->key.len == b->key.len && !memcmp(a->key.data, b->key.data, a->key.len);
}

static bool share_state(const weir_limit *a, const weir_limit *b)
{
    for (size_t i = 0; i < a->count; i++) {
        for (size_t j = 0; j < b->count; j++) {
            if (weir__rule_same_state(&a->rules[i], &b->rules[j]))
                return true;
        }
    }
    return false;
}

static bool same_limit(const weir_limit *a, const weir_limit *b)
{
    return a == b ||
           (a->count == b->count && !memcmp(a->rules, b->rules, a->count * sizeof a->rules[0]));
}

/* A descriptor that is there twice is taken once, with the hits of both. */
static int join(struct server_rls_plan *plan, size_t i, weir_error *err)
{
    struct server_rls_item *item = &plan->items[i];
    for (size_t j = 0; j < i; j++) {
        struct server_rls_item *first = &plan->items[j];
        if (!grouped(first) || first->same_as != j || !same_key(first, item))
            continue;
        if (same_limit(first->limit, item->limit)) {
            item->same_as = (uint8_t)j;
            first->cost += item->cost;
            if (first->cost > WEIR_COST_MAX)
                return weir__fail(err, WEIR_EINVAL, 0,
                                  "the hits of descriptor %zu and its likes "
                                  "are more than 10^12",
                                  j + 1);
            return 0;
        }
        if (share_state(first->limit, item->limit))
            return weir__fail(err, WEIR_ESHARED, 0,
                              "descriptors %zu and %zu count in one place against different limits",
                              j + 1, i + 1);
    }
    return 0;
}

static int join_all(struct server_rls_plan *plan, weir_error *err)
{
    size_t limits = 0;
    for (size_t i = 0; i < plan->count; i++) {
        if (!grouped(&plan->items[i]))
            continue;
        int code = join(plan, i, err);
        if (code)
            return code;
        if (plan->items[i].same_as == i)
            limits += plan->items[i].limit->count;
    }
    if (limits > WEIR_LIMITS_MAX)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "the descriptors are under %zu limits, at most %d are decided together",
                          limits, WEIR_LIMITS_MAX);
    return 0;
}

static int make(const struct server_rls_setup *setup, const struct weir__rls_request *request,
                struct server_rls_plan *ret, weir_error *err)
{
    const struct weir__envoy_domain *domain = weir__envoy_domain(setup->envoy, request->domain);
    int code = 0;
    if (request->domain.len == 0)
        return weir__fail(err, WEIR_EINVAL, 0, "the request names no domain");
    if (request->descriptor_count == 0)
        return weir__fail(err, WEIR_EINVAL, 0, "the request has no descriptors");
    ret->domain = domain;
    for (; ret->count < request->descriptor_count && code == 0; ret->count++)
        code = plan_item(setup, request, domain, ret->count, ret, err);
    if (code)
        return code;
    replace(ret);
    return join_all(ret, err);
}

int server_rls_plan(const struct server_rls_setup *setup, const struct weir__rls_request *request,
                    struct server_rls_plan *ret, weir_error *err)
{
    ret->count = ret->held_count = 0;
    ret->options = setup->options;
    ret->over = false;
    ret->domain = NULL;
    int code = make(setup, request, ret, err);
    if (code)
        server_rls_end(ret);
    return code;
}

void server_rls_end(struct server_rls_plan *plan)
{
    for (size_t i = 0; i < plan->held_count; i++)
        weir_limit_free((weir_limit *)plan->held[i]);
    plan->held_count = plan->count = 0;
}
