/*
 * What `weir run` is made of: the command that it runs, and the lease that it keeps meanwhile.
 *
 *     main thread                                            keeper's thread
 *     wait for the limits ─► start the command ─► watch it   renew, again and again
 *            │                                     │  ▲              │
 *            └ a signal ends the wait              │  └── lost ──────┘
 *                                                  └ signals go to the command
 *
 * What holds:
 *   1. Signals are handled by the main thread alone, and never wait for the store: only the keeper
 *      talks to it while the command runs.
 *   2. The lease counts as held until its time has passed since the last renewal was sent. So a
 *      store that hangs does not make a lease last longer.
 *   3. The main thread starts the command. So the kernel can kill it when this process dies.
 */
#ifndef WEIR_CLI_RUN_H
#define WEIR_CLI_RUN_H

#include "cli/cli.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

/* ---- run_child.c: signals, and the command ---- */

struct cli_signals {
    sigset_t forwarded; /* those that the command gets from us; not those that are ignored */
    sigset_t before;    /* the mask as it was; the command gets it back */
    bool child_ignored; /* SIGCHLD was ignored; likewise */
    int fd;             /* readable when one of `forwarded` came */
    int child_fd;       /* readable when a child ended */
};

/* From now on signals are read from descriptors. 0, or -1 with errno. */
int cli_signals_open(struct cli_signals *signals);
/* Signals do what they did before. */
void cli_signals_close(struct cli_signals *signals);
/* The signal that came; 0: none. `ret_typed`: a terminal sent it, also to the command. */
int cli_signals_next(const struct cli_signals *signals, bool *ret_typed);

/* Starts a command; `dies`: it is killed when this process dies. 0, or an errno: it could not be
 * executed. */
int cli_child_start(const struct cli_signals *signals, char *const *argv, bool dies, pid_t *ret);
/* Whether it has ended, and its exit code as shells have it: 128 + N after a signal N. */
bool cli_child_ended(pid_t pid, int *ret_code);

/* ---- run_keeper.c: the lease ---- */

struct cli_keeper {
    const struct cli_call *call;
    weir_store *store;
    weir_key key;
    const weir_limit *limit;
    uint64_t lease;
    int64_t lease_us;
    _Atomic int64_t held_until_us; /* by the monotonic clock */
    int stop_fd;                   /* readable: end */
    int lost_fd;                   /* readable: the store says that there is no such lease */
    pthread_t thread;
};

/* Renews the lease from now on. `since_us`: when it was acquired, or earlier. CLI_OK or an exit
 * code. */
int cli_keeper_start(struct cli_keeper *keeper, int64_t since_us);
/* Ends that. If the store is just being asked, it waits for the answer. */
void cli_keeper_stop(struct cli_keeper *keeper);

#endif
