/*
 * What a policy file says of shares: which requests may use how much of a limit. Each share of each
 * limit becomes a limit of its own here, once; a request only chooses one.
 */
#include "policy/read/reader.h"

#include <assert.h>

#define EXAMPLE "{by: header.x-class, critical: 100%%, batch: 50%%, default: 80%%}"

/* ---- reading ---- */

static bool share_is_class(const struct weir__yaml_node *key)
{
    return strcmp(key->text, "by") && strcmp(key->text, "default");
}

static int share_read_attribute(struct weir__reader *reader, const struct weir__yaml_node *map)
{
    const struct weir__yaml_node *by = weir__yaml_get(map, "by");
    if (!by)
        weir__yaml_fail(reader->yaml, map,
                        "a share needs by: ATTRIBUTE, what tells its classes apart, like " EXAMPLE);
    return weir__read_attribute(reader, by, weir__yaml_text(reader->yaml, by, "by"));
}

static uint32_t share_read_part(struct weir__reader *reader, const struct weir__yaml_node *key)
{
    uint32_t millionths = 1;
    struct weir__span text = weir__yaml_text(reader->yaml, key->value, key->text);
    const char *wrong = reader->yaml->code ? NULL : weir__share_read(text, &millionths);
    if (wrong)
        weir__yaml_refuse(reader->yaml, key->value, wrong);
    return millionths;
}

/* A class whose every request belongs to one before it is a mistake. */
static void share_check_reached(struct weir__reader *reader, const struct weir__yaml_node *key,
                                const struct weir__share *items, size_t last)
{
    const struct weir__condition *it = items[last].when.items;
    for (size_t i = 0; i < last && it && it->exact_count > 0; i++) {
        const struct weir__condition *before = items[i].when.items;
        if (before->any || weir__pattern_has(&before->patterns[0], it->patterns[0].head))
            weir__yaml_fail(reader->yaml, key,
                            "\"%s\" never applies: \"%s\" stands before it and has these requests",
                            weir__yaml_quote(key->text, key->len).text, items[i].name);
    }
}

static void share_read_classes(struct weir__reader *reader, const struct weir__yaml_node *map,
                               struct weir__share *items, int attribute)
{
    size_t i = 0;
    for (const struct weir__yaml_node *key = map->child; key && !reader->yaml->code;
         key = key->next) {
        if (!share_is_class(key))
            continue;
        items[i].name = weir__yaml_copy(reader->yaml, key->text, key->len);
        items[i].millionths = share_read_part(reader, key);
        weir__read_class(reader, attribute, key, &items[i].when);
        if (!reader->yaml->code)
            share_check_reached(reader, key, items, i);
        i++;
    }
}

static void share_read_default(struct weir__reader *reader, const struct weir__yaml_node *map,
                               struct weir__share *ret)
{
    ret->name = "default";
    for (const struct weir__yaml_node *key = map->child; key; key = key->next) {
        if (!strcmp(key->text, "default"))
            ret->millionths = share_read_part(reader, key);
    }
    if (ret->millionths == 0)
        weir__yaml_fail(reader->yaml, map,
                        "a share needs default: PERCENT, for requests of no class; a client may "
                        "leave the attribute out, so the smallest share is safe");
}

void weir__read_share(struct weir__reader *reader, const struct weir__yaml_node *map,
                      const struct weir__shares **ret)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, "share");
    size_t classes = 0;
    if (!node || reader->yaml->code)
        return;
    if (node->type != WEIR__YAML_MAP) {
        weir__yaml_fail(reader->yaml, node, "share is a map of classes, like " EXAMPLE);
        return;
    }
    for (const struct weir__yaml_node *key = node->child; key; key = key->next)
        classes += share_is_class(key);
    int attribute = share_read_attribute(reader, node);
    if (classes == 0)
        weir__yaml_fail(reader->yaml, node, "a share needs a class besides default, like " EXAMPLE);
    if (classes > WEIR__SHARES_MAX)
        weir__yaml_fail(reader->yaml, node, "more than %d classes in one share", WEIR__SHARES_MAX);
    struct weir__shares *shares = weir__yaml_new(reader->yaml, 1, sizeof *shares);
    struct weir__share *items =
        weir__yaml_new(reader->yaml, classes + 1, sizeof(struct weir__share));
    if (!shares || !items)
        return;
    share_read_classes(reader, node, items, attribute);
    if (!reader->yaml->code)
        share_read_default(reader, node, &items[classes]);
    *shares = (struct weir__shares){attribute, items, classes + 1};
    *ret = shares;
}

/* ---- limits ---- */

/* Where a map says its limit. */
static const struct weir__yaml_node *share_limit_node(const struct weir__yaml_node *map)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, "limit");
    return node ? node : weir__yaml_get(map, "tier");
}

static void share_check_limit(struct weir__reader *reader, const struct weir__yaml_node *map,
                              const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        if (!weir__rule_has_size(&limit->rules[i]))
            weir__yaml_fail(reader->yaml, share_limit_node(map),
                            "\"%s\" cannot be shared: smooth and warmup have no size. Use another "
                            "limit, or no share here",
                            weir__rule_text(&limit->rules[i]).text);
    }
}

/* The one that the set has for an equal share, or a new one. */
static const weir_limit *share_reduce(struct weir__reader *reader,
                                      const struct weir__yaml_node *map, const weir_limit *limit,
                                      const struct weir__shares *shares, size_t i,
                                      const weir_limit *const *before)
{
    uint32_t millionths = shares->items[i].millionths;
    weir_limit *reduced;
    if (millionths == WEIR__SHARE_WHOLE)
        return limit;
    for (size_t j = 0; j < i; j++) {
        if (shares->items[j].millionths == millionths)
            return before[j];
    }
    weir_error err = {0};
    int code = weir__limit_reduce(limit, millionths, &reduced, &err);
    if (code == WEIR_EINVAL)
        weir__yaml_fail(reader->yaml, share_limit_node(map), "%s", err.message);
    else if (code)
        weir__yaml_no_memory(reader->yaml);
    return code == 0 && weir__reader_keep(reader, reduced) ? reduced : NULL;
}

const weir_limit *const *weir__reduce_limit(struct weir__reader *reader,
                                            const struct weir__yaml_node *map,
                                            const weir_limit *limit,
                                            const struct weir__shares *shares)
{
    if (!limit || !shares)
        return NULL;
    share_check_limit(reader, map, limit);
    const weir_limit **all = weir__yaml_new(reader->yaml, shares->count, sizeof(weir_limit *));
    for (size_t i = 0; i < shares->count && !reader->yaml->code; i++)
        all[i] = share_reduce(reader, map, limit, shares, i, all);
    return all;
}
