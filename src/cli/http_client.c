/* A small HTTP/1.1 client: requests and answers. */
#include "cli/http_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void cli_http_close(struct cli_http *http)
{
    if (http->conn.fd >= 0)
        weir__conn_close(&http->conn);
    free(http->data);
    http->data = NULL;
    http->room = 0;
}

/* ---- bytes ---- */

struct exchange {
    struct cli_http *http;
    struct weir__patience patience;
    weir_error *err;
};

static int late(const struct exchange *exchange)
{
    return weir__fail(exchange->err, WEIR_EUNREACHABLE, 0, "no answer within %d seconds",
                      (int)(CLI_HTTP_PATIENCE_US / 1000000));
}

static int send_all(const struct exchange *exchange, const char *data, size_t len)
{
    struct weir__conn *const conn = &exchange->http->conn;
    while (len > 0 || weir__conn_holds(conn)) {
        const long n = weir__conn_write(conn, data, len);
        if (n < 0)
            return weir__fail(exchange->err, WEIR_EUNREACHABLE, 0, "the connection was closed");
        data += n;
        len -= (size_t)n;
        if (n == 0 && weir__conn_wait(conn, POLLOUT, &exchange->patience) <= 0)
            return late(exchange);
    }
    return WEIR_OK;
}

/* Makes room for more bytes and a NUL. */
static int grow(const struct exchange *exchange)
{
    struct cli_http *const http = exchange->http;
    if (http->len + 1 < http->room)
        return WEIR_OK;
    if (http->room >= CLI_HTTP_HEAD_MAX + CLI_HTTP_BODY_MAX)
        return weir__fail(exchange->err, WEIR_EINVAL, 0, "the answer is longer than %zu MiB",
                          CLI_HTTP_BODY_MAX >> 20);
    const size_t room = http->room ? http->room * 2 : CLI_HTTP_HEAD_MAX;
    char *const data = realloc(http->data, room);
    if (!data)
        return weir__fail(exchange->err, WEIR_ENOMEM, 0, "out of memory");
    http->data = data;
    http->room = room;
    return WEIR_OK;
}

/* Receives at least a byte: 1; 0 at the end of the connection; or a WEIR_E…. */
static int receive(const struct exchange *exchange)
{
    struct cli_http *const http = exchange->http;
    const int code = grow(exchange);
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
            http->data[http->len] = '\0';
            return 1;
        }
        if (weir__conn_wait(&http->conn, POLLIN, &exchange->patience) <= 0)
            return late(exchange);
    }
}

/* ---- answers ---- */

struct head {
    int status;
    size_t size; /* of the head itself */
    int64_t length;
    bool chunked, closes;
};

static int strange(const struct exchange *exchange, const char *what)
{
    return weir__fail(exchange->err, WEIR_EINVAL, 0, "what answers there does not speak HTTP: %s",
                      what);
}

/* The value of a field, if the line is of that name. */
static const char *value_of(const char *line, const char *name)
{
    const size_t len = strlen(name);
    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    return line + len + 1 + strspn(line + len + 1, " \t");
}

static int read_fields(const struct exchange *exchange, const char *line, struct head *head)
{
    for (; *line != '\r'; line = strstr(line, "\r\n") + 2) {
        const char *value;
        if ((value = value_of(line, "content-length"))) {
            char *stop;
            head->length = strtoll(value, &stop, 10);
            if (stop == value || head->length < 0 || head->length > (int64_t)CLI_HTTP_BODY_MAX)
                return strange(exchange, "its Content-Length is odd, or too long");
        } else if ((value = value_of(line, "transfer-encoding"))) {
            head->chunked = !strncasecmp(value, "chunked", 7);
        } else if ((value = value_of(line, "connection"))) {
            head->closes = !strncasecmp(value, "close", 5);
        }
    }
    return WEIR_OK;
}

static int read_head(const struct exchange *exchange, struct head *head)
{
    struct cli_http *const http = exchange->http;
    const char *end;
    while (http->len == 0 || !(end = strstr(http->data, "\r\n\r\n"))) {
        if (http->len > CLI_HTTP_HEAD_MAX)
            return strange(exchange, "its head does not end");
        if (http->len >= 5 && memcmp(http->data, "HTTP/", 5) != 0)
            return strange(exchange, "its answer does not begin with HTTP/");
        const int more = receive(exchange);
        if (more < 0)
            return more;
        if (more == 0)
            return weir__fail(exchange->err, WEIR_EUNREACHABLE, 0,
                              "the connection was closed without an answer");
    }
    int minor;
    if (sscanf(http->data, "HTTP/1.%1d %3d", &minor, &head->status) != 2)
        return strange(exchange, "its first line is not HTTP/1's");
    head->size = (size_t)(end + 4 - http->data);
    head->length = -1;
    head->closes = minor == 0;
    const int code = read_fields(exchange, strstr(http->data, "\r\n") + 2, head);
    if (head->status == 204 || head->status == 304)
        head->length = 0;
    return code;
}

/* Receives until so many bytes are here. */
static int need(const struct exchange *exchange, size_t len)
{
    while (exchange->http->len < len) {
        const int more = receive(exchange);
        if (more < 0)
            return more;
        if (more == 0)
            return weir__fail(exchange->err, WEIR_EUNREACHABLE, 0,
                              "the connection was closed in the middle of the answer");
    }
    return WEIR_OK;
}

/* The end of the line that begins at `at`, received if it must be; 0 or a WEIR_E…. */
static int need_line(const struct exchange *exchange, size_t at, size_t *ret_end)
{
    struct cli_http *const http = exchange->http;
    for (size_t wanted = at + 2;; wanted = http->len + 1) {
        const int code = need(exchange, wanted);
        if (code)
            return code;
        const char *const end = memmem(http->data + at, http->len - at, "\r\n", 2);
        if (end) {
            *ret_end = (size_t)(end - http->data);
            return WEIR_OK;
        }
        if (http->len - at > CLI_HTTP_HEAD_MAX)
            return strange(exchange, "a line does not end");
    }
}

/* Puts a chunked body together in place, behind the head; its length goes to *ret. */
static int read_chunks(const struct exchange *exchange, const struct head *head, size_t *ret)
{
    struct cli_http *const http = exchange->http;
    size_t at = head->size, body = 0;
    for (;;) {
        size_t line_end = 0;
        int code = need_line(exchange, at, &line_end);
        if (code)
            return code;
        char *stop;
        const unsigned long long size = strtoull(http->data + at, &stop, 16);
        if (stop == http->data + at || size > CLI_HTTP_BODY_MAX - body)
            return strange(exchange, "a chunk's size is odd, or too long");
        at = line_end + 2;
        if (size == 0)
            break;
        code = need(exchange, at + size + 2);
        if (code)
            return code;
        memmove(http->data + head->size + body, http->data + at, size);
        body += size;
        at += size + 2;
    }
    for (size_t line_end = 0; line_end != at;) { /* trailers, and an empty line */
        at = line_end ? line_end + 2 : at;
        const int code = need_line(exchange, at, &line_end);
        if (code)
            return code;
    }
    *ret = body;
    return WEIR_OK;
}

static int read_body(const struct exchange *exchange, struct head *head, size_t *ret)
{
    struct cli_http *const http = exchange->http;
    if (head->chunked)
        return read_chunks(exchange, head, ret);
    if (head->length >= 0) {
        *ret = (size_t)head->length;
        return need(exchange, head->size + (size_t)head->length);
    }
    head->closes = true;
    int more;
    while ((more = receive(exchange)) > 0)
        ;
    *ret = http->len - head->size;
    return more;
}

/* ---- one request ---- */

static int connect_now(const struct exchange *exchange)
{
    struct cli_http *const http = exchange->http;
    char why[WEIR__WHY_SIZE];
    const int code =
        weir__conn_open(&http->where, &http->where.hosts[0], &exchange->patience, &http->conn, why);
    if (code == 0)
        return WEIR_OK;
    if (code == -2)
        return weir__fail(exchange->err, WEIR_EINVAL, 0,
                          "%s; the environment's SSL_CERT_FILE names authorities to trust", why);
    /* It begins with where, which the caller says anyway. */
    const bool local = http->where.kind == WEIR__REDIS_UNIX;
    const char *const where = local ? http->where.path : http->where.hosts[0].name;
    const bool said = !strncmp(why, where, strlen(where));
    const char *const reason = said ? strstr(why + strlen(where), ": ") : NULL;
    return weir__fail(exchange->err, WEIR_EUNREACHABLE, 0, "%s", reason ? reason + 2 : why);
}

/* What is asked for; a body of NULL is a GET. */
struct question {
    const char *path, *body;
    size_t len;
};

static int ask(const struct exchange *exchange, const struct question *question)
{
    const struct cli_http *const http = exchange->http;
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
    int code = send_all(exchange, text, request.len);
    return code || !question->body ? code : send_all(exchange, question->body, question->len);
}

static int answer(const struct exchange *exchange, struct cli_http_reply *ret)
{
    struct cli_http *const http = exchange->http;
    struct head head = {0};
    size_t body = 0;
    int code = read_head(exchange, &head);
    if (code == WEIR_OK)
        code = read_body(exchange, &head, &body);
    if (code != WEIR_OK)
        return code;
    if (head.closes)
        weir__conn_close(&http->conn);
    *ret = (struct cli_http_reply){head.status, http->data + head.size, body};
    ret->body[body] = '\0';
    return WEIR_OK;
}

static int exchange_once(const struct exchange *exchange, const struct question *question,
                         struct cli_http_reply *ret)
{
    struct cli_http *const http = exchange->http;
    int code = http->conn.fd >= 0 ? WEIR_OK : connect_now(exchange);
    http->len = 0;
    if (code == WEIR_OK)
        code = ask(exchange, question);
    if (code == WEIR_OK)
        code = answer(exchange, ret);
    if (code != WEIR_OK)
        weir__conn_close(&http->conn);
    return code;
}

int cli_http_get(struct cli_http *http, const char *path, struct cli_http_reply *ret,
                 weir_error *err)
{
    const struct exchange exchange = {
        http, {weir__mono_us() + CLI_HTTP_PATIENCE_US, http->stop_fd}, err};
    const struct question question = {path, NULL, 0};
    /* A kept connection may have been closed meanwhile, which is no failure: once more, afresh. */
    bool again = http->conn.fd >= 0;
    int code = exchange_once(&exchange, &question, ret);
    if (code != WEIR_OK && again && http->len == 0)
        code = exchange_once(&exchange, &question, ret);
    return code;
}

int cli_http_post(struct cli_http *http, const char *path, const char *body, size_t len,
                  struct cli_http_reply *ret, weir_error *err)
{
    const struct exchange exchange = {
        http, {weir__mono_us() + CLI_HTTP_PATIENCE_US, http->stop_fd}, err};
    const struct question question = {path, body, len};
    weir__conn_close(&http->conn); /* a kept one may be closed by now, unnoticed */
    return exchange_once(&exchange, &question, ret);
}
