/* A small HTTP/1.1 client: addresses as people type them, then requests and answers. */
#include "cli/http_client.h"

#include "base/span.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- addresses ---- */

static int http_bad_address(weir_error *err, const char *address, const char *what)
{
    return weir__fail(err, WEIR_EINVAL, 0,
                      "invalid address \"%.200s\": %s; expected http://host:port, "
                      "https://host:port, host:port or unix:/path",
                      address, what);
}

/* Whether the text may stand in the head of a request. */
static bool http_is_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    return true;
}

static bool http_copy(char *to, size_t room, const char *text, size_t len)
{
    if (len >= room)
        return false;
    memcpy(to, text, len);
    to[len] = '\0';
    return true;
}

static int http_read_unix(const char *address, struct cli_http *ret, weir_error *err)
{
    const char *const path = address + strlen("unix:");
    ret->where.kind = WEIR__REDIS_UNIX;
    if (!*path || !http_copy(ret->where.path, sizeof ret->where.path, path, strlen(path)))
        return http_bad_address(err, address, "the path of a socket has 1 to 107 bytes");
    strcpy(ret->host, "localhost");
    return WEIR_OK;
}

/* "name", "name:1", "[::1]", "[::1]:1"; without a port *ret keeps its port. */
static bool http_read_host(const char *text, size_t len, struct weir__redis_host *ret)
{
    const char *const end = text + len;
    const char *name = text, *stop = memchr(text, ':', len);
    if (*text == '[') {
        name++;
        stop = memchr(text, ']', len);
        if (!stop)
            return false;
    }
    stop = stop ? stop : end;
    if (stop == name || !http_copy(ret->name, sizeof ret->name, name, (size_t)(stop - name)))
        return false;
    const char *const rest = *text == '[' ? stop + 1 : stop;
    if (rest == end)
        return true;
    int64_t port;
    if (*rest != ':' || !weir__span_whole((struct weir__span){rest + 1, (size_t)(end - rest - 1)},
                                          1, UINT16_MAX, &port))
        return false;
    ret->port = (uint16_t)port;
    return true;
}

static int http_read_address(const char *address, struct cli_http *ret, weir_error *err)
{
    struct weir__redis_host *const host = &ret->where.hosts[0];
    const char *rest = strstr(address, "://");
    host->port = CLI_HTTP_PORT;
    if (rest) {
        ret->where.tls = !strncasecmp(address, "https://", 8);
        if (!ret->where.tls && strncasecmp(address, "http://", 7) != 0)
            return http_bad_address(err, address, "the scheme is not http or https");
        host->port = ret->where.tls ? 443 : 80;
    }
    rest = rest ? rest + 3 : address;
    const size_t len = strcspn(rest, "/");
    const char *const path = rest + len;
    size_t path_len = strlen(path);
    while (path_len > 0 && path[path_len - 1] == '/')
        path_len--;
    if (!http_is_plain(rest, strlen(rest)) || strpbrk(rest, "?#@"))
        return http_bad_address(err, address, "it contains a character that is not allowed");
    if (len == 0 || !http_read_host(rest, len, host) ||
        !http_copy(ret->host, sizeof ret->host, rest, len) ||
        !http_copy(ret->prefix, sizeof ret->prefix, path, path_len))
        return http_bad_address(err, address, "the host or the port is wrong");
    ret->where.host_count = 1;
    ret->where.verify = true;
    return WEIR_OK;
}

int cli_http_open(const char *address, const char *token, struct cli_http *ret, weir_error *err)
{
    struct cli_http *const http = calloc(1, sizeof *http);
    if (!http)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    int code = !strncmp(address, "unix:", 5) ? http_read_unix(address, http, err)
                                             : http_read_address(address, http, err);
    const size_t token_len = token ? strlen(token) : 0;
    if (code == WEIR_OK && (token_len >= sizeof http->token || !http_is_plain(token, token_len)))
        code = weir__fail(err, WEIR_EINVAL, 0,
                          "invalid token: expected at most %zu printable bytes without spaces",
                          sizeof http->token - 1);
    if (code == WEIR_OK) {
        http_copy(http->token, sizeof http->token, token_len ? token : "", token_len);
        http->conn.fd = http->stop_fd = -1;
        *ret = *http;
    }
    free(http);
    return code;
}

void cli_http_close(struct cli_http *http)
{
    if (http->conn.fd >= 0)
        weir__conn_close(&http->conn);
    free(http->data);
    http->data = NULL;
    http->room = 0;
}

/* ---- bytes ---- */

static int http_fail_late(struct cli_http *http)
{
    return weir__fail(http->err, WEIR_EUNREACHABLE, 0, "no answer within %d seconds",
                      (int)(CLI_HTTP_PATIENCE_US / 1000000));
}

static int http_send_all(struct cli_http *http, const char *data, size_t len)
{
    struct weir__conn *const conn = &http->conn;
    while (len > 0 || weir__conn_holds(conn)) {
        const long n = weir__conn_write(conn, data, len);
        if (n < 0)
            return weir__fail(http->err, WEIR_EUNREACHABLE, 0, "the connection was closed");
        assert((size_t)n <= len);
        data += n;
        len -= (size_t)n;
        if (n == 0 && weir__conn_wait(conn, POLLOUT, &http->patience) <= 0)
            return http_fail_late(http);
    }
    return WEIR_OK;
}

/* Makes room for more bytes and a NUL. */
static int http_make_room(struct cli_http *http)
{
    if (http->len + 1 < http->room)
        return WEIR_OK;
    if (http->room >= CLI_HTTP_HEAD_MAX + CLI_HTTP_BODY_MAX)
        return weir__fail(http->err, WEIR_EINVAL, 0, "the answer is longer than %zu MiB",
                          CLI_HTTP_BODY_MAX >> 20);
    const size_t room = http->room ? http->room * 2 : CLI_HTTP_HEAD_MAX;
    char *const data = realloc(http->data, room);
    if (!data)
        return weir__fail(http->err, WEIR_ENOMEM, 0, "out of memory");
    http->data = data;
    http->room = room;
    return WEIR_OK;
}

/* Receives at least one byte: 1; 0: the connection has ended; or a WEIR_E…. */
static int http_receive(struct cli_http *http)
{
    const int code = http_make_room(http);
    if (code)
        return code;
    for (;;) {
        bool drained;
        const long n = weir__conn_read(&http->conn, http->data + http->len,
                                       http->room - http->len - 1, &drained);
        if (n < 0)
            return 0;
        if (n > 0) {
            http->len += (size_t)n;
            assert(http->len < http->room); /* there is room for the NUL */
            http->data[http->len] = '\0';
            return 1;
        }
        if (weir__conn_wait(&http->conn, POLLIN, &http->patience) <= 0)
            return http_fail_late(http);
    }
}

/* ---- answers ---- */

struct head {
    int status;
    size_t size; /* of the head itself */
    int64_t length;
    bool chunked, closes;
};

static int http_fail_strange(struct cli_http *http, const char *what)
{
    return weir__fail(http->err, WEIR_EINVAL, 0, "the server there does not speak HTTP: %s", what);
}

/* The value of the field, if the line has that name. */
static const char *http_value_of(const char *line, const char *name)
{
    const size_t len = strlen(name);
    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    return line + len + 1 + strspn(line + len + 1, " \t");
}

static int http_read_fields(struct cli_http *http, const char *line, struct head *head)
{
    for (; *line != '\r'; line = strstr(line, "\r\n") + 2) {
        const char *value;
        if ((value = http_value_of(line, "content-length"))) {
            char *stop;
            head->length = strtoll(value, &stop, 10);
            if (stop == value || head->length < 0 || head->length > (int64_t)CLI_HTTP_BODY_MAX)
                return http_fail_strange(http, "its Content-Length is invalid or too large");
        } else if ((value = http_value_of(line, "transfer-encoding"))) {
            head->chunked = !strncasecmp(value, "chunked", 7);
        } else if ((value = http_value_of(line, "connection"))) {
            head->closes = !strncasecmp(value, "close", 5);
        }
    }
    return WEIR_OK;
}

static int http_read_head(struct cli_http *http, struct head *head)
{
    const char *end;
    while (http->len == 0 || !(end = strstr(http->data, "\r\n\r\n"))) {
        if (http->len > CLI_HTTP_HEAD_MAX)
            return http_fail_strange(http, "the head of its answer does not end");
        if (http->len >= 5 && memcmp(http->data, "HTTP/", 5) != 0)
            return http_fail_strange(http, "its answer does not begin with HTTP/");
        const int more = http_receive(http);
        if (more < 0)
            return more;
        if (more == 0)
            return weir__fail(http->err, WEIR_EUNREACHABLE, 0,
                              "the connection was closed without an answer");
    }
    int minor;
    if (sscanf(http->data, "HTTP/1.%1d %3d", &minor, &head->status) != 2)
        return http_fail_strange(http, "its first line is not HTTP/1");
    head->size = (size_t)(end + 4 - http->data);
    head->length = -1;
    head->closes = minor == 0;
    const int code = http_read_fields(http, strstr(http->data, "\r\n") + 2, head);
    if (head->status == 204 || head->status == 304)
        head->length = 0;
    return code;
}

/* Receives until there are that many bytes. */
static int http_receive_until(struct cli_http *http, size_t len)
{
    while (http->len < len) {
        const int more = http_receive(http);
        if (more < 0)
            return more;
        if (more == 0)
            return weir__fail(http->err, WEIR_EUNREACHABLE, 0,
                              "the connection was closed in the middle of the answer");
    }
    return WEIR_OK;
}

/* Finds the end of the line that begins at `at`, and receives as much as needed; 0 or a WEIR_E…. */
static int http_receive_line(struct cli_http *http, size_t at, size_t *ret_end)
{
    for (size_t wanted = at + 2;; wanted = http->len + 1) {
        const int code = http_receive_until(http, wanted);
        if (code)
            return code;
        const char *const end = memmem(http->data + at, http->len - at, "\r\n", 2);
        if (end) {
            *ret_end = (size_t)(end - http->data);
            return WEIR_OK;
        }
        if (http->len - at > CLI_HTTP_HEAD_MAX)
            return http_fail_strange(http, "a line does not end");
    }
}

/* Joins the chunks of a body in place, after the head. *ret becomes its length. */
static int http_read_chunks(struct cli_http *http, const struct head *head, size_t *ret)
{
    size_t at = head->size, body = 0;
    for (;;) {
        size_t line_end = 0;
        int code = http_receive_line(http, at, &line_end);
        if (code)
            return code;
        char *stop;
        const unsigned long long size = strtoull(http->data + at, &stop, 16);
        if (stop == http->data + at || size > CLI_HTTP_BODY_MAX - body)
            return http_fail_strange(http, "the size of a chunk is invalid or too large");
        at = line_end + 2;
        if (size == 0)
            break;
        code = http_receive_until(http, at + size + 2);
        if (code)
            return code;
        assert(head->size + body <= at && at + size <= http->len);
        memmove(http->data + head->size + body, http->data + at, size);
        body += size;
        at += size + 2;
    }
    for (size_t line_end = 0; line_end != at;) { /* trailers, and an empty line */
        at = line_end ? line_end + 2 : at;
        const int code = http_receive_line(http, at, &line_end);
        if (code)
            return code;
    }
    *ret = body;
    return WEIR_OK;
}

static int http_read_body(struct cli_http *http, struct head *head, size_t *ret)
{
    if (head->chunked)
        return http_read_chunks(http, head, ret);
    if (head->length >= 0) {
        *ret = (size_t)head->length;
        return http_receive_until(http, head->size + (size_t)head->length);
    }
    head->closes = true;
    int more;
    while ((more = http_receive(http)) > 0)
        ;
    *ret = http->len - head->size;
    return more;
}

/* ---- one request ---- */

static int http_connect_now(struct cli_http *http)
{
    char why[WEIR__WHY_SIZE];
    const int code =
        weir__conn_open(&http->where, &http->where.hosts[0], &http->patience, &http->conn, why);
    if (code == 0)
        return WEIR_OK;
    if (code == -2)
        return weir__fail(http->err, WEIR_EINVAL, 0,
                          "%s; set SSL_CERT_FILE to a file of authorities to trust", why);
    /* The reason begins with the address, which the caller prints anyway. */
    const bool local = http->where.kind == WEIR__REDIS_UNIX;
    const char *const where = local ? http->where.path : http->where.hosts[0].name;
    const bool said = !strncmp(why, where, strlen(where));
    const char *const reason = said ? strstr(why + strlen(where), ": ") : NULL;
    return weir__fail(http->err, WEIR_EUNREACHABLE, 0, "%s", reason ? reason + 2 : why);
}

/* One request; a body of NULL means GET. */
struct question {
    const char *path, *body;
    size_t len;
};

static int http_send_request(struct cli_http *http, const struct question *question)
{
    char text[2048];
    struct weir__buffer request = weir__buffer_over(text, sizeof text);
    weir__put_format(&request, "%s %s%s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n",
                     question->body ? "POST" : "GET", http->prefix, question->path, http->host);
    if (question->body)
        weir__put_format(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                         question->len);
    if (http->token[0])
        weir__put_format(&request, "Authorization: Bearer %s\r\n", http->token);
    weir__put_text(&request, "User-Agent: weir/" WEIR_VERSION "\r\n\r\n");
    int code = http_send_all(http, text, request.len);
    return code || !question->body ? code : http_send_all(http, question->body, question->len);
}

static int http_read_reply(struct cli_http *http, struct cli_http_reply *ret)
{
    struct head head = {0};
    size_t body = 0;
    int code = http_read_head(http, &head);
    if (code == WEIR_OK)
        code = http_read_body(http, &head, &body);
    if (code != WEIR_OK)
        return code;
    if (head.closes)
        weir__conn_close(&http->conn);
    *ret = (struct cli_http_reply){head.status, http->data + head.size, body};
    ret->body[body] = '\0';
    return WEIR_OK;
}

static int http_exchange_once(struct cli_http *http, const struct question *question,
                              struct cli_http_reply *ret)
{
    int code = http->conn.fd >= 0 ? WEIR_OK : http_connect_now(http);
    http->len = 0;
    if (code == WEIR_OK)
        code = http_send_request(http, question);
    if (code == WEIR_OK)
        code = http_read_reply(http, ret);
    if (code != WEIR_OK)
        weir__conn_close(&http->conn);
    return code;
}

static void http_begin(struct cli_http *http, weir_error *err)
{
    http->patience = (struct weir__patience){weir__mono_us() + CLI_HTTP_PATIENCE_US, http->stop_fd};
    http->err = err;
}

int cli_http_get(struct cli_http *http, const char *path, struct cli_http_reply *ret,
                 weir_error *err)
{
    http_begin(http, err);
    const struct question question = {path, NULL, 0};
    /* The server may have closed the kept connection, which is not a failure: try a new one
     * once. */
    bool again = http->conn.fd >= 0;
    int code = http_exchange_once(http, &question, ret);
    if (code != WEIR_OK && again && http->len == 0)
        code = http_exchange_once(http, &question, ret);
    return code;
}

int cli_http_post(struct cli_http *http, const char *path, const char *body, size_t len,
                  struct cli_http_reply *ret, weir_error *err)
{
    http_begin(http, err);
    const struct question question = {path, body, len};
    weir__conn_close(&http->conn); /* the server may have closed a kept one */
    return http_exchange_once(http, &question, ret);
}
