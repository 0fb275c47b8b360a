/* The zone inside a store, for tests that look at or disturb what users never see. */
#ifndef WEIR_STORE_INSIDE_H
#define WEIR_STORE_INSIDE_H

#include "store/zone/store.h"

static inline struct weir__zone *test_zone(weir_store *store)
{
    return &((struct weir__zone_store *)store)->region.zone;
}

#endif
