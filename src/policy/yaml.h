/*
 * YAML (libyaml) to a tree of nodes that know their line and column. Strict and bounded: no anchors
 * or aliases, no tags, no duplicate keys, one document, at most WEIR__YAML_* bytes, nodes and
 * depth.
 */
#ifndef WEIR_YAML_H
#define WEIR_YAML_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>

#define WEIR__YAML_BYTES_MAX (4u << 20)
#define WEIR__YAML_NODES_MAX 200000
#define WEIR__YAML_DEPTH_MAX 32

enum weir__yaml_type { WEIR__YAML_SCALAR, WEIR__YAML_LIST, WEIR__YAML_MAP };

struct weir__yaml_node {
    enum weir__yaml_type type;
    int line, column; /* from 1 */
    const char *text; /* scalar: NUL-terminated; holds no other NUL */
    size_t len;
    bool plain;    /* scalar: not quoted, so that `null`, `true` and numbers may be meant */
    bool verbatim; /* scalar: stands in the file on one line, letter for letter */
    struct weir__yaml_node *child; /* list: first element; map: first key, whose value is ->value */
    struct weir__yaml_node *next;  /* the next element, or key */
    struct weir__yaml_node *value; /* of a key */
};

struct weir__yaml; /* owns its nodes */

/* `name` stands in messages: "policies.yaml:3:7: …". err->column is set, too. */
int weir__yaml_parse(const char *text, size_t len, const char *name, struct weir__yaml **ret,
                     weir_error *err);
void weir__yaml_free(struct weir__yaml *yaml);
const struct weir__yaml_node *weir__yaml_root(const struct weir__yaml *yaml);
/* The file's name, as it stands in messages. */
const char *weir__yaml_name(const struct weir__yaml *yaml);
/* The value of a map's key, or NULL. */
const struct weir__yaml_node *weir__yaml_get(const struct weir__yaml_node *map, const char *key);
/* Fails with WEIR_EINVAL at a node's place: "NAME:LINE:COLUMN: …". */
int weir__yaml_fail(const struct weir__yaml *yaml, const struct weir__yaml_node *node,
                    weir_error *err, const char *format, ...) WEIR__PRINTF(4, 5);
/* The same at a byte of a scalar's text, where the file shows it; otherwise at the scalar. */
int weir__yaml_fail_within(const struct weir__yaml *yaml, const struct weir__yaml_node *node,
                           size_t at, weir_error *err, const char *format, ...) WEIR__PRINTF(5, 6);
/* A text as a message may quote it: cut where it is long, control characters masked. */
struct weir__yaml_quote {
    char text[80];
};
struct weir__yaml_quote weir__yaml_quote(const char *text, size_t len);
/* Every key of a map must be one of these (NULL-terminated), else a failure naming it, its place
 * and the nearest allowed one. */
int weir__yaml_only(const struct weir__yaml *yaml, const struct weir__yaml_node *map,
                    const char *const *allowed, weir_error *err);

#endif
