/*
 * The configuration of Envoy's rate limit service: files of envoyproxy/ratelimit, as they are,
 * become an immutable set of rules; a domain and a descriptor's entries lead to at most one of
 * them. docs/ENVOY.md is the manual.
 *
 *     domain ── descriptors, level by level:
 *               exact key and value ► wildcards, in the file's order ► key alone;
 *               nobody goes back up; the depth must be the same
 *
 * What holds: a set is made whole or not at all; matching allocates nothing and its time does not
 * depend on how many values a level has (wildcards of one level are tried one after the other); a
 * rule and its limits live as long as the set.
 */
#ifndef WEIR_ENVOY_H
#define WEIR_ENVOY_H

#include "limit/limit.h"
#include "policy/conditions.h"
#include "policy/yaml.h"
#include "wire/grpc.h"

#define WEIR__ENVOY_FILES_MAX 1000
#define WEIR__ENVOY_TEXT_MAX 1024 /* bytes of a domain, a key or a value */
#define WEIR__ENVOY_PART_MAX 256  /* bytes of a text that stands in a key as it is */
#define WEIR__ENVOY_KEY_ROOM 1024 /* all that a key may take, a NUL included */

/* What a descriptor with a limit says. */
struct weir__envoy_rule {
    const char *domain;
    const char *name;        /* its place in the file: "message_type_marketing.to_number" */
    const char *limit_name;  /* rate_limit's name; "" without one */
    const weir_limit *limit; /* NULL: unlimited, or it denies whatever comes */
    bool unlimited;
    bool denies;              /* requests_per_unit: 0 */
    bool shadow;              /* answered OK in any case */
    bool quota;               /* over only where all quotas of a request are */
    bool charge_denied;       /* decided by itself, and charged even where it denies */
    enum weir__rls_unit unit; /* as the answer names it; UNKNOWN_UNIT: its period is none of them */
    uint32_t requests_per_unit;  /* likewise; 0: the decision's limit */
    const char *const *replaces; /* names of limits that it puts out of force */
    size_t replace_count;
    uint32_t index; /* among all rules of the set: for counters */
};

/* A descriptor of a file: a key, with a value, with a pattern, or for any value (empty). */
struct weir__envoy_node {
    const struct weir__envoy_node *parent; /* a domain's: NULL */
    struct weir__span key, value;
    const struct weir__envoy_rule *rule; /* NULL: none */
    struct weir__envoy_node *wildcards;  /* among its children, in the file's order */
    struct weir__envoy_node *last_wildcard;
    struct weir__envoy_node *next_wildcard; /* of its parent */
    struct weir__pattern pattern;           /* of a wildcard */
    bool is_wildcard, share_threshold, has_children;
    const char *file; /* where it stands */
    int line;
    uint64_t hash;
    struct weir__envoy_node *next_in_bucket;
};

/* A domain is a node of its own, whose key is its name. */
struct weir__envoy_domain {
    struct weir__envoy_node node;
    struct weir__envoy_domain *next;
    uint32_t index;
};

/* One limit for all rules that mean the same. */
struct weir__envoy_interned {
    struct weir__envoy_interned *next;
    weir_limit *limit;
};

#define WEIR__ENVOY_INTERNED 256

/* A set. */
struct weir__envoy {
    struct weir__arena arena;
    struct weir__envoy_node **buckets; /* all nodes, by parent, key and value */
    size_t bucket_count, node_count;
    const struct weir__envoy_rule **rules;
    size_t rule_count, rule_room;
    struct weir__envoy_domain *first_domain, *last_domain; /* in the order of files */
    size_t domain_count;
    struct weir__envoy_interned *interned[WEIR__ENVOY_INTERNED];
    size_t limit_count; /* of those: the different limits of all rules */
};

struct weir__envoy_file {
    const char *name; /* for messages */
    const char *text;
    size_t len;
};

/* Reads files into one set. Two with the same domain are an error that names both, or with `merge`
 * put together. */
int weir__envoy_load(const struct weir__envoy_file *files, size_t n, bool merge,
                     struct weir__envoy **ret, weir_error *err);
/* One file. */
int weir__envoy_parse(const char *text, size_t len, const char *name, struct weir__envoy **ret,
                      weir_error *err);
void weir__envoy_free(struct weir__envoy *envoy);

/* The different limits of all rules, into room for limit_count. */
void weir__envoy_limits(const struct weir__envoy *envoy, const weir_limit **ret);

/* NULL: there is no such domain. */
const struct weir__envoy_domain *weir__envoy_domain(const struct weir__envoy *envoy,
                                                    struct weir__span name);
/* The rule for a descriptor, or NULL. shared[i] is the pattern that stands for the value of entry i
 * where all its values count together (share_threshold); its data is NULL where the value stands
 * for itself. */
const struct weir__envoy_rule *weir__envoy_match(const struct weir__envoy *envoy,
                                                 const struct weir__envoy_domain *domain,
                                                 const struct weir__rls_entry *entries, size_t n,
                                                 struct weir__span *shared);

/* The key of a descriptor's state: "envoy:domain|key=value|key=value". What could be mistaken for
 * these marks, braces (Redis Cluster's), stars and control characters are percent-encoded; a shared
 * pattern keeps its stars. A text over WEIR__ENVOY_PART_MAX bytes becomes its beginning, "%~" and
 * its SHA-256; if the key is longer than its room all the same, all behind the domain becomes "|%~"
 * and a SHA-256. So different descriptors have different keys, whatever their texts are. `shared`
 * may be NULL. Whether something was long. */
bool weir__envoy_put_key(char room[WEIR__ENVOY_KEY_ROOM], struct weir__span domain,
                         const struct weir__rls_entry *entries, size_t n,
                         const struct weir__span *shared, size_t *ret_len);

/* The text of a limit of `requests` (at least 1) a unit, in windows aligned to the epoch: a month
 * has 30 days, a year 365. */
void weir__envoy_put_limit(struct weir__buffer *buffer, uint32_t requests,
                           enum weir__rls_unit unit);
/* The unit that is a rule's period, and its count; UNKNOWN_UNIT and 0: it is not one of them. */
enum weir__rls_unit weir__envoy_unit_of(const struct weir__rule *rule, uint32_t *ret_requests);
/* A unit's length, and its name in capitals, as in the API; 0 and "UNKNOWN" for UNKNOWN_UNIT. */
int64_t weir__envoy_unit_us(enum weir__rls_unit unit);
const char *weir__envoy_unit_name(enum weir__rls_unit unit);
/* A unit by its name, in letters of any case; UNKNOWN_UNIT: no unit has that name. */
enum weir__rls_unit weir__envoy_unit(const char *name, size_t len);

/* ---- inside: loading ---- */

/* A file on its way into a set. A failure stays with the file (policy/yaml.h). */
struct weir__envoy_loading {
    struct weir__envoy *envoy;
    struct weir__yaml *yaml;
    const char *file;
    bool merge;
};

/* The child of a key and value (an empty one: of the key alone), or NULL. */
struct weir__envoy_node *weir__envoy_child(const struct weir__envoy *envoy,
                                           const struct weir__envoy_node *parent,
                                           struct weir__span key, struct weir__span value);
/* Where it belongs in the table. */
uint64_t weir__envoy_hash(const struct weir__envoy_node *parent, struct weir__span key,
                          struct weir__span value);
/* The rule of a descriptor whose place is `name`; NULL where it has no limit. */
const struct weir__envoy_rule *weir__envoy_read_rule(struct weir__envoy_loading *loading,
                                                     const struct weir__yaml_node *descriptor,
                                                     const char *domain, const char *name);
/* A map's value, or NULL: a `null` is as good as absent. */
const struct weir__yaml_node *weir__envoy_get(const struct weir__yaml_node *map, const char *key);
/* A text of at most `most` bytes; absent: empty. */
struct weir__span weir__envoy_read_text(struct weir__envoy_loading *loading,
                                        const struct weir__yaml_node *map, const char *key,
                                        size_t most);
/* Absent: false. */
bool weir__envoy_read_bool(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                           const char *key);

#endif
