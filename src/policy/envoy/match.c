/* Which rule a descriptor leads to: see envoy.h. */
#include "policy/envoy/set.h"

#include "base/hash.h"
#include "wire/sha.h"

#include <assert.h>
#include <string.h>

static bool match_equal(struct weir__span a, const char *text, size_t len)
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
    while (node && (node->hash != hash || node->parent != parent ||
                    !match_equal(key, node->key, node->key_len) ||
                    !match_equal(value, node->value, node->value_len)))
        node = node->next_in_bucket;
    return node;
}

/* Whether a text is what a pattern says, each * standing for any bytes or none. Every part between
 * stars is looked for behind the one before: linear. */
static bool match_is_like(struct weir__span text, const char *pattern, size_t len)
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

static const struct weir__envoy_node *match_find_wildcard(const struct weir__envoy_node *parent,
                                                          const struct weir__rls_entry *entry)
{
    const struct weir__envoy_node *node = parent->wildcards;
    while (node && !(match_equal(entry->key, node->key, node->key_len) &&
                     match_is_like(entry->value, node->value, node->value_len)))
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
        shared[i] = (struct weir__span){NULL, 0};
        if (node->share_threshold)
            shared[i] = (struct weir__span){node->value, node->value_len};
    }
    return node->rule;
}

/* ---- keys ---- */

/* Texts come from whoever sends requests through Envoy, and may be of any bytes and any length:
 * what is too long is told apart by its SHA-256. */
#define DIGITS (WEIR__SHA256_HEX_SIZE - 1)
#define BEGINNING 64   /* bytes of a long text that are shown before its digest */
#define LONG_MARK "%~" /* nothing that is escaped has a % without two digits */

static void key_put_escaped(struct weir__buffer *buffer, struct weir__span text, const char *marks)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t at = 0; at < text.len;) {
        size_t plain = at;
        while (plain < text.len && (unsigned char)text.data[plain] >= ' ' &&
               text.data[plain] != 0x7f && !strchr(marks, text.data[plain]))
            plain++;
        weir__put(buffer, text.data + at, plain - at);
        if (plain < text.len) {
            unsigned char byte = (unsigned char)text.data[plain++];
            char escaped[] = {'%', digits[byte >> 4], digits[byte & 15]};
            weir__put(buffer, escaped, sizeof escaped);
        }
        at = plain;
    }
}

static void key_put_digest(struct weir__buffer *buffer, struct weir__span text)
{
    char hex[WEIR__SHA256_HEX_SIZE];
    weir__sha256_hex(text.data, text.len, hex);
    weir__put(buffer, hex, DIGITS);
}

/* Whether the text was long, and so became its beginning and its digest. */
static bool key_put_part(struct weir__buffer *buffer, struct weir__span text, const char *marks)
{
    if (text.len <= WEIR__ENVOY_PART_MAX) {
        key_put_escaped(buffer, text, marks);
        return false;
    }
    key_put_escaped(buffer, (struct weir__span){text.data, BEGINNING}, marks);
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
        is_long = key_put_part(buffer, entries[i].key, "%|{}*=") || is_long;
        weir__put(buffer, "=", 1);
        is_long = key_put_part(buffer, pattern ? shared[i] : entries[i].value,
                               pattern ? "%|{}" : "%|{}*") ||
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
    bool is_long = key_put_part(&key, domain, "%|{}*");
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
