/* From a loaded set of policies to the ids of its series. */
#include "policy/policy.h"
#include "server/observe/metrics_inside.h"

#include <stdlib.h>

static uint32_t id_of(struct server_metrics *metrics, const char *policy, const char *entry,
                      bool shadow)
{
    const uint32_t id = server_names_id(&metrics->series, policy, entry);
    if (id == SERVER_NO_NAME)
        return SERVER_SERIES_OTHER;
    metrics->series.names[id].gone = false;
    metrics->series.names[id].shadow = shadow;
    return id;
}

static void resolve_policy(struct server_metrics *metrics, const struct weir__policy *policy,
                           const struct server_series_ids *ids)
{
    ids->policies[policy->index] = id_of(metrics, policy->name, "", false);
    for (size_t i = 0; i < policy->entry_count; i++) {
        const struct weir__entry *const entry = &policy->entries[i];
        ids->entries[entry->index] = id_of(metrics, policy->name, entry->name, entry->shadow);
    }
}

int server_metrics_resolve(struct server_metrics *metrics, const struct weir__policies *policies,
                           struct server_series_ids *ret)
{
    const size_t count = weir__policies_count(policies);
    struct server_series_ids ids = {
        .policies = calloc(count + 1, sizeof *ids.policies),
        .entries = calloc(weir__policies_entries(policies) + 1, sizeof *ids.entries),
    };
    if (!ids.policies || !ids.entries) {
        server_series_ids_free(&ids);
        return WEIR_ENOMEM;
    }
    pthread_mutex_lock(&metrics->lock);
    for (uint32_t i = SERVER_SERIES_OTHER + 1; i < metrics->series.count; i++)
        metrics->series.names[i].gone = true;
    for (size_t i = 0; i < count; i++)
        resolve_policy(metrics, weir__policies_at(policies, i), &ids);
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
