/* See listen.h. */
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define FIRST_PASSED 3 /* as systemd hands them over */

/* What was opened or handed over before the threads start. Opened ones: a thread's after the other's. */
static struct {
    struct server_listener sockets[SERVER_SOCKETS_MAX];
    size_t socket_count;
    struct sockaddr_storage bound[SERVER_SOCKETS_MAX]; /* of the first thread's, or of all passed */
    socklen_t bound_len[SERVER_SOCKETS_MAX];
    size_t count;
    bool passed; /* by LISTEN_FDS: every thread listens on all of them */
} opened;

/* ---- addresses ---- */

static int read_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len,
                        weir_error *err)
{
    char host[256];
    const char *colon = strrchr(text, ':');
    if (!strncmp(text, "unix:", 5)) {
        struct sockaddr_un *local = (struct sockaddr_un *)ret;
        if (strlen(text + 5) >= sizeof local->sun_path || !text[5])
            return weir__fail(err, WEIR_EINVAL, 0, "\"%s\": a path of 1 to %zu bytes is needed",
                              text, sizeof local->sun_path - 1);
        memset(local, 0, sizeof *local);
        local->sun_family = AF_UNIX;
        strcpy(local->sun_path, text + 5);
        *ret_len = sizeof *local;
        return 0;
    }
    size_t len = colon ? (size_t)(colon - text) : 0;
    int64_t port;
    if (!colon || len >= sizeof host ||
        weir__read_whole(weir__span_of(colon + 1), "a port", 0, UINT16_MAX, &port, NULL))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "\"%s\" is no address to listen on; write 127.0.0.1:%d, [::1]:%d or "
                          "unix:/path, with a port up to 65535",
                          text, SERVER_PORT, SERVER_PORT);
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    len -= bracketed ? 2 : 0;
    memcpy(host, text + bracketed, len);
    host[len] = 0;
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found;
    int code = getaddrinfo(len ? host : NULL, colon + 1, &hints, &found);
    if (code)
        return weir__fail(err, WEIR_EINVAL, 0, "cannot listen on \"%s\": %s", text,
                          gai_strerror(code));
    memcpy(ret, found->ai_addr, found->ai_addrlen);
    *ret_len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

static bool is_private(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_UNIX)
        return true;
    if (address->ss_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* ---- opening ---- */

/* A socket file that nobody listens on any more. */
static void clear_path(const struct sockaddr_storage *address)
{
    const struct sockaddr_un *local = (const struct sockaddr_un *)address;
    struct stat info;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && !stat(local->sun_path, &info) && S_ISSOCK(info.st_mode) &&
        connect(probe, (const struct sockaddr *)local, sizeof *local) && errno == ECONNREFUSED)
        unlink(local->sun_path);
    if (probe >= 0)
        close(probe);
}

static int open_socket(const char *text, const struct sockaddr_storage *address, socklen_t len,
                       int *ret, weir_error *err)
{
    int yes = 1;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot listen on %s: %s", text, strerror(errno));
    if (address->ss_family == AF_UNIX) {
        clear_path(address);
    } else {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    }
    if (address->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)address, len) || listen(fd, BACKLOG)) {
        weir__fail(err, WEIR_ESYSTEM, 0, "cannot listen on %s: %s%s", text, strerror(errno),
                   errno == EADDRINUSE ? "; stop what runs there, or choose another with --listen"
                                       : "");
        close(fd);
        return WEIR_ESYSTEM;
    }
    *ret = fd;
    return 0;
}

/* Somebody else's server on the port would silently share it by SO_REUSEPORT: find out first. */
static bool is_taken(const struct sockaddr_storage *address, socklen_t len)
{
    if (address->ss_family == AF_UNIX)
        return false;
    int yes = 1, fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (address->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    bool taken = bind(fd, (const struct sockaddr *)address, len) && errno == EADDRINUSE;
    close(fd);
    return taken;
}

static int open_one(const struct server_config *config, size_t i, weir_error *err)
{
    const char *text = config->listens[i].address;
    struct sockaddr_storage *address = &opened.bound[i];
    socklen_t *len = &opened.bound_len[i];
    int code = read_address(text, address, len, err);
    if (code)
        return code;
    if (!is_private(address) && !config->token[0] && !config->public_without_token)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "%s is reachable from other hosts and no token is set; set one with "
                          "--token-file, or say --public-without-token",
                          text);
    if (is_taken(address, *len))
        return weir__fail(
            err, WEIR_ESYSTEM, 0,
            "cannot listen on %s: it is in use; stop what runs there, or choose another "
            "with --listen",
            text);
    code = open_socket(text, address, *len, &opened.sockets[i].fd, err);
    if (code == 0) {
        opened.sockets[i].tls = config->listens[i].tls;
        opened.count = opened.socket_count = i + 1;
        *len = sizeof *address; /* the port that was chosen, where 0 was asked for */
        getsockname(opened.sockets[i].fd, (struct sockaddr *)address, len);
    }
    return code;
}

/* ---- sockets handed over ---- */

static size_t passed_count(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (!pid || !count || atol(pid) != (long)getpid())
        return 0;
    long n = atol(count);
    return n < 0 ? 0 : n > SERVER_SOCKETS_MAX ? SERVER_SOCKETS_MAX : (size_t)n;
}

static int adopt(const struct server_config *config, size_t n, weir_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int fd = FIRST_PASSED + (int)i, listening = 0;
        socklen_t len = sizeof listening;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) || !listening)
            return weir__fail(err, WEIR_EINVAL, 0,
                              "descriptor %d of LISTEN_FDS is no listening socket", fd);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        opened.sockets[i] =
            (struct server_listener){fd, config->listens[i % config->listen_count].tls};
        opened.bound_len[i] = sizeof opened.bound[i];
        getsockname(fd, (struct sockaddr *)&opened.bound[i], &opened.bound_len[i]);
        if (!is_private(&opened.bound[i]) && !config->token[0] && !config->public_without_token)
            return weir__fail(
                err, WEIR_EINVAL, 0,
                "a socket handed over is reachable from other hosts and no token is set; "
                "set one with --token-file, or say --public-without-token");
    }
    opened.count = opened.socket_count = n;
    opened.passed = true;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return 0;
}

/* The other threads' sockets: all are there before the first connection is, and all are handed over. */
static int open_others(const struct server_config *config, weir_error *err)
{
    int code = 0;
    for (size_t n = opened.count; n < opened.count * (size_t)config->threads && code == 0; n++) {
        size_t i = n % opened.count;
        opened.sockets[n].tls = opened.sockets[i].tls;
        if (opened.bound[i].ss_family == AF_UNIX) /* one path, one socket */
            opened.sockets[n].fd = fcntl(opened.sockets[i].fd, F_DUPFD_CLOEXEC, 0);
        else
            code = open_socket(config->listens[i].address, &opened.bound[i], opened.bound_len[i],
                               &opened.sockets[n].fd, err);
        if (code == 0 && opened.sockets[n].fd < 0)
            code = weir__fail(err, WEIR_ESYSTEM, 0, "no listener: %s", strerror(errno));
        opened.socket_count = code ? n : n + 1;
    }
    return code;
}

int server_listeners_open(struct server *server, weir_error *err)
{
    size_t passed = passed_count();
    if (passed > 0)
        return adopt(&server->config, passed, err);
    int code = 0;
    for (size_t i = 0; i < server->config.listen_count && code == 0; i++)
        code = open_one(&server->config, i, err);
    return code ? code : open_others(&server->config, err);
}

int server_listeners_for(struct server *server, int thread, struct server_listener *ret,
                         size_t *ret_count, weir_error *err)
{
    size_t count = opened.passed ? opened.socket_count : opened.count;
    (void)server;
    for (size_t i = 0; i < count; i++) {
        ret[i] = opened.sockets[opened.passed ? i : (size_t)thread * opened.count + i];
        ret[i].fd = fcntl(ret[i].fd, F_DUPFD_CLOEXEC, 0); /* the thread closes its own */
        if (ret[i].fd < 0)
            return weir__fail(err, WEIR_ESYSTEM, 0, "no listener: %s", strerror(errno));
        *ret_count = i + 1;
    }
    return 0;
}

void server_listeners_close(void)
{
    for (size_t i = 0; i < opened.socket_count; i++)
        close(opened.sockets[i].fd);
    opened.socket_count = 0;
}

void server_listener_close(struct server_listener *listener)
{
    close(listener->fd);
}

/* ---- handing over ---- */

int server_listeners_hand_over(struct server *server, char *const *argv)
{
    int saved[SERVER_SOCKETS_MAX];
    (void)server;
    int beyond = FIRST_PASSED + (int)opened.socket_count;
    for (size_t i = 0; i < opened.socket_count;
         i++) { /* out of the way of the numbers they will get */
        saved[i] = fcntl(opened.sockets[i].fd, F_DUPFD_CLOEXEC, beyond);
        if (saved[i] < 0)
            return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        char text[32];
        for (size_t i = 0; i < opened.socket_count; i++)
            dup2(saved[i], FIRST_PASSED + (int)i); /* without CLOEXEC */
        snprintf(text, sizeof text, "%ld", (long)getpid());
        setenv("LISTEN_PID", text, 1);
        snprintf(text, sizeof text, "%zu", opened.socket_count);
        setenv("LISTEN_FDS", text, 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    for (size_t i = 0; i < opened.socket_count; i++)
        close(saved[i]);
    return pid;
}

/* ---- telling ---- */

void server_listener_text(const struct server *server, size_t i, struct weir__buffer *ret)
{
    char host[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_storage *address = &opened.bound[i];
    (void)server;
    if (address->ss_family == AF_UNIX) {
        weir__put_format(ret, "unix:%s", ((const struct sockaddr_un *)address)->sun_path);
    } else if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        weir__put_format(ret, "%s:%d", host, ntohs(in->sin_port));
    } else {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        weir__put_format(ret, "[%s]:%d", host, ntohs(in->sin6_port));
    }
}

/* Of sockets that were handed over, those of one thread: the others have the same addresses. */
size_t server_listener_count(void)
{
    return opened.count;
}

bool server_listener_is_tls(size_t i)
{
    return opened.sockets[i].tls;
}

bool server_listens_on(const struct server *server, const char *host, size_t len)
{
    for (size_t i = 0; i < opened.count; i++) {
        char text[128];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        server_listener_text(server, i, &buffer);
        const char *colon = strrchr(text, ':');
        const char *start = text[0] == '[' ? text + 1 : text;
        const char *end = text[0] == '[' ? colon - 1 : colon;
        if (len == (size_t)(end - start) && !memcmp(start, host, len))
            return true;
    }
    return false;
}
