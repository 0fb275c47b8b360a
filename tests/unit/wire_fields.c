/* Rate limit fields: every style, every kind of limit, names, and numbers at their bounds. */
#include "test.h"

#include "wire/fields.h"

#include <stdlib.h>

#define SECOND INT64_C(1000000)

/* Limits as a text gives them, each with a decision and a name. */
struct setting {
    struct weir__rule rules[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    struct weir__rated rated[WEIR_LIMITS_MAX];
    size_t n;
};

static void set_up(struct setting *setting, const char *limits)
{
    memset(setting, 0, sizeof *setting);
    CHECK_INT(weir__rules_parse(limits, setting->rules, &setting->n, NULL), 0);
    for (size_t i = 0; i < setting->n; i++) {
        setting->rows[i] = (weir_decision){
            .limit = 100, .remaining = 7, .reset_after_us = 30 * SECOND, .allowed = true};
        setting->rated[i] = (struct weir__rated){NULL, &setting->rules[i], &setting->rows[i]};
    }
}

/* A line a field, in any memory. */
static void check(enum weir__field_style style, struct setting *setting, const char *expected)
{
    static char text[8192];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    struct weir__rate_fields *fields = malloc(sizeof *fields);
    memset(fields, 0x5a, sizeof *fields);
    weir__fold(setting->rows, setting->n, &setting->folded);
    weir__rate_fields(style, setting->rated, setting->n, &setting->folded, fields);
    for (size_t i = 0; i < fields->count; i++) {
        weir__put_format(&out, "%s: ", fields->items[i].name);
        weir__put(&out, fields->items[i].value, fields->items[i].value_len);
        weir__put_text(&out, "\n");
    }
    CHECK(!out.cut);
    CHECK_TEXT(out.data, expected);
    free(fields);
}

static void test_styles(void)
{
    struct setting setting;
    set_up(&setting, "token-bucket 10/s burst 100");
    check(WEIR__FIELDS_IETF, &setting,
          "ratelimit: \"token-bucket\";r=7;t=30\nratelimit-policy: \"token-bucket\";q=100;w=10\n");
    check(WEIR__FIELDS_IETF_06, &setting,
          "ratelimit-limit: 100\nratelimit-remaining: 7\nratelimit-reset: 30\n");
    check(WEIR__FIELDS_X, &setting,
          "x-ratelimit-limit: 100\nx-ratelimit-remaining: 7\nx-ratelimit-reset: 30\n");
    check(WEIR__FIELDS_RETRY, &setting, "");
    check(WEIR__FIELDS_OFF, &setting, "");
    /* denied: when to come again, rounded up */
    setting.rows[0].allowed = false;
    setting.rows[0].remaining = 0;
    setting.rows[0].retry_after_us = 1;
    check(WEIR__FIELDS_IETF, &setting,
          "retry-after: 1\nratelimit: \"token-bucket\";r=0;t=1\n"
          "ratelimit-policy: \"token-bucket\";q=100;w=10\n");
    setting.rows[0].retry_after_us = 2 * SECOND + 1;
    check(WEIR__FIELDS_RETRY, &setting, "retry-after: 3\n");
    check(WEIR__FIELDS_IETF_06, &setting,
          "retry-after: 3\nratelimit-limit: 100\nratelimit-remaining: 0\nratelimit-reset: 3\n");
    check(
        WEIR__FIELDS_X, &setting,
        "retry-after: 3\nx-ratelimit-limit: 100\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 3\n");
    check(WEIR__FIELDS_OFF, &setting, "");
    /* never */
    setting.rows[0].retry_after_us = WEIR_NEVER;
    check(WEIR__FIELDS_IETF, &setting,
          "ratelimit: \"token-bucket\";r=0\nratelimit-policy: \"token-bucket\";q=100;w=10\n");
    check(WEIR__FIELDS_X, &setting, "x-ratelimit-limit: 100\nx-ratelimit-remaining: 0\n");
    setting.n = 0;
    struct weir__rate_fields fields;
    weir__rate_fields(WEIR__FIELDS_IETF, NULL, 0, &setting.folded, &fields);
    CHECK_INT(fields.count, 0);
}

/* The row that bound is what the triples show, and its time what Retry-After says. */
static void test_several(void)
{
    struct setting setting;
    set_up(&setting, "token-bucket 10/s burst 100, fixed-window 1000/d");
    setting.rows[1].limit = 1000;
    setting.rows[1].remaining = 3;
    setting.rows[1].reset_after_us = 7200 * SECOND;
    check(WEIR__FIELDS_IETF, &setting,
          "ratelimit: \"token-bucket\";r=7;t=30,\"fixed-window\";r=3;t=7200\n"
          "ratelimit-policy: \"token-bucket\";q=100;w=10,\"fixed-window\";q=1000;w=86400\n");
    check(WEIR__FIELDS_X, &setting,
          "x-ratelimit-limit: 1000\nx-ratelimit-remaining: 3\nx-ratelimit-reset: 7200\n");
    setting.rows[0].allowed = false;
    setting.rows[0].retry_after_us = SECOND / 2;
    check(WEIR__FIELDS_IETF, &setting,
          "retry-after: 1\nratelimit: \"token-bucket\";r=7;t=1,\"fixed-window\";r=3;t=7200\n"
          "ratelimit-policy: \"token-bucket\";q=100;w=10,\"fixed-window\";q=1000;w=86400\n");
    check(WEIR__FIELDS_IETF_06, &setting,
          "retry-after: 1\nratelimit-limit: 100\nratelimit-remaining: 7\nratelimit-reset: 1\n");
}

#define NOW INT64_C(1770000000000000) /* 2026-02-02 */

static void check_window(const char *limit, int64_t expected_us)
{
    struct weir__rule rules[WEIR_LIMITS_MAX];
    size_t n;
    CHECK_INT(weir__rules_parse(limit, rules, &n, NULL), 0);
    CHECK_INT(weir__window_us(&rules[0], NOW), expected_us);
}

static void test_windows(void)
{
    check_window("token-bucket 100/s burst 200", 2 * SECOND);
    check_window("token-bucket 3/s burst 1", 333334); /* rounded up */
    check_window("token-bucket 1/d burst 2", 172800 * SECOND);
    check_window("leaky-bucket 10/s burst 9", SECOND);
    check_window("leaky-bucket 1/m", 60 * SECOND);
    check_window("fixed-window 10/m", 60 * SECOND);
    check_window("sliding-log 10/m", 60 * SECOND);
    check_window("sliding-window 10/h", 3600 * SECOND);
    check_window("sliding-counter 10/s", SECOND);
    check_window("smooth 100/s", SECOND);
    check_window("smooth 5/m", 12 * SECOND); /* it saves less than one */
    check_window("smooth 10/s burst-for 5s", 5 * SECOND);
    check_window("warmup 10/s over 3s", 3 * SECOND);
    check_window("concurrent 5 lease 30s", 30 * SECOND);
    check_window("fixed-window 5/month", 28 * 86400 * SECOND);
    check_window("fixed-window 5/month from 15", 31 * 86400 * SECOND);
    check_window("fixed-window 5/year", 365 * 86400 * SECOND);
    check_window("fixed-window 5/w from sun", 7 * 86400 * SECOND);
    check_window("fixed-window 5/d zone -12:00", 86400 * SECOND);
    struct setting setting;
    set_up(&setting, "concurrent 5 lease 30s, fixed-window 5/100ms");
    setting.rows[0].limit = 5;
    check(WEIR__FIELDS_IETF, &setting,
          "ratelimit: \"concurrent\";r=7;t=30,\"fixed-window\";r=7;t=30\n"
          "ratelimit-policy: \"concurrent\";q=5;qu=\"concurrent-requests\";w=30,"
          "\"fixed-window\";q=100;w=1\n");
}

/* Refills in steps take whole periods. */
static void test_stepped(void)
{
    struct weir__rule rule = {.kind = WEIR__STEPPED, .count = 10, .period_us = SECOND, .burst = 25};
    CHECK_INT(weir__window_us(&rule, NOW), 3 * SECOND);
}

#define NAMES(expected_first, expected_second, expected_third)                                     \
    "ratelimit: \"" expected_first "\";r=7;t=30,\"" expected_second                                \
    "\";r=7;t=30,\"" expected_third "\";r=7;t=30\nratelimit-policy: \"" expected_first             \
    "\";q=100;w=1,\"" expected_second "\";q=100;w=60,\"" expected_third "\";q=100;w=3600\n"

static void check_names(const char *first, const char *second, const char *third,
                        const char *expected)
{
    struct setting setting;
    set_up(&setting, "fixed-window 1/s, fixed-window 10/m, fixed-window 100/h");
    setting.rated[0].name = first;
    setting.rated[1].name = second;
    setting.rated[2].name = third;
    check(WEIR__FIELDS_IETF, &setting, expected);
}

static void test_names(void)
{
    check_names(NULL, NULL, NULL, NAMES("fixed-window", "fixed-window-2", "fixed-window-3"));
    check_names("a", NULL, "b", NAMES("a", "fixed-window", "b"));
    check_names("a", "a", "a", NAMES("a", "a-2", "a-3"));
    check_names("a", "a", "a-2", NAMES("a", "a-3", "a-2"));
    check_names("a-2", "a", "a", NAMES("a-2", "a", "a-3"));
    check_names("a", "a-2", "a-2", NAMES("a", "a-2", "a-2-2"));
    check_names("", "", "x", NAMES("", "-2", "x"));
    check_names("say \"hi\"", "back\\slash", "x", NAMES("say \\\"hi\\\"", "back\\\\slash", "x"));
    check_names("caf\xc3\xa9", "tab\t", "\x7f", NAMES("caf??", "tab?", "?"));
    check_names("\x01", "\x02", "?", NAMES("?", "?-2", "?-3"));
#define LONG "0123456789012345678901234567890123456789012345678901234567890123"
    check_names(LONG "x", LONG "y", LONG, NAMES(LONG, LONG "-2", LONG "-3"));
}

/* No number has more than fifteen digits. */
static void test_numbers(void)
{
    struct setting setting;
    set_up(&setting, "fixed-window 1/s");
    setting.rows[0].limit = INT64_MAX;
    setting.rows[0].remaining = INT64_MAX;
    setting.rows[0].reset_after_us = INT64_MAX;
    check(WEIR__FIELDS_IETF, &setting,
          "ratelimit: \"fixed-window\";r=999999999999999;t=9223372036855\n"
          "ratelimit-policy: \"fixed-window\";q=999999999999999;w=1\n");
    setting.rows[0].limit = 0;
    setting.rows[0].remaining = -5;
    setting.rows[0].reset_after_us = 0;
    check(WEIR__FIELDS_IETF, &setting,
          "ratelimit: \"fixed-window\";r=0;t=0\nratelimit-policy: \"fixed-window\";q=0;w=1\n");
    setting.rows[0].limit = 1000000;
    setting.rows[0].remaining = INT64_C(999999999999999);
    setting.rows[0].reset_after_us = SECOND;
    check(WEIR__FIELDS_X, &setting,
          "x-ratelimit-limit: 1000000\nx-ratelimit-remaining: 999999999999999\n"
          "x-ratelimit-reset: 1\n");
}

/* How many limits a list names; quotes that are escaped do not end a name. */
static int items_in(const char *value, size_t len)
{
    int items = 0;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (quoted && value[i] == '\\')
            i++;
        else if (value[i] == '"')
            quoted = !quoted;
        items += i == 0 || (!quoted && value[i] == ',');
    }
    CHECK(!quoted);
    return items;
}

/* Sixteen limits with long names and large numbers fit; where every byte is escaped, whole limits
 * are left out of what comes last. */
static void test_room(void)
{
    static struct setting setting;
    static char names[WEIR_LIMITS_MAX][80];
    static struct weir__rate_fields fields;
    set_up(&setting, "concurrent 1 lease 366d");
    for (int escaped = 0; escaped < 2; escaped++) {
        for (int i = 0; i < WEIR_LIMITS_MAX; i++) {
            memset(names[i], escaped ? '"' : 'n', 70);
            names[i][0] = (char)('a' + i);
            setting.rows[i] = setting.rows[0];
            setting.rows[i].limit = setting.rows[i].remaining = INT64_MAX;
            setting.rows[i].allowed = false;
            setting.rows[i].retry_after_us = setting.rows[i].reset_after_us = INT64_MAX;
            setting.rated[i] = (struct weir__rated){names[i], &setting.rules[0], &setting.rows[i]};
        }
        setting.folded = setting.rows[0];
        weir__rate_fields(WEIR__FIELDS_OPENAI, setting.rated, WEIR_LIMITS_MAX, &setting.folded,
                          &fields);
        CHECK(fields.count % 3 == 0 && fields.count > 3);
        CHECK(escaped ? fields.count < WEIR__RATE_FIELDS_MAX
                      : fields.count == WEIR__RATE_FIELDS_MAX);
        int left = items_in(fields.items[1].value, fields.items[1].value_len);
        int policies = items_in(fields.items[2].value, fields.items[2].value_len);
        CHECK_INT(left, WEIR_LIMITS_MAX);
        CHECK_INT(policies, WEIR_LIMITS_MAX);
        size_t last = fields.count - 1;
        CHECK(fields.items[last].value + fields.items[last].value_len <=
              fields.room + sizeof fields.room);
    }
}

/* One row per name: the one that denies, else that with least left. Names become tokens. */
static void test_openai(void)
{
    struct setting setting;
    set_up(&setting, "fixed-window 60/m, token-bucket 100k/m, fixed-window 9/h, sliding-log 9/d");
    setting.rated[0].name = "requests";
    setting.rated[1].name = setting.rated[2].name = "Tokens of: \"all\"";
    setting.rated[3].name = "tokens.of_all";
    setting.rows[2].remaining = 3;
    setting.rows[2].reset_after_us = 360 * SECOND;
    setting.rows[3].reset_after_us = 1;
    static const char head[] =
        "ratelimit: \"requests\";r=7;t=30,\"Tokens of: \\\"all\\\"\";r=7;t=30,\"Tokens of: "
        "\\\"all\\\"-2\";r=3;t=360,\"tokens.of_all\";r=7;t=1\n"
        "ratelimit-policy: \"requests\";q=100;w=60,\"Tokens of: \\\"all\\\"\";q=100;w=60,\"Tokens "
        "of: \\\"all\\\"-2\";q=100;w=3600,\"tokens.of_all\";q=100;w=86400\n"
        "x-ratelimit-limit-requests: 100\nx-ratelimit-remaining-requests: 7\n"
        "x-ratelimit-reset-requests: 30s\n";
    static const char tail[] = "x-ratelimit-limit-tokens.of_all: 100\n"
                               "x-ratelimit-remaining-tokens.of_all: 7\n"
                               "x-ratelimit-reset-tokens.of_all: 1ms\n";
    char expected[2048];
    snprintf(expected, sizeof expected, "%s%s%s", head,
             "x-ratelimit-limit-tokens-of---all-: 100\n"
             "x-ratelimit-remaining-tokens-of---all-: 3\n"
             "x-ratelimit-reset-tokens-of---all-: 6m0s\n",
             tail);
    check(WEIR__FIELDS_OPENAI, &setting, expected);
}

static void test_durations(void)
{
    static const struct {
        int64_t us;
        const char *text;
    } cases[] = {{0, "0s"},
                 {1, "1ms"},
                 {999 * 1000, "999ms"},
                 {999 * 1000 + 1, "1s"},
                 {SECOND, "1s"},
                 {SECOND + 1, "1.001s"},
                 {1500 * 1000, "1.5s"},
                 {59 * SECOND + 20 * 1000, "59.02s"},
                 {60 * SECOND, "1m0s"},
                 {360 * SECOND, "6m0s"},
                 {INT64_C(3600) * SECOND, "1h0m0s"},
                 {INT64_C(3661) * SECOND + 500 * 1000, "1h1m1.5s"},
                 {INT64_C(86400) * 31 * SECOND, "744h0m0s"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setting setting;
        char expected[256];
        set_up(&setting, "token-bucket 10/s burst 100");
        setting.rows[0].reset_after_us = cases[i].us;
        snprintf(expected, sizeof expected,
                 "ratelimit: \"token-bucket\";r=7;t=%lld\n"
                 "ratelimit-policy: \"token-bucket\";q=100;w=10\n"
                 "x-ratelimit-limit-token-bucket: 100\nx-ratelimit-remaining-token-bucket: 7\n"
                 "x-ratelimit-reset-token-bucket: %s\n",
                 (long long)((cases[i].us + SECOND - 1) / SECOND), cases[i].text);
        check(WEIR__FIELDS_OPENAI, &setting, expected);
    }
}

static void test_reading_styles(void)
{
    enum weir__field_style style = WEIR__FIELDS_X;
    CHECK(!weir__field_style_read("IETF", 4, &style) && style == WEIR__FIELDS_X);
    CHECK(!weir__field_style_read("", 0, &style));
    CHECK(!weir__field_style_read("ietf-0", 6, &style));
    CHECK(weir__field_style_read("ietf", 4, &style) && style == WEIR__FIELDS_IETF);
    CHECK(weir__field_style_read("ietf-06", 7, &style) && style == WEIR__FIELDS_IETF_06);
    CHECK(weir__field_style_read("x-ratelimit!", 11, &style) && style == WEIR__FIELDS_X);
    CHECK(weir__field_style_read("openai", 6, &style) && style == WEIR__FIELDS_OPENAI);
    CHECK(weir__field_style_read("retry-after", 11, &style) && style == WEIR__FIELDS_RETRY);
    CHECK(weir__field_style_read("off", 3, &style) && style == WEIR__FIELDS_OFF);
}

int main(void)
{
    test_styles();
    test_several();
    test_windows();
    test_stepped();
    test_names();
    test_numbers();
    test_room();
    test_openai();
    test_durations();
    test_reading_styles();
    return test_report();
}
