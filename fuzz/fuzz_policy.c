/*
 * A policy file and requests to it. The input is a file up to a zero byte, the attributes of a
 * request as a query up to another, and those of a second one. Whatever comes: a file is refused
 * with words and a place, or whole; a plan stays within its bounds; what is told apart has
 * different keys.
 */
#include "fuzz.h"

#include "policy/policy.h"
#include "wire/http1.h"

#include <stdbool.h>

#define ATTRIBUTES_MAX 32
#define FILE_NAME "p.yaml"

/* ---- requests ---- */

struct request {
    struct {
        struct weir__span name, value;
    } items[ATTRIBUTES_MAX];
    size_t count;
    char *room;
};

static enum weir__found find(const void *context, const char *name, size_t len,
                             struct weir__span *ret)
{
    const struct request *request = context;
    for (size_t i = 0; i < request->count; i++) {
        if (request->items[i].name.len == len && !memcmp(request->items[i].name.data, name, len)) {
            *ret = request->items[i].value;
            return WEIR__FOUND;
        }
    }
    return WEIR__ABSENT;
}

static void read_request(const char *text, struct request *ret)
{
    struct weir__query query = {{text, strlen(text)}, false};
    struct weir__span name, value;
    ret->count = 0;
    ret->room = malloc(strlen(text) + 1);
    EXPECT(ret->room, "out of memory");
    char *room = ret->room;
    while (ret->count < ATTRIBUTES_MAX && weir__query_next(&query, room, &name, &value)) {
        ret->items[ret->count].name = name;
        ret->items[ret->count++].value = value;
        room += name.len + value.len;
    }
}

/* ---- files ---- */

static void check_refusal(int code, const weir_error *err)
{
    EXPECT(code == WEIR_EINVAL && err->code == code, "code %d", code);
    EXPECT(!strncmp(err->message, FILE_NAME ":", strlen(FILE_NAME) + 1), "%s", err->message);
    EXPECT(err->column >= 1, "column %d", err->column);
    for (const char *p = err->message; *p; p++)
        EXPECT((unsigned char)*p >= ' ' && *p != 0x7f, "byte %d in the message", *p);
}

static void check_set(const struct weir__policies *set)
{
    size_t entries = 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct weir__policy *policy = &set->policies[i];
        EXPECT(policy->index == i && policy->match_text[0], "policy %zu", i);
        EXPECT(policy->entry_count <= WEIR__ENTRIES_MAX, "%zu entries", policy->entry_count);
        EXPECT(weir__policies_find(set, policy->name, strlen(policy->name)) == policy, "%s is lost",
               policy->name);
        for (size_t j = 0; j < policy->entry_count; j++)
            EXPECT(policy->entries[j].index == entries++ && policy->entries[j].limit, "entry");
    }
    EXPECT(set->entry_count == entries, "%zu entries", entries);
}

/* ---- plans ---- */

static void check_planned(const struct weir__plan *plan, const struct weir__item *planned)
{
    const char *key = planned->key.data;
    size_t name = strlen(planned->policy->name), len = planned->key.len;
    EXPECT(key >= plan->keys && key + len < plan->keys + sizeof plan->keys, "key outside");
    EXPECT(len > name + 3 && !memcmp(key, planned->policy->name, name) && key[name] == '/', "key");
    EXPECT(key[len - 1] == '}' && memchr(key, '{', len) == memrchr(key, '{', len) &&
               memchr(key, '}', len) == key + len - 1,
           "braces of %.*s", (int)len, key);
    for (size_t i = 0; i < len; i++)
        EXPECT((unsigned char)key[i] > ' ' && key[i] != 0x7f, "byte %d", key[i]);
    EXPECT(planned->cost >= 0 && planned->cost <= WEIR_COST_MAX, "cost");
    EXPECT(weir_limit_count(planned->limit) >= 1, "limit");
}

static void check_plan(const struct weir__plan *plan)
{
    size_t limits = 0;
    EXPECT((plan->by == NULL) == (plan->verdict == WEIR__VERDICT_NONE), "by");
    EXPECT(plan->enforced_count <= WEIR__ENTRIES_MAX && plan->shadow_count <= WEIR__ENTRIES_MAX,
           "counts");
    EXPECT((plan->enforced_count + plan->shadow_count > 0) ==
               (plan->verdict == WEIR__VERDICT_LIMITS),
           "verdict %d", plan->verdict);
    for (size_t i = 0; i < plan->enforced_count; i++) {
        check_planned(plan, &plan->enforced[i]);
        EXPECT(!plan->enforced[i].entry->shadow, "shadow");
        limits += weir_limit_count(plan->enforced[i].limit);
    }
    for (size_t i = 0; i < plan->shadow_count; i++) {
        check_planned(plan, &plan->shadow[i]);
        EXPECT(plan->shadow[i].entry->shadow, "not shadow");
    }
    EXPECT(limits <= WEIR_LIMITS_MAX, "%zu limits", limits);
}

static bool same_key(weir_key a, weir_key b)
{
    return a.len == b.len && !memcmp(a.data, b.data, a.len);
}

/* No two entries of a plan share a key. */
static void check_distinct(const struct weir__plan *plan)
{
    const struct weir__item *all[2 * WEIR__ENTRIES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < plan->enforced_count; i++)
        all[n++] = &plan->enforced[i];
    for (size_t i = 0; i < plan->shadow_count; i++)
        all[n++] = &plan->shadow[i];
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++)
            EXPECT(!same_key(all[i]->key, all[j]->key), "two entries share a key");
    }
}

/* Whether the plan could be made. */
static bool plan_request(const struct weir__policies *set, const struct request *request,
                         struct weir__plan *ret)
{
    struct weir__subject subject = {find, request};
    weir_error err = {0};
    int code = weir__policies_plan(set, NULL, &subject, NULL, -1, ret, &err);
    EXPECT(code == 0 || (code == WEIR_EINVAL && err.message[0]), "code %d", code);
    if (code == 0) {
        check_plan(ret);
        check_distinct(ret);
    }
    return code == 0;
}

/* Whether the key is one attribute that is compared as it is: no path, host or address, no
 * function. */
static bool is_plain(const char *key_text)
{
    static const char *const spelled[] = {"ip", "path", "host"};
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
        if (!strncmp(key_text, spelled[i], strlen(spelled[i])))
            return false;
    }
    return !strpbrk(key_text, "(',/");
}

/* Two keys of callers, under every policy by its name: the values of the attribute that it is made
 * of. */
static void check_given(const struct weir__policies *set, const char *a, const char *b)
{
    static struct weir__plan first, second;
    if (!a[0] || !b[0])
        return;
    for (size_t i = 0; i < set->count; i++) {
        const struct weir__policy *policy = &set->policies[i];
        struct weir__span name = {policy->name, strlen(policy->name)};
        weir_key x = weir_key_text(a), y = weir_key_text(b);
        if (weir__policies_plan(set, &name, NULL, &x, 1, &first, NULL) ||
            weir__policies_plan(set, &name, NULL, &y, 1, &second, NULL))
            continue;
        check_plan(&first);
        check_plan(&second);
        if (first.verdict != second.verdict)
            continue; /* a list has one of them */
        EXPECT(first.enforced_count == second.enforced_count, "counts");
        for (size_t j = 0; j < first.enforced_count; j++) {
            bool same = same_key(first.enforced[j].key, second.enforced[j].key);
            EXPECT(strcmp(a, b) || same, "%s has two keys", a);
            EXPECT(!strcmp(a, b) || !same || !is_plain(first.enforced[j].entry->key.text),
                   "%s and %s share a key", a, b);
        }
    }
}

/* ---- the whole ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weir__plan plan, again;
    static struct request requests[2];
    char *text = fuzz_text(data, size);
    size_t len = strlen(text);
    const char *first = len < size ? text + len + 1 : "";
    size_t used = len + 1 + strlen(first);
    const char *second = used < size ? text + used + 1 : "";
    struct weir__policies *set = NULL, *cluster = NULL;
    weir_error err = {0};
    int code = weir__policies_parse(text, len, FILE_NAME, false, &set, &err);
    EXPECT(weir__policies_parse(text, len, FILE_NAME, true, &cluster, NULL) || code == 0,
           "a cluster takes what others refuse");
    weir__policies_free(cluster);
    if (code) {
        check_refusal(code, &err);
        free(text);
        return 0;
    }
    check_set(set);
    read_request(first, &requests[0]);
    read_request(second, &requests[1]);
    for (size_t i = 0; i < 2; i++) {
        if (plan_request(set, &requests[i], &plan)) {
            EXPECT(plan_request(set, &requests[i], &again), "not again");
            EXPECT(plan.verdict == again.verdict && plan.by == again.by, "another verdict");
        }
        free(requests[i].room);
    }
    check_given(set, first, second);
    weir__policies_free(set);
    free(text);
    return 0;
}
