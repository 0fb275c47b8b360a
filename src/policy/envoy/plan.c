/* From a request of the rate limit service to a plan, and what its decisions mean: see service.h.
 * */
#include "policy/envoy/service.h"

#include <assert.h>
#include <string.h>

#define RLS_NO_WAIT                                                                                \
    0 /* Envoy cannot be asked to hold a request back, so what would wait is denied */
_Static_assert(WEIR__RLS_DESCRIPTORS_MAX <= WEIR__ENTRIES_MAX &&
                   WEIR__RLS_DESCRIPTORS_MAX * WEIR__ENVOY_KEY_ROOM <= WEIR__PLAN_KEYS_ROOM,
               "a plan has room for the items and keys of all descriptors");

/* ---- one descriptor by Envoy's rules ---- */

/* A reference to the limit of an item that brought its own. The cache may be full of what others
 * still use: then it is read for this plan alone. */
static int rls_read_limit(struct weir__limit_cache *cache, const struct weir__rls_asked *asked,
                          const weir_limit **ret, weir_error *err)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir_limit *own = NULL;
    weir_error why = {0};
    weir__envoy_put_limit(&buffer, asked->requests_per_unit, asked->unit);
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
static int rls_bring_limit(const struct weir__rls_setup *setup,
                           const struct weir__rls_descriptor *descriptor, size_t i,
                           struct weir__rls_call *call, weir_error *err)
{
    struct weir__rls_asked *asked = &call->asked[i];
    if (descriptor->unit == WEIR__RLS_UNKNOWN_UNIT || descriptor->unit >= WEIR__RLS_UNITS)
        return weir__fail(
            err, WEIR_EINVAL, 0,
            "descriptor %zu brings a limit with the unit %u: expected 1 (second) to 7", i + 1,
            descriptor->unit);
    if (!setup->cache)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "descriptor %zu brings a limit, which this server does not accept",
                          i + 1);
    asked->unit = (enum weir__rls_unit)descriptor->unit;
    asked->requests_per_unit = descriptor->requests_per_unit;
    asked->denies = descriptor->requests_per_unit == 0;
    if (asked->denies)
        return 0;
    int code = rls_read_limit(setup->cache, asked, &call->held[call->held_count], err);
    if (code)
        return code;
    asked->limit = call->held[call->held_count++];
    return 0;
}

static void rls_follow(const struct weir__envoy_rule *rule, struct weir__rls_asked *asked)
{
    asked->rule = rule;
    asked->limit = rule->limit;
    asked->denies = rule->denies;
    asked->shadow = rule->shadow;
    asked->quota = rule->quota && !rule->shadow;
    asked->alone = asked->alone || rule->charge_denied;
    asked->unit = rule->unit;
    asked->requests_per_unit = rule->requests_per_unit;
    asked->outcome = rule->unlimited ? WEIR__RLS_UNLIMITED : WEIR__RLS_NO_RULE;
}

static int rls_set_hits(const struct weir__rls_request *request,
                        const struct weir__rls_descriptor *descriptor,
                        struct weir__rls_asked *asked, weir_error *err)
{
    uint64_t hits = descriptor->has_hits ? descriptor->hits_addend
                                         : (uint64_t)weir__max(1, request->hits_addend);
    if (hits > (uint64_t)WEIR_COST_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "hits_addend %llu is more than 10^12",
                          (unsigned long long)hits);
    asked->hits = (int64_t)hits;
    asked->refund = descriptor->is_negative_hits;
    return 0;
}

static int rls_match(const struct weir__rls_setup *setup, const struct weir__rls_request *request,
                     size_t i, struct weir__rls_call *call, weir_error *err)
{
    const struct weir__rls_descriptor *descriptor = &request->descriptors[i];
    struct weir__span shared[WEIR__RLS_ENTRIES_MAX];
    struct weir__rls_asked *asked = &call->asked[i];
    int code = 0;
    asked->alone = call->options.charge_denied;
    if (descriptor->has_limit) {
        code = rls_bring_limit(setup, descriptor, i, call, err);
    } else {
        const struct weir__envoy_rule *rule = weir__envoy_match(
            setup->envoy, call->domain, descriptor->entries, descriptor->entry_count, shared);
        if (rule)
            rls_follow(rule, asked);
    }
    if (code || !asked->limit)
        return code;
    char *room = call->plan.keys + i * WEIR__ENVOY_KEY_ROOM;
    size_t len;
    asked->long_key =
        weir__envoy_put_key(room, request->domain, descriptor->entries, descriptor->entry_count,
                            descriptor->has_limit ? NULL : shared, &len);
    asked->key = weir_key_bytes(room, len);
    return 0;
}

/* ---- all of them together ---- */

static bool rule_replaces(const struct weir__envoy_rule *rule, const char *name)
{
    for (size_t i = 0; i < rule->replace_count; i++) {
        if (!strcmp(rule->replaces[i], name))
            return true;
    }
    return false;
}

/* Limits that another rule of the request replaces are out of force. */
static void rls_replace(struct weir__rls_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        struct weir__rls_asked *asked = &call->asked[i];
        if (!asked->rule || asked->rule->unlimited || !asked->rule->limit_name[0])
            continue;
        for (size_t j = 0; j < call->count; j++) {
            const struct weir__envoy_rule *other = call->asked[j].rule;
            if (other && rule_replaces(other, asked->rule->limit_name)) {
                asked->limit = NULL;
                asked->denies = false;
                asked->outcome = WEIR__RLS_REPLACED;
            }
        }
    }
}

static int rls_fail_enforced(int code, size_t i, const struct weir__item *like, weir_error *err)
{
    size_t first = like ? (size_t)__builtin_ctz(like->owners) + 1 : 0;
    if (!like)
        return weir__fail(err, WEIR_EINVAL, 0, "more than %d limits apply to the descriptors",
                          WEIR_LIMITS_MAX);
    if (code == WEIR_ESHARED)
        return weir__fail(err, WEIR_ESHARED, 0,
                          "descriptors %zu and %zu count under one key with different limits",
                          first, i + 1);
    return weir__fail(err, WEIR_EINVAL, 0,
                      "the hits of descriptor %zu and those like it are more than 10^12", first);
}

/* The item that decides descriptor i. */
static int rls_add_item(struct weir__rls_call *call, size_t i, weir_error *err)
{
    struct weir__rls_asked *asked = &call->asked[i];
    struct weir__plan *plan = &call->plan;
    const struct weir__item item = {.limit = asked->limit,
                                    .key = asked->key,
                                    .cost = asked->hits,
                                    .owners = UINT32_C(1) << i,
                                    .quota = asked->quota && !asked->refund,
                                    .refund = asked->refund,
                                    .charge_denied = asked->alone && !asked->refund,
                                    .shadow = asked->shadow};
    plan->verdict = WEIR__VERDICT_LIMITS;
    if (!asked->alone && !asked->shadow && !asked->refund) {
        int code = weir__plan_enforce(plan, &item, &asked->item);
        return code ? rls_fail_enforced(code, i, asked->item, err) : 0;
    }
    asked->item = asked->alone || asked->refund ? &plan->separate[plan->separate_count++]
                                                : &plan->shadow[plan->shadow_count++];
    *asked->item = item;
    return 0;
}

static int rls_finish_rules(struct weir__rls_call *ret, weir_error *err)
{
    rls_replace(ret);
    for (size_t i = 0; i < ret->count; i++) {
        const struct weir__rls_asked *asked = &ret->asked[i];
        bool denies = asked->denies && !asked->shadow && !asked->refund;
        int code = asked->limit ? rls_add_item(ret, i, err) : 0;
        if (code)
            return code;
        ret->plan.denied = ret->plan.denied || (denies && !asked->quota);
        ret->plan.quotas_spent += denies && asked->quota;
    }
    return 0;
}

/* ---- descriptors by policies ---- */

struct rls_subject {
    struct weir__span domain;
    const struct weir__rls_descriptor *descriptor;
};

/* Whether an entry's key is this attribute's name, which is as weir__attribute_fold spells it. */
static bool rls_names(struct weir__span key, const char *name, size_t len)
{
    char folded[WEIR__ATTRIBUTE_NAME_MAX];
    if (key.len != len || len > sizeof folded)
        return false;
    memcpy(folded, key.data, len);
    weir__attribute_fold(folded, len);
    return !memcmp(folded, name, len);
}

/* An entry that is there twice is refused: whoever stands behind may take the other. */
static enum weir__found rls_find_entry(const struct rls_subject *subject, const char *name,
                                       size_t len, struct weir__span *ret)
{
    enum weir__found found = WEIR__ABSENT;
    if (len == 6 && !memcmp(name, "domain", 6)) {
        *ret = subject->domain;
        found = WEIR__FOUND;
    }
    for (size_t i = 0; i < subject->descriptor->entry_count; i++) {
        const struct weir__rls_entry *entry = &subject->descriptor->entries[i];
        if (!rls_names(entry->key, name, len))
            continue;
        if (found == WEIR__FOUND) {
            *ret = weir__span_of("is there twice");
            return WEIR__UNUSABLE;
        }
        *ret = entry->value;
        found = WEIR__FOUND;
    }
    return found;
}

/* The client's address is called remote_address by Envoy, and nothing else can be chosen there. */
static enum weir__found rls_find(const void *context, const char *name, size_t len,
                                 struct weir__span *ret)
{
    static const char address[] = "remote_address";
    enum weir__found found = rls_find_entry(context, name, len, ret);
    if (found == WEIR__ABSENT && len == 2 && !memcmp(name, "ip", 2))
        return rls_find_entry(context, address, sizeof address - 1, ret);
    return found;
}

/* Neither taken from nor given back to: refunds, which are separate, know of no lease. */
static int rls_check_leases(const struct weir__plan *plan, weir_error *err)
{
    size_t n = plan->enforced_count + plan->separate_count;
    for (size_t i = 0; i < n; i++) {
        const struct weir__item *item = i < plan->enforced_count
                                            ? &plan->enforced[i]
                                            : &plan->separate[i - plan->enforced_count];
        if (weir__has_leases(item->limit))
            return weir__fail(err, WEIR_EINVAL, 0,
                              "Envoy does not say when a request ends, so the concurrent limit of "
                              "\"%s\" would never be released",
                              item->policy->name);
    }
    return 0;
}

static int rls_plan_policy(const struct weir__rls_setup *setup,
                           const struct weir__rls_request *request, size_t i,
                           struct weir__rls_call *call, weir_error *err)
{
    const struct weir__rls_descriptor *descriptor = &request->descriptors[i];
    struct weir__rls_asked *asked = &call->asked[i];
    struct rls_subject subject = {request->domain, descriptor};
    const struct weir__subject finder = {rls_find, &subject};
    bool given = descriptor->has_hits || request->hits_addend > 0;
    int code = weir__policies_plan_more(setup->policies, &finder, given ? asked->hits : -1,
                                        (unsigned)i, asked->refund, &call->plan, err);
    asked->verdict = call->plan.verdict;
    asked->denial = call->plan.denial;
    asked->by = call->plan.by;
    asked->denies = asked->verdict == WEIR__VERDICT_DENY && !asked->refund;
    return code ? code : rls_check_leases(&call->plan, err);
}

static void rls_finish_policies(struct weir__rls_call *ret)
{
    struct weir__plan *plan = &ret->plan;
    plan->by = NULL;
    for (size_t i = ret->count; i > 0; i--) {
        const struct weir__rls_asked *asked = &ret->asked[i - 1];
        plan->by = asked->by ? asked->by : plan->by; /* the first */
        plan->denied = plan->denied || asked->denies;
    }
    bool items = plan->enforced_count + plan->shadow_count + plan->separate_count > 0;
    plan->verdict = items          ? WEIR__VERDICT_LIMITS
                    : plan->denied ? WEIR__VERDICT_DENY
                                   : WEIR__VERDICT_NONE;
}

/* ---- the whole request ---- */

static int rls_make(const struct weir__rls_setup *setup, const struct weir__rls_request *request,
                    struct weir__rls_call *ret, weir_error *err)
{
    if (request->domain.len == 0)
        return weir__fail(err, WEIR_EINVAL, 0, "the request names no domain");
    if (request->descriptor_count == 0)
        return weir__fail(err, WEIR_EINVAL, 0, "the request has no descriptors");
    ret->domain = setup->envoy ? weir__envoy_domain(setup->envoy, request->domain) : NULL;
    ret->by_policies = !ret->domain && setup->policies;
    for (size_t i = 0; i < request->descriptor_count; i = ++ret->count) {
        ret->asked[i] = (struct weir__rls_asked){0};
        int code = rls_set_hits(request, &request->descriptors[i], &ret->asked[i], err);
        if (code == 0 && ret->domain)
            code = rls_match(setup, request, i, ret, err);
        else if (code == 0 && ret->by_policies)
            code = rls_plan_policy(setup, request, i, ret, err);
        if (code)
            return code;
    }
    if (ret->by_policies)
        rls_finish_policies(ret);
    return ret->domain ? rls_finish_rules(ret, err) : 0;
}

int weir__rls_plan(const struct weir__rls_setup *setup, const struct weir__rls_request *request,
                   struct weir__rls_call *ret, weir_error *err)
{
    ret->count = ret->held_count = 0;
    ret->options = setup->options;
    ret->over = ret->by_policies = false;
    ret->domain = NULL;
    weir__plan_begin(&ret->plan);
    ret->plan.wait_us = RLS_NO_WAIT;
    ret->plan.together = WEIR__TOGETHER_IF_POSSIBLE;
    int code = rls_make(setup, request, ret, err);
    if (code)
        weir__rls_end(ret);
    ret->plan.shadows_follow = ret->domain != NULL;
    return code;
}

void weir__rls_end(struct weir__rls_call *call)
{
    for (size_t i = 0; i < call->held_count; i++)
        weir_limit_free((weir_limit *)call->held[i]);
    call->held_count = call->count = 0;
}

/* ---- deciding ---- */

static void rls_conclude_rule(struct weir__rls_asked *asked)
{
    if (asked->item && asked->item->decision.code) {
        asked->limit = NULL; /* a shadow that could not be decided: as if there were no rule */
        asked->item = NULL;
    }
    if (!asked->item && !asked->denies)
        return;
    if (asked->item)
        asked->decision = asked->item->decision;
    bool denied = asked->denies || !asked->decision.allowed;
    if (asked->refund)
        asked->outcome = WEIR__RLS_REFUNDED;
    else if (!denied)
        asked->outcome = WEIR__RLS_ALLOWED;
    else
        asked->outcome = asked->shadow ? WEIR__RLS_SHADOWED : WEIR__RLS_DENIED;
}

/* One answer out of the items of descriptor i. */
static void rls_conclude_policies(struct weir__rls_call *call, size_t i)
{
    struct weir__rls_asked *asked = &call->asked[i];
    struct weir__plan *plan = &call->plan;
    struct weir__item *list = asked->refund ? plan->separate : plan->enforced;
    size_t n = asked->refund ? plan->separate_count : plan->enforced_count, found = 0;
    weir_decision decisions[WEIR__ENTRIES_MAX];
    struct weir__item *items[WEIR__ENTRIES_MAX];
    for (size_t j = 0; j < n; j++) {
        if (list[j].owners & UINT32_C(1) << i) {
            items[found] = &list[j];
            decisions[found++] = list[j].decision;
        }
    }
    asked->outcome = asked->denies ? WEIR__RLS_DENIED : WEIR__RLS_NO_RULE;
    if (found == 0)
        return;
    weir__fold(decisions, found, &asked->decision);
    if (asked->decision.degraded)
        weir__plan_apply_fail(plan, UINT32_C(1) << i, &asked->decision);
    struct weir__item *bound = items[asked->decision.binding];
    asked->limit = bound->limit;
    asked->key = bound->key;
    asked->item = bound;
    asked->unit = weir__envoy_unit_of(&bound->limit->rules[bound->decision.binding],
                                      &asked->requests_per_unit);
    asked->outcome = asked->refund             ? WEIR__RLS_REFUNDED
                     : asked->decision.allowed ? WEIR__RLS_ALLOWED
                                               : WEIR__RLS_DENIED;
}

int weir__rls_decide(weir_store *store, struct weir__rls_call *call, weir_error *err)
{
    weir_decision whole;
    int code = weir__plan_decide(store, &call->plan, WEIR__TAKE, NULL, &whole);
    if (code)
        return weir__fail(err, code, 0, "the store cannot decide: %s", weir_strerror(code));
    call->over = call->plan.denied;
    for (size_t i = 0; i < call->count; i++) {
        if (call->by_policies)
            rls_conclude_policies(call, i);
        else
            rls_conclude_rule(&call->asked[i]);
    }
    return 0;
}
