/* See select.h. First what is asked for is read, then it is applied to lines. */
#include "desk/select.h"

#include "base/duration.h"
#include "base/hash.h"
#include "wire/http1.h"
#include "wire/sha.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- attributes ---- */

int desk_selection_attribute(struct desk_selection *selection, struct weir__span text,
                             const char **ret_wrong)
{
    int i = weir__attribute_read(&selection->attributes, &selection->arena, text.data, text.len,
                                 ret_wrong);
    if (i < 0) {
        *ret_wrong = **ret_wrong ? *ret_wrong : "out of memory";
        return -1;
    }
    const struct weir__attribute *attribute = &selection->attributes.items[i];
    struct weir__span name = {attribute->name, attribute->name_len};
    struct desk_source_of *source = &selection->sources[i];
    if (name.len > 6 && !memcmp(name.data, "query.", 6)) {
        source->from = DESK_FROM_ARGUMENT;
        source->slot = DESK_QUERY;
        source->argument = (struct weir__span){name.data + 6, name.len - 6};
        return i;
    }
    source->from = DESK_FROM_SLOT;
    source->slot = desk_wanted_slot(&selection->wanted, name);
    if (source->slot != DESK_NO_SLOT)
        return i;
    *ret_wrong = "too many different fields";
    return -1;
}

/* ---- the key ---- */

/* "24" or "24/48" behind the slash of an address. */
static bool select_read_bits(struct weir__span text, struct weir__key_part *ret)
{
    const char *slash = memchr(text.data, '/', text.len);
    size_t first = slash ? (size_t)(slash - text.data) : text.len;
    int64_t bits4, bits6 = WEIR__IP_BITS6;
    if (!weir__span_whole((struct weir__span){text.data, first}, 1, 128, &bits4))
        return false;
    if (slash &&
        !weir__span_whole((struct weir__span){slash + 1, text.len - first - 1}, 1, 128, &bits6))
        return false;
    if (!slash && bits4 > 32) { /* ip/56 can only be meant for IPv6 */
        bits6 = bits4;
        bits4 = WEIR__IP_BITS4;
    }
    ret->bits4 = (uint8_t)bits4;
    ret->bits6 = (uint8_t)bits6;
    return bits4 <= 32;
}

static const char *select_add_template(struct desk_selection *selection, struct weir__span text)
{
    if (selection->template_count == DESK_TEMPLATES_MAX)
        return "more than 64 templates";
    if (text.len == 0 || text.data[0] != '/')
        return "a template is a path, like /users/{id}";
    if (!memchr(text.data, '{', text.len))
        return "a template has a part in braces, like /users/{id}";
    selection->templates[selection->template_count++] = text;
    return NULL;
}

static const char *select_read_part(struct desk_selection *selection, struct weir__span text,
                                    struct desk_key_part *ret)
{
    const char *wrong = NULL;
    *ret = (struct desk_key_part){.part = {.attribute = -1}};
    if (text.len > 2 && text.data[0] == '\'' && text.data[text.len - 1] == '\'') {
        ret->constant = (struct weir__span){text.data + 1, text.len - 2};
        return NULL;
    }
    if (text.len > 6 && !memcmp(text.data, "hash(", 5) && text.data[text.len - 1] == ')') {
        ret->part.hashed = true;
        text = (struct weir__span){text.data + 5, text.len - 6};
    }
    if (text.len > 5 && !memcmp(text.data, "path:", 5)) {
        wrong = select_add_template(selection, (struct weir__span){text.data + 5, text.len - 5});
        text.len = 4;
    }
    const char *slash = memchr(text.data, '/', text.len);
    struct weir__span name = {text.data, slash ? (size_t)(slash - text.data) : text.len};
    if (!wrong)
        ret->part.attribute = desk_selection_attribute(selection, name, &wrong);
    if (wrong)
        return wrong;
    bool address = selection->attributes.items[ret->part.attribute].spelling == WEIR__AS_ADDRESS;
    ret->part.bits4 = WEIR__IP_BITS4;
    ret->part.bits6 = WEIR__IP_BITS6;
    if (slash && !address)
        return "only addresses have networks; write ip(NAME)/24/64";
    if (slash &&
        !select_read_bits((struct weir__span){slash + 1, text.len - name.len - 1}, &ret->part))
        return "after an address write the lengths of its network, for IPv4 (1 to 32) and IPv6 "
               "(1 to 128), like ip/24/64";
    return NULL;
}

/* The parts, which commas separate; a constant may have one in it. */
static const char *select_read_key(struct desk_selection *selection, const char *text)
{
    const char *at = text, *wrong = NULL;
    while (!wrong) {
        at += strspn(at, " ");
        size_t len = *at == '\'' ? 1 + strcspn(at + 1, "'") : 0;
        len += strcspn(at + len, ",");
        size_t trimmed = len;
        while (trimmed > 0 && at[trimmed - 1] == ' ')
            trimmed--;
        if (selection->part_count == WEIR__KEY_FORM_MAX)
            return "a key has at most 8 parts";
        wrong = select_read_part(selection, (struct weir__span){at, trimmed},
                                 &selection->parts[selection->part_count++]);
        if (!at[len])
            break;
        at += len + 1;
    }
    return wrong;
}

/* ---- the cost ---- */

/* "bytes", "bytes/1000", "duration/100ms". A duration costs its milliseconds unless told
 * otherwise. */
static const char *select_read_cost(struct desk_selection *selection, const char *text)
{
    const char *slash = strchr(text, '/'), *wrong = NULL, *why;
    struct weir__span name = {text, slash ? (size_t)(slash - text) : strlen(text)};
    int attribute = desk_selection_attribute(selection, name, &wrong);
    if (attribute < 0)
        return wrong;
    if (selection->sources[attribute].from != DESK_FROM_SLOT)
        return "the cost is a field of the log, like bytes or duration";
    selection->costs = true;
    selection->cost_slot = selection->sources[attribute].slot;
    bool duration = selection->cost_slot == DESK_DURATION;
    selection->cost_unit = duration ? 1000000 : 1;
    if (!slash)
        return NULL;
    struct weir__span unit = weir__span_of(slash + 1);
    if (duration) {
        if (weir__duration_parse(unit.data, unit.len, &selection->cost_unit, &why) != unit.len ||
            unit.len == 0)
            return "expected a duration after the /, like duration/100ms";
        selection->cost_unit *= 1000;
        return NULL;
    }
    if (!weir__span_whole(unit, 1, WEIR_COST_MAX, &selection->cost_unit))
        return "expected a whole number after the /, like bytes/1000";
    return NULL;
}

/* ---- all of it ---- */

/* "ip=my.client": a word of ours, and the name that the log has for it. */
static const char *select_read_moved(struct desk_selection *selection, const char *text)
{
    const char *equals = strchr(text, '=');
    struct desk_wanted *wanted = &selection->wanted;
    struct weir__span word = {text, equals ? (size_t)(equals - text) : 0};
    uint8_t slot = desk_slot_of_word(word);
    if (!equals || !equals[1] || slot == DESK_NO_SLOT)
        return "expected NAME=FIELD, where NAME is one of time, ip, method, path, query, request, "
               "host, status, bytes, duration, user, agent, referer, key and cost";
    if (wanted->moved_count == DESK_NAMED_MAX - 1)
        return "too many fields";
    wanted->moved[wanted->moved_count].slot = slot;
    wanted->moved[wanted->moved_count].name = equals + 1;
    wanted->moved[wanted->moved_count++].len = strlen(equals + 1);
    return NULL;
}

static int select_refuse(weir_error *err, const char *what, const char *text, const char *wrong)
{
    return weir__fail(err, WEIR_EINVAL, 0, "invalid %s \"%.80s\": %s", what, text, wrong);
}

static int select_read_lists(const struct desk_options *options, struct desk_selection *ret,
                             weir_error *err)
{
    const char *wrong;
    for (size_t i = 0; i < options->field_count; i++) {
        wrong = select_read_moved(ret, options->fields[i]);
        if (wrong)
            return select_refuse(err, "field", options->fields[i], wrong);
    }
    for (size_t i = 0; i < options->template_count; i++) {
        wrong = select_add_template(ret, weir__span_of(options->templates[i]));
        if (wrong)
            return select_refuse(err, "template", options->templates[i], wrong);
    }
    for (size_t i = 0; i < options->where_count; i++) {
        wrong = desk_where_read(ret, options->where[i]);
        if (wrong)
            return select_refuse(err, "condition", options->where[i], wrong);
    }
    if (options->carried_count > DESK_CARRIED_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "more than %d attributes", DESK_CARRIED_MAX);
    for (size_t i = 0; i < options->carried_count; i++) {
        ret->carried[i] = desk_selection_attribute(ret, weir__span_of(options->carried[i]), &wrong);
        if (ret->carried[i] < 0)
            return select_refuse(err, "attribute", options->carried[i], wrong);
        ret->carried_count++;
    }
    return 0;
}

int desk_selection_make(const struct desk_options *options, struct desk_selection *ret,
                        weir_error *err)
{
    const char *wrong = NULL;
    memset(ret, 0, sizeof *ret);
    memcpy(ret->secret, options->secret, sizeof ret->secret);
    ret->ip = desk_selection_attribute(ret, weir__span_of("ip"), &wrong);
    ret->key = desk_selection_attribute(ret, weir__span_of("key"), &wrong);
    if (ret->ip < 0 || ret->key < 0)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    int code = select_read_lists(options, ret, err);
    if (code == 0 && options->key) {
        wrong = select_read_key(ret, options->key);
        if (wrong)
            code = select_refuse(err, "key", options->key, wrong);
    }
    if (code == 0 && options->cost) {
        wrong = select_read_cost(ret, options->cost);
        if (wrong)
            code = select_refuse(err, "cost", options->cost, wrong);
    }
    return code;
}

void desk_selection_free(struct desk_selection *selection)
{
    weir__arena_free(&selection->arena);
}

/* Whether lines of the format may have it. */
static bool select_is_there(const struct desk_format *format, uint8_t slot)
{
    uint64_t has = format->has;
    if (format->open_names || has >> slot & 1)
        return true;
    bool request = has >> DESK_REQUEST & 1, target = request || has >> DESK_TARGET & 1;
    return slot == DESK_METHOD
               ? request
               : (slot == DESK_TARGET || slot == DESK_QUERY || slot == DESK_HOST) && target;
}

/* What is asked for and no line of the format has: its name, or NULL. */
static const char *select_missing(const struct desk_selection *selection,
                                  const struct desk_format *format)
{
    const struct weir__attribute *attributes = selection->attributes.items;
    for (size_t i = 0; i < selection->part_count; i++) {
        int attribute = selection->parts[i].part.attribute;
        if (attribute >= 0 && !select_is_there(format, selection->sources[attribute].slot))
            return attributes[attribute].text;
    }
    for (size_t i = 0; i < selection->conditions.count; i++) {
        int attribute = selection->items[i].attribute;
        if (!select_is_there(format, selection->sources[attribute].slot))
            return attributes[attribute].text;
    }
    if (selection->costs && !select_is_there(format, selection->cost_slot))
        return "for the cost";
    if (selection->part_count == 0 && !select_is_there(format, DESK_KEY) &&
        !select_is_there(format, DESK_IP))
        return attributes[selection->ip].text;
    return NULL;
}

int desk_selection_check(const struct desk_selection *selection, const struct desk_format *format,
                         const char *path, weir_error *err)
{
    const char *missing = select_missing(selection, format);
    if (!missing)
        return 0;
    char list[200];
    struct weir__buffer buffer = weir__buffer_over(list, sizeof list);
    for (uint8_t slot = DESK_IP; slot < DESK_NAMED; slot++) {
        if (select_is_there(format, slot))
            weir__put_format(&buffer, "%s%s", buffer.len ? ", " : "", desk_slot_word(slot));
    }
    return weir__fail(err, WEIR_EINVAL, 0,
                      "%s: lines in the format %s have no field %s; they have %s%s", path,
                      format->name, missing, list,
                      selection->part_count ? "" : "; name one of them with --key");
}

/* ---- lines: the values ---- */

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

/* ---- lines: the key ---- */

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

/* ---- lines: the cost ---- */

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

/* ---- lines: what is carried ---- */

/* Each value as its length and its bytes; 0xffffffff: there is none. */
static bool select_carry(const struct desk_selection *selection,
                         const struct select_context *context, struct desk_arrival *ret)
{
    struct desk_room *room = context->room;
    size_t used = 0;
    for (size_t i = 0; i < selection->carried_count; i++) {
        const struct weir__attribute *attribute =
            &selection->attributes.items[selection->carried[i]];
        struct weir__span value = {"", 0};
        bool there =
            select_find(context, attribute->name, attribute->name_len, &value) == WEIR__FOUND;
        uint32_t len = there ? (uint32_t)value.len : UINT32_MAX;
        if (value.len + sizeof len > sizeof room->carried - used)
            return false;
        memcpy(room->carried + used, &len, sizeof len);
        memcpy(room->carried + used + sizeof len, value.data, there ? value.len : 0);
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

/* ---- lines: all of it ---- */

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
                               struct desk_room *room, struct desk_arrival *ret,
                               enum desk_reason *ret_reason, char why[96])
{
    struct select_context context = {selection, format, fields, room};
    struct weir__subject subject = {select_find, &context};
    struct weir__view *view = &room->view;
    room->used = 0;
    weir__view_begin(view, &selection->attributes, &subject);
    bool wanted = weir__conditions_hold(&selection->conditions, view);
    if (view->wrong >= 0)
        return select_refused(selection, view, ret_reason, why);
    if (!wanted)
        return DESK_FILTERED;
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
    if (selection->carried_count > 0 && !select_carry(selection, &context, ret)) {
        *ret_reason = DESK_REASON_VALUE;
        snprintf(why, 96, "its values are too long");
        return DESK_REFUSED;
    }
    weir__hash(selection->secret, ret->key.data, ret->key.len, ret->hash);
    return DESK_TAKEN;
}
