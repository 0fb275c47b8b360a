/* Plans: which policies a request falls under, what it takes of each, at what cost. */
#include "policy_test.h"

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
        {{PATH("/private/x"), USER("")}, "anonymous/{k} others/{k}"}, /* as for keys */
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
    CHECK(plan.enforced[1].policy == &policies->policies[1]);
    CHECK(plan.enforced[1].entry == &policies->policies[1].entries[0]);
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
    static const char *const bad[] = {"-3", "+3", "1.5", "3 ", "x"};
    for (size_t i = 0; i < WEIR__COUNT(bad); i++) { /* a stranger's counts as the default */
        ASK({"header.x-cost", bad[i], 0});
        CHECK_INT(plan.enforced[0].cost, 1);
        CHECK_INT(plan.enforced[2].cost, 50);
        CHECK_INT(ask(NULL, (struct request){{{"tokens", bad[i], 0}}, 0}, NULL, -1), WEIR_EINVAL);
    }
    CHECK_INT(ask("p", (struct request){{{"tokens", "x", 0}}, 0}, NULL, 3), 0); /* not looked at */
    CHECK_INT(ask("p", (struct request){{{"tokens", "7", 0}}, 0}, NULL, 3), 0);
    for (size_t i = 0; i < 3; i++)
        CHECK_INT(plan.enforced[i].cost, 3);
    CHECK_INT(ask("p", (struct request){{{"tokens", "7", 0}}, 0}, NULL, 0), 0);
    CHECK_INT(plan.enforced[2].cost, 0);
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

/* An attribute is asked for once, however many policies look at it, and not at all if none needs
 * it. */
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
    test_lists();
    test_several();
    test_too_many_limits();
    test_overrides();
    test_costs();
    test_give_back();
    test_asked_once();
    test_too_long_to_respell();
    weir__policies_free(policies);
    return test_report();
}
