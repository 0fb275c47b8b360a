/*
 * The value of a Redis key, any bytes: refused, or every section writes its own bytes again and can
 * be loaded, judged, charged, settled and released at any time. What a change writes is read again
 * as it was left. The value lies at an odd address and ends where its memory does.
 *
 * The first four bytes choose the limit's numbers, the time, the cost and the verb; the rest is the
 * value.
 */
#include "fuzz.h"

#include "core/ring.h"
#include "limit/limit.h"
#include "wire/state.h"

enum verb { TAKE, SETTLE, RENEW, RELEASE, VERBS };

struct use {
    uint8_t numbers, time, cost, verb;
};

struct copy {
    uint8_t *memory;
    struct weir__value value;
};

static bool copy_of(const uint8_t *data, size_t size, struct copy *ret)
{
    ret->memory = malloc(size + 1);
    EXPECT(ret->memory, "out of memory");
    if (size > 0)
        memcpy(ret->memory + 1, data, size);
    return weir__value_parse(ret->memory + 1, size, &ret->value);
}

/* ---- writing what was read ---- */

static bool is_guava(const struct weir__section *section)
{
    return section->rule.kind == WEIR__SMOOTH || section->rule.kind == WEIR__WARMUP;
}

static void check_same_bytes(const struct weir__section *section, const uint8_t *bytes)
{
    bool ring = weir__is_large(&section->rule);
    size_t len = ring ? WEIR__RING_HEAD : section->len;
    uint8_t *again = malloc(len);
    EXPECT(again, "out of memory");
    EXPECT(section->len == weir__section_size(&section->rule, section->state.ring.capacity),
           "%zu bytes", section->len);
    struct weir__rule rule = section->rule;
    rule.extra = is_guava(section) ? 1000000 : rule.extra;
    rule.cold_millionths = 3000000;
    weir__section_write(&rule, &section->state, again);
    if (is_guava(section)) /* follows from numbers that are not in the section */
        memcpy(again + 7, bytes + 7, 7);
    EXPECT(!memcmp(again, bytes, len), "section of kind %d differs", section->rule.kind);
    free(again);
}

static void check_all(const struct weir__value *value)
{
    size_t at = WEIR__VALUE_HEAD;
    EXPECT(value->count + value->marks_count >= 1 && value->count <= WEIR_LIMITS_MAX,
           "%zu sections", value->count);
    for (size_t i = 0; i < value->count; i++) {
        const struct weir__section *section = &value->sections[i];
        EXPECT(section->offset == at, "offset %zu", section->offset);
        EXPECT(section->fresh_at >= 0, "fresh at %lld", (long long)section->fresh_at);
        check_same_bytes(section, value->bytes + at);
        at += section->len;
    }
    EXPECT(at == value->marks_at && at <= value->len, "%zu of %zu bytes", at, value->len);
    EXPECT(value->marks_count > 0 || at == value->len, "%zu bytes too many", value->len - at);
}

/* One mark more, and the marks are still sound, whatever the others say. */
static void check_marks(const struct weir__value *value)
{
    uint8_t bytes[WEIR__VALUE_HEAD + WEIR__MARKS_HEAD + WEIR__MARKS_MAX * WEIR__MARK_SIZE] = {
        WEIR__VALUE_MAGIC, WEIR__VALUE_VERSION};
    struct weir__mark added = {.name = 1, .until_us = 5};
    struct weir__value again;
    size_t len = WEIR__VALUE_HEAD;
    len += weir__marks_write(value, &added, 1, 0, bytes + WEIR__VALUE_HEAD);
    EXPECT(len <= sizeof bytes && weir__value_parse(bytes, len, &again) && again.marks_count >= 1,
           "marks that were written are refused");
}

/* ---- using it ---- */

/* A limit of the section's state, with numbers of its own; false: there is none such. */
static bool rule_of(const struct weir__section *section, uint8_t numbers, struct weir__rule *ret)
{
    static const int64_t counts[] = {1,    3,      10,         100,
                                     5000, 100000, 1000000000, INT64_C(1000000000000)};
    struct weir__rule rule = {.kind = section->rule.kind,
                              .period_us = section->rule.period_us,
                              .count = counts[numbers & 7]};
    rule.burst = rule.kind <= WEIR__LEAKY_BUCKET ? counts[numbers >> 3 & 7] : 0;
    if (rule.kind == WEIR__SLIDING_WINDOW || rule.kind == WEIR__CALENDAR)
        rule.extra = section->rule.extra;
    if (is_guava(section))
        rule.extra = 1 + (int64_t)numbers * 100000;
    if (rule.kind == WEIR__WARMUP)
        rule.cold_millionths = 3000000;
    if (rule.kind == WEIR__LEAKY_BUCKET && numbers & 64)
        rule.flags = WEIR__NODELAY;
    *ret = rule;
    return !weir__rule_check(ret);
}

static int64_t time_of(const struct weir__section *section, uint8_t choice)
{
    static const int64_t steps[] = {0,        1,         -1,          1000,
                                    60000000, -60000001, 86400000000, INT64_C(-86400000001)};
    int64_t from[] = {INT64_C(1700000000000000), section->fresh_at, section->state.at,
                      section->state.ring.len ? weir__ring_cell(&section->state.ring, 0)->stamp
                                              : 0};
    int64_t base = from[choice & 3];
    base = base < 0 || base >= WEIR__EXACT_MAX ? WEIR__EXACT_MAX - 1 : base;
    return weir__min(weir__max(0, base + steps[choice >> 2 & 7]), WEIR__EXACT_MAX - 1);
}

static int64_t cost_of(uint8_t choice)
{
    static const int64_t costs[] = {1, 0, 2, 7, 1000, 100000, 1000000000, WEIR_COST_MAX};
    return costs[choice & 7];
}

/* As a store makes room before a charge; what was moved, or NULL. */
static struct weir__cell *make_room(struct weir__state *state)
{
    struct weir__ring *ring = &state->ring;
    uint32_t capacity = ring->capacity ? weir__ring_next_capacity(ring->capacity) : 2;
    if (ring->len < ring->capacity)
        return NULL;
    EXPECT(capacity > ring->len, "no room beyond %u", ring->capacity);
    struct weir__cell *cells = calloc(capacity, sizeof *cells);
    EXPECT(cells, "out of memory");
    for (uint32_t i = 0; i < ring->len; i++)
        cells[i] = *weir__ring_cell(ring, i);
    *ring = (struct weir__ring){cells, capacity, 0, ring->len, ring->sum};
    return cells;
}

static void check_row(const weir_decision *row, const struct weir__request *asked)
{
    EXPECT(row->limit >= 1 && row->remaining >= 0, "limit %lld, remaining %lld",
           (long long)row->limit, (long long)row->remaining);
    EXPECT(row->retry_after_us >= -1 && row->delay_us >= 0, "retry after %lld, delay %lld",
           (long long)row->retry_after_us, (long long)row->delay_us);
    EXPECT(!row->allowed || row->retry_after_us == 0, "allowed, yet retry after %lld",
           (long long)row->retry_after_us);
    EXPECT(!row->allowed || row->delay_us <= asked->wait_us, "delay %lld",
           (long long)row->delay_us);
}

static bool take(const struct weir__rule *rule, struct weir__state *state, int64_t now,
                 int64_t cost, struct weir__cell **ret_moved)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    struct weir__request asked = {now, cost, weir__wait_for(rule, WEIR_WAIT_ANY)};
    weir_decision row = {.time_us = now};
    algorithm->judge(rule, state, &asked, &row);
    check_row(&row, &asked);
    bool charged = row.allowed && cost > 0;
    if (charged && weir__is_large(rule))
        *ret_moved = make_room(state);
    if (charged)
        algorithm->charge(rule, state, &asked);
    algorithm->report(rule, state, now, &row);
    EXPECT(row.remaining >= 0 && row.reset_after_us >= 0, "reset after %lld",
           (long long)row.reset_after_us);
    return charged;
}

/* A lease that is there, or one that is not. */
static uint64_t lease_of(const struct weir__ring *ring, uint8_t choice)
{
    if (ring->len == 0)
        return 1;
    return weir__ring_cell(ring, choice % ring->len)->lease >> WEIR__LEASE_SHIFT;
}

static bool change(const struct weir__rule *rule, struct weir__state *state, const struct use *use,
                   int64_t now, struct weir__cell **ret_moved)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    uint64_t id = lease_of(&state->ring, use->cost);
    struct weir__correction correction = {.now_us = now,
                                          .charged_at_us = now - weir__min(now, use->time),
                                          .charged = cost_of(use->cost),
                                          .actual = cost_of(use->cost >> 3)};
    switch (use->verb % VERBS) {
    case RENEW:
        return algorithm->leases && weir__lease_renew(rule, state, id);
    case RELEASE:
        return algorithm->leases && weir__lease_release(state, id);
    case SETTLE:
        if (algorithm->leases || correction.actual == correction.charged)
            return false;
        if (weir__is_large(rule))
            *ret_moved = make_room(state);
        return algorithm->settle(rule, state, &correction);
    default:
        return take(rule, state, now, cost_of(use->cost), ret_moved);
    }
}

/* What was left is what is read. */
static void check_written(const struct weir__rule *rule, const struct weir__state *state)
{
    const struct weir__ring *ring = &state->ring;
    size_t len = WEIR__VALUE_HEAD + weir__section_size(rule, ring->capacity);
    uint8_t *bytes = malloc(len);
    struct weir__value value;
    EXPECT(bytes, "out of memory");
    bytes[0] = WEIR__VALUE_MAGIC;
    bytes[1] = WEIR__VALUE_VERSION;
    weir__section_write(rule, state, bytes + WEIR__VALUE_HEAD);
    if (weir__is_large(rule))
        memcpy(bytes + WEIR__VALUE_HEAD + WEIR__RING_HEAD, ring->cells,
               ring->capacity * sizeof *ring->cells);
    EXPECT(weir__value_parse(bytes, len, &value) && value.count == 1,
           "a changed state of kind %d is refused", rule->kind);
    const struct weir__state *again = &value.sections[0].state;
    EXPECT(again->at == state->at && again->amount == state->amount &&
               again->before == state->before && again->ring.len == ring->len &&
               again->ring.sum == ring->sum,
           "a changed state of kind %d is read otherwise", rule->kind);
    EXPECT(weir__value_find(&value, rule) == &value.sections[0], "not found again");
    free(bytes);
}

static void use_section(const uint8_t *data, size_t size, size_t index, const struct use *use)
{
    struct copy copy;
    struct weir__rule rule;
    struct weir__cell *moved = NULL;
    EXPECT(copy_of(data, size, &copy), "refused the second time");
    struct weir__section *section = &copy.value.sections[index];
    struct weir__state state = section->state;
    int64_t now = time_of(section, use->time);
    int64_t cost = use->verb % VERBS == TAKE ? cost_of(use->cost) : WEIR__EVERY_CELL;
    bool usable = rule_of(section, use->numbers, &rule);
    if (usable && now >= section->fresh_at) {
        state.present = false;
        state.ring.len = 0;
        state.ring.sum = 0;
    } else {
        usable = usable && weir__section_readable(section, &rule, now, cost);
    }
    if (usable) {
        weir__load(&rule, &rule, &state, now);
        if (change(&rule, &state, use, now, &moved) && state.present)
            check_written(&rule, &state);
    }
    free(moved);
    free(copy.memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct use use = {fuzz_byte(&input), fuzz_byte(&input), fuzz_byte(&input), fuzz_byte(&input)};
    struct copy copy;
    bool sound = copy_of(input.data, input.size, &copy);
    size_t count = copy.value.count;
    if (sound && input.size > 0) {
        check_all(&copy.value);
        check_marks(&copy.value);
    }
    free(copy.memory);
    for (size_t i = 0; i < count && sound && input.size > 0; i++)
        use_section(input.data, input.size, i, &use);
    return 0;
}
