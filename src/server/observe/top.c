/*
 * Frequent keys: see top.h. First the table that holds them, then the threads, their policies and
 * their time, then the report that puts the tables of all threads together.
 */
#include "server/observe/top.h"

#include "base/hash.h"
#include "base/random.h"
#include "server/observe/observe.h"
#include "wire/json.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table: sets of 16 slots with randomized admission (top.h says why) ----
 *
 *     set    | tags 16 × 4 | counts 16 × 8 | inherited 16 × 8 |     touched by every record
 *     slots  | seq | len | hash | text 128 |                       touched only by a change of key
 *
 * Counts are kept in units that grow: an event of now adds `weight`, which doubles each half-life.
 * So old counts fade without being touched. The owner divides all counts by the weight when it gets
 * large.
 *
 * One thread writes. A reader of a slot reads its sequence count before and after. All that both
 * touch is read and written by atomic accesses, ordered by acquire and release alone.
 */

#define SERVER_TOP_WAYS 16

struct server_top_set {
    uint32_t tags[SERVER_TOP_WAYS]; /* of the hash of the key; count 0: the slot is empty */
    double counts[SERVER_TOP_WAYS];
    double inherited[SERVER_TOP_WAYS]; /* part of the count: what the slot held before this key */
} __attribute__((aligned(64)));

struct server_top_slot {
    uint32_t seq;  /* odd while the key changes */
    uint16_t len;  /* bytes kept; 0: never used */
    uint16_t cut;  /* the key was longer */
    uint64_t hash; /* identifies the key across threads */
    uint64_t text[SERVER_TOP_KEY_MAX / 8];
};

struct server_top_table {
    struct server_top_set *sets;
    struct server_top_slot *slots; /* SERVER_TOP_WAYS per set */
    uint32_t set_count;            /* a power of two */
};

/* A key as read from a table. */
struct server_top_row {
    uint64_t hash;
    double count; /* without the inherited part, in the units of the table */
    uint16_t len;
    bool cut;
    char text[SERVER_TOP_KEY_MAX];
};

struct server_top_key {
    const void *data;
    size_t len;
    uint64_t hash[2];
};

/* Bytes of a table of that many slots. */
#define SERVER_TOP_BYTES(slots)                                                                    \
    ((slots) / SERVER_TOP_WAYS * sizeof(struct server_top_set) +                                   \
     (slots) * sizeof(struct server_top_slot))

#define SERVER_TOP_HALF_LIFE_US (SERVER_TOP_HALF_LIFE_S * INT64_C(1000000))

enum server_top_list { SERVER_TOP_HOTTEST, SERVER_TOP_DENIED, SERVER_TOP_LISTS };

/* The tables of one policy and thread. */
struct server_top_pair {
    int64_t since_us; /* of the first record; 0: none yet */
    struct server_top_table lists[SERVER_TOP_LISTS];
};

struct server_top_thread {
    uint64_t secret[2];
    uint64_t random;
    double weight;   /* of an event that happens now */
    uint32_t seq;    /* odd while now_us, base_us and the counts change */
    int64_t now_us;  /* of the last advance that had an effect */
    int64_t base_us; /* when the weight was 1 */
    const uint32_t *count;
    struct server_top_pair *pairs[SERVER_TOP_POLICIES_MAX];
} __attribute__((aligned(64)));

struct server_top {
    struct server_top_thread *threads;
    size_t thread_count;
    pthread_mutex_t lock; /* protects names and rows */
    char *names[SERVER_TOP_POLICIES_MAX];
    uint32_t count; /* of names and pairs; only grows; read without the lock, too */
    struct server_top_row *rows;
};

/* Lays a table into zeroed memory, aligned to 64 bytes. */
static void top_table_place(struct server_top_table *table, void *memory, uint32_t slots)
{
    assert(slots % SERVER_TOP_WAYS == 0 && (uintptr_t)memory % 64 == 0);
    table->set_count = slots / SERVER_TOP_WAYS;
    table->sets = memory;
    table->slots = (struct server_top_slot *)(table->sets + table->set_count);
}

/* ---- recording ---- */

/* Gives slot i of a set to a key. Release stores: who sees any of them sees an odd seq. */
static void top_take_over(struct server_top_set *set, struct server_top_slot *slot, uint32_t i,
                          const struct server_top_key *key, double weight)
{
    uint64_t text[SERVER_TOP_KEY_MAX / 8] = {0};
    const uint16_t len = (uint16_t)server_cut(key->data, key->len, SERVER_TOP_KEY_MAX);
    memcpy(text, key->data, len);
    const double inherited = set->counts[i], count = inherited + weight;
    const uint32_t seq = slot->seq;
    __atomic_store_n(&slot->seq, seq + 1, __ATOMIC_RELAXED);
    __atomic_store(&set->inherited[i], &inherited, __ATOMIC_RELEASE);
    __atomic_store(&set->counts[i], &count, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->len, len, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->cut, key->len > SERVER_TOP_KEY_MAX, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->hash, key->hash[0], __ATOMIC_RELEASE);
    for (size_t word = 0; word < WEIR__COUNT(text); word++)
        __atomic_store_n(&slot->text[word], text[word], __ATOMIC_RELEASE);
    __atomic_store_n(&slot->seq, seq + 2, __ATOMIC_RELEASE);
    set->tags[i] = (uint32_t)key->hash[0];
}

static uint32_t top_least_of(const struct server_top_set *set)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < SERVER_TOP_WAYS; i++)
        least = set->counts[i] < set->counts[least] ? i : least;
    return least;
}

static void top_table_record(struct server_top_table *table, const struct server_top_key *key,
                             double weight, uint64_t *random)
{
    assert((table->set_count & (table->set_count - 1)) == 0 && weight > 0);
    const uint32_t at = (uint32_t)key->hash[1] & (table->set_count - 1);
    struct server_top_set *const set = &table->sets[at];
    const uint32_t tag = (uint32_t)key->hash[0];
    for (uint32_t i = 0; i < SERVER_TOP_WAYS; i++) {
        if (set->tags[i] == tag && set->counts[i] > 0) {
            const double count = set->counts[i] + weight;
            __atomic_store(&set->counts[i], &count, __ATOMIC_RELEASE);
            return;
        }
    }
    const uint32_t least = top_least_of(set);
    const double chance = (double)(weir__random_next(random) >> 11) * 0x1p-53;
    if (chance * (set->counts[least] + weight) < weight)
        top_take_over(set, &table->slots[at * SERVER_TOP_WAYS + least], least, key, weight);
}

/* Multiplies all counts by 2^-exponent. The caller makes readers notice it. */
static void top_table_scale(struct server_top_table *table, int exponent)
{
    for (uint32_t s = 0; s < table->set_count; s++) {
        struct server_top_set *const set = &table->sets[s];
        for (uint32_t i = 0; i < SERVER_TOP_WAYS; i++) {
            const double count = ldexp(set->counts[i], -exponent);
            const double inherited = ldexp(set->inherited[i], -exponent);
            __atomic_store(&set->counts[i], &count, __ATOMIC_RELEASE);
            __atomic_store(&set->inherited[i], &inherited, __ATOMIC_RELEASE);
        }
    }
}

/* ---- reading ---- */

/* One slot as it was at one instant. */
static void top_read_slot(const struct server_top_set *set, uint32_t i,
                          const struct server_top_slot *slot, struct server_top_row *row)
{
    for (;;) {
        const uint32_t seq = __atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE);
        double count, inherited;
        uint64_t text[SERVER_TOP_KEY_MAX / 8];
        __atomic_load(&set->counts[i], &count, __ATOMIC_ACQUIRE);
        __atomic_load(&set->inherited[i], &inherited, __ATOMIC_ACQUIRE);
        row->count = count - inherited;
        row->len = __atomic_load_n(&slot->len, __ATOMIC_ACQUIRE);
        row->cut = __atomic_load_n(&slot->cut, __ATOMIC_ACQUIRE);
        row->hash = __atomic_load_n(&slot->hash, __ATOMIC_ACQUIRE);
        for (size_t word = 0; word < WEIR__COUNT(text); word++)
            text[word] = __atomic_load_n(&slot->text[word], __ATOMIC_ACQUIRE);
        memcpy(row->text, text, sizeof text);
        if (!(seq & 1) && __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) == seq)
            return;
    }
}

/* Copies the keys whose own count is at least `least`; returns how many. */
static size_t top_table_read(const struct server_top_table *table, double least,
                             struct server_top_row *rows)
{
    size_t n = 0;
    for (uint32_t s = 0; s < table->set_count; s++) {
        for (uint32_t i = 0; i < SERVER_TOP_WAYS; i++) {
            top_read_slot(&table->sets[s], i, &table->slots[s * SERVER_TOP_WAYS + i], &rows[n]);
            n += rows[n].count >= least && rows[n].len > 0;
        }
    }
    return n;
}

#define PAIR_ROOM ((sizeof(struct server_top_pair) + 63) / 64 * 64)

_Static_assert(SERVER_TOP_TABLE_BYTES == SERVER_TOP_BYTES(SERVER_TOP_HOT_SLOTS) +
                                             SERVER_TOP_BYTES(SERVER_TOP_DENIED_SLOTS),
               "as top.h says");

/* ---- making ---- */

static struct server_top_pair *top_pair_create(void)
{
    char *const memory = aligned_alloc(64, PAIR_ROOM + SERVER_TOP_TABLE_BYTES);
    if (!memory)
        return NULL;
    memset(memory, 0, PAIR_ROOM + SERVER_TOP_TABLE_BYTES);
    struct server_top_pair *const pair = (struct server_top_pair *)memory;
    char *const hot = memory + PAIR_ROOM;
    top_table_place(&pair->lists[SERVER_TOP_HOTTEST], hot, SERVER_TOP_HOT_SLOTS);
    top_table_place(&pair->lists[SERVER_TOP_DENIED], hot + SERVER_TOP_BYTES(SERVER_TOP_HOT_SLOTS),
                    SERVER_TOP_DENIED_SLOTS);
    return pair;
}

/* Makes the tables of one more policy, for every thread or for none. */
static bool top_add_policy(struct server_top *top, const char *name)
{
    const uint32_t id = top->count;
    top->names[id] = strdup(name);
    bool whole = top->names[id] != NULL;
    for (size_t i = 0; whole && i < top->thread_count; i++) {
        top->threads[i].pairs[id] = top_pair_create();
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

static bool top_make_parts(struct server_top *top, size_t threads, int64_t now_us)
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
    return top->rows && top_add_policy(top, "") && top_add_policy(top, "(other)");
}

int server_top_create(size_t threads, int64_t now_us, struct server_top **ret, weir_error *err)
{
    struct server_top *const top = calloc(1, sizeof *top);
    if (top) {
        pthread_mutex_init(&top->lock, NULL);
        if (top_make_parts(top, threads, now_us)) {
            *ret = top;
            return WEIR_OK;
        }
    }
    server_top_destroy(top);
    return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the hottest keys of %zu threads",
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
    assert(i < top->thread_count);
    return &top->threads[i];
}

uint32_t server_top_policy(struct server_top *top, const char *name)
{
    pthread_mutex_lock(&top->lock);
    uint32_t id = 0;
    while (id < top->count && strcmp(top->names[id], name) != 0)
        id++;
    if (id == top->count && (id == SERVER_TOP_POLICIES_MAX || !top_add_policy(top, name)))
        id = SERVER_TOP_OTHER;
    pthread_mutex_unlock(&top->lock);
    return id;
}

/* ---- the owning thread ---- */

#define STEP_US 100000    /* how often the weight follows the time */
#define EXPONENT_MOST 400 /* of the weight: a double has room to 2^1023 */

/* Makes all counts small again, every three hours or after the clock jumped forward. */
static void top_scale_thread(struct server_top_thread *thread, uint32_t count)
{
    const int64_t elapsed = (thread->now_us - thread->base_us) / SERVER_TOP_HALF_LIFE_US;
    const int exponent = (int)weir__min(elapsed, 4000); /* beyond that nothing is left anyway */
    for (uint32_t id = 0; id < count; id++) {
        for (int list = 0; list < SERVER_TOP_LISTS; list++)
            top_table_scale(&thread->pairs[id]->lists[list], exponent);
    }
    __atomic_store_n(&thread->base_us, thread->base_us + elapsed * SERVER_TOP_HALF_LIFE_US,
                     __ATOMIC_RELEASE);
}

/* If the clock was set back, the past moves back with it: counts stay as old as they were. */
static void top_set_back(struct server_top_thread *thread, uint32_t count, int64_t by_us)
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
        top_set_back(thread, count, -elapsed);
    if (now_us - thread->base_us > EXPONENT_MOST * SERVER_TOP_HALF_LIFE_US)
        top_scale_thread(thread, count);
    __atomic_store_n(&thread->seq, seq + 2, __ATOMIC_RELEASE);
    thread->weight = exp2((double)(now_us - thread->base_us) / (double)SERVER_TOP_HALF_LIFE_US);
}

void server_top_record_times(struct server_top_thread *thread, uint32_t policy, const void *key,
                             size_t len, bool denied, unsigned times)
{
    assert(policy < __atomic_load_n(thread->count, __ATOMIC_RELAXED));
    const double weight = thread->weight * times;
    struct server_top_pair *const pair = thread->pairs[policy];
    struct server_top_key hashed = {.data = key, .len = len};
    weir__hash(thread->secret, key, len, hashed.hash);
    if (WEIR__UNLIKELY(!pair->since_us))
        __atomic_store_n(&pair->since_us, weir__max(thread->now_us, 1), __ATOMIC_RELAXED);
    top_table_record(&pair->lists[SERVER_TOP_HOTTEST], &hashed, weight, &thread->random);
    if (denied)
        top_table_record(&pair->lists[SERVER_TOP_DENIED], &hashed, weight, &thread->random);
}

void server_top_record(struct server_top_thread *thread, uint32_t policy, const void *key,
                       size_t len, bool denied)
{
    server_top_record_times(thread, policy, key, len, denied, 1);
}

/* ---- the report ---- */

#define LEAST_EVENTS 0.05 /* a key that was requested once is reported for two minutes */

/* The keys of one thread with their counts, faded until now; returns how many. */
static size_t top_read_thread(const struct server_top_thread *thread, uint32_t id,
                              enum server_top_list list, int64_t now_us,
                              struct server_top_row *rows, int64_t *ret_age_us)
{
    const struct server_top_pair *const pair = thread->pairs[id];
    for (;; sched_yield()) {
        const uint32_t seq = __atomic_load_n(&thread->seq, __ATOMIC_ACQUIRE);
        const int64_t theirs = __atomic_load_n(&thread->now_us, __ATOMIC_ACQUIRE);
        const int64_t base = __atomic_load_n(&thread->base_us, __ATOMIC_ACQUIRE);
        const int64_t since = __atomic_load_n(&pair->since_us, __ATOMIC_ACQUIRE);
        /* A thread that slept while the clock was set back has not noticed yet. */
        const int64_t now = weir__max(now_us, theirs);
        const double weight = exp2((double)(now - base) / (double)SERVER_TOP_HALF_LIFE_US);
        const size_t n =
            since ? top_table_read(&pair->lists[list], LEAST_EVENTS * weight, rows) : 0;
        if ((seq & 1) || __atomic_load_n(&thread->seq, __ATOMIC_RELAXED) != seq)
            continue;
        for (size_t i = 0; i < n; i++)
            rows[i].count /= weight;
        *ret_age_us = since ? now - since : 0;
        return n;
    }
}

static int top_by_hash(const void *a, const void *b)
{
    const struct server_top_row *const x = a, *const y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static int top_by_count(const void *a, const void *b)
{
    const struct server_top_row *const x = a, *const y = b;
    return (x->count < y->count) - (x->count > y->count);
}

/* The time over which faded counts are spread: at first as long as the table exists, later
 * half-life / ln 2. */
static double top_span_s(int64_t age_us)
{
    const double age = (double)weir__max(age_us, 1000000) / 1e6;
    return (1 - exp2(-age / SERVER_TOP_HALF_LIFE_S)) * SERVER_TOP_HALF_LIFE_S / M_LN2;
}

/* Fills top->rows with keys and their rates, the greatest first; returns how many. */
static size_t top_gather(struct server_top *top, uint32_t id, enum server_top_list list,
                         int64_t now_us)
{
    struct server_top_row *const rows = top->rows;
    int64_t oldest_us = 0;
    size_t n = 0, kept = 0;
    assert(id < top->count && server_lock_is_held(&top->lock));
    for (size_t i = 0; i < top->thread_count; i++) {
        int64_t age_us;
        n += top_read_thread(&top->threads[i], id, list, now_us, rows + n, &age_us);
        oldest_us = weir__max(oldest_us, age_us);
    }
    assert(n <= top->thread_count * SERVER_TOP_HOT_SLOTS);
    qsort(rows, n, sizeof *rows, top_by_hash);
    for (size_t i = 0; i < n; i++) {
        if (kept && rows[kept - 1].hash == rows[i].hash)
            rows[kept - 1].count += rows[i].count;
        else
            rows[kept++] = rows[i];
    }
    for (size_t i = 0; i < kept; i++)
        rows[i].count /= top_span_s(oldest_us);
    qsort(rows, kept, sizeof *rows, top_by_count);
    return kept;
}

static void top_put_list(struct weir__json *json, const char *name,
                         const struct server_top_row *rows, size_t n)
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

/* The table of the shadow limits of a policy; top->count: it has none. */
static uint32_t top_shadow_of(const struct server_top *top, uint32_t id)
{
    const size_t len = strlen(top->names[id]);
    uint32_t i = 0;
    while (i < top->count && (strncmp(top->names[i], top->names[id], len) != 0 ||
                              strcmp(top->names[i] + len, SERVER_TOP_SHADOW) != 0))
        i++;
    return i;
}

static bool top_is_shadow(const char *name)
{
    const size_t len = strlen(name), end = strlen(SERVER_TOP_SHADOW);
    return len > end && !strcmp(name + len - end, SERVER_TOP_SHADOW);
}

static void top_put_policy(struct server_top *top, struct weir__json *json, uint32_t id,
                           size_t shown, int64_t now_us)
{
    const uint32_t shadow = top_shadow_of(top, id);
    const bool watched =
        shadow < top->count && top_gather(top, shadow, SERVER_TOP_DENIED, now_us) > 0;
    size_t n = top_gather(top, id, SERVER_TOP_HOTTEST, now_us);
    if (n == 0 && !watched) /* a denied key is a requested key, too */
        return;
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "name", top->names[id]);
    top_put_list(json, "hottest", top->rows, n < shown ? n : shown);
    n = top_gather(top, id, SERVER_TOP_DENIED, now_us);
    top_put_list(json, "denied", top->rows, n < shown ? n : shown);
    n = watched ? top_gather(top, shadow, SERVER_TOP_DENIED, now_us) : 0;
    top_put_list(json, "shadow_denied", top->rows, n < shown ? n : shown);
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
        if (!top_is_shadow(top->names[id]) && (!policy || !strcmp(policy, top->names[id])))
            top_put_policy(top, &json, id, shown, now_us);
    }
    weir__json_close(&json, ']');
    weir__json_close(&json, '}');
    pthread_mutex_unlock(&top->lock);
}

size_t server_top_room(struct server_top *top, size_t shown)
{
    shown = shown < SERVER_TOP_SHOWN_MAX ? shown : SERVER_TOP_SHOWN_MAX;
    /* An escaped byte of text takes six bytes. */
    const size_t row = 6 * SERVER_TOP_KEY_MAX + 64;
    size_t room = 64;
    pthread_mutex_lock(&top->lock);
    for (uint32_t id = 0; id < top->count; id++)
        room += 96 + 6 * strlen(top->names[id]) + SERVER_TOP_LISTS * shown * row;
    pthread_mutex_unlock(&top->lock);
    return room;
}
