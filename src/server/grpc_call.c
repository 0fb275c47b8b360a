/* Calls of Envoy's rate limit service: planned, decided, counted, ended. See grpc.h. */
#include "server/grpc.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALLS_MAX 1024 /* a thread's, in use at once */
#define TOP_PREFIX "envoy:"

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
    free(own->rule_ids);
    free(own->tops);
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
        return call;
    }
    if (own->calls >= CALLS_MAX || !(call = malloc(sizeof *call)))
        return NULL;
    own->calls++;
    return call;
}

void server_grpc_call_end(struct server_grpc_call *call)
{
    struct server_grpc_thread *own = server_grpc_this_thread();
    server_rls_end(&call->plan);
    call->next = own->free;
    own->free = call;
}

void server_grpc_end(struct server_ask *ask)
{
    struct server_grpc_call *call = ask->other;
    ask->other = NULL;
    if (call)
        server_grpc_call_end(call);
}

/* ---- names to ids, once for each loading of rules ---- */

static uint32_t top_of(struct server_top *top, const char *domain)
{
    char room[sizeof TOP_PREFIX + WEIR__ENVOY_TEXT_MAX];
    struct weir__buffer name = weir__buffer_over(room, sizeof room);
    weir__put_text(&name, TOP_PREFIX);
    weir__put_text(&name, domain);
    return server_top_policy(top, room);
}

static bool resolve(struct server_grpc_thread *own, const struct server *server,
                    const struct server_rules *rules)
{
    size_t count = weir__envoy_count(rules->envoy), size = (count ? count : 1) * sizeof(uint32_t);
    if (own->generation == rules->generation && own->rule_ids)
        return true;
    free(own->rule_ids);
    free(own->tops);
    own->rule_ids = malloc(size);
    own->tops = malloc(size);
    own->generation = rules->generation;
    if (!own->rule_ids || !own->tops) {
        free(own->rule_ids);
        free(own->tops);
        own->rule_ids = own->tops = NULL;
        return false;
    }
    const char *domain = "";
    uint32_t top = SERVER_TOP_OTHER;
    for (size_t i = 0; i < count; i++) {
        const struct weir__envoy_rule *rule = weir__envoy_at(rules->envoy, i);
        if (i == 0 || strcmp(rule->domain, domain))
            top = top_of(server->top, rule->domain);
        domain = rule->domain;
        own->rule_ids[rule->index] = server_metrics_rule(server->metrics, domain, rule->name);
        own->tops[rule->index] = top;
    }
    return true;
}

/* ---- planning ---- */

static int plan(struct server_conn *conn, struct server_grpc_thread *own,
                struct server_grpc_call *call, weir_error *err)
{
    struct server_thread *thread = conn->thread;
    const struct server_config *config = &thread->server->config;
    const struct server_rls_setup setup = {
        .envoy = thread->rules->envoy,
        .cache = &thread->cache,
        .options = {.charge_denied = config->envoy_charge_denied, .headers = config->envoy_headers},
    };
    if (thread->cache.retired_count > 0 && !server_batch_is_open(conn))
        weir__limit_cache_turn(&thread->cache);
    int code = server_rls_plan(&setup, &own->request, &call->plan, err);
    if (code)
        return code;
    for (size_t i = 0; i < call->plan.count; i++) {
        const struct weir__envoy_rule *rule = call->plan.items[i].rule;
        call->rule_ids[i] = rule ? own->rule_ids[rule->index] : SERVER_RULE_OTHER;
        call->top_ids[i] = rule ? own->tops[rule->index] : SERVER_TOP_ADHOC;
    }
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
    struct server_grpc_call *call =
        resolve(own, thread->server, thread->rules) ? take_call(own) : NULL;
    if (!call) {
        weir__fail(err, WEIR_EBUSY, 0, "too many requests are under way; try again");
        return NULL;
    }
    call->stream = 0;
    call->json = false;
    call->code = 0;
    if (plan(conn, own, call, err)) { /* nothing to end in it */
        call->next = own->free;
        own->free = call;
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

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void server_grpc_decide(struct server_conn *conn, struct server_grpc_call *call)
{
    uint64_t began = monotonic_ns();
    call->code = server_rls_take(conn->thread->server->store, &call->plan, &call->error);
    server_histogram_record(&conn->thread->counters->latency, monotonic_ns() - began, 1);
}

/* ---- counting ---- */

static void count_rule(struct server_rule *rule, struct server_rls_tally tally)
{
    server_count(&rule->hits, tally.hits);
    server_count(&rule->over, tally.over);
    server_count(&rule->near, tally.near);
    server_count(&rule->within, tally.within);
    server_count(&rule->shadow, tally.shadow);
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
        .verdict = item ? "limits" : "none",
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
        if (item->rule)
            count_rule(&thread->counters->rules[call->rule_ids[i]], server_rls_tally(item));
        if (!item->limit)
            continue;
        degraded = degraded || item->decision.degraded;
        if (!item->refund)
            server_top_record(thread->top, call->top_ids[i], item->key.data, item->key.len,
                              item->outcome == SERVER_RLS_DENIED ||
                                  item->outcome == SERVER_RLS_SHADOWED);
    }
    server_count_decision(thread->counters, SERVER_SERIES_TOTAL, !it->over, degraded);
    if (thread->log && server_access_log_wants(thread->log, !it->over))
        log_call(conn, call);
}
