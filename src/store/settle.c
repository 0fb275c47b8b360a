/* Correcting a charge, named by its receipt. */
#include "limit/receipt.h"
#include "store/store.h"

static int check(weir_key key, const weir_limit *limit, const char *receipt, int64_t actual,
                 struct weir__correction *ret, weir_error *err)
{
    if (!limit || !weir__key_in_bounds(key))
        return weir__fail(err, WEIR_EINVAL, 0, "a key has 1 to %d bytes, a limit is needed",
                          WEIR_KEY_MAX);
    if (actual < 0 || actual > WEIR_COST_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "the actual cost %lld is not within 0 … 10^12",
                          (long long)actual);
    if (!receipt || !weir__receipt_read(receipt, ret))
        return weir__fail(err, WEIR_ERECEIPT, 0,
                          "\"%.64s\" is no receipt; pass what the take printed, like %s",
                          receipt ? receipt : "", "w3-1700000000000000-1-68719476736");
    for (size_t i = 0; i < limit->count; i++) {
        if (!weir__algorithm_of(&limit->rules[i])->settle)
            return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                              "concurrent limits cannot be settled: release the lease instead");
    }
    ret->actual = actual;
    return 0;
}

int weir_settle(weir_store *store, weir_key key, const weir_limit *limit, const char *receipt,
                int64_t actual_cost, weir_error *err)
{
    struct weir__correction correction = {0};
    int code = check(key, limit, receipt, actual_cost, &correction, err);
    if (code || (correction.actual == correction.charged && !correction.id))
        return code;
    correction.now_us = weir__store_now(store);
    if (correction.now_us < 0)
        return weir__fail(err, WEIR_EINVAL, 0, "the clock is out of bounds");
    code = store->engine->settle(store, key, limit, &correction);
    weir_error why;
    if (code && weir__store_why(store, &why))
        return weir__fail(err, code, 0, "%s: %s", weir_strerror(code), why.message);
    return code ? weir__fail(err, code, 0, "%s", weir_strerror(code)) : 0;
}
