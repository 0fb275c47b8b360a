/* The report of frequent keys: the tables of all threads put together, and as JSON. */
#include "server/observe/top_inside.h"
#include "wire/json.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_EVENTS 0.05 /* a key asked for once is told for two minutes */

/* ---- putting together ---- */

/* One thread's keys with their counts as of now, faded; returns how many. */
static size_t read_thread(const struct server_top_thread *thread, uint32_t id,
                          enum server_top_list list, int64_t now_us, struct server_top_row *rows,
                          int64_t *ret_age_us)
{
    const struct server_top_pair *const pair = thread->pairs[id];
    for (;; sched_yield()) {
        const uint32_t seq = __atomic_load_n(&thread->seq, __ATOMIC_ACQUIRE);
        const int64_t theirs = __atomic_load_n(&thread->now_us, __ATOMIC_ACQUIRE);
        const int64_t base = __atomic_load_n(&thread->base_us, __ATOMIC_ACQUIRE);
        const int64_t since = __atomic_load_n(&pair->since_us, __ATOMIC_ACQUIRE);
        /* A thread that slept while the clock was set back does not know yet. */
        const int64_t now = weir__max(now_us, theirs);
        const double weight = exp2((double)(now - base) / (double)SERVER_TOP_HALF_LIFE_US);
        const size_t n =
            since ? server_top_table_read(&pair->lists[list], LEAST_EVENTS * weight, rows) : 0;
        if ((seq & 1) || __atomic_load_n(&thread->seq, __ATOMIC_RELAXED) != seq)
            continue;
        for (size_t i = 0; i < n; i++)
            rows[i].count /= weight;
        *ret_age_us = since ? now - since : 0;
        return n;
    }
}

static int by_hash(const void *a, const void *b)
{
    const struct server_top_row *const x = a, *const y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static int by_count(const void *a, const void *b)
{
    const struct server_top_row *const x = a, *const y = b;
    return (x->count < y->count) - (x->count > y->count);
}

/* The length of time that faded counts are spread over: as long as it was watched at first, later
 * half-life / ln 2. */
static double span_s(int64_t age_us)
{
    const double age = (double)weir__max(age_us, 1000000) / 1e6;
    return (1 - exp2(-age / SERVER_TOP_HALF_LIFE_S)) * SERVER_TOP_HALF_LIFE_S / M_LN2;
}

/* Fills top->rows with keys and their rates, the greatest first; how many. */
static size_t gather(struct server_top *top, uint32_t id, enum server_top_list list, int64_t now_us)
{
    struct server_top_row *const rows = top->rows;
    int64_t oldest_us = 0;
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < top->thread_count; i++) {
        int64_t age_us;
        n += read_thread(&top->threads[i], id, list, now_us, rows + n, &age_us);
        oldest_us = weir__max(oldest_us, age_us);
    }
    qsort(rows, n, sizeof *rows, by_hash);
    for (size_t i = 0; i < n; i++) {
        if (kept && rows[kept - 1].hash == rows[i].hash)
            rows[kept - 1].count += rows[i].count;
        else
            rows[kept++] = rows[i];
    }
    for (size_t i = 0; i < kept; i++)
        rows[i].count /= span_s(oldest_us);
    qsort(rows, kept, sizeof *rows, by_count);
    return kept;
}

/* ---- telling ---- */

static void put_list(struct weir__json *json, const char *name, const struct server_top_row *rows,
                     size_t n)
{
    weir__json_open(json, name, '[');
    for (size_t i = 0; i < n; i++) {
        weir__json_open(json, NULL, '{');
        weir__json_put_key(json, rows[i].text, rows[i].len);
        weir__json_put_double(json, "rate", rows[i].count);
        if (rows[i].cut)
            weir__json_put_bool(json, "cut", true);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

/* The table of a policy's limits in shadow; the count: it has none. */
static uint32_t shadow_of(const struct server_top *top, uint32_t id)
{
    const size_t len = strlen(top->names[id]);
    uint32_t i = 0;
    while (i < top->count && (strncmp(top->names[i], top->names[id], len) != 0 ||
                              strcmp(top->names[i] + len, SERVER_TOP_SHADOW) != 0))
        i++;
    return i;
}

static bool is_shadow(const char *name)
{
    const size_t len = strlen(name), end = strlen(SERVER_TOP_SHADOW);
    return len > end && !strcmp(name + len - end, SERVER_TOP_SHADOW);
}

static void put_policy(struct server_top *top, struct weir__json *json, uint32_t id, size_t shown,
                       int64_t now_us)
{
    const uint32_t shadow = shadow_of(top, id);
    const bool watched = shadow < top->count && gather(top, shadow, SERVER_TOP_DENIED, now_us) > 0;
    size_t n = gather(top, id, SERVER_TOP_HOTTEST, now_us);
    if (n == 0 && !watched) /* what is denied is asked for, too */
        return;
    weir__json_open(json, NULL, '{');
    weir__json_put_text(json, "name", top->names[id], strlen(top->names[id]));
    put_list(json, "hottest", top->rows, n < shown ? n : shown);
    n = gather(top, id, SERVER_TOP_DENIED, now_us);
    put_list(json, "denied", top->rows, n < shown ? n : shown);
    n = watched ? gather(top, shadow, SERVER_TOP_DENIED, now_us) : 0;
    put_list(json, "shadow_denied", top->rows, n < shown ? n : shown);
    weir__json_close(json, '}');
}

void server_top_json(struct server_top *top, const char *policy, size_t shown, int64_t now_us,
                     struct weir__buffer *out)
{
    struct weir__json json = {.out = out};
    shown = shown < SERVER_TOP_SHOWN_MAX ? shown : SERVER_TOP_SHOWN_MAX;
    pthread_mutex_lock(&top->lock);
    weir__json_open(&json, NULL, '{');
    weir__json_put_uint(&json, "half_life", SERVER_TOP_HALF_LIFE_S);
    weir__json_open(&json, "policies", '[');
    for (uint32_t id = 0; id < top->count; id++) {
        if (!is_shadow(top->names[id]) && (!policy || !strcmp(policy, top->names[id])))
            put_policy(top, &json, id, shown, now_us);
    }
    weir__json_close(&json, ']');
    weir__json_close(&json, '}');
    pthread_mutex_unlock(&top->lock);
}

size_t server_top_room(struct server_top *top, size_t shown)
{
    shown = shown < SERVER_TOP_SHOWN_MAX ? shown : SERVER_TOP_SHOWN_MAX;
    /* An escaped byte of text takes six. */
    const size_t row = 6 * SERVER_TOP_KEY_MAX + 64;
    size_t room = 64;
    pthread_mutex_lock(&top->lock);
    for (uint32_t id = 0; id < top->count; id++)
        room += 96 + 6 * strlen(top->names[id]) + SERVER_TOP_LISTS * shown * row;
    pthread_mutex_unlock(&top->lock);
    return room;
}
