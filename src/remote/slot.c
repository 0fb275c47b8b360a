/* Slots: CRC16 (polynomial 0x1021, start 0) of the key or of its hash tag, modulo 16384. */
#include "remote/slot.h"

#include <stdbool.h>

/* A key in two parts, read as one. */
struct joined {
    const char *prefix;
    size_t prefix_len;
    const char *name;
};

static char at(const struct joined *key, size_t i)
{
    return i < key->prefix_len ? key->prefix[i] : key->name[i - key->prefix_len];
}

/* Four bits at a time. */
static uint16_t crc16(const struct joined *key, size_t from, size_t to)
{
    static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                       0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                       0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    uint16_t crc = 0;
    for (size_t i = from; i < to; i++) {
        uint8_t byte = (uint8_t)at(key, i);
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte >> 4) & 15]);
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte) & 15]);
    }
    return crc;
}

/* The first place of a character from a place on, or `len`. */
static size_t find(const struct joined *key, size_t from, size_t len, char wanted)
{
    while (from < len && at(key, from) != wanted)
        from++;
    return from;
}

uint16_t weir__slot_of(const char *prefix, size_t prefix_len, const char *name, size_t name_len)
{
    struct joined key = {prefix, prefix_len, name};
    size_t len = prefix_len + name_len;
    size_t open = find(&key, 0, len, '{');
    size_t close = find(&key, open, len, '}');
    bool tagged = close < len && close > open + 1;
    uint16_t crc = tagged ? crc16(&key, open + 1, close) : crc16(&key, 0, len);
    return crc % WEIR__HASH_SLOTS;
}
