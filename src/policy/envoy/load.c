/* Loading Envoy's configuration: files to domains to nodes. See envoy.h; envoy/rule.c reads the
 * limits. */
#include "policy/envoy/set.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static int load_grow(struct weir__envoy_loading *loading)
{
    struct weir__envoy *envoy = loading->envoy;
    size_t count = envoy->bucket_count ? envoy->bucket_count * 2 : 64;
    struct weir__envoy_node **buckets = calloc(count, sizeof(struct weir__envoy_node *));
    if (!buckets)
        return weir__envoy_no_memory(loading->err);
    for (size_t i = 0; i < envoy->bucket_count; i++) {
        for (struct weir__envoy_node *node = envoy->buckets[i], *next; node; node = next) {
            next = node->next_in_bucket;
            node->next_in_bucket = buckets[node->hash & (count - 1)];
            buckets[node->hash & (count - 1)] = node;
        }
    }
    free(envoy->buckets);
    envoy->buckets = buckets;
    envoy->bucket_count = count;
    return 0;
}

static int load_insert(struct weir__envoy_loading *loading, struct weir__envoy_node *node)
{
    struct weir__envoy *envoy = loading->envoy;
    int code = envoy->node_count == envoy->bucket_count ? load_grow(loading) : 0;
    if (code)
        return code;
    node->hash = weir__envoy_hash(node->parent, (struct weir__span){node->key, node->key_len},
                                  (struct weir__span){node->value, node->value_len});
    struct weir__envoy_node **bucket = &envoy->buckets[node->hash & (envoy->bucket_count - 1)];
    node->next_in_bucket = *bucket;
    *bucket = node;
    envoy->node_count++;
    return 0;
}

/* Adds a copy of a node to its parent, behind the wildcards that are there. */
static int load_add_node(struct weir__envoy_loading *loading, struct weir__envoy_node *parent,
                         const struct weir__envoy_node *like, struct weir__envoy_node **ret)
{
    struct weir__envoy_node *node = weir__arena_new(&loading->envoy->arena, 1, sizeof *node);
    if (!node)
        return weir__envoy_no_memory(loading->err);
    *node = *like;
    node->parent = parent;
    parent->has_children = true;
    if (node->is_wildcard) {
        *(parent->wildcards ? &parent->last_wildcard->next_wildcard : &parent->wildcards) = node;
        parent->last_wildcard = node;
    }
    *ret = node;
    return load_insert(loading, node);
}

/* ---- descriptors ---- */

/* "key_value", or "key", behind the place of the list it stands in. */
static int load_name_node(struct weir__envoy_loading *loading, const char *prefix,
                          const struct weir__envoy_node *node, const char **ret)
{
    size_t size = strlen(prefix) + node->key_len + node->value_len + 3;
    char *name = weir__arena_new(&loading->envoy->arena, size, 1);
    if (!name)
        return weir__envoy_no_memory(loading->err);
    struct weir__buffer buffer = weir__buffer_over(name, size);
    weir__put_text(&buffer, prefix);
    weir__put_text(&buffer, prefix[0] ? "." : "");
    weir__put(&buffer, node->key, node->key_len);
    if (node->value_len > 0) {
        weir__put_text(&buffer, "_");
        weir__put(&buffer, node->value, node->value_len);
    }
    *ret = name;
    return 0;
}

static int load_read_key(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                         struct weir__envoy_node *ret)
{
    struct weir__span key, value;
    int code = weir__envoy_read_text(loading, map, "key", WEIR__ENVOY_TEXT_MAX, &key);
    if (code == 0)
        code = weir__envoy_read_text(loading, map, "value", WEIR__ENVOY_TEXT_MAX, &value);
    if (code == 0)
        code = weir__envoy_read_bool(loading, map, "share_threshold", &ret->share_threshold);
    if (code)
        return code;
    if (key.len == 0)
        return weir__yaml_fail(loading->yaml, map, loading->err, "a descriptor without a key");
    ret->key = key.data;
    ret->key_len = key.len;
    ret->value = value.data;
    ret->value_len = value.len;
    ret->is_wildcard = memchr(value.data, '*', value.len) != NULL;
    ret->file = loading->file;
    ret->line = map->line;
    if (ret->share_threshold && !ret->is_wildcard)
        return weir__yaml_fail(loading->yaml, map, loading->err,
                               "share_threshold needs a value with a *, whose values then count "
                               "together");
    return 0;
}

static int load_check_metadata(struct weir__envoy_loading *loading,
                               const struct weir__yaml_node *map)
{
    const struct weir__yaml_node *metadata = weir__envoy_get(map, "metadata");
    if (metadata && metadata->type != WEIR__YAML_MAP)
        return weir__yaml_fail(loading->yaml, metadata, loading->err, "metadata must be a map");
    return 0;
}

static int load_fail_twice(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                           const char *name, const struct weir__envoy_node *first)
{
    bool elsewhere = first->file != loading->file;
    return weir__yaml_fail(loading->yaml, map, loading->err,
                           "the descriptor %s exists already, %s%son line %d; keep one of them",
                           weir__yaml_quote(name, strlen(name)).text, elsewhere ? first->file : "",
                           elsewhere ? " " : "", first->line);
}

static int load_read_list(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *domain, const char *prefix, struct weir__envoy_node *parent);

static int load_read_descriptor(struct weir__envoy_loading *loading,
                                const struct weir__yaml_node *map, const char *domain,
                                const char *prefix, struct weir__envoy_node *parent)
{
    static const char *const keys[] = {"key",
                                       "value",
                                       "rate_limit",
                                       "descriptors",
                                       "shadow_mode",
                                       "quota_mode",
                                       "limit",
                                       "charge_denied",
                                       "share_threshold",
                                       "detailed_metric",
                                       "metadata",
                                       "value_to_metric",
                                       NULL};
    struct weir__envoy_node node = {0}, *added = NULL;
    const char *name = NULL;
    int code = weir__yaml_only(loading->yaml, map, keys, loading->err);
    if (code == 0)
        code = load_read_key(loading, map, &node);
    if (code == 0)
        code = load_name_node(loading, prefix, &node, &name);
    if (code)
        return code;
    const struct weir__envoy_node *first =
        weir__envoy_child(loading->envoy, parent, (struct weir__span){node.key, node.key_len},
                          (struct weir__span){node.value, node.value_len});
    if (first)
        return load_fail_twice(loading, map, name, first);
    code = load_check_metadata(loading, map);
    if (code == 0)
        code = weir__envoy_read_rule(loading, map, domain, name, &node.rule);
    if (code == 0)
        code = load_add_node(loading, parent, &node, &added);
    return code ? code : load_read_list(loading, map, domain, name, added);
}

/* The descriptors of a map, if it has any. YAML's own depth bounds this one's. */
static int load_read_list(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *domain, const char *prefix, struct weir__envoy_node *parent)
{
    const struct weir__yaml_node *list = weir__envoy_get(map, "descriptors");
    if (!list)
        return 0;
    if (list->type != WEIR__YAML_LIST)
        return weir__yaml_fail(loading->yaml, list, loading->err,
                               "descriptors must be a list of \"- key: …\"");
    int code = 0;
    for (const struct weir__yaml_node *item = list->child; item && code == 0; item = item->next)
        code = load_read_descriptor(loading, item, domain, prefix, parent);
    return code;
}

/* ---- files ---- */

static int load_make_domain(struct weir__envoy_loading *loading, struct weir__span name,
                            struct weir__envoy_domain **ret)
{
    struct weir__envoy *envoy = loading->envoy;
    struct weir__envoy_domain *domain = weir__arena_new(&envoy->arena, 1, sizeof *domain);
    if (!domain)
        return weir__envoy_no_memory(loading->err);
    domain->node.key = name.data;
    domain->node.key_len = name.len;
    domain->node.value = "";
    domain->node.file = loading->file;
    domain->index = (uint32_t)envoy->domain_count++;
    *(envoy->last_domain ? &envoy->last_domain->next : &envoy->first_domain) = domain;
    envoy->last_domain = domain;
    *ret = domain;
    return load_insert(loading, &domain->node);
}

static int load_add_domain(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                           struct weir__envoy_domain **ret)
{
    struct weir__span name;
    int code = weir__envoy_read_text(loading, map, "domain", WEIR__ENVOY_TEXT_MAX, &name);
    if (code)
        return code;
    if (name.len == 0)
        return weir__yaml_fail(loading->yaml, map, loading->err,
                               "the file names no domain (\"domain: …\")");
    struct weir__envoy_domain *domain =
        (struct weir__envoy_domain *)weir__envoy_domain(loading->envoy, name);
    if (domain && !loading->merge)
        return weir__yaml_fail(loading->yaml, weir__yaml_get(map, "domain"), loading->err,
                               "the domain \"%s\" is already used by %s; rename one, or merge them "
                               "with --envoy-merge-domains",
                               weir__yaml_quote(name.data, name.len).text, domain->node.file);
    if (!domain)
        return load_make_domain(loading, name, ret);
    *ret = domain;
    return 0;
}

static int load_read_file(struct weir__envoy_loading *loading)
{
    static const char *const keys[] = {"domain", "descriptors", NULL};
    const struct weir__yaml_node *root = weir__yaml_root(loading->yaml);
    struct weir__envoy_domain *domain = NULL;
    int code = weir__yaml_only(loading->yaml, root, keys, loading->err);
    if (code == 0)
        code = load_add_domain(loading, root, &domain);
    if (code || !domain)
        return code;
    return load_read_list(loading, root, domain->node.key, "", &domain->node);
}

static int load_file(struct weir__envoy *envoy, const struct weir__envoy_file *file, bool merge,
                     weir_error *err)
{
    struct weir__yaml *yaml = NULL;
    char *name = weir__arena_text(&envoy->arena, file->name, strlen(file->name));
    if (!name)
        return weir__envoy_no_memory(err);
    int code = weir__yaml_parse(file->text, file->len, file->name, &yaml, err);
    if (code)
        return code;
    struct weir__envoy_loading loading = {envoy, yaml, name, merge, err};
    code = load_read_file(&loading);
    weir__yaml_free(yaml);
    return code;
}

int weir__envoy_load(const struct weir__envoy_file *files, size_t n, bool merge,
                     struct weir__envoy **ret, weir_error *err)
{
    if (n > WEIR__ENVOY_FILES_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "%zu files: a configuration has at most %d", n,
                          WEIR__ENVOY_FILES_MAX);
    struct weir__envoy *envoy = calloc(1, sizeof *envoy);
    if (!envoy)
        return weir__envoy_no_memory(err);
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++)
        code = load_file(envoy, &files[i], merge, err);
    if (code) {
        weir__envoy_free(envoy);
        return code;
    }
    *ret = envoy;
    return 0;
}

int weir__envoy_parse(const char *text, size_t len, const char *name, struct weir__envoy **ret,
                      weir_error *err)
{
    struct weir__envoy_file file = {name, text, len};
    return weir__envoy_load(&file, 1, false, ret, err);
}

void weir__envoy_free(struct weir__envoy *envoy)
{
    if (!envoy)
        return;
    for (size_t i = 0; i < WEIR__ENVOY_INTERNED; i++) {
        for (struct weir__envoy_interned *item = envoy->interned[i]; item; item = item->next)
            weir_limit_free(item->limit);
    }
    free(envoy->rules);
    free(envoy->buckets);
    weir__arena_free(&envoy->arena);
    free(envoy);
}

size_t weir__envoy_count(const struct weir__envoy *envoy)
{
    return envoy->rule_count;
}

const struct weir__envoy_rule *weir__envoy_at(const struct weir__envoy *envoy, size_t i)
{
    return envoy->rules[i];
}

size_t weir__envoy_limit_count(const struct weir__envoy *envoy)
{
    return envoy->limit_count;
}

void weir__envoy_limits(const struct weir__envoy *envoy, const weir_limit **ret)
{
    for (size_t i = 0; i < WEIR__ENVOY_INTERNED; i++) {
        for (struct weir__envoy_interned *item = envoy->interned[i]; item; item = item->next)
            *ret++ = item->limit;
    }
}

size_t weir__envoy_domain_count(const struct weir__envoy *envoy)
{
    return envoy->domain_count;
}

const struct weir__envoy_domain *weir__envoy_next_domain(const struct weir__envoy *envoy,
                                                         const struct weir__envoy_domain *last)
{
    return last ? last->next : envoy->first_domain;
}

const char *weir__envoy_domain_name(const struct weir__envoy_domain *domain)
{
    return domain->node.key;
}

uint32_t weir__envoy_domain_index(const struct weir__envoy_domain *domain)
{
    return domain->index;
}
