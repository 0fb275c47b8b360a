#include "load_hpack.h"

#include <string.h>

enum { STATIC_COUNT = 61, STATIC_STATUS = 8, STATIC_STATUS_END = 14 };

/* ---- requests ---- */

static void put_string(struct template *to, const char *text)
{
    size_t len = strlen(text);
    if (len > 126)
        load_die("a header of more than 126 bytes: %s", text);
    uint8_t head = (uint8_t)len;
    template_add(to, &head, 1);
    template_add(to, text, len);
}

/* :method POST, :scheme http, :path, :authority, te trailers, content-type application/grpc. */
void hpack_request(struct template *ret_first, struct template *ret_later, const char *path,
                   const char *authority)
{
    template_add(ret_first, "\x83\x86\x44", 3);
    put_string(ret_first, path);
    template_add(ret_first, "\x41", 1);
    put_string(ret_first, authority);
    template_add(ret_first, "\x40", 1);
    put_string(ret_first, "te");
    put_string(ret_first, "trailers");
    template_add(ret_first, "\x5f", 1);
    put_string(ret_first, "application/grpc");
    template_add(ret_later, "\x83\x86\xc1\xc0\xbf\xbe", 6); /* 65 to 62, the newest last */
}

/* ---- responses ---- */

struct reader {
    const uint8_t *p, *end;
    bool broken;
};

static uint32_t read_number(struct reader *in, unsigned bits)
{
    uint32_t mask = (1u << bits) - 1, value = *in->p++ & mask;
    if (value < mask)
        return value;
    for (unsigned shift = 0; in->p < in->end && shift < 28; shift += 7) {
        uint8_t byte = *in->p++;
        value += (uint32_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    in->broken = true;
    return 0;
}

struct string {
    const uint8_t *bytes;
    uint32_t len;
    bool huffman;
};

static struct string read_string(struct reader *in)
{
    struct string it = {0};
    if (in->p == in->end) {
        in->broken = true;
        return it;
    }
    it.huffman = *in->p & 0x80;
    it.len = read_number(in, 7);
    if (in->broken || it.len > (size_t)(in->end - in->p)) {
        in->broken = true;
        return (struct string){0};
    }
    it.bytes = in->p;
    in->p += it.len;
    return it;
}

static bool is(struct string it, bool huffman, const void *bytes, size_t len)
{
    return it.huffman == huffman && it.len == len && memcmp(it.bytes, bytes, len) == 0;
}

static enum hpack_kind kind_of_name(struct string name)
{
    static const char plain[] = "grpc-status", status[] = ":status";
    static const uint8_t packed[] = {0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f};
    if (is(name, false, plain, sizeof plain - 1) || is(name, true, packed, sizeof packed))
        return HPACK_GRPC;
    return is(name, false, status, sizeof status - 1) ? HPACK_STATUS : HPACK_ELSE;
}

static bool good_value(enum hpack_kind kind, struct string value)
{
    if (kind == HPACK_GRPC)
        return is(value, false, "0", 1) || is(value, true, "\x07", 1);
    return is(value, false, "200", 3) || is(value, true, "\x10\x01", 2);
}

static struct hpack_field look_up(const struct hpack *it, uint32_t index, struct reader *in)
{
    if (index >= STATIC_STATUS && index <= STATIC_STATUS_END)
        return (struct hpack_field){HPACK_STATUS, index == STATIC_STATUS};
    if (index <= STATIC_COUNT)
        return (struct hpack_field){HPACK_ELSE, false};
    uint32_t back = index - STATIC_COUNT;
    if (back > it->count || back > HPACK_ENTRIES) {
        in->broken = true;
        return (struct hpack_field){HPACK_ELSE, false};
    }
    return it->entries[(it->count - back) % HPACK_ENTRIES];
}

static struct hpack_field read_literal(const struct hpack *it, struct reader *in, unsigned bits)
{
    uint32_t index = read_number(in, bits);
    enum hpack_kind kind = index ? look_up(it, index, in).kind : kind_of_name(read_string(in));
    struct string value = read_string(in);
    return (struct hpack_field){kind, !in->broken && good_value(kind, value)};
}

static void note(struct hpack_found *found, struct hpack_field field)
{
    if (field.kind == HPACK_STATUS) {
        found->status = true;
        found->status_good = field.good;
    } else if (field.kind == HPACK_GRPC) {
        found->grpc = true;
        found->grpc_good = field.good;
    }
}

bool hpack_read(struct hpack *it, const uint8_t *block, size_t len, struct hpack_found *found)
{
    struct reader in = {.p = block, .end = block + len};
    while (in.p < in.end && !in.broken) {
        uint8_t head = *in.p;
        if (head & 0x80) {
            note(found, look_up(it, read_number(&in, 7), &in));
        } else if (head & 0x40) {
            struct hpack_field field = read_literal(it, &in, 6);
            it->entries[it->count++ % HPACK_ENTRIES] = field;
            note(found, field);
        } else if (head & 0x20) {
            read_number(&in, 5); /* the table's size: what is left is told by use */
        } else {
            note(found, read_literal(it, &in, 4));
        }
    }
    return !in.broken;
}
