/* One value out of its text, or a complaint that names the value and what was expected. */
#include "cli/cli.h"

#include "base/duration.h"
#include "base/span.h"

#include <string.h>

/* A whole number of at most `most`; false for anything else, signs and spaces included. */
static bool read_digits(const char *text, uint64_t most, uint64_t *ret)
{
    uint64_t number = 0;
    if (!*text)
        return false;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        uint64_t digit = (uint64_t)(*p - '0');
        if (number > most / 10 || number * 10 > most - digit)
            return false;
        number = number * 10 + digit;
    }
    *ret = number;
    return true;
}

/* What is wrong with a value: full-width characters before anything else. */
static struct cli_shown full_width(const char *text, const char *otherwise)
{
    struct cli_shown shown;
    struct weir__buffer buffer = weir__buffer_over(shown.text, sizeof shown.text);
    char ascii;
    size_t at, wide = weir__full_width(text, strlen(text), &at, &ascii);
    if (wide)
        weir__put_format(&buffer, "\"%.*s\" is a full-width character, write \"%c\" instead",
                         (int)wide, text + at, ascii);
    else
        weir__put_text(&buffer, otherwise);
    return shown;
}

int cli_read_cost(const struct cli_call *call, const char *what, const char *text, int64_t *ret)
{
    uint64_t number;
    if (!read_digits(text, WEIR_COST_MAX, &number))
        return cli_fail(
            call, CLI_USAGE, "%s \"%s\": %s", what, cli_show_text(text).text,
            full_width(text, "expected a whole number from 0 to 1000000000000, like 1").text);
    *ret = (int64_t)number;
    return CLI_OK;
}

int cli_read_count(const struct cli_call *call, const char *what, const char *text, int64_t most,
                   int64_t *ret)
{
    uint64_t number;
    if (!read_digits(text, (uint64_t)most, &number) || number == 0)
        return cli_fail(call, CLI_USAGE, "%s \"%s\": expected a whole number from 1 to %lld", what,
                        cli_show_text(text).text, (long long)most);
    *ret = (int64_t)number;
    return CLI_OK;
}

int cli_read_ratio(const struct cli_call *call, const char *what, const char *text, int64_t *ret)
{
    const char *point = text[0] ? text + 1 : text;
    int64_t millionths = (text[0] - '0') * INT64_C(1000000), unit = 100000;
    bool good = (text[0] == '0' || text[0] == '1') && (!*point || (*point == '.' && point[1]));
    for (const char *p = good && *point ? point + 1 : ""; *p && good; p++, unit /= 10) {
        good = *p >= '0' && *p <= '9' && unit > 0;
        millionths += (*p - '0') * unit;
    }
    if (!good || millionths > 1000000)
        return cli_fail(call, CLI_USAGE,
                        "%s \"%s\": expected a number from 0 to 1 with at most six decimals, like "
                        "0.8",
                        what, cli_show_text(text).text);
    *ret = millionths;
    return CLI_OK;
}

int cli_read_lease(const struct cli_call *call, const char *text, uint64_t *ret)
{
    if (!read_digits(text, UINT64_MAX, ret) || *ret == 0)
        return cli_fail(call, CLI_USAGE,
                        "lease id \"%s\": expected the number that `weir acquire` printed",
                        cli_show_text(text).text);
    return CLI_OK;
}

typedef size_t duration_parser(const char *text, size_t len, int64_t *ret_us, const char **ret_why);

static int read_duration(const struct cli_call *call, const char *what, const char *text,
                         duration_parser *parse, int64_t *ret)
{
    const char *why = "expected a duration like 500ms, 10s or 1h30m";
    size_t len = strlen(text);
    int64_t microseconds;
    size_t used = parse(text, len, &microseconds, &why);
    if (used == 0 || used != len)
        return cli_fail(call, CLI_USAGE, "%s \"%s\": %s; examples: 500ms, 10s, 1h30m", what,
                        cli_show_text(text).text, full_width(text, why).text);
    *ret = microseconds;
    return CLI_OK;
}

int cli_read_wait(const struct cli_call *call, const char *what, const char *text, int64_t *ret)
{
    if (!strcmp(text, "any")) {
        *ret = WEIR_WAIT_ANY;
        return CLI_OK;
    }
    return read_duration(call, what, text, weir__wait_parse, ret);
}

int cli_read_seconds(const struct cli_call *call, const char *what, const char *text, bool zero,
                     int64_t *ret)
{
    uint64_t seconds;
    if (!read_digits(text, WEIR_DURATION_MAX / 1000000, &seconds) || seconds == 0)
        return read_duration(call, what, text, zero ? weir__wait_parse : weir__duration_parse, ret);
    *ret = (int64_t)seconds * 1000000;
    return CLI_OK;
}

int cli_read_key(const struct cli_call *call, const char *text, weir_key *ret)
{
    size_t len = strlen(text);
    if (len == 0)
        return cli_fail(call, CLI_USAGE,
                        "the key \"\" is empty; a key is 1 to %d bytes, like user:42",
                        WEIR_KEY_MAX);
    if (len > WEIR_KEY_MAX)
        return cli_fail(call, CLI_USAGE,
                        "the key \"%s\" is %zu bytes long; a key is 1 to %d bytes: hash long ones",
                        cli_show(text, 40).text, len, WEIR_KEY_MAX);
    *ret = weir_key_bytes(text, len);
    return CLI_OK;
}

int cli_read_limits(const struct cli_call *call, const char *text, weir_limit **ret)
{
    weir_error err = {0};
    int code = weir_limit_parse(text, ret, &err);
    if (code == 0)
        return CLI_OK;
    if (code == WEIR_ENOMEM)
        return cli_fail(call, CLI_FAILED, "%s", err.message);
    cli_fail(call, CLI_USAGE, "limit \"%s\": %s", cli_show_text(text).text, err.message);
    if (err.column > 0 && err.column <= 60 && !strchr(text, '\n'))
        fprintf(stderr, "    %s\n    %*s^\n", cli_show_text(text).text, err.column - 1, "");
    return CLI_USAGE;
}
