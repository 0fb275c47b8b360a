/*
 * A RateLimitRequest in protobuf's JSON: see service.h. Names as in the API or in camelCase, 64-bit
 * numbers also as text, enums by name or number, null as good as absent; a name that is none is
 * refused.
 */
#include "policy/envoy/service.h"

#include <string.h>

struct reader {
    const struct weir__json_node *nodes;
    weir_error *err;
};

/* A message's field: its two spellings, what takes its value, and where that goes. */
struct field {
    const char *name, *other;
    int (*take)(struct reader *, const struct weir__json_node *, void *member);
    size_t at;
};

static int json_bad(struct reader *reader, const char *what)
{
    return weir__fail(reader->err, WEIR_EINVAL, 0, "not a RateLimitRequest: %s", what);
}

static const struct field *json_find(const struct field *fields, const struct weir__json_node *node)
{
    struct weir__span name = {node->text, node->len};
    while (fields->name && !weir__span_is(name, fields->name) &&
           !weir__span_is(name, fields->other))
        fields++;
    return fields->name ? fields : NULL;
}

/* Hands each member to its field. `what` names the object in messages. */
static int json_take_object(struct reader *reader, const struct weir__json_node *object,
                            const char *what, const struct field *fields, void *message)
{
    if (object->type != WEIR__JSON_OBJECT)
        return weir__fail(reader->err, WEIR_EINVAL, 0,
                          "not a RateLimitRequest: %s must be an object", what);
    const struct weir__json_node *name = object + 1;
    for (uint32_t i = 0; i < object->len; i++) {
        const struct weir__json_node *value = name + 1;
        const struct field *field = json_find(fields, name);
        if (!field)
            return weir__fail(reader->err, WEIR_EINVAL, 0,
                              "not a RateLimitRequest: %s has no field \"%.*s\"", what,
                              (int)weir__min(name->len, 64), name->text);
        int code = value->type == WEIR__JSON_NULL
                       ? 0
                       : field->take(reader, value, (char *)message + field->at);
        if (code)
            return code;
        name = &reader->nodes[value->next];
    }
    return 0;
}

/* ---- values ---- */

static int json_take_text(struct reader *reader, const struct weir__json_node *node, void *text)
{
    if (node->type != WEIR__JSON_STRING)
        return json_bad(reader, "domain, key and value are texts");
    *(struct weir__span *)text = (struct weir__span){node->text, node->len};
    return 0;
}

/* 5, or "5" as protobuf writes 64 bits. */
static bool json_read_number(const struct weir__json_node *node, int64_t most, int64_t *ret)
{
    struct weir__json_node number = *node;
    if (node->type == WEIR__JSON_STRING) {
        for (uint32_t i = 0; i < node->len; i++) {
            if (node->text[i] < '0' || node->text[i] > '9')
                return false;
        }
        number.type = WEIR__JSON_NUMBER;
    }
    return number.len > 0 && weir__json_integer(&number, 0, most, ret);
}

static int json_take_uint32(struct reader *reader, const struct weir__json_node *node, void *ret)
{
    int64_t number;
    if (!json_read_number(node, UINT32_MAX, &number))
        return json_bad(reader,
                        "hitsAddend and requestsPerUnit are whole numbers within 0 … 2^32-1");
    *(uint32_t *)ret = (uint32_t)number;
    return 0;
}

static int json_take_unit(struct reader *reader, const struct weir__json_node *node, void *ret)
{
    uint32_t *unit = ret;
    if (node->type == WEIR__JSON_NUMBER)
        return json_take_uint32(reader, node, unit);
    *unit = node->type == WEIR__JSON_STRING ? weir__envoy_unit(node->text, node->len)
                                            : WEIR__RLS_UNKNOWN_UNIT;
    if (*unit == WEIR__RLS_UNKNOWN_UNIT)
        return json_bad(reader, "unit is SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR");
    return 0;
}

static int json_take_negative(struct reader *reader, const struct weir__json_node *node, void *ret)
{
    if (node->type != WEIR__JSON_BOOL)
        return json_bad(reader, "isNegativeHits is true or false");
    *(bool *)ret = node->truth;
    return 0;
}

/* ---- descriptors ---- */

static int json_take_entries(struct reader *reader, const struct weir__json_node *node,
                             void *message)
{
    static const struct field fields[] = {
        {"key", "key", json_take_text, offsetof(struct weir__rls_entry, key)},
        {"value", "value", json_take_text, offsetof(struct weir__rls_entry, value)},
        {NULL},
    };
    struct weir__rls_descriptor *descriptor = message;
    if (node->type != WEIR__JSON_ARRAY)
        return json_bad(reader, "entries must be an array");
    if (node->len > WEIR__RLS_ENTRIES_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, 0, "more than %d entries in a descriptor",
                          WEIR__RLS_ENTRIES_MAX);
    const struct weir__json_node *item = node + 1;
    int code = 0;
    for (uint32_t i = 0; i < node->len && code == 0; i++, item = &reader->nodes[item->next]) {
        struct weir__rls_entry *entry = &descriptor->entries[descriptor->entry_count++];
        *entry = (struct weir__rls_entry){{"", 0}, {"", 0}};
        code = json_take_object(reader, item, "an entry", fields, entry);
    }
    return code;
}

static int json_take_limit(struct reader *reader, const struct weir__json_node *node, void *message)
{
    static const struct field fields[] = {
        {"requestsPerUnit", "requests_per_unit", json_take_uint32,
         offsetof(struct weir__rls_descriptor, requests_per_unit)},
        {"unit", "unit", json_take_unit, offsetof(struct weir__rls_descriptor, unit)},
        {NULL},
    };
    ((struct weir__rls_descriptor *)message)->has_limit = true;
    return json_take_object(reader, node, "limit", fields, message);
}

static int json_take_hits(struct reader *reader, const struct weir__json_node *node, void *message)
{
    struct weir__rls_descriptor *descriptor = message;
    int64_t number;
    if (!json_read_number(node, INT64_MAX, &number))
        return json_bad(reader, "hitsAddend of a descriptor is a whole number, not negative");
    descriptor->has_hits = true;
    descriptor->hits_addend = (uint64_t)number;
    return 0;
}

static int json_take_descriptors(struct reader *reader, const struct weir__json_node *node,
                                 void *message)
{
    static const struct field fields[] = {
        {"entries", "entries", json_take_entries, 0},
        {"limit", "limit", json_take_limit, 0},
        {"hitsAddend", "hits_addend", json_take_hits, 0},
        {"isNegativeHits", "is_negative_hits", json_take_negative,
         offsetof(struct weir__rls_descriptor, is_negative_hits)},
        {NULL},
    };
    struct weir__rls_request *request = message;
    if (node->type != WEIR__JSON_ARRAY)
        return json_bad(reader, "descriptors must be an array");
    if (node->len > WEIR__RLS_DESCRIPTORS_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, 0, "more than %d descriptors in a request",
                          WEIR__RLS_DESCRIPTORS_MAX);
    const struct weir__json_node *item = node + 1;
    int code = 0;
    for (uint32_t i = 0; i < node->len && code == 0; i++, item = &reader->nodes[item->next]) {
        struct weir__rls_descriptor *it = &request->descriptors[request->descriptor_count++];
        weir__rls_clear(it);
        code = json_take_object(reader, item, "a descriptor", fields, it);
    }
    return code;
}

/* ---- the request ---- */

int weir__rls_read_json(char *text, size_t len, struct weir__json_node *nodes, uint32_t room,
                        struct weir__rls_request *ret, weir_error *err)
{
    static const struct field fields[] = {
        {"domain", "domain", json_take_text, offsetof(struct weir__rls_request, domain)},
        {"descriptors", "descriptors", json_take_descriptors, 0},
        {"hitsAddend", "hits_addend", json_take_uint32,
         offsetof(struct weir__rls_request, hits_addend)},
        {NULL},
    };
    int count = weir__json_read(text, len, nodes, room, err);
    if (count < 0)
        return count;
    struct reader reader = {nodes, err};
    ret->domain = (struct weir__span){"", 0};
    ret->hits_addend = ret->descriptor_count = 0;
    return json_take_object(&reader, nodes, "it", fields, ret);
}
