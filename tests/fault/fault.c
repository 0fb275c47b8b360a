/*
 * Every allocation and system call that can fail is failed once, in every scenario, until none is
 * left to fail. Each failure is reported with a code and a message that names the path, leaves the
 * result untouched, leaks nothing and leaves nothing behind that cannot be opened; the next try
 * works.
 */
#include "wrap.h"

#include "base/random.h"

#include "../unit/store_test.h"

#include <dirent.h>
#include <sys/wait.h>

#define SENTINEL ((weir_store *)(uintptr_t)0x5e5e5e5e)

static weir_store *store; /* of the scenarios that need one open */
static weir_limit *limit, *leases;
static weir_error err;
static bool touched;     /* a failure that wrote its result */
static const char *path; /* what a message must name; NULL: nothing */
static _Atomic int64_t now = START;

static int count_fds(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

/* ---- scenarios: open ---- */

static int open_url(const char *url)
{
    weir_store *opened = SENTINEL;
    int code = weir_store_open(url, &opened, &err);
    touched = code && opened != SENTINEL;
    bool armed = fault.armed;
    fault.armed = false;
    if (code == 0) {
        test_sound(opened);
        weir_store_close(opened);
    }
    fault.armed = armed;
    return code;
}

static enum test_kind kind;

static void no_zone(void)
{
    test_remove(kind, "fault");
}

static void a_zone(void)
{
    weir_store *made = test_open(test_url(kind, "fault", "size=256k"), &now);
    test_take(made, "key", limit, 1);
    weir_store_close(made);
}

/* Left behind by a process that did not close it. */
static void a_dirty_zone(void)
{
    a_zone();
    const char *url = test_url(kind, "fault", ""); /* which holds this process's number */
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        test_open(url, &now);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static int open_new(void)
{
    return open_url(test_url(kind, "fault", "size=256k"));
}

static int open_larger(void)
{
    return open_url(test_url(kind, "fault", "size=512k"));
}

static int open_default(void)
{
    return open_url(test_url(kind, "fault", ""));
}

/* ---- scenarios: verbs ---- */

static void an_open_store(void)
{
    store = test_open("memory:1m", &now);
    test_take(store, "key", limit, 1);
}

static void close_it(void)
{
    weir_store_close(store);
    store = NULL;
}

static void nothing(void)
{
}

/* The verbs without an error of their own have only their code. */
static void set_message(int code)
{
    snprintf(err.message, sizeof err.message, "%s", code ? weir_strerror(code) : "");
}

static bool is_untouched(const weir_decision *decision)
{
    static const weir_decision zero;
    return !memcmp(decision, &zero, sizeof zero);
}

static int parse(void)
{
    weir_limit *parsed = (weir_limit *)SENTINEL;
    int code = weir_limit_parse("token-bucket 10/s, sliding-log 5/m", &parsed, &err);
    touched = code && parsed != (weir_limit *)SENTINEL;
    if (code == 0)
        weir_limit_free(parsed);
    return code;
}

static int verbs(void)
{
    weir_decision decision;
    char receipt[WEIR_RECEIPT_SIZE];
    memset(&decision, 0, sizeof decision);
    int code = weir_peek(store, weir_key_text("other"), limit, 1, &decision);
    if (code == 0)
        code = weir_take(store, weir_key_text("other"), limit, 1, &decision);
    if (code == 0) {
        weir_receipt(&decision, receipt);
        code = weir_settle(store, weir_key_text("other"), limit, receipt, 3, &err);
    }
    return code;
}

static int hold(void)
{
    weir_decision decision;
    memset(&decision, 0, sizeof decision);
    int code = weir_acquire(store, weir_key_text("held"), leases, 1, &decision);
    touched = code && !is_untouched(&decision);
    set_message(code);
    if (code)
        return code;
    code = weir_renew(store, weir_key_text("held"), leases, decision.lease);
    return code ? code : weir_release(store, weir_key_text("held"), leases, decision.lease);
}

static int check(void)
{
    return weir_store_check(store, &err);
}

static int look(void)
{
    weir_zone_info info;
    return weir_store_info(store, &info);
}

static const struct scenario {
    const char *name;
    void (*prepare)(void);
    int (*act)(void);
    void (*clean)(void);
    bool opens; /* for every kind of store */
} scenarios[] = {
    {"a new zone", no_zone, open_new, no_zone, true},
    {"an existing zone", a_zone, open_new, no_zone, true},
    {"a zone of another size", a_zone, open_larger, no_zone, true},
    {"a zone left dirty", a_dirty_zone, open_default, no_zone, true},
    {"a limit", nothing, parse, nothing, false},
    {"take, peek and settle", an_open_store, verbs, close_it, false},
    {"leases", an_open_store, hold, close_it, false},
    {"check", an_open_store, check, close_it, false},
    {"info", an_open_store, look, close_it, false},
};

/* ---- failing one call after the other ---- */

static void judge(const struct scenario *it, int code)
{
    char what[900];
    bool memory = !strcmp(fault.failed, "malloc") || !strcmp(fault.failed, "calloc");
    snprintf(what, sizeof what, "%s, %s failed (call %ld): code %d, \"%s\"", it->name, fault.failed,
             fault.fail_at, code, err.message);
    if (code == 0) {
        test_check(fault.optional, __FILE__, __LINE__, what);
        return;
    }
    test_check(strcmp(weir_errname(code), "UNKNOWN") && err.message[0], __FILE__, __LINE__, what);
    if (path && !memory)
        test_check(strstr(err.message, path) != NULL, __FILE__, __LINE__, what);
    test_check(!touched, __FILE__, __LINE__, what);
}

/* False: nothing was left to fail. */
static bool fail_nth(const struct scenario *it, long n)
{
    it->prepare();
    int fds = count_fds();
    long blocks = fault.blocks, bytes = fault.bytes;
    err = (weir_error){0};
    touched = false;
    fault_arm(n);
    int code = it->act();
    fault.armed = false;
    bool failed = fault.failed != NULL;
    if (failed)
        judge(it, code);
    else
        CHECK_INT(code, 0);
    CHECK_INT(fault.blocks, blocks);
    CHECK_INT(fault.bytes, bytes);
    CHECK_INT(count_fds(), fds);
    if (failed)
        CHECK_INT(it->act(), 0); /* the next try */
    it->clean();
    return failed;
}

static void run(const struct scenario *it)
{
    long n = 1;
    while (n < 1000 && fail_nth(it, n))
        n++;
    printf("%-32s %3ld failures\n", it->name, n - 1);
}

/* Without its page the stock of random words is done without; made here, it is nobody's leak. */
static void fail_stock(void)
{
    for (long n = 1;; n++) {
        uint64_t word = 0;
        fault_arm(n);
        int code = weir__random_word(&word);
        fault.armed = false;
        test_check(code == (fault.failed && !strcmp(fault.failed, "getrandom") ? -1 : 0) &&
                       (code || word),
                   __FILE__, __LINE__, fault.failed ? fault.failed : "a random word");
        if (!fault.failed)
            return;
    }
}

int main(void)
{
    alarm(600);
    fail_stock();
    limit = test_limit("token-bucket 10/s, sliding-log 5/m");
    leases = test_limit("concurrent 3");
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        int last = scenarios[i].opens ? TEST_KINDS - 1 : TEST_MEMORY;
        for (int k = TEST_MEMORY; k <= last; k++) {
            char shown[256];
            kind = (enum test_kind)k;
            snprintf(shown, sizeof shown, "%s", kind ? test_path(kind, "fault") : "");
            path = scenarios[i].opens && kind ? shown : NULL;
            run(&scenarios[i]);
        }
    }
    for (size_t i = 0; i < FAULT_COUNT; i++)
        test_check(fault_hits[i] > 0, __FILE__, __LINE__, fault_names[i]);
    weir_limit_free(limit);
    weir_limit_free(leases);
    test_remove_directory();
    return test_report();
}
