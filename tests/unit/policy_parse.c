/* Policy files: what a set says of itself, and every refusal with its whole message and its
 * place. */
#include "policy/policy.h"
#include "test.h"

#include <stdlib.h>

#define TOP "version: 1\npolicies:\n"
#define LIMIT "limit: fixed-window 1/s"
#define P "  - {name: p, key: ip, "

static struct weir__policies *read_set(const char *text, bool cluster)
{
    struct weir__policies *set = NULL;
    weir_error err = {0};
    if (!CHECK(!weir__policies_parse(text, strlen(text), "p.yaml", cluster, &set, &err)))
        printf("%s\n", err.message);
    return set;
}

static void refused_by(const char *text, bool cluster, const char *message)
{
    struct weir__policies *set = NULL;
    weir_error err = {0};
    CHECK_INT(weir__policies_parse(text, strlen(text), "p.yaml", cluster, &set, &err), WEIR_EINVAL);
    CHECK(!set);
    if (!CHECK(!strcmp(err.message, message)))
        printf("%s\n  got      %s\n  expected %s\n", text, err.message, message);
    CHECK_INT(weir__policies_parse(text, strlen(text), "p.yaml", cluster, &set, NULL), WEIR_EINVAL);
}

/* ---- what is read ---- */

static const char whole[] =
    "version: 1\n"
    "headers: x-ratelimit\n"
    "trusted_proxies: [127.0.0.1, 10.0.0.0/8, \"::1\"]\n"
    "tiers:\n"
    "  gold: token-bucket 1000/s\n"
    "policies:\n"
    "  - name: api\n"
    "    match: {path: /api/*, method: [POST, GET], host: \"*.Example.com\",\n"
    "            header.X-Debug: {absent: true}, user: {not: [a, b c]}}\n"
    "    key: [user, ip/24/48]\n"
    "    limit: token-bucket 100/s burst 200\n"
    "    cost: header.x-cost\n"
    "  - name: login\n"
    "    match: {path: /login}\n"
    "    limits:\n"
    "      - {name: per-ip, key: ip, limit: sliding-window 10/m}\n"
    "      - {name: per-user, key: lower(user), limit: fixed-window 100/d}\n"
    "      - {name: everybody, key: \"'all of, them'\", tier: gold}\n"
    "      - {name: stricter, key: ip, limit: sliding-log 5/m, shadow: true}\n"
    "    overrides:\n"
    "      - {when: {user: \"vip-*\"}, entry: per-user, tier: gold}\n"
    "    allow: [{ip: 10.0.0.0/8}, {header.x-internal: \"yes\"}]\n"
    "    deny: [{user: banned}]\n"
    "    fail: closed\n"
    "    headers: \"off\"\n"
    "    cross_slot: give-back\n"
    "  - name: named\n"
    "    match: by-name\n"
    "    key: key\n"
    "    limit: concurrent 5\n"
    "  - {name: blocked, fail: open, deny: [{ip: [1.2.3.4, 5.0.0.0/8]}]}\n";

static void test_whole(void)
{
    struct weir__policies *set = read_set(whole, true);
    if (!set)
        return;
    CHECK_INT(set->count, 4);
    CHECK_INT(set->entry_count, 6);
    const struct weir__policy *api = &set->policies[0], *login = &set->policies[1];
    const struct weir__policy *named = &set->policies[2], *deny = &set->policies[3];
    CHECK_TEXT(api->name, "api");
    CHECK_TEXT(api->match_text, "path is /api/* and method is POST or GET and host is "
                                "*.example.com and header.x-debug is absent and user is not a or "
                                "\"b c\"");
    CHECK_INT(api->entry_count, 1);
    CHECK_TEXT(api->entries[0].name, "api");
    CHECK_TEXT(api->entries[0].key.text, "user, ip/24/48");
    CHECK_TEXT(weir_limit_text(api->entries[0].limit), "token-bucket 100/s burst 200");
    CHECK_INT(api->style, WEIR__FIELDS_X);
    CHECK_INT(api->fail, WEIR__FAIL_LOCAL);
    CHECK(!api->give_back);
    CHECK_INT(login->entry_count, 4);
    CHECK_TEXT(login->entries[1].key.text, "lower(user)");
    CHECK_TEXT(login->entries[2].key.text, "'all%20of%2C%20them'");
    CHECK_TEXT(weir_limit_text(login->entries[2].limit), "token-bucket 1000/s");
    CHECK_TEXT(login->entries[3].key.text, "ip/32/64");
    CHECK(login->entries[3].shadow && !login->entries[2].shadow);
    CHECK_INT(login->entries[3].index, 4);
    CHECK_INT(login->style, WEIR__FIELDS_OFF);
    CHECK_INT(login->fail, WEIR__FAIL_CLOSED);
    CHECK(login->give_back);
    CHECK_INT(login->index, 1);
    CHECK_TEXT(named->match_text, "asked for by name");
    CHECK_TEXT(deny->match_text, "every request");
    CHECK_INT(deny->entry_count, 0);
    CHECK_INT(deny->fail, WEIR__FAIL_OPEN);
    weir__policies_free(set);
    weir__policies_free(NULL);
}

static void test_lookups(void)
{
    struct weir__policies *set = read_set(whole, false);
    CHECK(weir__policies_find(set, "login", 5) == &set->policies[1]);
    CHECK(weir__policies_find(set, "api", 3) == &set->policies[0]);
    CHECK(weir__policies_find(set, "apis", 3) == &set->policies[0]);
    CHECK(weir__policies_find(set, "blocked", 7) == &set->policies[3]);
    CHECK(!weir__policies_find(set, "ap", 2));
    CHECK(!weir__policies_find(set, "apis", 4));
    CHECK(!weir__policies_find(set, "", 0));
    CHECK(!weir__policies_find(set, "api\0", 4));
    CHECK(!weir__policies_find(set, "zzzzzzzzzz", 10));
    CHECK(weir__policies_trusts(set, "127.0.0.1", 9));
    CHECK(weir__policies_trusts(set, "10.200.0.1:5555", 15));
    CHECK(weir__policies_trusts(set, "::ffff:10.0.0.1", 15));
    CHECK(weir__policies_trusts(set, "::1", 3));
    CHECK(!weir__policies_trusts(set, "127.0.0.2", 9));
    CHECK(!weir__policies_trusts(set, "::2", 3));
    CHECK(!weir__policies_trusts(set, "unix:", 5));
    CHECK(!weir__policies_trusts(set, "", 0));
    const struct weir__attribute *attributes = set->attributes.items;
    CHECK_TEXT(attributes[0].text, "path");
    CHECK(weir__attribute_known(&attributes[0]));
    CHECK_INT(set->attributes.count, 10);
    CHECK_TEXT(attributes[9].text, "key");
    CHECK(!weir__attribute_known(&attributes[9]));
    weir__policies_free(set);
    set = read_set("version: 1\npolicies: []\n", true);
    CHECK_INT(set->count, 0);
    CHECK(!weir__policies_find(set, "x", 1));
    CHECK(!weir__policies_trusts(set, "127.0.0.1", 9));
    weir__policies_free(set);
}

/* When a policy applies, in words: long lists are cut short, and so are long texts, between
 * characters. */
static void test_words(void)
{
    struct weir__policies *set =
        read_set(TOP P LIMIT ", match: {ip: \"*\", user: [a, b, c, d, e], role: [1, 2, 3, 4, 5, 6, "
                             "\"\"], x: \"a\\\\*b*c*\"}}\n",
                 false);
    CHECK_TEXT(
        set->policies[0].match_text,
        "ip is present and user is a, b, c, d or e and role is 1, 2, 3, 4 or 3 others and x is "
        "a\\*b*c*");
    weir__policies_free(set);
    char text[2048] = TOP P LIMIT ", match: {user: ";
    for (int i = 0; i < 400; i++)
        strcat(text, "\xc3\xa4");
    strcat(text, "}}\n");
    set = read_set(text, false);
    const char *words = set->policies[0].match_text;
    CHECK(strlen(words) > 490 && strlen(words) < 512);
    CHECK(!strcmp(words + strlen(words) - 5, "\xc3\xa4…"));
    weir__policies_free(set);
}

/* ---- what is refused ---- */

#define EXPRESSION "expected an attribute like user, header.x-tenant, lower(NAME) or ip(NAME)"
#define NAME_IS                                                                                    \
    " is 1 to 64 letters, digits, \".\", \"_\" and \"-\", the first a letter or digit, found "
#define BITS                                                                                       \
    "after an address write the lengths of its network, for IPv4 (1 to 32) and IPv6 (1 to 128), "  \
    "like ip/24/64"

#define PATHS                                                                                      \
    "paths are compared without dot segments, without spaces and dots at the end of a segment, "   \
    "and without the text after a ;"
#define HOSTS "hosts are compared without scheme, port, path and final dot"

static const struct {
    const char *text, *message;
} wrong[] = {
    /* the top */
    {"policies: []\n", "p.yaml:1:1: the version is missing; begin the file with version: 1"},
    {"version: 2\npolicies: []\n", "p.yaml:1:10: \"2\": this weir reads version 1"},
    {"version: [1]\npolicies: []\n", "p.yaml:1:10: version is a text, not a list or map"},
    {"version: 1\n", "p.yaml:1:1: expected policies: and a list of them"},
    {"version: 1\npolicies: {}\n", "p.yaml:2:11: expected policies: and a list of them"},
    {"version: 1\npolicy: []\n", "p.yaml:2:1: unknown key \"policy\"; did you mean policies?"},
    {"- a\n", "p.yaml:1:1: expected a map (\"version: …\")"},
    {"version: 1\nheaders: itf\npolicies: []\n",
     "p.yaml:2:10: headers is ietf, ietf-06, x-ratelimit, openai, retry-after or off, found "
     "\"itf\"; did you "
     "mean "
     "ietf?"},
    {"version: 1\ntrusted_proxies: [10.0.0.1/8]\npolicies: []\n",
     "p.yaml:2:19: \"10.0.0.1/8\": bits are set after the prefix of the network; write them as 0, "
     "like 10.0.0.0/8"},
    {"version: 1\ntrusted_proxies: [localhost]\npolicies: []\n",
     "p.yaml:2:19: \"localhost\": expected an address like 10.1.2.3 or 2001:db8::1, or a network "
     "like 10.0.0.0/8"},
    {"version: 1\ntiers: [a]\npolicies: []\n",
     "p.yaml:2:8: tiers is a map of names to limits, like {gold: token-bucket 1k/s}"},
    {"version: 1\ntiers: {g: 10/s}\npolicies: []\n",
     "p.yaml:2:12: expected the name of a limit (token-bucket, leaky-bucket, fixed-window, "
     "sliding-log, sliding-window, sliding-counter, smooth, warmup, concurrent), found \"10/s\"; "
     "example: token-bucket 10/s burst 20"},
    {"version: 1\ntiers: {\"a b\": smooth 1/s}\npolicies: []\n",
     "p.yaml:2:9: a tier's name" NAME_IS "\"a b\""},
    /* a policy */
    {TOP "  - name\n", "p.yaml:3:5: expected a map (\"name: …\")"},
    {TOP "  - {" LIMIT "}\n",
     "p.yaml:3:5: a policy needs a name, which is a part of its keys; add name: api"},
    {TOP "  - {name: a/b, " LIMIT "}\n", "p.yaml:3:12: a policy's name" NAME_IS "\"a/b\""},
    {TOP "  - {name: -b, " LIMIT "}\n", "p.yaml:3:12: a policy's name" NAME_IS "\"-b\""},
    {TOP "  - {name: \"\", " LIMIT "}\n", "p.yaml:3:12: a policy's name" NAME_IS "\"\""},
    {TOP "  - {name: , " LIMIT "}\n",
     "p.yaml:3:12: a policy's name has no value; write one, or \"\" for the empty text"},
    {TOP P LIMIT "}\n" P LIMIT "}\n", "p.yaml:4:12: \"p\": two policies have this name"},
    {TOP P "limt: x}\n", "p.yaml:3:24: unknown key \"limt\"; did you mean limit?"},
    {TOP P "colour: x}\n",
     "p.yaml:3:24: unknown key \"colour\": expected one of name, match, key, limit, tier, limits, "
     "cost, least, share, deny, allow, shadow, overrides, fail, missing, headers, cross_slot and "
     "deny_status"},
    {TOP "  - {name: p, key: ip}\n",
     "p.yaml:3:5: \"p\" has no limit; add limit: token-bucket 100/s, or limits: for several"},
    {TOP "  - {name: p, " LIMIT "}\n",
     "p.yaml:3:5: \"p\" has no key; add key: ip, or key: \"'all'\" for one that all requests "
     "share"},
    {TOP P LIMIT ", deny_status: 200}\n",
     "p.yaml:3:62: deny_status is a whole number from 400 to 499, found \"200\""},
    {TOP P LIMIT ", fail: shut}\n", "p.yaml:3:55: fail is local, open or closed, found \"shut\""},
    {TOP P LIMIT ", fail: close}\n",
     "p.yaml:3:55: fail is local, open or closed, found \"close\"; did you mean closed?"},
    {TOP P LIMIT ", cross_slot: x}\n",
     "p.yaml:3:61: cross_slot is refuse or give-back, found \"x\""},
    {TOP P LIMIT ", shadow: yes}\n", "p.yaml:3:57: shadow is false or true, found \"yes\""},
    {TOP P LIMIT ", missing: drop}\n",
     "p.yaml:3:58: missing is skip, deny or empty, found \"drop\""},
    {TOP P LIMIT ", limits: [{name: a, " LIMIT "}]}\n",
     "p.yaml:3:31: \"p\" has limit and limits; put the single one into the list"},
    {TOP P LIMIT ", tier: x}\n",
     "p.yaml:3:55: limit and tier both set the limit of \"p\"; keep one"},
    {TOP P "tier: x}\n", "p.yaml:3:30: unknown tier \"x\": define it under tiers: at the top"},
    /* limits: the place within */
    {TOP P "limit: token-bucket 10/x burst 5}\n",
     "p.yaml:3:47: a duration needs a unit: us, ms, s, m, h, d or w (or sec, min, hour, day, "
     "week), found \"x\"; example: "
     "token-bucket 10/s burst 20"},
    {TOP P "limit: \"token-bucket 10/x\"}\n",
     "p.yaml:3:48: a duration needs a unit: us, ms, s, m, h, d or w (or sec, min, hour, day, "
     "week), found \"x\"; example: "
     "token-bucket 10/s burst 20"},
    {TOP P "limit: \"token-bucket 1/s, token-bucket 2/s\"}\n",
     "p.yaml:3:50: limit 2 is of the same kind and period as limit 1 and would share its state; "
     "use another period or a key of its own"},
    {TOP P "limit: >-\n     token-bucket\n     10/x}\n",
     "p.yaml:3:31: not YAML: found character that cannot start any token while scanning for the "
     "next token (begun on line 3); a text that begins with %, @ or ` needs quotes, and tabs do "
     "not "
     "indent"},
    {TOP P "limit: }\n", "p.yaml:3:31: limit has no value; write one, or \"\" for the empty text"},
    /* several limits */
    {TOP P "limits: []}\n", "p.yaml:3:32: limits is a list, like [{name: per-ip, key: ip, limit: "
                            "…}]; for a single one write limit: …"},
    {TOP P "limits: [{" LIMIT "}]}\n",
     "p.yaml:3:33: a limit of several needs a name, which is a part of its key; add name: "
     "per-user"},
    {TOP P "limits: [{name: a, " LIMIT "}, {name: a, " LIMIT "}]}\n",
     "p.yaml:3:76: \"a\": two limits of one policy have this name"},
    {TOP P "limits: [{name: a, limits: x}]}\n",
     "p.yaml:3:43: unknown key \"limits\"; did you mean limit?"},
    {TOP "  - {name: p, limits: [{name: a, " LIMIT "}]}\n",
     "p.yaml:3:24: \"a\" has no key; add key: ip, or key: \"'all'\" for one that all requests "
     "share"},
    {TOP P "limits: [{name: a}]}\n",
     "p.yaml:3:33: \"a\" has no limit; add limit: token-bucket 100/s, or tier: NAME"},
    /* overrides */
    {TOP P LIMIT ", overrides: x}\n",
     "p.yaml:3:60: overrides is a list, like [{when: {user: ann}, tier: gold}]"},
    {TOP P LIMIT ", overrides: [{" LIMIT "}]}\n",
     "p.yaml:3:61: an override needs when: {ATTRIBUTE: VALUE}"},
    {TOP P LIMIT ", overrides: [{when: {user: a}}]}\n",
     "p.yaml:3:61: the override has no limit; add limit: token-bucket 100/s, or tier: NAME"},
    {TOP P LIMIT ", overrides: [{when: {user: a}, entry: x, " LIMIT "}]}\n",
     "p.yaml:3:86: \"x\": no limit of this policy has that name"},
    {TOP P "limits: [{name: a, " LIMIT "}, {name: b, " LIMIT
           "}], overrides: [{when: {user: a}, " LIMIT "}]}\n",
     "p.yaml:3:118: which limit is it for? Add entry: with one of a, b"},
    /* what a policy without limits is good for */
    {TOP "  - {name: p, allow: [{ip: 1.2.3.4}]}\n",
     "p.yaml:3:5: \"p\" has no limit; add limit: token-bucket 100/s, or limits: for several"},
    {TOP "  - {name: p, deny: [{ip: 1.2.3.4}], allow: [{ip: 1.2.3.4}]}\n",
     "p.yaml:3:45: allow without a limit in \"p\"; add limit: token-bucket 100/s"},
    {TOP "  - {name: p, deny: [{ip: 1.2.3.4}], key: ip}\n",
     "p.yaml:3:43: key without a limit in \"p\"; add limit: token-bucket 100/s"},
    {TOP P LIMIT ", shadow: true, deny: [{user: x}]}\n",
     "p.yaml:3:69: deny is enforced, and shadow: true says that nothing is; put one of them into "
     "another policy"},
    /* conditions */
    {TOP P LIMIT ", match: all}\n",
     "p.yaml:3:56: match (unless it is a map of attributes) is any or by-name, found \"all\""},
    {TOP P LIMIT ", match: [a]}\n",
     "p.yaml:3:56: expected a map of attributes, like {path: /api/*, method: GET}"},
    {TOP P LIMIT ", match: {path: api}}\n", "p.yaml:3:63: \"api\": a path begins with /"},
    {TOP P LIMIT ", match: {path: /a?b}}\n",
     "p.yaml:3:63: \"/a?b\": paths are compared without the text after a ? or #"},
    {TOP P LIMIT ", match: {path: /a%20b}}\n",
     "p.yaml:3:63: \"/a%20b\": paths are compared decoded; write the character itself, not %XX"},
    {TOP P LIMIT ", match: {path: //b}}\n",
     "p.yaml:3:63: \"//b\": in paths // is read as /; write \"/b\""},
    {TOP P LIMIT ", match: {path: /a/../b}}\n",
     "p.yaml:3:63: \"/a/../b\": " PATHS "; write \"/b\""},
    {TOP P LIMIT ", match: {path: /a/.}}\n", "p.yaml:3:63: \"/a/.\": " PATHS "; write \"/a/\""},
    {TOP P LIMIT ", match: {path: /a.}}\n", "p.yaml:3:63: \"/a.\": " PATHS "; write \"/a\""},
    {TOP P LIMIT ", match: {path: \"/a;x=1/*\"}}\n",
     "p.yaml:3:63: \"/a;x=1/*\": " PATHS "; write \"/a/*\""},
    {TOP P LIMIT ", match: {path: [/b, \"/a \"]}}\n",
     "p.yaml:3:68: \"/a \": " PATHS "; write \"/a\""},
    {TOP P LIMIT ", match: {path: \"/a\\tb\"}}\n",
     "p.yaml:3:63: \"/a?b\": a path has no control characters"},
    {TOP P LIMIT ", match: {host: \"example.com:8080\"}}\n",
     "p.yaml:3:63: \"example.com:8080\": " HOSTS "; write \"example.com\""},
    {TOP P LIMIT ", match: {host: \"*.Example.com:*\"}}\n",
     "p.yaml:3:63: \"*.Example.com:*\": " HOSTS "; write \"*.example.com\""},
    {TOP P LIMIT ", match: {host: example.com.}}\n",
     "p.yaml:3:63: \"example.com.\": " HOSTS "; write \"example.com\""},
    {TOP P LIMIT ", match: {host: \"https://example.com/x\"}}\n",
     "p.yaml:3:63: \"https://example.com/x\": " HOSTS "; write \"example.com\""},
    {"version: 1\npath_parameters: drop\npolicies: []\n",
     "p.yaml:2:18: path_parameters is ignore or keep, found \"drop\""},
    {TOP P LIMIT ", match: {user: }}\n",
     "p.yaml:3:63: user has no value; write one, or \"\" for the empty text"},
    {TOP P LIMIT ", match: {user: [a, null]}}\n",
     "p.yaml:3:67: user has no value; write one, or \"\" for the empty text"},
    {TOP P LIMIT ", match: {user: []}}\n",
     "p.yaml:3:63: an empty list for user matches nothing; name a value"},
    {TOP P LIMIT ", match: {user: [[a]]}}\n", "p.yaml:3:64: user is a text, not a list or map"},
    {TOP P LIMIT ", match: {user: a\\b}}\n",
     "p.yaml:3:63: \"a\\b\": a \\ may only stand before * or another \\"},
    {TOP P LIMIT ", match: {user: {nott: a}}}\n",
     "p.yaml:3:64: unknown key \"nott\"; did you mean not?"},
    {TOP P LIMIT ", match: {user: {}}}\n",
     "p.yaml:3:63: expected one of {not: …} and {absent: true}"},
    {TOP P LIMIT ", match: {user: {not: a, absent: true}}}\n",
     "p.yaml:3:63: expected one of {not: …} and {absent: true}"},
    {TOP P LIMIT ", match: {user: {not: {not: a}}}}\n",
     "p.yaml:3:69: not takes a text or a list of texts"},
    {TOP P LIMIT ", match: {user: {absent: false}}}\n",
     "p.yaml:3:72: absent is true or left out; for what is present write \"*\""},
    {TOP P LIMIT ", match: {a b: c}}\n", "p.yaml:3:57: \"a b\": " EXPRESSION},
    {TOP P LIMIT ", match: {upper(user): c}}\n", "p.yaml:3:57: \"upper(user)\": " EXPRESSION},
    {TOP P LIMIT ", match: {lower(): c}}\n", "p.yaml:3:57: \"lower()\": " EXPRESSION},
    {TOP P LIMIT ", match: {lower(ip): c}}\n",
     "p.yaml:3:57: \"lower(ip)\": an address has no upper case; leave out lower()"},
    {TOP P LIMIT ", match: {header.X: a, header.x: b}}\n",
     "p.yaml:3:70: \"header.x\": is given twice in one map, in another spelling"},
    {TOP P LIMIT ", match: {ip: 10.*}}\n",
     "p.yaml:3:61: \"10.*\": expected an address like 10.1.2.3 or 2001:db8::1, or a network like "
     "10.0.0.0/8"},
    {TOP P LIMIT ", deny: x}\n",
     "p.yaml:3:55: deny is a list of maps, like [{ip: 10.0.0.0/8}, {user: ann}]"},
    {TOP P LIMIT ", allow: [{}]}\n",
     "p.yaml:3:57: an empty map in allow would match every request; name an attribute"},
    {TOP P LIMIT
     ", match: {a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: x, i: x, j: x, k: x, l: x, "
     "m: x, n: x, o: x, p: x, q: x}}\n",
     "p.yaml:3:56: more than 16 attributes in one map"},
    {TOP P LIMIT
     ", match: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: x}}\n",
     "p.yaml:3:57: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": an "
     "attribute's name has at most 64 letters"},
    /* keys */
    {TOP "  - {name: p, key: [], " LIMIT "}\n",
     "p.yaml:3:20: a key has 1 to 8 parts; for one that all requests share write \"'all'\""},
    {TOP "  - {name: p, key: [a, b, c, d, e, f, g, h, i], " LIMIT "}\n",
     "p.yaml:3:20: a key has 1 to 8 parts; for one that all requests share write \"'all'\""},
    {TOP "  - {name: p, key: \"user, ip\", " LIMIT "}\n",
     "p.yaml:3:20: \"user, ip\": " EXPRESSION ", or a constant like \"'all'\""},
    {TOP "  - {name: p, key: 'all', " LIMIT "}\n",
     "p.yaml:3:20: is \"all\" a constant? Then write \"'all'\"; for the attribute leave the quotes "
     "out"},
    {TOP "  - {name: p, key: \"''\", " LIMIT "}\n",
     "p.yaml:3:20: \"''\": a constant has 1 to 128 bytes"},
    {TOP "  - {name: p, key: [user, user], " LIMIT "}\n",
     "p.yaml:3:27: \"user\": is given twice in one key"},
    {TOP "  - {name: p, key: user/24, " LIMIT "}\n",
     "p.yaml:3:20: \"user/24\": only addresses have networks; write ip(NAME)/24/64"},
    {TOP "  - {name: p, key: hash(), " LIMIT "}\n",
     "p.yaml:3:20: \"hash()\": " EXPRESSION ", or a constant like \"'all'\""},
    {TOP "  - {name: p, key: hash(a b), " LIMIT "}\n",
     "p.yaml:3:20: \"a b\": " EXPRESSION ", or a constant like \"'all'\""},
    {TOP "  - {name: p, key: [user, hash(user)], " LIMIT "}\n",
     "p.yaml:3:27: \"hash(user)\": is given twice in one key"},
    {TOP P LIMIT ", match: {hash(user): x}}\n", "p.yaml:3:57: \"hash(user)\": " EXPRESSION},
    {TOP "  - {name: p, key: ip/33, " LIMIT "}\n", "p.yaml:3:22: \"ip/33\": " BITS},
    {TOP "  - {name: p, key: ip/0, " LIMIT "}\n", "p.yaml:3:22: \"ip/0\": " BITS},
    {TOP "  - {name: p, key: ip/24/129, " LIMIT "}\n", "p.yaml:3:22: \"ip/24/129\": " BITS},
    {TOP "  - {name: p, key: ip/24/64/1, " LIMIT "}\n", "p.yaml:3:22: \"ip/24/64/1\": " BITS},
    {TOP "  - {name: p, key: ip/24/, " LIMIT "}\n", "p.yaml:3:22: \"ip/24/\": " BITS},
    {TOP "  - {name: p, key: ip/x, " LIMIT "}\n", "p.yaml:3:22: \"ip/x\": " BITS},
    /* costs */
    {TOP P LIMIT ", cost: -1}\n",
     "p.yaml:3:55: cost is a whole number from 0 to 1000000000000, found \"-1\""},
    {TOP P LIMIT ", cost: 1.5}\n",
     "p.yaml:3:55: cost is a whole number from 0 to 1000000000000, found \"1.5\""},
    {TOP P LIMIT ", cost: 1000000000001}\n",
     "p.yaml:3:55: cost is a whole number from 0 to 1000000000000, found \"1000000000001\""},
    {TOP P LIMIT ", cost: ip}\n", "p.yaml:3:55: \"ip\": an address is not a cost"},
    {TOP P LIMIT ", cost: a b}\n", "p.yaml:3:55: \"a b\": " EXPRESSION},
    {TOP P LIMIT ", cost: [1]}\n", "p.yaml:3:55: cost is a text, not a list or map"},
    {TOP P LIMIT ", cost: {max: 3}}\n",
     "p.yaml:3:55: a cost's map needs of: ATTRIBUTE, like {of: header.x-cost, max: 100}"},
    {TOP P LIMIT ", cost: {of: n, min: 5, max: 3}}\n",
     "p.yaml:3:76: max is a whole number from 5 to 1000000000000, found \"3\""},
};

static void test_refusals(void)
{
    for (size_t i = 0; i < WEIR__COUNT(wrong); i++)
        refused_by(wrong[i].text, false, wrong[i].message);
}

/* ---- bounds ---- */

static void test_bounds(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, TOP);
    for (int i = 0; i < WEIR__POLICIES_MAX; i++)
        fprintf(file, "  - {name: p%d, key: ip, " LIMIT "}\n", i);
    fflush(file);
    struct weir__policies *set = read_set(text, false);
    CHECK_INT(set->count, WEIR__POLICIES_MAX);
    for (int i = 0; i < WEIR__POLICIES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        CHECK(weir__policies_find(set, name, strlen(name)) == &set->policies[(size_t)i]);
    }
    weir__policies_free(set);
    fprintf(file, P LIMIT "}\n");
    fclose(file);
    refused_by(text, false, "p.yaml:3:3: more than 1000 policies");
    free(text);

    file = open_memstream(&text, &size);
    fprintf(file, TOP P "limits: [");
    for (int i = 0; i < WEIR__ENTRIES_MAX; i++)
        fprintf(file, "{name: l%d, " LIMIT "}, ", i);
    fflush(file);
    long before = ftell(file);
    fprintf(file, "]}\n");
    fflush(file);
    weir__policies_free(read_set(text, false));
    fseek(file, before, SEEK_SET);
    fprintf(file, "{name: more, " LIMIT "}]}\n");
    fclose(file);
    refused_by(text, false, "p.yaml:3:32: more than 16 limits in a policy");
    free(text);
}

/* Sixteen limits a request: counted over entries, with the longest override of each, shadows
 * apart. */
static void test_totals(void)
{
#define FIVE                                                                                       \
    "fixed-window 1/s, fixed-window 1/m, fixed-window 1/h, fixed-window 1/d, fixed-window 1/w"
#define ENTRY(name) "{name: " name ", limit: \"" FIVE "\"}, "
    weir__policies_free(read_set(
        TOP P "limits: [" ENTRY("a") ENTRY("b") ENTRY("c") "{name: d, " LIMIT "}]}\n", false));
    refused_by(TOP P "limits: [" ENTRY("a") ENTRY("b") ENTRY("c") ENTRY("d") "]}\n", false,
               "p.yaml:3:32: 20 limits together in \"p\"; a request is charged to at most 16");
    weir__policies_free(read_set(TOP P "limits: [" ENTRY("a") ENTRY("b")
                                     ENTRY("c") "{name: d, shadow: true, limit: \"" FIVE "\"}]}\n",
                                 false));
    refused_by(
        TOP P "limits: [" ENTRY("a") ENTRY("b")
            ENTRY("c") "{name: d, " LIMIT
                       "}], overrides: [{when: {user: a}, entry: d, limit: \"" FIVE "\"}]}\n",
        false, "p.yaml:3:32: 20 limits together in \"p\"; a request is charged to at most 16");
}

static void test_many_attributes(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    fprintf(file, TOP);
    for (int i = 0; i < 64; i++)
        fprintf(file, "  - {name: p%d, key: a%d, " LIMIT "}\n", i, i);
    fflush(file);
    weir__policies_free(read_set(text, false));
    fprintf(file, "  - {name: q, match: {b: x}, key: a1, " LIMIT "}\n");
    fclose(file);
    refused_by(text, false, "p.yaml:67:23: \"b\": more than 64 different attributes in one file");
    free(text);
}

/* ---- a cluster ---- */

#define TWO "limits: [{name: a, key: ip, " LIMIT "}, {name: b, key: user, " LIMIT "}]"

static void test_cluster(void)
{
    static const struct {
        const char *text, *message; /* NULL: fine */
    } cases[] = {
        {TOP "  - {name: p, " TWO "}\n",
         "p.yaml:3:5: the keys of \"p\" live in different slots of the cluster (\"b\" has another "
         "than those before it); add cross_slot: give-back, or give all limits one key"},
        {TOP "  - {name: p, cross_slot: give-back, " TWO "}\n", NULL},
        {TOP "  - {name: p, key: ip, limits: [{name: a, " LIMIT "}, {name: b, " LIMIT "}]}\n",
         NULL},
        /* a least is granted in one go */
        {TOP "  - {name: p, cross_slot: give-back, least: 2, cost: 5, " TWO "}\n",
         "p.yaml:3:5: \"a\" of \"p\" has a least, which needs all keys of a request in one slot of "
         "the cluster; give all limits one key, or leave out the least"},
        {TOP P LIMIT ", cross_slot: give-back}\n  - {name: q, key: user, least: {of: x}, " LIMIT
                     ", cross_slot: give-back}\n",
         "p.yaml:4:5: \"q\" of \"q\" has a least, which needs all keys of a request in one slot of "
         "the cluster; give all limits one key, or leave out the least"},
        {TOP P LIMIT ", least: 2, cost: 5}\n", NULL},
        {TOP "  - {name: p, limits: [{name: a, key: ip, " LIMIT
             "}, {name: b, key: user, shadow: true, " LIMIT "}]}\n",
         NULL},
        /* two policies */
        {TOP P LIMIT "}\n  - {name: q, key: user, " LIMIT "}\n",
         "p.yaml:4:5: \"p\" and \"q\" may apply to one request, and their keys live in different "
         "slots of the cluster; add cross_slot: give-back to both"},
        {TOP P LIMIT ", cross_slot: give-back}\n  - {name: q, key: user, " LIMIT "}\n",
         "p.yaml:4:5: \"p\" and \"q\" may apply to one request, and their keys live in different "
         "slots of the cluster; add cross_slot: give-back to both"},
        {TOP P LIMIT ", cross_slot: give-back}\n  - {name: q, key: user, " LIMIT
                     ", cross_slot: give-back}\n",
         NULL},
        {TOP P LIMIT "}\n  - {name: q, key: ip, " LIMIT "}\n", NULL},
        {TOP P LIMIT "}\n  - {name: q, match: by-name, key: user, " LIMIT "}\n", NULL},
        {TOP P LIMIT "}\n  - {name: q, deny: [{user: x}]}\n", NULL},
        {TOP P LIMIT ", match: {path: /a/*}}\n  - {name: q, match: {path: /b/*}, key: user, " LIMIT
                     "}\n",
         NULL},
        {TOP P LIMIT ", match: {path: /a/*}}\n  - {name: q, match: {path: /a/b}, key: user, " LIMIT
                     "}\n",
         "p.yaml:4:5: \"p\" and \"q\" may apply to one request, and their keys live in different "
         "slots of the cluster; add cross_slot: give-back to both"},
        {TOP P LIMIT ", match: {method: [GET, HEAD]}}\n  - {name: q, match: {method: POST}, key: "
                     "user, " LIMIT "}\n",
         NULL},
        {TOP P LIMIT ", match: {user: {absent: true}}}\n  - {name: q, match: {user: \"*\"}, key: "
                     "user, " LIMIT "}\n",
         NULL},
        {TOP P LIMIT ", match: {ip: [11.0.0.0/8, 10.0.0.0/8]}}\n  - {name: q, match: {ip: "
                     "10.1.0.0/16}, key: user, " LIMIT "}\n",
         "p.yaml:4:5: \"p\" and \"q\" may apply to one request, and their keys live in different "
         "slots of the cluster; add cross_slot: give-back to both"},
        {TOP P LIMIT ", match: {ip: \"*\"}}\n  - {name: q, match: {ip: {not: 10.1.0.0/16}}, key: "
                     "user, " LIMIT "}\n",
         "p.yaml:4:5: \"p\" and \"q\" may apply to one request, and their keys live in different "
         "slots of the cluster; add cross_slot: give-back to both"},
        /* a key that is never made */
        {TOP "  - {name: p, match: {user: {absent: true}}, key: ip, " LIMIT
             "}\n  - {name: q, key: user, " LIMIT "}\n",
         NULL},
        {TOP "  - {name: p, match: {user: {absent: true}}, key: ip, " LIMIT
             "}\n  - {name: q, missing: empty, key: user, " LIMIT "}\n",
         "p.yaml:4:5: \"p\" and \"q\" may apply to one request, and their keys live in different "
         "slots of the cluster; add cross_slot: give-back to both"},
        {TOP P LIMIT ", match: {ip: 10.0.0.0/8}}\n  - {name: q, match: {ip: 11.0.0.0/8}, key: "
                     "user, " LIMIT "}\n",
         NULL},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        weir__policies_free(read_set(cases[i].text, false));
        if (cases[i].message)
            refused_by(cases[i].text, true, cases[i].message);
        else
            weir__policies_free(read_set(cases[i].text, true));
    }
}

/* What comparing overrides for notes costs, and what the notes say. */
static void note_cost(const char *first, const char *second, size_t least, bool hidden)
{
    char text[4096], note[WEIR__NOTE_MAX];
    struct weir__note_at at = {0};
    struct weir__buffer out = weir__buffer_over(note, sizeof note);
    snprintf(text, sizeof text,
             TOP P LIMIT ", overrides: [{when: {header.x: %s}, " LIMIT
                         "}, {when: {header.x: %s}, " LIMIT "}]}\n",
             first, second);
    struct weir__policies *set = read_set(text, false);
    if (!CHECK(set != NULL))
        return;
    CHECK(weir__policies_note(set, &at, &out) == hidden);
    CHECK(at.compared >= least);
    weir__policies_free(set);
}

/* Every pair of patterns that is compared counts, also those of a list and one of what is not. */
static void test_note_costs(void)
{
    note_cost("[\"a*\", \"b*\", \"c*\"]", "[\"aa*\", \"bb*\"]", 6, true);
    note_cost("{not: [\"a*\", \"b*\", \"c*\"]}", "[\"d*\", \"e*\"]", 6, true);
    note_cost("{not: [\"a*\", \"b*\", \"c*\"]}", "[\"d*\", \"a\"]", 6, false);
}

/* The note about overrides of a limit by customer; NULL: none. */
static void note_says(const char *overrides, const char *expected)
{
    char text[1024], note[WEIR__NOTE_MAX];
    struct weir__note_at at = {0};
    struct weir__buffer out = weir__buffer_over(note, sizeof note);
    snprintf(text, sizeof text, TOP "  - {name: p, key: customer, " LIMIT ", overrides: [%s]}\n",
             overrides);
    struct weir__policies *set = read_set(text, false);
    if (!CHECK(set != NULL))
        return;
    bool said = weir__policies_note(set, &at, &out);
    CHECK(said == (expected != NULL) && (!said || strstr(note, expected)));
    CHECK(!said || !weir__policies_note(set, &at, &out)); /* one for all */
    weir__policies_free(set);
}

/* A narrower override behind one that takes some of its requests. Customers before plans are as
 * they should be, and so are two that never meet. */
static void test_note_late(void)
{
#define TO(count) "limit: fixed-window " #count "/s}"
    note_says("{when: {plan: pro}, " TO(5) ", {when: {customer: acme, month: may}, " TO(8),
              "(customer is acme and month is may) does not apply where that in line 3 (plan is "
              "pro) does");
    note_says("{when: {plan: pro}, " TO(5) ", {when: {customer: acme}, " TO(8),
              "put the narrower one first");
    note_says("{when: {plan: pro}, " TO(5) ", {when: {customer: a}, " TO(
                  8) ", {when: {customer: b}, " TO(9),
              "; likewise 1 other.");
    note_says("{when: {plan: pro}, " TO(5) ", {when: {area: x, zone: y}, " TO(8),
              "put the narrower one first");
    note_says("{when: {customer: acme}, " TO(8) ", {when: {plan: pro, area: x}, " TO(5), NULL);
    note_says("{when: {plan: pro}, " TO(5) ", {when: {area: x}, " TO(8), NULL);
    note_says("{when: {plan: pro}, " TO(5) ", {when: {customer: acme, plan: free}, " TO(8), NULL);
    note_says("{when: {plan: pro}, " TO(5) ", {when: {customer: acme}, " TO(5), NULL);
    note_says("{when: {plan: pro}, " TO(5) ", {when: {customer: acme, plan: pro}, " TO(8),
              "never applies");
    note_says("{when: {plan: {absent: true}}, " TO(5) ", {when: {customer: a, plan: ''}, " TO(8),
              "does not apply where"); /* an empty one is absent */
    note_says("{when: {plan: {absent: true}}, " TO(5) ", {when: {customer: a, plan: x}, " TO(8),
              NULL);
    note_says("{when: {plan: {not: '*'}}, " TO(5) ", {when: {plan: {absent: true}}, " TO(8), NULL);
    note_says("{when: {plan: {absent: true}}, " TO(5) ", {when: {plan: {not: '*'}}, " TO(8),
              "never applies");
#undef TO
}

static void warns(const char *text, const char *expected)
{
    struct weir__policies *set = read_set(text, false);
    if (!CHECK(set != NULL))
        return;
    CHECK(expected ? set->warnings && strstr(set->warnings->text, expected) : !set->warnings);
    weir__policies_free(set);
}

static void test_warnings(void)
{
    warns("version: 1\npolicies: []\n", "p.yaml:2:11: there are no policies");
    warns(TOP "  - {name: p, match: {method: [GET, Post]}, key: ip, " LIMIT "}\n", "upper case");
    warns(TOP "  - {name: p, match: {method: [GET, P*]}, key: ip, " LIMIT "}\n", NULL);
    warns(TOP "  - {name: p, match: {lower(method): get}, key: ip, " LIMIT "}\n", NULL);
    warns(TOP "  - {name: p, match: {path: '/api/{id}'}, key: ip, " LIMIT "}\n", "write /api/*");
    warns(TOP "  - {name: p, match: {path: [/, '/a/<id>/*']}, key: ip, " LIMIT "}\n",
          "not as a route");
    warns(TOP "  - {name: p, match: {lower(path): '/a/:id'}, key: ip, " LIMIT "}\n",
          "not as a route");
    warns(TOP "  - {name: p, match: {path: [/a:b, '/a{b}']}, key: ip, " LIMIT "}\n", NULL);
    warns(TOP "  - {name: p, match: {x: '/a/{b}'}, key: ip, " LIMIT "}\n", NULL);
}

int main(void)
{
    test_whole();
    test_lookups();
    test_words();
    test_refusals();
    test_bounds();
    test_totals();
    test_many_attributes();
    test_cluster();
    test_note_costs();
    test_note_late();
    test_warnings();
    return test_report();
}
