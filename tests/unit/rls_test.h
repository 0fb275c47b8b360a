/*
 * What the tests of the rate limit service share: a configuration with a rule of every kind, a
 * store whose clock stands where it is put, requests put together and asked.
 */
#ifndef WEIR_RLS_TEST_H
#define WEIR_RLS_TEST_H

#include "store_test.h"

#include "policy/envoy/service.h"

static const char rls_configuration[] =
    "domain: d\n"
    "descriptors:\n"
    "  - {key: two, rate_limit: {unit: minute, requests_per_unit: 2}}\n"
    "  - {key: five, rate_limit: {unit: hour, requests_per_unit: 5, name: five-an-hour}}\n"
    "  - {key: ten, rate_limit: {unit: day, requests_per_unit: 10}}\n"
    "  - {key: banned, rate_limit: {unit: minute, requests_per_unit: 0}}\n"
    "  - {key: free, rate_limit: {unlimited: true}}\n"
    "  - {key: listed}\n"
    "  - {key: shady, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}\n"
    "  - {key: nope, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}\n"
    "  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}\n"
    "  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}\n"
    "  - {key: q0, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}\n"
    "  - {key: better, rate_limit: {unit: hour, requests_per_unit: 50, replaces: [{name: "
    "five-an-hour}]}}\n"
    "  - {key: tokens, charge_denied: true, rate_limit: {unit: hour, requests_per_unit: 100}}\n"
    "  - {key: bucket, limit: token-bucket 1/s burst 3}\n"
    "  - {key: log, limit: sliding-log 3/m}\n"
    "  - {key: both, limit: 'fixed-window 3/m, sliding-log 5/h'}\n"
    "  - {key: slow, limit: leaky-bucket 1/s burst 5}\n"
    "  - {key: f, value: 'f/*', share_threshold: true, rate_limit: {unit: minute, "
    "requests_per_unit: 2}}\n";

static _Atomic int64_t now = START;
static weir_store *store;
static struct weir__envoy *envoy;
static struct weir__limit_cache cache;
static struct weir__rls_options options;
static struct weir__rls_request request;
static struct weir__rls_call call;
static weir_error err;

/* ---- asking ---- */

static inline struct weir__span span(const char *text)
{
    return (struct weir__span){text, strlen(text)};
}

static inline void begin(const char *domain)
{
    memset(&request, 0, sizeof request);
    request.domain = span(domain);
}

/* A descriptor of one entry. */
static inline struct weir__rls_descriptor *add(const char *key, const char *value)
{
    struct weir__rls_descriptor *descriptor = &request.descriptors[request.descriptor_count++];
    weir__rls_clear(descriptor);
    descriptor->entries[descriptor->entry_count++] =
        (struct weir__rls_entry){span(key), span(value)};
    return descriptor;
}

static inline void hits(struct weir__rls_descriptor *descriptor, uint64_t n)
{
    descriptor->has_hits = true;
    descriptor->hits_addend = n;
}

static inline void bring(struct weir__rls_descriptor *descriptor, uint32_t requests, uint32_t unit)
{
    descriptor->has_limit = true;
    descriptor->requests_per_unit = requests;
    descriptor->unit = unit;
}

static inline int plan_it(void)
{
    struct weir__rls_setup setup = {.envoy = envoy, .cache = &cache, .options = options};
    err = (weir_error){0};
    weir__rls_end(&call);
    return weir__rls_plan(&setup, &request, &call, &err);
}

/* Plans and takes; the plan stays to be looked at until the next one. Whether the answer is OK. */
static inline bool ask(void)
{
    if (plan_it() || weir__rls_decide(store, &call, &err))
        test_give_up("ask", err.message);
    return !call.over;
}

static inline bool ask_one(const char *key, const char *value)
{
    begin("d");
    add(key, value);
    return ask();
}

static inline bool ask_two(const char *first, const char *second)
{
    begin("d");
    add(first, "x");
    add(second, "x");
    return ask();
}

static inline int64_t left(size_t i)
{
    return call.asked[i].decision.remaining;
}

static inline void fresh(void)
{
    weir_store_close(store);
    store = test_open("memory:1m?large=30%", &now);
    now = START;
    options = (struct weir__rls_options){0};
}

/* Whether a refund was answered OK. */
static inline bool refund(const char *key, uint64_t n)
{
    begin("d");
    struct weir__rls_descriptor *descriptor = add(key, "x");
    hits(descriptor, n);
    descriptor->is_negative_hits = true;
    return ask();
}

static inline void rls_open(void)
{
    if (weir__envoy_parse(rls_configuration, strlen(rls_configuration), "test.yaml", &envoy, &err))
        test_give_up("configuration", err.message);
}

static inline void rls_close(void)
{
    weir__rls_end(&call);
    weir__limit_cache_clear(&cache);
    weir__envoy_free(envoy);
    weir_store_close(store);
}

#endif
