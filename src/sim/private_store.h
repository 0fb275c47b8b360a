/* The store of a simulation: private memory that is large enough. */
#ifndef WEIR_PRIVATE_STORE_H
#define WEIR_PRIVATE_STORE_H

#include "base/buffer.h"
#include "weir.h"

/* Its URL: that many requests evict nothing in use. */
void weir__private_store_url(const weir_limit *limit, int64_t requests, struct weir__buffer *ret);

#endif
