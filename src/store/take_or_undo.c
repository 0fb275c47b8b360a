/* See take_or_undo.h. */
#include "store/take_or_undo.h"

#include "limit/receipt.h"

#include <assert.h>

/* ---- one part ---- */

static int part_decide(const struct weir__taking *taking, struct weir__part *part,
                       enum weir__mode mode)
{
    assert(part->store && part->count > 0 && !part->taken);
    part->decision = (weir_decision){0};
    if (taking->decide)
        return taking->decide(taking, part, mode);
    return mode == WEIR__TAKE
               ? weir__take_all(part->store, part->requests, part->count, &part->decision)
               : weir__peek_all(part->store, part->requests, part->count, &part->decision);
}

/* The slot that a request got; 0: none. */
static uint64_t part_lease(const struct weir__part *part, const weir_request *request)
{
    if (!request->acquire)
        return 0;
    for (size_t i = 0; request->detail && i < request->limit->count; i++) {
        if (request->detail[i].lease)
            return request->detail[i].lease;
    }
    return part->decision.lease;
}

/* The bit of the limit that has leases, or 0. */
static uint32_t uncharge_leased(const weir_limit *limit)
{
    size_t i = weir__leased(limit);
    return i < limit->count ? UINT32_C(1) << i : 0;
}

int weir__uncharge(weir_store *store, weir_key key, const weir_limit *limit, int64_t time_us,
                   int64_t granted, uint64_t id)
{
    char receipt[WEIR_RECEIPT_SIZE]; /* never leaves here */
    char text[WEIR__LIMITS_TEXT_MAX];
    weir_limit part;
    int64_t charged;
    int first = 0;
    uint32_t left = (UINT32_C(1) << limit->count) - 1;
    for (left &= ~uncharge_leased(limit); left;) {
        uint32_t alike = weir__limit_charged_alike(limit, &left, granted, &charged);
        weir__limit_part(limit, alike, text, &part);
        weir__receipt_write(time_us, charged, id, receipt);
        int code = weir_settle(store, key, &part, receipt, 0, NULL);
        if (code != WEIR_ESETTLED) /* else an earlier try did it */
            first = first ? first : code;
    }
    return first;
}

/* What a request of a part was granted. */
static int64_t part_granted(const struct weir__part *part, const weir_request *request)
{
    return request->least ? part->decision.granted : request->cost;
}

int weir__part_give_back(const struct weir__part *part, const weir_request *request,
                         const weir_limit *limit)
{
    uint64_t lease = part_lease(part, request);
    if (!lease && weir__has_leases(limit)) /* nobody can name what it holds */
        return WEIR_EUNSUPPORTED;
    int released = lease ? weir_release(part->store, request->key, limit, lease) : 0;
    int settled = weir__uncharge(part->store, request->key, limit, part->decision.time_us,
                                 part_granted(part, request), 0);
    return released ? released : settled;
}

/* A decision as if nothing had been charged. */
static void part_uncharge(weir_decision *decision, int64_t cost)
{
    decision->remaining = weir__min(decision->limit, decision->remaining + cost);
    decision->charged = 0;
    decision->lease = 0;
}

/* What the limit was charged that bound a part. */
static int64_t part_charged_at_binding(const struct weir__part *part)
{
    const weir_request *request = part->requests;
    size_t i = part->decision.binding;
    for (; i >= request->limit->count; request++)
        i -= request->limit->count;
    assert(request < part->requests + part->count);
    return weir__limit_asked(request->limit, i, part_granted(part, request));
}

/* Gives back the requests of a part. What a local fallback decided charged its store nothing,
 * unless the caller knows better. */
static void part_undo(const struct weir__taking *taking, struct weir__part *part)
{
    assert(part->taken && part->decision.allowed);
    bool whole = true;
    int64_t charged = part_charged_at_binding(part);
    for (size_t i = 0; i < part->count; i++) {
        const weir_request *request = &part->requests[i];
        int code = 0;
        if (taking->undo)
            code = taking->undo(taking, part, request);
        else if (!part->decision.degraded)
            code = weir__part_give_back(part, request, request->limit);
        whole = whole && code == 0;
        for (size_t j = 0; code == 0 && request->detail && j < request->limit->count; j++)
            part_uncharge(&request->detail[j], request->detail[j].granted);
    }
    if (!whole)
        return;
    part->taken = false;
    part_uncharge(&part->decision, charged);
}

/* ---- all of them ---- */

/* Whether a part that is denied denies the whole. */
static bool taking_is_denied(struct weir__taking *taking, const struct weir__part *part)
{
    if (part->decision.allowed)
        return false;
    if (!part->quota)
        return true;
    assert(taking->quotas > 0);
    return --taking->quotas == 0;
}

/* Looks at all parts. *ret: one would deny. */
static int taking_peek(const struct weir__taking *taking, bool *ret)
{
    struct weir__taking look = *taking;
    for (size_t i = 0; i < taking->count; i++) {
        int code = part_decide(taking, &taking->parts[i], WEIR__PEEK);
        if (code)
            return code;
        if (taking_is_denied(&look, &taking->parts[i]))
            *ret = true;
    }
    return 0;
}

int weir__take_or_undo(struct weir__taking *taking)
{
    int code = 0;
    assert(taking->count > 0);
    for (size_t i = 0; i < taking->count; i++)
        taking->parts[i].taken = false;
    if (taking->peek_first && taking->count > 1 && !taking->denied) {
        code = taking_peek(taking, &taking->denied);
        if (code || taking->denied)
            return code;
    }
    for (size_t i = 0; i < taking->count && code == 0; i++) {
        struct weir__part *part = &taking->parts[i];
        enum weir__mode mode = taking->denied ? WEIR__PEEK : WEIR__TAKE;
        code = part_decide(taking, part, mode);
        part->taken = code == 0 && mode == WEIR__TAKE && part->decision.allowed;
        if (code == 0 && taking_is_denied(taking, part))
            taking->denied = true;
    }
    for (size_t i = 0; i < taking->count && (code || taking->denied); i++) {
        if (taking->parts[i].taken)
            part_undo(taking, &taking->parts[i]);
    }
    return code;
}
