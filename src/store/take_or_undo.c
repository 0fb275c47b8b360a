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

/* Settles to nothing what a request was charged by these limits. */
static int part_settle(const struct weir__part *part, const weir_request *request,
                       const weir_limit *limit)
{
    char receipt[WEIR_RECEIPT_SIZE]; /* never leaves here */
    weir__receipt_write(part->decision.time_us, request->cost, 0, receipt);
    return weir_settle(part->store, request->key, limit, receipt, 0, NULL);
}

void weir__limit_beside_leases(const weir_limit *limit, char text[WEIR__LIMITS_TEXT_MAX],
                               weir_limit *ret)
{
    struct weir__buffer buffer = weir__buffer_over(text, WEIR__LIMITS_TEXT_MAX);
    size_t leased = weir__leased(limit);
    *ret = (weir_limit){.text = text};
    text[0] = 0;
    for (size_t i = 0; i < limit->count; i++) {
        if (i == leased)
            continue;
        weir__put_text(&buffer, ret->count ? ", " : "");
        weir__put_rule(&buffer, &limit->rules[i]);
        ret->rules[ret->count++] = limit->rules[i];
    }
    assert(!buffer.cut);
}

/* The same for a key with a concurrent limit: its slot is released, the limits beside it are
 * settled. */
static int part_release(const struct weir__part *part, const weir_request *request,
                        const weir_limit *limit, uint64_t lease)
{
    char text[WEIR__LIMITS_TEXT_MAX];
    weir_limit others;
    weir__limit_beside_leases(limit, text, &others);
    int released = weir_release(part->store, request->key, limit, lease);
    int settled = others.count ? part_settle(part, request, &others) : 0;
    return released ? released : settled;
}

int weir__part_give_back(const struct weir__part *part, const weir_request *request,
                         const weir_limit *limit)
{
    uint64_t lease = part_lease(part, request);
    return lease ? part_release(part, request, limit, lease) : part_settle(part, request, limit);
}

/* A decision as if nothing had been charged. */
static void part_uncharge(weir_decision *decision, int64_t cost)
{
    decision->remaining = weir__min(decision->limit, decision->remaining + cost);
    decision->charged = 0;
    decision->lease = 0;
}

/* Gives back the requests of a part. What a local fallback decided charged its store nothing,
 * unless the caller knows better. */
static void part_undo(const struct weir__taking *taking, struct weir__part *part)
{
    assert(part->taken && part->decision.allowed);
    bool whole = true;
    for (size_t i = 0; i < part->count; i++) {
        const weir_request *request = &part->requests[i];
        int code = 0;
        if (taking->undo)
            code = taking->undo(taking, part, request);
        else if (!part->decision.degraded)
            code = weir__part_give_back(part, request, request->limit);
        whole = whole && code == 0;
        for (size_t j = 0; code == 0 && request->detail && j < request->limit->count; j++)
            part_uncharge(&request->detail[j], request->cost);
    }
    if (!whole)
        return;
    part->taken = false;
    part_uncharge(&part->decision, part->requests[0].cost);
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
