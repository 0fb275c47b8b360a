/* See address.h. */
#include "wire/address.h"

#include <arpa/inet.h>
#include <string.h>

static int address_bits_of(const struct weir__address *address)
{
    return address->family == 4 ? 32 : 128;
}

/* Clears all but the first bits. */
static void address_mask(struct weir__address *address, int bits)
{
    for (int i = 0; i < 16; i++, bits -= 8) {
        if (bits <= 0)
            address->bytes[i] = 0;
        else if (bits < 8)
            address->bytes[i] &= (uint8_t)(0xff << (8 - bits));
    }
}

/* ---- reading ---- */

static bool address_read_v4(const char *text, size_t len, uint8_t ret[4])
{
    size_t at = 0;
    for (int part = 0; part < 4; part++) {
        size_t start = at;
        int number = 0;
        while (at < len && at < start + 3 && text[at] >= '0' && text[at] <= '9')
            number = number * 10 + (text[at++] - '0');
        if (at == start || number > 255 || (at - start > 1 && text[start] == '0'))
            return false;
        ret[part] = (uint8_t)number;
        if (part < 3 && (at == len || text[at++] != '.'))
            return false;
    }
    return at == len;
}

static bool address_read_v6(const char *text, size_t len, struct weir__address *ret)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    char copy[INET6_ADDRSTRLEN];
    if (len >= sizeof copy || memchr(text, 0, len))
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    if (inet_pton(AF_INET6, copy, ret->bytes) != 1)
        return false;
    ret->family = 6;
    if (!memcmp(ret->bytes, mapped, sizeof mapped)) {
        memcpy(ret->bytes, ret->bytes + 12, 4);
        memset(ret->bytes + 4, 0, 12);
        ret->family = 4;
    }
    return true;
}

static bool address_is_port(const char *text, size_t len)
{
    if (len < 2 || len > 6 || text[0] != ':')
        return false;
    for (size_t i = 1; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
    }
    return true;
}

/* Without its brackets and port, without its zone. False: something else stands around it. */
static bool address_trim(const char **text, size_t *len)
{
    if (*len > 0 && **text == '[') {
        const char *end = memchr(*text, ']', *len);
        size_t behind = end ? *len - (size_t)(end + 1 - *text) : 0;
        if (!end || (behind > 0 && !address_is_port(end + 1, behind)))
            return false;
        *len = (size_t)(end - *text) - 1;
        ++*text;
    }
    const char *zone = memchr(*text, '%', *len);
    if (zone && zone + 1 == *text + *len)
        return false;
    if (zone)
        *len = (size_t)(zone - *text);
    return true;
}

bool weir__address_read(const char *text, size_t len, struct weir__address *ret)
{
    struct weir__address found = {.family = 4};
    const char *colon = memchr(text, ':', len);
    size_t host = colon ? (size_t)(colon - text) : len;
    bool only_colon = colon && !memchr(colon + 1, ':', len - host - 1);
    if (!colon || (only_colon && address_is_port(colon, len - host))) {
        if (!address_read_v4(text, host, found.bytes))
            return false;
    } else if (!address_trim(&text, &len) || !address_read_v6(text, len, &found)) {
        return false;
    }
    *ret = found;
    return true;
}

static bool address_has_rest(const struct weir__address *address, int bits)
{
    struct weir__address masked = *address;
    address_mask(&masked, bits);
    return memcmp(masked.bytes, address->bytes, sizeof masked.bytes) != 0;
}

static bool address_read_bits(const char *text, size_t len, int *ret)
{
    int bits = 0;
    if (len == 0 || len > 3 || (len > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        bits = bits * 10 + (text[i] - '0');
    }
    *ret = bits;
    return true;
}

const char *weir__network_read(const char *text, size_t len, struct weir__network *ret)
{
    struct weir__network found = {.address = {.family = 4}};
    const char *slash = memchr(text, '/', len);
    size_t host = slash ? (size_t)(slash - text) : len;
    bool v6 = memchr(text, ':', host) != NULL;
    if (v6 ? !address_read_v6(text, host, &found.address)
           : !address_read_v4(text, host, found.address.bytes))
        return "expected an address like 10.1.2.3 or 2001:db8::1, or a network like 10.0.0.0/8";
    if (v6 && found.address.family == 4)
        return "an IPv4 address inside IPv6 counts as IPv4; write it like 10.1.2.3";
    int all = address_bits_of(&found.address), bits = all;
    if (slash && (!address_read_bits(slash + 1, len - host - 1, &bits) || bits > all))
        return v6 ? "expected 0 to 128 after the /" : "expected 0 to 32 after the /";
    if (address_has_rest(&found.address, bits))
        return "bits are set after the prefix of the network; write them as 0, like 10.0.0.0/8";
    found.bits = (uint8_t)bits;
    *ret = found;
    return NULL;
}

/* ---- comparing ---- */

static bool address_same_bits(const uint8_t *a, const uint8_t *b, int bits)
{
    int whole = bits / 8, rest = bits % 8;
    return !memcmp(a, b, (size_t)whole) && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

bool weir__network_has(const struct weir__network *network, const struct weir__address *address)
{
    return network->address.family == address->family &&
           address_same_bits(network->address.bytes, address->bytes, network->bits);
}

bool weir__networks_overlap(const struct weir__network *a, const struct weir__network *b)
{
    return a->bits <= b->bits ? weir__network_has(a, &b->address)
                              : weir__network_has(b, &a->address);
}

bool weir__network_within(const struct weir__network *a, const struct weir__network *b)
{
    return a->bits >= b->bits && weir__network_has(b, &a->address);
}

/* ---- writing ---- */

static void address_put_v4(struct weir__buffer *buffer, const uint8_t *bytes)
{
    for (int i = 0; i < 4; i++) {
        weir__put_int(buffer, bytes[i]);
        if (i < 3)
            weir__put(buffer, ".", 1);
    }
}

static void address_put_group(struct weir__buffer *buffer, int group)
{
    static const char digits[] = "0123456789abcdef";
    int shift = 12;
    while (shift > 0 && group >> shift == 0)
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        weir__put(buffer, &digits[(group >> shift) & 15], 1);
}

static void address_put_v6(struct weir__buffer *buffer, const uint8_t *bytes)
{
    int cut = 8, cut_length = 1; /* the first of the longest runs of zeros, two at least */
    for (int i = 0, run = 0; i < 8; i++) {
        run = bytes[2 * i] || bytes[2 * i + 1] ? 0 : run + 1;
        if (run > cut_length) {
            cut_length = run;
            cut = i + 1 - run;
        }
    }
    for (int i = 0; i < 8; i++) {
        if (i == cut) {
            weir__put(buffer, "::", 2);
            i += cut_length - 1;
            continue;
        }
        if (i > 0 && i != cut + cut_length)
            weir__put(buffer, ":", 1);
        address_put_group(buffer, bytes[2 * i] << 8 | bytes[2 * i + 1]);
    }
}

void weir__put_address(struct weir__buffer *buffer, const struct weir__address *address)
{
    if (address->family == 4)
        address_put_v4(buffer, address->bytes);
    else
        address_put_v6(buffer, address->bytes);
}

void weir__put_masked(struct weir__buffer *buffer, struct weir__address address, uint8_t bits4,
                      uint8_t bits6)
{
    struct weir__network network = {address, address.family == 4 ? bits4 : bits6};
    address_mask(&network.address, network.bits);
    weir__put_network(buffer, &network);
}

void weir__put_network(struct weir__buffer *buffer, const struct weir__network *network)
{
    weir__put_address(buffer, &network->address);
    if (network->bits == address_bits_of(&network->address))
        return;
    weir__put(buffer, "/", 1);
    weir__put_int(buffer, network->bits);
}
