/* What the files of the JSON reader share: json_read.c reads values, json_string.c their strings. */
#ifndef WEIR_JSON_PARTS_H
#define WEIR_JSON_PARTS_H

#include "wire/json.h"

struct weir__json_reader {
    char *text;
    size_t len;
    size_t at;
    struct weir__json_node *nodes;
    uint32_t room, count;
    weir_error *err;
};

/* Fails at a byte of the text. */
#define WEIR__JSON_FAIL(reader, at, format, ...)                                                   \
    weir__fail((reader)->err, WEIR_EINVAL, (int)(at) + 1, "JSON, byte %d: " format, (int)(at) + 1, \
               ##__VA_ARGS__)

/* Fails for what stands here instead of what was expected. */
int weir__json_unexpected(struct weir__json_reader *r, const char *expected);

/* The string whose opening quote stands here. */
int weir__json_string(struct weir__json_reader *r);

/* Whether c stands here; then it is passed. */
static inline bool weir__json_pass(struct weir__json_reader *r, char c)
{
    if (r->at == r->len || r->text[r->at] != c)
        return false;
    r->at++;
    return true;
}

/* A new node, or NULL. */
static inline struct weir__json_node *weir__json_add(struct weir__json_reader *r,
                                                     enum weir__json_type type)
{
    if (r->count == r->room) {
        WEIR__JSON_FAIL(r, r->at, "more than %u values and names; send less at once", r->room);
        return NULL;
    }
    struct weir__json_node *node = &r->nodes[r->count++];
    *node = (struct weir__json_node){.type = type, .next = r->count};
    return node;
}

#endif
