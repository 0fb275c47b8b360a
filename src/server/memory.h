/* Bounds on memory, and the container that the server may run in. See memory.c. */
#ifndef WEIR_SERVER_MEMORY_H
#define WEIR_SERVER_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* The least bound on memory of the cgroups that this process is in, in bytes; 0: none. `root` is "", or where a
 * test has its files. */
uint64_t server_cgroup_bound(const char *root);

struct server_memory {
    uint64_t kept;        /* bytes for what connections make us keep */
    uint64_t connections; /* how many */
};
/* Lowers both to what fits into a bound beside a store of that size; whether that changed anything. */
bool server_memory_fit(uint64_t bound, uint64_t store_bytes, bool tls,
                       struct server_memory *memory);

#endif
