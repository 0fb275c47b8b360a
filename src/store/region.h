/*
 * Regions: the memory a zone lives in. Reads a store address, maps private memory, shared memory or a
 * file, and opens or makes the zone in it. Memory can be borrowed, too (weir__zone_store_over).
 *
 * Every process keeps a shared lock (fcntl, of the open file) as long as it has it open. Who can get the
 * exclusive one is alone: it may make the zone, renew its locks and repair what the last one left.
 */
#ifndef WEIR_REGION_H
#define WEIR_REGION_H

#include "store/zone/zone.h"

enum weir__region_kind { WEIR__MEMORY, WEIR__SHM, WEIR__FILE, WEIR__BORROWED };

struct weir__region {
    enum weir__region_kind kind;
    char path[4096];   /* without the scheme; empty for memory */
    uint64_t size;     /* 0: not given */
    int large_percent; /* -1: not given */
    int fd;            /* -1: none */
    struct weir__zone zone;
};

/* Reads the address only. */
int weir__region_parse(const char *url, struct weir__region *ret, weir_error *err);
/* Maps it and opens the zone. On failure nothing is left open; a new file is removed. */
int weir__region_open(struct weir__region *region, weir_error *err);
void weir__region_close(struct weir__region *region);

#endif
