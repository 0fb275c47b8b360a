/* See denied.h. */
#include "remote/denied.h"

#include "base/hash.h"
#include "base/random.h"

#include <string.h>

#define WORTH_US 1000 /* denials that are over sooner are not remembered */

int weir__denied_init(struct weir__denied *denied, const struct weir__slicing *slicing)
{
    denied->slicing = *slicing;
    return weir__random_bytes(denied->secret, sizeof denied->secret) ? WEIR_ESYSTEM : 0;
}

/* ---- calls ---- */

/* What a request was judged by. */
static int64_t denied_judged(const weir_request *request)
{
    return request->least ? request->least : request->cost;
}

static bool denied_is_small(const weir_request *requests, size_t n, size_t *ret_limits)
{
    *ret_limits = 0;
    for (size_t i = 0; i < n; i++) {
        *ret_limits += requests[i].limit->count;
        if (*ret_limits > WEIR__DENIED_LIMITS || requests[i].acquire ||
            weir__has_leases(requests[i].limit))
            return false;
    }
    return n >= 1;
}

static struct weir__denied_mark denied_mark(const struct weir__denied *denied,
                                            const uint64_t hash[2])
{
    uint32_t key = hash[1] % WEIR__DENIED_KEYS;
    return (struct weir__denied_mark){key, atomic_load(&denied->turns[key])};
}

bool weir__denied_call(const struct weir__denied *denied, const weir_request *requests, size_t n,
                       struct weir__denied_call *ret)
{
    struct {
        uint64_t key[2], limit[2];
        int64_t wait_us, cost;
    } parts[WEIR__DENIED_LIMITS];
    *ret = (struct weir__denied_call){.requests = requests, .count = n};
    if (!denied_is_small(requests, n, &ret->limits))
        return false;
    for (size_t i = 0; i < n; i++) {
        const weir_request *request = &requests[i];
        const char *text = weir_limit_text(request->limit);
        weir__hash(denied->secret, request->key.data, request->key.len, parts[i].key);
        weir__hash(denied->secret, text, strlen(text), parts[i].limit);
        parts[i].wait_us = request->wait_us;
        parts[i].cost = n > 1 ? denied_judged(request) : 0;
        ret->marks[i] = denied_mark(denied, parts[i].key);
    }
    ret->cost = n == 1 ? denied_judged(&requests[0]) : 0;
    weir__hash(denied->secret, parts, n * sizeof parts[0], ret->hash);
    ret->set = ret->hash[1] % WEIR__DENIED_SETS;
    return true;
}

void weir__denied_forget(struct weir__denied *denied, weir_key key)
{
    uint64_t hash[2];
    weir__hash(denied->secret, key.data, key.len, hash);
    atomic_fetch_add(&denied->turns[hash[1] % WEIR__DENIED_KEYS], 1);
}

static bool denied_is_of(const struct weir__denied_entry *entry,
                         const struct weir__denied_call *call)
{
    return entry->hash[0] == call->hash[0] && entry->hash[1] == call->hash[1];
}

/* Whether nothing was given back to its keys since it was asked. */
static bool denied_stands(const struct weir__denied *denied, const struct weir__denied_entry *entry)
{
    for (uint32_t i = 0; i < entry->keys; i++) {
        if (atomic_load(&denied->turns[entry->marks[i].key]) != entry->marks[i].turn)
            return false;
    }
    return true;
}

/* ---- the answer ---- */

/* A higher cost has to wait for longer. How long is not known, but when the state is fresh is never
 * too early. A limit that judges by time alone allows it just the same. */
static void denied_raise_cost(const struct weir__denied *denied, const struct weir__rule *rule,
                              weir_decision *row, int64_t cost)
{
    struct weir__slice_terms terms;
    bool sliced = weir__slice_terms(&denied->slicing, rule, &terms);
    if (weir__algorithm_of(rule)->by_time || (row->allowed && row->remaining >= cost))
        return;
    if (cost > row->limit - (sliced ? terms.withheld : 0))
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
    ret.local = true;
    return ret;
}

static void denied_answer(const struct weir__denied *denied, const struct weir__denied_entry *entry,
                          const struct weir__denied_call *call, int64_t now_us, weir_decision *rows,
                          weir_decision *ret)
{
    const weir_limit *limit = call->requests[0].limit;
    for (size_t i = 0; i < call->limits; i++) {
        rows[i] = denied_later(&entry->rows[i], weir__max(0, now_us - entry->said_us));
        if (call->cost <= entry->cost) /* also if there are several requests */
            continue;
        int64_t cost = weir__limit_asked(limit, i, call->cost);
        if (cost > weir__limit_asked(limit, i, entry->cost))
            denied_raise_cost(denied, &limit->rules[i], &rows[i], cost);
    }
    weir__fold(rows, call->limits, ret);
}

bool weir__denied_find(const struct weir__denied *denied, const struct weir__denied_call *call,
                       int64_t now_us, weir_decision *rows, weir_decision *ret)
{
    const struct weir__denied_entry *set = denied->entries[call->set];
    for (size_t i = 0; i < WEIR__DENIED_PLACES; i++) {
        if (denied_is_of(&set[i], call) && now_us < set[i].until_us && call->cost >= set[i].cost &&
            denied_stands(denied, &set[i])) {
            denied_answer(denied, &set[i], call, now_us, rows, ret);
            return true;
        }
    }
    return false;
}

/* ---- remembering ---- */

static struct weir__denied_entry *denied_place_for(struct weir__denied *denied,
                                                   const struct weir__denied_call *call)
{
    struct weir__denied_entry *set = denied->entries[call->set], *best = &set[0];
    for (size_t i = 0; i < WEIR__DENIED_PLACES; i++) {
        if (denied_is_of(&set[i], call))
            return &set[i];
        if (set[i].until_us < best->until_us)
            best = &set[i];
    }
    return best;
}

void weir__denied_note(struct weir__denied *denied, const struct weir__denied_call *call,
                       const weir_decision *rows, const weir_decision *folded, int64_t asked_us,
                       int64_t said_us, int64_t longest_us)
{
    int64_t holds_us = longest_us;
    if (folded->allowed || folded->degraded || call->limits == 0)
        return;
    if (folded->retry_after_us != WEIR_NEVER)
        holds_us = weir__min(holds_us, folded->retry_after_us);
    if (holds_us < WORTH_US)
        return;
    assert(call->limits <= WEIR__DENIED_LIMITS);
    struct weir__denied_entry *entry = denied_place_for(denied, call);
    *entry = (struct weir__denied_entry){.hash = {call->hash[0], call->hash[1]},
                                         .cost = call->cost,
                                         .said_us = said_us,
                                         .until_us = asked_us + holds_us,
                                         .keys = (uint32_t)call->count};
    memcpy(entry->marks, call->marks, sizeof entry->marks);
    memcpy(entry->rows, rows, call->limits * sizeof *rows);
}
