/* Correcting a charge, named by its receipt. */
#include "limit/receipt.h"
#include "store/store.h"

static int settle_check(weir_store *store, weir_key key, const weir_limit *limit,
                        const char *receipt, int64_t actual, struct weir__correction *ret,
                        weir_error *err)
{
    weir_request request = weir_request_make(key, limit);
    request.cost = actual;
    int code = weir__request_check(store, &request, err);
    if (code)
        return code;
    if (!receipt)
        return weir__fail(err, WEIR_EINVAL, 0, "the receipt is NULL");
    if (!weir__receipt_read(receipt, ret))
        return weir__fail(err, WEIR_ERECEIPT, 0,
                          "invalid receipt \"%.64s\": expected what the take gave, like %s",
                          receipt, "w3-1700000000000000-1-68719476736");
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
    int code = settle_check(store, key, limit, receipt, actual_cost, &correction, err);
    if (code || (correction.actual == correction.charged && !correction.id))
        return code;
    correction.now_us = weir__store_now(store);
    if (correction.now_us < 0)
        return weir__store_fail(store, WEIR_EINVAL, err);
    int state = weir__store_begin(store);
    code = store->engine->settle(store, key, limit, &correction);
    weir__store_end(store, state);
    return code ? weir__store_fail(store, code, err) : 0;
}
