/* The options of Redis store addresses: one table says their names, where they go and how each is
 * read; printing goes by the same table. */
#include "wire/url_parts.h"

#include "base/duration.h"
#include "store/region.h"

#include <string.h>

#define PREFIX "weir:"
#define DEADLINE_US 50000
#define SIZE (UINT64_C(16) << 20)
#define PEERS_MAX 1000000 /* a share of a limit by more is no share */

static const char *const fail_names[] = {
    [WEIR__FAIL_LOCAL] = "local", [WEIR__FAIL_OPEN] = "open", [WEIR__FAIL_CLOSED] = "closed"};
static const char *const engine_names[] = {[WEIR__ENGINE_AUTO] = "auto",
                                           [WEIR__ENGINE_MODULE] = "module",
                                           [WEIR__ENGINE_LUA] = "lua",
                                           [WEIR__ENGINE_FUNCTION] = "function"};
static const char *const verify_names[] = {"no", "yes"};

struct option {
    const char *name;
    int (*take)(struct weir__url_reader *reader, const struct option *option, const char *value,
                size_t len);
    size_t field, size; /* take_text: where it goes */
    bool tls;           /* makes sense over TLS only */
};

/* ---- reading ---- */

static int take_text(struct weir__url_reader *reader, const struct option *option,
                     const char *value, size_t len)
{
    /* Only a prefix may be empty: the caller's keys as they are. */
    if (len == 0 && strcmp(option->name, "prefix"))
        return weir__url_fail(reader, value, "%s= has no value; write %s=/path or leave it out",
                              option->name, option->name);
    return weir__url_decode(reader, option->name, value, len, (char *)reader->url + option->field,
                            option->size);
}

/* Which of the names; -1, with the error filled: none. */
static int take_name(struct weir__url_reader *reader, const struct option *option,
                     const char *const *names, size_t n, const char *value, size_t len)
{
    char all[64];
    struct weir__buffer list = weir__buffer_over(all, sizeof all);
    for (size_t i = 0; i < n; i++) {
        if (len == strlen(names[i]) && !memcmp(value, names[i], len))
            return (int)i;
        weir__put_format(&list, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", names[i]);
    }
    weir__url_fail(reader, value, "%s is %s, found \"%s\"", option->name, all,
                   weir__url_quote(reader, value, len).text);
    return -1;
}

static int take_fail(struct weir__url_reader *reader, const struct option *option,
                     const char *value, size_t len)
{
    int i = take_name(reader, option, fail_names, WEIR__COUNT(fail_names), value, len);
    reader->url->fail = i < 0 ? WEIR__FAIL_LOCAL : (enum weir__redis_fail)i;
    return i < 0 ? WEIR_EURL : 0;
}

static int take_engine(struct weir__url_reader *reader, const struct option *option,
                       const char *value, size_t len)
{
    int i = take_name(reader, option, engine_names, WEIR__COUNT(engine_names), value, len);
    reader->url->engine = i < 0 ? WEIR__ENGINE_AUTO : (enum weir__redis_engine)i;
    return i < 0 ? WEIR_EURL : 0;
}

static int take_verify(struct weir__url_reader *reader, const struct option *option,
                       const char *value, size_t len)
{
    int i = take_name(reader, option, verify_names, WEIR__COUNT(verify_names), value, len);
    reader->url->verify = i != 0;
    return i < 0 ? WEIR_EURL : 0;
}

static int take_deadline(struct weir__url_reader *reader, const struct option *option,
                         const char *value, size_t len)
{
    const char *why = "something follows the duration";
    if (weir__duration_parse(value, len, &reader->url->deadline_us, &why) != len || len == 0)
        return weir__url_fail(reader, value, "%s is a duration like 50ms, found \"%s\": %s",
                              option->name, weir__url_quote(reader, value, len).text, why);
    return 0;
}

static int take_peers(struct weir__url_reader *reader, const struct option *option,
                      const char *value, size_t len)
{
    int64_t peers;
    if (!weir__url_number(value, len, 1, PEERS_MAX, &peers))
        return weir__url_fail(reader, value, "%s is a number from 1 to %d, found \"%s\"",
                              option->name, PEERS_MAX, weir__url_quote(reader, value, len).text);
    reader->url->peers = (int32_t)peers;
    return 0;
}

/* As a memory: store reads its own, since that is what the stand-in is. */
static int take_size(struct weir__url_reader *reader, const struct option *option,
                     const char *value, size_t len)
{
    char address[40];
    struct weir__buffer buffer = weir__buffer_over(address, sizeof address);
    struct weir__region region = {.size = 0};
    weir__put_text(&buffer, "memory:");
    weir__put(&buffer, value, len);
    if (buffer.cut || strlen(address) != buffer.len || strchr(address, '?') ||
        weir__region_parse(address, &region, NULL) || region.size == 0)
        return weir__url_fail(reader, value, "%s is one like 16m, at least 64k, found \"%s\"",
                              option->name, weir__url_quote(reader, value, len).text);
    reader->url->size = region.size;
    return 0;
}

static int take_db(struct weir__url_reader *reader, const struct option *option, const char *value,
                   size_t len)
{
    int64_t db;
    if (reader->url->kind == WEIR__REDIS_SINGLE)
        return weir__url_fail(reader, value, "%s= goes behind the host here: redis://host/1",
                              option->name);
    if (!weir__url_number(value, len, 0, INT32_MAX, &db))
        return weir__url_fail(reader, value, "\"%s\" is no database; write its number, like %s=0",
                              weir__url_quote(reader, value, len).text, option->name);
    if (reader->url->kind == WEIR__REDIS_CLUSTER && db != 0)
        return weir__url_fail(reader, value,
                              "a cluster has database 0 only, found %d; leave it out", (int)db);
    reader->url->db = (int32_t)db;
    return 0;
}

#define TEXT(name, field, tls)                                                                     \
    {                                                                                              \
        name, take_text, offsetof(struct weir__redis_url, field),                                  \
            sizeof(((struct weir__redis_url *)0)->field), tls                                      \
    }

static const struct option options[] = {
    TEXT("prefix", prefix, false),
    {"deadline", take_deadline, 0, 0, false},
    {"fail", take_fail, 0, 0, false},
    {"peers", take_peers, 0, 0, false},
    {"size", take_size, 0, 0, false},
    {"engine", take_engine, 0, 0, false},
    {"db", take_db, 0, 0, false},
    TEXT("password-file", password_file, false),
    TEXT("ca", ca, true),
    TEXT("cert", cert, true),
    TEXT("key", key, true),
    {"verify", take_verify, 0, 0, true},
};

#define NAMES                                                                                      \
    "prefix, deadline, fail, peers, size, engine, db, password-file, ca, cert, key and verify"

static int take_option(struct weir__url_reader *reader, const char *text, size_t len)
{
    const char *equals = memchr(text, '=', len);
    size_t name = equals ? (size_t)(equals - text) : len;
    size_t i = 0;
    while (i < WEIR__COUNT(options) &&
           (strlen(options[i].name) != name || memcmp(options[i].name, text, name)))
        i++;
    if (i == WEIR__COUNT(options))
        return weir__url_fail(reader, text, "unknown option \"%s\"; there are " NAMES,
                              weir__url_quote(reader, text, name).text);
    if (!equals)
        return weir__url_fail(reader, text, "option %s has no value; write %s=", options[i].name,
                              options[i].name);
    if (reader->seen & 1u << i)
        return weir__url_fail(reader, text, "option %s is given twice; leave one out",
                              options[i].name);
    if (options[i].tls && !reader->url->tls)
        return weir__url_fail(reader, text, "option %s is for TLS; write rediss instead of redis",
                              options[i].name);
    reader->seen |= 1u << i;
    return options[i].take(reader, &options[i], equals + 1, len - name - 1);
}

int weir__url_options(struct weir__url_reader *reader, const char *text)
{
    const struct weir__redis_url *url = reader->url;
    const char *first = text;
    while (*text) {
        size_t len = strcspn(text, "&");
        int code = take_option(reader, text, len);
        if (code)
            return code;
        text += len + (text[len] == '&');
    }
    if (!url->cert[0] != !url->key[0])
        return weir__url_fail(reader, first, "cert= and key= go together, %s= is missing",
                              url->cert[0] ? "key" : "cert");
    if (reader->password_given && url->password_file[0])
        return weir__url_fail(reader, first,
                              "a password and password-file= as well; leave one of them out");
    return 0;
}

void weir__url_option_defaults(struct weir__redis_url *url)
{
    memcpy(url->prefix, PREFIX, sizeof PREFIX);
    url->deadline_us = DEADLINE_US;
    url->peers = 1;
    url->size = SIZE;
    url->verify = true;
}

/* ---- printing ---- */

static void put_name(struct weir__buffer *buffer, const char *name, char *mark)
{
    weir__put_format(buffer, "%c%s=", *mark, name);
    *mark = '&';
}

static void put_choice(struct weir__buffer *buffer, const char *name, const char *value, char *mark)
{
    put_name(buffer, name, mark);
    weir__put_text(buffer, value);
}

void weir__url_put_options(struct weir__buffer *buffer, const struct weir__redis_url *url)
{
    char mark = '?';
    for (size_t i = 0; i < WEIR__COUNT(options); i++) {
        const char *field = (const char *)url + options[i].field;
        bool is_prefix = options[i].field == offsetof(struct weir__redis_url, prefix);
        if (options[i].take != take_text || !strcmp(field, is_prefix ? PREFIX : ""))
            continue;
        put_name(buffer, options[i].name, &mark);
        weir__url_encode(buffer, field, ":/");
    }
    if (url->deadline_us != DEADLINE_US) {
        put_name(buffer, "deadline", &mark);
        weir__put_duration(buffer, url->deadline_us, false);
    }
    if (url->fail != WEIR__FAIL_LOCAL)
        put_choice(buffer, "fail", fail_names[url->fail], &mark);
    if (url->peers != 1) {
        put_name(buffer, "peers", &mark);
        weir__put_int(buffer, url->peers);
    }
    if (url->size != SIZE) {
        put_name(buffer, "size", &mark);
        weir__put_format(buffer, "%lluk", (unsigned long long)url->size >> 10);
    }
    if (url->engine != WEIR__ENGINE_AUTO)
        put_choice(buffer, "engine", engine_names[url->engine], &mark);
    if (url->db != 0 && url->kind != WEIR__REDIS_SINGLE) {
        put_name(buffer, "db", &mark);
        weir__put_int(buffer, url->db);
    }
    if (!url->verify)
        put_choice(buffer, "verify", verify_names[0], &mark);
}
