/* Which rule a descriptor leads to: see envoy.h. */
#include "policy/envoy/envoy.h"

#include "base/hash.h"
#include "policy/keys.h"
#include "wire/sha.h"

#include <assert.h>
#include <string.h>

static bool match_equal(struct weir__span a, struct weir__span b)
{
    return a.len == b.len && (a.len == 0 || !memcmp(a.data, b.data, a.len));
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
    while (node && (node->hash != hash || node->parent != parent || !match_equal(key, node->key) ||
                    !match_equal(value, node->value)))
        node = node->next_in_bucket;
    return node;
}

static const struct weir__envoy_node *match_find_wildcard(const struct weir__envoy_node *parent,
                                                          const struct weir__rls_entry *entry)
{
    const struct weir__envoy_node *node = parent->wildcards;
    while (node &&
           !(match_equal(entry->key, node->key) && weir__pattern_has(&node->pattern, entry->value)))
        node = node->next_wildcard;
    return node;
}

static const struct weir__envoy_node *match_find(const struct weir__envoy *envoy,
                                                 const struct weir__envoy_node *parent,
                                                 const struct weir__rls_entry *entry)
{
    const struct weir__envoy_node *node = NULL;
    if (entry->value.len > 0)
        node = weir__envoy_child(envoy, parent, entry->key, entry->value);
    if (!node)
        node = match_find_wildcard(parent, entry);
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
        node = node->has_children ? match_find(envoy, node, &entries[i]) : NULL;
        if (!node)
            return NULL;
        shared[i] = node->share_threshold ? node->value : (struct weir__span){NULL, 0};
    }
    return node->rule;
}

/* ---- keys ---- */

/* Texts come from whoever sends requests through Envoy, and may be of any bytes and any length:
 * what is too long is told apart by its SHA-256. */
#define DIGITS (WEIR__SHA256_HEX_SIZE - 1)
#define BEGINNING 64   /* bytes of a long text that are shown before its digest */
#define LONG_MARK "%~" /* nothing that is escaped has a % without two digits */

static void key_put_digest(struct weir__buffer *buffer, struct weir__span text)
{
    char hex[WEIR__SHA256_HEX_SIZE];
    weir__sha256_hex(text.data, text.len, hex);
    weir__put(buffer, hex, DIGITS);
}

/* Whether the text was long, and so became its beginning and its digest. */
static bool key_put_part(struct weir__buffer *buffer, struct weir__span text,
                         enum weir__place place)
{
    if (text.len <= WEIR__ENVOY_PART_MAX) {
        weir__put_escaped(buffer, text, place);
        return false;
    }
    weir__put_escaped(buffer, (struct weir__span){text.data, BEGINNING}, place);
    weir__put_text(buffer, LONG_MARK);
    key_put_digest(buffer, text);
    return true;
}

static bool key_put_parts(struct weir__buffer *buffer, const struct weir__rls_entry *entries,
                          size_t n, const struct weir__span *shared)
{
    bool is_long = false;
    for (size_t i = 0; i < n && !buffer->cut; i++) {
        bool pattern = shared && shared[i].data;
        weir__put(buffer, "|", 1);
        is_long = key_put_part(buffer, entries[i].key, WEIR__IN_ENVOY_NAME) || is_long;
        weir__put(buffer, "=", 1);
        is_long = key_put_part(buffer, pattern ? shared[i] : entries[i].value,
                               pattern ? WEIR__IN_ENVOY_PATTERN : WEIR__IN_ENVOY_VALUE) ||
                  is_long;
    }
    return is_long;
}

/* Many parts that are too long together: one digest of the digests of all. */
static void key_put_whole_digest(struct weir__buffer *buffer, const struct weir__rls_entry *entries,
                                 size_t n, const struct weir__span *shared)
{
    char room[WEIR__RLS_ENTRIES_MAX * (2 * DIGITS + 1) + 1];
    struct weir__buffer parts = weir__buffer_over(room, sizeof room);
    for (size_t i = 0; i < n; i++) {
        bool pattern = shared && shared[i].data;
        key_put_digest(&parts, entries[i].key);
        weir__put(&parts, pattern ? "*" : "=", 1);
        key_put_digest(&parts, pattern ? shared[i] : entries[i].value);
    }
    assert(!parts.cut);
    weir__put_text(buffer, "|" LONG_MARK);
    key_put_digest(buffer, (struct weir__span){parts.data, parts.len});
}

bool weir__envoy_put_key(char room[WEIR__ENVOY_KEY_ROOM], struct weir__span domain,
                         const struct weir__rls_entry *entries, size_t n,
                         const struct weir__span *shared, size_t *ret_len)
{
    struct weir__buffer key = weir__buffer_over(room, WEIR__ENVOY_KEY_ROOM);
    weir__put_text(&key, "envoy:");
    bool is_long = key_put_part(&key, domain, WEIR__IN_ENVOY_VALUE);
    size_t begun = key.len;
    is_long = key_put_parts(&key, entries, n, shared) || is_long;
    if (key.cut) {
        key = weir__buffer_over(room, WEIR__ENVOY_KEY_ROOM);
        key.len = begun;
        key_put_whole_digest(&key, entries, n, shared);
        is_long = true;
    }
    assert(!key.cut);
    *ret_len = key.len;
    return is_long;
}
