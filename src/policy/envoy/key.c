/*
 * The key of a descriptor's state: see envoy.h. Texts come from whoever sends requests through Envoy, and
 * may be of any bytes and any length: what is too long is told apart by its SHA-256.
 */
#include "policy/envoy/envoy.h"

#include "wire/sha.h"

#include <assert.h>
#include <string.h>

#define DIGITS (WEIR__SHA256_HEX_SIZE - 1)
#define BEGINNING 64   /* bytes of a long text that are shown before its digest */
#define LONG_MARK "%~" /* nothing that is escaped has a % without two digits */

static void put_escaped(struct weir__buffer *buffer, struct weir__span text, const char *marks)
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

static void put_digest(struct weir__buffer *buffer, struct weir__span text)
{
    char hex[WEIR__SHA256_HEX_SIZE];
    weir__sha256_hex(text.data, text.len, hex);
    weir__put(buffer, hex, DIGITS);
}

/* Whether the text was long, and so became its beginning and its digest. */
static bool put_part(struct weir__buffer *buffer, struct weir__span text, const char *marks)
{
    if (text.len <= WEIR__ENVOY_PART_MAX) {
        put_escaped(buffer, text, marks);
        return false;
    }
    put_escaped(buffer, (struct weir__span){text.data, BEGINNING}, marks);
    weir__put_text(buffer, LONG_MARK);
    put_digest(buffer, text);
    return true;
}

static bool put_parts(struct weir__buffer *buffer, const struct weir__rls_entry *entries, size_t n,
                      const struct weir__span *shared)
{
    bool is_long = false;
    for (size_t i = 0; i < n && !buffer->cut; i++) {
        bool pattern = shared && shared[i].data;
        weir__put(buffer, "|", 1);
        is_long = put_part(buffer, entries[i].key, "%|{}*=") || is_long;
        weir__put(buffer, "=", 1);
        is_long =
            put_part(buffer, pattern ? shared[i] : entries[i].value, pattern ? "%|{}" : "%|{}*") ||
            is_long;
    }
    return is_long;
}

/* Many parts that are too long together: one digest of the digests of all. */
static void put_whole_digest(struct weir__buffer *buffer, const struct weir__rls_entry *entries,
                             size_t n, const struct weir__span *shared)
{
    char room[WEIR__RLS_ENTRIES_MAX * (2 * DIGITS + 1) + 1];
    struct weir__buffer parts = weir__buffer_over(room, sizeof room);
    for (size_t i = 0; i < n; i++) {
        bool pattern = shared && shared[i].data;
        put_digest(&parts, entries[i].key);
        weir__put(&parts, pattern ? "*" : "=", 1);
        put_digest(&parts, pattern ? shared[i] : entries[i].value);
    }
    assert(!parts.cut);
    weir__put_text(buffer, "|" LONG_MARK);
    put_digest(buffer, (struct weir__span){parts.data, parts.len});
}

bool weir__envoy_put_key(char room[WEIR__ENVOY_KEY_ROOM], struct weir__span domain,
                         const struct weir__rls_entry *entries, size_t n,
                         const struct weir__span *shared, size_t *ret_len)
{
    struct weir__buffer key = weir__buffer_over(room, WEIR__ENVOY_KEY_ROOM);
    weir__put_text(&key, "envoy:");
    bool is_long = put_part(&key, domain, "%|{}*");
    size_t begun = key.len;
    is_long = put_parts(&key, entries, n, shared) || is_long;
    if (key.cut) {
        key = weir__buffer_over(room, WEIR__ENVOY_KEY_ROOM);
        key.len = begun;
        put_whole_digest(&key, entries, n, shared);
        is_long = true;
    }
    assert(!key.cut);
    *ret_len = key.len;
    return is_long;
}
