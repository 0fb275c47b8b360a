/* See gate.h. */
#include "policy/gate.h"

/* The text that every value begins with that fulfils the condition; empty: none. */
static struct weir__span beginning(const struct weir__condition *condition)
{
    if (condition->negated || condition->any || condition->pattern_count != 1)
        return (struct weir__span){"", 0};
    return condition->patterns[0].head;
}

struct weir__gate weir__gate_of(const struct weir__conditions *conditions)
{
    struct weir__gate gate = {.attribute = -1};
    size_t longest = 0;
    for (size_t i = 0; i < conditions->count; i++) {
        struct weir__span head = beginning(&conditions->items[i]);
        if (head.len <= longest || head.len > UINT32_MAX)
            continue;
        longest = head.len;
        gate.attribute = conditions->items[i].attribute;
        gate.least = (uint32_t)head.len;
        gate.count = (uint32_t)(head.len < sizeof gate.bytes ? head.len : sizeof gate.bytes);
        gate.at = gate.least - gate.count; /* the end of it: beginnings are often alike */
        memcpy(gate.bytes, head.data + gate.at, gate.count);
    }
    return gate;
}
