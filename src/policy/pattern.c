/* See pattern.h. */
#include "policy/pattern.h"

#include <string.h>

/* ---- making ---- */

/* Copies up to the next star, escapes resolved; *at stands behind what was read. */
static const char *pattern_read_piece(const char *text, size_t len, size_t *at, char *room,
                                      size_t *ret_len)
{
    size_t n = 0;
    while (*at < len && text[*at] != '*') {
        if (text[*at] == '\\' && (++*at == len || (text[*at] != '*' && text[*at] != '\\')))
            return "a \\ may only stand before * or another \\";
        room[n++] = text[(*at)++];
    }
    *ret_len = n;
    return NULL;
}

const char *weir__pattern_read(struct weir__arena *arena, const char *text, size_t len,
                               struct weir__pattern *ret)
{
    size_t stars = 0;
    for (size_t i = 0; i < len; i++)
        stars += text[i] == '*';
    char *room = weir__arena_new(arena, len + 1, 1);
    struct weir__span *pieces = weir__arena_new(arena, stars + 1, sizeof *pieces);
    if (!room || !pieces)
        return "";
    struct weir__pattern found = {.pieces = pieces, .exact = true};
    for (size_t at = 0;; at++) {
        struct weir__span piece = {room, 0};
        const char *wrong = pattern_read_piece(text, len, &at, room, &piece.len);
        if (wrong)
            return wrong;
        bool last = at == len;
        if (found.exact)
            found.head = piece;
        else if (last)
            found.tail = piece;
        else if (piece.len > 0)
            pieces[found.piece_count++] = piece;
        found.least += piece.len;
        room += piece.len;
        if (last)
            break;
        found.exact = false;
    }
    *ret = found;
    return NULL;
}

/* ---- matching ---- */

static bool pattern_begins(struct weir__span text, struct weir__span head)
{
    return text.len >= head.len && !memcmp(text.data, head.data, head.len);
}

static bool pattern_ends(struct weir__span text, struct weir__span tail)
{
    return tail.len == 0 ||
           (text.len >= tail.len && !memcmp(text.data + text.len - tail.len, tail.data, tail.len));
}

bool weir__pattern_has(const struct weir__pattern *pattern, struct weir__span text)
{
    if (text.len < pattern->least || !pattern_begins(text, pattern->head))
        return false;
    if (pattern->exact)
        return text.len == pattern->head.len;
    if (!pattern_ends(text, pattern->tail))
        return false;
    const char *at = text.data + pattern->head.len;
    const char *end = text.data + text.len - pattern->tail.len;
    for (size_t i = 0; i < pattern->piece_count; i++) {
        at = memmem(at, (size_t)(end - at), pattern->pieces[i].data, pattern->pieces[i].len);
        if (!at)
            return false;
        at += pattern->pieces[i].len;
    }
    return true;
}

bool weir__patterns_overlap(const struct weir__pattern *a, const struct weir__pattern *b)
{
    if (a->exact)
        return weir__pattern_has(b, a->head);
    if (b->exact)
        return weir__pattern_has(a, b->head);
    return (pattern_begins(a->head, b->head) || pattern_begins(b->head, a->head)) &&
           (pattern_ends(a->tail, b->tail) || pattern_ends(b->tail, a->tail));
}

/* ---- many exact ones ---- */

static int pattern_order(struct weir__span a, struct weir__span b)
{
    if (a.len != b.len)
        return a.len < b.len ? -1 : 1;
    return memcmp(a.data, b.data, a.len);
}

int weir__pattern_order(const void *a, const void *b)
{
    return pattern_order(((const struct weir__pattern *)a)->head,
                         ((const struct weir__pattern *)b)->head);
}

bool weir__pattern_find(const struct weir__pattern *sorted, size_t count, struct weir__span text)
{
    size_t low = 0;
    while (count > 0) {
        size_t half = count / 2;
        int sign = pattern_order(sorted[low + half].head, text);
        if (sign == 0)
            return true;
        if (sign < 0) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return false;
}
