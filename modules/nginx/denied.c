/*
 * Denials remembered by a worker, so that a client that hammers does not reach Redis with every
 * request.
 *
 * A table of fixed size, with four places per plan. A plan is identified by a keyed hash, 128 bits,
 * of its keys, limits and waits. The denial of one request holds for its cost and any higher one,
 * that of several only for the same costs (which are part of the hash).
 *
 * What holds:
 *   1. Nothing is denied here that Redis would have allowed, except for a key that was reset or
 *      settled meanwhile: a denial is forgotten when its retry_after is over, counted from before
 *      it was made.
 *   2. What the local fallback denied is not remembered: Redis may be back.
 *   3. A `never` is forgotten after a while, too: limits may change.
 */
#include "ngx_http_weir.h"

#include "base/hash.h"
#include "base/random.h"

#define PLACES 4
#define SETS 1024
#define LIMITS_MAX 4  /* plans with more limits are not remembered */
#define WORTH_US 1000 /* and neither are denials that are over sooner */
#define LONGEST_US 1000000

struct denied_entry {
    uint64_t hash[2];
    int64_t cost; /* of a single request; 0 where there are several */
    int64_t asked_us, until_us;
    weir_decision rows[LIMITS_MAX];
};

struct ngx_http_weir_denied_s {
    uint64_t secret[2];
    struct denied_entry entries[SETS][PLACES];
};

ngx_http_weir_denied_t *ngx_http_weir_denied_make(void)
{
    ngx_http_weir_denied_t *denied = calloc(1, sizeof *denied);
    if (denied && weir__random_bytes(denied->secret, sizeof denied->secret)) {
        free(denied);
        return NULL;
    }
    return denied;
}

void ngx_http_weir_denied_free(ngx_http_weir_denied_t *denied)
{
    free(denied);
}

/* ---- finding ---- */

static bool denied_is_small(const ngx_http_weir_plan_t *plan)
{
    if (plan->depends) /* it may be given back at any moment */
        return false;
    return plan->verb == WEIR__VERB_TAKE && plan->count >= 1 && plan->limits <= LIMITS_MAX;
}

/* What a request was judged by. */
static int64_t denied_judged(const weir_request *request)
{
    return request->least ? request->least : request->cost;
}

static void denied_hash(const ngx_http_weir_denied_t *denied, const ngx_http_weir_plan_t *plan,
                        uint64_t ret[2])
{
    struct {
        uint64_t key[2], limit[2];
        int64_t wait_us, cost;
    } parts[LIMITS_MAX];
    for (ngx_uint_t i = 0; i < plan->count; i++) {
        const weir_request *request = &plan->requests[i];
        weir_key key = request->key;
        const char *text = weir_limit_text(request->limit);
        weir__hash(denied->secret, key.data, key.len, parts[i].key);
        weir__hash(denied->secret, text, strlen(text), parts[i].limit);
        parts[i].wait_us = request->wait_us;
        parts[i].cost = plan->count > 1 ? denied_judged(request) : 0;
    }
    weir__hash(denied->secret, parts, plan->count * sizeof parts[0], ret);
}

static bool denied_is_hash_of(const struct denied_entry *entry, const uint64_t hash[2])
{
    return entry->hash[0] == hash[0] && entry->hash[1] == hash[1];
}

static int64_t denied_cost_of(const ngx_http_weir_plan_t *plan)
{
    return plan->count == 1 ? denied_judged(&plan->requests[0]) : 0;
}

/* ---- the answer ---- */

/* A higher cost has to wait for longer. How long is not known, but when the state is fresh is never
 * too early. A limit that judges by time alone allows it just the same. */
static void denied_raise_cost(const struct weir__rule *rule, weir_decision *row, int64_t cost)
{
    if (weir__algorithm_of(rule)->by_time || (row->allowed && row->remaining >= cost))
        return;
    if (cost > row->limit)
        row->retry_after_us = WEIR_NEVER;
    else if (row->retry_after_us >= 0)
        row->retry_after_us = weir__max(row->retry_after_us, row->reset_after_us);
    row->allowed = false;
}

static weir_decision denied_later(const weir_decision *row, int64_t passed_us)
{
    weir_decision ret = *row;
    ret.time_us += passed_us;
    if (ret.retry_after_us > 0)
        ret.retry_after_us = weir__max(1, ret.retry_after_us - passed_us);
    ret.reset_after_us = weir__max(0, ret.reset_after_us - passed_us);
    return ret;
}

static void denied_answer(const struct denied_entry *entry, int64_t now_us,
                          ngx_http_weir_plan_t *plan)
{
    const weir_limit *limit = plan->requests[0].limit;
    for (ngx_uint_t i = 0; i < plan->limits; i++) {
        plan->rows[i] = denied_later(&entry->rows[i], now_us - entry->asked_us);
        if (denied_cost_of(plan) <= entry->cost) /* also if there are several requests */
            continue;
        int64_t cost = weir__limit_asked(limit, i, denied_cost_of(plan));
        if (cost > weir__limit_asked(limit, i, entry->cost))
            denied_raise_cost(&limit->rules[i], &plan->rows[i], cost);
    }
    weir__fold(plan->rows, plan->limits, &plan->folded);
}

bool ngx_http_weir_denied_find(ngx_http_weir_denied_t *denied, ngx_http_weir_plan_t *plan,
                               int64_t now_us)
{
    uint64_t hash[2];
    if (!denied_is_small(plan))
        return false;
    denied_hash(denied, plan, hash);
    struct denied_entry *set = denied->entries[hash[1] % SETS];
    for (size_t i = 0; i < PLACES; i++) {
        if (denied_is_hash_of(&set[i], hash) && now_us < set[i].until_us &&
            denied_cost_of(plan) >= set[i].cost) {
            denied_answer(&set[i], now_us, plan);
            return true;
        }
    }
    return false;
}

/* ---- remembering ---- */

static struct denied_entry *denied_place_for(struct denied_entry set[PLACES],
                                             const uint64_t hash[2])
{
    struct denied_entry *best = &set[0];
    for (size_t i = 0; i < PLACES; i++) {
        if (denied_is_hash_of(&set[i], hash))
            return &set[i];
        if (set[i].until_us < best->until_us)
            best = &set[i];
    }
    return best;
}

void ngx_http_weir_denied_note(ngx_http_weir_denied_t *denied, const ngx_http_weir_plan_t *plan,
                               int64_t asked_us, int64_t longest_us)
{
    const weir_decision *folded = &plan->folded;
    uint64_t hash[2];
    if (!denied_is_small(plan) || folded->allowed || folded->degraded || plan->failed)
        return;
    int64_t holds_us = weir__min(longest_us, LONGEST_US);
    if (folded->retry_after_us != WEIR_NEVER)
        holds_us = weir__min(holds_us, folded->retry_after_us);
    if (holds_us < WORTH_US)
        return;
    denied_hash(denied, plan, hash);
    assert(plan->limits <= LIMITS_MAX);
    struct denied_entry *entry = denied_place_for(denied->entries[hash[1] % SETS], hash);
    *entry = (struct denied_entry){.hash = {hash[0], hash[1]},
                                   .cost = denied_cost_of(plan),
                                   .asked_us = asked_us,
                                   .until_us = asked_us + holds_us};
    ngx_memcpy(entry->rows, plan->rows, plan->limits * sizeof *plan->rows);
}
