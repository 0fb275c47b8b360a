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

#include "policy/plan.h"
#include "wire/fields.h"
#include "wire/http1.h"
#include "wire/url.h"

struct weir__policies; /* a set */

#define WEIR__POLICY_NAME_MAX 64
#define WEIR__POLICIES_MAX 1000
#define WEIR__DENY_STATUS 403

/* One limit of a policy: its key, its limits. */
struct weir__entry {
    const char *name;        /* unique in its policy */
    const weir_limit *limit; /* before overrides */
    const char *key_text;    /* how the key is made, as the file says it */
    bool shadow;             /* decided and counted, never enforced */
    uint32_t index;          /* among all entries of the set: for counters */
};

struct weir__policy {
    const char *name;
    const char *match_text; /* when it applies, in words */
    const struct weir__entry *entries;
    size_t entry_count;
    enum weir__field_style style;
    bool styled;     /* the file chose the style; otherwise it is the server's */
    int deny_status; /* of HTTP, where it refuses without a limit: a deny list, missing: deny */
    /* What to do with what the local fallback decided (decision.degraded), the store being out of
     * reach: the words of the store's own fail= */
    enum weir__redis_fail fail;
    bool
        give_back; /* keys may live in different slots: take one by one and give back on a denial */
    uint32_t index; /* in the set */
};

/* Reads a file's text. `name` is the file's, for messages. `cluster`: the store is a Redis Cluster,
 * so that policies of several keys must ask for give-back. */
int weir__policies_parse(const char *text, size_t len, const char *name, bool cluster,
                         struct weir__policies **ret, weir_error *err);
void weir__policies_free(struct weir__policies *policies);
size_t weir__policies_count(const struct weir__policies *policies);
/* The attributes that the file names ("ip", "lower(header.x-tenant)"), and whether the server fills
 * them in by itself (ip, method, path, host, user, header.…); the others are for callers to send.
 * */
size_t weir__policies_attributes(const struct weir__policies *policies);
const char *weir__policies_attribute(const struct weir__policies *policies, size_t i,
                                     bool *ret_known);
/* The file's i-th part that is allowed but hardly meant, with its place; NULL: there are no more.
 * */
const char *weir__policies_warning(const struct weir__policies *policies, size_t i);
/* Whether keys are hashed (hash(NAME)), and the secret to do it by: set it before the set is used.
 * */
bool weir__policies_hash(const struct weir__policies *policies);
void weir__policies_set_secret(struct weir__policies *policies, const uint64_t secret[2]);
/* All limits that it may hold requests against. */
const weir_limit *const *weir__policies_limits(const struct weir__policies *policies,
                                               size_t *ret_count);
size_t weir__policies_entries(const struct weir__policies *policies); /* of all policies */
const struct weir__policy *weir__policies_at(const struct weir__policies *policies, size_t i);
const struct weir__policy *weir__policies_find(const struct weir__policies *policies,
                                               const char *name, size_t len);
/* Whether an address may speak for others (X-Forwarded-For and friends). */
bool weir__policies_trusts(const struct weir__policies *policies, const char *ip, size_t len);

/* What a request says of itself: an attribute's value by its name ("ip", "method", "path", "host",
 * "user", "header.x-api-key", any name that a caller sends), names as weir__attribute_fold spells
 * them. Each is asked for once at most, and its bytes must stay as they are until the plan is made.
 * UNUSABLE: the request has it in a way that cannot be told from a way around (twice, with
 * different values); ret->data is what is wrong, a text that stays ("was sent twice"), and there is
 * no plan. */
enum weir__found { WEIR__ABSENT, WEIR__FOUND, WEIR__UNUSABLE };

struct weir__subject {
    enum weir__found (*find)(const void *context, const char *name, size_t len,
                             struct weir__span *ret);
    const void *context;
};

/* The plan for a subject: of one policy by its name, whether its match applies or not (WEIR_EINVAL:
 * no policy has that name), or with `policy` NULL of all that match, in the file's order. `key`,
 * if its data is not NULL, is the value of the one attribute that all keys of a named policy are
 * made of. `cost` -1: the policy's own. On failure (WEIR_EINVAL: more than 16 limits together, a
 * value that cannot be read or is too long, a bad argument) *ret is of no use. Keys are written as
 * policy/keys.h says. More shadow entries than fit are left out. */
int weir__policies_plan(const struct weir__policies *policies, const struct weir__span *policy,
                        const struct weir__subject *subject, const weir_key *key, int64_t cost,
                        struct weir__plan *ret, weir_error *err);
/* Adds the items of one more subject to a plan that was begun, as those of descriptor `owner` (0 to
 * 31), by all policies that match. The plan's verdict, by and denial are this subject's: note them
 * before the next. A subject that is denied leaves no items. With `refund` its items are separate,
 * and give their cost back. */
int weir__policies_plan_more(const struct weir__policies *policies,
                             const struct weir__subject *subject, int64_t cost, unsigned owner,
                             bool refund, struct weir__plan *plan, weir_error *err);

#endif
