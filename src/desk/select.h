/*
 * What is made of the fields of a line: is it wanted, what is its key, what does it cost. The words
 * are those of policies, and so is what they mean: an address has one spelling and a network, a
 * path and a host have one spelling, `lower(NAME)`, `ip(NAME)` and `hash(NAME)`.
 */
#ifndef WEIR_DESK_SELECT_H
#define WEIR_DESK_SELECT_H

#include "desk/desk.h"
#include "desk/format.h"
#include "policy/conditions.h"
#include "policy/keys.h"
#include "policy/view.h"

#define DESK_TEMPLATES_MAX 64
#define DESK_KEY_SHOWN 256 /* bytes of a key; of a longer one the beginning and a hash */

/* Where the value of an attribute comes from. */
struct desk_source_of {
    enum { DESK_FROM_SLOT, DESK_FROM_ARGUMENT } from;
    uint8_t slot;
    struct weir__span argument; /* its name in the query */
};

struct desk_key_part {
    struct weir__key_part part;
    struct weir__span constant; /* where part.attribute is -1 */
};

struct desk_selection {
    struct weir__arena arena;
    struct weir__attributes attributes;
    struct desk_source_of sources[WEIR__ATTRIBUTES_MAX];
    struct desk_wanted wanted;
    struct desk_key_part parts[WEIR__KEY_FORM_MAX];
    size_t part_count; /* 0: the key that the log has, or else the address */
    int ip, key;       /* the attributes for that */
    struct weir__conditions conditions;
    struct weir__condition items[WEIR__CONDITIONS_MAX];
    const char *const *where;     /* what they were read from */
    struct weir__conditions wide; /* of options->wide */
    struct weir__condition wide_items[WEIR__CONDITIONS_MAX];
    struct weir__span templates[DESK_TEMPLATES_MAX];
    size_t template_count;
    bool costs; /* options->cost was given */
    uint8_t cost_slot;
    int64_t cost_unit; /* what one of the cost is: so many, or so many nanoseconds */
    int carried[DESK_CARRIED_MAX];
    size_t carried_count;
    bool carried_as_keys;
    uint64_t secret[2];
    char said[200]; /* of where.c: what is wrong */
};

/* Where values of one line are rewritten. */
struct desk_room {
    struct weir__view view;
    size_t used;
    char scratch[2 * DESK_LINE_MAX + 16];
    char key[DESK_LINE_MAX + 64];
    char carried[DESK_LINE_MAX * 2];
};

/* DESK_WIDE: filtered, but as options->wide asks. */
enum desk_selected { DESK_TAKEN, DESK_FILTERED, DESK_WIDE, DESK_KEYLESS, DESK_REFUSED };

int desk_selection_make(const struct desk_options *options, struct desk_selection *ret,
                        weir_error *err);
void desk_selection_free(struct desk_selection *selection);
/* Whether a format has what is asked for; an error names what is missing. */
int desk_selection_check(const struct desk_selection *selection, const struct desk_format *format,
                         const char *path, weir_error *err);

/* Which of the options names what no line has; `seen`: the slots that lines had. */
void desk_selection_unseen(const struct desk_selection *selection,
                           const struct desk_options *options, uint64_t seen,
                           struct desk_facts *ret);

/* ---- hints (hint.c): why no line was taken ---- */

#define DESK_HINT_VALUES 32 /* the first four of them are meant to be right */
#define DESK_HINT_BYTES 48

struct desk_hint_value {
    int64_t count;
    char text[DESK_HINT_BYTES];
    uint8_t len;
    bool cut;
};

/* What lines have that do not fulfil a condition. */
struct desk_hint {
    bool held, more;              /* a line fulfilled it; there are other values */
    int64_t below;                /* lines with a path below the one that is asked for */
    struct desk_hint_value lower; /* one of them; len 0: none */
    struct desk_hint_value alike; /* the value in another case, or with another / at its end */
    struct desk_hint_value values[DESK_HINT_VALUES]; /* the frequent ones; count 0: free */
};

struct desk_hints {
    struct desk_hint of[WEIR__CONDITIONS_MAX];
};

/* A line that was left out, whose values are in the view. */
void desk_hints_note(struct desk_hints *hints, const struct desk_selection *selection,
                     struct weir__view *view);
/* One sentence, safe to print. */
void desk_hints_say(const struct desk_hints *hints, const struct desk_selection *selection,
                    struct weir__buffer *out);

/* ---- one line ---- */

/* Fills key, hash, cost and what is carried; they live in the line or in the room. If it is
 * refused, *ret_reason and why say what is wrong. If it is filtered, hints take note of it; they
 * may be NULL. */
enum desk_selected desk_select(const struct desk_selection *selection,
                               const struct desk_format *format, const struct desk_fields *fields,
                               struct desk_room *room, struct desk_hints *hints,
                               struct desk_arrival *ret, enum desk_reason *ret_reason,
                               char why[96]);

/* ---- parts ---- */

/* Adds a condition of options->where, or of options->wide (where.c). NULL, or what is wrong. */
const char *desk_where_read(struct desk_selection *selection, bool wide, const char *text);
/* The number of the attribute that an expression names; -1: *ret_wrong says why. */
int desk_selection_attribute(struct desk_selection *selection, struct weir__span text,
                             const char **ret_wrong);
/* The value of a slot, decoded; false: the line does not have it (values.c). */
bool desk_value(const struct desk_format *format, const struct desk_fields *fields, uint8_t slot,
                struct desk_room *room, struct weir__span *ret);
/* The last of several addresses, with commas between them: the one that the proxy itself saw. */
struct weir__span desk_last_address(struct weir__span value);

#endif
