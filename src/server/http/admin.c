/* Health, metrics, statistics, top keys, policies in words, reload, playground, dashboard. */
#include "server/http/http.h"

#include "base/clock.h"
#include "limit/calendar.h"
#include "limit/explain.h"
#include "remote/remote.h"
#include "server/grpc/grpc.h"
#include "sim/playground.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TOP_SHOWN 20
#define LISTED_SHOWN 10 /* of a limit's overrides, and of each list of a policy */
#define ESCAPED 6       /* bytes of JSON for one of a text, at most */
#define PROBLEM_ROOM (ESCAPED * sizeof((weir_error *)0)->message + 256)
#define RELOAD_ROOM (ESCAPED * (size_t)WEIR__NOTE_MAX * (SERVER_NOTES_TOLD + 1) + 256)

static struct weir__span admin_accept_of(const struct weir__http_request *request)
{
    struct weir__span value = {"", 0};
    weir__http_field(request, "accept", &value);
    return value;
}

/* A body that may be long, in memory of its own. */
static bool admin_begin_long(const struct server_http_call *call, size_t size,
                             struct weir__buffer *body)
{
    char *data = malloc(size);
    if (!data) {
        server_response_problem(call->ret, 503, "out of memory for the answer; try again");
        return false;
    }
    *body = weir__buffer_over(data, size);
    server_response_fresh(call->ret, 200);
    return true;
}

/* JSON that grew as it was written. */
static enum server_routed admin_end_grown(const struct server_http_call *call,
                                          struct weir__buffer *body)
{
    if (body->cut) {
        weir__buffer_free(body);
        server_response_problem(call->ret, 503, "out of memory for the answer; try again");
        return SERVER_RESPONDED;
    }
    server_response_fresh(call->ret, 200);
    server_response_own(call->ret, "application/json", body->data, body->len);
    return SERVER_RESPONDED;
}

static enum server_routed admin_short_text(const struct server_http_call *call, int status,
                                           const char *text)
{
    server_response_fresh(call->ret, status);
    struct weir__buffer body = server_response_buffer(call->ret);
    weir__put_text(&body, text);
    server_response_body(call->ret, "text/plain; charset=utf-8", &body);
    return SERVER_RESPONDED;
}

/* ---- what is told ---- */

static enum server_routed admin_healthy(const struct server_http_call *call)
{
    return admin_short_text(call, 200, "OK\n");
}

static enum server_routed admin_ready(const struct server_http_call *call)
{
    bool is_ready = server_is_ready(call->conn->thread->server);
    return is_ready ? admin_short_text(call, 200, "ready\n")
                    : admin_short_text(call, 503, "not ready\n");
}

static enum server_routed admin_metrics(const struct server_http_call *call)
{
    struct server_metrics *all = call->conn->thread->server->metrics;
    struct weir__span accept = admin_accept_of(call->request);
    bool open = memmem(accept.data, accept.len, "application/openmetrics-text", 28) != NULL;
    struct weir__buffer body;
    if (!admin_begin_long(call, server_metrics_room(all), &body))
        return SERVER_RESPONDED;
    server_metrics_write(all, weir__clock_us(), open, &body);
    server_response_own(call->ret, open ? SERVER_OPENMETRICS_TYPE : SERVER_METRICS_TYPE, body.data,
                        body.len);
    return SERVER_RESPONDED;
}

static enum server_routed admin_stats(const struct server_http_call *call)
{
    struct server_metrics *all = call->conn->thread->server->metrics;
    struct weir__buffer body;
    if (!admin_begin_long(call, server_metrics_room(all), &body))
        return SERVER_RESPONDED;
    server_metrics_json(all, weir__clock_us(), &body);
    server_response_own(call->ret, "application/json", body.data, body.len);
    return SERVER_RESPONDED;
}

static enum server_routed admin_history(const struct server_http_call *call)
{
    struct weir__query query = {call->request->query, false};
    struct weir__span name, value;
    char room[256];
    bool given = false;
    int64_t seconds = SERVER_HISTORY_SECONDS;
    weir_error err;
    bool good = query.rest.len <= sizeof room;
    while (good && query.rest.data && weir__query_next(&query, room, &name, &value)) {
        good = weir__span_is(name, "seconds") && !given &&
               !weir__read_whole(value, "seconds", 1, SERVER_HISTORY_SECONDS, &seconds, &err);
        given = true;
    }
    if (!good || query.bad) {
        server_response_problem(call->ret, 400, "history takes seconds=1 to %d, once",
                                SERVER_HISTORY_SECONDS);
        return SERVER_RESPONDED;
    }
    struct weir__buffer body = weir__buffer_growing();
    server_metrics_history(call->conn->thread->server->metrics, weir__clock_us(), seconds, &body);
    return admin_end_grown(call, &body);
}

static enum server_routed admin_top(const struct server_http_call *call)
{
    struct server_top *all = call->conn->thread->server->top;
    struct weir__query query = {call->request->query, false};
    struct weir__span name, value;
    char room[1024], policy[256];
    bool one = false, counted = false;
    int64_t shown = TOP_SHOWN;
    weir_error err;
    if (query.rest.len > sizeof room)
        query.rest.len = 0;
    while (query.rest.data && weir__query_next(&query, room, &name, &value)) {
        if (weir__span_is(name, "policy") && value.len < sizeof policy && !one) {
            memcpy(policy, value.data, value.len);
            policy[value.len] = 0;
            one = true;
        } else if (!weir__span_is(name, "k") || counted ||
                   weir__read_whole(value, "k", 1, SERVER_TOP_SHOWN_MAX, &shown, &err)) {
            server_response_problem(call->ret, 400,
                                    "top takes policy=NAME and k=1 to %d, each once",
                                    SERVER_TOP_SHOWN_MAX);
            return SERVER_RESPONDED;
        } else {
            counted = true;
        }
    }
    struct weir__buffer body;
    if (!admin_begin_long(call, server_top_room(all, (size_t)shown), &body))
        return SERVER_RESPONDED;
    server_top_json(all, one ? policy : NULL, (size_t)shown, weir__clock_us(), &body);
    server_response_own(call->ret, "application/json", body.data, body.len);
    return SERVER_RESPONDED;
}

static void admin_put_overrides(struct weir__json *json, const struct weir__policies *set,
                                const struct weir__entry *entry)
{
    weir__json_open(json, "overrides", '[');
    for (size_t i = 0; i < entry->override_count && i < LISTED_SHOWN; i++) {
        const struct weir__override *it = &entry->overrides[i];
        weir__json_open(json, NULL, '{');
        weir__put_conditions_json(json, "when", set, &it->when);
        weir__json_put_string(json, "limit", weir_limit_text(it->limit));
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
    weir__json_put_uint(json, "override_count", entry->override_count);
}

static void admin_put_entry(struct weir__json *json, const struct weir__policies *set,
                            const struct weir__entry *entry)
{
    struct weir__facts facts;
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "name", entry->name);
    weir__json_put_string(json, "key", entry->key.text);
    weir__json_put_string(json, "limit", weir_limit_text(entry->limit));
    weir__explain_limit(entry->limit, 0, &facts);
    weir__json_put_string(json, "meaning", facts.what);
    weir__json_put_string(json, "guarantee", facts.guarantee);
    weir__json_put_bool(json, "shadow", entry->shadow);
    weir__put_shares_json(json, set, entry->shares, entry->reduced);
    admin_put_overrides(json, set, entry);
    weir__json_close(json, '}');
}

static void admin_put_list(struct weir__json *json, const char *name, const char *count_name,
                           const struct weir__policies *set, const struct weir__any_of *any)
{
    weir__json_open(json, name, '[');
    for (size_t i = 0; i < any->count && i < LISTED_SHOWN; i++)
        weir__put_conditions_json(json, NULL, set, &any->items[i]);
    weir__json_close(json, ']');
    weir__json_put_uint(json, count_name, any->count);
}

/* What becomes of its requests while the store is away: its own word, or the address's. */
static enum weir__redis_fail admin_fail_of(const struct server *server,
                                           const struct weir__policy *policy)
{
    bool address = !policy->fail_said && server->remote;
    return address ? weir__remote_of(server->store)->url.fail : policy->fail;
}

static enum server_routed admin_policies(const struct server_http_call *call)
{
    const struct weir__policies *set = call->conn->thread->rules->policies;
    struct weir__buffer body = weir__buffer_growing();
    struct weir__json json = {&body, false};
    weir__json_open(&json, NULL, '{');
    weir__json_open(&json, "policies", '[');
    for (size_t i = 0; i < set->count; i++) {
        const struct weir__policy *it = &set->policies[i];
        weir__json_open(&json, NULL, '{');
        weir__json_put_string(&json, "name", it->name);
        weir__json_put_string(&json, "match", it->match_text);
        weir__json_put_string(&json, "headers", weir__field_styles[it->style]);
        weir__json_put_string(
            &json, "fail", weir__redis_fail_names[admin_fail_of(call->conn->thread->server, it)]);
        admin_put_list(&json, "deny", "deny_count", set, &it->deny);
        admin_put_list(&json, "allow", "allow_count", set, &it->allow);
        weir__json_open(&json, "limits", '[');
        for (size_t j = 0; j < it->entry_count; j++)
            admin_put_entry(&json, set, &it->entries[j]);
        weir__json_close(&json, ']');
        weir__json_close(&json, '}');
    }
    weir__json_close(&json, ']');
    weir__json_close(&json, '}');
    weir__put(&body, "\n", 1);
    return admin_end_grown(call, &body);
}

/* ---- what is done ---- */

/* Hands the body to a worker. It travels alone where the loop's buffer holds the others' keys. */
static enum server_routed admin_work(const struct server_http_call *call, enum server_lane lane,
                                     size_t answer_room,
                                     void (*run)(struct server *, struct server_work *))
{
    struct server_conn *conn = call->conn;
    size_t kept = sizeof(struct server_batch) + call->request->body.len + answer_room;
    if (!conn->thread->server->remote && server_batch_is_open(conn))
        return SERVER_BUSY;
    if (!server_work_admit(conn, lane, kept)) {
        server_response_problem(call->ret, 503,
                                "too many of these requests are waiting; try again");
        return SERVER_RESPONDED;
    }
    struct server_work *it = calloc(1, sizeof *it);
    char *body = it ? malloc(call->request->body.len + 1) : NULL;
    struct server_ask *ask = body ? server_batch_add(conn) : NULL;
    if (!ask) {
        server_work_leave(conn, lane, kept);
        free(body);
        free(it);
        server_response_problem(call->ret, 503, "too many requests are in progress; try again");
        return SERVER_RESPONDED;
    }
    it->lane = lane;
    it->kept = kept;
    if (call->request->body.len)
        memcpy(body, call->request->body.data, call->request->body.len);
    body[call->request->body.len] = 0;
    it->run = run;
    it->body = body;
    it->len = call->request->body.len;
    ask->kind = SERVER_ASK_WORK;
    ask->work = it;
    ask->close = !call->request->keep_alive;
    ask->http.stream = call->stream;
    return SERVER_ASKED;
}

static void admin_answer_problem(struct server_work *work, int status, const char *detail)
{
    struct weir__buffer body = weir__buffer_over(work->answer, PROBLEM_ROOM);
    server_put_problem(&body, status, detail);
    work->status = status;
    work->answer_len = body.len;
}

static void admin_run_simulate(struct server *server, struct server_work *work)
{
    weir_error err;
    (void)server;
    work->answer = malloc(WEIR__PLAY_ROOM);
    if (!work->answer)
        return;
    struct weir__buffer body = weir__buffer_over(work->answer, WEIR__PLAY_ROOM);
    int code = weir__simulate(work->body, work->len, &work->cancelled, &body, &err);
    if (code) {
        admin_answer_problem(work, code == WEIR_ENOMEM || code == WEIR_EBUSY ? 503 : 400,
                             err.message);
        return;
    }
    work->status = 200;
    work->answer_len = body.len;
    char *shorter = realloc(work->answer, body.len + 1);
    work->answer = shorter ? shorter : work->answer;
}

static void admin_run_reload(struct server *server, struct server_work *work)
{
    weir_error err;
    work->answer = malloc(RELOAD_ROOM);
    if (!work->answer)
        return;
    struct weir__buffer body = weir__buffer_over(work->answer, RELOAD_ROOM);
    struct weir__json json = {&body, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_bool(&json, "reloaded", true);
    if (server_reload(server, "POST /v1/reload", &json, &err)) {
        admin_answer_problem(work, 409, err.message);
        return;
    }
    weir__json_close(&json, '}');
    weir__put(&body, "\n", 1);
    assert(!body.cut);
    work->status = 200;
    work->answer_len = body.len;
}

static enum server_routed admin_simulate(const struct server_http_call *call)
{
    return admin_work(call, SERVER_LANE_PLAY, WEIR__PLAY_ROOM, admin_run_simulate);
}

static enum server_routed admin_reload(const struct server_http_call *call)
{
    return admin_work(call, SERVER_LANE_ADMIN, RELOAD_ROOM, admin_run_reload);
}

static enum server_routed admin_envoy_json(const struct server_http_call *call)
{
    return server_grpc_json(call->conn, call->request, call->stream, call->ret);
}

static enum server_routed admin_set_clock(const struct server_http_call *call)
{
    struct weir__json_node nodes[8];
    struct server *server = call->conn->thread->server;
    const struct weir__json_node *now;
    weir_error err;
    int64_t us;
    if (!server->config.test_clock) {
        server_response_problem(call->ret, 404, "the test clock is off; start with --test-clock");
        return SERVER_RESPONDED;
    }
    if (!server->remote && server_batch_is_open(call->conn)) /* those before it are of their time */
        return SERVER_BUSY;
    int count = weir__json_read((char *)call->request->body.data, call->request->body.len, nodes,
                                WEIR__COUNT(nodes), &err);
    now = count > 0 && nodes[0].type == WEIR__JSON_OBJECT ? weir__json_member(nodes, nodes, "now")
                                                          : NULL;
    if (!now || !weir__json_seconds(now, &us) || us >= WEIR__EXACT_MAX) {
        server_response_problem(
            call->ret, 400,
            "the clock is set by {\"now\":SECONDS}, seconds since 1970 with up to "
            "six decimals");
        return SERVER_RESPONDED;
    }
    atomic_store(&server->test_now_us, us);
    server_response_fresh(call->ret, 200);
    struct weir__buffer body = server_response_buffer(call->ret);
    weir__put_text(&body, "The clock stands still at ");
    weir__put_time(&body, us, /* UTC */ 0);
    weir__put_text(&body, " until it is set again.\n");
    server_response_body(call->ret, "text/plain; charset=utf-8", &body);
    return SERVER_RESPONDED;
}

/* ---- the dashboard ---- */

struct web_file {
    const char *path, *type, *tag;
    const unsigned char *plain;
    size_t plain_len;
    const unsigned char *packed;
    size_t packed_len;
};

#include "server/web_files.h"

#define SECURITY                                                                                   \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "        \
    "'self'; "                                                                                     \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static void dashboard_serve(const struct weir__http_request *request, const struct web_file *file,
                            struct server_response *ret)
{
    struct weir__span value;
    bool known = weir__http_field(request, "if-none-match", &value) &&
                 memmem(value.data, value.len, file->tag, strlen(file->tag));
    bool packed = weir__http_field(request, "accept-encoding", &value) &&
                  memmem(value.data, value.len, "gzip", 4);
    server_response_begin(ret, known ? 304 : 200);
    server_response_text(ret, "etag", file->tag);
    server_response_text(ret, "cache-control", "no-cache");
    server_response_text(ret, "vary", "accept-encoding");
    if (known)
        return;
    server_response_text(ret, "content-type", file->type);
    server_response_text(ret, "content-security-policy", SECURITY);
    server_response_text(ret, "x-content-type-options", "nosniff");
    server_response_text(ret, "referrer-policy", "no-referrer");
    if (packed)
        server_response_text(ret, "content-encoding", "gzip");
    ret->body = packed ? (struct weir__span){(const char *)file->packed, file->packed_len}
                       : (struct weir__span){(const char *)file->plain, file->plain_len};
}

static bool dashboard_respond(const struct weir__http_request *request, struct server_response *ret)
{
    for (size_t i = 0; i < WEIR__COUNT(web_files); i++) {
        if (!weir__span_is(request->path, web_files[i].path))
            continue;
        if (request->method == WEIR__HTTP_GET || request->method == WEIR__HTTP_HEAD) {
            dashboard_serve(request, &web_files[i], ret);
        } else {
            server_http_not_allowed(ret, "GET, HEAD");
        }
        return true;
    }
    return false;
}

/* ---- which is where ---- */

static const struct {
    const char *path;
    enum server_routed (*run)(const struct server_http_call *);
    bool post;
    enum server_access needs;
} routes[] = {
    {"/healthz", admin_healthy, false, SERVER_NOBODY},
    {"/healthcheck", admin_ready, false, SERVER_NOBODY},
    {"/readyz", admin_ready, false, SERVER_NOBODY},
    {"/metrics", admin_metrics, false, SERVER_DATA},
    {"/v1/stats", admin_stats, false, SERVER_ADMIN},
    {"/v1/history", admin_history, false, SERVER_ADMIN},
    {"/v1/top", admin_top, false, SERVER_ADMIN},
    {"/v1/policies", admin_policies, false, SERVER_ADMIN},
    {"/v1/simulate", admin_simulate, true, SERVER_DATA},
    {"/v1/reload", admin_reload, true, SERVER_ADMIN},
    {"/v1/clock", admin_set_clock, true, SERVER_ADMIN},
    {"/json", admin_envoy_json, true, SERVER_DATA},
};

static bool admin_refuse(const struct server_http_call *call, bool post, enum server_access needs,
                         enum server_access access)
{
    enum weir__http_method method = call->request->method;
    if (post ? method != WEIR__HTTP_POST : method != WEIR__HTTP_GET && method != WEIR__HTTP_HEAD) {
        server_http_not_allowed(call->ret, post ? "POST" : "GET, HEAD");
        return true;
    }
    bool json = !post || server_http_is_json(call->request) ||
                weir__span_is(call->request->path, "/json"); /* as envoyproxy/ratelimit takes it */
    if (!json) {
        server_response_problem(call->ret, 415, "POST takes Content-Type: application/json");
        return true;
    }
    if (access >= needs)
        return false;
    server_count_fault(call->conn, SERVER_HTTP, SERVER_FAULT_UNAUTHORIZED);
    server_http_unauthorized(call->ret, access);
    return true;
}

bool server_http_admin(const struct server_http_call *call, enum server_access access,
                       enum server_routed *ret_routed)
{
    *ret_routed = SERVER_RESPONDED;
    for (size_t i = 0; i < WEIR__COUNT(routes); i++) {
        if (!weir__span_is(call->request->path, routes[i].path))
            continue;
        if (!admin_refuse(call, routes[i].post, routes[i].needs, access))
            *ret_routed = routes[i].run(call);
        return true;
    }
    return dashboard_respond(call->request, call->ret);
}
