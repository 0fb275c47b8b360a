/*
 * Processes that make up limits without end in one zone, sweep each other's, and are killed at any
 * moment. What they have in common is a limit that each of them has reserved: it keeps its row and
 * its count, so nothing above it is admitted, however many rows come and go.
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"

#include <signal.h>
#include <sys/wait.h>

#define WORKERS 3
#define LIMIT 500
#define ROUNDS 40
#define INVENTED 4000 /* by each worker that is let live */

struct page {
    _Atomic int64_t now; /* moved on with every limit that is made up, so sweeps are due often */
    _Atomic long admitted, denied, failed, invented, refused;
};

static const char *url;

static void ask(struct page *page, weir_store *store, const weir_limit *known)
{
    weir_decision decision;
    if (weir_take(store, weir_key_text("known"), known, 1, &decision))
        page->failed++;
    else if (decision.allowed)
        page->admitted++;
    else
        page->denied++;
}

/* Limits that nobody else has, by their numbers. */
static void invent(struct page *page, weir_store *store, int64_t n)
{
    weir_limit *limit = NULL;
    weir_decision decision;
    char key[32];
    weir_limit_numbers numbers = {.kind = n % 5 ? WEIR_FIXED_WINDOW : WEIR_SLIDING_COUNTER,
                                  .count = 1 + n % 1000000,
                                  .period_us = (n % 3 ? SECOND : HOUR) + n / 1000000};
    if (weir_limit_make(&numbers, 1, &limit, NULL))
        exit(2);
    page->now += 2000;
    snprintf(key, sizeof key, "tenant %lld", (long long)n);
    int code = weir_take(store, weir_key_text(key), limit, 1, &decision);
    page->invented += code == 0;
    page->refused += code == WEIR_EFULL || code == WEIR_EBUSY;
    page->failed += code && code != WEIR_EFULL && code != WEIR_EBUSY;
    weir_limit_free(limit);
}

static int work(struct page *page, int number, int count)
{
    weir_store *store = test_open_patiently(url, &page->now);
    const weir_limit *known = test_limit("fixed-window 500/366d from-first");
    weir_error err = {0};
    if (weir__store_reserve(store, &known, 1, &err))
        test_give_up("reserve", err.message);
    for (int i = 0; i < count; i++) {
        invent(page, store, (int64_t)number * 10000000 + i);
        if (i % 4 == 0)
            ask(page, store, known);
    }
    weir_limit_free((weir_limit *)known);
    weir_store_close(store);
    return 0;
}

static pid_t start(struct page *page, int number, int count)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(work(page, number, count));
    return pid;
}

static void run(enum test_kind kind)
{
    struct page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page->now = START;
    url = test_url(kind, "limits", "size=1m");
    weir_store *store = test_open(url, &page->now);
    const weir_limit *known = test_limit("fixed-window 500/366d from-first");
    CHECK_INT(weir__store_reserve(store, &known, 1, NULL), 0);
    unsigned chance = 1;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pids[WORKERS];
        long before = page->invented;
        bool last = round == ROUNDS - 1;
        for (int i = 0; i < WORKERS; i++)
            pids[i] = start(page, round * WORKERS + i, last ? INVENTED : 1000000);
        chance = chance * 1103515245 + 12345;
        while (!last && page->invented < before + chance / 65536 % 2000)
            usleep(100);
        for (int i = 0; i < WORKERS; i++) {
            int status = 0;
            if (!last)
                kill(pids[i], SIGKILL);
            CHECK_INT(waitpid(pids[i], &status, 0), pids[i]);
            CHECK(!last || status == 0);
        }
    }
    for (int i = 0; i < LIMIT + 10; i++)
        ask(page, store, known);
    CHECK(page->admitted <= LIMIT);
    CHECK(page->admitted >= LIMIT - ROUNDS * WORKERS); /* who is killed cannot count */
    CHECK(page->denied >= 10);
    CHECK_INT(page->failed, 0);
    CHECK_INT(test_peek(store, "known", known, 0).remaining, 0);
    CHECK(test_info(store).limits <= test_info(store).limits_max);
    printf("%s: %ld limits made up, %ld refused, %ld admitted of %d, %lu repairs, %u sweeps\n", url,
           page->invented, page->refused, page->admitted, LIMIT,
           (unsigned long)test_info(store).repairs, test_zone(store)->header->sweeps);
    test_sound(store);
    weir_limit_free((weir_limit *)known);
    weir_store_close(store);
    munmap(page, sizeof *page);
    test_remove(kind, "limits");
}

int main(void)
{
    run(TEST_SHM);
    return test_report();
}
