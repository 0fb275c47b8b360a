/*
 * A process killed at every instruction that matters. A child carries out one action on a shared
 * zone, one machine instruction at a time; the zone is copied whenever its bytes have changed. Each
 * copy is what a death right there would have left. It is put back, the locks the child held are
 * marked as the kernel marks a dead owner's, and others go on: nothing blocks, the zone is sound,
 * what was told is charged, what the dead one asked is at most charged on top, no room is lost. The
 * same for a zone that is opened again when all are dead. Some of the deaths are then died for
 * real.
 *
 *     kill_step [all|quick [SCENARIO]]
 *
 * `quick` (the default) leaves out some deaths of the scenarios that have hundreds. Those that take
 * long die for real soon after they begin.
 */
#include "../unit/store_inside.h"
#include "kill_scenarios.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define COPIES_MAX 4000
#define QUICK_DEATHS 150 /* looked at, of each scenario */
#define REAL_DEATHS 2    /* died in each scenario */
#define LONG 20000       /* steps; then one */
#define QUICK_PART 8     /* after this part of its changes, if it is long and has to be quick */
#define SKIPPED 77

/* The zone as a death would have left it. */
struct copy {
    uint8_t *bytes;
    long step;
};

static struct copy copies[COPIES_MAX];
static size_t copy_count;

static void act(const struct scenario *it, weir_limit *limit, weir_limit *other)
{
    weir_key key = weir_key_text("key");
    weir_decision decision = {0};
    weir_request requests[2] = {weir_request_make(key, limit),
                                weir_request_make(weir_key_text("other"), other)};
    uint64_t lease = leases[it->action.amount & 7];
    int code = 0;
    switch (it->action.verb) {
    case TAKE:
        code = weir_take(store, key, limit, it->action.amount, &decision);
        break;
    case GROUP:
        code = weir_take_all(store, requests, 2, &decision);
        break;
    case SETTLE:
        code = weir_settle(store, key, limit, receipt, it->action.amount, NULL);
        break;
    case ACQUIRE:
        code = weir_acquire(store, key, limit, it->action.amount, &decision);
        break;
    case RENEW:
        code = weir_renew(store, key, limit, lease);
        break;
    case RELEASE:
        code = weir_release(store, key, limit, lease);
        break;
    case RESET:
        code = weir_reset(store, key);
        break;
    }
    /* A release or a settle that had happened need not happen again. */
    test_check(code == 0 || code == WEIR_ENOLEASE || code == WEIR_ESETTLED, __FILE__, __LINE__,
               weir_strerror(code));
}

static void act_alone(const struct scenario *it)
{
    weir_limit *limit = test_limit(it->action.limit);
    weir_limit *other = it->other ? test_limit(it->other) : NULL;
    act(it, limit, other);
    weir_limit_free(limit);
    weir_limit_free(other);
}

/* ---- the dying one ---- */

/* A child that stops right before its action. */
static pid_t start(const struct scenario *it)
{
    weir_limit *limit = test_limit(it->action.limit);
    weir_limit *other = it->other ? test_limit(it->other) : NULL;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(SKIPPED);
        raise(SIGSTOP);
        test_failed = 0;
        act(it, limit, other);
        _exit(test_failed ? 1 : 0);
    }
    weir_limit_free(limit);
    weir_limit_free(other);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        printf("skipped: this system does not let a process be traced\n");
        exit(SKIPPED);
    }
    return pid;
}

/* One instruction on; false when it has ended. */
static bool step(pid_t pid)
{
    int status = 0;
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid)
        test_give_up("ptrace", "the child cannot be stepped");
    if (WIFSTOPPED(status))
        return true;
    CHECK_INT(status, 0);
    return false;
}

static void keep(const uint8_t *base, size_t size, long at)
{
    if (copy_count == COPIES_MAX)
        test_give_up("kill_step", "more changes than expected");
    if (!copies[copy_count].bytes)
        copies[copy_count].bytes = malloc(size);
    memcpy(copies[copy_count].bytes, base, size);
    copies[copy_count++].step = at;
}

static pid_t watch(const struct scenario *it, const uint8_t *base, size_t size)
{
    pid_t pid = start(it);
    copy_count = 0;
    keep(base, size, 0);
    for (long at = 1; step(pid); at++) {
        if (memcmp(base, copies[copy_count - 1].bytes, size))
            keep(base, size, at);
    }
    return pid;
}

/* ---- those who go on ---- */

/* What the kernel does with the robust mutexes of the dead. */
static void bury(struct weir__zone *zone, pid_t dead)
{
    for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++) {
        int *word = &zone->stripes[i].robust.__data.__lock;
        if ((*word & FUTEX_TID_MASK) == dead)
            *word = (*word & (int)FUTEX_WAITERS) | FUTEX_OWNER_DIED;
    }
}

/* The map as a death left it, before anybody repairs: it can be read from the first unit to the
 * last. */
static void expect_map(const struct scenario *it, const struct weir__zone *zone)
{
    uint32_t unit = 0;
    bool sound = true;
    while (sound && unit < zone->layout.units) {
        unsigned mark = weir__map_at(zone, unit) & WEIR__MAP_ORDER;
        sound = mark > 0 && mark <= WEIR__ORDER_MAX + 1 && unit % (1u << (mark - 1)) == 0;
        unit += sound ? 1u << (mark - 1) : 0;
    }
    test_check(sound && unit == zone->layout.units, __FILE__, __LINE__, it->name);
}

static void expect_charged(const struct scenario *it, const char *key, const char *text)
{
    weir_limit *limit = test_limit(text);
    weir_decision peeked = test_peek(store, key, limit, 0);
    int64_t charged = peeked.limit - peeked.remaining;
    char what[256];
    snprintf(what, sizeof what, "%s: %s is charged %lld, not %lld to %lld", it->name, key,
             (long long)charged, (long long)it->least, (long long)it->most);
    test_check(charged >= it->least && charged <= it->most, __FILE__, __LINE__, what);
    weir_limit_free(limit);
}

static void expect_sound(const struct scenario *it)
{
    weir_error err = {0};
    char what[700];
    int code = weir_store_check(store, &err);
    snprintf(what, sizeof what, "%s: %s", it->name, err.message);
    test_check(code == 0, __FILE__, __LINE__, what);
}

/* When every key is forgotten, every block is free again. */
static void expect_room(const struct scenario *it)
{
    char key[16];
    now += SECOND; /* a new limit may have to wait for the next sweep */
    take("room", "sliding-log 10/h", 1);
    now -= SECOND;
    for (int i = 0; i < 64; i++) {
        snprintf(key, sizeof key, "row %d", i);
        CHECK_INT(weir_reset(store, weir_key_text(key)), 0);
    }
    for (int i = 0; i < 400; i++) {
        snprintf(key, sizeof key, "log %d", i);
        CHECK_INT(weir_reset(store, weir_key_text(key)), 0);
    }
    CHECK_INT(weir_reset(store, weir_key_text("key")), 0);
    CHECK_INT(weir_reset(store, weir_key_text("other")), 0);
    CHECK_INT(weir_reset(store, weir_key_text("room")), 0);
    char what[256];
    uint64_t used = test_info(store).large_used;
    snprintf(what, sizeof what, "%s: %llu bytes of logs are lost", it->name,
             (unsigned long long)used);
    test_check(used == 0, __FILE__, __LINE__, what);
}

/* Whatever happens around them, leases that have not lapsed are there. */
static void expect_leases(const struct scenario *it)
{
    weir_limit *limit = test_limit(LEASE);
    for (int i = 0; i < 400 && it->prepare == full_of_leases && it->at_once < HOUR;
         i += LEASE_EVERY) {
        char key[16];
        snprintf(key, sizeof key, "log %d", i);
        CHECK_INT(test_peek(store, key, limit, 0).remaining, 99);
    }
    weir_limit_free(limit);
}

static void go_on(const struct scenario *it)
{
    expect_leases(it);
    expect_charged(it, "key", it->action.limit);
    if (it->other)
        expect_charged(it, "other", it->other);
    expect_sound(it);
    act_alone(it);
    expect_sound(it);
    expect_room(it);
    expect_sound(it);
}

static void die_for_real(const struct scenario *it, struct weir__zone *zone, size_t size,
                         bool quick)
{
    bool is_long = copies[copy_count - 1].step > LONG;
    size_t deaths = is_long ? 1 : REAL_DEATHS;
    size_t parts = is_long && quick ? QUICK_PART : 2 * deaths;
    for (size_t i = 0; i < deaths && copy_count > 1; i++) {
        long until = copies[1 + (copy_count - 1) * (2 * i + 1) / parts].step;
        memcpy(zone->base, copies[0].bytes, size);
        pid_t pid = start(it);
        for (long at = 0; at < until && step(pid); at++)
            ;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        go_on(it);
    }
}

/* Which of all deaths is the i-th to be looked at. */
static size_t chosen(size_t i, size_t looked_at)
{
    return i * (copy_count - 1) / (looked_at > 1 ? looked_at - 1 : 1);
}

static void run(const struct scenario *it, bool quick)
{
    now = START;
    store = test_open(test_url(TEST_SHM, "step", "size=64k&large=40%"), &now);
    struct weir__zone *zone = test_zone(store);
    size_t size = zone->layout.size;
    it->prepare();
    now += it->at_once;
    pid_t dead = watch(it, zone->base, size);
    size_t looked_at = quick && copy_count > QUICK_DEATHS ? QUICK_DEATHS : copy_count;
    for (size_t i = 0; i < looked_at; i++) {
        const uint8_t *left = copies[chosen(i, looked_at)].bytes;
        memcpy(zone->base, left, size);
        bury(zone, dead);
        expect_map(it, zone);
        go_on(it);
        memcpy(zone->base, left, size);
        weir_error err = {0};
        int code = weir__zone_recover(zone, &err);
        test_check(code == 0, __FILE__, __LINE__, err.message);
        go_on(it);
    }
    die_for_real(it, zone, size, quick);
    printf("%-36s %4zu deaths of %zu\n", it->name, looked_at, copy_count);
    weir_store_close(store);
    test_remove(TEST_SHM, "step");
}

/* Parent and child take turns: on one core that is three times as fast. */
static void stay_on_one_core(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv)
{
    alarm(3000); /* whoever blocks forever has failed */
    stay_on_one_core();
    for (size_t i = 0; i < SCENARIOS; i++) {
        if (argc < 3 || strstr(scenarios[i].name, argv[2]))
            run(&scenarios[i], argc < 2 || strcmp(argv[1], "all"));
    }
    for (size_t i = 0; i < COPIES_MAX; i++)
        free(copies[i].bytes);
    return test_report();
}
