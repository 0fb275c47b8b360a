/* See flow.h. */
#include "desk/flow.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ARRIVALS 4096
#define BATCH_BYTES (1 << 20) /* a batch with so many is full */
#define NEAR 4                /* arrivals ahead: the key's entry */
#define FAR 8                 /* arrivals ahead: the index */

enum flow_state { FLOW_EMPTY, FLOW_FULL };

struct flow_batch {
    struct desk_arrival arrivals[BATCH_ARRIVALS];
    size_t count;
    char *bytes; /* of keys and values: arrivals name them by offsets until the batch is full */
    size_t used, room;
    int64_t done, size;
    int code; /* then the last batch */
    bool last, idle;
    weir_error err;
    enum flow_state state;
};

struct flow_pair {
    const struct desk_flow *flow;
    struct flow_batch batches[2];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic bool ending; /* the caller wants no more */
    bool finished;       /* the reading thread has ended the source */
};

/* ---- the reading thread ---- */

static int flow_copy(struct flow_batch *batch, const struct desk_arrival *arrival)
{
    size_t bytes = arrival->key.len + arrival->carried_len;
    if (bytes > batch->room - batch->used) {
        size_t room = batch->room ? batch->room : BATCH_BYTES;
        while (room - batch->used < bytes)
            room *= 2;
        char *grown = realloc(batch->bytes, room);
        if (!grown)
            return WEIR_ENOMEM;
        batch->bytes = grown;
        batch->room = room;
    }
    struct desk_arrival *to = &batch->arrivals[batch->count++];
    char *at = batch->bytes + batch->used;
    *to = *arrival;
    memcpy(at, arrival->key.data, arrival->key.len);
    if (arrival->carried_len > 0)
        memcpy(at + arrival->key.len, arrival->carried, arrival->carried_len);
    batch->used += bytes;
    return 0;
}

/* Puts the addresses in, now that the bytes stay where they are. */
static void flow_seal(struct flow_batch *batch)
{
    const char *at = batch->bytes;
    for (size_t i = 0; i < batch->count; i++) {
        struct desk_arrival *arrival = &batch->arrivals[i];
        arrival->key.data = at;
        arrival->carried = at + arrival->key.len;
        at += arrival->key.len + arrival->carried_len;
    }
    assert(at == batch->bytes + batch->used);
}

static void flow_fill(struct flow_pair *pair, struct flow_batch *batch)
{
    const struct desk_flow *flow = pair->flow;
    batch->count = batch->used = 0;
    batch->idle = batch->last = false;
    batch->code = 0;
    while (batch->count < BATCH_ARRIVALS && batch->used < BATCH_BYTES && !batch->idle) {
        struct desk_arrival arrival;
        bool over = atomic_load(&pair->ending);
        if (flow->stop && atomic_load(flow->stop) && !pair->finished) {
            pair->finished = true;
            if (flow->finish)
                flow->finish(flow->source);
        }
        over = over || (pair->finished && !flow->finish);
        int got = over ? DESK_END : flow->next(flow->source, &arrival, &batch->err);
        if (got == DESK_ARRIVAL && flow_copy(batch, &arrival)) {
            got = weir__fail(&batch->err, WEIR_ENOMEM, 0, "out of memory");
        }
        batch->idle = got == DESK_IDLE;
        batch->last = got == DESK_END || got < 0;
        batch->code = got < 0 ? got : 0;
        if (batch->last)
            break;
    }
    batch->done = 0;
    batch->size = -1;
    if (flow->where)
        flow->where(flow->source, &batch->done, &batch->size);
    flow_seal(batch);
}

/* Waits until a batch is in this state. */
static void flow_await(struct flow_pair *pair, struct flow_batch *batch, enum flow_state state)
{
    pthread_mutex_lock(&pair->lock);
    while (batch->state != state)
        pthread_cond_wait(&pair->changed, &pair->lock);
    pthread_mutex_unlock(&pair->lock);
}

static void flow_hand_over(struct flow_pair *pair, struct flow_batch *batch, enum flow_state state)
{
    pthread_mutex_lock(&pair->lock);
    assert(batch->state != state);
    batch->state = state;
    pthread_cond_signal(&pair->changed);
    pthread_mutex_unlock(&pair->lock);
}

static void *flow_read(void *argument)
{
    struct flow_pair *pair = argument;
    for (size_t i = 0;; i ^= 1) {
        struct flow_batch *batch = &pair->batches[i];
        flow_await(pair, batch, FLOW_EMPTY);
        flow_fill(pair, batch);
        bool last = batch->last;
        flow_hand_over(pair, batch, FLOW_FULL);
        if (last)
            return NULL;
    }
}

/* ---- the caller's thread ---- */

static int flow_take(const struct desk_flow *flow, const struct flow_batch *batch, weir_error *err)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (flow->engine && i + FAR < batch->count)
            desk_engine_expect(flow->engine, batch->arrivals[i + FAR].hash);
        if (flow->engine && i + NEAR < batch->count)
            desk_engine_expect_key(flow->engine, batch->arrivals[i + NEAR].hash);
        int code = flow->take(flow->context, &batch->arrivals[i], err);
        if (code)
            return code;
    }
    return 0;
}

/* Passes batches on until the last. After an error the rest is read and dropped: at most two. */
static int flow_pass(struct flow_pair *pair, weir_error *err)
{
    const struct desk_flow *flow = pair->flow;
    int code = 0;
    for (size_t i = 0;; i ^= 1) {
        struct flow_batch *batch = &pair->batches[i];
        flow_await(pair, batch, FLOW_FULL);
        bool last = batch->last;
        if (code == 0) {
            code = flow_take(flow, batch, err);
            if (code)
                atomic_store(&pair->ending, true);
            else if (flow->passed)
                flow->passed(flow->context, batch->done, batch->size, batch->idle);
        }
        if (last) {
            if (code == 0 && batch->code) {
                code = batch->code;
                if (err)
                    *err = batch->err;
            }
            return code;
        }
        flow_hand_over(pair, batch, FLOW_EMPTY);
    }
}

int desk_flow_run(const struct desk_flow *flow, weir_error *err)
{
    struct flow_pair *pair = calloc(1, sizeof *pair);
    pthread_t reader;
    if (!pair)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    pair->flow = flow;
    pthread_mutex_init(&pair->lock, NULL);
    pthread_cond_init(&pair->changed, NULL);
    int code = 0;
    if (pthread_create(&reader, NULL, flow_read, pair)) {
        code = weir__fail(err, WEIR_ESYSTEM, 0, "cannot start a thread");
    } else {
        code = flow_pass(pair, err);
        pthread_join(reader, NULL);
    }
    pthread_cond_destroy(&pair->changed);
    pthread_mutex_destroy(&pair->lock);
    free(pair->batches[0].bytes);
    free(pair->batches[1].bytes);
    free(pair);
    return code;
}
