/*
 * Memory that lives and dies together: what a file becomes is made in one arena and freed in one
 * call. Everything handed out is zeroed and aligned for any type.
 */
#ifndef WEIR_ARENA_H
#define WEIR_ARENA_H

#include <stddef.h>

struct weir__arena {
    struct weir__arena_block *blocks; /* the newest first */
    size_t used, size;                /* of the newest */
};

/* NULL: out of memory, or count * size overflows. */
void *weir__arena_new(struct weir__arena *arena, size_t count, size_t size);
/* A NUL-terminated copy. */
char *weir__arena_text(struct weir__arena *arena, const char *text, size_t len);
void weir__arena_free(struct weir__arena *arena);

#endif
