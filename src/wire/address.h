/*
 * IP addresses and networks: text to bytes and back.
 *
 * What an address looks like to a client is many things; here it is one of two: IPv4, also where it
 * came mapped into IPv6 (::ffff:1.2.3.4), or IPv6. A zone (%eth0) and a port behind it are dropped.
 */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct weir__address {
    uint8_t family; /* 4 or 6 */
    uint8_t bytes[16];
};

/* A network: an address whose bits behind the first `bits` are 0. */
struct weir__network {
    struct weir__address address;
    uint8_t bits;
};

/* "1.2.3.4", "1.2.3.4:80", "2001:db8::1", "fe80::1%eth0", "[2001:db8::1]:80"; false: none of these.
 * Numbers of IPv4 with leading zeros are refused: some read them as octal. */
bool weir__address_read(const char *text, size_t len, struct weir__address *ret);
/* An address or ADDRESS/BITS as a file says it: no ports, zones or mapped addresses, no bits set
 * behind the prefix. NULL, or what is wrong. */
const char *weir__network_read(const char *text, size_t len, struct weir__network *ret);
bool weir__network_has(const struct weir__network *network, const struct weir__address *address);
bool weir__networks_overlap(const struct weir__network *a, const struct weir__network *b);
/* Whether all addresses of a are also of b. */
bool weir__network_within(const struct weir__network *a, const struct weir__network *b);

/* As RFC 5952 has it: lower case, the longest run of zeros cut. */
void weir__put_address(struct weir__buffer *buffer, const struct weir__address *address);
/* The address, and /bits unless that is all of them. */
void weir__put_network(struct weir__buffer *buffer, const struct weir__network *network);

#define WEIR__IP_BITS4 32 /* what `ip` means by itself: one address of IPv4, one network of IPv6 */
#define WEIR__IP_BITS6 64
/* The network of an address that has so many bits. */
void weir__put_masked(struct weir__buffer *buffer, struct weir__address address, uint8_t bits4,
                      uint8_t bits6);

#endif
