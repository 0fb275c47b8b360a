/*
 * Limits changed live. Two stores get the same requests at the same times; one of them throws out
 * every state the moment that eviction would be allowed to. They must give the same answers, field
 * for field, whatever count, burst, lease or delay the limit is changed to in between.
 *
 *     zone_change [STEPS [SEED]]
 */
#include "store_inside.h"
#include "store_test.h"

#include "base/random.h"

#define KEYS 3

static _Atomic int64_t now;
static uint64_t chance;

static int64_t random_below(int64_t n)
{
    return (int64_t)(weir__random_next(&chance) % (uint64_t)n);
}

/* Evicts whatever may be evicted unnoticed. */
static long evict_fresh(weir_store *store)
{
    struct weir__zone *zone = test_zone(store);
    long evicted = 0;
    for (uint64_t g = 0; g < zone->group_count; g++) {
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            const struct weir__rule *rule;
            struct weir__state state = {0};
            uint32_t unit;
            unsigned order;
            struct weir__group *group = &zone->groups[g];
            if (weir__slot_tag(group, slot) == 0)
                continue;
            if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
                !weir__is_fresh(rule, &state, now))
                continue;
            weir__slot_clear(zone, group, slot);
            evicted++;
        }
    }
    return evicted;
}

/* A limit of that form with numbers drawn anew; its state is the same one. */
static weir_limit *draw(int form)
{
    long count = 1 + random_below(20), burst = 1 + random_below(30);
    switch (form) {
    case 0:
        return test_limit_of("token-bucket %ld/10s burst %ld", count, burst);
    case 1:
        return test_limit_of("token-bucket %ld/2h burst %ld", count, burst);
    case 2:
        return test_limit_of("token-bucket %ld/10s burst %ld stepped", count, burst);
    case 3:
        return test_limit_of("leaky-bucket %ld/10s burst %ld delay %ld", count, burst,
                             random_below(burst + 1));
    case 4:
        return test_limit_of("leaky-bucket %ld/10s burst %ld nodelay", count, burst);
    case 5:
        return test_limit_of("fixed-window %ld/10s", count);
    case 6:
        return test_limit_of("fixed-window %ld/10s from-first", count);
    case 7:
        return test_limit_of("sliding-log %ld/10s", count);
    case 8:
        return test_limit_of("sliding-window %ld/10s precision 3s", count);
    case 9:
        return test_limit_of("sliding-counter %ld/10s", count);
    case 10:
        return test_limit_of("smooth %ld/10s burst-for %lds", count, burst);
    case 11:
        return test_limit_of("warmup %ld/10s over %lds cold %ld", count, burst, 2 + burst % 5);
    case 12:
        return test_limit_of("concurrent %ld lease %lds", count, burst);
    default:
        return NULL;
    }
}

/* Mostly within the period, sometimes to its very end, sometimes far beyond. */
static int64_t draw_pause(void)
{
    static const int64_t pauses[] = {
        0,           1,           SECOND / 3,  SECOND, 3 * SECOND, 5 * SECOND, 10 * SECOND - 1,
        10 * SECOND, 20 * SECOND, 60 * SECOND, HOUR,   2 * DAY};
    int64_t pause = pauses[random_below(sizeof pauses / sizeof pauses[0])];
    return random_below(3) ? pause % (4 * SECOND) : pause;
}

static void describe(const weir_decision *d, char text[160])
{
    snprintf(text, 160, "%d %lld %lld %lld %lld %lld", d->allowed, (long long)d->limit,
             (long long)d->remaining, (long long)d->retry_after_us, (long long)d->reset_after_us,
             (long long)d->delay_us);
}

/* One request to both. */
static void ask_both(weir_store *kept, weir_store *evicting, const weir_limit *limit)
{
    char key[16], answers[2][160], receipt[WEIR_RECEIPT_SIZE], what[512];
    weir_decision a = {0}, b = {0};
    snprintf(key, sizeof key, "key %d", (int)random_below(KEYS));
    int64_t verb = random_below(10), cost = random_below(5);
    weir_request request = weir_request_make(weir_key_text(key), limit);
    request.cost = cost ? cost : WEIR_COST_NONE;
    request.wait_us = random_below(3) ? WEIR_WAIT_DEFAULT : random_below(20) * SECOND;
    int (*decide)(weir_store *, const weir_request *, size_t, weir_decision *) =
        verb < 2 ? weir_peek_all : weir_take_all;
    CHECK_INT(decide(kept, &request, 1, &a), decide(evicting, &request, 1, &b));
    describe(&a, answers[0]);
    describe(&b, answers[1]);
    snprintf(what, sizeof what, "%s: kept %s, evicted %s", weir_limit_text(limit), answers[0],
             answers[1]);
    test_check(!strcmp(answers[0], answers[1]), __FILE__, __LINE__, what);
    if (verb != 9 || !a.allowed)
        return;
    weir_receipt(&a, receipt);
    int64_t actual = random_below(6);
    CHECK_INT(weir_settle(kept, weir_key_text(key), limit, receipt, actual, NULL),
              weir_settle(evicting, weir_key_text(key), limit, receipt, actual, NULL));
}

static long run(int form, long steps)
{
    weir_store *kept = test_open("memory:64k?large=40%", &now);
    weir_store *evicting = test_open("memory:64k?large=40%", &now);
    weir_limit *limit = draw(form);
    long evicted = 0;
    now = START;
    for (long i = 0; i < steps && test_failed == 0; i++) {
        now += draw_pause();
        evicted += evict_fresh(evicting);
        if (random_below(4) == 0) {
            weir_limit_free(limit);
            limit = draw(form);
        }
        ask_both(kept, evicting, limit);
    }
    test_sound(kept);
    test_sound(evicting);
    CHECK(evicted > 0);
    weir_limit_free(limit);
    weir_store_close(kept);
    weir_store_close(evicting);
    return evicted;
}

int main(int argc, char **argv)
{
    long steps = argc > 1 ? atol(argv[1]) : 5000, evicted = 0;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    chance = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int form = 0; form <= 12; form++)
        evicted += run(form, steps);
    printf("%ld states evicted\n", evicted);
    return test_report();
}
