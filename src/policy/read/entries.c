/* The entries of a policy: `limit`, `limits`, and what overrides them. */
#include "policy/read/reader.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

static const char *const missing_words[] = {"skip", "deny", "empty", NULL};

/* What stands at a policy for all its entries, or at an entry for itself. */
struct defaults {
    struct weir__key_form key;
    struct weir__cost cost;
    int missing;
    bool shadow;
    bool by_name; /* of the policy: who asks for it knows to acquire */
};

static int entries_read_defaults(struct weir__reader *reader, const struct weir__yaml_node *map,
                                 struct defaults *ret)
{
    const struct weir__yaml_node *key = weir__yaml_get(map, "key");
    int code = key ? weir__read_key(reader, key, &ret->key) : 0;
    if (code == 0)
        code = weir__read_cost(reader, weir__yaml_get(map, "cost"), &ret->cost);
    if (code == 0)
        code = weir__read_word(reader, weir__yaml_get(map, "missing"), "missing", missing_words,
                               &ret->missing);
    if (code == 0)
        code = weir__read_bool(reader, weir__yaml_get(map, "shadow"), "shadow", &ret->shadow);
    return code;
}

/* Proxies take, and cannot release. */
static int entries_warn_of_leases(const struct weir__reader *reader,
                                  const struct weir__yaml_node *node, const weir_limit *limit)
{
    if (!weir__has_leases(limit))
        return 0;
    return weir__reader_warn(
        reader, node,
        "a concurrent limit needs acquire and release: requests that only take, as "
        "proxies do, are refused where it applies");
}

/* One entry; map is the policy's own where it has just one limit. */
static int entries_read_one(struct weir__reader *reader, const struct weir__yaml_node *map,
                            const struct defaults *given, struct weir__entry *entry,
                            struct weir__entry_body *body)
{
    char owner[WEIR__POLICY_NAME_MAX + 16];
    snprintf(owner, sizeof owner, "\"%s\"", entry->name);
    if (given->key.count == 0)
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "%s has no key; add key: ip, or key: \"'all'\" for one that all "
                               "requests share",
                               owner);
    int code = weir__read_limit(reader, map, owner, &entry->limit);
    if (code)
        return code;
    code = given->by_name ? 0 : entries_warn_of_leases(reader, map, entry->limit);
    if (code)
        return code;
    entry->key_text = given->key.text;
    entry->shadow = given->shadow;
    entry->index = (uint32_t)reader->set->entries++;
    body->key = given->key;
    body->cost = given->cost;
    body->missing = (enum weir__missing)given->missing;
    body->limits_most = weir_limit_count(entry->limit);
    return 0;
}

static int entries_read_listed(struct weir__reader *reader, const struct weir__yaml_node *map,
                               struct defaults given, struct weir__entry *entries, size_t i,
                               struct weir__entry_body *body)
{
    static const char *const allowed[] = {"name",    "key",    "limit", "tier",
                                          "missing", "shadow", "cost",  NULL};
    const struct weir__yaml_node *name = weir__yaml_get(map, "name");
    int code = weir__yaml_only(reader->yaml, map, allowed, reader->err);
    if (code == 0 && !name)
        code = weir__yaml_fail(reader->yaml, map, reader->err,
                               "a limit of several needs a name, which is a part of its key; add "
                               "name: per-user");
    if (code == 0)
        code = weir__read_name(reader, name, "a limit's name", &entries[i].name);
    for (size_t j = 0; j < i && code == 0; j++) {
        if (!strcmp(entries[i].name, entries[j].name))
            code = weir__reader_fail(reader, name, "two limits of one policy have this name");
    }
    if (code == 0)
        code = entries_read_defaults(reader, map, &given);
    return code ? code : entries_read_one(reader, map, &given, &entries[i], body);
}

/* ---- overrides ---- */

static int entries_find(const struct weir__reader *reader, const struct weir__yaml_node *map,
                        const struct weir__policy *policy, size_t *ret)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, "entry");
    struct weir__span name = {"", 0};
    int code = weir__read_text(reader, node, "entry", &name);
    if (code)
        return code;
    if (!node && policy->entry_count == 1) {
        *ret = 0;
        return 0;
    }
    if (!node)
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "which limit is it for? Add entry: %s", policy->entries[0].name);
    for (size_t i = 0; i < policy->entry_count; i++) {
        if (!strcmp(policy->entries[i].name, name.data)) {
            *ret = i;
            return 0;
        }
    }
    return weir__reader_fail(reader, node, "no limit of this policy has that name");
}

static int entries_read_override(struct weir__reader *reader, const struct weir__yaml_node *map,
                                 const struct weir__policy *policy, bool by_name,
                                 struct weir__override *ret, size_t *ret_entry)
{
    static const char *const allowed[] = {"when", "entry", "limit", "tier", NULL};
    const struct weir__yaml_node *when = weir__yaml_get(map, "when");
    int code = weir__yaml_only(reader->yaml, map, allowed, reader->err);
    if (code == 0 && !when)
        code = weir__yaml_fail(reader->yaml, map, reader->err,
                               "an override needs when: {ATTRIBUTE: VALUE}");
    if (code == 0)
        code = weir__read_conditions(reader, when, &ret->when);
    if (code == 0)
        code = entries_find(reader, map, policy, ret_entry);
    if (code == 0)
        code = weir__read_limit(reader, map, "the override", &ret->limit);
    return code || by_name ? code : entries_warn_of_leases(reader, map, ret->limit);
}

/* Each entry gets those that are for it, in the file's order. */
static int entries_read_overrides(struct weir__reader *reader, const struct weir__yaml_node *list,
                                  const struct weir__policy *policy, bool by_name,
                                  struct weir__entry_body *bodies)
{
    struct weir__override *lists[WEIR__ENTRIES_MAX];
    if (list->type != WEIR__YAML_LIST)
        return weir__yaml_fail(reader->yaml, list, reader->err,
                               "overrides is a list, like [{when: {user: ann}, tier: gold}]");
    size_t count = weir__node_count(list);
    if (count > WEIR__OVERRIDES_MAX)
        return weir__yaml_fail(reader->yaml, list, reader->err, "more than %d overrides",
                               WEIR__OVERRIDES_MAX);
    for (size_t i = 0; i < policy->entry_count; i++) {
        lists[i] = weir__arena_new(&reader->set->arena, count, sizeof(struct weir__override));
        if (!lists[i])
            return weir__reader_no_memory(reader);
        bodies[i].overrides = lists[i];
    }
    for (const struct weir__yaml_node *node = list->child; node; node = node->next) {
        struct weir__override found = {.limit = NULL};
        size_t entry = 0;
        int code = entries_read_override(reader, node, policy, by_name, &found, &entry);
        if (code)
            return code;
        struct weir__entry_body *body = &bodies[entry];
        lists[entry][body->override_count++] = found;
        size_t limits = weir_limit_count(found.limit);
        body->limits_most = limits > body->limits_most ? limits : body->limits_most;
    }
    return 0;
}

/* ---- all of them ---- */

static int entries_check_total(const struct weir__reader *reader, const struct weir__yaml_node *map,
                               const struct weir__policy *policy,
                               const struct weir__policy_body *body)
{
    size_t total = 0;
    for (size_t i = 0; i < policy->entry_count; i++)
        total += policy->entries[i].shadow ? 0 : body->entries[i].limits_most;
    if (total <= WEIR_LIMITS_MAX)
        return 0;
    return weir__yaml_fail(reader->yaml, map, reader->err,
                           "%zu limits together in \"%s\"; a request is charged to at most %d",
                           total, policy->name, WEIR_LIMITS_MAX);
}

int weir__read_entries(struct weir__reader *reader, const struct weir__yaml_node *map,
                       struct weir__policy *policy, struct weir__policy_body *body)
{
    const struct weir__yaml_node *list = weir__yaml_get(map, "limits");
    const struct weir__yaml_node *overrides = weir__yaml_get(map, "overrides");
    struct defaults given = {
        .cost = {.attribute = -1, .otherwise = 1, .least = 1, .most = WEIR_COST_MAX},
        .by_name = body->by_name};
    if (list && (list->type != WEIR__YAML_LIST || !list->child))
        return weir__yaml_fail(reader->yaml, list, reader->err,
                               "limits is a list, like [{name: per-ip, key: ip, limit: …}]; for a "
                               "single one write limit: …");
    size_t count = list ? weir__node_count(list) : 1;
    if (count > WEIR__ENTRIES_MAX)
        return weir__yaml_fail(reader->yaml, list, reader->err, "more than %d limits in a policy",
                               WEIR__ENTRIES_MAX);
    struct weir__arena *arena = &reader->set->arena;
    struct weir__entry *entries = weir__arena_new(arena, count, sizeof(struct weir__entry));
    body->entries = weir__arena_new(arena, count, sizeof(struct weir__entry_body));
    if (!entries || !body->entries)
        return weir__reader_no_memory(reader);
    int code = entries_read_defaults(reader, map, &given);
    policy->entries = entries;
    policy->entry_count = count;
    entries[0].name = policy->name;
    if (code == 0 && !list)
        code = entries_read_one(reader, map, &given, &entries[0], &body->entries[0]);
    const struct weir__yaml_node *node = list ? list->child : NULL;
    for (size_t i = 0; node && code == 0; i++, node = node->next)
        code = entries_read_listed(reader, node, given, entries, i, &body->entries[i]);
    if (code == 0 && overrides)
        code = entries_read_overrides(reader, overrides, policy, body->by_name, body->entries);
    return code ? code : entries_check_total(reader, list ? list : map, policy, body);
}
