/* Values of an Envoy configuration, as its YAML readers have always taken them: see envoy/parts.h. */
#include "policy/envoy/parts.h"

#include <string.h>
#include <strings.h>

int weir__envoy_no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the configuration");
}

static bool is_null(const struct weir__yaml_node *node)
{
    return node->type == WEIR__YAML_SCALAR && node->plain &&
           (node->len == 0 || !strcmp(node->text, "~") || !strcasecmp(node->text, "null"));
}

const struct weir__yaml_node *weir__envoy_get(const struct weir__yaml_node *map, const char *key)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, key);
    return node && is_null(node) ? NULL : node;
}

int weir__envoy_read_text(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *key, size_t most, struct weir__span *ret)
{
    const struct weir__yaml_node *node = weir__envoy_get(map, key);
    if (!node) {
        *ret = (struct weir__span){"", 0};
        return 0;
    }
    if (node->type != WEIR__YAML_SCALAR)
        return weir__yaml_fail(loading->yaml, node, loading->err, "%s must be a text", key);
    if (node->len > most)
        return weir__yaml_fail(loading->yaml, node, loading->err,
                               "%s has %zu bytes, at most %zu fit", key, node->len, most);
    char *copy = weir__arena_text(&loading->envoy->arena, node->text, node->len);
    if (!copy)
        return weir__envoy_no_memory(loading->err);
    *ret = (struct weir__span){copy, node->len};
    return 0;
}

int weir__envoy_read_bool(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *key, bool *ret)
{
    static const char *const words[] = {"true", "yes", "on", "false", "no", "off"};
    const struct weir__yaml_node *node = weir__envoy_get(map, key);
    *ret = false;
    if (!node)
        return 0;
    for (size_t i = 0; i < WEIR__COUNT(words) && node->type == WEIR__YAML_SCALAR && node->plain;
         i++) {
        if (!strcasecmp(node->text, words[i])) {
            *ret = i < 3;
            return 0;
        }
    }
    return weir__yaml_fail(loading->yaml, node, loading->err, "%s must be true or false", key);
}
