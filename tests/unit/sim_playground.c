/*
 * The playground: what a simulation answers, held against the arithmetic of a load, the promises of
 * the limits and a second, plainer count; and what it refuses.
 *
 *     sim_playground [SEED]
 */
#include "base/random.h"
#include "limit/explain.h"
#include "sim/playground.h"
#include "sim/plot.h"
#include "sim/virtual_clock.h"
#include "test.h"
#include "wire/json.h"

#include <stdlib.h>
#include <time.h>

#define NODES 8192

static char room[WEIR__PLAY_ROOM];
static struct weir__json_node nodes[NODES];
static weir_error err;
static int code;

/* Simulates; the answer's nodes, or NULL with code and err. */
static const struct weir__json_node *play(const char *text)
{
    char body[8192];
    snprintf(body, sizeof body, "%s", text);
    struct weir__buffer answer = weir__buffer_over(room, sizeof room);
    err = (weir_error){0};
    code = weir__simulate(body, strlen(body), NULL, &answer, &err);
    if (code) {
        CHECK_INT(answer.len, 0);
        return NULL;
    }
    int count = weir__json_read(room, answer.len, nodes, NODES, &err);
    if (!CHECK(count > 0))
        printf("not JSON: %s\n", err.message);
    return count > 0 ? nodes : NULL;
}

static const struct weir__json_node *member(const struct weir__json_node *object, const char *name)
{
    const struct weir__json_node *node = weir__json_member(nodes, object, name);
    if (!CHECK(node != NULL)) {
        printf("no member %s\n", name);
        exit(1);
    }
    return node;
}

static const struct weir__json_node *element(const struct weir__json_node *list, size_t i)
{
    const struct weir__json_node *node = list + 1;
    CHECK(i < list->len);
    while (i--)
        node = nodes + node->next;
    return node;
}

static int64_t number(const struct weir__json_node *object, const char *name)
{
    int64_t value = -1;
    CHECK(weir__json_integer(member(object, name), 0, INT64_MAX, &value));
    return value;
}

static int64_t seconds_us(const struct weir__json_node *object, const char *name)
{
    int64_t value = -1;
    CHECK(weir__json_seconds(member(object, name), &value));
    return value;
}

static int64_t sum(const struct weir__json_node *list)
{
    int64_t total = 0;
    const struct weir__json_node *node = list + 1;
    for (size_t i = 0; i < list->len; i++, node = nodes + node->next) {
        int64_t value = -1;
        CHECK(weir__json_integer(node, 0, INT64_MAX, &value));
        total += value;
    }
    return total;
}

static int64_t bin(const struct weir__json_node *object, const char *name, size_t i)
{
    int64_t value = -1;
    CHECK(weir__json_integer(element(member(object, name), i), 0, INT64_MAX, &value));
    return value;
}

static void text_is(const struct weir__json_node *object, const char *name, const char *expected)
{
    const struct weir__json_node *node = member(object, name);
    CHECK_INT(node->len, strlen(expected));
    CHECK(node->len == strlen(expected) && !memcmp(node->text, expected, node->len));
}

static const struct weir__json_node *limit(const struct weir__json_node *answer, size_t i)
{
    return element(member(answer, "limits"), i);
}

static const struct weir__json_node *rule(const struct weir__json_node *answer, size_t i)
{
    return element(member(limit(answer, i), "rules"), 0);
}

/* ---- what it answers ---- */

static void test_steady(void)
{
    const struct weir__json_node *a =
        play("{\"limits\":[\"Token-Bucket 10/s burst 20\",\"fixed-window 600/m\"],"
             "\"load\":{\"kind\":\"steady\",\"rate\":30,\"seconds\":60}}");
    if (!CHECK(a != NULL))
        return;
    CHECK_INT(number(a, "requests"), 1800);
    CHECK_INT(seconds_us(a, "seconds"), 60000000);
    CHECK_INT(sum(member(a, "arrivals")), 1800);
    CHECK(member(a, "arrivals")->len <= WEIR__BINS_MAX);
    int64_t bin_us = seconds_us(a, "bin");
    for (size_t i = 0; i < member(a, "arrivals")->len; i++) /* a steady load looks steady */
        CHECK_INT(bin(a, "arrivals", i), 30 * bin_us / 1000000);

    const struct weir__json_node *bucket = limit(a, 0);
    text_is(bucket, "limit", "token-bucket 10/s burst 20");
    CHECK_INT(number(bucket, "admitted"), 619); /* 20 at once, 599.8 refilled before the last */
    CHECK_INT(number(bucket, "denied"), 1800 - 619);
    CHECK_INT(number(bucket, "delayed"), 0);
    CHECK_INT(number(rule(a, 0), "bound"), 30);
    CHECK_INT(number(rule(a, 0), "key_bytes"), 40);
    CHECK_INT(number(limit(a, 1), "admitted"), 600);
    CHECK_INT(bin(limit(a, 1), "admitted_bins", 0), 30 * bin_us / 1000000);
    CHECK_INT(bin(limit(a, 1), "admitted_bins", member(a, "arrivals")->len - 1), 0);
}

/* The reason for the playground: 100 a minute that lets 200 through within twelve seconds. */
static void test_edge(void)
{
    const struct weir__json_node *a = play(
        "{\"limits\":[\"fixed-window 100/m\",\"sliding-log 100/m\"],\"load\":{\"kind\":\"edge\","
        "\"burst\":100,\"every\":60,\"seconds\":120}}");
    if (!CHECK(a != NULL))
        return;
    CHECK_INT(number(a, "requests"), 200);
    CHECK_INT(number(limit(a, 0), "admitted"), 200);
    CHECK_INT(number(rule(a, 0), "most"), 200);
    CHECK_INT(number(rule(a, 0), "bound"), 200);
    CHECK_INT(seconds_us(rule(a, 0), "most_from"), 54030000); /* a tenth of a window before */
    CHECK_INT(number(rule(a, 0), "count"), 100);
    CHECK_INT(seconds_us(rule(a, 0), "first_edge"), 0);
    CHECK_INT(number(limit(a, 1), "admitted"), 100);
    CHECK_INT(number(rule(a, 1), "most"), 100);
    CHECK(weir__json_member(nodes, rule(a, 1), "first_edge") == NULL);
}

/* Every second edge: four windows hold two attacks, and the windows need not divide a day. */
static void test_edge_of_odd_window(void)
{
    const struct weir__json_node *a =
        play("{\"limits\":[\"fixed-window 5/7s\"],\"load\":{\"kind\":\"edge\",\"burst\":5,"
             "\"every\":7,\"seconds\":28}}");
    if (!CHECK(a != NULL))
        return;
    CHECK_INT(number(a, "requests"), 20);
    CHECK_INT(number(limit(a, 0), "admitted"), 20);
    CHECK_INT(number(rule(a, 0), "most"), 10);
}

static void test_delays(void)
{
    const struct weir__json_node *a =
        play("{\"limits\":[\"leaky-bucket 1/s burst 4\",\"leaky-bucket 1/s burst 4 nodelay\"],"
             "\"load\":{\"kind\":\"bursts\",\"burst\":8,\"every\":4,\"seconds\":4}}");
    if (!CHECK(a != NULL))
        return;
    const struct weir__json_node *queue = limit(a, 0);
    CHECK_INT(number(queue, "admitted"), 5);
    CHECK_INT(number(queue, "denied"), 3);
    CHECK_INT(number(queue, "delayed"), 4);
    CHECK_INT(seconds_us(queue, "longest_delay"), 4000000);
    CHECK_INT(number(queue, "after_end"), 3); /* at 2, 3; then 4, 5 and 6 */
    CHECK_INT(sum(member(queue, "admitted_bins")), 5);
    CHECK_INT(sum(member(queue, "ahead_bins")), 2);
    CHECK_INT(sum(member(queue, "waited_bins")), 1);
    CHECK_INT(number(rule(a, 0), "most"), 1);
    CHECK_INT(number(rule(a, 1), "most"), 5);
    CHECK_INT(number(limit(a, 1), "delayed"), 0);
}

static void test_wait(void)
{
    const char *load = "{\"limits\":[\"token-bucket 1/s burst 1\"],\"load\":{\"kind\":\"bursts\","
                       "\"burst\":6,\"every\":10,\"seconds\":10,\"wait\":%s}}";
    const struct {
        const char *wait;
        int64_t admitted;
    } cases[] = {{"0", 1}, {"null", 1}, {"2.5", 3}, {"\"any\"", 6}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        char body[256];
        snprintf(body, sizeof body, load, cases[i].wait);
        const struct weir__json_node *a = play(body);
        if (CHECK(a != NULL))
            CHECK_INT(number(limit(a, 0), "admitted"), cases[i].admitted);
    }
}

static void test_keys_and_costs(void)
{
    const struct weir__json_node *a =
        play("{\"limits\":[\"sliding-log 10/m\"],\"load\":{\"kind\":\"bursts\",\"burst\":30,"
             "\"every\":60,\"seconds\":60,\"keys\":3,\"cost\":2}}");
    if (!CHECK(a != NULL))
        return;
    CHECK_INT(number(limit(a, 0), "admitted"), 15); /* five of cost 2 a key */
    CHECK_INT(number(rule(a, 0), "most"), 10);      /* costs, of one key */
    CHECK_INT(number(a, "keys"), 3);
    CHECK_INT(number(a, "cost"), 2);
}

/* Sizes of one limit take turns on one state, key by key. */
static void test_shared(void)
{
    const struct weir__json_node *a =
        play("{\"limits\":[\"fixed-window 60/m\",\"fixed-window 30/m\"],\"shared\":true,"
             "\"load\":{\"kind\":\"steady\",\"rate\":20,\"seconds\":60}}");
    if (!CHECK(a != NULL))
        return;
    CHECK_INT(number(limit(a, 0), "requests"), 600);
    CHECK_INT(number(limit(a, 0), "admitted"), 45); /* together they are 60 */
    CHECK_INT(number(limit(a, 1), "admitted"), 15); /* until 30 were used */
    CHECK_INT(number(limit(a, 1), "denied"), 585);
    CHECK_INT(sum(member(limit(a, 1), "arrivals")), 600);
    a = play(
        "{\"limits\":[\"sliding-log 60/m\",\"sliding-log 30/m\"],\"shared\":true,"
        "\"load\":{\"kind\":\"bursts\",\"burst\":400,\"every\":60,\"keys\":2,\"seconds\":60}}");
    if (!CHECK(a != NULL))
        return;
    CHECK_INT(number(limit(a, 0), "admitted"), 90); /* of each key */
    CHECK_INT(number(limit(a, 1), "admitted"), 30);
    a = play("{\"limits\":[\"fixed-window 60/m\",\"fixed-window 30/h\"],\"shared\":false,"
             "\"load\":{\"kind\":\"steady\",\"rate\":20,\"seconds\":60}}");
    CHECK(a && number(limit(a, 0), "admitted") == 60 && !weir__json_member(nodes, a, "shared"));
    CHECK(a && !weir__json_member(nodes, limit(a, 0), "requests"));
}

static void test_background(void)
{
    const struct weir__json_node *a =
        play("{\"limits\":[\"token-bucket 1000/s\"],\"load\":{\"kind\":\"bursts\",\"rate\":2.5,"
             "\"burst\":10,\"every\":5,\"seconds\":20}}");
    if (!CHECK(a != NULL))
        return;
    CHECK_INT(number(a, "requests"), 50 + 40);
    CHECK_INT(number(limit(a, 0), "admitted"), 90);
}

/* The same seed gives the same requests, another one others; about as many as asked for. */
static void test_poisson(void)
{
    const char *load =
        "{\"limits\":[\"token-bucket 50/s\"],\"load\":{\"kind\":\"poisson\",\"rate\":"
        "100,\"seconds\":100,\"keys\":7,\"seed\":%d}}";
    static char first[WEIR__PLAY_ROOM];
    char body[256];
    int64_t requests[3];
    const int seeds[] = {5, 5, 6};
    for (size_t i = 0; i < 3; i++) {
        snprintf(body, sizeof body, load, seeds[i]);
        struct weir__buffer answer = weir__buffer_over(room, sizeof room);
        CHECK_INT(weir__simulate(body, strlen(body), NULL, &answer, &err), 0);
        if (i == 0)
            memcpy(first, room, answer.len + 1);
        CHECK_INT(strcmp(first, room) == 0, i < 2);
        snprintf(body, sizeof body, load, seeds[i]);
        const struct weir__json_node *a = play(body);
        requests[i] = a ? number(a, "requests") : 0;
        CHECK(requests[i] > 10000 - 600 && requests[i] < 10000 + 600);
    }
    CHECK_INT(requests[0], requests[1]);
    CHECK(requests[0] != requests[2]);
}

/* Several limits in one text are charged to all or none, and each tells its own. */
static void test_list(void)
{
    const struct weir__json_node *a = play(
        "{\"limits\":[\"token-bucket 10/s, fixed-window 100/m\"],\"load\":{\"kind\":\"steady\","
        "\"rate\":20,\"seconds\":60}}");
    if (!CHECK(a != NULL))
        return;
    const struct weir__json_node *rules = member(limit(a, 0), "rules");
    CHECK_INT(rules->len, 2);
    CHECK_INT(number(limit(a, 0), "admitted"), 100);
    text_is(element(rules, 1), "limit", "fixed-window 100/m");
    CHECK_INT(number(element(rules, 1), "most"), 100);
    CHECK_INT(number(element(rules, 0), "bound"), 20);
}

/* ---- at random: the sums agree, the promises are kept ---- */

static uint64_t random_state;

static int64_t below(int64_t n)
{
    return (int64_t)(weir__random_next(&random_state) % (uint64_t)n);
}

static const char *const shapes[] = {"token-bucket 5/s burst 9",
                                     "token-bucket 5/s burst 9 stepped",
                                     "leaky-bucket 5/s burst 7",
                                     "leaky-bucket 5/s burst 7 nodelay",
                                     "leaky-bucket 5/s burst 7 delay 3",
                                     "fixed-window 20/4s",
                                     "fixed-window 20/4s from-first",
                                     "sliding-log 20/4s",
                                     "sliding-window 20/4s",
                                     "sliding-counter 20/4s",
                                     "smooth 5/s burst-for 2s",
                                     "warmup 5/s over 3s",
                                     "concurrent 20 lease 4s"};

static void check_sums(const struct weir__json_node *a, const struct weir__json_node *one)
{
    int64_t admitted = number(one, "admitted");
    CHECK_INT(admitted + number(one, "denied"), number(a, "requests"));
    CHECK_INT(sum(member(one, "admitted_bins")), admitted);
    CHECK_INT(sum(member(one, "ahead_bins")) + number(one, "after_end"), admitted);
    CHECK(number(one, "delayed") <= admitted);
    CHECK_INT(seconds_us(one, "longest_delay") > 0, number(one, "delayed") > 0);
    CHECK_INT(member(one, "admitted_bins")->len, member(a, "arrivals")->len);
    for (size_t i = 0; i < member(a, "arrivals")->len; i++)
        CHECK(bin(one, "admitted_bins", i) <= bin(a, "arrivals", i));
    const struct weir__json_node *first = element(member(one, "rules"), 0);
    const struct weir__json_node *bound = member(first, "bound");
    if (bound->type == WEIR__JSON_NUMBER)
        CHECK(number(first, "most") <= number(first, "bound"));
    CHECK(number(first, "most") <= admitted * number(a, "cost"));
}

/* The most of one key in any span of the limit's period, each pair compared with each. */
static int64_t plain_most(const char *text)
{
    static struct departure {
        int64_t at_us;
        uint32_t key;
    } gone[WEIR__PLAY_REQUESTS_MAX];
    char body[512];
    struct weir__play played;
    struct weir__play_arrival *arrivals = NULL;
    size_t arrived = 0, count = 0;
    weir_store *store = NULL;
    snprintf(body, sizeof body, "%s", text);
    if (!CHECK(weir__play_read(body, strlen(body), &played, &err) == 0) ||
        !CHECK(weir__load_arrivals(&played.load, 100000, &arrivals, &arrived, &err) == 0) ||
        !CHECK(weir_store_open("memory:8m?large=50%", &store, &err) == 0))
        exit(1);
    struct weir__virtual_clock clock = {0};
    weir__virtual_clock_install(&clock, store);
    for (size_t i = 0; i < arrived; i++) {
        weir_decision d;
        weir_request request = weir_request_make(
            weir_key_bytes(&arrivals[i].key, sizeof arrivals[i].key), played.limits[0]);
        request.cost = played.load.cost ? played.load.cost : WEIR_COST_NONE;
        request.wait_us = played.load.wait_us;
        clock.now_us = weir__load_start_us(&played.load) + arrivals[i].at_us;
        if (CHECK(weir_take_all(store, &request, 1, &d) == 0) && d.allowed)
            gone[count++] = (struct departure){arrivals[i].at_us + d.delay_us, arrivals[i].key};
    }
    int64_t most = 0, span = played.limits[0]->rules[0].period_us;
    for (size_t i = 0; i < count; i++) {
        int64_t together = 0;
        for (size_t k = 0; k < count; k++)
            together += gone[k].key == gone[i].key && gone[k].at_us >= gone[i].at_us &&
                        gone[k].at_us - gone[i].at_us < span;
        most = weir__max(most, together * played.load.cost);
    }
    weir_store_close(store);
    free(arrivals);
    weir__play_free(&played);
    return most;
}

static void test_at_random(int rounds)
{
    static const char *const kinds[] = {"steady", "bursts", "edge", "poisson"};
    static const char *const waits[] = {"null", "0", "1.5", "\"any\""};
    for (int i = 0; i < rounds; i++) {
        char body[512];
        int64_t first = below(WEIR__COUNT(shapes)), second = below(WEIR__COUNT(shapes));
        snprintf(body, sizeof body,
                 "{\"limits\":[\"%s\",\"%s\"],\"load\":{\"kind\":\"%s\",\"rate\":%d.%06d,\"burst\":"
                 "%d,\"every\":%d.%03d,\"keys\":%d,\"cost\":%d,\"seconds\":%d,\"seed\":%d,\"wait\":"
                 "%s}}",
                 shapes[first], shapes[second], kinds[below(4)], (int)(1 + below(40)),
                 (int)below(1000000), (int)(1 + below(40)), (int)(1 + below(9)), (int)below(1000),
                 (int)(1 + below(3)), (int)(1 + below(2)), (int)(1 + below(60)), (int)below(1000),
                 waits[below(4)]);
        const struct weir__json_node *a = play(body);
        long failed = test_failed;
        if (CHECK(a != NULL)) {
            check_sums(a, limit(a, 0));
            check_sums(a, limit(a, 1));
            CHECK_INT(number(rule(a, 0), "most"), plain_most(body));
        }
        if (test_failed > failed)
            printf("%s\n%s\n", body, err.message);
    }
}

/* ---- what it refuses ---- */

static void refused(const char *body, const char *part)
{
    CHECK(play(body) == NULL);
    CHECK(code == WEIR_EINVAL || code == WEIR_ESYNTAX);
    if (!CHECK(strstr(err.message, part) != NULL))
        printf("%s\nsays \"%s\", without \"%s\"\n", body, err.message, part);
}

#define LOAD(members) "{\"limits\":[\"token-bucket 1/s\"],\"load\":{" members "}}"

static void test_refusals(void)
{
    refused("", "");
    refused("[]", "the body is a list: expected an object");
    refused("{\"limits\":[\"token-bucket 1/s\"]}", "load is missing");
    refused("{\"load\":{\"kind\":\"steady\",\"rate\":1,\"seconds\":1}}", "limits is missing");
    refused("{\"limits\":[],\"load\":{}}", "limits is a list: expected a list of 1 to 6");
    refused("{\"limits\":[1],\"load\":{}}", "limits[0] is 1: expected a limit's text");
    refused("{\"limits\":[\"token-bucket 1/s\",\"token-bucket 10\"],\"load\":{}}",
            "limits[1] \"token-bucket 10\": column 14: expected a rate like 10/s");
    refused("{\"limits\":[\"a\\u0000b\"],\"load\":{}}", "limits[0]");
    refused("{\"limits\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"],\"load\":{}}", "1 to 6");
    refused("{\"limit\":\"token-bucket 1/s\"}", "unknown member \"limit\" in the body");
    refused("{\"limits\":[\"token-bucket 1/s\"],\"shared\":1,\"load\":{}}",
            "shared is 1: expected true or false");
    refused("{\"limits\":[\"token-bucket 1/s\",\"token-bucket 1/m\"],\"shared\":true,\"load\":{}}",
            "limits[1] \"token-bucket 1/m\" does not share the state of limits[0]");
    refused("{\"limits\":[\"token-bucket 1/s\",\"token-bucket 1/s, sliding-log 1/s\"],"
            "\"shared\":true,\"load\":{}}",
            "does not share the state of limits[0]");
    refused(LOAD("\"kind\":\"steady\",\"rat\":1,\"seconds\":1"), "unknown member \"rat\" in load");
    refused(LOAD("\"kind\":\"wave\",\"rate\":1,\"seconds\":1"), "load.kind is \"wave\"");
    refused(LOAD("\"rate\":1,\"seconds\":1"), "load.kind is missing");
    refused(LOAD("\"kind\":\"steady\",\"seconds\":1"), "load.rate is missing");
    refused(LOAD("\"kind\":\"steady\",\"rate\":\"5\",\"seconds\":1"), "load.rate is \"5\"");
    refused(LOAD("\"kind\":\"steady\",\"rate\":-5,\"seconds\":1"), "load.rate is -5");
    refused(LOAD("\"kind\":\"steady\",\"rate\":1000001,\"seconds\":1"), "0 to 1000000");
    refused(LOAD("\"kind\":\"steady\",\"rate\":1,\"seconds\":0"), "load.seconds is 0");
    refused(LOAD("\"kind\":\"steady\",\"rate\":1,\"seconds\":1,\"keys\":0"), "load.keys is 0");
    refused(LOAD("\"kind\":\"steady\",\"rate\":1,\"seconds\":1,\"keys\":1.5"), "load.keys is 1.5");
    refused(LOAD("\"kind\":\"steady\",\"rate\":1,\"seconds\":1,\"cost\":0"), "load.cost is 0");
    refused(LOAD("\"kind\":\"steady\",\"rate\":1,\"seconds\":1,\"wait\":\"long\""), "load.wait");
    refused(LOAD("\"kind\":\"steady\",\"rate\":1,\"seconds\":1,\"wait\":31622401"), "load.wait");
    refused(LOAD("\"kind\":\"bursts\",\"seconds\":1,\"every\":1"), "load.burst is missing");
    refused(LOAD("\"kind\":\"edge\",\"seconds\":1,\"burst\":1"), "load.every is missing");
    refused(LOAD("\"kind\":\"steady\",\"rate\":0.1,\"seconds\":1"), "no request comes");
    refused(LOAD("\"kind\":\"steady\",\"rate\":0,\"seconds\":1"), "no request comes");
    refused(LOAD("\"kind\":\"bursts\",\"burst\":5,\"every\":60,\"seconds\":10"),
            "no request comes");
}

/* The bound is over all limits, and nothing overflows on the way to it. */
static void test_bounds(void)
{
    refused(LOAD("\"kind\":\"steady\",\"rate\":200001,\"seconds\":1"), "200001 requests");
    refused(LOAD("\"kind\":\"poisson\",\"rate\":1000000,\"seconds\":31622400"),
            "more than 1000000");
    refused(LOAD("\"kind\":\"edge\",\"rate\":1000000,\"burst\":200000,\"every\":0.001,\"seconds\":"
                 "31622400"),
            "lower load.seconds");
    refused("{\"limits\":[\"token-bucket 1/s\",\"token-bucket 2/s\"],\"load\":{\"kind\":\"steady\","
            "\"rate\":100001,\"seconds\":1}}",
            "at most 100000");
    refused("{\"limits\":[\"token-bucket 1/s, token-bucket 2/m, fixed-window 9/s\",\"smooth 1/s\"],"
            "\"load\":{\"kind\":\"steady\",\"rate\":50001,\"seconds\":1}}",
            "at most 50000");
    CHECK(play(LOAD("\"kind\":\"steady\",\"rate\":200000,\"seconds\":1")) != NULL);
    CHECK(play(LOAD("\"kind\":\"steady\",\"rate\":0.000001,\"seconds\":31622400")) != NULL);
    CHECK(play(LOAD("\"kind\":\"steady\",\"rate\":1000000,\"seconds\":0.001")) != NULL);
    CHECK(play(LOAD("\"kind\":\"edge\",\"burst\":200,\"every\":0.001,\"seconds\":0.004")) != NULL);
    CHECK(play(LOAD("\"kind\":\"steady\",\"rate\":1,\"seconds\":9,\"cost\":1000000000000")) !=
          NULL);
    CHECK(play(LOAD("\"kind\":\"poisson\",\"rate\":0.000001,\"seconds\":2000000,\"seed\":3")) !=
              NULL ||
          strstr(err.message, "no request comes"));
}

/* An answer that does not fit is refused whole. */
static void test_small_room(void)
{
    char body[] = LOAD("\"kind\":\"steady\",\"rate\":10,\"seconds\":60"), small[200];
    struct weir__buffer answer = weir__buffer_over(small, sizeof small);
    CHECK_INT(weir__simulate(body, strlen(body), NULL, &answer, &err), WEIR_ENOMEM);
    CHECK_INT(answer.len, 0);
}

/* The longest answer fits its room: six texts of as many limits as fit the most of bytes. */
static void test_longest(void)
{
    static char body[8192];
    struct weir__buffer out = weir__buffer_over(body, sizeof body);
    weir__put_text(&out, "{\"limits\":[");
    for (int i = 0; i < WEIR__PLAY_LIMITS_MAX; i++) {
        weir__put_text(&out, i ? ",\"" : "\"");
        for (int k = 0; k < WEIR_LIMITS_MAX; k++)
            weir__put_format(&out, "%sleaky-bucket 999999/%dm burst 99999 delay 9999", k ? "," : "",
                             100001 + k);
        weir__put_text(&out, "\"");
    }
    weir__put_text(&out,
                   "],\"load\":{\"kind\":\"steady\",\"rate\":2000,\"seconds\":1,\"cost\":9}}");
    CHECK(!out.cut);
    struct weir__buffer answer = weir__buffer_over(room, sizeof room);
    CHECK_INT(weir__simulate(body, out.len, NULL, &answer, &err), 0);
    if (!CHECK(answer.len > WEIR__PLAY_ROOM / 8))
        printf("%zu bytes, %s\n", answer.len, err.message);
}

int main(int argc, char **argv)
{
    random_state = test_seed(argc > 1 ? argv[1] : NULL);
    test_steady();
    test_edge();
    test_edge_of_odd_window();
    test_delays();
    test_wait();
    test_keys_and_costs();
    test_shared();
    test_background();
    test_poisson();
    test_list();
    test_refusals();
    test_bounds();
    test_small_room();
    test_longest();
    test_at_random(300);
    return test_report();
}
