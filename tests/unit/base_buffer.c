/* The bounded text writer: what fits, what is cut, and that it always ends in NUL. */
#include "base/buffer.h"
#include "test.h"

static void test_fits(void)
{
    char room[8];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    CHECK_TEXT(room, "");
    weir__put_text(&buffer, "abc");
    weir__put(&buffer, "defXYZ", 3);
    CHECK_TEXT(room, "abcdef");
    weir__put_text(&buffer, "g");
    CHECK_TEXT(room, "abcdefg");
    CHECK(!buffer.cut && buffer.len == 7);
    weir__put_text(&buffer, "");
    CHECK(!buffer.cut);
}

static void test_cut(void)
{
    char room[8];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    weir__put_text(&buffer, "abcdefgh");
    CHECK_TEXT(room, "abcdefg");
    CHECK(buffer.cut && buffer.len == 7);
    weir__put_text(&buffer, "more");
    CHECK_TEXT(room, "abcdefg");
}

static void test_room_for_nothing(void)
{
    char room[1] = "x";
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    CHECK_TEXT(room, "");
    weir__put_text(&buffer, "");
    weir__put_format(&buffer, "%s", "");
    CHECK(!buffer.cut);
    weir__put_int(&buffer, 1);
    CHECK(buffer.cut && buffer.len == 0);
    CHECK_TEXT(room, "");
}

static void test_growing(void)
{
    struct weir__buffer buffer = weir__buffer_growing();
    for (int i = 0; i < 1000; i++)
        weir__put_format(&buffer, "%d:%s;", i, "a text that makes the line longer");
    weir__put(&buffer, "the end", 7);
    CHECK(!buffer.cut && buffer.len < buffer.size);
    CHECK_INT(strlen(buffer.data), buffer.len);
    CHECK_TEXT(buffer.data + buffer.len - 45, "999:a text that makes the line longer;the end");
    weir__buffer_free(&buffer);
    CHECK(!buffer.data);
}

static void check_int(int64_t number, const char *expected)
{
    char room[32];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    weir__put_int(&buffer, number);
    CHECK_TEXT(room, expected);
    CHECK_INT(buffer.len, strlen(expected));
}

static void test_ints(void)
{
    check_int(0, "0");
    check_int(-1, "-1");
    check_int(1000000000000, "1000000000000");
    check_int(INT64_MAX, "9223372036854775807");
    check_int(INT64_MIN, "-9223372036854775808");
}

static void test_format(void)
{
    char room[8];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    weir__put_format(&buffer, "%d-%s", 1, "abc");
    CHECK_TEXT(room, "1-abc");
    weir__put_format(&buffer, "%d", 12);
    CHECK_TEXT(room, "1-abc12");
    CHECK(!buffer.cut);
    weir__put_format(&buffer, "%d", 3);
    CHECK(buffer.cut && buffer.len == 7);
    CHECK_TEXT(room, "1-abc12");
    buffer = weir__buffer_over(room, sizeof room);
    weir__put_format(&buffer, "%s", "longer than that");
    CHECK_TEXT(room, "longer ");
    CHECK(buffer.cut && buffer.len == 7);
}

int main(void)
{
    test_fits();
    test_cut();
    test_growing();
    test_room_for_nothing();
    test_ints();
    test_format();
    return test_report();
}
