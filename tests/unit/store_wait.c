/*
 * weir_wait under a virtual clock: buckets serve first come, first served, windows are asked again,
 * the deadline holds, what is hopeless is denied at once and not slept for.
 */
#include "store_test.h"

static _Atomic int64_t now;
static weir_store *store;
static int sleeps;

static void count_and_sleep(void *context, int64_t us)
{
    sleeps++;
    test_clock_sleep(context, us);
}

static void begin(void (*sleep)(void *, int64_t))
{
    weir_clock clock = {test_clock_now, sleep, &now};
    now = START;
    sleeps = 0;
    store = test_open("memory:256k?large=30%", NULL);
    weir_store_set_clock(store, &clock);
}

static void end(void)
{
    test_sound(store);
    weir_store_close(store);
}

/* Waits; then it was allowed or not, and the clock stands there. */
static weir_decision wait_at(int line, const weir_limit *limit, int64_t cost, int64_t max_us,
                             bool allowed, int64_t at_us)
{
    weir_decision decision = {0};
    char what[256];
    int code = weir_wait(store, weir_key_text("key"), limit, cost, max_us, &decision);
    snprintf(what, sizeof what, "%s: code %d, allowed %d, at %lld us, expected %d at %lld us",
             weir_limit_text(limit), code, decision.allowed, (long long)(now - START), allowed,
             (long long)at_us);
    test_check(code == 0 && decision.allowed == allowed && now - START == at_us, __FILE__, line,
               what);
    return decision;
}

#define WAIT(limit, cost, max_us, allowed, at_us)                                                  \
    wait_at(__LINE__, limit, cost, max_us, allowed, at_us)

static void test_token_bucket(void)
{
    weir_limit *limit = test_limit("token-bucket 1/s burst 2");
    begin(count_and_sleep);
    WAIT(limit, 1, 0, true, 0);
    WAIT(limit, 1, WEIR_WAIT_ANY, true, 0);
    CHECK_INT(sleeps, 0);
    CHECK_INT(WAIT(limit, 1, SECOND, true, SECOND).delay_us, SECOND);
    WAIT(limit, 2, 10 * SECOND, true, 3 * SECOND);
    CHECK_INT(sleeps, 2);
    CHECK_INT(WAIT(limit, 1, SECOND - 1, false, 3 * SECOND).retry_after_us, 1); /* not in time */
    CHECK_INT(WAIT(limit, 3, WEIR_WAIT_ANY, false, 3 * SECOND).retry_after_us, WEIR_NEVER);
    CHECK_INT(sleeps, 2);
    WAIT(limit, 1, SECOND, true, 4 * SECOND); /* the denied ones cost nothing */
    end();
    weir_limit_free(limit);
}

/* Those who came first go first, however long each has to wait. */
static void test_first_come(void)
{
    static const char *const texts[] = {"token-bucket 1/s burst 1", "token-bucket 1/s stepped",
                                        "leaky-bucket 1/s burst 9", "smooth 1/s burst-for 1us"};
    for (int i = 0; i < 4; i++) {
        weir_limit *limit = test_limit(texts[i]);
        begin(NULL); /* nobody sleeps: all are there at once */
        for (int64_t turn = 0; turn < 5; turn++)
            CHECK_INT(WAIT(limit, 1, WEIR_WAIT_ANY, true, 0).delay_us, turn * SECOND);
        WAIT(limit, 1, 5 * SECOND - 1, false, 0);
        CHECK_INT(WAIT(limit, 1, 5 * SECOND, true, 0).delay_us, 5 * SECOND);
        end();
        weir_limit_free(limit);
    }
}

static void test_windows(void)
{
    static const struct {
        const char *text;
        int64_t free_us; /* when there is room again */
    } cases[] = {{"fixed-window 2/s", SECOND},
                 {"fixed-window 2/s from-first", SECOND},
                 {"sliding-log 2/s", SECOND},
                 {"sliding-window 2/s", SECOND},
                 {"sliding-counter 2/s", SECOND + SECOND / 2},
                 {"leaky-bucket 1/s burst 1 nodelay", SECOND}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_limit *limit = test_limit(cases[i].text);
        begin(count_and_sleep);
        WAIT(limit, 2, 0, true, 0);
        WAIT(limit, 1, cases[i].free_us - 1, false, 0); /* denied at once */
        CHECK_INT(sleeps, 0);
        WAIT(limit, 3, WEIR_WAIT_ANY, false, 0); /* never */
        WAIT(limit, 1, cases[i].free_us, true, cases[i].free_us);
        CHECK_INT(sleeps, 1);
        end();
        begin(NULL); /* nobody moves this clock: no use to ask again */
        WAIT(limit, 2, 0, true, 0);
        WAIT(limit, 1, WEIR_WAIT_ANY, false, 0);
        end();
        weir_limit_free(limit);
    }
}

/* A slot may be released at any time: no deadline is known to be too early. */
static void test_slots(void)
{
    weir_limit *limit = test_limit("concurrent 2 lease 1s");
    begin(count_and_sleep);
    WAIT(limit, 2, 0, true, 0);
    CHECK_INT(WAIT(limit, 1, SECOND - 1, false, SECOND - 1).retry_after_us, 1);
    CHECK_INT(sleeps, 1);
    WAIT(limit, 3, WEIR_WAIT_ANY, false, SECOND - 1); /* never */
    CHECK_INT(sleeps, 1);
    CHECK_INT(WAIT(limit, 1, SECOND, true, SECOND).lease, 0); /* a take: nobody can name it */
    CHECK_INT(sleeps, 2);
    end();
    begin(NULL); /* nobody moves this clock: no use to ask again */
    WAIT(limit, 2, 0, true, 0);
    WAIT(limit, 1, WEIR_WAIT_ANY, false, 0);
    end();
    weir_limit_free(limit);
}

/* A full queue makes room, or takes too long. */
static void test_leaky_queue(void)
{
    weir_limit *limit = test_limit("leaky-bucket 1/s burst 3");
    begin(count_and_sleep);
    for (int i = 0; i < 4; i++)
        CHECK_INT(test_take(store, "key", limit, 1).delay_us, i * SECOND);
    WAIT(limit, 1, 4 * SECOND - 1, false, 0); /* four are before it */
    CHECK_INT(sleeps, 0);
    CHECK_INT(WAIT(limit, 1, 4 * SECOND, true, 4 * SECOND).delay_us, 3 * SECOND);
    CHECK_INT(sleeps, 2); /* for room, then for its turn */
    end();
    weir_limit_free(limit);
}

/* Somebody else takes what one has slept for. */
static weir_limit *contested;
static int thefts;

static void sleep_and_lose(void *context, int64_t us)
{
    sleeps++;
    test_clock_sleep(context, us);
    if (thefts-- > 0)
        CHECK_INT(test_take(store, "key", contested, 1).allowed, true);
}

static void test_competition(void)
{
    contested = test_limit("fixed-window 1/s");
    begin(sleep_and_lose);
    thefts = 3;
    WAIT(contested, 1, 0, true, 0);
    WAIT(contested, 1, 10 * SECOND, true, 4 * SECOND);
    CHECK_INT(sleeps, 4);
    thefts = 100;
    WAIT(contested, 1, 3 * SECOND + SECOND / 2, false, 7 * SECOND); /* and not a microsecond more */
    end();
    weir_limit_free(contested);
}

/* A bucket's turn and a window's room. */
static void test_several(void)
{
    weir_limit *limit = test_limit("token-bucket 10/s burst 1, fixed-window 2/s");
    begin(count_and_sleep);
    WAIT(limit, 1, 0, true, 0);
    WAIT(limit, 1, SECOND, true, SECOND / 10);
    weir_decision decision = WAIT(limit, 1, SECOND / 2, false, SECOND / 10);
    CHECK_INT(decision.binding, 1);
    CHECK_INT(decision.retry_after_us, SECOND - SECOND / 10);
    WAIT(limit, 1, SECOND, true, SECOND);
    CHECK_INT(WAIT(limit, 2, SECOND, false, SECOND).retry_after_us, WEIR_NEVER);
    end();
    weir_limit_free(limit);
}

static void test_bad_arguments(void)
{
    weir_limit *limit = test_limit("token-bucket 1/s");
    weir_decision decision = {.limit = 42};
    begin(count_and_sleep);
    CHECK_INT(weir_wait(store, weir_key_text("key"), limit, 1, -1, &decision), WEIR_EINVAL);
    CHECK_INT(weir_wait(store, weir_key_text("key"), limit, -1, 1, &decision), WEIR_EINVAL);
    CHECK_INT(weir_wait(store, weir_key_text("key"), NULL, 1, 1, &decision), WEIR_EINVAL);
    CHECK_INT(weir_wait(store, weir_key_text(""), limit, 1, 1, &decision), WEIR_EINVAL);
    CHECK_INT(decision.limit, 42);
    CHECK_INT(test_info(store).keys, 0);
    CHECK_INT(sleeps, 0);
    end();
    weir_limit_free(limit);
}

int main(void)
{
    alarm(60); /* a wait that never ends has failed */
    test_token_bucket();
    test_first_come();
    test_windows();
    test_slots();
    test_leaky_queue();
    test_competition();
    test_several();
    test_bad_arguments();
    return test_report();
}
