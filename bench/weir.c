/*
 * weir's own worker (see worker.h): the library as a user calls it, on a memory: store.
 *
 * - hot-allowed, hot-denied: one key hashed once (weir_key), one limit; every take reads the clock.
 * - text-allowed, text-denied: the same, the key given as text each time.
 * - million: a million keys "user:0000000" by text, random order, token-bucket 1000/s burst 1000.
 * - million-batch: the same through weir_take_many, sixteen at a time.
 * - flood: never-seen keys into a zone that is full of live states.
 * - settled: takes of the keys of such a full zone, for comparison with flood.
 * - shm-allowed: as hot-allowed, on shared memory (robust mutexes).
 */
#include "weir.h"
#include "worker.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BATCH = 16, FLOOD_KEYS = 400000 };

static weir_store *hot, *million, *full, *shared;
static weir_limit *plenty, *tiny, *user, *slow;
static weir_hashed_key hot_key, shared_key;

static weir_store *open_store(const char *url)
{
    weir_store *store = NULL;
    weir_error err;
    if (weir_store_open(url, &store, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return store;
}

static weir_limit *parse(const char *text)
{
    weir_limit *limit = NULL;
    weir_error err;
    if (weir_limit_parse(text, &limit, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return limit;
}

static inline uint64_t take(weir_store *store, weir_key key, const weir_limit *limit)
{
    weir_decision decision;
    if (weir_take(store, key, limit, 1, &decision))
        abort();
    return decision.allowed;
}

static inline uint64_t take_hashed(weir_store *store, const weir_hashed_key *key,
                                   const weir_limit *limit)
{
    weir_decision decision;
    if (weir_take_hashed(store, key, limit, 1, &decision))
        abort();
    return decision.allowed;
}

static uint64_t run_hot_allowed(uint64_t seed, uint64_t ops)
{
    (void)seed;
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++)
        n += take_hashed(hot, &hot_key, plenty);
    return n;
}

static uint64_t run_hot_denied(uint64_t seed, uint64_t ops)
{
    (void)seed;
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++)
        n += take_hashed(hot, &hot_key, tiny);
    return n;
}

static uint64_t run_text_allowed(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    (void)seed;
    for (uint64_t i = 0; i < ops; i++)
        n += take(hot, weir_key_bytes(names[0], KEY_LEN), plenty);
    return n;
}

static uint64_t run_text_denied(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    (void)seed;
    for (uint64_t i = 0; i < ops; i++)
        n += take(hot, weir_key_bytes(names[0], KEY_LEN), tiny);
    return n;
}

static uint64_t run_shm_allowed(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    (void)seed;
    for (uint64_t i = 0; i < ops; i++)
        n += take_hashed(shared, &shared_key, plenty);
    return n;
}

static uint64_t run_million(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++)
        n += take(million, weir_key_bytes(pick(&seed), KEY_LEN), user);
    return n;
}

static uint64_t run_million_batch(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    while (ops > 0) {
        size_t batch = ops < BATCH ? ops : BATCH;
        weir_request requests[BATCH];
        weir_decision decisions[BATCH];
        for (size_t i = 0; i < batch; i++)
            requests[i] = weir_request_make(weir_key_bytes(pick(&seed), KEY_LEN), user);
        if (weir_take_many(million, requests, batch, decisions))
            abort();
        for (size_t i = 0; i < batch; i++)
            n += decisions[i].allowed;
        ops -= batch;
    }
    return n;
}

/* Keys nobody has seen: a counter in eight bytes, never the same twice. */
static uint64_t run_flood(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t key = xorshift(&seed);
        n += take(full, weir_key_bytes(&key, sizeof key), slow);
    }
    return n;
}

static uint64_t run_settled(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t key = (xorshift(&seed) >> 32) * FLOOD_KEYS >> 32;
        n += take(full, weir_key_bytes(&key, sizeof key), slow);
    }
    return n;
}

static const struct scenario scenarios[] = {
    {"hot-allowed", run_hot_allowed, 1},
    {"hot-denied", run_hot_denied, 0},
    {"text-allowed", run_text_allowed, 1},
    {"text-denied", run_text_denied, 0},
    {"shm-allowed", run_shm_allowed, 1},
    {"million", run_million, -1},
    {"million-batch", run_million_batch, -1},
    {"flood", run_flood, -1},
    {"settled", run_settled, -1},
    {NULL, NULL, 0},
};

/* Ten million token buckets in 399 MB: how many are held, and how many bytes a key takes in
 * total. */
static int show_memory(void)
{
    enum { TEN_MILLION = 10000000 };
    weir_store *store = open_store("memory:399000000");
    weir_limit *limit = parse("token-bucket 10/h burst 1000");
    for (uint64_t key = 0; key < TEN_MILLION; key++)
        take(store, weir_key_bytes(&key, sizeof key), limit);
    weir_zone_info info;
    if (weir_store_info(store, &info))
        return 1;
    printf("weir, %llu of ten million token buckets held in %llu bytes: %.1f each, %llu evicted\n",
           (unsigned long long)info.keys, (unsigned long long)info.size,
           (double)info.size / (double)info.keys,
           (unsigned long long)(info.evicted_unused + info.evicted_soonest));
    weir_store_close(store);
    weir_limit_free(limit);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "memory"))
        return show_memory();
    char name[64], url[80];
    snprintf(name, sizeof name, "/weir-bench-%d", (int)getpid());
    snprintf(url, sizeof url, "shm:%s?size=1m", name);
    make_names();
    plenty = parse("token-bucket 1g/s burst 1g");
    tiny = parse("token-bucket 1/366d");
    user = parse("token-bucket 1000/s burst 1000");
    slow = parse("token-bucket 10/h burst 1000000");
    hot = open_store("memory:1m");
    million = open_store("memory:64m");
    full = open_store("memory:8m");
    shared = open_store(url);
    shm_unlink(name); /* it lives on as long as we do */
    if (weir_key_hash(hot, weir_key_text("hot"), &hot_key) ||
        weir_key_hash(shared, weir_key_text("hot"), &shared_key))
        abort();
    take_hashed(hot, &hot_key, tiny);
    take(hot, weir_key_bytes(names[0], KEY_LEN), tiny);
    for (int i = 0; i < KEYS; i++)
        take(million, weir_key_bytes(names[i], KEY_LEN), user);
    for (uint64_t key = 0; key < FLOOD_KEYS; key++)
        take(full, weir_key_bytes(&key, sizeof key), slow);
    return serve(scenarios);
}
