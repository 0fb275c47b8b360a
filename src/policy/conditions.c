/* Conditions and the patterns they are made of: see conditions.h. */
#include "policy/conditions.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN 4             /* patterns of a condition in words */
#define COMPARED_MAX 100000 /* pairs of patterns; beyond, they may overlap */

/* ---- patterns: making ---- */

/* Copies up to the next star, escapes resolved; *at stands behind what was read. */
static const char *pattern_read_piece(const char *text, size_t len, bool escapes, size_t *at,
                                      char *room, size_t *ret_len)
{
    size_t n = 0;
    while (*at < len && text[*at] != '*') {
        if (escapes && text[*at] == '\\' &&
            (++*at == len || (text[*at] != '*' && text[*at] != '\\')))
            return "a \\ may only stand before * or another \\";
        room[n++] = text[(*at)++];
    }
    *ret_len = n;
    return NULL;
}

const char *weir__pattern_read(struct weir__arena *arena, const char *text, size_t len,
                               bool escapes, struct weir__pattern *ret)
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
        const char *wrong = pattern_read_piece(text, len, escapes, &at, room, &piece.len);
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

/* ---- patterns: matching ---- */

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

/* ---- patterns: many exact ones ---- */

static int pattern_order(struct weir__span a, struct weir__span b)
{
    if (a.len != b.len)
        return a.len < b.len ? -1 : 1;
    return memcmp(a.data, b.data, a.len);
}

static int pattern_order_of(const void *a, const void *b)
{
    return pattern_order(((const struct weir__pattern *)a)->head,
                         ((const struct weir__pattern *)b)->head);
}

void weir__condition_set_patterns(struct weir__condition *condition, struct weir__pattern *all,
                                  size_t count)
{
    struct weir__pattern *exact = all + count, *wild = exact + count;
    for (size_t i = 0; i < count; i++) {
        if (all[i].exact)
            exact[condition->exact_count++] = all[i];
        else
            wild[condition->wild_count++] = all[i];
        condition->any |= !all[i].exact && all[i].least == 0;
    }
    qsort(exact, condition->exact_count, sizeof *exact, pattern_order_of);
    condition->patterns = all;
    condition->pattern_count = count;
    condition->exact = exact;
    condition->wild = wild;
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

/* ---- deciding ---- */

static bool conditions_matches_address(const struct weir__condition *condition,
                                       const struct weir__view *view)
{
    struct weir__address address = weir__view_address(view, condition->attribute);
    for (size_t i = 0; i < condition->network_count; i++) {
        if (weir__network_has(&condition->networks[i], &address))
            return true;
    }
    return false;
}

static bool conditions_matches(const struct weir__condition *condition, struct weir__view *view)
{
    if (!weir__view_has(view, condition->attribute))
        return false;
    if (condition->any)
        return true;
    if (condition->network_count > 0)
        return conditions_matches_address(condition, view);
    struct weir__span value = view->values[condition->attribute];
    for (size_t i = 0; i < condition->wild_count; i++) {
        if (weir__pattern_has(&condition->wild[i], value))
            return true;
    }
    return weir__pattern_find(condition->exact, condition->exact_count, value);
}

static bool conditions_holds(const struct weir__condition *condition, struct weir__view *view)
{
    if (conditions_matches(condition, view) != condition->negated)
        return true;
    return condition->absent && view->values[condition->attribute].len == 0;
}

bool weir__conditions_hold(const struct weir__conditions *conditions, struct weir__view *view)
{
    for (size_t i = 0; i < conditions->count; i++) {
        if (!conditions_holds(&conditions->items[i], view))
            return false;
    }
    return true;
}

size_t weir__any_of_holds(const struct weir__any_of *any, struct weir__view *view)
{
    for (size_t i = 0; i < any->count; i++) {
        if (weir__conditions_hold(&any->items[i], view))
            return i + 1;
    }
    return 0;
}

/* ---- comparing ---- */

/* Whether it lists the empty text, whatever it says of it. */
static bool condition_lists_empty(const struct weir__condition *condition)
{
    const struct weir__span empty = {"", 0};
    return condition->any || weir__pattern_find(condition->exact, condition->exact_count, empty);
}

static bool conditions_overlap(const struct weir__condition *a, const struct weir__condition *b)
{
    if (a->negated && b->negated)
        return true;
    if (a->negated || b->negated) { /* absent and present are all that is compared */
        const struct weir__condition *negated = a->negated ? a : b, *other = a->negated ? b : a;
        return !negated->any || (negated->absent && condition_lists_empty(other));
    }
    if (a->any || b->any)
        return true;
    bool networks = a->network_count > 0;
    size_t n = networks ? a->network_count : a->pattern_count;
    size_t m = networks ? b->network_count : b->pattern_count;
    if (n * m > COMPARED_MAX)
        return true;
    for (size_t i = 0; i < n * m; i++) {
        if (networks ? weir__networks_overlap(&a->networks[i / m], &b->networks[i % m])
                     : weir__patterns_overlap(&a->patterns[i / m], &b->patterns[i % m]))
            return true;
    }
    return false;
}

bool weir__conditions_overlap(const struct weir__conditions *a, const struct weir__conditions *b)
{
    for (size_t i = 0; i < a->count; i++) {
        for (size_t j = 0; j < b->count; j++) {
            if (a->items[i].attribute == b->items[j].attribute &&
                !conditions_overlap(&a->items[i], &b->items[j]))
                return false;
        }
    }
    return true;
}

/* Whether every text that a has, b has. With one star that is clear from both ends; with more,
 * only where they are equal. */
static bool pattern_within(const struct weir__pattern *a, const struct weir__pattern *b)
{
    if (a->exact)
        return weir__pattern_has(b, a->head);
    if (b->exact || !pattern_begins(a->head, b->head) || !pattern_ends(a->tail, b->tail))
        return false;
    bool same = a->piece_count == b->piece_count;
    for (size_t i = 0; same && i < a->piece_count; i++)
        same = pattern_order(a->pieces[i], b->pieces[i]) == 0;
    return same || b->piece_count == 0;
}

static bool pattern_within_one(const struct weir__pattern *pattern, const struct weir__condition *b)
{
    bool found = pattern->exact && weir__pattern_find(b->exact, b->exact_count, pattern->head);
    for (size_t i = 0; i < b->wild_count && !found; i++)
        found = pattern_within(pattern, &b->wild[i]);
    return found;
}

static bool network_within_one(const struct weir__network *network, const struct weir__condition *b)
{
    bool found = false;
    for (size_t i = 0; i < b->network_count && !found; i++)
        found = weir__network_within(network, &b->networks[i]);
    return found;
}

/* Whether b lists all values that a lists, whatever each says of them. */
static bool condition_lists_all(const struct weir__condition *a, const struct weir__condition *b,
                                size_t *left)
{
    size_t n = a->pattern_count + a->network_count;
    size_t cost = 1 + n * (1 + b->wild_count + b->network_count);
    if (b->any || a->any)
        return b->any;
    if (*left < cost)
        return false;
    *left -= cost;
    for (size_t i = 0; i < n; i++) {
        if (a->network_count > 0 ? !network_within_one(&a->networks[i], b)
                                 : !pattern_within_one(&a->patterns[i], b))
            return false;
    }
    return true;
}

static bool condition_within(const struct weir__condition *a, const struct weir__condition *b,
                             size_t *left)
{
    struct weir__condition listed = *b;
    size_t pairs = (a->pattern_count + a->network_count) * (b->pattern_count + b->network_count);
    if (a->absent && !b->absent && condition_lists_empty(b))
        return false;
    if (a->negated == b->negated)
        return a->negated ? condition_lists_all(b, a, left) : condition_lists_all(a, b, left);
    if (!b->negated || pairs > COMPARED_MAX || *left < pairs) /* an absent one fulfils a that is */
        return false;
    *left -= pairs;
    listed.negated = false;
    return !conditions_overlap(a, &listed);
}

bool weir__conditions_within(const struct weir__conditions *a, const struct weir__conditions *b,
                             size_t *left)
{
    for (size_t j = 0; j < b->count; j++) {
        bool found = false;
        *left -= *left > 0;
        for (size_t i = 0; i < a->count && !found && *left > 0; i++)
            found = a->items[i].attribute == b->items[j].attribute &&
                    condition_within(&a->items[i], &b->items[j], left);
        if (!found)
            return false;
    }
    return true;
}

/* ---- words ---- */

static void conditions_put_literal(struct weir__buffer *buffer, struct weir__span text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '*' || text.data[i] == '\\')
            weir__put(buffer, "\\", 1);
        weir__put(buffer, (unsigned char)text.data[i] < ' ' ? "?" : text.data + i, 1);
    }
}

static void conditions_put_pattern(struct weir__buffer *buffer, const struct weir__pattern *pattern)
{
    if (pattern->exact &&
        (pattern->head.len == 0 || memchr(pattern->head.data, ' ', pattern->head.len))) {
        weir__put(buffer, "\"", 1);
        conditions_put_literal(buffer, pattern->head);
        weir__put(buffer, "\"", 1);
        return;
    }
    conditions_put_literal(buffer, pattern->head);
    if (pattern->exact)
        return;
    for (size_t i = 0; i < pattern->piece_count; i++) {
        weir__put(buffer, "*", 1);
        conditions_put_literal(buffer, pattern->pieces[i]);
    }
    weir__put(buffer, "*", 1);
    conditions_put_literal(buffer, pattern->tail);
}

static void conditions_put_condition(struct weir__buffer *buffer,
                                     const struct weir__condition *condition,
                                     const struct weir__attributes *attributes)
{
    size_t count = condition->pattern_count + condition->network_count;
    weir__put_text(buffer, attributes->items[condition->attribute].text);
    if (condition->any) {
        weir__put_text(buffer, condition->negated ? " is absent" : " is present");
        return;
    }
    weir__put_text(buffer, condition->negated ? " is not " : " is ");
    size_t shown = count > SHOWN + 1 ? SHOWN : count;
    for (size_t i = 0; i < shown; i++) {
        if (i > 0)
            weir__put_text(buffer, i + 1 == count ? " or " : ", ");
        if (condition->network_count > 0)
            weir__put_network(buffer, &condition->networks[i]);
        else
            conditions_put_pattern(buffer, &condition->patterns[i]);
    }
    if (shown < count)
        weir__put_format(buffer, " or %zu others", count - shown);
}

/* Not in the middle of a character. */
static void conditions_mark_cut(struct weir__buffer *buffer)
{
    static const char more[] = "…";
    size_t end = buffer->len > sizeof more ? buffer->len - sizeof more : 0;
    while (end > 0 && ((unsigned char)buffer->data[end] & 0xc0) == 0x80)
        end--;
    buffer->len = end;
    weir__put_text(buffer, more);
}

void weir__put_conditions(struct weir__buffer *buffer, const struct weir__conditions *conditions,
                          const struct weir__attributes *attributes)
{
    for (size_t i = 0; i < conditions->count; i++) {
        if (i > 0)
            weir__put_text(buffer, " and ");
        conditions_put_condition(buffer, &conditions->items[i], attributes);
    }
    if (buffer->cut)
        conditions_mark_cut(buffer);
}

/* ---- gates ---- */

/* The text that every value begins with that fulfils the condition; empty: none. */
static struct weir__span conditions_gate_beginning(const struct weir__condition *condition)
{
    if (condition->negated || condition->any || condition->pattern_count != 1)
        return (struct weir__span){"", 0};
    return condition->patterns[0].head;
}

struct weir__gate weir__gate_of(const struct weir__conditions *conditions)
{
    struct weir__gate gate = {.attribute = -1};
    size_t longest = 0;
    for (size_t i = 0; i < conditions->count; i++) {
        struct weir__span head = conditions_gate_beginning(&conditions->items[i]);
        if (head.len <= longest || head.len > UINT32_MAX)
            continue;
        longest = head.len;
        gate.attribute = conditions->items[i].attribute;
        gate.least = (uint32_t)head.len;
        gate.count = (uint32_t)(head.len < sizeof gate.bytes ? head.len : sizeof gate.bytes);
        gate.at = gate.least - gate.count; /* the end of it: beginnings are often alike */
        memcpy(gate.bytes, head.data + gate.at, gate.count);
    }
    return gate;
}
