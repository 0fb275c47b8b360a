/* See listen.h. */
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096
#define UNREAD_BYTES (256 << 10) /* that the kernel keeps for a peer that does not read */

struct server_opened server_opened;

/* ---- addresses ---- */

static int listen_read_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len,
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
                          "invalid address \"%s\": expected 127.0.0.1:%d, [::1]:%d or unix:/path, "
                          "with a port up to 65535",
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

bool server_address_is_private(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_UNIX)
        return true;
    if (address->ss_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* ---- opening ---- */

/* A socket file that nobody listens on any more. */
static void listen_clear_path(const struct sockaddr_storage *address)
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

static int listen_open_socket(const char *text, const struct sockaddr_storage *address,
                              socklen_t len, int *ret, weir_error *err)
{
    int yes = 1, unread = UNREAD_BYTES;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot listen on %s: %s", text, strerror(errno));
    if (address->ss_family == AF_UNIX) {
        listen_clear_path(address);
    } else {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &unread, sizeof unread); /* for those accepted */
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
static bool listen_is_taken(const struct sockaddr_storage *address, socklen_t len)
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

static int listen_open_one(const struct server_config *config, size_t i, weir_error *err)
{
    const char *text = config->listens[i].address;
    struct server_address *it = &server_opened.addresses[i];
    int code = listen_read_address(text, &it->bound, &it->bound_len, err);
    if (code)
        return code;
    if (!server_address_is_private(&it->bound) && !config->token[0] &&
        !config->public_without_token)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "%s is reachable from other hosts and no token is set; set one with "
                          "--token-file, or say --public-without-token",
                          text);
    if (listen_is_taken(&it->bound, it->bound_len))
        return weir__fail(
            err, WEIR_ESYSTEM, 0,
            "cannot listen on %s: it is in use; stop what runs there, or choose another "
            "with --listen",
            text);
    code = listen_open_socket(text, &it->bound, it->bound_len, &it->sockets[0].fd, err);
    if (code == 0) {
        it->tls = config->listens[i].tls;
        it->socket_count = 1;
        server_opened.count = i + 1;
        it->bound_len = sizeof it->bound; /* the port that was chosen, where 0 was asked for */
        getsockname(it->sockets[0].fd, (struct sockaddr *)&it->bound, &it->bound_len);
        server_address_note_file(it);
    }
    return code;
}

/* The other threads' sockets, before the first connection comes. A path has one for all. */
static int listen_open_others(const struct server_config *config, size_t i, weir_error *err)
{
    struct server_address *it = &server_opened.addresses[i];
    int code = 0;
    while (it->socket_count < (size_t)config->threads && it->bound.ss_family != AF_UNIX &&
           code == 0) {
        code = listen_open_socket(config->listens[i].address, &it->bound, it->bound_len,
                                  &it->sockets[it->socket_count].fd, err);
        it->socket_count += code == 0;
    }
    return code;
}

int server_listeners_open(struct server *server, weir_error *err)
{
    int code = server_sockets_adopt(&server->config, err);
    if (code || server_opened.passed)
        return code;
    for (size_t i = 0; i < server->config.listen_count && code == 0; i++)
        code = listen_open_one(&server->config, i, err);
    for (size_t i = 0; i < server_opened.count && code == 0; i++)
        code = listen_open_others(&server->config, i, err);
    return code;
}

/* ---- threads and their sockets ---- */

static void listen_use(struct server_address *address, size_t i, struct server_listener *ret)
{
    struct server_socket *it = &address->sockets[i];
    atomic_fetch_add(&it->users, 1);
    *ret = (struct server_listener){it->fd, address->tls, it};
}

int server_listeners_for(struct server *server, int thread, struct server_listener **ret,
                         size_t *ret_count, weir_error *err)
{
    size_t threads = (size_t)server->config.threads, own = (size_t)thread, n = 0;
    size_t room = server_opened.count * (SERVER_THREADS_MAX / threads + 1);
    struct server_listener *all = calloc(room, sizeof *all);
    if (!all)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the listeners");
    for (size_t i = 0; i < server_opened.count; i++) {
        struct server_address *it = &server_opened.addresses[i];
        if (it->socket_count <= own) { /* fewer than threads: some have one together */
            listen_use(it, own % it->socket_count, &all[n++]);
            continue;
        }
        for (size_t j = own; j < it->socket_count; j += threads)
            listen_use(it, j, &all[n++]);
    }
    *ret = all;
    *ret_count = n;
    return 0;
}

void server_listener_close(struct server_listener *listener)
{
    if (listener->fd >= 0 && atomic_fetch_sub(&listener->socket->users, 1) == 1)
        close(listener->fd);
    listener->fd = -1;
}

void server_address_note_file(struct server_address *address)
{
    struct stat info;
    if (address->bound.ss_family != AF_UNIX ||
        lstat(((const struct sockaddr_un *)&address->bound)->sun_path, &info) ||
        !S_ISSOCK(info.st_mode))
        return;
    address->device = info.st_dev;
    address->inode = info.st_ino;
}

/* Another's file may stand there by now: only what we made, or were handed for good, is removed. */
void server_listeners_remove(const struct server *server)
{
    if (server_opened.shared || atomic_load(&server->handed_over))
        return;
    for (size_t i = 0; i < server_opened.count; i++) {
        const struct server_address *it = &server_opened.addresses[i];
        const char *path = ((const struct sockaddr_un *)&it->bound)->sun_path;
        struct stat info;
        if (it->inode && lstat(path, &info) == 0 && info.st_dev == it->device &&
            info.st_ino == it->inode)
            unlink(path);
    }
}

/* ---- telling ---- */

void server_listener_text(size_t i, struct weir__buffer *ret)
{
    char host[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_storage *address = &server_opened.addresses[i].bound;
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

bool server_listens_everywhere(void)
{
    for (size_t i = 0; i < server_opened.count; i++) {
        const struct sockaddr_storage *it = &server_opened.addresses[i].bound;
        if (it->ss_family == AF_INET &&
            ((const struct sockaddr_in *)it)->sin_addr.s_addr == htonl(INADDR_ANY))
            return true;
        if (it->ss_family == AF_INET6 &&
            IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)it)->sin6_addr))
            return true;
    }
    return false;
}

bool server_listens_on(struct weir__span host)
{
    for (size_t i = 0; i < server_opened.count; i++) {
        char text[128];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        server_listener_text(i, &buffer);
        const char *colon = strrchr(text, ':');
        const char *start = text[0] == '[' ? text + 1 : text;
        const char *end = text[0] == '[' ? colon - 1 : colon;
        if (host.len == (size_t)(end - start) && !memcmp(start, host.data, host.len))
            return true;
    }
    return false;
}
