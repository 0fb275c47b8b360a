/* Formats one by one: notation, lines of text, JSON and CSV, what is wrong with them and where. */
#include "desk/format.h"
#include "test.h"

static struct desk_format format;
static struct desk_fields fields;
static struct desk_wrong wrong;
static struct desk_wanted wanted;
static weir_error err;

static bool compile(const char *text)
{
    memset(&format, 0, sizeof format);
    return desk_text_compile(text, &wanted, &format, &err) == 0;
}

static char *line_memory;

/* In memory of its own, so that a read past its end is seen. */
static bool reads(const char *line)
{
    size_t len = strlen(line);
    free(line_memory);
    line_memory = malloc(len + !len);
    memcpy(line_memory, line, len);
    return desk_format_read(&format, (struct weir__span){line_memory, len}, &fields, &wrong);
}

static const char *at(uint8_t slot)
{
    static char text[256];
    if (!desk_fields_has(&fields, slot))
        return "(absent)";
    snprintf(text, sizeof text, "%.*s", (int)fields.at[slot].len, fields.at[slot].data);
    return text;
}

static void test_notation(void)
{
    CHECK(compile("$remote_addr [$time_local] \"$request\" ${status}x"));
    CHECK(reads("1.2.3.4 [now] \"GET / \\\"quoted\\\" HTTP/1.1\" 200x"));
    CHECK_TEXT(at(DESK_IP), "1.2.3.4");
    CHECK_TEXT(at(DESK_TIME), "now");
    CHECK_TEXT(at(DESK_REQUEST), "GET / \\\"quoted\\\" HTTP/1.1");
    CHECK_TEXT(at(DESK_STATUS), "200");
    CHECK(!reads("1.2.3.4 [now] \"GET /\" 200"));
    CHECK(!reads("1.2.3.4 [now] \"GET /\" 200xy"));
    CHECK(reads("1.2.3.4 [now] \"GET /\" 200xx")); /* the last one ends the line */
    CHECK_TEXT(at(DESK_STATUS), "200x");
    CHECK(!reads("1.2.3.4 now"));
    CHECK_INT(wrong.at, 0);
    CHECK(!reads("1.2.3.4 [now] 200x"));
    CHECK_INT(wrong.at, 9);
    CHECK(!reads(""));
    CHECK(reads("1.2.3.4 [now] \"ends with \\\" 200x")); /* a backslash that escapes nothing */
    CHECK_TEXT(at(DESK_REQUEST), "ends with \\");
    CHECK(compile("t=$msec"));
    CHECK(reads("t=12.5 rest") && !strcmp(at(DESK_TIME), "12.5 rest"));
    CHECK(!reads("u=12.5"));
}

static void test_refused(void)
{
    CHECK(!compile("$time_local$status") && err.column == 12);
    CHECK(!compile("$time_local ${status") && strstr(err.message, "expected the name"));
    CHECK(!compile("$time_local $") && strstr(err.message, "expected the name"));
    CHECK(!compile("") && strstr(err.message, "has no time"));
    CHECK(!compile("just text") && strstr(err.message, "has no time"));
    char many[1024] = "$time_local";
    for (int i = 0; i < DESK_STEPS_MAX; i++)
        strcat(many, " $a");
    CHECK(!compile(many) && strstr(err.message, "at most 64 variables"));
    char text[DESK_LITERALS_MAX + 64] = "$time_local ";
    memset(text + 12, 'x', DESK_LITERALS_MAX);
    CHECK(!compile(text) && strstr(err.message, "longer than"));
}

/* Of several names for one slot the first in the table counts, wherever it stands. */
static void test_names(void)
{
    CHECK(compile("$http_x_forwarded_for $remote_addr $time_local $msec"));
    CHECK(reads("9.9.9.9 1.2.3.4 now 5.0"));
    CHECK_TEXT(at(DESK_IP), "1.2.3.4");
    CHECK_TEXT(at(DESK_TIME), "5.0");
    uint8_t slot = desk_wanted_slot(&wanted, weir__span_of("header.x-forwarded-for"));
    uint8_t raw = desk_wanted_slot(&wanted, weir__span_of("remote_addr"));
    CHECK(slot >= DESK_NAMED && raw == slot + 1);
    CHECK_INT(desk_wanted_slot(&wanted, weir__span_of("header.x-forwarded-for")), slot);
    CHECK_INT(desk_wanted_slot(&wanted, weir__span_of("header.user-agent")), DESK_AGENT);
    CHECK(compile("$http_x_forwarded_for $remote_addr $time_local"));
    CHECK(reads("9.9.9.9 1.2.3.4 now"));
    CHECK_TEXT(at(slot), "9.9.9.9");
    CHECK_TEXT(at(raw), "1.2.3.4");
    CHECK_TEXT(at(DESK_IP), "1.2.3.4");
    wanted.moved[wanted.moved_count].slot = DESK_IP;
    wanted.moved[wanted.moved_count].name = "http_x_forwarded_for";
    wanted.moved[wanted.moved_count++].len = strlen("http_x_forwarded_for");
    CHECK(compile("$http_x_forwarded_for $remote_addr $time_local"));
    CHECK(reads("9.9.9.9 1.2.3.4 now"));
    CHECK_TEXT(at(DESK_IP), "9.9.9.9");
    memset(&wanted, 0, sizeof wanted);
}

static void test_json(void)
{
    uint8_t deep = desk_wanted_slot(&wanted, weir__span_of("a.b.c"));
    uint8_t field = desk_wanted_slot(&wanted, weir__span_of("header.x-id"));
    memset(&format, 0, sizeof format);
    CHECK_INT(desk_json_compile(&wanted, &format, &err), 0);
    CHECK(reads("{\"TIME\":1.5,\"request\":{\"remote_ip\":\"1.2.3.4\",\"method\":\"GET\","
                "\"headers\":{\"X-Id\":[\"seven\",\"eight\"],\"Other\":[[],{}]}},\"a\":{\"b\":{"
                "\"c\":true}},\"status\":200,\"x\":{\"y\":[1,{\"z\":\"}\"}]} }"));
    CHECK_TEXT(at(DESK_TIME), "1.5");
    CHECK_TEXT(at(DESK_IP), "1.2.3.4");
    CHECK_TEXT(at(DESK_METHOD), "GET");
    CHECK_TEXT(at(DESK_STATUS), "200");
    CHECK_TEXT(at(deep), "true");
    CHECK_TEXT(at(field), "seven");
    CHECK(reads("{\"a.b.c\":\"flat\",\"time\":null,\"ip\":\"a\\\"b\\\\\"}"));
    CHECK_TEXT(at(deep), "flat");
    CHECK_TEXT(at(DESK_TIME), "(absent)");
    CHECK_TEXT(at(DESK_IP), "a\\\"b\\\\");
    CHECK(fields.escaped >> DESK_IP & 1);
    CHECK(reads("{}") && reads(" { } ") && reads("{\"a\":[]}"));
    static const char *const bad[] = {
        "",         "x",         "[]",          "{",          "{\"a\"}",    "{\"a\":}",
        "{\"a\":1", "{\"a\":\"", "{\"a\":[",    "{\"a\":{}",  "{\"a\":1}x", "{\"a\":1,}",
        "{a:1}",    "{\"a\" 1}", "{\"a\":\"\\", "{\"a\":[1}", "{\"x\":[{"};
    for (size_t i = 0; i < WEIR__COUNT(bad); i++) {
        if (!CHECK(!reads(bad[i])))
            printf("  %s is read\n", bad[i]);
        CHECK(wrong.at <= strlen(bad[i]) && wrong.why);
    }
    memset(&wanted, 0, sizeof wanted);
}

static void test_csv(void)
{
    memset(&format, 0, sizeof format);
    CHECK(desk_csv_compile(weir__span_of("Time,\"User\",x"), &wanted, &format));
    CHECK(reads("5,\"a,\"\"b\"\"\",") && fields.escaped >> DESK_USER & 1);
    CHECK_TEXT(at(DESK_TIME), "5");
    CHECK_TEXT(at(DESK_USER), "a,\"\"b\"\"");
    CHECK(!reads("5,a") && wrong.at == 3);
    CHECK(!reads("5,a,b,c"));
    CHECK(!reads("5,\"a,b"));
    CHECK(!reads("5,\"a\"x,b"));
    CHECK(!reads("5,a\"b,c"));
    memset(&format, 0, sizeof format);
    CHECK(!desk_csv_compile(weir__span_of("a,b,c"), &wanted, &format));
    memset(&format, 0, sizeof format);
    CHECK(!desk_csv_compile(weir__span_of("time"), &wanted, &format));
    char many[2048] = "time";
    for (int i = 0; i < DESK_COLUMNS_MAX; i++)
        strcat(many, ",c");
    memset(&format, 0, sizeof format);
    CHECK(!desk_csv_compile(weir__span_of(many), &wanted, &format));
}

int main(void)
{
    test_notation();
    test_refused();
    test_names();
    test_json();
    test_csv();
    free(line_memory);
    return test_report();
}
