/* Parameters to asks: a limit given in the request, a policy by name, or all policies that
 * match. */
#include "server/http/http.h"

#include "policy/view.h"
#include "store/store.h"

#include <assert.h>
#include <string.h>

static enum server_routed ask_refuse(struct server_conn *conn, struct server_response *ret,
                                     int status, const char *format, const char *what)
{
    server_count(&conn->thread->counters->faults[SERVER_HTTP][SERVER_FAULT_INVALID], 1);
    server_response_problem(ret, status, format, what);
    return SERVER_RESPONDED;
}

/* Takes the last ask back and says why. */
static enum server_routed ask_undo(struct server_conn *conn, struct server_response *ret,
                                   const char *format, const char *what)
{
    server_batch_drop(conn);
    return ask_refuse(conn, ret, 400, format, what);
}

static enum server_routed ask_no_memory(struct server_conn *conn, struct server_response *ret)
{
    server_batch_drop(conn);
    return ask_refuse(conn, ret, 503, "%s", "out of memory for the request; try again");
}

static void ask_set_answer(struct server_ask *ask, enum weir__verb verb,
                           const struct server_params *params,
                           const struct weir__http_request *request, int32_t stream)
{
    ask->verb = verb;
    ask->explain = params->explain;
    ask->hold = params->hold && (verb == WEIR__VERB_TAKE || verb == WEIR__VERB_ACQUIRE);
    ask->http.style = params->style;
    ask->http.deny_status = (int16_t)(params->deny_status ? params->deny_status : 429);
    ask->http.head = request->method == WEIR__HTTP_HEAD;
    ask->close = !request->keep_alive;
    ask->http.detail = params->detail;
    ask->http.old = request->minor == 0;
    ask->http.stream = stream;
}

/* Its kind, and what that needs of the parameters. */
static void ask_set_kind(struct server_ask *ask, enum server_ask_kind kind,
                         const struct server_params *params)
{
    ask->kind = kind;
    if (kind == SERVER_ASK_SETTLE || kind == SERVER_ASK_SETTLE_PLAN) {
        ask->settle.receipt = params->receipt;
        ask->settle.actual = params->actual;
    } else if (kind == SERVER_ASK_LEASE || kind == SERVER_ASK_LEASE_PLAN) {
        ask->lease = (uint64_t)params->lease;
    }
}

/* Waits: as asked; a held answer waits no longer than the server holds one. */
static int64_t ask_wait_of(const struct server_conn *conn, const struct server_params *params)
{
    int64_t most = conn->thread->server->config.max_delay_us;
    if (!params->hold)
        return params->wait_us;
    return params->wait_us == WEIR_WAIT_DEFAULT ? most : weir__min(params->wait_us, most);
}

/* ---- limits that the request brings ---- */

/* The value of the attribute that key_from names, copied where it lives as long as the batch. */
static const char *ask_find_key_from(struct server_conn *conn, const struct server_params *params,
                                     const struct weir__http_request *request,
                                     struct weir__span *ret)
{
    char room[WEIR__VIEW_SCRATCH];
    struct server_subject subject;
    struct weir__subject finder = {server_subject_find, &subject};
    server_subject_begin(&subject, conn, request, params);
    switch (weir__attribute_text(&finder, params->key_from, room, sizeof room, ret)) {
    case WEIR__ABSENT:
        return "the request has no value for key_from";
    case WEIR__UNUSABLE:
        return ret->data;
    case WEIR__FOUND:
        break;
    }
    char *copy = ret->len <= WEIR_KEY_MAX ? server_batch_room(conn, ret->len) : NULL;
    if (!copy)
        return "the value for key_from is too long";
    memcpy(copy, ret->data, ret->len);
    ret->data = copy;
    return NULL;
}

/* The key: as given, or the value of an attribute. It lives as long as the batch. */
static const char *ask_find_key(struct server_conn *conn, const struct server_params *params,
                                const struct weir__http_request *request, weir_key *ret)
{
    struct weir__span key = params->key;
    if (params->has_key_from) {
        const char *why = ask_find_key_from(conn, params, request, &key);
        if (why)
            return why;
    } else if (!params->has_key) {
        return "a key is needed: key, or key_from with the name of an attribute";
    }
    if (key.len < 1 || key.len > WEIR_KEY_MAX)
        return "a key has 1 to 65536 bytes";
    *ret = weir_key_bytes(key.data, key.len);
    return NULL;
}

static bool ask_needs_rows(const struct server_params *params, const weir_limit *limit)
{
    return params->detail || params->explain ||
           (limit->count > 1 && params->style != WEIR__FIELDS_OFF);
}

/* One request with rows. */
static void ask_put_with_rows(struct server_several *several, const weir_request *request)
{
    several->count = 1;
    several->row_count = weir_limit_count(request->limit);
    several->requests[0] = *request;
    several->requests[0].detail = several->rows;
}

static enum server_routed ask_limit(struct server_conn *conn, enum weir__verb verb,
                                    const struct server_params *params,
                                    const struct weir__http_request *request, int32_t stream,
                                    struct server_response *ret)
{
    weir_error err;
    struct server_ask *ask = server_batch_add(conn);
    if (!ask)
        return SERVER_BUSY;
    struct server_batch *batch = server_batch_of(conn);
    weir_request *it = &batch->simple[batch->count - 1];
    ask_set_answer(ask, verb, params, request, stream);
    ask_set_kind(ask, server_ask_kind_of(verb), params);
    const char *why = ask_find_key(conn, params, request, &it->key);
    if (why)
        return ask_undo(conn, ret, params->has_key_from ? "key_from: %s" : "%s", why);
    if (verb == WEIR__VERB_RESET || verb == WEIR__VERB_SHOW)
        return SERVER_ASKED;
    if (params->limit.len == 0)
        return ask_undo(conn, ret, "%s", "a limit is needed, like token-bucket 100/s, or a policy");
    it->limit =
        weir__limit_cached(&conn->thread->cache, params->limit.data, params->limit.len, &err);
    if (!it->limit)
        return ask_undo(conn, ret, "limit: %s", err.message);
    it->cost = params->cost == SERVER_COST_UNSAID ? 1 : params->cost;
    it->wait_us = ask_wait_of(conn, params);
    it->acquire = verb == WEIR__VERB_ACQUIRE;
    bool leases = weir__has_leases(it->limit);
    if (leases && verb == WEIR__VERB_TAKE)
        return ask_undo(conn, ret, "%s", SERVER_NEEDS_ACQUIRE);
    if (!leases &&
        (verb == WEIR__VERB_ACQUIRE || verb == WEIR__VERB_RENEW || verb == WEIR__VERB_RELEASE))
        return ask_undo(conn, ret, "%s", "there are no leases: none of the limits is concurrent");
    if (leases && verb == WEIR__VERB_SETTLE)
        return ask_undo(conn, ret, "%s",
                        "concurrent limits cannot be settled: release the lease instead");
    if (ask->kind == SERVER_ASK_ONE && ask_needs_rows(params, it->limit)) {
        struct server_several *several = server_several_take(conn->thread);
        if (!several)
            return ask_no_memory(conn, ret);
        ask_put_with_rows(several, it);
        ask->kind = SERVER_ASK_SEVERAL;
        ask->several = several;
    } else {
        server_batch_hash(conn);
    }
    return SERVER_ASKED;
}

/* ---- policies ---- */

/* The one request whose limits have leases; false: none, or several. */
static bool ask_find_leased(struct server_planned *planned)
{
    size_t found = 0;
    for (size_t i = 0; i < planned->several.count; i++) {
        if (weir__has_leases(planned->several.requests[i].limit)) {
            planned->leased = i;
            found++;
        }
    }
    return found == 1;
}

static enum server_routed ask_policy(struct server_conn *conn, enum weir__verb verb,
                                     const struct server_params *params,
                                     const struct weir__http_request *request, int32_t stream,
                                     struct server_response *ret)
{
    weir_error err;
    struct server_subject subject;
    struct weir__subject finder = {server_subject_find, &subject};
    weir_key key = weir_key_bytes(params->key.data, params->key.len);
    struct server_ask *ask = server_batch_add(conn);
    if (!ask)
        return SERVER_BUSY;
    ask_set_answer(ask, verb, params, request, stream);
    struct server_planned *planned = server_planned_take(conn->thread);
    if (!planned)
        return ask_no_memory(conn, ret);
    ask_set_kind(ask, server_ask_kind_of_plan(verb), params);
    ask->planned = planned;
    server_subject_begin(&subject, conn, request, params);
    if (params->has_key && params->policy.len == 0)
        return ask_undo(conn, ret, "%s", "a key needs a limit or a policy");
    if (params->has_key && (key.len < 1 || key.len > WEIR_KEY_MAX))
        return ask_undo(conn, ret, "%s", "a key has 1 to 65536 bytes");
    const struct server_plan_question question = {.policy = params->policy,
                                                  .subject = &finder,
                                                  .key = params->has_key ? &key : NULL,
                                                  .cost = params->cost,
                                                  .wait_us = ask_wait_of(conn, params)};
    if (server_planned_make(conn, &question, planned, &err)) {
        if (!params->has_policy) /* a proxy, or a policy file, that needs mending */
            server_report_once(conn->peer_text,
                               "a request that %s asks for is refused with 400: %s; reported once "
                               "for this address",
                               conn->peer_text, err.message);
        return ask_undo(conn, ret, "%s", err.message);
    }
    const struct weir__policy *by = planned->plan.by;
    if (planned->plan.verdict == WEIR__VERDICT_DENY && !params->deny_status)
        ask->http.deny_status = (int16_t)by->deny_status;
    if (by && by->styled && !params->styled)
        ask->http.style = by->style;
    bool leases = weir__verb_leases(verb);
    for (size_t i = 0; i < planned->several.count && verb == WEIR__VERB_TAKE; i++) {
        if (weir__has_leases(planned->several.requests[i].limit))
            return ask_undo(conn, ret, "%s", SERVER_NEEDS_ACQUIRE);
    }
    if (leases && !ask_find_leased(planned))
        return ask_undo(
            conn, ret, "%s",
            "exactly one concurrent limit must apply, for its lease; name the policy that has it");
    if (verb == WEIR__VERB_ACQUIRE)
        planned->plan.enforced[planned->leased].acquire = true;
    return SERVER_ASKED;
}

/* ---- several keys ---- */

static bool ask_has_known_members(const struct weir__json_node *nodes,
                                  const struct weir__json_node *object)
{
    static const char *const known[] = {"key", "key_base64", "limit", "cost"};
    uint32_t i = (uint32_t)(object - nodes) + 1;
    for (; i < object->next; i = nodes[i + 1].next) {
        struct weir__span name = {nodes[i].text, nodes[i].len};
        size_t at = 0;
        while (at < WEIR__COUNT(known) && !weir__span_is(name, known[at]))
            at++;
        if (at == WEIR__COUNT(known))
            return false;
    }
    return true;
}

/* One element of takeall's requests: {"key" or "key_base64", "limit", "cost"}. */
static const char *ask_read_element(struct server_conn *conn, const struct server_params *params,
                                    const struct weir__json_node *node,
                                    struct server_several *several, weir_error *err)
{
    const struct weir__json_node *key, *limit, *cost;
    weir_request *it = &several->requests[several->count];
    if (node->type != WEIR__JSON_OBJECT || !ask_has_known_members(params->nodes, node))
        return "each request is an object with key or key_base64, limit and cost, and nothing else";
    key = weir__json_member(params->nodes, node, "key");
    limit = weir__json_member(params->nodes, node, "limit");
    cost = weir__json_member(params->nodes, node, "cost");
    *it = (weir_request){.cost = 1, .wait_us = ask_wait_of(conn, params)};
    if (key && weir__json_member(params->nodes, node, "key_base64"))
        return "each request has key or key_base64, not both";
    if (key && key->type == WEIR__JSON_STRING) {
        it->key = weir_key_bytes(key->text, key->len);
    } else {
        key = weir__json_member(params->nodes, node, "key_base64");
        int64_t len = key && key->type == WEIR__JSON_STRING
                          ? weir__base64_decode((char *)key->text, key->len)
                          : -1;
        it->key = weir_key_bytes(key ? key->text : NULL, len < 0 ? 0 : (size_t)len);
    }
    if (it->key.len < 1 || it->key.len > WEIR_KEY_MAX)
        return "each request needs a key of 1 to 65536 bytes, or key_base64";
    if (!limit || limit->type != WEIR__JSON_STRING)
        return "each request needs a limit, like token-bucket 100/s";
    if (cost && !weir__json_integer(cost, 0, WEIR_COST_MAX, &it->cost))
        return "a cost is a whole number from 0 to 10^12";
    it->limit = weir__limit_cached(&conn->thread->cache, limit->text, limit->len, err);
    if (!it->limit)
        return err->message;
    if (weir__has_leases(it->limit))
        return SERVER_NEEDS_ACQUIRE;
    if (several->row_count + it->limit->count > WEIR_LIMITS_MAX)
        return "at most 16 limits per request";
    it->detail = several->rows + several->row_count;
    several->row_count += it->limit->count;
    several->count++;
    return NULL;
}

static enum server_routed ask_several(struct server_conn *conn, const struct server_params *params,
                                      const struct weir__http_request *request, int32_t stream,
                                      struct server_response *ret)
{
    weir_error err;
    struct server_ask *ask;
    if (!params->requests || params->requests->len == 0 || params->requests->len > WEIR_LIMITS_MAX)
        return ask_refuse(conn, ret, 400, "%s", "requests must be an array of 1 to 16 objects");
    if (params->hold)
        return ask_refuse(conn, ret, 400, "%s",
                          "takeall cannot hold its answer; wait as long as it says");
    ask = server_batch_add(conn);
    if (!ask)
        return SERVER_BUSY;
    ask_set_answer(ask, WEIR__VERB_TAKEALL, params, request, stream);
    struct server_several *several = server_several_take(conn->thread);
    if (!several)
        return ask_no_memory(conn, ret);
    ask->kind = SERVER_ASK_SEVERAL;
    ask->several = several;
    uint32_t at = (uint32_t)(params->requests - params->nodes) + 1;
    for (; at < params->requests->next; at = params->nodes[at].next) {
        const char *why = ask_read_element(conn, params, &params->nodes[at], several, &err);
        if (why)
            return ask_undo(conn, ret, "%s", why);
    }
    return SERVER_ASKED;
}

/* What stands beside what it has no meaning with: ignoring it would let requests through that
 * somebody meant to limit. NULL: nothing. */
static const char *ask_misplaced(enum weir__verb verb, const struct server_params *params)
{
    bool several = verb == WEIR__VERB_TAKEALL;
    bool leases = weir__verb_leases(verb);
    if (params->has_limit && params->limit.len == 0)
        return "limit is empty; leave it out, or give one like token-bucket 100/s";
    if (params->has_policy && params->policy.len == 0)
        return "policy is empty; leave it out, or give a policy's name";
    if (params->has_key_from && params->key_from.len == 0)
        return "key_from is empty; leave it out, or give an attribute's name";
    if (params->has_limit && params->has_policy)
        return "give limit or policy, not both";
    if (params->has_key_from && params->has_key)
        return "give key or key_from, not both";
    if (params->has_key_from && !params->has_limit && verb != WEIR__VERB_RESET &&
        verb != WEIR__VERB_SHOW)
        return "key_from needs a limit; a policy makes its keys itself";
    if (params->requests && !several)
        return "requests is for takeall";
    if (several &&
        (params->has_key || params->has_limit || params->has_policy || params->has_key_from ||
         params->attributes || params->cost != SERVER_COST_UNSAID))
        return "takeall takes keys, limits and costs in requests only";
    if (verb != WEIR__VERB_SETTLE && (params->has_receipt || params->actual >= 0))
        return "receipt and actual are for settle";
    return params->lease && !leases ? "lease is for renew and release" : NULL;
}

enum server_routed server_http_ask(struct server_conn *conn, enum weir__verb verb,
                                   const struct server_params *params,
                                   const struct weir__http_request *request, int32_t stream,
                                   struct server_response *ret)
{
    const char *why = ask_misplaced(verb, params);
    if (why)
        return ask_refuse(conn, ret, 400, "%s", why);
    if (verb == WEIR__VERB_TAKEALL)
        return ask_several(conn, params, request, stream, ret);
    if (verb == WEIR__VERB_SETTLE && (!params->has_receipt || params->actual < 0))
        return ask_refuse(conn, ret, 400, "%s", "settle needs receipt and actual");
    if ((verb == WEIR__VERB_RENEW || verb == WEIR__VERB_RELEASE) && params->lease == 0)
        return ask_refuse(conn, ret, 400, "%s",
                          "a lease is needed: the number that acquire answered");
    if (verb == WEIR__VERB_SHOW && (params->has_limit || params->has_policy))
        return ask_refuse(conn, ret, 400, "%s", "show takes only a key: it shows every limit");
    bool bare = verb == WEIR__VERB_SHOW || (verb == WEIR__VERB_RESET && !params->has_policy &&
                                            (params->has_key || params->has_key_from));
    bool by_limit = params->has_limit || bare;
    return by_limit ? ask_limit(conn, verb, params, request, stream, ret)
                    : ask_policy(conn, verb, params, request, stream, ret);
}
