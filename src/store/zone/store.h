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
/* A zone in memory that others lend, shared by their processes: nginx's. Opens the one that is
 * there, or makes one in memory that is all zeros. Closing it leaves the memory as it is. keeps: as
 * full=deny. */
int weir__zone_store_over(uint8_t *base, uint64_t size, unsigned large_percent, bool keeps,
                          weir_store **ret, weir_error *err);

/* Whether a zone of that layout could hold a rule's largest state. */
bool weir__zone_fits(const struct weir__layout *layout, const struct weir__rule *rule);

/* The region of a store that is a zone; NULL: it is another kind. */
const struct weir__region *weir__store_region(const weir_store *store);

#endif
