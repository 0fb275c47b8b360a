/*
 * Envoy's rate limit service without I/O: a decoded request becomes a plan, a store decides it, the
 * plan becomes an answer. Deciding may block (a store can be far away) and is a step of its own, so
 * that another thread may do it.
 *
 *     bytes ─► weir__rls_read, or weir__rls_read_json ─► request
 *     weir__rls_plan(setup, request, call)         matches, makes keys; no store
 *     weir__rls_decide(store, call)                decides and charges; may block
 *     weir__rls_answer(call, out)                  gRPC, or weir__rls_answer_json
 *     weir__rls_tally(asked, …)                    for each descriptor: what to count
 *     weir__rls_end(call)                          once, after a plan that was made
 *
 * A domain that Envoy's files name is decided by their rules. Any other domain goes to the
 * policies: each descriptor is a subject whose attributes are `domain` and the descriptor's
 * entries.
 *
 * What holds:
 *   1. A call borrows from the configuration (keep it until the end) and from itself, not from the
 *      request's bytes. Limits that a request brings come from the cache, and the call holds them.
 *      Nothing is allocated but for those that the cache does not have.
 *   2. All descriptors are charged, or none; what is not charged reports itself so. Separate from
 *      that, each decided for itself: shadows, refunds, and rules with charge_denied, or all with
 *      the option: these are charged even when they deny, as envoyproxy/ratelimit does.
 *   3. Quotas that are used up neither deny nor are charged, unless all quotas of the request are
 *      used up.
 *   4. A call is decided once.
 */
#ifndef WEIR_ENVOY_SERVICE_H
#define WEIR_ENVOY_SERVICE_H

#include "policy/envoy/envoy.h"
#include "policy/policy.h"
#include "store/store.h"
#include "wire/json.h"
#include "wire/limit_cache.h"

/* ---- planning ---- */

struct weir__rls_options {
    bool charge_denied; /* every descriptor for itself, charged even when denied */
    bool shadow;        /* the answer as a whole is OK whatever was decided */
    bool headers;       /* RateLimit-Limit, -Remaining and -Reset for the client */
    int64_t near_ppm;   /* from which part of a limit on hits count as near it, in millionths */
};

struct weir__rls_setup {
    const struct weir__envoy *envoy;       /* NULL: no domain is named there */
    const struct weir__policies *policies; /* NULL: other domains are not limited */
    struct weir__limit_cache *cache; /* for limits that requests bring; NULL: they are refused */
    struct weir__rls_options options;
};

enum weir__rls_outcome {
    WEIR__RLS_NO_RULE, /* no rule: OK */
    WEIR__RLS_ALLOWED,
    WEIR__RLS_DENIED,
    WEIR__RLS_SHADOWED, /* denied, but answered OK */
    WEIR__RLS_UNLIMITED,
    WEIR__RLS_REPLACED, /* by another rule of the request: OK */
    WEIR__RLS_REFUNDED,
};

/* What is asked for one descriptor of the request. */
struct weir__rls_asked {
    const struct weir__envoy_rule *rule; /* NULL: none, or a limit that the request brought */
    const weir_limit *limit;             /* what decides; NULL: the store is not asked */
    weir_key key;
    struct weir__item *item;    /* of the plan, that decides it; NULL: none, or policies do */
    int64_t hits;               /* this descriptor's */
    uint32_t requests_per_unit; /* 0: the decision's limit */
    enum weir__rls_unit unit;
    bool denies, refund, shadow, quota, alone;
    bool long_key; /* it holds a digest in place of something long */
    /* policies */
    enum weir__verdict verdict;
    enum weir__denial denial;
    const struct weir__policy *by;
    /* once it is decided */
    enum weir__rls_outcome outcome;
    weir_decision decision; /* where there is a limit */
};

struct weir__rls_call {
    struct weir__rls_asked asked[WEIR__RLS_DESCRIPTORS_MAX];
    size_t count;
    struct weir__rls_options options;
    const struct weir__envoy_domain *domain;           /* NULL: no file has it */
    bool by_policies;                                  /* they decide */
    bool over;                                         /* decided: the answer is OVER_LIMIT */
    const weir_limit *held[WEIR__RLS_DESCRIPTORS_MAX]; /* references to give back */
    size_t held_count;
    struct weir__plan plan;
};

/* WEIR_EINVAL: no domain, no descriptors, too many limits or hits, a limit without a unit, an
 * attribute that cannot be read; WEIR_ESHARED: two descriptors that would count in one place
 * against different numbers. */
int weir__rls_plan(const struct weir__rls_setup *setup, const struct weir__rls_request *request,
                   struct weir__rls_call *ret, weir_error *err);
void weir__rls_end(struct weir__rls_call *call);

/* ---- deciding ---- */

int weir__rls_decide(weir_store *store, struct weir__rls_call *call, weir_error *err);

/* ---- answering ---- */

/* Enough for either answer. */
#define WEIR__RLS_ANSWER_ROOM (4096 + WEIR__RLS_DESCRIPTORS_MAX * (WEIR__RLS_NAME_MAX * 6 + 256))

/* The framed gRPC message; false: it does not fit. */
bool weir__rls_answer(const struct weir__rls_call *call, struct weir__buffer *out);
/* The same to a request that could not be read or planned: OVER_LIMIT. Envoy lets pass what is
 * answered by an error, unless it is configured otherwise. */
void weir__rls_answer_unread(struct weir__buffer *out);
/* The same in protobuf's JSON; the HTTP status: 200, or 429 for OVER_LIMIT. */
int weir__rls_answer_json(const struct weir__rls_call *call, struct weir__buffer *out);

/* What envoyproxy/ratelimit would count for a descriptor that a rule is for, or a limit of its own.
 * */
struct weir__rls_tally {
    uint64_t hits, over, near, within, shadow;
};
struct weir__rls_tally weir__rls_tally(const struct weir__rls_asked *asked, int64_t near_ppm);

/* ---- POST /json ---- */

#define WEIR__RLS_JSON_NODES 4096 /* enough for a request as large as may be */

/* A request in protobuf's JSON, field names as in the API or in camelCase. The text is changed. */
int weir__rls_read_json(char *text, size_t len, struct weir__json_node *nodes, uint32_t room,
                        struct weir__rls_request *ret, weir_error *err);
/* The HTTP status of a failure: 400, or 500 and 503 where it is not the client's. */
int weir__rls_http_status(int code);

#endif
