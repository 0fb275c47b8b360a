/*
 * weir's own worker (see worker.h): the library as a user calls it, on a memory: store.
 *
 * - hot-allowed, hot-denied: one key hashed once (weir_key), one limit; every take reads the clock.
 * - text-allowed, text-denied: the same, the key given as text each time.
 * - million: a million keys "user:0000000" by text, random order, token-bucket 1000/s burst 1000.
 * - million-batch: the same through weir_take_many, sixteen at a time.
 * - flood: never-seen keys into a zone that is full of live states.
 * - settled: takes of the keys of such a full zone, for comparison with flood.
 * - log-known, window-known, lease-known: logs of one or two entries, windows of one slot, leases
 *   acquired and
 *   released, of keys that a zone holds whose area for large states is in use.
 * - log-flood, window-flood, lease-flood: likewise for keys never seen before, where it is full.
 *   Half of the area is
 *   leases at most; a lease that is refused for that counts as a decision, too.
 * - shm-allowed: as hot-allowed, on shared memory (robust mutexes).
 */
#include "weir.h"
#include "worker.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BATCH = 16, FLOOD_KEYS = 400000 };

static weir_store *hot, *million, *full, *shared;
static weir_store *logs, *windows, *leases;                /* nearly full */
static weir_store *full_logs, *full_windows, *full_leases; /* beyond that */
static weir_limit *plenty, *tiny, *user, *slow, *log_limit, *window_limit, *lease_limit;
static uint64_t large_keys, lease_keys; /* that the first three hold */
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

/* A known key of a store whose area for large states is in use. */
static inline weir_key pick_large(uint64_t *seed, uint64_t keys, uint64_t *key)
{
    *key = (xorshift(seed) >> 32) * keys >> 32;
    return weir_key_bytes(key, sizeof *key);
}

static uint64_t run_large_known(weir_store *store, const weir_limit *limit, uint64_t seed,
                                uint64_t ops)
{
    uint64_t n = 0, key;
    for (uint64_t i = 0; i < ops; i++)
        n += take(store, pick_large(&seed, large_keys, &key), limit);
    return n;
}

static uint64_t run_large_flood(weir_store *store, const weir_limit *limit, uint64_t seed,
                                uint64_t ops)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t key = xorshift(&seed);
        n += take(store, weir_key_bytes(&key, sizeof key), limit);
    }
    return n;
}

static uint64_t run_log_known(uint64_t seed, uint64_t ops)
{
    return run_large_known(logs, log_limit, seed, ops);
}

static uint64_t run_log_flood(uint64_t seed, uint64_t ops)
{
    return run_large_flood(full_logs, log_limit, seed, ops);
}

static uint64_t run_window_known(uint64_t seed, uint64_t ops)
{
    return run_large_known(windows, window_limit, seed, ops);
}

static uint64_t run_window_flood(uint64_t seed, uint64_t ops)
{
    return run_large_flood(full_windows, window_limit, seed, ops);
}

static uint64_t run_lease_known(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0, key;
    for (uint64_t i = 0; i < ops; i++) {
        weir_decision decision;
        weir_key name = pick_large(&seed, lease_keys, &key);
        if (weir_acquire(leases, name, lease_limit, 1, &decision))
            abort();
        n += decision.allowed;
        if (decision.allowed && weir_release(leases, name, lease_limit, decision.lease))
            abort();
    }
    return n;
}

static uint64_t run_lease_flood(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t key = xorshift(&seed);
        weir_decision decision = {0};
        int code =
            weir_acquire(full_leases, weir_key_bytes(&key, sizeof key), lease_limit, 1, &decision);
        if (code && code != WEIR_EFULL)
            abort();
        n += decision.allowed;
    }
    return n;
}

/* How many blocks of the smallest size there are. */
static uint64_t large_blocks(weir_store *store)
{
    weir_zone_info info;
    if (weir_store_info(store, &info))
        abort();
    return info.large_bytes / 64;
}

static void fill_large(void)
{
    logs = open_store("memory:8m?large=50%");
    windows = open_store("memory:8m?large=50%");
    leases = open_store("memory:8m?large=50%");
    full_logs = open_store("memory:8m?large=50%");
    full_windows = open_store("memory:8m?large=50%");
    full_leases = open_store("memory:8m?large=50%");
    log_limit = parse("sliding-log 2/h");
    window_limit = parse("sliding-window 1000000/h precision 30m");
    lease_limit = parse("concurrent 3 lease 1h"); /* one is held, two threads may ask */
    uint64_t blocks = large_blocks(logs);
    large_keys = blocks * 9 / 10;
    lease_keys =
        blocks / 6; /* three leases and one to spare need two units; half is theirs at most */
    for (uint64_t key = 0; key < large_keys; key++) {
        weir_decision decision;
        take(logs, weir_key_bytes(&key, sizeof key), log_limit);
        take(windows, weir_key_bytes(&key, sizeof key), window_limit);
        if (key < lease_keys &&
            weir_acquire(leases, weir_key_bytes(&key, sizeof key), lease_limit, 1, &decision))
            abort();
    }
    run_large_flood(full_logs, log_limit, 1, blocks * 2);
    run_large_flood(full_windows, window_limit, 1, blocks * 2);
    run_large_flood(full_leases, log_limit, 1, blocks * 2);
    run_lease_flood(1, blocks * 2);
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
    {"log-known", run_log_known, -1},
    {"log-flood", run_log_flood, -1},
    {"window-known", run_window_known, 1},
    {"window-flood", run_window_flood, 1},
    {"lease-known", run_lease_known, 1},
    {"lease-flood", run_lease_flood, -1},
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
    fill_large();
    return serve(scenarios);
}
