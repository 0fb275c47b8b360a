/* What policies are made of: addresses, patterns, and the one spelling of paths and hosts. */
#include "base/span.h"
#include "policy/conditions.h"
#include "test.h"

#include <arpa/inet.h>
#include <stdlib.h>

static struct weir__span span(const char *text)
{
    return (struct weir__span){text, strlen(text)};
}

/* ---- addresses ---- */

static void test_addresses(void)
{
    static const struct {
        const char *text, *same; /* NULL: no address */
    } cases[] = {
        {"1.2.3.4", "1.2.3.4"},
        {"255.255.255.255", "255.255.255.255"},
        {"0.0.0.0", "0.0.0.0"},
        {"1.2.3.4:80", "1.2.3.4"},
        {"1.2.3.4:65535", "1.2.3.4"},
        {"::1", "::1"},
        {"::", "::"},
        {"2001:DB8::1", "2001:db8::1"},
        {"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
        {"2001:0:0:1:0:0:0:1", "2001:0:0:1::1"},
        {"1:0:2:0:3:0:4:0", "1:0:2:0:3:0:4:0"},
        {"1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7:0"},
        {"1:2:3:4:5:6::", "1:2:3:4:5:6::"},
        {"[2001:db8::1]", "2001:db8::1"},
        {"[2001:db8::1]:443", "2001:db8::1"},
        {"fe80::1%eth0", "fe80::1"},
        {"[fe80::1%eth0]:443", "fe80::1"},
        {"::ffff:1.2.3.4", "1.2.3.4"},
        {"::FFFF:102:304", "1.2.3.4"},
        {"[::ffff:1.2.3.4]:80", "1.2.3.4"},
        {"::1.2.3.4", "::102:304"},
        {"64:ff9b::1.2.3.4", "64:ff9b::102:304"},
        {"", NULL},
        {"unknown", NULL},
        {"1.2.3", NULL},
        {"1.2.3.4.5", NULL},
        {"1.2.3.256", NULL},
        {"1.2.3.04", NULL},
        {"01.2.3.4", NULL},
        {"1.2.3.4 ", NULL},
        {" 1.2.3.4", NULL},
        {"1.2.3.4:", NULL},
        {"1.2.3.4:x", NULL},
        {"1.2.3.4:123456", NULL},
        {"1.2.3.4%eth0", NULL},
        {"1.2.3.4/8", NULL},
        {"1.2.3.-4", NULL},
        {"0x1.2.3.4", NULL},
        {"[1.2.3.4]", NULL},
        {":", NULL},
        {":::", NULL},
        {"[::1", NULL},
        {"[::1]x", NULL},
        {"[::1]:", NULL},
        {"[]", NULL},
        {"::1%", NULL},
        {"1:2:3:4:5:6:7:8:9", NULL},
        {"12345::", NULL},
        {"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc", NULL},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        char text[64];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        struct weir__address address;
        bool found = weir__address_read(cases[i].text, strlen(cases[i].text), &address);
        if (found)
            weir__put_address(&buffer, &address);
        if (!CHECK(found == (cases[i].same != NULL)) || (found && strcmp(text, cases[i].same)))
            printf("\"%s\" is \"%s\"\n", cases[i].text, text);
        if (found)
            CHECK_TEXT(text, cases[i].same);
    }
    struct weir__address address;
    CHECK(!weir__address_read("::1\0", 4, &address));
    CHECK(!weir__address_read("1.2.3.4\0", 8, &address));
}

/* What is written is what the C library writes, but for IPv4 within IPv6. */
static void test_address_texts(void)
{
    uint32_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        struct weir__address address = {.family = 6}, again;
        char text[64], theirs[INET6_ADDRSTRLEN];
        for (int j = 0; j < 16; j++) {
            seed = seed * 1664525 + 1013904223;
            address.bytes[j] = (seed >> 24) % 3 ? 0 : (uint8_t)(seed >> 16);
        }
        address.bytes[0] |= 0x20;
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_address(&buffer, &address);
        inet_ntop(AF_INET6, address.bytes, theirs, sizeof theirs);
        if (strcmp(text, theirs))
            CHECK_TEXT(text, theirs);
        if (!weir__address_read(text, buffer.len, &again) || memcmp(&again, &address, sizeof again))
            CHECK_TEXT(text, "the same address");
    }
    CHECK(true);
}

static void test_networks(void)
{
    static const struct {
        const char *network, *inside, *outside;
    } cases[] = {
        {"10.0.0.0/8", "10.255.0.1", "11.0.0.0"},
        {"10.0.0.0/8", "::ffff:10.1.2.3", "::10.1.2.3"},
        {"192.168.1.128/25", "192.168.1.129", "192.168.1.127"},
        {"0.0.0.0/0", "255.1.2.3", "::1"},
        {"1.2.3.4", "1.2.3.4", "1.2.3.5"},
        {"2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"},
        {"::1", "::1", "::2"},
        {"::/0", "ffff::1", "1.2.3.4"},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        struct weir__network network;
        struct weir__address inside, outside;
        CHECK(!weir__network_read(cases[i].network, strlen(cases[i].network), &network));
        CHECK(weir__address_read(cases[i].inside, strlen(cases[i].inside), &inside));
        CHECK(weir__address_read(cases[i].outside, strlen(cases[i].outside), &outside));
        CHECK(weir__network_has(&network, &inside));
        CHECK(!weir__network_has(&network, &outside));
    }
    static const struct {
        const char *text, *wrong;
    } bad[] = {
        {"10.0.0.1/8", "bits are set"},
        {"2001:db8::1/64", "bits are set"},
        {"10.0.0.0/33", "0 to 32"},
        {"::/129", "0 to 128"},
        {"10.0.0.0/", "0 to 32"},
        {"10.0.0.0/08", "0 to 32"},
        {"10.0.0.0/8/8", "0 to 32"},
        {"10.0.0.0/-1", "0 to 32"},
        {"10.*", "expected an address"},
        {"::ffff:10.0.0.1", "counts as IPv4"},
        {"", "expected an address"},
        {"10.0.0.1:80", "expected an address"},
        {"fe80::1%lo", "expected an address"},
    };
    for (size_t i = 0; i < WEIR__COUNT(bad); i++) {
        struct weir__network network;
        const char *wrong = weir__network_read(bad[i].text, strlen(bad[i].text), &network);
        if (!CHECK(wrong && strstr(wrong, bad[i].wrong)))
            printf("%s: %s\n", bad[i].text, wrong ? wrong : "accepted");
    }
}

static void test_network_overlaps(void)
{
    static const struct {
        const char *a, *b;
        bool overlap;
    } cases[] = {
        {"10.0.0.0/8", "10.1.0.0/16", true}, {"10.1.0.0/16", "10.0.0.0/8", true},
        {"10.0.0.0/8", "11.0.0.0/8", false}, {"0.0.0.0/0", "::/0", false},
        {"::/0", "2001:db8::/32", true},     {"1.2.3.4", "1.2.3.4", true},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        struct weir__network a, b;
        CHECK(!weir__network_read(cases[i].a, strlen(cases[i].a), &a));
        CHECK(!weir__network_read(cases[i].b, strlen(cases[i].b), &b));
        CHECK_INT(weir__networks_overlap(&a, &b), cases[i].overlap);
    }
}

/* ---- patterns ---- */

static void test_patterns(void)
{
    static const struct {
        const char *pattern;
        const char *has[6], *not [6];
    } cases[] = {
        {"", {""}, {"a"}},
        {"*", {"", "a", "a/b"}, {NULL}},
        {"**", {"", "a"}, {NULL}},
        {"/login", {"/login"}, {"/login/", "/logi", "/Login", ""}},
        {"/api/*", {"/api/", "/api/x", "/api/x/y"}, {"/api", "/apix", "/ap"}},
        {"*.example.com", {"a.example.com", ".example.com"}, {"example.com", "a.example.com."}},
        {"a*b", {"ab", "axb", "abab"}, {"a", "b", "abx", "xab"}},
        {"ab*ba", {"abba", "abxba"}, {"aba", "ab"}},
        {"*a*", {"a", "xax", "aa"}, {"", "x"}},
        {"a*b*c*d", {"abcd", "axbxcxd", "abbccd"}, {"acbd", "abc", "abdc"}},
        {"*ab*ab*", {"abab", "xabxabx"}, {"ab", "aab", "abba"}},
        {"*aab", {"aaab", "aab"}, {"aaba", "ab"}},
        {"\\*", {"*"}, {"a", "", "\\*"}},
        {"a\\**", {"a*", "a*b"}, {"ab"}},
        {"a\\\\b", {"a\\b"}, {"ab"}},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        struct weir__arena arena = {0};
        struct weir__pattern pattern;
        CHECK(!weir__pattern_read(&arena, cases[i].pattern, strlen(cases[i].pattern), true,
                                  &pattern));
        for (size_t j = 0; j < 6 && cases[i].has[j]; j++) {
            if (!CHECK(weir__pattern_has(&pattern, span(cases[i].has[j]))))
                printf("%s should have \"%s\"\n", cases[i].pattern, cases[i].has[j]);
        }
        for (size_t j = 0; j < 6 && cases[i].not [j]; j++) {
            if (!CHECK(!weir__pattern_has(&pattern, span(cases[i].not [j]))))
                printf("%s should not have \"%s\"\n", cases[i].pattern, cases[i].not [j]);
        }
        weir__arena_free(&arena);
    }
    struct weir__arena arena = {0};
    struct weir__pattern pattern;
    CHECK(weir__pattern_read(&arena, "a\\b", 3, true, &pattern));
    CHECK(weir__pattern_read(&arena, "a\\", 2, true, &pattern));
    CHECK(!weir__pattern_read(&arena, "a\\*", 3, false, &pattern) && !pattern.exact);
    CHECK(weir__pattern_has(&pattern, span("a\\b")) && !weir__pattern_has(&pattern, span("ab")));
    weir__arena_free(&arena);
}

/* The plainest matcher there is, which goes back and forth. */
static bool obviously(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return obviously(pattern + 1, text) || (*text && obviously(pattern, text + 1));
    return *pattern == *text && (!*text || obviously(pattern + 1, text + 1));
}

static void test_patterns_like_the_plainest(void)
{
    uint32_t seed = 7;
    long agreed = 0, matched = 0;
    for (int i = 0; i < 50000; i++) {
        char a[12] = "", b[12] = "", text[12] = "";
        char *all[] = {a, b, text};
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525 + 1013904223;
            size_t len = (seed >> 20) % 9;
            for (size_t j = 0; j < len; j++) {
                seed = seed * 1664525 + 1013904223;
                all[k][j] = "ab**"[(seed >> 24) % (k < 2 ? 4 : 2)];
            }
        }
        struct weir__arena arena = {0};
        struct weir__pattern pattern, other;
        CHECK(!weir__pattern_read(&arena, a, strlen(a), true, &pattern));
        CHECK(!weir__pattern_read(&arena, b, strlen(b), true, &other));
        bool has = weir__pattern_has(&pattern, span(text));
        agreed += has == obviously(a, text);
        matched += has;
        /* A text of both proves that they overlap. */
        if (has && obviously(b, text) && !weir__patterns_overlap(&pattern, &other))
            CHECK_TEXT(a, b);
        weir__arena_free(&arena);
    }
    CHECK_INT(agreed, 50000);
    CHECK(matched > 1000);
}

static void test_pattern_lists(void)
{
    enum { N = 500 };
    struct weir__arena arena = {0};
    static struct weir__pattern patterns[3 * N];
    struct weir__condition condition = {0};
    char text[16];
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof text, "%d", 2 * i);
        CHECK(!weir__pattern_read(&arena, text, strlen(text), true, &patterns[i]));
    }
    weir__condition_set_patterns(&condition, patterns, N);
    CHECK_INT(condition.exact_count, N);
    long right = 0;
    for (int i = 0; i < 2 * N; i++) {
        snprintf(text, sizeof text, "%d", i);
        right += weir__pattern_find(condition.exact, N, span(text)) == (i % 2 == 0);
    }
    CHECK_INT(right, 2 * N);
    CHECK(!weir__pattern_find(condition.exact, N, span("")));
    CHECK(!weir__pattern_find(NULL, 0, span("x")));
    weir__arena_free(&arena);
}

/* A pattern and a text that make some matchers try for hours. */
static void test_patterns_take_no_hours(void)
{
    struct weir__arena arena = {0};
    struct weir__pattern pattern;
    char stars[1024], text[65536];
    for (size_t i = 0; i < sizeof stars; i++)
        stars[i] = i % 2 ? 'a' : '*';
    stars[sizeof stars - 1] = 'b';
    memset(text, 'a', sizeof text);
    CHECK(!weir__pattern_read(&arena, stars, sizeof stars, true, &pattern));
    for (int i = 0; i < 100; i++)
        CHECK(!weir__pattern_has(&pattern, (struct weir__span){text, sizeof text}));
    weir__arena_free(&arena);
}

/* ---- spellings ---- */

static void test_paths(void)
{
    static const struct {
        const char *text, *same;
    } cases[] = {
        {"/login", "/login"},

        {"/", "/"},

        {"/login?next=/x", "/login"},
        {"/login#x", "/login"},

        {"//login", "/login"},
        {"/////", "/"},
        {"/a//b///c/", "/a/b/c/"},
        {"/%6cogin", "/login"},
        {"/%6Cogin%20x", "/login x"},
        {"/./login", "/login"},
        {"/x/../login", "/login"},
        {"/x/%2e%2E/login", "/login"},
        {"/x%2f..%2flogin", "/login"},
        {"/../../login", "/login"},
        {"/a/b/..", "/a/"},
        {"/a/b/.", "/a/b/"},
        {"/a/..", "/"},
        {"/..", "/"},
        {"/.", "/"},
        {"/...", "/..."},
        {"/.well-known/x", "/.well-known/x"},
        {"/a/..b", "/a/..b"},
        {"/a/b..", "/a/b"},
        {"/a./b. /c", "/a/b/c"},
        {"/login.", "/login"},
        {"/login/.", "/login/"},
        {"/login%20", "/login"},
        {"/login ", "/login"},
        {"/%20login", "/login"},
        {"/login/%20", "/login/"},
        {"/x/..%20/login", "/login"},
        {"/a/... /b", "/a/.../b"},
        {"/login;a=b", "/login"},
        {"/login;", "/login"},
        {"/login;a=b/x;c/y", "/login/x/y"},
        {"/login;a=%2Fx", "/login"},
        {"/login%3Ba=b", "/login"},
        {"/x/..;a/login", "/login"},
        {"/a/;x/b", "/a/b"},
        {";x", "/"},
        {"/a?b;c", "/a"},
        {"http://example.com/login?x", "/login"},
        {"HTTPS://example.com:443//login", "/login"},
        {"http://example.com", "/"},
        {"http://example.com?x", "/"},
        {"http://user:pw@[::1]:80/a/../b", "/b"},
        {"", "/"},
        {"?x", "/"},
        {"login", "/login"},
        {"*", "/*"},
        {"//example.com/login", "/example.com/login"},
        {"/http://x/y", "/http:/x/y"},
        {"/%", "/%"},
        {"/%4", "/%4"},
        {"/%zz", "/%zz"},
        {"/%256c", "/%6c"},
        {"/%3fx", "/?x"},
        {"a/../b", "/b"},
        {"/a?b/../c", "/a"},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        char room[64];
        struct weir__span same = {NULL, 0};
        CHECK(!weir__normal_path(span(cases[i].text), false, room, sizeof room, &same));
        if (!CHECK(same.len == strlen(cases[i].same) &&
                   !memcmp(same.data, cases[i].same, same.len)))
            printf("%s is %.*s, expected %s\n", cases[i].text, (int)same.len, same.data,
                   cases[i].same);
    }
    char room[4];
    struct weir__span same = {NULL, 0};
    CHECK_TEXT(weir__normal_path(span("/a//b"), false, room, 4, &same), "is too long");
    CHECK_TEXT(weir__normal_path(span("abcd"), false, room, 4, &same), "is too long");
    CHECK(!weir__normal_path(span("/longenough"), false, room, 4, &same));
    CHECK(!weir__normal_path(span("/a//?long"), false, room, 4, &same));
    CHECK_INT(same.len, 3);
    static const char *const refused[] = {"/%00", "/a%0a", "/a\n", "/%7f", "/a%1f/../b", "/\x01"};
    for (size_t i = 0; i < WEIR__COUNT(refused); i++) {
        char other[16];
        const char *wrong = weir__normal_path(span(refused[i]), false, other, sizeof other, &same);
        CHECK_TEXT(wrong ? wrong : "none", "has a control character");
    }
    char kept[32];
    CHECK(!weir__normal_path(span("/login;a=%3B/x"), true, kept, sizeof kept, &same));
    CHECK(weir__span_is(same, "/login;a=;/x"));
}

static void test_hosts(void)
{
    static const struct {
        const char *text, *same;
    } cases[] = {
        {"example.com", "example.com"},
        {"Example.COM", "example.com"},
        {"example.com:8080", "example.com"},
        {"example.com.", "example.com"},
        {"Example.com.:80", "example.com"},
        {"[::1]:80", "[::1]"},
        {"[::A]", "[::a]"},
        {"::1", "::1"},
        {"1.2.3.4:80", "1.2.3.4"},
        {"", ""},
        {".", "."},
        {":80", ""},
        {"M\xc3\xbcnchen.example", "m\xc3\xbcnchen.example"},
        {"a_b-c~d.example", "a_b-c~d.example"},
        {"::FFFF:1.2.3.4", "::ffff:1.2.3.4"},
        {"123", "123"},
        {"example.com:", "example.com"},
        {"example.com..", "example.com"},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        char room[64];
        struct weir__span same = {NULL, 0};
        CHECK(!weir__normal_host(span(cases[i].text), room, sizeof room, &same));
        if (!CHECK(same.len == strlen(cases[i].same) &&
                   !memcmp(same.data, cases[i].same, same.len)))
            printf("%s is %.*s\n", cases[i].text, (int)same.len, same.data);
    }
    static const char *const none[] = {
        "example.com:x",
        "user@example.com",
        "http://example.com",
        "example.com/",
        "example%2ecom",
        "a,b",
        "a b",
        "a\tb",
        "[::1",
        "[::1]x",
        "[example.com]",
        "::1%eth0",
        "a:b:c:g",
        "a\\b",
        "a\x7f",
    };
    for (size_t i = 0; i < WEIR__COUNT(none); i++) {
        char room[64];
        struct weir__span same;
        if (!CHECK(weir__normal_host(span(none[i]), room, sizeof room, &same) != NULL))
            printf("%s is a host\n", none[i]);
    }
    char little[4];
    struct weir__span same;
    CHECK(weir__normal_host(span("Example.com"), little, sizeof little, &same) != NULL);
}

static void test_nearest(void)
{
    static const char *const names[] = {"match", "method", "limit", "limits", "overrides", NULL};
    static const struct {
        const char *word, *nearest;
    } cases[] = {{"mach", "match"},  {"limts", "limits"}, {"overide", "overrides"},
                 {"me", "method"},   {"xyz", NULL},       {"", NULL},
                 {"limti", "limit"}, {"colours", NULL},   {"m", NULL}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        const char *found = weir__nearest(cases[i].word, strlen(cases[i].word), names);
        CHECK_TEXT(found ? found : "none", cases[i].nearest ? cases[i].nearest : "none");
    }
    char word[100];
    memset(word, 'm', sizeof word);
    CHECK(!weir__nearest(word, sizeof word, names));
    CHECK(!weir__misspelt(word, sizeof word, names));
}

/* Names of others that only resemble a known one are left alone. */
static void test_misspelt(void)
{
    static const char *const names[] = {"ip", "method", "path", "host", "user", NULL};
    static const struct {
        const char *word, *meant;
    } cases[] = {{"methd", "method"}, {"pth", "path"},   {"usr", "user"},      {"uesr", "user"},
                 {"hosst", "host"},   {"mehtd", NULL},   {"metodh", "method"}, {"mthode", "method"},
                 {"period", NULL},    {"custmer", NULL}, {"cost", NULL},       {"id", NULL},
                 {"userid", NULL},    {"us", NULL},      {"", NULL},           {"hostname", NULL}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        const char *found = weir__misspelt(cases[i].word, strlen(cases[i].word), names);
        CHECK_TEXT(found ? found : cases[i].word, cases[i].meant ? cases[i].meant : cases[i].word);
    }
}

int main(void)
{
    test_addresses();
    test_address_texts();
    test_networks();
    test_network_overlaps();
    test_patterns();
    test_patterns_like_the_plainest();
    test_pattern_lists();
    test_patterns_take_no_hours();
    test_paths();
    test_hosts();
    test_nearest();
    test_misspelt();
    return test_report();
}
