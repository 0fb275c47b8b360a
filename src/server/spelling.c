/*
 * One limit that two hosts write in two ways, 500/s and 30000/m, is two states in the Redis that
 * they share, and twice as much passes. All states of a key are one value there, so that looking at
 * a key that this server charges shows whether somebody charges it under another limit.
 *
 *     loop:   a key of a decision, where one is wanted        server_spelling_offer
 *     worker: looks at it, tells, wants the next one          server_spelling_look
 *
 * What holds:
 *   1. Decisions wait for nothing: a loop offers a copy, and only if the lock is free.
 *   2. One key at a time, a second after the other at first, then twice as long each time, up to a
 *      minute. One line per limit.
 *   3. A state that an earlier limit left behind is not told: it must be newer than the first
 *      decision by the rules in force, by the clock of the store.
 */
#include "server/conn.h"

#include "base/duration.h"
#include "core/show.h"
#include "store/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPELLING_KEY_MAX 256
#define SPELLING_FIRST_US INT64_C(1000000)
#define SPELLING_MOST_US INT64_C(60000000)

struct server_spelling {
    atomic_bool wanted;
    pthread_mutex_t lock; /* protects what was offered */
    struct spelling_key {
        struct server_rules *rules; /* held; NULL: nothing was offered */
        const struct weir__policy *policy;
        const struct weir__entry *entry;
        int64_t time_us; /* of its decision */
        size_t len;
        char text[SPELLING_KEY_MAX];
    } offered;
    /* the worker's */
    uint64_t generation; /* of the rules that `since_us` is of */
    int64_t since_us;    /* their first decision that was offered */
    int64_t next_us, gap_us;
};

int server_spelling_create(struct server_spelling **ret, weir_error *err)
{
    struct server_spelling *spelling = calloc(1, sizeof *spelling);
    if (!spelling)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for looking at keys");
    pthread_mutex_init(&spelling->lock, NULL);
    spelling->gap_us = SPELLING_FIRST_US;
    *ret = spelling;
    return 0;
}

void server_spelling_destroy(struct server_spelling *spelling)
{
    if (!spelling)
        return;
    if (spelling->offered.rules)
        server_rules_release(spelling->offered.rules);
    pthread_mutex_destroy(&spelling->lock);
    free(spelling);
}

void server_spelling_offer(struct server_spelling *spelling, struct server_rules *rules,
                           const struct weir__plan *plan)
{
    if (WEIR__LIKELY(!spelling || !atomic_load_explicit(&spelling->wanted, memory_order_relaxed)) ||
        plan->enforced_count == 0)
        return;
    const size_t any = (size_t)plan->enforced[0].decision.time_us % plan->enforced_count;
    const struct weir__item *item = &plan->enforced[any];
    if (item->decision.degraded || item->decision.local || item->key.len > SPELLING_KEY_MAX ||
        pthread_mutex_trylock(&spelling->lock))
        return;
    struct spelling_key *key = &spelling->offered;
    if (!key->rules) {
        key->rules = server_rules_hold(rules);
        key->policy = item->policy;
        key->entry = item->entry;
        key->time_us = item->decision.time_us;
        key->len = item->key.len;
        memcpy(key->text, item->key.data, key->len);
        atomic_store(&spelling->wanted, false);
    }
    pthread_mutex_unlock(&spelling->lock);
}

static bool spelling_has(const weir_limit *limit, const struct weir__shown *state)
{
    bool found = false;
    for (size_t i = 0; i < limit->count && !found; i++)
        found = weir__shown_under(state, 1, &limit->rules[i]) != NULL;
    return found;
}

/* Whether the entry charges this state, for whomever. */
static bool spelling_knows(const struct weir__entry *entry, const struct weir__shown *state)
{
    bool known = spelling_has(entry->limit, state);
    for (size_t i = 0; i < entry->override_count && !known; i++)
        known = spelling_has(entry->overrides[i].limit, state);
    return known;
}

static void spelling_tell(const struct spelling_key *key, const struct weir__shown *state)
{
    char text[SPELLING_KEY_MAX + 1], limit[128], name[2 * WEIR__POLICY_NAME_MAX + 2];
    struct weir__buffer out = weir__buffer_over(limit, sizeof limit);
    for (size_t i = 0; i < key->len; i++) /* it comes from strangers */
        text[i] =
            key->text[i] >= ' ' && key->text[i] < 0x7f && key->text[i] != '"' ? key->text[i] : '?';
    text[key->len] = 0;
    weir__put_text(&out, weir__kind_name((enum weir__kind)state->rule.kind));
    if (state->count > 0)
        weir__put_format(&out, " %lld/", (long long)state->count);
    else
        weir__put_text(&out, " …/");
    weir__put_duration(&out, state->rule.period_us, true);
    snprintf(name, sizeof name, "%s/%s", key->policy->name, key->entry->name);
    server_report_once(name,
                       "warning: policy %s, limit %s: the key \"%s\" is also charged under %s, "
                       "which is not a limit of this policy: somebody writes it in another way, so "
                       "more passes; write it the same way everywhere",
                       key->policy->name, key->entry->name, text, limit);
}

/* Whether somebody has charged it since. The time of smooth and warmup is when the next request is
 * free, which may be long after the last charge: they are never told. */
static bool spelling_is_later(const struct weir__shown *state, int64_t since_us)
{
    return weir__algorithm_of(&state->rule)->shape != WEIR__SHAPE_PERMITS &&
           state->at_us > since_us;
}

static void spelling_judge(struct server_spelling *spelling, weir_store *store,
                           const struct spelling_key *key)
{
    struct weir__shown states[WEIR__SHOWN_MAX];
    size_t count = 0;
    if (spelling->since_us == 0 || spelling->generation != key->rules->generation) {
        spelling->generation = key->rules->generation;
        spelling->since_us = key->time_us;
    }
    if (weir__store_show(store, weir_key_bytes(key->text, key->len), states, &count))
        return;
    for (size_t i = 0; i < count; i++) {
        if (spelling_is_later(&states[i], spelling->since_us) &&
            !spelling_knows(key->entry, &states[i])) {
            spelling_tell(key, &states[i]);
            return;
        }
    }
}

void server_spelling_look(struct server *server)
{
    struct server_spelling *spelling = server->spelling;
    const int64_t now_us = weir__mono_us();
    struct spelling_key key;
    if (!spelling || atomic_load(&server->draining))
        return;
    pthread_mutex_lock(&spelling->lock);
    key = spelling->offered;
    spelling->offered.rules = NULL;
    pthread_mutex_unlock(&spelling->lock);
    if (key.rules) {
        spelling_judge(spelling, server->store, &key);
        server_rules_release(key.rules);
        spelling->next_us = now_us + spelling->gap_us;
        spelling->gap_us = weir__min(2 * spelling->gap_us, SPELLING_MOST_US);
    }
    if (now_us >= spelling->next_us)
        atomic_store(&spelling->wanted, true);
}
