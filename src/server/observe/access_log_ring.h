/*
 * A ring of bytes between one writer and one reader: records of whole words, each in one piece. A
 * record that does not fit before the end of the memory leaves a gap there and stands at the start.
 *
 *     | record | record | gap      |          head: where the next goes; tail: what is read next;
 *       tail ─►             ◄─ head           both only grow, the memory is addressed modulo its size
 */
#ifndef WEIR_SERVER_ACCESS_LOG_RING_H
#define WEIR_SERVER_ACCESS_LOG_RING_H

#include "server/observe/access_log.h"

struct server_log_ring {
    char *data; /* SERVER_LOG_RING bytes */
    uint64_t head __attribute__((aligned(64)));
    uint64_t tail_seen; /* the writer's last look at tail */
    uint64_t dropped;
    uint64_t tail __attribute__((aligned(64)));
};

/* What stands in a ring: this, and then the texts one behind the other. */
struct server_log_item {
    uint32_t size; /* of all of it, a multiple of 8 */
    uint8_t gap;   /* nothing but a gap of that size */
    uint8_t protocol;
    bool allowed, decided, degraded, key_cut;
    uint16_t client_len, policy_len, entry_len, key_len;
    uint16_t ip_len, method_len, path_len, shadows_len;
    uint32_t shadow_denied;
    const char *verdict;
    int64_t time_us, cost;
    int64_t limit, remaining, retry_after_us, reset_after_us, delay_us;
    char texts[];
};

/* Room for a record of that size, a multiple of 8; NULL: none. Publish makes it readable. */
struct server_log_item *server_log_ring_reserve(struct server_log_ring *ring, size_t size);
void server_log_ring_publish(struct server_log_ring *ring, const struct server_log_item *item);
/* The next record, or NULL; it stays until released. */
const struct server_log_item *server_log_ring_peek(struct server_log_ring *ring);
void server_log_ring_release(struct server_log_ring *ring, const struct server_log_item *item);

#endif
