/*
 * A table of frequent keys: sets of 16 slots with randomized admission (top.h says why).
 *
 *     set    | tags 16 × 4 | counts 16 × 8 | inherited 16 × 8 |     what every record touches
 *     slots  | seq | len | hash | text 128 |                       what only a change of key touches
 *
 * Counts are kept in units that grow: an event of now adds `weight`, which doubles each half-life, so
 * that the old need no touching to fade. The owner divides all by the weight when it gets large.
 *
 * One thread writes. A reader of a slot takes its sequence count before and after; all that both touch
 * is read and written by atomic accesses, ordered by acquire and release alone.
 */
#ifndef WEIR_SERVER_TOP_TABLE_H
#define WEIR_SERVER_TOP_TABLE_H

#include "server/observe/top.h"

#define SERVER_TOP_WAYS 16

struct server_top_set {
    uint32_t tags[SERVER_TOP_WAYS]; /* of the key's hash; an empty slot is one with count 0 */
    double counts[SERVER_TOP_WAYS];
    double inherited[SERVER_TOP_WAYS]; /* of the count: what the slot held before the key */
} __attribute__((aligned(64)));

struct server_top_slot {
    uint32_t seq;  /* odd while the key changes */
    uint16_t len;  /* bytes kept; 0: never used */
    uint16_t cut;  /* whether there were more */
    uint64_t hash; /* what tells keys apart among threads */
    uint64_t text[SERVER_TOP_KEY_MAX / 8];
};

struct server_top_table {
    struct server_top_set *sets;
    struct server_top_slot *slots; /* SERVER_TOP_WAYS a set */
    uint32_t set_count;            /* a power of two */
};

/* A key as read from a table. */
struct server_top_row {
    uint64_t hash;
    double count; /* its own, in the table's units */
    uint16_t len;
    bool cut;
    char text[SERVER_TOP_KEY_MAX];
};

struct server_top_key {
    const void *data;
    size_t len;
    uint64_t hash[2];
};

/* Bytes of a table of that many slots. */
#define SERVER_TOP_BYTES(slots)                                                                    \
    ((slots) / SERVER_TOP_WAYS * sizeof(struct server_top_set) +                                   \
     (slots) * sizeof(struct server_top_slot))

/* Lays a table into zeroed memory, aligned to 64 bytes. */
void server_top_table_place(struct server_top_table *table, void *memory, uint32_t slots);
void server_top_table_record(struct server_top_table *table, const struct server_top_key *key,
                             double weight, uint64_t *random);
/* Multiplies all counts by 2^-exponent. A reader must be able to tell that it happened meanwhile. */
void server_top_table_scale(struct server_top_table *table, int exponent);
/* Copies the keys whose own count is at least `least`; how many. */
size_t server_top_table_read(const struct server_top_table *table, double least,
                             struct server_top_row *rows);
#endif
