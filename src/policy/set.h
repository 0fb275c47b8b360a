/*
 * Inside a set of policies. What the server sees of a policy (policy.h) and what planning needs of
 * it stand beside each other, at the same index.
 *
 *     set ── policies[i]  name, words, entries        bodies[i]  match, deny, allow
 *                          └ entries[j]  name, limit      └ entries[j]  key form, cost, overrides
 */
#ifndef WEIR_SET_H
#define WEIR_SET_H

#include "policy/conditions.h"
#include "policy/keys.h"

/* A cost: a number, or an attribute's value within bounds. */
struct weir__cost {
    int attribute;     /* -1: none */
    int64_t otherwise; /* without the attribute, or where it is no number */
    int64_t least, most;
};

enum weir__missing { WEIR__MISSING_SKIP, WEIR__MISSING_DENY, WEIR__MISSING_EMPTY };

#define WEIR__OVERRIDES_MAX 1000 /* a policy */

struct weir__override {
    struct weir__conditions when;
    const weir_limit *limit;
};

struct weir__entry_body {
    struct weir__key_form key;
    struct weir__cost cost;
    enum weir__missing missing;
    const struct weir__override *overrides; /* the first that applies */
    size_t override_count;
    size_t limits_most; /* that it may take, overrides considered */
};

struct weir__policy_body {
    struct weir__conditions match;
    struct weir__any_of deny, allow;
    struct weir__entry_body *entries;
    bool by_name; /* planned only when asked for by its name */
};

/* What is no mistake, but hardly meant: "FILE:3:7: …". */
struct weir__warning {
    const char *text;
    struct weir__warning *next;
};

struct weir__tier {
    const char *name;
    const weir_limit *limit;
};

struct weir__policies {
    struct weir__arena arena;
    struct weir__attributes attributes;
    struct weir__policy *policies;
    struct weir__policy_body *bodies;
    struct weir__gate *gates;
    bool styled;                         /* the file chose a style for all */
    const struct weir__policy **by_name; /* sorted */
    size_t count, entries;
    const struct weir__network *trusted;
    size_t trusted_count;
    struct weir__tier *tiers;
    size_t tier_count;
    weir_limit **limits; /* all that are owned */
    size_t limit_count, limit_room;
    enum weir__field_style style;
    bool cluster;
    bool hashes;                                    /* a key has a hash(…) in it */
    bool keyed;                                     /* secret is set */
    uint64_t secret[2];                             /* of hash(…) */
    struct weir__warning *warnings, **last_warning; /* in the file's order */
};

#endif
