/* See span.h. */
#include "base/span.h"

#include <assert.h>

bool weir__span_whole(struct weir__span text, int64_t least, int64_t most, int64_t *ret)
{
    int64_t number = 0;
    assert(least >= 0);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c < '0' || c > '9' || number > (INT64_MAX - 9) / 10)
            return false;
        number = number * 10 + (c - '0');
    }
    if (text.len == 0 || number < least || number > most)
        return false;
    *ret = number;
    return true;
}

/* ---- UTF-8 ---- */

size_t weir__utf8_length(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    if (len == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t need = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len < need)
        return 0;
    uint32_t code = p[0] & (0x7fu >> need);
    for (size_t i = 1; i < need; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3fu);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < least[need] || code > 0x10ffff || surrogate ? 0 : need;
}

bool weir__utf8_is_harmful(const char *text, size_t bytes)
{
    const unsigned char *const p = (const unsigned char *)text;
    uint32_t code = 0x10ffff; /* longer ones are harmless */
    if (bytes == 0)
        return true;
    if (bytes == 1)
        code = p[0];
    else if (bytes == 2)
        code = (p[0] & 0x1fU) << 6 | (p[1] & 0x3fU);
    else if (bytes == 3)
        code = (p[0] & 0xfU) << 12 | (p[1] & 0x3fU) << 6 | (p[2] & 0x3fU);
    return code < ' ' || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

size_t weir__full_width(const char *text, size_t len, size_t *ret_at, char *ret_ascii)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i + 3 <= len; i++) {
        unsigned code = (p[i] & 0xfu) << 12 | (p[i + 1] & 0x3fu) << 6 | (p[i + 2] & 0x3fu);
        if (p[i] >> 4 != 0xe || weir__utf8_length(text + i, len - i) != 3)
            continue;
        char ascii = code >= 0xff01 && code <= 0xff5e ? (char)(code - 0xfee0)
                     : code == 0x3000                 ? ' '
                     : code == 0x3001                 ? ','
                                                      : 0;
        if (!ascii)
            continue;
        *ret_at = i;
        *ret_ascii = ascii;
        return 3;
    }
    return 0;
}

size_t weir__put_utf8(uint32_t code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

bool weir__utf8_valid(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        uint64_t eight;
        if (len - at >= sizeof eight) { /* most text is ASCII */
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        size_t step = weir__utf8_length(text + at, len - at);
        if (step == 0)
            return false;
        at += step;
    }
    return true;
}

/* ---- the nearest name: how many strokes apart two are, counted row by row; three rows are enough
 * ---- */

#define NEAREST_WORD_MAX 32

static int nearest_least(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, removals, changes and swaps of neighbours that turn a into b; b is short. */
static int nearest_strokes(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int rows[3][NEAREST_WORD_MAX + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] = nearest_least(above[j - 1] + (a[i - 1] != b[j - 1]),
                                   1 + nearest_least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = nearest_least(row[j], 1 + before[j - 2]);
        }
    }
    return rows[a_len % 3][b_len];
}

/* One stroke, two in long words; others begin with another letter (cost and host), or are short (id
 * and ip). */
static bool nearest_is_slip(const char *word, size_t len, const char *name, int apart)
{
    return len >= 3 && word[0] == name[0] && apart <= (len < 6 || strlen(name) < 6 ? 1 : 2);
}

/* `slip`: only names that the word is a slip of, not those that it begins. */
static const char *nearest_among(const char *word, size_t len, const char *const *names, bool slip)
{
    const char *best = NULL;
    int nearer_than = len <= 4 ? 2 : len <= 5 ? 3 : 4;
    for (; *names && len <= NEAREST_WORD_MAX; names++) {
        size_t name_len = strlen(*names);
        if (name_len > NEAREST_WORD_MAX)
            continue;
        bool begins = !slip && len >= 2 && len < name_len && !memcmp(word, *names, len);
        int apart = begins ? 1 : nearest_strokes(word, len, *names, name_len);
        if (apart < nearer_than && (!slip || nearest_is_slip(word, len, *names, apart))) {
            best = *names;
            nearer_than = apart;
        }
    }
    return best;
}

const char *weir__nearest(const char *word, size_t len, const char *const *names)
{
    return nearest_among(word, len, names, false);
}

const char *weir__misspelt(const char *word, size_t len, const char *const *names)
{
    return nearest_among(word, len, names, true);
}
