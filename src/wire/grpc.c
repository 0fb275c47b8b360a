/* See grpc.h. */
#include "wire/grpc.h"

#include <assert.h>
#include <string.h>

/* ---- codes, framing, texts ---- */

enum weir__grpc_code weir__grpc_code_of(int code)
{
    switch (code) {
    case WEIR_OK:
        return WEIR__GRPC_OK;
    case WEIR_EINVAL:
    case WEIR_ESYNTAX:
    case WEIR_ESHARED:
        return WEIR__GRPC_INVALID_ARGUMENT;
    case WEIR_EUNSUPPORTED:
        return WEIR__GRPC_UNIMPLEMENTED;
    case WEIR_EFULL:
    case WEIR_ENOMEM:
        return WEIR__GRPC_RESOURCE_EXHAUSTED;
    case WEIR_EBUSY:
    case WEIR_EGONE:
    case WEIR_EUNREACHABLE:
        return WEIR__GRPC_UNAVAILABLE;
    default:
        return WEIR__GRPC_INTERNAL;
    }
}

int weir__grpc_unframe(const void *body, size_t len, struct weir__span *ret, weir_error *err)
{
    const unsigned char *bytes = body;
    if (len < WEIR__GRPC_PREFIX)
        return weir__fail(err, WEIR_EINVAL, 1,
                          "%zu bytes are too few: a message begins with a prefix of %d", len,
                          WEIR__GRPC_PREFIX);
    if (bytes[0] == 1)
        return weir__fail(err, WEIR_EUNSUPPORTED, 1,
                          "the message is compressed; send it without grpc-encoding");
    if (bytes[0] != 0)
        return weir__fail(err, WEIR_EINVAL, 1, "the flag %u before the message is neither 0 nor 1",
                          bytes[0]);
    size_t size =
        (size_t)bytes[1] << 24 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 8 | bytes[4];
    if (size != len - WEIR__GRPC_PREFIX)
        return weir__fail(
            err, WEIR_EINVAL, 2,
            "the prefix announces %zu bytes where %zu came; expected one whole message", size,
            len - WEIR__GRPC_PREFIX);
    *ret = (struct weir__span){(const char *)bytes + WEIR__GRPC_PREFIX, size};
    return 0;
}

size_t weir__grpc_frame_begin(struct weir__buffer *buffer)
{
    size_t begun = buffer->len;
    weir__put(buffer, "\0\0\0\0\0", WEIR__GRPC_PREFIX);
    return begun;
}

bool weir__grpc_frame_end(struct weir__buffer *buffer, size_t begun)
{
    if (buffer->cut)
        return false;
    size_t size = buffer->len - begun - WEIR__GRPC_PREFIX;
    for (int i = 0; i < 4; i++)
        buffer->data[begun + 1 + (size_t)i] = (char)(size >> (24 - 8 * i) & 0xff);
    return true;
}

void weir__grpc_put_message_text(struct weir__buffer *buffer, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        char escaped[] = {'%', digits[byte >> 4], digits[byte & 15]};
        if (byte >= ' ' && byte <= '~' && byte != '%')
            weir__put(buffer, text, 1);
        else
            weir__put(buffer, escaped, sizeof escaped);
    }
}

/* ---- protobuf to structs ----
 *
 * A message is a run of fields. grpc_next_field takes a whole one with its value, so that an
 * unknown field is passed over by doing nothing with it. */

enum grpc_type { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

#define GRPC_NUMBER_MAX ((UINT64_C(1) << 29) - 1) /* of a field */
#define GRPC_VARINT_MAX 10                        /* bytes */

struct grpc_reader {
    const char *start; /* of the outermost message: places in errors count from there */
    const char *at, *end;
    weir_error *err;
};

struct grpc_field {
    uint32_t number;
    enum grpc_type type;
    uint64_t integer;        /* VARINT */
    struct weir__span bytes; /* BYTES */
};

static int grpc_broken(const struct grpc_reader *reader, const char *at, const char *what)
{
    return weir__fail(reader->err, WEIR_EINVAL, (int)(at - reader->start) + 1,
                      "not a message of this service: byte %zu: %s",
                      (size_t)(at - reader->start) + 1, what);
}

static int grpc_read_varint(struct grpc_reader *reader, uint64_t *ret)
{
    const char *begun = reader->at;
    uint64_t number = 0;
    for (unsigned i = 0; i < GRPC_VARINT_MAX; i++) {
        if (reader->at == reader->end)
            return grpc_broken(reader, begun, "a number is cut short");
        uint64_t byte = (unsigned char)*reader->at++;
        if (i == GRPC_VARINT_MAX - 1 && byte > 1)
            break;
        number |= (byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *ret = number;
            return 0;
        }
    }
    return grpc_broken(reader, begun, "a number has more than 64 bits");
}

static int grpc_read_bytes(struct grpc_reader *reader, struct weir__span *ret)
{
    const char *begun = reader->at;
    uint64_t len = 0;
    int code = grpc_read_varint(reader, &len);
    if (code)
        return code;
    if (len > (uint64_t)(reader->end - reader->at))
        return grpc_broken(reader, begun, "a length reaches beyond the end");
    *ret = (struct weir__span){reader->at, (size_t)len};
    reader->at += len;
    return 0;
}

static int grpc_skip(struct grpc_reader *reader, size_t len)
{
    if (len > (size_t)(reader->end - reader->at))
        return grpc_broken(reader, reader->at, "a fixed number is cut short");
    reader->at += len;
    return 0;
}

/* 1: a field, 0: the end, or a code. */
static int grpc_next_field(struct grpc_reader *reader, struct grpc_field *ret)
{
    const char *begun = reader->at;
    uint64_t tag = 0;
    assert(reader->at <= reader->end);
    *ret = (struct grpc_field){0};
    if (reader->at == reader->end)
        return 0;
    int code = grpc_read_varint(reader, &tag);
    if (code)
        return code;
    if (tag >> 3 == 0 || tag >> 3 > GRPC_NUMBER_MAX)
        return grpc_broken(reader, begun, "a field's number is not within 1 … 536870911");
    ret->number = (uint32_t)(tag >> 3);
    ret->type = (enum grpc_type)(tag & 7);
    switch (tag & 7) {
    case VARINT:
        code = grpc_read_varint(reader, &ret->integer);
        break;
    case FIXED64:
        code = grpc_skip(reader, 8);
        break;
    case BYTES:
        code = grpc_read_bytes(reader, &ret->bytes);
        break;
    case FIXED32:
        code = grpc_skip(reader, 4);
        break;
    default:
        code = grpc_broken(reader, begun, "a group, or a wire type that does not exist");
    }
    return code ? code : 1;
}

static bool grpc_is(const struct grpc_field *field, uint32_t number, enum grpc_type type)
{
    return field->number == number && field->type == type;
}

static struct grpc_reader grpc_within(const struct grpc_reader *outer, struct weir__span bytes)
{
    return (struct grpc_reader){outer->start, bytes.data, bytes.data + bytes.len, outer->err};
}

/* ---- the rate limit service ---- */

static int rls_read_entry(struct grpc_reader reader, struct weir__rls_entry *ret)
{
    struct grpc_field field;
    int code;
    *ret = (struct weir__rls_entry){{reader.at, 0}, {reader.at, 0}};
    while ((code = grpc_next_field(&reader, &field)) > 0) {
        if (grpc_is(&field, 1, BYTES))
            ret->key = field.bytes;
        else if (grpc_is(&field, 2, BYTES))
            ret->value = field.bytes;
    }
    return code;
}

static int rls_read_limit(struct grpc_reader reader, struct weir__rls_descriptor *ret)
{
    struct grpc_field field;
    int code;
    ret->has_limit = true;
    while ((code = grpc_next_field(&reader, &field)) > 0) {
        if (grpc_is(&field, 1, VARINT))
            ret->requests_per_unit = (uint32_t)field.integer;
        else if (grpc_is(&field, 2, VARINT))
            ret->unit = (uint32_t)field.integer;
    }
    return code;
}

/* google.protobuf.UInt64Value: there, it holds 0 unless it says otherwise. */
static int rls_read_hits(struct grpc_reader reader, struct weir__rls_descriptor *ret)
{
    struct grpc_field field;
    int code;
    ret->has_hits = true;
    while ((code = grpc_next_field(&reader, &field)) > 0) {
        if (grpc_is(&field, 1, VARINT))
            ret->hits_addend = field.integer;
    }
    return code;
}

static int rls_add_entry(const struct grpc_reader *reader, struct weir__span bytes,
                         struct weir__rls_descriptor *ret)
{
    if (ret->entry_count == WEIR__RLS_ENTRIES_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, (int)(bytes.data - reader->start) + 1,
                          "more than %d entries in a descriptor", WEIR__RLS_ENTRIES_MAX);
    return rls_read_entry(grpc_within(reader, bytes), &ret->entries[ret->entry_count++]);
}

static int rls_read_descriptor(struct grpc_reader reader, struct weir__rls_descriptor *ret)
{
    struct grpc_field field;
    int code, problem = 0;
    weir__rls_clear(ret);
    while (problem == 0 && (code = grpc_next_field(&reader, &field)) > 0) {
        if (grpc_is(&field, 1, BYTES))
            problem = rls_add_entry(&reader, field.bytes, ret);
        else if (grpc_is(&field, 2, BYTES))
            problem = rls_read_limit(grpc_within(&reader, field.bytes), ret);
        else if (grpc_is(&field, 3, BYTES))
            problem = rls_read_hits(grpc_within(&reader, field.bytes), ret);
        else if (grpc_is(&field, 4, VARINT))
            ret->is_negative_hits = field.integer != 0;
    }
    return problem ? problem : code;
}

static int rls_add_descriptor(const struct grpc_reader *reader, struct weir__span bytes,
                              struct weir__rls_request *ret)
{
    if (ret->descriptor_count == WEIR__RLS_DESCRIPTORS_MAX)
        return weir__fail(reader->err, WEIR_EINVAL, (int)(bytes.data - reader->start) + 1,
                          "more than %d descriptors in a request", WEIR__RLS_DESCRIPTORS_MAX);
    return rls_read_descriptor(grpc_within(reader, bytes),
                               &ret->descriptors[ret->descriptor_count++]);
}

int weir__rls_read(struct weir__span message, struct weir__rls_request *ret, weir_error *err)
{
    struct grpc_reader reader = {message.data, message.data, message.data + message.len, err};
    struct grpc_field field;
    int code, problem = 0;
    ret->domain = (struct weir__span){message.data, 0};
    ret->hits_addend = ret->descriptor_count = 0;
    while (problem == 0 && (code = grpc_next_field(&reader, &field)) > 0) {
        if (grpc_is(&field, 1, BYTES))
            ret->domain = field.bytes;
        else if (grpc_is(&field, 2, BYTES))
            problem = rls_add_descriptor(&reader, field.bytes, ret);
        else if (grpc_is(&field, 3, VARINT))
            ret->hits_addend = (uint32_t)field.integer;
    }
    return problem ? problem : code;
}

/* ---- health checks ---- */

int weir__health_read(struct weir__span message, struct weir__span *ret_service, weir_error *err)
{
    struct grpc_reader reader = {message.data, message.data, message.data + message.len, err};
    struct weir__span service = {message.data, 0};
    struct grpc_field field;
    int code;
    while ((code = grpc_next_field(&reader, &field)) > 0) {
        if (grpc_is(&field, 1, BYTES))
            service = field.bytes;
    }
    if (code == 0)
        *ret_service = service;
    return code;
}

/* ---- structs to protobuf ----
 *
 * A message within a message is made in its own room, since its length stands before it. What is 0
 * or empty is left out, as proto3 has it. */

#define LIMIT_ROOM (WEIR__RLS_NAME_MAX + 32)
#define STATUS_ROOM (LIMIT_ROOM + 64)
#define DURATION_ROOM 32
#define MICROSECONDS 1000000

static void grpc_put_varint(struct weir__buffer *buffer, uint64_t number)
{
    char bytes[10];
    size_t len = 0;
    for (; number >= 0x80; number >>= 7)
        bytes[len++] = (char)((number & 0x7f) | 0x80);
    bytes[len++] = (char)number;
    weir__put(buffer, bytes, len);
}

static void grpc_put_integer(struct weir__buffer *buffer, uint32_t field, uint64_t number)
{
    if (number == 0)
        return;
    grpc_put_varint(buffer, field << 3);
    grpc_put_varint(buffer, number);
}

/* A text or message that is there, even if it is empty. */
static void grpc_put_bytes(struct weir__buffer *buffer, uint32_t field, const char *data,
                           size_t len)
{
    grpc_put_varint(buffer, field << 3 | 2);
    grpc_put_varint(buffer, len);
    if (len > 0)
        weir__put(buffer, data, len);
}

static void grpc_put_message(struct weir__buffer *buffer, uint32_t field,
                             const struct weir__buffer *message)
{
    grpc_put_bytes(buffer, field, message->data, message->len);
    buffer->cut = buffer->cut || message->cut;
}

static void rls_put_limit(struct weir__buffer *buffer, const struct weir__rls_status *status)
{
    char room[LIMIT_ROOM];
    struct weir__buffer limit = weir__buffer_over(room, sizeof room);
    grpc_put_integer(&limit, 1, status->requests_per_unit);
    grpc_put_integer(&limit, 2, status->unit);
    if (status->name.len > 0)
        grpc_put_bytes(&limit, 3, status->name.data, status->name.len);
    grpc_put_message(buffer, 2, &limit);
}

static void rls_put_duration(struct weir__buffer *buffer, uint32_t field, int64_t us)
{
    char room[DURATION_ROOM];
    struct weir__buffer duration = weir__buffer_over(room, sizeof room);
    grpc_put_integer(&duration, 1, (uint64_t)(us / MICROSECONDS));
    grpc_put_integer(&duration, 2, (uint64_t)(us % MICROSECONDS) * 1000);
    grpc_put_message(buffer, field, &duration);
}

static void rls_put_status(struct weir__buffer *buffer, const struct weir__rls_status *status)
{
    char room[STATUS_ROOM];
    struct weir__buffer message = weir__buffer_over(room, sizeof room);
    grpc_put_integer(&message, 1, status->code);
    if (status->has_limit)
        rls_put_limit(&message, status);
    grpc_put_integer(&message, 3, status->remaining);
    if (status->has_limit)
        rls_put_duration(&message, 4, weir__max(0, status->reset_us));
    grpc_put_message(buffer, 2, &message);
}

static void rls_put_header(struct weir__buffer *buffer, const struct weir__rls_header *header)
{
    char room[256];
    struct weir__buffer message = weir__buffer_over(room, sizeof room);
    grpc_put_bytes(&message, 1, header->key, strlen(header->key));
    grpc_put_bytes(&message, 2, header->value, strlen(header->value));
    grpc_put_message(buffer, 3, &message);
}

void weir__rls_put(struct weir__buffer *buffer, const struct weir__rls_response *response)
{
    grpc_put_integer(buffer, 1, response->overall);
    for (size_t i = 0; i < response->status_count; i++)
        rls_put_status(buffer, &response->statuses[i]);
    for (size_t i = 0; i < response->header_count; i++)
        rls_put_header(buffer, &response->headers[i]);
}

void weir__health_put(struct weir__buffer *buffer, enum weir__health status)
{
    grpc_put_integer(buffer, 1, status);
}
