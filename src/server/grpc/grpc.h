/*
 * Envoy's rate limit service over gRPC and as POST /json, and gRPC's health checks: from a whole
 * request to an answer. With a local store it is decided at once. With a remote one it becomes an
 * ask of the kind SERVER_ASK_CALL:
 *
 *     server_grpc_answer, server_grpc_json     SERVER_ASKED: the call is in the batch
 *     server_grpc_run                          by an asker
 *     server_grpc_finish                       gRPC's answer, when the batch is back
 *     server_grpc_json_respond                 JSON's, by server_http_respond
 *     server_grpc_end                          where nobody is left to be answered
 *
 * What holds: a call belongs to the thread that made it, and one asker at a time touches it. Calls,
 * and what reading a request needs, are made once a thread and used again. A call borrows nothing
 * of its request; its batch holds the rules that it was planned by.
 */
#ifndef WEIR_SERVER_GRPC_H
#define WEIR_SERVER_GRPC_H

#include "policy/envoy/service.h"
#include "server/http/http.h"

struct server_grpc_call {
    void *next; /* the pool's */
    struct server_thread *thread;
    struct server_rules *rules; /* that it was planned by; its batch holds them */
    int32_t stream;             /* HTTP/2's; 0: none */
    bool json;                  /* POST /json */
    int code;                   /* 0, or a WEIR_E… */
    weir_error error;
    uint32_t rule_ids[WEIR__RLS_DESCRIPTORS_MAX]; /* of counters, where there is a domain */
    uint32_t top_id;                              /* likewise */
    struct weir__rls_call rls;
};

/* A whole answer to a gRPC request. */
struct server_grpc_reply {
    int status;                /* HTTP's: 200, or 405 and 415, which are no gRPC */
    enum weir__grpc_code code; /* OK: there is a message */
    char text[512];            /* not OK: why, for people */
    bool names_encodings;      /* say which grpc-encodings are taken */
    bool watches,
        watches_known; /* in place of an answer: health from now on, of a service we have */
    struct weir__buffer message; /* framed; over SERVER_GRPC_ROOM bytes of the caller's */
};

#define SERVER_GRPC_NEEDS_TOKEN "a token is needed: metadata authorization: Bearer TOKEN"
#define SERVER_GRPC_ROOM WEIR__RLS_ANSWER_ROOM

/* ---- grpc.c ---- */

/* Whether a request is gRPC's: by its content type, or by the path of a service. */
bool server_grpc_wants(const struct weir__http_request *request);
/* Answers it, or makes an ask of it. */
enum server_routed server_grpc_answer(struct server_conn *conn,
                                      const struct weir__http_request *request, int32_t stream,
                                      struct server_grpc_reply *ret);
/* The answer to a request that goes beyond a bound, of which the head may be cut short
 * (`headless`). False: it is not one of the rate limit service. */
bool server_grpc_refuse(struct server_conn *conn, const struct weir__http_request *request,
                        bool headless, struct server_grpc_reply *ret);
/* The answer to an ask that is back; its call is ended. */
void server_grpc_finish(struct server_conn *conn, struct server_ask *ask,
                        struct server_grpc_reply *ret);

/* ---- grpc.c: POST /json ---- */

/* SERVER_ASKED: server_grpc_json_respond makes the response of this ask. The body is changed. */
enum server_routed server_grpc_json(struct server_conn *conn, struct weir__http_request *request,
                                    int32_t stream, struct server_response *ret);
/* The response to an ask of the kind SERVER_ASK_CALL; its call is ended. */
void server_grpc_json_respond(struct server_conn *conn, struct server_ask *ask,
                              struct server_response *ret);

/* ---- grpc/call.c ---- */

/* What a thread reads requests with. */
struct server_grpc_reading {
    struct weir__rls_request request;
    struct weir__json_node nodes[WEIR__RLS_JSON_NODES];
};
/* The thread's, made when it is first needed; NULL: no memory. */
struct server_grpc_reading *server_grpc_reading(struct server_thread *thread);

/* A call for a request. NULL: err says why. */
struct server_grpc_call *server_grpc_plan(struct server_conn *conn,
                                          const struct weir__rls_request *request, weir_error *err);
/* Decides a call, here and now. */
void server_grpc_decide(struct server_conn *conn, struct server_grpc_call *call);
/* Counts, ranks and logs what was decided. */
void server_grpc_count(struct server_conn *conn, const struct server_grpc_call *call);
/* Counts and logs a request that was answered OVER_LIMIT because nobody can read it. */
void server_grpc_count_unread(struct server_conn *conn, enum server_unread reason);
void server_grpc_call_end(struct server_grpc_call *call);
/* Answers an ask that was not decided: too much is pending. */
void server_grpc_overload(struct server_ask *ask);
/* Ends the call of an ask, if it has one still: where nobody is left to be answered. */
void server_grpc_end(struct server_ask *ask);

#endif
