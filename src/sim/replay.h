/* What replays and the playground share: a private store that is large enough, and keys in CSV. */
#ifndef WEIR_REPLAY_H
#define WEIR_REPLAY_H

#include "base/buffer.h"
#include "weir.h"

/* The URL of a private store that is large enough: that many requests evict nothing in use. */
void weir__replay_store_url(const weir_limit *limit, int64_t requests, struct weir__buffer *ret);

/* A key as a CSV field, quoted where it must be. */
void weir__put_csv(struct weir__buffer *buffer, const char *text, size_t len);

#endif
