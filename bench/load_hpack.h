/*
 * As much of HPACK (RFC 7541) as a client of one gRPC method needs: request blocks of four own
 * fields, literal in a connection's first request and indices after that, as any client sends them;
 * and response blocks read for :status and grpc-status alone.
 */
#ifndef WEIR_BENCH_LOAD_HPACK_H
#define WEIR_BENCH_LOAD_HPACK_H

#include "load.h"

enum { HPACK_ENTRIES = 128 }; /* 4096 bytes hold no more, at 32 and up each */

enum hpack_kind { HPACK_ELSE, HPACK_STATUS, HPACK_GRPC };

struct hpack_field {
    enum hpack_kind kind;
    bool good; /* 200, or 0 */
};

/* The server's dynamic table, the newest entry at `count - 1`. An entry the server has evicted is
 * never referred to, so that nothing need be known about sizes. */
struct hpack {
    struct hpack_field entries[HPACK_ENTRIES];
    unsigned count;
};

struct hpack_found {
    bool status, status_good, grpc, grpc_good;
};

void hpack_request(struct template *ret_first, struct template *ret_later, const char *path,
                   const char *authority);
/* Adds what a block tells to `found`; false: the block is malformed. */
bool hpack_read(struct hpack *it, const uint8_t *block, size_t len, struct hpack_found *found);

#endif
