/*
 * Addresses of Redis stores: see url.h.
 *
 *     scheme://  user:password@  host:port,host:port  /db  ?option=value&…
 */
#include "wire/url.h"

#include "base/duration.h"
#include "base/span.h"
#include "limit/limit.h"
#include "store/region.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>

/* An address being read. */
struct url_reader {
    const char *text;
    const char *quotable; /* nothing before it is quoted: after the last '@' */
    struct weir__redis_url *url;
    bool password_given;
    unsigned seen; /* one bit per option */
    weir_error *err;
};

/* A part of the address as messages may show it. */
struct url_quote {
    char text[72];
};
/* ---- parts of an address as text: quoted in messages, decoded and encoded ---- */

static struct url_quote url_quote(const struct url_reader *reader, const char *part, size_t len)
{
    struct url_quote quote = {"***"};
    if (part < reader->quotable)
        return quote;
    size_t n = len < sizeof quote.text - 4 ? len : sizeof quote.text - 4;
    for (size_t i = 0; i < n; i++)
        quote.text[i] = (unsigned char)part[i] < ' ' || part[i] == 0x7f ? '?' : part[i];
    strcpy(quote.text + n, n < len ? "..." : "");
    return quote;
}

/* Fills the error; the message starts with the place of `part`. Returns WEIR_EURL. */
WEIR__PRINTF(3, 4)
static int url_fail(const struct url_reader *reader, const char *part, const char *format, ...)
{
    if (!reader->err)
        return WEIR_EURL;
    int column = (int)(part - reader->text) + 1;
    char message[sizeof reader->err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return weir__fail(reader->err, WEIR_EURL, column, "store address, column %d: %.460s", column,
                      message);
}

/* Percent-decodes a part into a field of `size` bytes; `what` names it in messages, which never
 * quote the part itself. */
static int url_decode(const struct url_reader *reader, const char *what, const char *part,
                      size_t len, char *ret, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = part[i];
        if (c == '%') {
            int high = i + 2 < len ? weir__hex_digit(part[i + 1]) : -1;
            int low = i + 2 < len ? weir__hex_digit(part[i + 2]) : -1;
            if (high < 0 || low < 0)
                return url_fail(reader, part + i,
                                "expected two hex digits after the %% in the %s; write a %% itself "
                                "as %%25",
                                what);
            c = (char)(high << 4 | low);
            if (c == 0)
                return url_fail(reader, part + i, "a %%00 in the %s; leave it out", what);
            i += 2;
        }
        if (n + 1 == size)
            return url_fail(reader, part, "the %s is too long; it has at most %zu bytes", what,
                            size - 1);
        ret[n++] = c;
    }
    ret[n] = 0;
    return 0;
}

/* The other way round; letters, digits, -._~ and what is in `as_it_is` need no encoding. */
static void url_encode(struct weir__buffer *buffer, const char *text, const char *as_it_is)
{
    for (; *text; text++) {
        char c = *text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) || strchr(as_it_is, c);
        if (plain)
            weir__put(buffer, &c, 1);
        else
            weir__put_format(buffer, "%%%02X", (unsigned char)c);
    }
}

#define PORT 6379
#define SENTINEL_PORT 26379
#define EXAMPLES                                                                                   \
    "redis://host:6379/0, redis+cluster://host:6379,host:6379, "                                   \
    "redis+sentinel://host:26379/master or redis+unix:///path"

static const struct url_scheme {
    const char *name;
    enum weir__redis_kind kind;
    bool tls;
} url_schemes[] = {
    {"redis://", WEIR__REDIS_SINGLE, false},
    {"rediss://", WEIR__REDIS_SINGLE, true},
    {"redis+cluster://", WEIR__REDIS_CLUSTER, false},
    {"rediss+cluster://", WEIR__REDIS_CLUSTER, true},
    {"redis+sentinel://", WEIR__REDIS_SENTINEL, false},
    {"rediss+sentinel://", WEIR__REDIS_SENTINEL, true},
    {"redis+unix://", WEIR__REDIS_UNIX, false},
};

/* ---- user:password@host:port,host:port ---- */

static int url_take_login(struct url_reader *reader, const char *part, size_t len)
{
    const char *colon = memchr(part, ':', len);
    size_t user = colon ? (size_t)(colon - part) : len;
    int code = url_decode(reader, "user", part, user, reader->url->user, sizeof reader->url->user);
    if (code || !colon)
        return code;
    reader->password_given = true;
    return url_decode(reader, "password", colon + 1, len - user - 1, reader->url->password,
                      sizeof reader->url->password);
}

static int url_take_port(struct url_reader *reader, const char *part, size_t len, uint16_t *ret)
{
    int64_t port;
    if (weir__span_whole((struct weir__span){part, len}, 1, 65535, &port)) {
        *ret = (uint16_t)port;
        return 0;
    }
    /* With no '@' around, this may well be a password whose host was forgotten. */
    bool tell = reader->quotable > reader->text || (len <= 5 && strspn(part, "0123456789") >= len);
    struct url_quote quote = url_quote(reader, part, len);
    return url_fail(reader, part,
                    "the port%s%s%s is not a number from 1 to 65535; write host:%d, or "
                    "user:password@host",
                    tell ? " \"" : "", tell ? quote.text : "", tell ? "\"" : "",
                    reader->url->kind == WEIR__REDIS_SENTINEL ? SENTINEL_PORT : PORT);
}

/* A name or IPv4 address, or an IPv6 address in brackets; returns the bytes it takes, 0 if bad. */
static size_t url_read_host_name(const char *part, size_t len, char ret[254])
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

/* A host for a message, without what is after its colon: see url_take_port. */
static struct url_quote url_quote_host(const struct url_reader *reader, const char *part,
                                       size_t len)
{
    const char *end = memchr(part, part[0] == '[' ? ']' : ':', len);
    size_t shown = part[0] == '[' ? 1 : len;
    if (end)
        shown = (size_t)(end - part) + (*end == ']');
    return url_quote(reader, part, shown);
}

static int url_take_host(struct url_reader *reader, const char *part, size_t len)
{
    struct weir__redis_url *url = reader->url;
    struct weir__redis_host host = {"", url->kind == WEIR__REDIS_SENTINEL ? SENTINEL_PORT : PORT};
    if (len == 0 || part[0] == ':')
        return url_fail(reader, part, "a host is missing; expected one like " EXAMPLES);
    size_t used = url_read_host_name(part, len, host.name);
    if (used == 0 || (used < len && part[used] != ':'))
        return url_fail(reader, part,
                        "invalid host \"%s\": write a name, an IPv4 address, or an IPv6 address "
                        "in brackets like [::1]",
                        url_quote_host(reader, part, len).text);
    if (url->host_count == WEIR__REDIS_HOSTS_MAX)
        return url_fail(reader, part, "more than %d hosts; name some, the rest is learnt",
                        WEIR__REDIS_HOSTS_MAX);
    int code = used < len ? url_take_port(reader, part + used + 1, len - used - 1, &host.port) : 0;
    if (code == 0)
        url->hosts[url->host_count++] = host;
    return code;
}

static int url_take_hosts(struct url_reader *reader, const char *part, size_t len)
{
    bool many = reader->url->kind != WEIR__REDIS_SINGLE;
    for (size_t at = 0;;) {
        const char *comma = memchr(part + at, ',', len - at);
        if (comma && !many)
            return url_fail(reader, comma,
                            "several hosts; write redis+cluster:// or redis+sentinel://");
        size_t n = comma ? (size_t)(comma - part) - at : len - at;
        int code = url_take_host(reader, part + at, n);
        if (code || !comma)
            return code;
        at += n + 1;
    }
}

static int url_take_authority(struct url_reader *reader, const char *part, size_t len)
{
    const char *at = memrchr(part, '@', len);
    if (at) {
        int code = url_take_login(reader, part, (size_t)(at - part));
        if (code)
            return code;
        len -= (size_t)(at + 1 - part);
        part = at + 1;
    }
    if (reader->url->kind != WEIR__REDIS_UNIX)
        return url_take_hosts(reader, part, len);
    if (len > 0)
        return url_fail(reader, part,
                        "a socket has no host, found \"%s\"; write redis+unix:///path",
                        url_quote_host(reader, part, len).text);
    return 0;
}

/* ---- /db, /master-name, /path ---- */

/* The number of a database; `like` shows one. */
static int url_set_db(struct url_reader *reader, const char *part, size_t len, const char *like)
{
    int64_t db;
    if (!weir__span_whole((struct weir__span){part, len}, 0, INT32_MAX, &db))
        return url_fail(reader, part, "invalid database \"%s\": expected a number, like %s",
                        url_quote(reader, part, len).text, like);
    if (reader->url->kind == WEIR__REDIS_CLUSTER && db != 0)
        return url_fail(reader, part, "a cluster has database 0 only, found %d; leave it out",
                        (int)db);
    reader->url->db = (int32_t)db;
    return 0;
}

static int url_take_path(struct url_reader *reader, const char *part, size_t len)
{
    struct weir__redis_url *url = reader->url;
    const char *name = part + (len > 0);
    size_t n = len - (len > 0);
    if (url->kind == WEIR__REDIS_UNIX && n == 0)
        return url_fail(reader, part, "no path of a socket; write redis+unix:///path");
    if (url->kind == WEIR__REDIS_UNIX)
        return url_decode(reader, "path", part, len, url->path, sizeof url->path);
    if (url->kind == WEIR__REDIS_SENTINEL && (n == 0 || memchr(name, '/', n)))
        return url_fail(reader, name,
                        "the name that the Sentinels watch is missing or has a / in it; write "
                        "redis+sentinel://host/master, and ?db=1 for a database");
    if (url->kind == WEIR__REDIS_SENTINEL)
        return url_decode(reader, "master's name", name, n, url->master, sizeof url->master);
    return n > 0 ? url_set_db(reader, name, n, "/0") : 0;
}

/* ---- options: one table says their names, where they go and how each is read ---- */

#define PREFIX "weir:"
#define DEADLINE_US 50000
#define SLICE_LIFE_US 1000000
#define SLICE_LIFE_MIN_US 10000
#define SLICE_LIFE_MAX_US 5000000 /* half of a peer's lease */
#define SIZE (UINT64_C(16) << 20)
#define PEERS_MAX 1000000 /* a limit shared by more is not a limit */

const char *const weir__redis_fail_names[] = {
    [WEIR__FAIL_LOCAL] = "local", [WEIR__FAIL_OPEN] = "open", [WEIR__FAIL_CLOSED] = "closed", NULL};
static const char *const url_engine_names[] = {[WEIR__ENGINE_AUTO] = "auto",
                                               [WEIR__ENGINE_MODULE] = "module",
                                               [WEIR__ENGINE_LUA] = "lua",
                                               [WEIR__ENGINE_FUNCTION] = "function",
                                               NULL};
static const char *const url_verify_names[] = {"no", "yes", NULL};

struct url_option {
    const char *name;
    int (*take)(struct url_reader *reader, const struct url_option *option, const char *value,
                size_t len);
    size_t field, size;       /* url_take_text, url_take_choice: where it goes */
    const char *const *names; /* url_take_choice: by value; NULL at the end */
    bool tls;                 /* makes sense over TLS only */
};

static int url_take_text(struct url_reader *reader, const struct url_option *option,
                         const char *value, size_t len)
{
    /* Only a prefix may be empty: the caller's keys as they are. */
    if (len == 0 && strcmp(option->name, "prefix"))
        return url_fail(reader, value, "%s= has no value; write %s=/path or leave it out",
                        option->name, option->name);
    return url_decode(reader, option->name, value, len, (char *)reader->url + option->field,
                      option->size);
}

/* One of the names: its place among them is the value. */
static int url_take_choice(struct url_reader *reader, const struct url_option *option,
                           const char *value, size_t len)
{
    char all[64];
    struct weir__buffer list = weir__buffer_over(all, sizeof all);
    for (int i = 0; option->names[i]; i++) {
        const char *name = option->names[i];
        if (len == strlen(name) && !memcmp(value, name, len)) {
            bool truth = i != 0;
            char *field = (char *)reader->url + option->field;
            assert(option->size == sizeof i || option->size == sizeof truth);
            if (option->size == sizeof i)
                memcpy(field, &i, sizeof i);
            else
                memcpy(field, &truth, sizeof truth);
            return 0;
        }
        weir__put_format(&list, "%s%s", i == 0 ? "" : option->names[i + 1] ? ", " : " or ", name);
    }
    return url_fail(reader, value, "invalid %s \"%s\": expected %s", option->name,
                    url_quote(reader, value, len).text, all);
}

static int url_take_deadline(struct url_reader *reader, const struct url_option *option,
                             const char *value, size_t len)
{
    const char *why = "something follows the duration";
    if (weir__duration_parse(value, len, &reader->url->deadline_us, &why) != len || len == 0)
        return url_fail(reader, value, "invalid %s \"%s\": expected a duration like 50ms: %s",
                        option->name, url_quote(reader, value, len).text, why);
    return 0;
}

static int url_take_peers(struct url_reader *reader, const struct url_option *option,
                          const char *value, size_t len)
{
    int64_t peers;
    if (!weir__span_whole((struct weir__span){value, len}, 1, PEERS_MAX, &peers))
        return url_fail(reader, value, "invalid %s \"%s\": expected a number from 1 to %d",
                        option->name, url_quote(reader, value, len).text, PEERS_MAX);
    reader->url->peers = (int32_t)peers;
    return 0;
}

/* More than half withheld would leave less for everybody than for the slices. The percent sign may
 * be encoded: some tools insist. */
static int url_take_slices(struct url_reader *reader, const struct url_option *option,
                           const char *value, size_t len)
{
    uint32_t share;
    bool encoded = len > 3 && !memcmp(value + len - 3, "%25", 3);
    size_t used = encoded ? len - 2 : len;
    const char *why = weir__share_read((struct weir__span){value, used}, &share);
    if (!why && share > WEIR__SHARE_WHOLE / 2)
        why = "slices are at most 50%";
    if (why)
        return url_fail(reader, value, "invalid %s \"%s\": expected a percentage like 5%%: %s",
                        option->name, url_quote(reader, value, len).text, why);
    reader->url->slices = share;
    return 0;
}

static int url_take_slice_life(struct url_reader *reader, const struct url_option *option,
                               const char *value, size_t len)
{
    const char *why = "something follows the duration";
    int64_t life_us = 0;
    if (weir__duration_parse(value, len, &life_us, &why) == len && len > 0) {
        if (life_us >= SLICE_LIFE_MIN_US && life_us <= SLICE_LIFE_MAX_US) {
            reader->url->slice_life_us = life_us;
            return 0;
        }
        why = "it is from 10ms to 5s";
    }
    return url_fail(reader, value, "invalid %s \"%s\": expected a duration like 1s: %s",
                    option->name, url_quote(reader, value, len).text, why);
}

/* As a memory: store reads its own, since the local fallback is one. */
static int url_take_size(struct url_reader *reader, const struct url_option *option,
                         const char *value, size_t len)
{
    char address[40];
    struct weir__buffer buffer = weir__buffer_over(address, sizeof address);
    struct weir__region region = {.size = 0};
    weir__put_text(&buffer, "memory:");
    weir__put(&buffer, value, len);
    if (buffer.cut || strlen(address) != buffer.len || strchr(address, '?') ||
        weir__region_parse(address, &region, NULL) || region.size == 0)
        return url_fail(reader, value, "invalid %s \"%s\": expected one like 16m, at least 64k",
                        option->name, url_quote(reader, value, len).text);
    reader->url->size = region.size;
    return 0;
}

static int url_take_db(struct url_reader *reader, const struct url_option *option,
                       const char *value, size_t len)
{
    if (reader->url->kind == WEIR__REDIS_SINGLE)
        return url_fail(reader, value, "%s= goes after the host here: redis://host/1",
                        option->name);
    return url_set_db(reader, value, len, "db=0");
}

#define FIELD(member)                                                                              \
    offsetof(struct weir__redis_url, member), sizeof(((struct weir__redis_url *)0)->member)
#define TEXT(name, member, tls)                                                                    \
    {                                                                                              \
        name, url_take_text, FIELD(member), NULL, tls                                              \
    }
#define CHOICE(name, member, names, tls)                                                           \
    {                                                                                              \
        name, url_take_choice, FIELD(member), names, tls                                           \
    }

_Static_assert(sizeof(enum weir__redis_fail) == sizeof(int) &&
                   sizeof(enum weir__redis_engine) == sizeof(int),
               "a choice is written as an int");

static const struct url_option url_options[] = {
    TEXT("prefix", prefix, false),
    {"deadline", url_take_deadline, 0, 0, NULL, false},
    CHOICE("fail", fail, weir__redis_fail_names, false),
    {"peers", url_take_peers, 0, 0, NULL, false},
    {"slices", url_take_slices, 0, 0, NULL, false},
    {"slice-life", url_take_slice_life, 0, 0, NULL, false},
    {"size", url_take_size, 0, 0, NULL, false},
    CHOICE("engine", engine, url_engine_names, false),
    {"db", url_take_db, 0, 0, NULL, false},
    TEXT("password-file", password_file, false),
    TEXT("ca", ca, true),
    TEXT("cert", cert, true),
    TEXT("key", key, true),
    CHOICE("verify", verify, url_verify_names, true),
};

#define NAMES                                                                                      \
    "prefix, deadline, fail, peers, slices, slice-life, size, engine, db, password-file, ca, "     \
    "cert, "                                                                                       \
    "key and verify"

static int url_take_option(struct url_reader *reader, const char *text, size_t len)
{
    const char *equals = memchr(text, '=', len);
    size_t name = equals ? (size_t)(equals - text) : len;
    size_t i = 0;
    while (i < WEIR__COUNT(url_options) &&
           (strlen(url_options[i].name) != name || memcmp(url_options[i].name, text, name)))
        i++;
    if (i == WEIR__COUNT(url_options))
        return url_fail(reader, text, "unknown option \"%s\": expected one of " NAMES,
                        url_quote(reader, text, name).text);
    if (!equals)
        return url_fail(reader, text, "option %s has no value; write %s=", url_options[i].name,
                        url_options[i].name);
    if (reader->seen & 1u << i)
        return url_fail(reader, text, "option %s is given twice; leave one out",
                        url_options[i].name);
    if (url_options[i].tls && !reader->url->tls)
        return url_fail(reader, text, "option %s is for TLS; write rediss instead of redis",
                        url_options[i].name);
    reader->seen |= 1u << i;
    return url_options[i].take(reader, &url_options[i], equals + 1, len - name - 1);
}

static int url_read_options(struct url_reader *reader, const char *text)
{
    const struct weir__redis_url *url = reader->url;
    const char *first = text;
    while (*text) {
        size_t len = strcspn(text, "&");
        int code = url_take_option(reader, text, len);
        if (code)
            return code;
        text += len + (text[len] == '&');
    }
    if (!url->cert[0] != !url->key[0])
        return url_fail(reader, first, "cert= and key= go together, %s= is missing",
                        url->cert[0] ? "key" : "cert");
    if (url->slice_life_us != SLICE_LIFE_US && !url->slices)
        return url_fail(reader, first, "slice-life= goes with slices=, which is missing");
    if (reader->password_given && url->password_file[0])
        return url_fail(reader, first,
                        "a password and password-file= as well; leave one of them out");
    return 0;
}

static void url_option_defaults(struct weir__redis_url *url)
{
    memcpy(url->prefix, PREFIX, sizeof PREFIX);
    url->deadline_us = DEADLINE_US;
    url->peers = 1;
    url->slice_life_us = SLICE_LIFE_US;
    url->size = SIZE;
    url->verify = true;
}

/* ---- options as text ---- */

static void url_put_name(struct weir__buffer *buffer, const char *name, char *mark)
{
    weir__put_format(buffer, "%c%s=", *mark, name);
    *mark = '&';
}

static void url_put_choice(struct weir__buffer *buffer, const char *name, const char *value,
                           char *mark)
{
    url_put_name(buffer, name, mark);
    weir__put_text(buffer, value);
}

/* Those that are not at their defaults, the first after a '?'. */
static void url_put_options(struct weir__buffer *buffer, const struct weir__redis_url *url)
{
    char mark = '?';
    for (size_t i = 0; i < WEIR__COUNT(url_options); i++) {
        const char *field = (const char *)url + url_options[i].field;
        bool is_prefix = url_options[i].field == offsetof(struct weir__redis_url, prefix);
        if (url_options[i].take != url_take_text || !strcmp(field, is_prefix ? PREFIX : ""))
            continue;
        url_put_name(buffer, url_options[i].name, &mark);
        url_encode(buffer, field, ":/");
    }
    if (url->deadline_us != DEADLINE_US) {
        url_put_name(buffer, "deadline", &mark);
        weir__put_duration(buffer, url->deadline_us, false);
    }
    if (url->fail != WEIR__FAIL_LOCAL)
        url_put_choice(buffer, "fail", weir__redis_fail_names[url->fail], &mark);
    if (url->peers != 1) {
        url_put_name(buffer, "peers", &mark);
        weir__put_int(buffer, url->peers);
    }
    if (url->slices) {
        url_put_name(buffer, "slices", &mark);
        weir__put_share(buffer, url->slices);
    }
    if (url->slice_life_us != SLICE_LIFE_US) {
        url_put_name(buffer, "slice-life", &mark);
        weir__put_duration(buffer, url->slice_life_us, false);
    }
    if (url->size != SIZE) {
        url_put_name(buffer, "size", &mark);
        weir__put_format(buffer, "%lluk", (unsigned long long)url->size >> 10);
    }
    if (url->engine != WEIR__ENGINE_AUTO)
        url_put_choice(buffer, "engine", url_engine_names[url->engine], &mark);
    if (url->db != 0 && url->kind != WEIR__REDIS_SINGLE) {
        url_put_name(buffer, "db", &mark);
        weir__put_int(buffer, url->db);
    }
    if (!url->verify)
        url_put_choice(buffer, "verify", url_verify_names[0], &mark);
}

/* ---- the whole address ---- */

bool weir__is_redis_url(const char *text)
{
    if (strncmp(text, "redis", 5))
        return false;
    text += text[5] == 's' ? 6 : 5;
    return *text == ':' || *text == '+';
}

static const struct url_scheme *url_find_scheme(const char *text)
{
    for (size_t i = 0; i < WEIR__COUNT(url_schemes); i++) {
        if (!strncmp(text, url_schemes[i].name, strlen(url_schemes[i].name)))
            return &url_schemes[i];
    }
    return NULL;
}

int weir__redis_url_parse(const char *text, struct weir__redis_url *ret, weir_error *err)
{
    struct weir__redis_url url = {.kind = WEIR__REDIS_SINGLE};
    struct url_reader reader = {.text = text, .quotable = text, .url = &url, .err = err};
    const char *at = strrchr(text, '@');
    if (at)
        reader.quotable = at + 1;
    const struct url_scheme *scheme = url_find_scheme(text);
    if (!scheme)
        return url_fail(&reader, text, "unknown scheme; expected one like " EXAMPLES);
    url.kind = scheme->kind;
    url.tls = scheme->tls;
    url_option_defaults(&url);
    const char *authority = text + strlen(scheme->name);
    const char *path = authority + strcspn(authority, "/?");
    const char *options = path + strcspn(path, "?");
    if (url.kind != WEIR__REDIS_UNIX && memchr(path, '@', (size_t)(options - path)))
        return url_fail(&reader, path,
                        "a / before the @; in a user or a password write it as %%2F");
    int code = url_take_authority(&reader, authority, (size_t)(path - authority));
    if (code == 0)
        code = url_take_path(&reader, path, (size_t)(options - path));
    if (code == 0)
        code = url_read_options(&reader, options + (*options == '?'));
    if (code)
        return code;
    if (url.user[0] && !reader.password_given && !url.password_file[0])
        return url_fail(&reader, authority,
                        "a user without a password; write user:password@host, :password@host "
                        "for the default user, or add password-file=");
    *ret = url;
    return 0;
}

void weir__put_redis_url(struct weir__buffer *buffer, const struct weir__redis_url *url)
{
    const struct url_scheme *scheme = url_schemes;
    while (scheme->kind != url->kind || scheme->tls != url->tls)
        scheme++;
    assert(scheme < url_schemes + WEIR__COUNT(url_schemes));
    weir__put_text(buffer, scheme->name);
    url_encode(buffer, url->user, "");
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
    url_encode(buffer, url->master, "");
    url_encode(buffer, url->path, "/");
    url_put_options(buffer, url);
}
