/* See state.h and docs/STATE.md. */
#include "wire/state.h"

#include "base/buffer.h"
#include "core/ring.h"
#include "wire/sha.h"

#include <assert.h>
#include <string.h>

#define DEBT_SIZE 26
#define COUNT_SIZE 21
#define CALENDAR_SIZE 27 /* COUNT, and what a state is known by besides its period */
#define PAIR_SIZE 22
#define PERMITS_SIZE 29

static enum weir__shape state_shape_of(const struct weir__rule *rule)
{
    return weir__algorithm_of(rule)->shape;
}

static bool state_has_calendar(const struct weir__rule *rule)
{
    return weir__algorithm_of(rule)->extra == WEIR__EXTRA_CALENDAR;
}

static int64_t state_get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    assert(bytes >= 1 && bytes <= 8);
    memcpy(&value, at, (size_t)bytes);
    return (int64_t)value;
}

static void state_put(uint8_t *at, int bytes, int64_t number)
{
    uint64_t value = (uint64_t)number;
    assert(bytes >= 1 && bytes <= 8 && (bytes == 8 || value >> 8 * bytes == 0));
    memcpy(at, &value, (size_t)bytes);
}

uint32_t weir__ring_next_capacity(uint32_t capacity)
{
    return capacity < WEIR__RING_CAPACITY_MAX ? capacity * 2 + 2 : 0;
}

static bool state_is_capacity(int64_t capacity)
{
    int64_t blocks = capacity + 2;
    return capacity >= 2 && capacity <= WEIR__RING_CAPACITY_MAX && !(blocks & (blocks - 1));
}

size_t weir__section_size(const struct weir__rule *rule, uint32_t capacity)
{
    switch (state_shape_of(rule)) {
    case WEIR__SHAPE_DEBT:
        return DEBT_SIZE;
    case WEIR__SHAPE_COUNT:
        return state_has_calendar(rule) ? CALENDAR_SIZE : COUNT_SIZE;
    case WEIR__SHAPE_PAIR:
        return PAIR_SIZE;
    case WEIR__SHAPE_PERMITS:
        return PERMITS_SIZE;
    case WEIR__SHAPE_RING:
        break;
    }
    return WEIR__RING_HEAD + (size_t)capacity * sizeof(struct weir__cell);
}

/* ---- reading ---- */

/* A cell holds 1 … most, and no stamp is newer than the ring. */
static bool state_is_cell(const struct weir__section *section, const struct weir__cell *cell,
                          int64_t most)
{
    int64_t count = weir__cell_weight(&section->rule, cell);
    int64_t ahead = weir__algorithm_of(&section->rule)->leases ? WEIR_DURATION_MAX : 0;
    return cell->stamp >= 0 && cell->stamp <= section->state.at + ahead && count >= 1 &&
           count <= most;
}

static bool state_is_newest(const struct weir__section *section)
{
    const struct weir__cell *cell = weir__ring_last(&section->state.ring);
    return state_is_cell(section, cell, section->state.ring.sum) &&
           (weir__algorithm_of(&section->rule)->leases || cell->stamp == section->state.at);
}

bool weir__section_readable(const struct weir__section *section, const struct weir__rule *rule,
                            int64_t now_us, int64_t cost)
{
    const struct weir__ring *ring = &section->state.ring;
    int64_t at = section->state.at, left = ring->sum, excess = 0, before = 0;
    int64_t span = weir__algorithm_of(rule)->leases ? 0 : rule->period_us;
    bool lapsing = true;
    if (!weir__is_large(rule) || at - now_us > rule->horizon_us)
        return true;
    for (uint32_t i = 0; i < ring->len; i++) {
        const struct weir__cell *cell = weir__ring_cell(ring, i);
        int64_t others = ring->len - i - 1; /* each holds 1 at least */
        if (!state_is_cell(section, cell, left - others) || cell->stamp < before)
            return false;
        if (lapsing && cell->stamp + span > weir__max(now_us, at)) {
            lapsing = false;
            excess = cost == WEIR__EVERY_CELL ? left : left + cost - rule->count;
            excess = cost > rule->count ? 0 : excess; /* never: nothing is waited for */
        }
        int64_t count = weir__cell_weight(rule, cell);
        left -= count;
        excess -= count;
        before = cell->stamp;
        if (!lapsing && excess <= 0 && others > 0)
            return true;
    }
    return left == 0;
}

static bool state_read_ring(uint8_t *at, size_t left, struct weir__section *section)
{
    struct weir__ring *ring = &section->state.ring;
    int64_t capacity = left < WEIR__RING_HEAD ? 0 : state_get(at + 13, 4);
    if (!state_is_capacity(capacity))
        return false;
    section->len = weir__section_size(&section->rule, (uint32_t)capacity);
    section->rule.extra = state_get(at + 7, 6);
    *ring = (struct weir__ring){(struct weir__cell *)(at + WEIR__RING_HEAD), (uint32_t)capacity,
                                (uint32_t)state_get(at + 17, 4), (uint32_t)state_get(at + 21, 4),
                                state_get(at + 32, 7)};
    section->state.at = state_get(at + 25, 7);
    bool slots = weir__algorithm_of(&section->rule)->extra == WEIR__EXTRA_PRECISION;
    return section->len <= left && ring->head < ring->capacity && ring->len >= 1 &&
           ring->len <= weir__min(ring->capacity, WEIR__CELLS_MAX) && ring->sum >= 1 &&
           ring->sum <= WEIR__EXACT_MAX && section->state.at <= WEIR__EXACT_MAX && at[39] == 0 &&
           (slots ? section->rule.extra > 0 : section->rule.extra == 0) && state_is_newest(section);
}

static bool state_read_small(const uint8_t *at, size_t left, struct weir__section *section)
{
    struct weir__state *state = &section->state;
    bool calendar = state_has_calendar(&section->rule);
    section->len = weir__section_size(&section->rule, 0);
    if (section->len > left)
        return false;
    switch (state_shape_of(&section->rule)) {
    case WEIR__SHAPE_COUNT:
        if (calendar) {
            section->rule.extra = state_get(at + 7, 6);
            at += 6;
        }
        state->at = state_get(at + 7, 7);
        state->amount = state_get(at + 14, 7);
        return state->amount >= 1 && !weir__algorithm_of(&section->rule)->flaw(&section->rule);
    case WEIR__SHAPE_PAIR:
        state->at = state_get(at + 7, 7);
        state->before = state_get(at + 14, 4);
        state->amount = state_get(at + 18, 4);
        return state->before + state->amount >= 1;
    case WEIR__SHAPE_PERMITS:
        section->fresh_at = state_get(at + 7, 7);
        state->at = state_get(at + 14, 7);
        memcpy(&state->stored, at + 21, 8);
        return state->stored >= 0 && state->stored < 1e300;
    case WEIR__SHAPE_DEBT:
        section->rule.count = state_get(at + 7, 5);
        state->at = state_get(at + 12, 7);
        state->amount = state_get(at + 19, 7);
        return section->rule.count >= 1 && state->amount >= 1;
    case WEIR__SHAPE_RING:
        break;
    }
    return false;
}

static bool state_read_section(uint8_t *at, size_t left, struct weir__section *ret)
{
    if (left < 7 || at[0] >= WEIR__KIND_COUNT)
        return false;
    *ret = (struct weir__section){
        .rule = {.kind = at[0], .period_us = state_get(at + 1, 6), .count = 1}};
    ret->state.present = true;
    if (ret->rule.period_us < 1 || ret->rule.period_us > WEIR_DURATION_MAX)
        return false;
    bool ring = weir__is_large(&ret->rule);
    if (!(ring ? state_read_ring(at, left, ret) : state_read_small(at, left, ret)) ||
        !weir__state_sound(&ret->rule, &ret->state))
        return false;
    if (state_shape_of(&ret->rule) != WEIR__SHAPE_PERMITS)
        ret->fresh_at = weir__state_fresh_at(&ret->rule, &ret->state);
    return true;
}

/* Marks end a value. */
static bool state_read_marks(const uint8_t *at, size_t left, struct weir__value *ret)
{
    if (left < WEIR__MARKS_HEAD)
        return false;
    ret->marks_until_us = state_get(at + 1, 7);
    ret->marks_count = (size_t)state_get(at + 8, 2);
    return ret->marks_until_us <= WEIR__EXACT_MAX && ret->marks_count >= 1 &&
           ret->marks_count <= WEIR__MARKS_MAX &&
           left == WEIR__MARKS_HEAD + ret->marks_count * WEIR__MARK_SIZE;
}

bool weir__value_parse(uint8_t *bytes, size_t len, struct weir__value *ret)
{
    ret->bytes = bytes;
    ret->len = len;
    ret->count = ret->marks_count = 0;
    ret->marks_at = len;
    ret->marks_until_us = 0;
    if (len == 0)
        return true;
    if (len <= WEIR__VALUE_HEAD || bytes[0] != WEIR__VALUE_MAGIC || bytes[1] != WEIR__VALUE_VERSION)
        return false;
    for (size_t at = WEIR__VALUE_HEAD; at < len;) {
        struct weir__section *section = &ret->sections[ret->count];
        if (bytes[at] == WEIR__MARKS_KIND) {
            ret->marks_at = at;
            return state_read_marks(bytes + at, len - at, ret);
        }
        if (ret->count == WEIR_LIMITS_MAX || !state_read_section(bytes + at, len - at, section))
            return false;
        section->offset = at;
        at += section->len;
        ret->count++;
    }
    return true;
}

struct weir__section *weir__value_find(struct weir__value *value, const struct weir__rule *rule)
{
    for (size_t i = 0; i < value->count; i++) {
        if (weir__rule_same_state(&value->sections[i].rule, rule))
            return &value->sections[i];
    }
    return NULL;
}

/* ---- marks ---- */

uint64_t weir__mark_name(const struct weir__rule *rule, const struct weir__correction *correction)
{
    char text[128];
    uint8_t digest[20];
    uint64_t name = 0;
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%lld-%lld-%llu:%d:%lld:%lld", (long long)correction->charged_at_us,
                     (long long)correction->charged, (unsigned long long)correction->id, rule->kind,
                     (long long)rule->period_us, (long long)weir__distinct(rule));
    weir__sha1(buffer.data, buffer.len, digest);
    for (int i = 0; i < 6; i++)
        name = name << 8 | digest[i];
    return name;
}

static const uint8_t *state_mark_at(const struct weir__value *value, size_t i)
{
    return value->bytes + value->marks_at + WEIR__MARKS_HEAD + i * WEIR__MARK_SIZE;
}

bool weir__value_marked(const struct weir__value *value, uint64_t name, int64_t now_us)
{
    for (size_t i = 0; i < value->marks_count; i++) {
        const uint8_t *mark = state_mark_at(value, i);
        if ((uint64_t)state_get(mark, 6) == name && state_get(mark + 6, 7) > now_us)
            return true;
    }
    return false;
}

int64_t weir__marks_until(const uint8_t *marks)
{
    return state_get(marks + 1, 7);
}

size_t weir__marks_write(const struct weir__value *value, const struct weir__mark *added, size_t n,
                         int64_t now_us, uint8_t *to)
{
    uint8_t *p = to + WEIR__MARKS_HEAD;
    size_t kept = 0;
    int64_t latest = 0;
    for (size_t i = 0; i < value->marks_count; i++)
        kept += state_get(state_mark_at(value, i) + 6, 7) > now_us;
    size_t over = kept + n > WEIR__MARKS_MAX ? kept + n - WEIR__MARKS_MAX : 0;
    for (size_t i = 0; i < value->marks_count; i++) {
        int64_t until = state_get(state_mark_at(value, i) + 6, 7);
        if (until <= now_us || over > 0) {
            over -= until > now_us;
            continue;
        }
        memcpy(p, state_mark_at(value, i), WEIR__MARK_SIZE);
        latest = weir__max(latest, until);
        p += WEIR__MARK_SIZE;
    }
    for (size_t i = 0; i < n; i++, p += WEIR__MARK_SIZE) {
        state_put(p, 6, (int64_t)added[i].name);
        state_put(p + 6, 7, added[i].until_us);
        latest = weir__max(latest, added[i].until_us);
    }
    to[0] = WEIR__MARKS_KIND;
    state_put(to + 1, 7, weir__saturated(latest)); /* a damaged mark may say any time */
    state_put(to + 8, 2, (p - to - WEIR__MARKS_HEAD) / WEIR__MARK_SIZE);
    return (size_t)(p - to);
}

/* ---- writing ---- */

int64_t weir__state_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    return weir__min(weir__algorithm_of(rule)->fresh_at(rule, state), WEIR__EXACT_MAX);
}

static void state_write_ring(const struct weir__rule *rule, const struct weir__state *state,
                             uint8_t *to)
{
    state_put(to + 7, 6, weir__precision(rule));
    state_put(to + 13, 4, state->ring.capacity);
    state_put(to + 17, 4, state->ring.head);
    state_put(to + 21, 4, state->ring.len);
    state_put(to + 25, 7, state->at);
    state_put(to + 32, 7, state->ring.sum);
    to[39] = 0;
}

void weir__section_write(const struct weir__rule *rule, const struct weir__state *state,
                         uint8_t *to)
{
    to[0] = rule->kind;
    state_put(to + 1, 6, rule->period_us);
    switch (state_shape_of(rule)) {
    case WEIR__SHAPE_COUNT:
        if (state_has_calendar(rule)) {
            state_put(to + 7, 6, weir__distinct(rule));
            to += 6;
        }
        state_put(to + 7, 7, state->at);
        state_put(to + 14, 7, state->amount);
        break;
    case WEIR__SHAPE_PAIR:
        state_put(to + 7, 7, state->at);
        state_put(to + 14, 4, state->before);
        state_put(to + 18, 4, state->amount);
        break;
    case WEIR__SHAPE_PERMITS:
        state_put(to + 7, 7, weir__state_fresh_at(rule, state));
        state_put(to + 14, 7, state->at);
        memcpy(to + 21, &state->stored, 8);
        break;
    case WEIR__SHAPE_RING:
        state_write_ring(rule, state, to);
        break;
    case WEIR__SHAPE_DEBT:
        state_put(to + 7, 5, rule->count);
        state_put(to + 12, 7, state->at);
        state_put(to + 19, 7, state->amount);
        break;
    }
}

bool weir__value_show(const struct weir__value *value, int64_t now_us, struct weir__shown *ret)
{
    for (size_t i = 0; i < value->count; i++) {
        const struct weir__section *section = &value->sections[i];
        struct weir__rule rule = section->rule;
        bool debt = state_shape_of(&rule) == WEIR__SHAPE_DEBT;
        rule.count = debt ? rule.count : WEIR__EXACT_MAX; /* not known, and not needed */
        weir__rule_derive(&rule);
        rule.horizon_us = INT64_MAX;
        if (now_us < section->fresh_at && !weir__section_readable(section, &rule, now_us, 0))
            return false;
        weir__show(&rule, false, &section->state, section->fresh_at, now_us, &ret[i]);
        ret[i].count = debt ? rule.count : 0;
    }
    return true;
}
