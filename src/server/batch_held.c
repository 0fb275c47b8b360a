/* Held answers: a heap by when they are due, and a list for each connection. See batch.h. */
#include "server/conn.h"

#include <assert.h>
#include <stdlib.h>

static void held_put(struct server_thread *thread, size_t i, struct server_batch *batch)
{
    thread->held[i] = batch;
    batch->held_at = i;
}

static void held_sift_up(struct server_thread *thread, size_t i, struct server_batch *batch)
{
    while (i > 0 && thread->held[(i - 1) / 2]->due_us > batch->due_us) {
        held_put(thread, i, thread->held[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    held_put(thread, i, batch);
}

static void held_sift_down(struct server_thread *thread, size_t i, struct server_batch *batch)
{
    for (;;) {
        size_t least = 2 * i + 1, right = least + 1;
        if (right < thread->held_count && thread->held[right]->due_us < thread->held[least]->due_us)
            least = right;
        if (least >= thread->held_count || thread->held[least]->due_us >= batch->due_us)
            break;
        held_put(thread, i, thread->held[least]);
        i = least;
    }
    held_put(thread, i, batch);
}

bool server_held_push(struct server_batch *batch)
{
    struct server_thread *thread = batch->thread;
    struct server_conn *conn = batch->conn;
    if (thread->held_count == thread->held_room) {
        size_t room = thread->held_room ? 2 * thread->held_room : 64;
        struct server_batch **bigger = realloc(thread->held, room * sizeof(void *));
        if (!bigger)
            return false;
        thread->held = bigger;
        thread->held_room = room;
    }
    held_sift_up(thread, thread->held_count++, batch);
    batch->held_prev = NULL;
    batch->held_next = conn->held;
    if (conn->held)
        conn->held->held_prev = batch;
    conn->held = batch;
    return true;
}

static void held_remove(struct server_batch *batch)
{
    struct server_thread *thread = batch->thread;
    size_t i = batch->held_at;
    assert(i < thread->held_count && thread->held[i] == batch);
    struct server_batch *moved = thread->held[--thread->held_count];
    if (moved != batch) {
        if (i > 0 && thread->held[(i - 1) / 2]->due_us > moved->due_us)
            held_sift_up(thread, i, moved);
        else
            held_sift_down(thread, i, moved);
    }
    if (batch->held_prev)
        batch->held_prev->held_next = batch->held_next;
    else
        batch->conn->held = batch->held_next;
    if (batch->held_next)
        batch->held_next->held_prev = batch->held_prev;
}

struct server_batch *server_held_pop(struct server_thread *thread, int64_t now_us)
{
    if (thread->held_count == 0 || thread->held[0]->due_us > now_us)
        return NULL;
    struct server_batch *batch = thread->held[0];
    held_remove(batch);
    return batch;
}

void server_held_forget(struct server_conn *conn)
{
    struct server_batch *batch;
    while ((batch = conn->held)) {
        held_remove(batch);
        batch->from = batch->to; /* they were charged: count them */
        batch->to = batch->count;
        batch->began_us += batch->asks[batch->count - 1].held_us;
        server_batch_count(batch);
        conn->inflight--;
        server_batch_unpack(batch);
    }
}

void server_held_hurry(struct server_batch *batch, int64_t now_us)
{
    size_t last = batch->count - 1;
    int64_t left = weir__max(0, batch->due_us - now_us);
    batch->asks[last].held_us -= left;
    batch->decided[last].delay_us = left;
}
