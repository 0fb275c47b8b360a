/*
 * Metrics: see metrics.h. The names of series and rules, the counters of each thread, the ids of a
 * loaded set of policies, reloads and ticks, and the sums that the reports read.
 */
#include "server/observe/observe.h"

#include "base/base.h"
#include "base/hash.h"
#include "policy/policy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *const server_protocol_names[SERVER_PROTOCOLS] = {"http", "resp", "grpc"};

/* ---- names and their ids ---- */

/* Names become ids by an open hash table that is at most half full. Names come from configuration
 * files, so the hash needs no secret. */

static void names_destroy(struct server_names *names)
{
    for (uint32_t i = 0; i < names->count; i++)
        free(names->names[i].first);
    free(names->names);
    free(names->slots);
    *names = (struct server_names){0};
}

static int names_create(struct server_names *names, uint32_t max)
{
    uint32_t slots = 16;
    while (slots < 2 * max)
        slots *= 2;
    *names = (struct server_names){
        .names = calloc(max, sizeof *names->names),
        .slots = calloc(slots, sizeof *names->slots),
        .max = max,
        .mask = slots - 1,
    };
    if (names->names && names->slots)
        return 0;
    names_destroy(names);
    return WEIR_ENOMEM;
}

/* The slot that holds the pair, or the empty one where it belongs. */
static uint32_t *names_slot_of(const struct server_names *names, const char *first,
                               const char *second)
{
    const uint64_t secret[2] = {0, 0};
    uint64_t one[2], two[2];
    weir__hash(secret, first, strlen(first), one);
    weir__hash(one, second, strlen(second), two);
    uint32_t at = (uint32_t)two[0] & names->mask;
    for (; names->slots[at]; at = (at + 1) & names->mask) {
        const struct server_name *name = &names->names[names->slots[at] - 1];
        if (!strcmp(name->first, first) && !strcmp(name->second, second))
            break;
    }
    return &names->slots[at];
}

static uint32_t names_no_room(struct server_names *names)
{
    names->refused++;
    return SERVER_NO_NAME;
}

/* Puts a pair at the end of the list of its first name. */
static void names_link_child(struct server_names *names, uint32_t parent, uint32_t id)
{
    struct server_name *const name = &names->names[parent];
    if (name->child)
        names->names[name->last].next = id;
    else
        name->child = id;
    name->last = id;
}

/* The id of a pair, given now if it has none; SERVER_NO_NAME: no room. The first name alone gets
 * its id before the pair. */
static uint32_t names_id(struct server_names *names, const char *first, const char *second)
{
    uint32_t *slot = names_slot_of(names, first, second);
    if (*slot)
        return *slot - 1;
    uint32_t parent = SERVER_NO_NAME;
    if (second[0]) {
        parent = names_id(names, first, "");
        if (parent == SERVER_NO_NAME)
            return SERVER_NO_NAME;
        slot = names_slot_of(names, first, second);
    }
    const size_t first_len = strlen(first), second_len = strlen(second);
    if (names->count == names->max || first_len + second_len > SERVER_NAME_MAX)
        return names_no_room(names);
    char *const text = malloc(first_len + second_len + 2);
    if (!text)
        return names_no_room(names);
    memcpy(text, first, first_len + 1);
    memcpy(text + first_len + 1, second, second_len + 1);
    assert(names->count < names->max && 2 * names->max <= names->mask + 1);
    const uint32_t id = names->count++;
    names->names[id] = (struct server_name){.first = text, .second = text + first_len + 1};
    names->bytes += first_len + second_len;
    names->firsts += parent == SERVER_NO_NAME;
    names->first_bytes += parent == SERVER_NO_NAME ? first_len : 0;
    *slot = id + 1;
    if (parent != SERVER_NO_NAME)
        names_link_child(names, parent, id);
    return id;
}

/* ---- making ---- */

/* Each thread has its counters in its own mapping: only touched pages take memory, and no two
 * threads write to the same cache line. */
#define SERIES_AT ((sizeof(struct server_counters) + 63) / 64 * 64)
#define CORRECTIONS_AT (SERIES_AT + SERVER_SERIES_MAX * sizeof(struct server_series))
#define RULES_AT (CORRECTIONS_AT + SERVER_SERIES_MAX * sizeof(struct server_corrections))
#define COUNTERS_SIZE (RULES_AT + SERVER_RULES_MAX * sizeof(struct server_rule))

_Static_assert(sizeof(struct server_series) == 64, "a series is a cache line");

static struct server_counters *metrics_counters_create(void)
{
    char *const memory = mmap(NULL, COUNTERS_SIZE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    struct server_counters *const counters = (struct server_counters *)memory;
    counters->series = (struct server_series *)(memory + SERIES_AT);
    counters->corrections = (struct server_corrections *)(memory + CORRECTIONS_AT);
    counters->rules = (struct server_rule *)(memory + RULES_AT);
    return counters;
}

static void metrics_counters_destroy(struct server_counters *counters)
{
    if (counters)
        munmap(counters, COUNTERS_SIZE);
}

/* No policy can have this name, and it is never shown. */
#define TOTAL_NAME "\001"

/* The ids that always exist, in the order of SERVER_SERIES_…. */
static bool metrics_name_constants(struct server_metrics *metrics)
{
    return names_id(&metrics->series, TOTAL_NAME, "") == SERVER_SERIES_TOTAL &&
           names_id(&metrics->series, "", "") == SERVER_SERIES_ADHOC &&
           names_id(&metrics->series, "(other)", "") == SERVER_SERIES_OTHER &&
           names_id(&metrics->rules, "(other)", "") == SERVER_RULE_OTHER;
}

static bool metrics_make_parts(struct server_metrics *metrics)
{
    const size_t threads = metrics->setup.threads;
    metrics->threads = calloc(threads, sizeof(struct server_counters *));
    if (!metrics->threads)
        return false;
    for (size_t i = 0; i < threads; i++) {
        metrics->threads[i] = metrics_counters_create();
        if (!metrics->threads[i])
            return false;
    }
    metrics->sums.series = calloc(SERVER_SERIES_MAX, sizeof(struct server_series));
    metrics->sums.corrections = calloc(SERVER_SERIES_MAX, sizeof(struct server_corrections));
    metrics->sums.rules = calloc(SERVER_RULES_MAX, sizeof(struct server_rule));
    return metrics->sums.series && metrics->sums.corrections && metrics->sums.rules &&
           server_history_create(metrics->setup.now_us, &metrics->history) == 0 &&
           names_create(&metrics->series, SERVER_SERIES_MAX) == 0 &&
           names_create(&metrics->rules, SERVER_RULES_MAX) == 0 && metrics_name_constants(metrics);
}

int server_metrics_create(const struct server_metrics_setup *setup, struct server_metrics **ret,
                          weir_error *err)
{
    struct server_metrics *const metrics = calloc(1, sizeof *metrics);
    if (metrics) {
        metrics->setup = *setup;
        metrics->reloaded_us = setup->now_us;
        pthread_mutex_init(&metrics->lock, NULL);
        if (metrics_make_parts(metrics)) {
            *ret = metrics;
            return WEIR_OK;
        }
    }
    server_metrics_destroy(metrics);
    return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the metrics of %zu threads",
                      setup->threads);
}

void server_metrics_destroy(struct server_metrics *metrics)
{
    if (!metrics)
        return;
    for (size_t i = 0; metrics->threads && i < metrics->setup.threads; i++)
        metrics_counters_destroy(metrics->threads[i]);
    free(metrics->threads);
    free(metrics->sums.series);
    free(metrics->sums.corrections);
    free(metrics->sums.rules);
    server_history_destroy(metrics->history);
    names_destroy(&metrics->series);
    names_destroy(&metrics->rules);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

struct server_counters *server_metrics_thread(struct server_metrics *metrics, size_t i)
{
    assert(i < metrics->setup.threads);
    return metrics->threads[i];
}

/* ---- ids of series and rules ---- */

static uint32_t metrics_name(struct server_metrics *metrics, struct server_names *names,
                             const char *first, const char *second, uint32_t other)
{
    pthread_mutex_lock(&metrics->lock);
    const uint32_t id = names_id(names, first, second);
    pthread_mutex_unlock(&metrics->lock);
    return id == SERVER_NO_NAME ? other : id;
}

uint32_t server_metrics_series(struct server_metrics *metrics, const char *policy,
                               const char *entry)
{
    return metrics_name(metrics, &metrics->series, policy, entry ? entry : "", SERVER_SERIES_OTHER);
}

uint32_t server_metrics_rule(struct server_metrics *metrics, const char *domain, const char *name)
{
    return metrics_name(metrics, &metrics->rules, domain, name, SERVER_RULE_OTHER);
}

/* ---- reloads and ticks ---- */

void server_metrics_reloaded(struct server_metrics *metrics, bool ok, int64_t now_us)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->reload_failing = !ok;
    if (ok) {
        metrics->reloads_ok++;
        metrics->reloaded_us = now_us;
    } else {
        metrics->reloads_failed++;
    }
    pthread_mutex_unlock(&metrics->lock);
}

void server_metrics_zone_deleted(struct server_metrics *metrics, bool deleted)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->zone_deleted = deleted;
    pthread_mutex_unlock(&metrics->lock);
}

void server_metrics_certificate(struct server_metrics *metrics, int64_t expires)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->certificate_expires = expires;
    pthread_mutex_unlock(&metrics->lock);
}

void server_metrics_tick(struct server_metrics *metrics, int64_t now_us)
{
    pthread_mutex_lock(&metrics->lock);
    struct server_metrics_moment *const moment =
        &metrics->moments[metrics->ticks++ % SERVER_METRICS_WINDOW];
    *moment = (struct server_metrics_moment){.time_us = now_us};
    for (size_t i = 0; i < metrics->setup.threads; i++) {
        const struct server_counters *const thread = metrics->threads[i];
        server_histogram_add(&moment->latency, &thread->latency);
        moment->degraded +=
            __atomic_load_n(&thread->series[SERVER_SERIES_TOTAL].degraded, __ATOMIC_RELAXED);
    }
    server_history_tick(metrics, now_us);
    pthread_mutex_unlock(&metrics->lock);
}

uint64_t server_metrics_decided(struct server_metrics *metrics, uint64_t *ret_degraded)
{
    uint64_t decided = 0;
    *ret_degraded = 0;
    pthread_mutex_lock(&metrics->lock);
    for (size_t i = 0; i < metrics->setup.threads; i++) {
        const struct server_series *const total = &metrics->threads[i]->series[SERVER_SERIES_TOTAL];
        *ret_degraded += __atomic_load_n(&total->degraded, __ATOMIC_RELAXED);
        decided += __atomic_load_n(&total->allowed, __ATOMIC_RELAXED) +
                   __atomic_load_n(&total->denied, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&metrics->lock);
    return decided;
}

size_t server_metrics_room(struct server_metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    const size_t names = metrics->series.count + metrics->rules.count;
    const size_t bytes = metrics->series.bytes + metrics->rules.bytes;
    const size_t policies = metrics->series.firsts, policy_bytes = metrics->series.first_bytes;
    pthread_mutex_unlock(&metrics->lock);
    /* The text report has at most six lines for a pair, 150 bytes each without its names, and an
     * escaped byte of a name takes two. JSON has each pair once, and an escaped byte takes six.
     * A whole policy has as many lines more as there are results of settles and refunds. */
    const size_t results = SERVER_SETTLES_COUNT + SERVER_REFUNDS_COUNT;
    return 32768 + names * 6 * 150 + bytes * 6 * 2 + policies * results * 150 +
           policy_bytes * results * 2;
}

/* ---- the ids of a set of policies ---- */

static uint32_t metrics_id_of(struct server_metrics *metrics, const char *policy, const char *entry,
                              bool shadow)
{
    const uint32_t id = names_id(&metrics->series, policy, entry);
    if (id == SERVER_NO_NAME)
        return SERVER_SERIES_OTHER;
    metrics->series.names[id].gone = false;
    metrics->series.names[id].shadow = shadow;
    return id;
}

static void metrics_resolve_policy(struct server_metrics *metrics,
                                   const struct weir__policy *policy,
                                   const struct server_series_ids *ids)
{
    ids->policies[policy->index] = metrics_id_of(metrics, policy->name, "", false);
    for (size_t i = 0; i < policy->entry_count; i++) {
        const struct weir__entry *const entry = &policy->entries[i];
        ids->entries[entry->index] =
            metrics_id_of(metrics, policy->name, entry->name, entry->shadow);
    }
}

int server_metrics_resolve(struct server_metrics *metrics, const struct weir__policies *policies,
                           struct server_series_ids *ret)
{
    const size_t count = policies->count;
    struct server_series_ids ids = {
        .policies = calloc(count + 1, sizeof *ids.policies),
        .entries = calloc(policies->entry_count + 1, sizeof *ids.entries),
    };
    if (!ids.policies || !ids.entries) {
        server_series_ids_free(&ids);
        return WEIR_ENOMEM;
    }
    pthread_mutex_lock(&metrics->lock);
    for (uint32_t i = SERVER_SERIES_OTHER + 1; i < metrics->series.count; i++)
        metrics->series.names[i].gone = true;
    for (size_t i = 0; i < count; i++)
        metrics_resolve_policy(metrics, &policies->policies[i], &ids);
    metrics->policies_loaded = count;
    pthread_mutex_unlock(&metrics->lock);
    *ret = ids;
    return WEIR_OK;
}

void server_series_ids_free(struct server_series_ids *ids)
{
    free(ids->policies);
    free(ids->entries);
    *ids = (struct server_series_ids){0};
}

/* ---- sums ----
 *
 * Counters are read one by one while they change. So a report does not show one instant, but each
 * number in it was true at some moment, and no number ever decreases. */

/* Adds n counters that lie side by side. */
static void metrics_add_counters(void *to, const void *from, size_t n)
{
    uint64_t *const sums = to;
    const uint64_t *const counters = from;
    for (size_t i = 0; i < n; i++)
        sums[i] += __atomic_load_n(&counters[i], __ATOMIC_RELAXED);
}

#define WORDS(type) (sizeof(type) / sizeof(uint64_t))
/* Everything before the histogram is counters. */
#define PLAIN (offsetof(struct server_counters, latency) / sizeof(uint64_t))

void server_metrics_sum(struct server_metrics *metrics)
{
    assert(server_lock_is_held(&metrics->lock));
    struct server_counters *const sums = &metrics->sums;
    memset(sums, 0, offsetof(struct server_counters, series));
    memset(sums->series, 0, metrics->series.count * sizeof *sums->series);
    memset(sums->corrections, 0, metrics->series.count * sizeof *sums->corrections);
    memset(sums->rules, 0, metrics->rules.count * sizeof *sums->rules);
    for (size_t i = 0; i < metrics->setup.threads; i++) {
        const struct server_counters *const thread = metrics->threads[i];
        metrics_add_counters(sums, thread, PLAIN);
        server_histogram_add(&sums->latency, &thread->latency);
        metrics_add_counters(sums->series, thread->series,
                             metrics->series.count * WORDS(struct server_series));
        metrics_add_counters(sums->corrections, thread->corrections,
                             metrics->series.count * WORDS(struct server_corrections));
        metrics_add_counters(sums->rules, thread->rules,
                             metrics->rules.count * WORDS(struct server_rule));
    }
}

void server_metrics_window(const struct server_metrics *metrics, int64_t now_us,
                           struct server_metrics_window *ret)
{
    *ret = (struct server_metrics_window){
        .latency = metrics->sums.latency,
        .degraded = metrics->sums.series[SERVER_SERIES_TOTAL].degraded,
        .span_us = now_us - metrics->setup.now_us,
    };
    if (metrics->ticks < SERVER_METRICS_WINDOW)
        return;
    const struct server_metrics_moment *const oldest =
        &metrics->moments[metrics->ticks % SERVER_METRICS_WINDOW];
    assert(oldest->degraded <= ret->degraded);
    server_histogram_subtract(&ret->latency, &oldest->latency);
    ret->degraded -= oldest->degraded;
    ret->span_us = now_us - oldest->time_us;
}
