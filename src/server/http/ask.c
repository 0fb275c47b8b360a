/* Parameters to asks: a limit given in the request, a policy by name, or all policies that
 * match. */
#include "server/http/http.h"

#include "policy/view.h"
#include "store/store.h"

#include <assert.h>
#include <string.h>

#define NO_MEMORY "out of memory for the request; try again"

enum server_routed server_http_refuse(const struct server_http_call *call, int status,
                                      const char *why)
{
    server_count_fault(call->conn, SERVER_HTTP, SERVER_FAULT_INVALID);
    server_response_problem(call->ret, status, "%s", why);
    return SERVER_RESPONDED;
}

/* Its kind and how to answer it, and what these need of the parameters. */
static void ask_begin(const struct server_http_call *call, enum weir__verb verb,
                      const struct server_params *params, struct server_ask *ask)
{
    ask->kind = params->refund ? SERVER_ASK_REFUND : server_ask_kind_of(verb);
    ask->verb = verb;
    ask->explain = params->explain;
    ask->acquires = verb == WEIR__VERB_ACQUIRE;
    ask->hold = params->hold && (verb == WEIR__VERB_TAKE || verb == WEIR__VERB_ACQUIRE);
    ask->http.style = params->style;
    ask->http.deny_status = (int16_t)(params->deny_status ? params->deny_status : 429);
    ask->http.head = call->request->method == WEIR__HTTP_HEAD;
    ask->close = !call->request->keep_alive;
    ask->http.detail = params->detail;
    ask->http.old = call->request->minor == 0;
    ask->http.stream = call->stream;
    if (ask->kind == SERVER_ASK_SETTLE) {
        ask->settle.receipt = params->receipt;
        ask->settle.actual = params->actual;
    } else if (ask->kind == SERVER_ASK_REFUND) {
        ask->refund.give.amount = params->amount;
        if (params->has[PARAM_ID]) {
            ask->refund.give.id = weir__refund_id(params->id.data, params->id.len);
            ask->refund.id = params->id;
        }
    } else if (ask->kind == SERVER_ASK_LEASE) {
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
static const char *ask_find_key_from(const struct server_http_call *call,
                                     const struct server_params *params, struct weir__span *ret)
{
    char room[WEIR__VIEW_SCRATCH];
    struct server_subject subject;
    struct weir__subject finder = {server_subject_find, &subject};
    server_subject_begin(&subject, call->conn, call->request, params);
    switch (weir__attribute_text(&finder, params->key_from, room, sizeof room, ret)) {
    case WEIR__ABSENT:
        return "the request has no value for key_from";
    case WEIR__UNUSABLE:
        return ret->data;
    case WEIR__FOUND:
        break;
    }
    char *copy = ret->len <= WEIR_KEY_MAX ? server_batch_room(call->conn, ret->len) : NULL;
    if (!copy)
        return "the value for key_from is too long";
    memcpy(copy, ret->data, ret->len);
    ret->data = copy;
    return NULL;
}

/* The key: as given, or the value of an attribute. It lives as long as the batch. */
static const char *ask_find_key(const struct server_http_call *call,
                                const struct server_params *params, weir_key *ret, weir_error *err)
{
    struct weir__span key = params->key;
    bool from = params->has[PARAM_KEY_FROM];
    const char *why = from ? ask_find_key_from(call, params, &key) : NULL;
    if (!from && !params->has[PARAM_KEY])
        return "a key is needed: key, or key_from with the name of an attribute";
    if (!why && (key.len < 1 || key.len > WEIR_KEY_MAX))
        why = "a key has 1 to 65536 bytes";
    if (why && from) {
        weir__fail(err, WEIR_EINVAL, 0, "key_from: %s", why);
        return err->message;
    }
    *ret = weir_key_bytes(key.data, key.len);
    return why;
}

static bool ask_needs_rows(const struct server_params *params, const weir_limit *limit)
{
    return params->detail || params->explain ||
           (limit->count > 1 && params->style != WEIR__FIELDS_OFF);
}

/* One request with rows. */
static bool ask_give_rows(struct server_conn *conn, struct server_ask *ask,
                          const weir_request *request)
{
    struct server_several *several = server_several_take(conn->thread);
    if (!several)
        return false;
    several->count = 1;
    several->row_count = weir_limit_count(request->limit);
    several->requests[0] = *request;
    several->requests[0].detail = several->rows;
    ask->about = SERVER_ABOUT_SEVERAL;
    ask->several = several;
    return true;
}

/* Each of these fills an ask. NULL, or why not. */
static const char *ask_limit(const struct server_http_call *call,
                             const struct server_params *params, struct server_ask *ask,
                             weir_error *err)
{
    struct server_conn *conn = call->conn;
    enum weir__verb verb = ask->verb;
    const struct server_batch *batch = conn->thread->open_batch;
    weir_request *it = &batch->simple[batch->count - 1];
    const char *why = ask_find_key(call, params, &it->key, err);
    if (why || verb == WEIR__VERB_RESET || verb == WEIR__VERB_SHOW)
        return why;
    if (params->limit.len == 0)
        return "a limit is needed, like token-bucket 100/s, or a policy";
    weir_error wrong;
    it->limit =
        weir__limit_cached(&conn->thread->cache, params->limit.data, params->limit.len, &wrong);
    if (!it->limit) {
        weir__fail(err, WEIR_ESYNTAX, 0, "limit: %s", wrong.message);
        return err->message;
    }
    it->cost = params->refund ? 0 : params->cost == SERVER_COST_UNSAID ? 1 : params->cost;
    it->least = params->least;
    it->wait_us = ask_wait_of(conn, params);
    if (it->least && weir__least_check(it, err))
        return err->message;
    it->acquire = verb == WEIR__VERB_ACQUIRE;
    bool leases = weir__has_leases(it->limit);
    if (leases && verb == WEIR__VERB_TAKE)
        return SERVER_NEEDS_ACQUIRE;
    if (!leases &&
        (verb == WEIR__VERB_ACQUIRE || verb == WEIR__VERB_RENEW || verb == WEIR__VERB_RELEASE))
        return "there are no leases: none of the limits is concurrent";
    if (verb == WEIR__VERB_SETTLE && weir__settles(it->limit, err))
        return err->message;
    if (!params->refund && (ask->kind != SERVER_ASK_DECIDE || !ask_needs_rows(params, it->limit)))
        server_batch_hash(conn);
    else if (!ask_give_rows(conn, ask, it))
        return NO_MEMORY;
    return NULL;
}

/* ---- policies ---- */

/* Why no limit counts for what is not a decision: with other attributes it would. */
static const char *ask_denied(const struct server_conn *conn, const struct server_ask *ask,
                              weir_error *err)
{
    char why[256];
    struct weir__buffer buffer = weir__buffer_over(why, sizeof why);
    weir__put_denial(&buffer, conn->thread->rules->policies, &ask->planned->plan);
    weir__fail(err, WEIR_EINVAL, 0,
               "%s, so there is nothing to %s; send all attributes that the take had", why,
               ask->kind == SERVER_ASK_LEASE ? "renew or release" : "settle or reset");
    return err->message;
}

static const char *ask_policy(const struct server_http_call *call,
                              const struct server_params *params, struct server_ask *ask,
                              weir_error *err)
{
    struct server_conn *conn = call->conn;
    struct server_subject subject;
    struct weir__subject finder = {server_subject_find, &subject};
    weir_key key = weir_key_bytes(params->key.data, params->key.len);
    bool has_key = params->has[PARAM_KEY];
    struct server_planned *planned = server_planned_take(conn->thread);
    if (!planned)
        return NO_MEMORY;
    ask->about = SERVER_ABOUT_PLAN;
    ask->planned = planned;
    server_subject_begin(&subject, conn, call->request, params);
    if (has_key && params->policy.len == 0)
        return "a key needs a limit or a policy";
    if (has_key && (key.len < 1 || key.len > WEIR_KEY_MAX))
        return "a key has 1 to 65536 bytes";
    const struct server_plan_question question = {.policy = params->policy,
                                                  .subject = &finder,
                                                  .key = has_key ? &key : NULL,
                                                  .cost = params->cost,
                                                  .least = params->least,
                                                  .wait_us = ask_wait_of(conn, params),
                                                  .explains = params->explain,
                                                  .past_lists = params->refund ||
                                                                ask->kind == SERVER_ASK_LEASE};
    if (server_planned_make(conn, &question, planned, err)) {
        if (!params->has[PARAM_POLICY]) /* a proxy, or a policy file, that needs mending */
            server_report_once(conn->peer_text,
                               "a request that %s asks for is refused with 400: %s; reported once "
                               "for this address",
                               conn->peer_text, err->message);
        return err->message;
    }
    if (params->refund)
        return server_planned_keep(planned, params->limit, err) ? err->message : NULL;
    struct weir__plan *plan = &planned->plan;
    const struct weir__policy *by = plan->by;
    if (plan->verdict == WEIR__VERDICT_DENY && ask->kind != SERVER_ASK_DECIDE)
        return ask_denied(conn, ask, err);
    if (plan->verdict == WEIR__VERDICT_DENY && !params->deny_status)
        ask->http.deny_status = (int16_t)by->deny_status;
    if (by && by->styled && !params->has[PARAM_HEADERS])
        ask->http.style = by->style;
    size_t leased = weir__items_leased(plan->enforced, plan->enforced_count);
    size_t in_shadow = weir__items_leased(plan->shadow, plan->shadow_count);
    if (ask->verb == WEIR__VERB_TAKE && leased > 0)
        return SERVER_NEEDS_ACQUIRE;
    if (plan->verdict == WEIR__VERDICT_DENY)
        return NULL; /* refused as such: nothing is acquired */
    if (weir__verb_leases(ask->verb) && leased + in_shadow + plan->exempted_count == 0)
        return "there are no leases: no concurrent limit applies; name the policy that has one";
    if (ask->verb == WEIR__VERB_ACQUIRE && leased > 1 && plan->together != WEIR__TOGETHER)
        return "several concurrent limits are acquired in one go, which needs all keys in one slot "
               "of the cluster";
    if (ask->verb == WEIR__VERB_ACQUIRE)
        weir__plan_acquire(plan);
    return NULL;
}

/* ---- several keys ---- */

static bool ask_has_known_members(const struct weir__json_node *nodes,
                                  const struct weir__json_node *object)
{
    static const char *const known[] = {"key", "key_base64", "limit", "cost", "least"};
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

/* One element of takeall's requests: {"key" or "key_base64", "limit", "cost", "least"}. */
static const char *ask_read_element(struct server_conn *conn, const struct server_params *params,
                                    const struct weir__json_node *node,
                                    struct server_several *several, weir_error *err)
{
    const struct weir__json_node *key, *limit, *cost, *least;
    weir_request *it = &several->requests[several->count];
    if (node->type != WEIR__JSON_OBJECT || !ask_has_known_members(params->nodes, node))
        return "each request is an object with key or key_base64, limit, cost and least, and "
               "nothing else";
    key = weir__json_member(params->nodes, node, "key");
    limit = weir__json_member(params->nodes, node, "limit");
    cost = weir__json_member(params->nodes, node, "cost");
    least = weir__json_member(params->nodes, node, "least");
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
    if (least && !weir__json_integer(least, 1, WEIR_COST_MAX, &it->least))
        return "a least is a whole number from 1 to the cost";
    it->limit = weir__limit_cached(&conn->thread->cache, limit->text, limit->len, err);
    if (!it->limit || (it->least && weir__least_check(it, err)))
        return err->message;
    it->acquire = weir__has_leases(it->limit);
    if (it->acquire && !params->acquire)
        return SERVER_NEEDS_ACQUIRE;
    if (several->row_count + it->limit->count > WEIR_LIMITS_MAX)
        return "at most 16 limits per request";
    it->detail = several->rows + several->row_count;
    several->row_count += it->limit->count;
    several->count++;
    return NULL;
}

static const char *ask_several(const struct server_http_call *call,
                               const struct server_params *params, struct server_ask *ask,
                               weir_error *err)
{
    struct server_several *several = server_several_take(call->conn->thread);
    if (!several)
        return NO_MEMORY;
    ask->about = SERVER_ABOUT_SEVERAL;
    ask->several = several;
    const char *why = NULL;
    uint32_t at = (uint32_t)(params->requests - params->nodes) + 1;
    for (; at < params->requests->next && !why; at = params->nodes[at].next)
        why = ask_read_element(call->conn, params, &params->nodes[at], several, err);
    for (size_t i = 0; i < several->count; i++)
        ask->acquires = ask->acquires || several->requests[i].acquire;
    if (!why && params->acquire && !ask->acquires)
        return "there is nothing to acquire: none of the limits is concurrent";
    return why;
}

/* What is missing, or stands beside what it has no meaning with: ignoring it would let requests
 * through that somebody meant to limit. NULL: nothing. */
static const char *ask_misplaced(enum weir__verb verb, const struct server_params *params)
{
    bool several = verb == WEIR__VERB_TAKEALL;
    bool leases = weir__verb_leases(verb);
    if (params->has[PARAM_LIMIT] && params->limit.len == 0)
        return "limit is empty; leave it out, or give one like token-bucket 100/s";
    if (params->has[PARAM_POLICY] && params->policy.len == 0)
        return "policy is empty; leave it out, or give a policy's name";
    if (params->has[PARAM_KEY_FROM] && params->key_from.len == 0)
        return "key_from is empty; leave it out, or give an attribute's name";
    if (params->has[PARAM_LIMIT] && params->has[PARAM_POLICY] && !params->refund)
        return "give limit or policy, not both";
    if (params->has[PARAM_KEY_FROM] && params->has[PARAM_KEY])
        return "give key or key_from, not both";
    if (params->has[PARAM_KEY_FROM] && !params->has[PARAM_LIMIT] && verb != WEIR__VERB_RESET &&
        verb != WEIR__VERB_SHOW)
        return "key_from needs a limit; a policy makes its keys itself";
    if (params->requests && !several)
        return "requests is for takeall";
    if (params->acquire && !several)
        return "acquire is for takeall; a single key has /v1/acquire";
    if (several &&
        (params->has[PARAM_KEY] || params->has[PARAM_LIMIT] || params->has[PARAM_POLICY] ||
         params->has[PARAM_KEY_FROM] || params->attributes || params->has[PARAM_LEAST] ||
         params->cost != SERVER_COST_UNSAID))
        return "takeall takes keys, limits and costs in requests only";
    if (params->least && verb != WEIR__VERB_TAKE && verb != WEIR__VERB_PEEK &&
        verb != WEIR__VERB_ACQUIRE && (verb != WEIR__VERB_SETTLE || params->has[PARAM_LIMIT]))
        return "least is for take, peek and acquire, and for settle with policies";
    if (verb != WEIR__VERB_SETTLE && (params->has[PARAM_RECEIPT] || params->actual >= 0))
        return "receipt and actual are for settle";
    if (params->lease && !leases)
        return "lease is for renew and release";
    if (several && (!params->requests || params->requests->len == 0 ||
                    params->requests->len > WEIR_LIMITS_MAX))
        return "requests must be an array of 1 to 16 objects";
    if (several && params->hold)
        return "takeall cannot hold its answer; wait as long as it says";
    if (params->refund &&
        (params->amount == 0 || params->has[PARAM_RECEIPT] || params->actual >= 0 ||
         params->cost != SERVER_COST_UNSAID || params->least || params->detail ||
         !(params->has[PARAM_POLICY] || params->has[PARAM_LIMIT])))
        return "refund needs an amount, and key and limit, or policy with key or attributes, and "
               "nothing else but an id; beside a policy, limit is the name of one of its limits";
    if (!params->refund && (params->amount || params->has[PARAM_ID]))
        return "amount and id are for refund";
    if (params->has[PARAM_ID] && (params->id.len < 1 || params->id.len > WEIR__REFUND_ID_MAX))
        return "an id has 1 to 128 bytes, like refund-2041; leave it out if the refund is not to "
               "be remembered";
    if (verb == WEIR__VERB_SETTLE && !params->refund &&
        (!params->has[PARAM_RECEIPT] || params->actual < 0))
        return "settle needs receipt and actual";
    if ((verb == WEIR__VERB_RENEW || verb == WEIR__VERB_RELEASE) && params->lease == 0)
        return "a lease is needed: the number that acquire answered";
    if (verb == WEIR__VERB_SHOW && (params->has[PARAM_LIMIT] || params->has[PARAM_POLICY]))
        return "show takes only the key of a state, like tokens/month/{customer=bob}, and shows "
               "all its limits; /v1/explain takes a policy, a limit or attributes, and names the "
               "key of each state";
    return NULL;
}

enum server_routed server_http_ask(const struct server_http_call *call, enum weir__verb verb,
                                   const struct server_params *params)
{
    weir_error err;
    const char *why = ask_misplaced(verb, params);
    if (why)
        return server_http_refuse(call, 400, why);
    struct server_ask *ask = server_batch_add(call->conn);
    if (!ask)
        return SERVER_BUSY;
    ask_begin(call, verb, params, ask);
    bool key = params->has[PARAM_KEY] || params->has[PARAM_KEY_FROM];
    bool bare =
        verb == WEIR__VERB_SHOW || (verb == WEIR__VERB_RESET && !params->has[PARAM_POLICY] && key);
    if (verb == WEIR__VERB_TAKEALL)
        why = ask_several(call, params, ask, &err);
    else if ((params->has[PARAM_LIMIT] && !params->has[PARAM_POLICY]) || bare)
        why = ask_limit(call, params, ask, &err);
    else
        why = ask_policy(call, params, ask, &err);
    if (!why)
        return SERVER_ASKED;
    server_batch_drop(call->conn);
    return server_http_refuse(call, strcmp(why, NO_MEMORY) ? 400 : 503, why);
}
