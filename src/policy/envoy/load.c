/* Loading Envoy's configuration: files to domains to nodes. See envoy.h; envoy/rule.c reads the
 * limits. */
#include "policy/envoy/envoy.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static bool load_grow(struct weir__envoy *envoy)
{
    size_t count = envoy->bucket_count ? envoy->bucket_count * 2 : 64;
    struct weir__envoy_node **buckets = calloc(count, sizeof(struct weir__envoy_node *));
    if (!buckets)
        return false;
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
    return true;
}

static void load_insert(struct weir__envoy_loading *loading, struct weir__envoy_node *node)
{
    struct weir__envoy *envoy = loading->envoy;
    if (envoy->node_count == envoy->bucket_count && !load_grow(envoy)) {
        weir__yaml_no_memory(loading->yaml);
        return;
    }
    node->hash = weir__envoy_hash(node->parent, node->key, node->value);
    struct weir__envoy_node **bucket = &envoy->buckets[node->hash & (envoy->bucket_count - 1)];
    node->next_in_bucket = *bucket;
    *bucket = node;
    envoy->node_count++;
}

/* Adds a copy of a node to its parent, behind the wildcards that are there. NULL: it failed. */
static struct weir__envoy_node *load_add_node(struct weir__envoy_loading *loading,
                                              struct weir__envoy_node *parent,
                                              const struct weir__envoy_node *like)
{
    struct weir__envoy_node *node = weir__yaml_new(loading->yaml, 1, sizeof *node);
    if (!node)
        return NULL;
    *node = *like;
    node->parent = parent;
    parent->has_children = true;
    if (node->is_wildcard) {
        *(parent->wildcards ? &parent->last_wildcard->next_wildcard : &parent->wildcards) = node;
        parent->last_wildcard = node;
    }
    load_insert(loading, node);
    return node;
}

/* ---- descriptors ---- */

/* "key_value", or "key", behind the place of the list it stands in. */
static const char *load_name_node(struct weir__envoy_loading *loading, const char *prefix,
                                  const struct weir__envoy_node *node)
{
    size_t size = strlen(prefix) + node->key.len + node->value.len + 3;
    char *name = weir__yaml_new(loading->yaml, size, 1);
    if (!name)
        return NULL;
    struct weir__buffer buffer = weir__buffer_over(name, size);
    weir__put_text(&buffer, prefix);
    weir__put_text(&buffer, prefix[0] ? "." : "");
    weir__put(&buffer, node->key.data, node->key.len);
    if (node->value.len > 0) {
        weir__put_text(&buffer, "_");
        weir__put(&buffer, node->value.data, node->value.len);
    }
    return name;
}

static void load_read_key(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          struct weir__envoy_node *ret)
{
    ret->key = weir__envoy_read_text(loading, map, "key", WEIR__ENVOY_TEXT_MAX);
    ret->value = weir__envoy_read_text(loading, map, "value", WEIR__ENVOY_TEXT_MAX);
    ret->share_threshold = weir__envoy_read_bool(loading, map, "share_threshold");
    if (ret->key.len == 0)
        weir__yaml_fail(loading->yaml, map, "a descriptor without a key");
    ret->is_wildcard = memchr(ret->value.data, '*', ret->value.len) != NULL;
    ret->file = loading->file;
    ret->line = map->line;
    if (ret->share_threshold && !ret->is_wildcard)
        weir__yaml_fail(loading->yaml, map,
                        "share_threshold needs a value with a *, whose values then count together");
    if (ret->is_wildcard && weir__pattern_read(&loading->envoy->arena, ret->value.data,
                                               ret->value.len, false, &ret->pattern))
        weir__yaml_no_memory(loading->yaml);
}

static void load_check_twice(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                             const char *name, const struct weir__envoy_node *first)
{
    if (!first)
        return;
    bool elsewhere = first->file != loading->file;
    weir__yaml_fail(loading->yaml, map,
                    "the descriptor %s exists already, %s%son line %d; keep one of them",
                    weir__yaml_quote(name, strlen(name)).text, elsewhere ? first->file : "",
                    elsewhere ? " " : "", first->line);
}

static void load_read_list(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                           const char *domain, const char *prefix, struct weir__envoy_node *parent);

static void load_read_descriptor(struct weir__envoy_loading *loading,
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
    const struct weir__yaml_node *metadata = weir__envoy_get(map, "metadata");
    if (!weir__yaml_only(loading->yaml, map, keys))
        return;
    load_read_key(loading, map, &node);
    const char *name = load_name_node(loading, prefix, &node);
    if (!name)
        return;
    load_check_twice(loading, map, name,
                     weir__envoy_child(loading->envoy, parent, node.key, node.value));
    if (metadata && metadata->type != WEIR__YAML_MAP)
        weir__yaml_fail(loading->yaml, metadata, "metadata must be a map");
    node.rule = weir__envoy_read_rule(loading, map, domain, name);
    added = load_add_node(loading, parent, &node);
    if (added)
        load_read_list(loading, map, domain, name, added);
}

/* The descriptors of a map, if it has any. YAML's own depth bounds this one's. */
static void load_read_list(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                           const char *domain, const char *prefix, struct weir__envoy_node *parent)
{
    const struct weir__yaml_node *list = weir__envoy_get(map, "descriptors");
    if (!list)
        return;
    if (list->type != WEIR__YAML_LIST)
        weir__yaml_fail(loading->yaml, list, "descriptors must be a list of \"- key: …\"");
    for (const struct weir__yaml_node *it = list->child; it && !loading->yaml->code; it = it->next)
        load_read_descriptor(loading, it, domain, prefix, parent);
}

/* ---- files ---- */

static struct weir__envoy_domain *load_make_domain(struct weir__envoy_loading *loading,
                                                   struct weir__span name)
{
    struct weir__envoy *envoy = loading->envoy;
    struct weir__envoy_domain *domain = weir__yaml_new(loading->yaml, 1, sizeof *domain);
    if (!domain)
        return NULL;
    domain->node = (struct weir__envoy_node){.key = name, .value = {"", 0}, .file = loading->file};
    domain->index = (uint32_t)envoy->domain_count++;
    *(envoy->last_domain ? &envoy->last_domain->next : &envoy->first_domain) = domain;
    envoy->last_domain = domain;
    load_insert(loading, &domain->node);
    return domain;
}

static struct weir__envoy_domain *load_add_domain(struct weir__envoy_loading *loading,
                                                  const struct weir__yaml_node *map)
{
    struct weir__span name = weir__envoy_read_text(loading, map, "domain", WEIR__ENVOY_TEXT_MAX);
    if (name.len == 0)
        weir__yaml_fail(loading->yaml, map, "the file names no domain (\"domain: …\")");
    if (loading->yaml->code)
        return NULL;
    struct weir__envoy_domain *domain =
        (struct weir__envoy_domain *)weir__envoy_domain(loading->envoy, name);
    if (domain && !loading->merge)
        weir__yaml_fail(loading->yaml, weir__yaml_get(map, "domain"),
                        "the domain \"%s\" is already used by %s; rename one, or merge them with "
                        "--envoy-merge-domains",
                        weir__yaml_quote(name.data, name.len).text, domain->node.file);
    return domain ? domain : load_make_domain(loading, name);
}

static int load_file(struct weir__envoy *envoy, const struct weir__envoy_file *file, bool merge,
                     weir_error *err)
{
    static const char *const keys[] = {"domain", "descriptors", NULL};
    struct weir__yaml *yaml = NULL;
    int code = weir__yaml_parse(file->text, file->len, file->name, &yaml, err);
    if (code)
        return code;
    yaml->arena = &envoy->arena;
    yaml->becomes = "the configuration";
    struct weir__envoy_loading loading = {
        envoy, yaml, weir__yaml_copy(yaml, file->name, strlen(file->name)), merge};
    struct weir__envoy_domain *domain = NULL;
    if (weir__yaml_only(yaml, yaml->root, keys))
        domain = load_add_domain(&loading, yaml->root);
    if (domain)
        load_read_list(&loading, yaml->root, domain->node.key.data, "", &domain->node);
    code = yaml->code;
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
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the configuration");
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++)
        code = load_file(envoy, &files[i], merge, err);
    if (code)
        weir__envoy_free(envoy);
    else
        *ret = envoy;
    return code;
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

void weir__envoy_limits(const struct weir__envoy *envoy, const weir_limit **ret)
{
    for (size_t i = 0; i < WEIR__ENVOY_INTERNED; i++) {
        for (struct weir__envoy_interned *item = envoy->interned[i]; item; item = item->next)
            *ret++ = item->limit;
    }
}
