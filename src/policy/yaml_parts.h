/* What the reading of a YAML file and the tree that it becomes share. */
#ifndef WEIR_YAML_PARTS_H
#define WEIR_YAML_PARTS_H

#include "policy/arena.h"
#include "policy/yaml.h"

struct weir__yaml {
    struct weir__arena arena;
    const char *name;
    struct weir__yaml_node *root;
    size_t nodes;
};

/* Fills the tree; on failure it is of no use but to be freed. */
int weir__yaml_read(struct weir__yaml *yaml, const char *text, size_t len, weir_error *err);
int weir__yaml_no_memory(weir_error *err);

#endif
