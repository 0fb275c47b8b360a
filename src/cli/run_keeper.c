/*
 * Keeps a lease while a command runs: a thread renews it, three times as often as need be. If a
 * renewal fails, it says so once and tries again soon. The lease is lost if the store no longer
 * knows it, or if it could not be renewed in time.
 */
#include "cli/run.h"

#include "base/clock.h"
#include "store/store.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define KEEPER_PARTS 3            /* renewals in the time of a lease */
#define KEEPER_RETRIES 12         /* the same where the last one failed */
#define KEEPER_RETRY_MOST 1000000 /* µs between them */

/* Sleeps; false: it shall end. */
static bool keeper_sleep(const struct cli_keeper *keeper, int64_t us)
{
    const int64_t until = weir__mono_us() + us;
    for (;;) {
        int64_t left = weir__max(0, until - weir__mono_us());
        struct timespec most = {left / 1000000, left % 1000000 * 1000};
        struct pollfd stop = {.fd = keeper->stop_fd, .events = POLLIN};
        int ready = ppoll(&stop, 1, &most, NULL);
        if (ready > 0)
            return false;
        if (ready == 0 && left == 0)
            return true;
    }
}

static void keeper_ring(int fd)
{
    ssize_t written = write(fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written;
}

static void keeper_tell_failure(const struct cli_keeper *keeper, int code)
{
    int64_t left = weir__max(0, atomic_load(&keeper->held_until_us) - weir__mono_us());
    weir_error err = {0};
    const char *why =
        weir__store_why(keeper->store, &err) && err.message[0] ? err.message : weir_strerror(code);
    cli_fail(keeper->call, CLI_FAILED, "cannot renew the lease, which ends in %s: %s; trying again",
             cli_about(left).text, why);
}

static void *keeper_run(void *argument)
{
    struct cli_keeper *keeper = argument;
    const int64_t every = weir__max(1, keeper->lease_us / KEEPER_PARTS);
    const int64_t soon = weir__min(KEEPER_RETRY_MOST, keeper->lease_us / KEEPER_RETRIES + 1);
    bool failing = false;
    while (keeper_sleep(keeper, failing ? soon : every)) {
        const int64_t sent = weir__mono_us();
        int code = weir_renew(keeper->store, keeper->key, keeper->limit, keeper->lease);
        if (code == WEIR_ENOLEASE) {
            keeper_ring(keeper->lost_fd);
            break;
        }
        if (code == 0)
            atomic_store(&keeper->held_until_us, sent + keeper->lease_us);
        else if (!failing)
            keeper_tell_failure(keeper, code);
        else if (sent > atomic_load(&keeper->held_until_us))
            break; /* who watches the command knows by the time alone */
        failing = code != 0;
    }
    return NULL;
}

int cli_keeper_start(struct cli_keeper *keeper, int64_t since_us)
{
    keeper->lease_us = keeper->limit->rules[weir__leased(keeper->limit)].period_us;
    atomic_store(&keeper->held_until_us, since_us + keeper->lease_us);
    keeper->stop_fd = eventfd(0, EFD_CLOEXEC);
    keeper->lost_fd = eventfd(0, EFD_CLOEXEC);
    int failed = keeper->stop_fd < 0 || keeper->lost_fd < 0
                     ? errno
                     : pthread_create(&keeper->thread, NULL, keeper_run, keeper);
    if (!failed)
        return CLI_OK;
    if (keeper->stop_fd >= 0)
        close(keeper->stop_fd);
    if (keeper->lost_fd >= 0)
        close(keeper->lost_fd);
    return cli_fail(keeper->call, CLI_FAILED, "cannot start a thread that renews the lease: %s",
                    strerror(failed));
}

void cli_keeper_stop(struct cli_keeper *keeper)
{
    keeper_ring(keeper->stop_fd);
    pthread_join(keeper->thread, NULL);
    close(keeper->stop_fd);
    close(keeper->lost_fd);
}
