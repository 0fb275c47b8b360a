/* Some limits of a list, as a list of their own: to settle or give back what they were charged. */
#include "limit/limit.h"

_Static_assert(WEIR_LIMITS_MAX <= 32, "sets of limits have 32 bits");

void weir__limit_part(const weir_limit *limit, uint32_t some, char text[WEIR__LIMITS_TEXT_MAX],
                      weir_limit *ret)
{
    struct weir__buffer buffer = weir__buffer_over(text, WEIR__LIMITS_TEXT_MAX);
    *ret = (weir_limit){.text = text};
    text[0] = 0;
    for (size_t i = 0; i < limit->count; i++) {
        if (!(some & UINT32_C(1) << i))
            continue;
        weir__put_text(&buffer, ret->count ? ", " : "");
        weir__put_rule(&buffer, &limit->rules[i]);
        ret->rules[ret->count++] = limit->rules[i];
    }
    assert(!buffer.cut);
}

uint32_t weir__limit_variable(const weir_limit *limit)
{
    uint32_t some = 0;
    for (size_t i = 0; i < limit->count; i++)
        some |= (uint32_t)weir__limit_varies(limit, i) << i;
    return some;
}

uint32_t weir__limit_charged_alike(const weir_limit *limit, uint32_t *left, int64_t granted,
                                   int64_t *ret_charged)
{
    uint32_t alike = 0;
    assert(*left);
    size_t first = (size_t)__builtin_ctz(*left);
    *ret_charged = weir__limit_asked(limit, first, granted);
    for (size_t i = first; i < limit->count; i++) {
        if (*left & UINT32_C(1) << i && weir__limit_asked(limit, i, granted) == *ret_charged)
            alike |= UINT32_C(1) << i;
    }
    *left &= ~alike;
    return alike;
}
