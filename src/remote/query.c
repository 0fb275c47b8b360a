/*
 * What becomes of a query. Once its bytes are sent it is not repeated, since it may have been
 * charged. The exceptions are replies by which a server says that it did nothing:
 *
 *     NOSCRIPT              load the script on that server and send the query again there; where
 *                           loading is refused, send the script's text with it
 *     unknown command       the module is gone: send it again as a script
 *     MOVED                 send it to the server named; our map is wrong
 *     ASK                   send it to the server named, this once
 *     TRYAGAIN              send it again in a moment: its keys are being moved
 *     LOADING READONLY …    drop the connection; send it again if the keeper has a new one in time
 *
 * All of this happens within the deadline. Everything else is either a refusal (a code) or no
 * decision at all (WEIR_EUNREACHABLE): then the local fallback decides.
 */
#include "remote/query.h"

#include "store/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRY_AGAIN_US 1000
#define LOADS_MAX 8 /* of a library that somebody else deletes again and again */

/* ---- where it goes ---- */

static uint16_t query_slot_of(const struct weir__redis_query *query, weir_key key)
{
    char prefix[sizeof WEIR__TEST_PREFIX + sizeof query->url->prefix];
    int len = snprintf(prefix, sizeof prefix, "%s%s", query->time_us >= 0 ? WEIR__TEST_PREFIX : "",
                       query->url->prefix);
    return weir__cluster_slot(prefix, (size_t)len, key.data, key.len);
}

bool weir__redis_query_slot(struct weir__redis_query *query)
{
    query->slot = 0;
    if (query->url->kind != WEIR__REDIS_CLUSTER)
        return true;
    query->slot = query_slot_of(query, query->requests[0].key);
    for (size_t i = 1; i < query->count; i++) {
        if (query_slot_of(query, query->requests[i].key) != query->slot)
            return false;
    }
    return true;
}

/* The host of "MOVED 3999 host:port". It may be missing, and it may contain colons. */
static bool query_read_redirect(struct weir__fleet *fleet, const struct weir__redis_query *query,
                                struct weir__redis_host *ret)
{
    const char *place = strrchr(query->error, ' ');
    const char *colon = place ? strrchr(place, ':') : NULL;
    int port = colon ? atoi(colon + 1) : 0;
    if (!colon || port <= 0 || port > UINT16_MAX || colon - place > 254)
        return false;
    *ret = (struct weir__redis_host){.port = (uint16_t)port};
    memcpy(ret->name, place + 1, (size_t)(colon - place - 1));
    if (!ret->name[0]) {
        struct weir__redis_host here = weir__fleet_host(fleet, query->node);
        memcpy(ret->name, here.name, sizeof ret->name);
    }
    return true;
}

/* On another server, or another connection. */
static void query_start_over(struct weir__redis_query *query)
{
    query->asking = false;
    query->load = WEIR__LOAD_NONE;
    query->loads = 0;
}

static bool query_redirect(struct weir__fleet *fleet, struct weir__redis_query *query, bool moved)
{
    struct weir__redis_host host;
    struct weir__node *node =
        query_read_redirect(fleet, query, &host) ? weir__fleet_node(fleet, &host) : NULL;
    if (!node)
        return false;
    if (moved)
        weir__fleet_moved(fleet, query->slot, node);
    query_start_over(query);
    query->node = node;
    query->asking = !moved;
    return true;
}

/* ---- what its answer says ---- */

/* Drops the connection. 0: there is a new one in time. */
static int query_reconnect(struct weir__redis_query *query, const char *why)
{
    weir__link_break(&query->call, why);
    query_start_over(query);
    return weir__link_wait(&query->node->link, query->call.deadline_us, true) ? 0
                                                                              : WEIR_EUNREACHABLE;
}

/* The server does not have the script or the function: it did nothing. One call of a link loads it,
 * since a script is long; the others try again meanwhile. A library that cannot be loaded is left
 * to the keeper, which knows about versions. */
static int query_load_script(struct weir__redis_query *query)
{
    bool function = query->url->engine == WEIR__ENGINE_FUNCTION && query->time_us < 0;
    if (query->loads > 0 && !function && query->load == WEIR__LOAD_FIRST) {
        query->load = WEIR__LOAD_WITH;
        return 0;
    }
    if (query->load == WEIR__LOAD_WITH)
        return WEIR_ESYSTEM;
    if (query->loads == LOADS_MAX)
        return query_reconnect(query, query->before[0] ? query->before : query->error);
    query->load = WEIR__LOAD_NONE;
    if (atomic_exchange(&query->node->link.loading, true)) {
        usleep(TRY_AGAIN_US);
        return 0;
    }
    query->load = WEIR__LOAD_FIRST;
    query->loads++;
    return 0;
}

/* The module was unloaded: the server did nothing. */
static int query_forget_module(struct weir__redis_query *query)
{
    if (query->url->engine == WEIR__ENGINE_MODULE)
        return query_reconnect(query, "engine=module, but the server has unloaded weir_redis.so");
    weir__link_forget_module(&query->call);
    return 0;
}

/* After an error reply. 0: send it again; else the code that it ends with. */
static int query_heed_error(struct weir__fleet *fleet, struct weir__redis_query *query)
{
    enum weir__redis_verdict verdict = weir__redis_query_judge(query);
    switch (verdict) {
    case WEIR__VERDICT_NO_SCRIPT:
        return query_load_script(query);
    case WEIR__VERDICT_NO_MODULE:
        return query_forget_module(query);
    case WEIR__VERDICT_NO_LEASE:
        weir__link_forget_lease(&query->call);
        return 0;
    case WEIR__VERDICT_NO_MEMORY:
        query->spare = true;
        query->load = WEIR__LOAD_NONE;
        return 0;
    case WEIR__VERDICT_MOVED:
    case WEIR__VERDICT_ASK:
        return query_redirect(fleet, query, verdict == WEIR__VERDICT_MOVED) ? 0 : WEIR_EUNREACHABLE;
    case WEIR__VERDICT_TRY_AGAIN:
        usleep(TRY_AGAIN_US);
        return 0;
    case WEIR__VERDICT_UNFIT:
        return query_reconnect(query, query->error);
    case WEIR__VERDICT_BROKEN: /* the reply may be another call's: start over */
        weir__link_break(&query->call, query->error);
        return WEIR_EUNREACHABLE;
    case WEIR__VERDICT_UNDECIDED:
        if (weir__redis_query_error_is(query, "CLUSTERDOWN")) {
            fleet->stale = true;
            weir__fleet_wake(fleet);
        }
        if (weir__redis_query_error_is(query, "CLUSTERDOWN The cluster is down")) /* any slot */
            weir__link_break(&query->call, query->error);
        return WEIR_EUNREACHABLE;
    case WEIR__VERDICT_REFUSED:
        return weir__redis_query_refusal(query);
    }
    assert(!"every verdict is heeded");
    return WEIR_ESYSTEM;
}

/* ---- sending and waiting ---- */

static void query_submit(struct weir__redis_query *query)
{
    query->sent =
        query->node ? weir__link_submit(&query->node->link, &query->call) : WEIR__CALL_DOWN;
}

void weir__redis_query_begin(struct weir__fleet *fleet, struct weir__redis_query *query)
{
    assert(query->count >= 1 && query->count <= WEIR_LIMITS_MAX &&
           query->limits <= WEIR_LIMITS_MAX);
    assert(!weir__verb_decides(query->verb) || query->ret);
    query->call.write = weir__redis_query_write;
    query->call.read = weir__redis_query_read;
    query_start_over(query);
    query->node = weir__fleet_route(fleet, query->slot);
    if (!query->node && weir__fleet_wait(fleet, query->call.deadline_us))
        query->node = weir__fleet_route(fleet, query->slot);
    query_submit(query);
}

void weir__redis_query_flush(struct weir__redis_query *query)
{
    if (query->sent == WEIR__CALL_WAITING)
        weir__link_flush(&query->node->link, query->call.deadline_us);
}

int weir__redis_query_finish(struct weir__fleet *fleet, struct weir__redis_query *query)
{
    int64_t deadline = query->call.deadline_us;
    assert(query->call.write == weir__redis_query_write); /* it was begun */
    for (;;) {
        int code = WEIR_EUNREACHABLE;
        enum weir__call_status status =
            query->sent == WEIR__CALL_WAITING ? weir__link_await(&query->call) : query->sent;
        if (query->load == WEIR__LOAD_FIRST) /* the others need not wait any longer */
            query->node->link.loading = false;
        if (status == WEIR__CALL_DONE && !query->failed)
            return 0;
        if (status == WEIR__CALL_DONE)
            code = query_heed_error(fleet, query);
        else if (status == WEIR__CALL_DOWN && query->node &&
                 weir__link_wait(&query->node->link, deadline, false))
            code = 0;
        if (code == 0 && weir__mono_us() >= deadline)
            code = WEIR_EUNREACHABLE;
        if (code && query->load == WEIR__LOAD_FIRST)
            query->node->link.loading = false;
        if (code)
            return code;
        query_submit(query);
        weir__redis_query_flush(query);
    }
}

/* Whether slots may still be held that nobody uses. */
static bool query_owes(const struct weir__redis_query *query)
{
    enum weir__call_status status = query->call.status;
    return query->node && (query->verb == WEIR__VERB_RELEASE ||
                           (query->verb == WEIR__VERB_ACQUIRE &&
                            (status == WEIR__CALL_LATE || status == WEIR__CALL_LOST)));
}

void weir__redis_query_give_back(const struct weir__redis_query *query)
{
    if (!query_owes(query))
        return;
    for (size_t i = 0; i < query->count; i++) {
        const weir_request *request = &query->requests[i];
        struct weir__redis_query release = {.call.write = weir__redis_query_write,
                                            .url = query->url,
                                            .verb = WEIR__VERB_RELEASE,
                                            .requests = request,
                                            .count = 1,
                                            .limits = request->limit->count,
                                            .lease = query->lease,
                                            .time_us = query->time_us,
                                            .asking = query->asking};
        if (weir__has_leases(request->limit))
            weir__link_post(&query->node->link, &release.call);
    }
}
