/*
 * WEIR.DECIDE: what the policies say to a request, which describes itself by attributes.
 *
 *     WEIR.DECIDE [POLICY name] attribute value [attribute value …]
 *                 [COST n] [LEAST n | WAIT us|any] [DETAIL]
 *     WEIR.DECIDE … [COST n] [LEAST n] SETTLE receipt actual
 *
 * What holds: names and values take turns, so a value is never read as an option, whatever it is. A
 * name that is one of the options' words is an option; "attr." before a name makes it an attribute
 * in any case ("attr.cost"). Names are folded as in HTTP, and an attribute that comes twice is an
 * error.
 */
#include "server/resp/resp.h"

#include "policy/view.h"
#include "store/store.h"

#include <string.h>

#define DECIDE_ATTRIBUTES_MAX 32 /* as many as attr.NAME=value of HTTP */
#define DECIDE_PREFIX "attr."

struct decide {
    struct weir__span policy; /* empty: all that match */
    struct {
        char name[WEIR__ATTRIBUTE_NAME_MAX]; /* folded */
        size_t len;
        struct weir__span value;
    } attributes[DECIDE_ATTRIBUTES_MAX];
    size_t count;
    int64_t cost; /* -1: the policies' own */
    int64_t least;
    int64_t wait_us;
    bool detail, settles;
    struct weir__span receipt;
    int64_t actual;
};

static int decide_shown(struct weir__span text)
{
    return (int)(text.len > 64 ? 64 : text.len);
}

/* ---- attributes ---- */

static enum weir__found decide_find(const void *context, const char *name, size_t len,
                                    struct weir__span *ret)
{
    const struct decide *decide = context;
    for (size_t i = 0; i < decide->count; i++) {
        if (decide->attributes[i].len == len && !memcmp(decide->attributes[i].name, name, len)) {
            *ret = decide->attributes[i].value;
            return WEIR__FOUND;
        }
    }
    return WEIR__ABSENT;
}

static int decide_add(struct decide *decide, struct weir__span name, struct weir__span value,
                      weir_error *err)
{
    static const size_t prefix = sizeof DECIDE_PREFIX - 1;
    struct weir__span before;
    if (name.len >= prefix && !memcmp(name.data, DECIDE_PREFIX, prefix))
        name = (struct weir__span){name.data + prefix, name.len - prefix};
    if (name.len == 0 || name.len > WEIR__ATTRIBUTE_NAME_MAX)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "the name of an attribute has 1 to %d bytes, this one has %zu",
                          WEIR__ATTRIBUTE_NAME_MAX, name.len);
    if (decide->count == DECIDE_ATTRIBUTES_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "a request has at most %d attributes",
                          DECIDE_ATTRIBUTES_MAX);
    char *room = decide->attributes[decide->count].name;
    memcpy(room, name.data, name.len);
    weir__attribute_fold(room, name.len);
    if (decide_find(decide, room, name.len, &before) == WEIR__FOUND)
        return weir__fail(err, WEIR_EINVAL, 0, "the attribute \"%.*s\" is given twice",
                          decide_shown(name), name.data);
    decide->attributes[decide->count].len = name.len;
    decide->attributes[decide->count++].value = value;
    return 0;
}

/* ---- arguments ---- */

enum decide_option {
    DECIDE_COST,
    DECIDE_LEAST,
    DECIDE_WAIT,
    DECIDE_DETAIL,
    DECIDE_SETTLE,
    DECIDE_OPTIONS
};

static enum decide_option decide_option_of(struct weir__span word)
{
    static const char *const words[DECIDE_OPTIONS] = {"COST", "LEAST", "WAIT", "DETAIL", "SETTLE"};
    enum decide_option option = DECIDE_COST;
    while (option < DECIDE_OPTIONS && !weir__span_is_word(word, words[option]))
        option++;
    return option;
}

/* The values of an option. */
static int decide_set(struct decide *ret, enum decide_option option, const struct weir__span *args,
                      weir_error *err)
{
    switch (option) {
    case DECIDE_COST:
        return weir__read_whole(args[0], "COST", 0, WEIR_COST_MAX, &ret->cost, err);
    case DECIDE_LEAST:
        return weir__read_whole(args[0], "LEAST", 1, WEIR_COST_MAX, &ret->least, err);
    case DECIDE_WAIT:
        if (weir__span_is_word(args[0], "any")) {
            ret->wait_us = WEIR_WAIT_ANY;
            return 0;
        }
        return weir__read_whole(args[0], "WAIT", 0, WEIR_DURATION_MAX, &ret->wait_us, err);
    case DECIDE_DETAIL:
        ret->detail = true;
        return 0;
    case DECIDE_SETTLE:
        ret->settles = true;
        ret->receipt = args[0];
        return weir__read_whole(args[1], "the actual cost", 0, WEIR_COST_MAX, &ret->actual, err);
    case DECIDE_OPTIONS:
        break;
    }
    return WEIR_EINVAL;
}

static int decide_read_options(const struct weir__span *args, size_t n, struct decide *ret,
                               weir_error *err)
{
    static const size_t values[DECIDE_OPTIONS] = {1, 1, 1, 0, 2};
    unsigned given = 0;
    for (size_t at = 0; at < n;) {
        enum decide_option option = decide_option_of(args[at]);
        if (option == DECIDE_OPTIONS || given & 1u << option || n - at - 1 < values[option])
            return weir__fail(err, WEIR_EINVAL, 0,
                              "expected [COST n] [LEAST n] [WAIT us|any] [DETAIL], or [COST n] "
                              "[LEAST n] SETTLE receipt actual, each once and after all "
                              "attributes, found \"%.*s\"",
                              decide_shown(args[at]), args[at].data);
        given |= 1u << option;
        int code = decide_set(ret, option, args + at + 1, err);
        if (code)
            return code;
        at += 1 + values[option];
    }
    if (ret->settles && given & (1u << DECIDE_WAIT | 1u << DECIDE_DETAIL))
        return weir__fail(err, WEIR_EINVAL, 0, "WAIT and DETAIL cannot be used with SETTLE");
    return 0;
}

static int decide_read(const struct weir__span *args, size_t n, struct decide *ret, weir_error *err)
{
    size_t at = 1;
    ret->policy = (struct weir__span){"", 0};
    ret->count = 0;
    ret->cost = -1;
    ret->least = 0;
    ret->wait_us = WEIR_WAIT_DEFAULT;
    ret->detail = ret->settles = false;
    if (n > 2 && weir__span_is_word(args[1], "POLICY")) {
        ret->policy = args[2];
        at = 3;
        if (args[2].len == 0)
            return weir__fail(err, WEIR_EINVAL, 0, "the name of the policy is empty");
    }
    while (at < n && decide_option_of(args[at]) == DECIDE_OPTIONS) {
        if (at + 1 == n)
            return weir__fail(err, WEIR_EINVAL, 0, "the attribute \"%.*s\" has no value",
                              decide_shown(args[at]), args[at].data);
        int code = decide_add(ret, args[at], args[at + 1], err);
        if (code)
            return code;
        at += 2;
    }
    if (ret->count == 0 && ret->policy.len == 0)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "expected WEIR.DECIDE [POLICY name] attribute value [attribute value …]");
    return decide_read_options(args + at, n - at, ret, err);
}

/* ---- the ask ---- */

static int decide_plan(struct server_conn *conn, const struct decide *decide,
                       struct server_planned *planned, weir_error *err)
{
    const struct weir__subject subject = {decide_find, decide};
    const struct server_plan_question question = {.policy = decide->policy,
                                                  .subject = &subject,
                                                  .cost = decide->cost,
                                                  .least = decide->least,
                                                  .wait_us = decide->wait_us};
    int code = server_planned_make(conn, &question, planned, err);
    if (code)
        return code;
    if (decide->settles && planned->plan.verdict == WEIR__VERDICT_DENY) {
        char why[256];
        struct weir__buffer buffer = weir__buffer_over(why, sizeof why);
        weir__put_denial(&buffer, conn->thread->rules->policies, &planned->plan);
        return weir__fail(err, WEIR_EINVAL, 0, "%s, so there is nothing to settle", why);
    }
    if (decide->settles && planned->several.count == 0)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "no limit of a policy applies, so there is nothing to settle");
    if (weir__items_leased(planned->plan.enforced, planned->plan.enforced_count) > 0)
        return weir__fail(err, WEIR_EINVAL, 0, "%s", SERVER_NEEDS_ACQUIRE);
    return 0;
}

int server_resp_decide(struct server_conn *conn, const struct weir__span *args, size_t n,
                       weir_error *err)
{
    struct decide decide;
    int code = decide_read(args, n, &decide, err);
    if (code)
        return code;
    struct server_ask *ask = server_batch_add(conn);
    ask->verb = decide.settles ? WEIR__VERB_SETTLE : WEIR__VERB_TAKE;
    ask->resp.protocol = conn->resp_protocol;
    ask->resp.detail = decide.detail;
    ask->kind = server_ask_kind_of(ask->verb);
    struct server_planned *planned = server_planned_take(conn->thread);
    if (planned) {
        ask->about = SERVER_ABOUT_PLAN;
        ask->planned = planned;
        code = decide_plan(conn, &decide, planned, err);
    } else {
        code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the request; try again");
    }
    ask->resp.granted = decide.least > 0;
    for (size_t i = 0; planned && code == 0 && i < planned->several.count; i++)
        ask->resp.granted = ask->resp.granted || planned->several.requests[i].least;
    if (decide.settles) {
        ask->settle.receipt = decide.receipt;
        ask->settle.actual = decide.actual;
    }
    if (code)
        server_batch_drop(conn);
    return code;
}
