/* Plans: which policies a request falls under, what it takes of each, under which key, at what cost. */
#include "policy/policy.h"
#include "test.h"

#include <stdlib.h>

#define TOP "version: 1\npolicies:\n"
#define LIMIT "limit: fixed-window 10/m"

/* ---- a request ---- */

struct attribute {
    const char *name, *value;
    size_t len; /* 0: as long as the text */
};

struct request {
    struct attribute attributes[12];
    int asked; /* times that something was asked for */
};

static enum weir__found find(const void *context, const char *name, size_t len,
                             struct weir__span *ret)
{
    struct request *request = (struct request *)(uintptr_t)context;
    request->asked++;
    for (const struct attribute *a = request->attributes; a->name; a++) {
        if (strlen(a->name) == len && !memcmp(a->name, name, len)) {
            *ret = (struct weir__span){a->value, a->len ? a->len : a->value ? strlen(a->value) : 0};
            return WEIR__FOUND;
        }
    }
    return WEIR__ABSENT;
}

static struct weir__plan plan; /* of the last request */
static weir_error why;
static struct weir__policies *policies;

static void use(const char *text)
{
    weir_error err = {0};
    weir__policies_free(policies);
    policies = NULL;
    if (!CHECK(!weir__policies_parse(text, strlen(text), "p.yaml", false, &policies, &err)))
        printf("%s\n%s\n", text, err.message);
}

static int ask(const char *policy, struct request request, const char *key, int64_t cost)
{
    struct weir__subject subject = {find, &request};
    struct weir__span name = {policy, policy ? strlen(policy) : 0};
    weir_key given = {key, key ? strlen(key) : 0};
    memset(&plan, 0xa5, sizeof plan);
    why = (weir_error){0};
    return weir__policies_plan(policies, policy ? &name : NULL, &subject, key ? &given : NULL, cost,
                               &plan, &why);
}

/* A request by attributes. */
#define ASK(...) CHECK_INT(ask(NULL, (struct request){{__VA_ARGS__}, 0}, NULL, -1), 0)
#define PATH(text)                                                                                 \
    {                                                                                              \
        "path", text, 0                                                                            \
    }
#define USER(text)                                                                                 \
    {                                                                                              \
        "user", text, 0                                                                            \
    }
#define IP(text)                                                                                   \
    {                                                                                              \
        "ip", text, 0                                                                              \
    }

/* The enforced keys, one behind the other. */
static const char *keys_of(const struct weir__item *planned, size_t count)
{
    static char room[2 * WEIR__PLAN_KEYS_ROOM];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            weir__put_text(&buffer, " ");
        weir__put(&buffer, planned[i].key.data, planned[i].key.len);
    }
    return room;
}

static const char *keys(void)
{
    return plan.verdict == WEIR__VERDICT_LIMITS ? keys_of(plan.enforced, plan.enforced_count) : "";
}

static void are(const char *found, const char *expected)
{
    if (!CHECK(!strcmp(found, expected)))
        printf("  got      %s\n  expected %s\n", found, expected);
}

/* ---- which policies ---- */

static void test_matching(void)
{
    use(TOP
        "  - {name: api, match: {path: [/api/*, /rpc], method: [GET, POST]}, key: \"'k'\", " LIMIT
        "}\n"
        "  - {name: host, match: {host: \"*.example.com\"}, key: \"'k'\", " LIMIT "}\n"
        "  - {name: anonymous, match: {user: {absent: true}, path: /private/*}, key: "
        "\"'k'\", " LIMIT "}\n"
        "  - {name: others, match: {user: {not: [ann, bob]}, path: /private/*}, key: "
        "\"'k'\", " LIMIT "}\n"
        "  - {name: net, match: {ip: [10.0.0.0/8, \"2001:db8::/32\"]}, key: \"'k'\", " LIMIT "}\n"
        "  - {name: debug, match: {header.X-Debug: \"*\"}, key: \"'k'\", " LIMIT "}\n"
        "  - {name: tenant, match: {lower(header.x-tenant): Acme*}, key: \"'k'\", " LIMIT "}\n"
        "  - {name: named, match: by-name, key: \"'k'\", " LIMIT "}\n");
    static const struct {
        struct attribute request[4];
        const char *policies;
    } cases[] = {
        {{PATH("/api/x"), {"method", "GET", 0}}, "api/{k}"},
        {{PATH("/rpc"), {"method", "POST", 0}}, "api/{k}"},
        {{PATH("/rpc/"), {"method", "POST", 0}}, ""},
        {{PATH("/api"), {"method", "GET", 0}}, ""},
        {{PATH("/api/x"), {"method", "PUT", 0}}, ""},
        {{PATH("/api/x"), {"method", "get", 0}}, ""},
        {{PATH("/api/x")}, ""},
        {{{"method", "GET", 0}}, ""},
        {{PATH("//%61pi/../api/x?y"), {"method", "GET", 0}}, "api/{k}"},
        {{PATH("/api/../x"), {"method", "GET", 0}}, ""},
        {{{"host", "www.Example.com:8080", 0}}, "host/{k}"},
        {{{"host", "example.com", 0}}, ""},
        {{{"host", "www.example.com.evil", 0}}, ""},
        {{PATH("/private/x")}, "anonymous/{k} others/{k}"},
        {{PATH("/private/x"), USER("ann")}, ""},
        {{PATH("/private/x"), USER("eve")}, "others/{k}"},
        {{IP("10.1.2.3")}, "net/{k}"},
        {{IP("::ffff:10.1.2.3")}, "net/{k}"},
        {{IP("[2001:db8::1]:443")}, "net/{k}"},
        {{IP("11.1.2.3")}, ""},
        {{{"header.x-debug", "", 0}}, "debug/{k}"},
        {{{"header.x-tenant", "ACME-corp", 0}}, "tenant/{k}"},
        {{{"header.x-tenant", "other", 0}}, ""},
        {{{"unknown", "x", 0}}, ""},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        struct request request = {{{NULL, NULL, 0}}, 0};
        memcpy(request.attributes, cases[i].request, sizeof cases[i].request);
        CHECK_INT(ask(NULL, request, NULL, -1), 0);
        are(keys(), cases[i].policies);
        CHECK_INT(plan.verdict, cases[i].policies[0] ? WEIR__VERDICT_LIMITS : WEIR__VERDICT_NONE);
    }
}

/* Many exact values, many networks: found wherever they stand. */
static void test_long_lists(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, TOP "  - name: p\n    key: user\n    " LIMIT "\n    match:\n      user: [\"x*\"");
    for (int i = 0; i < 1000; i++)
        fprintf(file, ", user-%d", i * 7 % 1000);
    fprintf(file, "]\n      ip: [");
    for (int i = 0; i < 200; i++)
        fprintf(file, "%s10.%d.0.0/16", i ? ", " : "", i);
    fprintf(file, "]\n");
    fclose(file);
    use(text);
    free(text);
    long right = 0;
    for (int i = 0; i < 1100; i++) {
        char user[24], ip[24];
        snprintf(user, sizeof user, "user-%d", i);
        snprintf(ip, sizeof ip, "10.%d.0.1", i % 200);
        ask(NULL, (struct request){{USER(user), IP(ip)}, 0}, NULL, -1);
        right += (plan.verdict == WEIR__VERDICT_LIMITS) == (i < 1000);
    }
    CHECK_INT(right, 1100);
    ASK(USER("xyz"), IP("10.199.255.255"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_LIMITS);
    ASK(USER("xyz"), IP("10.200.0.1"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_NONE);
}

/* The plainest matcher there is, which goes back and forth. */
static bool obviously(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return obviously(pattern + 1, text) || (*text && obviously(pattern, text + 1));
    return *pattern == *text && (!*text || obviously(pattern + 1, text + 1));
}

static uint32_t seed = 1;

static uint32_t some(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void put_some(char *ret, uint32_t most, const char *letters, uint32_t count)
{
    uint32_t len = some(most + 1);
    for (uint32_t i = 0; i < len; i++)
        ret[i] = letters[some(count)];
    ret[len] = 0;
}

enum { POLICIES = 12, ROUNDS = 300, REQUESTS = 40 };

/* What a random policy asks of one attribute: any of two patterns, or none of them. */
struct guess {
    char patterns[2][24];
    bool negated;
};
static struct guess guesses[POLICIES][2];

static void put_guess(FILE *file, const char *attribute, struct guess *guess)
{
    put_some(guess->patterns[0], some(4) ? 3 : 14, "aaab*", 5);
    put_some(guess->patterns[1], some(4) ? 3 : 14, "aaab*", 5);
    guess->negated = some(5) == 0;
    if (guess->negated) {
        fprintf(file, "%s: {not: [\"%s\", \"%s\"]}, ", attribute, guess->patterns[0],
                guess->patterns[1]);
    } else if (some(2)) {
        memcpy(guess->patterns[1], guess->patterns[0], sizeof guess->patterns[0]);
        fprintf(file, "%s: \"%s\", ", attribute, guess->patterns[0]);
    } else {
        fprintf(file, "%s: [\"%s\", \"%s\"], ", attribute, guess->patterns[0], guess->patterns[1]);
    }
}

static bool holds(const struct guess *guess, const char *value)
{
    bool matches =
        value && (obviously(guess->patterns[0], value) || obviously(guess->patterns[1], value));
    return matches != guess->negated;
}

static void use_guesses(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, TOP);
    for (int i = 0; i < POLICIES; i++) {
        fprintf(file, "  - {name: p%d, key: \"'k'\", " LIMIT ", match: {", i);
        put_guess(file, "x", &guesses[i][0]);
        put_guess(file, "y", &guesses[i][1]);
        fprintf(file, "}}\n");
    }
    fclose(file);
    use(text);
    free(text);
}

/* The policies that apply are those that the plainest matcher finds. */
static void test_like_the_plainest(void)
{
    long applied = 0;
    for (int round = 0; round < ROUNDS * REQUESTS; round++) {
        char values[2][24], expected[512] = "";
        bool has_x = some(8) != 0, has_y = some(8) != 0;
        if (round % REQUESTS == 0)
            use_guesses();
        for (int a = 0; a < 2; a++)
            put_some(values[a], some(4) ? 3 : 14, "aaab", 4);
        for (int i = 0; i < POLICIES; i++) {
            size_t len = strlen(expected);
            if (!holds(&guesses[i][0], has_x ? values[0] : NULL) ||
                !holds(&guesses[i][1], has_y ? values[1] : NULL))
                continue;
            snprintf(expected + len, sizeof expected - len, "%sp%d/{k}", len ? " " : "", i);
            applied++;
        }
        ASK({has_x ? "x" : "-", values[0], 0}, {has_y ? "y" : "-", values[1], 0});
        are(keys(), expected);
    }
    CHECK(applied > ROUNDS * REQUESTS / 4);
}

/* ---- keys ---- */

static void test_keys(void)
{
    use(TOP "  - name: p\n"
            "    limits:\n"
            "      - {name: user, key: user, " LIMIT "}\n"
            "      - {name: net, key: [ip/24/48, \"'v1'\"], " LIMIT "}\n"
            "      - {name: ip, key: ip/32/128, " LIMIT "}\n"
            "      - {name: p, key: [lower(header.x-tenant), path, host], " LIMIT "}\n"
            "      - {name: real, key: ip(header.x-real-ip), " LIMIT "}\n");
    ASK(USER("ann"), IP("10.1.2.3"));
    are(keys(), "p/user/{user=ann} p/net/{ip=10.1.2.0/24,v1} p/ip/{ip=10.1.2.3}");
    ASK(IP("2001:db8:1:2:3:4:5:6"));
    are(keys(), "p/net/{ip=2001:db8:1::/48,v1} p/ip/{ip=2001:db8:1:2:3:4:5:6}");
    ASK(IP("[::ffff:10.1.2.3]:99"));
    are(keys(), "p/net/{ip=10.1.2.0/24,v1} p/ip/{ip=10.1.2.3}");
    ASK({"header.x-tenant", "ACME", 0}, PATH("/a//b?c"), {"host", "A.example:80", 0});
    are(keys(), "p/{lower(header.x-tenant)=acme,path=/a/b,host=a.example}");
    ASK({"header.x-real-ip", "2001:db8:1:2:3:4:5:6", 0});
    are(keys(), "p/real/{ip(header.x-real-ip)=2001:db8:1:2::/64}");
    CHECK_INT(ask(NULL, (struct request){{{"header.x-real-ip", "unknown", 0}}, 0}, NULL, -1),
              WEIR_EINVAL);
}

static void test_escapes(void)
{
    use(TOP "  - {name: p, key: [user, role], " LIMIT "}\n");
    static const struct {
        const char *user, *role, *key;
    } cases[] = {
        {"ann", "x", "p/{user=ann,role=x}"},
        {"ann,role=x", "y", "p/{user=ann%2Crole%3Dx,role=y}"},
        {"a}b{c", "x", "p/{user=a%7Db%7Bc,role=x}"},
        {"a%2Cb", "x", "p/{user=a%252Cb,role=x}"},
        {"a b\tc\n", "x", "p/{user=a%20b%09c%0A,role=x}"},
        {"~", "\x7f", "p/{user=%7E,role=%7F}"},
        {"J\xc3\xbcrgen", "x", "p/{user=J\xc3\xbcrgen,role=x}"},
        {"a/b:c@d.e", "x", "p/{user=a/b:c@d.e,role=x}"},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        ASK(USER(cases[i].user), {"role", cases[i].role, 0});
        are(keys(), cases[i].key);
    }
    ASK({"user", "a\0b", 3}, {"role", "x", 0});
    are(keys(), "p/{user=a%00b,role=x}");
}

/* Long values and long keys are cut and hashed: bounded, different, still UTF-8. */
static void test_long_keys(void)
{
    static char value[70000];
    use(TOP "  - {name: p, key: user, " LIMIT "}\n");
    memset(value, 'a', sizeof value);
    ASK({"user", value, 128});
    CHECK_INT(plan.enforced[0].key.len, 3 + 5 + 128 + 1);
    ASK({"user", value, 129});
    are(keys(), "p/{user=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa~"
                "d96debf1bdcbc896e6c134ea76e8141f40d78536}");
    ASK({"user", value, 130});
    CHECK(!strstr(keys(), "d96debf1bdcbc896e6c134ea76e8141f40d78536"));
    value[65535] = 'b';
    ASK({"user", value, 65536});
    char first[512];
    snprintf(first, sizeof first, "%s", keys());
    value[65535] = 'a';
    ASK({"user", value, 65536});
    CHECK(strcmp(keys(), first));
    CHECK_INT(strlen(keys()), strlen(first));
    CHECK_INT(ask(NULL, (struct request){{{"user", value, 65537}}, 0}, NULL, -1), WEIR_EINVAL);
    CHECK(!strcmp(why.message, "the value of user is too long"));
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = i % 2 ? '\xbc' : '\xc3';
    value[1] = 'x';
    value[0] = 'x';
    memmove(value, value + 1, sizeof value - 1); /* characters begin at odd places */
    ASK({"user", value, 201});
    CHECK(strstr(keys(), "\xbc~") && !strstr(keys(), "\xc3~"));

    use(TOP "  - {name: p, key: [a, b, c, d], " LIMIT "}\n");
    memset(value, '=', sizeof value); /* three letters each */
    ASK({"a", value, 20}, {"b", value, 20}, {"c", value, 20}, {"d", value, 20});
    CHECK_INT(plan.enforced[0].key.len, 3 + 4 * 62 + 3 + 1);
    CHECK(!strchr(keys(), '~'));
    ASK({"a", value, 20}, {"b", value, 20}, {"c", value, 21}, {"d", value, 21});
    CHECK_INT(plan.enforced[0].key.len, 3 + 256 + 1);
    CHECK(strstr(keys(), "~~"));
    snprintf(first, sizeof first, "%s", keys());
    ASK({"a", value, 20}, {"b", value, 20}, {"c", value, 20}, {"d", value, 22});
    CHECK(strstr(keys(), "~~") && strcmp(keys(), first));
}

/* The largest plan there is: everything has room. */
static void test_room(void)
{
    char *text = NULL, name[WEIR__POLICY_NAME_MAX + 1], value[128];
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    memset(name, 'n', sizeof name);
    name[sizeof name - 3] = 0;
    memset(value, '{', sizeof value);
    fprintf(file, TOP);
    for (int i = 0; i < 40; i++)
        fprintf(
            file,
            "  - name: %s%02d\n    limits: [{name: %sxx, shadow: %s, key: [a, b, c, d, e, f, g, "
            "h], " LIMIT "}]\n",
            name, i, name, i < 16 ? "false" : "true");
    fclose(file);
    use(text);
    free(text);
    ASK({"a", value, 128}, {"b", value, 128}, {"c", value, 128}, {"d", value, 128},
        {"e", value, 128}, {"f", value, 128}, {"g", value, 128}, {"h", value, 128});
    CHECK_INT(plan.enforced_count, 16);
    CHECK_INT(plan.shadow_count, 16); /* of 24: those that fit */
    for (size_t i = 0; i < 16; i++) {
        const char *key = plan.shadow[i].key.data;
        CHECK_INT(plan.shadow[i].key.len, 64 + 1 + 64 + 1 + 258);
        CHECK(key >= plan.keys && key + plan.shadow[i].key.len < plan.keys + sizeof plan.keys);
        CHECK(key[plan.shadow[i].key.len - 1] == '}');
        CHECK(plan.enforced[i].key.len < WEIR_KEY_MAX);
    }
}

/* ---- what is missing ---- */

static void test_missing(void)
{
    use(TOP "  - name: p\n"
            "    limits:\n"
            "      - {name: user, key: user, " LIMIT "}\n"
            "      - {name: empty, key: [user, \"'x'\"], missing: empty, " LIMIT "}\n"
            "      - {name: watched, key: [role], missing: deny, shadow: true, " LIMIT "}\n");
    ASK({NULL, NULL, 0});
    are(keys(), "p/empty/{user=,x}");
    CHECK_INT(plan.shadow_count, 0);
    ASK(USER(""));
    are(keys(), "p/empty/{user=,x}");
    ASK({"user", NULL, 0});
    are(keys(), "p/empty/{user=,x}");
    use(TOP "  - {name: first, key: \"'x'\", " LIMIT "}\n"
            "  - {name: p, key: user, missing: deny, " LIMIT "}\n"
            "  - {name: last, key: \"'x'\", " LIMIT "}\n");
    ASK({NULL, NULL, 0});
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY);
    CHECK_TEXT(plan.by->name, "p");
    CHECK_INT(plan.enforced_count, 0);
    ASK(USER("ann"));
    are(keys(), "first/{x} p/{user=ann} last/{x}");
    use(TOP "  - {name: p, key: ip, missing: deny, " LIMIT "}\n");
    ASK(IP("unknown"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY);
}

/* What cannot be read is an error: otherwise a client could choose not to have what it is limited by. */
static void test_unreadable(void)
{
    use(TOP "  - {name: p, key: ip, " LIMIT "}\n"
            "  - {name: q, match: {path: /x*}, key: ip(header.x-a), missing: empty, " LIMIT "}\n");
    ASK(PATH("/y"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_NONE);
    CHECK_INT(ask(NULL, (struct request){{IP("unknown")}, 0}, NULL, -1), WEIR_EINVAL);
    are(why.message, "the value of ip is not an address: \"unknown\"");
    CHECK_INT(ask(NULL, (struct request){{IP("")}, 0}, NULL, -1), WEIR_EINVAL);
    are(why.message, "the value of ip is empty");
    CHECK_INT(
        ask(NULL, (struct request){{PATH("/x"), {"header.x-a", "010.1.1.1", 0}}, 0}, NULL, -1),
        WEIR_EINVAL);
    are(why.message, "the value of ip(header.x-a) is not an address: \"010.1.1.1\"");
    CHECK_INT(ask(NULL, (struct request){{PATH("/x%00")}, 0}, NULL, -1), WEIR_EINVAL);
    are(why.message, "the value of path has a control character: \"/x%00\"");
    use(TOP "  - {name: p, allow: [{ip: {not: 10.0.0.0/8}}], key: \"'x'\", " LIMIT "}\n");
    CHECK_INT(ask(NULL, (struct request){{IP("unknown")}, 0}, NULL, -1), WEIR_EINVAL);
}

/* A denial goes before whatever else is wrong. */
static void test_deny_first(void)
{
#define EIGHT                                                                                      \
    "\"fixed-window 1/s, fixed-window 1/m, fixed-window 1/h, fixed-window 1/d, token-bucket "      \
    "1/s, token-bucket 1/m, token-bucket 1/h, token-bucket 1/d\""
    use(TOP "  - {name: a, key: user, limit: " EIGHT "}\n"
            "  - {name: b, key: user, limit: " EIGHT "}\n"
            "  - {name: c, key: user, limit: " EIGHT "}\n"
            "  - {name: d, match: {path: /k}, key: role, missing: deny, " LIMIT "}\n"
            "  - {name: e, deny: [{path: /x}]}\n");
    CHECK_INT(ask(NULL, (struct request){{USER("u"), PATH("/y")}, 0}, NULL, -1), WEIR_EINVAL);
    ASK(USER("u"), PATH("/x"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY);
    CHECK_TEXT(plan.by->name, "e");
    ASK(USER("u"), PATH("/k"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY);
    CHECK_TEXT(plan.by->name, "d");
}

/* "*" among an address's values is like "*" among any other's. */
static void test_any_address(void)
{
    use(TOP "  - {name: p, match: {ip: [10.0.0.0/8, \"*\"]}, key: ip, " LIMIT "}\n"
            "  - {name: q, match: {ip: {not: [\"*\"]}}, key: \"'x'\", " LIMIT "}\n");
    ASK(IP("1.2.3.4"));
    are(keys(), "p/{ip=1.2.3.4}");
    ASK(USER("x"));
    are(keys(), "q/{x}");
}

/* ---- lists, several policies ---- */

static void test_lists(void)
{
    use(TOP "  - name: a\n    key: ip\n    " LIMIT "\n"
            "    allow: [{ip: 10.0.0.0/8}, {header.x-internal: \"yes\", user: ann}]\n"
            "    deny: [{user: [banned, evil]}]\n"
            "  - name: b\n    match: {path: /b}\n    key: ip\n    " LIMIT "\n"
            "    allow: [{user: ann}]\n"
            "  - name: c\n    match: {path: /c}\n    deny: [{ip: 10.6.6.6}]\n");
    ASK(IP("1.2.3.4"));
    are(keys(), "a/{ip=1.2.3.4}");
    CHECK_TEXT(plan.by->name, "a");
    ASK(IP("10.2.3.4"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_ALLOW);
    CHECK_TEXT(plan.by->name, "a");
    ASK(IP("1.2.3.4"), USER("ann"));
    are(keys(), "a/{ip=1.2.3.4}");
    ASK(IP("1.2.3.4"), USER("ann"), {"header.x-internal", "yes", 0});
    CHECK_INT(plan.verdict, WEIR__VERDICT_ALLOW);
    ASK(IP("10.2.3.4"), USER("banned")); /* deny goes before allow */
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY);
    CHECK_TEXT(plan.by->name, "a");
    ASK(IP("10.2.3.4"), PATH("/b")); /* an allow list speaks for its own policy */
    are(keys(), "b/{ip=10.2.3.4}");
    CHECK_TEXT(plan.by->name, "b");
    ASK(IP("10.2.3.4"), PATH("/b"), USER("ann"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_ALLOW);
    CHECK_TEXT(plan.by->name, "a");
    ASK(IP("10.6.6.6"), PATH("/c")); /* a deny list for all */
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY);
    CHECK_TEXT(plan.by->name, "c");
}

static void test_several(void)
{
    use(TOP "  - {name: z, key: ip, " LIMIT "}\n"
            "  - {name: a, match: {path: /x*}, key: user, limit: \"fixed-window 1/s, fixed-window "
            "5/m\"}\n"
            "  - {name: s, shadow: true, key: ip, " LIMIT "}\n"
            "  - {name: n, match: by-name, key: user, " LIMIT "}\n");
    ASK(IP("1.2.3.4"), USER("ann"), PATH("/x/y"));
    are(keys(), "z/{ip=1.2.3.4} a/{user=ann}");
    CHECK_TEXT(plan.by->name, "z");
    are(keys_of(plan.shadow, plan.shadow_count), "s/{ip=1.2.3.4}");
    CHECK(plan.shadow[0].entry->shadow && plan.shadow[0].entry->index == 2);
    CHECK(plan.enforced[1].policy == weir__policies_at(policies, 1));
    CHECK(plan.enforced[1].entry == &weir__policies_at(policies, 1)->entries[0]);
    CHECK_INT(weir_limit_count(plan.enforced[1].limit), 2);
    CHECK_INT(plan.enforced[1].cost, 1);
    CHECK_INT(plan.together, WEIR__TOGETHER);
    ASK(USER("ann"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_NONE);
    use(TOP "  - {name: s, shadow: true, key: ip, " LIMIT "}\n");
    ASK(IP("1.2.3.4"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_LIMITS);
    CHECK_INT(plan.enforced_count, 0);
    CHECK_INT(plan.shadow_count, 1);
    CHECK_TEXT(plan.by->name, "s");
}

static void test_too_many_limits(void)
{
#define FOUR "\"fixed-window 1/s, fixed-window 1/m, fixed-window 1/h, fixed-window 1/d\""
    use(TOP "  - {name: a, key: ip, limit: " FOUR "}\n"
            "  - {name: b, key: ip, limit: " FOUR "}\n"
            "  - {name: c, key: ip, limit: " FOUR "}\n"
            "  - {name: d, key: ip, limit: " FOUR "}\n"
            "  - {name: e, match: {path: /x}, key: ip, " LIMIT "}\n");
    ASK(IP("1.2.3.4"));
    CHECK_INT(plan.enforced_count, 4);
    CHECK_INT(ask(NULL, (struct request){{IP("1.2.3.4"), PATH("/x")}, 0}, NULL, -1), WEIR_EINVAL);
    CHECK(!strcmp(why.message, "the policies that apply, from \"a\" to \"e\", have more than 16 "
                               "limits together; let fewer of them match one request"));
    CHECK_INT(ask("e", (struct request){{IP("1.2.3.4"), PATH("/x")}, 0}, NULL, -1), 0);
}

/* ---- overrides, costs ---- */

static void test_overrides(void)
{
    use("version: 1\n"
        "tiers: {gold: token-bucket 1000/s}\n"
        "policies:\n"
        "  - name: p\n"
        "    limits:\n"
        "      - {name: a, key: user, " LIMIT "}\n"
        "      - {name: b, key: ip, " LIMIT "}\n"
        "    overrides:\n"
        "      - {when: {user: \"vip-*\", ip: 10.0.0.0/8}, entry: a, limit: fixed-window 7/m}\n"
        "      - {when: {ip: 10.0.0.0/8}, entry: b, limit: fixed-window 8/m}\n"
        "      - {when: {user: \"vip-*\"}, entry: a, tier: gold}\n"
        "      - {when: {user: vip-1}, entry: a, limit: fixed-window 9/m}\n");
    static const struct {
        const char *user, *ip, *a, *b;
    } cases[] = {
        {"ann", "1.2.3.4", "fixed-window 10/m", "fixed-window 10/m"},
        {"ann", "10.2.3.4", "fixed-window 10/m", "fixed-window 8/m"},
        {"vip-1", "1.2.3.4", "token-bucket 1000/s", "fixed-window 10/m"},
        {"vip-1", "10.2.3.4", "fixed-window 7/m", "fixed-window 8/m"},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        ASK(USER(cases[i].user), IP(cases[i].ip));
        CHECK_TEXT(weir_limit_text(plan.enforced[0].limit), cases[i].a);
        CHECK_TEXT(weir_limit_text(plan.enforced[1].limit), cases[i].b);
    }
}

static void test_costs(void)
{
    use(TOP "  - name: p\n"
            "    key: \"'x'\"\n"
            "    cost: header.x-cost\n"
            "    limits:\n"
            "      - {name: given, " LIMIT "}\n"
            "      - {name: fixed, cost: 5, " LIMIT "}\n"
            "      - {name: bounded, cost: {of: tokens, default: 50, min: 0, max: 100}, " LIMIT
            "}\n");
    static const struct {
        const char *value;
        int64_t given, bounded;
    } cases[] = {
        {NULL, 1, 50},
        {"", 1, 50},
        {"7", 7, 7},
        {"007", 7, 7},
        {"0", 1, 0},
        {"-3", 1, 50},
        {"+3", 1, 50},
        {"1.5", 1, 50},
        {"3 ", 1, 50},
        {"x", 1, 50},
        {"101", 101, 100},
        {"1000000000000", WEIR_COST_MAX, 100},
        {"1000000000001", WEIR_COST_MAX, 100},
        {"99999999999999999999999999999999999999999", WEIR_COST_MAX, 100},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        const char *name = cases[i].value ? "header.x-cost" : "none", *value = cases[i].value;
        ASK({name, value, 0}, {value ? "tokens" : "none", value, 0});
        CHECK_INT(plan.enforced[0].cost, cases[i].given);
        CHECK_INT(plan.enforced[1].cost, 5);
        CHECK_INT(plan.enforced[2].cost, cases[i].bounded);
    }
    CHECK_INT(ask("p", (struct request){{{"tokens", "7", 0}}, 0}, NULL, 3), 0);
    for (size_t i = 0; i < 3; i++)
        CHECK_INT(plan.enforced[i].cost, 3);
    CHECK_INT(ask("p", (struct request){{{"tokens", "7", 0}}, 0}, NULL, 0), 0);
    CHECK_INT(plan.enforced[2].cost, 0);
}

/* ---- by name ---- */

static void test_named(void)
{
    use(TOP "  - {name: a, match: {path: /never}, key: user, deny: [{user: evil}], " LIMIT "}\n"
            "  - {name: b, match: by-name, key: user, " LIMIT "}\n"
            "  - {name: c, key: \"'all'\", limits: [{name: x, " LIMIT "}, {name: y, key: user, "
            "shadow: true, " LIMIT "}]}\n");
    struct request ann = {{USER("ann")}, 0}, evil = {{USER("evil")}, 0}, nobody = {0};
    CHECK_INT(ask("a", ann, NULL, -1), 0);
    are(keys(), "a/{user=ann}");
    CHECK_TEXT(plan.by->name, "a");
    CHECK_INT(ask("a", evil, NULL, -1), 0);
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY);
    CHECK_INT(ask("b", ann, NULL, -1), 0);
    are(keys(), "b/{user=ann}");
    CHECK_INT(ask("b", nobody, NULL, -1), 0);
    CHECK_INT(plan.verdict, WEIR__VERDICT_NONE);
    /* with a key of the caller's */
    CHECK_INT(ask("b", nobody, "user:42", -1), 0);
    are(keys(), "b/{user=user:42}");
    CHECK_INT(ask("b", ann, "eve", -1), 0);
    are(keys(), "b/{user=eve}"); /* before what the request says */
    CHECK_INT(ask("a", nobody, "evil", -1), 0);
    CHECK_INT(plan.verdict, WEIR__VERDICT_DENY); /* lists know it, too */
    CHECK_INT(ask("c", nobody, "a=b,c", -1), 0);
    are(keys(), "c/x/{all}"); /* for everybody, whatever key a caller names */
    are(keys_of(plan.shadow, plan.shadow_count), "c/y/{user=a%3Db%2Cc}");
    static const char *const wrong[] = {"", "A", "aa", "a\x1b[2J"};
    for (size_t i = 0; i < WEIR__COUNT(wrong); i++)
        CHECK_INT(ask(wrong[i], ann, NULL, -1), WEIR_EINVAL);
    CHECK(!strcmp(why.message, "no policy is named \"a?[2J\""));
    CHECK_INT(ask("b", nobody, "", -1), WEIR_EINVAL);
    CHECK(!strcmp(why.message, "a key has 1 to 65536 bytes"));
    CHECK_INT(ask(NULL, ann, "x", -1), WEIR_EINVAL);
    CHECK(!strcmp(why.message, "a key without the name of a policy"));
    CHECK_INT(ask("b", ann, NULL, -2), WEIR_EINVAL);
    CHECK_INT(ask("b", ann, NULL, WEIR_COST_MAX + 1), WEIR_EINVAL);
    CHECK_INT(ask("b", ann, NULL, WEIR_COST_MAX), 0);
    struct weir__span name = {"b", 1};
    CHECK_INT(weir__policies_plan(policies, &name, NULL, &(weir_key){"k", 1}, 1, &plan, NULL), 0);
    are(keys(), "b/{user=k}");
    CHECK_INT(
        weir__policies_plan(policies, &(struct weir__span){NULL, 0}, NULL, NULL, 1, &plan, NULL),
        WEIR_EINVAL);
}

/* A key that a caller gives is one attribute's value, spelled as that is; where there are several it is none. */
static void test_given_keys(void)
{
    use(TOP "  - {name: net, match: by-name, key: [\"'v1'\", ip/24/48], " LIMIT "}\n"
            "  - name: low\n"
            "    match: by-name\n"
            "    key: lower(header.X-Login)\n"
            "    overrides: [{when: {header.x-login: \"Gold-*\"}, limit: fixed-window 99/m}]\n"
            "    " LIMIT "\n"
            "  - {name: two, match: by-name, key: [user, path], " LIMIT "}\n"
            "  - {name: three, match: by-name, limits: [{name: a, key: ip, " LIMIT
            "}, {name: b, key: user, " LIMIT
            "}, {name: c, key: user, limit: fixed-window 1/h}]}\n");
    struct request nobody = {0};
    CHECK_INT(ask("net", nobody, "10.1.2.3", -1), 0);
    are(keys(), "net/{v1,ip=10.1.2.0/24}");
    CHECK_INT(ask("net", nobody, "ann", -1), WEIR_EINVAL);
    are(why.message, "the value of ip is not an address: \"ann\"");
    CHECK_INT(ask("low", nobody, "Gold-Ann", -1), 0);
    are(keys(), "low/{lower(header.x-login)=gold-ann}");
    CHECK_TEXT(weir_limit_text(plan.enforced[0].limit), "fixed-window 99/m");
    CHECK_INT(ask("two", nobody, "ann", -1), WEIR_EINVAL);
    are(why.message,
        "the keys of \"two\" are made of more than one attribute (user, path); give these as "
        "attributes in place of a key");
    CHECK_INT(ask("three", nobody, "ann", -1), WEIR_EINVAL);
    are(why.message,
        "the keys of \"three\" are made of more than one attribute (ip/32/64; user); give these as "
        "attributes in place of a key");
}

/* hash(NAME): the same value has the same key, and nobody sees it; another secret, other keys. */
static void test_hashed_keys(void)
{
    static const uint64_t secrets[][2] = {{1, 2}, {1, 3}};
    char before[2][64] = {"", ""};
    use(TOP "  - {name: p, key: [hash(lower(header.X-Key)), user], " LIMIT "}\n"
            "  - {name: q, match: {ip: \"*\"}, key: hash(ip/24/48), " LIMIT "}\n");
    CHECK_TEXT(weir__policies_at(policies, 0)->entries[0].key_text,
               "hash(lower(header.x-key)), user");
    CHECK_TEXT(weir__policies_at(policies, 1)->entries[0].key_text, "hash(ip/24/48)");
    ASK({"header.x-key", "Secret", 0}, USER("u"));
    are(keys(), "p/{hash(lower(header.x-key))=?,user=u}"); /* nobody gave a secret */
    for (size_t i = 0; i < WEIR__COUNT(secrets); i++) {
        weir__policies_set_secret(policies, secrets[i]);
        ASK({"header.x-key", "Secret", 0}, USER("u"));
        snprintf(before[i], sizeof before[i], "%s", keys());
        CHECK_INT(strlen(before[i]),
                  strlen("p/{hash(lower(header.x-key))=0123456789abcdef,user=u}"));
        CHECK(!strstr(before[i], "ecret"));
        ASK({"header.x-key", "SECRET", 0}, USER("u"));
        are(keys(), before[i]);
        ASK({"header.x-key", "Secres", 0}, USER("u"));
        CHECK(strcmp(keys(), before[i]) != 0);
    }
    CHECK(strcmp(before[0], before[1]) != 0);
    ASK(USER("u"));
    CHECK_INT(plan.verdict, WEIR__VERDICT_NONE); /* missing is missing */
    ASK(IP("10.1.2.3"));
    snprintf(before[0], sizeof before[0], "%s", keys());
    ASK(IP("10.1.2.99"));
    are(keys(), before[0]);
    ASK(IP("10.1.3.3"));
    CHECK(strcmp(keys(), before[0]) != 0);
}

/* ---- a cluster ---- */

static void test_give_back(void)
{
    static const char text[] =
        TOP "  - {name: a, cross_slot: give-back, limits: [{name: x, key: ip, " LIMIT
            "}, {name: y, key: user, " LIMIT "}, {name: z, key: ip, " LIMIT "}]}\n";
    for (int cluster = 0; cluster < 2; cluster++) {
        weir__policies_free(policies);
        policies = NULL;
        CHECK_INT(weir__policies_parse(text, sizeof text - 1, "p", cluster, &policies, NULL), 0);
        ASK(IP("1.2.3.4"), USER("ann"));
        CHECK_INT(plan.together, cluster ? WEIR__APART : WEIR__TOGETHER);
        ASK(IP("1.2.3.4")); /* x and z have one tag */
        are(keys(), "a/x/{ip=1.2.3.4} a/z/{ip=1.2.3.4}");
        CHECK_INT(plan.together, WEIR__TOGETHER);
    }
}

/* ---- economy ---- */

/* An attribute is asked for once, however many policies look at it, and not at all if none needs it. */
static void test_asked_once(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, TOP);
    for (int i = 0; i < 100; i++)
        fprintf(file, "  - {name: p%d, match: {path: /%d, user: x}, key: [user, ip], " LIMIT "}\n",
                i, i);
    fclose(file);
    use(text);
    free(text);
    struct request request = {{PATH("/77"), USER("x"), IP("1.2.3.4")}, 0};
    struct weir__subject subject = {find, &request};
    CHECK_INT(weir__policies_plan(policies, NULL, &subject, NULL, -1, &plan, NULL), 0);
    are(keys(), "p77/{user=x,ip=1.2.3.4}");
    CHECK_INT(request.asked, 3);
    request = (struct request){{PATH("/none"), USER("x"), IP("1.2.3.4")}, 0};
    CHECK_INT(weir__policies_plan(policies, NULL, &subject, NULL, -1, &plan, NULL), 0);
    CHECK_INT(plan.verdict, WEIR__VERDICT_NONE);
    CHECK_INT(request.asked, 1);
}

/* Values that need another spelling and are too long for it are an error, not a way around. */
static void test_too_long_to_respell(void)
{
    static char path[40000];
    use(TOP "  - {name: p, match: {path: /x*}, key: \"'x'\", " LIMIT "}\n");
    memset(path, 'x', sizeof path);
    path[0] = '/';
    ASK({"path", path, sizeof path});
    are(keys(), "p/{x}");
    path[20000] = '%';
    CHECK_INT(ask(NULL, (struct request){{{"path", path, sizeof path}}, 0}, NULL, -1), WEIR_EINVAL);
    are(why.message, "the value of path is too long");
}

int main(void)
{
    test_matching();
    test_long_lists();
    test_like_the_plainest();
    test_keys();
    test_escapes();
    test_long_keys();
    test_room();
    test_missing();
    test_unreadable();
    test_deny_first();
    test_any_address();
    test_lists();
    test_several();
    test_too_many_limits();
    test_overrides();
    test_costs();
    test_named();
    test_given_keys();
    test_hashed_keys();
    test_give_back();
    test_asked_once();
    test_too_long_to_respell();
    weir__policies_free(policies);
    return test_report();
}
