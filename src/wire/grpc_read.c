/*
 * Protobuf to structs: see grpc.h. A message is a run of fields; next_field takes one whole, its value
 * too, so that what nobody knows is passed over by doing nothing with it.
 */
#include "wire/grpc.h"

#include <string.h>

enum wire_type { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

#define NUMBER_MAX ((UINT64_C(1) << 29) - 1) /* of a field */
#define VARINT_MAX 10                        /* bytes */

struct reader {
    const char *start; /* of the outermost message: places in errors count from there */
    const char *at, *end;
    weir_error *err;
};

struct field {
    uint32_t number;
    enum wire_type type;
    uint64_t integer;        /* VARINT */
    struct weir__span bytes; /* BYTES */
};

static int broken(const struct reader *reader, const char *at, const char *what)
{
    return weir__fail(reader->err, WEIR_EINVAL, (int)(at - reader->start) + 1,
                      "not a message of this service: byte %zu: %s",
                      (size_t)(at - reader->start) + 1, what);
}

static int read_varint(struct reader *reader, uint64_t *ret)
{
    const char *begun = reader->at;
    uint64_t number = 0;
    for (unsigned i = 0; i < VARINT_MAX; i++) {
        if (reader->at == reader->end)
            return broken(reader, begun, "a number is cut short");
        uint64_t byte = (unsigned char)*reader->at++;
        if (i == VARINT_MAX - 1 && byte > 1)
            break;
        number |= (byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *ret = number;
            return 0;
        }
    }
    return broken(reader, begun, "a number has more than 64 bits");
}

static int read_bytes(struct reader *reader, struct weir__span *ret)
{
    const char *begun = reader->at;
    uint64_t len = 0;
    int code = read_varint(reader, &len);
    if (code)
        return code;
    if (len > (uint64_t)(reader->end - reader->at))
        return broken(reader, begun, "a length reaches beyond the end");
    *ret = (struct weir__span){reader->at, (size_t)len};
    reader->at += len;
    return 0;
}

static int skip(struct reader *reader, size_t len)
{
    if (len > (size_t)(reader->end - reader->at))
        return broken(reader, reader->at, "a fixed number is cut short");
    reader->at += len;
    return 0;
}

/* 1: a field, 0: the end, or a code. */
static int next_field(struct reader *reader, struct field *ret)
{
    const char *begun = reader->at;
    uint64_t tag = 0;
    *ret = (struct field){0};
    if (reader->at == reader->end)
        return 0;
    int code = read_varint(reader, &tag);
    if (code)
        return code;
    if (tag >> 3 == 0 || tag >> 3 > NUMBER_MAX)
        return broken(reader, begun, "a field's number is not within 1 … 536870911");
    ret->number = (uint32_t)(tag >> 3);
    ret->type = (enum wire_type)(tag & 7);
    switch (tag & 7) {
    case VARINT:
        code = read_varint(reader, &ret->integer);
        break;
    case FIXED64:
        code = skip(reader, 8);
        break;
    case BYTES:
        code = read_bytes(reader, &ret->bytes);
        break;
    case FIXED32:
        code = skip(reader, 4);
        break;
    default:
        code = broken(reader, begun, "a group, or a wire type that does not exist");
    }
    return code ? code : 1;
}

static bool is(const struct field *field, uint32_t number, enum wire_type type)
{
    return field->number == number && field->type == type;
}

static struct reader within(const struct reader *outer, struct weir__span bytes)
{
    return (struct reader){outer->start, bytes.data, bytes.data + bytes.len, outer->err};
}

/* ---- the rate limit service ---- */

static int read_entry(struct reader reader, struct weir__rls_entry *ret)
{
    struct field field;
    int code;
    *ret = (struct weir__rls_entry){{reader.at, 0}, {reader.at, 0}};
    while ((code = next_field(&reader, &field)) > 0) {
        if (is(&field, 1, BYTES))
            ret->key = field.bytes;
        else if (is(&field, 2, BYTES))
            ret->value = field.bytes;
    }
    return code;
}

static int read_limit(struct reader reader, struct weir__rls_descriptor *ret)
{
    struct field field;
    int code;
    ret->has_limit = true;
    while ((code = next_field(&reader, &field)) > 0) {
        if (is(&field, 1, VARINT))
            ret->requests_per_unit = (uint32_t)field.integer;
        else if (is(&field, 2, VARINT))
            ret->unit = (uint32_t)field.integer;
    }
    return code;
}

/* google.protobuf.UInt64Value: there, it holds 0 unless it says otherwise. */
static int read_hits(struct reader reader, struct weir__rls_descriptor *ret)
{
    struct field field;
    int code;
    ret->has_hits = true;
    while ((code = next_field(&reader, &field)) > 0) {
        if (is(&field, 1, VARINT))
            ret->hits_addend = field.integer;
    }
    return code;
}

static int add_entry(const struct reader *reader, struct weir__span bytes,
                     struct weir__rls_descriptor *ret)
{
    if (ret->entry_count == WEIR__RLS_ENTRIES_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, (int)(bytes.data - reader->start) + 1,
                          "more than %d entries in a descriptor", WEIR__RLS_ENTRIES_MAX);
    return read_entry(within(reader, bytes), &ret->entries[ret->entry_count++]);
}

static int read_descriptor(struct reader reader, struct weir__rls_descriptor *ret)
{
    struct field field;
    int code, problem = 0;
    weir__rls_clear(ret);
    while (problem == 0 && (code = next_field(&reader, &field)) > 0) {
        if (is(&field, 1, BYTES))
            problem = add_entry(&reader, field.bytes, ret);
        else if (is(&field, 2, BYTES))
            problem = read_limit(within(&reader, field.bytes), ret);
        else if (is(&field, 3, BYTES))
            problem = read_hits(within(&reader, field.bytes), ret);
        else if (is(&field, 4, VARINT))
            ret->is_negative_hits = field.integer != 0;
    }
    return problem ? problem : code;
}

static int add_descriptor(const struct reader *reader, struct weir__span bytes,
                          struct weir__rls_request *ret)
{
    if (ret->descriptor_count == WEIR__RLS_DESCRIPTORS_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, (int)(bytes.data - reader->start) + 1,
                          "more than %d descriptors in a request", WEIR__RLS_DESCRIPTORS_MAX);
    return read_descriptor(within(reader, bytes), &ret->descriptors[ret->descriptor_count++]);
}

int weir__rls_read(struct weir__span message, struct weir__rls_request *ret, weir_error *err)
{
    struct reader reader = {message.data, message.data, message.data + message.len, err};
    struct field field;
    int code, problem = 0;
    ret->domain = (struct weir__span){message.data, 0};
    ret->hits_addend = ret->descriptor_count = 0;
    while (problem == 0 && (code = next_field(&reader, &field)) > 0) {
        if (is(&field, 1, BYTES))
            ret->domain = field.bytes;
        else if (is(&field, 2, BYTES))
            problem = add_descriptor(&reader, field.bytes, ret);
        else if (is(&field, 3, VARINT))
            ret->hits_addend = (uint32_t)field.integer;
    }
    return problem ? problem : code;
}

/* ---- health checks ---- */

int weir__health_read(struct weir__span message, struct weir__span *ret_service, weir_error *err)
{
    struct reader reader = {message.data, message.data, message.data + message.len, err};
    struct weir__span service = {message.data, 0};
    struct field field;
    int code;
    while ((code = next_field(&reader, &field)) > 0) {
        if (is(&field, 1, BYTES))
            service = field.bytes;
    }
    if (code == 0)
        *ret_service = service;
    return code;
}
