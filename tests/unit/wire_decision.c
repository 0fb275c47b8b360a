/* Decisions on the wire: numbers and back, RESP replies, JSON members, words. */
#include "test.h"

#include "core/core.h"
#include "wire/decision.h"

static const weir_decision allowed = {.allowed = true,
                                      .limit = 10,
                                      .remaining = 9,
                                      .reset_after_us = 100000,
                                      .lease = 77,
                                      .granted = 4};
static const weir_decision denied = {.limit = 12,
                                     .remaining = 0,
                                     .retry_after_us = 1000001,
                                     .reset_after_us = 123456789,
                                     .binding = 1};
static const weir_decision never = {.limit = 5, .remaining = 5, .retry_after_us = WEIR_NEVER};

static char room[480];

#define CHECK_ROOM(expected) CHECK(!strcmp(room, expected))

static struct weir__buffer begin(void)
{
    return weir__buffer_over(room, sizeof room);
}

static void test_numbers_and_back(void)
{
    const weir_decision *const all[] = {&allowed, &denied, &never};
    for (size_t i = 0; i < WEIR__COUNT(all); i++) {
        int64_t numbers[WEIR__ROW_NUMBERS], again[WEIR__ROW_NUMBERS];
        weir__row_numbers(all[i], numbers);
        weir_decision back = weir__row_of(numbers);
        weir__row_numbers(&back, again);
        CHECK(!memcmp(numbers, again, sizeof numbers));
    }
}

static void test_resp(void)
{
    struct weir__buffer out = begin();
    struct weir__span receipt = weir__span_of("w1-2-3");
    weir__resp_put_decision(&out, &denied, receipt, false, false, NULL, 0);
    CHECK_ROOM("*7\r\n:0\r\n:12\r\n:0\r\n:1000001\r\n:123456789\r\n:0\r\n$6\r\nw1-2-3\r\n");
    out = begin();
    weir__resp_put_decision(&out, &allowed, receipt, false, true, NULL, 0);
    CHECK_ROOM("*8\r\n:1\r\n:10\r\n:9\r\n:0\r\n:100000\r\n:0\r\n$6\r\nw1-2-3\r\n:77\r\n");
    out = begin();
    const weir_decision rows[] = {allowed, denied};
    weir__resp_put_decision(&out, &denied, receipt, false, false, rows, 2);
    CHECK_ROOM("*10\r\n:0\r\n:12\r\n:0\r\n:1000001\r\n:123456789\r\n:0\r\n$6\r\nw1-2-3\r\n:1\r\n"
               "*6\r\n:1\r\n:10\r\n:9\r\n:0\r\n:100000\r\n:0\r\n"
               "*6\r\n:0\r\n:12\r\n:0\r\n:1000001\r\n:123456789\r\n:0\r\n");
    out = begin();
    weir__resp_put_decision(&out, &allowed, receipt, true, true, &allowed, 1);
    CHECK_ROOM(
        "*11\r\n:1\r\n:10\r\n:9\r\n:0\r\n:100000\r\n:0\r\n$6\r\nw1-2-3\r\n:4\r\n:77\r\n:0\r\n"
        "*7\r\n:1\r\n:10\r\n:9\r\n:0\r\n:100000\r\n:0\r\n:4\r\n");
}

/* The longest row fits into the room that is promised for it. */
static void test_longest_row(void)
{
    char row[WEIR__RESP_ROW_MAX];
    weir_decision longest = {.limit = INT64_MIN,
                             .remaining = INT64_MIN,
                             .retry_after_us = INT64_MIN,
                             .reset_after_us = INT64_MIN,
                             .delay_us = INT64_MIN};
    CHECK_INT(weir__resp_write_row(row, &longest) - row, 4 + 5 * 23);
    CHECK(!memcmp(row, ":0\r\n:-9223372036854775808\r\n", 27));
}

/* Every number of digits, where the writer changes its way. */
static void test_number_lines(void)
{
    for (int64_t power = 1; power <= INT64_C(100000000000000000); power *= 10) {
        for (int64_t number = power - 1; number <= power + 1; number++) {
            char line[WEIR__RESP_NUMBER_LINE], expected[WEIR__RESP_NUMBER_LINE + 1];
            size_t len = (size_t)(weir__resp_write_number(line, ':', number) - line);
            int printed = snprintf(expected, sizeof expected, ":%lld\r\n", (long long)number);
            CHECK(len == (size_t)printed && !memcmp(line, expected, len));
        }
    }
}

static void test_throttle(void)
{
    struct weir__buffer out = begin();
    weir__resp_put_throttle(&out, &denied);
    CHECK_ROOM("*5\r\n:1\r\n:12\r\n:0\r\n:2\r\n:124\r\n"); /* seconds, rounded up */
    out = begin();
    weir__resp_put_throttle(&out, &allowed);
    CHECK_ROOM("*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:1\r\n");
    out = begin();
    weir__resp_put_throttle(&out, &never);
    CHECK_ROOM("*5\r\n:1\r\n:5\r\n:5\r\n:-1\r\n:0\r\n");
}

static void test_json(void)
{
    struct weir__buffer out = begin();
    struct weir__json json = {&out, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_decision(&json, &denied);
    weir__json_close(&json, '}');
    CHECK_ROOM("{\"allowed\":false,\"limit\":12,\"remaining\":0,\"retry_after\":1.000001,"
               "\"reset_after\":123.456789,\"delay\":0.000000,\"granted\":0}");
    out = begin();
    json = (struct weir__json){&out, false};
    weir__json_put_numbers(&json, &never);
    CHECK_ROOM("\"limit\":5,\"remaining\":5,\"retry_after\":null,\"reset_after\":0.000000,"
               "\"delay\":0.000000");
}

static void test_states(void)
{
    struct weir__shown state = {.rule = {.kind = WEIR__FIXED_WINDOW, .period_us = 60000000},
                                .count = 3,
                                .spent = 2,
                                .remaining = -1,
                                .retry_after_us = -1};
    struct weir__buffer out = begin();
    weir__resp_put_states(&out, &state, 1);
    CHECK(!strncmp(room, "*1\r\n*18\r\n$9\r\nalgorithm\r\n$12\r\nfixed-window\r\n", 42));
    out = begin();
    struct weir__json json = {&out, false};
    weir__json_put_state(&json, &state);
    CHECK(!strncmp(room, "{\"algorithm\":\"fixed-window\",\"period\":60000000,", 46));
    CHECK(!strstr(room, "\"limit\"") && !strstr(room, "\"remaining\"") && !strstr(room, "retry"));
    state.remaining = 0;
    state.retry_after_us = 1500000;
    out = begin();
    weir__json_put_state(&json, &state);
    CHECK(strstr(room, "\"remaining\":0,\"retry_after\":1.500000}"));
}

static void test_verdicts(void)
{
    CHECK_TEXT(weir__verdict_word(WEIR__VERDICT_NONE), "none");
    CHECK_TEXT(weir__verdict_word(WEIR__VERDICT_ALLOW), "allow");
    CHECK_TEXT(weir__verdict_word(WEIR__VERDICT_DENY), "deny");
    CHECK_TEXT(weir__verdict_word(WEIR__VERDICT_LIMITS), "limits");
    CHECK_TEXT(weir__verdict_word(WEIR__VERDICT_MISSING), "missing");
    CHECK_TEXT(weir__verdict_word(WEIR__VERDICT_UNREADABLE), "unreadable");
}

int main(void)
{
    test_numbers_and_back();
    test_resp();
    test_longest_row();
    test_number_lines();
    test_throttle();
    test_json();
    test_states();
    test_verdicts();
    return test_report();
}
