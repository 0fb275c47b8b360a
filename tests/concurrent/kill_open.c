/*
 * Processes killed while they make, open or close a zone, or make it again in another size:
 * whatever they leave, the next one opens it, at once and soundly, and a charge that was told is
 * there. First right before and after each system call (where tracing is allowed), then at random
 * moments.
 *
 *     kill_open [ROUNDS [SEED]]
 */
#include "../unit/store_test.h"
#include "base/clock.h"
#include "base/random.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#define SPAN_US 3000             /* making and opening a zone of 1m takes less */
#define PATIENCE_US (4 * SECOND) /* less than a lock is waited for */
#define LIMIT "fixed-window 1000k/366d"

static uint64_t chance;

/* Opens, charges once, counts that, closes, again and again; the parent kills it. */
static void open_and_close(const char *url, _Atomic long *told)
{
    weir_limit *limit = test_limit(LIMIT);
    for (;;) {
        weir_store *store = test_open(url, NULL);
        weir_decision decision = {0};
        if (weir_take(store, weir_key_text("key"), limit, 1, &decision) == 0 && decision.allowed)
            ++*told;
        weir_store_close(store);
    }
}

/* The zone opens at once, is sound, and holds what was told. */
static void expect_usable(const char *url, long told)
{
    weir_limit *limit = test_limit(LIMIT);
    int64_t start = weir__clock_real_us();
    weir_store *store = NULL;
    weir_error err = {0};
    int code = weir_store_open(url, &store, &err);
    test_check(code == 0, __FILE__, __LINE__, err.message);
    CHECK(weir__clock_real_us() - start < PATIENCE_US);
    if (code == 0) {
        test_sound(store);
        weir_decision peeked = test_peek(store, "key", limit, 0);
        CHECK(peeked.limit - peeked.remaining >= told);
        CHECK(peeked.limit - peeked.remaining <= told + 1);
    }
    weir_store_close(store);
    weir_limit_free(limit);
}

/* `anew`: the zone is not there yet. */
static void kill_at_random(enum test_kind kind, const char *url, _Atomic long *told, bool anew)
{
    if (anew)
        test_remove(kind, "kill-open");
    *told = 0;
    if (!anew) {
        weir_store *store = test_open(url, NULL);
        CHECK_INT(weir_reset(store, weir_key_text("key")), 0);
        weir_store_close(store);
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        open_and_close(url, told);
        _exit(1);
    }
    weir__clock_sleep_us((int64_t)(weir__random_next(&chance) % SPAN_US));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_usable(url, *told);
}

/* A zone in which one is charged. */
static void make_charged(const char *url)
{
    weir_limit *limit = test_limit(LIMIT);
    weir_store *store = test_open(url, NULL);
    CHECK(test_take(store, "key", limit, 1).allowed);
    weir_store_close(store);
    weir_limit_free(limit);
}

/* A process that opens `url`, stopped for the n-th time at the start or end of a system call, and
 * killed there. There is no zone, or the one at `before`, with a charge. False: it had ended
 * before. */
static bool kill_at_call(enum test_kind kind, const char *before, const char *url, long n)
{
    test_remove(kind, "kill-open");
    if (before)
        make_charged(before);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(77);
        raise(SIGSTOP);
        weir_store_close(test_open(url, NULL));
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    for (long i = 0; i < n && WIFSTOPPED(status); i++) {
        ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
        waitpid(pid, &status, 0);
    }
    bool stopped = WIFSTOPPED(status);
    if (stopped) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    } else {
        CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    }
    if (!before) {
        expect_usable(url, 0);
    } else {
        expect_usable(test_url(kind, "kill-open", ""), 1); /* the old one or the new one */
        expect_usable(url, 1);                             /* and what was left is no hindrance */
    }
    return stopped;
}

static long kill_at_calls(enum test_kind kind, const char *before, const char *url)
{
    long calls = 1;
    while (calls < 1000 && kill_at_call(kind, before, url, calls))
        calls++;
    return calls - 1;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    chance = test_seed(argc > 2 ? argv[2] : NULL);
    _Atomic long *told =
        mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int kind = TEST_SHM; kind < TEST_KINDS; kind++) {
        char url[512], larger[512];
        snprintf(url, sizeof url, "%s", test_url(kind, "kill-open", "size=1m"));
        snprintf(larger, sizeof larger, "%s", test_url(kind, "kill-open", "size=2m&large=20%"));
        long made = kill_at_calls(kind, NULL, url), remade = kill_at_calls(kind, url, larger);
        CHECK(made == 0 || remade > made);
        printf("%ld stops at system calls, %ld more in another size, %ld random kills\n", made,
               remade, 2 * rounds);
        test_remove(kind, "kill-open");
        for (long i = 0; i < rounds && test_failed == 0; i++) {
            kill_at_random(kind, url, told, true);
            kill_at_random(kind, url, told, false);
        }
        test_remove(kind, "kill-open");
    }
    test_remove_directory();
    return test_report();
}
