/*
 * What include/weir.h promises about every function: NULL, structures that grow, defaults of a
 * request, messages, fork, cancellation. The verbs themselves are tested elsewhere.
 */
#include "store_test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Atomic int64_t now = START;

/* ---- structures ---- */

/* Frozen while the soname is libweir.so.0. A new member takes spare room and moves nothing. */
static void test_layout(void)
{
    CHECK_INT(sizeof(weir_key), 16);
    CHECK_INT(sizeof(weir_hashed_key), 48);
    CHECK_INT(sizeof(weir_error), 520);
    CHECK_INT(sizeof(weir_clock), 24);
    CHECK_INT(sizeof(weir_request), 104);
    CHECK_INT(offsetof(weir_request, limit), 16);
    CHECK_INT(offsetof(weir_request, cost), 24);
    CHECK_INT(offsetof(weir_request, wait_us), 32);
    CHECK_INT(offsetof(weir_request, detail), 40);
    CHECK_INT(offsetof(weir_request, acquire), 48);
    CHECK_INT(offsetof(weir_request, hashed), 56);
    CHECK_INT(offsetof(weir_request, error), 64);
    CHECK_INT(offsetof(weir_request, least), 72);
    CHECK_INT(sizeof(weir_decision), 96);
    CHECK_INT(offsetof(weir_decision, granted), 80);
    CHECK_INT(offsetof(weir_decision, lease), 56);
    CHECK_INT(offsetof(weir_decision, allowed), 64);
    CHECK_INT(offsetof(weir_decision, degraded), 65);
    CHECK_INT(offsetof(weir_decision, binding), 66);
    CHECK_INT(offsetof(weir_decision, code), 72);
    CHECK_INT(offsetof(weir_decision, local), 77);
    CHECK_INT(sizeof(weir_wait_options), 64);
    CHECK_INT(offsetof(weir_wait_options, waiter), 8);
    CHECK_INT(offsetof(weir_wait_options, cancel_fd), 16);
    CHECK_INT(offsetof(weir_wait_options, interruptible), 24);
    CHECK_INT(sizeof(weir_zone_info), 128);
    CHECK_INT(offsetof(weir_zone_info, repairs), 72);
}

static bool spare_is_zero(const weir_decision *d)
{
    static const uint8_t zero[sizeof d->spare];
    return !memcmp(d->spare, zero, sizeof d->spare) && !d->closed;
}

/* Whatever was in the room before. */
static void test_spare_room(void)
{
    static const char *const limits[] = {"token-bucket 5/s", "sliding-log 5/s", "smooth 5/s",
                                         "fixed-window 9/s, concurrent 5 lease 1s"};
    weir_store *store = test_open("memory:1m", &now);
    for (size_t i = 0; i < COUNT(limits); i++) {
        weir_limit *limit = test_limit(limits[i]);
        weir_decision d[2], rows[2];
        weir_key key = weir_key_text(limits[i]);
        weir_request request = {.key = key, .limit = limit, .detail = rows};
        memset(d, 0xff, sizeof d);
        memset(rows, 0xff, sizeof rows);
        CHECK(weir_take(store, key, limit, 1, d) == 0 && spare_is_zero(d) && d->code == 0);
        memset(d, 0xff, sizeof d);
        CHECK(weir_take_all(store, &request, 1, d) == 0 && spare_is_zero(d) && d->code == 0);
        CHECK(spare_is_zero(&rows[0]) && rows[0].code == 0);
        memset(d, 0xff, sizeof d);
        CHECK(weir_take_many(store, &request, 1, d) == 0 && spare_is_zero(d) && d->code == 0);
        memset(d, 0xff, sizeof d);
        CHECK(weir_wait(store, key, limit, 1, 0, d) == 0 && spare_is_zero(d));
        weir_limit_free(limit);
    }
    weir_zone_info info, none = {0};
    memset(&info, 0xff, sizeof info);
    CHECK(weir_store_info(store, &info) == 0 && !memcmp(info.spare, none.spare, sizeof info.spare));
    weir_counts counts, no_counts = {0};
    memset(&counts, 0xff, sizeof counts);
    CHECK(weir_store_counts(store, &counts) == 0 &&
          !memcmp(counts.spare, no_counts.spare, sizeof counts.spare));
    weir_store_close(store);
}

/* ---- NULL ---- */

static void test_null_stores_and_limits(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("token-bucket 5/s"), *untouched = NULL;
    weir_decision d = {.limit = 42};
    weir_error err;
    weir_hashed_key hashed;
    weir_zone_info info;
    const weir_key key = weir_key_text("k"), none = weir_key_text(NULL);
    CHECK_INT(weir_store_open(NULL, &store, &err), WEIR_EINVAL);
    CHECK_INT(weir_store_open("memory:1m", NULL, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse(NULL, &untouched, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse("token-bucket 1/s", NULL, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse_n(NULL, 0, &untouched, NULL), WEIR_EINVAL);
    CHECK_INT(weir_take(NULL, key, limit, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take(store, key, NULL, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take(store, none, limit, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take(store, key, limit, 1, NULL), WEIR_EINVAL);
    CHECK_INT(weir_peek(NULL, key, limit, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_peek(store, key, NULL, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_peek(store, key, limit, 1, NULL), WEIR_EINVAL);
    CHECK_INT(weir_key_hash(NULL, key, &hashed), WEIR_EINVAL);
    CHECK_INT(weir_key_hash(store, key, NULL), WEIR_EINVAL);
    CHECK_INT(weir_key_hash(store, key, &hashed), 0);
    CHECK_INT(weir_take_hashed(store, NULL, limit, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take_hashed(NULL, &hashed, limit, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take_hashed(store, &hashed, limit, 1, NULL), WEIR_EINVAL);
    CHECK_INT(weir_reset(NULL, key), WEIR_EINVAL);
    CHECK_INT(weir_reset_key(store, none, &err), WEIR_EINVAL);
    CHECK_INT(weir_wait(NULL, key, limit, 1, 0, &d), WEIR_EINVAL);
    CHECK_INT(weir_wait(store, key, limit, 1, 0, NULL), WEIR_EINVAL);
    CHECK_INT(weir_wait(store, key, NULL, 1, 0, &d), WEIR_EINVAL);
    CHECK_INT(weir_settle(NULL, key, limit, "w1-1-1", 1, &err), WEIR_EINVAL);
    CHECK_INT(weir_settle(store, key, NULL, "w1-1-1", 1, &err), WEIR_EINVAL);
    CHECK_INT(weir_settle(store, key, limit, NULL, 1, &err), WEIR_EINVAL);
    CHECK_INT(weir_acquire(NULL, key, limit, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_acquire(store, key, limit, 1, NULL), WEIR_EINVAL);
    CHECK_INT(weir_renew(NULL, key, limit, 1), WEIR_EINVAL);
    CHECK_INT(weir_release(store, key, NULL, 1), WEIR_EINVAL);
    CHECK_INT(weir_acquire_wait(NULL, key, limit, 1, 0, &d), WEIR_EINVAL);
    CHECK_INT(weir_acquire_wait(store, key, limit, 1, 0, &d), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_acquire_wait(store, key, limit, 1, 0, NULL), WEIR_EINVAL);
    CHECK_INT(weir_waiter_create(NULL, &err), WEIR_EINVAL);
    CHECK_INT(weir_wakeup_open(NULL, key, limit, NULL, &err), WEIR_EINVAL);
    CHECK_INT(weir_wakeup_open(store, key, limit, NULL, &err), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_wakeup_arm(NULL), WEIR_EINVAL);
    CHECK_INT(weir_wakeup_fd(NULL), -1);
    weir_wakeup_close(NULL);
    weir_waiter_cancel(NULL);
    weir_waiter_free(NULL);
    CHECK_INT(weir_store_info(NULL, &info), WEIR_EINVAL);
    CHECK_INT(weir_store_info(store, NULL), WEIR_EINVAL);
    weir_counts counts;
    CHECK_INT(weir_store_counts(NULL, &counts), WEIR_EINVAL);
    CHECK_INT(weir_store_counts(store, NULL), WEIR_EINVAL);
    CHECK_INT(weir_store_check(NULL, NULL), WEIR_EINVAL);
    CHECK(weir_limit_count(NULL) == 0 && !*weir_limit_text(NULL) && !weir_limit_kind(NULL, 0));
    CHECK(weir_limit_burst(NULL, 0) == 0 && weir_limit_amount(NULL, 0) == 0 &&
          weir_limit_period_us(NULL, 0) == 0);
    weir_limit_free(NULL);
    weir_store_close(NULL);
    CHECK(d.limit == 42 && !untouched);
    CHECK_INT(test_info(store).keys, 0);
    weir_limit_free(limit);
    weir_store_close(store);
}

static void test_null_requests(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("token-bucket 5/s");
    weir_decision d = {.limit = 42};
    weir_request request = weir_request_make(weir_key_text("k"), limit);
    CHECK_INT(weir_take_all(NULL, &request, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take_all(store, NULL, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take_all(store, &request, 1, NULL), WEIR_EINVAL);
    CHECK_INT(weir_peek_all(NULL, &request, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_peek_all(store, &request, 1, NULL), WEIR_EINVAL);
    CHECK_INT(weir_take_many(NULL, &request, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take_many(store, NULL, 1, &d), WEIR_EINVAL);
    CHECK_INT(weir_take_many(store, &request, 1, NULL), WEIR_EINVAL);
    CHECK_INT(weir_wait_for(NULL, &request, 0, &d), WEIR_EINVAL);
    CHECK_INT(weir_wait_for(store, NULL, 0, &d), WEIR_EINVAL);
    CHECK_INT(weir_wait_for(store, &request, 0, NULL), WEIR_EINVAL);
    CHECK_INT(d.limit, 42);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* ---- requests ---- */

static void test_defaults(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("fixed-window 10/m"),
               *leaky = test_limit("leaky-bucket 1/s burst 5");
    weir_decision d;
    weir_request request = {.key = weir_key_text("a"), .limit = limit};
    CHECK(weir_take_all(store, &request, 1, &d) == 0 && d.charged == 1 && d.remaining == 9);
    CHECK(weir_take_many(store, &request, 1, &d) == 0 && d.charged == 1 && d.remaining == 8);
    CHECK(weir_wait_for(store, &request, 0, &d) == 0 && d.charged == 1 && d.remaining == 7);
    request.cost = WEIR_COST_NONE;
    CHECK(weir_take_all(store, &request, 1, &d) == 0 && d.charged == 0 && d.remaining == 7);
    CHECK(weir_take_many(store, &request, 1, &d) == 0 && d.charged == 0 && d.remaining == 7);
    CHECK(weir_take(store, request.key, limit, 0, &d) == 0 && d.charged == 0 && d.remaining == 7);
    CHECK(weir_peek_all(store, &request, 1, &d) == 0 && d.remaining == 7);

    request = (weir_request){.key = weir_key_text("b"), .limit = leaky};
    CHECK(weir_take_all(store, &request, 1, &d) == 0 && d.allowed && d.delay_us == 0);
    CHECK(weir_take_all(store, &request, 1, &d) == 0 && !d.allowed); /* it accepts no delay */
    request = weir_request_make(request.key, leaky);
    CHECK(weir_take_all(store, &request, 1, &d) == 0 && d.allowed && d.delay_us > 0);
    weir_limit_free(limit);
    weir_limit_free(leaky);
    weir_store_close(store);
}

static bool says(const weir_error *err, int code, const char *text)
{
    if (err->code == code && !strcmp(err->message, text))
        return true;
    printf("%d %s\n", err->code, err->message);
    return false;
}

/* Of weir_wait_with. */
static void test_wait_messages(weir_store *store, weir_request request)
{
    weir_decision d;
    const int closed = 1000000, none = -1;
    weir_wait_options options = {.cancel_fd = &none};
    CHECK(weir_wait_with(store, &request, &options, &d) == WEIR_EINVAL &&
          says(request.error, WEIR_EINVAL, "invalid cancel_fd -1: expected an open descriptor"));
    options.cancel_fd = &closed;
    CHECK(
        weir_wait_with(store, &request, &options, &d) == WEIR_EINVAL &&
        says(request.error, WEIR_EINVAL, "invalid cancel_fd 1000000: expected an open descriptor"));
    options = (weir_wait_options){.spare = {0, 0, 0, 1}};
    CHECK(weir_wait_with(store, &request, &options, &d) == WEIR_EINVAL &&
          says(request.error, WEIR_EINVAL,
               "the spare room of the options is not zero: initialise all of it"));
    CHECK(weir_wait_with(store, &request, NULL, &d) == WEIR_EINVAL &&
          says(request.error, WEIR_EINVAL, "the options of the wait are NULL"));
    options = (weir_wait_options){0};
    CHECK(weir_wait_with(store, &request, &options, NULL) == WEIR_EINVAL &&
          says(request.error, WEIR_EINVAL, "the room for the decision is NULL"));
    request.wait_us = 5;
    CHECK(weir_wait_with(store, &request, &options, &d) == WEIR_EINVAL &&
          says(request.error, WEIR_EINVAL,
               "the request has a wait_us: leave it out, max_wait_us says how long"));
}

static void test_messages(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("token-bucket 5/s"),
               *slots = test_limit("concurrent 1 lease 9s");
    weir_decision d;
    weir_error err;
    weir_request request = {.key = weir_key_bytes("k", SIZE_MAX), .limit = limit, .error = &err};
    CHECK(
        weir_take_all(store, &request, 1, &d) == WEIR_EINVAL &&
        says(&err, WEIR_EINVAL, "invalid key of 18446744073709551615 bytes: expected 1 to 65536"));
    request.key = weir_key_text("k");
    request.cost = -5;
    CHECK(weir_peek_all(store, &request, 1, &d) == WEIR_EINVAL &&
          says(&err, WEIR_EINVAL, "invalid cost -5: expected 0 to 1000000000000"));
    request.cost = 0;
    request.wait_us = -1;
    CHECK(weir_take_all(store, &request, 1, &d) == WEIR_EINVAL &&
          says(&err, WEIR_EINVAL, "invalid wait of -1 us: expected 0 to 31622400000000"));
    request.wait_us = 0;
    CHECK(weir_wait_for(store, &request, -1, &d) == WEIR_EINVAL &&
          says(&err, WEIR_EINVAL, "invalid wait of -1 us: expected 0 or more"));
    request.spare[1] = 7;
    CHECK(
        weir_take_all(store, &request, 1, &d) == WEIR_EINVAL &&
        says(&err, WEIR_EINVAL, "the spare room of the request is not zero: initialise all of it"));
    request.spare[1] = 0;
    request.acquire = true;
    CHECK(weir_take_all(store, &request, 1, &d) == WEIR_EUNSUPPORTED &&
          says(&err, WEIR_EUNSUPPORTED,
               "no limit of \"token-bucket 5/s\" has leases: expected concurrent"));
    CHECK(weir_wait_for(store, &request, 0, &d) == WEIR_EUNSUPPORTED &&
          says(&err, WEIR_EUNSUPPORTED,
               "no limit of \"token-bucket 5/s\" has leases: expected concurrent"));
    request.limit = slots;
    CHECK(weir_wait_for(store, &request, 0, &d) == 0 && d.allowed && d.lease);
    CHECK_INT(weir_release(store, request.key, slots, d.lease), 0);
    test_wait_messages(store, request);
    CHECK(weir_renew_lease(store, request.key, slots, 9, &err) == WEIR_ENOLEASE &&
          says(&err, WEIR_ENOLEASE, "no such lease"));
    CHECK(weir_release_lease(store, request.key, slots, 0, &err) == WEIR_ENOLEASE &&
          says(&err, WEIR_ENOLEASE, "no such lease"));
    now = -1;
    CHECK(weir_reset_key(store, request.key, &err) == WEIR_EINVAL &&
          says(&err, WEIR_EINVAL, "the time of the store's clock is out of bounds"));
    now = START;
    weir_limit_free(limit);
    weir_limit_free(slots);
    weir_store_close(store);
}

/* ---- limits ---- */

static void test_limits(void)
{
    static const char text[] =
        "GCRA 10r/s burst 20, sliding-window 5k/90m, concurrent 3 lease 30s!";
    weir_limit *limit = NULL;
    weir_error err;
    CHECK_INT(weir_limit_parse_n(text, sizeof text - 2, &limit, &err), 0);
    CHECK_INT((int64_t)weir_limit_count(limit), 3);
    CHECK(!strcmp(weir_limit_kind(limit, 0), "token-bucket") && weir_limit_amount(limit, 0) == 10 &&
          weir_limit_period_us(limit, 0) == SECOND && weir_limit_burst(limit, 0) == 20);
    CHECK(!strcmp(weir_limit_kind(limit, 1), "sliding-window") &&
          weir_limit_amount(limit, 1) == 5000 && weir_limit_period_us(limit, 1) == 90 * MINUTE &&
          weir_limit_burst(limit, 1) == 0);
    CHECK(!strcmp(weir_limit_kind(limit, 2), "concurrent") && weir_limit_amount(limit, 2) == 3 &&
          weir_limit_period_us(limit, 2) == 30 * SECOND);
    CHECK(!weir_limit_kind(limit, 3) && weir_limit_amount(limit, 3) == 0 &&
          weir_limit_period_us(limit, SIZE_MAX) == 0 && weir_limit_burst(limit, 3) == 0);
    weir_limit_free(limit);
    limit = NULL;
    CHECK_INT(weir_limit_parse_n("smooth 1/s\0", 11, &limit, &err), WEIR_ESYNTAX);
    CHECK_INT(err.column, 11);
    CHECK_INT(weir_limit_parse_n("smooth 1/s", SIZE_MAX, &limit, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse_n("", 0, &limit, &err), WEIR_ESYNTAX);
    CHECK(!limit && !strcmp(weir_version(), WEIR_VERSION));
}

/* ---- fork ---- */

/* What a child leaves of 10 a minute, after 3 takes of its own. */
static int64_t left_after_child(const char *url, bool late)
{
    weir_store *store = late ? NULL : test_open(url, NULL);
    weir_limit *limit = test_limit("fixed-window 10/d from-first");
    weir_decision d = {0};
    pid_t child = fork();
    if (child == 0) {
        store = store ? store : test_open(url, NULL);
        for (int i = 0; i < 3; i++) {
            if (weir_take(store, weir_key_text("k"), limit, 1, &d) || !d.allowed)
                _exit(1);
        }
        weir_store_close(store);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    store = store ? store : test_open(url, NULL);
    CHECK_INT(weir_peek(store, weir_key_text("k"), limit, 1, &d), 0);
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
    weir_store_close(store);
    return d.remaining;
}

static void test_fork(void)
{
    char url[64], name[32];
    snprintf(name, sizeof name, "/weir-promises-%d", (int)getpid());
    snprintf(url, sizeof url, "shm:%s?size=1m", name);
    CHECK_INT(left_after_child("memory:1m", false), 10);
    CHECK_INT(left_after_child(url, false), 7);
    shm_unlink(name);
    CHECK_INT(left_after_child(url, true), 7);
    shm_unlink(name);
}

/* ---- cancellation ---- */

struct victim {
    weir_store *store;
    const weir_limit *limit;
    const weir_limit *slots;
    bool waits; /* it shall be cancelled in its sleep */
    int code;
    bool returned;
};

/* A thread whose cancellation is pending: any cancellation point ends it. */
static void *victim_run(void *argument)
{
    struct victim *it = argument;
    weir_decision d, many[2];
    weir_key key = weir_key_text("k");
    weir_request two[2] = {weir_request_make(key, it->limit), weir_request_make(key, it->limit)};
    pthread_cancel(pthread_self());
    if (it->waits) {
        for (int i = 0; i < 3 && it->code == 0; i++)
            it->code = weir_wait(it->store, key, it->limit, 1, WEIR_WAIT_ANY, &d);
        it->returned = true;
        return NULL;
    }
    int codes[] = {weir_take(it->store, key, it->limit, 1, &d),
                   weir_peek(it->store, key, it->limit, 1, &d),
                   weir_take_many(it->store, two, 2, many), weir_take_all(it->store, two, 1, &d),
                   weir_acquire(it->store, key, it->slots, 1, &d)};
    if (d.lease && weir_release(it->store, key, it->slots, d.lease))
        it->code = -1;
    for (size_t i = 0; i < COUNT(codes); i++)
        it->code = it->code ? it->code : codes[i];
    int reset = weir_reset(it->store, key);
    it->code = it->code || reset == WEIR_EUNREACHABLE ? it->code : reset;
    it->returned = true;
    pthread_testcancel();
    return NULL;
}

static void check_cancelled(weir_store *store, bool waits)
{
    weir_limit *limit = test_limit("leaky-bucket 1/h burst 5"),
               *slots = test_limit("concurrent 2 lease 1m");
    struct victim victim = {store, limit, slots, waits, 0, false};
    pthread_t thread;
    void *result = NULL;
    CHECK_INT(pthread_create(&thread, NULL, victim_run, &victim), 0);
    CHECK_INT(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK_INT(victim.code, 0);
    CHECK_INT(victim.returned, !waits);
    weir_decision d;
    CHECK_INT(weir_take(store, weir_key_text("k"), limit, 1, &d), 0); /* nothing is held */
    weir_limit_free(limit);
    weir_limit_free(slots);
}

/* A server that takes connections and says nothing. */
static int open_silence(char url[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 16) ||
        getsockname(fd, (struct sockaddr *)&at, &len))
        test_give_up("a socket", "none");
    snprintf(url, 64, "redis://127.0.0.1:%d?fail=closed", ntohs(at.sin_port));
    return fd;
}

static void test_cancellation(void)
{
    char url[64];
    weir_store *store = test_open("memory:1m", NULL);
    check_cancelled(store, false);
    check_cancelled(store, true);
    weir_store_close(store);
    int fd = open_silence(url);
    store = test_open(url, NULL);
    check_cancelled(store, false);
    weir_store_close(store);
    close(fd);
}

int main(void)
{
    test_layout();
    test_spare_room();
    test_null_stores_and_limits();
    test_null_requests();
    test_defaults();
    test_messages();
    test_limits();
    test_fork();
    test_cancellation();
    return test_report();
}
