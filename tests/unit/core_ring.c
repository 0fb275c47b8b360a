/* The ring of cells: going round its end, taking one out, and growing in a store. */
#include "core_rig.h"

#include "core/ring.h"

static struct weir__cell cells[4];

static struct weir__ring ring_of(uint32_t head, uint32_t len)
{
    struct weir__ring ring = {cells, 4, head, 0, 0};
    for (uint32_t i = 0; i < len; i++)
        weir__ring_append(&ring, (struct weir__cell){100 + i, {1}});
    return ring;
}

static void check_stamps(const struct weir__ring *ring, uint32_t len, const int64_t *stamps)
{
    CHECK_INT(ring->len, len);
    for (uint32_t i = 0; i < len; i++)
        CHECK_INT(weir__ring_cell(ring, i)->stamp, stamps[i]);
}

static void test_round(void)
{
    for (uint32_t head = 0; head < 4; head++) {
        struct weir__ring ring = ring_of(head, 4);
        check_stamps(&ring, 4, (int64_t[]){100, 101, 102, 103});
        CHECK_INT(weir__ring_last(&ring)->stamp, 103);
        weir__ring_shift(&ring);
        check_stamps(&ring, 3, (int64_t[]){101, 102, 103});
        CHECK_INT(ring.head, (head + 1) % 4);
        weir__ring_append(&ring, (struct weir__cell){104, {1}});
        check_stamps(&ring, 4, (int64_t[]){101, 102, 103, 104});
    }
}

static void test_remove(void)
{
    for (uint32_t head = 0; head < 4; head++) {
        struct weir__ring first = ring_of(head, 4);
        weir__ring_remove(&first, 0);
        check_stamps(&first, 3, (int64_t[]){101, 102, 103});
        struct weir__ring middle = ring_of(head, 4);
        weir__ring_remove(&middle, 2);
        check_stamps(&middle, 3, (int64_t[]){100, 101, 103});
        struct weir__ring last = ring_of(head, 4);
        weir__ring_remove(&last, 3);
        check_stamps(&last, 3, (int64_t[]){100, 101, 102});
    }
}

static int64_t clock_now(void *context)
{
    return *(int64_t *)context;
}

/* A store starts a log small and moves it as it grows: every answer is that of one large ring. */
static void test_growth(const char *text)
{
    static struct rig rig;
    int64_t now = T0;
    uint64_t random = 7;
    weir_store *store = NULL;
    weir_limit *limit = NULL;
    weir_clock clock = {clock_now, NULL, &now};
    rig_init(&rig, text);
    CHECK_INT(weir_store_open("memory:1m?large=50%", &store, NULL), 0);
    CHECK_INT(weir_limit_parse(text, &limit, NULL), 0);
    weir_store_set_clock(store, &clock);
    for (int i = 0; i < 6000; i++) {
        weir_decision got = {0}, expected;
        int64_t cost = (int64_t)(weir__random_next(&random) % 3);
        now += (int64_t)(weir__random_next(&random) % (i < 3000 ? 300 : 3000));
        CHECK_INT(weir_take(store, weir_key_text("k"), limit, cost, &got), 0);
        expected = take(&rig, now, cost, DEFAULT);
        CHECK(!memcmp(&got, &expected, sizeof got));
    }
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
    weir_store_close(store);
}

int main(void)
{
    test_round();
    test_remove();
    test_growth("sliding-log 3000/s");
    test_growth("sliding-window 3000/s precision 300us");
    test_growth("concurrent 3000 lease 1s");
    return test_report();
}
