/* What all parts of reading a policy file share: the file, the set that it becomes, where errors
 * go. */
#ifndef WEIR_READER_H
#define WEIR_READER_H

#include "policy/set.h"
#include "policy/yaml.h"

struct weir__reader {
    const struct weir__yaml *yaml;
    struct weir__policies *set;
    weir_error *err;
};

/* Fails at a node; a message of "" is out of memory. */
int weir__reader_fail(const struct weir__reader *reader, const struct weir__yaml_node *node,
                      const char *wrong);
/* Notes what is hardly meant at a node. */
int weir__reader_warn(const struct weir__reader *reader, const struct weir__yaml_node *node,
                      const char *what);
int weir__reader_no_memory(const struct weir__reader *reader);

/* Single values. `what` names the value in the complaint ("shadow"). A NULL node leaves ret as it
 * is. */
int weir__read_text(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, struct weir__span *ret);
int weir__read_bool(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, bool *ret);
int weir__read_number(const struct weir__reader *reader, const struct weir__yaml_node *node,
                      const char *what, int64_t least, int64_t most, int64_t *ret);
/* One of the words of a NULL-terminated list; its number. */
int weir__read_word(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, const char *const *words, int *ret);
/* Letters, digits, '.', '_' and '-', the first a letter or digit; at most WEIR__POLICY_NAME_MAX. */
int weir__read_name(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, const char **ret);
int weir__read_style(const struct weir__reader *reader, const struct weir__yaml_node *node,
                     enum weir__field_style *ret);

/* Elements of a list, or 1 for anything else: what stands alone is a list of one. */
size_t weir__node_count(const struct weir__yaml_node *node);
const struct weir__yaml_node *weir__node_first(const struct weir__yaml_node *node);
/* Keys of a map. */
size_t weir__map_count(const struct weir__yaml_node *map);

/* ---- parts of a file ---- */

/* A map of attributes to what they must be. */
int weir__read_conditions(struct weir__reader *reader, const struct weir__yaml_node *map,
                          struct weir__conditions *ret);
/* A list of such maps, of which any may hold. `what` is "allow" or "deny". */
int weir__read_any_of(struct weir__reader *reader, const struct weir__yaml_node *list,
                      const char *what, struct weir__any_of *ret);
int weir__read_networks(struct weir__reader *reader, const struct weir__yaml_node *list,
                        const char *what, const struct weir__network **ret, size_t *ret_count);
int weir__read_key(struct weir__reader *reader, const struct weir__yaml_node *node,
                   struct weir__key_form *ret);
int weir__read_cost(struct weir__reader *reader, const struct weir__yaml_node *node,
                    struct weir__cost *ret);
/* The limit of a map that says limit: TEXT or tier: NAME; `owner` names the map in complaints. */
int weir__read_limit(struct weir__reader *reader, const struct weir__yaml_node *map,
                     const char *owner, const weir_limit **ret);
int weir__read_tiers(struct weir__reader *reader, const struct weir__yaml_node *map);
int weir__read_policy(struct weir__reader *reader, const struct weir__yaml_node *map, size_t index);
/* What applies to entries of a policy by itself, and may say otherwise. */
int weir__read_entries(struct weir__reader *reader, const struct weir__yaml_node *map,
                       struct weir__policy *policy, struct weir__policy_body *body);
/* With a cluster: keys that are taken together share a slot, or are given back. */
int weir__check_slots(const struct weir__reader *reader, const struct weir__yaml_node *policies);

#endif
