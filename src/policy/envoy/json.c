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

/* A message's field: its two spellings and what takes its value. */
struct field {
    const char *name, *other;
    int (*take)(struct reader *, const struct weir__json_node *, void *message);
};

static int json_bad(struct reader *reader, const char *what)
{
    return weir__fail(reader->err, WEIR_EINVAL, 0, "not a RateLimitRequest: %s", what);
}

static bool json_is(const struct weir__json_node *node, const char *name)
{
    return node->len == strlen(name) && !memcmp(node->text, name, node->len);
}

static const struct field *json_find(const struct field *fields, size_t n,
                                     const struct weir__json_node *name)
{
    for (size_t i = 0; i < n; i++) {
        if (json_is(name, fields[i].name) || json_is(name, fields[i].other))
            return &fields[i];
    }
    return NULL;
}

/* Hands each member to its field. `what` names the object in messages. */
static int json_take_object(struct reader *reader, const struct weir__json_node *object,
                            const char *what, const struct field *fields, size_t n, void *message)
{
    if (object->type != WEIR__JSON_OBJECT)
        return weir__fail(reader->err, WEIR_EINVAL, 0,
                          "not a RateLimitRequest: %s must be an object", what);
    const struct weir__json_node *name = object + 1;
    for (uint32_t i = 0; i < object->len; i++) {
        const struct weir__json_node *value = name + 1;
        const struct field *field = json_find(fields, n, name);
        if (!field)
            return weir__fail(reader->err, WEIR_EINVAL, 0,
                              "not a RateLimitRequest: %s has no field \"%.*s\"", what,
                              (int)weir__min(name->len, 64), name->text);
        int code = value->type == WEIR__JSON_NULL ? 0 : field->take(reader, value, message);
        if (code)
            return code;
        name = &reader->nodes[value->next];
    }
    return 0;
}

/* ---- values ---- */

static int json_take_text(struct reader *reader, const struct weir__json_node *node,
                          struct weir__span *ret)
{
    if (node->type != WEIR__JSON_STRING)
        return json_bad(reader, "domain, key and value are texts");
    *ret = (struct weir__span){node->text, node->len};
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

static int json_take_uint32(struct reader *reader, const struct weir__json_node *node,
                            uint32_t *ret)
{
    int64_t number;
    if (!json_read_number(node, UINT32_MAX, &number))
        return json_bad(reader,
                        "hitsAddend and requestsPerUnit are whole numbers within 0 … 2^32-1");
    *ret = (uint32_t)number;
    return 0;
}

/* ---- entries ---- */

static int json_take_key(struct reader *reader, const struct weir__json_node *node, void *entry)
{
    return json_take_text(reader, node, &((struct weir__rls_entry *)entry)->key);
}

static int json_take_value(struct reader *reader, const struct weir__json_node *node, void *entry)
{
    return json_take_text(reader, node, &((struct weir__rls_entry *)entry)->value);
}

static int json_take_entries(struct reader *reader, const struct weir__json_node *node,
                             void *message)
{
    static const struct field fields[] = {{"key", "key", json_take_key},
                                          {"value", "value", json_take_value}};
    struct weir__rls_descriptor *descriptor = message;
    if (node->type != WEIR__JSON_ARRAY)
        return json_bad(reader, "entries must be an array");
    if (node->len > WEIR__RLS_ENTRIES_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, 0, "more than %d entries in a descriptor",
                          WEIR__RLS_ENTRIES_MAX);
    const struct weir__json_node *item = node + 1;
    for (uint32_t i = 0; i < node->len; i++, item = &reader->nodes[item->next]) {
        struct weir__rls_entry *entry = &descriptor->entries[descriptor->entry_count++];
        *entry = (struct weir__rls_entry){{"", 0}, {"", 0}};
        int code = json_take_object(reader, item, "an entry", fields, WEIR__COUNT(fields), entry);
        if (code)
            return code;
    }
    return 0;
}

/* ---- limits ---- */

static int json_take_requests(struct reader *reader, const struct weir__json_node *node,
                              void *message)
{
    return json_take_uint32(reader, node,
                            &((struct weir__rls_descriptor *)message)->requests_per_unit);
}

static int json_take_unit(struct reader *reader, const struct weir__json_node *node, void *message)
{
    struct weir__rls_descriptor *descriptor = message;
    if (node->type == WEIR__JSON_NUMBER)
        return json_take_uint32(reader, node, &descriptor->unit);
    descriptor->unit = node->type == WEIR__JSON_STRING ? weir__envoy_unit(node->text, node->len)
                                                       : WEIR__RLS_UNKNOWN_UNIT;
    if (descriptor->unit == WEIR__RLS_UNKNOWN_UNIT)
        return json_bad(reader, "unit is SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR");
    return 0;
}

static int json_take_limit(struct reader *reader, const struct weir__json_node *node, void *message)
{
    static const struct field fields[] = {
        {"requestsPerUnit", "requests_per_unit", json_take_requests},
        {"unit", "unit", json_take_unit}};
    ((struct weir__rls_descriptor *)message)->has_limit = true;
    return json_take_object(reader, node, "limit", fields, WEIR__COUNT(fields), message);
}

/* ---- descriptors ---- */

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

static int json_take_negative(struct reader *reader, const struct weir__json_node *node,
                              void *message)
{
    if (node->type != WEIR__JSON_BOOL)
        return json_bad(reader, "isNegativeHits is true or false");
    ((struct weir__rls_descriptor *)message)->is_negative_hits = node->truth;
    return 0;
}

static int json_take_descriptors(struct reader *reader, const struct weir__json_node *node,
                                 void *message)
{
    static const struct field fields[] = {
        {"entries", "entries", json_take_entries},
        {"limit", "limit", json_take_limit},
        {"hitsAddend", "hits_addend", json_take_hits},
        {"isNegativeHits", "is_negative_hits", json_take_negative},
    };
    struct weir__rls_request *request = message;
    if (node->type != WEIR__JSON_ARRAY)
        return json_bad(reader, "descriptors must be an array");
    if (node->len > WEIR__RLS_DESCRIPTORS_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, 0, "more than %d descriptors in a request",
                          WEIR__RLS_DESCRIPTORS_MAX);
    const struct weir__json_node *item = node + 1;
    for (uint32_t i = 0; i < node->len; i++, item = &reader->nodes[item->next]) {
        struct weir__rls_descriptor *descriptor =
            &request->descriptors[request->descriptor_count++];
        weir__rls_clear(descriptor);
        int code =
            json_take_object(reader, item, "a descriptor", fields, WEIR__COUNT(fields), descriptor);
        if (code)
            return code;
    }
    return 0;
}

/* ---- the request ---- */

static int json_take_domain(struct reader *reader, const struct weir__json_node *node,
                            void *message)
{
    return json_take_text(reader, node, &((struct weir__rls_request *)message)->domain);
}

static int json_take_all_hits(struct reader *reader, const struct weir__json_node *node,
                              void *message)
{
    return json_take_uint32(reader, node, &((struct weir__rls_request *)message)->hits_addend);
}

int weir__rls_read_json(char *text, size_t len, struct weir__json_node *nodes, uint32_t room,
                        struct weir__rls_request *ret, weir_error *err)
{
    static const struct field fields[] = {
        {"domain", "domain", json_take_domain},
        {"descriptors", "descriptors", json_take_descriptors},
        {"hitsAddend", "hits_addend", json_take_all_hits},
    };
    int count = weir__json_read(text, len, nodes, room, err);
    if (count < 0)
        return count;
    struct reader reader = {nodes, err};
    ret->domain = (struct weir__span){"", 0};
    ret->hits_addend = ret->descriptor_count = 0;
    return json_take_object(&reader, nodes, "it", fields, WEIR__COUNT(fields), ret);
}
