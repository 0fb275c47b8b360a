/* The ring between a loop and the log's thread. */
#include "server/observe/access_log_ring.h"

#define MASK (SERVER_LOG_RING - 1)

_Static_assert((SERVER_LOG_RING & MASK) == 0, "a power of two");
_Static_assert(sizeof(struct server_log_item) % 8 == 0, "records are whole words");

static struct server_log_item *item_at(struct server_log_ring *ring, uint64_t at)
{
    return (struct server_log_item *)(ring->data + (at & MASK));
}

/* Whether so many bytes are free behind head; looks at tail only when it must. */
static bool has_room(struct server_log_ring *ring, size_t size)
{
    if (SERVER_LOG_RING - (ring->head - ring->tail_seen) >= size)
        return true;
    ring->tail_seen = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
    return SERVER_LOG_RING - (ring->head - ring->tail_seen) >= size;
}

struct server_log_item *server_log_ring_reserve(struct server_log_ring *ring, size_t size)
{
    const size_t to_end = SERVER_LOG_RING - (ring->head & MASK);
    if (size <= to_end)
        return has_room(ring, size) ? item_at(ring, ring->head) : NULL;
    if (!has_room(ring, to_end + size))
        return NULL;
    struct server_log_item *const gap = item_at(ring, ring->head);
    gap->size = (uint32_t)to_end; /* 8 bytes at least, which size and gap lie within */
    gap->gap = 1;
    __atomic_store_n(&ring->head, ring->head + to_end, __ATOMIC_RELEASE);
    return item_at(ring, ring->head);
}

void server_log_ring_publish(struct server_log_ring *ring, const struct server_log_item *item)
{
    /* In one order with the reader's going to sleep: either it sees this, or it is seen asleep. */
    __atomic_store_n(&ring->head, ring->head + item->size, __ATOMIC_SEQ_CST);
}

const struct server_log_item *server_log_ring_peek(struct server_log_ring *ring)
{
    while (ring->tail != __atomic_load_n(&ring->head, __ATOMIC_SEQ_CST)) {
        const struct server_log_item *const item = item_at(ring, ring->tail);
        if (!item->gap)
            return item;
        server_log_ring_release(ring, item);
    }
    return NULL;
}

void server_log_ring_release(struct server_log_ring *ring, const struct server_log_item *item)
{
    __atomic_store_n(&ring->tail, ring->tail + item->size, __ATOMIC_RELEASE);
}
