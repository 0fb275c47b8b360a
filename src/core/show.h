/* What a stored state amounts to, for people who look into a key. */
#ifndef WEIR_SHOW_H
#define WEIR_SHOW_H

#include "core/core.h"

/* A state as it stands at a time. */
struct weir__shown {
    struct weir__rule rule; /* kind, period, precision; `whole`: all it was last charged under */
    bool whole;
    int64_t count;          /* last charged under; 0: the store does not keep it */
    int64_t spent;          /* tokens or requests that count now; smooth and warmup: 0 */
    int64_t stored;         /* smooth, warmup: permits saved when it was last written, whole ones */
    int64_t remaining;      /* `whole`: what is left now; else -1 */
    int64_t retry_after_us; /* `whole`: when a cost of 1 is allowed; else -1 */
    int64_t entries;        /* logs and windows: entries; concurrent: leases */
    int64_t at_us;          /* newest time; smooth, warmup: the next free one */
    int64_t fresh_us;       /* from when on it counts as absent */
};

/* Describes a sound state that was written under a rule, of which all numbers are known or not.
 * Writes nothing but ret. */
void weir__show(const struct weir__rule *rule, bool whole, const struct weir__state *stored,
                int64_t fresh_us, int64_t now_us, struct weir__shown *ret);

/* A kind's name with what tells it from its siblings: "fixed-window from-first". */
static inline const char *weir__kind_name(enum weir__kind kind)
{
    assert(kind < WEIR__KIND_COUNT);
    return weir__algorithms[kind]->full_name;
}

/* What WEIR.SHOW replies of a state, in this order, after its algorithm. */
#define WEIR__SHOWN_NUMBERS 8
extern const char weir__shown_names[WEIR__SHOWN_NUMBERS][10];
void weir__shown_numbers(const struct weir__shown *shown, int64_t ret[WEIR__SHOWN_NUMBERS]);
/* And back: as much of a state as its numbers tell. */
void weir__shown_of(int kind, const int64_t numbers[WEIR__SHOWN_NUMBERS], struct weir__shown *ret);

#endif
