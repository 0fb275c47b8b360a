/*
 * The state of a key as one string of bytes, shared by Lua scripts and module: docs/STATE.md. Bytes
 * in, sections out and back; no I/O, no allocation. Every length and number is checked before it is
 * used.
 */
#ifndef WEIR_STATE_H
#define WEIR_STATE_H

#include "core/show.h"

#define WEIR__VALUE_MAGIC 0xF7
#define WEIR__VALUE_VERSION 1
#define WEIR__VALUE_HEAD 2
#define WEIR__RING_HEAD 40
#define WEIR__RING_CAPACITY_MAX ((UINT32_C(4) << 16) - 2)

/* Receipts that were settled stand after all sections. */
#define WEIR__MARKS_KIND 255 /* stands where a section has its kind */
_Static_assert(WEIR__KIND_COUNT <= WEIR__MARKS_KIND, "no kind looks like marks");
#define WEIR__MARKS_HEAD 10
#define WEIR__MARK_SIZE 13
#define WEIR__MARKS_MAX 64
#define WEIR__MARKS_ROOM (WEIR__MARKS_HEAD + WEIR__MARKS_MAX * WEIR__MARK_SIZE)

/* A settled receipt, as one state remembers it. */
struct weir__mark {
    uint64_t name; /* 48 bits of receipt and state */
    int64_t until_us;
};

/* A section found in a value. */
struct weir__section {
    size_t offset, len;
    struct weir__rule rule;   /* kind, period, precision and count as written: enough to judge it */
    struct weir__state state; /* ring.cells point into the value */
    int64_t fresh_at;         /* from when on it is absent by its own numbers */
};

/* A value's sections. */
struct weir__value {
    uint8_t *bytes;
    size_t len;
    size_t count;
    struct weir__section sections[WEIR_LIMITS_MAX];
    size_t marks_at, marks_count; /* where they stand, and how many */
    int64_t marks_until_us;       /* the latest of them; 0: none */
};

/* Reads a value; len 0 is one without sections. False: foreign or damaged. */
bool weir__value_parse(uint8_t *bytes, size_t len, struct weir__value *ret);
/* The section of a rule's state, or NULL. */
struct weir__section *weir__value_find(struct weir__value *value, const struct weir__rule *rule);

/* Every cell counts as read, for any cost. */
#define WEIR__EVERY_CELL (-1)
/* Whether the cells that loading a section's ring at a time and judging a cost read are sound:
 * parsing looks at the newest alone, so that a take costs the same at any size. True for other
 * shapes. */
bool weir__section_readable(const struct weir__section *section, const struct weir__rule *rule,
                            int64_t now_us, int64_t cost);

/* Every section as it stands at a time, room for all; false: one is damaged. */
bool weir__value_show(const struct weir__value *value, int64_t now_us, struct weir__shown *ret);

/* The name by which a state under this rule remembers that a receipt was settled. */
uint64_t weir__mark_name(const struct weir__rule *rule, const struct weir__correction *correction);
/* Whether a value remembers it at this time. */
bool weir__value_marked(const struct weir__value *value, uint64_t name, int64_t now_us);
/* The marks of a value that still count, and n more (at most WEIR_LIMITS_MAX), the oldest left out
 * where they are too many: bytes written to at least WEIR__MARKS_ROOM of them. */
size_t weir__marks_write(const struct weir__value *value, const struct weir__mark *added, size_t n,
                         int64_t now_us, uint8_t *to);

/* The latest of marks just written. */
int64_t weir__marks_until(const uint8_t *marks);

/* Bytes a state takes under a rule (large ones: with this capacity). */
size_t weir__section_size(const struct weir__rule *rule, uint32_t capacity);
/* Writes a section's bytes without its cells, which are in place or the caller's to write. */
void weir__section_write(const struct weir__rule *rule, const struct weir__state *state,
                         uint8_t *to);
/* From when on a state just written is absent by its own numbers, capped at 2^53. */
int64_t weir__state_fresh_at(const struct weir__rule *rule, const struct weir__state *state);
/* The capacity after this one; 0: none. */
uint32_t weir__ring_next_capacity(uint32_t capacity);

#endif
