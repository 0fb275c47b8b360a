/* What was decided is counted, ranked and logged: by the loop, when a batch is back. */
#include "server/conn.h"

#include "base/clock.h"
#include "store/store.h"
#include "wire/json.h"

#include <string.h>

#define LONG_BATCH 8
#define RANKED_ONE_IN 4

int64_t server_decided_us(const weir_decision *decision)
{
    bool here = decision->local || !decision->time_us;
    return here ? weir__clock_us() : decision->time_us;
}

static void count_log_decision(const struct server_conn *conn, enum server_protocol protocol,
                               struct server_log_record *record, const weir_decision *decision)
{
    record->time_us = server_decided_us(decision);
    record->protocol = protocol;
    record->texts[SERVER_LOG_CLIENT] = (struct weir__span){conn->peer_text, conn->peer_text_len};
    record->decision = decision;
    record->allowed = decision->allowed;
    server_access_log_put(conn->thread->log, record);
}

/* Of a long pipeline every fourth key is ranked, and stands for four: ranking one takes as long as
 * deciding it. Where the first is, the batch's time tells, which nobody chooses. */
static unsigned count_times_ranked(const struct server_batch *batch, size_t i)
{
    if (batch->count < LONG_BATCH)
        return 1;
    return (i + (size_t)batch->began_us) % RANKED_ONE_IN == 0 ? RANKED_ONE_IN : 0;
}

static void count_simple(struct server_thread *thread, const struct server_batch *batch, size_t i,
                         const weir_request *request, const weir_decision *decision)
{
    unsigned times = count_times_ranked(batch, i);
    weir_key key = request->key;
    server_count_decision(thread->counters, SERVER_SERIES_TOTAL, decision->allowed,
                          decision->degraded);
    server_count_decision(thread->counters, SERVER_SERIES_ADHOC, decision->allowed,
                          decision->degraded);
    if (times)
        server_top_record_times(thread->top, SERVER_TOP_ADHOC, key.data, key.len,
                                !decision->allowed, times);
    if (thread->log && server_access_log_wants(thread->log, decision->allowed)) {
        struct server_log_record record = {.texts[SERVER_LOG_KEY] = {key.data, key.len},
                                           .cost = request->cost,
                                           .verdict = WEIR__VERDICT_LIMITS};
        count_log_decision(batch->conn, batch->conn->protocol->counted_as, &record, decision);
    }
}

/* ---- plans ---- */

/* Whether the local fallback decided one of the items that are of this policy; NULL: of any. */
static bool count_is_degraded(const struct weir__item *items, size_t count,
                              const struct weir__policy *policy)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i].decision.degraded && (!policy || items[i].policy == policy))
            return true;
    }
    return false;
}

bool server_plan_shadow_degraded(const struct weir__plan *plan)
{
    return count_is_degraded(plan->shadow, plan->shadow_count, NULL);
}

/* A dry run that decides nothing must not look like one that denies nothing. */
static void count_report_undecided(struct server_thread *thread, const struct weir__item *item)
{
    weir_error why;
    bool said = weir__store_why(thread->server->store, &why);
    server_report_once(item->policy->name,
                       "warning: policy \"%s\": limit \"%s\" is in shadow and the store did not "
                       "decide it, so it counts as allowed: %s%s%.200s; reported once per policy",
                       item->policy->name, item->entry->name, weir_strerror(item->decision.code),
                       said ? ": " : "", said ? why.message : "");
}

/* A dry run on a store that does not decide says nothing about it: so a policy counts as degraded
 * for its shadows, too, unless it does already. */
static void count_shadows(struct server_thread *thread, const struct server_rules *rules,
                          const struct weir__plan *plan)
{
    for (size_t i = 0; i < plan->lacking_count; i++)
        server_count_shadow(thread->counters, rules->series.entries[plan->lacking[i].entry->index],
                            false);
    for (size_t i = 0; i < plan->shadow_count; i++) {
        const struct weir__item *it = &plan->shadow[i];
        if (WEIR__UNLIKELY(it->decision.code))
            count_report_undecided(thread, it);
        if (WEIR__UNLIKELY(it->decision.degraded) &&
            !count_is_degraded(plan->shadow, i, it->policy) &&
            !count_is_degraded(plan->enforced, plan->enforced_count, it->policy))
            server_count_degraded(thread->counters, rules->series.policies[it->policy->index]);
        server_count_shadow(thread->counters, rules->series.entries[it->entry->index],
                            it->decision.allowed);
        if (!it->decision.allowed)
            server_top_record(thread->top, rules->shadow_tops[it->policy->index], it->key.data,
                              it->key.len, true);
    }
}

void server_plan_count(struct server_thread *thread, const struct server_rules *rules,
                       const struct weir__plan *plan, bool allowed)
{
    for (size_t i = 0; i < plan->enforced_count; i++) {
        const struct weir__item *it = &plan->enforced[i];
        if (i == 0 || it->policy != plan->enforced[i - 1].policy)
            server_count_decision(
                thread->counters, rules->series.policies[it->policy->index], allowed,
                count_is_degraded(plan->enforced, plan->enforced_count, it->policy));
        server_count_decision(thread->counters, rules->series.entries[it->entry->index],
                              it->decision.allowed, it->decision.degraded);
        server_top_record(thread->top, rules->tops[it->policy->index], it->key.data, it->key.len,
                          !it->decision.allowed);
    }
    count_shadows(thread, rules, plan);
}

uint32_t server_plan_shadow_denied(const struct weir__plan *plan)
{
    uint32_t denied = (uint32_t)plan->lacking_count;
    for (size_t i = 0; i < plan->shadow_count; i++)
        denied += !plan->shadow[i].decision.allowed;
    return denied;
}

/* One of a list of those in shadow; its key is NULL: it cannot be made. *ret_whole: how much of the
 * list has room. */
static void count_put_shadow(struct weir__buffer *out, const struct weir__policy *policy,
                             const struct weir__entry *entry, const weir_key *key,
                             size_t *ret_whole)
{
    struct weir__json json = {out, false};
    if (*ret_whole > 0)
        weir__put(out, ",", 1);
    weir__json_open(&json, NULL, '{');
    weir__json_put_string(&json, "policy", policy->name);
    weir__json_put_string(&json, "entry", entry->name);
    if (key)
        weir__json_put_key(&json, key->data, key->len);
    else
        weir__json_put_null(&json, "key");
    weir__json_close(&json, '}');
    if (!out->cut)
        *ret_whole = out->len;
}

/* What limits in shadow would have denied: policy, limit and key of each, as many as there is room
 * for. */
static struct weir__span count_put_shadows(const struct weir__plan *plan, char *room, size_t size)
{
    struct weir__buffer out = weir__buffer_over(room, size);
    size_t whole = 0;
    for (size_t i = 0; i < plan->lacking_count && !out.cut; i++)
        count_put_shadow(&out, plan->lacking[i].policy, plan->lacking[i].entry, NULL, &whole);
    for (size_t i = 0; i < plan->shadow_count && !out.cut; i++) {
        const struct weir__item *it = &plan->shadow[i];
        if (!it->decision.allowed)
            count_put_shadow(&out, it->policy, it->entry, &it->key, &whole);
    }
    return (struct weir__span){room, whole};
}

/* The enforced entry whose limit bound. */
static const struct weir__item *count_bound(const struct weir__plan *plan, size_t binding)
{
    for (size_t i = 0; i < plan->enforced_count; i++) {
        size_t limits = weir_limit_count(plan->enforced[i].limit);
        if (binding < limits)
            return &plan->enforced[i];
        binding -= limits;
    }
    return NULL;
}

void server_plan_log(struct server_conn *conn, const struct weir__plan *plan,
                     enum server_protocol protocol, const struct server_plan_line *line,
                     const weir_decision *decision)
{
    struct server_log_record record = {.verdict = line->verdict};
    struct weir__span *texts = record.texts;
    const struct weir__item *item = line->item;
    const struct server_seen *seen = line->seen;
    char shadows[SERVER_LOG_SHADOWS_MAX + 1];
    if (line->verdict == WEIR__VERDICT_DENY && line->denial == WEIR__DENIED_MISSING)
        record.verdict = WEIR__VERDICT_MISSING;
    if (line->by)
        texts[SERVER_LOG_POLICY] = weir__span_of(line->by->name);
    if (item) {
        texts[SERVER_LOG_POLICY] = weir__span_of(item->policy->name);
        texts[SERVER_LOG_ENTRY] = weir__span_of(item->entry->name);
        texts[SERVER_LOG_KEY] = (struct weir__span){item->key.data, item->key.len};
        record.cost = item->cost;
    }
    record.shadow_denied = server_plan_shadow_denied(plan);
    if (record.shadow_denied > 0)
        texts[SERVER_LOG_SHADOWS] = count_put_shadows(plan, shadows, sizeof shadows);
    if (seen) {
        const char *at = seen->text;
        for (size_t i = 0; i < SERVER_SEEN; at += seen->lens[i++])
            texts[SERVER_LOG_IP + i] = (struct weir__span){at, seen->lens[i]};
    }
    count_log_decision(conn, protocol, &record, decision);
}

static void count_plan(struct server_thread *thread, const struct server_batch *batch,
                       const struct server_planned *planned, const weir_decision *decision)
{
    struct server_rules *rules = server_batch_rules(batch);
    const struct weir__plan *plan = &planned->plan;
    if (plan->verdict == WEIR__VERDICT_DENY)
        server_count_listed(thread->counters, rules->series.policies[plan->by->index], false);
    for (size_t i = 0; i < plan->exempted_count; i++)
        server_count_listed(thread->counters, rules->series.policies[plan->exempted[i]->index],
                            true); /* also where others have limits for the request */
    if (plan->verdict == WEIR__VERDICT_ALLOW || plan->verdict == WEIR__VERDICT_DENY) {
        server_count_listed(thread->counters, SERVER_SERIES_TOTAL, decision->allowed);
        count_shadows(thread, rules, plan); /* a missing attribute denies past allow lists */
    } else {
        server_count_decision(thread->counters, SERVER_SERIES_TOTAL, decision->allowed,
                              decision->degraded || server_plan_shadow_degraded(plan));
        server_count(&thread->counters->unmatched, plan->verdict == WEIR__VERDICT_NONE);
        server_plan_count(thread, rules, plan, decision->allowed);
        server_spelling_offer(thread->server->spelling, rules, plan);
    }
    if (thread->log && server_access_log_wants(thread->log, decision->allowed &&
                                                                !server_plan_shadow_denied(plan))) {
        const struct server_plan_line line = {plan->verdict, plan->denial, plan->by,
                                              count_bound(plan, decision->binding), &planned->seen};
        server_plan_log(batch->conn, plan, batch->conn->protocol->counted_as, &line, decision);
    }
}

/* ---- settles and refunds ---- */

static enum server_settle count_settled_how(const struct server_ask *ask)
{
    switch (ask->code) {
    case 0:
        return ask->settle.late ? SERVER_SETTLE_LATE : SERVER_SETTLE_SETTLED;
    case WEIR_ESETTLED:
        return SERVER_SETTLE_BEFORE;
    case WEIR_ERECEIPT:
    case WEIR_EINVAL: /* no policy applies, or the limits cannot be settled */
        return SERVER_SETTLE_REFUSED;
    default:
        return SERVER_SETTLE_FAILED;
    }
}

static enum server_refund count_refunded_how(const struct server_ask *ask)
{
    if (ask->code == WEIR_ESETTLED)
        return SERVER_REFUND_BEFORE;
    if (ask->code)
        return SERVER_REFUND_FAILED;
    return server_ask_gave_back(ask) ? SERVER_REFUND_GIVEN : SERVER_REFUND_NOTHING;
}

static void count_correction_of(struct server_thread *thread, uint32_t id,
                                const struct server_ask *ask)
{
    if (ask->kind == SERVER_ASK_SETTLE)
        server_count_settle(thread->counters, id, count_settled_how(ask));
    else
        server_count_refund(thread->counters, id, count_refunded_how(ask));
}

/* Once for each policy with a limit that a settle corrects; if there is none, for "". */
static void count_correction(const struct server_batch *batch, const struct server_ask *ask)
{
    struct server_thread *thread = batch->thread;
    const struct server_rules *rules = server_batch_rules(batch);
    const struct weir__plan *plan = ask->about == SERVER_ABOUT_PLAN ? &ask->planned->plan : NULL;
    const uint32_t about = !plan ? 0
                           : ask->kind == SERVER_ASK_REFUND
                               ? UINT32_MAX /* the plan has no others */
                               : weir__plan_settled(plan);
    const struct weir__policy *last = NULL;
    for (size_t i = 0; plan && i < plan->enforced_count; i++) {
        const struct weir__policy *policy = plan->enforced[i].policy;
        if (!(about >> i & 1) || policy == last)
            continue;
        count_correction_of(thread, rules->series.policies[policy->index], ask);
        last = policy;
    }
    if (!last)
        count_correction_of(thread, SERVER_SERIES_ADHOC, ask);
}

void server_batch_count(const struct server_batch *batch)
{
    struct server_thread *thread = batch->thread;
    for (size_t i = batch->from; i < batch->to; i++) {
        const struct server_ask *ask = &batch->asks[i];
        if (ask->kind == SERVER_ASK_SETTLE || ask->kind == SERVER_ASK_REFUND)
            count_correction(batch, ask);
        if (ask->kind != SERVER_ASK_DECIDE || weir__verb_reads(ask->verb))
            continue; /* it charges nothing, or is counted when it is answered */
        if (WEIR__UNLIKELY(ask->code)) {
            server_count_failed(thread->counters, SERVER_SERIES_TOTAL);
            continue;
        }
        if (ask->about == SERVER_ABOUT_PLAN)
            count_plan(thread, batch, ask->planned, &batch->decided[i]);
        else
            count_simple(thread, batch, i,
                         ask->about == SERVER_ABOUT_ONE ? &batch->simple[i]
                                                        : &ask->several->requests[0],
                         &batch->decided[i]);
    }
    uint64_t us = (uint64_t)weir__max(0, weir__mono_us() - batch->began_us);
    server_histogram_record(&thread->counters->latency, us * 1000, batch->to - batch->from);
}
