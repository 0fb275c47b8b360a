/*
 * HTTP requests to asks and answers, the same over HTTP/1 and HTTP/2. The protocol reads a request,
 * has it routed, and either gets a response at once or an ask in the connection's batch; when the
 * batch is back, server_http_respond makes the ask's response. The protocol then writes it.
 */
#ifndef WEIR_SERVER_HTTP_H
#define WEIR_SERVER_HTTP_H

#include "server/conn.h"
#include "wire/json.h"

#define SERVER_FIELDS_MAX (13 + WEIR__RATE_FIELDS_MAX)
#define SERVER_RESPONSE_ROOM ((size_t)48 << 10) /* fields' values and body of a short response */

struct server_response {
    int status;
    struct server_field {
        const char *name; /* lower case */
        const char *value;
        size_t len;
    } fields[SERVER_FIELDS_MAX];
    size_t field_count;
    struct weir__span body;
    char *owned; /* what a long body lives in, to be freed when written; NULL: none */
    bool close;  /* the last of its connection */
    bool old;    /* to HTTP/1.0, which must be told that the connection stays */
    bool head;   /* to a HEAD request: the body's length, not the body */
    struct weir__rate_fields rates;
    char room[SERVER_RESPONSE_ROOM];
    size_t room_used;
};

enum server_routed {
    SERVER_RESPONDED, /* ret is the response */
    SERVER_ASKED,     /* an ask is in the batch */
    SERVER_BUSY,      /* the batch is full: finish it, then route again */
};

/* A request on its way to an answer. */
struct server_http_call {
    struct server_conn *conn;
    struct weir__http_request *request;
    int32_t stream; /* HTTP/2's; 0: HTTP/1 */
    struct server_response *ret;
};

/* Routes one request. An ask borrows the request's bytes. */
enum server_routed server_http_route(struct server_conn *conn, struct weir__http_request *request,
                                     int32_t stream, struct server_response *ret);
/* The response to ask i of a batch that is back. */
void server_http_respond(struct server_conn *conn, struct server_batch *batch, size_t i,
                         struct server_response *ret);

/* What the request's token opens. */
enum server_access server_http_access(struct server_conn *conn,
                                      const struct weir__http_request *request);

/* Whether a request whose body is still to come may send it: told as soon as the head is read. Who
 * brings no token may send a little, to what needs none. SERVER_NOT_ADMITTED: ret says why. */
enum server_admission { SERVER_ADMITTED, SERVER_ADMITTED_LITTLE, SERVER_NOT_ADMITTED };
enum server_admission server_http_admit(struct server_conn *conn,
                                        const struct weir__http_request *request,
                                        struct server_response *ret);
#define SERVER_LITTLE ((size_t)4 << 10) /* bytes of a body that nobody has vouched for */

/* The path answers others: "GET, HEAD". */
void server_http_not_allowed(struct server_response *ret, const char *allowed);
/* Who has no more access than this may not. */
void server_http_unauthorized(struct server_response *ret, enum server_access access);

/* Whether the body says it is JSON: no page of another site can send that unasked. */
bool server_http_is_json(const struct weir__http_request *request);

/* ---- responses ---- */

void server_response_begin(struct server_response *response, int status);
void server_response_field(struct server_response *response, const char *name, const char *value,
                           size_t len);
void server_response_text(struct server_response *response, const char *name, const char *value);
/* Begins one that nobody keeps. */
void server_response_fresh(struct server_response *response, int status);
/* A body that is malloc'ed, and the response's from now on. */
void server_response_own(struct server_response *response, const char *content_type, char *body,
                         size_t len);
/* problem+json: what is wrong and what to do. */
void server_put_problem(struct weir__buffer *body, int status, const char *detail);
void server_response_problem(struct server_response *response, int status, const char *format, ...)
    WEIR__PRINTF(3, 4);
/* A buffer over the rest of the room, for a body; server_response_body takes it. */
struct weir__buffer server_response_buffer(struct server_response *response);
void server_response_body(struct server_response *response, const char *content_type,
                          const struct weir__buffer *body);
const char *server_status_text(int status);

/* "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", made once a second. */
#define SERVER_DATE_AT 6    /* where its value begins */
#define SERVER_DATE_LEN 29  /* the value's length */
#define SERVER_DATE_LINE 37 /* all of it */
const char *server_date(struct server_thread *thread);

/* ---- http/params.c reads what a request asks, from a query or JSON; http/ask.c asks it ---- */

#define SERVER_JSON_NODES 512
#define SERVER_ATTRIBUTES_MAX 32 /* attr.NAME=value of a query */
#define SERVER_COST_UNSAID INT64_C(-1)

/* Every parameter there is; each may be given once. */
enum server_param {
    PARAM_KEY,
    PARAM_LIMIT,
    PARAM_POLICY,
    PARAM_KEY_FROM,
    PARAM_COST,
    PARAM_LEAST,
    PARAM_WAIT,
    PARAM_DENY_STATUS,
    PARAM_HEADERS,
    PARAM_HOLD,
    PARAM_DETAIL,
    PARAM_ACQUIRE,
    PARAM_RECEIPT,
    PARAM_ACTUAL,
    PARAM_LEASE,
    PARAM_AMOUNT,
    PARAM_ID,
    PARAMS
};

struct server_params {
    bool has[PARAMS]; /* which were given */
    struct weir__span key, limit, policy, key_from, receipt, id;
    int64_t cost;  /* SERVER_COST_UNSAID: the default */
    int64_t least; /* 0: all of the cost */
    int64_t wait_us;
    int64_t actual;
    int64_t amount;
    int64_t lease;
    int64_t deny_status; /* 0: 429 for limits, and what the policy says for the rest */
    enum weir__field_style style;
    bool hold, detail, acquire, explain, refund;
    const struct weir__json_node *nodes;
    const struct weir__json_node *attributes; /* NULL: none */
    const struct weir__json_node *requests;   /* takeall; NULL: none */
    struct {
        struct weir__span name, value; /* names as weir__attribute_fold spells them */
    } said[SERVER_ATTRIBUTES_MAX];     /* attr.NAME=value of a query */
    size_t said_count;
};

void server_params_begin(const struct server_conn *conn, struct server_params *ret);
/* Both: true, or a problem as the response. */
bool server_params_query(const struct server_http_call *call, struct server_params *params);
bool server_params_json(const struct server_http_call *call, struct server_params *params);
/* Refuses what is asked for: counts it, and answers why. */
enum server_routed server_http_refuse(const struct server_http_call *call, int status,
                                      const char *why);

/* Makes the ask. `verb` TAKE and PEEK, and with params->explain the telling kind of PEEK. */
enum server_routed server_http_ask(const struct server_http_call *call, enum weir__verb verb,
                                   const struct server_params *params);

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

/* ---- http/admin.c: what is told and changed besides decisions ---- */

/* False: there is nothing at this path. */
bool server_http_admin(const struct server_http_call *call, enum server_access access,
                       enum server_routed *ret_routed);

#endif
