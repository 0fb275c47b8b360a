/*
 * Messages of the rate limit service: refused with a place, or decoded within bounds; what was
 * decoded, encoded again, decodes to the same. Framing and health checks on the way.
 */
#include "fuzz.h"

#include "wire/grpc.h"

static char room[1 << 20];

static void check_span(struct weir__span span, const char *data, size_t size)
{
    EXPECT(span.data >= data && span.len <= size && span.data + span.len <= data + size,
           "a text lies outside the message");
}

static void check_error(int code, const weir_error *err, size_t size)
{
    EXPECT(code == WEIR_EINVAL && err->code == code && err->message[0], "code %d", code);
    EXPECT(err->column >= 1 && (size_t)err->column <= size + 1, "byte %d of %zu", err->column,
           size);
}

static void check_request(const struct weir__rls_request *request, const char *data, size_t size)
{
    check_span(request->domain, data, size);
    EXPECT(request->descriptor_count <= WEIR__RLS_DESCRIPTORS_MAX, "descriptors");
    for (uint32_t i = 0; i < request->descriptor_count; i++) {
        const struct weir__rls_descriptor *descriptor = &request->descriptors[i];
        EXPECT(descriptor->entry_count <= WEIR__RLS_ENTRIES_MAX, "entries");
        for (uint32_t j = 0; j < descriptor->entry_count; j++) {
            check_span(descriptor->entries[j].key, data, size);
            check_span(descriptor->entries[j].value, data, size);
        }
    }
}

/* ---- an encoder of requests, which the service itself does not need ---- */

static void put_varint(struct weir__buffer *out, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        weir__put(out, (char[]){(char)(number | 0x80)}, 1);
    weir__put(out, (char[]){(char)number}, 1);
}

static void put_number(struct weir__buffer *out, uint32_t field, uint64_t number)
{
    put_varint(out, field << 3);
    put_varint(out, number);
}

static void put_bytes(struct weir__buffer *out, uint32_t field, const char *data, size_t len)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, len);
    weir__put(out, data, len);
}

static void put_descriptor(struct weir__buffer *out, const struct weir__rls_descriptor *descriptor)
{
    static char entry[1 << 18], message[1 << 18];
    struct weir__buffer inner, whole = weir__buffer_over(message, sizeof message);
    for (uint32_t i = 0; i < descriptor->entry_count; i++) {
        const struct weir__rls_entry *it = &descriptor->entries[i];
        inner = weir__buffer_over(entry, sizeof entry);
        put_bytes(&inner, 1, it->key.data, it->key.len);
        put_bytes(&inner, 2, it->value.data, it->value.len);
        put_bytes(&whole, 1, entry, inner.len);
    }
    if (descriptor->has_limit) {
        inner = weir__buffer_over(entry, sizeof entry);
        put_number(&inner, 1, descriptor->requests_per_unit);
        put_number(&inner, 2, descriptor->unit);
        put_bytes(&whole, 2, entry, inner.len);
    }
    if (descriptor->has_hits) {
        inner = weir__buffer_over(entry, sizeof entry);
        put_number(&inner, 1, descriptor->hits_addend);
        put_bytes(&whole, 3, entry, inner.len);
    }
    put_number(&whole, 4, descriptor->is_negative_hits);
    put_bytes(out, 2, message, whole.len);
}

static bool same_span(struct weir__span a, struct weir__span b)
{
    return a.len == b.len && !memcmp(a.data, b.data, a.len);
}

static bool same(const struct weir__rls_descriptor *a, const struct weir__rls_descriptor *b)
{
    if (a->entry_count != b->entry_count || a->has_limit != b->has_limit ||
        a->requests_per_unit != b->requests_per_unit || a->unit != b->unit ||
        a->has_hits != b->has_hits || a->hits_addend != b->hits_addend ||
        a->is_negative_hits != b->is_negative_hits)
        return false;
    for (uint32_t i = 0; i < a->entry_count; i++) {
        if (!same_span(a->entries[i].key, b->entries[i].key) ||
            !same_span(a->entries[i].value, b->entries[i].value))
            return false;
    }
    return true;
}

static void check_again(const struct weir__rls_request *request)
{
    static struct weir__rls_request again;
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    put_bytes(&out, 1, request->domain.data, request->domain.len);
    for (uint32_t i = 0; i < request->descriptor_count; i++)
        put_descriptor(&out, &request->descriptors[i]);
    put_number(&out, 3, request->hits_addend);
    int code = weir__rls_read((struct weir__span){room, out.len}, &again, NULL);
    EXPECT(code == 0, "encoded again it is refused");
    EXPECT(same_span(again.domain, request->domain) && again.hits_addend == request->hits_addend &&
               again.descriptor_count == request->descriptor_count,
           "encoded again it is another");
    for (uint32_t i = 0; i < request->descriptor_count; i++)
        EXPECT(same(&again.descriptors[i], &request->descriptors[i]), "descriptor %u", i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weir__rls_request request;
    char *text = fuzz_text(data, size);
    struct weir__span message = {text, size}, part = {NULL, 0};
    weir_error err = {0};
    int code = weir__rls_read(message, &request, &err);
    if (code) {
        check_error(code, &err, size);
    } else {
        check_request(&request, text, size);
        check_again(&request);
    }
    code = weir__health_read(message, &part, &err);
    if (code)
        check_error(code, &err, size);
    else
        check_span(part, text, size);
    code = weir__grpc_unframe(text, size, &part, &err);
    EXPECT(code == 0 || code == WEIR_EINVAL || code == WEIR_EUNSUPPORTED, "code %d", code);
    if (code == 0)
        EXPECT(part.data == text + WEIR__GRPC_PREFIX && part.len == size - WEIR__GRPC_PREFIX,
               "a part of a message");
    free(text);
    return 0;
}
