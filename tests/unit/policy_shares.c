/*
 * Shares in policies: what a file may say, which limit a request is held against, and that all
 * classes count in one state.
 */
#include "policy/policy.h"

#include "store_test.h"
#include "wire/json.h"

#define TOP "version: 1\npolicies:\n"
#define API(limit, share)                                                                          \
    TOP "  - name: api\n    key: user\n    limit: " limit "\n    share: " share "\n"

static _Atomic int64_t now = START;
static struct weir__policies *policies;
static struct weir__plan plan;
static weir_store *store;
static weir_decision answer;
static weir_error err;

static void use(const char *text)
{
    weir__policies_free(policies);
    policies = NULL;
    if (weir__policies_parse(text, strlen(text), "p.yaml", false, &policies, &err))
        test_give_up(text, err.message);
}

/* ---- requests ---- */

struct subject {
    const char *user, *class, *path, *ip;
    bool twice; /* the class cannot be told */
};

static enum weir__found find(const void *context, const char *name, size_t len,
                             struct weir__span *ret)
{
    const struct subject *it = context;
    const char *names[] = {"user", "class", "path", "ip"};
    const char *values[] = {it->user, it->class, it->path, it->ip};
    if (it->twice && len == 5 && !memcmp(name, "class", len)) {
        *ret = weir__span_of("was sent twice");
        return WEIR__UNUSABLE;
    }
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        if (values[i] && strlen(names[i]) == len && !memcmp(names[i], name, len)) {
            *ret = weir__span_of(values[i]);
            return WEIR__FOUND;
        }
    }
    return WEIR__ABSENT;
}

static int plan_for(struct subject it, int64_t cost)
{
    struct weir__subject subject = {find, &it};
    return weir__policies_plan(policies, NULL, &subject, NULL, cost, &plan, &err);
}

static const char *limit_of(struct subject it)
{
    CHECK_INT(plan_for(it, -1), 0);
    CHECK_INT(plan.enforced_count, 1);
    return weir_limit_text(plan.enforced[0].limit);
}

static bool take(const char *class, int64_t cost)
{
    CHECK_INT(plan_for((struct subject){.user = "ann", .class = class}, cost), 0);
    CHECK_INT(weir__plan_decide(store, &plan, WEIR__TAKE, NULL, &answer), 0);
    return answer.allowed;
}

/* ---- reading ---- */

static void refuses(const char *text, const char *message)
{
    struct weir__policies *set = NULL;
    err = (weir_error){0};
    CHECK_INT(weir__policies_parse(text, strlen(text), "p.yaml", false, &set, &err), WEIR_EINVAL);
    CHECK(!set);
    if (!CHECK(!strcmp(err.message, message)))
        printf("  got      %s\n  expected %s\n", err.message, message);
}

#define EXAMPLE "{by: header.x-class, critical: 100%, batch: 50%, default: 80%}"

static void test_refusals(void)
{
#define L "fixed-window 10/m"
    refuses(API(L, "{by: class, batch: 0%, default: 80%}"),
            "p.yaml:6:31: \"0%\": a share is more than 0% and at most 100%");
    refuses(API(L, "{by: class, batch: 50%, default: 100.5%}"),
            "p.yaml:6:45: \"100.5%\": a share is more than 0% and at most 100%");
    refuses(API(L, "{by: class, batch: 50, default: 80%}"),
            "p.yaml:6:31: \"50\": a share needs its percent sign, like 50%");
    refuses(API(L, "{by: class, batch: 1.00001%, default: 80%}"),
            "p.yaml:6:31: \"1.00001%\": a share has at most four decimals, like 12.5%");
    refuses(API(L, "{by: class, batch: [50%], default: 80%}"),
            "p.yaml:6:31: batch is a text, not a list or map");
    refuses(
        API(L, "{batch: 50%, default: 80%}"),
        "p.yaml:6:12: a share needs by: ATTRIBUTE, what tells its classes apart, like " EXAMPLE);
    refuses(API(L, "{by: class, default: 80%}"),
            "p.yaml:6:12: a share needs a class besides default, like " EXAMPLE);
    refuses(API(L, "{by: class, batch: 50%}"),
            "p.yaml:6:12: a share needs default: PERCENT, for requests of no class; a client may "
            "leave the attribute out, so the smallest share is safe");
    refuses(API(L, "50%"), "p.yaml:6:12: share is a map of classes, like " EXAMPLE);
    refuses(API(L, "{by: lower(class), batch: 5%, BATCH: 6%, default: 1%}"),
            "p.yaml:6:42: \"BATCH\" never applies: \"batch\" stands before it and has these "
            "requests");
    refuses(API(L, "{by: class, \"*\": 5%, batch: 6%, default: 1%}"),
            "p.yaml:6:33: \"batch\" never applies: \"*\" stands before it and has these requests");
    refuses(API(L, "{by: path, x: 5%, default: 1%}"), "p.yaml:6:23: \"x\": a path begins with /");
    refuses(API("smooth 5/s", "{by: class, batch: 50%, default: 80%}"),
            "p.yaml:5:12: \"smooth 5/s\" cannot be shared: smooth and warmup have no size. Use "
            "another limit, or no share here");
    refuses(
        API("fixed-window 60/m cost 31", "{by: class, batch: 50%, default: 80%}"),
        "p.yaml:5:12: 50% of \"fixed-window 60/m cost 31\" is 30, less than its own cost of 31; "
        "use a larger share");
    refuses(API(L, "{by: class, a: 1%, b: 1%, c: 1%, d: 1%, e: 1%, f: 1%, g: 1%, h: 1%, i: 1%, "
                   "j: 1%, k: 1%, l: 1%, m: 1%, n: 1%, o: 1%, p: 1%, q: 1%, default: 1%}"),
            "p.yaml:6:12: more than 16 classes in one share");
    refuses(
        "version: 1\ntiers: {slow: warmup 5/s over 1s}\n"
        "policies:\n  - {name: p, key: user, limit: " L ", share: {by: x, y: 1%, default: 1%}, "
        "overrides: [{when: {user: a}, tier: slow}]}\n",
        "p.yaml:4:124: \"warmup 5/s over 1s\" cannot be shared: smooth and warmup have no size. "
        "Use another limit, or no share here");
    refuses(TOP "  - {name: p, deny: [{user: x}], share: {by: x, y: 1%, default: 1%}}\n",
            "p.yaml:3:41: share without a limit in \"p\"; add limit: token-bucket 100/s");
#undef L
}

/* ---- planning ---- */

static void test_choosing(void)
{
    use(API("token-bucket 100/s burst 200",
            "{by: class, critical: 100%, batch: 50%, \"bulk-*\": 12.5%, default: 80%}"));
    CHECK_TEXT(limit_of((struct subject){"u", "critical", 0, 0, 0}),
               "token-bucket 100/s burst 200");
    CHECK_TEXT(limit_of((struct subject){"u", "batch", 0, 0, 0}), "token-bucket 100/s");
    CHECK_TEXT(limit_of((struct subject){"u", "bulk-7", 0, 0, 0}), "token-bucket 100/s burst 25");
    CHECK_TEXT(limit_of((struct subject){"u", NULL, 0, 0, 0}), "token-bucket 100/s burst 160");
    CHECK_TEXT(limit_of((struct subject){"u", "", 0, 0, 0}), "token-bucket 100/s burst 160");
    CHECK_TEXT(limit_of((struct subject){"u", "Critical", 0, 0, 0}),
               "token-bucket 100/s burst 160");
    CHECK_TEXT(limit_of((struct subject){"u", "critical ", 0, 0, 0}),
               "token-bucket 100/s burst 160");
    CHECK_TEXT(limit_of((struct subject){"u", "default", 0, 0, 0}), "token-bucket 100/s burst 160");
    CHECK_INT(plan_for((struct subject){"u", "critical", 0, 0, true}, -1), WEIR_EINVAL);
    CHECK(!strcmp(err.message, "the value of class was sent twice"));
    /* the limits of equal shares are one */
    use(API("fixed-window 10/m", "{by: class, a: 100%, b: 50%, c: 50.0%, default: 50%}"));
    CHECK_INT(policies->limit_count, 2);
}

static void test_attributes(void)
{
    use(API("fixed-window 100/m", "{by: path, /login: 100%, /export/*: 10%, default: 50%}"));
    CHECK_TEXT(limit_of((struct subject){"u", 0, "/x/..//login", 0, 0}), "fixed-window 100/m");
    CHECK_TEXT(limit_of((struct subject){"u", 0, "/export/a/b", 0, 0}), "fixed-window 10/m");
    CHECK_TEXT(limit_of((struct subject){"u", 0, "/export", 0, 0}), "fixed-window 50/m");
    use(API("fixed-window 100/m", "{by: ip, 10.0.0.0/8: 100%, default: 50%}"));
    CHECK_TEXT(limit_of((struct subject){"u", 0, 0, "::ffff:10.1.2.3", 0}), "fixed-window 100/m");
    CHECK_TEXT(limit_of((struct subject){"u", 0, 0, "11.1.2.3", 0}), "fixed-window 50/m");
    CHECK_TEXT(limit_of((struct subject){"u", 0, 0, NULL, 0}), "fixed-window 50/m");
    CHECK_INT(plan_for((struct subject){"u", 0, 0, "nonsense", 0}, -1), WEIR_EINVAL);
}

/* What stands at the policy holds for its limits, and for what overrides them. */
static void test_inherited(void)
{
    use("version: 1\ntiers: {gold: fixed-window 1000/m}\npolicies:\n"
        "  - name: p\n    key: user\n    share: {by: class, batch: 50%, default: 100%}\n"
        "    limits:\n"
        "      - {name: a, limit: 'fixed-window 100/m, sliding-log 10/h'}\n"
        "      - {name: b, limit: leaky-bucket 5/s burst 9 delay 8,\n"
        "         share: {by: class, batch: 10%, default: 20%}}\n"
        "    overrides: [{when: {user: vip}, entry: a, tier: gold}]\n");
    plan_for((struct subject){"u", "batch", 0, 0, 0}, -1);
    CHECK_TEXT(weir_limit_text(plan.enforced[0].limit), "fixed-window 50/m, sliding-log 5/h");
    CHECK_TEXT(weir_limit_text(plan.enforced[1].limit), "leaky-bucket 5/s");
    plan_for((struct subject){"vip", "batch", 0, 0, 0}, -1);
    CHECK_TEXT(weir_limit_text(plan.enforced[0].limit), "fixed-window 500/m");
    plan_for((struct subject){"vip", "x", 0, 0, 0}, -1);
    CHECK_TEXT(weir_limit_text(plan.enforced[0].limit), "fixed-window 1000/m");
    CHECK_TEXT(weir_limit_text(plan.enforced[1].limit), "leaky-bucket 5/s burst 1 delay 1");
}

/* ---- deciding ---- */

static void test_one_state(const char *limit)
{
    char text[400];
    snprintf(text, sizeof text,
             API("%s", "{by: class, critical: 100%%, normal: 80%%, batch: 50%%, default: 10%%}"),
             limit);
    use(text);
    store = test_open("memory:1m", &now);
    int count[3] = {0, 0, 0};
    const char *const classes[] = {"batch", "normal", "critical"};
    const int most[] = {5, 3, 2};
    for (int c = 0; c < 3; c++) {
        while (count[c] < 20 && take(classes[c], 1))
            count[c]++;
        CHECK_INT(count[c], most[c]); /* each goes on where the one before it was denied */
        CHECK_INT(answer.remaining, 0);
        CHECK(answer.retry_after_us > 0);
    }
    CHECK_INT(answer.limit, 10);
    CHECK(!take("batch", 1) && answer.limit == 5 && answer.remaining == 0);
    CHECK(!take(NULL, 1) && answer.limit == 1 && answer.remaining == 0);
    int64_t retry = answer.retry_after_us;
    CHECK(!take("batch", 6) && answer.retry_after_us == WEIR_NEVER);
    atomic_fetch_add(&now, retry - 1);
    CHECK(!take(NULL, 1) && answer.retry_after_us == 1);
    atomic_fetch_add(&now, 1);
    CHECK(take(NULL, 1));
    weir_store_close(store);
}

/* A receipt corrects the one state, whatever the class is by then, and once. */
static void test_settle(void)
{
    char receipt[WEIR_RECEIPT_SIZE];
    use(API("fixed-window 10/h", "{by: class, batch: 50%, default: 100%}"));
    store = test_open("memory:1m", &now);
    CHECK(take("batch", 5) && answer.remaining == 0);
    weir_receipt(&answer, receipt);
    CHECK_INT(plan_for((struct subject){.user = "ann"}, 5), 0);
    CHECK_INT(weir__plan_settle(store, &plan, receipt, 2), 0);
    CHECK_INT(plan_for((struct subject){.user = "ann", .class = "batch"}, 5), 0);
    CHECK_INT(weir__plan_settle(store, &plan, receipt, 2), WEIR_ESETTLED);
    CHECK(take("batch", 3) && answer.remaining == 0);
    CHECK(take(NULL, 5) && answer.remaining == 0 && answer.limit == 10);
    weir_store_close(store);
}

/* With a least, a class is granted what is left of its share. */
static void test_granted(void)
{
    use(TOP "  - {name: api, key: user, limit: fixed-window 10/h, cost: {of: n, default: 8}, "
            "least: 1,\n"
            "     share: {by: class, batch: 50%, default: 100%}}\n");
    store = test_open("memory:1m", &now);
    CHECK(take("batch", -1) && answer.granted == 5 && answer.limit == 5 && answer.remaining == 0);
    CHECK(!take("batch", -1) && answer.granted == 0);
    CHECK(take(NULL, -1) && answer.granted == 5 && answer.limit == 10);
    CHECK(!take(NULL, -1));
    weir_store_close(store);
}

static void test_json(void)
{
    use(API("fixed-window 10/m", "{by: class, 'a\"\\\\*': 50%, default: 12.5%}"));
    const struct weir__entry *entry = &policies->policies[0].entries[0];
    char text[256];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    struct weir__json json = {&buffer, false};
    weir__put_shares_json(&json, policies, entry->shares, entry->reduced);
    CHECK(!buffer.cut);
    CHECK_TEXT(text,
               "\"share\":{\"by\":\"class\",\"classes\":["
               "{\"class\":\"a\\\"\\\\\\\\*\",\"share\":\"50%\",\"limit\":\"fixed-window 5/m\"},"
               "{\"class\":\"default\",\"share\":\"12.5%\",\"limit\":\"fixed-window 1/m\"}]}");
}

int main(void)
{
    static const char *const limits[] = {
        "token-bucket 1/m burst 10",
        "token-bucket 1/m burst 10 stepped",
        "leaky-bucket 1/m burst 9 nodelay",
        "fixed-window 10/h",
        "fixed-window 10/m from-first",
        "sliding-log 10/m",
        "sliding-window 10/m",
        "sliding-counter 10/m",
    };
    test_refusals();
    test_choosing();
    test_attributes();
    test_inherited();
    for (size_t i = 0; i < WEIR__COUNT(limits); i++)
        test_one_state(limits[i]);
    test_settle();
    test_granted();
    test_json();
    weir__policies_free(policies);
    return test_report();
}
