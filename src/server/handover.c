/*
 * Sockets from one process to another: taken over from systemd or a predecessor (LISTEN_FDS),
 * handed over to a successor. All of them go, those of every thread: connections wait in each.
 */
#include "server/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_PASSED 3
#define IS_READY (-1)
#define READY "WEIR_READY_FD"     /* where a successor says that it is ready */
#define KEEPS "WEIR_SOCKETS_KEPT" /* 0: the predecessor is the only other one who has them */

/* ---- taking over ---- */

static int taken_over_from = -1; /* where to say that we are ready */

static int handover_passed_count(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (!pid || !count || atol(pid) != (long)getpid())
        return 0;
    long n = atol(count);
    return n < 0 ? 0 : n > SERVER_SOCKETS_MAX ? SERVER_SOCKETS_MAX : (int)n;
}

/* The address that a socket is bound to: one that is known already, or a new one. */
static struct server_address *handover_address_of(int fd, const struct server_config *config)
{
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &len))
        return NULL;
    for (size_t i = 0; i < server_opened.count; i++) {
        struct server_address *known = &server_opened.addresses[i];
        if (known->bound_len == len && !memcmp(&known->bound, &bound, len))
            return known->socket_count < SERVER_THREADS_MAX ? known : NULL;
    }
    if (server_opened.count == SERVER_LISTENERS_MAX)
        return NULL;
    size_t i = server_opened.count++;
    struct server_address *address = &server_opened.addresses[i];
    address->bound = bound;
    address->bound_len = len;
    address->tls = i < config->listen_count && config->listens[i].tls;
    server_address_note_file(address);
    return address;
}

static int handover_adopt_one(int fd, const struct server_config *config, weir_error *err)
{
    int listening = 0;
    socklen_t len = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) || !listening)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "descriptor %d of LISTEN_FDS is not a listening socket", fd);
    struct server_address *address = handover_address_of(fd, config);
    if (!address)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "descriptor %d of LISTEN_FDS is one too many: %d addresses with %d "
                          "sockets each can be handed over",
                          fd, SERVER_LISTENERS_MAX, SERVER_THREADS_MAX);
    if (!server_address_is_private(&address->bound) && !config->token[0] &&
        !config->public_without_token)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "a socket handed over is reachable from other hosts and no token is set; "
                          "set one with --token-file, or say --public-without-token");
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    address->sockets[address->socket_count++].fd = fd;
    return 0;
}

int server_sockets_adopt(const struct server_config *config, weir_error *err)
{
    int code = 0, n = handover_passed_count();
    for (int i = 0; i < n && code == 0; i++)
        code = handover_adopt_one(FIRST_PASSED + i, config, err);
    const char *keeps = getenv(KEEPS);
    server_opened.passed = n > 0;
    server_opened.shared = n > 0 && (!keeps || keeps[0] == '1');
    const char *ready = getenv(READY);
    if (n > 0 && ready) {
        taken_over_from = atoi(ready);
        if (fcntl(taken_over_from, F_SETFD, FD_CLOEXEC)) /* it is not a descriptor */
            taken_over_from = -1;
    }
    unsetenv(READY);
    unsetenv(KEEPS);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return code;
}

/* ---- handing over ---- */

/* Copies of all sockets, at `from` or above; how many, or -1. */
static int handover_copy_all(int *copies, int from)
{
    int n = 0;
    for (size_t i = 0; i < server_opened.count; i++) {
        const struct server_address *address = &server_opened.addresses[i];
        for (size_t j = 0; j < address->socket_count; j++) {
            copies[n] = fcntl(address->sockets[j].fd, F_DUPFD_CLOEXEC, from);
            if (copies[n] < 0) {
                while (n > 0)
                    close(copies[--n]);
                return -1;
            }
            n++;
        }
    }
    return n;
}

/* ---- which program ---- */

static char program[4096];

void server_program_note(void)
{
    const char *started = (const char *)getauxval(AT_EXECFN);
    char folder[2048] = "";
    bool relative = started && started[0] != '/';
    if (relative && !getcwd(folder, sizeof folder))
        folder[0] = 0;
    snprintf(program, sizeof program, "%s%s%.2000s", folder, relative ? "/" : "",
             started ? started : "/proc/self/exe");
}

/* Our environment with what a successor must know besides, malloc'ed as one piece; pid is filled in
 * later. */
struct environment {
    char pid[32], count[32], keeps[32], ready[32];
    char *all[];
};

static bool handover_is_ours(const char *variable)
{
    static const char *const names[] = {"LISTEN_PID=", "LISTEN_FDS=", "LISTEN_FDNAMES=", KEEPS "=",
                                        READY "="};
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        if (!strncmp(variable, names[i], strlen(names[i])))
            return true;
    }
    return false;
}

static struct environment *handover_make_environment(int n)
{
    size_t count = 0, at = 0;
    while (environ[count])
        count++;
    struct environment *it = calloc(1, sizeof *it + (count + 5) * sizeof it->all[0]);
    if (!it)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (!handover_is_ours(environ[i]))
            it->all[at++] = environ[i];
    }
    snprintf(it->count, sizeof it->count, "LISTEN_FDS=%d", n);
    snprintf(it->keeps, sizeof it->keeps, KEEPS "=%d", server_opened.shared);
    snprintf(it->ready, sizeof it->ready, READY "=%d", FIRST_PASSED + n);
    it->all[at++] = it->pid;
    it->all[at++] = it->count;
    it->all[at++] = it->keeps;
    it->all[at++] = it->ready;
    return it;
}

/* In the child: what is not to be inherited is closed by exec itself. */
static void handover_become_successor(const int *copies, int n, int ready,
                                      struct environment *environment, char *const *argv)
{
    sigset_t none;
    for (int i = 0; i < n; i++)
        dup2(copies[i], FIRST_PASSED + i); /* without CLOEXEC */
    dup2(ready, FIRST_PASSED + n);
    snprintf(environment->pid, sizeof environment->pid, "LISTEN_PID=%ld", (long)getpid());
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL); /* what is no server must hear signals, too */
    execve(program, argv, environment->all);
    int failed = errno;
    ssize_t written = write(ready, &failed, sizeof failed);
    (void)written;
    _exit(127);
}

static int handover_start_successor(const int *copies, int n, int ready, char *const *argv)
{
    struct environment *environment = handover_make_environment(n);
    if (!environment)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        handover_become_successor(copies, n, ready, environment, argv);
    free(environment);
    return pid;
}

/* Starts what stands there now, with the same sockets; the new process's id, or -1 with errno.
 * Behind ret_ready comes one int: IS_READY, or the errno why it could not be started; or the end:
 * it has ended. */
static int handover_start(char *const *argv, int *ret_ready)
{
    static int copies[SERVER_SOCKETS_MAX];
    const int from =
        FIRST_PASSED + SERVER_SOCKETS_MAX + 1; /* out of the way of their new numbers */
    int ends[2];
    int n = handover_copy_all(copies, from);
    if (n < 0)
        return -1;
    int pid = -1;
    if (pipe2(ends, O_CLOEXEC) == 0) {
        int said = fcntl(ends[1], F_DUPFD_CLOEXEC, from);
        if (said >= 0)
            pid = handover_start_successor(copies, n, said, argv);
        int failed = errno;
        close(ends[1]);
        if (said >= 0)
            close(said);
        if (pid < 0)
            close(ends[0]);
        errno = failed;
    }
    int failed = errno;
    for (int i = 0; i < n; i++)
        close(copies[i]);
    errno = failed;
    if (pid < 0)
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *ret_ready = ends[0];
    return pid;
}

void server_listeners_taken_over(void)
{
    int ready = IS_READY;
    if (taken_over_from < 0)
        return;
    ssize_t written = write(taken_over_from, &ready, sizeof ready);
    (void)written; /* nobody waits any more */
    close(taken_over_from);
    taken_over_from = -1;
}

/* ---- the successor ---- */

/*
 * SIGUSR2: another process takes over. It is started from where this one was started and has our
 * sockets; when it says that it is ready, this one drains. Whatever goes wrong is told, and this
 * one goes on.
 */

#define SUCCESSOR_US INT64_C(60000000) /* until one that is started must be ready */

static struct {
    pid_t pid; /* 0: none is pending */
    bool ended;
    int ready; /* it says there that it is ready */
    int64_t until_us;
} successor = {.ready = -1};

static void handover_forget_successor(void)
{
    close(successor.ready);
    successor.ready = -1;
    successor.pid = 0;
}

void server_hand_over(char *const *argv)
{
    if (successor.pid > 0 || getpid() == 1) {
        server_report(successor.pid > 0
                          ? "SIGUSR2: another process is taking over already"
                          : "SIGUSR2: as process 1 it cannot hand over, its container would end");
        return;
    }
    int pid = handover_start(argv, &successor.ready);
    if (pid < 0) {
        server_report("SIGUSR2: cannot start %s: %s; this process continues", program,
                      strerror(errno));
        return;
    }
    successor.pid = pid;
    successor.ended = false;
    successor.until_us = weir__mono_us() + SUCCESSOR_US;
    server_report("SIGUSR2: process %d is started from %s", pid, program);
}

bool server_successor_is_ready(void)
{
    int failed = 0;
    ssize_t got = read(successor.ready, &failed, sizeof failed);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got == sizeof failed && failed == IS_READY) {
        server_report("process %d takes over", successor.pid);
        return true;
    }
    if (got == sizeof failed)
        server_report("SIGUSR2: cannot start %s: %s; this process continues", program,
                      strerror(failed));
    else
        server_report(
            "process %d could not take over: it ended before it was ready; this process continues",
            successor.pid);
    if (!successor.ended)
        kill(successor.pid, SIGKILL); /* one that has let go of us will never say more */
    handover_forget_successor();
    return false;
}

int server_successor_says(void)
{
    return successor.ready;
}

void server_look_after_successor(void)
{
    if (successor.pid == 0 || weir__mono_us() < successor.until_us)
        return;
    server_report("process %d is not ready after %d s and is killed; this process continues",
                  successor.pid, (int)(SUCCESSOR_US / 1000000));
    if (!successor.ended)
        kill(successor.pid, SIGKILL);
    handover_forget_successor();
}

void server_reap(void)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        successor.ended = successor.ended || pid == successor.pid;
}
