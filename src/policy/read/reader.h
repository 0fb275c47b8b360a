/* What all parts of reading a policy file share: the file and the set that it becomes. A failure
 * stays with the file (policy/yaml.h), and nothing is read after it. */
#ifndef WEIR_READER_H
#define WEIR_READER_H

#include "policy/policy.h"
#include "policy/yaml.h"

struct weir__reader {
    struct weir__yaml *yaml;
    struct weir__policies *set;
};

/* Notes what is hardly meant at a node. */
void weir__reader_warn(struct weir__reader *reader, const struct weir__yaml_node *node,
                       const char *what);
/* Letters, digits, '.', '_' and '-', the first a letter or digit; at most WEIR__POLICY_NAME_MAX. */
const char *weir__read_name(struct weir__reader *reader, const struct weir__yaml_node *node,
                            const char *what);
/* The style of a map's `headers`. */
enum weir__field_style weir__read_style(struct weir__reader *reader,
                                        const struct weir__yaml_node *map,
                                        enum weir__field_style otherwise);
/* The number of the attribute that a text names; -1: it failed. */
int weir__read_attribute(struct weir__reader *reader, const struct weir__yaml_node *node,
                         struct weir__span text);

/* Elements of a list, or 1 for anything else: what stands alone is a list of one. */
static inline size_t weir__node_count(const struct weir__yaml_node *node)
{
    return node->type == WEIR__YAML_LIST ? weir__yaml_count(node) : 1;
}

static inline const struct weir__yaml_node *weir__node_first(const struct weir__yaml_node *node)
{
    return node->type == WEIR__YAML_LIST ? node->child : node;
}

/* ---- parts of a file ---- */

/* A map of attributes to what they must be. */
void weir__read_conditions(struct weir__reader *reader, const struct weir__yaml_node *map,
                           struct weir__conditions *ret);
/* An attribute and one value that it must have: a text with stars, or a network. */
void weir__read_class(struct weir__reader *reader, int attribute,
                      const struct weir__yaml_node *node, struct weir__conditions *ret);
/* The list of such maps under a map's key, of which any may hold: "allow" or "deny". */
void weir__read_any_of(struct weir__reader *reader, const struct weir__yaml_node *map,
                       const char *key, struct weir__any_of *ret);
void weir__read_networks(struct weir__reader *reader, const struct weir__yaml_node *list,
                         const char *what, const struct weir__network **ret, size_t *ret_count);
/* A map's `key`, if it has one. */
void weir__read_key(struct weir__reader *reader, const struct weir__yaml_node *map,
                    struct weir__key_form *ret);
/* A map's `cost`, if it has one. */
void weir__read_cost(struct weir__reader *reader, const struct weir__yaml_node *map,
                     struct weir__cost *ret);
/* A map's `least`, if it has one: the same forms. */
void weir__read_least(struct weir__reader *reader, const struct weir__yaml_node *map,
                      struct weir__cost *ret);
/* The limit of a map that says limit: TEXT or tier: NAME; `owner` names the map in complaints. */
const weir_limit *weir__read_limit(struct weir__reader *reader, const struct weir__yaml_node *map,
                                   const char *owner);
/* Hands a limit to the set, which frees it. False: it failed, and the limit is freed. */
bool weir__reader_keep(struct weir__reader *reader, weir_limit *limit);
/* A map's `share`, if it has one: *ret stays as it is otherwise. */
void weir__read_share(struct weir__reader *reader, const struct weir__yaml_node *map,
                      const struct weir__shares **ret);
/* A limit by each of the shares, or NULL; `map` is where the limit stands. */
const weir_limit *const *weir__reduce_limit(struct weir__reader *reader,
                                            const struct weir__yaml_node *map,
                                            const weir_limit *limit,
                                            const struct weir__shares *shares);
void weir__read_tiers(struct weir__reader *reader, const struct weir__yaml_node *map);
void weir__read_policy(struct weir__reader *reader, const struct weir__yaml_node *map,
                       struct weir__policy *policy);
/* The entries of a policy. What stands at the policy applies to each that does not say
 * otherwise. */
void weir__read_entries(struct weir__reader *reader, const struct weir__yaml_node *map,
                        struct weir__policy *policy);

#endif
