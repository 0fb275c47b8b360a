/*
 * Pairs of names and their ids: policy and entry, domain and rule. Ids are given in order, never taken
 * back, never more than `max`; a pair beyond gets none. Not thread-safe: server_metrics locks.
 */
#ifndef WEIR_SERVER_METRICS_NAMES_H
#define WEIR_SERVER_METRICS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVER_NAME_MAX 1024 /* bytes of both names of a pair; a longer pair gets no id */
#define SERVER_NO_NAME UINT32_MAX

struct server_name {
    char *first;        /* owned, and behind its NUL the second */
    const char *second; /* "" for a first name by itself */
    uint32_t child;     /* the first pair of this first name, 0: none */
    uint32_t last;      /* the last such */
    uint32_t next;      /* the next pair of the same first name, 0: none */
    bool gone;          /* of a policy that is no longer loaded */
    bool shadow;        /* of an entry that is not enforced */
};

struct server_names {
    struct server_name *names;
    uint32_t count, max;
    uint32_t *slots; /* id + 1, or 0 */
    uint32_t mask;
    uint64_t refused; /* pairs that got no id */
    size_t bytes;     /* of all names */
};

int server_names_create(struct server_names *names, uint32_t max);
void server_names_destroy(struct server_names *names);
/* The id of a pair, given now if it has none; SERVER_NO_NAME without room. A pair's first name by
 * itself is named before it. */
uint32_t server_names_id(struct server_names *names, const char *first, const char *second);

#endif
