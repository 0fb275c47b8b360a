/*
 * The rate limit service against a model of a few lines, which counts in an array: random requests,
 * hits and steps of time, every outcome and every remainder compared.
 *
 *     server_rls_model [SEED [ROUNDS]]
 */
#include "rls_test.h"

#include "base/random.h"

static const struct model_rule {
    const char *key;
    int64_t most, period;
    bool shadow, quota, alone;
} rules[] = {
    {"two", 2, MINUTE, false, false, false},  {"five", 5, HOUR, false, false, false},
    {"ten", 10, DAY, false, false, false},    {"banned", 0, MINUTE, false, false, false},
    {"shady", 1, MINUTE, true, false, false}, {"nope", 0, MINUTE, true, false, false},
    {"q1", 1, MINUTE, false, true, false},    {"q2", 2, MINUTE, false, true, false},
    {"q0", 0, MINUTE, false, true, false},    {"tokens", 100, HOUR, false, false, true},
};

enum { RULES = sizeof rules / sizeof rules[0] };

static int64_t counts[RULES], windows[RULES];
static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return weir__random_next(&seed) % n;
}

struct asked {
    size_t rule;
    int64_t hits;
    bool refund, denied;
};

static void roll(void)
{
    for (size_t i = 0; i < RULES; i++) {
        if (now / rules[i].period != windows[i])
            counts[i] = 0;
        windows[i] = now / rules[i].period;
    }
}

/* Decides and charges; whether the request is denied. */
static bool decide(struct asked *asked, size_t n)
{
    size_t quotas = 0, used_up = 0, denials = 0;
    for (size_t i = 0; i < n; i++) {
        const struct model_rule *rule = &rules[asked[i].rule];
        int64_t *count = &counts[asked[i].rule];
        if (asked[i].refund) {
            *count = *count > asked[i].hits ? *count - asked[i].hits : 0;
            continue;
        }
        asked[i].denied = rule->most == 0 || *count + asked[i].hits > rule->most;
        denials += asked[i].denied && !rule->shadow && !rule->quota;
        quotas += rule->quota;
        used_up += rule->quota && asked[i].denied;
        if (rule->alone)
            *count += asked[i].hits;
    }
    bool over = denials > 0 || (quotas > 0 && quotas == used_up);
    for (size_t i = 0; i < n; i++) {
        if (!over && !asked[i].denied && !asked[i].refund && !rules[asked[i].rule].alone)
            counts[asked[i].rule] += asked[i].hits;
    }
    return over;
}

static size_t make(struct asked *asked)
{
    size_t n = 0, first = below(RULES), step = 1 + 2 * below(2);
    size_t wanted = 1 + below(4);
    begin("d");
    request.hits_addend = (uint32_t)below(3);
    for (; n < wanted; n++) {
        asked[n] = (struct asked){.rule = (first + n * step) % RULES};
        struct weir__rls_descriptor *descriptor = add(rules[asked[n].rule].key, "x");
        asked[n].hits = request.hits_addend > 1 ? request.hits_addend : 1;
        if (below(3) == 0) {
            asked[n].hits = (int64_t)below(rules[asked[n].rule].alone ? 70 : 4);
            hits(descriptor, (uint64_t)asked[n].hits);
        }
        descriptor->is_negative_hits = asked[n].refund = below(12) == 0;
    }
    return n;
}

static bool same(const struct asked *asked, size_t n, bool over)
{
    if (call.over != over)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct weir__rls_asked *item = &call.asked[i];
        const struct model_rule *rule = &rules[asked[i].rule];
        enum weir__rls_outcome expected = asked[i].refund    ? WEIR__RLS_REFUNDED
                                          : !asked[i].denied ? WEIR__RLS_ALLOWED
                                          : rule->shadow     ? WEIR__RLS_SHADOWED
                                                             : WEIR__RLS_DENIED;
        int64_t remains = rule->most - counts[asked[i].rule];
        if (item->outcome != expected ||
            (rule->most > 0 && item->decision.remaining != (remains > 0 ? remains : 0)))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    uint64_t began = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    long rounds = argc > 2 ? atol(argv[2]) : 50000;
    seed = began;
    rls_open();
    fresh();
    for (long i = 0; i < rounds; i++) {
        struct asked asked[4];
        now += (int64_t)below(4) * (int64_t)below(20 * SECOND);
        roll();
        size_t n = make(asked);
        bool over = decide(asked, n);
        ask();
        if (!CHECK(same(asked, n, over))) {
            printf("    seed %llu, round %ld\n", (unsigned long long)began, i);
            break;
        }
    }
    rls_close();
    return test_report();
}
