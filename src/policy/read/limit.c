/* What a policy file says of one limit: its key, the limit or its tier, its cost. */
#include "policy/read/reader.h"

#include <stdlib.h>

#define TIERS_MAX 1000

int weir__read_attribute(struct weir__reader *reader, const struct weir__yaml_node *node,
                         struct weir__span text)
{
    struct weir__policies *set = reader->set;
    const char *wrong = NULL;
    if (reader->yaml->code)
        return -1;
    int found = weir__attribute_read(&set->attributes, &set->arena, text.data, text.len, &wrong);
    if (found < 0)
        weir__yaml_refuse(reader->yaml, node, wrong);
    return found;
}

/* ---- keys: attributes and constants ---- */

static void key_read_constant(struct weir__reader *reader, const struct weir__yaml_node *node,
                              struct weir__key_part *ret)
{
    char room[3 * WEIR__KEY_VALUE_MAX + 1];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    size_t len = node->len - 2;
    if (len == 0 || len > WEIR__KEY_VALUE_MAX)
        weir__yaml_refuse(reader->yaml, node, "a constant has 1 to 128 bytes");
    weir__put_escaped(&buffer, (struct weir__span){node->text + 1, len}, WEIR__IN_POLICY_KEY);
    ret->attribute = -1;
    ret->text = weir__yaml_copy(reader->yaml, room, buffer.len);
}

/* The number at the start of text, up to a slash or the end; 0: none, or too large. */
static int key_take_bits(const char **text, int most)
{
    int bits = 0;
    const char *start = *text;
    while (**text >= '0' && **text <= '9' && *text - start < 3)
        bits = bits * 10 + (*(*text)++ - '0');
    return bits <= most && *start != '0' && (**text == 0 || **text == '/') ? bits : 0;
}

/* "/24/64" behind an address. */
static void key_read_bits(struct weir__reader *reader, const struct weir__yaml_node *node,
                          const char *slash, struct weir__key_part *ret)
{
    const char *at = slash + 1;
    int bits4 = key_take_bits(&at, 32), bits6 = WEIR__IP_BITS6;
    if (bits4 && *at == '/') {
        at++;
        bits6 = key_take_bits(&at, 128);
    }
    if (!bits4 || !bits6 || *at)
        weir__yaml_fail_within(reader->yaml, node, (size_t)(slash - node->text),
                               "\"%s\": after an address write the lengths of its network, for "
                               "IPv4 (1 to 32) and IPv6 (1 to 128), like ip/24/64",
                               weir__yaml_quote(node->text, node->len).text);
    ret->bits4 = (uint8_t)bits4;
    ret->bits6 = (uint8_t)bits6;
}

static void key_read_attribute(struct weir__reader *reader, const struct weir__yaml_node *node,
                               struct weir__key_part *ret)
{
    struct weir__policies *set = reader->set;
    const char *slash = strchr(node->text, '/'), *wrong = NULL;
    size_t len = slash ? (size_t)(slash - node->text) : node->len;
    ret->attribute = weir__attribute_read(&set->attributes, &set->arena, node->text, len, &wrong);
    if (ret->attribute < 0) {
        if (*wrong)
            weir__yaml_fail(reader->yaml, node, "\"%s\": %s, or a constant like \"'all'\"",
                            weir__yaml_quote(node->text, node->len).text, wrong);
        weir__yaml_no_memory(reader->yaml);
        return;
    }
    struct weir__attribute *attribute = &set->attributes.items[ret->attribute];
    attribute->needed = attribute->counted = true;
    if (slash && attribute->spelling != WEIR__AS_ADDRESS)
        weir__yaml_refuse(reader->yaml, node, "only addresses have networks; write ip(NAME)/24/64");
    /* YAML took the quotes of key: 'all', and an attribute that is never there limits nothing. */
    if (!node->plain && !strchr(attribute->text, '(') && !weir__attribute_known(attribute))
        weir__yaml_fail(reader->yaml, node,
                        "is \"%s\" a constant? Then write \"'%s'\"; for the attribute leave the "
                        "quotes out",
                        attribute->text, attribute->text);
    ret->bits4 = WEIR__IP_BITS4;
    ret->bits6 = WEIR__IP_BITS6;
    if (slash)
        key_read_bits(reader, node, slash, ret);
}

/* What stands in hash(…), as a node of its own. */
static bool key_is_hash(struct weir__reader *reader, const struct weir__yaml_node *node,
                        struct weir__yaml_node *ret)
{
    static const char call[] = "hash(";
    size_t len = sizeof call - 1;
    if (node->len < len + 2 || memcmp(node->text, call, len) || node->text[node->len - 1] != ')')
        return false;
    *ret = *node;
    ret->len = node->len - len - 1;
    ret->text = weir__yaml_copy(reader->yaml, node->text + len, ret->len);
    reader->set->hashes = true;
    return true;
}

static void key_read_part(struct weir__reader *reader, const struct weir__yaml_node *node,
                          struct weir__key_part *ret)
{
    struct weir__span text = weir__yaml_text(reader->yaml, node, "key");
    struct weir__yaml_node inner;
    if (text.len >= 2 && text.data[0] == '\'' && text.data[text.len - 1] == '\'') {
        key_read_constant(reader, node, ret);
        return;
    }
    ret->hashed = key_is_hash(reader, node, &inner);
    if (!reader->yaml->code)
        key_read_attribute(reader, ret->hashed ? &inner : node, ret);
    if (reader->yaml->code)
        return;
    char room[WEIR__ATTRIBUTE_NAME_MAX + 32];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    weir__put_format(&buffer, ret->hashed ? "hash(%s)=" : "%s=",
                     reader->set->attributes.items[ret->attribute].text);
    ret->text = weir__yaml_copy(reader->yaml, room, buffer.len);
}

static void key_put_part(struct weir__buffer *buffer, const struct weir__key_part *part,
                         const struct weir__attributes *attributes)
{
    if (part->attribute < 0) {
        weir__put_format(buffer, "'%s'", part->text);
        return;
    }
    const struct weir__attribute *attribute = &attributes->items[part->attribute];
    weir__put_text(buffer, part->hashed ? "hash(" : "");
    weir__put_text(buffer, attribute->text);
    if (attribute->spelling == WEIR__AS_ADDRESS)
        weir__put_format(buffer, "/%d/%d", part->bits4, part->bits6);
    weir__put_text(buffer, part->hashed ? ")" : "");
}

void weir__read_key(struct weir__reader *reader, const struct weir__yaml_node *map,
                    struct weir__key_form *ret)
{
    char room[WEIR__KEY_FORM_MAX * (3 * WEIR__KEY_VALUE_MAX + 16)];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    const struct weir__yaml_node *node = weir__yaml_get(map, "key");
    if (!node)
        return;
    size_t count = weir__node_count(node);
    if (count == 0 || count > WEIR__KEY_FORM_MAX)
        weir__yaml_fail(reader->yaml, node,
                        "a key has 1 to %d parts; for one that all requests share write \"'all'\"",
                        WEIR__KEY_FORM_MAX);
    struct weir__key_part *parts =
        weir__yaml_new(reader->yaml, count, sizeof(struct weir__key_part));
    const struct weir__yaml_node *part = weir__node_first(node);
    for (size_t i = 0; i < count && !reader->yaml->code; i++, part = part->next) {
        key_read_part(reader, part, &parts[i]);
        for (size_t j = 0; j < i; j++) {
            if (parts[i].attribute >= 0 && parts[i].attribute == parts[j].attribute)
                weir__yaml_refuse(reader->yaml, part, "is given twice in one key");
        }
        if (reader->yaml->code)
            return;
        weir__put_text(&buffer, i > 0 ? ", " : "");
        key_put_part(&buffer, &parts[i], &reader->set->attributes);
    }
    ret->parts = parts;
    ret->count = count;
    ret->text = weir__yaml_copy(reader->yaml, room, buffer.len);
}

/* ---- limits ---- */

bool weir__reader_keep(struct weir__reader *reader, weir_limit *limit)
{
    struct weir__policies *set = reader->set;
    if (set->limit_count == set->limit_room) {
        size_t room = set->limit_room ? 2 * set->limit_room : 16;
        weir_limit **limits = reallocarray(set->limits, room, sizeof(weir_limit *));
        if (!limits) {
            weir__yaml_no_memory(reader->yaml);
            weir_limit_free(limit);
            return false;
        }
        set->limits = limits;
        set->limit_room = room;
    }
    set->limits[set->limit_count++] = limit;
    return true;
}

static const weir_limit *limit_parse(struct weir__reader *reader,
                                     const struct weir__yaml_node *node)
{
    weir__yaml_text(reader->yaml, node, "limit");
    weir_limit *limit = weir__yaml_limit(reader->yaml, node);
    return limit && weir__reader_keep(reader, limit) ? limit : NULL;
}

static const weir_limit *limit_find_tier(struct weir__reader *reader,
                                         const struct weir__yaml_node *node)
{
    const struct weir__policies *set = reader->set;
    struct weir__span text = weir__yaml_text(reader->yaml, node, "tier");
    for (size_t i = 0; i < set->tier_count; i++) {
        if (!strcmp(set->tiers[i].name, text.data))
            return set->tiers[i].limit;
    }
    weir__yaml_fail(reader->yaml, node, "unknown tier \"%s\": define it under tiers: at the top",
                    weir__yaml_quote(text.data, text.len).text);
    return NULL;
}

const weir_limit *weir__read_limit(struct weir__reader *reader, const struct weir__yaml_node *map,
                                   const char *owner)
{
    const struct weir__yaml_node *limit = weir__yaml_get(map, "limit");
    const struct weir__yaml_node *tier = weir__yaml_get(map, "tier");
    if (limit && tier)
        weir__yaml_fail(reader->yaml, tier, "limit and tier both set the limit of %s; keep one",
                        owner);
    if (!limit && !tier)
        weir__yaml_fail(reader->yaml, map,
                        "%s has no limit; add limit: token-bucket 100/s, or tier: NAME", owner);
    if (reader->yaml->code)
        return NULL;
    return limit ? limit_parse(reader, limit) : limit_find_tier(reader, tier);
}

void weir__read_tiers(struct weir__reader *reader, const struct weir__yaml_node *map)
{
    struct weir__policies *set = reader->set;
    if (!map)
        return;
    if (map->type != WEIR__YAML_MAP)
        weir__yaml_fail(reader->yaml, map,
                        "tiers is a map of names to limits, like {gold: token-bucket 1k/s}");
    size_t count = weir__yaml_count(map);
    if (count > TIERS_MAX)
        weir__yaml_fail(reader->yaml, map, "more than %d tiers", TIERS_MAX);
    set->tiers = weir__yaml_new(reader->yaml, count, sizeof(struct weir__tier));
    for (const struct weir__yaml_node *key = map->child; key && !reader->yaml->code;
         key = key->next) {
        struct weir__tier *tier = &set->tiers[set->tier_count++];
        tier->name = weir__read_name(reader, key, "a tier's name");
        tier->limit = limit_parse(reader, key->value);
    }
}

/* ---- costs ---- */

static int cost_read_attribute(struct weir__reader *reader, const struct weir__yaml_node *node,
                               bool has_default)
{
    struct weir__span text = weir__yaml_text(reader->yaml, node, "cost");
    int found = weir__read_attribute(reader, node, text);
    if (found < 0)
        return found;
    struct weir__attribute *attribute = &reader->set->attributes.items[found];
    if (attribute->spelling == WEIR__AS_ADDRESS)
        weir__yaml_refuse(reader->yaml, node, "an address is not a cost");
    attribute->counted = true;
    attribute->needed |= !has_default;
    return found;
}

/* {of: ATTRIBUTE, default: 1, min: 1, max: 1000}; none of the numbers is below `from`. */
static void cost_read_map(struct weir__reader *reader, const struct weir__yaml_node *map,
                          int64_t from, struct weir__cost *cost)
{
    static const char *const allowed[] = {"of", "default", "min", "max", NULL};
    struct weir__yaml *yaml = reader->yaml;
    const struct weir__yaml_node *of = weir__yaml_get(map, "of");
    if (!weir__yaml_only(yaml, map, allowed))
        return;
    if (of)
        cost->attribute = cost_read_attribute(reader, of, weir__yaml_get(map, "default"));
    else
        weir__yaml_fail(yaml, map,
                        "a cost's map needs of: ATTRIBUTE, like {of: header.x-cost, max: 100}");
    cost->otherwise = weir__yaml_get_number(yaml, map, "default", from, WEIR_COST_MAX, 1);
    cost->least = weir__yaml_get_number(yaml, map, "min", from, WEIR_COST_MAX, 1);
    cost->most = weir__yaml_get_number(yaml, map, "max", cost->least, WEIR_COST_MAX, WEIR_COST_MAX);
}

/* A map's `name`, in one of the forms of a cost. False: it has none. */
static bool cost_read(struct weir__reader *reader, const struct weir__yaml_node *map,
                      const char *name, int64_t from, struct weir__cost *ret)
{
    struct weir__cost cost = {.attribute = -1, .otherwise = 1, .least = 1, .most = WEIR_COST_MAX};
    const struct weir__yaml_node *node = weir__yaml_get(map, name);
    if (!node)
        return false;
    bool scalar = node->type == WEIR__YAML_SCALAR;
    if (node->type == WEIR__YAML_MAP)
        cost_read_map(reader, node, from, &cost);
    else if (scalar && (node->text[0] == '-' || (node->text[0] >= '0' && node->text[0] <= '9')))
        cost.otherwise = weir__yaml_get_number(reader->yaml, map, name, from, WEIR_COST_MAX, 1);
    else
        cost.attribute = cost_read_attribute(reader, node, false);
    *ret = cost;
    return true;
}

void weir__read_cost(struct weir__reader *reader, const struct weir__yaml_node *map,
                     struct weir__cost *ret)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, "cost");
    if (!cost_read(reader, map, "cost", 0, ret))
        return;
    if (ret->least == 0)
        weir__reader_warn(reader, node,
                          "a request that says 0 here is charged nothing, and never denied; leave "
                          "min out, or make it 1");
    else if (ret->otherwise == 0)
        weir__reader_warn(reader, node,
                          "a cost of 0 charges nothing: the limit never fills, and denies nobody");
}

void weir__read_least(struct weir__reader *reader, const struct weir__yaml_node *map,
                      struct weir__cost *ret)
{
    cost_read(reader, map, "least", 1, ret);
}
