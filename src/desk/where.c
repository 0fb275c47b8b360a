/*
 * Conditions on lines: NAME=VALUE, NAME!=VALUE, several values with '|' between them (of a status
 * also ','), `*` anywhere in a value, networks for addresses, 4xx for status. They become the
 * conditions of policies.
 */
#include "desk/select.h"

#include <stdio.h>
#include <string.h>

#define VALUES_MAX 256

/* Values that are still to be read. */
struct where_values {
    struct weir__span rest; /* data NULL: none */
    bool commas;            /* separate them, too */
};

static bool where_next(struct where_values *values, struct weir__span *ret)
{
    const struct weir__span rest = values->rest;
    size_t len = 0;
    if (!rest.data)
        return false;
    while (len < rest.len && rest.data[len] != '|' && !(values->commas && rest.data[len] == ','))
        len++;
    *ret = (struct weir__span){rest.data, len};
    values->rest = len < rest.len ? (struct weir__span){rest.data + len + 1, rest.len - len - 1}
                                  : (struct weir__span){NULL, 0};
    return true;
}

/* "4xx" is "4*". */
static struct weir__span where_of_status(struct weir__arena *arena, struct weir__span value)
{
    size_t digits = 0;
    while (digits < value.len && value.data[digits] >= '0' && value.data[digits] <= '9')
        digits++;
    size_t x = digits;
    while (x < value.len && (value.data[x] | 0x20) == 'x')
        x++;
    if (value.len != 3 || x != 3 || digits == 3 || digits == 0)
        return value;
    char *room = weir__arena_new(arena, digits + 2, 1);
    if (!room)
        return value;
    memcpy(room, value.data, digits);
    room[digits] = '*';
    return (struct weir__span){room, digits + 1};
}

/* A value in the spelling that lines are compared in. NULL, or what is wrong. */
static const char *where_read_pattern(struct desk_selection *selection, int attribute,
                                      struct weir__span value, struct weir__pattern *ret)
{
    const struct weir__attribute *it = &selection->attributes.items[attribute];
    struct weir__span right = {"", 0};
    char *room = weir__arena_new(&selection->arena, value.len + 2, 1);
    if (!room)
        return "out of memory";
    const char *wrong = NULL;
    if (it->spelling == WEIR__AS_PATH)
        wrong = weir__normal_path_pattern(value, false, room, &right);
    else if (it->spelling == WEIR__AS_HOST)
        wrong = weir__normal_host_pattern(value, room, &right);
    if (wrong && right.len > 0) {
        snprintf(selection->said, sizeof selection->said, "%s; write %.*s", wrong, (int)right.len,
                 right.data);
        return selection->said;
    }
    if (wrong)
        return wrong;
    if (it->lower || it->spelling == WEIR__AS_HOST)
        weir__normal_lower(value, room, value.len, &value);
    if (selection->sources[attribute].slot == DESK_STATUS)
        value = where_of_status(&selection->arena, value);
    wrong = weir__pattern_read(&selection->arena, value.data, value.len, true, ret);
    return wrong && !*wrong ? "out of memory" : wrong;
}

static const char *where_read_patterns(struct desk_selection *selection, struct where_values values,
                                       size_t count, struct weir__condition *ret)
{
    struct weir__pattern *all =
        weir__arena_new(&selection->arena, 3 * count, sizeof(struct weir__pattern));
    if (!all)
        return "out of memory";
    struct weir__span value;
    for (size_t i = 0; i < count && where_next(&values, &value); i++) {
        const char *wrong = where_read_pattern(selection, ret->attribute, value, &all[i]);
        if (wrong)
            return wrong;
    }
    weir__condition_set_patterns(ret, all, count);
    return NULL;
}

/* A comma is in no method and in no address: it was meant to separate two. */
static const char *where_hint_comma(struct desk_selection *selection, struct weir__span value,
                                    const char *wrong)
{
    const char *comma = memchr(value.data, ',', value.len);
    if (!comma)
        return wrong;
    snprintf(selection->said, sizeof selection->said, "between values write |, like %.*s|%.*s",
             (int)weir__min(comma - value.data, 40), value.data,
             (int)weir__min(value.len - (size_t)(comma - value.data) - 1, 40), comma + 1);
    return selection->said;
}

static const char *where_read_networks(struct desk_selection *selection, struct where_values values,
                                       size_t count, struct weir__condition *ret)
{
    struct weir__network *networks =
        weir__arena_new(&selection->arena, count, sizeof(struct weir__network));
    struct weir__span value;
    if (!networks)
        return "out of memory";
    for (size_t i = 0; i < count && where_next(&values, &value); i++) {
        const char *wrong = weir__network_read(value.data, value.len, &networks[i]);
        if (wrong)
            return where_hint_comma(selection, value, wrong);
    }
    ret->networks = networks;
    ret->network_count = count;
    return NULL;
}

static const char *where_read_values(struct desk_selection *selection, struct weir__span values,
                                     struct weir__condition *ret)
{
    const uint8_t slot = selection->sources[ret->attribute].slot;
    const struct where_values all = {values, slot == DESK_STATUS};
    struct where_values rest = all;
    struct weir__span value;
    size_t count = 0;
    while (where_next(&rest, &value)) {
        if (value.len == 0)
            return "a value is empty; for a field that is absent write NAME!=*";
        const char *wrong = slot == DESK_METHOD ? where_hint_comma(selection, value, NULL) : NULL;
        if (wrong)
            return wrong;
        count++;
    }
    if (count > VALUES_MAX)
        return "more than 256 values";
    bool addresses = selection->attributes.items[ret->attribute].spelling == WEIR__AS_ADDRESS;
    if (addresses && weir__span_is(values, "*")) {
        ret->any = true;
        return NULL;
    }
    return addresses ? where_read_networks(selection, all, count, ret)
                     : where_read_patterns(selection, all, count, ret);
}

const char *desk_where_read(struct desk_selection *selection, bool wide, const char *text)
{
    struct weir__conditions *to = wide ? &selection->wide : &selection->conditions;
    struct weir__condition *items = wide ? selection->wide_items : selection->items;
    const char *equals = strchr(text, '='), *wrong = NULL;
    if (!equals || equals == text)
        return "expected NAME=VALUE or NAME!=VALUE, like status=4xx";
    if (to->count == WEIR__CONDITIONS_MAX)
        return "more than 16 conditions";
    bool negated = equals[-1] == '!';
    struct weir__condition *condition = &items[to->count];
    *condition = (struct weir__condition){.negated = negated};
    struct weir__span name = {text, (size_t)(equals - text) - negated};
    condition->attribute = desk_selection_attribute(selection, name, &wrong);
    if (condition->attribute < 0)
        return wrong;
    struct weir__span values = weir__span_of(equals + 1);
    to->items = items;
    to->count++;
    return where_read_values(selection, values, condition);
}
