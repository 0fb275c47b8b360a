/* A list of blocks, each larger than the last; what does not fit in the newest starts another. */
#include "policy/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BLOCK 4096
#define LARGEST_BLOCK (256u << 10)

struct weir__arena_block {
    struct weir__arena_block *next;
    alignas(max_align_t) char data[];
};

static int arena_grow(struct weir__arena *arena, size_t least)
{
    size_t size = arena->size ? arena->size * 2 : FIRST_BLOCK;
    if (size > LARGEST_BLOCK)
        size = LARGEST_BLOCK;
    if (size < least)
        size = least;
    if (size > SIZE_MAX - sizeof(struct weir__arena_block))
        return -1;
    struct weir__arena_block *block = calloc(1, sizeof *block + size);
    if (!block)
        return -1;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->used = 0;
    arena->size = size;
    return 0;
}

void *weir__arena_new(struct weir__arena *arena, size_t count, size_t size)
{
    size_t bytes = 0, mask = alignof(max_align_t) - 1;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - mask)
        return NULL;
    bytes = (bytes + mask) & ~mask;
    if ((!arena->blocks || arena->size - arena->used < bytes) && arena_grow(arena, bytes))
        return NULL;
    void *found = arena->blocks->data + arena->used;
    arena->used += bytes;
    return found;
}

char *weir__arena_text(struct weir__arena *arena, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? weir__arena_new(arena, len + 1, 1) : NULL;
    return copy ? memcpy(copy, text, len) : NULL;
}

void weir__arena_free(struct weir__arena *arena)
{
    while (arena->blocks) {
        struct weir__arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->used = arena->size = 0;
}
