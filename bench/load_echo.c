/*
 * The floor: what any server on one thread of epoll pays for its sockets and nothing else.
 *
 *   bench-echo resp|http      prints its port, serves on loopback until standard input ends
 *
 * resp sends every byte back (a command comes back as an array, which is a reply); http counts
 * empty lines and sends a fixed answer for each. Neither looks at anything else; requests have no
 * bodies.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 2000, SIZE = 1 << 16, EVENTS = 128 };

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n"
                             "Content-Type: application/json\r\n\r\n{\"allowed\":true}";

static bool http;
static size_t matched[CONNECTIONS_MAX]; /* bytes of an empty line seen, by socket */

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "echo: %s: %s\n", what, strerror(errno));
    exit(1);
}

static bool send_all(int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* How many requests end in these bytes. */
static unsigned count_ends(int fd, const char *bytes, size_t len)
{
    static const char end[] = "\r\n\r\n";
    unsigned count = 0;
    size_t run = matched[fd];
    for (size_t i = 0; i < len; i++) {
        if (run == 0) {
            const char *next = memchr(bytes + i, '\r', len - i);
            if (!next)
                break;
            i = (size_t)(next - bytes);
        }
        run = bytes[i] == end[run] ? run + 1 : bytes[i] == '\r';
        if (run == 4) {
            count++;
            run = 0;
        }
    }
    matched[fd] = run;
    return count;
}

/* Answers what is there; false: the client is gone. */
static bool serve(int fd)
{
    static char in[SIZE], out[SIZE];
    ssize_t n = recv(fd, in, sizeof in, 0);
    if (n <= 0)
        return false;
    if (!http)
        return send_all(fd, in, (size_t)n);
    size_t len = 0;
    for (unsigned count = count_ends(fd, in, (size_t)n); count > 0; count--) {
        if (len + sizeof answer > sizeof out) {
            if (!send_all(fd, out, len))
                return false;
            len = 0;
        }
        memcpy(out + len, answer, sizeof answer - 1);
        len += sizeof answer - 1;
    }
    return send_all(fd, out, len);
}

static int listen_on(struct sockaddr_in *ret)
{
    socklen_t size = sizeof *ret;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)ret, sizeof *ret) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)ret, &size))
        die("cannot listen");
    return fd;
}

static void watch(int epoll, int fd)
{
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        die("cannot watch");
}

static void welcome(int epoll, int listener)
{
    int one = 1, fd = accept(listener, NULL, NULL);
    if (fd < 0)
        return;
    if (fd >= CONNECTIONS_MAX) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    matched[fd] = 0;
    watch(epoll, fd);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at;
    if (argc != 2 || (strcmp(argv[1], "resp") != 0 && strcmp(argv[1], "http") != 0)) {
        fputs("usage: bench-echo resp|http\n", stderr);
        return 2;
    }
    http = !strcmp(argv[1], "http");
    int listener = listen_on(&at), epoll = epoll_create1(0);
    watch(epoll, listener);
    watch(epoll, STDIN_FILENO);
    printf("%u\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                welcome(epoll, listener);
            else if (fd == STDIN_FILENO)
                return 0;
            else if (!serve(fd))
                close(fd);
        }
    }
}
