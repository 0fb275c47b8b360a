/* The tree of a YAML file: made, asked, freed. */
#include "policy/yaml_parts.h"

#include <stdlib.h>
#include <string.h>

int weir__yaml_parse(const char *text, size_t len, const char *name, struct weir__yaml **ret,
                     weir_error *err)
{
    struct weir__yaml *yaml = calloc(1, sizeof *yaml);
    if (!yaml)
        return weir__yaml_no_memory(err);
    yaml->name = weir__arena_text(&yaml->arena, name, strlen(name));
    int code = yaml->name ? weir__yaml_read(yaml, text, len, err) : weir__yaml_no_memory(err);
    if (code) {
        weir__yaml_free(yaml);
        return code;
    }
    *ret = yaml;
    return 0;
}

void weir__yaml_free(struct weir__yaml *yaml)
{
    if (!yaml)
        return;
    weir__arena_free(&yaml->arena);
    free(yaml);
}

const struct weir__yaml_node *weir__yaml_root(const struct weir__yaml *yaml)
{
    return yaml->root;
}

const char *weir__yaml_name(const struct weir__yaml *yaml)
{
    return yaml->name;
}

const struct weir__yaml_node *weir__yaml_get(const struct weir__yaml_node *map, const char *key)
{
    if (map->type != WEIR__YAML_MAP)
        return NULL;
    for (const struct weir__yaml_node *node = map->child; node; node = node->next) {
        if (!strcmp(node->text, key))
            return node->value;
    }
    return NULL;
}
