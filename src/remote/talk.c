/* See talk.h. */
#include "remote/talk.h"

#include "remote/scripts.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Says why; returns the result. */
WEIR__PRINTF(3, 4)
static enum weir__talk_result talk_fail(struct weir__talk *talk, enum weir__talk_result result,
                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(talk->why, WEIR__WHY_SIZE, format, args);
    va_end(args);
    return result;
}

bool weir__node_starts(const char *data, const struct weir__resp_node *node, const char *word)
{
    size_t len = strlen(word);
    return node->len >= len && !strncasecmp(data + node->at, word, len);
}

enum weir__talk_result weir__talk_open(struct weir__talk *talk, const struct weir__redis_url *url,
                                       const struct weir__redis_host *host,
                                       const struct weir__patience *patience, size_t bytes,
                                       uint32_t nodes, char why[WEIR__WHY_SIZE])
{
    struct weir__resp_limits limits = {WEIR__RESP_DEPTH_MAX, 65536, 65536, (uint32_t)bytes};
    *talk = (struct weir__talk){
        .conn = {-1, NULL}, .patience = *patience, .in_size = bytes, .why = why};
    talk->in = malloc(bytes);
    talk->nodes = malloc(nodes * sizeof *talk->nodes);
    if (!talk->in || !talk->nodes)
        return talk_fail(talk, WEIR__TALK_FAILED, "out of memory");
    weir__resp_begin(&talk->reader, WEIR__RESP_REPLIES, &limits, talk->nodes, nodes);
    int code = weir__conn_open(url, host, patience, &talk->conn, why);
    return code == 0 ? WEIR__TALK_OK : code == -1 ? WEIR__TALK_FAILED : WEIR__TALK_REFUSED;
}

void weir__talk_close(struct weir__talk *talk)
{
    weir__conn_close(&talk->conn);
    free(talk->in);
    free(talk->nodes);
}

static enum weir__talk_result talk_wait_for(struct weir__talk *talk, short events)
{
    if (weir__conn_wait(&talk->conn, events, &talk->patience) > 0)
        return WEIR__TALK_OK;
    return talk_fail(talk, WEIR__TALK_FAILED, "the server does not answer in time");
}

static enum weir__talk_result talk_closed(struct weir__talk *talk)
{
    return talk_fail(talk, WEIR__TALK_FAILED, "the server closed the connection");
}

static enum weir__talk_result talk_send_all(struct weir__talk *talk, const char *data, size_t len)
{
    size_t at = 0;
    while (at < len || weir__conn_holds(&talk->conn)) {
        long sent = weir__conn_write(&talk->conn, data + at, len - at);
        if (sent < 0)
            return talk_closed(talk);
        at += (size_t)sent;
        if (sent == 0 && talk_wait_for(talk, POLLOUT))
            return WEIR__TALK_FAILED;
    }
    return WEIR__TALK_OK;
}

enum weir__talk_result weir__talk_send(struct weir__talk *talk, size_t n, const char *const words[])
{
    struct weir__buffer buffer = weir__buffer_growing();
    assert(talk->conn.fd >= 0);
    weir__resp_put_header(&buffer, WEIR__RESP_ARRAY, n, 2);
    for (size_t i = 0; i < n; i++)
        weir__resp_put_bulk(&buffer, words[i], strlen(words[i]));
    enum weir__talk_result result = buffer.cut ? talk_fail(talk, WEIR__TALK_FAILED, "out of memory")
                                               : talk_send_all(talk, buffer.data, buffer.len);
    weir__buffer_free(&buffer);
    return result;
}

enum weir__talk_result weir__talk_read(struct weir__talk *talk)
{
    assert(talk->start <= talk->end && talk->end <= talk->in_size);
    talk->start += talk->data ? talk->reader.size : 0;
    talk->data = NULL;
    if (talk->in)
        memmove(talk->in, talk->in + talk->start, talk->end - talk->start);
    talk->end -= talk->start;
    talk->start = 0;
    for (;;) {
        bool drained;
        enum weir__resp_status status = weir__resp_next(&talk->reader, talk->in, talk->end);
        if (status == WEIR__RESP_MESSAGE) {
            talk->data = talk->in;
            return WEIR__TALK_OK;
        }
        if (status == WEIR__RESP_BROKEN)
            return talk_fail(talk, WEIR__TALK_FAILED, "not a Redis server: %s", talk->reader.why);
        long n =
            weir__conn_read(&talk->conn, talk->in + talk->end, talk->in_size - talk->end, &drained);
        if (n < 0)
            return talk_closed(talk);
        talk->end += (size_t)n;
        if (n == 0 && talk_wait_for(talk, POLLIN))
            return WEIR__TALK_FAILED;
    }
}

enum weir__talk_result weir__talk_ask(struct weir__talk *talk, size_t n, const char *const words[])
{
    enum weir__talk_result result = weir__talk_send(talk, n, words);
    return result ? result : weir__talk_read(talk);
}

/* ---- who we are ---- */

/* The first line of the password file. It is read each time, since it may change. */
static bool talk_read_password(const char *path, char ret[WEIR__PASSWORD_SIZE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, WEIR__PASSWORD_SIZE - 1);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return false;
    ret[n] = 0;
    ret[strcspn(ret, "\r\n")] = 0;
    return true;
}

/* An error reply becomes the reason. It is a refusal if it is about us: who we are, or (`asked`)
 * what we asked for beyond a sign of life. Everything else is an outage, which passes: LOADING,
 * MISCONF, a server that has no more room for clients, a proxy without a server. */
static enum weir__talk_result talk_refused(struct weir__talk *talk, const char *what, bool asked)
{
    static const char *const about_us[] = {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"};
    const struct weir__resp_node *node = &talk->nodes[0];
    snprintf(talk->why, WEIR__WHY_SIZE, "%s: %.*s", what, (int)(node->len > 160 ? 160 : node->len),
             talk->data + node->at);
    if (weir__node_starts(talk->data, node, "ERR max number of clients"))
        return WEIR__TALK_FAILED;
    for (size_t i = 0; i < WEIR__COUNT(about_us); i++) {
        if (weir__node_starts(talk->data, node, about_us[i]))
            return WEIR__TALK_REFUSED;
    }
    return asked && weir__node_starts(talk->data, node, "ERR ") ? WEIR__TALK_REFUSED
                                                                : WEIR__TALK_FAILED;
}

/* The same; `what`: what an error reply means. */
static enum weir__talk_result talk_tell(struct weir__talk *talk, size_t n,
                                        const char *const words[], const char *what)
{
    enum weir__talk_result result = weir__talk_ask(talk, n, words);
    if (result == WEIR__TALK_OK && talk->nodes[0].type == WEIR__RESP_ERROR)
        return talk_refused(talk, what, true);
    return result;
}

bool weir__redis_password(const struct weir__redis_url *url, char ret[WEIR__PASSWORD_SIZE])
{
    snprintf(ret, WEIR__PASSWORD_SIZE, "%s", url->password);
    return !url->password_file[0] || talk_read_password(url->password_file, ret);
}

enum weir__talk_result weir__talk_auth(struct weir__talk *talk, const struct weir__redis_url *url)
{
    char password[WEIR__PASSWORD_SIZE];
    if (!weir__redis_password(url, password))
        return talk_fail(talk, WEIR__TALK_REFUSED, "the password file %.200s cannot be read",
                         url->password_file);
    if (!password[0])
        return WEIR__TALK_OK;
    const char *with_user[] = {"AUTH", url->user, password}, *without[] = {"AUTH", password};
    const bool user = url->user[0];
    return talk_tell(talk, user ? 3 : 2, user ? with_user : without,
                     "the server does not let us in");
}

/* For CLIENT LIST. A server that does not know or allow it goes without. */
enum weir__talk_result weir__talk_introduce(struct weir__talk *talk)
{
    static const char *const commands[][4] = {{"CLIENT", "SETNAME", "weir", NULL},
                                              {"CLIENT", "SETINFO", "LIB-NAME", "weir"},
                                              {"CLIENT", "SETINFO", "LIB-VER", WEIR_VERSION}};
    enum weir__talk_result result = WEIR__TALK_OK;
    for (size_t i = 0; i < WEIR__COUNT(commands) && !result; i++)
        result = weir__talk_send(talk, commands[i][3] ? 4 : 3, commands[i]);
    for (size_t i = 0; i < WEIR__COUNT(commands) && !result; i++)
        result = weir__talk_read(talk);
    return result;
}

/* ---- what the server is ---- */

static enum weir__talk_result talk_select_db(struct weir__talk *talk, int32_t db)
{
    char number[16];
    snprintf(number, sizeof number, "%d", (int)db);
    const char *words[] = {"SELECT", number};
    return talk_tell(talk, 2, words, "no such database");
}

/* Whether a text is somewhere in the answer. */
static bool talk_says(const struct weir__talk *talk, const char *text)
{
    const struct weir__resp_node *node = &talk->nodes[0];
    return node->type == WEIR__RESP_BULK &&
           memmem(talk->data + node->at, node->len, text, strlen(text));
}

/* PING fails while a server loads its data. ROLE shows replicas, which decide nothing. A node that
 * comes back to its cluster says CLUSTERDOWN to every call until it has found the others. Where we
 * may not ask, the server is taken for a master that is ready. */
static enum weir__talk_result talk_check_ready(struct weir__talk *talk, bool cluster)
{
    const char *ping[] = {"PING"}, *role[] = {"ROLE"}, *info[] = {"CLUSTER", "INFO"};
    if (weir__talk_send(talk, 1, ping) ||
        weir__talk_send(talk, cluster ? 2 : 1, cluster ? info : role))
        return WEIR__TALK_FAILED;
    enum weir__talk_result result = weir__talk_read(talk);
    if (result)
        return result;
    if (talk->nodes[0].type == WEIR__RESP_ERROR &&
        !weir__node_starts(talk->data, &talk->nodes[0], "NOPERM"))
        return talk_refused(talk, "the server is not ready", false);
    result = weir__talk_read(talk);
    if (result == WEIR__TALK_OK && cluster && talk_says(talk, "cluster_state:fail"))
        return talk_fail(talk, WEIR__TALK_FAILED,
                         "the server is not ready: CLUSTER INFO says cluster_state:fail");
    if (result || cluster || talk->nodes[0].type != WEIR__RESP_ARRAY || talk->reader.count < 2 ||
        !weir__node_starts(talk->data, &talk->nodes[1], "slave"))
        return result;
    return talk_fail(talk, WEIR__TALK_FAILED, "the server is a replica, which cannot decide");
}

/* Whether we have the command that was just answered. Only the text of the error shows it. */
static bool talk_has_command(const struct weir__talk *talk)
{
    const struct weir__resp_node *answer = &talk->nodes[0];
    return answer->type != WEIR__RESP_ERROR ||
           (!weir__node_starts(talk->data, answer, "ERR unknown command") &&
            !weir__node_starts(talk->data, answer, "NOPERM"));
}

/* Whether the module lets tests set its clock: if it has the command, it refuses one without
 * arguments. */
static enum weir__talk_result talk_probe_clock(struct weir__talk *talk, struct weir__server *ret)
{
    const char *words[] = {"WEIR.CLOCK"};
    enum weir__talk_result result = weir__talk_ask(talk, 1, words);
    if (result == WEIR__TALK_OK)
        ret->test_clock = talk_has_command(talk);
    return result;
}

/* Whether we have the module. A take that charges nothing shows it: without rights the server says
 * NOPERM, without the module it knows no such command. Any other answer, also MOVED or OOM, means
 * that it is there. */
static enum weir__talk_result talk_probe_module(struct weir__talk *talk,
                                                const struct weir__redis_url *url,
                                                struct weir__server *ret)
{
    char key[sizeof url->prefix + 8];
    snprintf(key, sizeof key, "%sprobe", url->prefix);
    const char *words[] = {"WEIR.TAKE", key, "token-bucket 1/s", "COST", "0"};
    ret->module = false;
    if (url->engine != WEIR__ENGINE_AUTO && url->engine != WEIR__ENGINE_MODULE)
        return WEIR__TALK_OK;
    enum weir__talk_result result = weir__talk_ask(talk, WEIR__COUNT(words), words);
    if (result)
        return result;
    ret->module = talk_has_command(talk);
    if (ret->module)
        return talk_probe_clock(talk, ret);
    if (url->engine == WEIR__ENGINE_AUTO)
        return WEIR__TALK_OK;
    return talk_fail(talk, WEIR__TALK_REFUSED,
                     "engine=module, but the server has not loaded weir_redis.so for us");
}

/* ---- engine=function ---- */

/* The library that the server has. Version 0: it has none, or one without a version. */
struct talk_library {
    int64_t version, serves;
};

static enum weir__talk_result talk_ask_library(struct weir__talk *talk, struct talk_library *ret)
{
    const char *words[] = {"FCALL", "weir_version", "0"};
    enum weir__talk_result result = weir__talk_ask(talk, WEIR__COUNT(words), words);
    if (result)
        return result;
    const struct weir__resp_node *answer = talk->nodes;
    *ret = (struct talk_library){0, 0};
    if (answer[0].type == WEIR__RESP_ERROR &&
        !weir__node_starts(talk->data, &answer[0], "ERR Function not found"))
        return talk_refused(talk, "engine=function", true);
    if (answer[0].type == WEIR__RESP_ARRAY && answer[0].len == 2 &&
        answer[1].type == WEIR__RESP_INTEGER && answer[2].type == WEIR__RESP_INTEGER)
        *ret = (struct talk_library){answer[1].integer, answer[2].integer};
    return WEIR__TALK_OK;
}

/* Loads our library where there is no library or an older one. A newer one that serves our calls is
 * good; one that does not is refused. */
static enum weir__talk_result talk_bring_library(struct weir__talk *talk)
{
    int64_t ours = weir__library_version;
    struct talk_library there;
    enum weir__talk_result result = talk_ask_library(talk, &there);
    if (result)
        return result;
    bool serves = there.serves == weir__library_serves;
    if (serves && there.version >= ours)
        return result;
    if (there.version >= ours)
        return talk_fail(
            talk, WEIR__TALK_REFUSED,
            "engine=function: the server's library weir is version %lld, which does not serve "
            "version %lld; upgrade this program",
            (long long)there.version, (long long)ours);
    const char *words[] = {"FUNCTION", "LOAD", "REPLACE",
                           weir__script_named(WEIR__SCRIPT_LIBRARY)->text};
    result = weir__talk_ask(talk, WEIR__COUNT(words), words);
    if (result || talk->nodes[0].type != WEIR__RESP_ERROR || serves)
        return result;
    char what[96] = "engine=function: the library weir cannot be loaded";
    if (there.version)
        snprintf(what, sizeof what,
                 "engine=function: the library weir, version %lld, cannot be replaced",
                 (long long)there.version);
    return talk_refused(talk, what, true);
}

enum weir__talk_result weir__handshake(const struct weir__redis_url *url,
                                       const struct weir__redis_host *host,
                                       const struct weir__patience *patience,
                                       struct weir__conn *ret, struct weir__server *ret_server,
                                       char why[WEIR__WHY_SIZE])
{
    struct weir__talk talk;
    struct weir__server server = {0};
    enum weir__talk_result result = weir__talk_open(&talk, url, host, patience, 65536, 1024, why);
    if (result == WEIR__TALK_OK)
        result = weir__talk_auth(&talk, url);
    if (result == WEIR__TALK_OK && url->db != 0)
        result = talk_select_db(&talk, url->db);
    if (result == WEIR__TALK_OK)
        result = talk_check_ready(&talk, url->kind == WEIR__REDIS_CLUSTER);
    if (result == WEIR__TALK_OK)
        result = weir__talk_introduce(&talk);
    if (result == WEIR__TALK_OK)
        result = talk_probe_module(&talk, url, &server);
    if (result == WEIR__TALK_OK && url->engine == WEIR__ENGINE_FUNCTION)
        result = talk_bring_library(&talk);
    if (result == WEIR__TALK_OK) {
        *ret = talk.conn;
        *ret_server = server;
        talk.conn = (struct weir__conn){-1, NULL};
    }
    weir__talk_close(&talk);
    return result;
}
