/* Which rule a descriptor leads to: see envoy.h. */
#include "policy/envoy/parts.h"

#include "base/hash.h"

#include <string.h>

static bool equal(struct weir__span a, const char *text, size_t len)
{
    return a.len == len && (len == 0 || !memcmp(a.data, text, len));
}

/* ---- finding ---- */

uint64_t weir__envoy_hash(const struct weir__envoy_node *parent, struct weir__span key,
                          struct weir__span value)
{
    uint64_t hash[2];
    weir__hash((const uint64_t[2]){(uintptr_t)parent, value.len}, key.data, key.len, hash);
    weir__hash((const uint64_t[2]){hash[0], key.len}, value.data, value.len, hash);
    return hash[0];
}

struct weir__envoy_node *weir__envoy_child(const struct weir__envoy *envoy,
                                           const struct weir__envoy_node *parent,
                                           struct weir__span key, struct weir__span value)
{
    if (envoy->bucket_count == 0)
        return NULL;
    uint64_t hash = weir__envoy_hash(parent, key, value);
    struct weir__envoy_node *node = envoy->buckets[hash & (envoy->bucket_count - 1)];
    while (node &&
           (node->hash != hash || node->parent != parent || !equal(key, node->key, node->key_len) ||
            !equal(value, node->value, node->value_len)))
        node = node->next_in_bucket;
    return node;
}

/* Whether a text is what a pattern says, each * standing for any bytes or none. Every part between stars
 * is looked for behind the one before: linear. */
static bool is_like(struct weir__span text, const char *pattern, size_t len)
{
    const char *star = memchr(pattern, '*', len);
    size_t head = (size_t)(star - pattern);
    if (text.len < head || memcmp(text.data, pattern, head))
        return false;
    const char *at = text.data + head, *end = text.data + text.len;
    const char *part = star + 1, *stop = pattern + len;
    while ((star = memchr(part, '*', (size_t)(stop - part)))) {
        size_t n = (size_t)(star - part);
        const char *found = n ? memmem(at, (size_t)(end - at), part, n) : at;
        if (!found)
            return false;
        at = found + n;
        part = star + 1;
    }
    size_t tail = (size_t)(stop - part);
    return (size_t)(end - at) >= tail && !memcmp(end - tail, part, tail);
}

static const struct weir__envoy_node *find_wildcard(const struct weir__envoy_node *parent,
                                                    const struct weir__rls_entry *entry)
{
    const struct weir__envoy_node *node = parent->wildcards;
    while (node && !(equal(entry->key, node->key, node->key_len) &&
                     is_like(entry->value, node->value, node->value_len)))
        node = node->next_wildcard;
    return node;
}

static const struct weir__envoy_node *find(const struct weir__envoy *envoy,
                                           const struct weir__envoy_node *parent,
                                           const struct weir__rls_entry *entry)
{
    const struct weir__envoy_node *node = NULL;
    if (entry->value.len > 0)
        node = weir__envoy_child(envoy, parent, entry->key, entry->value);
    if (!node)
        node = find_wildcard(parent, entry);
    if (!node)
        node = weir__envoy_child(envoy, parent, entry->key, (struct weir__span){"", 0});
    return node;
}

const struct weir__envoy_domain *weir__envoy_domain(const struct weir__envoy *envoy,
                                                    struct weir__span name)
{
    return (const struct weir__envoy_domain *)weir__envoy_child(envoy, NULL, name,
                                                                (struct weir__span){"", 0});
}

const struct weir__envoy_rule *weir__envoy_match(const struct weir__envoy *envoy,
                                                 const struct weir__envoy_domain *domain,
                                                 const struct weir__rls_entry *entries, size_t n,
                                                 struct weir__span *shared)
{
    const struct weir__envoy_node *node = &domain->node;
    for (size_t i = 0; i < n; i++) {
        node = node->has_children ? find(envoy, node, &entries[i]) : NULL;
        if (!node)
            return NULL;
        shared[i] = (struct weir__span){NULL, 0};
        if (node->share_threshold)
            shared[i] = (struct weir__span){node->value, node->value_len};
    }
    return node->rule;
}
