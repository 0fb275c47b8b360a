/*
 * Plans of policies, executed: all or nothing also where keys lie in different slots of a cluster,
 * what the policies want where a local fallback decided, settling, leases of enforced limits and
 * shadows, and the plans of several descriptors.
 */
#include "policy/policy.h"

#include "store_test.h"

#define POLICIES                                                                                   \
    "version: 1\npolicies:\n"                                                                      \
    "  - name: login\n    match: {path: /login}\n    cross_slot: give-back\n    limits:\n"         \
    "      - {name: a, key: ip, limit: fixed-window 5/m}\n"                                        \
    "      - {name: b, key: user, limit: 'fixed-window 2/m, fixed-window 9/h'}\n"                  \
    "      - {name: c, key: tenant, limit: fixed-window 4/m}\n"                                    \
    "      - {name: s, key: ip, limit: fixed-window 1/m, shadow: true}\n"                          \
    "  - {name: shut, match: {path: /shut}, key: user, fail: closed, limit: fixed-window 1/m}\n"   \
    "  - {name: open, match: {path: /open}, key: user, fail: open, limit: fixed-window 1/m}\n"     \
    "  - name: both\n    match: {path: /both}\n    cross_slot: give-back\n    fail: open\n    "    \
    "limits:\n"                                                                                    \
    "      - {name: u, key: user, limit: fixed-window 1/m}\n"                                      \
    "      - {name: t, key: tenant, limit: fixed-window 9/m}\n"                                    \
    "  - name: slots\n    match: {path: /slots}\n    limits:\n"                                    \
    "      - {name: u, key: user, limit: concurrent 2 lease 10s}\n"                                \
    "      - {name: t, key: tenant, limit: concurrent 1 lease 10s, shadow: true}\n"                \
    "      - {name: w, key: ip, limit: 'fixed-window 9/m, concurrent 9 lease 10s', shadow: "       \
    "true}\n"                                                                                      \
    "  - {name: dry, match: {path: /dry}, key: user, limit: concurrent 1 lease 10s, shadow: "      \
    "true}\n"                                                                                      \
    "  - {name: bad, match: {tenant: evil}, deny: [{tenant: evil}]}\n"

static _Atomic int64_t now = START;

/* A store that takes from one key at a time, as a cluster does whose keys lie in different slots.
 * */
static struct {
    struct weir_store base;
    weir_store *inner;
    int takes, settles;
    bool degraded;
    const char *away; /* the node of keys that have this text does not answer */
    int fails;        /* a code: of takes of several keys, each for itself, and of leases */
} cluster;

static int cluster_decide(weir_store *it, const weir_request *requests, size_t n,
                          enum weir__mode mode, int64_t time_us, weir_decision *ret)
{
    (void)it;
    if (n > 1) /* also to be looked at */
        return WEIR_ESLOTS;
    cluster.takes += mode == WEIR__TAKE;
    int code = cluster.inner->engine->decide(cluster.inner, requests, n, mode, time_us, ret);
    ret->degraded =
        cluster.degraded || (cluster.away && memmem(requests[0].key.data, requests[0].key.len,
                                                    cluster.away, strlen(cluster.away)));
    return code;
}

static int cluster_take_many(weir_store *it, const weir_request *requests, size_t n,
                             int64_t time_us, weir_decision *rets)
{
    (void)it;
    for (size_t i = 0; i < n && cluster.fails; i++)
        rets[i] = (weir_decision){.code = cluster.fails};
    return cluster.fails
               ? cluster.fails
               : cluster.inner->engine->take_many(cluster.inner, requests, n, time_us, rets);
}

static int cluster_change_lease(weir_store *it, weir_key key, const weir_limit *limit, size_t i,
                                uint64_t lease, enum weir__lease_verb verb, int64_t time_us)
{
    (void)it;
    return cluster.fails ? cluster.fails
                         : cluster.inner->engine->change_lease(cluster.inner, key, limit, i, lease,
                                                               verb, time_us);
}

static int cluster_settle(weir_store *it, weir_key key, const weir_limit *limit,
                          const struct weir__correction *correction)
{
    (void)it;
    cluster.settles++;
    return cluster.inner->engine->settle(cluster.inner, key, limit, correction);
}

static int cluster_reset(weir_store *it, weir_key key, int64_t time_us, bool *ret)
{
    (void)it;
    return cluster.inner->engine->reset(cluster.inner, key, time_us, ret);
}

static const struct weir__engine engine = {.decide = cluster_decide,
                                           .take_many = cluster_take_many,
                                           .settle = cluster_settle,
                                           .change_lease = cluster_change_lease,
                                           .reset = cluster_reset};

/* ---- requests ---- */

struct subject {
    const char *path, *ip, *user, *tenant;
};

static enum weir__found find(const void *context, const char *name, size_t len,
                             struct weir__span *ret)
{
    const struct subject *it = context;
    const char *names[] = {"path", "ip", "user", "tenant"};
    const char *values[] = {it->path, it->ip, it->user, it->tenant};
    for (size_t i = 0; i < 4; i++) {
        if (values[i] && strlen(names[i]) == len && !memcmp(names[i], name, len)) {
            *ret = (struct weir__span){values[i], strlen(values[i])};
            return WEIR__FOUND;
        }
    }
    return WEIR__ABSENT;
}

static struct weir__policies *policies;
static struct weir__plan plan;
static weir_decision rows[WEIR_LIMITS_MAX], shadow_rows[WEIR__ENTRIES_MAX][WEIR_LIMITS_MAX], answer;
static weir_error err;

static void make(struct subject it, int64_t cost)
{
    struct weir__subject subject = {find, &it};
    if (weir__policies_plan(policies, NULL, &subject, NULL, cost, &plan, &err))
        test_give_up("plan", err.message);
}

static bool decide(enum weir__mode mode)
{
    const struct weir__plan_rows into = {rows, shadow_rows};
    if (weir__plan_decide(&cluster.base, &plan, mode, &into, &answer))
        test_give_up("decide", "failed");
    CHECK_INT(plan.denied, !answer.allowed);
    return answer.allowed;
}

static void fresh(void)
{
    weir_store_close(cluster.inner);
    memset(&cluster, 0, sizeof cluster);
    cluster.base = (struct weir_store){.engine = &engine, .clock = {test_clock_now, NULL, &now}};
    cluster.inner = test_open("memory:1m", &now);
}

static const struct subject ann = {"/login", "10.0.0.1", "ann", "t"};

/* ---- one after the other ---- */

static void test_apart(void)
{
    fresh();
    for (int i = 0; i < 2; i++) {
        make(ann, -1);
        CHECK_INT(plan.together, WEIR__APART);
        CHECK(decide(WEIR__TAKE));
        CHECK_INT(answer.charged, 1);
    }
    CHECK_INT(cluster.takes, 6);
    CHECK_INT(cluster.settles, 0);
    make(ann, -1);
    CHECK(!decide(
        WEIR__TAKE)); /* the second item denies: the first is given back, the third is peeked at */
    CHECK_INT(cluster.settles, 1);
    CHECK_INT(cluster.takes, 8);
    CHECK_INT(answer.binding, 1);
    CHECK_INT(rows[0].remaining, 3);
    CHECK(rows[3].allowed && rows[3].remaining == 2);
    CHECK(!plan.enforced[1].decision.allowed && plan.enforced[0].decision.charged == 0);
    CHECK(!plan.shadow[0].decision.allowed);
    make(ann, -1);
    CHECK(!decide(WEIR__PEEK) && rows[0].remaining == 3 && rows[3].remaining == 2);
    CHECK(cluster.takes == 8 && cluster.settles == 1 && answer.charged == 0);
}

static void test_fail(void)
{
    fresh();
    cluster.degraded = true;
    for (int i = 0; i < 3; i++) {
        make((struct subject){"/shut", NULL, "ann", NULL}, -1);
        CHECK(!decide(WEIR__TAKE) && answer.degraded && answer.retry_after_us >= 1000000);
        make((struct subject){"/open", NULL, "ann", NULL}, -1);
        CHECK(decide(WEIR__TAKE) && answer.retry_after_us == 0);
    }
    cluster.degraded = false;
    cluster.away = "tenant="; /* one node of several is away: what the others deny is denied */
    const struct subject both = {"/both", NULL, "ann", "t"};
    make(both, -1);
    CHECK(decide(WEIR__TAKE) && answer.degraded);
    make(both, -1);
    CHECK(!decide(WEIR__TAKE) && answer.degraded);
    cluster.away = NULL;
    cluster.degraded = true;
    make((struct subject){"/open", NULL, "ann", NULL}, -1);
    plan.denied = true; /* another descriptor's deny list */
    const struct weir__plan_rows into = {rows, shadow_rows};
    CHECK_INT(weir__plan_decide(&cluster.base, &plan, WEIR__TAKE, &into, &answer), 0);
    CHECK(plan.denied);
}

static void test_settle_and_reset(void)
{
    char receipt[WEIR_RECEIPT_SIZE];
    bool there;
    fresh();
    make(ann, 2);
    CHECK(decide(WEIR__TAKE));
    weir_receipt(&answer, receipt);
    make(ann, 2);
    CHECK_INT(weir__plan_settle(&cluster.base, &plan, receipt, 0), 0);
    CHECK_INT(weir__plan_settle(&cluster.base, &plan, receipt, 0), WEIR_ESETTLED);
    CHECK_INT(weir__plan_settle(&cluster.base, &plan, "nonsense", 0), WEIR_ERECEIPT);
    make(ann, 2);
    CHECK(decide(WEIR__TAKE) && rows[0].remaining == 3); /* what was settled is back */
    make(ann, 2);
    plan.enforced[0].cost = 0; /* the first costs nothing, the others do */
    CHECK(!decide(WEIR__TAKE) && answer.charged == 0);
    weir_receipt(&answer, receipt);
    CHECK_INT(weir__plan_settle(&cluster.base, &plan, receipt, 0),
              0); /* denied: nothing is refunded */
    CHECK(!decide(WEIR__TAKE));
    make(ann, 0);
    CHECK(decide(WEIR__TAKE) && answer.charged == 0);
    CHECK_INT(weir__plan_reset(&cluster.base, &plan, &there), 0);
    CHECK(there);
    CHECK_INT(weir__plan_reset(&cluster.base, &plan, &there), 0);
    CHECK(!there);
    make((struct subject){"/elsewhere", NULL, NULL, NULL}, -1);
    CHECK_INT(weir__plan_reset(&cluster.base, &plan, &there), WEIR_EINVAL);
    CHECK_INT(weir__plan_settle(&cluster.base, &plan, receipt, 0), WEIR_EINVAL);
    CHECK(decide(WEIR__TAKE) && answer.limit == 0);
}

/* ---- leases ---- */

/* The lease of an acquire that must be allowed, or that must not (0). */
static uint64_t acquire(struct subject it)
{
    make(it, -1);
    weir__plan_acquire(&plan);
    CHECK(decide(WEIR__TAKE) == (answer.lease != 0));
    return answer.lease;
}

static int change(struct subject it, uint64_t lease, enum weir__lease_verb verb)
{
    make(it, -1);
    return weir__plan_change_lease(&cluster.base, &plan, lease, verb);
}

/* How many slots of limit i of a shadow are free. */
static int64_t left(struct subject it, size_t shadow, size_t i)
{
    make(it, -1);
    decide(WEIR__PEEK);
    return shadow_rows[shadow][i].remaining;
}

/* Keys in different slots of a cluster: shadows are decided by themselves, with the same lease. */
static void test_leases(void)
{
    const struct subject one = {"/slots", "10.0.0.1", "ann", "t"};
    fresh();
    uint64_t first = acquire(one), second = acquire(one);
    CHECK(first && second && first != second);
    CHECK(!plan.shadow[0].decision.allowed && plan.shadow[1].decision.allowed);
    CHECK(!acquire(one) && left(one, 0, 0) == 0);
    CHECK(left(one, 1, 0) == 7 && left(one, 1, 1) == 7); /* a denial charges neither of them */
    CHECK_INT(change(one, second, WEIR__RENEW), 0);
    CHECK_INT(change(one, second, WEIR__RELEASE), 0);
    CHECK_INT(change(one, second, WEIR__RELEASE), WEIR_ENOLEASE);
    CHECK(left(one, 0, 0) == 0 && left(one, 1, 1) == 8);
    now += 10000000; /* the first is abandoned */
    CHECK_INT(change(one, first, WEIR__RENEW), WEIR_ENOLEASE);
    CHECK_INT(left(one, 0, 0), 1);
    first = acquire(one);
    make(one, -1);
    CHECK_INT(weir_release(&cluster.base, plan.enforced[0].key, plan.enforced[0].limit, first), 0);
    now += 9000000;
    CHECK_INT(change(one, first, WEIR__RENEW), WEIR_ENOLEASE); /* who must stop keeps nothing */
    now += 1000000;
    CHECK_INT(left(one, 0, 0), 1);
    make(one, -1); /* a take by whom nothing is refused: of an enforced one the slot is nobody's */
    CHECK(decide(WEIR__TAKE) && answer.lease == 0);
    CHECK(left(one, 0, 0) == 1 && left(one, 1, 0) == 6 && left(one, 1, 1) == 9);
}

static void test_leases_of_shadows(void)
{
    const struct subject dry = {"/dry", NULL, "ann", NULL};
    fresh();
    uint64_t first = acquire(dry), second = acquire(dry);
    CHECK(first && second && !plan.shadow[0].decision.allowed);
    CHECK_INT(change(dry, second, WEIR__RENEW), 0);
    CHECK_INT(change(dry, second, WEIR__RELEASE), 0);
    CHECK_INT(left(dry, 0, 0), 0);
    CHECK_INT(change(dry, first, WEIR__RELEASE), 0);
    CHECK_INT(change(dry, first, WEIR__RELEASE), 0);
    CHECK_INT(left(dry, 0, 0), 1);
    cluster.fails = WEIR_EFULL; /* what cannot be decided denies nothing */
    shadow_rows[0][0] = (weir_decision){.limit = 7};
    CHECK(acquire(dry) && plan.shadow[0].decision.allowed);
    CHECK(shadow_rows[0][0].allowed && shadow_rows[0][0].limit == 0);
    CHECK_INT(change(dry, first, WEIR__RENEW), 0);
    CHECK_INT(change((struct subject){"/slots", NULL, "ann", NULL}, first, WEIR__RENEW),
              WEIR_EFULL);
}

/* Costs of 0 hold nothing: neither do they hide the lease that others hold. */
static void test_leases_of_nothing(void)
{
    const struct subject one = {"/slots", "10.0.0.1", "ann", "t"};
    fresh();
    make(one, -1);
    weir__plan_acquire(&plan);
    plan.enforced[1] = plan.enforced[0];
    plan.enforced[0].key = plan.shadow[0].key;
    plan.enforced[1].cost = 0;
    plan.enforced_count = 2;
    plan.shadow_count = 0;
    CHECK_INT(weir__plan_decide(cluster.inner, &plan, WEIR__TAKE, NULL, &answer), 0);
    CHECK(answer.allowed && answer.lease);
}

/* ---- several descriptors ---- */

static int add(struct subject it, unsigned owner, bool refund)
{
    struct weir__subject subject = {find, &it};
    return weir__policies_plan_more(policies, &subject, 1, owner, refund, &plan, &err);
}

static void test_descriptors(void)
{
    fresh();
    weir__plan_begin(&plan);
    CHECK_INT(add(ann, 0, false), 0);
    CHECK_INT(add((struct subject){"/login", "10.0.0.1", "bob", NULL}, 1, false), 0);
    CHECK_INT(plan.enforced_count, 4); /* the address is the same: taken once, for both */
    CHECK_INT(plan.enforced[0].cost, 2);
    CHECK_INT(plan.enforced[0].owners, 3);
    CHECK_INT(plan.shadow_count, 2);
    size_t keys = plan.keys_len;
    CHECK_INT(add((struct subject){"/login", "10.0.0.1", "eve", "evil"}, 2, false), 0);
    CHECK_INT(plan.verdict,
              WEIR__VERDICT_DENY); /* leaves nothing behind, not even in what it joined */
    CHECK_INT(plan.enforced_count, 4);
    CHECK_INT(plan.enforced[0].cost, 2);
    CHECK_INT(plan.enforced[0].owners, 3);
    CHECK_INT(plan.limit_count, 6);
    CHECK_INT(plan.keys_len, keys);
    CHECK_INT(add((struct subject){"/login", "10.0.0.1", "bob", NULL}, 3, true), 0);
    CHECK_INT(plan.separate_count, 2); /* refunds join nobody, and shadows have none */
    CHECK(plan.separate[0].refund && plan.enforced[0].cost == 2);
}

/* However many descriptors come: items and keys stay within their rooms. */
static void test_bounds(void)
{
    char names[64][16];
    weir__plan_begin(&plan);
    int code = 0;
    for (unsigned i = 0; i < 64 && code == 0; i++) {
        snprintf(names[i], sizeof names[i], "10.0.0.%u", i);
        code = add((struct subject){"/login", names[i], names[i], i % 3 ? "evil" : NULL}, i % 32,
                   false);
        CHECK(plan.enforced_count <= WEIR__ENTRIES_MAX && plan.limit_count <= WEIR_LIMITS_MAX);
        CHECK(plan.shadow_count <= WEIR__ENTRIES_MAX && plan.keys_len < sizeof plan.keys);
    }
    CHECK_INT(code, WEIR_EINVAL);
    CHECK(strstr(err.message, "more than 16 limits"));
    weir__plan_begin(&plan);
    for (unsigned i = 0; i < 9; i++)
        code = add((struct subject){"/login", names[i], names[i], NULL}, i, true);
    CHECK_INT(code, WEIR_EINVAL);
    CHECK_INT(plan.separate_count, WEIR__ENTRIES_MAX);
}

int main(void)
{
    static const char text[] = POLICIES;
    if (weir__policies_parse(text, sizeof text - 1, "p.yaml", true, &policies, &err))
        test_give_up("policies", err.message);
    test_apart();
    test_fail();
    test_settle_and_reset();
    test_leases();
    test_leases_of_shadows();
    test_leases_of_nothing();
    test_descriptors();
    test_bounds();
    weir__policies_free(policies);
    weir_store_close(cluster.inner);
    return test_report();
}
