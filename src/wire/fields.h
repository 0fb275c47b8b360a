/*
 * A decision as HTTP fields: RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers),
 * the older triples, those that clients of OpenAI's API read beside RateLimit, Retry-After. Shared
 * by the server, over HTTP/1 and 2, and nginx. Whole
 * seconds, rounded up. q = limit, w = period (buckets: the time to refill from empty), r =
 * remaining, t = retry_after when denied, else reset_after. Never is left out: no t, no -Reset, no
 * Retry-After, which is there only when denied. Numbers are cut to the 15 digits of a structured
 * field's integer.
 */
#ifndef WEIR_FIELDS_H
#define WEIR_FIELDS_H

#include "base/buffer.h"
#include "limit/limit.h"

enum weir__field_style {
    WEIR__FIELDS_IETF,    /* RateLimit, RateLimit-Policy */
    WEIR__FIELDS_IETF_06, /* RateLimit-Limit, -Remaining, -Reset */
    WEIR__FIELDS_X,       /* X-RateLimit-Limit, -Remaining, -Reset (seconds from now) */
    WEIR__FIELDS_OPENAI,  /* as IETF, and X-RateLimit-Limit-NAME, -Remaining-NAME, -Reset-NAME */
    WEIR__FIELDS_RETRY,   /* only Retry-After */
    WEIR__FIELDS_OFF,     /* none, not even Retry-After */
};

extern const char *const weir__field_styles[WEIR__FIELDS_OFF + 1]; /* their names */
/* "ietf", "ietf-06", "x-ratelimit", "openai", "retry-after", "off"; false: none of them. */
bool weir__field_style_read(const char *text, size_t len, enum weir__field_style *ret);

/* One limit as the fields name it. */
struct weir__rated {
    const char
        *name; /* NULL: the algorithm's word. Its first 64 bytes, escaped as a structured field's
                         string; the second of one name gets "-2" after it */
    const struct weir__rule *rule;
    const weir_decision *row; /* its own answer */
};

#define WEIR__RATE_FIELDS_MAX (3 + 3 * WEIR_LIMITS_MAX)
#define WEIR__RATE_FIELDS_ROOM 9728 /* 16 limits with names of 64 bytes fit, with any numbers */

/* Values point into room: not to be copied. */
struct weir__rate_fields {
    struct {
        const char *name; /* lower case, as HTTP/2 needs it; of OpenAI's it is in the room, too */
        const char *value;
        size_t value_len;
    } items[WEIR__RATE_FIELDS_MAX];
    size_t count;
    char room[WEIR__RATE_FIELDS_ROOM];
};

/* Fields of one folded decision over n limits. The triples show the binding limit's row, OpenAI's
 * one row per name: of limits with the same name the one that denies, or has least left. Its times
 * are those of reset_after, written as Go does: 20ms, 1.5s, 6m0s. Limits that do not fit (by the
 * dozen, with names full of quotes) are left out whole. */
void weir__rate_fields(enum weir__field_style style, const struct weir__rated *rated, size_t n,
                       const weir_decision *folded, struct weir__rate_fields *ret);

#endif
