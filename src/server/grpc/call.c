/* Calls of Envoy's rate limit service: planned, decided, counted, ended. See grpc.h. */
#include "server/grpc/grpc.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALLS_KEPT 64 /* that a thread has ready */

/* ---- what a thread has ---- */

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool keyed;

static void free_thread(void *value)
{
    struct server_grpc_thread *own = value;
    while (own->free) {
        struct server_grpc_call *call = own->free;
        own->free = call->next;
        free(call);
    }
    free(own);
}

static void make_key(void)
{
    keyed = pthread_key_create(&key, free_thread) == 0;
}

struct server_grpc_thread *server_grpc_this_thread(void)
{
    pthread_once(&once, make_key);
    struct server_grpc_thread *own = keyed ? pthread_getspecific(key) : NULL;
    if (own || !keyed)
        return own;
    own = calloc(1, sizeof *own);
    if (own && pthread_setspecific(key, own)) {
        free(own);
        own = NULL;
    }
    return own;
}

static struct server_grpc_call *take_call(struct server_grpc_thread *own)
{
    struct server_grpc_call *call = own->free;
    if (call) {
        own->free = call->next;
        own->ready--;
        return call;
    }
    return malloc(sizeof *call); /* those that wait for a store are counted with their batches */
}

static void give_call_back(struct server_grpc_call *call)
{
    struct server_grpc_thread *own = server_grpc_this_thread();
    if (!own || own->ready >= CALLS_KEPT) {
        free(call);
        return;
    }
    call->next = own->free;
    own->free = call;
    own->ready++;
}

void server_grpc_call_end(struct server_grpc_call *call)
{
    server_rls_end(&call->plan);
    give_call_back(call);
}

void server_grpc_overload(struct server_ask *ask)
{
    struct server_grpc_call *call = ask->other;
    call->code = weir__fail(&call->error, WEIR_EBUSY, 0, SERVER_OVERLOAD_TEXT);
}

void server_grpc_end(struct server_ask *ask)
{
    struct server_grpc_call *call = ask->other;
    ask->other = NULL;
    if (call)
        server_grpc_call_end(call);
}

/* ---- planning ---- */

/* What no rule is for counts for the domain as a whole, a limit that the request brought by itself. */
static void name_counters(const struct server_rules *rules, struct server_grpc_call *call)
{
    const struct server_envoy_domain *domain =
        &rules->envoy_domains[weir__envoy_domain_index(call->plan.domain)];
    call->top_id = domain->top;
    for (size_t i = 0; i < call->plan.count; i++) {
        const struct server_rls_item *item = &call->plan.items[i];
        bool brought = !item->rule && (item->limit || item->denies);
        call->rule_ids[i] = item->rule ? rules->envoy_rules[item->rule->index]
                            : brought  ? domain->brought
                                       : domain->whole;
    }
}

static int plan(struct server_conn *conn, struct server_grpc_thread *own,
                struct server_grpc_call *call, weir_error *err)
{
    struct server_thread *thread = conn->thread;
    const struct server_config *config = &thread->server->config;
    const struct server_rls_setup setup = {
        .envoy = thread->rules->envoy,
        .cache = &thread->cache,
        .options = {.charge_denied = config->envoy_charge_denied,
                    .headers = config->envoy_headers,
                    .near_ppm = config->envoy_near_ppm},
    };
    int code = server_rls_plan(&setup, &own->request, &call->plan, err);
    if (code)
        return code;
    if (call->plan.domain)
        name_counters(thread->rules, call);
    return 0;
}

struct server_grpc_call *server_grpc_plan(struct server_conn *conn, struct server_grpc_thread *own,
                                          weir_error *err)
{
    struct server_thread *thread = conn->thread;
    if (!thread->rules->envoy) {
        weir__fail(err, WEIR_EUNSUPPORTED, 0,
                   "no rules of Envoy's rate limit service are loaded; start with --envoy FILE");
        return NULL;
    }
    struct server_grpc_call *call = take_call(own);
    if (!call) {
        weir__fail(err, WEIR_EBUSY, 0, "too many requests are under way; try again");
        return NULL;
    }
    call->stream = 0;
    call->json = false;
    call->code = 0;
    if (plan(conn, own, call, err)) { /* nothing to end in it */
        give_call_back(call);
        return NULL;
    }
    return call;
}

/* ---- deciding ---- */

void server_grpc_run(struct server *server, struct server_ask *ask)
{
    struct server_grpc_call *call = ask->other;
    call->code = server_rls_take(server->store, &call->plan, &call->error);
}

void server_grpc_give_up(struct server_ask *ask)
{
    struct server_grpc_call *call = ask->other;
    call->code = weir__fail(&call->error, WEIR_EUNREACHABLE, 0, "the server stops; ask another");
}

void server_grpc_decide(struct server_conn *conn, struct server_grpc_call *call)
{
    int64_t began = weir__mono_ns();
    call->code = server_rls_take(conn->thread->server->store, &call->plan, &call->error);
    server_histogram_record(&conn->thread->counters->latency, (uint64_t)(weir__mono_ns() - began),
                            1);
}

/* ---- counting ---- */

static void count_item(struct server_rule *rule, const struct server_rls_plan *it,
                       const struct server_rls_item *item)
{
    struct server_rls_tally tally = server_rls_tally(item, it->options.near_ppm);
    server_count(&rule->hits, tally.hits);
    server_count(&rule->over, tally.over);
    server_count(&rule->near, tally.near);
    server_count(&rule->within, tally.within);
    server_count(&rule->shadow, tally.shadow);
    if (!item->rule && item->outcome == SERVER_RLS_NONE)
        server_count(&rule->unmatched, 1);
}

/* The item that a log line is about: the first that was denied, or else that was asked. */
static const struct server_rls_item *told_of(const struct server_rls_plan *plan)
{
    const struct server_rls_item *asked = NULL;
    for (size_t i = 0; i < plan->count; i++) {
        const struct server_rls_item *item = &plan->items[i];
        if (item->outcome == SERVER_RLS_DENIED)
            return item;
        if (!asked && item->limit)
            asked = item;
    }
    return asked;
}

static void log_call(struct server_conn *conn, const struct server_grpc_call *call)
{
    const struct server_rls_item *item = told_of(&call->plan);
    struct server_log_record record = {
        .time_us = weir__clock_us(),
        .protocol = call->json ? SERVER_HTTP : SERVER_GRPC,
        .client = {conn->peer_text, conn->peer_text_len},
        .allowed = !call->plan.over,
        .verdict = item ? WEIR__VERDICT_LIMITS : WEIR__VERDICT_NONE,
    };
    if (item) {
        record.key = (struct weir__span){item->key.data, item->key.len};
        record.cost = item->hits;
        if (item->limit) {
            record.decision = &item->decision;
            record.time_us = item->decision.time_us;
        }
    }
    if (item && item->rule) {
        record.policy = weir__span_of(item->rule->domain);
        record.entry = weir__span_of(item->rule->name);
    }
    for (size_t i = 0; i < call->plan.count; i++)
        record.shadow_denied += call->plan.items[i].outcome == SERVER_RLS_SHADOWED;
    server_access_log_put(conn->thread->log, &record);
}

void server_grpc_count(struct server_conn *conn, const struct server_grpc_call *call)
{
    struct server_thread *thread = conn->thread;
    const struct server_rls_plan *it = &call->plan;
    bool degraded = false;
    if (call->code) {
        server_count_failed(thread->counters, SERVER_SERIES_TOTAL);
        return;
    }
    for (size_t i = 0; i < it->count; i++) {
        const struct server_rls_item *item = &it->items[i];
        if (it->domain)
            count_item(&thread->counters->rules[call->rule_ids[i]], it, item);
        if (!item->limit)
            continue;
        server_count(&thread->counters->envoy_long_keys, item->long_key);
        degraded = degraded || item->decision.degraded;
        if (!item->refund)
            server_top_record(thread->top, call->top_id, item->key.data, item->key.len,
                              item->outcome == SERVER_RLS_DENIED ||
                                  item->outcome == SERVER_RLS_SHADOWED);
    }
    server_count(&thread->counters->envoy_unknown_domains, it->domain == NULL);
    server_count_decision(thread->counters, SERVER_SERIES_TOTAL, !it->over, degraded);
    if (thread->log && server_access_log_wants(thread->log, !it->over))
        log_call(conn, call);
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
            .client = {conn->peer_text, conn->peer_text_len},
            .verdict = WEIR__VERDICT_UNREADABLE,
        };
        server_access_log_put(thread->log, &record);
    }
}
