/*
 * Wrong tokens: who guesses is slowed down and, on one connection, stopped.
 *
 * Each address has a small allowance that comes back with time (IPv6: each /64). Beyond it the answer is held
 * back, longer the more it guesses, and the connection is not read meanwhile. That costs the loop nothing:
 * the sweep lets the answer go. The right token is always let in at once, whoever else guesses from the
 * same address: only failures wait.
 *
 * A table of fixed size; where it is full, whoever waits least is forgotten.
 */
#include "server/conn.h"

#include "base/hash.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

#define SETS 256
#define WAYS 4
#define EVERY_US INT64_C(1000000)     /* one more failure is forgiven */
#define FREE_US (20 * EVERY_US)       /* so many are answered at once */
#define DELAY_MAX_US INT64_C(3000000) /* no answer waits longer */
#define AT_ONCE_MAX 16                /* failures in a row on one connection: it is closed */
#define SAY_EVERY_US INT64_C(10000000)

struct failing {
    unsigned char address[8]; /* as server_client_address has it */
    bool v4;
    int64_t paid_us; /* its failures are forgiven by then; 0: a free place */
};

struct server_failures {
    pthread_mutex_t lock;
    uint64_t secret[2];
    int64_t said_us;
    uint64_t unsaid;
    struct failing places[SETS][WAYS];
};

int server_failures_create(struct server_failures **ret)
{
    struct server_failures *failures = calloc(1, sizeof *failures);
    if (!failures)
        return WEIR_ENOMEM;
    if (weir__random_bytes(failures->secret, sizeof failures->secret)) {
        free(failures);
        return WEIR_ESYSTEM;
    }
    pthread_mutex_init(&failures->lock, NULL);
    failures->said_us = -SAY_EVERY_US;
    *ret = failures;
    return 0;
}

void server_failures_destroy(struct server_failures *failures)
{
    if (!failures)
        return;
    pthread_mutex_destroy(&failures->lock);
    free(failures);
}

/* Its place, or the one that is forgotten for it. */
static struct failing *failures_place(struct server_failures *failures, const struct failing *who)
{
    uint64_t hash[2];
    unsigned char bytes[9];
    memcpy(bytes, who->address, 8);
    bytes[8] = who->v4;
    weir__hash(failures->secret, bytes, sizeof bytes, hash);
    struct failing *set = failures->places[hash[0] % SETS], *least = set;
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].paid_us && set[i].v4 == who->v4 && !memcmp(set[i].address, who->address, 8))
            return &set[i];
        if (set[i].paid_us < least->paid_us)
            least = &set[i];
    }
    *least = *who;
    return least;
}

/* Counts a failure of an address; how long its answer waits. */
static int64_t failures_delay(struct server_failures *failures, const struct server_conn *conn,
                              int64_t now_us, uint64_t *ret_say)
{
    struct failing who = {.paid_us = 0};
    server_client_address((const struct sockaddr *)&conn->peer, who.address, &who.v4);
    pthread_mutex_lock(&failures->lock);
    struct failing *place = failures_place(failures, &who);
    place->paid_us = weir__max(place->paid_us, now_us) + EVERY_US;
    int64_t delay = place->paid_us - now_us - FREE_US;
    failures->unsaid++;
    *ret_say = 0;
    if (now_us - failures->said_us >= SAY_EVERY_US) {
        *ret_say = failures->unsaid;
        failures->unsaid = 0;
        failures->said_us = now_us;
    }
    pthread_mutex_unlock(&failures->lock);
    return delay <= 0 ? 0 : weir__min(DELAY_MAX_US, weir__max(EVERY_US, delay));
}

static void failures_note(struct server_conn *conn)
{
    struct server *server = conn->thread->server;
    int64_t now_us = weir__mono_us();
    uint64_t said;
    int64_t delay = failures_delay(server->failures, conn, now_us, &said);
    if (said > 0)
        server_tell("%llu wrong token%s, the last one from %s", (unsigned long long)said,
                    said == 1 ? "" : "s", conn->peer_text);
    if (++conn->failures >= AT_ONCE_MAX)
        conn->last_failure = true;
    if (conn->last_failure && conn->protocol != &server_http1) /* that closes behind its answer */
        server_conn_close(conn);
    if (delay > 0)
        server_conn_quiet(conn, now_us + delay);
}

enum server_access server_conn_access(struct server_conn *conn, struct weir__span token)
{
    const struct server *server = conn->thread->server;
    enum server_access access = server_access_of(server, token);
    bool asked_for = server->config.token[0] || server->config.admin_token[0];
    if (WEIR__LIKELY(token.len == 0 || !asked_for))
        return access;
    conn->known = server_token_is_known(server, token);
    if (WEIR__UNLIKELY(!conn->known))
        failures_note(conn);
    else
        conn->failures = 0;
    return access;
}
