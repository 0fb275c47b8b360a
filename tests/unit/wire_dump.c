/*
 * Zones as text and back: every kind of state decides the same after it, in a zone of another size;
 * what is wrong is named by its line, and changes nothing.
 */
#include "carry_test.h"
#include "store_inside.h"
#include "wire/dump.h"

#define BEGIN (START + 12345)

static _Atomic int64_t now = BEGIN;
static uint64_t leases[CARRY_KEYS], no_leases[CARRY_KEYS];
static char receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE], no_receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE];

/* ---- a dump in memory ---- */

struct text {
    char *data;
    size_t len;
};

static int text_write(void *context, const char *data, size_t len, weir_error *err)
{
    struct text *text = context;
    text->data = realloc(text->data, text->len + len + 1);
    if (!text->data)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    memcpy(text->data + text->len, data, len);
    text->len += len;
    text->data[text->len] = 0;
    return 0;
}

static struct text dump(weir_store *store)
{
    struct text text = {0};
    weir_error err = {0};
    struct weir__dump_sink sink = {.write = text_write, .context = &text};
    int code = weir__dump_zone(test_zone(store), &sink, &err);
    test_check(code == 0, __FILE__, __LINE__, err.message);
    return text;
}

struct lines {
    char *at;
    struct weir__dump_reader reader;
};

/* The line here, and on to the next; false: there is none. */
static bool next_line(struct lines *lines, char **ret, size_t *ret_len)
{
    char *end = strchr(lines->at, '\n');
    *ret = lines->at;
    *ret_len = end ? (size_t)(end - lines->at) + 1 : strlen(lines->at);
    lines->at += *ret_len;
    return *ret_len > 0;
}

static int fill(struct weir__zone *zone, void *context, weir_error *err)
{
    struct lines *lines = context;
    char *line;
    size_t len;
    lines->reader.zone = zone;
    lines->reader.now_us = now;
    while (next_line(lines, &line, &len)) {
        int code = weir__dump_read(&lines->reader, line, len, err);
        if (code)
            return code;
    }
    return weir__dump_read_end(&lines->reader, err);
}

static int load(const char *url, const char *text, weir_error *err)
{
    char *copy = strdup(text), *line;
    struct lines lines = {.at = copy};
    size_t len;
    next_line(&lines, &line, &len);
    int code = weir__dump_read_head(&lines.reader, line, len, err);
    struct weir__load what = {.size = lines.reader.head.size,
                              .large_percent = lines.reader.head.large_percent,
                              .fill = fill,
                              .context = &lines};
    memcpy(what.secret, lines.reader.head.secret, sizeof what.secret);
    if (code == 0)
        code = weir__region_load(url, &what, err);
    free(copy);
    return code;
}

static void load_well(const char *file, int line, const char *url, const char *text)
{
    weir_error err = {0};
    int code = load(url, text, &err);
    test_check(code == 0, file, line, code ? err.message : "loaded");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether two dumps have the same lines, in any order, but for the size in the first. */
static void same_lines(struct text a, struct text b)
{
    char *lines[2][1000];
    size_t counts[2] = {0, 0};
    struct text texts[] = {a, b};
    for (int i = 0; i < 2; i++) {
        char *rest = NULL, *copy = strdup(texts[i].data);
        for (char *line = strtok_r(copy, "\n", &rest); line && counts[i] < 1000;
             line = strtok_r(NULL, "\n", &rest))
            lines[i][counts[i]++] = line;
        CHECK(strstr(lines[i][0], "\"weir_zone\":1") != NULL);
        lines[i][0] = copy;
        qsort(lines[i] + 1, counts[i] - 1, sizeof lines[i][0], by_text);
    }
    CHECK_INT(counts[0], counts[1]);
    for (size_t i = 1; i < counts[0] && i < counts[1]; i++)
        test_check(!strcmp(lines[0][i], lines[1][i]), __FILE__, __LINE__, lines[0][i]);
    free(lines[0][0]);
    free(lines[1][0]);
}

/* ---- tests ---- */

static void test_round(void)
{
    static const char *const sizes[] = {"", "size=128k", "size=8m&large=30%"};
    weir_store *twin = test_open("memory:1m?large=40%", &now);
    carry_fill(twin, &now, no_leases, no_receipts);
    weir_store *store = test_open(test_url(TEST_SHM, "from", "size=256k&large=40%"), &now);
    now = BEGIN;
    carry_fill(store, &now, leases, receipts);
    struct text text = dump(store); /* in use */
    CHECK_INT(test_info(store).keys, test_info(twin).keys);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *url = test_url(TEST_FILE, "to", sizes[i]);
        load_well(__FILE__, __LINE__, url, text.data);
        weir_store *loaded = test_open(url, &now);
        test_sound(loaded);
        CHECK_INT(test_info(loaded).keys, test_info(twin).keys);
        carry_compare(__FILE__, __LINE__, twin, loaded, &now);
        struct text again = dump(loaded);
        same_lines(text, again);
        free(again.data);
        weir_store_close(loaded);
        load_well(__FILE__, __LINE__, url, text.data); /* the same again changes nothing */
        loaded = test_open(url, &now);
        carry_compare(__FILE__, __LINE__, twin, loaded, &now);
        if (i == 2)
            carry_compare_rest(loaded, leases, receipts);
        weir_store_close(loaded);
        if (i < 2)
            test_remove(TEST_FILE, "to");
    }
    test_remove(TEST_FILE, "to");
    weir_store_close(store);
    weir_store_close(twin);
    test_remove(TEST_SHM, "from");
    free(text.data);
}

/* A ring as large as they get, and one that goes round its end. */
static void test_large(void)
{
    weir_limit *limit = test_limit("sliding-log 30000/h");
    weir_store *store = test_open(test_url(TEST_SHM, "from", "size=8m&large=80%"), &now);
    int64_t begin = now;
    for (int i = 0; i < 40000; i++) {
        test_take(store, "large", limit, 1);
        now += 200000;
    }
    weir_decision before = test_peek(store, "large", limit, 1);
    struct text text = dump(store);
    load_well(__FILE__, __LINE__, test_url(TEST_SHM, "to", ""), text.data);
    weir_store *loaded = test_open(test_url(TEST_SHM, "to", ""), &now);
    carry_same(__FILE__, __LINE__, "a large log", before, test_peek(loaded, "large", limit, 1));
    CHECK(before.remaining < 12500);
    weir_store_close(store);
    weir_store_close(loaded);
    test_remove(TEST_SHM, "from");
    test_remove(TEST_SHM, "to");
    weir_limit_free(limit);
    free(text.data);
    now = begin;
}

/* Into a zone that went on: the later state stays, and none is taken back. */
static void test_merge(void)
{
    weir_limit *day = test_limit("fixed-window 10/d"), *log = test_limit("sliding-log 10/d");
    const char *url = test_url(TEST_SHM, "merge", "size=128k");
    weir_store *store = test_open(url, &now);
    test_take(store, "both", day, 2);
    test_take(store, "both", log, 2);
    test_take(store, "only there", day, 4);
    struct text text = dump(store);
    now += 5;
    test_take(store, "both", day, 3); /* in the same window: more is charged, nothing is newer */
    test_take(store, "both", log, 3);
    CHECK_INT(weir_reset(store, weir_key_text("only there")), 0);
    test_take(store, "only here", day, 6);
    weir_error err = {0};
    CHECK_INT(load(url, text.data, &err), WEIR_EBUSY);
    CHECK(strstr(err.message, "end that process") != NULL);
    weir_store_close(store);
    load_well(__FILE__, __LINE__, url, text.data);
    store = test_open(url, &now);
    CHECK_INT(test_peek(store, "both", day, 0).remaining, 5);
    CHECK_INT(test_peek(store, "both", log, 0).remaining, 5);
    CHECK_INT(test_peek(store, "only there", day, 0).remaining, 6);
    CHECK_INT(test_peek(store, "only here", day, 0).remaining, 4);
    weir_store_close(store);
    const char *other = test_url(TEST_SHM, "other", "size=128k");
    store = test_open(other, &now);
    test_take(store, "x", day, 1);
    weir_store_close(store);
    CHECK_INT(load(other, text.data, &err), WEIR_EFOREIGN);
    CHECK(strstr(err.message, "another secret") && strstr(err.message, "a new zone"));
    store = test_open(other, &now);
    CHECK_INT(weir_reset(store, weir_key_text("x")), 0);
    weir_store_close(store);
    load_well(__FILE__, __LINE__, other, text.data); /* nothing in it: it takes the secret */
    store = test_open(other, &now);
    CHECK_INT(test_peek(store, "both", day, 0).remaining, 8);
    weir_store_close(store);
    test_remove(TEST_SHM, "merge");
    test_remove(TEST_SHM, "other");
    weir_limit_free(day);
    weir_limit_free(log);
    free(text.data);
}

#define HEAD                                                                                       \
    "{\"weir_zone\":1,\"secret\":\"94eb342cf02455721f97b1955ca0eb36\",\"size\":131072,\"large\":"  \
    "12}\n"
#define STATE                                                                                      \
    "{\"tag\":\"643433f7f87d8607\",\"limit\":\"token-bucket 10/m\","                               \
    "\"state\":\"9wEAAIeTAwAACgAAAADqyHgZWmAGAIeTAwAAAA==\"}\n"
#define COUNTER "9wEHAKST1gAAeJsHAAAAAAAAAAABAAAA"

static void test_wrong(void)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "line 1: JSON"},
        {"hello\n", "line 1: JSON"},
        {"[]\n", "line 1: expected an object"},
        {"{}\n", "line 1: this is not a dump of a zone; make one with weir zone --dump"},
        {"{\"weir_zone\":2}\n", "line 1: invalid weir_zone: expected a number from 1 to 1"},
        {"{\"weir_zone\":1}\n", "line 1: expected weir_zone, secret, size and large"},
        {"{\"weir_zone\":1,\"secret\":\"94EB342cf02455721f97b1955ca0eb36\",\"size\":1,\"large\":1}",
         "line 1: invalid secret: expected 32 hexadecimal digits"},
        {"{\"weir_zone\":1,\"secret\":\"94eb342cf02455721f97b1955ca0eb36\",\"size\":1,\"large\":1}",
         "line 1: invalid size"},
        {HEAD, "line 2: the file ends before its last line"},
        {HEAD STATE, "line 3: the file ends before its last line"},
        {HEAD STATE "{\"states\":2,\"marks\":0}\n", "line 3: it counts 2 states and 0 marks"},
        {HEAD STATE "{\"states\":1,\"marks\":1}\n", "line 3: it counts 1 states and 1 marks"},
        {HEAD "{\"states\":0,\"marks\":0}\n" STATE, "line 3: nothing may follow the last line"},
        {HEAD "\n", "line 2: JSON"},
        {HEAD "{\"tag\":\"0\"}\n", "line 2: invalid tag: expected 16 hexadecimal digits"},
        {HEAD "{\"tag\":\"0000000000000000\",\"settled_until\":1700000000000000}\n",
         "line 2: its tag is 0"},
        {HEAD "{\"tag\":\"643433f7f87d8607\",\"settled_until\":1}\n",
         "line 2: invalid settled_until"},
        {HEAD "{\"tag\":\"643433f7f87d8607\",\"settled_until\":1700000000000000,\"x\":1}\n",
         "line 2: expected tag and settled_until"},
        {HEAD "{\"tag\":\"643433f7f87d8607\"}\n", "line 2: expected tag, limit, state"},
        {HEAD STATE "{\"tag\":\"643433f7f87d8607\",\"limit\":\"token 10/m\",\"state\":\"\"}\n",
         "line 3: invalid limit \"token 10/m\""},
        {HEAD
         "{\"tag\":\"643433f7f87d8607\",\"limit\":\"smooth 5/s, smooth 5/m\",\"state\":\"\"}\n",
         "line 2: invalid limit \"smooth 5/s, smooth 5/m\": expected one limit, found 2"},
        {HEAD "{\"tag\":\"643433f7f87d8607\",\"limit\":\"smooth 5/s\",\"state\":\"?\"}\n",
         "line 2: invalid state: expected base64"},
        {HEAD "{\"tag\":\"643433f7f87d8607\",\"limit\":\"smooth 5/s\",\"state\":\"AAAA\"}\n",
         "line 2: invalid state: expected one section as docs/STATE.md says"},
        {HEAD "{\"tag\":\"643433f7f87d8607\",\"limit\":\"smooth 5/s\",\"state\":\"" COUNTER "\"}\n",
         "line 2: the state is not one of the limit"},
        {HEAD "{\"tag\":\"643433f7f87d8607\",\"limit\":\"sliding-counter 5/m\",\"state\":\"" COUNTER
              "\"}\n",
         "line 2: the state is not one of the limit"},
        {HEAD "{\"tag\":\"643433f7f87d8607\",\"limit\":\"sliding-counter 5/h\",\"denied\":1,"
              "\"state\":\"" COUNTER "\"}\n",
         "line 2: invalid denied"},
    };
    const char *url = test_url(TEST_SHM, "wrong", "");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weir_error err = {0};
        char what[1000];
        int code = load(url, wrong[i].text, &err);
        snprintf(what, sizeof what, "%zu: %s, expected %s", i, err.message, wrong[i].says);
        test_check(code == WEIR_EINVAL && strstr(err.message, wrong[i].says), __FILE__, __LINE__,
                   what);
        CHECK_INT(shm_unlink(test_path(TEST_SHM, "wrong")), -1); /* nothing was made */
    }
    load_well(__FILE__, __LINE__, url, HEAD STATE "{\"states\":1,\"marks\":0}");
    test_remove(TEST_SHM, "wrong");
}

int main(void)
{
    test_round();
    test_large();
    test_merge();
    test_wrong();
    test_remove_directory();
    return test_report();
}
