/*
 * Floods of new keys in a full zone: how many of those who are blocked get in again because they
 * were forgotten.
 *
 * 200 victims use up their limit and are denied. Then 60,000 new keys come, with some charges each,
 * into a zone with room for 35,000. Meanwhile the victims stay away, or each asks again after every
 * 200 new keys. At last each asks once. Who knew the future would forget none of the victims. With
 * full=deny none is forgotten, by construction.
 *
 *   zone_flood          a few floods with fixed secrets, against bounds
 *   zone_flood table    all of them, averaged over secrets, as docs/ZONE.md has them
 */
#include "store_inside.h"
#include "store_test.h"

#include "base/random.h"

#define VICTIMS 200
#define FLOOD 60000

static _Atomic int64_t now;

struct flood {
    const char *limit;
    int charges;  /* per new key */
    bool denied;  /* the victims were denied before the flood */
    bool retries; /* and ask again while it lasts */
};

/* What came of it. */
struct outcome {
    long victims;  /* admitted over their limit */
    long admitted; /* requests of victims over the limit */
    long flooded;  /* new keys that were admitted */
    uint64_t refused;
};

static weir_store *open_fixed(const char *url, uint64_t seed)
{
    weir_store *store = test_open(url, &now);
    struct weir__zone *zone = test_zone(store);
    zone->secret[0] = weir__random_next(&seed);
    zone->secret[1] = weir__random_next(&seed);
    zone->chance = weir__random_next(&seed);
    return store;
}

/* 1: admitted; 0: denied, or refused for want of room. */
static int ask(weir_store *store, const weir_limit *limit, char what, long i)
{
    char key[24];
    weir_decision decision = {0};
    snprintf(key, sizeof key, "%c %ld", what, i);
    int code = weir_take(store, weir_key_text(key), limit, 1, &decision);
    CHECK(code == 0 || code == WEIR_EFULL);
    return code == 0 && decision.allowed;
}

static struct outcome run(const char *url, const struct flood *flood, uint64_t seed)
{
    weir_store *store = open_fixed(url, seed);
    weir_limit *limit = test_limit(flood->limit);
    struct outcome ret = {0};
    long over[VICTIMS] = {0};
    now = START;
    for (long i = 0; i < VICTIMS; i++) {
        long got = 0;
        while (got < weir_limit_amount(limit, 0) && ask(store, limit, 'v', i))
            got++;
        CHECK_INT(got, weir_limit_amount(limit, 0));
        if (flood->denied)
            CHECK_INT(ask(store, limit, 'v', i), 0);
    }
    for (long i = 0; i < FLOOD; i++) {
        int got = ask(store, limit, 'f', i);
        ret.flooded += got;
        for (int j = 1; j < flood->charges; j++)
            ask(store, limit, 'f', i);
        if (flood->retries)
            over[i % VICTIMS] += ask(store, limit, 'v', i % VICTIMS);
        now += 100;
    }
    for (long i = 0; i < VICTIMS; i++) {
        over[i] += ask(store, limit, 'v', i);
        ret.victims += over[i] > 0;
        ret.admitted += over[i];
    }
    ret.refused = test_info(store).refused;
    test_sound(store);
    weir_limit_free(limit);
    weir_store_close(store);
    return ret;
}

static const struct flood floods[] = {
    {"fixed-window 1/h from-first", 1, true, false},
    {"fixed-window 1/h from-first", 2, true, false},
    {"fixed-window 1/h from-first", 4, true, false},
    {"fixed-window 1/h from-first", 1, true, true},
    {"fixed-window 1/h from-first", 2, true, true},
    {"fixed-window 1/h from-first", 4, true, true},
    {"fixed-window 1/h from-first", 1, false, false},
    {"fixed-window 5/h from-first", 1, true, false},
    {"fixed-window 5/h from-first", 2, true, false},
    {"fixed-window 5/h from-first", 4, true, false},
    {"fixed-window 5/h from-first", 6, true, false},
    {"fixed-window 5/h from-first", 2, true, true},
    {"fixed-window 5/h from-first", 4, true, true},
    {"fixed-window 5/h from-first", 6, true, true},
    {"fixed-window 5/h from-first", 2, false, false},
    {"token-bucket 1/h burst 1", 1, true, false},
    {"token-bucket 1/h burst 1", 2, true, false},
    {"token-bucket 1/h burst 1", 2, true, true},
    {"token-bucket 1/h burst 1", 1, false, false},
};

static void print_table(long rounds)
{
    printf("%-28s %7s %-20s %10s %10s %8s\n", "limit", "charges", "victims", "over limit", "times",
           "deny");
    for (size_t i = 0; i < WEIR__COUNT(floods); i++) {
        const struct flood *it = &floods[i];
        double victims = 0, admitted = 0, kept = 0;
        weir_limit *limit = test_limit(it->limit);
        double allowed = VICTIMS * (double)weir_limit_amount(limit, 0);
        for (long round = 0; round < rounds; round++) {
            struct outcome evict = run("memory:1m", it, (uint64_t)round + 1);
            struct outcome deny = run("memory:1m?full=deny", it, (uint64_t)round + 1);
            victims += (double)evict.victims / (double)rounds;
            admitted += (double)evict.admitted / (double)rounds;
            kept += (double)deny.admitted / (double)rounds;
        }
        printf("%-28s %7d %-20s %10.1f %10.2f %8.1f\n", it->limit, it->charges,
               !it->denied    ? "used up, stay away"
               : !it->retries ? "blocked, stay away"
                              : "blocked, ask again",
               victims, 1 + admitted / allowed, kept);
        weir_limit_free(limit);
    }
}

/* What each of them may cost, of 200 victims. 0: none, with these secrets and nearly all others.
 * Where flood and victims are alike, chance costs 103 on average; who asks again is told from a
 * flood. */
static void test_floods(void)
{
    static const struct {
        struct flood flood;
        long most;
    } all[] = {
        {{"fixed-window 1/h from-first", 1, true, false}, 0},
        {{"fixed-window 1/h from-first", 2, true, false}, 140},
        {{"fixed-window 1/h from-first", 1, true, true}, 0},
        {{"fixed-window 1/h from-first", 2, true, true}, 40},
        {{"fixed-window 1/h from-first", 1, false, false}, 130},
        {{"fixed-window 5/h from-first", 4, true, false}, 0},
        {{"fixed-window 5/h from-first", 4, true, true}, 0},
        {{"fixed-window 5/h from-first", 2, false, false}, 0},
    };
    for (size_t i = 0; i < WEIR__COUNT(all); i++) {
        struct outcome outcome = run("memory:1m", &all[i].flood, 1 + i);
        CHECK(outcome.victims <= all[i].most);
        CHECK_INT(outcome.flooded, FLOOD); /* nobody is refused */
        CHECK_INT(outcome.refused, 0);
    }
}

/* Whatever comes, nobody is forgotten; those who came first stay in, and the others are refused. */
static void test_deny(void)
{
    static const struct flood all[] = {{"fixed-window 1/h from-first", 2, true, true},
                                       {"fixed-window 5/h from-first", 6, true, true},
                                       {"token-bucket 1/h burst 1", 1, false, false}};
    for (size_t i = 0; i < WEIR__COUNT(all); i++) {
        struct outcome outcome = run("memory:1m?full=deny", &all[i], 1 + i);
        CHECK_INT(outcome.admitted, 0);
        CHECK(outcome.flooded > 25000 && outcome.flooded < FLOOD);
        CHECK(outcome.refused >= (uint64_t)(FLOOD - outcome.flooded));
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        print_table(argc > 2 ? atol(argv[2]) : 5);
        return test_report();
    }
    test_floods();
    test_deny();
    return test_report();
}
