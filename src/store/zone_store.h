/* A store that is a zone in memory of its own, shared memory or a file. */
#ifndef WEIR_ZONE_STORE_H
#define WEIR_ZONE_STORE_H

#include "store/region.h"
#include "store/store.h"

struct weir__zone_store {
    weir_store base;
    struct weir__region region;
};

/* memory:, shm: and file: addresses. */
int weir__zone_store_open(const char *url, weir_store **ret, weir_error *err);

#endif
