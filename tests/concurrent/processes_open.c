/*
 * Opening and closing by several processes: all at once, inherited, in any order. Whoever opens a
 * zone that others still use must never believe to be alone with it, and must never be kept out.
 *
 *     processes_open [ROUNDS]
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "base/clock.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define OPENERS 6
#define PATIENCE_S 60
#define BUSY 9 /* a taker found a lock held */

/* Started as `processes_open ROLE URL [FD]`: a process of its own, without any inherited store. */
static pid_t start(const char *role, const char *url, int fd)
{
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "processes_open", role, url, number, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* 0, or what it ended with; -1: still at work after that long. */
static int ended(pid_t pid, int64_t patience_us)
{
    int status;
    for (int64_t waited = 0; waited <= patience_us; waited += 1000) {
        pid_t found = waitpid(pid, &status, WNOHANG);
        if (found < 0)
            return 512;
        if (found == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
        weir__clock_sleep_us(1000);
    }
    return -1;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- what the started processes do ---- */

/* Opens, takes once, closes. BUSY: it was kept waiting for too long. */
static int take_once(const char *url)
{
    weir_store *store = test_open(url, NULL);
    weir_limit *limit = test_limit("fixed-window 1000/366d");
    weir_decision decision = {0};
    weir__store_be_patient(store, SECOND);
    int code = weir_take(store, weir_key_text("key"), limit, 1, &decision);
    weir_limit_free(limit);
    weir_store_close(store);
    return code == WEIR_EBUSY ? BUSY : code || !decision.allowed ? 1 : 0;
}

/* Opens, says so, and stays until it is told to go. */
static int stay(const char *url, int fd)
{
    char byte = 'r';
    weir_store *store = test_open(url, NULL);
    if (write(fd, &byte, 1) != 1)
        return 1;
    while (read(fd, &byte, 1) < 0)
        ;
    weir_store_close(store);
    return 0;
}

/* ---- the tests ---- */

static int open_code(const char *url)
{
    weir_store *store = NULL;
    weir_error err = {0};
    int code = weir_store_open(url, &store, &err);
    if (code)
        printf("%s\n", err.message);
    weir_store_close(store);
    return code;
}

/* Several open a zone that is not there yet: one makes it, all use it. */
static void test_at_once(enum test_kind kind, int rounds)
{
    const char *url = test_url(kind, "open", "size=256k");
    for (int round = 0; round < rounds; round++) {
        pid_t pids[OPENERS];
        test_remove(kind, "open");
        for (int i = 0; i < OPENERS; i++)
            pids[i] = start("take", url, -1);
        for (int i = 0; i < OPENERS; i++)
            CHECK_INT(ended(pids[i], PATIENCE_S * SECOND), 0);
        weir_store *store = test_open(url, NULL);
        weir_limit *limit = test_limit("fixed-window 1000/366d");
        CHECK_INT(test_peek(store, "key", limit, 0).remaining, 1000 - OPENERS);
        CHECK_INT(test_info(store).repairs, 0);
        test_sound(store);
        weir_limit_free(limit);
        weir_store_close(store);
    }
    test_remove(kind, "open");
}

/* A parent that closes what its child still uses does not shut others out. */
static void test_parent_closes(enum test_kind kind)
{
    const char *url = test_url(kind, "open", "size=256k");
    weir_store *store = test_open(url, NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S);
        pause();
        _exit(0);
    }
    weir_store_close(store);
    CHECK_INT(ended(start("take", url, -1), PATIENCE_S * SECOND), 0);
    CHECK_INT(open_code(url), 0);
    stop(child);
    test_remove(kind, "open");
}

/* Every lock of the zone, as if in the middle of a decision that takes long. */
static void hold_all(weir_store *store, bool hold)
{
    struct weir__zone *zone = test_zone(store);
    if (hold)
        CHECK(weir__stripes_lock_all(zone));
    else
        weir__stripes_unlock_all(zone);
}

/* A child that closes what it inherited does not give up its parent's share: with a third process
 * gone, whoever opens next is not alone, and respects the locks that the parent holds. */
static void test_child_closes(enum test_kind kind)
{
    const char *url = test_url(kind, "open", "size=64k");
    weir_store *store = test_open(url, NULL);
    int ends[2];
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        test_give_up("socketpair", "none");
    pid_t third = start("stay", url, ends[1]);
    CHECK_INT(read(ends[0], &byte, 1), 1);
    pid_t child = fork();
    if (child == 0) {
        weir_store_close(store);
        _exit(0);
    }
    CHECK_INT(ended(child, PATIENCE_S * SECOND), 0);
    CHECK_INT(write(ends[0], &byte, 1), 1);
    CHECK_INT(ended(third, PATIENCE_S * SECOND), 0);
    hold_all(store, true);
    CHECK_INT(ended(start("take", url, -1), PATIENCE_S * SECOND), BUSY);
    hold_all(store, false);
    CHECK_INT(ended(start("take", url, -1), PATIENCE_S * SECOND), 0);
    close(ends[0]);
    close(ends[1]);
    weir_store_close(store);
    test_remove(kind, "open");
}

int main(int argc, char **argv)
{
    alarm(10 * PATIENCE_S);
    if (argc == 4 && !strcmp(argv[1], "take"))
        return take_once(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "stay"))
        return stay(argv[2], atoi(argv[3]));
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (int kind = TEST_SHM; kind < TEST_KINDS; kind++) {
        test_at_once(kind, rounds);
        test_parent_closes(kind);
        test_child_closes(kind);
    }
    test_remove_directory();
    return test_report();
}
