/*
 * What a process may be doing to a zone when it dies: small states and large, new and old, growing,
 * shrinking, evicting; and what must be charged afterwards.
 */
#ifndef WEIR_KILL_SCENARIOS_H
#define WEIR_KILL_SCENARIOS_H

#include "../unit/store_test.h"

static _Atomic int64_t now = START;
static weir_store *store;
static uint64_t leases[8]; /* of prepare, in order */
static char receipt[WEIR_RECEIPT_SIZE];

enum verb { TAKE, GROUP, SETTLE, ACQUIRE, RENEW, RELEASE, RESET };

/* What the dying one does to `key`; TAKE, SETTLE, ACQUIRE: amount is the cost, else which lease. */
struct action {
    enum verb verb;
    const char *limit;
    int64_t amount;
};

struct scenario {
    const char *name;
    void (*prepare)(void);
    struct action action;
    int64_t least, most; /* charged to `key` afterwards, under the action's limit */
    int64_t at_once;     /* how much later the action comes */
    const char *other;   /* GROUP: the other key's limit; what holds for `key` holds for it */
};

#define BUCKET "token-bucket 100/d"
#define FIXED "fixed-window 100/h"
#define PAIR "sliding-counter 100/h"
#define WINDOW "sliding-window 100/m precision 1s"
#define LOG "sliding-log 100/h"
#define LEASE "concurrent 100 lease 1h"
#define SHORT "concurrent 100 lease 1m"
#define LONGEST "concurrent 100 lease 366d"
#define LEASE_EVERY 4 /* keys of full_of_leases */
#define SEVERAL "token-bucket 100/d, sliding-log 100/h, fixed-window 100/m, sliding-window 100/m"

static void take(const char *key, const char *text, int64_t cost)
{
    weir_limit *limit = test_limit(text);
    weir_decision decision;
    int code = weir_take(store, weir_key_text(key), limit, cost, &decision);
    if (code || !decision.allowed)
        test_give_up(text, code ? weir_strerror(code) : "denied");
    if (!strcmp(key, "key"))
        weir_receipt(&decision, receipt);
    weir_limit_free(limit);
}

static void hold(int lease, const char *text, int64_t cost)
{
    weir_limit *limit = test_limit(text);
    weir_decision decision;
    if (weir_acquire(store, weir_key_text("key"), limit, cost, &decision) || !decision.allowed)
        test_give_up(text, "cannot be held");
    leases[lease] = decision.lease;
    weir_limit_free(limit);
}

/* ---- what is there before ---- */

static void nothing(void)
{
}

static void one_bucket(void)
{
    take("key", BUCKET, 1);
}

static void one_window(void)
{
    take("key", FIXED, 1);
}

static void one_pair(void)
{
    take("key", PAIR, 1);
}

static void small_group(void)
{
    take("key", BUCKET, 3);
    take("other", FIXED, 3);
}

/* So many keys that every slot is taken. */
static void full_table(void)
{
    for (int i = 0; i < 4000; i++) {
        char key[32];
        snprintf(key, sizeof key, "filler %d", i);
        take(key, "token-bucket 50/d", 1);
    }
}

/* Every row taken, all states fresh again when the action comes. */
static void full_rows(void)
{
    for (int i = 0; i < 64; i++) {
        char key[32], text[64];
        snprintf(key, sizeof key, "row %d", i);
        snprintf(text, sizeof text, i % 4 ? "token-bucket %d/s" : "sliding-log %d/s", i + 1);
        take(key, text, 1);
    }
}

/* Every row taken, and every one of them needed. */
static void needed_rows(void)
{
    for (int i = 0; i < 64; i++) {
        char key[32], text[64];
        snprintf(key, sizeof key, "row %d", i);
        snprintf(text, sizeof text, i % 4 ? "fixed-window %d/d" : "sliding-log %d/d", i + 1);
        take(key, text, 1);
    }
}

static void entries(const char *text, int count)
{
    for (int i = 0; i < count; i++) {
        take("key", text, 1);
        now += 2 * SECOND;
    }
}

static void two_entries(void)
{
    entries(LOG, 2);
}

static void five_entries(void)
{
    entries(LOG, 5);
}

static void six_entries(void)
{
    entries(LOG, 6);
}

static void six_slots(void)
{
    entries(WINDOW, 6);
}

/* The last of them is the one to be settled. */
static void last_of_three(void)
{
    entries(LOG, 2);
    take("key", LOG, 3);
}

static void first_of_three(void)
{
    char first[WEIR_RECEIPT_SIZE];
    take("key", LOG, 3);
    memcpy(first, receipt, sizeof first);
    now += SECOND;
    entries(LOG, 2);
    memcpy(receipt, first, sizeof first);
}

static void several(void)
{
    take("key", SEVERAL, 3);
    now += SECOND;
    take("other", LOG, 3);
    take("key", SEVERAL, 3);
}

static void group(void)
{
    take("key", BUCKET, 3);
    take("other", LOG, 1);
    now += SECOND;
    take("other", LOG, 2);
    now += SECOND;
}

static void three_leases(void)
{
    hold(0, LEASE, 5);
    now += SECOND;
    hold(1, LEASE, 1);
    now += SECOND;
    hold(2, LEASE, 2);
    now += SECOND;
}

static void longest_lease(void)
{
    hold(0, LONGEST, 5);
    now += SECOND;
}

/* No room left for another log; every other one is fresh when the action comes. */
static void full_room(void)
{
    for (int i = 0; i < 400; i++) {
        char key[32];
        snprintf(key, sizeof key, "log %d", i);
        take(key, i % 2 ? "sliding-log 2/h" : "sliding-log 2/s", 1);
    }
}

/* No room left, all of it in logs of the smallest size; the key's own one is full. */
static void full_of_small(void)
{
    take("key", LOG, 1);
    now += SECOND;
    take("key", LOG, 1);
    now += SECOND;
    full_room();
}

/* No room left, and a lease wherever there could be a place for a larger block; the key's own log
 * is full. */
static void full_of_leases(void)
{
    take("key", LOG, 1);
    now += SECOND;
    take("key", LOG, 1);
    now += SECOND;
    for (int i = 0; i < 400; i++) {
        char key[32];
        snprintf(key, sizeof key, "log %d", i);
        take(key, i % LEASE_EVERY ? "sliding-log 2/h" : LEASE, 1);
    }
}

/* The only log: what it was split off is whole again when it is forgotten. */
static void only_log(void)
{
    take("key", LOG, 1);
}

static const struct scenario scenarios[] = {
    {"a bucket charged again", one_bucket, {TAKE, BUCKET, 1}, 1, 2, 0, NULL},
    {"a bucket's short cut", one_bucket, {TAKE, BUCKET, 1}, 1, 2, SECOND, NULL},
    {"a window charged again", one_window, {TAKE, FIXED, 1}, 1, 2, 0, NULL},
    {"a pair charged again", one_pair, {TAKE, PAIR, 1}, 1, 2, 0, NULL},
    {"a state under other numbers", one_bucket, {TAKE, "token-bucket 60/d", 1}, 1, 2, 0, NULL},
    {"small keys at once", small_group, {GROUP, BUCKET, 1}, 3, 4, 0, FIXED},
    {"a small key forgotten", one_window, {RESET, FIXED, 0}, 0, 1, 0, NULL},
    {"a first charge", nothing, {TAKE, BUCKET, 1}, 0, 1, 0, NULL},
    {"a first charge evicts", full_table, {TAKE, BUCKET, 1}, 0, 1, 0, NULL},
    {"a new limit sweeps the others", full_rows, {TAKE, BUCKET, 1}, 0, 1, HOUR, NULL},
    {"a new limit takes others' rows", needed_rows, {TAKE, BUCKET, 1}, 0, 1, HOUR, NULL},
    {"a log's first entry", nothing, {TAKE, LOG, 1}, 0, 1, 0, NULL},
    {"a log's entry grows", two_entries, {TAKE, LOG, 1}, 2, 3, -2 * SECOND, NULL},
    {"a log moves to a larger block", two_entries, {TAKE, LOG, 1}, 2, 3, 0, NULL},
    {"a log has room", five_entries, {TAKE, LOG, 1}, 5, 6, 0, NULL},
    {"a full log lets old entries go", six_entries, {TAKE, LOG, 1}, 4, 5, HOUR - 10 * SECOND, NULL},
    {"a log lets all entries go", six_entries, {TAKE, LOG, 1}, 0, 1, 2 * HOUR, NULL},
    {"a window's slot is renewed", six_slots, {TAKE, WINDOW, 1}, 6, 7, -2 * SECOND, NULL},
    {"a window lets old slots go", six_slots, {TAKE, WINDOW, 1}, 4, 5, MINUTE - 10 * SECOND, NULL},
    {"a log takes a block from others", full_room, {TAKE, LOG, 1}, 0, 1, 0, NULL},
    {"a log takes a fresh one's block", full_room, {TAKE, LOG, 1}, 0, 1, MINUTE, NULL},
    {"a log clears a place to grow", full_of_small, {TAKE, LOG, 1}, 2, 3, 0, NULL},
    {"a log has a lease move to grow", full_of_leases, {TAKE, LOG, 1}, 2, 3, 0, NULL},
    {"a lease lapses for another", full_of_leases, {ACQUIRE, LEASE, 1}, 0, 1, 2 * HOUR, NULL},
    {"an only log forgotten", only_log, {RESET, LOG, 0}, 0, 1, 0, NULL},
    {"a lease takes a block from others", full_room, {ACQUIRE, LEASE, 1}, 0, 1, 0, NULL},
    {"the last entry refunded", last_of_three, {SETTLE, LOG, 0}, 2, 5, SECOND, NULL},
    {"the last entry refunded in part", last_of_three, {SETTLE, LOG, 1}, 3, 5, SECOND, NULL},
    {"the first entry refunded", first_of_three, {SETTLE, LOG, 0}, 2, 6, SECOND, NULL},
    {"a surcharge", last_of_three, {SETTLE, LOG, 9}, 5, 11, SECOND, NULL},
    {"a surcharge whose entry is gone", six_entries, {SETTLE, LOG, 9}, 0, 8, 2 * HOUR, NULL},
    {"an only charge refunded", one_bucket, {SETTLE, BUCKET, 0}, 0, 1, 0, NULL},
    {"several limits at once", several, {TAKE, SEVERAL, 2}, 6, 8, SECOND, NULL},
    {"several limits refunded", several, {SETTLE, SEVERAL, 1}, 4, 6, SECOND, NULL},
    {"several keys at once", group, {GROUP, BUCKET, 1}, 3, 4, 0, LOG},
    {"a first lease", nothing, {ACQUIRE, LEASE, 3}, 0, 3, 0, NULL},
    {"another lease", three_leases, {ACQUIRE, LEASE, 3}, 8, 11, 0, NULL},
    {"a shorter lease goes before others", three_leases, {ACQUIRE, SHORT, 1}, 8, 14, 0, NULL},
    {"another of the longest leases", longest_lease, {ACQUIRE, LONGEST, 3}, 5, 8, 0, NULL},
    {"the longest lease renewed", longest_lease, {RENEW, LONGEST, 0}, 5, 10, 0, NULL},
    {"old leases lapse", three_leases, {ACQUIRE, LEASE, 3}, 3, 6, HOUR - 3 * SECOND, NULL},
    {"all leases lapse", three_leases, {ACQUIRE, LEASE, 3}, 0, 3, 2 * HOUR, NULL},
    {"the first lease renewed", three_leases, {RENEW, LEASE, 0}, 8, 13, 0, NULL},
    {"a middle lease renewed", three_leases, {RENEW, LEASE, 1}, 8, 13, 0, NULL},
    {"the last lease renewed", three_leases, {RENEW, LEASE, 2}, 8, 13, 0, NULL},
    {"a lease renewed for less", three_leases, {RENEW, SHORT, 2}, 8, 13, 0, NULL},
    {"the first lease released", three_leases, {RELEASE, LEASE, 0}, 3, 8, 0, NULL},
    {"a middle lease released", three_leases, {RELEASE, LEASE, 1}, 7, 10, 0, NULL},
    {"the last lease released", three_leases, {RELEASE, LEASE, 2}, 6, 8, 0, NULL},
    {"a key with many states forgotten", several, {RESET, SEVERAL, 0}, 0, 6, SECOND, NULL},
};

#define SCENARIOS (sizeof scenarios / sizeof scenarios[0])

#endif
