/*
 * What nghttp2 allocates for a connection, counted: a field that comes in parts is kept by it, up
 * to 64 KiB of name and as much of value, twice that where it is Huffman-coded. Nothing of it is
 * seen before it is whole.
 *
 * What holds:
 *   1. SERVER_H2_SESSION_FREE bytes each connection may have in any case. What is beyond counts as
 *      memory kept.
 *   2. Beyond, nobody has more than a part of what is left, and somebody without a token only what
 *      a head of ordinary length takes, while half of everything is left.
 *   3. A session that was refused memory is not used any more: its connection ends.
 */
#include "server/h2/h2.h"

#include <malloc.h>
#include <stdlib.h>

#define STEP ((size_t)4 << 10) /* counted so many at a time, and given back four at a time */

/* A token is needed, and none was given on this connection. */
static bool h2_memory_of_stranger(const struct server_h2 *h2)
{
    return h2->conn->thread->server->config.token[0] && !h2->conn->known;
}

static bool h2_memory_take(struct server_h2 *h2, size_t bytes)
{
    struct server *server = h2->conn->thread->server;
    size_t all = h2->session_bytes + bytes, most = SERVER_H2_SESSION_FREE + h2->session_kept;
    if (WEIR__UNLIKELY(all > most)) {
        size_t more = (all - most + STEP - 1) / STEP * STEP, counted = h2->session_kept + more;
        uint64_t left = server_left(server);
        bool stranger = h2_memory_of_stranger(h2);
        if (counted > left / SERVER_AWAY_SHARE ||
            (stranger &&
             (counted > (size_t)server->config.max_head || left < server->max_memory / 2)) ||
            !server_keep(server, more)) {
            h2->starved = true;
            return false;
        }
        h2->session_kept = counted;
    }
    h2->session_bytes = all;
    return true;
}

static void h2_memory_give(struct server_h2 *h2, size_t bytes)
{
    h2->session_bytes -= bytes;
    if (WEIR__LIKELY(h2->session_kept == 0))
        return;
    size_t over =
        h2->session_bytes > SERVER_H2_SESSION_FREE ? h2->session_bytes - SERVER_H2_SESSION_FREE : 0;
    size_t needed = (over + STEP - 1) / STEP * STEP, less = h2->session_kept - needed;
    if (needed > 0 && less < 4 * STEP)
        return;
    h2->session_kept = needed;
    atomic_fetch_sub(&h2->conn->thread->server->kept, less);
}

static void *h2_memory_malloc(size_t size, void *context)
{
    void *memory = malloc(size);
    if (memory && !h2_memory_take(context, malloc_usable_size(memory))) {
        free(memory);
        return NULL;
    }
    return memory;
}

static void *h2_memory_calloc(size_t n, size_t size, void *context)
{
    void *memory = calloc(n, size);
    if (memory && !h2_memory_take(context, malloc_usable_size(memory))) {
        free(memory);
        return NULL;
    }
    return memory;
}

static void h2_memory_free(void *memory, void *context)
{
    if (!memory)
        return;
    h2_memory_give(context, malloc_usable_size(memory));
    free(memory);
}

/* Counted before it is had. */
static void *h2_memory_realloc(void *memory, size_t size, void *context)
{
    struct server_h2 *h2 = context;
    size_t had = memory ? malloc_usable_size(memory) : 0, more = size > had ? size - had : 0;
    if (!h2_memory_take(h2, more))
        return NULL;
    void *moved = realloc(memory, size > 0 ? size : 1);
    if (!moved) {
        h2_memory_give(h2, more);
        return NULL;
    }
    h2->session_bytes += malloc_usable_size(moved); /* a little more than was asked for */
    h2_memory_give(h2, had + more);
    return moved;
}

nghttp2_mem server_h2_memory(struct server_h2 *h2)
{
    return (nghttp2_mem){h2, h2_memory_malloc, h2_memory_free, h2_memory_calloc, h2_memory_realloc};
}
