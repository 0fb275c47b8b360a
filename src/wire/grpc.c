/* gRPC's framing, codes and texts: see grpc.h. */
#include "wire/grpc.h"

#include <string.h>

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
                          "%zu bytes are no message; one begins with a prefix of %d", len,
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
