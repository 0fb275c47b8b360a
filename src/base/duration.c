/* See duration.h. */
#include "base/duration.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Longest first; the first of each length is how it is printed. */
static const struct unit {
    const char *name;
    int64_t us;
} units[] = {
    {"w", INT64_C(604800000000)},
    {"d", INT64_C(86400000000)},
    {"h", INT64_C(3600000000)},
    {"m", 60000000},
    {"s", 1000000},
    {"ms", 1000},
    {"us", 1},
};

/* What they are called, too: the index of the unit. */
static const struct {
    const char *name;
    size_t unit;
} long_names[] = {
    {"week", 0}, {"weeks", 0},  {"day", 1},     {"days", 1}, {"hour", 2},   {"hours", 2},
    {"min", 3},  {"minute", 3}, {"minutes", 3}, {"sec", 4},  {"second", 4}, {"seconds", 4},
};

const char weir__duration_needs_unit[] =
    "a duration needs a unit: us, ms, s, m, h, d or w (or sec, min, hour, day, week)";

/* A decimal number as `digits / 10^decimals`. */
struct number {
    int64_t digits;
    int64_t scale;
    size_t len;
};

/* At most 15 digits in all: enough for 366 days in microseconds, and no sum overflows. */
static struct number duration_read_number(const char *text, size_t len)
{
    struct number number = {0, 1, 0};
    size_t digits = 0;
    bool point = false;
    for (; number.len < len; number.len++) {
        unsigned char c = (unsigned char)text[number.len];
        if (c == '.' && !point && digits > 0) {
            point = true;
            continue;
        }
        if (!isdigit(c) || ++digits > 15)
            break;
        number.digits = number.digits * 10 + (c - '0');
        if (point)
            number.scale *= 10;
    }
    if (number.len > 0 && text[number.len - 1] == '.')
        number.len = 0;
    return number;
}

static bool duration_is_name(const char *text, size_t letters, const char *name)
{
    return letters == strlen(name) && !strncasecmp(text, name, letters);
}

/* The unit at the start of text whose name no letter follows but a digit or the end may. */
static size_t duration_read_unit(const char *text, size_t len, size_t *ret_length)
{
    size_t letters = 0;
    while (letters < len && isalpha((unsigned char)text[letters]))
        letters++;
    for (size_t i = 0; i < WEIR__COUNT(units); i++) {
        if (duration_is_name(text, letters, units[i].name)) {
            *ret_length = letters;
            return i;
        }
    }
    for (size_t i = 0; i < WEIR__COUNT(long_names); i++) {
        if (duration_is_name(text, letters, long_names[i].name)) {
            *ret_length = letters;
            return long_names[i].unit;
        }
    }
    return WEIR__COUNT(units);
}

/* number * unit in microseconds, or -1 where that is not whole, -2 where it is too long. */
static int64_t duration_scaled(struct number number, int64_t unit_us)
{
    __int128 product = (__int128)number.digits * unit_us;
    if (product % number.scale)
        return -1;
    product /= number.scale;
    return product > WEIR_DURATION_MAX ? -2 : (int64_t)product;
}

static size_t duration_refuse(const char **ret_why, const char *why)
{
    *ret_why = why;
    return 0;
}

static size_t duration_parse(const char *text, size_t len, bool zero, int64_t *ret_us,
                             const char **ret_why)
{
    size_t at = 0;
    size_t next_unit = 0; /* units must come largest first */
    int64_t total = 0;
    do {
        struct number number = duration_read_number(text + at, len - at);
        if (number.len == 0 && at == 0)
            number = (struct number){1, 1, 0}; /* a bare unit */
        else if (number.len == 0)
            break;
        size_t length = 0;
        size_t unit = duration_read_unit(text + at + number.len, len - at - number.len, &length);
        if (unit == WEIR__COUNT(units))
            return duration_refuse(ret_why, weir__duration_needs_unit);
        if (length == 1 && text[at + number.len] == 'M')
            return duration_refuse(ret_why, "a capital M may be minutes or months: write m or min "
                                            "for minutes, 30d or (fixed-window) month for a month");
        if (unit < next_unit)
            return duration_refuse(ret_why, "units come largest first, each once, like 1h30m");
        int64_t part = duration_scaled(number, units[unit].us);
        if (part == -1)
            return duration_refuse(ret_why, "a duration must be whole microseconds");
        if (part == -2 || total + part > WEIR_DURATION_MAX)
            return duration_refuse(ret_why, "a duration is at most 366 days");
        total += part;
        next_unit = unit + 1;
        at += number.len + length;
        if (number.len == 0)
            break;
    } while (at < len);
    if (total == 0 && !zero)
        return duration_refuse(ret_why, "a duration must be more than zero");
    *ret_us = total;
    return at;
}

size_t weir__duration_parse(const char *text, size_t len, int64_t *ret_us, const char **ret_why)
{
    return duration_parse(text, len, false, ret_us, ret_why);
}

size_t weir__wait_parse(const char *text, size_t len, int64_t *ret_us, const char **ret_why)
{
    if (len == 1 && text[0] == '0') {
        *ret_us = 0;
        return 1;
    }
    return duration_parse(text, len, true, ret_us, ret_why);
}

void weir__put_duration(struct weir__buffer *buffer, int64_t microseconds, bool bare)
{
    for (size_t i = 0; i < WEIR__COUNT(units) && microseconds > 0; i++) {
        int64_t n = microseconds / units[i].us;
        microseconds %= units[i].us;
        if (n == 0)
            continue;
        if (!bare || n != 1 || microseconds != 0)
            weir__put_int(buffer, n);
        weir__put_text(buffer, units[i].name);
        bare = false;
    }
}

void weir__put_seconds(struct weir__buffer *buffer, int64_t microseconds)
{
    if (microseconds < 0) {
        weir__put_text(buffer, "never");
        return;
    }
    weir__put_int(buffer, microseconds / 1000000);
    char decimals[8];
    int64_t rest = microseconds % 1000000;
    decimals[0] = '.';
    for (int i = 6; i > 0; i--, rest /= 10)
        decimals[i] = (char)('0' + rest % 10);
    weir__put(buffer, decimals, 7);
}

/* ---- about ---- */

/* How precisely a time of this length is printed. */
static int64_t duration_grain_us(int64_t microseconds)
{
    static const struct {
        int64_t from_us, grain_us;
    } steps[] = {
        {INT64_C(604800000000), INT64_C(3600000000)}, /* a week: hours */
        {INT64_C(86400000000), 60000000},             /* a day: minutes */
        {60000000, 1000000},                          /* a minute: seconds */
        {10000000, 100000},
        {1000000, 10000},
        {10000, 1000},
    };
    for (size_t i = 0; i < WEIR__COUNT(steps); i++) {
        if (microseconds >= steps[i].from_us)
            return steps[i].grain_us;
    }
    return 1;
}

static void duration_put_rounded(struct weir__buffer *buffer, int64_t rounded)
{
    if (rounded == 0) {
        weir__put_text(buffer, "0s");
        return;
    }
    if (rounded < 1000000 || rounded >= 60000000) {
        weir__put_duration(buffer, rounded, false);
        return;
    }
    int64_t hundredths = rounded / 10000 % 100;
    weir__put_int(buffer, rounded / 1000000);
    if (hundredths % 10)
        weir__put_format(buffer, ".%02d", (int)hundredths);
    else if (hundredths)
        weir__put_format(buffer, ".%d", (int)hundredths / 10);
    weir__put_text(buffer, "s");
}

void weir__put_about(struct weir__buffer *buffer, int64_t microseconds)
{
    int64_t grain = duration_grain_us(microseconds);
    assert(microseconds >= 0);
    duration_put_rounded(buffer, weir__div_up(microseconds, grain) * grain);
}

void weir__put_lasted(struct weir__buffer *buffer, int64_t microseconds)
{
    int64_t grain = duration_grain_us(microseconds);
    assert(microseconds >= 0);
    duration_put_rounded(buffer, (microseconds + grain / 2) / grain * grain);
}
