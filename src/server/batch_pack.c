/*
 * Batches that outlive the call that made them: one block each, with everything its asks use. It is
 * laid out and filled in one walk over the asks, which is walked twice: first it only measures,
 * then it copies.
 */
#include "server/conn.h"

#include "server/grpc/grpc.h"
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PACK_ALIGN 16
_Static_assert(offsetof(struct weir__plan, room) < offsetof(struct weir__plan, keys),
               "a packed plan has neither rooms nor keys: both come last");

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

/* ---- what is decided together ---- */

/* Rows lie behind their requests; keys come later. */
static void pack_rows(struct server_several *to, const struct server_several *from)
{
    for (size_t i = 0; to && i < from->count; i++) {
        if (from->requests[i].detail)
            to->requests[i].detail = to->rows + (from->requests[i].detail - from->rows);
    }
}

static struct server_several *pack_several(struct pack *pack, const struct server_several *from)
{
    struct server_several *to = pack_room(pack, sizeof *to);
    if (to)
        *to = *from;
    pack_rows(to, from);
    for (size_t i = 0; i < from->count; i++) {
        weir_key key = pack_key(pack, from->requests[i].key);
        if (!to)
            continue;
        to->requests[i].key = key;
        weir__limit_ref(to->requests[i].limit);
    }
    return to;
}

static struct weir__item *pack_items(struct pack *pack, const struct weir__item *from, size_t n)
{
    struct weir__item *to = pack_room(pack, n * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        weir_key key = pack_key(pack, from[i].key);
        if (!to)
            continue;
        to[i] = from[i];
        to[i].key = key;
    }
    pack_align(pack);
    return to;
}

/* The plan with the items that it has, and the requests that take from their keys. The rules own
 * its limits. */
static struct server_planned *pack_planned(struct pack *pack, const struct server_planned *from)
{
    const struct weir__plan *plan = &from->plan;
    const struct server_several *several = &from->several;
    size_t size = offsetof(struct server_planned, plan) + offsetof(struct weir__plan, room);
    struct server_planned *to = pack_room(pack, size);
    weir_decision(*rows)[WEIR_LIMITS_MAX] = pack_room(pack, plan->shadow_count * sizeof *rows);
    struct weir__item *enforced = pack_items(pack, plan->enforced, plan->enforced_count);
    struct weir__item *shadow = pack_items(pack, plan->shadow, plan->shadow_count);
    assert(several->count <= plan->enforced_count && plan->separate_count == 0);
    if (!to)
        return NULL;
    memcpy(to, from, size);
    to->shadow_rows = rows;
    to->plan.enforced = enforced;
    to->plan.shadow = shadow;
    to->plan.separate = NULL;
    pack_rows(&to->several, several);
    for (size_t i = 0; i < several->count; i++) {
        assert(several->requests[i].key.data == plan->enforced[i].key.data);
        to->several.requests[i].key = enforced[i].key;
    }
    return to;
}

/* ---- asks ---- */

/* The request of an ask about one key. */
static void pack_simple(struct pack *pack, struct server_batch *to, size_t j, size_t i,
                        const struct server_batch *from)
{
    const weir_request *request = &from->simple[i];
    weir_key key = pack_key(pack, request->key);
    if (!to)
        return;
    to->simple[j] = *request;
    to->hashed[j] = from->hashed[i];
    to->simple[j].key = to->hashed[j].key = key;
    if (request->hashed)
        to->simple[j].hashed = &to->hashed[j];
    if (request->limit)
        weir__limit_ref(request->limit);
}

/* A text that an ask borrows: a receipt, the id of a refund. */
static void pack_text(struct pack *pack, struct weir__span *to, const struct weir__span *from)
{
    const char *copy = pack_bytes(pack, from->data, from->len);
    if (to)
        to->data = copy;
    pack_align(pack);
}

/* What it is about. */
static void pack_about(struct pack *pack, struct server_batch *to, size_t j, size_t i,
                       const struct server_batch *from)
{
    const struct server_ask *ask = &from->asks[i];
    struct server_several *several = NULL;
    struct server_planned *planned = NULL;
    switch (ask->about) {
    case SERVER_ABOUT_ONE:
        pack_simple(pack, to, j, i, from);
        return;
    case SERVER_ABOUT_SEVERAL:
        several = pack_several(pack, ask->several);
        if (to)
            to->asks[j].several = several;
        return;
    case SERVER_ABOUT_PLAN:
        planned = pack_planned(pack, ask->planned);
        if (to)
            to->asks[j].planned = planned;
        return;
    }
}

/* What it uses is copied; what it owns in memory of its own goes with it, and is counted. */
static void pack_ask(struct pack *pack, struct server_batch *to, size_t j, size_t i,
                     struct server_batch *from)
{
    struct server_ask *ask = &from->asks[i], *packed = to ? &to->asks[j] : NULL;
    if (to) {
        *packed = *ask;
        to->simple[j] = (weir_request){.cost = 0};
    }
    switch (ask->kind) {
    case SERVER_ASK_SETTLE:
        pack_text(pack, packed ? &packed->settle.receipt : NULL, &ask->settle.receipt);
        pack_about(pack, to, j, i, from);
        break;
    case SERVER_ASK_REFUND:
        pack_text(pack, packed ? &packed->refund.id : NULL, &ask->refund.id);
        pack_about(pack, to, j, i, from);
        break;
    case SERVER_ASK_DECIDE:
    case SERVER_ASK_RESET:
    case SERVER_ASK_LEASE:
        pack_about(pack, to, j, i, from);
        break;
    case SERVER_ASK_SHOW:
        assert(!ask->shown);
        pack_simple(pack, to, j, i, from);
        pack->elsewhere += sizeof *ask->shown + WEIR__SHOWN_MAX * sizeof ask->shown->states[0];
        break;
    case SERVER_ASK_CALL:
        pack->elsewhere += sizeof *ask->call;
        if (to)
            ask->call = NULL; /* the packed ask's from here on, as the next two */
        break;
    case SERVER_ASK_WORK: /* counted by itself */
        if (to)
            ask->work = NULL;
        break;
    case SERVER_ASK_SAID:
        pack->elsewhere += sizeof *ask->said + ask->said->len;
        if (to)
            ask->said = NULL;
        break;
    }
    pack_align(pack);
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

/* Whether a connection may have so many bytes more with its packed batches. A little each may have
 * in any case. Beyond that, nobody has more than a part of what is left: so those who hold much
 * leave room for the others, however many they are. */
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

struct server_rules *server_batch_rules(const struct server_batch *batch)
{
    return batch->rules ? batch->rules : batch->thread->rules;
}

void server_batch_unpack(struct server_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct server_ask *ask = &batch->asks[i];
        weir_limit_free((weir_limit *)batch->simple[i].limit); /* where it has one */
        for (size_t j = 0; ask->about == SERVER_ABOUT_SEVERAL && j < ask->several->count; j++)
            weir_limit_free((weir_limit *)ask->several->requests[j].limit);
        server_ask_end(batch->conn, &batch->asks[i]);
    }
    server_rules_release(batch->rules);
    batch->thread->receipts.limit = NULL; /* limits may be gone */
    pack_forget(batch->conn, batch->bytes, batch->count);
    free(batch);
}
