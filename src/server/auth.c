/*
 * Who is let in: tokens, which hosts a request may have been meant for, wrong tokens, connections
 * of one client.
 *
 * A page that a browser opens can send requests to a server on the same machine, and by DNS
 * rebinding even read the answers, under a name of the attacker's. So Host must name us, and so
 * must Origin, if there is one. An address cannot be rebound, a name can: names are the loopback
 * ones and those configured.
 */
#include "server/listen.h"

#include "base/hash.h"
#include "base/random.h"
#include "server/conn.h"
#include "server/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

/* Takes as long whatever the token is: only the secret's length shows. An empty secret is
 * nobody's. */
static bool auth_is_secret(const char secret[SERVER_TOKEN_MAX], struct weir__span token)
{
    size_t len = strnlen(secret, SERVER_TOKEN_MAX);
    unsigned different = token.len != len || len == 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char theirs = i < token.len ? (unsigned char)token.data[i] : 0;
        different |= theirs ^ (unsigned char)secret[i];
    }
    return different == 0;
}

/* Without an admin token, the one for data opens everything; without either, everybody may, but for
 * administration where the server is public. */
enum server_access server_access_of(const struct server *server, struct weir__span token)
{
    const struct server_config *config = &server->config;
    bool some = token.len > 0; /* no token is nobody's */
    bool admin = some && auth_is_secret(config->admin_token, token);
    bool data = some && auth_is_secret(config->token, token);
    if (admin)
        return SERVER_ADMIN;
    if (config->token[0] && !data)
        return SERVER_NOBODY;
    if (config->admin_token[0])
        return SERVER_DATA;
    return data || !config->public_without_token ? SERVER_ADMIN : SERVER_DATA;
}

/* Whether it is one of ours, whatever it opens. */
static bool auth_is_known(const struct server *server, struct weir__span token)
{
    bool admin = auth_is_secret(server->config.admin_token, token);
    bool data = auth_is_secret(server->config.token, token);
    return admin || data;
}

/* ---- hosts ---- */

/* Host without its port and brackets: "a.example:80", "[::1]:80"; len 0: it is malformed. */
static struct weir__span auth_without_port(struct weir__span host)
{
    static const struct weir__span none = {"", 0};
    if (!host.data || host.len == 0)
        return none;
    const char *end = host.data + host.len;
    const char *colon = memrchr(host.data, ':', host.len);
    if (host.data[0] == '[') {
        const char *bracket = memchr(host.data, ']', host.len);
        if (!bracket || (bracket + 1 != end && bracket + 1 != colon))
            return none;
        if (bracket + 1 == end)
            colon = NULL; /* that was one of the address's own */
        host = (struct weir__span){host.data + 1, (size_t)(bracket - host.data - 1)};
    } else if (colon) {
        host.len = (size_t)(colon - host.data);
        if (memchr(host.data, ':', host.len))
            return none;
    }
    for (const char *digit = colon ? colon + 1 : end; colon && digit < end; digit++) {
        if (*digit < '0' || *digit > '9')
            return none;
    }
    return host;
}

/* "localhost", and names below it, which resolvers keep to this machine. */
static bool auth_is_loopback_name(struct weir__span name)
{
    static const char suffix[] = ".localhost";
    const size_t len = sizeof suffix - 1;
    return weir__span_is_word(name, suffix + 1) ||
           (name.len > len && !strncasecmp(name.data + name.len - len, suffix, len));
}

/* An address as one of IPv6, IPv4 mapped into it. False: it is not one. */
static bool auth_read_address(struct weir__span name, struct in6_addr *ret)
{
    char text[INET6_ADDRSTRLEN];
    if (name.len >= sizeof text)
        return false;
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    memcpy(ret->s6_addr, (const unsigned char[12]){[10] = 0xff, [11] = 0xff}, 12);
    return inet_pton(AF_INET, text, ret->s6_addr + 12) == 1 || inet_pton(AF_INET6, text, ret) == 1;
}

static bool auth_is_loopback_address(struct weir__span name)
{
    struct in6_addr address;
    return auth_read_address(name, &address) &&
           (IN6_IS_ADDR_LOOPBACK(&address) ||
            (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127));
}

static bool auth_is_configured(const struct server *server, struct weir__span name)
{
    const char *const *allowed = server->config.allowed_hosts;
    for (; allowed && *allowed; allowed++) {
        if (weir__span_is_word(name, *allowed))
            return true;
    }
    return false;
}

/* The name in a Host or Origin; len 0: it is malformed. */
static struct weir__span auth_name_of(struct weir__span host)
{
    struct weir__span name = auth_without_port(host);
    if (name.len > 1 && name.data[name.len - 1] == '.')
        name.len--;
    return name;
}

static bool auth_is_ours(const struct server *server, struct weir__span name)
{
    return name.len > 0 && (auth_is_loopback_name(name) || auth_is_loopback_address(name) ||
                            auth_is_configured(server, name) || server_listens_on(name));
}

/* None at all is no browser: HTTP/1.0 has no Host. Who listens everywhere has addresses that nobody
 * told us, and no address can be rebound. */
bool server_host_allowed(const struct server *server, struct weir__span host)
{
    if (host.len == 0)
        return true;
    struct weir__span name = auth_name_of(host);
    struct in6_addr address;
    return auth_is_ours(server, name) ||
           (auth_read_address(name, &address) && server_listens_everywhere());
}

/* A page of the same host is what Host is; of others, only those that Host could be. */
bool server_origin_allowed(const struct server *server, struct weir__span origin,
                           struct weir__span host)
{
    size_t scheme = 0;
    if (origin.len > 7 && !strncasecmp(origin.data, "http://", 7))
        scheme = 7;
    else if (origin.len > 8 && !strncasecmp(origin.data, "https://", 8))
        scheme = 8;
    if (scheme == 0)
        return false;
    struct weir__span from = {origin.data + scheme, origin.len - scheme};
    if (from.len == host.len && !strncasecmp(from.data, host.data, host.len))
        return true;
    return auth_is_ours(server, auth_name_of(from));
}

/* ---- wrong tokens ---- */

/*
 * Wrong tokens: who guesses is slowed down and, on one connection, stopped.
 *
 * Each address has a small allowance that comes back with time (IPv6: each /64). Beyond it the
 * answer is held back, longer the more it guesses, and the connection is not read meanwhile. That
 * costs the loop nothing: the sweep lets the answer go. The right token is always let in at once,
 * whoever else guesses from the same address: only failures wait.
 *
 * A table of fixed size; where it is full, whoever waits least is forgotten.
 */

#define SETS 256
#define WAYS 4
#define EVERY_US INT64_C(1000000)     /* one more failure is forgiven */
#define FREE_US (20 * EVERY_US)       /* so many are answered at once */
#define DELAY_MAX_US INT64_C(3000000) /* no answer waits longer */
#define AT_ONCE_MAX 16                /* failures in a row on one connection: it is closed */
#define SAY_EVERY_US INT64_C(10000000)

struct failing {
    struct server_client client;
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
    weir__hash(failures->secret, who->client.bytes, sizeof who->client.bytes, hash);
    struct failing *set = failures->places[hash[0] % SETS], *least = set;
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].paid_us && server_client_is(&set[i].client, &who->client))
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
    server_client_of((const struct sockaddr *)&conn->peer, &who.client);
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
        server_report("%llu wrong token%s, the last one from %s", (unsigned long long)said,
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
    conn->known = auth_is_known(server, token);
    if (WEIR__UNLIKELY(!conn->known))
        failures_note(conn);
    else
        conn->failures = 0;
    return access;
}

/* ---- connections of a client ---- */

/*
 * How many connections each client has: by IPv4 address, or by the first 64 bits of an IPv6 one,
 * which is what a single host is given. A table of fixed size under a lock that is taken when
 * connections come and go; a client is in it while it has any, and places come from a keyed hash,
 * since clients choose their addresses. Unix sockets are not counted.
 */

struct place {
    struct server_client client;
    uint32_t count; /* 0: it is free */
};

struct server_clients {
    pthread_mutex_t lock;
    int64_t most_each;
    uint64_t secret[2];
    size_t mask, used;
    struct place places[];
};

int server_clients_create(int64_t most_each, int64_t most, struct server_clients **ret)
{
    size_t size = 16;
    while (most_each > 0 && size < (size_t)most * 2 && size < (size_t)1 << 24)
        size *= 2;
    struct server_clients *clients = calloc(1, sizeof *clients + size * sizeof clients->places[0]);
    if (!clients)
        return WEIR_ENOMEM;
    if (weir__random_bytes(clients->secret, sizeof clients->secret)) {
        free(clients);
        return WEIR_ESYSTEM;
    }
    pthread_mutex_init(&clients->lock, NULL);
    clients->most_each = most_each;
    clients->mask = size - 1;
    *ret = clients;
    return 0;
}

void server_clients_destroy(struct server_clients *clients)
{
    if (!clients)
        return;
    pthread_mutex_destroy(&clients->lock);
    free(clients);
}

bool server_client_of(const struct sockaddr *address, struct server_client *ret)
{
    unsigned char *bytes = ret->bytes;
    memset(bytes, 0, sizeof ret->bytes);
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
        return false;
    if (address->sa_family == AF_INET)
        memcpy(bytes, &((const struct sockaddr_in *)address)->sin_addr, 4);
    else if (IN6_IS_ADDR_V4MAPPED(v6))
        memcpy(bytes, v6->s6_addr + 12, 4);
    else
        memcpy(bytes, v6->s6_addr, 8);
    bytes[8] = address->sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(v6);
    return true;
}

static size_t clients_home_of(const struct server_clients *clients,
                              const struct server_client *client)
{
    uint64_t hash[2];
    weir__hash(clients->secret, client->bytes, sizeof client->bytes, hash);
    return hash[0] & clients->mask;
}

/* Its place, or the free one where it belongs. One is always free. */
static struct place *clients_place_of(struct server_clients *clients,
                                      const struct server_client *client)
{
    size_t i = clients_home_of(clients, client);
    while (clients->places[i].count > 0 && !server_client_is(&clients->places[i].client, client))
        i = (i + 1) & clients->mask;
    return &clients->places[i];
}

/* Frees a place; those behind it move up where they would not be found otherwise. */
static void clients_free_place(struct server_clients *clients, size_t hole)
{
    size_t i = hole;
    clients->places[hole].count = 0;
    clients->used--;
    for (;;) {
        i = (i + 1) & clients->mask;
        if (clients->places[i].count == 0)
            return;
        size_t home = clients_home_of(clients, &clients->places[i].client);
        if (((i - home) & clients->mask) < ((i - hole) & clients->mask))
            continue;
        clients->places[hole] = clients->places[i];
        clients->places[i].count = 0;
        hole = i;
    }
}

bool server_clients_enter(struct server_clients *clients, const struct sockaddr *address)
{
    struct server_client client;
    if (clients->most_each == 0 || !server_client_of(address, &client))
        return true;
    pthread_mutex_lock(&clients->lock);
    struct place *place = clients_place_of(clients, &client);
    bool enters =
        place->count > 0 ? place->count < clients->most_each : clients->used < clients->mask;
    if (enters && place->count == 0) {
        place->client = client;
        clients->used++;
    }
    if (enters)
        place->count++;
    pthread_mutex_unlock(&clients->lock);
    return enters;
}

void server_clients_leave(struct server_clients *clients, const struct sockaddr *address)
{
    struct server_client client;
    if (clients->most_each == 0 || !server_client_of(address, &client))
        return;
    pthread_mutex_lock(&clients->lock);
    struct place *place = clients_place_of(clients, &client);
    if (place->count > 0 && --place->count == 0)
        clients_free_place(clients, (size_t)(place - clients->places));
    pthread_mutex_unlock(&clients->lock);
}
