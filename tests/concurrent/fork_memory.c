/*
 * A process whose threads are inside verbs of a store in memory forks. The child has a copy of its
 * own, whatever those threads held: every verb works there, the zone is sound, and the parent goes
 * on.
 *
 *     fork_memory [COUNT]
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "base/random.h"

#include <pthread.h>
#include <sys/wait.h>

#define WORKERS 4
#define KEYS 60
#define CHILD_PATIENCE_S 120

enum { WINDOW, BUCKET, LOG, SLOTS, LIMITS };
static const char *const texts[LIMITS] = {"fixed-window 100/h", "token-bucket 100/s",
                                          "sliding-log 200/h", "concurrent 100 lease 1m"};

static weir_store *store;
static weir_limit *limits[LIMITS];
static _Atomic bool over;
static _Atomic long worked[WORKERS];

static weir_key key_number(char room[16], uint64_t number)
{
    snprintf(room, 16, "key %d", (int)(number % KEYS));
    return weir_key_text(room);
}

/* One verb; its code. */
static int act(uint64_t chance)
{
    char rooms[2][16];
    weir_decision decision = {0};
    weir_key key = key_number(rooms[0], chance / 16);
    const weir_limit *limit = limits[chance / 1024 % SLOTS];
    weir_request requests[2] = {
        weir_request_make(key, limits[LOG]),
        weir_request_make(key_number(rooms[1], chance / 4096), limits[WINDOW])};
    int code;
    switch (chance % 16) {
    case 0:
        return weir_reset(store, key);
    case 1:
    case 2:
    case 3:
        return weir_take_all(store, requests, 2, &decision);
    case 4:
        code = weir_acquire(store, key, limits[SLOTS], 1, &decision);
        return code || !decision.lease ? code
                                       : weir_release(store, key, limits[SLOTS], decision.lease);
    case 5:
        return weir_peek(store, key, limit, 1, &decision);
    default:
        return weir_take(store, key, limit, 1, &decision);
    }
}

static void *work(void *context)
{
    int number = (int)(intptr_t)context;
    uint64_t chance = (uint64_t)number;
    while (!atomic_load(&over)) {
        int code = act(weir__random_next(&chance));
        (void)code;
        atomic_fetch_add(&worked[number], 1);
    }
    return NULL;
}

/* Every key and every verb, then every byte. */
static int use_as_child(void)
{
    uint64_t chance = 77;
    test_failed = 0;
    alarm(CHILD_PATIENCE_S);
    test_sound(store);
    for (int i = 0; i < 5000; i++) {
        int code = act(weir__random_next(&chance));
        test_check(code == 0, __FILE__, __LINE__, weir_strerror(code));
    }
    test_sound(store);
    for (uint64_t i = 0; i < KEYS; i++) {
        char room[16];
        CHECK_INT(weir_reset(store, key_number(room, i)), 0);
    }
    weir_zone_info info = test_info(store);
    CHECK_INT(info.keys, 0);
    CHECK_INT(info.large_used, 0);
    fflush(stdout);
    return test_failed ? 1 : 0;
}

/* A child of a child, now and then. */
static void fork_once(bool twice)
{
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (twice)
            fork_once(false);
        _exit(use_as_child());
    }
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
}

/* All go on, also those who were in a verb. */
static void expect_progress(void)
{
    for (int i = 0; i < WORKERS; i++) {
        long before = atomic_load(&worked[i]);
        while (atomic_load(&worked[i]) < before + 10)
            usleep(100);
        CHECK(true);
    }
}

/* A lock that no thread of the child has, since it could not be had before the fork. */
static void test_held(void)
{
    struct weir__zone *zone = test_zone(store);
    for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++)
        CHECK(weir__stripe_lock(zone, i));
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int code = use_as_child();
        _exit(code || test_info(store).repairs != 1);
    }
    for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++)
        weir__stripe_unlock(zone, i);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    CHECK_INT(test_info(store).repairs, 0);
    CHECK_INT(use_as_child(), 0);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 30;
    pthread_t threads[WORKERS];
    store = test_open("memory:1m?large=40%", NULL);
    for (int i = 0; i < LIMITS; i++)
        limits[i] = test_limit(texts[i]);
    for (intptr_t i = 0; i < WORKERS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i))
            test_give_up("pthread_create", "no thread");
    }
    for (int i = 0; i < count; i++) {
        expect_progress();
        fork_once(i % 5 == 0);
    }
    expect_progress();
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    test_held();
    weir_store_close(store);
    for (int i = 0; i < LIMITS; i++)
        weir_limit_free(limits[i]);
    return test_report();
}
