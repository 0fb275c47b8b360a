/* Conditions of a policy file: `match`, `when`, `allow`, `deny`. */
#include "policy/normal.h"
#include "policy/read/reader.h"

#include <stdlib.h>
#include <string.h>

/* ---- one condition ---- */

/* A pattern that no value in its one spelling can match limits nothing: it is refused, with the
 * right one. */
static int match_check_spelling(struct weir__reader *reader, const struct weir__yaml_node *node,
                                const struct weir__attribute *attribute, struct weir__span text)
{
    const char *wrong = NULL;
    struct weir__span right = {"", 0};
    if (attribute->spelling != WEIR__AS_PATH && attribute->spelling != WEIR__AS_HOST)
        return 0;
    char *room = weir__arena_new(&reader->set->arena, text.len + 1, 1);
    if (!room)
        return weir__reader_no_memory(reader);
    if (attribute->spelling == WEIR__AS_PATH)
        wrong =
            weir__normal_path_pattern(text, reader->set->attributes.keep_parameters, room, &right);
    else
        wrong = weir__normal_host_pattern(text, room, &right);
    if (!wrong)
        return 0;
    if (right.len == 0)
        return weir__reader_fail(reader, node, wrong);
    return weir__yaml_fail(reader->yaml, node, reader->err, "\"%s\": %s; write \"%s\"",
                           weir__yaml_quote(node->text, node->len).text, wrong,
                           weir__yaml_quote(right.data, right.len).text);
}

/* The pattern in the spelling that values are compared in. */
static int match_read_pattern(struct weir__reader *reader, const struct weir__yaml_node *node,
                              const struct weir__attribute *attribute, struct weir__pattern *ret)
{
    struct weir__span text = {"", 0};
    int code = weir__read_text(reader, node, attribute->text, &text);
    if (code == 0)
        code = match_check_spelling(reader, node, attribute, text);
    if (code)
        return code;
    if (attribute->lower || attribute->spelling == WEIR__AS_HOST) {
        char *room = weir__arena_new(&reader->set->arena, text.len + 1, 1);
        if (!room)
            return weir__reader_no_memory(reader);
        weir__normal_lower(text, room, text.len, &text);
    }
    const char *wrong = weir__pattern_read(&reader->set->arena, text.data, text.len, ret);
    return wrong ? weir__reader_fail(reader, node, wrong) : 0;
}

static int match_read_patterns(struct weir__reader *reader, const struct weir__yaml_node *node,
                               size_t count, struct weir__condition *ret)
{
    const struct weir__attribute *attribute = &reader->set->attributes.items[ret->attribute];
    struct weir__pattern *all =
        weir__arena_new(&reader->set->arena, 3 * count, sizeof(struct weir__pattern));
    if (!all)
        return weir__reader_no_memory(reader);
    struct weir__pattern *exact = all + count, *wild = exact + count;
    node = weir__node_first(node);
    for (size_t i = 0; i < count; i++, node = node->next) {
        int code = match_read_pattern(reader, node, attribute, &all[i]);
        if (code)
            return code;
        if (all[i].exact)
            exact[ret->exact_count++] = all[i];
        else
            wild[ret->wild_count++] = all[i];
        ret->any |= !all[i].exact && all[i].least == 0;
    }
    qsort(exact, ret->exact_count, sizeof *exact, weir__pattern_order);
    ret->patterns = all;
    ret->pattern_count = count;
    ret->exact = exact;
    ret->wild = wild;
    return 0;
}

static int match_read_address(struct weir__reader *reader, const struct weir__yaml_node *node,
                              const char *what, struct weir__network *ret)
{
    struct weir__span text = {"", 0};
    int code = weir__read_text(reader, node, what, &text);
    const char *wrong = code ? NULL : weir__network_read(text.data, text.len, ret);
    return wrong ? weir__reader_fail(reader, node, wrong) : code;
}

int weir__read_networks(struct weir__reader *reader, const struct weir__yaml_node *list,
                        const char *what, const struct weir__network **ret, size_t *ret_count)
{
    size_t count = weir__node_count(list);
    if (count > WEIR__PATTERNS_MAX)
        return weir__yaml_fail(reader->yaml, list, reader->err, "more than %d addresses in %s",
                               WEIR__PATTERNS_MAX, what);
    struct weir__network *networks =
        weir__arena_new(&reader->set->arena, count, sizeof(struct weir__network));
    if (!networks)
        return weir__reader_no_memory(reader);
    const struct weir__yaml_node *node = weir__node_first(list);
    for (size_t i = 0; i < count; i++, node = node->next) {
        int code = match_read_address(reader, node, what, &networks[i]);
        if (code)
            return code;
    }
    *ret = networks;
    *ret_count = count;
    return 0;
}

/* Whether a "*" is among the values: whatever it is, it is there. */
static bool match_has_star(const struct weir__yaml_node *node, size_t count)
{
    const struct weir__yaml_node *it = weir__node_first(node);
    for (size_t i = 0; i < count; i++, it = it->next) {
        if (it->type == WEIR__YAML_SCALAR && it->len > 0 && strspn(it->text, "*") == it->len)
            return true;
    }
    return false;
}

/* A text, or a list of which any may match. */
static int match_read_values(struct weir__reader *reader, const struct weir__yaml_node *node,
                             struct weir__condition *ret)
{
    const struct weir__attribute *attribute = &reader->set->attributes.items[ret->attribute];
    size_t count = weir__node_count(node);
    if (count == 0)
        return weir__yaml_fail(reader->yaml, node, reader->err,
                               "an empty list for %s matches nothing; name a value",
                               attribute->text);
    if (count > WEIR__PATTERNS_MAX)
        return weir__yaml_fail(reader->yaml, node, reader->err, "more than %d values for %s",
                               WEIR__PATTERNS_MAX, attribute->text);
    if (attribute->spelling != WEIR__AS_ADDRESS)
        return match_read_patterns(reader, node, count, ret);
    if (match_has_star(node, count)) {
        ret->any = true;
        return 0;
    }
    return weir__read_networks(reader, node, attribute->text, &ret->networks, &ret->network_count);
}

static int match_read_special(struct weir__reader *reader, const struct weir__yaml_node *map,
                              struct weir__condition *ret)
{
    static const char *const allowed[] = {"not", "absent", NULL};
    int code = weir__yaml_only(reader->yaml, map, allowed, reader->err);
    if (code)
        return code;
    if (weir__map_count(map) != 1)
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "expected one of {not: …} and {absent: true}");
    const struct weir__yaml_node *value = map->child->value;
    ret->negated = true;
    if (!strcmp(map->child->text, "not")) {
        if (value->type == WEIR__YAML_MAP)
            return weir__yaml_fail(reader->yaml, value, reader->err,
                                   "not takes a text or a list of texts");
        return match_read_values(reader, value, ret);
    }
    code = weir__read_bool(reader, value, "absent", &ret->any);
    if (code == 0 && !ret->any)
        code = weir__yaml_fail(reader->yaml, value, reader->err,
                               "absent is true or left out; for what is present write \"*\"");
    return code;
}

static int match_read_condition(struct weir__reader *reader, const struct weir__yaml_node *key,
                                struct weir__condition *ret)
{
    const char *wrong = NULL;
    ret->attribute = weir__attribute_read(&reader->set->attributes, &reader->set->arena, key->text,
                                          key->len, &wrong);
    if (ret->attribute < 0)
        return weir__reader_fail(reader, key, wrong);
    if (key->value->type == WEIR__YAML_MAP)
        return match_read_special(reader, key->value, ret);
    return match_read_values(reader, key->value, ret);
}

/* ---- maps of them ---- */

int weir__read_conditions(struct weir__reader *reader, const struct weir__yaml_node *map,
                          struct weir__conditions *ret)
{
    if (map->type != WEIR__YAML_MAP)
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "expected a map of attributes, like {path: /api/*, method: GET}");
    size_t count = weir__map_count(map);
    if (count > WEIR__CONDITIONS_MAX)
        return weir__yaml_fail(reader->yaml, map, reader->err, "more than %d attributes in one map",
                               WEIR__CONDITIONS_MAX);
    struct weir__condition *items =
        weir__arena_new(&reader->set->arena, count, sizeof(struct weir__condition));
    if (!items)
        return weir__reader_no_memory(reader);
    size_t i = 0;
    for (const struct weir__yaml_node *key = map->child; key; key = key->next, i++) {
        int code = match_read_condition(reader, key, &items[i]);
        if (code)
            return code;
        for (size_t j = 0; j < i; j++) {
            if (items[j].attribute == items[i].attribute)
                return weir__reader_fail(reader, key,
                                         "is given twice in one map, in another spelling");
        }
    }
    ret->items = items;
    ret->count = count;
    return 0;
}

int weir__read_any_of(struct weir__reader *reader, const struct weir__yaml_node *list,
                      const char *what, struct weir__any_of *ret)
{
    if (!list)
        return 0;
    if (list->type == WEIR__YAML_SCALAR)
        return weir__yaml_fail(reader->yaml, list, reader->err,
                               "%s is a list of maps, like [{ip: 10.0.0.0/8}, {user: ann}]", what);
    size_t count = weir__node_count(list);
    struct weir__conditions *items =
        weir__arena_new(&reader->set->arena, count, sizeof(struct weir__conditions));
    if (!items)
        return weir__reader_no_memory(reader);
    const struct weir__yaml_node *node = weir__node_first(list);
    for (size_t i = 0; i < count; i++, node = node->next) {
        int code = weir__read_conditions(reader, node, &items[i]);
        if (code)
            return code;
        if (items[i].count == 0)
            return weir__yaml_fail(
                reader->yaml, node, reader->err,
                "an empty map in %s would match every request; name an attribute", what);
    }
    ret->items = items;
    ret->count = count;
    return 0;
}
