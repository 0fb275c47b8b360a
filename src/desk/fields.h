/*
 * The fields of a line, and what they are called. Logs have many names for one thing: remote_addr,
 * ClientHost and request.remote_ip are all `ip`. One table knows them all.
 */
#ifndef WEIR_DESK_FIELDS_H
#define WEIR_DESK_FIELDS_H

#include "base/base.h"
#include "base/span.h"

enum desk_slot {
    DESK_TIME,
    DESK_IP,
    DESK_METHOD,
    DESK_TARGET, /* path and query, as sent */
    DESK_QUERY,
    DESK_REQUEST, /* the first line of the request: method, target, protocol */
    DESK_HOST,
    DESK_STATUS,
    DESK_BYTES,
    DESK_DURATION,
    DESK_USER,
    DESK_AGENT,
    DESK_REFERER,
    DESK_KEY,
    DESK_COST,
    DESK_NAMED, /* the first of those that somebody asked for by their own name */
};

#define DESK_NAMED_MAX 32
#define DESK_NAME_MAX 64
#define DESK_SLOTS (DESK_NAMED + DESK_NAMED_MAX)
#define DESK_NO_SLOT 255
_Static_assert(DESK_SLOTS <= 64, "a bit for each");

/* How a value is written in its line. */
enum desk_escape {
    DESK_ESCAPE_BACKSLASH, /* \xHH, \", \\: nginx and Apache */
    DESK_ESCAPE_JSON,
    DESK_ESCAPE_QUOTES, /* "" for a quote: CSV */
};

struct desk_fields {
    uint64_t present; /* a bit for each slot */
    uint64_t escaped; /* those that must be decoded; of text formats: unknown */
    enum desk_escape escape;
    struct weir__span at[DESK_SLOTS];
};

static inline void desk_fields_set(struct desk_fields *fields, uint8_t slot, const char *from,
                                   const char *to)
{
    fields->at[slot] = (struct weir__span){from, (size_t)(to - from)};
    fields->present |= UINT64_C(1) << slot;
}

static inline bool desk_fields_has(const struct desk_fields *fields, uint8_t slot)
{
    return fields->present >> slot & 1;
}

/* ---- names ---- */

/* What somebody asked for: names beyond the fixed slots, and where to find a field. */
struct desk_wanted {
    char names[DESK_NAMED_MAX][DESK_NAME_MAX + 1];
    size_t count;
    struct {
        uint8_t slot;
        const char *name; /* in the log */
        size_t len;
    } moved[DESK_NAMED_MAX];
    size_t moved_count;
};

/* Where a name of a log leads. */
struct desk_place {
    uint8_t slot, named; /* DESK_NO_SLOT: nowhere */
    uint8_t rank;        /* of two names for one slot the lower one counts */
    int64_t unit_ns;     /* of a duration */
};

/* By a name of a log: a variable of nginx, a member of JSON, a column of CSV. */
struct desk_place desk_place_of(const struct desk_wanted *wanted, struct weir__span name);
/* The slot that a word of ours stands for ("ip", "header.referer"), or DESK_NO_SLOT. */
uint8_t desk_slot_of_word(struct weir__span word);
/* The word for a slot below DESK_NAMED. */
const char *desk_slot_word(uint8_t slot);
/* The slot of a name that somebody asks for, a new one if need be; DESK_NO_SLOT: too many. */
uint8_t desk_wanted_slot(struct desk_wanted *wanted, struct weir__span name);

/* The names of the table, to find members of JSON, and where they lead. False: no more names. */
bool desk_known_place(const struct desk_wanted *wanted, size_t i, struct weir__span *ret_name,
                      struct desk_place *ret);

/* A character of a name as names are compared: lower case, '-' is '_'. */
static inline unsigned char desk_name_char(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c == '-' ? '_' : c);
}

bool desk_names_equal(struct weir__span a, struct weir__span b);

#endif
