/*
 * How many connections each client has: by IPv4 address, or by the first 64 bits of an IPv6 one, which is
 * what a single host is given. A table of fixed size under a lock that is taken when connections come and
 * go; a client is in it while it has any, and places come from a keyed hash, since clients choose their
 * addresses. Unix sockets are not counted.
 */
#include "server/server.h"

#include "base/hash.h"
#include "base/random.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct client {
    unsigned char address[8]; /* IPv4: four bytes, then zeros */
    bool v4;
    uint32_t count; /* 0: a free place */
};

struct server_clients {
    pthread_mutex_t lock;
    int64_t most_each;
    uint64_t secret[2];
    size_t mask, used;
    struct client places[];
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

bool server_client_address(const struct sockaddr *address, unsigned char ret[8], bool *ret_v4)
{
    memset(ret, 0, 8);
    *ret_v4 = address->sa_family == AF_INET;
    if (*ret_v4) {
        memcpy(ret, &((const struct sockaddr_in *)address)->sin_addr, 4);
        return true;
    }
    if (address->sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    *ret_v4 = IN6_IS_ADDR_V4MAPPED(v6);
    if (*ret_v4)
        memcpy(ret, v6->s6_addr + 12, 4);
    else
        memcpy(ret, v6->s6_addr, 8);
    return true;
}

/* Whom an address stands for; false: it is not counted. */
static bool clients_key_of(const struct sockaddr *address, struct client *ret)
{
    *ret = (struct client){0};
    return server_client_address(address, ret->address, &ret->v4);
}

static bool clients_same(const struct client *a, const struct client *b)
{
    return a->v4 == b->v4 && !memcmp(a->address, b->address, sizeof a->address);
}

static size_t clients_home_of(const struct server_clients *clients, const struct client *client)
{
    uint64_t hash[2];
    unsigned char bytes[9];
    memcpy(bytes, client->address, 8);
    bytes[8] = client->v4;
    weir__hash(clients->secret, bytes, sizeof bytes, hash);
    return hash[0] & clients->mask;
}

/* Its place, or the free one where it belongs. One is always free. */
static struct client *clients_place_of(struct server_clients *clients, const struct client *client)
{
    size_t i = clients_home_of(clients, client);
    while (clients->places[i].count > 0 && !clients_same(&clients->places[i], client))
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
        size_t home = clients_home_of(clients, &clients->places[i]);
        if (((i - home) & clients->mask) < ((i - hole) & clients->mask))
            continue;
        clients->places[hole] = clients->places[i];
        clients->places[i].count = 0;
        hole = i;
    }
}

bool server_clients_enter(struct server_clients *clients, const struct sockaddr *address)
{
    struct client client;
    if (clients->most_each == 0 || !clients_key_of(address, &client))
        return true;
    pthread_mutex_lock(&clients->lock);
    struct client *place = clients_place_of(clients, &client);
    bool enters =
        place->count > 0 ? place->count < clients->most_each : clients->used < clients->mask;
    if (enters && place->count == 0) {
        *place = client;
        clients->used++;
    }
    if (enters)
        place->count++;
    pthread_mutex_unlock(&clients->lock);
    return enters;
}

void server_clients_leave(struct server_clients *clients, const struct sockaddr *address)
{
    struct client client;
    if (clients->most_each == 0 || !clients_key_of(address, &client))
        return;
    pthread_mutex_lock(&clients->lock);
    struct client *place = clients_place_of(clients, &client);
    if (place->count > 0 && --place->count == 0)
        clients_free_place(clients, (size_t)(place - clients->places));
    pthread_mutex_unlock(&clients->lock);
}
