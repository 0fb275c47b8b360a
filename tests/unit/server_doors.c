/* Who may come in: connections counted by client against a plain model, tokens, hosts and
 * origins. */
#include "base/random.h"
#include "server/listen.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/un.h>

/* ---- clients ---- */

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&storage;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
        storage.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
        storage.ss_family = AF_INET6;
    else
        storage.ss_family = AF_UNIX;
    return storage;
}

static bool enter(struct server_clients *clients, const char *text)
{
    struct sockaddr_storage it = address(text);
    return server_clients_enter(clients, (const struct sockaddr *)&it);
}

static void leave(struct server_clients *clients, const char *text)
{
    struct sockaddr_storage it = address(text);
    server_clients_leave(clients, (const struct sockaddr *)&it);
}

static void test_who_is_one(void)
{
    struct server_clients *clients;
    CHECK_INT(server_clients_create(2, 100, &clients), 0);
    CHECK(enter(clients, "10.0.0.1") && enter(clients, "10.0.0.1"));
    CHECK(!enter(clients, "10.0.0.1"));
    CHECK(!enter(clients, "::ffff:10.0.0.1")); /* the same, met on an IPv6 socket */
    CHECK(enter(clients, "10.0.0.2"));
    leave(clients, "10.0.0.1");
    CHECK(enter(clients, "10.0.0.1"));
    CHECK(!enter(clients, "10.0.0.1"));
    CHECK(enter(clients, "2001:db8::1") && enter(clients, "2001:db8::2"));
    CHECK(!enter(clients, "2001:db8::ffff:3")); /* the same /64 */
    CHECK(enter(clients, "2001:db8:0:1::1"));   /* the next one */
    CHECK(enter(clients, "a00:1::"));           /* whose first bytes are those of 10.0.0.1 */
    for (int i = 0; i < 10; i++)
        CHECK(enter(clients, "a socket file"));
    leave(clients, "a socket file");
    leave(clients, "10.9.9.9"); /* who never came */
    server_clients_destroy(clients);
    CHECK_INT(server_clients_create(0, 100, &clients), 0); /* no bound */
    for (int i = 0; i < 1000; i++)
        CHECK(enter(clients, "10.0.0.1"));
    server_clients_destroy(clients);
    server_clients_destroy(NULL);
}

/* Comings and goings at random, as many clients as the table is made for. */
static void test_against_model(void)
{
    enum { CLIENTS = 500, EACH = 5, MOST = 1000, ROUNDS = 200000 };
    static int counts[CLIENTS];
    struct server_clients *clients;
    uint64_t random = 20261115;
    int total = 0;
    CHECK_INT(server_clients_create(EACH, MOST, &clients), 0);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t dice = weir__random_next(&random);
        int who = (int)(dice % CLIENTS);
        char text[INET6_ADDRSTRLEN];
        snprintf(text, sizeof text, who % 2 ? "10.0.%d.%d" : "2001:db8:%x:%x::7", who / 250,
                 who % 250);
        if (dice >> 32 & 1 && total < MOST) {
            bool entered = enter(clients, text);
            CHECK(entered == (counts[who] < EACH));
            counts[who] += entered;
            total += entered;
        } else if (counts[who] > 0) {
            leave(clients, text);
            counts[who]--;
            total--;
        }
    }
    for (int who = 0; who < CLIENTS; who++) {
        char text[INET6_ADDRSTRLEN];
        snprintf(text, sizeof text, who % 2 ? "10.0.%d.%d" : "2001:db8:%x:%x::7", who / 250,
                 who % 250);
        for (; counts[who] > 0; counts[who]--)
            leave(clients, text);
        CHECK(enter(clients, text)); /* all are gone, so that everyone fits again */
    }
    server_clients_destroy(clients);
}

/* More different clients than the table is made for: refused, never lost. */
static void test_full(void)
{
    struct server_clients *clients;
    int entered = 0;
    CHECK_INT(server_clients_create(1, 4, &clients), 0);
    for (int i = 0; i < 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "10.1.0.%d", i);
        entered += enter(clients, text);
    }
    CHECK(entered >= 4 && entered < 100);
    for (int i = 0; i < 100; i++) {
        char text[32];
        snprintf(text, sizeof text, "10.1.0.%d", i);
        leave(clients, text);
    }
    CHECK(enter(clients, "10.1.0.1"));
    server_clients_destroy(clients);
}

/* ---- tokens ---- */

static struct server server;

const struct server_protocol_ops server_http1;

void server_report(const char *format, ...)
{
    (void)format;
}

void server_conn_close(struct server_conn *conn)
{
    conn->closing = true;
}

void server_conn_quiet(struct server_conn *conn, int64_t until_us)
{
    conn->quiet_until_us = until_us;
}

bool server_listens_everywhere(void)
{
    return false;
}

bool server_listens_on(struct weir__span host)
{
    return weir__span_is(host, "192.0.2.7");
}

static int access_of(const char *token)
{
    return (int)server_access_of(&server, weir__span_of(token));
}

static void set_tokens(const char *data, const char *admin, bool public_without)
{
    snprintf(server.config.token, SERVER_TOKEN_MAX, "%s", data);
    snprintf(server.config.admin_token, SERVER_TOKEN_MAX, "%s", admin);
    server.config.public_without_token = public_without;
}

static void test_tokens(void)
{
    char longest[SERVER_TOKEN_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[SERVER_TOKEN_MAX - 1] = 0;
    set_tokens("", "", false);
    CHECK_INT(access_of(""), SERVER_ADMIN);
    CHECK_INT(access_of("anything"), SERVER_ADMIN);
    set_tokens("", "", true);
    CHECK_INT(access_of(""), SERVER_DATA);
    set_tokens("data", "", false);
    CHECK_INT(access_of(""), SERVER_NOBODY);
    CHECK_INT(access_of("dat"), SERVER_NOBODY);
    CHECK_INT(access_of("datA"), SERVER_NOBODY);
    CHECK_INT(access_of("data "), SERVER_NOBODY);
    CHECK_INT(access_of("data"), SERVER_ADMIN);
    CHECK_INT(server_access_of(&server, (struct weir__span){"data\0", 5}), SERVER_NOBODY);
    set_tokens("data", "admin", false);
    CHECK_INT(access_of("data"), SERVER_DATA);
    CHECK_INT(access_of("admin"), SERVER_ADMIN);
    CHECK_INT(access_of("other"), SERVER_NOBODY);
    set_tokens("", "admin", false);
    CHECK_INT(access_of(""), SERVER_DATA);
    CHECK_INT(access_of("wrong"), SERVER_DATA);
    CHECK_INT(access_of("admin"), SERVER_ADMIN);
    set_tokens(longest, "", false);
    CHECK_INT(access_of(longest), SERVER_ADMIN);
    longest[SERVER_TOKEN_MAX - 1] = 'x';
    longest[SERVER_TOKEN_MAX + 1] = 0;
    CHECK_INT(access_of(longest), SERVER_NOBODY);
}

/* ---- hosts and origins ---- */

static bool host(const char *text)
{
    return server_host_allowed(&server, weir__span_of(text));
}

static bool origin(const char *text, const char *own)
{
    return server_origin_allowed(&server, weir__span_of(text), weir__span_of(own));
}

static void test_hosts(void)
{
    static const char *const names[] = {"weir.example", "Gate.Internal", NULL};
    static const char *const good[] = {
        "",
        "localhost",
        "LOCALHOST:80",
        "localhost.",
        "a.localhost",
        "127.0.0.1",
        "127.0.0.1:7311",
        "127.9.8.7",
        "[::1]",
        "[::1]:7311",
        "[::ffff:127.0.0.1]:1",
        "192.0.2.7:99",
        "192.0.2.7",
        "weir.example:80",
        "WEIR.EXAMPLE",
        "gate.internal",
    };
    static const char *const bad[] = {
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evillocalhost",
        ".localhost.example",
        "192.0.2.8",
        "[::2]",
        "::1",
        "[::1",
        "[::1]x",
        "[::1]:8x",
        "localhost:x",
        "localhost:80:80",
        ":80",
        "[]",
        ".",
        "0.0.0.0",
        "x.weir.example",
        "weir.example.evil",
        "127.0.0.1@evil",
        "2130706433",
        "0x7f.1",
        "[:80",
    };
    for (size_t i = 0; i < WEIR__COUNT(good); i++) {
        server.config.allowed_hosts = names;
        test_check(host(good[i]), __FILE__, __LINE__, good[i]);
    }
    for (size_t i = 0; i < WEIR__COUNT(bad); i++)
        test_check(!host(bad[i]), __FILE__, __LINE__, bad[i]);
    server.config.allowed_hosts = NULL;
    CHECK(!host("weir.example"));
    CHECK(host("localhost"));
}

static void test_origins(void)
{
    CHECK(origin("http://localhost:7311", "localhost:7311"));
    CHECK(origin("https://127.0.0.1", "localhost"));
    CHECK(origin("HTTP://LOCALHOST", "localhost"));
    CHECK(origin("http://weir.example", "weir.example")); /* Host is judged by itself */
    CHECK(!origin("http://evil.example", "localhost:7311"));
    CHECK(!origin("null", "localhost"));
    CHECK(!origin("", "localhost"));
    CHECK(!origin("http://", "localhost"));
    CHECK(!origin("file://localhost", "localhost"));
    CHECK(!origin("http://localhost/path", "localhost"));
    CHECK(!origin("http://localhost@evil.example", "localhost"));
    CHECK(!origin("localhost", "localhost"));
    CHECK(!origin("https:/localhost", "localhost"));
}

int main(void)
{
    test_who_is_one();
    test_against_model();
    test_full();
    test_tokens();
    test_hosts();
    test_origins();
    return test_report();
}
