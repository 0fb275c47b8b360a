/* Keys of plans: how they are made of a request's attributes, and what happens where these are
 * missing, unreadable or given by hand. */
#include "policy_test.h"

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

/* What cannot be read is an error: otherwise a client could choose not to have what it is limited
 * by. */
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

/* A key that a caller gives is one attribute's value, spelled as that is; where there are several
 * it is none. */
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
    CHECK_TEXT(policies->policies[0].entries[0].key.text, "hash(lower(header.x-key)), user");
    CHECK_TEXT(policies->policies[1].entries[0].key.text, "hash(ip/24/48)");
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

int main(void)
{
    test_keys();
    test_escapes();
    test_long_keys();
    test_room();
    test_missing();
    test_unreadable();
    test_deny_first();
    test_any_address();
    test_named();
    test_given_keys();
    test_hashed_keys();
    weir__policies_free(policies);
    return test_report();
}
