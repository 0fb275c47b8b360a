/*
 * Taking from several parts: charged in all of them, or in none. Each part is a store of its own
 * here; what a store was asked is counted at its door, and what was charged is looked up in the
 * store afterwards.
 */
#include "store/take_or_undo.h"

#include "store_test.h"

#define PARTS 3

static _Atomic int64_t now = START;

/* A memory store behind a door that counts, and refuses what it is told to. */
struct door {
    struct weir_store base;
    weir_store *inner;
    int takes, peeks, settles, releases;
    int fail_take, fail_settle; /* codes; 0: it works */
    bool degraded;
};

static struct door doors[PARTS];
static weir_limit *limits[PARTS];
static weir_request requests[PARTS];
static weir_decision rows[PARTS][2];
static struct weir__part parts[PARTS];

static int door_decide(weir_store *it, const weir_request *asked, size_t n, enum weir__mode mode,
                       int64_t time_us, weir_decision *ret)
{
    struct door *door = (struct door *)it;
    door->takes += mode == WEIR__TAKE;
    door->peeks += mode == WEIR__PEEK;
    if (door->fail_take && mode == WEIR__TAKE)
        return door->fail_take;
    int code = door->inner->engine->decide(door->inner, asked, n, mode, time_us, ret);
    ret->degraded = door->degraded;
    return code;
}

static int door_settle(weir_store *it, weir_key key, const weir_limit *limit,
                       const struct weir__correction *correction)
{
    struct door *door = (struct door *)it;
    door->settles++;
    return door->fail_settle ? door->fail_settle
                             : door->inner->engine->settle(door->inner, key, limit, correction);
}

static int door_change_lease(weir_store *it, weir_key key, const weir_limit *limit, size_t i,
                             uint64_t lease, enum weir__lease_verb verb, int64_t time_us)
{
    struct door *door = (struct door *)it;
    door->releases += verb == WEIR__RELEASE;
    return door->inner->engine->change_lease(door->inner, key, limit, i, lease, verb, time_us);
}

static const struct weir__engine door_engine = {
    .decide = door_decide, .settle = door_settle, .change_lease = door_change_lease};

static void close_parts(void)
{
    for (size_t i = 0; i < PARTS; i++) {
        weir_store_close(doors[i].inner);
        weir_limit_free(limits[i]);
        doors[i].inner = NULL;
        limits[i] = NULL;
    }
}

/* Three parts with these limits, each under the key "k" of a store of its own. */
static struct weir__taking open_parts(const char *a, const char *b, const char *c)
{
    const char *texts[PARTS] = {a, b, c};
    close_parts();
    now = START;
    for (size_t i = 0; i < PARTS; i++) {
        doors[i] = (struct door){.base = {&door_engine, {test_clock_now, NULL, &now}}};
        doors[i].inner = test_open("memory:256k", &now);
        limits[i] = test_limit(texts[i]);
        requests[i] = weir_request_make(weir_key_text("k"), limits[i]);
        requests[i].detail = rows[i];
        parts[i] =
            (struct weir__part){.store = &doors[i].base, .requests = &requests[i], .count = 1};
    }
    return (struct weir__taking){.parts = parts, .count = PARTS};
}

/* What is left in a part, by its own store. */
static int64_t left_in(size_t i)
{
    return test_peek(doors[i].inner, "k", limits[i], 0).remaining;
}

static int take_parts(struct weir__taking *taking)
{
    taking->denied = false;
    return weir__take_or_undo(taking);
}

static void test_allowed(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 3/m", "fixed-window 2/m");
    CHECK_INT(take_parts(&taking), 0);
    CHECK(!taking.denied);
    for (size_t i = 0; i < PARTS; i++) {
        CHECK(parts[i].taken && parts[i].decision.allowed);
        CHECK_INT(parts[i].decision.charged, 1);
        CHECK_INT(doors[i].takes, 1);
        CHECK_INT(doors[i].peeks + doors[i].settles, 0);
        CHECK_INT(left_in(i), rows[i][0].remaining);
    }
    CHECK_INT(left_in(0), 4);
    CHECK_INT(left_in(2), 1);
}

/* Before the denial: taken and given back. Behind it: peeked at. */
static void test_denied(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 1/m", "fixed-window 3/m");
    CHECK_INT(take_parts(&taking), 0);
    CHECK_INT(take_parts(&taking), 0);
    CHECK(taking.denied && !parts[1].decision.allowed);
    CHECK(parts[0].decision.allowed && !parts[0].taken && !parts[2].taken);
    CHECK_INT(parts[0].decision.charged, 0);
    CHECK_INT(parts[0].decision.remaining, 4); /* it reports itself as if nothing had happened */
    CHECK_INT(rows[0][0].remaining, 4);
    CHECK_INT(rows[0][0].charged, 0);
    CHECK_INT(left_in(0), 4);
    CHECK_INT(left_in(2), 2);
    CHECK_INT(doors[0].settles, 1);
    CHECK_INT(doors[2].peeks, 1);
    CHECK_INT(doors[2].takes, 1);
    CHECK(parts[2].decision.allowed && parts[2].decision.remaining == 2);
}

/* Denied from the start: nothing is taken, everything is known. */
static void test_denied_before(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 5/m", "fixed-window 5/m");
    taking.denied = true;
    CHECK_INT(weir__take_or_undo(&taking), 0);
    CHECK(taking.denied);
    for (size_t i = 0; i < PARTS; i++) {
        CHECK_INT(doors[i].takes, 0);
        CHECK(parts[i].decision.allowed && left_in(i) == 5);
    }
}

static void test_peek_first(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 1/m", "fixed-window 5/m");
    taking.peek_first = true;
    CHECK(take_parts(&taking) == 0 && !taking.denied);
    CHECK(take_parts(&taking) == 0 && taking.denied);
    CHECK_INT(doors[0].takes, 1); /* the second time nothing was charged, not even for a moment */
    CHECK_INT(doors[0].peeks, 2);
    CHECK_INT(doors[0].settles, 0);
    CHECK_INT(left_in(2), 4);
    taking.count = 1; /* one part needs no look before it */
    CHECK(take_parts(&taking) == 0 && !taking.denied);
    CHECK_INT(doors[0].peeks, 2);
}

/* Somebody takes the last one between the look and the take. */
static int steal_then_take(const struct weir__taking *taking, struct weir__part *part,
                           enum weir__mode mode)
{
    (void)taking;
    if (mode == WEIR__TAKE && part == &parts[2])
        test_take(doors[2].inner, "k", limits[2], 1);
    return mode == WEIR__TAKE
               ? weir_take_all(part->store, part->requests, part->count, &part->decision)
               : weir_peek_all(part->store, part->requests, part->count, &part->decision);
}

static void test_peek_first_race(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 5/m", "fixed-window 1/m");
    taking.peek_first = true;
    taking.decide = steal_then_take;
    CHECK(take_parts(&taking) == 0 && taking.denied);
    CHECK(left_in(0) == 5 && left_in(1) == 5 && left_in(2) == 0);
    CHECK(doors[0].settles == 1 && doors[1].settles == 1);
}

/* A part that cannot decide is the end of it, and what was taken goes back. */
static void test_failure(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 5/m", "fixed-window 5/m");
    doors[2].fail_take = WEIR_EUNREACHABLE;
    CHECK_INT(take_parts(&taking), WEIR_EUNREACHABLE);
    CHECK(left_in(0) == 5 && left_in(1) == 5 && left_in(2) == 5);
    doors[0].fail_settle = WEIR_EUNREACHABLE; /* and this cannot be given back */
    CHECK_INT(take_parts(&taking), WEIR_EUNREACHABLE);
    CHECK(parts[0].taken && parts[0].decision.charged == 1 && rows[0][0].charged == 1);
    CHECK(left_in(0) == 4 && left_in(1) == 5);
}

/* What a local fallback decided charged the store nothing: nothing goes back there. */
static void test_degraded(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 1/m", "fixed-window 5/m");
    doors[0].degraded = true;
    requests[1].cost = 2;
    CHECK(take_parts(&taking) == 0 && taking.denied);
    CHECK_INT(doors[0].settles, 0);
    CHECK(!parts[0].taken);
}

static int count_undo(const struct weir__taking *taking, const struct weir__part *part,
                      const weir_request *request)
{
    ++*(int *)(uintptr_t)taking->context;
    return weir__part_give_back(part, request, request->limit);
}

static void test_undo_of_the_callers(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 1/m", "fixed-window 5/m");
    int undone = 0;
    doors[0].degraded = true; /* the caller knows how, whatever the store says */
    requests[1].cost = 2;
    taking.undo = count_undo;
    taking.context = &undone;
    CHECK(take_parts(&taking) == 0 && taking.denied);
    CHECK_INT(undone, 1);
    CHECK_INT(left_in(0), 5);
}

/* Several requests in one part: each is given back what it cost. */
static void test_requests(void)
{
    weir_request two[2];
    weir_decision first[1], second[1];
    struct weir__taking taking =
        open_parts("fixed-window 5/m", "fixed-window 1/m", "fixed-window 5/m");
    two[0] = requests[0];
    two[0].detail = first;
    two[0].cost = 3;
    two[1] = weir_request_make(weir_key_text("other"), limits[0]);
    two[1].detail = second;
    two[1].cost = 2;
    parts[0].requests = two;
    parts[0].count = 2;
    requests[1].cost = 2;
    CHECK(take_parts(&taking) == 0 && taking.denied);
    CHECK_INT(doors[0].settles, 2);
    CHECK_INT(left_in(0), 5);
    CHECK_INT(test_peek(doors[0].inner, "other", limits[0], 0).remaining, 5);
    CHECK(first[0].remaining == 5 && second[0].remaining == 5 && parts[0].decision.remaining == 5);
}

/* A quota that is used up denies nothing while another is left. */
static void test_quotas(void)
{
    struct weir__taking taking =
        open_parts("fixed-window 9/m", "fixed-window 1/m", "fixed-window 2/m");
    parts[1].quota = parts[2].quota = true;
    for (int i = 0; i < 3; i++) {
        taking.quotas = 2;
        CHECK_INT(take_parts(&taking), 0);
        CHECK_INT(taking.denied, i == 2);
        CHECK_INT(parts[1].decision.allowed, i == 0);
        CHECK_INT(left_in(0), i == 0 ? 8 : 7);
    }
    CHECK_INT(taking.quotas, 0);
}

/* The slot of a concurrent limit is released, and what stands beside it is given back. */
static void test_leases(void)
{
    struct weir__taking taking = open_parts("concurrent 2 lease 1h, fixed-window 5/m",
                                            "fixed-window 1/m", "fixed-window 5/m");
    requests[0].acquire = true;
    CHECK(take_parts(&taking) == 0 && !taking.denied && rows[0][0].lease);
    CHECK_INT(rows[0][0].remaining, 1);
    CHECK(take_parts(&taking) == 0 && taking.denied);
    CHECK_INT(doors[0].releases, 1);
    CHECK(!rows[0][0].lease && !parts[0].decision.lease);
    weir_decision after[2];
    weir_request look = weir_request_make(weir_key_text("k"), limits[0]);
    look.cost = WEIR_COST_NONE;
    look.detail = after;
    weir_decision folded;
    CHECK_INT(weir_peek_all(doors[0].inner, &look, 1, &folded), 0);
    CHECK_INT(after[0].remaining, 1);
    CHECK_INT(after[1].remaining, 4);
}

int main(void)
{
    test_allowed();
    test_denied();
    test_denied_before();
    test_peek_first();
    test_peek_first_race();
    test_failure();
    test_degraded();
    test_undo_of_the_callers();
    test_requests();
    test_quotas();
    test_leases();
    close_parts();
    return test_report();
}
