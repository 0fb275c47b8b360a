/* What the nodes of a JSON text mean: members by name, numbers exactly. */
#include "wire/json.h"

#include <string.h>

const struct weir__json_node *weir__json_member(const struct weir__json_node *nodes,
                                                const struct weir__json_node *object,
                                                const char *name)
{
    if (object->type != WEIR__JSON_OBJECT)
        return NULL;
    size_t len = strlen(name);
    for (const struct weir__json_node *member = object + 1; member < nodes + object->next;
         member = nodes + member[1].next) {
        if (member->len == len && !memcmp(member->text, name, len))
            return member + 1;
    }
    return NULL;
}

#define EXPONENT_MAX INT64_C(10000000000) /* more than any count of digits there can be */

/* digits * 10^power, without trailing zeros in digits. */
struct decimal {
    uint64_t digits;
    int64_t power;
    bool negative;
    bool fits; /* in 64 bits */
};

/* The part behind the 'e'. */
static int64_t read_exponent(const char *p, const char *end)
{
    bool negative = *p == '-';
    int64_t exponent = 0;
    for (p += *p == '-' || *p == '+'; p < end; p++) {
        if (exponent < EXPONENT_MAX)
            exponent = exponent * 10 + (*p - '0');
    }
    return negative ? -exponent : exponent;
}

/* The text of a number is known to be one. */
static struct decimal read_decimal(const struct weir__json_node *node)
{
    struct decimal decimal = {.fits = true};
    const char *p = node->text, *end = p + node->len;
    decimal.negative = *p == '-';
    bool fraction = false;
    int64_t zeros = 0; /* seen, and not yet counted as digits */
    for (p += decimal.negative; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        decimal.power -= fraction;
        if (*p == '0') {
            zeros++;
            continue;
        }
        for (zeros = decimal.digits ? zeros : 0; zeros >= 0 && decimal.fits; zeros--)
            decimal.fits = !__builtin_mul_overflow(decimal.digits, 10, &decimal.digits);
        decimal.fits = decimal.fits && !__builtin_add_overflow(decimal.digits, (uint64_t)(*p - '0'),
                                                               &decimal.digits);
        zeros = 0;
    }
    decimal.power += zeros;
    if (p < end)
        decimal.power += read_exponent(p + 1, end);
    return decimal;
}

/* number * 10^shift, where that is whole and fits. */
static bool read_whole(const struct weir__json_node *node, int shift, int64_t *ret)
{
    if (node->type != WEIR__JSON_NUMBER)
        return false;
    struct decimal decimal = read_decimal(node);
    if (decimal.fits && decimal.digits == 0) {
        *ret = 0;
        return true;
    }
    decimal.power += shift;
    if (!decimal.fits || decimal.power < 0 || decimal.power > 18)
        return false;
    for (; decimal.power > 0; decimal.power--) {
        if (__builtin_mul_overflow(decimal.digits, 10, &decimal.digits))
            return false;
    }
    if (decimal.digits > (uint64_t)INT64_MAX + decimal.negative)
        return false;
    *ret = (int64_t)(decimal.negative ? 0 - decimal.digits : decimal.digits);
    return true;
}

bool weir__json_integer(const struct weir__json_node *node, int64_t least, int64_t most,
                        int64_t *ret)
{
    int64_t number;
    if (!read_whole(node, 0, &number) || number < least || number > most)
        return false;
    *ret = number;
    return true;
}

bool weir__json_seconds(const struct weir__json_node *node, int64_t *ret_us)
{
    int64_t microseconds;
    if (!read_whole(node, 6, &microseconds) || microseconds < 0)
        return false;
    *ret_us = microseconds;
    return true;
}
