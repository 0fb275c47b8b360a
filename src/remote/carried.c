/*
 * A redis:// store without sockets: the program carries the bytes (weir.h). Questions are written
 * and answers read as those of the store are (query_write.c, query_read.c, query_judge.c), and the
 * local fallback is the same (fallback.c).
 *
 *   1. A call owns what it was asked: copies of the keys, references to the limits.
 *   2. Whether the server has the module is not known at first. The first call over a new
 *      connection tries its command, and is sent again as a script where there is none.
 *   3. Who we are and which database is ours is said first on a new connection, and awaited: so
 *      nothing is charged in another database.
 */
#include "limit/limit.h"
#include "limit/receipt.h"
#include "remote/remote.h"
#include "remote/talk.h"

#include <stdlib.h>

#define REPLY_MAX 65536
#define NODES_MAX 256 /* of a reply: 16 rows of up to 8 and what stands around them */

struct weir_redis {
    struct weir__redis_url url;
    struct weir__fallback fallback;
    weir_store *checker; /* a zone that checks requests: the fallback's, or a small one */
    struct weir__server server;
    int64_t time_us; /* of the test clock; -1: the server's own */
};

/* What a call waits for. */
enum carried_phase {
    CARRIED_NEW,
    CARRIED_GREETING, /* the replies to AUTH and SELECT */
    CARRIED_ASKING,   /* its own */
    CARRIED_DONE,     /* nothing: it was answered, refused, or given up */
};

struct weir_redis_call {
    struct weir__redis_query query; /* first: it is the query's call */
    struct weir_redis *redis;
    weir_request requests[WEIR_LIMITS_MAX];
    struct weir__correction correction;
    weir_decision decision, rows[WEIR_LIMITS_MAX];
    enum carried_phase phase;
    bool decided, clean;
    unsigned replies, seen; /* of this phase */
    struct weir__buffer out, in;
    struct weir__resp_reader reader;
    struct weir__resp_node nodes[NODES_MAX];
    char part_text[WEIR__LIMITS_TEXT_MAX]; /* settle: of the limits that it is about */
    weir_limit part;
    char *keys;
};

/* ---- the server ---- */

static int carried_check_address(const struct weir__redis_url *url, weir_error *err)
{
    if (url->kind == WEIR__REDIS_CLUSTER || url->kind == WEIR__REDIS_SENTINEL)
        return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                          "redis+%s:// is not supported here: expected one server, redis://host",
                          url->kind == WEIR__REDIS_CLUSTER ? "cluster" : "sentinel");
    if (url->engine == WEIR__ENGINE_FUNCTION)
        return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                          "engine=function is not supported here: expected auto, module or lua");
    if (url->ca[0] || url->cert[0])
        return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                          "ca=, cert= and key= are not supported here: the program has the socket");
    return 0;
}

/* The zone of fail=local, otherwise a small one: it checks requests, which charge nothing. */
static int carried_open_zone(struct weir_redis *redis, weir_error *err)
{
    char address[64];
    bool local = redis->url.fail == WEIR__FAIL_LOCAL;
    struct weir__buffer buffer = weir__buffer_over(address, sizeof address);
    weir__put_format(&buffer, "memory:%llu", local ? (unsigned long long)redis->url.size : 65536);
    int code = weir_store_open(address, &redis->checker, err);
    redis->fallback = (struct weir__fallback){.fail = redis->url.fail,
                                              .peers = redis->url.peers,
                                              .local = local ? redis->checker : NULL,
                                              .charges = local ? weir__charges_create() : NULL};
    return code;
}

int weir_redis_open(const char *url, weir_redis **ret, weir_error *err)
{
    if (!url || !ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the %s NULL", url ? "result is" : "address is");
    struct weir_redis *redis = calloc(1, sizeof *redis);
    if (!redis)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for an address");
    int code = weir__redis_url_parse(url, &redis->url, err);
    if (code == 0)
        code = carried_check_address(&redis->url, err);
    if (code == 0)
        code = carried_open_zone(redis, err);
    if (code) {
        weir_redis_close(redis);
        return code;
    }
    redis->server.module = redis->url.engine != WEIR__ENGINE_LUA;
    redis->time_us = -1;
    *ret = redis;
    return 0;
}

void weir_redis_close(weir_redis *redis)
{
    if (!redis)
        return;
    weir_store_close(redis->checker);
    weir__charges_free(redis->fallback.charges);
    memset(redis->url.password, 0, sizeof redis->url.password);
    free(redis);
}

const char *weir_redis_host(const weir_redis *redis)
{
    return !redis                                ? ""
           : redis->url.kind == WEIR__REDIS_UNIX ? redis->url.path
                                                 : redis->url.hosts[0].name;
}

int weir_redis_port(const weir_redis *redis)
{
    return !redis || redis->url.kind == WEIR__REDIS_UNIX ? 0 : redis->url.hosts[0].port;
}

int weir_redis_tls(const weir_redis *redis)
{
    return !redis || !redis->url.tls ? 0 : redis->url.verify ? 2 : 1;
}

int64_t weir_redis_deadline_us(const weir_redis *redis)
{
    return redis ? redis->url.deadline_us : 0;
}

int weir_redis_set_time(weir_redis *redis, int64_t time_us)
{
    if (!redis)
        return WEIR_EINVAL;
    int code = weir_store_set_time(redis->checker, time_us);
    if (code == 0) {
        redis->time_us = time_us;
        redis->server.test_clock = redis->url.engine == WEIR__ENGINE_MODULE;
    }
    return code;
}

/* ---- asking ---- */

static weir_key carried_key(const weir_request *request)
{
    return request->hashed ? request->hashed->key : request->key;
}

/* What is wrong with a take or a peek: the zone knows it, and a peek charges nothing there. */
static int carried_check_decision(weir_redis_call *call, const weir_request *requests, size_t n,
                                  weir_error *err)
{
    weir_request given[WEIR_LIMITS_MAX], said[WEIR_LIMITS_MAX];
    weir_decision unused;
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        given[i] = requests[i];
        given[i].detail = NULL;
        given[i].error = err;
        code = weir__request_read(call->redis->checker, &given[i], &said[i]);
        if (code == 0 && requests[i].wait_us != requests[0].wait_us)
            code = weir__fail(err, WEIR_EUNSUPPORTED, 0,
                              "the requests of a call to Redis have one wait_us");
    }
    if (code)
        return code;
    if (n > 1 && call->query.verb == WEIR__VERB_PEEK)
        return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                          "a peek at Redis has one key: peek at each by itself");
    code = weir__peek_all(call->redis->checker, said, n, &unused);
    if (code == 0 || code == WEIR_EFULL) /* that is the zone's own matter */
        return 0;
    return weir__requests_fail(call->redis->checker, given, n, code);
}

static int carried_check_one(weir_redis_call *call, const weir_request *request,
                             const char *receipt, uint64_t lease, weir_error *err)
{
    weir_request said = *request;
    bool leases = weir__verb_leases(call->query.verb);
    said.cost = request->cost == WEIR_COST_NONE ? 0 : request->cost;
    said.key = carried_key(request);
    said.acquire = leases;
    if (call->query.verb == WEIR__VERB_RESET)
        return weir__key_in_bounds(said.key)
                   ? 0
                   : weir__fail(err, WEIR_EINVAL, 0, "invalid key of %zu bytes: expected 1 to %d",
                                said.key.len, WEIR_KEY_MAX);
    int code = weir__request_check(call->redis->checker, &said, err);
    if (code || leases) {
        if (code == 0 && (lease == 0 || lease > WEIR__LEASE_MASK))
            return weir__fail(err, WEIR_ENOLEASE, 0, "%s", weir_strerror(WEIR_ENOLEASE));
        return code;
    }
    code = weir__receipt_check(receipt ? receipt : "NULL", &call->correction, err);
    if (code)
        return code;
    call->correction.actual = said.cost;
    return weir__settles(said.limit, err);
}

/* Copies the requests: their keys, references to their limits. 0 or WEIR_ENOMEM. */
static int carried_keep(weir_redis_call *call, const weir_request *requests, size_t n)
{
    size_t bytes = 0, at = 0;
    bool only_key = call->query.verb == WEIR__VERB_RESET;
    for (size_t i = 0; i < n; i++)
        bytes += carried_key(&requests[i]).len;
    call->keys = malloc(bytes);
    if (!call->keys)
        return WEIR_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        weir_request *kept = &call->requests[i];
        const weir_request *asked = &requests[i];
        weir_key key = carried_key(asked);
        memcpy(call->keys + at, key.data, key.len);
        *kept = *asked;
        kept->key = weir_key_bytes(call->keys + at, key.len);
        kept->limit = only_key ? NULL : weir__limit_ref(asked->limit);
        kept->cost = asked->cost == WEIR_COST_NONE                              ? 0
                     : asked->cost == 0 && weir__verb_decides(call->query.verb) ? 1
                                                                                : asked->cost;
        kept->detail = NULL;
        kept->error = NULL;
        kept->hashed = NULL;
        at += key.len;
        call->query.count = i + 1;
        call->query.limits += kept->limit ? kept->limit->count : 0;
    }
    return 0;
}

/* Completes the query of a call whose requests are kept. */
static int carried_prepare(weir_redis_call *call, uint64_t lease, weir_error *err)
{
    struct weir__redis_query *query = &call->query;
    query->url = &call->redis->url;
    query->requests = call->requests;
    query->wait_us =
        weir__verb_decides(query->verb) ? call->requests[0].wait_us : WEIR_WAIT_DEFAULT;
    query->correction = &call->correction;
    query->lease = lease;
    query->time_us = call->redis->time_us;
    query->ret = &call->decision;
    query->rows = call->rows;
    query->call.write = weir__redis_query_write;
    query->call.read = weir__redis_query_read;
    if (query->verb == WEIR__VERB_SETTLE) {
        const weir_limit *limit = call->requests[0].limit;
        weir__limit_part(limit, weir__limit_variable(limit), call->part_text, &call->part);
        query->limits = call->part.count;
    }
    weir__redis_query_withhold(query, NULL);
    if (query->verb == WEIR__VERB_ACQUIRE && weir__lease_id(&query->lease))
        return weir__fail(err, WEIR_ESYSTEM, 0, "no random numbers for a lease");
    return 0;
}

static int carried_read_verb(const char *word, const weir_request *requests, size_t n,
                             enum weir__verb *ret, weir_error *err)
{
    static const enum weir__verb known[] = {WEIR__VERB_TAKE,  WEIR__VERB_PEEK,  WEIR__VERB_SETTLE,
                                            WEIR__VERB_RESET, WEIR__VERB_RENEW, WEIR__VERB_RELEASE};
    for (size_t i = 0; i < WEIR__COUNT(known); i++) {
        if (strcmp(weir__verbs[known[i]].word, word))
            continue;
        *ret = known[i];
        if (n > 1 && known[i] != WEIR__VERB_TAKE && known[i] != WEIR__VERB_PEEK)
            return weir__fail(err, WEIR_EINVAL, 0, "%s has one request, not %zu", word, n);
        for (size_t j = 0; j < n && known[i] == WEIR__VERB_TAKE; j++) {
            if (requests[j].acquire)
                *ret = WEIR__VERB_ACQUIRE;
        }
        return 0;
    }
    return weir__fail(
        err, WEIR_EINVAL, 0,
        "invalid verb \"%.32s\": expected take, peek, settle, reset, renew or release", word);
}

static int carried_ask(weir_redis_call *call, const char *word, const weir_request *requests,
                       size_t n, const char *receipt, uint64_t lease, weir_error *err)
{
    int code = carried_read_verb(word, requests, n, &call->query.verb, err);
    if (code == 0)
        code = weir__verb_decides(call->query.verb)
                   ? carried_check_decision(call, requests, n, err)
                   : carried_check_one(call, requests, receipt, lease, err);
    if (code == 0 && carried_keep(call, requests, n))
        code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a call");
    return code ? code : carried_prepare(call, lease, err);
}

int weir_redis_ask(weir_redis *redis, const char *verb, const weir_request *requests, size_t n,
                   const char *receipt, uint64_t lease, weir_redis_call **ret, weir_error *err)
{
    if (!redis || !verb || !requests || !ret)
        return weir__fail(err, WEIR_EINVAL, 0, "an argument of a call to Redis is NULL");
    if (n < 1 || n > WEIR_LIMITS_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "%zu requests in one call: expected 1 to %d", n,
                          WEIR_LIMITS_MAX);
    weir_redis_call *call = calloc(1, sizeof *call);
    if (!call)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a call");
    call->redis = redis;
    call->out = weir__buffer_growing();
    call->in = weir__buffer_growing();
    int code = carried_ask(call, verb, requests, n, receipt, lease, err);
    if (code) {
        weir_redis_call_free(call);
        return code;
    }
    *ret = call;
    return 0;
}

void weir_redis_call_free(weir_redis_call *call)
{
    if (!call)
        return;
    for (size_t i = 0; i < call->query.count; i++)
        weir_limit_free((weir_limit *)call->requests[i].limit);
    weir__buffer_free(&call->out);
    weir__buffer_free(&call->in);
    free(call->keys);
    free(call);
}

/* ---- writing ---- */

static void carried_put_words(weir_redis_call *call, size_t n, const char *const words[])
{
    weir__resp_put_header(&call->out, WEIR__RESP_ARRAY, n, 2);
    for (size_t i = 0; i < n; i++)
        weir__resp_put_bulk(&call->out, words[i], strlen(words[i]));
    call->replies++;
}

/* AUTH and SELECT, where the address says so. 0 or WEIR_ESYSTEM. */
static int carried_greet(weir_redis_call *call, weir_error *err)
{
    const struct weir__redis_url *url = &call->redis->url;
    char password[WEIR__PASSWORD_SIZE], number[16];
    if (!weir__redis_password(url, password))
        return weir__fail(err, WEIR_ESYSTEM, 0, "the password file %.200s cannot be read",
                          url->password_file);
    if (password[0] && url->user[0])
        carried_put_words(call, 3, (const char *const[]){"AUTH", url->user, password});
    else if (password[0])
        carried_put_words(call, 2, (const char *const[]){"AUTH", password});
    memset(password, 0, sizeof password);
    struct weir__buffer text = weir__buffer_over(number, sizeof number);
    weir__put_int(&text, url->db);
    if (url->db)
        carried_put_words(call, 2, (const char *const[]){"SELECT", number});
    return 0;
}

/* A settle leaves out the limits that have a cost of their own. */
static void carried_put_query(weir_redis_call *call)
{
    const weir_limit *whole = call->requests[0].limit;
    bool settles = call->query.verb == WEIR__VERB_SETTLE;
    if (settles)
        call->requests[0].limit = &call->part;
    call->replies = weir__redis_query_write(&call->query.call, &call->redis->server, &call->out);
    if (settles)
        call->requests[0].limit = whole;
    call->query.call.replies = call->replies;
}

int weir_redis_write(weir_redis_call *call, bool fresh, const char **ret, size_t *ret_len,
                     weir_error *err)
{
    static const struct weir__resp_limits limits = {4, 4096, 8192, REPLY_MAX};
    if (!call || !ret || !ret_len || call->phase == CARRIED_DONE)
        return weir__fail(err, WEIR_EINVAL, 0, "there is nothing to write");
    struct weir_redis *redis = call->redis;
    if (fresh && redis->url.engine == WEIR__ENGINE_AUTO && redis->time_us < 0)
        redis->server.module = true; /* perhaps: the server may be another one now */
    call->out.len = call->in.len = 0;
    call->replies = call->seen = 0;
    call->clean = false;
    weir__resp_begin(&call->reader, WEIR__RESP_REPLIES, &limits, call->nodes, NODES_MAX);
    call->phase = CARRIED_GREETING;
    int code = fresh ? carried_greet(call, err) : 0;
    if (code)
        return code;
    if (call->replies == 0) {
        call->phase = CARRIED_ASKING;
        carried_put_query(call);
    }
    if (call->out.cut)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a call");
    *ret = call->out.data;
    *ret_len = call->out.len;
    return 0;
}

/* ---- reading ---- */

static int carried_end(weir_redis_call *call, bool clean, int code)
{
    call->phase = CARRIED_DONE;
    call->clean = clean;
    return code;
}

static int carried_fail(weir_redis_call *call, bool clean, int code, weir_error *err)
{
    carried_end(call, clean, code);
    return weir__fail(err, code, 0, "%s", call->query.error);
}

/* The server did nothing, and is asked in another way. */
static int carried_again(weir_redis_call *call)
{
    call->phase = CARRIED_NEW;
    return WEIR_REDIS_AGAIN;
}

/* Whether the module refuses us its commands: then the scripts may do. */
static bool carried_module_is_barred(const weir_redis_call *call)
{
    return call->query.by_module && call->redis->url.engine == WEIR__ENGINE_AUTO &&
           weir__redis_query_error_is(&call->query, "NOPERM") &&
           strstr(call->query.error, "to run the");
}

static int carried_judge(weir_redis_call *call, weir_error *err)
{
    struct weir__redis_query *query = &call->query;
    if (carried_module_is_barred(call)) {
        call->redis->server.module = false;
        return carried_again(call);
    }
    switch (weir__redis_query_judge(query)) {
    case WEIR__VERDICT_NO_SCRIPT: /* its text brings it along */
        if (query->load == WEIR__LOAD_WITH)
            return carried_fail(call, true, WEIR_ESYSTEM, err);
        query->load = WEIR__LOAD_WITH;
        return carried_again(call);
    case WEIR__VERDICT_NO_MODULE:
        if (call->redis->url.engine == WEIR__ENGINE_MODULE)
            return carried_fail(call, true, WEIR_ESYSTEM, err);
        call->redis->server.module = false;
        return carried_again(call);
    case WEIR__VERDICT_NO_LEASE:
        call->redis->server.unnamed = true;
        return carried_again(call);
    case WEIR__VERDICT_NO_MEMORY:
        query->spare = true;
        query->load = WEIR__LOAD_NONE;
        return carried_again(call);
    case WEIR__VERDICT_MOVED:
    case WEIR__VERDICT_ASK:
    case WEIR__VERDICT_TRY_AGAIN:
    case WEIR__VERDICT_UNDECIDED:
        return carried_fail(call, true, WEIR_EUNREACHABLE, err);
    case WEIR__VERDICT_UNFIT:
    case WEIR__VERDICT_BROKEN:
        return carried_fail(call, false, WEIR_EUNREACHABLE, err);
    case WEIR__VERDICT_REFUSED:
        return carried_fail(call, true, weir__redis_query_refusal(query), err);
    }
    assert(!"every verdict is heeded");
    return WEIR_ESYSTEM;
}

/* The decision and its rows are there: what was charged gets its receipts. */
static void carried_decided(weir_redis_call *call)
{
    weir_decision *rows = call->rows;
    call->decided = true;
    for (size_t i = 0; i < call->query.count; rows += call->requests[i].limit->count, i++)
        call->requests[i].detail = rows;
    if (!weir__verb_reads(call->query.verb))
        weir__receipts_share(call->requests, call->query.count, &call->decision);
}

static int carried_answered(weir_redis_call *call, weir_error *err)
{
    struct weir__redis_query *query = &call->query;
    if (query->failed)
        return carried_judge(call, err);
    if (weir__verb_decides(query->verb))
        carried_decided(call);
    int code = 0;
    if (query->verb == WEIR__VERB_SETTLE) {
        weir__fallback_settle(&call->redis->fallback, call->requests[0].key,
                              call->requests[0].limit, &call->correction);
        code = query->integer ? WEIR_ESETTLED : 0;
    }
    if (query->verb == WEIR__VERB_RENEW || query->verb == WEIR__VERB_RELEASE) {
        bool local = query->integer != 1 &&
                     weir__fallback_lease(&call->redis->fallback, call->requests[0].key,
                                          call->requests[0].limit, query->lease,
                                          query->verb == WEIR__VERB_RENEW ? WEIR__RENEW
                                                                          : WEIR__RELEASE) == 0;
        code = query->integer == 1 || local ? 0 : WEIR_ENOLEASE;
    }
    if (query->verb == WEIR__VERB_RESET)
        weir__fallback_reset(&call->redis->fallback, call->requests[0].key);
    carried_end(call, true, code);
    return code ? weir__fail(err, code, 0, "%s", weir_strerror(code)) : 0;
}

/* A reply to AUTH or SELECT. An error of theirs is about us, unless the server is not ready. */
static int carried_greeted(weir_redis_call *call, const char *data, weir_error *err)
{
    const struct weir__resp_node *node = &call->nodes[0];
    if (node->type != WEIR__RESP_ERROR)
        return ++call->seen == call->replies ? carried_again(call) : 0;
    bool passes = weir__node_starts(data, node, "LOADING") ||
                  weir__node_starts(data, node, "ERR max number of clients") ||
                  weir__node_starts(data, node, "MISCONF");
    struct weir__buffer text = weir__buffer_over(call->query.error, sizeof call->query.error);
    weir__put_format(&text, "the server does not let us in: %.*s",
                     (int)weir__min((int64_t)node->len, 160), data + node->at);
    return carried_fail(call, false, passes ? WEIR_EUNREACHABLE : WEIR_ESYSTEM, err);
}

/* The message in the first bytes of the buffer. WEIR_REDIS_MORE: there are further replies. */
static int carried_read_message(weir_redis_call *call, weir_error *err)
{
    int code;
    if (call->phase == CARRIED_GREETING) {
        code = carried_greeted(call, call->in.data, err);
        return code ? code : WEIR_REDIS_MORE;
    }
    weir__redis_query_read(&call->query.call, call->seen, call->in.data, call->nodes);
    return ++call->seen < call->replies ? WEIR_REDIS_MORE : carried_answered(call, err);
}

/* Bytes that a reply must not have: nobody can tell whose the next ones are. */
static int carried_broken(weir_redis_call *call, weir_error *err)
{
    struct weir__buffer text = weir__buffer_over(call->query.error, sizeof call->query.error);
    weir__put_format(&text, "the server's reply cannot be read: %s", call->reader.why);
    return carried_fail(call, false, WEIR_EUNREACHABLE, err);
}

int weir_redis_read(weir_redis_call *call, const char *data, size_t len, size_t *ret_used,
                    weir_error *err)
{
    size_t used = 0;
    int code = WEIR_REDIS_MORE;
    if (!call || (!data && len) || !ret_used ||
        (call->phase != CARRIED_GREETING && call->phase != CARRIED_ASKING))
        return weir__fail(err, WEIR_EINVAL, 0, "there is nothing to read");
    while (code == WEIR_REDIS_MORE) {
        enum weir__resp_status status = weir__resp_next(&call->reader, call->in.data, call->in.len);
        if (status == WEIR__RESP_BROKEN) {
            code = carried_broken(call, err);
        } else if (status == WEIR__RESP_MESSAGE) {
            code = carried_read_message(call, err);
            call->in.len = 0;
        } else {
            size_t some = len - used < call->reader.need ? len - used : call->reader.need;
            if (some == 0)
                break;
            weir__put(&call->in, data + used, some);
            used += some;
            if (call->in.cut)
                code = carried_broken(call, err);
        }
    }
    *ret_used = used;
    return code;
}

bool weir_redis_is_clean(const weir_redis_call *call)
{
    return call && call->phase == CARRIED_DONE && call->clean;
}

/* ---- the answer ---- */

int weir_redis_fall_back(weir_redis_call *call, weir_error *err)
{
    if (!call)
        return weir__fail(err, WEIR_EINVAL, 0, "the call is NULL");
    struct weir__redis_query *query = &call->query;
    weir_redis *redis = call->redis;
    int code = WEIR_EUNREACHABLE;
    carried_end(call, false, 0);
    if (weir__verb_decides(query->verb)) {
        weir_decision *rows = call->rows;
        for (size_t i = 0; i < query->count; rows += call->requests[i].limit->count, i++)
            call->requests[i].detail = rows;
        code = weir__fallback_decide(&redis->fallback, call->requests, query->count,
                                     weir__verb_reads(query->verb) ? WEIR__PEEK : WEIR__TAKE,
                                     weir__store_now(redis->checker), &call->decision);
        if (code == 0)
            carried_decided(call);
    } else if (weir__verb_leases(query->verb)) {
        int local = weir__fallback_lease(
            &redis->fallback, call->requests[0].key, call->requests[0].limit, query->lease,
            query->verb == WEIR__VERB_RENEW ? WEIR__RENEW : WEIR__RELEASE);
        code = local == 0 ? 0 : WEIR_EUNREACHABLE;
    } else if (query->verb == WEIR__VERB_SETTLE) {
        int local = weir__fallback_settle(&redis->fallback, call->requests[0].key,
                                          call->requests[0].limit, &call->correction);
        if (!weir__settles_there(&call->correction))
            code = local == WEIR_EUNREACHABLE ? 0 : local;
    }
    return code ? weir__fail(err, code, 0, "%s", weir_strerror(code)) : 0;
}

const weir_decision *weir_redis_decision(const weir_redis_call *call, int row)
{
    if (!call || !call->decided || row < -1 || row >= (int)call->query.limits)
        return NULL;
    return row == -1 ? &call->decision : &call->rows[row];
}
