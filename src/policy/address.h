/*
 * IP addresses and networks as policies mean them.
 *
 * What an address looks like to a client is many things; here it is one of two: IPv4, also where it
 * came mapped into IPv6 (::ffff:1.2.3.4), or IPv6. A zone (%eth0) and a port behind it are dropped.
 */
#ifndef WEIR_ADDRESS_H
#define WEIR_ADDRESS_H

#include "base/buffer.h"

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

/* Clears all but the first bits. */
void weir__address_mask(struct weir__address *address, int bits);
/* As RFC 5952 has it: lower case, the longest run of zeros cut. */
void weir__put_address(struct weir__buffer *buffer, const struct weir__address *address);
/* The address, and /bits unless that is all of them. */
void weir__put_network(struct weir__buffer *buffer, const struct weir__network *network);

#endif
