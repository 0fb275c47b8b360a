/*
 * gRPC messages of Envoy's rate limit service (envoy.service.ratelimit.v3) and of health checks
 * (grpc.health.v1): protobuf bytes ⇄ structs, no sockets, no HTTP/2, no allocation.
 *
 * What holds:
 *   1. A decoded request borrows its texts from the message's bytes, which are read, never written.
 *   2. Every varint and length is checked before it is used; the work is linear in the bytes.
 *   3. As protobuf has it: unknown fields, and known ones of another wire type, are passed over; of
 *      a
 *      field that comes twice the last counts, and embedded messages merge; numbers are cut to
 *      their
 *      type's bits. Groups, which proto3 does not have, are refused.
 *   4. More descriptors or entries than there is room for are an error, never a part of them.
 *   5. Texts may be any bytes: Envoy sends header values as they come.
 */
#ifndef WEIR_GRPC_H
#define WEIR_GRPC_H

#include "base/buffer.h"
#include "base/span.h"

/* ---- status codes and framing ---- */

enum weir__grpc_code {
    WEIR__GRPC_OK = 0,
    WEIR__GRPC_UNKNOWN = 2,
    WEIR__GRPC_INVALID_ARGUMENT = 3,
    WEIR__GRPC_DEADLINE_EXCEEDED = 4,
    WEIR__GRPC_NOT_FOUND = 5,
    WEIR__GRPC_RESOURCE_EXHAUSTED = 8,
    WEIR__GRPC_UNIMPLEMENTED = 12,
    WEIR__GRPC_INTERNAL = 13,
    WEIR__GRPC_UNAVAILABLE = 14,
    WEIR__GRPC_UNAUTHENTICATED = 16,
};

/* What a WEIR_E… is in gRPC. */
enum weir__grpc_code weir__grpc_code_of(int code);

#define WEIR__GRPC_PREFIX 5 /* bytes before a message: compressed or not, and its length */

/* The one message of a whole unary body. WEIR_EUNSUPPORTED: it is compressed; WEIR_EINVAL: no
 * message, several, or a part of one. */
int weir__grpc_unframe(const void *body, size_t len, struct weir__span *ret, weir_error *err);

/* Room for the prefix; what is put between these two is the message. False: something was cut. */
size_t weir__grpc_frame_begin(struct weir__buffer *buffer);
bool weir__grpc_frame_end(struct weir__buffer *buffer, size_t begun);

/* grpc-message is text of printable ASCII, everything else percent-encoded. */
void weir__grpc_put_message_text(struct weir__buffer *buffer, const char *text);

/* ---- the rate limit service ---- */

#define WEIR__RLS_METHOD "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
#define WEIR__RLS_DESCRIPTORS_MAX 16
#define WEIR__RLS_ENTRIES_MAX 32 /* a descriptor */

enum weir__rls_unit {
    WEIR__RLS_UNKNOWN_UNIT,
    WEIR__RLS_SECOND,
    WEIR__RLS_MINUTE,
    WEIR__RLS_HOUR,
    WEIR__RLS_DAY,
    WEIR__RLS_MONTH,
    WEIR__RLS_YEAR,
    WEIR__RLS_WEEK,
    WEIR__RLS_UNITS
};

enum weir__rls_code { WEIR__RLS_UNKNOWN, WEIR__RLS_OK, WEIR__RLS_OVER_LIMIT };

struct weir__rls_entry {
    struct weir__span key, value;
};

struct weir__rls_descriptor {
    uint32_t entry_count;
    bool has_limit; /* an override */
    bool has_hits;
    bool is_negative_hits;
    uint32_t requests_per_unit, unit; /* of the override; unit: any number */
    uint64_t hits_addend;             /* has_hits: 0 asks without charging */
    struct weir__rls_entry entries[WEIR__RLS_ENTRIES_MAX];
};

struct weir__rls_request {
    struct weir__span domain;
    uint32_t hits_addend;
    uint32_t descriptor_count;
    struct weir__rls_descriptor descriptors[WEIR__RLS_DESCRIPTORS_MAX];
};

/* A descriptor that says nothing; its entries are as they were. */
static inline void weir__rls_clear(struct weir__rls_descriptor *descriptor)
{
    descriptor->entry_count = descriptor->requests_per_unit = descriptor->unit = 0;
    descriptor->has_limit = descriptor->has_hits = descriptor->is_negative_hits = false;
    descriptor->hits_addend = 0;
}

/* RateLimitRequest. err->column is the byte, from 1. `ret` is written to even on failure. */
int weir__rls_read(struct weir__span message, struct weir__rls_request *ret, weir_error *err);

struct weir__rls_status {
    enum weir__rls_code code;
    bool has_limit; /* current_limit, and with it duration_until_reset */
    enum weir__rls_unit unit;
    uint32_t requests_per_unit;
    uint32_t remaining;
    int64_t reset_us;
    struct weir__span name; /* of the limit; at most WEIR__RLS_NAME_MAX bytes */
};

#define WEIR__RLS_NAME_MAX 256

struct weir__rls_header {
    const char *key;
    const char *value;
};

struct weir__rls_response {
    enum weir__rls_code overall;
    const struct weir__rls_status *statuses;
    size_t status_count;
    const struct weir__rls_header *headers; /* response_headers_to_add */
    size_t header_count;
};

/* Bytes that are enough for any response of n statuses and a few short headers. */
#define WEIR__RLS_RESPONSE_ROOM(n) (512 + (n) * (64 + WEIR__RLS_NAME_MAX))

/* RateLimitResponse. */
void weir__rls_put(struct weir__buffer *buffer, const struct weir__rls_response *response);

/* ---- health checks ---- */

#define WEIR__HEALTH_METHOD "/grpc.health.v1.Health/Check"
#define WEIR__HEALTH_WATCH "/grpc.health.v1.Health/Watch"

enum weir__health {
    WEIR__HEALTH_UNKNOWN,
    WEIR__HEALTH_SERVING,
    WEIR__HEALTH_NOT_SERVING,
    WEIR__HEALTH_SERVICE_UNKNOWN,
};

/* HealthCheckRequest: the service asked about; empty: the server as a whole. */
int weir__health_read(struct weir__span message, struct weir__span *ret_service, weir_error *err);
/* HealthCheckResponse. */
void weir__health_put(struct weir__buffer *buffer, enum weir__health status);

#endif
