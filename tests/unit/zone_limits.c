/*
 * More limits than there are rows, in a zone of 64k, which has 64. Rows whose states are fresh are
 * swept, at most once a second; where all are needed, those with the fewest states give theirs up,
 * at most once a second, too. In between a new limit may be refused, and the others go on.
 * zone_rows.c has the limits by the hundred thousand.
 */
#include "store_inside.h"
#include "store_test.h"

static _Atomic int64_t now = START;

/* The i-th limit of that period. */
static weir_limit *limit_number(int i, const char *period)
{
    return test_limit_of("token-bucket %d/%s", 10 + i, period);
}

/* Takes once under a limit of its own, with a key of its own. */
static int take_number(weir_store *store, int i, const char *period, weir_decision *ret)
{
    char key[32];
    snprintf(key, sizeof key, "key %d", i);
    weir_limit *limit = limit_number(i, period);
    int code = weir_take(store, weir_key_text(key), limit, 1, ret);
    weir_limit_free(limit);
    return code;
}

static void test_rows(void)
{
    enum { ROWS = 64, FREED = ROWS / 8 + 1 };
    weir_store *store = test_open("memory:64k", &now);
    weir_decision decision = {0};
    weir_limit *busy = test_limit("fixed-window 100/h"), *extra = test_limit("fixed-window 5/h"),
               *several = test_limit("fixed-window 6/h, sliding-counter 7/h");
    CHECK_INT(test_info(store).limits_max, ROWS);
    for (int i = 0; i < ROWS; i++)
        CHECK_INT(take_number(store, i, "h", &decision), 0);
    CHECK_INT(test_info(store).limits, ROWS);
    CHECK_INT(test_info(store).evicted_unused, 0);
    CHECK_INT(weir_take(store, weir_key_text("busy"), busy, 1, &decision), 0);
    CHECK_INT(weir_take(store, weir_key_text("busier"), busy, 1, &decision),
              0); /* more than the others */
    CHECK_INT(test_info(store).evicted_unused, FREED);
    CHECK_INT(test_info(store).limits, ROWS - FREED + 1);
    for (int i = 1; i < FREED; i++) /* room without another eviction */
        CHECK_INT(take_number(store, i, "d", &decision), 0);
    CHECK_INT(test_info(store).evicted_unused, FREED);
    decision.limit = 42;
    now += SECOND - 1;
    CHECK_INT(weir_take(store, weir_key_text("extra"), extra, 1, &decision), WEIR_EFULL);
    CHECK_INT(test_peek(store, "extra", extra, 1).remaining, 5); /* which needs no row */
    CHECK_INT(weir_take(store, weir_key_text("extra"), several, 1, &decision), WEIR_EFULL);
    CHECK_INT(decision.limit, 42);
    CHECK_INT(test_peek(store, "busy", busy, 0).remaining, 99);
    now++;
    CHECK_INT(weir_take(store, weir_key_text("extra"), extra, 1, &decision), 0);
    CHECK_INT(test_info(store).evicted_unused, 2 * FREED);
    CHECK_INT(test_peek(store, "busy", busy, 0).remaining, 99); /* the fewest states go first */
    CHECK_INT(test_peek(store, "busier", busy, 0).remaining, 99);
    now += 2 * HOUR;
    CHECK_INT(weir_take(store, weir_key_text("extra"), extra, 1, &decision), 0);
    CHECK_INT(weir_take(store, weir_key_text("extra"), several, 1, &decision), 0);
    test_sound(store);
    weir_limit_free(busy);
    weir_limit_free(extra);
    weir_limit_free(several);
    weir_store_close(store);
}

/* Limits without end, a few in use at any time: every one of them works, held limits too. */
static void test_passing_limits(void)
{
    weir_store *store = test_open("memory:64k?large=30%", &now);
    weir_limit *held = test_limit("fixed-window 1000k/366d, sliding-log 5/s");
    weir_decision decision = {0};
    int full = 0;
    for (int i = 0; i < 3000; i++) {
        full += take_number(store, i, "s", &decision) == WEIR_EFULL;
        CHECK_INT(weir_take(store, weir_key_text("held"), held, 1, &decision), 0);
        now += SECOND / 4;
    }
    CHECK_INT(full, 0);
    CHECK_INT(test_peek(store, "held", held, 0).limit, 5);
    weir_limit *window = test_limit("fixed-window 1000k/366d");
    CHECK_INT(test_peek(store, "held", window, 0).remaining, 1000000 - 3000);
    CHECK(test_info(store).limits <= 64);
    test_sound(store);
    weir_limit_free(held);
    weir_limit_free(window);
    weir_store_close(store);
}

/* A limit that has not been asked for while its row became another's, as often as its generation
 * can be told apart. */
static void test_old_hint(void)
{
    weir_store *store = test_open("memory:64k", &now);
    weir_limit *old = test_limit("token-bucket 10/h");
    weir_decision decision = {0};
    CHECK_INT(test_take(store, "old", old, 1).remaining, 9);
    for (int i = 0; i < 20000; i++) { /* its row is swept away and used again */
        now += i % 48 == 0 ? 2 * SECOND : 0;
        CHECK_INT(take_number(store, i, "s", &decision), 0);
        if (i == 10000)
            now += 2 * HOUR;
    }
    CHECK_INT(test_take(store, "key", old, 1).remaining, 9);
    weir_limit *again = test_limit("token-bucket 10/h");
    CHECK_INT(test_peek(store, "key", again, 0).remaining, 9);
    test_sound(store);
    weir_limit_free(old);
    weir_limit_free(again);
    weir_store_close(store);
}

/* A clock set back does not put the next sweep off. */
static void test_clock_set_back(void)
{
    weir_store *store = test_open("memory:64k", &now);
    weir_decision decision = {0};
    for (int i = 0; i < 64; i++)
        CHECK_INT(take_number(store, i, "s", &decision), 0);
    now += HOUR;
    for (int i = 64; i < 128; i++)
        CHECK_INT(take_number(store, i, "s", &decision), 0);
    now -= HOUR / 2;
    CHECK_INT(take_number(store, 200, "s", &decision), 0); /* states of the future are nonsense */
    test_sound(store);
    weir_store_close(store);
}

/* The same limit in other words is the same row. */
static void test_same_rows(void)
{
    static const char *const texts[] = {"token-bucket 10/m", "gcra 10r/60s",
                                        "TOKEN-BUCKET 10/1m burst 10"};
    weir_store *store = test_open("memory:64k", &now);
    for (int i = 0; i < 3; i++) {
        weir_limit *limit = test_limit(texts[i]);
        CHECK_INT(test_take(store, "key", limit, 1).remaining, 9 - i);
        weir_limit_free(limit);
    }
    CHECK_INT(test_info(store).limits, 1);
    CHECK_INT(test_info(store).keys, 1);
    weir_store_close(store);
}

/* Limits that were reserved keep their rows, with or without states; the next call's take their
 * place. */
static void test_reserved(void)
{
    enum { ROWS = 64 };
    weir_store *store = test_open("memory:64k", &now);
    const weir_limit *limits[ROWS + 1];
    weir_decision decision = {0};
    weir_error err = {0};
    bool there = true;
    for (int i = 0; i < ROWS; i++) /* every row has a live state of somebody's */
        CHECK_INT(take_number(store, i, "h", &decision), 0);
    for (int i = 0; i <= ROWS; i++)
        limits[i] = test_limit_of("fixed-window %d/d", i + 1);
    CHECK_INT(weir__store_reserve(store, limits, ROWS + 1, &err), WEIR_EFULL);
    CHECK(strstr(err.message, "65 different limits, and the store has rows for 64") != NULL);
    CHECK_INT(weir__store_reserve(store, limits, 10, &err), 0);
    for (int i = 0; i < 3 * ROWS; i++) { /* made up, with a sweep every second */
        now += SECOND;
        (void)!take_number(store, i, "d", &decision);
    }
    now -= SECOND; /* no sweep is due */
    for (int i = 0; i < 10; i++)
        CHECK_INT(weir_take(store, weir_key_text("own"), limits[i], 1, &decision), 0);
    CHECK_INT(weir__store_reserve(store, limits, ROWS, &err), 0); /* all there are */
    for (int i = 0; i < ROWS; i++)
        CHECK_INT(weir_take(store, weir_key_text("all"), limits[i], 1, &decision), 0);
    now += 2 * SECOND;
    CHECK_INT(take_number(store, 0, "m", &decision), WEIR_EFULL); /* nothing is left for others */
    CHECK_INT(weir__store_reserve(store, limits, 1, &err), 0);
    now += 2 * DAY;
    CHECK_INT(take_number(store, 0, "m", &decision), 0);
    CHECK_INT(weir__store_reset(store, weir_key_text("all"), &there), 0);
    CHECK(!there); /* they were as new */
    CHECK_INT(weir__store_reset(store, weir_key_text("key 0"), &there), 0);
    CHECK(there);
    CHECK_INT(weir__store_reset(store, weir_key_text("key 0"), &there), 0);
    CHECK(!there);
    test_sound(store);
    for (int i = 0; i <= ROWS; i++)
        weir_limit_free((weir_limit *)limits[i]);
    weir_store_close(store);
}

/* A peek changes nothing: it makes no row for a limit that has none, and frees none for it. What
 * was charged under another limit of the same kind and period is told all the same. */
static void test_peeks(void)
{
    enum { ROWS = 64 };
    weir_store *store = test_open("memory:64k", &now);
    weir_limit *one = test_limit("fixed-window 5/h"), *other = test_limit("fixed-window 9/h"),
               *both = test_limit("token-bucket 3/m, sliding-log 4/m");
    weir_decision rows[2], folded;
    weir_request request = weir_request_make(weir_key_text("key"), both);
    request.detail = rows;
    CHECK_INT(test_peek(store, "key", one, 1).remaining, 5);
    CHECK_INT(weir_peek_all(store, &request, 1, &folded), 0);
    CHECK(folded.allowed && rows[0].remaining == 3 && rows[1].remaining == 4);
    CHECK_INT(test_info(store).limits, 0);
    CHECK_INT(test_take(store, "key", one, 2).remaining, 3);
    CHECK_INT(test_peek(store, "key", other, 1).remaining, 7);
    CHECK_INT(test_info(store).limits, 1);
    CHECK_INT(test_info(store).keys, 1);
    CHECK_INT(test_take(store, "key", other, 1).remaining, 6);
    CHECK_INT(test_info(store).limits, 2);
    weir_limit_free(one);
    weir_limit_free(other);
    weir_limit_free(both);
    weir_store_close(store);
}

int main(void)
{
    test_peeks();
    test_reserved();
    test_rows();
    test_passing_limits();
    test_old_hint();
    test_clock_set_back();
    test_same_rows();
    return test_report();
}
