/*
 * What the tests of plans share: a set of policies, requests by attributes, and the plan of the
 * last one.
 */
#ifndef WEIR_POLICY_TEST_H
#define WEIR_POLICY_TEST_H

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

static inline enum weir__found find(const void *context, const char *name, size_t len,
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

static inline void use(const char *text)
{
    weir_error err = {0};
    weir__policies_free(policies);
    policies = NULL;
    if (!CHECK(!weir__policies_parse(text, strlen(text), "p.yaml", false, &policies, &err)))
        printf("%s\n%s\n", text, err.message);
}

static inline int ask(const char *policy, struct request request, const char *key, int64_t cost)
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
static inline const char *keys_of(const struct weir__item *planned, size_t count)
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

static inline const char *keys(void)
{
    return plan.verdict == WEIR__VERDICT_LIMITS ? keys_of(plan.enforced, plan.enforced_count) : "";
}

static inline void are(const char *found, const char *expected)
{
    if (!CHECK(!strcmp(found, expected)))
        printf("  got      %s\n  expected %s\n", found, expected);
}

#endif
