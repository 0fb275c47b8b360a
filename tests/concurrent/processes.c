/*
 * Many processes on one zone, in shared memory and in a file: what they are admitted in total is
 * exactly what the limit allows. The clock stands in a page they share. First unrelated processes
 * (this program started again, with mappings of its own), then children that inherited the store.
 *
 *     processes [ROUNDS]
 */
#include "../unit/store_inside.h"
#include "cases.h"

#include <pthread.h>
#include <sys/wait.h>

#define WORKERS 4
#define KEYS_MAX 100
#define PATIENCE_S 600 /* whoever blocks longer is killed, and the test fails */

struct page {
    pthread_barrier_t barrier;
    _Atomic int64_t now;
    _Atomic long admitted[PHASES][KEYS_MAX];
    _Atomic long failures;
};

/* Few keys with a high count, many with a low one. */
static const struct layout {
    int keys, n;
} layouts[] = {{1, 8000}, {3, 2000}, {KEYS_MAX, 80}};

#define LAYOUTS (sizeof layouts / sizeof layouts[0])

static struct page *map_page(int fd)
{
    void *page = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        test_give_up("mmap", "no shared page");
    return page;
}

static void hammer(struct page *page, weir_store *store, const struct test_case *it,
                   const struct layout *layout, const weir_limit *limit, int phase, int number)
{
    int attempts = layout->n * 3 / 2 / WORKERS + 2;
    for (int i = 0; i < layout->keys; i++) {
        int key = (i + number * 7) % layout->keys;
        char name[64];
        snprintf(name, sizeof name, "%s/%d/%d", it->limit, layout->keys, key);
        for (int j = 0; j < attempts; j++) {
            weir_decision decision;
            if (test_case_ask(store, weir_key_text(name), NULL, it, limit, &decision))
                page->failures++;
            else if (decision.allowed)
                page->admitted[phase][key]++;
        }
    }
}

/* All cases, in step with the others and with the one who holds the clock. */
static void work(struct page *page, weir_store *store, int number)
{
    test_use_clock(store, &page->now);
    for (size_t c = 0; c < TEST_CASES * LAYOUTS; c++) {
        const struct test_case *it = &test_cases[c / LAYOUTS];
        const struct layout *layout = &layouts[c % LAYOUTS];
        weir_limit *limit = test_case_limit(it, layout->n);
        pthread_barrier_wait(&page->barrier);
        for (int phase = 0; phase < PHASES; phase++) {
            pthread_barrier_wait(&page->barrier);
            hammer(page, store, it, layout, limit, phase, number);
            pthread_barrier_wait(&page->barrier);
        }
        weir_limit_free(limit);
    }
}

static void compare(struct page *page, const struct test_case *it, const struct layout *layout)
{
    for (int phase = 0; phase < PHASES; phase++) {
        long expected = test_case_admits(it, phase, layout->n);
        for (int key = 0; key < layout->keys; key++) {
            char what[256];
            snprintf(what, sizeof what, "%s, N = %d, phase %d, key %d: admitted %ld, not %ld",
                     it->limit, layout->n, phase, key, page->admitted[phase][key], expected);
            test_check(page->admitted[phase][key] == expected, __FILE__, __LINE__, what);
            page->admitted[phase][key] = 0;
        }
    }
    CHECK_INT(page->failures, 0);
}

/* Holds the clock: moves it between phases, compares after each case. */
static void lead(struct page *page)
{
    for (size_t c = 0; c < TEST_CASES * LAYOUTS; c++) {
        page->now = START + (int64_t)c * DAY;
        pthread_barrier_wait(&page->barrier);
        for (int phase = 0; phase < PHASES; phase++) {
            pthread_barrier_wait(&page->barrier);
            pthread_barrier_wait(&page->barrier);
            page->now += test_cases[c / LAYOUTS].step_us;
        }
        compare(page, &test_cases[c / LAYOUTS], &layouts[c % LAYOUTS]);
    }
}

static void init_barrier(struct page *page)
{
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&page->barrier, &shared, WORKERS + 1);
    pthread_barrierattr_destroy(&shared);
}

static void reap(const pid_t pids[WORKERS])
{
    for (int i = 0; i < WORKERS; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        CHECK_INT(status, 0);
    }
}

static int work_unrelated(char **argv)
{
    alarm(PATIENCE_S);
    struct page *page = map_page(atoi(argv[2]));
    weir_store *store = test_open_patiently(argv[3], NULL);
    work(page, store, atoi(argv[4]));
    weir_store_close(store);
    return test_failed ? 1 : 0;
}

static void start_unrelated(const char *program, int fd, const char *url, pid_t pids[WORKERS])
{
    for (int i = 0; i < WORKERS; i++) {
        char page[16], number[16];
        snprintf(page, sizeof page, "%d", fd);
        snprintf(number, sizeof number, "%d", i);
        pids[i] = fork();
        if (pids[i] == 0) {
            execl(program, program, "worker", page, url, number, (char *)NULL);
            _exit(127);
        }
    }
}

static void start_children(struct page *page, weir_store *store, pid_t pids[WORKERS])
{
    for (int i = 0; i < WORKERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(PATIENCE_S);
            work(page, store, i);
            weir_store_close(store);
            _exit(test_failed ? 1 : 0);
        }
    }
}

static void run(enum test_kind kind, const char *program, bool inherited)
{
    pid_t pids[WORKERS];
    int fd = memfd_create("weir-test", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct page)))
        test_give_up("memfd_create", "no shared page");
    struct page *page = map_page(fd);
    init_barrier(page);
    const char *url = test_url(kind, "processes", "size=1m&large=75%");
    weir_store *store = test_open_patiently(url, NULL);
    if (inherited)
        start_children(page, store, pids);
    else
        start_unrelated(program, fd, url, pids);
    lead(page);
    reap(pids);
    test_sound(store);
    weir_zone_info info = test_info(store);
    CHECK_INT(info.evicted_unused + info.evicted_soonest + info.repairs, 0);
    weir_store_close(store);
    test_remove(kind, "processes");
    munmap(page, sizeof *page);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "worker"))
        return work_unrelated(argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int round = 0; round < rounds; round++) {
        for (int kind = TEST_SHM; kind < TEST_KINDS; kind++) {
            alarm(PATIENCE_S);
            run(kind, "/proc/self/exe", false);
            run(kind, "/proc/self/exe", true);
        }
    }
    test_remove_directory();
    return test_report();
}
