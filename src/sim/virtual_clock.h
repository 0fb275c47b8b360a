/* A clock that stands still until somebody sets it. Replays and plots run a store under it. */
#ifndef WEIR_VIRTUAL_CLOCK_H
#define WEIR_VIRTUAL_CLOCK_H

#include "weir.h"

struct weir__virtual_clock {
    int64_t now_us;
};

static inline int64_t weir__virtual_now(void *context)
{
    return ((struct weir__virtual_clock *)context)->now_us;
}

/* The clock must live as long as the store uses it. */
static inline void weir__virtual_clock_install(struct weir__virtual_clock *clock, weir_store *store)
{
    weir_clock virtual = {weir__virtual_now, NULL, clock};
    weir_store_set_clock(store, &virtual);
}

#endif
