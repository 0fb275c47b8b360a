/*
 * Patterns of text: exact, or with '*' anywhere, which stands for any bytes, none too. A backslash
 * before a '*' or a backslash makes it ordinary. Matching is linear in the text: between the stars
 * each piece is taken where it first occurs, which is right for as long as stars are all there is.
 */
#ifndef WEIR_PATTERN_H
#define WEIR_PATTERN_H

#include "base/span.h"
#include "policy/arena.h"

struct weir__pattern {
    struct weir__span head;          /* before the first '*'; without one: all of it */
    struct weir__span tail;          /* behind the last '*' */
    const struct weir__span *pieces; /* between the stars, none of them empty */
    size_t piece_count;
    size_t least; /* bytes that a text must have */
    bool exact;   /* no '*' */
};

/* Makes a pattern of text. NULL, or what is wrong; "" is out of memory. */
const char *weir__pattern_read(struct weir__arena *arena, const char *text, size_t len,
                               struct weir__pattern *ret);
bool weir__pattern_has(const struct weir__pattern *pattern, struct weir__span text);
/* False: no text has both. True: some may. */
bool weir__patterns_overlap(const struct weir__pattern *a, const struct weir__pattern *b);
/* For sorting exact ones, and finding them by weir__pattern_find. */
int weir__pattern_order(const void *a, const void *b);
/* Whether one of these exact patterns, sorted, is the text. */
bool weir__pattern_find(const struct weir__pattern *sorted, size_t count, struct weir__span text);

#endif
