/*
 * JSON, strict (RFC 8259), bounded, without allocation.
 *
 * Reading: a text becomes nodes, parents before children, as in wire/resp.h. Strings are unescaped
 * in place and get a NUL after them, also where the text is refused in the end. What is refused:
 * anything after the value, duplicate names in an object, depth beyond WEIR__JSON_DEPTH_MAX, more
 * nodes than there is room for, strings that are not UTF-8, lone surrogates. The work is linear,
 * except for the names of one object, which are compared with each other: room bounds that.
 *
 * Writing goes into a struct weir__buffer; `name` is NULL for a value of an array. The writer keeps
 * only whether a comma is due; that brackets match is the caller's business.
 */
#ifndef WEIR_JSON_H
#define WEIR_JSON_H

#include "base/buffer.h"

/* ---- reading ---- */

#define WEIR__JSON_DEPTH_MAX 16

enum weir__json_type {
    WEIR__JSON_NULL,
    WEIR__JSON_BOOL,
    WEIR__JSON_NUMBER,
    WEIR__JSON_STRING,
    WEIR__JSON_ARRAY,
    WEIR__JSON_OBJECT, /* children: name (a string), value, name, value … */
};

struct weir__json_node {
    enum weir__json_type type;
    uint32_t next;    /* the node after this one and all its children */
    uint32_t len;     /* string: its bytes; number: of its text; array: elements; object: members */
    bool truth;       /* BOOL */
    const char *text; /* string: decoded, a NUL after it; number: as written */
};

/* Reads a whole text; the count of nodes, or WEIR_EINVAL with err->column the byte (from 1). */
int weir__json_read(char *text, size_t len, struct weir__json_node *nodes, uint32_t room,
                    weir_error *err);
/* The value of a member, or NULL: there is none, or the object is NULL or something else. */
const struct weir__json_node *weir__json_member(const struct weir__json_node *nodes,
                                                const struct weir__json_node *object,
                                                const char *name);
/* The same, of that type. */
const struct weir__json_node *weir__json_typed(const struct weir__json_node *nodes,
                                               const struct weir__json_node *object,
                                               const char *name, enum weir__json_type type);
/* A whole number within bounds; false where it is not one (1e3 and 1.0 are whole). */
bool weir__json_integer(const struct weir__json_node *node, int64_t least, int64_t most,
                        int64_t *ret);
/* Seconds with up to six decimals, exact, as microseconds; not negative; false otherwise. */
bool weir__json_seconds(const struct weir__json_node *node, int64_t *ret_us);

/* ---- writing ---- */

struct weir__json {
    struct weir__buffer *out;
    bool comma;
};

void weir__json_open(struct weir__json *json, const char *name, char bracket);
void weir__json_close(struct weir__json *json, char bracket);
void weir__json_put_int(struct weir__json *json, const char *name, int64_t number);
void weir__json_put_uint(struct weir__json *json, const char *name, uint64_t number);
/* Six digits; null for what is not a number. */
void weir__json_put_double(struct weir__json *json, const char *name, double number);
void weir__json_put_bool(struct weir__json *json, const char *name, bool value);
void weir__json_put_null(struct weir__json *json, const char *name);
/* UTF-8 text; what is not becomes U+FFFD. */
void weir__json_put_text(struct weir__json *json, const char *name, const char *text, size_t len);
/* The same up to the NUL; NULL is null. */
void weir__json_put_string(struct weir__json *json, const char *name, const char *text);
/* Seconds with six decimals, exact; null for a negative time, which is never. */
void weir__json_put_seconds(struct weir__json *json, const char *name, int64_t microseconds);
/* A key as "key", or as "key_base64" where it is not UTF-8. */
void weir__json_put_key(struct weir__json *json, const void *data, size_t len);

/* ---- base64 (RFC 4648), for key_base64 and tokens ---- */

/* Encodes, with padding. */
void weir__put_base64(struct weir__buffer *buffer, const void *data, size_t len);
/* Decodes in place; the length, or -1. Padding may be missing; bits that mean nothing are to be
 * 0. */
int64_t weir__base64_decode(char *text, size_t len);

#endif
