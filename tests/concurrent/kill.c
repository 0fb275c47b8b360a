/*
 * Processes killed at random, thousands of times, while they share zones. Nothing blocks, the zones
 * stay sound, no limit is exceeded, at most one request a death is charged without being told. Now
 * and then all are killed at once and the zones opened again.
 *
 *     kill [KILLS [SEED|random [shm|file]]]
 */
#include "kill_worker.h"

#include "base/clock.h"

#include <sys/wait.h>
#include <time.h>

#define PAUSE_US 5000  /* between kills, at most */
#define ALL_AT_ONCE 60 /* every so many kills */
#define PATIENCE_S 60  /* who does nothing that long is blocked */
#define UNTOLD_MAX 4   /* what one death may leave charged to a key beyond what was told */

static struct page *page;
static int page_fd;
static enum test_kind where;
static char urls[2][512];
static weir_store *counted, *small;
static uint64_t chance;
static pid_t pids[WORKERS];
static uint32_t checked;             /* generations before it were looked at */
static unsigned deaths[GENERATIONS]; /* of processes that may have charged its keys */
static uint64_t untold, verified, exhausted;

static void start(int number)
{
    char numbers[3][32];
    snprintf(numbers[0], sizeof numbers[0], "%d", page_fd);
    snprintf(numbers[1], sizeof numbers[1], "%d", number);
    snprintf(numbers[2], sizeof numbers[2], "%llu", (unsigned long long)weir__random_next(&chance));
    page->worker[number].generation = page->generation;
    page->worker[number].actions = 0;
    fflush(stdout);
    pids[number] = fork();
    if (pids[number] == 0) {
        execl("/proc/self/exe", "kill", "worker", numbers[0], numbers[1], numbers[2], urls[0],
              urls[1], (char *)NULL);
        _exit(127);
    }
}

static void end(int number)
{
    int status = 0;
    kill(pids[number], SIGKILL);
    waitpid(pids[number], &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (uint32_t g = page->worker[number].generation; g <= page->generation; g++)
        deaths[g % GENERATIONS]++;
}

static void open_both(void)
{
    counted = test_open_patiently(urls[0], &page->now);
    small = test_open_patiently(urls[1], &page->now);
}

/* ---- what must hold ---- */

static void verify_key(uint32_t generation, size_t kind, bool other)
{
    char room[32], what[256];
    weir_decision peeked = {0};
    weir_limit *limit = test_limit(kinds[kind].limit);
    weir_key key = kind_key(room, generation, kind, other);
    long told = page->told[generation % GENERATIONS][kind];
    CHECK_INT(weir_peek(counted, key, limit, 0, &peeked), 0);
    long charged = N - (long)peeked.remaining;
    long most = told + UNTOLD_MAX * (long)deaths[generation % GENERATIONS];
    snprintf(what, sizeof what, "%s: told %ld, charged %ld, at most %d, %u deaths",
             kinds[kind].limit, told, charged, N, deaths[generation % GENERATIONS]);
    test_check(told <= N && told <= charged && charged <= most, __FILE__, __LINE__, what);
    untold += (uint64_t)(charged - told);
    verified += (uint64_t)told;
    exhausted += charged == N;
    CHECK_INT(weir_reset(counted, key), 0);
    weir_limit_free(limit);
}

static void verify_leases(uint32_t generation)
{
    char room[32];
    weir_decision peeked = {0};
    weir_limit *limit = test_limit_of("concurrent %d lease 366d", HOLD);
    weir_key key = kind_key(room, generation, KINDS, false);
    CHECK_INT(weir_peek(counted, key, limit, 0, &peeked), 0);
    CHECK(page->held[generation % GENERATIONS] <= HOLD - peeked.remaining);
    CHECK_INT(weir_reset(counted, key), 0);
    weir_limit_free(limit);
}

/* Looks at all generations that nobody charges any more, and forgets them. */
static void verify(void)
{
    uint32_t until = page->generation;
    for (int i = 0; i < WORKERS; i++) {
        if (pids[i] && page->worker[i].generation < until)
            until = page->worker[i].generation;
    }
    for (; checked < until; checked++) {
        for (size_t kind = 0; kind < KINDS; kind++) {
            verify_key(checked, kind, false);
            if (kinds[kind].group)
                verify_key(checked, kind, true);
            page->told[checked % GENERATIONS][kind] = 0;
        }
        verify_leases(checked);
        page->held[checked % GENERATIONS] = 0;
        deaths[checked % GENERATIONS] = 0;
    }
}

static void verify_zones(void)
{
    test_sound(counted);
    test_sound(small);
    weir_zone_info info = test_info(counted);
    CHECK_INT(info.evicted_unused + info.evicted_soonest, 0);
    if (page->wrong)
        printf("%s\n", weir_strerror(page->code));
    CHECK_INT(page->wrong, 0);
}

/* Everybody has done something since; or is blocked. */
static bool all_at_work(void)
{
    for (int i = 0; i < WORKERS; i++) {
        uint64_t before = page->worker[i].actions;
        for (int waited = 0; page->worker[i].actions == before; waited++) {
            if (waited == PATIENCE_S * 1000)
                return CHECK(!"a process is blocked");
            weir__clock_sleep_us(1000);
        }
    }
    return true;
}

/* ---- the killing ---- */

static void kill_one(void)
{
    int victim = (int)(weir__random_next(&chance) % WORKERS);
    weir__clock_sleep_us((int64_t)(weir__random_next(&chance) % PAUSE_US));
    while (page->generation - checked >= GENERATIONS - 1 && all_at_work())
        verify();
    page->generation++;
    end(victim);
    start(victim);
    verify();
}

static void kill_all(void)
{
    for (int i = 0; i < WORKERS; i++) {
        end(i);
        pids[i] = 0;
    }
    weir_store_close(counted);
    weir_store_close(small);
    open_both();
    page->generation++;
    verify();
    verify_zones();
    for (int i = 0; i < WORKERS; i++)
        start(i);
}

static void run(long kills)
{
    open_both();
    for (int i = 0; i < WORKERS; i++)
        start(i);
    for (long i = 1; i <= kills && test_failed == 0; i++) {
        alarm(2 * PATIENCE_S); /* for this process itself */
        if (i % ALL_AT_ONCE == 0)
            kill_all();
        else
            kill_one();
        if (i % 10 == 0) {
            verify_zones();
            all_at_work();
        }
    }
    kill_all();
    for (int i = 0; i < WORKERS; i++)
        end(i);
    weir_zone_info big = test_info(counted), tiny = test_info(small);
    printf("%ld kills, %llu locks inherited; %llu told, %llu charged untold, %llu limits reached; "
           "evicted %llu fresh, %llu others\n",
           kills, (unsigned long long)(big.repairs + tiny.repairs), (unsigned long long)verified,
           (unsigned long long)untold, (unsigned long long)exhausted,
           (unsigned long long)tiny.evicted_fresh,
           (unsigned long long)(tiny.evicted_unused + tiny.evicted_soonest));
    CHECK(verified > 0);
    weir_store_close(counted);
    weir_store_close(small);
}

static struct page *map_page(int fd)
{
    void *mapped = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        test_give_up("mmap", "no shared page");
    return mapped;
}

int main(int argc, char **argv)
{
    if (argc == 7 && !strcmp(argv[1], "worker"))
        worker_run(map_page(atoi(argv[2])), atoi(argv[3]), strtoull(argv[4], NULL, 10), argv[5],
                   argv[6]);
    long kills = argc > 1 ? atol(argv[1]) : 300;
    bool given = argc > 2 && strcmp(argv[2], "random") != 0;
    chance = test_seed(given ? argv[2] : NULL);
    where = argc > 3 && !strcmp(argv[3], "file") ? TEST_FILE : TEST_SHM;
    page_fd = memfd_create("weir-test", 0);
    if (page_fd < 0 || ftruncate(page_fd, sizeof(struct page)))
        test_give_up("memfd_create", "no shared page");
    page = map_page(page_fd);
    page->now = START;
    snprintf(urls[0], sizeof urls[0], "%s", test_url(where, "counted", "size=1m&large=60%"));
    snprintf(urls[1], sizeof urls[1], "%s", test_url(where, "small", "size=64k&large=40%"));
    run(kills);
    test_remove(where, "counted");
    test_remove(where, "small");
    test_remove_directory();
    return test_report();
}
