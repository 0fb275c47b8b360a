/*
 * Envoy's rate limit service over gRPC and as POST /json, and gRPC's health checks: from a whole request
 * to an answer. With a local store it is decided at once. With a remote one it becomes an ask of the verb
 * WEIR__VERBS whose `other` is a struct server_grpc_call:
 *
 *     server_grpc_answer, server_grpc_json     SERVER_ASKED: the call is in the batch
 *     server_grpc_run                          by an asker
 *     server_grpc_finish                       gRPC's answer, when the batch is back
 *     server_grpc_json_respond                 JSON's, by server_http_respond
 *     server_grpc_end                          once, also where nobody is there to be answered
 *
 * What holds: a call belongs to the thread that made it and is touched by one asker at most; calls and
 * what reading needs are made once a thread and used again; a call holds the rules that it was planned by.
 */
#ifndef WEIR_SERVER_GRPC_H
#define WEIR_SERVER_GRPC_H

#include "server/http.h"
#include "server/rls.h"

struct server_grpc_call {
    struct server_grpc_call *next; /* in the free list */
    struct server_rules *rules;
    struct server_conn *conn;
    int32_t stream; /* HTTP/2's; 0: none */
    bool json, head;
    int code; /* 0, or a WEIR_E… */
    weir_error error;
    struct server_rls_plan plan;
};

/* A whole answer to a gRPC request. */
struct server_grpc_reply {
    int status;                  /* HTTP's: 200, or 415 and 405, which are no gRPC */
    enum weir__grpc_code code;   /* OK: there is a message */
    char text[512];              /* not OK: why, for people */
    struct weir__buffer message; /* framed; over the caller's room */
    bool names_encodings;        /* say which grpc-encodings are taken */
};

/* Bytes that are enough for any message. */
#define SERVER_GRPC_ROOM SERVER_RLS_ANSWER_ROOM

/* Whether a request is gRPC's: by its content type, or by the path of a method. */
bool server_grpc_wants(const struct weir__http_request *request);
/* Answers it, or makes an ask of it. reply->message is over room of SERVER_GRPC_ROOM bytes. */
enum server_routed server_grpc_answer(struct server_conn *conn,
                                      const struct weir__http_request *request, int32_t stream,
                                      struct server_grpc_reply *reply,
                                      struct server_grpc_call **ret_call);
/* The answer to a call that was decided; counts it, and ends the call. */
void server_grpc_finish(struct server_grpc_call *call, struct server_grpc_reply *reply);
/* Lets go of a call without answering. */
void server_grpc_end(struct server_grpc_call *call);

/* POST /json. SERVER_ASKED: server_grpc_json_respond makes the response of this ask. */
enum server_routed server_grpc_json(struct server_conn *conn, struct weir__http_request *request,
                                    int32_t stream, struct server_response *ret);
/* Ends the call, too. */
void server_grpc_json_respond(struct server_ask *ask, struct server_response *ret);

#endif
