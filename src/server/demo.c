/* The built-in load: artificial users. Rates rise and fall, and a few users ask for much more than
 * their share. */
#include "server/server.h"

#include "base/clock.h"
#include "base/random.h"
#include "server/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TICK_US 50000
#define PER_TICK 12 /* at most */

static struct {
    struct server *server;
    pthread_t thread;
    atomic_bool stopping;
    bool running;
} demo;

/* The port of the first plain TCP listener on IPv4. */
static int demo_find_port(void)
{
    for (size_t i = 0; i < server_opened.count; i++) {
        const struct server_address *it = &server_opened.addresses[i];
        if (!it->tls && it->bound.ss_family == AF_INET)
            return ntohs(((const struct sockaddr_in *)&it->bound)->sin_port);
    }
    return 0;
}

static int demo_connect_self(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 1};
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* One made-up request. Users are as unequal as real ones: the first asks most. */
static void demo_put_request(struct weir__buffer *out, uint64_t *random)
{
    uint64_t pick = weir__random_next(random) % 100;
    unsigned user = pick < 45 ? 1 : pick < 60 ? 2 : 3 + (unsigned)(weir__random_next(random) % 40);
    const char *token = demo.server->config.token;
    if (pick == 99)
        weir__put_format(out, "GET /v1/take?attr.path=/login&attr.ip=192.0.2.%u HTTP/1.1\r\n",
                         user);
    else
        weir__put_format(out, "GET /v1/take?attr.path=/api/items&attr.user=user-%u HTTP/1.1\r\n",
                         user);
    weir__put_text(out, "host: localhost\r\n");
    if (token[0])
        weir__put_format(out, "authorization: Bearer %s\r\n", token);
    weir__put_text(out, "\r\n");
}

/* Sends a pipeline and throws the answers away; false: the connection is gone. */
static bool demo_send_some(int fd, uint64_t count, uint64_t *random)
{
    char text[PER_TICK * 512], answers[65536];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    for (uint64_t i = 0; i < count; i++)
        demo_put_request(&out, random);
    if (send(fd, text, out.len, MSG_NOSIGNAL) != (ssize_t)out.len)
        return false;
    return recv(fd, answers, sizeof answers, 0) > 0;
}

static void *demo_load(void *unused)
{
    uint64_t random = 1, ticks = 0;
    int port = demo_find_port(), fd = -1;
    (void)unused;
    while (!atomic_load(&demo.stopping) && port) {
        if (fd < 0)
            fd = demo_connect_self(port);
        uint64_t wave = ticks++ % 400;
        uint64_t count = 2 + (wave < 200 ? wave : 400 - wave) / 20;
        if (fd >= 0 && !demo_send_some(fd, count > PER_TICK ? PER_TICK : count, &random)) {
            close(fd);
            fd = -1;
        }
        weir__clock_sleep_us(TICK_US);
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

int server_demo_start(struct server *server)
{
    demo.server = server;
    demo.running = !pthread_create(&demo.thread, NULL, demo_load, NULL);
    return demo.running ? 0 : WEIR_ESYSTEM;
}

void server_demo_stop(void)
{
    if (!demo.running)
        return;
    atomic_store(&demo.stopping, true);
    pthread_join(demo.thread, NULL);
    demo.running = false;
}
