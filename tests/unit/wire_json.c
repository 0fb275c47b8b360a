/*
 * JSON: what RFC 8259 allows and nothing else, where the first fault is, numbers exactly; what the
 * writer writes, and that the reader reads it; base64.
 */
#include "test.h"

#include "base/span.h"
#include "wire/json.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

#define ROOM 64

/* ---- reading ---- */

/* {"a":[1 true null] "b":"x"}, NUL as @; returns the node behind. */
static uint32_t show(struct weir__buffer *out, const struct weir__json_node *nodes, uint32_t i)
{
    const struct weir__json_node *node = &nodes[i];
    bool object = node->type == WEIR__JSON_OBJECT;
    uint32_t child = i + 1;
    switch (node->type) {
    case WEIR__JSON_NULL:
        weir__put_text(out, "null");
        break;
    case WEIR__JSON_BOOL:
        weir__put_text(out, node->truth ? "true" : "false");
        break;
    case WEIR__JSON_NUMBER:
        weir__put(out, node->text, node->len);
        break;
    case WEIR__JSON_STRING:
        CHECK(node->text[node->len] == 0);
        for (uint32_t k = 0; k < node->len; k++)
            weir__put(out, node->text[k] ? node->text + k : "@", 1);
        break;
    case WEIR__JSON_ARRAY:
    case WEIR__JSON_OBJECT:
        weir__put_text(out, object ? "{" : "[");
        for (uint32_t k = 0; k < node->len; k++) {
            weir__put_text(out, k ? " " : "");
            child = show(out, nodes, child);
            if (object) {
                weir__put_text(out, ":");
                child = show(out, nodes, child);
            }
        }
        weir__put_text(out, object ? "}" : "]");
    }
    CHECK_INT(node->next, child);
    return child;
}

/* Reads from memory that ends where the text does. */
static void check(const char *text, size_t len, uint32_t room, const char *expected)
{
    char shown[2048];
    struct weir__buffer out = weir__buffer_over(shown, sizeof shown);
    struct weir__json_node *nodes = malloc(room * sizeof *nodes + 1);
    char *copy = malloc(len + !len);
    memcpy(copy, text, len);
    weir_error err = {0};
    int count = weir__json_read(copy, len, nodes, room, &err);
    if (count >= 0) {
        CHECK(count >= 1);
        CHECK_INT(show(&out, nodes, 0), count);
    } else {
        CHECK_INT(count, WEIR_EINVAL);
        CHECK_INT(err.code, WEIR_EINVAL);
        CHECK(err.column >= 1 && (size_t)err.column <= len + 1);
        weir__put_format(&out, "!%s", err.message);
        char place[32];
        snprintf(place, sizeof place, "!JSON, byte %d: ", err.column);
        CHECK(!strncmp(shown, place, strlen(place)));
        memcpy(copy, text, len);
        CHECK_INT(weir__json_read(copy, len, nodes, room, NULL), WEIR_EINVAL);
    }
    CHECK_TEXT(out.data, expected);
    free(nodes);
    free(copy);
}

#define READ(text, expected) check(text, sizeof text - 1, ROOM, expected)
#define BAD(text, byte, why) READ(text, "!JSON, byte " #byte ": " why)

static void test_values(void)
{
    READ("null", "null");
    READ("true", "true");
    READ(" false\t\r\n", "false");
    READ("0", "0");
    READ("-0.10e+7", "-0.10e+7");
    READ("\"\"", "");
    READ("\"a\"", "a");
    READ("[]", "[]");
    READ("[ ]", "[]");
    READ("{}", "{}");
    READ("{ }", "{}");
    READ("[1,2 , 3]", "[1 2 3]");
    READ("[[],[[]],{\"a\":{}}]", "[[] [[]] {a:{}}]");
    READ("{\"key\":\"user:42\",\"limit\":\"token-bucket 100/s\",\"cost\":1}",
         "{key:user:42 limit:token-bucket 100/s cost:1}");
    READ(" { \"a\" : [ true , null ] , \"\" : \"\" } ", "{a:[true null] :}");
    READ("{\"a\":{\"a\":1},\"b\":{\"a\":2}}", "{a:{a:1} b:{a:2}}");
}

static void test_syntax(void)
{
    BAD("", 1, "the text ends where a value is expected");
    BAD("  ", 3, "the text ends where a value is expected");
    BAD("\xef\xbb\xbf{}", 1, "byte 0xef where a value is expected");
    BAD("nul", 1, "'n' where a value is expected");
    BAD("nulL", 1, "'n' where a value is expected");
    BAD("True", 1, "'T' where a value is expected");
    BAD("NaN", 1, "'N' where a value is expected");
    BAD("'a'", 1, "''' where a value is expected");
    BAD("{} x", 4, "'x' where the end is expected");
    BAD("1 2", 3, "'2' where the end is expected");
    BAD("null\0", 5, "byte 0x00 where the end is expected");
    BAD("nullx", 5, "'x' where the end is expected");
    BAD("[1", 3, "the text ends where ',' or ']' is expected");
    BAD("[1}", 3, "'}' where ',' or ']' is expected");
    BAD("[1 2]", 4, "'2' where ',' or ']' is expected");
    BAD("[1,]", 4, "']' where a value is expected");
    BAD("[,1]", 2, "',' where a value is expected");
    BAD("[", 2, "the text ends where a value is expected");
    BAD("]", 1, "']' where a value is expected");
    BAD("{\"a\":1", 7, "the text ends where ',' or '}' is expected");
    BAD("{\"a\":1]", 7, "']' where ',' or '}' is expected");
    BAD("{\"a\":1,}", 8, "'}' where a name in quotes is expected");
    BAD("{a:1}", 2, "'a' where a name in quotes is expected");
    BAD("{1:1}", 2, "'1' where a name in quotes is expected");
    BAD("{", 2, "the text ends where a name in quotes is expected");
    BAD("{\"a\"}", 5, "'}' where ':' is expected");
    BAD("{\"a\"", 5, "the text ends where ':' is expected");
    BAD("{\"a\":}", 6, "'}' where a value is expected");
    BAD("{\"a\":", 6, "the text ends where a value is expected");
    BAD("[1,// two\n2]", 4, "'/' where a value is expected");
    BAD("{\"a\":1,\"a\":2}", 8, "\"a\" is given twice");
    BAD("{\"a\":1,\"b\":2,\"\\u0061\":3}", 14, "\"a\" is given twice");
    BAD("{\"a\":[{\"b\":1}],\"c\":2,\"a\":2}", 22, "\"a\" is given twice");
}

static void test_strings(void)
{
    READ("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
    READ("\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    READ("\"\\u0000a\"", "@a");
    READ("\"\x7f\"", "\x7f");
    READ("\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\"",
         "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf");
    READ("\"plain for more than sixteen bytes, then \\n and plain for as many again\"",
         "plain for more than sixteen bytes, then \n and plain for as many again");
    READ("{\"\\u006bey\":\"a\\tb\",\"l\":\"\\\\\"}", "{key:a\tb l:\\}");
    BAD("\"", 2, "the text ends where a string's closing quote is expected");
    BAD("\"abc", 5, "the text ends where a string's closing quote is expected");
    BAD("\"caf\xc3\xa9", 7, "the text ends where a string's closing quote is expected");
    BAD("\"a\nb\"", 3, "control character 0x0a in a string; write \\u000a");
    BAD("\"a\0b\"", 3, "control character 0x00 in a string; write \\u0000");
    BAD("\"\\x41\"", 2, "invalid escape; write a backslash as \\\\");
    BAD("\"\\", 2, "invalid escape; write a backslash as \\\\");
    BAD("\"\\\0\"", 2, "invalid escape; write a backslash as \\\\");
    BAD("\"\\u12", 2, "expected four hex digits after \\u");
    BAD("\"\\u12g4\"", 2, "expected four hex digits after \\u");
    BAD("\"\\u\"", 2, "expected four hex digits after \\u");
    BAD("\"\\ud800\"", 2, "half a surrogate pair");
    BAD("\"\\udc00\"", 2, "half a surrogate pair");
    BAD("\"\\udc00\\ud800\"", 2, "half a surrogate pair");
    BAD("\"\\ud800\\ud800\"", 2, "half a surrogate pair");
    BAD("\"\\ud800\\u0041\"", 2, "half a surrogate pair");
    BAD("\"\\ud800\\n\"", 2, "half a surrogate pair");
    BAD("\"\\ud800\\u", 2, "half a surrogate pair");
    BAD("\"a\x80\"", 3, "byte 0x80, which is not UTF-8");
    BAD("\"\xc0\xaf\"", 2, "byte 0xc0, which is not UTF-8");
    BAD("\"\xe0\x80\xaf\"", 2, "byte 0xe0, which is not UTF-8");
    BAD("\"\xed\xa0\x80\"", 2, "byte 0xed, which is not UTF-8");
    BAD("\"\xf4\x90\x80\x80\"", 2, "byte 0xf4, which is not UTF-8");
    BAD("\"\xf0\x9f\x98\"", 2, "byte 0xf0, which is not UTF-8");
    BAD("\"\xc3", 2, "byte 0xc3, which is not UTF-8");
}

static void test_number_syntax(void)
{
    READ("[0,-0,10,-1.5,1e5,1E-5,1.25e+10]", "[0 -0 10 -1.5 1e5 1E-5 1.25e+10]");
    BAD("01", 2, "'1' where the end is expected");
    BAD("-", 2, "the text ends where a digit is expected");
    BAD("-a", 2, "'a' where a digit is expected");
    BAD("+1", 1, "'+' where a value is expected");
    BAD(".5", 1, "'.' where a value is expected");
    BAD("1.", 3, "the text ends where a digit is expected");
    BAD("1.e5", 3, "'e' where a digit is expected");
    BAD("1e", 3, "the text ends where a digit is expected");
    BAD("1e+-5", 4, "'-' where a digit is expected");
    BAD("0x10", 2, "'x' where the end is expected");
    BAD("1_000", 2, "'_' where the end is expected");
}

static void test_bounds(void)
{
    char text[128];
    memset(text, '[', 64);
    memset(text + WEIR__JSON_DEPTH_MAX, ']', WEIR__JSON_DEPTH_MAX);
    check(text, 2 * WEIR__JSON_DEPTH_MAX, ROOM, "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]");
    memset(text, '[', 64);
    check(text, 64, ROOM, "!JSON, byte 17: brackets nested more than 16 deep");
    for (int i = 0; i < 20; i++)
        memcpy(text + 5 * i, "{\"a\":", 5);
    check(text, 100, ROOM, "!JSON, byte 81: brackets nested more than 16 deep");
    check("[1,2]", 5, 3, "[1 2]");
    check("[1,2,3]", 7, 3, "!JSON, byte 6: more than 3 values and names; send less at once");
    check("{\"a\":1}", 7, 2, "!JSON, byte 6: more than 2 values and names; send less at once");
    check("{\"a\":1}", 7, 1, "!JSON, byte 2: more than 1 values and names; send less at once");
    check("[null]", 6, 1, "!JSON, byte 2: more than 1 values and names; send less at once");
    check("1", 1, 0, "!JSON, byte 1: more than 0 values and names; send less at once");
}

static void test_members(void)
{
    char text[] = "{\"a\":[1,{\"b\":2}],\"b\":\"x\",\"\":null}";
    struct weir__json_node nodes[ROOM];
    CHECK_INT(weir__json_read(text, sizeof text - 1, nodes, ROOM, NULL), 11);
    const struct weir__json_node *b = weir__json_member(nodes, nodes, "b");
    CHECK(b && b->type == WEIR__JSON_STRING && !strcmp(b->text, "x"));
    const struct weir__json_node *a = weir__json_member(nodes, nodes, "a");
    CHECK(a && a->type == WEIR__JSON_ARRAY && a->len == 2);
    CHECK(weir__json_member(nodes, nodes, "")->type == WEIR__JSON_NULL);
    CHECK(!weir__json_member(nodes, nodes, "c"));
    CHECK(!weir__json_member(nodes, nodes, "aa"));
    CHECK(a && !weir__json_member(nodes, a, "b"));
    CHECK(b && !weir__json_member(nodes, b, "x"));
    const struct weir__json_node *inner = weir__json_member(nodes, &nodes[4], "b");
    CHECK(inner && inner->type == WEIR__JSON_NUMBER && inner->text[0] == '2');
    CHECK(!weir__json_member(nodes, &nodes[4], "a"));
}

/* ---- numbers ---- */

static struct weir__json_node number_node(const char *text)
{
    return (struct weir__json_node){
        .type = WEIR__JSON_NUMBER, .text = text, .len = (uint32_t)strlen(text)};
}

static void check_integer(const char *text, bool whole, int64_t expected)
{
    struct weir__json_node node = number_node(text);
    int64_t got = 4242;
    CHECK_INT(weir__json_integer(&node, INT64_MIN, INT64_MAX, &got), whole);
    CHECK_INT(got, whole ? expected : 4242);
}

static void test_integers(void)
{
    check_integer("0", true, 0);
    check_integer("-0", true, 0);
    check_integer("-0.000e999999999999999999999", true, 0);
    check_integer("17", true, 17);
    check_integer("-17", true, -17);
    check_integer("1e3", true, 1000);
    check_integer("1.0", true, 1);
    check_integer("1.50e1", true, 15);
    check_integer("1200e-2", true, 12);
    check_integer("0.0001e4", true, 1);
    check_integer("1000000000000", true, INT64_C(1000000000000));
    check_integer("9223372036854775807", true, INT64_MAX);
    check_integer("-9223372036854775808", true, INT64_MIN);
    check_integer("9223372036854775.807E3", true, INT64_MAX);
    check_integer("10000000000000000000000000000000000000000e-40", true, 1);
    check_integer("0.0000000000000000000000000000000000000005e40", true, 5);
    check_integer("9223372036854775808", false, 0);
    check_integer("-9223372036854775809", false, 0);
    check_integer("18446744073709551616", false, 0);
    check_integer("99999999999999999999999999999999999", false, 0);
    check_integer("1e19", false, 0);
    check_integer("10e18", false, 0);
    check_integer("1e999999999999999999999", false, 0);
    check_integer("1e-999999999999999999999", false, 0);
    check_integer("1.5", false, 0);
    check_integer("1e-1", false, 0);
    check_integer("0.1", false, 0);
    struct weir__json_node node = number_node("5");
    int64_t got = 4242;
    CHECK(weir__json_integer(&node, 5, 5, &got) && got == 5);
    CHECK(!weir__json_integer(&node, 6, 9, &got) && got == 5);
    CHECK(!weir__json_integer(&node, 0, 4, &got));
    node.type = WEIR__JSON_STRING;
    CHECK(!weir__json_integer(&node, 0, 9, &got));
    CHECK(!weir__json_seconds(&node, &got));
}

static void check_seconds(const char *text, int64_t expected)
{
    struct weir__json_node node = number_node(text);
    int64_t got = -7;
    CHECK_INT(weir__json_seconds(&node, &got), expected >= 0);
    CHECK_INT(got, expected >= 0 ? expected : -7);
}

static void test_seconds(void)
{
    check_seconds("0", 0);
    check_seconds("-0.0", 0);
    check_seconds("1", 1000000);
    check_seconds("0.000001", 1);
    check_seconds("1.5", 1500000);
    check_seconds("1.500000000", 1500000);
    check_seconds("15e-1", 1500000);
    check_seconds("1e-6", 1);
    check_seconds("9223372036854.775807", INT64_MAX);
    check_seconds("9223372036854.775808", -1);
    check_seconds("0.0000001", -1);
    check_seconds("1e-7", -1);
    check_seconds("1e300", -1);
    check_seconds("-1", -1);
    check_seconds("-0.000001", -1);
}

/* ---- writing ---- */

static void test_writing(void)
{
    char text[1024];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    struct weir__json json = {&out, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_int(&json, "int", INT64_MIN);
    weir__json_put_uint(&json, "uint", UINT64_MAX);
    weir__json_put_uint(&json, "small", 7);
    weir__json_put_double(&json, "double", 1.5);
    weir__json_put_double(&json, "large", 1e300);
    weir__json_put_double(&json, "little", -1.25e-9);
    weir__json_put_double(&json, "infinite", (double)INFINITY);
    weir__json_put_double(&json, "none", (double)NAN);
    weir__json_open(&json, "list", '[');
    weir__json_put_bool(&json, NULL, true);
    weir__json_put_bool(&json, NULL, false);
    weir__json_put_null(&json, NULL);
    weir__json_open(&json, NULL, '{');
    weir__json_close(&json, '}');
    weir__json_open(&json, NULL, '[');
    weir__json_close(&json, ']');
    weir__json_close(&json, ']');
    weir__json_put_seconds(&json, "soon", 1);
    weir__json_put_seconds(&json, "later", 123456789);
    weir__json_put_seconds(&json, "never", WEIR_NEVER);
    weir__json_close(&json, '}');
    CHECK_TEXT(out.data, "{\"int\":-9223372036854775808,\"uint\":18446744073709551615,\"small\":7,"
                         "\"double\":1.5,\"large\":1e+300,\"little\":-1.25e-09,\"infinite\":null,"
                         "\"none\":null,\"list\":[true,false,null,{},[]],\"soon\":0.000001,"
                         "\"later\":123.456789,\"never\":null}");
    struct weir__json_node nodes[ROOM];
    CHECK(weir__json_read(text, out.len, nodes, ROOM, NULL) > 0);
}

static void check_text(const char *bytes, size_t len, const char *expected)
{
    char text[512];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    struct weir__json json = {&out, false};
    char *copy = malloc(len + !len); /* ends where the text ends */
    memcpy(copy, bytes, len);
    weir__json_put_text(&json, NULL, copy, len);
    CHECK_TEXT(out.data, expected);
    struct weir__json_node node;
    CHECK_INT(weir__json_read(text, out.len, &node, 1, NULL), 1);
    if (weir__utf8_valid(copy, len))
        CHECK(node.len == len && !memcmp(node.text, copy, len));
    free(copy);
}
#define TEXT(bytes, expected) check_text(bytes, sizeof bytes - 1, expected)

static void test_written_texts(void)
{
    TEXT("", "\"\"");
    TEXT("plain", "\"plain\"");
    TEXT("more than sixteen bytes, then a \" and more of them",
         "\"more than sixteen bytes, then a \\\" and more of them\"");
    TEXT("\"\\/\n\r\t\x01\x1f\x7f", "\"\\\"\\\\/\\n\\u000d\\u0009\\u0001\\u001f\\u007f\"");
    TEXT("\0", "\"\\u0000\"");
    TEXT("caf\xc3\xa9 \xf0\x9f\x98\x80", "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"");
    TEXT("\xff\xc3", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    TEXT("a\xed\xa0\x80z", "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
}

static void check_key(const char *key, size_t len, const char *expected)
{
    char text[512];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    struct weir__json json = {&out, true};
    weir__json_put_key(&json, key, len);
    CHECK_TEXT(out.data, expected);
}

static void test_written_keys(void)
{
    check_key("user:42", 7, ",\"key\":\"user:42\"");
    check_key("caf\xc3\xa9 with a long tail", 22, ",\"key\":\"caf\xc3\xa9 with a long tail\"");
    check_key("\xff", 1, ",\"key_base64\":\"/w==\"");
    check_key("more than eight bytes\xfe\xff", 23,
              ",\"key_base64\":\"bW9yZSB0aGFuIGVpZ2h0IGJ5dGVz/v8=\"");
}

/* What does not fit is cut, and said to be. */
static void test_little_room(void)
{
    char text[8];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    struct weir__json json = {&out, false};
    weir__json_put_text(&json, "name", "value", 5);
    CHECK(out.cut);
    CHECK_TEXT(out.data, "\"name\":");
}

/* Whatever the locale of the program around, the decimal point is one. */
static void test_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        if (setlocale(LC_NUMERIC, names[i]))
            break;
    }
    char text[64];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    struct weir__json json = {&out, false};
    weir__json_put_double(&json, NULL, 1234.5);
    CHECK_TEXT(out.data, "1234.5");
    setlocale(LC_NUMERIC, "C");
}

/* ---- base64 ---- */

static void check_decode(const char *text, const char *expected)
{
    size_t len = strlen(text);
    char *copy = malloc(len + !len);
    memcpy(copy, text, len);
    int64_t got = weir__base64_decode(copy, len);
    CHECK_INT(got, expected ? (int64_t)strlen(expected) : -1);
    CHECK(!expected || !memcmp(copy, expected, strlen(expected)));
    free(copy);
}

static void test_base64(void)
{
    /* RFC 4648, section 10, with padding and without */
    static const char *const pairs[][2] = {
        {"", ""},
        {"Zg==", "f"},
        {"Zm8=", "fo"},
        {"Zm9v", "foo"},
        {"Zm9vYg==", "foob"},
        {"Zm9vYmE=", "fooba"},
        {"Zm9vYmFy", "foobar"},
        {"/+8/", "\xff\xef?"},
    };
    for (size_t i = 0; i < WEIR__COUNT(pairs); i++) {
        char text[32], shorter[32];
        struct weir__buffer out = weir__buffer_over(text, sizeof text);
        weir__put_base64(&out, pairs[i][1], strlen(pairs[i][1]));
        CHECK_TEXT(out.data, pairs[i][0]);
        check_decode(pairs[i][0], pairs[i][1]);
        snprintf(shorter, sizeof shorter, "%.*s", (int)strcspn(text, "="), text);
        check_decode(shorter, pairs[i][1]);
    }
    static const char *const bad[] = {"Z",      "Zg=",  "Zg===",    "Zm9=v", "====",
                                      "=",      "==",   "Zh==",     "Zm9vY", "Zm 8",
                                      "Zm8=\n", "Zm9-", "Zg==Zg==", "A==="};
    for (size_t i = 0; i < WEIR__COUNT(bad); i++)
        check_decode(bad[i], NULL);
}

int main(void)
{
    test_values();
    test_syntax();
    test_strings();
    test_number_syntax();
    test_bounds();
    test_members();
    test_integers();
    test_seconds();
    test_writing();
    test_written_texts();
    test_written_keys();
    test_little_room();
    test_locale();
    test_base64();
    return test_report();
}
