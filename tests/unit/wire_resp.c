/*
 * The RESP reader: every type, every failure, every limit, and that portions do not matter. Each
 * case is read whole, in two portions cut at every byte, and byte by byte, from memory that moves
 * each time and ends where the bytes end.
 */
#include "test.h"

#include "wire/resp.h"

#include <stdlib.h>

#define ROOM 32

static const struct weir__resp_limits wide = {8, 4096, 256, 8192};

/* What a stream was read as. */
struct outcome {
    char text[4096];
    struct weir__buffer out;
};

/* "*[:1 $abc]" for an array of both, NUL as @; returns the node behind. */
static uint32_t show(struct weir__buffer *out, const char *data,
                     const struct weir__resp_node *nodes, uint32_t i)
{
    const struct weir__resp_node *node = &nodes[i];
    char type = (char)node->type;
    uint32_t child = i + 1;
    weir__put(out, &type, 1);
    switch (node->type) {
    case WEIR__RESP_INTEGER:
    case WEIR__RESP_BOOLEAN:
        weir__put_int(out, node->integer);
        break;
    case WEIR__RESP_DOUBLE:
        weir__put_format(out, "%.17g", node->number);
        break;
    case WEIR__RESP_NULL:
        break;
    case WEIR__RESP_ARRAY:
    case WEIR__RESP_MAP:
    case WEIR__RESP_SET:
    case WEIR__RESP_PUSH:
        weir__put_text(out, "[");
        for (uint32_t k = 0; k < node->len; k++) {
            weir__put_text(out, k ? " " : "");
            child = show(out, data, nodes, child);
        }
        weir__put_text(out, "]");
        break;
    default:
        for (uint32_t k = 0; k < node->len; k++)
            weir__put(out, data[node->at + k] ? data + node->at + k : "@", 1);
    }
    CHECK_INT(node->next, child);
    return child;
}

/* Takes the messages that are in stream[start … end), from a copy that ends there. */
static size_t take(struct weir__resp_reader *reader, const char *stream, size_t start, size_t end,
                   struct outcome *outcome)
{
    enum weir__resp_status status;
    do {
        size_t len = end - start;
        char *copy = malloc(len + !len);
        memcpy(copy, stream + start, len);
        status = weir__resp_next(reader, copy, len);
        if (status == WEIR__RESP_MESSAGE) {
            CHECK_INT(show(&outcome->out, copy, reader->nodes, 0), reader->count);
            weir__put_text(&outcome->out, ";");
            CHECK(reader->size >= 1 && reader->size <= len);
            start += reader->size;
        }
        free(copy);
    } while (status == WEIR__RESP_MESSAGE);
    return start;
}

/* Reads the stream in portions: up to `cut`, then in `step`s. */
static void read_in(enum weir__resp_side side, const struct weir__resp_limits *limits,
                    uint32_t room, const char *stream, size_t len, size_t cut, size_t step,
                    struct outcome *outcome)
{
    struct weir__resp_reader reader;
    struct weir__resp_node *nodes = malloc(room * sizeof *nodes);
    outcome->out = weir__buffer_over(outcome->text, sizeof outcome->text);
    weir__resp_begin(&reader, side, limits, nodes, room);
    size_t start = 0, promise = 0;
    for (size_t end = cut; reader.status != WEIR__RESP_BROKEN;
         end = end + step < len ? end + step : len) {
        size_t before = start;
        start = take(&reader, stream, start, end, outcome);
        CHECK(start == before || end >= promise);
        if (reader.status == WEIR__RESP_NEED_MORE) {
            CHECK(reader.need >= 1 && end - start < limits->message);
            promise = end + reader.need;
        }
        if (end == len)
            break;
    }
    if (reader.status == WEIR__RESP_BROKEN)
        weir__put_format(&outcome->out, "!%s", reader.why);
    else
        weir__put_text(&outcome->out, start < len ? "?" : "");
    CHECK(!outcome->out.cut);
    free(nodes);
}

static void check(enum weir__resp_side side, const struct weir__resp_limits *limits, uint32_t room,
                  const char *stream, size_t len, const char *expected)
{
    struct outcome outcome;
    read_in(side, limits, room, stream, len, len, 1, &outcome);
    CHECK_TEXT(outcome.out.data, expected);
    for (size_t cut = 0; cut < len; cut++) {
        read_in(side, limits, room, stream, len, cut, len, &outcome);
        CHECK_TEXT(outcome.out.data, expected);
    }
    read_in(side, limits, room, stream, len, 0, 1, &outcome);
    CHECK_TEXT(outcome.out.data, expected);
}

#define REPLY(stream, expected)                                                                    \
    check(WEIR__RESP_REPLIES, &wide, ROOM, stream, sizeof stream - 1, expected)
#define REQUEST(stream, expected)                                                                  \
    check(WEIR__RESP_REQUESTS, &wide, ROOM, stream, sizeof stream - 1, expected)

static void test_resp2(void)
{
    REPLY("", "");
    REPLY("+OK\r\n", "+OK;");
    REPLY("+\r\n", "+;");
    REPLY("-ERR no such thing\r\n", "-ERR no such thing;");
    REPLY(":0\r\n", ":0;");
    REPLY(":-1\r\n:+7\r\n:007\r\n", ":-1;:7;:7;");
    REPLY(":9223372036854775807\r\n", ":9223372036854775807;");
    REPLY(":-9223372036854775808\r\n", ":-9223372036854775808;");
    REPLY("$5\r\nhello\r\n", "$hello;");
    REPLY("$0\r\n\r\n", "$;");
    REPLY("$4\r\n\r\n\r\n\r\n", "$\r\n\r\n;");
    REPLY("$-1\r\n", "_;");
    REPLY("*-1\r\n", "_;");
    REPLY("*0\r\n", "*[];");
    REPLY("*3\r\n:1\r\n$-1\r\n+a\r\n", "*[:1 _ +a];");
    REPLY("*2\r\n*1\r\n:1\r\n*2\r\n*0\r\n$1\r\nx\r\n", "*[*[:1] *[*[] $x]];");
    REPLY("*7\r\n:1\r\n:20\r\n:19\r\n:0\r\n:100000\r\n:0\r\n$24\r\nw1-1700000000000000-1000\r\n",
          "*[:1 :20 :19 :0 :100000 :0 $w1-1700000000000000-1000];");
}

static void test_resp3(void)
{
    REPLY("_\r\n", "_;");
    REPLY("#t\r\n#f\r\n", "#1;#0;");
    REPLY(",1.5\r\n,-10\r\n,+3e2\r\n,2.5E-1\r\n", ",1.5;,-10;,300;,0.25;");
    REPLY(",inf\r\n,-inf\r\n,nan\r\n", ",inf;,-inf;,nan;");
    REPLY("(3492890328409238509324850943850943825024385\r\n",
          "(3492890328409238509324850943850943825024385;");
    REPLY("(-1\r\n(+1\r\n", "(-1;(+1;");
    REPLY("!21\r\nSYNTAX invalid\r\nreply\r\n", "-SYNTAX invalid\r\nreply;");
    REPLY("=15\r\ntxt:Some string\r\n", "=Some string;");
    REPLY("=4\r\nmkd:\r\n", "=;");
    REPLY("%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", "%[+a :1 +b *[:2]];");
    REPLY("%0\r\n~0\r\n>0\r\n", "%[];~[];>[];");
    REPLY("~2\r\n:1\r\n:2\r\n", "~[:1 :2];");
    REPLY(">3\r\n+message\r\n+channel\r\n$2\r\nhi\r\n+OK\r\n", ">[+message +channel $hi];+OK;");
}

static void test_attributes(void)
{
    REPLY("|1\r\n+ttl\r\n:3600\r\n:5\r\n", ":5;");
    REPLY("|0\r\n:5\r\n", ":5;");
    REPLY("|1\r\n+a\r\n*2\r\n%1\r\n+x\r\n+y\r\n:2\r\n*2\r\n:5\r\n:6\r\n", "*[:5 :6];");
    REPLY("*2\r\n:1\r\n|1\r\n+k\r\n|1\r\n+in\r\n:0\r\n+v\r\n:2\r\n", "*[:1 :2];");
    REPLY("*1\r\n|1\r\n+k\r\n+v\r\n|1\r\n+k\r\n+v\r\n*1\r\n:2\r\n:3\r\n", "*[*[:2]];:3;");
    REPLY("|1\r\n+ttl\r\n:3600\r\n", "?"); /* nothing it belongs to yet */
}

static void test_requests(void)
{
    REQUEST("*1\r\n$4\r\nPING\r\n", "*[$PING];");
    REQUEST("*2\r\n$3\r\nGET\r\n$3\r\na\0b\r\n*1\r\n$4\r\nPING\r\n", "*[$GET $a@b];*[$PING];");
    REQUEST("*0\r\n*-1\r\n\r\n\n*1\r\n$4\r\nPING\r\n", "*[];*[];*[];*[];*[$PING];");
    REQUEST("*1\r\n:1\r\n", "!expected '$', found byte 0x3a");
    REQUEST("*1\r\n*0\r\n", "!expected '$', found byte 0x2a");
    REQUEST("*1\r\n$-1\r\n", "!invalid length of a bulk string \"-1\"");
    REQUEST("*-2\r\n", "!invalid count of elements \"-2\"");
}

static void test_inline(void)
{
    REQUEST("PING\r\n", "*[$PING];");
    REQUEST("PING\n", "*[$PING];");
    REQUEST(" \t PING  a \r\nQUIT\n", "*[$PING $a];*[$QUIT];");
    REQUEST("WEIR.TAKE user:42 \"token-bucket 10/s burst 20\"\r\n",
            "*[$WEIR.TAKE $user:42 $token-bucket 10/s burst 20];");
    REQUEST("a '' \"\" b\n", "*[$a $ $ $b];");
    REQUEST("x \"\\n\\r\\t\\b\\a\\x41\\x7a\\\"\\\\\\q\"\n", "*[$x $\n\r\t\b\aAz\"\\q];");
    REQUEST("x \"\\xzz\\x4\"\n", "*[$x $xzzx4];");
    REQUEST("x 'it\\'s \\n' y\n", "*[$x $it's \\n $y];");
    REQUEST("a\"b c\" d'e'\n", "*[$ab c $de];");
    REQUEST("+OK\r\n$5\r\n", "*[$+OK];*[$$5];");
    REQUEST("x \"a\n", "!unbalanced quotes in an inline command");
    REQUEST("x 'a\n", "!unbalanced quotes in an inline command");
    REQUEST("x \"a\"b\n", "!unbalanced quotes in an inline command");
    REQUEST("x \"a\\\n", "!unbalanced quotes in an inline command");
    REQUEST("x \"a\\\"\n", "!unbalanced quotes in an inline command");
    check(WEIR__RESP_REQUESTS, &wide, 3, "a b\na b c\n", 10,
          "*[$a $b];!more than 2 words in an inline command");
    check(WEIR__RESP_REQUESTS, &wide, 1, "\na\n", 3, "*[];!more than 0 words in an inline command");
}

static void test_broken_lines(void)
{
    REPLY("?\r\n", "!invalid type byte 0x3f");
    REPLY("\r\n", "!invalid type byte 0x0d");
    REPLY("\0", "!invalid type byte 0x00");
    REPLY("+OK\r\nHTTP/1.1 400\r\n", "+OK;!invalid type byte 0x48");
    REPLY("+OK\n", "!a line must end in CR LF and contain neither of them");
    REPLY("+\n", "!a line must end in CR LF and contain neither of them");
    REPLY("+O\rK\r\n", "!a line must end in CR LF and contain neither of them");
    REPLY("+OK\r\r\n", "!a line must end in CR LF and contain neither of them");
    REPLY(":1\n", "!a line must end in CR LF and contain neither of them");
    REPLY("*1\r\n+a\n", "!a line must end in CR LF and contain neither of them");
}

static void test_broken_numbers(void)
{
    REPLY(":\r\n", "!invalid integer \"\": expected 64 bits");
    REPLY(":-\r\n", "!invalid integer \"-\": expected 64 bits");
    REPLY(": 1\r\n", "!invalid integer \" 1\": expected 64 bits");
    REPLY(":1x\r\n", "!invalid integer \"1x\": expected 64 bits");
    REPLY(":9223372036854775808\r\n", "!invalid integer \"9223372036854775808\": expected 64 bits");
    REPLY(":-9223372036854775809\r\n",
          "!invalid integer \"-9223372036854775809\": expected 64 bits");
    REPLY(":99999999999999999999999\r\n",
          "!invalid integer \"99999999999999999999999\": expected 64 bits");
    REPLY(",\r\n", "!invalid double \"\"");
    REPLY(",1.\r\n", "!invalid double \"1.\"");
    REPLY(",.5\r\n", "!invalid double \".5\"");
    REPLY(",1e\r\n", "!invalid double \"1e\"");
    REPLY(",1e+\r\n", "!invalid double \"1e+\"");
    REPLY(",0x10\r\n", "!invalid double \"0x10\"");
    REPLY(",1,5\r\n", "!invalid double \"1,5\"");
    REPLY(",infinity\r\n", "!invalid double \"infinity\"");
    REPLY("#\r\n", "!invalid boolean \"\": expected t or f");
    REPLY("#x\r\n", "!invalid boolean \"x\": expected t or f");
    REPLY("#tt\r\n", "!invalid boolean \"tt\": expected t or f");
    REPLY("_x\r\n", "!a null has no text, found \"x\"");
    REPLY("(\r\n", "!a big number without digits");
    REPLY("(-\r\n", "!a big number without digits");
    REPLY("(1a\r\n", "!a big number with byte 0x61 in it");
}

static void test_broken_lengths(void)
{
    REPLY("$\r\n", "!invalid length of a bulk string \"\"");
    REPLY("$-2\r\n", "!invalid length of a bulk string \"-2\"");
    REPLY("$-0\r\n", "!invalid length of a bulk string \"-0\"");
    REPLY("$+1\r\n", "!invalid length of a bulk string \"+1\"");
    REPLY("$?\r\n", "!invalid length of a bulk string \"?\"");
    REPLY("$9223372036854775808\r\n", "!invalid length of a bulk string \"9223372036854775808\"");
    REPLY("$9223372036854775807\r\n",
          "!a bulk string of 9223372036854775807 bytes, the most is 4096");
    REPLY("$3\r\nabcd\r\n", "!no CR LF after a bulk string of 3 bytes");
    REPLY("$3\r\nabc\rx", "!no CR LF after a bulk string of 3 bytes");
    REPLY("!-1\r\n", "!invalid length of a bulk string \"-1\"");
    REPLY("=-1\r\n", "!invalid length of a bulk string \"-1\"");
    REPLY("=3\r\ntxt\r\n", "!a verbatim string must start with its format, like txt:");
    REPLY("=5\r\ntext:\r\n", "!a verbatim string must start with its format, like txt:");
    REPLY("*\r\n", "!invalid count of elements \"\"");
    REPLY("*-2\r\n", "!invalid count of elements \"-2\"");
    REPLY("*?\r\n", "!invalid count of elements \"?\"");
    REPLY("%-1\r\n", "!invalid count of elements \"-1\"");
    REPLY("~-1\r\n", "!invalid count of elements \"-1\"");
    REPLY(">-1\r\n", "!invalid count of elements \"-1\"");
    REPLY("|-1\r\n", "!invalid count of elements \"-1\"");
    REPLY("*9223372036854775807\r\n", "!9223372036854775807 elements, a message has room for 32");
    REPLY("%9223372036854775807\r\n", "!9223372036854775807 elements, a message has room for 32");
    REPLY("|9223372036854775807\r\n", "!9223372036854775807 elements, a message has room for 32");
}

#define LIMITED(d, b, l, m, room, stream, expected)                                                \
    check(WEIR__RESP_REPLIES, &(struct weir__resp_limits){d, b, l, m}, room, stream,               \
          sizeof stream - 1, expected)

static void test_limits(void)
{
    LIMITED(2, 99, 99, 999, 9, "*1\r\n*1\r\n*0\r\n", "*[*[*[]]];");
    LIMITED(2, 99, 99, 999, 9, "*1\r\n*1\r\n*1\r\n:1\r\n", "!elements nested more than 2 deep");
    LIMITED(1, 99, 99, 999, 9, "*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n",
            "!elements nested more than 1 deep");
    LIMITED(9, 5, 99, 999, 9, "$5\r\nabcde\r\n", "$abcde;");
    LIMITED(9, 5, 99, 999, 9, "$6\r\nabcdef\r\n", "!a bulk string of 6 bytes, the most is 5");
    LIMITED(9, 5, 3, 999, 9, "+abc\r\n-abc\r\n(123\r\n", "+abc;-abc;(123;");
    LIMITED(9, 5, 3, 999, 9, "+abcd\r\n", "!a line longer than 4 bytes");
    LIMITED(9, 5, 3, 999, 9, "-abcdefghijklmno", "!a line longer than 4 bytes");
    LIMITED(9, 5, 0, 999, 9, "+\r\n+a\r\n", "+;!a line longer than 1 bytes");
    LIMITED(9, 5, 3, 999, 9, ":00000000000000000000000000000012\r\n", ":12;");
    LIMITED(9, 5, 3, 999, 9, ":000000000000000000000000000000012\r\n",
            "!a line longer than 33 bytes");
    LIMITED(9, 99, 99, 13, 9, "*2\r\n:1\r\n:22\r\n:333\r\n", "*[:1 :22];:333;");
    LIMITED(9, 99, 99, 12, 9, "*2\r\n:1\r\n:22\r\n", "!a message longer than 12 bytes");
    LIMITED(9, 99, 99, 8, 9, "*2\r\n:1\r\n:22\r\n", "!a message longer than 8 bytes");
    LIMITED(9, 99, 99, 9, 9, "$3\r\nabc\r\n", "$abc;");
    LIMITED(9, 99, 99, 8, 9, "$3\r\nabc\r\n", "!a message longer than 8 bytes");
    LIMITED(9, 99, 99, 1, 9, "+OK\r\n", "!a message longer than 1 bytes");
    LIMITED(9, 99, 99, 999, 3, "*2\r\n:1\r\n:2\r\n", "*[:1 :2];");
    LIMITED(9, 99, 99, 999, 3, "*3\r\n", "!3 elements, a message has room for 3");
    LIMITED(9, 99, 99, 999, 4, "*2\r\n*1\r\n:1\r\n:2\r\n", "*[*[:1] :2];");
    LIMITED(9, 99, 99, 999, 4, "*2\r\n*2\r\n", "!2 elements, a message has room for 4");
    LIMITED(9, 99, 99, 999, 3, "%1\r\n:1\r\n:2\r\n", "%[:1 :2];");
    LIMITED(9, 99, 99, 999, 4, "%2\r\n", "!2 elements, a message has room for 4");
    LIMITED(9, 99, 99, 999, 2, "|1\r\n+a\r\n+b\r\n:2\r\n", ":2;");
    LIMITED(9, 99, 99, 999, 2, "|2\r\n", "!2 elements, a message has room for 2");
    LIMITED(9, 99, 99, 999, 1, "*0\r\n:1\r\n*1\r\n",
            "*[];:1;!1 elements, a message has room for 1");
}

static void test_request_limits(void)
{
    const struct weir__resp_limits four = {1, 99, 4, 99}, six = {1, 99, 99, 6};
    check(WEIR__RESP_REQUESTS, &four, 9, "PING\r\nPING\n", 11, "*[$PING];*[$PING];");
    check(WEIR__RESP_REQUESTS, &four, 9, "PINGS\n", 6, "!a line longer than 4 bytes");
    check(WEIR__RESP_REQUESTS, &four, 9, "PINGS\r\n", 7, "!a line longer than 4 bytes");
    check(WEIR__RESP_REQUESTS, &six, 9, "PING\r\nPINGS\n", 12, "*[$PING];*[$PINGS];");
    check(WEIR__RESP_REQUESTS, &six, 9, "PINGS\r\n", 7, "!a message longer than 6 bytes");
    check(WEIR__RESP_REQUESTS, &wide, 3, "*2\r\n$1\r\na\r\n$1\r\nb\r\n*3\r\n", 22,
          "*[$a $b];!3 elements, a message has room for 3");
}

/* The deepest there is, and one deeper. */
static void test_depth(void)
{
    char stream[4 * (WEIR__RESP_DEPTH_MAX + 1) + 5];
    struct weir__buffer buffer = weir__buffer_over(stream, sizeof stream);
    struct weir__resp_limits limits = {WEIR__RESP_DEPTH_MAX, 9, 9, 999};
    struct weir__resp_node nodes[WEIR__RESP_DEPTH_MAX + 2];
    struct weir__resp_reader reader;
    for (int i = 0; i <= WEIR__RESP_DEPTH_MAX; i++)
        weir__put_text(&buffer, "*1\r\n");
    weir__put_text(&buffer, ":1\r\n");
    weir__resp_begin(&reader, WEIR__RESP_REPLIES, &limits, nodes, WEIR__COUNT(nodes));
    CHECK_INT(weir__resp_next(&reader, stream + 4, buffer.len - 4), WEIR__RESP_MESSAGE);
    CHECK_INT(reader.count, WEIR__RESP_DEPTH_MAX + 1);
    CHECK_INT(weir__resp_next(&reader, stream, buffer.len), WEIR__RESP_BROKEN);
    CHECK_TEXT(reader.why, "elements nested more than 16 deep");
    CHECK_INT(weir__resp_next(&reader, stream + 4, buffer.len - 4), WEIR__RESP_BROKEN);
    weir__resp_begin(&reader, WEIR__RESP_REPLIES, &limits, nodes, WEIR__COUNT(nodes));
    CHECK_INT(weir__resp_next(&reader, stream + 4, buffer.len - 4), WEIR__RESP_MESSAGE);
}

/* The hint says exactly what a bulk string lacks, and the same bytes are not scanned twice. */
static void test_need(void)
{
    enum { LINE = 1 << 20 };
    struct weir__resp_limits limits = {1, LINE, LINE, 2 * LINE};
    struct weir__resp_node nodes[2];
    struct weir__resp_reader reader;
    char bulk[] = "$1000\r\nabc";
    weir__resp_begin(&reader, WEIR__RESP_REPLIES, &limits, nodes, 2);
    CHECK_INT(weir__resp_next(&reader, bulk, 10), WEIR__RESP_NEED_MORE);
    CHECK_INT(reader.need, 999);
    weir__resp_begin(&reader, WEIR__RESP_REPLIES, &limits, nodes, 2);
    char *line = malloc(LINE + 3);
    memset(line, 'x', LINE + 3);
    line[0] = '+';
    for (size_t len = 0; len <= LINE; len++) {
        if (weir__resp_next(&reader, line, len) != WEIR__RESP_NEED_MORE || reader.scanned != len)
            break;
    }
    CHECK_INT(reader.scanned, LINE);
    memcpy(line + LINE + 1, "\r\n", 2);
    CHECK_INT(weir__resp_next(&reader, line, LINE + 3), WEIR__RESP_MESSAGE);
    CHECK_INT(nodes[0].len, LINE);
    free(line);
}

int main(void)
{
    test_resp2();
    test_resp3();
    test_attributes();
    test_requests();
    test_inline();
    test_broken_lines();
    test_broken_numbers();
    test_broken_lengths();
    test_limits();
    test_request_limits();
    test_depth();
    test_need();
    return test_report();
}
