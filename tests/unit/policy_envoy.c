/*
 * Envoy's configuration: files of envoyproxy/ratelimit load as they are; which rule a descriptor
 * leads to; keys; every refusal with its place and words.
 */
#include "test.h"

#include "policy/envoy/envoy.h"

#include <stdlib.h>

static struct weir__envoy *envoy;
static weir_error err;
static struct weir__span shared[WEIR__RLS_ENTRIES_MAX];
static char key[WEIR__ENVOY_KEY_ROOM];

static int is(const char *got, const char *expected)
{
    if (strcmp(got, expected))
        printf("    found    \"%s\"\n    expected \"%s\"\n", got, expected);
    return !strcmp(got, expected);
}

static int load(const char *text)
{
    weir__envoy_free(envoy);
    envoy = NULL;
    err = (weir_error){0};
    return weir__envoy_parse(text, strlen(text), "rl.yaml", &envoy, &err);
}

static void loads(const char *text)
{
    if (!CHECK(load(text) == 0)) {
        printf("    %s\n", err.message);
        exit(1);
    }
}

static void refuses(const char *text, const char *message)
{
    CHECK_INT(load(text), WEIR_EINVAL);
    CHECK(!envoy);
    CHECK(is(err.message, message));
    CHECK_INT(weir__envoy_parse(text, strlen(text), "rl.yaml", &envoy, NULL), WEIR_EINVAL);
}

static struct weir__span span(const char *text)
{
    return (struct weir__span){text, strlen(text)};
}

/* "key=value|key=value": the rule of such a descriptor; its key is left in `key`. */
static const struct weir__envoy_rule *match(const char *domain, const char *text)
{
    static char copy[512];
    struct weir__rls_entry entries[WEIR__RLS_ENTRIES_MAX];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strtok(copy, "|"); at; at = strtok(NULL, "|")) {
        char *value = strchr(at, '=');
        if (value)
            *value++ = 0;
        entries[n++] = (struct weir__rls_entry){span(at), span(value ? value : "")};
    }
    const struct weir__envoy_domain *found = weir__envoy_domain(envoy, span(domain));
    const struct weir__envoy_rule *rule =
        found ? weir__envoy_match(envoy, found, entries, n, shared) : NULL;
    size_t len;
    CHECK(!weir__envoy_put_key(key, span(domain), entries, n, rule ? shared : NULL, &len));
    key[len] = 0;
    return rule;
}

static const char *limit_of(const char *domain, const char *text)
{
    const struct weir__envoy_rule *rule = match(domain, text);
    return !rule             ? "none"
           : rule->unlimited ? "unlimited"
           : rule->denies    ? "denies"
                             : weir_limit_text(rule->limit);
}

/* ---- what the reference's own examples say ---- */

static void test_nested(void)
{
    loads("domain: messaging\n"
          "descriptors:\n"
          "  - key: message_type\n"
          "    value: marketing\n"
          "    descriptors:\n"
          "      - key: to_number\n"
          "        rate_limit:\n"
          "          unit: day\n"
          "          requests_per_unit: 5\n"
          "  - key: to_number\n"
          "    rate_limit:\n"
          "      unit: DAY\n"
          "      requests_per_unit: 100\n");
    CHECK_INT(envoy->rule_count, 2);
    CHECK_TEXT(envoy->rules[0]->name, "message_type_marketing.to_number");
    CHECK_TEXT(envoy->rules[0]->domain, "messaging");
    CHECK_INT(envoy->rules[1]->index, 1);
    CHECK_TEXT(limit_of("messaging", "message_type=marketing|to_number=2061234567"),
               "fixed-window 5/d");
    CHECK(is(key, "envoy:messaging|message_type=marketing|to_number=2061234567"));
    CHECK_TEXT(limit_of("messaging", "to_number=2061234567"), "fixed-window 100/d");
    CHECK_TEXT(limit_of("messaging", "message_type=marketing"), "none"); /* the depth is another */
    CHECK_TEXT(limit_of("messaging", "to_number=1|to_number=2"), "none");
    CHECK_TEXT(limit_of("messaging", "message_type=other|to_number=1"), "none");
    CHECK_TEXT(limit_of("messaging", "to_numbe=1"), "none");
    CHECK_TEXT(limit_of("message", "to_number=1"), "none");
    CHECK_TEXT(limit_of("messaging", ""), "none");
    CHECK(!weir__envoy_domain(envoy, span("nowhere")) &&
          weir__envoy_domain(envoy, span("messaging")));
}

static void test_levels(void)
{
    loads("---\n"
          "domain: rl\n"
          "descriptors:\n"
          "  - key: foo\n"
          "    rate_limit: {unit: minute, requests_per_unit: 2}\n"
          "    descriptors:\n"
          "      - key: bar\n"
          "        rate_limit: {unit: minute, requests_per_unit: 3}\n"
          "      - key: bar\n"
          "        value: banned\n"
          "        rate_limit: {unit: minute, requests_per_unit: 0}\n"
          "      - {key: baz, rate_limit: {unit: second, requests_per_unit: 1}}\n"
          "  - {key: free, value: yes, rate_limit: {unlimited: true}}\n"
          "  - {key: free}\n");
    CHECK_TEXT(limit_of("rl", "foo=x"), "fixed-window 2/m");
    CHECK_TEXT(limit_of("rl", "foo="), "fixed-window 2/m");
    CHECK_TEXT(limit_of("rl", "foo=x|bar=y"), "fixed-window 3/m");
    CHECK_TEXT(limit_of("rl", "foo=x|bar=banned"), "denies");
    CHECK_TEXT(limit_of("rl", "foo=x|baz=1"), "fixed-window 1/s");
    CHECK_TEXT(limit_of("rl", "free=yes"), "unlimited");
    CHECK_TEXT(limit_of("rl", "free=no"), "none");
}

static void test_units(void)
{
    static const char *const units[][2] = {
        {"second", "fixed-window 7/s"},   {"minute", "fixed-window 7/m"},
        {"hour", "fixed-window 7/h"},     {"day", "fixed-window 7/d"},
        {"week", "fixed-window 7/w"},     {"month", "fixed-window 7/4w2d"},
        {"year", "fixed-window 7/52w1d"},
    };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "domain: d\ndescriptors: [{key: k, rate_limit: {unit: %s, requests_per_unit: 7}}]",
                 units[i][0]);
        loads(text);
        CHECK_TEXT(limit_of("d", "k=v"), units[i][1]);
        CHECK_INT(match("d", "k=v")->requests_per_unit, 7);
        CHECK_INT(match("d", "k=v")->limit->rules[0].period_us,
                  weir__envoy_unit_us(match("d", "k=v")->unit));
    }
    loads("domain: d\ndescriptors: [{key: k, limit: fixed-window 7/month from 15 zone +08:00}, "
          "{key: l, limit: fixed-window 9/year}]");
    CHECK_TEXT(limit_of("d", "k=v"), "fixed-window 7/month from 15 zone +08:00");
    CHECK_INT(match("d", "k=v")->unit, WEIR__RLS_MONTH);
    CHECK_INT(match("d", "k=v")->requests_per_unit, 7);
    CHECK_INT(match("d", "l=v")->unit, WEIR__RLS_YEAR);
    CHECK_INT(weir__envoy_unit("Hour", 4), WEIR__RLS_HOUR);
    CHECK_INT(weir__envoy_unit("unknown", 7), WEIR__RLS_UNKNOWN_UNIT);
    CHECK_INT(weir__envoy_unit("hours", 5), WEIR__RLS_UNKNOWN_UNIT);
    loads("domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: "
          "4294967295}}]");
    CHECK_TEXT(limit_of("d", "k=v"), "fixed-window 4294967295/s");
}

/* ---- wildcards ---- */

static void test_wildcards(void)
{
    loads("domain: d\n"
          "descriptors:\n"
          "  - {key: path, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
          "  - {key: path, value: /api/*, rate_limit: {unit: hour, requests_per_unit: 2}}\n"
          "  - {key: path, value: /api/v1*, rate_limit: {unit: hour, requests_per_unit: 3}}\n"
          "  - {key: path, value: /api/v1, rate_limit: {unit: hour, requests_per_unit: 4}}\n"
          "  - {key: path, value: '*.png', rate_limit: {unit: hour, requests_per_unit: 5}}\n"
          "  - {key: path, value: a*b*c, rate_limit: {unit: hour, requests_per_unit: 6}}\n"
          "  - {key: host, value: 'x**', rate_limit: {unit: hour, requests_per_unit: 7}}\n"
          "  - {key: any, value: '*', rate_limit: {unit: hour, requests_per_unit: 8}}\n"
          "  - {key: any, rate_limit: {unit: hour, requests_per_unit: 9}}\n");
    CHECK_TEXT(limit_of("d", "path=/api/v1"), "fixed-window 4/h");   /* exact first */
    CHECK_TEXT(limit_of("d", "path=/api/v1/x"), "fixed-window 2/h"); /* the file's order */
    CHECK_TEXT(limit_of("d", "path=/api/"), "fixed-window 2/h"); /* a star may stand for nothing */
    CHECK_TEXT(limit_of("d", "path=/api"), "fixed-window 1/h");
    CHECK_TEXT(limit_of("d", "path=/a.png"), "fixed-window 5/h");
    CHECK_TEXT(limit_of("d", "path=.png"), "fixed-window 5/h");
    CHECK_TEXT(limit_of("d", "path=png"), "fixed-window 1/h");
    CHECK_TEXT(limit_of("d", "path=abc"), "fixed-window 6/h");
    CHECK_TEXT(limit_of("d", "path=a--b--c"), "fixed-window 6/h");
    CHECK_TEXT(limit_of("d", "path=acb"), "fixed-window 1/h");
    CHECK_TEXT(limit_of("d", "path=ac"), "fixed-window 1/h");
    CHECK_TEXT(limit_of("d", "host=x"), "fixed-window 7/h");
    CHECK_TEXT(limit_of("d", "host=xyz"), "fixed-window 7/h");
    CHECK_TEXT(limit_of("d", "host=y"), "none");
    CHECK_TEXT(limit_of("d", "any="), "fixed-window 8/h");
    CHECK_TEXT(limit_of("d", "path=/api/x"), "fixed-window 2/h");
    CHECK(is(key, "envoy:d|path=/api/x")); /* each value by itself */
}

/* A star never takes bytes that a later part needs: no value matches twice with the same bytes. */
static void test_overlap(void)
{
    loads("domain: d\ndescriptors: [{key: k, value: ab*ba, limit: fixed-window 1/h}]");
    CHECK_TEXT(limit_of("d", "k=aba"), "none");
    CHECK_TEXT(limit_of("d", "k=abba"), "fixed-window 1/h");
    loads("domain: d\ndescriptors: [{key: k, value: '*aab*', limit: fixed-window 1/h}]");
    CHECK_TEXT(limit_of("d", "k=aaaab"), "fixed-window 1/h");
    CHECK_TEXT(limit_of("d", "k=aaa"), "none");
}

static void test_shared(void)
{
    loads("domain: d\n"
          "descriptors:\n"
          "  - key: files\n"
          "    value: files/*\n"
          "    share_threshold: true\n"
          "    rate_limit: {unit: hour, requests_per_unit: 10}\n"
          "    descriptors:\n"
          "      - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}\n");
    CHECK(match("d", "files=files/a.pdf"));
    CHECK(is(key, "envoy:d|files=files/*"));
    CHECK(match("d", "files=files/b"));
    CHECK(is(key, "envoy:d|files=files/*"));
    CHECK(match("d", "files=files/b|user=ann"));
    CHECK(is(key, "envoy:d|files=files/*|user=ann"));
    CHECK(match("d", "files=files/*"));
    CHECK(is(key, "envoy:d|files=files/*"));
}

/* ---- keys ---- */

static void test_keys(void)
{
    loads("domain: d");
    match("d|%=", "a=b=c|x{y}=*%\n");
    CHECK(is(key, "envoy:d%7C%25=|a=b=c|x%7By%7D=%2A%25%0A"));
    struct weir__rls_entry odd[] = {{span("k=|"), {"\0\x7f\xc3\xa9|", 5}}};
    size_t len;
    CHECK(!weir__envoy_put_key(key, span("d"), odd, 1, NULL, &len));
    key[len] = 0;
    CHECK(is(key, "envoy:d|k%3D%7C=%00%7F\xc3\xa9%7C"));
}

/* The key of one entry whose value is `len` times a letter, with `last` at its end. */
static size_t long_key(char room[WEIR__ENVOY_KEY_ROOM], char letter, size_t len, char last,
                       bool expected)
{
    static char text[100000];
    struct weir__rls_entry entry = {span("path"), {text, len}};
    size_t ret;
    memset(text, letter, len);
    text[len - 1] = last;
    CHECK(weir__envoy_put_key(room, span("d"), &entry, 1, NULL, &ret) == expected);
    room[ret] = 0;
    return ret;
}

static void test_long_keys(void)
{
    char one[WEIR__ENVOY_KEY_ROOM], two[WEIR__ENVOY_KEY_ROOM];
    CHECK_INT(long_key(one, 'x', WEIR__ENVOY_PART_MAX, 'x', false), 13 + WEIR__ENVOY_PART_MAX);
    for (size_t len = WEIR__ENVOY_PART_MAX + 1; len <= 100000; len = len * 3 / 2) {
        CHECK_INT(long_key(one, 'x', len, 'x', true), 13 + 64 + 2 + 64);
        long_key(two, 'x', len, 'y', true);
        CHECK(strcmp(one, two)); /* however long, the last byte tells them apart */
        long_key(two, 'x', len - 1, 'x', len > WEIR__ENVOY_PART_MAX + 1);
        CHECK(strcmp(one, two));
    }
    long_key(one, 'x', 300, 'x', true);
    struct weir__rls_entry imitation = {span("path"), span(one + 13)};
    size_t len;
    CHECK(!weir__envoy_put_key(two, span("d"), &imitation, 1, NULL, &len));
    two[len] = 0;
    CHECK(strcmp(one, two)); /* a value that looks like a digest */
}

/* More in all than fits, each part short, of bytes that are escaped; where a part ends counts. */
static void test_long_keys_together(void)
{
    static char text[WEIR__RLS_ENTRIES_MAX * 512], moved[WEIR__ENVOY_KEY_ROOM];
    struct weir__rls_entry entries[WEIR__RLS_ENTRIES_MAX];
    struct weir__span stars[WEIR__RLS_ENTRIES_MAX] = {{0}};
    char one[WEIR__ENVOY_KEY_ROOM];
    size_t len, again;
    memset(text, '|', sizeof text);
    for (size_t i = 0; i < WEIR__RLS_ENTRIES_MAX; i++)
        entries[i] = (struct weir__rls_entry){{text + i * 512, 200}, {text + i * 512 + 200, 250}};
    CHECK(weir__envoy_put_key(one, span("d"), entries, WEIR__RLS_ENTRIES_MAX, stars, &len));
    CHECK_INT(len, 7 + 3 + 64);
    CHECK(weir__envoy_put_key(moved, span("d"), entries, WEIR__RLS_ENTRIES_MAX, NULL, &again));
    CHECK(again == len && !memcmp(one, moved, len));
    entries[7].key.len++;
    entries[7].value.data++;
    entries[7].value.len--;
    CHECK(weir__envoy_put_key(moved, span("d"), entries, WEIR__RLS_ENTRIES_MAX, NULL, &again));
    CHECK(again == len && memcmp(one, moved, len));
    entries[7].key.len--;
    entries[7].value.len++;
    entries[7].value.data--;
    stars[3] = entries[3].value; /* a pattern is another thing than its text */
    CHECK(weir__envoy_put_key(moved, span("d"), entries, WEIR__RLS_ENTRIES_MAX, stars, &again));
    CHECK(again == len && memcmp(one, moved, len));
}

/* ---- what a rule says ---- */

static void test_modes(void)
{
    loads("domain: d\n"
          "descriptors:\n"
          "  - key: a\n"
          "    shadow_mode: True\n"
          "    detailed_metric: yes\n"
          "    value_to_metric: off\n"
          "    metadata: {anything: [1, {x: y}]}\n"
          "    rate_limit:\n"
          "      name: one\n"
          "      unit: hour\n"
          "      requests_per_unit: 3\n"
          "      replaces:\n"
          "        - name: two\n"
          "        - name: three\n"
          "  - {key: b, quota_mode: true, charge_denied: true, limit: token-bucket 5/s burst 9}\n"
          "  - {key: c, rate_limit: {limit: 'sliding-log 4/90s, fixed-window 9/d', name: two}}\n"
          "  - {key: n, value: ~, rate_limit: null, descriptors: }\n"
          "  - {key: 1, value: 2, limit: fixed-window 1/m}\n");
    const struct weir__envoy_rule *a = match("d", "a=1"), *b = match("d", "b=1");
    const struct weir__envoy_rule *c = match("d", "c=1");
    CHECK(a->shadow && !a->quota && !a->charge_denied);
    CHECK_TEXT(a->limit_name, "one");
    CHECK_INT(a->replace_count, 2);
    CHECK_TEXT(a->replaces[1], "three");
    CHECK(!b->shadow && b->quota && b->charge_denied);
    CHECK_TEXT(b->limit_name, "");
    CHECK_INT(b->requests_per_unit, 5);
    CHECK_INT(b->unit, WEIR__RLS_SECOND);
    CHECK_TEXT(weir_limit_text(c->limit), "sliding-log 4/1m30s, fixed-window 9/d");
    CHECK_INT(c->requests_per_unit, 0); /* the decision's: no unit says it all */
    CHECK_INT(c->unit, WEIR__RLS_UNKNOWN_UNIT);
    CHECK(!match("d", "n=1"));
    CHECK(match("d", "1=2") && match("d", "1=2")->limit);
}

/* Rules that mean the same share a limit, whatever their spelling. */
static void test_interned(void)
{
    loads("domain: d\n"
          "descriptors:\n"
          "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 60}}\n"
          "  - {key: b, limit: fixed-window 60/60s}\n");
    CHECK(match("d", "a=1")->limit == match("d", "b=1")->limit);
}

static void test_many(void)
{
    size_t size = 64 * 20000, len = 0;
    char *text = malloc(size), name[32];
    len += (size_t)snprintf(text, size, "domain: d\ndescriptors:\n");
    for (int i = 0; i < 20000; i++)
        len += (size_t)snprintf(text + len, size - len,
                                "  - {key: k, value: v%d, limit: fixed-window %d/m}\n", i,
                                i % 100 + 1);
    weir__envoy_free(envoy);
    envoy = NULL;
    CHECK_INT(weir__envoy_parse(text, len, "rl.yaml", &envoy, &err), 0);
    free(text);
    CHECK_INT(envoy->rule_count, 20000);
    CHECK_TEXT(limit_of("d", "k=v12345"), "fixed-window 46/m");
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "k=v%d", i);
        const struct weir__envoy_rule *rule = match("d", name);
        if (!rule || rule->index != (uint32_t)i)
            CHECK(0 && "each value leads to its own rule");
    }
    CHECK_TEXT(limit_of("d", "k=v20000"), "none");
}

/* ---- several files ---- */

static int load_two(const char *first, const char *second, bool merge)
{
    struct weir__envoy_file files[] = {{"a.yaml", first, strlen(first)},
                                       {"b.yaml", second, strlen(second)}};
    weir__envoy_free(envoy);
    envoy = NULL;
    return weir__envoy_load(files, 2, merge, &envoy, &err);
}

static void test_files(void)
{
    const char *one = "domain: d\ndescriptors: [{key: a, limit: fixed-window 1/m}]";
    const char *other = "domain: e\ndescriptors: [{key: a, limit: fixed-window 2/m}]";
    const char *more = "domain: d\ndescriptors: [{key: b, limit: fixed-window 3/m}]";
    CHECK_INT(load_two(one, other, false), 0);
    CHECK_TEXT(limit_of("d", "a=1"), "fixed-window 1/m");
    CHECK_TEXT(limit_of("e", "a=1"), "fixed-window 2/m");
    CHECK_INT(load_two(one, more, true), 0);
    CHECK_TEXT(limit_of("d", "a=1"), "fixed-window 1/m");
    CHECK_TEXT(limit_of("d", "b=1"), "fixed-window 3/m");
    CHECK_INT(load_two(one, more, false), WEIR_EINVAL);
    CHECK(is(err.message, "b.yaml:1:9: the domain \"d\" is already used by a.yaml; rename one, or "
                          "merge them with --envoy-merge-domains"));
    CHECK_INT(load_two(one, one, true), WEIR_EINVAL);
    CHECK(is(err.message,
             "b.yaml:2:15: the descriptor a exists already, a.yaml on line 2; keep one of them"));
    CHECK(!envoy);
    CHECK_INT(weir__envoy_load(NULL, 0, false, &envoy, &err), 0);
    CHECK_INT(envoy->rule_count, 0);
    CHECK(!weir__envoy_domain(envoy, span("d")));
}

/* ---- refusals ---- */

#define ONE(descriptor) "domain: d\ndescriptors:\n  - " descriptor "\n"

static void test_refusals(void)
{
    refuses("descriptors: []", "rl.yaml:1:1: the file names no domain (\"domain: …\")");
    refuses("domain: ''", "rl.yaml:1:1: the file names no domain (\"domain: …\")");
    refuses("domain: [a]", "rl.yaml:1:9: domain must be a text");
    refuses("[]", "rl.yaml:1:1: expected a map (\"domain: …\")");
    refuses("domain: d\ndescriptor: []",
            "rl.yaml:2:1: unknown key \"descriptor\"; did you mean descriptors?");
    refuses("domain: d\ndescriptors: {}",
            "rl.yaml:2:14: descriptors must be a list of \"- key: …\"");
    refuses(ONE("x"), "rl.yaml:3:5: expected a map (\"key: …\")");
    refuses(ONE("{value: v}"), "rl.yaml:3:5: a descriptor without a key");
    refuses(ONE("{key: k, values: v}"),
            "rl.yaml:3:14: unknown key \"values\"; did you mean value?");
    refuses(ONE("{key: k, value: v}\n  - {key: k, value: v}"),
            "rl.yaml:4:5: the descriptor k_v exists already, on line 3; keep one of them");
    refuses(ONE("{key: k}\n  - {key: k, value: ''}"),
            "rl.yaml:4:5: the descriptor k exists already, on line 3; keep one of them");
    refuses(ONE("{key: k, shadow_mode: 1}"), "rl.yaml:3:27: shadow_mode must be true or false");
    refuses(ONE("{key: k, quota_mode: 'true'}"), "rl.yaml:3:26: quota_mode must be true or false");
    refuses(ONE("{key: k, metadata: x}"), "rl.yaml:3:24: metadata must be a map");
    refuses(
        ONE("{key: k, value: v, share_threshold: true}"),
        "rl.yaml:3:5: share_threshold needs a value with a *, whose values then count together");
}

static void test_limit_refusals(void)
{
    refuses(ONE("{key: k, rate_limit: 5}"), "rl.yaml:3:26: expected a map (\"unit: …\")");
    refuses(
        ONE("{key: k, rate_limit: {requests_per_unit: 5}}"),
        "rl.yaml:3:26: unit is missing: expected second, minute, hour, day, week, month or year");
    refuses(ONE("{key: k, rate_limit: {unit: fortnight, requests_per_unit: 5}}"),
            "rl.yaml:3:33: unknown unit: expected second, minute, hour, day, week, month or year");
    refuses(ONE("{key: k, rate_limit: {unit: unknown, requests_per_unit: 5}}"),
            "rl.yaml:3:33: unknown unit: expected second, minute, hour, day, week, month or year");
    refuses(
        ONE("{key: k, rate_limit: {unit: day}}"),
        "rl.yaml:3:26: requests_per_unit is missing; 0 denies everything, unlimited: true nothing");
    static const char *const numbers[] = {"-1", "1.5", "4294967296", "99999999999", "x", "'5'",
                                          "[]", "010", "0x10",       "1_000",       "00"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, ONE("{key: k, rate_limit: {unit: day, requests_per_unit: %s}}"),
                 numbers[i]);
        refuses(text,
                "rl.yaml:3:57: requests_per_unit must be a whole number within 0 … 4294967295, in "
                "decimal digits without a leading 0");
    }
    refuses(ONE("{key: k, rate_limit: {unlimited: true, unit: day}}"),
            "rl.yaml:3:50: unit and unlimited: true exclude each other; leave one of them out");
    refuses(ONE("{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: x}}"),
            "rl.yaml:3:70: replaces must be a list of \"- name: …\"");
    refuses(ONE("{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{}]}}"),
            "rl.yaml:3:71: replaces needs the name of a limit (\"- name: …\")");
    refuses(ONE("{key: k, rate_limit: {unit: day, requests_per_unit: 1, name: a, replaces: "
                "[{name: a}]}}"),
            "rl.yaml:3:80: a limit cannot replace itself (\"a\")");
    refuses(ONE("{key: k, limit: fixed-window 1/m, rate_limit: {}}"),
            "rl.yaml:3:21: limit and rate_limit together; leave one of them out");
    refuses(ONE("{key: k, rate_limit: {limit: fixed-window 1/m, unit: day}}"),
            "rl.yaml:3:34: limit replaces unit, requests_per_unit and unlimited; leave them out");
    refuses(ONE("{key: k, limit: [a]}"),
            "rl.yaml:3:21: limit must be a text like \"sliding-window 100/m\"");
    refuses(
        ONE("{key: k, limit: concurrent 5}"),
        "rl.yaml:3:21: Envoy does not say when a request ends, so that a concurrent limit would "
        "never be released; use a limit over time");
    refuses(ONE("{key: k, limit: fixed-window 1/x}"),
            "rl.yaml:3:36: a period needs a unit: us, ms, s, m, h, d, w, month or year (or sec, "
            "min, hour, day, week), found \"x\"; example: "
            "fixed-window 100/m");
}

int main(void)
{
    test_nested();
    test_levels();
    test_units();
    test_wildcards();
    test_overlap();
    test_shared();
    test_keys();
    test_long_keys();
    test_long_keys_together();
    test_modes();
    test_interned();
    test_many();
    test_files();
    test_refusals();
    test_limit_refusals();
    weir__envoy_free(envoy);
    weir__envoy_free(NULL);
    return test_report();
}
