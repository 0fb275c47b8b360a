/*
 * Envoy's rate limit service without I/O: a decoded request and a configuration become a plan, a store
 * decides it, the plan becomes an answer. Taking may block (a store can be far away) and is a step of its
 * own, so that another thread may do it.
 *
 *     bytes ─► weir__rls_read, or server_rls_read_json ─► request
 *     server_rls_plan(setup, request, plan)        matches, makes keys; no store
 *     server_rls_take(store, plan)                 decides and charges; may block
 *     server_rls_answer(plan, out)                 gRPC, or server_rls_answer_json
 *     server_rls_tally(item, …)                    for each item: what to count
 *     server_rls_end(plan)                         once, after a plan that was made
 *
 * What holds:
 *   1. A plan borrows from the configuration (keep it until the end) and from itself, not from the
 *      request's bytes. Limits that a request brings come from the cache, and the plan holds them. Nothing
 *      is allocated but for those that the cache does not have.
 *   2. All descriptors are charged, or none; what is not charged reports itself so. Apart from that
 *      stand, each decided by itself: shadow limits (charged where the request goes ahead), refunds, and
 *      rules with charge_denied, or all with the option: these are charged even when they deny, as
 *      envoyproxy/ratelimit does.
 *   3. Quotas that are used up neither deny nor are charged, unless all quotas of the request are.
 *   4. A plan is taken once.
 */
#ifndef WEIR_SERVER_RLS_H
#define WEIR_SERVER_RLS_H

#include "policy/envoy/envoy.h"
#include "wire/json.h"
#include "wire/limit_cache.h"

/* ---- planning ---- */

struct server_rls_options {
    bool charge_denied; /* every descriptor by itself, charged even when denied */
    bool shadow;        /* the answer as a whole is OK whatever was decided */
    bool headers;       /* RateLimit-Limit, -Remaining and -Reset for the client */
    int64_t near_ppm;   /* from which part of a limit on hits count as near it, in millionths */
};

struct server_rls_setup {
    const struct weir__envoy *envoy;
    struct weir__limit_cache *cache; /* for limits that requests bring; NULL: they are refused */
    struct server_rls_options options;
};

enum server_rls_outcome {
    SERVER_RLS_NONE, /* no rule: OK */
    SERVER_RLS_ALLOWED,
    SERVER_RLS_DENIED,
    SERVER_RLS_SHADOWED, /* denied, but answered OK */
    SERVER_RLS_UNLIMITED,
    SERVER_RLS_REPLACED, /* by another rule of the request: OK */
    SERVER_RLS_REFUNDED,
};

/* A descriptor of the request. */
struct server_rls_item {
    const struct weir__envoy_rule *rule; /* NULL: none, or a limit that the request brought */
    const weir_limit *limit;             /* what decides; NULL: nothing is asked */
    weir_key key;
    int64_t hits;               /* this descriptor's */
    int64_t cost;               /* taken: its own and those of its likes */
    uint32_t requests_per_unit; /* 0: the decision's limit */
    enum weir__rls_unit unit;
    uint8_t same_as; /* the first descriptor with this key and limit; mostly itself */
    bool denies, refund, shadow, quota, alone;
    bool long_key;                   /* it holds a digest in place of something long */
    enum server_rls_outcome outcome; /* after the take */
    weir_decision decision;          /* after the take, where there is a limit */
};

struct server_rls_plan {
    struct server_rls_item items[WEIR__RLS_DESCRIPTORS_MAX];
    size_t count;
    struct server_rls_options options;
    bool over;                               /* after the take: the answer is OVER_LIMIT */
    const struct weir__envoy_domain *domain; /* NULL: no file has it, and all is OK */
    const weir_limit *held[WEIR__RLS_DESCRIPTORS_MAX]; /* references to give back */
    size_t held_count;
    char keys[WEIR__RLS_DESCRIPTORS_MAX][WEIR__ENVOY_KEY_ROOM];
};

/* WEIR_EINVAL: no domain, no descriptors, too many limits or hits, a limit without a unit; WEIR_ESHARED:
 * two descriptors that would count in one place against different numbers. */
int server_rls_plan(const struct server_rls_setup *setup, const struct weir__rls_request *request,
                    struct server_rls_plan *ret, weir_error *err);
void server_rls_end(struct server_rls_plan *plan);

/* ---- taking ---- */

int server_rls_take(weir_store *store, struct server_rls_plan *plan, weir_error *err);

/* ---- answering ---- */

/* Enough for either answer. */
#define SERVER_RLS_ANSWER_ROOM (4096 + WEIR__RLS_DESCRIPTORS_MAX * (WEIR__RLS_NAME_MAX * 6 + 256))

/* The framed gRPC message; false: it does not fit. */
bool server_rls_answer(const struct server_rls_plan *plan, struct weir__buffer *out);
/* The same to a request that could not be read or planned: OVER_LIMIT. An error would be no answer, and
 * Envoy lets pass what it has no answer for, unless it is told otherwise. */
void server_rls_answer_unread(struct weir__buffer *out);
/* The same in protobuf's JSON; the HTTP status: 200, or 429 for OVER_LIMIT. */
int server_rls_answer_json(const struct server_rls_plan *plan, struct weir__buffer *out);

/* What envoyproxy/ratelimit would count for a descriptor that a rule is for, or a limit of its own. */
struct server_rls_tally {
    uint64_t hits, over, near, within, shadow;
};
struct server_rls_tally server_rls_tally(const struct server_rls_item *item, int64_t near_ppm);

/* ---- POST /json ---- */

#define SERVER_RLS_JSON_NODES 4096 /* enough for a request as large as may be */

/* A request in protobuf's JSON, field names as in the API or in camelCase. The text is changed. */
int server_rls_read_json(char *text, size_t len, struct weir__json_node *nodes, uint32_t room,
                         struct weir__rls_request *ret, weir_error *err);
/* The HTTP status of a failure: 400, or 500 and 503 where it is not the client's. */
int server_rls_http_status(int code);

#endif
