/* Frequent keys: the threads, their policies, their time. */
#include "server/observe/top_inside.h"

#include "base/hash.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAIR_ROOM ((sizeof(struct server_top_pair) + 63) / 64 * 64)

_Static_assert(SERVER_TOP_TABLE_BYTES == SERVER_TOP_BYTES(SERVER_TOP_HOT_SLOTS) +
                                             SERVER_TOP_BYTES(SERVER_TOP_DENIED_SLOTS),
               "as top.h says");

/* ---- making ---- */

static struct server_top_pair *pair_create(void)
{
    char *const memory = aligned_alloc(64, PAIR_ROOM + SERVER_TOP_TABLE_BYTES);
    if (!memory)
        return NULL;
    memset(memory, 0, PAIR_ROOM + SERVER_TOP_TABLE_BYTES);
    struct server_top_pair *const pair = (struct server_top_pair *)memory;
    char *const hot = memory + PAIR_ROOM;
    server_top_table_place(&pair->lists[SERVER_TOP_HOTTEST], hot, SERVER_TOP_HOT_SLOTS);
    server_top_table_place(&pair->lists[SERVER_TOP_DENIED],
                           hot + SERVER_TOP_BYTES(SERVER_TOP_HOT_SLOTS), SERVER_TOP_DENIED_SLOTS);
    return pair;
}

/* Tables for one more policy, for every thread, or for none. */
static bool add_policy(struct server_top *top, const char *name)
{
    const uint32_t id = top->count;
    top->names[id] = strdup(name);
    bool whole = top->names[id] != NULL;
    for (size_t i = 0; whole && i < top->thread_count; i++) {
        top->threads[i].pairs[id] = pair_create();
        whole = top->threads[i].pairs[id] != NULL;
    }
    if (whole) {
        __atomic_store_n(&top->count, id + 1, __ATOMIC_RELEASE);
        return true;
    }
    for (size_t i = 0; i < top->thread_count; i++) {
        free(top->threads[i].pairs[id]);
        top->threads[i].pairs[id] = NULL;
    }
    free(top->names[id]);
    top->names[id] = NULL;
    return false;
}

static bool make_parts(struct server_top *top, size_t threads, int64_t now_us)
{
    uint64_t secret[3];
    if (weir__random_bytes(secret, sizeof secret))
        return false;
    top->threads = aligned_alloc(64, threads * sizeof *top->threads);
    if (!top->threads)
        return false;
    memset(top->threads, 0, threads * sizeof *top->threads);
    top->thread_count = threads;
    for (size_t i = 0; i < threads; i++) {
        top->threads[i] = (struct server_top_thread){
            .secret = {secret[0], secret[1]},
            .random = secret[2] + i,
            .weight = 1,
            .now_us = now_us,
            .base_us = now_us,
            .count = &top->count,
        };
    }
    top->rows = calloc(threads, SERVER_TOP_HOT_SLOTS * sizeof *top->rows);
    return top->rows && add_policy(top, "") && add_policy(top, "(other)");
}

int server_top_create(size_t threads, int64_t now_us, struct server_top **ret, weir_error *err)
{
    struct server_top *const top = calloc(1, sizeof *top);
    if (top) {
        pthread_mutex_init(&top->lock, NULL);
        if (make_parts(top, threads, now_us)) {
            *ret = top;
            return WEIR_OK;
        }
    }
    server_top_destroy(top);
    return weir__fail(err, WEIR_ENOMEM, 0, "no memory for the hottest keys of %zu threads",
                      threads);
}

void server_top_destroy(struct server_top *top)
{
    if (!top)
        return;
    for (uint32_t id = 0; id < top->count; id++) {
        for (size_t i = 0; i < top->thread_count; i++)
            free(top->threads[i].pairs[id]);
        free(top->names[id]);
    }
    free(top->threads);
    free(top->rows);
    pthread_mutex_destroy(&top->lock);
    free(top);
}

struct server_top_thread *server_top_thread(struct server_top *top, size_t i)
{
    return &top->threads[i];
}

uint32_t server_top_policy(struct server_top *top, const char *name)
{
    pthread_mutex_lock(&top->lock);
    uint32_t id = 0;
    while (id < top->count && strcmp(top->names[id], name) != 0)
        id++;
    if (id == top->count && (id == SERVER_TOP_POLICIES_MAX || !add_policy(top, name)))
        id = SERVER_TOP_OTHER;
    pthread_mutex_unlock(&top->lock);
    return id;
}

/* ---- the owning thread ---- */

#define STEP_US 100000    /* how often the weight follows the time */
#define EXPONENT_MOST 400 /* of the weight: a double has room to 2^1023 */

/* Counts brought back to small numbers, every three hours or after a leap of the clock. */
static void scale(struct server_top_thread *thread, uint32_t count)
{
    const int64_t elapsed = (thread->now_us - thread->base_us) / SERVER_TOP_HALF_LIFE_US;
    const int exponent = (int)weir__min(elapsed, 4000); /* beyond, nothing is left anyway */
    for (uint32_t id = 0; id < count; id++) {
        for (int list = 0; list < SERVER_TOP_LISTS; list++)
            server_top_table_scale(&thread->pairs[id]->lists[list], exponent);
    }
    __atomic_store_n(&thread->base_us, thread->base_us + elapsed * SERVER_TOP_HALF_LIFE_US,
                     __ATOMIC_RELEASE);
}

/* A clock set back takes the past along: what was counted stays as old as it was. */
static void set_back(struct server_top_thread *thread, uint32_t count, int64_t by_us)
{
    __atomic_store_n(&thread->base_us, thread->base_us - by_us, __ATOMIC_RELEASE);
    for (uint32_t id = 0; id < count; id++) {
        struct server_top_pair *const pair = thread->pairs[id];
        if (pair->since_us)
            __atomic_store_n(&pair->since_us, pair->since_us - by_us, __ATOMIC_RELEASE);
    }
}

void server_top_advance(struct server_top_thread *thread, int64_t now_us)
{
    const int64_t elapsed = now_us - thread->now_us;
    if (WEIR__LIKELY(elapsed >= 0 && elapsed < STEP_US))
        return;
    const uint32_t count = __atomic_load_n(thread->count, __ATOMIC_ACQUIRE);
    const uint32_t seq = thread->seq;
    __atomic_store_n(&thread->seq, seq + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&thread->now_us, now_us, __ATOMIC_RELEASE);
    if (elapsed < 0)
        set_back(thread, count, -elapsed);
    if (now_us - thread->base_us > EXPONENT_MOST * SERVER_TOP_HALF_LIFE_US)
        scale(thread, count);
    __atomic_store_n(&thread->seq, seq + 2, __ATOMIC_RELEASE);
    thread->weight = exp2((double)(now_us - thread->base_us) / (double)SERVER_TOP_HALF_LIFE_US);
}

void server_top_record_times(struct server_top_thread *thread, uint32_t policy, const void *key,
                             size_t len, bool denied, unsigned times)
{
    const double weight = thread->weight * times;
    struct server_top_pair *const pair = thread->pairs[policy];
    struct server_top_key hashed = {.data = key, .len = len};
    weir__hash(thread->secret, key, len, hashed.hash);
    if (WEIR__UNLIKELY(!pair->since_us))
        __atomic_store_n(&pair->since_us, weir__max(thread->now_us, 1), __ATOMIC_RELAXED);
    server_top_table_record(&pair->lists[SERVER_TOP_HOTTEST], &hashed, weight, &thread->random);
    if (denied)
        server_top_table_record(&pair->lists[SERVER_TOP_DENIED], &hashed, weight, &thread->random);
}

void server_top_record(struct server_top_thread *thread, uint32_t policy, const void *key,
                       size_t len, bool denied)
{
    server_top_record_times(thread, policy, key, len, denied, 1);
}
