/* Limits of a policy file: their text, tiers, costs. */
#include "policy/read/reader.h"

#include <stdlib.h>
#include <string.h>

#define TIERS_MAX 1000

/* ---- limits ---- */

/* Keeps a limit with the set, which frees it. */
static int limit_own(struct weir__reader *reader, weir_limit *limit)
{
    struct weir__policies *set = reader->set;
    if (set->limit_count == set->limit_room) {
        size_t room = set->limit_room ? 2 * set->limit_room : 16;
        weir_limit **limits = reallocarray(set->limits, room, sizeof(weir_limit *));
        if (!limits)
            return weir__reader_no_memory(reader);
        set->limits = limits;
        set->limit_room = room;
    }
    set->limits[set->limit_count++] = limit;
    return 0;
}

/* The library's message without its "column 14: ": the place stands before it already. */
static const char *limit_behind_column(const char *message)
{
    if (strncmp(message, "column ", 7))
        return message;
    const char *at = message + 7 + strspn(message + 7, "0123456789");
    return strncmp(at, ": ", 2) ? message : at + 2;
}

static int limit_parse(struct weir__reader *reader, const struct weir__yaml_node *node,
                       const weir_limit **ret)
{
    struct weir__span text = {"", 0};
    weir_limit *limit = NULL;
    weir_error err = {0};
    int code = weir__read_text(reader, node, "limit", &text);
    if (code)
        return code;
    code = weir_limit_parse(text.data, &limit, &err);
    if (code == WEIR_ENOMEM)
        return weir__reader_no_memory(reader);
    if (code)
        return weir__yaml_fail_within(reader->yaml, node, (size_t)weir__max(0, err.column - 1),
                                      reader->err, "%s", limit_behind_column(err.message));
    code = limit_own(reader, limit);
    if (code)
        weir_limit_free(limit);
    else
        *ret = limit;
    return code;
}

static int limit_find_tier(struct weir__reader *reader, const struct weir__yaml_node *node,
                           const weir_limit **ret)
{
    const struct weir__policies *set = reader->set;
    struct weir__span text = {"", 0};
    int code = weir__read_text(reader, node, "tier", &text);
    for (size_t i = 0; i < set->tier_count && code == 0; i++) {
        if (!strcmp(set->tiers[i].name, text.data)) {
            *ret = set->tiers[i].limit;
            return 0;
        }
    }
    return code ? code
                : weir__yaml_fail(reader->yaml, node, reader->err,
                                  "unknown tier \"%s\": define it under tiers: at the top",
                                  weir__yaml_quote(text.data, text.len).text);
}

int weir__read_limit(struct weir__reader *reader, const struct weir__yaml_node *map,
                     const char *owner, const weir_limit **ret)
{
    const struct weir__yaml_node *limit = weir__yaml_get(map, "limit");
    const struct weir__yaml_node *tier = weir__yaml_get(map, "tier");
    if (limit && tier)
        return weir__yaml_fail(reader->yaml, tier, reader->err,
                               "limit and tier both set the limit of %s; keep one", owner);
    if (!limit && !tier)
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "%s has no limit; add limit: token-bucket 100/s, or tier: NAME",
                               owner);
    return limit ? limit_parse(reader, limit, ret) : limit_find_tier(reader, tier, ret);
}

int weir__read_tiers(struct weir__reader *reader, const struct weir__yaml_node *map)
{
    struct weir__policies *set = reader->set;
    if (!map)
        return 0;
    if (map->type != WEIR__YAML_MAP)
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "tiers is a map of names to limits, like {gold: token-bucket 1k/s}");
    size_t count = weir__map_count(map);
    if (count > TIERS_MAX)
        return weir__yaml_fail(reader->yaml, map, reader->err, "more than %d tiers", TIERS_MAX);
    set->tiers = weir__arena_new(&set->arena, count, sizeof(struct weir__tier));
    if (!set->tiers)
        return weir__reader_no_memory(reader);
    for (const struct weir__yaml_node *key = map->child; key; key = key->next) {
        struct weir__tier *tier = &set->tiers[set->tier_count];
        int code = weir__read_name(reader, key, "a tier's name", &tier->name);
        if (code == 0)
            code = limit_parse(reader, key->value, &tier->limit);
        if (code)
            return code;
        set->tier_count++;
    }
    return 0;
}

/* ---- costs ---- */

static bool limit_is_number(const struct weir__yaml_node *node)
{
    return node->text[0] == '-' || (node->text[0] >= '0' && node->text[0] <= '9');
}

static int limit_read_attribute(struct weir__reader *reader, const struct weir__yaml_node *node,
                                int *ret)
{
    const char *wrong = NULL;
    struct weir__span text = {"", 0};
    int code = weir__read_text(reader, node, "cost", &text);
    if (code)
        return code;
    struct weir__policies *set = reader->set;
    int found = weir__attribute_read(&set->attributes, &set->arena, text.data, text.len, &wrong);
    if (found < 0)
        return weir__reader_fail(reader, node, wrong);
    if (set->attributes.items[found].spelling == WEIR__AS_ADDRESS)
        return weir__reader_fail(reader, node, "an address is not a cost");
    *ret = found;
    return 0;
}

/* {of: ATTRIBUTE, default: 1, min: 1, max: 1000} */
static int limit_read_cost_map(struct weir__reader *reader, const struct weir__yaml_node *map,
                               struct weir__cost *ret)
{
    static const char *const allowed[] = {"of", "default", "min", "max", NULL};
    const struct weir__yaml_node *of = weir__yaml_get(map, "of");
    int code = weir__yaml_only(reader->yaml, map, allowed, reader->err);
    if (code == 0 && !of)
        code =
            weir__yaml_fail(reader->yaml, map, reader->err,
                            "a cost's map needs of: ATTRIBUTE, like {of: header.x-cost, max: 100}");
    if (code == 0)
        code = limit_read_attribute(reader, of, &ret->attribute);
    if (code == 0)
        code = weir__read_number(reader, weir__yaml_get(map, "default"), "default", 0,
                                 WEIR_COST_MAX, &ret->otherwise);
    if (code == 0)
        code = weir__read_number(reader, weir__yaml_get(map, "min"), "min", 0, WEIR_COST_MAX,
                                 &ret->least);
    if (code == 0)
        code = weir__read_number(reader, weir__yaml_get(map, "max"), "max", ret->least,
                                 WEIR_COST_MAX, &ret->most);
    return code;
}

int weir__read_cost(struct weir__reader *reader, const struct weir__yaml_node *node,
                    struct weir__cost *ret)
{
    struct weir__cost cost = {.attribute = -1, .otherwise = 1, .least = 1, .most = WEIR_COST_MAX};
    int code = 0;
    if (!node)
        return 0;
    if (node->type == WEIR__YAML_MAP)
        code = limit_read_cost_map(reader, node, &cost);
    else if (node->type == WEIR__YAML_SCALAR && limit_is_number(node))
        code = weir__read_number(reader, node, "cost", 0, WEIR_COST_MAX, &cost.otherwise);
    else
        code = limit_read_attribute(reader, node, &cost.attribute);
    if (code == 0 && (cost.otherwise == 0 || cost.least == 0))
        code = weir__reader_warn(reader, node,
                                 cost.least == 0
                                     ? "a request that says 0 here is charged nothing, and never "
                                       "denied; leave min out, or make it 1"
                                     : "a cost of 0 charges nothing: the limit never fills, and "
                                       "denies nobody");
    if (code == 0)
        *ret = cost;
    return code;
}
