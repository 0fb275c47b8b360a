/*
 * Sockets from one process to another: taken over from systemd or a predecessor (LISTEN_FDS), handed over to
 * a successor. All of them go, those of every thread: connections wait in each.
 */
#include "server/listen_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_PASSED 3
#define KEEPS "WEIR_SOCKETS_KEPT" /* 0: the predecessor is the only other one who has them */

/* ---- taking over ---- */

static int passed_count(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (!pid || !count || atol(pid) != (long)getpid())
        return 0;
    long n = atol(count);
    return n < 0 ? 0 : n > SERVER_SOCKETS_MAX ? SERVER_SOCKETS_MAX : (int)n;
}

/* The address that a socket is bound to: one that is known already, or a new one. */
static struct server_address *address_of(int fd, const struct server_config *config)
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
    return address;
}

static int adopt_one(int fd, const struct server_config *config, weir_error *err)
{
    int listening = 0;
    socklen_t len = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) || !listening)
        return weir__fail(err, WEIR_EINVAL, 0, "descriptor %d of LISTEN_FDS is no listening socket",
                          fd);
    struct server_address *address = address_of(fd, config);
    if (!address)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "descriptor %d of LISTEN_FDS is too much: %d addresses with %d sockets "
                          "each can be handed over",
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
    int code = 0, n = passed_count();
    for (int i = 0; i < n && code == 0; i++)
        code = adopt_one(FIRST_PASSED + i, config, err);
    const char *keeps = getenv(KEEPS);
    server_opened.passed = n > 0;
    server_opened.shared = n > 0 && (!keeps || keeps[0] == '1');
    unsetenv(KEEPS);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return code;
}

/* ---- handing over ---- */

/* Copies of all sockets, at `from` or above; how many, or -1. */
static int copy_all(int *copies, int from)
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

/* The program by its name: what stands there now may be newer than what runs. */
static const char *program(void)
{
    static const char deleted[] = " (deleted)";
    static char path[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    size_t suffix = sizeof deleted - 1;
    if (len <= 0)
        return "/proc/self/exe";
    path[len] = 0;
    if ((size_t)len > suffix && !strcmp(path + len - suffix, deleted))
        path[(size_t)len - suffix] = 0;
    return path;
}

static void become_successor(const int *copies, int n, char *const *argv)
{
    char text[32];
    for (int i = 0; i < n; i++)
        dup2(copies[i], FIRST_PASSED + i); /* without CLOEXEC */
    snprintf(text, sizeof text, "%ld", (long)getpid());
    setenv("LISTEN_PID", text, 1);
    snprintf(text, sizeof text, "%d", n);
    setenv("LISTEN_FDS", text, 1);
    setenv(KEEPS, server_opened.shared ? "1" : "0", 1);
    execv(program(), argv);
    execv("/proc/self/exe", argv); /* it is gone, or no program any more */
    _exit(127);
}

int server_listeners_hand_over(char *const *argv)
{
    static int copies[SERVER_SOCKETS_MAX];
    int n = copy_all(copies,
                     FIRST_PASSED + SERVER_SOCKETS_MAX); /* out of the way of their new numbers */
    if (n < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        become_successor(copies, n, argv);
    int failed = errno;
    for (int i = 0; i < n; i++)
        close(copies[i]);
    errno = failed;
    return pid;
}
