/*
 * Conditions on a request: all of a map must hold, each a set of patterns (or networks, for
 * addresses) of which any may match. An attribute that is missing matches nothing, and so fulfils
 * what is negated.
 */
#ifndef WEIR_CONDITIONS_H
#define WEIR_CONDITIONS_H

#include "policy/view.h"

#include <string.h>

/* ---- patterns ----
 *
 * Patterns of text: exact, or with '*' anywhere, which stands for any bytes, none too. A backslash
 * before a '*' or a backslash makes it ordinary. Matching is linear in the text: between the stars
 * each piece is taken where it first occurs, which is right for as long as stars are all there is.
 */

struct weir__pattern {
    struct weir__span head;          /* before the first '*'; without one: all of it */
    struct weir__span tail;          /* behind the last '*' */
    const struct weir__span *pieces; /* between the stars, none of them empty */
    size_t piece_count;
    size_t least; /* bytes that a text must have */
    bool exact;   /* no '*' */
};

/* Makes a pattern of text, in which a backslash is as any other byte unless it `escapes`. NULL, or
 * what is wrong; "" is out of memory. */
const char *weir__pattern_read(struct weir__arena *arena, const char *text, size_t len,
                               bool escapes, struct weir__pattern *ret);
bool weir__pattern_has(const struct weir__pattern *pattern, struct weir__span text);
/* False: no text has both. True: some may. */
bool weir__patterns_overlap(const struct weir__pattern *a, const struct weir__pattern *b);
/* For sorting exact ones, and finding them by weir__pattern_find. */
/* Whether one of these exact patterns, sorted, is the text. */
bool weir__pattern_find(const struct weir__pattern *sorted, size_t count, struct weir__span text);

/* ---- conditions ---- */

#define WEIR__CONDITIONS_MAX 16  /* a map */
#define WEIR__PATTERNS_MAX 10000 /* a condition; exact ones cost little */

struct weir__condition {
    int attribute;
    bool negated;
    bool any;                             /* "*": whatever it is, it is there */
    bool absent;                          /* negated, any; and what is empty counts as missing */
    const struct weir__pattern *patterns; /* in the file's order */
    size_t pattern_count;
    const struct weir__pattern *exact; /* of them those without a star, sorted */
    size_t exact_count;
    const struct weir__pattern *wild; /* and the others */
    size_t wild_count;
    const struct weir__network *networks;
    size_t network_count;
};

/* Gives a condition its patterns: `all` has room for three times as many, for those without a star,
 * sorted, and for the others. */
void weir__condition_set_patterns(struct weir__condition *condition, struct weir__pattern *all,
                                  size_t count);

struct weir__conditions {
    const struct weir__condition *items;
    size_t count;
};

struct weir__any_of {
    const struct weir__conditions *items;
    size_t count;
};

bool weir__conditions_hold(const struct weir__conditions *conditions, struct weir__view *view);
/* Which of them holds, the first, counted from 1; 0: none. */
size_t weir__any_of_holds(const struct weir__any_of *any, struct weir__view *view);
/* False: no request fulfils both. True: some may. */
bool weir__conditions_overlap(const struct weir__conditions *a, const struct weir__conditions *b);
/* Whether every request that fulfils a fulfils b, too. False: perhaps not. Takes what comparing
 * costs from *left; if that is not enough, it is false. */
bool weir__conditions_within(const struct weir__conditions *a, const struct weir__conditions *b,
                             size_t *left);
/* In words: "path is /api and method is GET or POST". */
void weir__put_conditions(struct weir__buffer *buffer, const struct weir__conditions *conditions,
                          const struct weir__attributes *attributes);

/* ---- gates ---- */

/*
 * The short look before the long one: of a policy's conditions the most telling, as eight bytes
 * that a value must have at one place. Files have hundreds of policies, and a request falls under
 * few of them; a gate turns the others away in two nanoseconds. What passes is judged by the
 * conditions themselves.
 */
struct weir__gate {
    int attribute;  /* -1: always open */
    uint32_t least; /* bytes that the value has */
    uint32_t at;    /* where it has these */
    uint32_t count; /* of the bytes, 1 to 8 */
    char bytes[8];
};

/* The gate of conditions: the longest beginning that one of them asks for. */
struct weir__gate weir__gate_of(const struct weir__conditions *conditions);

static inline bool weir__gate_opens(const struct weir__gate *gate, struct weir__view *view)
{
    uint64_t ours, theirs;
    if (gate->attribute < 0)
        return true;
    if (!weir__view_has(view, gate->attribute))
        return false;
    struct weir__span value = view->values[gate->attribute];
    if (value.len < gate->least)
        return false;
    if (gate->count < sizeof ours)
        return !memcmp(value.data + gate->at, gate->bytes, gate->count);
    memcpy(&ours, gate->bytes, sizeof ours);
    memcpy(&theirs, value.data + gate->at, sizeof theirs);
    return ours == theirs;
}

#endif
