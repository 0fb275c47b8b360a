/* See receipt.h. */
#include "limit/receipt.h"

#include "base/buffer.h"
#include "base/random.h"

#include <ctype.h>
#include <string.h>

void weir__receipt_write(int64_t time_us, int64_t charged, uint64_t id, char ret[WEIR_RECEIPT_SIZE])
{
    struct weir__buffer buffer = weir__buffer_over(ret, WEIR_RECEIPT_SIZE);
    weir__put_text(&buffer, id ? "w3-" : "w1-");
    weir__put_int(&buffer, time_us);
    weir__put_text(&buffer, "-");
    weir__put_int(&buffer, charged);
    if (!id)
        return;
    weir__put_text(&buffer, "-");
    weir__put_int(&buffer, (int64_t)id);
}

void weir__receipt_set_id(weir_decision *decision, uint64_t id)
{
    for (size_t i = 0; i < sizeof decision->receipt; i++)
        decision->receipt[i] = (uint8_t)(id >> 8 * i);
}

uint64_t weir__receipt_id(weir_decision *decision)
{
    uint64_t id = 0;
    for (size_t i = 0; i < sizeof decision->receipt; i++)
        id |= (uint64_t)decision->receipt[i] << 8 * i;
    bool owes = decision->allowed && decision->degraded; /* a settle will charge it */
    if (id || (decision->charged == 0 && !owes))
        return id;
    id = weir__receipt_draw_id();
    weir__receipt_set_id(decision, id);
    return id;
}

uint64_t weir__receipt_draw_id(void)
{
    uint64_t id = weir__random_distinct() & WEIR__RECEIPT_ID_MAX;
    return id | !id;
}

void weir_receipt(weir_decision *decision, char ret[WEIR_RECEIPT_SIZE])
{
    if (decision->uneven) {
        ret[0] = 0;
        return;
    }
    uint64_t id = weir__receipt_id(decision);
    weir__receipt_write(decision->time_us, decision->charged, id, ret);
}

/* A whole number up to `most`, ended by `end`. */
static bool receipt_read_number(const char **text, char end, int64_t most, int64_t *ret)
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
    bool has_id = !strncmp(text, "w3-", 3);
    int64_t id = 0;
    if (!has_id && strncmp(text, "w1-", 3))
        return false;
    text += 3;
    if (!receipt_read_number(&text, '-', WEIR__EXACT_MAX - 1, &ret->charged_at_us) ||
        !receipt_read_number(&text, has_id ? '-' : 0, WEIR_COST_MAX, &ret->charged) ||
        (has_id && (!receipt_read_number(&text, 0, WEIR__RECEIPT_ID_MAX, &id) || id == 0)))
        return false;
    ret->id = (uint64_t)id;
    ret->anytime = false;
    return true;
}
