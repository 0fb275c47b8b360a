/* Addresses of servers that speak HTTP, as people type them. */
#include "cli/http_client.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int bad_address(weir_error *err, const char *address, const char *what)
{
    return weir__fail(err, WEIR_EINVAL, 0,
                      "\"%.200s\": %s; expected http://host:port, https://host:port, host:port or "
                      "unix:/path",
                      address, what);
}

/* Whether all of it may stand in a request's head. */
static bool is_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    return true;
}

static bool copy(char *to, size_t room, const char *text, size_t len)
{
    if (len >= room)
        return false;
    memcpy(to, text, len);
    to[len] = '\0';
    return true;
}

static int read_unix(const char *address, struct cli_http *ret, weir_error *err)
{
    const char *const path = address + strlen("unix:");
    ret->where.kind = WEIR__REDIS_UNIX;
    if (!*path || !copy(ret->where.path, sizeof ret->where.path, path, strlen(path)))
        return bad_address(err, address, "a socket's path has 1 to 107 bytes");
    strcpy(ret->host, "localhost");
    return WEIR_OK;
}

static bool read_port(const char *text, size_t len, uint16_t *ret)
{
    uint32_t port = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || port > UINT16_MAX)
            return false;
        port = 10 * port + (uint32_t)(text[i] - '0');
    }
    if (port == 0 || port > UINT16_MAX)
        return false;
    *ret = (uint16_t)port;
    return true;
}

/* "name", "name:1", "[::1]", "[::1]:1"; the port stays where none is given. */
static bool read_host(const char *text, size_t len, struct weir__redis_host *ret)
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
    if (stop == name || !copy(ret->name, sizeof ret->name, name, (size_t)(stop - name)))
        return false;
    const char *const rest = *text == '[' ? stop + 1 : stop;
    if (rest == end)
        return true;
    return *rest == ':' && read_port(rest + 1, (size_t)(end - rest - 1), &ret->port);
}

static int read_address(const char *address, struct cli_http *ret, weir_error *err)
{
    struct weir__redis_host *const host = &ret->where.hosts[0];
    const char *rest = strstr(address, "://");
    host->port = CLI_HTTP_PORT;
    if (rest) {
        ret->where.tls = !strncasecmp(address, "https://", 8);
        if (!ret->where.tls && strncasecmp(address, "http://", 7) != 0)
            return bad_address(err, address, "weir is asked over http or https");
        host->port = ret->where.tls ? 443 : 80;
    }
    rest = rest ? rest + 3 : address;
    const size_t len = strcspn(rest, "/");
    const char *const path = rest + len;
    size_t path_len = strlen(path);
    while (path_len > 0 && path[path_len - 1] == '/')
        path_len--;
    if (!is_plain(rest, strlen(rest)) || strpbrk(rest, "?#@"))
        return bad_address(err, address, "it holds a character that does not belong there");
    if (len == 0 || !read_host(rest, len, host) || !copy(ret->host, sizeof ret->host, rest, len) ||
        !copy(ret->prefix, sizeof ret->prefix, path, path_len))
        return bad_address(err, address, "the host or its port cannot be read");
    ret->where.host_count = 1;
    ret->where.verify = true;
    return WEIR_OK;
}

int cli_http_open(const char *address, const char *token, struct cli_http *ret, weir_error *err)
{
    struct cli_http *const http = calloc(1, sizeof *http);
    if (!http)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    int code = !strncmp(address, "unix:", 5) ? read_unix(address, http, err)
                                             : read_address(address, http, err);
    const size_t token_len = token ? strlen(token) : 0;
    if (code == WEIR_OK && (token_len >= sizeof http->token || !is_plain(token, token_len)))
        code = weir__fail(err, WEIR_EINVAL, 0,
                          "a token has at most %zu bytes, all of them printable, and no spaces",
                          sizeof http->token - 1);
    if (code == WEIR_OK) {
        copy(http->token, sizeof http->token, token_len ? token : "", token_len);
        http->conn.fd = http->stop_fd = -1;
        *ret = *http;
    }
    free(http);
    return code;
}
