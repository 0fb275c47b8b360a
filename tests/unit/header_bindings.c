/* What weir.h has for other languages: sizes, verbs by pointer and length, a clock that is set, and
 * the fields of an answer. Each verb decides as its other form does, and says what is wrong. */
#include "store_test.h"

#include <stddef.h>

static weir_store *store;
static weir_error err;
static weir_decision d;

static void test_layout(void)
{
    CHECK_INT(weir_sizeof("weir_decision"), sizeof(weir_decision));
    CHECK_INT(weir_sizeof("weir_request"), sizeof(weir_request));
    CHECK_INT(weir_sizeof("weir_error"), sizeof(weir_error));
    CHECK_INT(weir_sizeof("weir_zone_info"), sizeof(weir_zone_info));
    CHECK_INT(weir_sizeof("weir_store"), 0);
    CHECK_INT(weir_sizeof(NULL), 0);
    CHECK_INT(weir_offsetof("weir_decision", "granted"), offsetof(weir_decision, granted));
    CHECK_INT(weir_offsetof("weir_request", "limit"), offsetof(weir_request, limit));
    CHECK_INT(weir_offsetof("weir_decision", "limit"), 0);
    CHECK_INT(weir_offsetof("weir_decision", "spare"), -1);
    CHECK_INT(weir_offsetof(NULL, "limit"), -1);
    CHECK_INT(weir_offsetof("weir_decision", NULL), -1);
    CHECK_INT(weir_version_number(), WEIR_VERSION_NUMBER);
    CHECK_INT(weir_error_count(), -WEIR_EGONE);
    CHECK(strcmp(weir_errname(-weir_error_count()), "UNKNOWN") != 0);
    CHECK(!strcmp(weir_errname(-weir_error_count() - 1), "UNKNOWN"));
}

static void test_verbs(void)
{
    weir_limit *limit = test_limit("sliding-log 5/m"), *slots = test_limit("concurrent 1");
    char receipt[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_take_n(store, "user:42", 4, limit, 3, &d, &err), 0);
    CHECK(d.allowed && d.remaining == 2);
    CHECK_INT(weir_peek(store, weir_key_text("user"), limit, 1, &d), 0); /* the length counts */
    CHECK_INT(d.remaining, 2);
    CHECK_INT(weir_peek_n(store, "user", 4, limit, 3, &d, &err), 0);
    CHECK(!d.allowed && d.retry_after_us == MINUTE);
    CHECK_INT(weir_take_n(store, "user", 4, limit, 0, &d, &err), 0); /* asks */
    CHECK_INT(d.remaining, 2);
    CHECK_INT(weir_take_n(store, "user", 4, limit, 2, &d, &err), 0);
    weir_receipt(&d, receipt);
    CHECK_INT(weir_settle_n(store, "user", 4, limit, receipt, 1, &err), 0);
    CHECK_INT(weir_settle_n(store, "user", 4, limit, receipt, 1, &err), WEIR_ESETTLED);
    CHECK_INT(weir_wait_n(store, "user", 4, limit, 3, WEIR_WAIT_ANY, &d, &err), 0);
    CHECK(d.allowed && d.time_us == START + MINUTE); /* the clock moved instead of sleeping */
    CHECK_INT(weir_wait_n(store, "user", 4, limit, 0, 0, &d, &err), 0);
    CHECK_INT(d.charged, 0);
    CHECK_INT(weir_reset_n(store, "user", 4, &err), 0);
    CHECK_INT(weir_peek_n(store, "user", 4, limit, 1, &d, &err), 0);
    CHECK_INT(d.remaining, 5);
    CHECK_INT(weir_acquire_n(store, "job", 3, slots, 1, &d, &err), 0);
    uint64_t lease = d.lease;
    CHECK(lease != 0);
    CHECK_INT(weir_renew_n(store, "job", 3, slots, lease, &err), 0);
    weir_wakeup *wakeup = NULL;
    CHECK_INT(weir_wakeup_open_n(store, "job", 3, slots, &wakeup, &err), 0);
    CHECK(weir_wakeup_fd(wakeup) >= 0);
    CHECK_INT(weir_release_n(store, "job", 3, slots, lease, &err), 0);
    CHECK_INT(weir_release_n(store, "job", 3, slots, lease, &err), WEIR_ENOLEASE);
    CHECK(!strcmp(err.message, "no such lease"));
    weir_wakeup_close(wakeup);
    weir_limit_free(limit);
    weir_limit_free(slots);
}

/* Every refusal has a message that names the value. */
static void test_messages(void)
{
    weir_limit *limit = test_limit("sliding-log 5/m");
    CHECK_INT(weir_take_n(store, "k", 1, limit, -1, &d, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "invalid cost -1"));
    CHECK_INT(weir_peek_n(store, "k", 0, limit, 1, &d, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "invalid key of 0 bytes"));
    CHECK_INT(weir_take_n(store, NULL, 1, limit, 1, &d, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "the key is NULL"));
    CHECK_INT(weir_take_n(store, "k", 1, NULL, 1, &d, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "the limit is NULL"));
    CHECK_INT(weir_take_n(NULL, "k", 1, limit, 1, &d, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "the store is NULL"));
    CHECK_INT(weir_take_n(store, "k", 1, limit, 1, NULL, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "room for the decision"));
    CHECK_INT(weir_acquire_n(store, "k", 1, limit, 1, &d, &err), WEIR_EUNSUPPORTED);
    CHECK(strstr(err.message, "expected concurrent"));
    CHECK_INT(weir_wait_n(store, "k", 1, limit, 1, -5, &d, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "-5"));
    CHECK_INT(weir_take_n(store, "k", 1, limit, -1, &d, NULL), WEIR_EINVAL);
    CHECK_INT(weir_store_set_time(NULL, 0), WEIR_EINVAL);
    CHECK_INT(weir_store_set_time(store, -2), WEIR_EINVAL);
    CHECK_INT(weir_store_set_time(store, WEIR__EXACT_MAX), WEIR_EINVAL);
    CHECK(!weir_store_blocks(store) && !weir_store_blocks(NULL));
    weir_limit_free(limit);
}

static void test_set_time(void)
{
    weir_limit *limit = test_limit("fixed-window 5/m from-first");
    CHECK_INT(weir_store_set_time(store, START + 7), 0);
    CHECK_INT(weir_take_n(store, "t", 1, limit, 1, &d, &err), 0);
    CHECK_INT(d.time_us, START + 7);
    CHECK_INT(weir_store_set_time(store, WEIR_NEVER), 0);
    CHECK_INT(weir_take_n(store, "t", 1, limit, 1, &d, &err), 0);
    CHECK(d.time_us > START + 365 * DAY);
    CHECK_INT(weir_store_set_time(store, START), 0);
    weir_limit_free(limit);
}

static void test_fields(void)
{
    weir_limit *limit = test_limit("fixed-window 5/m, concurrent 3"),
               *day = test_limit("fixed-window 2/d");
    weir_request requests[2];
    weir_decision rows[2], row;
    char text[WEIR_FIELDS_SIZE];
    weir_request_init(&requests[0], "f", 1, limit);
    weir_request_init(&requests[1], "g", 1, day);
    CHECK_INT(requests[0].cost, 1);
    CHECK_INT(weir_fields("ietf", requests, 2, NULL, &d, text, sizeof text, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "request 0 has no detail"));
    requests[0].detail = rows;
    requests[1].detail = &row;
    CHECK_INT(weir_take_all(store, requests, 2, &d), 0);
    CHECK_INT(weir_fields("ietf", requests, 2, NULL, &d, text, sizeof text, &err), 0);
    CHECK(!strcmp(text, "ratelimit: \"fixed-window\";r=4;t=60,\"concurrent\";r=2;t=60,"
                        "\"fixed-window-2\";r=1;t=86400\n"
                        "ratelimit-policy: \"fixed-window\";q=5;w=60,"
                        "\"concurrent\";q=3;qu=\"concurrent-requests\";w=60,"
                        "\"fixed-window-2\";q=2;w=86400\n"));
    requests[1].cost = 2;
    CHECK_INT(weir_take_all(store, requests, 2, &d), 0);
    const char *names[] = {"a\"b", NULL, "day"};
    CHECK_INT(weir_fields("ietf", requests, 2, names, &d, text, sizeof text, &err), 0);
    CHECK(!strncmp(text, "retry-after: 86400\nratelimit: \"a\\\"b\";r=4;t=60,\"conc", 48));
    CHECK_INT(weir_fields("x-ratelimit", requests, 2, names, &d, text, sizeof text, &err), 0);
    CHECK(!strcmp(text, "retry-after: 86400\nx-ratelimit-limit: 2\nx-ratelimit-remaining: 1\n"
                        "x-ratelimit-reset: 86400\n"));
    size_t need = strlen(text) + 1;
    CHECK_INT(weir_fields("x-ratelimit", requests, 2, names, &d, text, need, &err), 0);
    CHECK_INT(weir_fields("x-ratelimit", requests, 2, names, &d, text, need - 1, &err),
              WEIR_EINVAL);
    CHECK(strstr(err.message, "no room for the fields"));
    CHECK_INT(weir_fields("off", requests, 2, NULL, &d, text, 1, &err), 0);
    CHECK_INT(text[0], 0);
    CHECK_INT(weir_fields("IETF", requests, 2, NULL, &d, text, sizeof text, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "invalid style \"IETF\""));
    CHECK_INT(weir_fields(NULL, requests, 2, NULL, &d, text, sizeof text, &err), WEIR_EINVAL);
    CHECK_INT(weir_fields("ietf", requests, 0, NULL, &d, text, sizeof text, &err), WEIR_EINVAL);
    CHECK_INT(weir_fields("ietf", requests, 2, NULL, NULL, text, sizeof text, &err), WEIR_EINVAL);
    CHECK_INT(weir_fields("ietf", requests, 2, NULL, &d, NULL, 0, &err), WEIR_EINVAL);
    weir_limit_free(limit);
    weir_limit_free(day);
}

/* The longest there is: 16 limits with names full of quotes. */
static void test_most_fields(void)
{
    char name[WEIR_LIMITS_MAX][65], text[WEIR_FIELDS_SIZE];
    const char *names[WEIR_LIMITS_MAX];
    weir_limit *limits[WEIR_LIMITS_MAX];
    weir_request requests[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX];
    for (int i = 0; i < WEIR_LIMITS_MAX; i++) {
        char limit[64];
        memset(name[i], '"', 64);
        name[i][63] = (char)('a' + i);
        name[i][64] = 0;
        names[i] = name[i];
        snprintf(limit, sizeof limit, "fixed-window 999999999/%dd", 300 + i);
        limits[i] = test_limit(limit);
        weir_request_init(&requests[i], "m", 1, limits[i]);
        requests[i].detail = &rows[i];
    }
    CHECK_INT(weir_take_all(store, requests, WEIR_LIMITS_MAX, &d), 0);
    CHECK_INT(weir_fields("openai", requests, WEIR_LIMITS_MAX, names, &d, text, sizeof text, &err),
              0);
    CHECK(strlen(text) > 6000);
    for (int i = 0; i < WEIR_LIMITS_MAX; i++)
        weir_limit_free(limits[i]);
}

int main(void)
{
    store = test_open("memory:1m", NULL);
    CHECK_INT(weir_store_set_time(store, START), 0);
    test_layout();
    test_verbs();
    CHECK_INT(weir_store_set_time(store, START), 0);
    test_messages();
    test_set_time();
    test_fields();
    test_most_fields();
    weir_store_close(store);
    return test_report();
}
