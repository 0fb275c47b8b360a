/*
 * The short look before the long one: of a policy's conditions the most telling, as eight bytes that a value
 * must have at one place. Files have hundreds of policies, and a request falls under few of them; a gate
 * turns the others away in two nanoseconds. What passes is judged by the conditions themselves.
 */
#ifndef WEIR_GATE_H
#define WEIR_GATE_H

#include "policy/conditions.h"

#include <string.h>

struct weir__gate {
    int attribute;  /* -1: always open */
    uint32_t least; /* bytes that the value has */
    uint32_t at;    /* where it has these */
    uint32_t count; /* of the bytes, 1 to 8 */
    char bytes[8];
};

/* The gate of conditions: the longest beginning that one of them asks for. */
struct weir__gate weir__gate_of(const struct weir__conditions *conditions);

static inline bool weir__gate_opens(const struct weir__gate *gate, struct weir__view *view)
{
    uint64_t ours, theirs;
    if (gate->attribute < 0)
        return true;
    if (!weir__view_has(view, gate->attribute))
        return false;
    struct weir__span value = view->values[gate->attribute];
    if (value.len < gate->least)
        return false;
    if (gate->count < sizeof ours)
        return !memcmp(value.data + gate->at, gate->bytes, gate->count);
    memcpy(&ours, gate->bytes, sizeof ours);
    memcpy(&theirs, value.data + gate->at, sizeof theirs);
    return ours == theirs;
}

#endif
