/*
 * Hottest keys: rates are right where there is room, the frequent stay visible in floods of keys
 * that never come back, no key is told hotter than it was, and threads may record while reports are
 * made.
 */
#include "server/observe/top.h"

#include "base/random.h"
#include "test.h"
#include "wire/json.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000)
#define START (INT64_C(1700000000) * SECOND)

static struct server_top *make(size_t threads)
{
    struct server_top *top = NULL;
    CHECK_INT(server_top_create(threads, START, &top, NULL), WEIR_OK);
    return top;
}

static void record(struct server_top_thread *thread, const char *key, int times, bool denied)
{
    for (int i = 0; i < times; i++)
        server_top_record(thread, SERVER_TOP_ADHOC, key, strlen(key), denied);
}

/* ---- reading reports ---- */

#define SHOWN 20

struct row {
    char key[160];
    double rate;
    bool base64, cut;
};

struct list {
    struct row rows[SERVER_TOP_SHOWN_MAX];
    size_t n;
};

static void read_row(const struct weir__json_node *nodes, const struct weir__json_node *node,
                     struct row *row)
{
    const struct weir__json_node *key = weir__json_member(nodes, node, "key");
    const struct weir__json_node *const rate = weir__json_member(nodes, node, "rate");
    *row = (struct row){.base64 = !key, .cut = weir__json_member(nodes, node, "cut") != NULL};
    if (!key)
        key = weir__json_member(nodes, node, "key_base64");
    if (CHECK(key && rate && key->len < sizeof row->key)) {
        memcpy(row->key, key->text, key->len);
        row->rate = strtod(rate->text, NULL);
    }
}

/* A list ("hottest", "denied") of a policy; empty where the policy is not told. */
static struct list list_of(struct server_top *top, const char *policy, const char *name,
                           size_t shown, int64_t now_us)
{
    static struct weir__json_node nodes[1 << 16];
    struct list list = {.n = 0};
    const size_t room = server_top_room(top, shown);
    char *const text = malloc(room);
    struct weir__buffer out = weir__buffer_over(text, room);
    server_top_json(top, policy, shown, now_us, &out);
    CHECK(!out.cut);
    if (CHECK(weir__json_read(text, out.len, nodes, WEIR__COUNT(nodes), NULL) > 0)) {
        const struct weir__json_node *const all = weir__json_member(nodes, nodes, "policies");
        CHECK(all->len <= 1);
        const struct weir__json_node *const rows =
            all->len ? weir__json_member(nodes, all + 1, name) : NULL;
        const struct weir__json_node *at = rows ? rows + 1 : NULL;
        for (; rows && list.n < rows->len; at = nodes + at->next)
            read_row(nodes, at, &list.rows[list.n++]);
    }
    free(text);
    return list;
}

static double rate_of(const struct list *list, const char *key)
{
    for (size_t i = 0; i < list->n; i++) {
        if (!strcmp(list->rows[i].key, key))
            return list->rows[i].rate;
    }
    return 0;
}

static bool near(double got, double expected, double share)
{
    const bool ok = fabs(got - expected) <= share * expected;
    if (!ok)
        printf("%g, expected %g\n", got, expected);
    return ok;
}

/* ---- tests ---- */

/* From the first second on a rate is what a watch would say; later it fades. */
static void test_rates(void)
{
    struct server_top *const top = make(1);
    struct server_top_thread *const thread = server_top_thread(top, 0);
    struct list list = list_of(top, "", "hottest", SHOWN, START);
    CHECK_INT(list.n, 0);
    record(thread, "once", 3, false);
    list = list_of(top, "", "hottest", SHOWN, START);
    CHECK_INT(list.n, 1);
    CHECK(near(rate_of(&list, "once"), 3, 0.02));
    for (int64_t i = 1; i <= 1200; i++) { /* two minutes */
        server_top_advance(thread, START + i * SECOND / 10);
        record(thread, "ten", 1, false);
        record(thread, "fifty", 5, i % 5 == 0);
        if (i == 100) {
            list = list_of(top, "", "hottest", SHOWN, START + 10 * SECOND);
            CHECK(near(rate_of(&list, "ten"), 10, 0.03));
        }
    }
    const int64_t now = START + 120 * SECOND;
    list = list_of(top, "", "hottest", SHOWN, now);
    CHECK_TEXT(list.rows[0].key, "fifty");
    CHECK_TEXT(list.rows[1].key, "ten");
    CHECK(near(rate_of(&list, "fifty"), 50, 0.02));
    CHECK(near(rate_of(&list, "ten"), 10, 0.02));
    CHECK(near(rate_of(&list, "once"), 0.005, 1));
    list = list_of(top, "", "denied", SHOWN, now);
    CHECK_INT(list.n, 1);
    CHECK(near(rate_of(&list, "fifty"), 10, 0.02));
    /* Nothing comes: half of it is left after the half-life, nothing after ten minutes. */
    list = list_of(top, "", "hottest", SHOWN, now + SERVER_TOP_HALF_LIFE_S * SECOND);
    CHECK(near(rate_of(&list, "fifty"), 25, 0.05));
    list = list_of(top, "", "hottest", SHOWN, now + 600 * SECOND);
    CHECK_INT(list.n, 0);
    server_top_destroy(top);
}

/* What is shown of odd keys. */
static void test_keys(void)
{
    struct server_top *const top = make(1);
    struct server_top_thread *const thread = server_top_thread(top, 0);
    char one[SERVER_TOP_KEY_MAX + 2], two[SERVER_TOP_KEY_MAX + 2];
    memset(one, 'k', sizeof one);
    memcpy(two, one, sizeof one);
    one[SERVER_TOP_KEY_MAX] = '1';
    one[SERVER_TOP_KEY_MAX + 1] = two[SERVER_TOP_KEY_MAX + 1] = '\0';
    record(thread, one, 5, false);
    record(thread, two, 4, false);
    record(thread, one + 1, 3, false); /* just fits */
    server_top_record(thread, 0, "\xff\x00z", 3, false);
    server_top_record(thread, 0, "\xff\x00z", 3, false);
    char *const split = one; /* a character of three bytes across the cut */
    memcpy(split + SERVER_TOP_KEY_MAX - 2, "\xe2\x82\xac", 3);
    record(thread, split, 1, false);
    const struct list list = list_of(top, "", "hottest", SHOWN, START);
    CHECK_INT(list.n, 5);
    CHECK(list.rows[0].cut && near(list.rows[0].rate, 5, 0.02));
    CHECK(list.rows[1].cut && near(list.rows[1].rate, 4, 0.02));
    CHECK_TEXT(list.rows[0].key, list.rows[1].key);
    CHECK_INT(strlen(list.rows[0].key), SERVER_TOP_KEY_MAX);
    CHECK(!list.rows[2].cut);
    CHECK_INT(strlen(list.rows[2].key), SERVER_TOP_KEY_MAX);
    CHECK(list.rows[3].base64);
    CHECK_TEXT(list.rows[3].key, "/wB6");
    CHECK(list.rows[4].cut && !list.rows[4].base64);
    CHECK_INT(strlen(list.rows[4].key), SERVER_TOP_KEY_MAX - 2);
    server_top_destroy(top);
}

/* Each policy has its own lists; beyond the bound they share one. */
static void test_policies(void)
{
    struct server_top *const top = make(2);
    struct server_top_thread *const thread = server_top_thread(top, 1);
    const uint32_t api = server_top_policy(top, "api"), web = server_top_policy(top, "web");
    CHECK(api != web && api > SERVER_TOP_OTHER && web > SERVER_TOP_OTHER);
    CHECK_INT(server_top_policy(top, "api"), api);
    CHECK_INT(server_top_policy(top, ""), SERVER_TOP_ADHOC);
    for (int i = 0; i < 10; i++)
        server_top_record(thread, api, "a", 1, false);
    server_top_record(thread, web, "w", 1, true);
    struct list list = list_of(top, "api", "hottest", SHOWN, START);
    CHECK_INT(list.n, 1);
    CHECK_TEXT(list.rows[0].key, "a");
    CHECK_INT(list_of(top, "api", "denied", SHOWN, START).n, 0);
    CHECK_INT(list_of(top, "web", "denied", SHOWN, START).n, 1);
    CHECK_INT(list_of(top, "none", "hottest", SHOWN, START).n, 0);
    uint32_t id = 0;
    for (int i = 0; i < SERVER_TOP_POLICIES_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "policy-%d", i);
        id = server_top_policy(top, name);
    }
    CHECK_INT(id, SERVER_TOP_OTHER);
    server_top_record(thread, id, "x", 1, false);
    list = list_of(top, "(other)", "hottest", SHOWN, START);
    CHECK_TEXT(list.rows[0].key, "x");
    server_top_destroy(top);
}

/* A key's rates on several threads are one. */
static void test_threads_are_merged(void)
{
    struct server_top *const top = make(4);
    for (size_t i = 0; i < 4; i++) {
        char own[8];
        snprintf(own, sizeof own, "own-%zu", i);
        record(server_top_thread(top, i), "shared", 10, true);
        record(server_top_thread(top, i), own, 20, false);
    }
    const struct list list = list_of(top, "", "hottest", 3, START + SECOND);
    CHECK_INT(list.n, 3);
    CHECK_TEXT(list.rows[0].key, "shared");
    CHECK(near(list.rows[0].rate, 40, 0.05));
    CHECK(near(list.rows[2].rate, 20, 0.05));
    server_top_destroy(top);
}

/* ---- crowds ---- */

struct crowd {
    int keys;          /* with a share like 1/rank */
    double flood;      /* share of keys that never come back */
    int rate, seconds; /* requests a second */
};

/* A draw from 1/rank over n keys: integer part of a log-uniform number, which is near enough. */
static int draw(const struct crowd *crowd, uint64_t *random)
{
    const double unit = (double)(weir__random_next(random) >> 11) * 0x1p-53;
    return (int)exp(unit * log(crowd->keys + 1)) - 1;
}

static double *run_crowd(struct server_top_thread *thread, const struct crowd *crowd)
{
    double *const truth = calloc((size_t)crowd->keys, sizeof *truth);
    const int64_t end = (int64_t)crowd->seconds * SECOND;
    uint64_t random = 11, never = 0;
    for (int64_t i = 0, n = (int64_t)crowd->rate * crowd->seconds; i < n; i++) {
        const int64_t at = i * SECOND / crowd->rate;
        char key[32];
        server_top_advance(thread, START + at);
        if ((double)(weir__random_next(&random) >> 11) * 0x1p-53 < crowd->flood) {
            snprintf(key, sizeof key, "flood-%llx", (unsigned long long)never++);
        } else {
            const int rank = draw(crowd, &random);
            snprintf(key, sizeof key, "key-%d", rank);
            truth[rank] += exp2(-(double)(end - at) / (SERVER_TOP_HALF_LIFE_S * 1e6));
        }
        record(thread, key, 1, false);
    }
    const double span = (1 - exp2(-(double)crowd->seconds / SERVER_TOP_HALF_LIFE_S)) *
                        SERVER_TOP_HALF_LIFE_S / M_LN2;
    for (int i = 0; i < crowd->keys; i++)
        truth[i] /= span;
    return truth;
}

/* All of the first `sure` keys are shown, with rates at most `error` too low and never too high. */
static void check_crowd(const struct crowd *crowd, int sure, double error)
{
    struct server_top *const top = make(1);
    double *const truth = run_crowd(server_top_thread(top, 0), crowd);
    const struct list list =
        list_of(top, "", "hottest", SHOWN, START + (int64_t)crowd->seconds * SECOND);
    CHECK_INT(list.n, SHOWN);
    for (int i = 0; i < sure; i++) {
        char key[32];
        snprintf(key, sizeof key, "key-%d", i);
        const double rate = rate_of(&list, key);
        if (!CHECK(rate >= (1 - error) * truth[i]))
            printf("%s: %g, expected %g\n", key, rate, truth[i]);
    }
    for (size_t i = 0; i < list.n; i++) {
        int rank = -1;
        if (sscanf(list.rows[i].key, "key-%d", &rank) == 1)
            CHECK(list.rows[i].rate <= 1.01 * truth[rank]);
        else
            CHECK(list.rows[i].rate < 0.1);
    }
    free(truth);
    server_top_destroy(top);
}

static void test_crowds(void)
{
    /* An ordinary day: many keys, a few of them frequent. */
    check_crowd(&(struct crowd){.keys = 100000, .rate = 50000, .seconds = 30}, 15, 0.2);
    /* Nine of ten requests bring a key that never comes back. */
    check_crowd(&(struct crowd){.keys = 1000, .flood = 0.9, .rate = 50000, .seconds = 30}, 12, 0.4);
    /* 99 of 100: the most frequent key has one request in a thousand. */
    check_crowd(&(struct crowd){.keys = 1000, .flood = 0.99, .rate = 50000, .seconds = 30}, 1, 0.6);
}

/* ---- clocks ---- */

static void test_clock_leaps(void)
{
    struct server_top *const top = make(1);
    struct server_top_thread *const thread = server_top_thread(top, 0);
    int64_t now = START;
    for (int i = 0; i < 600; i++)
        server_top_advance(thread, now += SECOND / 10), record(thread, "steady", 1, false);
    struct list list = list_of(top, "", "hottest", SHOWN, now);
    CHECK(near(rate_of(&list, "steady"), 10, 0.05));
    /* Set back by a day; the report may come first. */
    now -= 86400 * SECOND;
    list = list_of(top, "", "hottest", SHOWN, now);
    CHECK(near(rate_of(&list, "steady"), 10, 0.05));
    server_top_advance(thread, now);
    list = list_of(top, "", "hottest", SHOWN, now);
    CHECK(near(rate_of(&list, "steady"), 10, 0.05));
    for (int i = 0; i < 600; i++)
        server_top_advance(thread, now += SECOND / 10), record(thread, "steady", 1, false);
    list = list_of(top, "", "hottest", SHOWN, now);
    CHECK(near(rate_of(&list, "steady"), 10, 0.05));
    /* Ahead by ten years: all is forgotten, and counting goes on. */
    now += INT64_C(10) * 365 * 86400 * SECOND;
    server_top_advance(thread, now);
    CHECK_INT(list_of(top, "", "hottest", SHOWN, now).n, 0);
    for (int i = 0; i < 1200; i++)
        server_top_advance(thread, now += SECOND / 10), record(thread, "new", 1, false);
    list = list_of(top, "", "hottest", SHOWN, now);
    CHECK_INT(list.n, 1);
    CHECK(near(rate_of(&list, "new"), 10, 0.1));
    server_top_destroy(top);
}

/* A day long: the counts are scaled several times, and nobody notices; nor that the key's slot was
 * another's before. */
static void test_scaling(void)
{
    struct server_top *const top = make(1);
    struct server_top_thread *const thread = server_top_thread(top, 0);
    for (uint64_t i = 0; i < 500000; i++)
        server_top_record(thread, SERVER_TOP_ADHOC, &i, sizeof i, false);
    for (int64_t s = 1; s <= 86400; s++) {
        server_top_advance(thread, START + s * SECOND);
        record(thread, "steady", 10, false);
        if (s % 50 == 0 && s > 600) {
            const struct list list = list_of(top, "", "hottest", SHOWN, START + s * SECOND);
            CHECK(near(rate_of(&list, "steady"), 10, 0.02));
        }
    }
    server_top_destroy(top);
}

/* ---- threads ---- */

#define RECORDS 300000

static void *record_much(void *context)
{
    struct server_top_thread *const thread = context;
    uint64_t random = (uint64_t)(uintptr_t)thread;
    char key[64];
    for (int i = 0; i < RECORDS; i++) {
        /* Every text is one letter over and over, so that a torn one shows. */
        const uint64_t draw = weir__random_next(&random);
        memset(key, 'a' + (int)(draw % 26), sizeof key);
        server_top_record(thread, SERVER_TOP_ADHOC, key, 8 + (draw >> 8) % 56, i % 2);
        server_top_advance(thread, START + (int64_t)i * 3600 * 100); /* scales many times */
    }
    return NULL;
}

static void check_whole(const struct list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *const key = list->rows[i].key;
        CHECK(strlen(key) >= 8 && strspn(key, (char[]){key[0], '\0'}) == strlen(key));
        CHECK(list->rows[i].rate > 0 && list->rows[i].rate < 1e9);
    }
}

static void test_concurrent(void)
{
    struct server_top *const top = make(2);
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, record_much, server_top_thread(top, i)), 0);
    for (int i = 0; i < 50; i++) {
        char name[32];
        snprintf(name, sizeof name, "policy-%d", i);
        server_top_policy(top, name);
        const struct list hottest = list_of(top, "", "hottest", 64, START);
        const struct list denied = list_of(top, "", "denied", 64, START);
        check_whole(&hottest);
        check_whole(&denied);
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    const struct list list = list_of(top, "", "hottest", 64, START + INT64_C(108000) * SECOND);
    check_whole(&list);
    server_top_destroy(top);
}

int main(void)
{
    test_rates();
    test_keys();
    test_policies();
    test_threads_are_merged();
    test_crowds();
    test_clock_leaps();
    test_scaling();
    test_concurrent();
    return test_report();
}
