/* Inside a set of Envoy's rules: what the files that load and match it share. */
#ifndef WEIR_ENVOY_SET_H
#define WEIR_ENVOY_SET_H

#include "policy/arena.h"
#include "policy/envoy/envoy.h"
#include "policy/yaml.h"

/* A descriptor of a file: a key, with a value, with a pattern, or for any value (value_len 0). */
struct weir__envoy_node {
    const struct weir__envoy_node *parent; /* a domain's: NULL */
    const char *key, *value;
    size_t key_len, value_len;
    const struct weir__envoy_rule *rule; /* NULL: none */
    struct weir__envoy_node *wildcards;  /* among its children, in the file's order */
    struct weir__envoy_node *last_wildcard;
    struct weir__envoy_node *next_wildcard; /* of its parent */
    bool is_wildcard, share_threshold, has_children;
    const char *file; /* where it stands */
    int line;
    uint64_t hash;
    struct weir__envoy_node *next_in_bucket;
};

/* A domain is a node of its own, whose key is its name. */
struct weir__envoy_domain {
    struct weir__envoy_node node;
    struct weir__envoy_domain *next; /* in the order of files */
    uint32_t index;
};

/* One limit for all rules that mean the same. */
struct weir__envoy_interned {
    struct weir__envoy_interned *next;
    weir_limit *limit;
};

#define WEIR__ENVOY_INTERNED 256

struct weir__envoy {
    struct weir__arena arena;
    struct weir__envoy_node **buckets; /* all nodes, by parent, key and value */
    size_t bucket_count, node_count;
    const struct weir__envoy_rule **rules;
    size_t rule_count, rule_room;
    struct weir__envoy_domain *first_domain, *last_domain;
    size_t domain_count;
    struct weir__envoy_interned *interned[WEIR__ENVOY_INTERNED];
    size_t limit_count; /* of those */
};

/* A file on its way into a set. */
struct weir__envoy_loading {
    struct weir__envoy *envoy;
    const struct weir__yaml *yaml;
    const char *file;
    bool merge;
    weir_error *err;
};

/* ---- envoy/match.c ---- */

/* The child of a key and value (value_len 0: of the key alone), or NULL. */
struct weir__envoy_node *weir__envoy_child(const struct weir__envoy *envoy,
                                           const struct weir__envoy_node *parent,
                                           struct weir__span key, struct weir__span value);
/* Where it belongs in the table. */
uint64_t weir__envoy_hash(const struct weir__envoy_node *parent, struct weir__span key,
                          struct weir__span value);

/* ---- envoy/rule.c ---- */

/* The rule of a descriptor whose place is `name`; NULL where it has no limit. */
int weir__envoy_read_rule(struct weir__envoy_loading *loading,
                          const struct weir__yaml_node *descriptor, const char *domain,
                          const char *name, const struct weir__envoy_rule **ret);

/* ---- envoy/rule.c: values of a map; a `null` is as good as absent ---- */

/* A map's value, or NULL. */
const struct weir__yaml_node *weir__envoy_get(const struct weir__yaml_node *map, const char *key);
/* A text of at most `most` bytes; absent: empty. */
int weir__envoy_read_text(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *key, size_t most, struct weir__span *ret);
/* Absent: false. */
int weir__envoy_read_bool(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *key, bool *ret);
int weir__envoy_no_memory(weir_error *err);

#endif
