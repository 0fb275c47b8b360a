/*
 * Policies: which requests are limited by what. A file becomes an immutable set; a request's
 * attributes and the set give a plan, the list of what to take, all or nothing. docs/POLICIES.md is
 * the manual.
 *
 * What holds: a set is made whole or not at all; a plan borrows from the set and from itself, and
 * planning allocates nothing.
 */
#ifndef WEIR_POLICY_H
#define WEIR_POLICY_H

#include "policy/conditions.h"
#include "policy/keys.h"
#include "policy/plan.h"
#include "wire/fields.h"
#include "wire/url.h"

#define WEIR__POLICIES_MAX 1000
#define WEIR__OVERRIDES_MAX 1000 /* a policy */
#define WEIR__SHARES_MAX 16      /* a limit, besides default */
#define WEIR__DENY_STATUS 403

/* ---- a set, as a file became it ---- */

/* A cost: a number, or an attribute's value within bounds. */
struct weir__cost {
    int attribute;     /* -1: none */
    int64_t otherwise; /* without the attribute, or where it is no number */
    int64_t least, most;
};

enum weir__missing { WEIR__MISSING_SKIP, WEIR__MISSING_DENY, WEIR__MISSING_EMPTY };

/* How much of a limit the requests of one class may use. */
struct weir__share {
    const char *name;             /* as the file has it: what the attribute is, or "default" */
    uint32_t millionths;          /* of the limit's size */
    struct weir__conditions when; /* of "default", the last: none */
};

/* Classes of requests by one attribute: the first that applies. */
struct weir__shares {
    int attribute;
    const struct weir__share *items;
    size_t count;
};

struct weir__override {
    int line; /* in the file */
    struct weir__conditions when;
    const weir_limit *limit;
    const weir_limit *const *reduced; /* by share; NULL where its entry has no shares */
};

/* One limit of a policy: its key, its limits. */
struct weir__entry {
    const char *name;                  /* unique in its policy */
    const weir_limit *limit;           /* before overrides */
    const struct weir__shares *shares; /* NULL: all requests may use all of it */
    const weir_limit *const *reduced;  /* the limit by share; NULL likewise */
    struct weir__key_form key;
    struct weir__cost cost;
    struct weir__cost least; /* 0: all of the cost */
    enum weir__missing missing;
    bool shadow;                      /* decided and counted, never enforced */
    uint32_t index;                   /* among all entries of the set: for counters */
    struct weir__override *overrides; /* the first that applies */
    size_t override_count;
    size_t limits_most; /* that it may take, overrides considered */
};

struct weir__policy {
    const char *name;
    const char *match_text; /* when it applies, in words */
    struct weir__conditions match;
    struct weir__any_of deny, allow;
    struct weir__entry *entries;
    size_t entry_count;
    enum weir__field_style style;
    bool styled;     /* the file chose the style; otherwise it is the server's */
    bool by_name;    /* planned only when asked for by its name */
    int deny_status; /* of HTTP, where it refuses without a limit: a deny list, missing: deny */
    /* What to do with what the local fallback decided (decision.degraded), the store being out of
     * reach: the words of the store's own fail= */
    enum weir__redis_fail fail;
    bool fail_said; /* the file says it; otherwise the store's own fail= holds */
    bool
        give_back; /* keys may live in different slots: take one by one and give back on a denial */
    uint32_t index; /* in the set */
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
    struct weir__gate *gates;            /* of each policy */
    const struct weir__policy **by_name; /* sorted */
    size_t count, entry_count;
    const struct weir__network *trusted;
    size_t trusted_count;
    struct weir__tier *tiers;
    size_t tier_count;
    weir_limit **limits; /* all that it may hold requests against; owned */
    size_t limit_count, limit_room;
    enum weir__field_style style;
    bool styled; /* the file chose a style for all */
    bool cluster;
    bool hashes;                                    /* a key has a hash(…) in it */
    bool keyed;                                     /* secret is set */
    uint64_t secret[2];                             /* of hash(…) */
    struct weir__warning *warnings, **last_warning; /* in the file's order */
};

/* Reads a file's text. `name` is the file's, for messages. `cluster`: the store is a Redis Cluster,
 * so that policies of several keys must ask for give-back. */
int weir__policies_parse(const char *text, size_t len, const char *name, bool cluster,
                         struct weir__policies **ret, weir_error *err);
void weir__policies_free(struct weir__policies *policies);
/* The secret to hash keys by (hash(NAME)): before the set is used. */
void weir__policies_set_secret(struct weir__policies *policies, const uint64_t secret[2]);
const struct weir__policy *weir__policies_find(const struct weir__policies *policies,
                                               const char *name, size_t len);
/* Whether an address may speak for others (X-Forwarded-For and friends). */
bool weir__policies_trusts(const struct weir__policies *policies, const char *ip, size_t len);

/* Whether two limits count in the same states. */
bool weir__same_states(const weir_limit *a, const weir_limit *b);
/* What is no mistake, and may be meant: the note behind the last one; false: there are no more. */
#define WEIR__NOTE_MAX 2048 /* bytes are enough for one */
struct weir__note_at {
    size_t attribute, policy, entry, step;
    size_t compared; /* what comparing overrides has cost: it is bounded */
};
bool weir__policies_note(const struct weir__policies *policies, struct weir__note_at *at,
                         struct weir__buffer *out);

/* ---- as JSON (shares.c) ---- */

struct weir__json;

/* The member "share" of a limit, if it has shares. */
void weir__put_shares_json(struct weir__json *json, const struct weir__policies *set,
                           const struct weir__shares *shares, const weir_limit *const *reduced);
/* Conditions in words. */
void weir__put_conditions_json(struct weir__json *json, const char *name,
                               const struct weir__policies *set,
                               const struct weir__conditions *conditions);

/* ---- plans ---- */

/* The plan for a subject: of one policy by its name, whether its match applies or not (WEIR_EINVAL:
 * no policy has that name), or with `policy` NULL of all that match, in the file's order. `key`,
 * if its data is not NULL, is the value of the one attribute that all keys of a named policy are
 * made of. `cost` -1: the policy's own. On failure (WEIR_EINVAL: more than 16 limits together, a
 * value that cannot be read or is too long, a bad argument) *ret is of no use. Keys are written as
 * policy/keys.h says. More shadow entries than fit are left out. */
int weir__policies_plan(const struct weir__policies *policies, const struct weir__span *policy,
                        const struct weir__subject *subject, const weir_key *key, int64_t cost,
                        struct weir__plan *ret, weir_error *err);
/* The same past the deny lists: the plan has what they would keep out, and says which entry has
 * the request (`listed`). With `exempts` allow lists count, and a listed request is denied when the
 * plan is decided: to explain it. Without, there are no lists: for who gives back. */
int weir__policies_look(const struct weir__policies *policies, const struct weir__span *policy,
                        const struct weir__subject *subject, const weir_key *key, int64_t cost,
                        bool exempts, struct weir__plan *ret, weir_error *err);
/* Why no limit counts: which entry of which deny list has the request, or what is missing. Of a
 * plan whose verdict is DENY, or that is `listed`. */
void weir__put_denial(struct weir__buffer *buffer, const struct weir__policies *policies,
                      const struct weir__plan *plan);
/* Adds the items of one more subject to a plan that was begun, as those of descriptor `owner` (0 to
 * 31), by all policies that match. The plan's verdict, by and denial are this subject's: note them
 * before the next. A subject that is denied leaves no items. With `refund` its items are separate,
 * and give their cost back. */
int weir__policies_plan_more(const struct weir__policies *policies,
                             const struct weir__subject *subject, int64_t cost, unsigned owner,
                             bool refund, struct weir__plan *plan, weir_error *err);

#endif
