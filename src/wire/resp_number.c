/* Numbers as RESP writes them. Doubles go through libc, whose decimal point follows the locale of
 * the program around us; the wire's is always a full stop. */
#include "wire/resp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool resp_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool weir__resp_read_integer(const char *text, size_t len, int64_t *ret)
{
    size_t at = len > 0 && (text[0] == '-' || text[0] == '+');
    if (at == len)
        return false;
    /* Counted downwards, since the least integer has no positive counterpart. */
    int64_t number = 0;
    for (; at < len; at++) {
        if (!resp_is_digit(text[at]) || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_sub_overflow(number, text[at] - '0', &number))
            return false;
    }
    if (text[0] != '-' && __builtin_sub_overflow(0, number, &number))
        return false;
    *ret = number;
    return true;
}

static size_t resp_skip_digits(const char *text, size_t len, size_t at)
{
    while (at < len && resp_is_digit(text[at]))
        at++;
    return at;
}

/* digits[.digits][e[+-]digits], and where its point is (len: nowhere). */
static bool resp_is_decimal(const char *text, size_t len, size_t *ret_point)
{
    *ret_point = len;
    size_t at = resp_skip_digits(text, len, 0);
    if (at == 0)
        return false;
    if (at < len && text[at] == '.') {
        *ret_point = at++;
        size_t end = resp_skip_digits(text, len, at);
        if (end == at)
            return false;
        at = end;
    }
    if (at < len && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        at += at < len && (text[at] == '-' || text[at] == '+');
        size_t end = resp_skip_digits(text, len, at);
        if (end == at)
            return false;
        at = end;
    }
    return at == len;
}

bool weir__resp_read_double(const char *text, size_t len, double *ret)
{
    bool negative = len > 0 && text[0] == '-';
    if (len > 0 && (text[0] == '-' || text[0] == '+')) {
        text++;
        len--;
    }
    double number;
    size_t point;
    if (len == 3 && !memcmp(text, "inf", 3)) {
        number = __builtin_inf();
    } else if (len == 3 && !memcmp(text, "nan", 3)) {
        number = __builtin_nan("");
    } else if (len <= WEIR__RESP_DOUBLE_MAX && resp_is_decimal(text, len, &point)) {
        char local[8] = "", copy[WEIR__RESP_DOUBLE_MAX + sizeof local];
        struct weir__buffer buffer = weir__buffer_over(copy, sizeof copy);
        weir__put(&buffer, text, point);
        if (point < len) {
            snprintf(local, sizeof local, "%.1f", 0.5); /* "0.5" or "0,5": what strtod expects */
            weir__put(&buffer, local + 1, strcspn(local + 1, "5"));
            weir__put(&buffer, text + point + 1, len - point - 1);
        }
        number = strtod(copy, NULL);
    } else {
        return false;
    }
    *ret = negative ? -number : number;
    return true;
}
