/* The zone inside a store, for tests that look at or disturb what users never see. */
#ifndef WEIR_STORE_INSIDE_H
#define WEIR_STORE_INSIDE_H

#include "store/zone/store.h"

static inline struct weir__zone *test_zone(weir_store *store)
{
    return &((struct weir__zone_store *)store)->region.zone;
}

/* Opens a zone and waits for its locks as long as it takes: how busy the machine is does not
 * matter. Where somebody blocks for ever, the test's own patience ends. The caller has included
 * store_test.h. */
#define test_open_patiently(url, now) test_be_patient(test_open(url, now))

static inline weir_store *test_be_patient(weir_store *store)
{
    weir__store_be_patient(store, 0);
    return store;
}

#endif
