/* See keys.h. */
#include "policy/keys.h"

#include "base/hash.h"
#include "wire/sha.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define HASH (WEIR__SHA1_HEX_SIZE - 1)
#define VALUE_SHOWN 32 /* bytes of a hashed value */
#define PARTS_SHOWN (WEIR__KEY_PARTS_MAX - HASH - 2)

/* ---- escaping ---- */

#define ENVOY (WEIR__IN_ENVOY_NAME | WEIR__IN_ENVOY_VALUE | WEIR__IN_ENVOY_PATTERN)
#define EVERYWHERE (WEIR__IN_POLICY_KEY | ENVOY)

/* Where a byte is escaped. */
static const uint8_t escaped[256] = {
    [0 ... 31] = EVERYWHERE,
    [0x7f] = EVERYWHERE,
    ['%'] = EVERYWHERE,
    ['{'] = EVERYWHERE, /* braces are Redis Cluster's */
    ['}'] = EVERYWHERE,
    [' '] = WEIR__IN_POLICY_KEY,
    [','] = WEIR__IN_POLICY_KEY,
    ['~'] = WEIR__IN_POLICY_KEY,
    ['='] = WEIR__IN_POLICY_KEY | WEIR__IN_ENVOY_NAME,
    ['*'] = WEIR__IN_ENVOY_NAME | WEIR__IN_ENVOY_VALUE,
    ['|'] = ENVOY,
};

void weir__put_escaped(struct weir__buffer *buffer, struct weir__span text, enum weir__place place)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t start = 0; start < text.len;) {
        size_t at = start;
        while (at < text.len && !(escaped[(unsigned char)text.data[at]] & place))
            at++;
        weir__put(buffer, text.data + start, at - start);
        if (at < text.len) {
            unsigned char c = (unsigned char)text.data[at++];
            weir__put(buffer, (char[]){'%', digits[c >> 4], digits[c & 15]}, 3);
        }
        start = at;
    }
}

/* Not in the middle of a character: a key that was UTF-8 stays so. */
static size_t keys_cut_before(const char *text, size_t most)
{
    while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80)
        most--;
    return most;
}

static void keys_put_value(struct weir__buffer *buffer, struct weir__span value)
{
    if (value.len <= WEIR__KEY_VALUE_MAX) {
        weir__put_escaped(buffer, value, WEIR__IN_POLICY_KEY);
        return;
    }
    char hex[WEIR__SHA1_HEX_SIZE];
    weir__sha1_hex(value.data, value.len, hex);
    value.len = keys_cut_before(value.data, VALUE_SHOWN);
    weir__put_escaped(buffer, value, WEIR__IN_POLICY_KEY);
    weir__put(buffer, "~", 1);
    weir__put(buffer, hex, HASH);
}

/* ---- putting together ---- */

/* Longest text of all parts before it is hashed: names, "lower()", '=', ',', escaped values. */
#define PARTS_ROOM (WEIR__KEY_FORM_MAX * (WEIR__ATTRIBUTE_NAME_MAX + 32 + 3 * WEIR__KEY_VALUE_MAX))

static void keys_put_whole(struct weir__buffer *buffer, const char *policy, const char *entry,
                           const struct weir__buffer *parts)
{
    weir__put_text(buffer, policy);
    weir__put(buffer, "/", 1);
    if (strcmp(policy, entry)) {
        weir__put_text(buffer, entry);
        weir__put(buffer, "/", 1);
    }
    weir__put(buffer, "{", 1);
    if (parts->len <= WEIR__KEY_PARTS_MAX) {
        weir__put(buffer, parts->data, parts->len);
    } else {
        char hex[WEIR__SHA1_HEX_SIZE];
        weir__sha1_hex(parts->data, parts->len, hex);
        weir__put(buffer, parts->data, keys_cut_before(parts->data, PARTS_SHOWN));
        weir__put(buffer, "~~", 2);
        weir__put(buffer, hex, HASH);
    }
    weir__put(buffer, "}", 1);
}

static void keys_put_part(struct weir__buffer *buffer, const struct weir__key_part *part,
                          const struct weir__view *view)
{
    if (view->attributes->items[part->attribute].spelling == WEIR__AS_ADDRESS)
        weir__put_masked(buffer, weir__view_address(view, part->attribute), part->bits4,
                         part->bits6);
    else
        keys_put_value(buffer, view->values[part->attribute]);
}

/* Of what would stand there. Nobody without the secret can tell the value by trying, and it is the
 * same for as long as the secret is. */
static void keys_put_hashed(struct weir__buffer *buffer, const struct weir__key_part *part,
                            const uint64_t *secret, const struct weir__view *view)
{
    char room[3 * WEIR__KEY_VALUE_MAX + WEIR__SHA1_HEX_SIZE];
    struct weir__buffer value = weir__buffer_over(room, sizeof room);
    uint64_t hash[2];
    keys_put_part(&value, part, view);
    assert(!value.cut);
    if (!secret) {
        weir__put(buffer, "?", 1);
        return;
    }
    weir__hash(secret, value.data, value.len, hash);
    weir__put_format(buffer, "%016" PRIx64, hash[0]);
}

bool weir__put_key(struct weir__buffer *buffer, const char *policy, const char *entry,
                   const struct weir__key_form *form, bool empty, const uint64_t *secret,
                   struct weir__view *view)
{
    char room[PARTS_ROOM];
    struct weir__buffer parts = weir__buffer_over(room, sizeof room);
    for (size_t i = 0; i < form->count; i++) {
        const struct weir__key_part *part = &form->parts[i];
        if (i > 0)
            weir__put(&parts, ",", 1);
        weir__put_text(&parts, part->text);
        if (part->attribute < 0)
            continue;
        if (!weir__view_has(view, part->attribute) || view->values[part->attribute].len == 0) {
            if (!empty)
                return false;
        } else if (part->hashed) {
            keys_put_hashed(&parts, part, secret, view);
        } else {
            keys_put_part(&parts, part, view);
        }
    }
    keys_put_whole(buffer, policy, entry, &parts);
    return true;
}
