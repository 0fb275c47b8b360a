/* See receipt.h. */
#include "limit/receipt.h"

#include "base/buffer.h"

#include <ctype.h>
#include <string.h>

void weir_receipt(const weir_decision *decision, char ret[WEIR_RECEIPT_SIZE])
{
    struct weir__buffer buffer = weir__buffer_over(ret, WEIR_RECEIPT_SIZE);
    weir__put_text(&buffer, "w1-");
    weir__put_int(&buffer, decision->time_us);
    weir__put_text(&buffer, "-");
    weir__put_int(&buffer, decision->charged);
}

/* A whole number up to `most`, ended by `end`. */
static bool read_number(const char **text, char end, int64_t most, int64_t *ret)
{
    const char *p = *text;
    int64_t number = 0;
    for (; isdigit((unsigned char)*p); p++) {
        number = number * 10 + (*p - '0');
        if (number > most)
            return false;
    }
    if (p == *text || *p != end)
        return false;
    *text = p + 1;
    *ret = number;
    return true;
}

bool weir__receipt_read(const char *text, struct weir__correction *ret)
{
    if (strncmp(text, "w1-", 3))
        return false;
    text += 3;
    return read_number(&text, '-', WEIR__EXACT_MAX - 1, &ret->charged_at_us) &&
           read_number(&text, 0, WEIR_COST_MAX, &ret->charged);
}
