/* What is asked for, applied to lines: see select.h. */
#include "desk/select.h"

#include "base/hash.h"
#include "wire/http1.h"
#include "wire/sha.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the values ---- */

struct select_context {
    const struct desk_selection *selection;
    const struct desk_format *format;
    const struct desk_fields *fields;
    struct desk_room *room;
};

/* The value of an argument of the query. */
static bool select_argument(struct weir__span query_text, struct weir__span argument,
                            struct desk_room *room, struct weir__span *ret)
{
    struct weir__query query = {query_text, false};
    struct weir__span name, value;
    if (query_text.len > sizeof room->scratch - room->used)
        return false;
    char *to = room->scratch + room->used;
    while (weir__query_next(&query, to, &name, &value)) {
        if (name.len == argument.len && !memcmp(name.data, argument.data, name.len)) {
            room->used += name.len + value.len;
            *ret = value;
            return true;
        }
    }
    return false;
}

/* Names reach this as the attributes have them: the same pointer is the same name. */
static enum weir__found select_find(const void *context, const char *name, size_t len,
                                    struct weir__span *ret)
{
    const struct select_context *it = context;
    const struct weir__attributes *attributes = &it->selection->attributes;
    size_t i = 0;
    (void)len;
    while (i < attributes->count && attributes->items[i].name != name)
        i++;
    assert(i < attributes->count);
    const struct desk_source_of *source = &it->selection->sources[i];
    if (!desk_value(it->format, it->fields, source->slot, it->room, ret))
        return WEIR__ABSENT;
    if (source->from == DESK_FROM_ARGUMENT &&
        !select_argument(*ret, source->argument, it->room, ret))
        return WEIR__ABSENT;
    if (attributes->items[i].spelling == WEIR__AS_ADDRESS)
        *ret = desk_last_address(*ret);
    return WEIR__FOUND;
}

/* ---- the key ---- */

/* Whether a path is like a template: a part in braces is any text without a slash, but not none. */
static bool select_is_like(struct weir__span path, struct weir__span template)
{
    size_t p = 0;
    for (size_t t = 0; t < template.len; t++) {
        if (template.data[t] != '{') {
            if (p == path.len || path.data[p++] != template.data[t])
                return false;
            continue;
        }
        const char *close = memchr(template.data + t, '}', template.len - t);
        if (!close)
            return false;
        t = (size_t)(close - template.data);
        size_t from = p;
        while (p < path.len && path.data[p] != '/')
            p++;
        if (p == from)
            return false;
    }
    return p == path.len;
}

static struct weir__span select_template_of(const struct desk_selection *selection,
                                            struct weir__span path)
{
    for (size_t i = 0; i < selection->template_count; i++) {
        if (select_is_like(path, selection->templates[i]))
            return selection->templates[i];
    }
    return path;
}

/* The value of a part; what is rewritten goes to room. False: there is none. */
static bool select_part(const struct desk_selection *selection, const struct desk_key_part *it,
                        const struct desk_fields *fields, struct weir__view *view, char room[64],
                        struct weir__span *ret)
{
    if (it->part.attribute < 0) {
        *ret = it->constant;
        return true;
    }
    if (!weir__view_has(view, it->part.attribute) || view->values[it->part.attribute].len == 0)
        return false;
    const struct weir__attribute *attribute = &selection->attributes.items[it->part.attribute];
    *ret = view->values[it->part.attribute];
    if (attribute->spelling == WEIR__AS_ADDRESS) {
        struct weir__address address = weir__view_address(view, it->part.attribute);
        struct weir__span said = fields->at[DESK_IP];
        bool as_said = it->part.attribute == selection->ip && address.family == 4 &&
                       it->part.bits4 == 32 && said.len <= 15 && !memchr(said.data, ':', said.len);
        if (as_said && !memchr(said.data, ',', said.len)) {
            *ret = said; /* an address of IPv4 has one spelling */
        } else {
            struct weir__buffer buffer = weir__buffer_over(room, 64);
            weir__put_masked(&buffer, address, it->part.bits4, it->part.bits6);
            *ret = (struct weir__span){room, buffer.len};
        }
    } else if (attribute->spelling == WEIR__AS_PATH && selection->template_count > 0) {
        *ret = select_template_of(selection, *ret);
    }
    if (it->part.hashed) {
        uint64_t hash[2];
        weir__hash(selection->secret, ret->data, ret->len, hash);
        snprintf(room, 64, "%016" PRIx64, hash[0]);
        *ret = (struct weir__span){room, 16};
    }
    return true;
}

/* Longer keys become their beginning and a hash, so that what follows has a bound. */
static struct weir__span select_shortened(struct weir__span value, char *room)
{
    char hex[WEIR__SHA1_HEX_SIZE];
    size_t len = DESK_KEY_SHOWN - WEIR__SHA1_HEX_SIZE;
    if (value.len <= DESK_KEY_SHOWN)
        return value;
    weir__sha1_hex(value.data, value.len, hex);
    memmove(room, value.data, len);
    room[len] = '~';
    memcpy(room + len + 1, hex, WEIR__SHA1_HEX_SIZE - 1);
    return (struct weir__span){room, len + WEIR__SHA1_HEX_SIZE};
}

/* False: a part has no value. One part is as it is; of several, what separates them is escaped. */
static bool select_key(const struct desk_selection *selection, const struct select_context *context,
                       struct weir__view *view, struct weir__span *ret)
{
    struct desk_room *room = context->room;
    char part_room[64];
    if (selection->part_count == 0) {
        bool logged = desk_fields_has(context->fields, DESK_KEY);
        struct desk_key_part part = {.part = {.attribute = logged ? selection->key : selection->ip,
                                              .bits4 = WEIR__IP_BITS4,
                                              .bits6 = WEIR__IP_BITS6}};
        return select_part(selection, &part, context->fields, view, room->key, ret);
    }
    if (selection->part_count == 1) {
        if (!select_part(selection, &selection->parts[0], context->fields, view, room->key, ret))
            return false;
        *ret = select_shortened(*ret, room->key);
        return true;
    }
    struct weir__buffer buffer = weir__buffer_over(room->key, sizeof room->key);
    for (size_t i = 0; i < selection->part_count; i++) {
        struct weir__span value;
        char short_room[DESK_KEY_SHOWN + 1];
        if (!select_part(selection, &selection->parts[i], context->fields, view, part_room, &value))
            return false;
        if (i > 0)
            weir__put(&buffer, ",", 1);
        weir__put_escaped(&buffer, select_shortened(value, short_room), WEIR__IN_POLICY_KEY);
    }
    *ret = (struct weir__span){room->key, buffer.len};
    return true;
}

/* ---- the cost ---- */

/* Rounded up. False: there is none, or it is out of range. */
static bool select_cost(const struct desk_selection *selection,
                        const struct select_context *context, int64_t *ret)
{
    const struct desk_format *format = context->format;
    uint8_t slot = selection->costs ? selection->cost_slot : DESK_COST;
    struct weir__span text;
    int64_t number;
    bool there = desk_value(format, context->fields, slot, context->room, &text);
    if (!selection->costs && !there && !desk_fields_has(context->fields, DESK_COST)) {
        *ret = 1;
        return true;
    }
    if (!there && slot == DESK_BYTES && desk_fields_has(context->fields, DESK_BYTES)) {
        *ret = 0; /* "-": nothing was sent */
        return true;
    }
    if (!there)
        return false;
    if (slot == DESK_DURATION) {
        if (text.len > 0 && text.data[0] == '+') /* HAProxy: logged before the end */
            text.data++, text.len--;
        if (!desk_nanoseconds(text, format->duration_ns, &number))
            return false;
    } else if (!weir__span_whole(text, 0, INT64_MAX, &number)) {
        return false;
    }
    *ret = selection->costs ? weir__div_up(number, selection->cost_unit) : number;
    return *ret <= WEIR_COST_MAX;
}

/* ---- what is carried ---- */

/* Each value as its length and its bytes; 0xffffffff: there is none. */
static bool select_carry(const struct desk_selection *selection,
                         const struct select_context *context, struct weir__view *view,
                         struct desk_arrival *ret)
{
    struct desk_room *room = context->room;
    size_t used = 0;
    for (size_t i = 0; i < selection->carried_count; i++) {
        const struct weir__attribute *attribute =
            &selection->attributes.items[selection->carried[i]];
        struct weir__span value = {"", 0};
        char part_room[64];
        const struct desk_key_part part = {.part = {.attribute = selection->carried[i],
                                                    .bits4 = WEIR__IP_BITS4,
                                                    .bits6 = WEIR__IP_BITS6}};
        bool there =
            selection->carried_as_keys
                ? select_part(selection, &part, context->fields, view, part_room, &value)
                : select_find(context, attribute->name, attribute->name_len, &value) == WEIR__FOUND;
        uint32_t len = there ? (uint32_t)value.len : UINT32_MAX;
        if (value.len + sizeof len > sizeof room->carried - used)
            return false;
        memcpy(room->carried + used, &len, sizeof len);
        if (there && value.data)
            memcpy(room->carried + used + sizeof len, value.data, value.len);
        used += sizeof len + (there ? value.len : 0);
    }
    ret->carried = room->carried;
    ret->carried_len = (uint32_t)used;
    return true;
}

bool desk_arrival_value(const struct desk_arrival *arrival, size_t i, struct weir__span *ret)
{
    const char *at = arrival->carried;
    for (;; i--) {
        uint32_t len;
        assert(at + sizeof len <= arrival->carried + arrival->carried_len);
        memcpy(&len, at, sizeof len);
        at += sizeof len;
        if (i == 0 && len == UINT32_MAX)
            return false;
        if (i == 0) {
            *ret = (struct weir__span){at, len};
            return true;
        }
        at += len == UINT32_MAX ? 0 : len;
    }
}

/* ---- all of it ---- */

static enum desk_selected select_refused(const struct desk_selection *selection,
                                         const struct weir__view *view,
                                         enum desk_reason *ret_reason, char why[96])
{
    *ret_reason = DESK_REASON_VALUE;
    snprintf(why, 96, "%.40s %.40s", selection->attributes.items[view->wrong].text, view->why);
    return DESK_REFUSED;
}

enum desk_selected desk_select(const struct desk_selection *selection,
                               const struct desk_format *format, const struct desk_fields *fields,
                               struct desk_room *room, struct desk_hints *hints,
                               struct desk_arrival *ret, enum desk_reason *ret_reason, char why[96])
{
    struct select_context context = {selection, format, fields, room};
    struct weir__subject subject = {select_find, &context};
    struct weir__view *view = &room->view;
    room->used = 0;
    weir__view_begin(view, &selection->attributes, &subject);
    bool wanted = weir__conditions_hold(&selection->conditions, view);
    if (view->wrong >= 0)
        return select_refused(selection, view, ret_reason, why);
    if (!wanted && hints)
        desk_hints_note(hints, selection, view);
    if (!wanted) {
        bool wide = selection->wide.count > 0 && weir__conditions_hold(&selection->wide, view);
        return wide ? DESK_WIDE : DESK_FILTERED;
    }
    bool keyed = select_key(selection, &context, view, &ret->key);
    if (view->wrong >= 0)
        return select_refused(selection, view, ret_reason, why);
    if (!keyed || ret->key.len == 0)
        return DESK_KEYLESS;
    if (!select_cost(selection, &context, &ret->cost)) {
        *ret_reason = DESK_REASON_COST;
        snprintf(why, 96, "%.40s is not a whole number from 0 to 10^12",
                 selection->costs ? "the cost" : "cost");
        return DESK_REFUSED;
    }
    ret->carried_len = 0;
    if (selection->carried_count > 0 && !select_carry(selection, &context, view, ret)) {
        *ret_reason = DESK_REASON_VALUE;
        snprintf(why, 96, "its values are too long");
        return DESK_REFUSED;
    }
    if (view->wrong >= 0)
        return select_refused(selection, view, ret_reason, why);
    weir__hash(selection->secret, ret->key.data, ret->key.len, ret->hash);
    return DESK_TAKEN;
}
