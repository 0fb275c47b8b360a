/*
 * Structs to protobuf: see grpc.h. A message within a message is made in room of its own, since its
 * length stands before it. What is 0 or empty is left out, as proto3 has it.
 */
#include "wire/grpc.h"

#include <string.h>

#define LIMIT_ROOM (WEIR__RLS_NAME_MAX + 32)
#define STATUS_ROOM (LIMIT_ROOM + 64)
#define DURATION_ROOM 32
#define MICROSECONDS 1000000

static void put_varint(struct weir__buffer *buffer, uint64_t number)
{
    char bytes[10];
    size_t len = 0;
    for (; number >= 0x80; number >>= 7)
        bytes[len++] = (char)((number & 0x7f) | 0x80);
    bytes[len++] = (char)number;
    weir__put(buffer, bytes, len);
}

static void put_integer(struct weir__buffer *buffer, uint32_t field, uint64_t number)
{
    if (number == 0)
        return;
    put_varint(buffer, field << 3);
    put_varint(buffer, number);
}

/* A text or message that is there, even if it is empty. */
static void put_bytes(struct weir__buffer *buffer, uint32_t field, const char *data, size_t len)
{
    put_varint(buffer, field << 3 | 2);
    put_varint(buffer, len);
    if (len > 0)
        weir__put(buffer, data, len);
}

static void put_message(struct weir__buffer *buffer, uint32_t field,
                        const struct weir__buffer *message)
{
    put_bytes(buffer, field, message->data, message->len);
    buffer->cut = buffer->cut || message->cut;
}

static void put_limit(struct weir__buffer *buffer, const struct weir__rls_status *status)
{
    char room[LIMIT_ROOM];
    struct weir__buffer limit = weir__buffer_over(room, sizeof room);
    put_integer(&limit, 1, status->requests_per_unit);
    put_integer(&limit, 2, status->unit);
    if (status->name.len > 0)
        put_bytes(&limit, 3, status->name.data, status->name.len);
    put_message(buffer, 2, &limit);
}

static void put_duration(struct weir__buffer *buffer, uint32_t field, int64_t us)
{
    char room[DURATION_ROOM];
    struct weir__buffer duration = weir__buffer_over(room, sizeof room);
    put_integer(&duration, 1, (uint64_t)(us / MICROSECONDS));
    put_integer(&duration, 2, (uint64_t)(us % MICROSECONDS) * 1000);
    put_message(buffer, field, &duration);
}

static void put_status(struct weir__buffer *buffer, const struct weir__rls_status *status)
{
    char room[STATUS_ROOM];
    struct weir__buffer message = weir__buffer_over(room, sizeof room);
    put_integer(&message, 1, status->code);
    if (status->has_limit)
        put_limit(&message, status);
    put_integer(&message, 3, status->remaining);
    if (status->has_limit)
        put_duration(&message, 4, weir__max(0, status->reset_us));
    put_message(buffer, 2, &message);
}

static void put_header(struct weir__buffer *buffer, const struct weir__rls_header *header)
{
    char room[256];
    struct weir__buffer message = weir__buffer_over(room, sizeof room);
    put_bytes(&message, 1, header->key, strlen(header->key));
    put_bytes(&message, 2, header->value, strlen(header->value));
    put_message(buffer, 3, &message);
}

void weir__rls_put(struct weir__buffer *buffer, const struct weir__rls_response *response)
{
    put_integer(buffer, 1, response->overall);
    for (size_t i = 0; i < response->status_count; i++)
        put_status(buffer, &response->statuses[i]);
    for (size_t i = 0; i < response->header_count; i++)
        put_header(buffer, &response->headers[i]);
}

void weir__health_put(struct weir__buffer *buffer, enum weir__health status)
{
    put_integer(buffer, 1, status);
}
