/* The value of a Redis key: every kind there and back, every refusal, rings of every capacity. */
#include "test.h"

#include "core/ring.h"
#include "limit/limit.h"
#include "wire/state.h"

#include <stdlib.h>

#define T0 INT64_C(1700000000000000)
#define ROOM (1 << 23)

static uint8_t bytes[ROOM + 1], *const value = bytes + 1; /* never aligned */
static size_t len;
static struct weir__value parsed;

static bool reads(void)
{
    return weir__value_parse(value, len, &parsed);
}

static void put_number(size_t at, int n, uint64_t number)
{
    for (int i = 0; i < n; i++)
        value[at + (size_t)i] = (uint8_t)(number >> (8 * i));
}

static uint64_t number_at(size_t at, int n)
{
    uint64_t number = 0;
    for (int i = n; i-- > 0;)
        number = number << 8 | value[at + (size_t)i];
    return number;
}

static void begin(void)
{
    value[0] = WEIR__VALUE_MAGIC;
    value[1] = WEIR__VALUE_VERSION;
    len = WEIR__VALUE_HEAD;
}

static struct weir__rule rule_of(const char *text)
{
    weir_limit *limit = NULL;
    CHECK_INT(weir_limit_parse(text, &limit, NULL), 0);
    struct weir__rule rule = limit->rules[0];
    weir_limit_free(limit);
    return rule;
}

/* Appends the section of a state charged once, at a time. */
static struct weir__state append(const struct weir__rule *rule, int64_t now, int64_t cost)
{
    struct weir__state state = {0};
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    struct weir__cell *cells = (struct weir__cell *)(value + len + WEIR__RING_HEAD);
    if (weir__is_large(rule)) {
        memset(cells, 0, 2 * sizeof *cells);
        state.ring = (struct weir__ring){cells, 2, 0, 0, 0};
    }
    weir__load(rule, rule, &state, now);
    algorithm->charge(rule, &state, &(struct weir__request){now, cost, WEIR_WAIT_ANY});
    weir__section_write(rule, &state, value + len);
    len += weir__section_size(rule, state.ring.capacity);
    return state;
}

/* ---- there and back ---- */

static const char *const limits[] = {
    "token-bucket 10/s burst 20",        "token-bucket 10/m burst 20 stepped",
    "leaky-bucket 10/h burst 5",         "fixed-window 100/m",
    "fixed-window 100/h from-first",     "sliding-log 40/m",
    "sliding-window 240/h precision 1m", "sliding-counter 1000/h",
    "smooth 5/s burst-for 2s",           "warmup 5/s over 3s",
    "concurrent 30 lease 10m",           "fixed-window 100/month from 15 zone +08:00",
};

static void check_read(const struct weir__rule *rule, const struct weir__state *state,
                       const struct weir__section *section)
{
    CHECK_INT(section->rule.kind, rule->kind);
    CHECK_INT(section->rule.period_us, rule->period_us);
    CHECK_INT(section->state.at, state->at);
    CHECK_INT(section->state.amount, state->amount);
    CHECK_INT(section->state.before, state->before);
    CHECK(section->state.stored == state->stored);
    CHECK(section->state.present);
    CHECK_INT(section->state.ring.capacity, state->ring.capacity);
    CHECK_INT(section->state.ring.len, state->ring.len);
    CHECK_INT(section->state.ring.sum, state->ring.sum);
    CHECK_INT(section->fresh_at, weir__state_fresh_at(rule, state));
    CHECK_INT(section->len, weir__section_size(rule, state->ring.capacity));
    CHECK(weir__value_find(&parsed, rule) == section);
}

static void test_every_kind(void)
{
    static const size_t sizes[] = {26, 26, 26, 21, 21, 72, 72, 22, 29, 29, 72, 27};
    struct weir__state states[WEIR__KIND_COUNT];
    struct weir__rule rules[WEIR__KIND_COUNT];
    for (size_t i = 0; i < WEIR__KIND_COUNT; i++) {
        rules[i] = rule_of(limits[i]);
        begin();
        states[i] = append(&rules[i], T0 + 12345, 1 + (int64_t)i % 3);
        CHECK_INT(len, WEIR__VALUE_HEAD + sizes[i]);
        CHECK(reads() && parsed.count == 1);
        CHECK_INT(parsed.sections[0].offset, WEIR__VALUE_HEAD);
        check_read(&rules[i], &states[i], &parsed.sections[0]);
    }
    begin();
    for (size_t i = 0; i < WEIR__KIND_COUNT; i++)
        states[i] = append(&rules[i], T0 + 12345, 1 + (int64_t)i % 3);
    CHECK(reads() && parsed.count == WEIR__KIND_COUNT);
    for (size_t i = 0; i < WEIR__KIND_COUNT; i++)
        check_read(&rules[i], &states[i], &parsed.sections[i]);
}

/* The bytes of docs/STATE.md, one by one. */
static void test_layout(void)
{
    struct weir__rule rule = rule_of("token-bucket 10/s burst 20");
    begin();
    append(&rule, T0, 3);
    CHECK_INT(number_at(0, 2), 0x01F7);
    CHECK_INT(value[2], 0);
    CHECK_INT(number_at(3, 6), 1000000);
    CHECK_INT(number_at(9, 5), 10);
    CHECK_INT(number_at(14, 7), T0);
    CHECK_INT(number_at(21, 7), 3000000);
    rule = rule_of("sliding-window 240/h precision 1m");
    begin();
    append(&rule, T0, 7);
    CHECK_INT(value[2], 6);
    CHECK_INT(number_at(3, 6), INT64_C(3600000000));
    CHECK_INT(number_at(9, 6), 60000000);
    CHECK_INT(number_at(15, 4), 2);
    CHECK_INT(number_at(19, 4), 0);
    CHECK_INT(number_at(23, 4), 1);
    CHECK_INT(number_at(27, 7), T0);
    CHECK_INT(number_at(34, 7), 7);
    CHECK_INT(value[41], 0);
    CHECK_INT(number_at(42, 8), T0);
    CHECK_INT(number_at(50, 8), 7);
}

/* Another limit's state, period or precision is not this one's. */
static void test_find(void)
{
    struct weir__rule rule = rule_of("sliding-window 240/h precision 1m");
    begin();
    append(&rule, T0, 1);
    CHECK(reads());
    struct weir__rule live = rule_of("sliding-window 9/h precision 1m");
    CHECK(weir__value_find(&parsed, &live) == &parsed.sections[0]);
    live = rule_of("sliding-window 240/h precision 2m");
    CHECK(!weir__value_find(&parsed, &live));
    live = rule_of("sliding-window 240/2h precision 1m");
    CHECK(!weir__value_find(&parsed, &live));
    live = rule_of("sliding-log 240/h");
    CHECK(!weir__value_find(&parsed, &live));
    rule = rule_of("concurrent 30 lease 10m");
    begin();
    append(&rule, T0, 1);
    CHECK(reads());
    live = rule_of("concurrent 5 lease 1m");
    CHECK(weir__value_find(&parsed, &live) == &parsed.sections[0]);
}

static void test_sections(void)
{
    begin();
    for (int n = 1; n <= 17; n++) {
        struct weir__rule rule = rule_of("fixed-window 100/m");
        rule.period_us = n * 1000000;
        append(&rule, T0, 1);
        CHECK_INT(reads(), n <= 16);
        if (n <= 16)
            CHECK_INT(parsed.count, n);
    }
}

/* ---- refusals ---- */

/* Reads the value of a limit with one number written over. */
static bool reads_with(const char *text, size_t at, int n, uint64_t number)
{
    struct weir__rule rule = rule_of(text);
    begin();
    append(&rule, T0, 1);
    CHECK(reads());
    put_number(at, n, number);
    return reads();
}

#define REFUSED(text, at, n, number) CHECK(!reads_with(text, at, n, (uint64_t)(number)))
#define TAKEN(text, at, n, number) CHECK(reads_with(text, at, n, (uint64_t)(number)))
#define EXACT WEIR__EXACT_MAX

static void test_frame(void)
{
    len = 0;
    CHECK(reads() && parsed.count == 0);
    struct weir__rule rule = rule_of("fixed-window 100/m");
    for (len = 1; len <= 2; len++) {
        value[0] = WEIR__VALUE_MAGIC;
        value[1] = WEIR__VALUE_VERSION;
        CHECK(!reads());
    }
    for (int magic = 0; magic < 256; magic++)
        CHECK_INT(reads_with("fixed-window 100/m", 0, 1, (uint64_t)magic), magic == 0xF7);
    for (int version = 0; version < 256; version++)
        CHECK_INT(reads_with("fixed-window 100/m", 1, 1, (uint64_t)version), version == 1);
    for (int kind = WEIR__KIND_COUNT; kind < 256; kind++)
        REFUSED("fixed-window 100/m", 2, 1, kind);
    for (size_t i = 0; i < WEIR__KIND_COUNT; i++) { /* cut anywhere, or with a byte too many */
        rule = rule_of(limits[i]);
        begin();
        append(&rule, T0, 1);
        size_t whole = len;
        for (len = 1; len <= whole + 1; len++)
            CHECK_INT(reads(), len == whole);
    }
}

static void test_periods(void)
{
    for (size_t i = 0; i < WEIR__KIND_COUNT; i++) {
        REFUSED(limits[i], 3, 6, 0);
        REFUSED(limits[i], 3, 6, WEIR_DURATION_MAX + 1);
        REFUSED(limits[i], 3, 6, (INT64_C(1) << 48) - 1);
    }
    TAKEN("token-bucket 10/s", 3, 6, 1);
    TAKEN("fixed-window 10/s", 3, 6, WEIR_DURATION_MAX);
}

static void test_small_numbers(void)
{
    const char *bucket = "token-bucket 10/s", *slow = "leaky-bucket 10/h burst 5";
    REFUSED(bucket, 9, 5, 0);
    TAKEN(bucket, 9, 5, (UINT64_C(1) << 40) - 1);
    TAKEN(bucket, 14, 7, EXACT);
    REFUSED(bucket, 14, 7, EXACT + 1);
    TAKEN(slow, 14, 7, EXACT / 1000); /* in milliseconds */
    REFUSED(slow, 14, 7, EXACT / 1000 + 1);
    REFUSED(bucket, 21, 7, 0);
    TAKEN(bucket, 21, 7, EXACT);
    REFUSED(bucket, 21, 7, EXACT + 1);
    REFUSED(bucket, 21, 7, (UINT64_C(1) << 56) - 1);
    TAKEN("fixed-window 5/m", 9, 7, EXACT);
    REFUSED("fixed-window 5/m", 9, 7, EXACT + 1);
    REFUSED("fixed-window 5/m", 16, 7, 0);
    TAKEN("fixed-window 5/m", 16, 7, EXACT);
    REFUSED("fixed-window 5/m", 16, 7, EXACT + 1);
    TAKEN("sliding-counter 5/m", 9, 7, EXACT / 60000000);
    REFUSED("sliding-counter 5/m", 9, 7, EXACT / 60000000 + 1);
    REFUSED("sliding-counter 5/m", 16, 8, 0);
    TAKEN("sliding-counter 5/m", 16, 4, 2000000000);
    REFUSED("sliding-counter 5/m", 16, 4, 2000000001);
    TAKEN("sliding-counter 5/m", 20, 4, 2000000000);
    REFUSED("sliding-counter 5/m", 20, 4, 2000000001);
}

static void test_permits(void)
{
    static const struct {
        double stored;
        bool taken;
    } cases[] = {{0.0, true}, {-0.0, true}, {1e299, true}, {1e300, false}, {-1e-300, false}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        uint64_t number;
        memcpy(&number, &cases[i].stored, 8);
        CHECK_INT(reads_with("smooth 5/s", 23, 8, number), cases[i].taken);
    }
    REFUSED("smooth 5/s", 23, 8, UINT64_C(0x7FF0000000000000)); /* infinite */
    REFUSED("smooth 5/s", 23, 8, UINT64_C(0x7FF8000000000000)); /* not a number */
    REFUSED("smooth 5/s", 23, 8, UINT64_C(0xFFF8000000000001));
    TAKEN("warmup 5/s over 3s", 16, 7, EXACT);
    REFUSED("warmup 5/s over 3s", 16, 7, EXACT + 1);
}

static void test_ring_numbers(void)
{
    const char *log = "sliding-log 40/m", *window = "sliding-window 240/h precision 1m";
    REFUSED(log, 9, 6, 1); /* precision */
    REFUSED(window, 9, 6, 0);
    TAKEN(window, 9, 6, 1);
    REFUSED(log, 15, 4, 0); /* capacity */
    REFUSED(log, 15, 4, 1);
    REFUSED(log, 15, 4, 3);
    REFUSED(log, 15, 4, 6); /* more than is there */
    REFUSED(log, 15, 4, UINT32_MAX);
    REFUSED(log, 15, 4, UINT32_MAX - 1);
    REFUSED(log, 19, 4, 2); /* head */
    REFUSED(log, 19, 4, UINT32_MAX);
    REFUSED(log, 23, 4, 0); /* len */
    REFUSED(log, 23, 4, 3);
    REFUSED(log, 27, 7, EXACT + 1); /* at */
    REFUSED(log, 27, 7, T0 - 1);    /* not the newest stamp */
    REFUSED(log, 34, 7, 0);         /* sum */
    REFUSED(log, 34, 7, EXACT + 1);
    REFUSED(log, 41, 1, 1);
    REFUSED(log, 42, 8, T0 + 1); /* the newest cell */
    REFUSED(log, 50, 8, 0);
    REFUSED(log, 50, 8, 2); /* more than the sum */
    REFUSED(log, 50, 8, UINT64_MAX);
    TAKEN("concurrent 30 lease 10m", 42, 8, T0 + WEIR_DURATION_MAX);
    REFUSED("concurrent 30 lease 10m", 42, 8, T0 + WEIR_DURATION_MAX + 1);
    REFUSED("concurrent 30 lease 10m", 42, 8, UINT64_MAX);
    REFUSED("concurrent 30 lease 10m", 50, 8, 0);
    TAKEN("concurrent 30 lease 10m", 50, 8, UINT64_MAX << 17 | 1);
}

/* ---- rings ---- */

/* A log of `n` cells of 1 from `head` on, a microsecond apart, the newest at T0. */
static void log_of(uint32_t capacity, uint32_t head, uint32_t n)
{
    struct weir__rule rule = rule_of("sliding-log 100000/h");
    struct weir__state state = {.present = true, .at = T0};
    struct weir__cell *cells = (struct weir__cell *)(value + WEIR__VALUE_HEAD + WEIR__RING_HEAD);
    begin();
    memset(cells, 0xEE, capacity * sizeof *cells);
    state.ring = (struct weir__ring){cells, capacity, head, 0, 0};
    for (uint32_t i = 0; i < n; i++) {
        weir__ring_append(&state.ring, (struct weir__cell){T0 - (n - 1 - i), {1}});
        state.ring.sum++;
    }
    weir__section_write(&rule, &state, value + len);
    len += weir__section_size(&rule, capacity);
}

static void check_capacity(uint32_t capacity)
{
    uint32_t most = capacity < WEIR__CELLS_MAX ? capacity : WEIR__CELLS_MAX;
    uint32_t heads[] = {0, 1, capacity / 2, capacity - 1}, lens[] = {1, 2, most - 1, most};
    struct weir__rule rule = rule_of("sliding-log 100000/h");
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++) {
            log_of(capacity, heads[i], lens[k] ? lens[k] : 1);
            CHECK(reads() && parsed.count == 1);
            CHECK_INT(parsed.sections[0].state.ring.capacity, capacity);
            CHECK(weir__section_readable(&parsed.sections[0], &rule, T0, WEIR__EVERY_CELL));
            CHECK_INT(parsed.sections[0].fresh_at, T0 + INT64_C(3600000000));
        }
    }
    log_of(capacity, 0, 1);
    put_number(15, 4, capacity - 1);
    CHECK(!reads());
    put_number(15, 4, capacity + 1);
    CHECK(!reads());
}

static void test_capacities(void)
{
    uint32_t capacity = 2;
    int steps = 0;
    for (uint32_t next; capacity; capacity = next, steps++) {
        next = weir__ring_next_capacity(capacity);
        CHECK_INT(capacity, (4 << steps) - 2);
        check_capacity(capacity);
    }
    CHECK_INT(steps, 17);
    log_of(WEIR__RING_CAPACITY_MAX, 0, WEIR__CELLS_MAX + 1);
    CHECK(!reads());
}

/* Cells in the middle are looked at when they are read, and only then. */
static void test_readable(void)
{
    struct weir__rule rule = rule_of("sliding-log 10/h");
    const struct weir__section *section = &parsed.sections[0];
    size_t second = WEIR__VALUE_HEAD + WEIR__RING_HEAD + sizeof(struct weir__cell);
    static const uint64_t broken[] = {0, 2, 7, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < WEIR__COUNT(broken); i++) {
        log_of(6, 0, 6);
        put_number(second + 8, 8, broken[i]);
        CHECK(reads());
        CHECK(weir__section_readable(section, &rule, T0, 1));  /* allowed: the oldest alone */
        CHECK(weir__section_readable(section, &rule, T0, 11)); /* never */
        CHECK(weir__section_readable(section, &rule, T0, 5));  /* the oldest one makes room */
        CHECK(!weir__section_readable(section, &rule, T0, 6));
        CHECK(!weir__section_readable(section, &rule, T0, WEIR__EVERY_CELL));
        CHECK(weir__section_readable(section, &rule, T0 - INT64_C(3600000001), WEIR__EVERY_CELL));
    }
    log_of(6, 0, 6);
    put_number(second, 8, T0 - 6); /* out of order */
    CHECK(reads() && weir__section_readable(section, &rule, T0, 1));
    CHECK(!weir__section_readable(section, &rule, T0, 6));
    log_of(6, 0, 6);
    put_number(34, 7, 1000); /* the sum claims more than there is */
    CHECK(reads() && weir__section_readable(section, &rule, T0, 11));
    CHECK(!weir__section_readable(section, &rule, T0, 1));
    put_number(34, 7, 5); /* and less than cells */
    CHECK(reads() && !weir__section_readable(section, &rule, T0, 1));
    rule = rule_of("fixed-window 5/m");
    begin();
    append(&rule, T0, 1);
    CHECK(reads() && weir__section_readable(section, &rule, T0, WEIR__EVERY_CELL));
}

/* Times are capped where counting stops being exact. */
static void test_fresh_at(void)
{
    struct weir__rule rule = rule_of("token-bucket 1/366d burst 200");
    struct weir__state state = {.present = true, .at = EXACT / 1000, .amount = EXACT};
    CHECK_INT(weir__state_fresh_at(&rule, &state), EXACT);
    rule = rule_of("fixed-window 5/m");
    state = (struct weir__state){.present = true, .at = EXACT, .amount = 1};
    CHECK_INT(weir__state_fresh_at(&rule, &state), EXACT);
    rule = rule_of("token-bucket 3/s burst 9");
    state = (struct weir__state){.present = true, .at = T0, .amount = 1000000};
    CHECK_INT(weir__state_fresh_at(&rule, &state), T0 + 333334);
}

int main(void)
{
    test_every_kind();
    test_layout();
    test_find();
    test_sections();
    test_frame();
    test_periods();
    test_small_numbers();
    test_permits();
    test_ring_numbers();
    test_capacities();
    test_readable();
    test_fresh_at();
    return test_report();
}
