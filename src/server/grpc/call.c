/* Calls of Envoy's rate limit service: planned, decided, counted, ended. See grpc.h. */
#include "server/grpc/grpc.h"

#include "base/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALLS_KEPT 64 /* that a thread has ready */

/* ---- what a thread has ---- */

struct server_grpc_reading *server_grpc_reading(struct server_thread *thread)
{
    if (!thread->grpc)
        thread->grpc = malloc(sizeof *thread->grpc);
    return thread->grpc;
}

/* Those that wait for a store are counted with their batches. */
static struct server_grpc_call *grpc_take_call(struct server_thread *thread)
{
    struct server_grpc_call *call = server_pool_take(&thread->calls, sizeof *call);
    if (call)
        call->thread = thread;
    return call;
}

static void grpc_give_call(struct server_grpc_call *call)
{
    server_pool_give(&call->thread->calls, call, CALLS_KEPT);
}

void server_grpc_call_end(struct server_grpc_call *call)
{
    weir__rls_end(&call->rls);
    grpc_give_call(call);
}

void server_grpc_overload(struct server_ask *ask)
{
    struct server_grpc_call *call = ask->call;
    call->code = weir__fail(&call->error, WEIR_EBUSY, 0, SERVER_OVERLOAD_TEXT);
}

void server_grpc_end(struct server_ask *ask)
{
    struct server_grpc_call *call = ask->call;
    ask->call = NULL;
    if (call)
        server_grpc_call_end(call);
}

/* ---- planning ---- */

/* What no rule is for counts for the domain as a whole, a limit that the request brought by itself.
 * */
static void grpc_name_counters(const struct server_rules *rules, struct server_grpc_call *call)
{
    const struct server_envoy_domain *domain = &rules->envoy_domains[call->rls.domain->index];
    call->top_id = domain->top;
    for (size_t i = 0; i < call->rls.count; i++) {
        const struct weir__rls_asked *asked = &call->rls.asked[i];
        bool brought = !asked->rule && (asked->limit || asked->denies);
        call->rule_ids[i] = asked->rule ? rules->envoy_rules[asked->rule->index]
                            : brought   ? domain->brought
                                        : domain->whole;
    }
}

struct server_grpc_call *server_grpc_plan(struct server_conn *conn,
                                          const struct weir__rls_request *request, weir_error *err)
{
    struct server_thread *thread = conn->thread;
    const struct server_config *config = &thread->server->config;
    struct server_rules *rules = thread->rules;
    bool policies = rules->policies->count > 0;
    const struct weir__rls_setup setup = {
        .envoy = rules->envoy,
        .policies = policies ? rules->policies : NULL,
        .cache = &thread->cache,
        .options = {.charge_denied = config->envoy_charge_denied,
                    .headers = config->envoy_headers,
                    .near_ppm = config->envoy_near_ppm},
    };
    if (!rules->envoy && !policies) {
        weir__fail(err, WEIR_EUNSUPPORTED, 0,
                   "there are no rules: start with --policies FILE or --envoy FILE");
        return NULL;
    }
    struct server_grpc_call *call = grpc_take_call(thread);
    if (!call) {
        weir__fail(err, WEIR_EBUSY, 0, "too many requests are pending; try again");
        return NULL;
    }
    call->stream = 0;
    call->json = false;
    call->code = 0;
    call->rules = rules;
    if (weir__rls_plan(&setup, request, &call->rls, err)) { /* nothing to end in it */
        if (call->rls.by_policies)
            server_report_once(
                conn->peer_text,
                "a request that %s asks for is answered OVER_LIMIT: %s; reported once "
                "for this address",
                conn->peer_text, err->message);
        grpc_give_call(call);
        return NULL;
    }
    if (call->rls.domain)
        grpc_name_counters(rules, call);
    return call;
}

/* ---- deciding ---- */

void server_grpc_run(weir_store *store, struct server_ask *ask)
{
    struct server_grpc_call *call = ask->call;
    call->code = weir__rls_decide(store, &call->rls, &call->error);
}

void server_grpc_give_up(struct server_ask *ask)
{
    struct server_grpc_call *call = ask->call;
    call->code = weir__fail(&call->error, WEIR_EUNREACHABLE, 0, "the server stops; ask another");
}

void server_grpc_decide(struct server_conn *conn, struct server_grpc_call *call)
{
    int64_t began = weir__mono_ns();
    call->code = weir__rls_decide(conn->thread->server->store, &call->rls, &call->error);
    server_histogram_record(&conn->thread->counters->latency, (uint64_t)(weir__mono_ns() - began),
                            1);
}

/* ---- counting ---- */

static void grpc_count_rule(struct server_rule *rule, const struct weir__rls_call *rls,
                            const struct weir__rls_asked *asked)
{
    struct weir__rls_tally tally = weir__rls_tally(asked, rls->options.near_ppm);
    server_count(&rule->hits, tally.hits);
    server_count(&rule->over, tally.over);
    server_count(&rule->near, tally.near);
    server_count(&rule->within, tally.within);
    server_count(&rule->shadow, tally.shadow);
    if (!asked->rule && asked->outcome == WEIR__RLS_NO_RULE)
        server_count(&rule->unmatched, 1);
}

/* The descriptor that a log line is about: the first that was denied, or else that was asked. */
static const struct weir__rls_asked *grpc_logged(const struct weir__rls_call *rls)
{
    const struct weir__rls_asked *best = NULL;
    for (size_t i = 0; i < rls->count; i++) {
        const struct weir__rls_asked *asked = &rls->asked[i];
        if (asked->outcome == WEIR__RLS_DENIED)
            return asked;
        if (!best && (asked->limit || asked->verdict != WEIR__VERDICT_NONE))
            best = asked;
    }
    return best;
}

static enum server_protocol grpc_protocol(const struct server_grpc_call *call)
{
    return call->json ? SERVER_HTTP : SERVER_GRPC;
}

static void grpc_log_rules(struct server_conn *conn, const struct server_grpc_call *call)
{
    const struct weir__rls_asked *asked = grpc_logged(&call->rls);
    struct server_log_record record = {
        .time_us = weir__clock_us(),
        .protocol = grpc_protocol(call),
        .texts[SERVER_LOG_CLIENT] = {conn->peer_text, conn->peer_text_len},
        .allowed = !call->rls.over,
        .verdict = asked ? WEIR__VERDICT_LIMITS : WEIR__VERDICT_NONE,
    };
    if (asked) {
        record.texts[SERVER_LOG_KEY] = (struct weir__span){asked->key.data, asked->key.len};
        record.cost = asked->hits;
        if (asked->limit) {
            record.decision = &asked->decision;
            record.time_us = server_decided_us(&asked->decision);
        }
    }
    if (asked && asked->rule) {
        record.texts[SERVER_LOG_POLICY] = weir__span_of(asked->rule->domain);
        record.texts[SERVER_LOG_ENTRY] = weir__span_of(asked->rule->name);
    }
    for (size_t i = 0; i < call->rls.count; i++)
        record.shadow_denied += call->rls.asked[i].outcome == WEIR__RLS_SHADOWED;
    server_access_log_put(conn->thread->log, &record);
}

static void grpc_count_rules(struct server_conn *conn, const struct server_grpc_call *call)
{
    struct server_thread *thread = conn->thread;
    const struct weir__rls_call *rls = &call->rls;
    bool degraded = false;
    for (size_t i = 0; i < rls->count; i++) {
        const struct weir__rls_asked *asked = &rls->asked[i];
        if (rls->domain)
            grpc_count_rule(&thread->counters->rules[call->rule_ids[i]], rls, asked);
        if (!asked->limit)
            continue;
        server_count(&thread->counters->envoy_long_keys, asked->long_key);
        degraded = degraded || asked->decision.degraded;
        if (!asked->refund)
            server_top_record(thread->top, call->top_id, asked->key.data, asked->key.len,
                              asked->outcome == WEIR__RLS_DENIED ||
                                  asked->outcome == WEIR__RLS_SHADOWED);
    }
    server_count_decision(thread->counters, SERVER_SERIES_TOTAL, !rls->over, degraded);
    if (thread->log && server_access_log_wants(thread->log, !rls->over))
        grpc_log_rules(conn, call);
}

/* As batch_count.c counts what HTTP and RESP ask of policies. A request of several descriptors is
 * one decision. */
static void grpc_count_policies(struct server_conn *conn, const struct server_grpc_call *call)
{
    struct server_thread *thread = conn->thread;
    struct server_rules *rules = call->rules;
    const struct weir__rls_call *rls = &call->rls;
    const struct weir__plan *plan = &rls->plan;
    const struct weir__rls_asked *asked = grpc_logged(rls);
    enum weir__verdict verdict = asked ? asked->verdict : WEIR__VERDICT_NONE;
    const weir_decision none = {.allowed = !rls->over};
    const weir_decision *decision = asked && asked->limit ? &asked->decision : &none;
    for (size_t i = 0; i < rls->count; i++) {
        if (rls->asked[i].verdict == WEIR__VERDICT_DENY)
            server_count_listed(thread->counters, rules->series.policies[rls->asked[i].by->index],
                                false);
    }
    for (size_t i = 0; i < plan->exempted_count; i++)
        server_count_listed(thread->counters, rules->series.policies[plan->exempted[i]->index],
                            true);
    server_count(&thread->counters->envoy_unknown_domains, verdict == WEIR__VERDICT_NONE);
    if (verdict == WEIR__VERDICT_ALLOW || verdict == WEIR__VERDICT_DENY)
        server_count_listed(thread->counters, SERVER_SERIES_TOTAL, !rls->over);
    else
        server_count_decision(thread->counters, SERVER_SERIES_TOTAL, !rls->over,
                              decision->degraded || server_plan_shadow_degraded(plan));
    server_count(&thread->counters->unmatched, verdict == WEIR__VERDICT_NONE && !rls->over);
    server_plan_count(thread, rules, plan, !rls->over);
    server_spelling_offer(thread->server->spelling, rules, plan);
    bool quiet = !rls->over && !server_plan_shadow_denied(plan);
    if (thread->log && server_access_log_wants(thread->log, quiet)) {
        const struct server_plan_line line = {.verdict = verdict,
                                              .denial = asked ? asked->denial : WEIR__DENIED_LISTED,
                                              .by = asked ? asked->by : NULL,
                                              .item = asked ? asked->item : NULL};
        server_plan_log(conn, plan, grpc_protocol(call), &line, decision);
    }
}

void server_grpc_count(struct server_conn *conn, const struct server_grpc_call *call)
{
    struct server_thread *thread = conn->thread;
    if (call->code) {
        server_count_failed(thread->counters, SERVER_SERIES_TOTAL);
        return;
    }
    if (call->rls.by_policies) {
        grpc_count_policies(conn, call);
        return;
    }
    server_count(&thread->counters->envoy_unknown_domains, call->rls.domain == NULL);
    grpc_count_rules(conn, call);
}

void server_grpc_count_unread(struct server_conn *conn, enum server_unread reason)
{
    struct server_thread *thread = conn->thread;
    server_count(&thread->counters->envoy_unread[reason], 1);
    server_count_decision(thread->counters, SERVER_SERIES_TOTAL, false, false);
    if (thread->log && server_access_log_wants(thread->log, false)) {
        const struct server_log_record record = {
            .time_us = weir__clock_us(),
            .protocol = SERVER_GRPC,
            .texts[SERVER_LOG_CLIENT] = {conn->peer_text, conn->peer_text_len},
            .verdict = WEIR__VERDICT_UNREADABLE,
        };
        server_access_log_put(thread->log, &record);
    }
}
