/*
 * Held answers: a take that must wait is answered when its delay is over. The batch whose last
 * answer is held stands in the heap of its thread, by when it is due, and in the list of its
 * connection.
 *
 * What holds: a batch that is held is packed, its other answers are written, and it counts as one
 * in conn->inflight until it is answered or its connection is gone.
 */
#include "server/conn.h"

#include <assert.h>
#include <stdlib.h>

static void held_put(struct server_thread *thread, size_t i, struct server_batch *batch)
{
    thread->held.heap[i] = batch;
    batch->held_at = i;
}

static void held_sift_up(struct server_thread *thread, size_t i, struct server_batch *batch)
{
    while (i > 0 && thread->held.heap[(i - 1) / 2]->due_us > batch->due_us) {
        held_put(thread, i, thread->held.heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    held_put(thread, i, batch);
}

static void held_sift_down(struct server_thread *thread, size_t i, struct server_batch *batch)
{
    for (;;) {
        size_t least = 2 * i + 1, right = least + 1;
        if (right < thread->held.count &&
            thread->held.heap[right]->due_us < thread->held.heap[least]->due_us)
            least = right;
        if (least >= thread->held.count || thread->held.heap[least]->due_us >= batch->due_us)
            break;
        held_put(thread, i, thread->held.heap[least]);
        i = least;
    }
    held_put(thread, i, batch);
}

/* False: no memory. */
static bool held_push(struct server_batch *batch)
{
    struct server_thread *thread = batch->thread;
    struct server_conn *conn = batch->conn;
    if (thread->held.count == thread->held.room) {
        size_t room = thread->held.room ? 2 * thread->held.room : 64;
        struct server_batch **bigger = realloc(thread->held.heap, room * sizeof(void *));
        if (!bigger)
            return false;
        thread->held.heap = bigger;
        thread->held.room = room;
    }
    held_sift_up(thread, thread->held.count++, batch);
    batch->held_prev = NULL;
    batch->held_next = conn->held;
    if (conn->held)
        conn->held->held_prev = batch;
    conn->held = batch;
    return true;
}

bool server_held_wants(const struct server_batch *batch)
{
    size_t last = batch->count - 1;
    return batch->asks[last].hold && batch->asks[last].code == 0 && batch->decided[last].allowed &&
           batch->decided[last].delay_us > 0;
}

bool server_held_hold(struct server_batch *batch)
{
    size_t last = batch->count - 1;
    int64_t delay_us = batch->decided[last].delay_us;
    assert(server_held_wants(batch) && batch->bytes > 0 && !batch->conn->dead);
    batch->asks[last].hold = false;
    batch->due_us = weir__mono_us() + delay_us;
    if (!held_push(batch))
        return false;
    batch->asks[last].held_us = delay_us;
    batch->decided[last].delay_us = 0;
    return true;
}

static void held_remove(struct server_batch *batch)
{
    struct server_thread *thread = batch->thread;
    size_t i = batch->held_at;
    assert(i < thread->held.count && thread->held.heap[i] == batch);
    struct server_batch *moved = thread->held.heap[--thread->held.count];
    if (moved != batch) {
        if (i > 0 && thread->held.heap[(i - 1) / 2]->due_us > moved->due_us)
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

/* Takes out the first that is due; NULL: there is none. */
static struct server_batch *held_pop(struct server_thread *thread, int64_t now_us)
{
    if (thread->held.count == 0 || thread->held.heap[0]->due_us > now_us)
        return NULL;
    struct server_batch *batch = thread->held.heap[0];
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
        assert(conn->inflight > 0);
        conn->inflight--;
        server_batch_unpack(batch);
    }
}

void server_held_answer_due(struct server_thread *thread, size_t most)
{
    struct server_batch *batch;
    for (size_t i = 0; i < most && (batch = held_pop(thread, thread->now_us)); i++)
        server_batch_back(batch);
}

void server_held_answer_early(struct server_thread *thread)
{
    struct server_batch *batch;
    while ((batch = held_pop(thread, INT64_MAX))) {
        size_t last = batch->count - 1;
        int64_t left = weir__max(0, batch->due_us - weir__mono_us());
        batch->asks[last].held_us -= left;
        batch->decided[last].delay_us = left;
        server_batch_back(batch);
    }
}

void server_held_end(struct server_thread *thread)
{
    assert(thread->held.count == 0);
    free(thread->held.heap);
}
