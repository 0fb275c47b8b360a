/* Conditions of a policy file: `match`, `when`, `allow`, `deny`. */
#include "policy/read/reader.h"

#include <assert.h>

/* ---- one condition ---- */

/* A pattern that no value in its one spelling can match limits nothing: it is refused, with the
 * right one. */
static void match_check_spelling(struct weir__reader *reader, const struct weir__yaml_node *node,
                                 const struct weir__attribute *attribute, struct weir__span text)
{
    struct weir__span right = {"", 0};
    char *room = weir__yaml_new(reader->yaml, text.len + 1, 1);
    if (!room)
        return;
    const char *wrong =
        attribute->spelling == WEIR__AS_PATH
            ? weir__normal_path_pattern(text, reader->set->attributes.keep_parameters, room, &right)
            : weir__normal_host_pattern(text, room, &right);
    if (wrong && right.len == 0)
        weir__yaml_refuse(reader->yaml, node, wrong);
    else if (wrong)
        weir__yaml_fail(reader->yaml, node, "\"%s\": %s; write \"%s\"",
                        weir__yaml_quote(node->text, node->len).text, wrong,
                        weir__yaml_quote(right.data, right.len).text);
}

/* Methods of HTTP are in upper case, and compared as they are. */
static void match_warn_method(struct weir__reader *reader, const struct weir__yaml_node *node,
                              const struct weir__attribute *attribute, struct weir__span text)
{
    bool small = false;
    for (size_t i = 0; i < text.len; i++)
        small = small || (text.data[i] >= 'a' && text.data[i] <= 'z');
    if (small && !attribute->lower && !strcmp(attribute->name, "method"))
        weir__reader_warn(reader, node,
                          "methods of HTTP are in upper case, so none of them matches this: write "
                          "POST, not post");
}

/* A route of a framework is no pattern: it matches nothing, unnoticed. */
static void match_warn_route(struct weir__reader *reader, const struct weir__yaml_node *node,
                             const struct weir__attribute *attribute, struct weir__span text)
{
    bool route = false;
    for (size_t i = 1; i < text.len && !route; i++) {
        const char c = text.data[i];
        route = text.data[i - 1] == '/' && (c == '{' || c == '<' || c == ':');
    }
    if (route && attribute->spelling == WEIR__AS_PATH)
        weir__reader_warn(reader, node,
                          "a path is compared as text, not as a route: for /api/{id} write /api/*");
}

/* The pattern in the spelling that values are compared in. */
static void match_read_pattern(struct weir__reader *reader, const struct weir__yaml_node *node,
                               const struct weir__attribute *attribute, struct weir__pattern *ret)
{
    struct weir__span text = weir__yaml_text(reader->yaml, node, attribute->text);
    if (attribute->spelling == WEIR__AS_PATH || attribute->spelling == WEIR__AS_HOST)
        match_check_spelling(reader, node, attribute, text);
    if (attribute->lower || attribute->spelling == WEIR__AS_HOST) {
        char *room = weir__yaml_new(reader->yaml, text.len + 1, 1);
        if (room)
            weir__normal_lower(text, room, text.len, &text);
    }
    match_warn_method(reader, node, attribute, text);
    match_warn_route(reader, node, attribute, text);
    const char *wrong = reader->yaml->code ? NULL
                                           : weir__pattern_read(&reader->set->arena, text.data,
                                                                text.len, true, ret);
    if (wrong)
        weir__yaml_refuse(reader->yaml, node, wrong);
}

static void match_read_patterns(struct weir__reader *reader, const struct weir__yaml_node *node,
                                size_t count, struct weir__condition *ret)
{
    const struct weir__attribute *attribute = &reader->set->attributes.items[ret->attribute];
    struct weir__pattern *all =
        weir__yaml_new(reader->yaml, 3 * count, sizeof(struct weir__pattern));
    if (!all)
        return;
    node = weir__node_first(node);
    for (size_t i = 0; i < count && !reader->yaml->code; i++, node = node->next) {
        match_read_pattern(reader, node, attribute, &all[i]);
    }
    weir__condition_set_patterns(ret, all, count);
}

void weir__read_networks(struct weir__reader *reader, const struct weir__yaml_node *list,
                         const char *what, const struct weir__network **ret, size_t *ret_count)
{
    size_t count = weir__node_count(list);
    if (count > WEIR__PATTERNS_MAX)
        weir__yaml_fail(reader->yaml, list, "more than %d addresses in %s", WEIR__PATTERNS_MAX,
                        what);
    struct weir__network *networks =
        weir__yaml_new(reader->yaml, count, sizeof(struct weir__network));
    const struct weir__yaml_node *node = weir__node_first(list);
    for (size_t i = 0; i < count && !reader->yaml->code; i++, node = node->next) {
        struct weir__span text = weir__yaml_text(reader->yaml, node, what);
        const char *wrong = weir__network_read(text.data, text.len, &networks[i]);
        if (wrong)
            weir__yaml_refuse(reader->yaml, node, wrong);
    }
    *ret = networks;
    *ret_count = count;
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
static void match_read_values(struct weir__reader *reader, const struct weir__yaml_node *node,
                              struct weir__condition *ret)
{
    const struct weir__attribute *attribute = &reader->set->attributes.items[ret->attribute];
    size_t count = weir__node_count(node);
    if (count == 0)
        weir__yaml_fail(reader->yaml, node, "an empty list for %s matches nothing; name a value",
                        attribute->text);
    else if (count > WEIR__PATTERNS_MAX)
        weir__yaml_fail(reader->yaml, node, "more than %d values for %s", WEIR__PATTERNS_MAX,
                        attribute->text);
    else if (attribute->spelling != WEIR__AS_ADDRESS)
        match_read_patterns(reader, node, count, ret);
    else if (match_has_star(node, count))
        ret->any = true;
    else
        weir__read_networks(reader, node, attribute->text, &ret->networks, &ret->network_count);
}

void weir__read_class(struct weir__reader *reader, int attribute,
                      const struct weir__yaml_node *node, struct weir__conditions *ret)
{
    struct weir__condition *item = weir__yaml_new(reader->yaml, 1, sizeof(struct weir__condition));
    if (!item)
        return;
    assert(node->type == WEIR__YAML_SCALAR);
    item->attribute = attribute;
    match_read_values(reader, node, item);
    ret->items = item;
    ret->count = 1;
}

static void match_read_special(struct weir__reader *reader, const struct weir__yaml_node *map,
                               struct weir__condition *ret)
{
    static const char *const allowed[] = {"not", "absent", NULL};
    if (!weir__yaml_only(reader->yaml, map, allowed))
        return;
    const struct weir__yaml_node *negated = weir__yaml_get(map, "not");
    ret->negated = true;
    if (weir__yaml_count(map) != 1) {
        weir__yaml_fail(reader->yaml, map, "expected one of {not: …} and {absent: true}");
    } else if (negated && negated->type == WEIR__YAML_MAP) {
        weir__yaml_fail(reader->yaml, negated, "not takes a text or a list of texts");
    } else if (negated) {
        match_read_values(reader, negated, ret);
    } else {
        ret->absent = ret->any = weir__yaml_get_bool(reader->yaml, map, "absent", false);
        if (!ret->any)
            weir__yaml_fail(reader->yaml, map->child->value,
                            "absent is true or left out; for what is present write \"*\"");
    }
}

/* ---- maps of them ---- */

void weir__read_conditions(struct weir__reader *reader, const struct weir__yaml_node *map,
                           struct weir__conditions *ret)
{
    if (map->type != WEIR__YAML_MAP) {
        weir__yaml_fail(reader->yaml, map,
                        "expected a map of attributes, like {path: /api/*, method: GET}");
        return;
    }
    size_t count = weir__yaml_count(map), i = 0;
    if (count > WEIR__CONDITIONS_MAX)
        weir__yaml_fail(reader->yaml, map, "more than %d attributes in one map",
                        WEIR__CONDITIONS_MAX);
    struct weir__condition *items =
        weir__yaml_new(reader->yaml, count, sizeof(struct weir__condition));
    for (const struct weir__yaml_node *key = map->child; key && !reader->yaml->code;
         key = key->next, i++) {
        items[i].attribute =
            weir__read_attribute(reader, key, (struct weir__span){key->text, key->len});
        if (items[i].attribute >= 0)
            reader->set->attributes.items[items[i].attribute].needed = true;
        if (items[i].attribute >= 0 && key->value->type == WEIR__YAML_MAP)
            match_read_special(reader, key->value, &items[i]);
        else if (items[i].attribute >= 0)
            match_read_values(reader, key->value, &items[i]);
        for (size_t j = 0; j < i; j++) {
            if (items[j].attribute == items[i].attribute)
                weir__yaml_refuse(reader->yaml, key,
                                  "is given twice in one map, in another spelling");
        }
    }
    if (reader->yaml->code)
        return;
    ret->items = items;
    ret->count = count;
}

void weir__read_any_of(struct weir__reader *reader, const struct weir__yaml_node *map,
                       const char *key, struct weir__any_of *ret)
{
    const struct weir__yaml_node *list = weir__yaml_get(map, key);
    if (!list)
        return;
    if (list->type == WEIR__YAML_SCALAR)
        weir__yaml_fail(reader->yaml, list,
                        "%s is a list of maps, like [{ip: 10.0.0.0/8}, {user: ann}]", key);
    size_t count = weir__node_count(list);
    struct weir__conditions *items =
        weir__yaml_new(reader->yaml, count, sizeof(struct weir__conditions));
    const struct weir__yaml_node *node = weir__node_first(list);
    for (size_t i = 0; i < count && !reader->yaml->code; i++, node = node->next) {
        weir__read_conditions(reader, node, &items[i]);
        if (items[i].count == 0)
            weir__yaml_fail(reader->yaml, node,
                            "an empty map in %s would match every request; name an attribute", key);
    }
    ret->items = items;
    ret->count = count;
}
