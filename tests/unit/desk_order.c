/*
 * Arrivals in order, against a plain sort: whatever comes, within the bound of disorder they leave
 * sorted by time and then by number; whole seconds are spread evenly; nothing is lost or doubled.
 *
 *     desk_order [SEED]
 */
#include "desk/order.h"
#include "test.h"

#define MANY 20000

static struct desk_order order;
static uint64_t state;

static uint64_t chance(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (state >> 33) % below;
}

struct given {
    int64_t time_us, line;
};

static struct given given[4 * DESK_WAITING_MAX];
static size_t given_count;

static void drain(void)
{
    struct desk_arrival arrival;
    while (desk_order_next(&order, &arrival)) {
        char expected[32];
        snprintf(expected, sizeof expected, "k%lld", (long long)arrival.line);
        if (arrival.key.len != strlen(expected) ||
            memcmp(arrival.key.data, expected, arrival.key.len))
            CHECK(!"the key of another");
        if (given_count > 0 && arrival.time_us < given[given_count - 1].time_us)
            CHECK(!"out of order");
        given[given_count++] = (struct given){arrival.time_us, arrival.line};
    }
}

static void put(int64_t time_us, int64_t line, bool whole)
{
    char key[32];
    struct desk_arrival arrival = {.time_us = time_us, .line = line, .cost = 1};
    arrival.key =
        (struct weir__span){key, (size_t)snprintf(key, sizeof key, "k%lld", (long long)line)};
    int code;
    while ((code = desk_order_put(&order, &arrival, whole)) == DESK_ORDER_GIVE_FIRST)
        drain();
    if (code)
        CHECK_INT(code, 0);
    drain();
}

static void begin(int64_t disorder_us, bool spread)
{
    given_count = 0;
    CHECK_INT(desk_order_init(&order, disorder_us, spread), 0);
}

static void end(void)
{
    desk_order_end(&order);
    drain();
    CHECK_INT(order.waiting, 0);
    CHECK_INT(order.waiting_bytes, 0);
    desk_order_free(&order);
}

static int by_time(const void *a, const void *b)
{
    const struct given *x = a, *y = b;
    if (x->time_us != y->time_us)
        return x->time_us < y->time_us ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Times that wander forward, each late by less than the bound, with jumps now and then. */
static void test_sorted(int64_t disorder_us, bool jumps)
{
    static struct given put_in[MANY];
    int64_t now = INT64_C(1700000000000000);
    begin(disorder_us, true);
    for (int i = 0; i < MANY; i++) {
        now += (int64_t)chance(200000);
        if (jumps && chance(500) == 0)
            now += (int64_t)chance(INT64_C(400000000000));
        int64_t at = now - (int64_t)chance((uint64_t)disorder_us);
        put_in[i] = (struct given){at, i};
        put(at, i, false);
    }
    CHECK_INT(order.late, 0);
    end();
    qsort(put_in, MANY, sizeof *put_in, by_time);
    CHECK_INT(given_count, MANY);
    CHECK(!memcmp(put_in, given, sizeof put_in));
}

static void test_spread(void)
{
    int64_t second = 1700000000, line = 0;
    begin(10000000, true);
    for (int n = 1; n < 40; n++) {
        for (int i = 0; i < n; i++)
            put((second + n) * 1000000, line++, true);
    }
    end();
    CHECK_INT(order.spread_count, line);
    size_t at = 0;
    for (int n = 1; n < 40; n++) {
        for (int i = 0; i < n; i++, at++) {
            CHECK_INT(given[at].time_us, (second + n) * 1000000 + i * INT64_C(1000000) / n);
            CHECK_INT(given[at].line, (long long)at);
        }
    }
}

/* Exact times between those that are spread. */
static void test_mixed(void)
{
    begin(1000000, true);
    put(5000000, 0, true);
    put(5400000, 1, false);
    put(5000000, 2, true);
    put(5600000, 3, false);
    end();
    static const struct given expected[] = {{5000000, 0}, {5400000, 1}, {5500000, 2}, {5600000, 3}};
    CHECK_INT(given_count, 4);
    CHECK(!memcmp(given, expected, sizeof expected));
}

/* Too late: given at the time of the oldest that waits, and counted. */
static void test_late(void)
{
    begin(1000000, true);
    put(100000000, 0, false);
    put(105000000, 1, false);
    put(50000000, 2, false);
    put(106000000, 3, false);
    CHECK_INT(order.late, 1);
    end();
    CHECK_INT(given_count, 4);
    CHECK_INT(given[0].line, 0);
    CHECK_INT(given[1].line, 2);
    CHECK(given[1].time_us >= 100000000 && given[1].time_us <= 105000000);
}

/* Too late in the first lines: not before the first of all. */
static void test_late_at_first(void)
{
    begin(10000000, true);
    put(100000000, 0, true);
    put(50000000, 1, true);
    put(100000000, 2, true);
    put(95000000, 3, true); /* within the bound */
    CHECK_INT(order.late, 1);
    end();
    static const struct given expected[] = {
        {95000000, 3}, {100000000, 0}, {100000000, 1}, {100500000, 2}};
    CHECK_INT(given_count, 4);
    CHECK(!memcmp(given, expected, sizeof expected));
}

/* More in one second than may wait, and keys that are long. */
static void test_crowded(void)
{
    int64_t most = DESK_WAITING_MAX * INT64_C(5) / 2;
    begin(10000000, true);
    for (int64_t i = 0; i < most; i++)
        put(7000000, i, true);
    put(8000000, most, true);
    CHECK(order.crowded >= DESK_WAITING_MAX);
    end();
    CHECK_INT(given_count, most + 1);
    CHECK_INT(given[0].time_us, 7000000);
    CHECK(given[most - 1].time_us > 7700000 && given[most - 1].time_us < 8000000);
    for (int64_t i = 0; i <= most; i += 1000)
        CHECK_INT(given[i].line, i);
}

static void test_advance(void)
{
    begin(2000000, true);
    put(10000000, 0, false);
    CHECK_INT(given_count, 0);
    desk_order_advance(&order, 12500000);
    drain();
    CHECK_INT(given_count, 0);
    desk_order_advance(&order, 13000000);
    drain();
    CHECK_INT(given_count, 1);
    put(10500000, 1, false);
    CHECK_INT(order.late, 1);
    end();
    CHECK_INT(given_count, 2);
}

int main(int argc, char **argv)
{
    state = test_seed(argc > 1 ? argv[1] : NULL);
    test_sorted(10000000, false);
    test_sorted(1000, false);
    test_sorted(60000000, true);
    test_spread();
    test_mixed();
    test_late();
    test_late_at_first();
    test_crowded();
    test_advance();
    return test_report();
}
