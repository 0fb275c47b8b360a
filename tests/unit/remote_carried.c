/* redis:// without sockets: what is to be sent, and what becomes of every kind of reply. Real
 * servers are in tests/homes/bindings/lua_redis.py; here are those that lie. */
#include "store_test.h"

static weir_error err;
static weir_redis *redis;

static weir_redis *carried_open(const char *url)
{
    weir_redis *ret = NULL;
    CHECK_INT(weir_redis_open(url, &ret, &err), 0);
    return ret;
}

static weir_redis_call *carried_ask(const char *verb, const weir_limit *limit, const char *receipt,
                                    uint64_t lease)
{
    weir_request request = weir_request_make(weir_key_text("ann"), limit);
    weir_redis_call *call = NULL;
    CHECK_INT(weir_redis_ask(redis, verb, &request, 1, receipt, lease, &call, &err), 0);
    return call;
}

/* What it sends, with spaces where its lines end. */
static const char *carried_said(weir_redis_call *call, bool fresh)
{
    static char text[400];
    const char *data = "";
    size_t len = 0, n = 0;
    CHECK_INT(weir_redis_write(call, fresh, &data, &len, &err), 0);
    for (size_t i = 0; i < len && n < sizeof text - 1; i++) {
        if (data[i] != '\r')
            text[n++] = data[i] == '\n' ? ' ' : data[i];
    }
    text[n] = 0;
    return text;
}

/* Feeds a reply byte by byte; the last code. */
static int carried_feed(weir_redis_call *call, const char *reply)
{
    int code = WEIR_REDIS_MORE;
    size_t used;
    for (; *reply && code == WEIR_REDIS_MORE; reply++) {
        code = weir_redis_read(call, reply, 1, &used, &err);
        CHECK_INT(used, 1);
    }
    CHECK(!*reply);
    return code;
}

#define ALLOWED "*7\r\n:1\r\n:20\r\n:19\r\n:0\r\n:100000\r\n:0\r\n$17\r\nw3-1700000000-1-5\r\n"

static void test_one_take(void)
{
    weir_limit *limit = test_limit("token-bucket 10/s burst 20");
    redis = carried_open("redis://ann:pw@host:7000/3?deadline=20ms&prefix=p:");
    CHECK_TEXT(weir_redis_host(redis), "host");
    CHECK_INT(weir_redis_port(redis), 7000);
    CHECK_INT(weir_redis_tls(redis), 0);
    CHECK_INT(weir_redis_deadline_us(redis), 20000);
    weir_redis_call *call = carried_ask("take", limit, NULL, 0);
    CHECK(!weir_redis_is_clean(call) && !weir_redis_decision(call, -1));
    CHECK_TEXT(carried_said(call, true), "*3 $4 AUTH $3 ann $2 pw *2 $6 SELECT $1 3 ");
    CHECK_INT(carried_feed(call, "+OK\r\n+OK\r\n"), WEIR_REDIS_AGAIN);
    CHECK_TEXT(carried_said(call, false),
               "*3 $9 weir.take $5 p:ann $26 token-bucket 10/s burst 20 ");
    CHECK_INT(carried_feed(call, "-ERR unknown command 'weir.take'\r\n"), WEIR_REDIS_AGAIN);
    CHECK(strstr(carried_said(call, false), "*9 $7 EVALSHA $40 "));
    CHECK_INT(carried_feed(call, "-NOSCRIPT No matching script.\r\n"), WEIR_REDIS_AGAIN);
    CHECK(strstr(carried_said(call, false), "*9 $4 EVAL $"));
    CHECK_INT(carried_feed(call, ALLOWED), 0);
    const weir_decision *d = weir_redis_decision(call, -1), *row = weir_redis_decision(call, 0);
    CHECK(d && row && weir_redis_is_clean(call) && !weir_redis_decision(call, 1));
    CHECK(d->allowed && d->remaining == 19 && d->charged == 1 && d->time_us == 1700000000);
    CHECK(row->allowed && row->remaining == 19 && !d->degraded);
    size_t used;
    CHECK_INT(weir_redis_read(call, "x", 1, &used, &err), WEIR_EINVAL); /* it is over */
    weir_redis_call_free(call);
    call = carried_ask("take", limit, NULL, 0); /* it is known by now that there is no module */
    CHECK(strstr(carried_said(call, false), "EVALSHA"));
    weir_redis_call_free(call);
    call = carried_ask("take", limit, NULL, 0); /* but not of a new connection */
    CHECK(strstr(carried_said(call, true), "AUTH"));
    CHECK_INT(carried_feed(call, "+OK\r\n+OK\r\n"), WEIR_REDIS_AGAIN);
    CHECK(strstr(carried_said(call, false), "weir.take"));
    weir_redis_call_free(call);
    weir_redis_close(redis);
    weir_limit_free(limit);
}

static void test_other_verbs(void)
{
    weir_limit *limit = test_limit("fixed-window 9/h"), *slots = test_limit("concurrent 2");
    const struct {
        const char *verb;
        weir_limit *limit;
        const char *receipt;
        uint64_t lease;
        const char *reply;
        int code;
    } cases[] = {
        {"settle", limit, "w3-5-1-7", 0, "+OK\r\n", 0},
        {"settle", limit, "w3-5-1-7", 0, "+SETTLED\r\n", WEIR_ESETTLED},
        {"renew", slots, NULL, 5, ":1\r\n", 0},
        {"renew", slots, NULL, 5, ":0\r\n", WEIR_ENOLEASE},
        {"release", slots, NULL, 5, ":1\r\n", 0},
        {"reset", NULL, NULL, 0, ":0\r\n", 0},
        {"take", limit, NULL, 0, "-WEIRSTATE key\r\n", WEIR_EFOREIGN},
        {"take", limit, NULL, 0, "-WEIRFULL key\r\n", WEIR_EFULL},
        {"take", limit, NULL, 0, "-NOPERM no key\r\n", WEIR_ESYSTEM},
        {"take", limit, NULL, 0, "-OOM no room\r\n", WEIR_EUNREACHABLE},
        {"take", limit, NULL, 0, "-MOVED 5 a:1\r\n", WEIR_EUNREACHABLE},
    };
    redis = carried_open("redis://host?engine=module");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_redis_call *call =
            carried_ask(cases[i].verb, cases[i].limit, cases[i].receipt, cases[i].lease);
        CHECK(strstr(carried_said(call, true), cases[i].verb));
        CHECK_INT(carried_feed(call, cases[i].reply), cases[i].code);
        CHECK(weir_redis_is_clean(call));
        weir_redis_call_free(call);
    }
    weir_redis_close(redis);
    weir_limit_free(limit);
    weir_limit_free(slots);
}

/* A server that has no memory for a script: to give something back there is another one. */
static void test_without_memory(void)
{
    weir_limit *slots = test_limit("concurrent 2");
    redis = carried_open("redis://host?engine=lua");
    weir_redis_call *call = carried_ask("release", slots, NULL, 5);
    CHECK(strstr(carried_said(call, true), "EVALSHA"));
    CHECK_INT(carried_feed(call, "-OOM no room\r\n"), WEIR_REDIS_AGAIN);
    CHECK(strstr(carried_said(call, false), "EVALSHA"));
    CHECK_INT(carried_feed(call, "-OOM no room\r\n"), WEIR_EUNREACHABLE);
    weir_redis_call_free(call);
    weir_redis_close(redis);
    weir_limit_free(slots);
}

/* Replies that are none: the connection is not used again, and the fallback decides. */
static void test_lies(void)
{
    static const char *const lies[] = {
        "HTTP/1.1 400 Bad Request\r\n",
        "*7\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n",
        "*1\r\n:1\r\n",
        ":5\r\n",
        "+OK\r\n",
        "$999999999\r\n",
        "*999999999\r\n",
        "$-2\r\n",
        "-LOADING data\r\n",
        "-READONLY replica\r\n",
        "_\r\n",
        "*7\r\n:1\r\n:1\r\n:1\r\n:0\r\n:0\r\n:0\r\n$2\r\nw9\r\n",
    };
    weir_limit *limit = test_limit("fixed-window 9/h");
    redis = carried_open("redis://host?engine=module&fail=local");
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        weir_redis_call *call = carried_ask("take", limit, NULL, 0);
        carried_said(call, true);
        int code = WEIR_REDIS_MORE;
        size_t used;
        for (const char *at = lies[i]; *at && code == WEIR_REDIS_MORE; at++)
            code = weir_redis_read(call, at, 1, &used, &err);
        CHECK_INT(code, WEIR_EUNREACHABLE);
        CHECK(!weir_redis_is_clean(call) && !weir_redis_decision(call, -1));
        CHECK_INT(weir_redis_fall_back(call, &err), 0);
        const weir_decision *d = weir_redis_decision(call, -1);
        CHECK(d && d->degraded && d->charged == 0 && d->allowed == (i < 9));
        weir_redis_call_free(call);
    }
    weir_redis_close(redis);
    weir_limit_free(limit);
}

/* Two calls over one connection: what one does not use is the other's. */
static void test_in_turn(void)
{
    static const char both[] = ALLOWED ALLOWED;
    weir_limit *limit = test_limit("token-bucket 10/s burst 20");
    redis = carried_open("redis://host?engine=module");
    weir_redis_call *one = carried_ask("take", limit, NULL, 0),
                    *two = carried_ask("take", limit, NULL, 0);
    size_t used, len = strlen(both);
    carried_said(one, true);
    carried_said(two, false);
    CHECK_INT(weir_redis_read(one, both, len, &used, &err), 0);
    CHECK_INT(used, len / 2);
    CHECK_INT(weir_redis_read(two, both + used, len - used, &used, &err), 0);
    CHECK_INT(used, len / 2);
    weir_redis_call_free(one);
    weir_redis_call_free(two);
    weir_redis_close(redis);
    weir_limit_free(limit);
}

/* What the fallback was charged is given back there, also if the server answers meanwhile. */
static void test_settled_fallback(void)
{
    weir_limit *limit = test_limit("fixed-window 4/h");
    char receipt[WEIR_RECEIPT_SIZE];
    redis = carried_open("redis://h?fail=local&peers=2&engine=module");
    for (int i = 0; i < 4; i++) {
        weir_redis_call *call = carried_ask("take", limit, NULL, 0);
        CHECK_INT(weir_redis_fall_back(call, &err), 0);
        weir_decision d = *weir_redis_decision(call, -1);
        CHECK(d.allowed && d.remaining == 1);
        weir_receipt(&d, receipt);
        weir_redis_call_free(call);
        weir_request request = weir_request_make(weir_key_text("ann"), limit);
        request.cost = WEIR_COST_NONE;
        CHECK_INT(weir_redis_ask(redis, "settle", &request, 1, receipt, 0, &call, &err), 0);
        if (i % 2 == 0) {
            CHECK_INT(weir_redis_fall_back(call, &err), 0);
            CHECK_INT(weir_redis_fall_back(call, &err), WEIR_ESETTLED);
        } else {
            carried_said(call, false);
            CHECK_INT(carried_feed(call, "+OK\r\n"), 0);
        }
        weir_redis_call_free(call);
    }
    weir_redis_call *call = carried_ask("settle", limit, "w3-1700000000000000-1-5", 0);
    CHECK_INT(weir_redis_fall_back(call, &err), WEIR_EUNREACHABLE); /* a charge of the server */
    weir_redis_call_free(call);
    weir_redis_close(redis);
    weir_limit_free(limit);
}

static void test_fallbacks(void)
{
    weir_limit *limit = test_limit("fixed-window 4/h"), *slots = test_limit("concurrent 1");
    const char *const urls[] = {"redis://h?fail=local&peers=2", "redis://h?fail=open",
                                "redis://h?fail=closed"};
    const int64_t left[] = {1, 4, 0};
    for (int i = 0; i < 3; i++) {
        redis = carried_open(urls[i]);
        weir_redis_call *call = carried_ask("take", limit, NULL, 0);
        CHECK_INT(weir_redis_fall_back(call, &err), 0);
        const weir_decision *d = weir_redis_decision(call, -1), *row = weir_redis_decision(call, 0);
        CHECK(d && row && d->degraded && row->degraded && d->remaining == left[i]);
        CHECK(d->allowed == (i < 2));
        weir_redis_call_free(call);
        call = carried_ask("reset", NULL, NULL, 0);
        CHECK_INT(weir_redis_fall_back(call, &err), WEIR_EUNREACHABLE);
        weir_redis_call_free(call);
        call = carried_ask("renew", slots, NULL, 5);
        CHECK_INT(weir_redis_fall_back(call, &err), WEIR_EUNREACHABLE);
        weir_redis_call_free(call);
        weir_redis_close(redis);
    }
    weir_limit_free(limit);
    weir_limit_free(slots);
}

static void check_refused(const char *verb, const weir_request *requests, size_t n, int code,
                          const char *words)
{
    weir_redis_call *call = NULL;
    memset(&err, 0, sizeof err);
    CHECK_INT(weir_redis_ask(redis, verb, requests, n, NULL, 0, &call, &err), code);
    if (!CHECK(strstr(err.message, words) && !call))
        printf("%s: %s\n", verb, err.message);
}

static void test_mistakes(void)
{
    weir_limit *limit = test_limit("fixed-window 4/h");
    weir_request good = weir_request_make(weir_key_text("ann"), limit), bad = good;
    weir_request three[] = {good, good, good};
    redis = carried_open("redis://h");
    check_refused("tale", &good, 1, WEIR_EINVAL, "invalid verb \"tale\"");
    check_refused("takeall", &good, 1, WEIR_EINVAL, "invalid verb");
    check_refused("take", &good, 17, WEIR_EINVAL, "17 requests");
    check_refused("take", &good, 0, WEIR_EINVAL, "0 requests");
    check_refused("take", three, 3, WEIR_ESHARED, "");
    check_refused("reset", three, 3, WEIR_EINVAL, "reset has one request, not 3");
    check_refused("settle", &good, 1, WEIR_ERECEIPT, "invalid receipt");
    check_refused("renew", &good, 1, WEIR_EUNSUPPORTED, "");
    bad.cost = -5;
    check_refused("take", &bad, 1, WEIR_EINVAL, "invalid cost -5");
    bad = good;
    bad.key.len = 0;
    check_refused("take", &bad, 1, WEIR_EINVAL, "");
    check_refused("reset", &bad, 1, WEIR_EINVAL, "invalid key of 0 bytes");
    bad = good;
    bad.limit = NULL;
    check_refused("take", &bad, 1, WEIR_EINVAL, "");
    check_refused("settle", &bad, 1, WEIR_EINVAL, "");
    three[1].key = weir_key_text("bob");
    three[1].wait_us = 5;
    check_refused("take", three, 2, WEIR_EUNSUPPORTED, "one wait_us");
    three[1].wait_us = three[0].wait_us;
    check_refused("peek", three, 2, WEIR_EUNSUPPORTED, "one key");
    weir_redis_call *call = NULL;
    CHECK_INT(weir_redis_ask(NULL, "take", &good, 1, NULL, 0, &call, &err), WEIR_EINVAL);
    CHECK_INT(weir_redis_write(NULL, true, NULL, NULL, NULL), WEIR_EINVAL);
    CHECK_INT(weir_redis_read(NULL, NULL, 0, NULL, NULL), WEIR_EINVAL);
    CHECK_INT(weir_redis_fall_back(NULL, NULL), WEIR_EINVAL);
    CHECK(!weir_redis_is_clean(NULL) && !weir_redis_decision(NULL, 0));
    CHECK_TEXT(weir_redis_host(NULL), "");
    CHECK(weir_redis_port(NULL) == 0 && weir_redis_tls(NULL) == 0);
    CHECK(weir_redis_deadline_us(NULL) == 0 && weir_redis_set_time(NULL, 5) == WEIR_EINVAL);
    weir_redis_call_free(NULL);
    weir_redis_close(NULL);
    weir_redis_close(redis);
    redis = NULL;
    CHECK_INT(weir_redis_open("redis+cluster://h", &redis, &err), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_redis_open("redis+sentinel://h/m", &redis, &err), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_redis_open("redis://h?engine=function", &redis, &err), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_redis_open("rediss://h?ca=/x", &redis, &err), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_redis_open("memory:1m", &redis, &err), WEIR_EURL);
    CHECK_INT(weir_redis_open(NULL, &redis, &err), WEIR_EINVAL);
    CHECK_INT(weir_redis_open("redis://h", NULL, &err), WEIR_EINVAL);
    CHECK(!redis);
    redis = carried_open("redis+unix:///tmp/socket");
    CHECK_TEXT(weir_redis_host(redis), "/tmp/socket");
    CHECK_INT(weir_redis_port(redis), 0);
    weir_redis_close(redis);
    redis = carried_open("rediss://h?verify=no");
    CHECK_INT(weir_redis_tls(redis), 1);
    weir_redis_close(redis);
    weir_limit_free(limit);
}

/* An address with slices: what is asked is reduced, what is answered is as written. */
static void test_sliced(void)
{
    weir_limit *limit = test_limit("token-bucket 10/s burst 100"),
               *own = test_limit("token-bucket 10/s burst 100 cost 81"),
               *small = test_limit("token-bucket 10/s burst 9, fixed-window 100/h");
    redis = carried_open("redis://host?engine=module&slices=20%&peers=5");
    weir_redis_call *call = carried_ask("take", limit, NULL, 0);
    CHECK_TEXT(carried_said(call, true),
               "*3 $9 weir.take $8 weir:ann $26 token-bucket 10/s burst 80 ");
    CHECK_INT(carried_feed(call, "*7\r\n:1\r\n:80\r\n:79\r\n:0\r\n:100000\r\n:0\r\n"
                                 "$17\r\nw3-1700000000-1-7\r\n"),
              0);
    CHECK_INT(weir_redis_decision(call, -1)->limit, 100);
    CHECK_INT(weir_redis_decision(call, 0)->limit, 100);
    CHECK_INT(weir_redis_decision(call, 0)->remaining, 79);
    weir_redis_call_free(call);
    call = carried_ask("take", own, NULL, 0); /* the server would refuse such a limit */
    CHECK_TEXT(carried_said(call, true), "*1 $4 PING ");
    CHECK_INT(carried_feed(call, "+PONG\r\n"), 0);
    const weir_decision *d = weir_redis_decision(call, -1);
    CHECK(d && !d->allowed && d->limit == 100 && d->retry_after_us == WEIR_NEVER && !d->charged);
    CHECK(weir_redis_is_clean(call));
    weir_redis_call_free(call);
    call = carried_ask("peek", small, NULL, 0); /* too small, and a kind of which nothing is kept */
    CHECK(strstr(carried_said(call, true), "token-bucket 10/s burst 9, fixed-window 100/h "));
    weir_redis_call_free(call);
    weir_redis_close(redis);
    weir_limit_free(limit);
    weir_limit_free(own);
    weir_limit_free(small);
}

/* Any bytes in any portions: never a crash, and always an end. */
static void test_noise(uint64_t seed)
{
    static const char letters[] = "*$:+-_#\r\n0179wOK\0 ";
    weir_limit *limit = test_limit("fixed-window 9/h, token-bucket 5/s");
    redis = carried_open("redis://host");
    srand((unsigned)seed);
    for (int i = 0; i < 20000; i++) {
        weir_redis_call *call = carried_ask("take", limit, NULL, 0);
        carried_said(call, rand() % 2);
        int code = WEIR_REDIS_MORE;
        for (int j = 0; j < 30 && code == WEIR_REDIS_MORE; j++) {
            char data[16];
            size_t len = (size_t)rand() % sizeof data, used = 99;
            for (size_t k = 0; k < len; k++)
                data[k] = letters[(size_t)rand() % (sizeof letters - 1)];
            code = weir_redis_read(call, data, len, &used, &err);
            CHECK(used <= len);
        }
        weir_redis_call_free(call);
    }
    weir_redis_close(redis);
    weir_limit_free(limit);
}

int main(int argc, char **argv)
{
    test_one_take();
    test_other_verbs();
    test_without_memory();
    test_lies();
    test_in_turn();
    test_fallbacks();
    test_settled_fallback();
    test_mistakes();
    test_sliced();
    test_noise(test_seed(argc > 1 ? argv[1] : NULL));
    return test_report();
}
