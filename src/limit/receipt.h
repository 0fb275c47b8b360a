/*
 * Receipts name a charge: `w3-<time µs>-<charged>-<id>`, the id 40 random bits. Where nothing was
 * charged, and in the older form, the id is missing: `w1-<time µs>-<charged>`. What the local
 * fallback allowed has an id, and 0 as charged: a settle charges its real cost, once. Opaque to
 * callers, trusted by library and Redis.
 */
#ifndef WEIR_RECEIPT_H
#define WEIR_RECEIPT_H

#include "core/core.h"

#define WEIR__RECEIPT_ID_MAX ((UINT64_C(1) << 40) - 1)

/* Reads a receipt; false: it is not a receipt. weir_receipt (weir.h) writes them. */
bool weir__receipt_read(const char *text, struct weir__correction *ret);
/* The receipt of a charge, with its id if that is not 0. */
void weir__receipt_write(int64_t time_us, int64_t charged, uint64_t id,
                         char ret[WEIR_RECEIPT_SIZE]);
/* The id of a decision's receipt, given now if it has none; 0: nothing was charged. */
uint64_t weir__receipt_id(weir_decision *decision);
void weir__receipt_set_id(weir_decision *decision, uint64_t id);
uint64_t weir__receipt_draw_id(void);

#endif
