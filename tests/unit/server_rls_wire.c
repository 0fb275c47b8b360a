/*
 * The rate limit service's answers, in protobuf and in JSON, and requests in JSON: to the letter.
 */
#include "rls_test.h"

/* ---- answers ---- */

static const char *json(void)
{
    static char room[WEIR__RLS_ANSWER_ROOM];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    CHECK_INT(weir__rls_answer_json(&call, &out), call.over ? 429 : 200);
    CHECK(!out.cut);
    return room;
}

static int is(const char *got, const char *expected)
{
    if (strcmp(got, expected))
        printf("    found    %s\n    expected %s\n", got, expected);
    return !strcmp(got, expected);
}

static void test_json_answers(void)
{
    fresh();
    now = START + 500000;
    CHECK(ask_two("five", "unheard"));
    CHECK(is(json(), "{\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OK\",\"currentLimit\":{"
                     "\"name\":\"five-an-hour\",\"requestsPerUnit\":5,\"unit\":\"HOUR\"},"
                     "\"limitRemaining\":4,\"durationUntilReset\":\"3600s\"},{\"code\":\"OK\"}]}"));
    CHECK(ask_two("free", "free"));
    CHECK(is(json(), "{\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OK\",\"limitRemaining\":"
                     "4294967295},{\"code\":\"OK\",\"limitRemaining\":4294967295}]}"));
    CHECK(!ask_one("banned", "x"));
    CHECK(is(json(), "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[{\"code\":\"OVER_LIMIT\","
                     "\"currentLimit\":{\"requestsPerUnit\":0,\"unit\":\"MINUTE\"},"
                     "\"limitRemaining\":0,\"durationUntilReset\":\"60s\"}]}"));
    CHECK(ask_one("bucket", "x") && ask_one("bucket", "x") && ask_one("bucket", "x"));
    now += 1;
    CHECK(!ask_one("bucket", "x")); /* one token comes in a second, less one microsecond */
    CHECK(is(json(), "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[{\"code\":\"OVER_LIMIT\","
                     "\"currentLimit\":{\"requestsPerUnit\":1,\"unit\":\"SECOND\"},"
                     "\"limitRemaining\":0,\"durationUntilReset\":\"1s\"}]}"));
    begin("d");
    now = START + 10 * HOUR;
    hits(add("tokens", "x"), 101); /* never allowed, but charged: used up until the hour ends */
    CHECK(!ask());
    CHECK(is(json(), "{\"overallCode\":\"OVER_LIMIT\",\"statuses\":[{\"code\":\"OVER_LIMIT\","
                     "\"currentLimit\":{\"requestsPerUnit\":100,\"unit\":\"HOUR\"},"
                     "\"limitRemaining\":0,\"durationUntilReset\":\"3600s\"}]}"));
    now += SECOND + 1000; /* never early: what is left of a second is a second */
    CHECK(!ask());
    CHECK(strstr(json(), "\"durationUntilReset\":\"3599s\""));
    now = START + 11 * HOUR - 1;
    CHECK(!ask());
    CHECK(strstr(json(), "\"durationUntilReset\":\"1s\""));
    CHECK(ask_one("both", "x"));
    CHECK(is(json(), "{\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OK\",\"currentLimit\":{"
                     "\"requestsPerUnit\":3,\"unit\":\"UNKNOWN\"},\"limitRemaining\":2,"
                     "\"durationUntilReset\":\"3600s\"}]}"));
}

static void test_headers(void)
{
    fresh();
    options.headers = true;
    now = START + 1;
    CHECK(ask_two("ten", "five"));
    CHECK(strstr(json(), ",\"responseHeadersToAdd\":[{\"key\":\"RateLimit-Limit\",\"value\":\"5\"},"
                         "{\"key\":\"RateLimit-Remaining\",\"value\":\"4\"},"
                         "{\"key\":\"RateLimit-Reset\",\"value\":\"3600\"}]}"));
    CHECK(!ask_two("two", "banned"));
    CHECK(strstr(json(), "[{\"key\":\"RateLimit-Limit\",\"value\":\"0\"},"
                         "{\"key\":\"RateLimit-Remaining\",\"value\":\"0\"},"
                         "{\"key\":\"RateLimit-Reset\",\"value\":\"60\"}]"));
    CHECK(ask_one("free", "x"));
    CHECK(!strstr(json(), "RateLimit"));
    begin("d"); /* of several denials the longest: before it is over, nothing is let in */
    hits(add("two", "y"), 3);
    hits(add("ten", "y"), 11);
    hits(add("five", "y"), 6);
    CHECK(!ask());
    CHECK(strstr(json(), "{\"key\":\"RateLimit-Limit\",\"value\":\"10\"}"));
    CHECK(strstr(json(), "{\"key\":\"RateLimit-Reset\",\"value\":\"86400\"}"));
}

/* A shadow that is charged although it would deny tells when it is as new, not that it is. */
static void test_shadow_reset(void)
{
    fresh();
    options.charge_denied = true;
    now = START + 20 * SECOND;
    begin("d");
    hits(add("shady", "x"), 5);
    CHECK(ask());
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_SHADOWED);
    CHECK(strstr(json(), "\"limitRemaining\":0,\"durationUntilReset\":\"40s\""));
    begin("d"); /* a bucket in debt: when that is paid */
    hits(add("bucket", "x"), 3);
    CHECK(ask());
    hits(&request.descriptors[0], 2);
    CHECK(!ask());
    CHECK(strstr(json(), "\"durationUntilReset\":\"4s\""));
}

static void test_unread_answer(void)
{
    char room[32];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    weir__rls_answer_unread(&out);
    CHECK(out.len == 7 && !memcmp(room, "\0\0\0\0\2\x08\x02", 7));
}

/* Limits and what is left beyond 32 bits are told as the most that fits. */
static void test_large_numbers(void)
{
    struct weir__envoy *large = NULL, *kept = envoy;
    const char *text = "domain: d\ndescriptors: [{key: k, limit: fixed-window 1000g/d}, "
                       "{key: l, limit: 'fixed-window 1000g/d, fixed-window 1000g/h'}]";
    fresh();
    CHECK_INT(weir__envoy_parse(text, strlen(text), "large", &large, &err), 0);
    envoy = large;
    CHECK(ask_two("k", "l"));
    CHECK(strstr(json(), "\"requestsPerUnit\":4294967295,\"unit\":\"DAY\"},\"limitRemaining\":"
                         "4294967295"));
    CHECK(strstr(json(), "\"requestsPerUnit\":4294967295,\"unit\":\"UNKNOWN\"}"));
    weir__rls_end(&call);
    envoy = kept;
    weir__envoy_free(large);
}

static void test_grpc_answer(void)
{
    static const char expected[] =
        "\0\0\0\0\x21\x08\x02\x12\x1d\x08\x02\x12\x12\x08\x05\x10\x03\x1a"
        "\x0c"
        "five-an-hour\x18\x05\x22\x03\x08\x90\x1c";
    char room[WEIR__RLS_ANSWER_ROOM];
    fresh();
    begin("d");
    hits(add("five", "x"), 6);
    CHECK(!ask());
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    CHECK(weir__rls_answer(&call, &out));
    CHECK_INT(out.len, sizeof expected - 1);
    CHECK(!memcmp(room, expected, sizeof expected - 1));
    out = weir__buffer_over(room, 20);
    CHECK(!weir__rls_answer(&call, &out));
}

static int64_t near_ppm = 800000;

static void tallies(size_t i, uint64_t asked, uint64_t over, uint64_t near, uint64_t within,
                    uint64_t shadow)
{
    struct weir__rls_tally tally = weir__rls_tally(&call.asked[i], near_ppm);
    CHECK_INT(tally.hits, asked);
    CHECK_INT(tally.over, over);
    CHECK_INT(tally.near, near);
    CHECK_INT(tally.within, within);
    CHECK_INT(tally.shadow, shadow);
}

static void test_tallies(void)
{
    fresh();
    begin("d");
    hits(add("ten", "x"), 7);
    CHECK(ask());
    tallies(0, 7, 0, 0, 7, 0);
    hits(&request.descriptors[0], 2); /* 9 of 10: one beyond 80 % */
    CHECK(ask());
    tallies(0, 2, 0, 1, 2, 0);
    CHECK(!ask());
    tallies(0, 2, 2, 0, 0, 0);
    begin("d");
    hits(add("shady", "x"), 4);
    CHECK(ask());
    tallies(0, 4, 4, 0, 0, 4);
    CHECK(refund("ten", 1));
    tallies(0, 0, 0, 0, 0, 0);
    near_ppm = 250000; /* of 10: beyond 2, rounded down */
    begin("d");
    hits(add("ten", "near"), 4);
    CHECK(ask());
    tallies(0, 4, 0, 2, 4, 0);
    near_ppm = 0;
    tallies(0, 4, 0, 4, 4, 0);
    near_ppm = 1000000;
    tallies(0, 4, 0, 0, 4, 0);
    near_ppm = 800000;
}

/* ---- JSON requests ---- */

static int read_json(const char *text)
{
    static struct weir__json_node nodes[WEIR__RLS_JSON_NODES];
    static char copy[16384];
    size_t len = (size_t)snprintf(copy, sizeof copy, "%s", text);
    err = (weir_error){0};
    return weir__rls_read_json(copy, len, nodes, WEIR__RLS_JSON_NODES, &request, &err);
}

static void test_json_requests(void)
{
    fresh();
    CHECK(!read_json("{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"ten\","
                     "\"value\":\"\\u0061\"}]},{\"entries\":[{\"key\":\"five\"}],\"hitsAddend\":"
                     "\"2\",\"limit\":{\"requestsPerUnit\":7,\"unit\":\"DAY\"}}],"
                     "\"hits_addend\":3}"));
    CHECK(ask() && left(0) == 7 && left(1) == 5);
    CHECK(!read_json("{\"descriptors\":[{\"hits_addend\":1,\"is_negative_hits\":true,\"limit\":"
                     "{\"requests_per_unit\":\"7\",\"unit\":4},\"entries\":[{\"value\":\"\","
                     "\"key\":\"five\"}]}],\"domain\":\"d\",\"hitsAddend\":null}"));
    CHECK(ask() && left(0) == 6);
    CHECK_INT(read_json("{}"), 0);
    CHECK_INT(plan_it(), WEIR_EINVAL);
    CHECK_INT(weir__rls_http_status(WEIR_EINVAL), 400);
    CHECK_INT(weir__rls_http_status(WEIR_ESHARED), 400);
    CHECK_INT(weir__rls_http_status(WEIR_EUNREACHABLE), 503);
    CHECK_INT(weir__rls_http_status(WEIR_EFULL), 503);
}

static void test_json_largest(void)
{
    static char text[16384];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    weir__put_text(&out, "{\"domain\":\"d\",\"hitsAddend\":1,\"descriptors\":[");
    for (int i = 0; i < WEIR__RLS_DESCRIPTORS_MAX; i++) {
        weir__put_text(&out, i ? ",{\"entries\":[" : "{\"entries\":[");
        for (int j = 0; j < WEIR__RLS_ENTRIES_MAX; j++)
            weir__put_text(&out, j ? ",{\"key\":\"k\",\"value\":\"v\"}"
                                   : "{\"key\":\"k\",\"value\":\"v\"}");
        weir__put_text(&out, "],\"limit\":{\"unit\":1,\"requestsPerUnit\":1},\"hitsAddend\":1}");
    }
    weir__put_text(&out, "]}");
    CHECK(!out.cut);
    CHECK_INT(read_json(text), 0);
    CHECK_INT(request.descriptor_count, WEIR__RLS_DESCRIPTORS_MAX);
    CHECK_INT(request.descriptors[15].entry_count, WEIR__RLS_ENTRIES_MAX);
}

static void refuses_json(const char *text, const char *words)
{
    CHECK_INT(read_json(text), WEIR_EINVAL);
    if (!CHECK(strstr(err.message, words)))
        printf("    found \"%s\"\n", err.message);
}

static void test_json_refusals(void)
{
    refuses_json("", "");
    refuses_json("{", "");
    refuses_json("[]", "it must be an object");
    refuses_json("{\"dominion\":1}", "it has no field \"dominion\"");
    refuses_json("{\"domain\":1}", "texts");
    refuses_json("{\"hitsAddend\":-1}", "whole numbers");
    refuses_json("{\"hitsAddend\":\"\"}", "whole numbers");
    refuses_json("{\"hitsAddend\":\"1x\"}", "whole numbers");
    refuses_json("{\"hitsAddend\":4294967296}", "whole numbers");
    refuses_json("{\"descriptors\":{}}", "descriptors must be an array");
    refuses_json("{\"descriptors\":[1]}", "a descriptor must be an object");
    refuses_json("{\"descriptors\":[{\"key\":\"a\"}]}", "a descriptor has no field \"key\"");
    refuses_json("{\"descriptors\":[{\"entries\":1}]}", "entries must be an array");
    refuses_json("{\"descriptors\":[{\"entries\":[{\"k\":1}]}]}", "an entry has no field \"k\"");
    refuses_json("{\"descriptors\":[{\"entries\":[{\"key\":null,\"value\":{}}]}]}", "texts");
    refuses_json("{\"descriptors\":[{\"limit\":5}]}", "limit must be an object");
    refuses_json("{\"descriptors\":[{\"limit\":{\"unit\":\"EON\"}}]}", "unit is SECOND");
    refuses_json("{\"descriptors\":[{\"limit\":{\"unit\":true}}]}", "unit is SECOND");
    refuses_json("{\"descriptors\":[{\"hitsAddend\":1.5}]}", "whole number");
    refuses_json("{\"descriptors\":[{\"isNegativeHits\":1}]}", "true or false");
    refuses_json("{\"descriptors\":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}",
                 "more than 16 descriptors");
}

int main(void)
{
    rls_open();
    test_json_answers();
    test_headers();
    test_shadow_reset();
    test_unread_answer();
    test_large_numbers();
    test_grpc_answer();
    test_tallies();
    test_json_requests();
    test_json_largest();
    test_json_refusals();
    rls_close();
    return test_report();
}
