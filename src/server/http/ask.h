/*
 * What an HTTP request asks, before it becomes an ask: read from a query (http/params.c) or from JSON
 * (http/params.c), turned into an ask in one place (http/ask.c).
 */
#ifndef WEIR_SERVER_HTTP_ASK_H
#define WEIR_SERVER_HTTP_ASK_H

#include "server/http/http.h"
#include "wire/json.h"

#define SERVER_JSON_NODES 512
#define SERVER_ATTRIBUTES_MAX 32 /* attr.NAME=value of a query */
#define SERVER_COST_UNSAID INT64_C(-1)

struct server_params {
    struct weir__span key, limit, policy, key_from, receipt;
    bool has_key, has_limit, has_policy, has_key_from, has_receipt;
    uint32_t given; /* which parameters were given: each once */
    int64_t cost;   /* SERVER_COST_UNSAID: the default */
    int64_t wait_us;
    int64_t actual;
    int64_t lease;
    int deny_status; /* 0: 429 for limits, and what the policy says for the rest */
    enum weir__field_style style;
    bool styled; /* the request chose the style */
    bool hold, detail, explain;
    const struct weir__json_node *nodes;
    const struct weir__json_node *attributes; /* NULL: none */
    const struct weir__json_node *requests;   /* takeall; NULL: none */
    struct {
        struct weir__span name, value; /* names as weir__attribute_fold spells them */
    } said[SERVER_ATTRIBUTES_MAX];     /* attr.NAME=value of a query */
    size_t said_count;
};

void server_params_begin(const struct server_conn *conn, struct server_params *ret);
/* Both: true, or a problem in ret. */
bool server_params_query(struct server_conn *conn, const struct weir__http_request *request,
                         struct server_params *params, struct server_response *ret);
bool server_params_json(struct server_conn *conn, struct weir__http_request *request,
                        struct weir__json_node *nodes, struct server_params *params,
                        struct server_response *ret);
/* One member or parameter by its text; what is wrong goes to why. False: it is not known. */
bool server_params_set(struct server_params *params, struct weir__span name,
                       struct weir__span value, struct weir__buffer *why);

/* Makes the ask. `verb` TAKE and PEEK, and with params->explain the telling kind of PEEK. */
enum server_routed server_http_ask(struct server_conn *conn, enum weir__verb verb,
                                   const struct server_params *params,
                                   const struct weir__http_request *request, int32_t stream,
                                   struct server_response *ret);

/* What a request says of itself (http/subject.c). */
struct server_subject {
    const struct server_conn *conn;
    const struct weir__http_request *request;
    const struct server_params *params;
    bool trusted; /* the peer may speak for others */
};
void server_subject_begin(struct server_subject *subject, const struct server_conn *conn,
                          const struct weir__http_request *request,
                          const struct server_params *params);
enum weir__found server_subject_find(const void *context, const char *name, size_t len,
                                     struct weir__span *ret);

#endif
