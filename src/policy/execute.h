/*
 * Executing a plan against a store: the one place that decides, settles and resets what policies
 * and Envoy's rules ask for. It may block, since a store can be far away; any thread may do it, one
 * at a time for each plan.
 *
 * What holds:
 *   1. All enforced items are charged, or none. Items that are not charged report themselves so.
 *   2. In this order: refunds, the other separate items, the enforced ones, shadows.
 *   3. What cannot be decided fails as a whole, apart from shadows: a shadow denies nothing, its
 *      store neither.
 */
#ifndef WEIR_EXECUTE_H
#define WEIR_EXECUTE_H

#include "policy/plan.h"
#include "store/store.h"

/* Where the rows of limits go; either may be NULL. */
struct weir__plan_rows {
    weir_decision *enforced;                  /* one behind the other, WEIR_LIMITS_MAX at most */
    weir_decision (*shadow)[WEIR_LIMITS_MAX]; /* of each shadow item */
};

/* Decides every item. `mode` PEEK charges nothing. *ret is the enforced items' answer as one, as
 * the policies want it where a local fallback decided. 0 or a code; then nothing is charged. */
int weir__plan_decide(weir_store *store, struct weir__plan *plan, enum weir__mode mode,
                      const struct weir__plan_rows *rows, weir_decision *ret);

/* A local fallback's decision about the items of these owners, as their policies want it: closed
 * wins, open only where all of them say so. */
void weir__plan_apply_fail(const struct weir__plan *plan, uint32_t owners, weir_decision *decision);

/* Corrects what a plan that is made again was charged: the items whose cost came with the request,
 * or all of them if none did. `receipt` is proven, the library's form. WEIR_ESETTLED: all of it was
 * settled before. */
int weir__plan_settle(weir_store *store, const struct weir__plan *plan, const char *receipt,
                      int64_t actual);

/* Forgets the keys of a plan. *ret_there: there was something to forget. */
int weir__plan_reset(weir_store *store, const struct weir__plan *plan, bool *ret_there);

#endif
