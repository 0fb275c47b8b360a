/* Batches: made, run here or given to the askers, held, answered, reused. See batch.h. */
#include "server/conn.h"

#include "server/grpc.h"
#include "server/workers.h"

#include <stdlib.h>
#include <string.h>

static struct server_batch *new_batch(struct server_thread *thread)
{
    struct server_batch *batch = thread->free_batches;
    if (batch)
        thread->free_batches = batch->next;
    else
        batch = malloc(sizeof *batch);
    if (!batch)
        return NULL;
    batch->next = NULL;
    batch->thread = thread;
    batch->rules = NULL;
    batch->count = 0;
    batch->due_us = 0;
    batch->held_bytes = 0;
    batch->referenced = batch->slow = false;
    batch->room_used = 0;
    if (thread->cache.retired_count > 0) { /* no batch is open: nobody uses what was retired */
        weir__limit_cache_turn(&thread->cache);
        server_receipts_forget();
    }
    return batch;
}

struct server_batch *server_batch_of(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    if (!thread->open_batch)
        thread->open_batch = new_batch(thread);
    if (thread->open_batch)
        thread->open_batch->conn = conn;
    return thread->open_batch;
}

bool server_batch_has_room(struct server_conn *conn)
{
    const struct server_batch *batch = server_batch_of(conn);
    size_t needed = (size_t)conn->thread->server->config.max_head + WEIR_KEY_MAX;
    return batch && (batch->count == 0 || (batch->count < SERVER_BATCH_MAX &&
                                           sizeof batch->room - batch->room_used >= needed &&
                                           !weir__limit_cache_needs_turn(&conn->thread->cache)));
}

bool server_batch_is_open(const struct server_conn *conn)
{
    return conn->thread->open_batch && conn->thread->open_batch->count > 0;
}

void server_batch_say(struct server_conn *conn, const char *bytes, size_t len, bool close)
{
    struct server_said *said = malloc(sizeof *said + len);
    struct server_ask *ask = said ? server_batch_add(conn) : NULL;
    if (!ask) {
        free(said);
        server_conn_kill(conn);
        return;
    }
    said->len = len;
    memcpy(said->bytes, bytes, len);
    ask->said = said;
    ask->close = close;
}

struct server_ask *server_batch_add(struct server_conn *conn)
{
    struct server_batch *batch = server_batch_of(conn);
    if (!batch || batch->count == SERVER_BATCH_MAX)
        return NULL;
    size_t i = batch->count++;
    batch->simple[i] = (weir_request){.cost = 1, .wait_us = WEIR_WAIT_DEFAULT};
    memset(&batch->asks[i], 0, sizeof batch->asks[i]);
    return &batch->asks[i];
}

void server_batch_hash(struct server_conn *conn)
{
    struct server_batch *batch = conn->thread->open_batch;
    size_t i = batch->count - 1;
    weir_request *request = &batch->simple[i];
    if (!conn->thread->server->remote)
        request->key = weir_key_hash(conn->thread->server->store, request->key, &batch->hashed[i]);
}

struct server_group *server_group_take(struct server_thread *thread)
{
    struct server_group *group = thread->free_groups;
    if (group) {
        thread->free_groups = group->next;
    } else {
        if (thread->groups >= SERVER_GROUPS_MAX || !(group = malloc(sizeof *group)))
            return NULL;
        thread->groups++;
    }
    group->count = group->row_count = 0;
    group->planned = false;
    group->plan.enforced_count = group->plan.shadow_count = 0;
    return group;
}

static void give_group_back(struct server_thread *thread, struct server_group *group)
{
    group->next = thread->free_groups;
    thread->free_groups = group;
}

void server_batch_drop(struct server_conn *conn)
{
    struct server_batch *batch = conn->thread->open_batch;
    struct server_ask *ask = &batch->asks[--batch->count];
    if (ask->group)
        give_group_back(conn->thread, ask->group);
}

char *server_batch_room(struct server_conn *conn, size_t n)
{
    struct server_batch *batch = server_batch_of(conn);
    if (!batch || n > sizeof batch->room - batch->room_used)
        return NULL;
    char *room = batch->room + batch->room_used;
    batch->room_used += n;
    return room;
}

/* ---- limits of the cache, kept over its turn ---- */

static void for_each_limit(struct server_batch *batch, void (*visit)(const weir_limit *))
{
    for (size_t i = 0; i < batch->count; i++) {
        struct server_group *group = batch->asks[i].group;
        if (!group && batch->simple[i].limit)
            visit(batch->simple[i].limit);
        for (size_t j = 0; group && !group->planned && j < group->count; j++) {
            if (group->requests[j].limit)
                visit(group->requests[j].limit);
        }
    }
}

static void hold_limit(const weir_limit *limit)
{
    weir__limit_ref(limit);
}

static void release_limit(const weir_limit *limit)
{
    weir_limit_free((weir_limit *)limit);
}

static void reference(struct server_batch *batch)
{
    if (batch->referenced)
        return;
    batch->referenced = true;
    for_each_limit(batch, hold_limit);
    batch->rules = server_rules_hold(batch->thread->rules);
}

static void free_work(struct server_conn *conn, struct server_work *work)
{
    server_work_leave(conn, work->lane, work->kept);
    free(work->body);
    free(work->answer);
    free(work);
}

static void release(struct server_batch *batch)
{
    struct server_thread *thread = batch->thread;
    if (batch->referenced) {
        for_each_limit(batch, release_limit);
        server_rules_release(batch->rules);
        server_receipts_forget();
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->asks[i].group)
            give_group_back(thread, batch->asks[i].group);
        free(batch->asks[i].said);
        if (batch->asks[i].work)
            free_work(batch->conn, batch->asks[i].work);
        else if (batch->asks[i].verb == WEIR__VERBS)
            server_grpc_end(&batch->asks[i]);
    }
    batch->next = thread->free_batches;
    thread->free_batches = batch;
}

/* ---- held answers ---- */

static bool push_held(struct server_thread *thread, struct server_batch *batch)
{
    if (thread->held_count == thread->held_room) {
        size_t room = thread->held_room ? 2 * thread->held_room : 64;
        struct server_batch **bigger = realloc(thread->held, room * sizeof(void *));
        if (!bigger)
            return false;
        thread->held = bigger;
        thread->held_room = room;
    }
    size_t i = thread->held_count++;
    while (i > 0 && thread->held[(i - 1) / 2]->due_us > batch->due_us) {
        thread->held[i] = thread->held[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    thread->held[i] = batch;
    return true;
}

/* An ask that holds is the last of its batch; those before it wait with it. */
static bool is_to_be_held(const struct server_batch *batch)
{
    size_t last = batch->count - 1;
    return batch->asks[last].hold && batch->asks[last].code == 0 && batch->decided[last].allowed &&
           batch->decided[last].delay_us > 0;
}

/* Puts it off by its delay; false: it cannot be, so it is answered now. */
static bool hold(struct server_batch *batch)
{
    size_t last = batch->count - 1;
    batch->due_us = server_monotonic_us() + batch->decided[last].delay_us;
    batch->asks[last].held_us = batch->decided[last].delay_us;
    batch->asks[last].hold = false;
    reference(batch);
    bool fits = server_keep(batch->thread->server, SERVER_HELD_BYTES);
    if (!fits || !push_held(batch->thread, batch)) {
        if (fits)
            atomic_fetch_sub(&batch->thread->server->kept, SERVER_HELD_BYTES);
        batch->asks[last].held_us = 0;
        return false;
    }
    batch->held_bytes = SERVER_HELD_BYTES;
    batch->decided[last].delay_us = 0;
    return true;
}

void server_batch_hurry(struct server_batch *batch, int64_t now_us)
{
    size_t last = batch->count - 1;
    int64_t left = weir__max(0, batch->due_us - now_us);
    batch->asks[last].held_us -= left;
    batch->decided[last].delay_us = left;
}

/* ---- running ---- */

bool server_batch_finish(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    struct server_batch *batch = thread->open_batch;
    if (!batch || batch->count == 0)
        return true;
    thread->open_batch = NULL;
    batch->began_us = server_monotonic_us();
    if (thread->server->remote || batch->slow) {
        reference(batch);
        conn->inflight++;
        if (batch->slow)
            server_workers_give(thread->server->workers, batch);
        else
            server_askers_give(thread->server->askers, batch);
        return false;
    }
    server_batch_run(thread->server, batch);
    if (is_to_be_held(batch) && hold(batch)) {
        conn->inflight++;
        return false;
    }
    server_batch_count(batch);
    conn->protocol->answer(conn, batch);
    release(batch);
    return true;
}

void server_batch_back(struct server_batch *batch)
{
    struct server_conn *conn = batch->conn;
    if (!conn->dead && is_to_be_held(batch) && hold(batch))
        return;
    atomic_fetch_sub(&batch->thread->server->kept, batch->held_bytes);
    batch->held_bytes = 0;
    batch->began_us += batch->asks[batch->count - 1].held_us; /* waiting is no work */
    server_batch_count(batch);
    if (!conn->dead)
        conn->protocol->answer(conn, batch);
    conn->inflight--;
    release(batch);
    server_conn_resume(conn);
}
