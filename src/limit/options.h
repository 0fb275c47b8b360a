/*
 * The options of the limit language: one table, by which limits are read and written.
 *
 * A limit is a name, an amount and options. Its name stands in the row of its algorithm
 * (core/core.h); what may follow stands here.
 */
#ifndef WEIR_OPTIONS_H
#define WEIR_OPTIONS_H

#include "core/core.h"

#include <stddef.h>

enum weir__option_type {
    WEIR__OPTION_FLAG,     /* a word alone: sets `flag` */
    WEIR__OPTION_KIND,     /* a word alone: makes the limit another kind of the same name */
    WEIR__OPTION_COUNT,    /* a count of at least `least` */
    WEIR__OPTION_DURATION, /* into an int64_t of microseconds */
    WEIR__OPTION_DECIMAL,  /* into an uint32_t of millionths */
    WEIR__OPTION_ANCHOR,   /* where a week, a month or a year starts (core/calendar.h) */
    WEIR__OPTION_ZONE      /* an offset from UTC, likewise */
};

/* The bit of a kind in a set of kinds. */
#define WEIR__KIND_BIT(kind) (UINT32_C(1) << (kind))
_Static_assert(WEIR__KIND_COUNT <= 32, "sets of kinds have 32 bits");

struct weir__option {
    const char *text;
    uint32_t kinds; /* those that may have it */
    enum weir__option_type type;
    uint8_t flag;         /* FLAG: a bit of the rule's flags */
    enum weir__kind kind; /* KIND: what the limit becomes */
    size_t field;         /* of struct weir__rule, where the value goes */
    int64_t least;        /* COUNT */
    const char *excludes; /* options with the same text here cannot stand together; NULL: any can */
    int camp;             /* but those of one camp, other than 0, can */
    /* The value where the option is not given, which is not written either. */
    int64_t preset;
    int64_t (*preset_of)(const struct weir__rule *); /* where it depends on the rule; else NULL */
};

#define WEIR__OPTIONS 13
extern const struct weir__option weir__options[WEIR__OPTIONS];

static inline bool weir__option_fits(const struct weir__option *option, enum weir__kind kind)
{
    return option->kinds & WEIR__KIND_BIT(kind);
}

/* The value of an option that has one; of anchor and zone, that of the rule's calendar. */
int64_t weir__option_value(const struct weir__option *option, const struct weir__rule *rule);
void weir__option_set(const struct weir__option *option, struct weir__rule *rule, int64_t value);
int64_t weir__option_preset(const struct weir__option *option, const struct weir__rule *rule);

#endif
