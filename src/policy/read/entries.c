/* The entries of a policy: `limit`, `limits`, and what overrides them. */
#include "policy/read/reader.h"
#include "store/store.h"

#include <stdio.h>

/* Of two numbers. One that comes with a request is cut to its cost. */
static void entries_check_cost(struct weir__reader *reader, const struct weir__yaml_node *map,
                               const struct weir__cost *cost, const struct weir__cost *least)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, "least");
    if (node && weir__yaml_get(map, "cost") && cost->attribute < 0 && least->attribute < 0 &&
        least->otherwise > cost->otherwise)
        weir__yaml_fail(reader->yaml, node,
                        "invalid least %lld: expected at most %lld, the cost; or leave it out",
                        (long long)least->otherwise, (long long)cost->otherwise);
}

/* What stands at a policy for all its entries, or at an entry for itself. */
static void entries_read_common(struct weir__reader *reader, const struct weir__yaml_node *map,
                                struct weir__entry *ret)
{
    static const char *const missing[] = {"skip", "deny", "empty", NULL};
    weir__read_key(reader, map, &ret->key);
    weir__read_cost(reader, map, &ret->cost);
    weir__read_least(reader, map, &ret->least);
    entries_check_cost(reader, map, &ret->cost, &ret->least);
    weir__read_share(reader, map, &ret->shares);
    ret->missing = (enum weir__missing)weir__yaml_get_word(reader->yaml, map, "missing", missing,
                                                           ret->missing);
    ret->shadow = weir__yaml_get_bool(reader->yaml, map, "shadow", ret->shadow);
}

/* Whether a proxy may ask for it: not by name, and not if a request must say what only programs
 * know. */
static bool entries_is_for_proxies(const struct weir__reader *reader,
                                   const struct weir__policy *policy)
{
    bool found = !policy->by_name;
    for (size_t i = 0; i < policy->match.count && found; i++) {
        const struct weir__condition *it = &policy->match.items[i];
        found = it->negated || weir__attribute_known(&reader->set->attributes.items[it->attribute]);
    }
    return found;
}

/* The limit of an entry, or of an override of one. Proxies take, and cannot release. */
static const weir_limit *entries_read_limit(struct weir__reader *reader,
                                            const struct weir__yaml_node *map, const char *owner,
                                            const struct weir__policy *policy, bool shadow)
{
    const weir_limit *limit = weir__read_limit(reader, map, owner);
    if (limit && entries_is_for_proxies(reader, policy) && weir__has_leases(limit))
        weir__reader_warn(
            reader, map,
            shadow ? "a concurrent limit needs acquire and release: requests that only take, as "
                     "proxies do, hold no slot of it, and are refused once it is not in shadow"
                   : "a concurrent limit needs acquire and release: requests that only take, as "
                     "proxies do, are refused where it applies");
    return limit;
}

/* A least is not for limits that shape, nor for an override that does. */
static void entries_check_least(struct weir__reader *reader, const struct weir__yaml_node *map,
                                const struct weir__entry *entry, const weir_limit *limit)
{
    weir_error err;
    weir_request request = weir_request_make(weir_key_text("k"), limit);
    request.least = entry->least.attribute >= 0 || entry->least.otherwise > 0;
    if (request.limit && request.least && weir__least_check(&request, &err))
        weir__yaml_fail(reader->yaml, map, "%s", err.message);
}

/* Limits with a cost of their own are charged that, so a cost beside them has no effect. */
static void entries_check_own_costs(struct weir__reader *reader, const struct weir__yaml_node *map,
                                    const weir_limit *limit)
{
    const struct weir__yaml_node *cost = weir__yaml_get(map, "cost");
    for (size_t i = 0; limit && i < limit->count; i++) {
        if (weir__limit_varies(limit, i))
            return;
    }
    if (limit && cost)
        weir__reader_warn(reader, cost,
                          "this cost is not used: every limit here has a cost of its own, like "
                          "\"10/s cost 2\"; leave one of them out");
}

/* One entry; map is the policy's own where it has just one limit. */
static void entries_read_one(struct weir__reader *reader, const struct weir__yaml_node *map,
                             const struct weir__policy *policy, struct weir__entry *entry)
{
    char owner[WEIR__POLICY_NAME_MAX + 16];
    snprintf(owner, sizeof owner, "\"%s\"", entry->name);
    if (entry->key.count == 0)
        weir__yaml_fail(reader->yaml, map,
                        "%s has no key; add key: ip, or key: \"'all'\" for one that all requests "
                        "share",
                        owner);
    entry->limit = entries_read_limit(reader, map, owner, policy, entry->shadow);
    entries_check_least(reader, map, entry, entry->limit);
    entries_check_own_costs(reader, map, entry->limit);
    entry->reduced = weir__reduce_limit(reader, map, entry->limit, entry->shares);
    entry->index = (uint32_t)reader->set->entry_count++;
    entry->limits_most = entry->limit ? weir_limit_count(entry->limit) : 0;
}

static void entries_read_listed(struct weir__reader *reader, const struct weir__yaml_node *map,
                                const struct weir__policy *policy, struct weir__entry *entry)
{
    static const char *const allowed[] = {"name",   "key",  "limit", "tier",  "missing",
                                          "shadow", "cost", "least", "share", NULL};
    const struct weir__yaml_node *name = weir__yaml_get(map, "name");
    if (weir__yaml_only(reader->yaml, map, allowed) && !name)
        weir__yaml_fail(reader->yaml, map,
                        "a limit of several needs a name, which is a part of its key; add name: "
                        "per-user");
    entry->name = weir__read_name(reader, name, "a limit's name");
    for (const struct weir__entry *it = policy->entries; it < entry; it++) {
        if (!strcmp(entry->name, it->name))
            weir__yaml_refuse(reader->yaml, name, "two limits of one policy have this name");
    }
    entries_read_common(reader, map, entry);
    if (!reader->yaml->code)
        entries_read_one(reader, map, policy, entry);
}

/* ---- overrides ---- */

/* The entry that an override is for. */
static struct weir__entry *entries_find(struct weir__reader *reader,
                                        const struct weir__yaml_node *map,
                                        const struct weir__policy *policy)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, "entry");
    struct weir__span name = weir__yaml_text(reader->yaml, node, "entry");
    for (size_t i = 0; i < policy->entry_count; i++) {
        if (node ? !strcmp(policy->entries[i].name, name.data) : policy->entry_count == 1)
            return &policy->entries[i];
    }
    if (node) {
        weir__yaml_refuse(reader->yaml, node, "no limit of this policy has that name");
        return NULL;
    }
    char list[WEIR__ENTRIES_MAX * (WEIR__POLICY_NAME_MAX + 2) + 1];
    struct weir__buffer names = weir__buffer_over(list, sizeof list);
    for (size_t i = 0; i < policy->entry_count; i++)
        weir__put_format(&names, "%s%s", i == 0 ? "" : ", ", policy->entries[i].name);
    weir__yaml_fail(reader->yaml, map, "which limit is it for? Add entry: with one of %s", list);
    return NULL;
}

static void entries_read_override(struct weir__reader *reader, const struct weir__yaml_node *map,
                                  const struct weir__policy *policy)
{
    static const char *const allowed[] = {"when", "entry", "limit", "tier", NULL};
    const struct weir__yaml_node *when = weir__yaml_get(map, "when");
    struct weir__override found = {.line = map->line};
    if (weir__yaml_only(reader->yaml, map, allowed) && !when)
        weir__yaml_fail(reader->yaml, map, "an override needs when: {ATTRIBUTE: VALUE}");
    if (reader->yaml->code)
        return;
    weir__read_conditions(reader, when, &found.when);
    struct weir__entry *entry = entries_find(reader, map, policy);
    found.limit = entries_read_limit(reader, map, "the override", policy, entry && entry->shadow);
    if (reader->yaml->code)
        return;
    entries_check_least(reader, map, entry, found.limit);
    found.reduced = weir__reduce_limit(reader, map, found.limit, entry->shares);
    entry->overrides[entry->override_count++] = found;
    size_t limits = weir_limit_count(found.limit);
    entry->limits_most = limits > entry->limits_most ? limits : entry->limits_most;
}

/* Each entry gets those that are for it, in the file's order. */
static void entries_read_overrides(struct weir__reader *reader, const struct weir__yaml_node *list,
                                   const struct weir__policy *policy)
{
    if (list->type != WEIR__YAML_LIST)
        weir__yaml_fail(reader->yaml, list,
                        "overrides is a list, like [{when: {user: ann}, tier: gold}]");
    size_t count = weir__yaml_count(list);
    if (count > WEIR__OVERRIDES_MAX)
        weir__yaml_fail(reader->yaml, list, "more than %d overrides", WEIR__OVERRIDES_MAX);
    for (size_t i = 0; i < policy->entry_count; i++)
        policy->entries[i].overrides =
            weir__yaml_new(reader->yaml, count, sizeof(struct weir__override));
    for (const struct weir__yaml_node *it = list->child; it && !reader->yaml->code; it = it->next)
        entries_read_override(reader, it, policy);
}

/* ---- all of them ---- */

static void entries_check_total(struct weir__reader *reader, const struct weir__yaml_node *map,
                                const struct weir__policy *policy)
{
    size_t total = 0;
    for (size_t i = 0; i < policy->entry_count; i++)
        total += policy->entries[i].shadow ? 0 : policy->entries[i].limits_most;
    if (total > WEIR_LIMITS_MAX)
        weir__yaml_fail(reader->yaml, map,
                        "%zu limits together in \"%s\"; a request is charged to at most %d", total,
                        policy->name, WEIR_LIMITS_MAX);
}

void weir__read_entries(struct weir__reader *reader, const struct weir__yaml_node *map,
                        struct weir__policy *policy)
{
    const struct weir__yaml_node *list = weir__yaml_get(map, "limits");
    const struct weir__yaml_node *overrides = weir__yaml_get(map, "overrides");
    struct weir__entry common = {
        .name = policy->name,
        .cost = {.attribute = -1, .otherwise = 1, .least = 1, .most = WEIR_COST_MAX},
        .least = {.attribute = -1}};
    if (list && (list->type != WEIR__YAML_LIST || !list->child))
        weir__yaml_fail(reader->yaml, list,
                        "limits is a list, like [{name: per-ip, key: ip, limit: …}]; for a single "
                        "one write limit: …");
    size_t count = list ? weir__yaml_count(list) : 1;
    if (count > WEIR__ENTRIES_MAX)
        weir__yaml_fail(reader->yaml, list, "more than %d limits in a policy", WEIR__ENTRIES_MAX);
    policy->entries = weir__yaml_new(reader->yaml, count, sizeof(struct weir__entry));
    policy->entry_count = count;
    entries_read_common(reader, map, &common);
    if (reader->yaml->code)
        return;
    for (size_t i = 0; i < count; i++)
        policy->entries[i] = common;
    if (!list)
        entries_read_one(reader, map, policy, &policy->entries[0]);
    const struct weir__yaml_node *node = list ? list->child : NULL;
    for (size_t i = 0; node && !reader->yaml->code; i++, node = node->next)
        entries_read_listed(reader, node, policy, &policy->entries[i]);
    if (overrides && !reader->yaml->code)
        entries_read_overrides(reader, overrides, policy);
    entries_check_total(reader, list ? list : map, policy);
}
