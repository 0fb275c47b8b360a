/*
 * Paths to what they do. Decisions become asks; the rest is told and changed by http/admin.c. What
 * changes state is POST with JSON only, and only from pages of our own: browsers send no cross-site
 * JSON without asking first, and Host and Origin are checked besides.
 */
#include "server/http/http.h"

#include <string.h>

struct route {
    enum weir__verb verb;
    bool get; /* also as a query */
    bool explain, refund;
};

/* "/v1/" and the word of a verb; "/v1/explain", a peek that says more; or "/v1/refund", a settle
 * without a receipt. False: another path. */
static bool route_find_route(struct weir__span path, struct route *ret)
{
    static const char prefix[] = "/v1/";
    const size_t skip = sizeof prefix - 1;
    if (path.len <= skip || memcmp(path.data, prefix, skip))
        return false;
    ret->explain = ret->refund = false;
    if (weir__verb_of_word(path.data + skip, path.len - skip, &ret->verb)) {
        ret->get = ret->verb == WEIR__VERB_TAKE || weir__verbs[ret->verb].keys == WEIR__VERB_READS;
        return weir__verbs[ret->verb].homes & WEIR__VERB_HTTP;
    }
    if (weir__span_is(path, "/v1/refund")) {
        *ret = (struct route){.verb = WEIR__VERB_SETTLE, .refund = true};
        return true;
    }
    *ret = (struct route){.verb = WEIR__VERB_PEEK, .explain = true};
    return weir__span_is(path, "/v1/explain");
}

static void route_count_fault(struct server_conn *conn, enum server_fault fault)
{
    server_count_fault(conn, conn->protocol->counted_as, fault);
}

/* The one Authorization; two could be understood differently elsewhere, so they open nothing. */
static bool route_find_authorization(const struct weir__http_request *request,
                                     struct weir__span *ret)
{
    size_t found = 0;
    for (size_t i = 0; i < request->field_count; i++) {
        if (request->fields[i].name.len != 13 ||
            strncasecmp(request->fields[i].name.data, "authorization", 13))
            continue;
        *ret = request->fields[i].value;
        found++;
    }
    return found == 1;
}

enum server_access server_http_access(struct server_conn *conn,
                                      const struct weir__http_request *request)
{
    struct weir__span value, token = {"", 0};
    if (route_find_authorization(request, &value) && value.len > 7 &&
        !strncasecmp(value.data, "bearer ", 7))
        token = (struct weir__span){value.data + 7, value.len - 7};
    return server_conn_access(conn, token);
}

bool server_http_is_json(const struct weir__http_request *request)
{
    struct weir__span type;
    return weir__http_field(request, "content-type", &type) && type.len >= 16 &&
           !strncasecmp(type.data, "application/json", 16) &&
           (type.len == 16 || type.data[16] == ';' || type.data[16] == ' ');
}

void server_http_not_allowed(struct server_response *ret, const char *allowed)
{
    server_response_problem(ret, 405, "this path answers %s", allowed);
    server_response_text(ret, "allow", allowed);
}

void server_http_unauthorized(struct server_response *ret, enum server_access access)
{
    if (access == SERVER_DATA) {
        server_response_problem(ret, 403, "this needs the admin token");
        return;
    }
    server_response_problem(ret, 401, "a token is needed: Authorization: Bearer TOKEN");
    server_response_text(ret, "www-authenticate", "Bearer realm=\"weir\"");
}

/* Pages of other sites: by name (rebinding) or by their origin. */
static bool route_is_foreign(struct server_conn *conn, const struct weir__http_request *request,
                             struct server_response *ret)
{
    struct weir__span origin;
    if (!server_host_allowed(conn->thread->server, request->host)) {
        route_count_fault(conn, SERVER_FAULT_INVALID);
        server_response_problem(
            ret, 421,
            "this server does not answer for host \"%.*s\"; start it with --host "
            "NAME if it should",
            (int)(request->host.len > 80 ? 80 : request->host.len),
            request->host.data ? request->host.data : "");
        return true;
    }
    if (weir__http_field(request, "origin", &origin) &&
        !server_origin_allowed(conn->thread->server, origin, request->host)) {
        route_count_fault(conn, SERVER_FAULT_INVALID);
        server_response_problem(ret, 403, "requests from pages of %.*s are refused",
                                (int)(origin.len > 80 ? 80 : origin.len), origin.data);
        return true;
    }
    return false;
}

/* What proxies ask for their clients, with the Host that those have sent. */
static bool route_is_forwarded(const struct route *route)
{
    return route->verb == WEIR__VERB_TAKE || route->verb == WEIR__VERB_PEEK;
}

static enum server_access route_needs(const struct route *route)
{
    bool admin = route->refund || weir__verbs[route->verb].caller == WEIR__VERB_ADMIN;
    return admin ? SERVER_ADMIN : SERVER_DATA;
}

static enum server_routed route_ask(const struct server_http_call *call, const struct route *route)
{
    struct server_conn *conn = call->conn;
    const struct weir__http_request *request = call->request;
    struct server_response *ret = call->ret;
    struct server_params params;
    bool get = request->method == WEIR__HTTP_GET || request->method == WEIR__HTTP_HEAD;
    if (get ? !route->get : request->method != WEIR__HTTP_POST) {
        route_count_fault(conn, SERVER_FAULT_UNKNOWN);
        server_http_not_allowed(ret, route->get ? "GET, HEAD, POST" : "POST");
        return SERVER_RESPONDED;
    }
    enum server_access access = server_http_access(conn, request);
    if (access < route_needs(route)) {
        route_count_fault(conn, SERVER_FAULT_UNAUTHORIZED);
        server_http_unauthorized(ret, access);
        return SERVER_RESPONDED;
    }
    if (!get && !server_http_is_json(request)) {
        route_count_fault(conn, SERVER_FAULT_INVALID);
        server_response_problem(ret, 415, "POST takes Content-Type: application/json");
        return SERVER_RESPONDED;
    }
    if (!(get && route_is_forwarded(route)) && route_is_foreign(conn, request, ret))
        return SERVER_RESPONDED;
    if (!server_batch_has_room(conn)) /* before a body is decoded in place */
        return SERVER_BUSY;
    server_params_begin(conn, &params);
    params.explain = route->explain;
    params.refund = route->refund;
    if (get ? !server_params_query(call, &params) : !server_params_json(call, &params))
        return SERVER_RESPONDED;
    return server_http_ask(call, route->verb, &params);
}

/* Probes come by whatever address they know, and these tell nothing. */
static bool route_is_health(struct weir__span path)
{
    return weir__span_is(path, "/healthz") || weir__span_is(path, "/readyz") ||
           weir__span_is(path, "/healthcheck");
}

enum server_admission server_http_admit(struct server_conn *conn,
                                        const struct weir__http_request *request,
                                        struct server_response *ret)
{
    if (server_open_access(conn->thread->server) != SERVER_NOBODY)
        return SERVER_ADMITTED; /* everybody may ask */
    if (route_is_health(request->path) || weir__span_is(request->path, WEIR__HEALTH_METHOD) ||
        weir__span_is(request->path, WEIR__HEALTH_WATCH))
        return SERVER_ADMITTED_LITTLE;
    if (server_http_access(conn, request) != SERVER_NOBODY)
        return SERVER_ADMITTED;
    route_count_fault(conn, SERVER_FAULT_UNAUTHORIZED);
    server_http_unauthorized(ret, SERVER_NOBODY);
    return SERVER_NOT_ADMITTED;
}

enum server_routed server_http_route(struct server_conn *conn, struct weir__http_request *request,
                                     int32_t stream, struct server_response *ret)
{
    const struct server_http_call call = {conn, request, stream, ret};
    struct route route;
    if (conn->reserved_us && !route_is_health(request->path) &&
        !weir__span_is(request->path, "/metrics")) {
        server_response_problem(ret, 503, "%s", SERVER_FULL_TEXT);
        return SERVER_RESPONDED;
    }
    if (WEIR__LIKELY(route_find_route(request->path, &route)))
        return route_ask(&call, &route);
    enum server_access access = server_http_access(conn, request);
    if (!route_is_health(request->path) && route_is_foreign(conn, request, ret))
        return SERVER_RESPONDED;
    enum server_routed routed;
    if (server_http_admin(&call, access, &routed))
        return routed;
    route_count_fault(conn, SERVER_FAULT_UNKNOWN);
    server_response_problem(ret, 404, "there is nothing at %.*s",
                            (int)(request->path.len > 100 ? 100 : request->path.len),
                            request->path.data);
    return SERVER_RESPONDED;
}
