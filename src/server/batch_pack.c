/*
 * Batches that outlive the call that made them: one block each, with everything its asks use. It is laid
 * out and filled in one walk over the asks, which is walked twice: first it only measures, then it copies.
 */
#include "server/conn.h"

#include "server/grpc/grpc.h"
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PACK_ALIGN 16
_Static_assert(offsetof(struct weir__plan, separate) < offsetof(struct weir__plan, keys),
               "a packed plan has neither separate items nor keys: both come last");

/* A block being measured (start is NULL) or filled. */
struct pack {
    char *start;
    size_t used;
    size_t elsewhere; /* bytes that asks own in memory of their own */
};

/* The next n bytes; NULL while it is only measured. */
static void *pack_room(struct pack *pack, size_t n)
{
    void *room = pack->start ? pack->start + pack->used : NULL;
    pack->used += (n + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
    return room;
}

static const char *pack_bytes(struct pack *pack, const void *data, size_t n)
{
    char *room = pack->start ? pack->start + pack->used : NULL;
    pack->used += n; /* texts need no alignment … */
    if (room && n > 0)
        memcpy(room, data, n);
    return room;
}

/* … but what follows them does. */
static void pack_align(struct pack *pack)
{
    pack->used = (pack->used + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

static weir_key pack_key(struct pack *pack, weir_key key)
{
    return weir_key_bytes(pack_bytes(pack, key.data, key.len), key.len);
}

/* ---- groups ---- */

static size_t pack_group_size(const struct server_group *group)
{
    return group->planned
               ? offsetof(struct server_group, plan) + offsetof(struct weir__plan, separate)
               : offsetof(struct server_group, plan);
}

static void pack_planned(struct pack *pack, struct weir__item *to, const struct weir__item *from,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weir_key key = pack_key(pack, from[i].key);
        if (to)
            to[i].key = key;
    }
}

/* The keys of a plan, and the requests that take from them. */
static void pack_plan(struct pack *pack, struct server_group *to, const struct server_group *from)
{
    const struct weir__plan *plan = &from->plan;
    assert(from->count <= plan->enforced_count && plan->separate_count == 0);
    pack_planned(pack, to ? to->plan.enforced : NULL, plan->enforced, plan->enforced_count);
    pack_planned(pack, to ? to->plan.shadow : NULL, plan->shadow, plan->shadow_count);
    for (size_t i = 0; to && i < from->count; i++) {
        assert(from->requests[i].key.data == plan->enforced[i].key.data);
        to->requests[i].key = to->plan.enforced[i].key;
    }
}

static struct server_group *pack_group(struct pack *pack, const struct server_group *from)
{
    size_t size = pack_group_size(from), shadows = from->planned ? from->plan.shadow_count : 0;
    struct server_group *to = pack_room(pack, size);
    weir_decision(*rows)[WEIR_LIMITS_MAX] = pack_room(pack, shadows * sizeof *from->shadow_rows);
    if (to) {
        memcpy(to, from, size);
        to->shadow_rows = rows;
    }
    for (size_t i = 0; to && i < from->count; i++) {
        if (from->requests[i].detail)
            to->requests[i].detail = to->rows + (from->requests[i].detail - from->rows);
    }
    if (from->planned)
        pack_plan(pack, to, from);
    for (size_t i = 0; !from->planned && i < from->count; i++) {
        weir_key key = pack_key(pack, from->requests[i].key);
        if (!to)
            continue;
        to->requests[i].key = key;
        weir__limit_ref(to->requests[i].limit);
    }
    pack_align(pack);
    return to;
}

/* ---- asks ---- */

/* What it has in memory of its own goes with it. */
static size_t pack_ask_bytes(const struct server_ask *ask)
{
    if (ask->said)
        return sizeof *ask->said + ask->said->len;
    if (ask->verb == WEIR__VERB_SHOW) /* what it will find */
        return sizeof *ask->shown + WEIR__SHOWN_MAX * sizeof ask->shown->states[0];
    bool call = ask->verb == WEIR__VERB_COUNT && !ask->work; /* work is counted by itself */
    return call ? sizeof(struct server_grpc_call) : 0;
}

/* The request of an ask; that of a group is the group's first, for receipts. */
static void pack_simple(struct pack *pack, struct server_batch *to, size_t j, size_t i,
                        const struct server_batch *from)
{
    const weir_request *request = &from->simple[i];
    if (to) {
        to->simple[j] = *request;
        to->hashed[j] = from->hashed[i];
    }
    if (!request->key.data)
        return;
    weir_key key = pack_key(pack, request->key);
    if (!to)
        return;
    to->simple[j].key = to->hashed[j].key = key;
    if (request->hashed)
        to->simple[j].hashed = &to->hashed[j];
}

static void pack_ask(struct pack *pack, struct server_batch *to, size_t j, size_t i,
                     struct server_batch *from)
{
    struct server_ask *ask = &from->asks[i];
    pack->elsewhere += pack_ask_bytes(ask);
    if (to)
        to->asks[j] = *ask;
    pack_simple(pack, to, j, i, from);
    const char *receipt = pack_bytes(pack, ask->receipt.data, ask->receipt.len);
    pack_align(pack);
    struct server_group *group = ask->group ? pack_group(pack, ask->group) : NULL;
    if (!to)
        return;
    to->asks[j].receipt.data = receipt;
    to->asks[j].group = group;
    if (!group && to->simple[j].limit)
        weir__limit_ref(to->simple[j].limit);
    ask->said = NULL; /* the packed ask's from here on */
    ask->work = NULL;
    if (ask->verb == WEIR__VERB_COUNT)
        ask->other = NULL;
}

/* Walks over all of it once. NULL: it was only measured. */
static struct server_batch *pack_walk(struct pack *pack, struct server_batch *from, size_t first,
                                      size_t end)
{
    size_t n = end - first;
    struct server_batch *to = pack_room(pack, sizeof *to);
    weir_request *simple = pack_room(pack, n * sizeof *simple);
    weir_hashed_key *hashed = pack_room(pack, n * sizeof *hashed);
    weir_decision *decided = pack_room(pack, n * sizeof *decided);
    struct server_ask *asks = pack_room(pack, n * sizeof *asks);
    if (to)
        *to = (struct server_batch){.thread = from->thread,
                                    .conn = from->conn,
                                    .count = n,
                                    .began_us = from->began_us,
                                    .simple = simple,
                                    .hashed = hashed,
                                    .decided = decided,
                                    .asks = asks};
    for (size_t i = first; i < end; i++)
        pack_ask(pack, to, i - first, i, from);
    return to;
}

/* ---- bounds ---- */

/* Whether a connection may have so many bytes more with its packed batches. A little each may have in any
 * case. Beyond that, nobody has more than a part of what is left: so those who hold much leave room for
 * the others, however many they are. */
static bool pack_keep(struct server_conn *conn, size_t bytes, size_t asks)
{
    struct server *server = conn->thread->server;
    size_t all = conn->away + bytes;
    if (conn->away_asks + asks > SERVER_AWAY_ASKS && conn->away_asks > 0)
        return false;
    if (all > SERVER_AWAY_FREE) {
        size_t before = conn->away > SERVER_AWAY_FREE ? conn->away : SERVER_AWAY_FREE;
        if (all > server_left(server) / SERVER_AWAY_SHARE || !server_keep(server, all - before))
            return false;
    }
    conn->away = all;
    conn->away_asks += asks;
    return true;
}

static void pack_forget(struct server_conn *conn, size_t bytes, size_t asks)
{
    size_t all = conn->away;
    assert(all >= bytes && conn->away_asks >= asks);
    conn->away -= bytes;
    conn->away_asks -= asks;
    size_t left = conn->away > SERVER_AWAY_FREE ? conn->away : SERVER_AWAY_FREE;
    if (all > left)
        atomic_fetch_sub(&conn->thread->server->kept, all - left);
}

/* ---- the whole ---- */

struct server_batch *server_batch_pack(struct server_conn *conn, struct server_batch *open,
                                       size_t from, size_t to)
{
    struct pack pack = {0};
    pack_walk(&pack, open, from, to);
    size_t size = pack.used, bytes = size + pack.elsewhere;
    if (!pack_keep(conn, bytes, to - from))
        return NULL;
    pack = (struct pack){.start = aligned_alloc(PACK_ALIGN, size)};
    if (!pack.start) {
        pack_forget(conn, bytes, to - from);
        return NULL;
    }
    struct server_batch *batch = pack_walk(&pack, open, from, to);
    assert(pack.used == size); /* so every text is in it */
    batch->bytes = bytes;
    batch->rules = server_rules_hold(open->thread->rules);
    return batch;
}

void server_ask_end(struct server_conn *conn, struct server_ask *ask)
{
    free(ask->said);
    ask->said = NULL;
    free(ask->shown);
    ask->shown = NULL;
    if (ask->work) {
        server_work_leave(conn, ask->work->lane, ask->work->kept);
        free(ask->work->body);
        free(ask->work->answer);
        free(ask->work);
        ask->work = NULL;
    } else if (ask->verb == WEIR__VERB_COUNT) {
        server_grpc_end(ask);
    }
}

void server_batch_unpack(struct server_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct server_group *group = batch->asks[i].group;
        if (!group && batch->simple[i].limit)
            weir_limit_free((weir_limit *)batch->simple[i].limit);
        for (size_t j = 0; group && !group->planned && j < group->count; j++)
            weir_limit_free((weir_limit *)group->requests[j].limit);
        server_ask_end(batch->conn, &batch->asks[i]);
    }
    server_rules_release(batch->rules);
    batch->thread->receipts.limit = NULL; /* limits may be gone */
    pack_forget(batch->conn, batch->bytes, batch->count);
    free(batch);
}
