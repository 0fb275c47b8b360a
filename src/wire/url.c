/* Addresses of Redis stores up to the question mark: see url.h. */
#include "wire/url_parts.h"

#include <arpa/inet.h>
#include <string.h>

#define PORT 6379
#define SENTINEL_PORT 26379
#define EXAMPLES                                                                                   \
    "redis://host:6379/0, redis+cluster://host:6379,host:6379, "                                   \
    "redis+sentinel://host:26379/master or redis+unix:///path"

static const struct scheme {
    const char *name;
    enum weir__redis_kind kind;
    bool tls;
} schemes[] = {
    {"redis://", WEIR__REDIS_SINGLE, false},
    {"rediss://", WEIR__REDIS_SINGLE, true},
    {"redis+cluster://", WEIR__REDIS_CLUSTER, false},
    {"rediss+cluster://", WEIR__REDIS_CLUSTER, true},
    {"redis+sentinel://", WEIR__REDIS_SENTINEL, false},
    {"rediss+sentinel://", WEIR__REDIS_SENTINEL, true},
    {"redis+unix://", WEIR__REDIS_UNIX, false},
};

/* ---- user:password@host:port,host:port ---- */

static int take_login(struct weir__url_reader *reader, const char *part, size_t len)
{
    const char *colon = memchr(part, ':', len);
    size_t user = colon ? (size_t)(colon - part) : len;
    int code =
        weir__url_decode(reader, "user", part, user, reader->url->user, sizeof reader->url->user);
    if (code || !colon)
        return code;
    reader->password_given = true;
    return weir__url_decode(reader, "password", colon + 1, len - user - 1, reader->url->password,
                            sizeof reader->url->password);
}

static int take_port(struct weir__url_reader *reader, const char *part, size_t len, uint16_t *ret)
{
    int64_t port;
    if (weir__url_number(part, len, 1, 65535, &port)) {
        *ret = (uint16_t)port;
        return 0;
    }
    /* With no '@' around, this may well be a password whose host was forgotten. */
    bool tell = reader->quotable > reader->text || (len <= 5 && strspn(part, "0123456789") >= len);
    struct weir__url_quote quote = weir__url_quote(reader, part, len);
    return weir__url_fail(reader, part,
                          "the port%s%s%s is not a number from 1 to 65535; write host:%d, or "
                          "user:password@host",
                          tell ? " \"" : "", tell ? quote.text : "", tell ? "\"" : "",
                          reader->url->kind == WEIR__REDIS_SENTINEL ? SENTINEL_PORT : PORT);
}

/* A name or IPv4 address, or an IPv6 address in brackets; returns the bytes it takes, 0 if bad. */
static size_t read_host_name(const char *part, size_t len, char ret[254])
{
    struct in6_addr address;
    bool bracket = part[0] == '[';
    size_t n = 0;
    while (bracket + n < len && part[bracket + n] != ']' && (bracket || part[n] != ':'))
        n++;
    if (n == 0 || n > 253)
        return 0;
    memcpy(ret, part + bracket, n);
    ret[n] = 0;
    if (bracket)
        return 1 + n < len && inet_pton(AF_INET6, ret, &address) == 1 ? n + 2 : 0;
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    return strspn(ret, letters) == n ? n : 0;
}

/* A host for a message, without what is behind its colon: see take_port. */
static struct weir__url_quote quote_host(const struct weir__url_reader *reader, const char *part,
                                         size_t len)
{
    const char *end = memchr(part, part[0] == '[' ? ']' : ':', len);
    size_t shown = part[0] == '[' ? 1 : len;
    if (end)
        shown = (size_t)(end - part) + (*end == ']');
    return weir__url_quote(reader, part, shown);
}

static int take_host(struct weir__url_reader *reader, const char *part, size_t len)
{
    struct weir__redis_url *url = reader->url;
    struct weir__redis_host host = {"", url->kind == WEIR__REDIS_SENTINEL ? SENTINEL_PORT : PORT};
    if (len == 0 || part[0] == ':')
        return weir__url_fail(reader, part, "a host is missing; expected one like " EXAMPLES);
    size_t used = read_host_name(part, len, host.name);
    if (used == 0 || (used < len && part[used] != ':'))
        return weir__url_fail(
            reader, part,
            "\"%s\" is no host; write a name, an IPv4 address, or an IPv6 address "
            "in brackets like [::1]",
            quote_host(reader, part, len).text);
    if (url->host_count == WEIR__REDIS_HOSTS_MAX)
        return weir__url_fail(reader, part, "more than %d hosts; name some, the rest is learnt",
                              WEIR__REDIS_HOSTS_MAX);
    int code = used < len ? take_port(reader, part + used + 1, len - used - 1, &host.port) : 0;
    if (code == 0)
        url->hosts[url->host_count++] = host;
    return code;
}

static int take_hosts(struct weir__url_reader *reader, const char *part, size_t len)
{
    bool many = reader->url->kind != WEIR__REDIS_SINGLE;
    for (size_t at = 0;;) {
        const char *comma = memchr(part + at, ',', len - at);
        if (comma && !many)
            return weir__url_fail(reader, comma,
                                  "several hosts; write redis+cluster:// or redis+sentinel://");
        size_t n = comma ? (size_t)(comma - part) - at : len - at;
        int code = take_host(reader, part + at, n);
        if (code || !comma)
            return code;
        at += n + 1;
    }
}

static int take_authority(struct weir__url_reader *reader, const char *part, size_t len)
{
    const char *at = memrchr(part, '@', len);
    if (at) {
        int code = take_login(reader, part, (size_t)(at - part));
        if (code)
            return code;
        len -= (size_t)(at + 1 - part);
        part = at + 1;
    }
    if (reader->url->kind != WEIR__REDIS_UNIX)
        return take_hosts(reader, part, len);
    if (len > 0)
        return weir__url_fail(reader, part,
                              "a socket has no host, found \"%s\"; write redis+unix:///path",
                              quote_host(reader, part, len).text);
    return 0;
}

/* ---- /db, /master-name, /path ---- */

static int take_path(struct weir__url_reader *reader, const char *part, size_t len)
{
    struct weir__redis_url *url = reader->url;
    const char *name = part + (len > 0);
    size_t n = len - (len > 0);
    int64_t db = 0;
    if (url->kind == WEIR__REDIS_UNIX && n == 0)
        return weir__url_fail(reader, part, "no path of a socket; write redis+unix:///path");
    if (url->kind == WEIR__REDIS_UNIX)
        return weir__url_decode(reader, "path", part, len, url->path, sizeof url->path);
    if (url->kind == WEIR__REDIS_SENTINEL && (n == 0 || memchr(name, '/', n)))
        return weir__url_fail(
            reader, name,
            "the name that the Sentinels watch is missing or has a / in it; write "
            "redis+sentinel://host/master, and ?db=1 for a database");
    if (url->kind == WEIR__REDIS_SENTINEL)
        return weir__url_decode(reader, "master's name", name, n, url->master, sizeof url->master);
    if (n > 0 && !weir__url_number(name, n, 0, INT32_MAX, &db))
        return weir__url_fail(reader, name, "\"%s\" is no database; write its number, like /0",
                              weir__url_quote(reader, name, n).text);
    if (url->kind == WEIR__REDIS_CLUSTER && db != 0)
        return weir__url_fail(reader, name, "a cluster has database 0 only, found %d; leave it out",
                              (int)db);
    url->db = (int32_t)db;
    return 0;
}

bool weir__is_redis_url(const char *text)
{
    if (strncmp(text, "redis", 5))
        return false;
    text += text[5] == 's' ? 6 : 5;
    return *text == ':' || *text == '+';
}

static const struct scheme *find_scheme(const char *text)
{
    for (size_t i = 0; i < WEIR__COUNT(schemes); i++) {
        if (!strncmp(text, schemes[i].name, strlen(schemes[i].name)))
            return &schemes[i];
    }
    return NULL;
}

int weir__redis_url_parse(const char *text, struct weir__redis_url *ret, weir_error *err)
{
    struct weir__redis_url url = {.kind = WEIR__REDIS_SINGLE};
    struct weir__url_reader reader = {.text = text, .quotable = text, .url = &url, .err = err};
    const char *at = strrchr(text, '@');
    if (at)
        reader.quotable = at + 1;
    const struct scheme *scheme = find_scheme(text);
    if (!scheme)
        return weir__url_fail(&reader, text, "no such scheme; expected one like " EXAMPLES);
    url.kind = scheme->kind;
    url.tls = scheme->tls;
    weir__url_option_defaults(&url);
    const char *authority = text + strlen(scheme->name);
    const char *path = authority + strcspn(authority, "/?");
    const char *options = path + strcspn(path, "?");
    if (url.kind != WEIR__REDIS_UNIX && memchr(path, '@', (size_t)(options - path)))
        return weir__url_fail(&reader, path,
                              "a / before the @; in a user or a password write it as %%2F");
    int code = take_authority(&reader, authority, (size_t)(path - authority));
    if (code == 0)
        code = take_path(&reader, path, (size_t)(options - path));
    if (code == 0)
        code = weir__url_options(&reader, options + (*options == '?'));
    if (code)
        return code;
    if (url.user[0] && !reader.password_given && !url.password_file[0])
        return weir__url_fail(&reader, authority,
                              "a user without a password; write user:password@host, :password@host "
                              "for the default user, or add password-file=");
    *ret = url;
    return 0;
}

void weir__put_redis_url(struct weir__buffer *buffer, const struct weir__redis_url *url)
{
    const struct scheme *scheme = schemes;
    while (scheme->kind != url->kind || scheme->tls != url->tls)
        scheme++;
    weir__put_text(buffer, scheme->name);
    weir__url_encode(buffer, url->user, "");
    if (url->password[0])
        weir__put_text(buffer, ":***");
    else if (url->user[0] && !url->password_file[0])
        weir__put_text(buffer, ":");
    if (url->user[0] || url->password[0])
        weir__put_text(buffer, "@");
    for (uint32_t i = 0; i < url->host_count; i++) {
        const struct weir__redis_host *host = &url->hosts[i];
        bool bracket = strchr(host->name, ':');
        weir__put_format(buffer, "%s%s%s%s:%d", i > 0 ? "," : "", bracket ? "[" : "", host->name,
                         bracket ? "]" : "", host->port);
    }
    if (url->kind == WEIR__REDIS_SINGLE)
        weir__put_format(buffer, "/%d", url->db);
    if (url->kind == WEIR__REDIS_SENTINEL)
        weir__put_text(buffer, "/");
    weir__url_encode(buffer, url->master, "");
    weir__url_encode(buffer, url->path, "/");
    weir__url_put_options(buffer, url);
}
