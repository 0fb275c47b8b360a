/* The RESP writer: the exact bytes, what does not fit, and that the reader reads the same again. */
#include "test.h"

#include "base/random.h"
#include "wire/resp.h"

#include <locale.h>
#include <math.h>

static const struct weir__resp_limits wide = {8, 4096, 256, 8192};

static char text[8192];
static struct weir__buffer out;
static struct weir__resp_node nodes[64];
static struct weir__resp_reader reader;

static void start(void)
{
    out = weir__buffer_over(text, sizeof text);
}

/* What was written is one message, whole. */
static const struct weir__resp_node *reread(enum weir__resp_side side)
{
    weir__resp_begin(&reader, side, &wide, nodes, WEIR__COUNT(nodes));
    CHECK_INT(weir__resp_next(&reader, text, out.len), WEIR__RESP_MESSAGE);
    CHECK_INT(reader.size, out.len);
    return nodes;
}

#define WRITES(call, expected)                                                                     \
    do {                                                                                           \
        start();                                                                                   \
        call;                                                                                      \
        CHECK(!out.cut);                                                                           \
        CHECK_TEXT(out.data, expected);                                                            \
    } while (0)

static void test_replies(void)
{
    WRITES(weir__resp_put_simple(&out, "OK", 2), "+OK\r\n");
    WRITES(weir__resp_put_simple(&out, "", 0), "+\r\n");
    WRITES(weir__resp_put_simple(&out, "a\r\nb\0c\n", 7), "+a  b c \r\n");
    WRITES(weir__resp_put_error(&out, "ERR no such \"thing\"", 19), "-ERR no such \"thing\"\r\n");
    WRITES(weir__resp_put_error(&out, "\n", 1), "- \r\n");
    WRITES(weir__resp_put_integer(&out, INT64_MIN), ":-9223372036854775808\r\n");
    WRITES(weir__resp_put_bulk(&out, "a\r\nb", 4), "$4\r\na\r\nb\r\n");
    WRITES(weir__resp_put_bulk(&out, NULL, 0), "$0\r\n\r\n");
    WRITES(weir__resp_put_bulk_integer(&out, -17), "$3\r\n-17\r\n");
    WRITES(weir__resp_put_null(&out, 2), "$-1\r\n");
    WRITES(weir__resp_put_null(&out, 3), "_\r\n");
    WRITES(weir__resp_put_header(&out, WEIR__RESP_ARRAY, 7, 2), "*7\r\n");
    WRITES(weir__resp_put_header(&out, WEIR__RESP_ARRAY, 7, 3), "*7\r\n");
    WRITES(weir__resp_put_header(&out, WEIR__RESP_MAP, 7, 3), "%7\r\n");
    WRITES(weir__resp_put_header(&out, WEIR__RESP_MAP, 7, 2), "*14\r\n");
    WRITES(weir__resp_put_header(&out, WEIR__RESP_SET, 7, 3), "~7\r\n");
    WRITES(weir__resp_put_header(&out, WEIR__RESP_SET, 7, 2), "*7\r\n");
    WRITES(weir__resp_put_header(&out, WEIR__RESP_PUSH, 2, 3), ">2\r\n");
}

/* Doubles are read, never written: as many digits as tell them apart. */
static double reread_double(const char *printed)
{
    start();
    weir__put_format(&out, ",%s\r\n", printed);
    return reread(WEIR__RESP_REPLIES)->number;
}

static void test_doubles(void)
{
    CHECK(reread_double("0.1") == 0.1 && reread_double("1e+300") == 1e300);
    CHECK(reread_double("inf") == INFINITY && reread_double("-inf") == -INFINITY);
    CHECK(isnan(reread_double("nan")) && signbit(reread_double("-0")));
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        union {
            uint64_t bits;
            double number;
        } any = {weir__random_next(&seed)};
        char printed[40];
        if (!isfinite(any.number))
            continue;
        snprintf(printed, sizeof printed, "%.17g", any.number);
        double again = reread_double(printed);
        CHECK(!memcmp(&again, &any.number, sizeof again));
    }
}

/* The same bytes whatever the program's locale, where one with a decimal comma is installed. */
static void test_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8"};
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        if (!setlocale(LC_NUMERIC, names[i]))
            continue;
        CHECK(reread_double("0.5") == 0.5);
    }
    setlocale(LC_NUMERIC, "C");
}

static bool is_text(const struct weir__resp_node *node, const char *expected)
{
    return node->type == WEIR__RESP_BULK && node->len == strlen(expected) &&
           !memcmp(text + node->at, expected, node->len);
}

static void test_commands(void)
{
    static const char expected[] = "*5\r\n$7\r\nEVALSHA\r\n$0\r\n\r\n$1\r\n1\r\n$6\r\nweir:k\r\n"
                                   "$20\r\n-9223372036854775808\r\n";
    start();
    weir__resp_put_header(&out, WEIR__RESP_ARRAY, 5, 2);
    weir__resp_put_bulk(&out, "EVALSHA", 7);
    weir__resp_put_bulk(&out, "", 0);
    weir__resp_put_bulk_integer(&out, 1);
    weir__resp_put_bulk(&out, "weir:k", 6);
    weir__resp_put_bulk_integer(&out, INT64_MIN);
    CHECK_TEXT(out.data, expected);
    const struct weir__resp_node *node = reread(WEIR__RESP_REQUESTS);
    int64_t integer = 0;
    CHECK_INT(node[0].len, 5);
    CHECK(is_text(&node[1], "EVALSHA") && is_text(&node[2], "") && is_text(&node[4], "weir:k"));
    CHECK(weir__resp_read_integer(text + node[5].at, node[5].len, &integer));
    CHECK_INT(integer, INT64_MIN);
}

static void test_cut(void)
{
    struct weir__buffer small = weir__buffer_over(text, 10);
    weir__resp_put_bulk(&small, "abc", 3);
    CHECK(!small.cut && small.len == 9);
    weir__resp_put_null(&small, 3);
    CHECK(small.cut && small.len == 9);
    CHECK_TEXT(small.data, "$3\r\nabc\r\n");
    small = weir__buffer_over(text, 4);
    weir__resp_put_integer(&small, 10);
    CHECK(small.cut && small.len == 3);
}

/* A reply with everything in it, in both protocols. */
static void test_round_trip(void)
{
    for (int protocol = 2; protocol <= 3; protocol++) {
        start();
        weir__resp_put_header(&out, WEIR__RESP_MAP, 2, protocol);
        weir__resp_put_simple(&out, "row", 3);
        weir__resp_put_header(&out, WEIR__RESP_ARRAY, 3, protocol);
        weir__resp_put_integer(&out, 42);
        weir__resp_put_null(&out, protocol);
        weir__put_text(&out, protocol < 3 ? ":1\r\n" : "#t\r\n");
        weir__resp_put_bulk(&out, "k\0\r\n", 4);
        weir__resp_put_error(&out, "ERR x", 5);
        const struct weir__resp_node *node = reread(WEIR__RESP_REPLIES);
        CHECK_INT(node[0].type, protocol == 3 ? WEIR__RESP_MAP : WEIR__RESP_ARRAY);
        CHECK_INT(node[0].len, 4);
        CHECK_INT(node[1].type, WEIR__RESP_SIMPLE);
        CHECK_INT(node[2].next, 6);
        CHECK_INT(node[3].integer, 42);
        CHECK_INT(node[4].type, WEIR__RESP_NULL);
        CHECK_INT(node[5].integer, 1);
        CHECK(node[6].len == 4 && !memcmp(text + node[6].at, "k\0\r\n", 4));
        CHECK(node[7].type == WEIR__RESP_ERROR && !memcmp(text + node[7].at, "ERR x", 5));
        CHECK_INT(reader.count, 8);
    }
}

int main(void)
{
    test_replies();
    test_doubles();
    test_locale();
    test_commands();
    test_cut();
    test_round_trip();
    return test_report();
}
