/*
 * YAML (libyaml) to a tree of nodes that know their line and column. Strict and bounded: no anchors
 * or aliases, no tags, no duplicate keys, one document, at most WEIR__YAML_* bytes, nodes and
 * depth.
 */
#ifndef WEIR_YAML_H
#define WEIR_YAML_H

#include "base/base.h"
#include "base/span.h"
#include "policy/arena.h"

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

/*
 * A file that is being read. Its first failure ends the reading: it stays in `code` and `err`, and
 * from then on nothing is read, made or complained about. Readers answer what they were given for
 * the absent, or nothing. So who reads a map reads all of it, and looks at `code` before he follows
 * what he got.
 */
struct weir__yaml {
    const char *name; /* the file's, as it stands in messages: "policies.yaml:3:7: …" */
    const struct weir__yaml_node *root;
    struct weir__arena nodes;
    struct weir__arena *arena; /* where what the file becomes is made */
    const char *becomes;       /* what that is, for want of memory: "the policies" */
    weir_error *err;           /* may be NULL */
    int code;
};

/* ---- the tree (yaml.c) ---- */

/* err->column is set, too. Later failures go to err as well. */
int weir__yaml_parse(const char *text, size_t len, const char *name, struct weir__yaml **ret,
                     weir_error *err);
void weir__yaml_free(struct weir__yaml *yaml);
/* The value of a map's key, or NULL. */
const struct weir__yaml_node *weir__yaml_get(const struct weir__yaml_node *map, const char *key);
/* Elements of a list, keys of a map. */
size_t weir__yaml_count(const struct weir__yaml_node *node);

/* ---- failing (values.c) ---- */

/* Fails with WEIR_EINVAL at a node's place: "NAME:LINE:COLUMN: …". The code that ended the
 * reading. */
int weir__yaml_fail(struct weir__yaml *yaml, const struct weir__yaml_node *node, const char *format,
                    ...) WEIR__PRINTF(3, 4);
/* The same at a byte of a scalar's text, where the file shows it; otherwise at the scalar. */
int weir__yaml_fail_within(struct weir__yaml *yaml, const struct weir__yaml_node *node, size_t at,
                           const char *format, ...) WEIR__PRINTF(4, 5);
/* The same, with a scalar's text before what is wrong with it; "" is out of memory. */
int weir__yaml_refuse(struct weir__yaml *yaml, const struct weir__yaml_node *node,
                      const char *wrong);
int weir__yaml_no_memory(struct weir__yaml *yaml);
/* What a failure at a node would say. */
void weir__yaml_say(const struct weir__yaml *yaml, const struct weir__yaml_node *node,
                    const char *what, weir_error *ret);
/* A text as a message may quote it: cut where it is long, control characters masked. */
struct weir__yaml_quote {
    char text[80];
};
struct weir__yaml_quote weir__yaml_quote(const char *text, size_t len);

/* ---- values (values.c); `what` names the value in the complaint ---- */

/* Memory of the arena; NULL where it failed. */
void *weir__yaml_new(struct weir__yaml *yaml, size_t count, size_t size);
const char *weir__yaml_copy(struct weir__yaml *yaml, const char *text, size_t len);
/* Every key of a map must be one of these (NULL-terminated), else a failure naming it, its place
 * and the nearest allowed one. False: it failed. */
bool weir__yaml_only(struct weir__yaml *yaml, const struct weir__yaml_node *map,
                     const char *const *allowed);
struct weir__span weir__yaml_text(struct weir__yaml *yaml, const struct weir__yaml_node *node,
                                  const char *what);
/* One of the words of a NULL-terminated list: its number. */
int weir__yaml_word(struct weir__yaml *yaml, const struct weir__yaml_node *node, const char *what,
                    const char *const *words, int otherwise);
/* A limit of our language, for the caller to free. */
weir_limit *weir__yaml_limit(struct weir__yaml *yaml, const struct weir__yaml_node *node);
/* The value of a map's key. */
int weir__yaml_get_word(struct weir__yaml *yaml, const struct weir__yaml_node *map, const char *key,
                        const char *const *words, int otherwise);
bool weir__yaml_get_bool(struct weir__yaml *yaml, const struct weir__yaml_node *map,
                         const char *key, bool otherwise);
int64_t weir__yaml_get_number(struct weir__yaml *yaml, const struct weir__yaml_node *map,
                              const char *key, int64_t least, int64_t most, int64_t otherwise);

#endif
