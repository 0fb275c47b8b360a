/* Receipts name a charge: `w1-<time µs>-<charged>`. Opaque to callers, trusted by library and Redis. */
#ifndef WEIR_RECEIPT_H
#define WEIR_RECEIPT_H

#include "core/core.h"

/* Reads a receipt's time and charge; false: it is none. weir_receipt (weir.h) writes them. */
bool weir__receipt_read(const char *text, struct weir__correction *ret);

#endif
