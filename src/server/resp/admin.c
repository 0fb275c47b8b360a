/*
 * What Redis clients say besides asking: greetings, names, pings. Enough that redis-cli, redis-py,
 * node-redis, ioredis and redigo connect and pool as they do with Redis; no data commands.
 */
#include "server/resp/resp.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct context {
    struct server_conn *conn;
    const struct weir__span *args;
    size_t n;
    struct weir__buffer *out;
};

static void resp_put_ok(struct weir__buffer *out)
{
    weir__resp_put_simple(out, "OK", 2);
}

static void resp_put_text(struct weir__buffer *out, const char *text)
{
    weir__resp_put_bulk(out, text, strlen(text));
}

static void resp_wrong_count(const struct context *it)
{
    char name[32];
    size_t len = it->args[0].len < sizeof name ? it->args[0].len : sizeof name - 1;
    for (size_t i = 0; i < len; i++)
        name[i] = (char)(it->args[0].data[i] | 32);
    server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID,
                      "ERR wrong number of arguments for '%.*s' command", (int)len, name);
}

static bool resp_needs_token(const struct server_conn *conn)
{
    return conn->access == SERVER_NOBODY &&
           server_open_access(conn->thread->server) == SERVER_NOBODY;
}

static void resp_ping(const struct context *it)
{
    if (it->n > 2)
        resp_wrong_count(it);
    else if (it->n == 2)
        weir__resp_put_bulk(it->out, it->args[1].data, it->args[1].len);
    else
        weir__resp_put_simple(it->out, "PONG", 4);
}

static void resp_echo(const struct context *it)
{
    if (it->n != 2)
        resp_wrong_count(it);
    else
        weir__resp_put_bulk(it->out, it->args[1].data, it->args[1].len);
}

/* The user's name is not asked for: the token alone opens. */
static bool resp_authenticate(const struct context *it, struct weir__span token)
{
    enum server_access access = server_conn_access(it->conn, token);
    if (access == SERVER_NOBODY) {
        server_resp_error(it->conn, it->out, SERVER_FAULT_UNAUTHORIZED,
                          "WRONGPASS invalid token; pass the server's token as the password");
        return false;
    }
    it->conn->access = access;
    return true;
}

static void resp_auth(const struct context *it)
{
    const struct server_config *config = &it->conn->thread->server->config;
    if (it->n != 2 && it->n != 3)
        resp_wrong_count(it);
    else if (!config->token[0] && !config->admin_token[0])
        server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID,
                          "ERR AUTH was sent, but this server needs no token");
    else if (resp_authenticate(it, it->args[it->n - 1]))
        resp_put_ok(it->out);
}

static void resp_put_hello(const struct context *it)
{
    int protocol = it->conn->resp_protocol;
    weir__resp_put_header(it->out, WEIR__RESP_MAP, 7, protocol);
    resp_put_text(it->out, "server");
    resp_put_text(it->out, "weir");
    resp_put_text(it->out, "version");
    resp_put_text(it->out, WEIR_VERSION);
    resp_put_text(it->out, "proto");
    weir__resp_put_integer(it->out, protocol);
    resp_put_text(it->out, "id");
    weir__resp_put_integer(it->out, (int64_t)it->conn->id);
    resp_put_text(it->out, "mode");
    resp_put_text(it->out, "standalone");
    resp_put_text(it->out, "role");
    resp_put_text(it->out, "master");
    resp_put_text(it->out, "modules");
    weir__resp_put_header(it->out, WEIR__RESP_ARRAY, 0, protocol);
}

/* HELLO [protover [AUTH user token] [SETNAME name]] */
static void resp_hello(const struct context *it)
{
    int64_t protocol = it->conn->resp_protocol;
    weir_error err;
    if (it->n > 1 && (weir__read_whole(it->args[1], "the protocol", 2, 3, &protocol, &err))) {
        server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID,
                          "NOPROTO unsupported protocol version: expected 2 or 3");
        return;
    }
    bool named = false, authenticated = false;
    for (size_t i = 2; i < it->n;) {
        if (weir__span_is_word(it->args[i], "AUTH") && i + 2 < it->n && !authenticated) {
            if (!resp_authenticate(it, it->args[i + 2]))
                return;
            authenticated = true;
            i += 3;
        } else if (weir__span_is_word(it->args[i], "SETNAME") && i + 1 < it->n && !named) {
            named = true;
            i += 2;
        } else {
            server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID,
                              "ERR syntax error in HELLO: [2|3 [AUTH user token] [SETNAME name]]");
            return;
        }
    }
    if (resp_needs_token(it->conn)) {
        server_resp_error(it->conn, it->out, SERVER_FAULT_UNAUTHORIZED,
                          "NOAUTH HELLO must be called with the token: HELLO 3 AUTH default TOKEN");
        return;
    }
    it->conn->resp_protocol = (int)protocol;
    resp_put_hello(it);
}

static void resp_client(const struct context *it)
{
    if (it->n < 2) {
        resp_wrong_count(it);
        return;
    }
    struct weir__span what = it->args[1];
    if (weir__span_is_word(what, "SETNAME") || weir__span_is_word(what, "SETINFO") ||
        weir__span_is_word(what, "NO-EVICT") || weir__span_is_word(what, "NO-TOUCH"))
        resp_put_ok(it->out);
    else if (weir__span_is_word(what, "ID"))
        weir__resp_put_integer(it->out, (int64_t)it->conn->id);
    else if (weir__span_is_word(what, "GETNAME"))
        weir__resp_put_null(it->out, it->conn->resp_protocol);
    else if (weir__span_is_word(what, "INFO") || weir__span_is_word(what, "LIST")) {
        char text[128];
        struct weir__buffer line = weir__buffer_over(text, sizeof text);
        weir__put_format(&line, "id=%" PRIu64 " addr=%s resp=%d\n", it->conn->id,
                         it->conn->peer_text, it->conn->resp_protocol);
        weir__resp_put_bulk(it->out, text, line.len);
    } else
        server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID,
                          "ERR CLIENT has SETNAME, SETINFO, ID, GETNAME, INFO here, not \"%.*s\"",
                          (int)(what.len > 40 ? 40 : what.len), what.data);
}

static void resp_select_database(const struct context *it)
{
    if (it->n != 2)
        resp_wrong_count(it);
    else if (weir__span_is(it->args[1], "0"))
        resp_put_ok(it->out);
    else
        server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID,
                          "ERR DB index is out of range: there is only 0");
}

/* What COMMAND lists: everything but the test clock. */
static bool resp_is_listed(enum weir__verb verb)
{
    return (weir__verbs[verb].homes & WEIR__VERB_RESP) && verb != WEIR__VERB_CLOCK;
}

static size_t resp_count_listed(void)
{
    size_t count = 0;
    for (int i = 0; i < WEIR__VERB_COUNT; i++)
        count += resp_is_listed((enum weir__verb)i);
    return count;
}

/* name arity flags first last step, as Redis describes its commands. */
static void resp_put_command(const struct context *it, enum weir__verb verb)
{
    static const int arities[WEIR__VERB_COUNT] = {
        [WEIR__VERB_TAKE] = -3,  [WEIR__VERB_PEEK] = -3,   [WEIR__VERB_TAKEALL] = -5,
        [WEIR__VERB_SETTLE] = 5, [WEIR__VERB_RESET] = 2,   [WEIR__VERB_ACQUIRE] = -3,
        [WEIR__VERB_RENEW] = 4,  [WEIR__VERB_RELEASE] = 4, [WEIR__VERB_THROTTLE] = -5,
        [WEIR__VERB_SHOW] = 2,   [WEIR__VERB_DECIDE] = -3,
    };
    WEIR__CHECK(resp_is_listed(verb) && arities[verb] != 0);
    int protocol = it->conn->resp_protocol,
        key = verb == WEIR__VERB_TAKEALL || weir__verbs[verb].keys == WEIR__VERB_NO_KEYS ? 0 : 1;
    weir__resp_put_header(it->out, WEIR__RESP_ARRAY, 6, protocol);
    resp_put_text(it->out, weir__verbs[verb].name);
    weir__resp_put_integer(it->out, arities[verb]);
    weir__resp_put_header(it->out, WEIR__RESP_SET, 1, protocol);
    weir__resp_put_simple(it->out, "fast", 4);
    weir__resp_put_integer(it->out, key);
    weir__resp_put_integer(it->out, key);
    weir__resp_put_integer(it->out, key);
}

static void resp_put_commands(const struct context *it)
{
    weir__resp_put_header(it->out, WEIR__RESP_ARRAY, resp_count_listed(), it->conn->resp_protocol);
    for (int i = 0; i < WEIR__VERB_COUNT; i++) {
        if (resp_is_listed((enum weir__verb)i))
            resp_put_command(it, (enum weir__verb)i);
    }
}

/* Those that are named, null for what is not a command. */
static void resp_put_named_commands(const struct context *it)
{
    enum weir__verb verb;
    weir__resp_put_header(it->out, WEIR__RESP_ARRAY, it->n - 2, it->conn->resp_protocol);
    for (size_t i = 2; i < it->n; i++) {
        if (weir__verb_of_name(it->args[i].data, it->args[i].len, &verb) && resp_is_listed(verb))
            resp_put_command(it, verb);
        else
            weir__resp_put_null(it->out, it->conn->resp_protocol);
    }
}

static void resp_put_command_names(const struct context *it)
{
    weir__resp_put_header(it->out, WEIR__RESP_ARRAY, resp_count_listed(), it->conn->resp_protocol);
    for (int i = 0; i < WEIR__VERB_COUNT; i++) {
        if (resp_is_listed((enum weir__verb)i))
            resp_put_text(it->out, weir__verbs[i].name);
    }
}

static void resp_command(const struct context *it)
{
    struct weir__span what = it->n > 1 ? it->args[1] : weir__span_of("INFO");
    if (weir__span_is_word(what, "COUNT"))
        weir__resp_put_integer(it->out, (int64_t)resp_count_listed());
    else if (weir__span_is_word(what, "DOCS"))
        weir__resp_put_header(it->out, WEIR__RESP_MAP, 0, it->conn->resp_protocol);
    else if (weir__span_is_word(what, "LIST"))
        resp_put_command_names(it);
    else if (!weir__span_is_word(what, "INFO"))
        server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID,
                          "ERR COMMAND has COUNT, DOCS, INFO and LIST here");
    else if (it->n > 2)
        resp_put_named_commands(it);
    else
        resp_put_commands(it);
}

static void resp_info(const struct context *it)
{
    struct server *server = it->conn->thread->server;
    char text[1024];
    struct weir__buffer body = weir__buffer_over(text, sizeof text);
    weir_zone_info zone = {0};
    weir__put_format(&body,
                     "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n"
                     "weir_version:%s\r\nrole:master\r\n# Clients\r\nconnected_clients:%lld\r\n"
                     "# Store\r\nstore:%s\r\n",
                     WEIR_VERSION, (long long)atomic_load(&server->connections),
                     server->store_kind);
    if (!server->remote && !weir_store_info(server->store, &zone))
        weir__put_format(&body, "states:%" PRIu64 "\r\ncapacity:%" PRIu64 "\r\n", zone.keys,
                         zone.capacity);
    weir__resp_put_bulk(it->out, text, body.len);
}

static void resp_quit(const struct context *it)
{
    resp_put_ok(it->out);
    server_conn_close(it->conn);
}

static void resp_reset(const struct context *it)
{
    it->conn->access = SERVER_NOBODY;
    it->conn->resp_protocol = 2;
    weir__resp_put_simple(it->out, "RESET", 5);
}

static void resp_needs_admin(const struct context *it, enum weir__verb verb)
{
    assert(weir__verbs[verb].caller == WEIR__VERB_ADMIN);
    server_resp_error(it->conn, it->out, SERVER_FAULT_UNAUTHORIZED,
                      "NOPERM '%s' needs the admin token", weir__verbs[verb].name);
}

/* WEIR.CLOCK us: the test clock, there only where it was enabled. */
static void resp_set_clock(const struct context *it)
{
    struct server *server = it->conn->thread->server;
    int64_t us;
    weir_error err;
    if (!server->config.test_clock)
        server_resp_error(it->conn, it->out, SERVER_FAULT_UNKNOWN,
                          "ERR the test clock is off; start the server with --test-clock");
    else if (server_resp_access(it->conn) < SERVER_ADMIN)
        resp_needs_admin(it, WEIR__VERB_CLOCK);
    else if (it->n != 2)
        resp_wrong_count(it);
    else if (weir__read_whole(it->args[1], "the time", 0, WEIR__EXACT_MAX - 1, &us, &err))
        server_resp_error(it->conn, it->out, SERVER_FAULT_INVALID, "ERR %s", err.message);
    else {
        atomic_store(&server->test_now_us, us);
        resp_put_ok(it->out);
    }
}

static const struct {
    const char *name;
    void (*run)(const struct context *);
    bool open; /* without a token, too */
} commands[] = {
    {"ping", resp_ping, false},       {"echo", resp_echo, false},
    {"hello", resp_hello, true},      {"auth", resp_auth, true},
    {"client", resp_client, false},   {"select", resp_select_database, false},
    {"command", resp_command, false}, {"info", resp_info, false},
    {"quit", resp_quit, true},        {"reset", resp_reset, true},
};

const char *server_resp_command(size_t i)
{
    return i < WEIR__COUNT(commands) ? commands[i].name : NULL;
}

/* ERR unknown command 'x'; there are WEIR.TAKE, … */
static void resp_unknown_command(const struct context *it)
{
    char names[WEIR__VERB_COUNT * 24];
    struct weir__buffer list = weir__buffer_over(names, sizeof names);
    for (int i = 0; i < WEIR__VERB_COUNT; i++) {
        if (!resp_is_listed((enum weir__verb)i))
            continue;
        weir__put_text(&list, list.len ? ", " : "");
        weir__put_text(&list, weir__verbs[i].name);
    }
    assert(!list.cut);
    for (size_t i = 0; i < list.len; i++) {
        if (names[i] >= 'a' && names[i] <= 'z')
            names[i] = (char)(names[i] - 'a' + 'A');
    }
    struct weir__span name = it->args[0];
    server_resp_error(it->conn, it->out, SERVER_FAULT_UNKNOWN,
                      "ERR unknown command '%.*s': expected one of %.*s",
                      (int)(name.len > 40 ? 40 : name.len), name.data, (int)list.len, names);
}

void server_resp_admin(struct server_conn *conn, const struct weir__span *args, size_t n,
                       struct weir__buffer *out)
{
    struct context it = {conn, args, n, out};
    enum weir__verb verb;
    for (size_t i = 0; i < WEIR__COUNT(commands); i++) {
        if (!weir__span_is_word(args[0], commands[i].name))
            continue;
        if (commands[i].open || !resp_needs_token(conn)) {
            commands[i].run(&it);
            return;
        }
        break;
    }
    if (resp_needs_token(conn))
        server_resp_error(conn, out, SERVER_FAULT_UNAUTHORIZED,
                          "NOAUTH Authentication required: AUTH with the server's token");
    else if (!weir__verb_of_name(args[0].data, args[0].len, &verb))
        resp_unknown_command(&it);
    else if (verb == WEIR__VERB_CLOCK)
        resp_set_clock(&it);
    else
        resp_needs_admin(&it, verb);
}
