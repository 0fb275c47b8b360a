/* Redis store addresses: each part, each default, each refusal with its column and words, and that
 * no message ever holds a password. */
#include "test.h"

#include "wire/url.h"

static struct weir__redis_url url;
static weir_error err;

static int is(const char *got, const char *expected)
{
    if (strcmp(got, expected))
        printf("    found    \"%s\"\n    expected \"%s\"\n", got, expected);
    return !strcmp(got, expected);
}

static int parse(const char *text)
{
    err = (weir_error){0, 0, ""};
    return weir__redis_url_parse(text, &url, &err);
}

/* What it reads as, in the canonical spelling, which reads as itself. */
static void reads(const char *text, const char *expected)
{
    char again[8192];
    struct weir__buffer buffer = weir__buffer_over(again, sizeof again);
    if (!CHECK(parse(text) == 0)) {
        printf("    %s: %s\n", text, err.message);
        return;
    }
    weir__put_redis_url(&buffer, &url);
    CHECK(is(buffer.data, expected));
    CHECK(weir__is_redis_url(text));
    if (url.password[0])
        return;
    struct weir__redis_url first = url;
    CHECK(parse(expected) == 0 && !memcmp(&first, &url, sizeof url));
}

static void refuses(const char *text, int column, const char *message)
{
    char expected[512];
    url.db = 77;
    CHECK_INT(parse(text), WEIR_EURL);
    CHECK_INT(err.code, WEIR_EURL);
    CHECK_INT(err.column, column);
    snprintf(expected, sizeof expected, "store address, column %d: %s", column, message);
    CHECK(is(err.message, expected));
    CHECK_INT(url.db, 77);
    CHECK_INT(weir__redis_url_parse(text, &url, NULL), WEIR_EURL);
}

static void test_defaults(void)
{
    CHECK(parse("redis://localhost") == 0);
    CHECK_INT(url.kind, WEIR__REDIS_SINGLE);
    CHECK_INT(url.host_count, 1);
    CHECK(is(url.hosts[0].name, "localhost"));
    CHECK_INT(url.hosts[0].port, 6379);
    CHECK(!url.tls && url.verify && !url.user[0] && !url.password[0] && !url.password_file[0]);
    CHECK(!url.path[0] && !url.master[0] && !url.ca[0] && !url.cert[0] && !url.key[0]);
    CHECK_INT(url.db, 0);
    CHECK(is(url.prefix, "weir:"));
    CHECK_INT(url.deadline_us, 50000);
    CHECK_INT(url.fail, WEIR__FAIL_LOCAL);
    CHECK_INT(url.peers, 1);
    CHECK_INT(url.size, 16 << 20);
    CHECK_INT(url.engine, WEIR__ENGINE_AUTO);
    reads("redis://localhost", "redis://localhost:6379/0");
    reads("redis://localhost/", "redis://localhost:6379/0");
    reads("redis://localhost?", "redis://localhost:6379/0");
}

static void test_hosts(void)
{
    reads("redis://10.1.2.3:1/7", "redis://10.1.2.3:1/7");
    reads("redis://[::1]", "redis://[::1]:6379/0");
    reads("redis://[fe80::1:2]:65535/15", "redis://[fe80::1:2]:65535/15");
    reads("rediss://my_cache.example-1.com", "rediss://my_cache.example-1.com:6379/0");
    reads("redis+cluster://a,b:7000,[::1]:7001/", "redis+cluster://a:6379,b:7000,[::1]:7001");
    reads("rediss+cluster://a:1", "rediss+cluster://a:1");
    reads("redis+cluster://a/0?db=0", "redis+cluster://a:6379");
    reads("redis+sentinel://a,b:5/mymaster", "redis+sentinel://a:26379,b:5/mymaster");
    reads("rediss+sentinel://a/my%2Fmaster?db=3", "rediss+sentinel://a:26379/my%2Fmaster?db=3");
    reads("redis+unix:///run/redis.sock?db=2", "redis+unix:///run/redis.sock?db=2");
    reads("redis+unix:///run/a%20b@c", "redis+unix:///run/a%20b%40c");
    CHECK(is(url.path, "/run/a b@c"));
    reads("redis://h/2147483647", "redis://h:6379/2147483647");
    reads("redis+cluster://a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a",
          "redis+cluster://a:6379,a:6379,a:6379,a:6379,a:6379,a:6379,a:6379,a:6379,a:6379,a:6379,"
          "a:6379,a:6379,a:6379,a:6379,a:6379,a:6379");
}

static void test_login(void)
{
    reads("redis://:secret@h", "redis://:***@h:6379/0");
    CHECK(is(url.password, "secret"));
    CHECK(is(url.user, ""));
    reads("redis://joe:secret@h:1/2", "redis://joe:***@h:1/2");
    CHECK(is(url.user, "joe"));
    reads("redis://j%3Ao%40e:%2Fp%25%3a%40@h", "redis://j%3Ao%40e:***@h:6379/0");
    CHECK(is(url.user, "j:o@e"));
    CHECK(is(url.password, "/p%:@"));
    reads("redis://joe:p@ss:w@h", "redis://joe:***@h:6379/0");
    CHECK(is(url.password, "p@ss:w"));
    reads("redis://joe:@h", "redis://joe:@h:6379/0");
    reads("redis://:@h", "redis://h:6379/0");
    reads("redis://@h", "redis://h:6379/0");
    reads("redis://joe@h?password-file=/run/secret",
          "redis://joe@h:6379/0?password-file=/run/secret");
    reads("redis+unix://joe:secret@/run/s", "redis+unix://joe:***@/run/s");
    reads("redis+cluster://joe:secret@a,b", "redis+cluster://joe:***@a:6379,b:6379");
}

static void test_options(void)
{
    reads("redis://h?prefix=a%26b:&deadline=1.5s&fail=open&peers=12&size=1m&engine=lua",
          "redis://h:6379/0?prefix=a%26b:&deadline=1s500ms&fail=open&peers=12&size=1024k&"
          "engine=lua");
    CHECK(is(url.prefix, "a&b:"));
    CHECK_INT(url.deadline_us, 1500000);
    CHECK_INT(url.fail, WEIR__FAIL_OPEN);
    CHECK_INT(url.peers, 12);
    CHECK_INT(url.size, 1 << 20);
    CHECK_INT(url.engine, WEIR__ENGINE_LUA);
    reads("redis://h?prefix=", "redis://h:6379/0?prefix=");
    reads("redis://h?prefix=weir:&deadline=50ms&fail=local&peers=1&size=16m&engine=auto",
          "redis://h:6379/0");
    reads("redis://h?fail=closed&engine=module", "redis://h:6379/0?fail=closed&engine=module");
    reads("redis://h?engine=function", "redis://h:6379/0?engine=function");
    reads("redis://h?prefix=a=b@c", "redis://h:6379/0?prefix=a%3Db%40c");
    reads("rediss://h?ca=/a%20b&cert=/c&key=/k&verify=no",
          "rediss://h:6379/0?ca=/a%20b&cert=/c&key=/k&verify=no");
    reads("rediss://h?verify=yes", "rediss://h:6379/0");
    CHECK(url.tls && url.verify);
    reads("redis://h?peers=2&", "redis://h:6379/0?peers=2");
    reads("redis://h?slices=5%&peers=10&slice-life=1s", "redis://h:6379/0?peers=10&slices=5%");
    reads("redis://h?slices=12.5%25&slice-life=500ms",
          "redis://h:6379/0?slices=12.5%&slice-life=500ms");
    reads("redis://h?deadline=ms", "redis://h:6379/0?deadline=1ms");
}

#define EXAMPLES                                                                                   \
    "redis://host:6379/0, redis+cluster://host:6379,host:6379, "                                   \
    "redis+sentinel://host:26379/master or redis+unix:///path"
#define NO_HOST "a host is missing; expected one like " EXAMPLES
#define BAD_HOST ": write a name, an IPv4 address, or an IPv6 address in brackets like [::1]"
#define BAD_PORT " is not a number from 1 to 65535; write host:6379, or user:password@host"

static void test_refused_addresses(void)
{
    refuses("", 1, "unknown scheme; expected one like " EXAMPLES);
    refuses("redis:/h", 1, "unknown scheme; expected one like " EXAMPLES);
    refuses("redis+tls://h", 1, "unknown scheme; expected one like " EXAMPLES);
    refuses("rediss+unix:///s", 1, "unknown scheme; expected one like " EXAMPLES);
    refuses("redis://", 9, NO_HOST);
    refuses("redis:///0", 9, NO_HOST);
    refuses("redis://:6379", 9, NO_HOST);
    refuses("redis://u:p@", 13, NO_HOST);
    refuses("redis+cluster://a,,b", 19, NO_HOST);
    refuses("redis+cluster://a,", 19, NO_HOST);
    refuses("redis://a b", 9, "invalid host \"a b\"" BAD_HOST);
    refuses("redis://a\nb", 9, "invalid host \"a?b\"" BAD_HOST);
    refuses("redis://::1", 9, NO_HOST);
    refuses("redis://[::1", 9, "invalid host \"[\"" BAD_HOST);
    refuses("redis://[]", 9, "invalid host \"[]\"" BAD_HOST);
    refuses("redis://[1.2.3.4]", 9, "invalid host \"[1.2.3.4]\"" BAD_HOST);
    refuses("redis://[::1]x", 9, "invalid host \"[::1]\"" BAD_HOST);
    refuses("redis://u:p@h:0", 15, "the port \"0\"" BAD_PORT);
    refuses("redis://h:65536", 11, "the port \"65536\"" BAD_PORT);
    refuses("redis://h:", 11, "the port \"\"" BAD_PORT);
    refuses("redis://h:-1", 11, "the port" BAD_PORT);
    refuses("redis://u:p@h:port", 15, "the port \"port\"" BAD_PORT);
    refuses("redis://a,b", 10, "several hosts; write redis+cluster:// or redis+sentinel://");
    refuses("redis+cluster://a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,b", 49,
            "more than 16 hosts; name some, the rest is learnt");
    refuses("redis://h/x", 11, "invalid database \"x\": expected a number, like /0");
    refuses("redis://h/1/2", 11, "invalid database \"1/2\": expected a number, like /0");
    refuses("redis://h/-1", 11, "invalid database \"-1\": expected a number, like /0");
    refuses("redis://h/2147483648", 11,
            "invalid database \"2147483648\": expected a number, like /0");
    refuses("redis+cluster://h/1", 19, "a cluster has database 0 only, found 1; leave it out");
    refuses("redis+sentinel://h", 19,
            "the name that the Sentinels watch is missing or has a / in it; write "
            "redis+sentinel://host/master, and ?db=1 for a database");
    refuses("redis+sentinel://h/m/1", 20,
            "the name that the Sentinels watch is missing or has a / in it; write "
            "redis+sentinel://host/master, and ?db=1 for a database");
    refuses("redis+unix://", 14, "no path of a socket; write redis+unix:///path");
    refuses("redis+unix://run/s", 14,
            "a socket has no host, found \"run\"; write redis+unix:///path");
    refuses("redis://u@h", 9,
            "a user without a password; write user:password@host, :password@host for the default "
            "user, or add password-file=");
    refuses("redis+unix:///%00", 15, "a %00 in the path; leave it out");
}

#define OPTIONS                                                                                    \
    ": expected one of prefix, deadline, fail, peers, slices, slice-life, size, engine, db, "      \
    "password-file, ca, cert, "                                                                    \
    "key and verify"

static void test_refused_options(void)
{
    refuses("redis://h?bogus=1", 11, "unknown option \"bogus\"" OPTIONS);
    refuses("redis://h?peers=1&Fail=open", 19, "unknown option \"Fail\"" OPTIONS);
    refuses("redis://h?=1", 11, "unknown option \"\"" OPTIONS);
    refuses("redis://h?peers", 11, "option peers has no value; write peers=");
    refuses("redis://h?peers=1&peers=1", 19, "option peers is given twice; leave one out");
    refuses("redis://h?slices=5", 18,
            "invalid slices \"5\": expected a percentage like 5%: a share needs its percent sign, "
            "like 50%");
    refuses("redis://h?slices=51%", 18,
            "invalid slices \"51%\": expected a percentage like 5%: slices are at most 50%");
    refuses("redis://h?slices=%25", 18,
            "invalid slices \"%25\": expected a percentage like 5%: expected a percentage like 50% "
            "or 12.5%");
    refuses("redis://h?slice-life=2s", 11, "slice-life= goes with slices=, which is missing");
    refuses("redis://h?slice-life=6s", 22,
            "invalid slice-life \"6s\": expected a duration like 1s: it is from 10ms to 5s");
    refuses("redis://h?slice-life=1s1", 22,
            "invalid slice-life \"1s1\": expected a duration like 1s: a duration needs a unit: us, "
            "ms, s, m, h, d or w (or sec, min, hour, day, week)");
    refuses("redis://h?peers=0", 17, "invalid peers \"0\": expected a number from 1 to 1000000");
    refuses("redis://h?peers=x", 17, "invalid peers \"x\": expected a number from 1 to 1000000");
    refuses("redis://h?fail=never", 16, "invalid fail \"never\": expected local, open or closed");
    refuses("redis://h?engine=", 18, "invalid engine \"\": expected auto, module, lua or function");
    refuses("rediss://h?verify=maybe", 19, "invalid verify \"maybe\": expected no or yes");
    refuses("redis://h?deadline=", 20,
            "invalid deadline \"\": expected a duration like 50ms: a duration needs a unit: us, "
            "ms, s, m, "
            "h, d or w (or sec, min, hour, day, week)");
    refuses("redis://h?deadline=50", 20,
            "invalid deadline \"50\": expected a duration like 50ms: a duration needs a unit: us, "
            "ms, s, m, "
            "h, d or w (or sec, min, hour, day, week)");
    refuses(
        "redis://h?deadline=1s,", 20,
        "invalid deadline \"1s,\": expected a duration like 50ms: something follows the duration");
    refuses("redis://h?size=1k", 16, "invalid size \"1k\": expected one like 16m, at least 64k");
    refuses("redis://h?size=", 16, "invalid size \"\": expected one like 16m, at least 64k");
    refuses("redis://h?size=1m?large=3", 16,
            "invalid size \"1m?large=3\": expected one like 16m, at least 64k");
    refuses("redis://h?db=1", 14, "db= goes after the host here: redis://host/1");
    refuses("redis+unix:///s?db=x", 20, "invalid database \"x\": expected a number, like db=0");
    refuses("redis+cluster://h?db=1", 22, "a cluster has database 0 only, found 1; leave it out");
    refuses("redis://h?ca=/a", 11, "option ca is for TLS; write rediss instead of redis");
    refuses("redis://h?verify=no", 11, "option verify is for TLS; write rediss instead of redis");
    refuses("rediss://h?ca=", 15, "ca= has no value; write ca=/path or leave it out");
    refuses("rediss://h?cert=/a", 12, "cert= and key= go together, key= is missing");
    refuses("rediss://h?key=/a", 12, "cert= and key= go together, cert= is missing");
    refuses("redis://:p@h?password-file=/a", 14,
            "a password and password-file= as well; leave one of them out");
    refuses("redis://h?prefix=a%2", 19,
            "expected two hex digits after the % in the prefix; write a % itself as %25");
    refuses("redis://h?prefix=%zz", 18,
            "expected two hex digits after the % in the prefix; write a % itself as %25");
}

/* A field takes what it has room for, and not a byte more. */
static void test_lengths(void)
{
    static const struct {
        const char *start, *end, *message;
        size_t most;
    } fields[] = {
        {"redis://", ":p@h", "the user is too long; it has at most 255 bytes", 255},
        {"redis://:", "@h", "the password is too long; it has at most 4095 bytes", 4095},
        {"redis+unix:///", "", "the path is too long; it has at most 107 bytes", 106},
        {"redis+sentinel://h/", "", "the master's name is too long; it has at most 255 bytes", 255},
        {"redis://h?prefix=", "", "the prefix is too long; it has at most 255 bytes", 255},
        {"redis://h?password-file=", "", "the password-file is too long; it has at most 1023 bytes",
         1023},
        {"redis://", ":1", "invalid host", 253},
    };
    for (size_t i = 0; i < WEIR__COUNT(fields); i++) {
        for (size_t over = 0; over < 2; over++) {
            char text[8192], filler[8192] = "";
            memset(filler, 'f', fields[i].most + over);
            snprintf(text, sizeof text, "%s%.5000s%s", fields[i].start, filler, fields[i].end);
            CHECK_INT(parse(text), over ? WEIR_EURL : 0);
            CHECK(!over || strstr(err.message, fields[i].message));
        }
    }
}

/* However wrong the address, the password stays out of the message. */
static void test_password_is_kept(void)
{
    static const char *const addresses[] = {
        "redis://:hunter2@",
        "redis://u:hunter2@h:x",
        "redis://u:hunter2@h/x",
        "redis://u:hunter2@h?x=1",
        "redis://u:hunter2",
        "redis://:hunter2",
        "redis://u:hunter2,b",
        "redis://u:hunter2/0",
        "redis://u:hunter2?peers=x",
        "redis://u:x/hunter2@h",
        "redis://u:x/hunter2@h/0",
        "redis://u:x?hunter2@h",
        "redis://u:x?hunter2=@h",
        "redis://u:x?fail=hunter2@h",
        "redis://u:x@y/hunter2@h",
        "redis://u:x@y?hunter2@h",
        "redis://u:hunter2%@h",
        "redis://u:hunter2%zz@h",
        "redis://u:%00hunter2@h",
        "redis://hunter2@h",
        "redis://u!:hunter2",
        "redis://[u]:hunter2",
        "redis://[u:hunter2",
        "http://u:hunter2@h",
        "u:hunter2@h",
        "redis+unix://u:hunter2/s",
        "redis+unix://u:x/hunter2@/s",
        "redis+unix://u:hunter2@h/s",
        "redis+cluster://u:hunter2@h/1",
        "redis+cluster://u:a,hunter2!@h",
        "redis+sentinel://u:hunter2@h",
        "redis://h?password=hunter2",
        "redis://h?auth=hunter2",
        "redis://u:hunter2@h?password-file=/a",
    };
    for (size_t i = 0; i < WEIR__COUNT(addresses); i++) {
        int code = parse(addresses[i]);
        if (!CHECK(!strstr(err.message, "hunter")))
            printf("    %s: %s\n", addresses[i], err.message);
        if (!CHECK(code == WEIR_EURL || !strcmp(addresses[i], "redis+cluster://u:a,hunter2!@h")))
            printf("    %s is read\n", addresses[i]);
    }
}

static void test_scheme(void)
{
    CHECK(weir__is_redis_url("redis://h"));
    CHECK(weir__is_redis_url("rediss:"));
    CHECK(weir__is_redis_url("redis+bogus://h"));
    CHECK(!weir__is_redis_url("redisx://h"));
    CHECK(!weir__is_redis_url("redisd://h"));
    CHECK(!weir__is_redis_url("redi://h"));
    CHECK(!weir__is_redis_url("redis"));
    CHECK(!weir__is_redis_url("memory:64m"));
    CHECK(!weir__is_redis_url(""));
}

int main(void)
{
    test_defaults();
    test_hosts();
    test_login();
    test_options();
    test_refused_addresses();
    test_refused_options();
    test_lengths();
    test_password_is_kept();
    test_scheme();
    return test_report();
}
