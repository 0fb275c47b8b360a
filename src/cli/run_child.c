/* Signals, and the command of `weir run`: see run.h. */
#include "cli/run.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- signals ---- */

static const int signals_all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static bool signals_is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int cli_signals_open(struct cli_signals *signals)
{
    sigset_t child, both;
    sigemptyset(&signals->forwarded);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (size_t i = 0; i < WEIR__COUNT(signals_all); i++) {
        if (!signals_is_ignored(signals_all[i])) /* nohup: it stays ignored */
            sigaddset(&signals->forwarded, signals_all[i]);
    }
    both = signals->forwarded;
    sigaddset(&both, SIGCHLD);
    signals->child_ignored = signals_is_ignored(SIGCHLD);
    signal(SIGCHLD, SIG_DFL); /* ignored: nobody would learn how the command ended */
    pthread_sigmask(SIG_BLOCK, &both, &signals->before);
    signals->fd = signalfd(-1, &signals->forwarded, SFD_CLOEXEC | SFD_NONBLOCK);
    signals->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd >= 0 && signals->child_fd >= 0)
        return 0;
    int failed = errno;
    cli_signals_close(signals);
    errno = failed;
    return -1;
}

static void signals_restore(const struct cli_signals *signals)
{
    if (signals->child_ignored)
        signal(SIGCHLD, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}

void cli_signals_close(struct cli_signals *signals)
{
    if (signals->fd >= 0)
        close(signals->fd);
    if (signals->child_fd >= 0)
        close(signals->child_fd);
    signals->fd = signals->child_fd = -1;
    signals_restore(signals);
}

int cli_signals_next(const struct cli_signals *signals, bool *ret_typed)
{
    struct signalfd_siginfo info;
    if (read(signals->fd, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    int number = (int)info.ssi_signo;
    *ret_typed = info.ssi_code == SI_KERNEL && (number == SIGINT || number == SIGQUIT);
    return number;
}

/* ---- the command ---- */

/* In the child. Tells why the command cannot be executed, then ends. */
static _Noreturn void child_execute(const struct cli_signals *signals, char *const *argv,
                                    pid_t parent, bool dies, int tell)
{
    int failed = 0;
    if (dies && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
        failed = ESRCH; /* it died before it could be asked */
    if (!failed) {
        signals_restore(signals);
        execvp(argv[0], argv);
        failed = errno;
    }
    ssize_t told = write(tell, &failed, sizeof failed);
    (void)told;
    _exit(127);
}

int cli_child_start(const struct cli_signals *signals, char *const *argv, bool dies, pid_t *ret)
{
    int ends[2], failed = 0;
    assert(argv[0]);
    if (pipe2(ends, O_CLOEXEC)) /* closed by an exec that succeeds */
        return errno;
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child_execute(signals, argv, parent, dies, ends[1]);
    int refused = pid < 0 ? errno : 0;
    close(ends[1]);
    ssize_t got = 0;
    while (pid > 0 && (got = read(ends[0], &failed, sizeof failed)) < 0 && errno == EINTR)
        continue;
    close(ends[0]);
    if (refused)
        return refused;
    if (got == (ssize_t)sizeof failed) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        return failed;
    }
    *ret = pid;
    return 0;
}

bool cli_child_ended(pid_t pid, int *ret_code)
{
    int status;
    if (waitpid(pid, &status, WNOHANG) != pid)
        return false;
    assert(WIFEXITED(status) || WIFSIGNALED(status));
    *ret_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}
