/*
 * The long forms of the verbs. Programs leave out what they do not need, so a cost of 0 is the
 * default here, 1, and WEIR_COST_NONE is none. Inside the library requests say everything
 * (store.h): this file is where the one becomes the other, and where a request's error is filled.
 */
#include "store/store.h"

#include <assert.h>
#include <string.h>

#define CHUNK 32 /* requests of weir_take_many that are put into words at once */

static inline bool request_has_spare(const weir_request *request)
{
    static const uint8_t none[sizeof request->spare_bytes];
    return (request->spare[0] | request->spare[1]) != 0 ||
           memcmp(request->spare_bytes, none, sizeof none) != 0;
}

/* Whether a request says everything, as those of weir_request_make do: it needs no copy. */
static inline bool request_is_whole(const weir_request *request)
{
    return request->cost > 0 && !request->hashed && !request_has_spare(request);
}

int weir__request_read(const weir_store *store, const weir_request *request, weir_request *ret)
{
    *ret = *request;
    ret->error = NULL;
    if (request->hashed)
        ret->key = request->hashed->key;
    ret->cost = request->cost == 0 ? 1 : request->cost == WEIR_COST_NONE ? 0 : request->cost;
    if (request_has_spare(request))
        return weir__fail(request->error, WEIR_EINVAL, 0,
                          "the spare room of the request is not zero: initialise all of it");
    return weir__request_check(store, ret, request->error);
}

/* ---- all or nothing ---- */

int weir__requests_fail(weir_store *store, const weir_request *requests, size_t n, int code)
{
    size_t limits = 0;
    weir_request said;
    for (size_t i = 0; i < n; i++) {
        if (weir__request_read(store, &requests[i], &said))
            return code;
        limits += said.limit->count;
    }
    if (code == WEIR_EINVAL && limits > WEIR_LIMITS_MAX)
        return weir__fail(requests->error, code, 0, "%zu limits in one call: expected 1 to %d",
                          limits, WEIR_LIMITS_MAX);
    const struct weir__budget budget = weir__budget_of(requests, n);
    if (code == WEIR_EINVAL && budget.least > budget.most)
        return weir__fail(
            requests->error, code, 0,
            "invalid least %lld: expected at most %lld, the cost of another request of "
            "the call, since all get the same",
            (long long)budget.least, (long long)budget.most);
    return weir__store_fail(store, code, requests->error);
}

static int requests_decide(weir_store *store, const weir_request *requests, size_t n,
                           enum weir__mode mode, weir_decision *ret)
{
    return mode == WEIR__TAKE ? weir__take_all(store, requests, n, ret)
                              : weir__peek_all(store, requests, n, ret);
}

/* The same for requests that leave something out. */
static __attribute__((noinline)) int requests_decide_copies(weir_store *store,
                                                            const weir_request *requests, size_t n,
                                                            enum weir__mode mode,
                                                            weir_decision *ret)
{
    weir_request said[WEIR_LIMITS_MAX];
    assert(n <= WEIR_LIMITS_MAX);
    for (size_t i = 0; i < n; i++) {
        int code = weir__request_read(store, &requests[i], &said[i]);
        if (code)
            return code;
    }
    return requests_decide(store, said, n, mode, ret);
}

static int decide_all(weir_store *store, const weir_request *requests, size_t n,
                      enum weir__mode mode, weir_decision *ret)
{
    bool whole = true;
    if (!requests || n == 0)
        return WEIR_EINVAL;
    if (!ret)
        return weir__fail(requests->error, WEIR_EINVAL, 0, "the room for the decision is NULL");
    if (n > WEIR_LIMITS_MAX)
        return weir__fail(requests->error, WEIR_EINVAL, 0,
                          "%zu requests in one call: expected 1 to %d", n, WEIR_LIMITS_MAX);
    for (size_t i = 0; i < n && whole; i++)
        whole = request_is_whole(&requests[i]);
    int code = whole ? requests_decide(store, requests, n, mode, ret)
                     : requests_decide_copies(store, requests, n, mode, ret);
    return WEIR__LIKELY(code == 0) ? 0 : weir__requests_fail(store, requests, n, code);
}

int weir_take_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret)
{
    return decide_all(store, requests, n, WEIR__TAKE, ret);
}

int weir_peek_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret)
{
    return decide_all(store, requests, n, WEIR__PEEK, ret);
}

static bool options_have_spare(const weir_wait_options *options)
{
    static const uint8_t none[sizeof options->spare_bytes];
    return (options->spare[0] | options->spare[1] | options->spare[2] | options->spare[3]) != 0 ||
           memcmp(options->spare_bytes, none, sizeof none) != 0;
}

int weir_wait_with(weir_store *store, const weir_request *request, const weir_wait_options *options,
                   weir_decision *ret)
{
    weir_request said;
    if (!request)
        return WEIR_EINVAL;
    int code = weir__request_read(store, request, &said);
    if (code)
        return code;
    if (!ret || !options)
        return weir__fail(request->error, WEIR_EINVAL, 0, "the %s NULL",
                          ret ? "options of the wait are" : "room for the decision is");
    if (options_have_spare(options))
        return weir__fail(request->error, WEIR_EINVAL, 0,
                          "the spare room of the options is not zero: initialise all of it");
    if (said.wait_us != 0 && said.wait_us != WEIR_WAIT_DEFAULT)
        return weir__fail(request->error, WEIR_EINVAL, 0,
                          "the request has a wait_us: leave it out, max_wait_us says how long");
    if (said.least)
        return weir__fail(request->error, WEIR_EINVAL, 0,
                          "a wait takes the whole cost: leave out the least");
    return weir__wait(store, &said, options, ret, request->error);
}

int weir_wait_for(weir_store *store, const weir_request *request, int64_t max_wait_us,
                  weir_decision *ret)
{
    const weir_wait_options options = {.max_wait_us = max_wait_us};
    return weir_wait_with(store, request, &options, ret);
}

/* ---- many ---- */

static int many_fail(weir_store *store, const weir_request *requests, size_t n,
                     const weir_decision *rets)
{
    int first = 0;
    for (size_t i = 0; i < n; i++) {
        if (rets[i].code == 0)
            continue;
        weir__store_fail(store, rets[i].code, requests[i].error);
        first = first ? first : rets[i].code;
    }
    return first;
}

/* Up to CHUNK requests. Those that are sound are decided together. */
static int take_chunk(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                      weir_decision *rets)
{
    weir_request said[CHUNK];
    weir_decision answers[CHUNK];
    size_t at[CHUNK], count = 0;
    int first = 0;
    assert(n <= CHUNK);
    for (size_t i = 0; i < n; i++) {
        int code = weir__request_read(store, &requests[i], &said[count]);
        rets[i] = (weir_decision){.code = code};
        if (code == 0)
            at[count++] = i;
    }
    int code = count > 0 ? weir__take_many_at(store, said, count, now, answers) : 0;
    for (size_t i = 0; i < count; i++) {
        rets[at[i]] = answers[i];
        if (code && answers[i].code)
            weir__store_fail(store, answers[i].code, requests[at[i]].error);
    }
    for (size_t i = 0; i < n && first == 0; i++)
        first = rets[i].code;
    return first;
}

int weir_take_many(weir_store *store, const weir_request *requests, size_t n, weir_decision *rets)
{
    if (!store || (n > 0 && (!requests || !rets)))
        return WEIR_EINVAL;
    bool whole = true;
    for (size_t i = 0; i < n && whole; i++) {
        __builtin_prefetch(requests[i].key.data);
        whole = request_is_whole(&requests[i]) && weir__request_code(&requests[i]) == 0;
    }
    int64_t now = weir__store_now(store);
    if (WEIR__UNLIKELY(now < 0)) {
        for (size_t i = 0; i < n; i++)
            rets[i] = (weir_decision){.code = WEIR_EINVAL};
        return many_fail(store, requests, n, rets);
    }
    if (WEIR__LIKELY(whole)) {
        int code = weir__take_many_at(store, requests, n, now, rets);
        return WEIR__LIKELY(code == 0) ? 0 : many_fail(store, requests, n, rets);
    }
    int first = 0;
    for (size_t done = 0; done < n; done += CHUNK) {
        int code = take_chunk(store, requests + done, n - done < CHUNK ? n - done : CHUNK, now,
                              rets + done);
        first = first ? first : code;
    }
    return first;
}
