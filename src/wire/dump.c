/* See dump.h. */
#include "wire/dump.h"

#include "core/ring.h"
#include "limit/limit.h"
#include "wire/decision.h"
#include "wire/state.h"

#include <stdlib.h>

#define NODES 16 /* a line has five members at most */

/* ---- writing ---- */

static void dump_put_hex(struct weir__json *json, const char *name, const uint64_t *words, size_t n)
{
    char text[33] = "";
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    assert(n <= 2);
    for (size_t i = 0; i < n; i++)
        weir__put_format(&buffer, "%016llx", (unsigned long long)words[i]);
    weir__json_put_text(json, name, text, buffer.len);
}

static void dump_close(struct weir__json *json)
{
    weir__json_close(json, '}');
    weir__put_text(json->out, "\n");
}

static void dump_put_head(struct weir__buffer *out, const struct weir__dump_head *head)
{
    struct weir__json json = {out, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_int(&json, "weir_zone", WEIR__DUMP_VERSION);
    dump_put_hex(&json, "secret", head->secret, 2);
    weir__json_put_uint(&json, "size", head->size);
    weir__json_put_uint(&json, "large", head->large_percent);
    dump_close(&json);
}

static void dump_put_end(struct weir__buffer *out, uint64_t states, uint64_t marks)
{
    struct weir__json json = {out, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_uint(&json, "states", states);
    weir__json_put_uint(&json, "marks", marks);
    dump_close(&json);
}

/* The least capacity of a ring with these cells. */
static uint32_t dump_capacity(const struct weir__carried *it)
{
    uint32_t capacity = 2;
    while (weir__is_large(&it->rule) && capacity < it->state.ring.len)
        capacity = weir__ring_next_capacity(capacity);
    return capacity;
}

static size_t dump_value_size(const struct weir__carried *it)
{
    return WEIR__VALUE_HEAD + weir__section_size(&it->rule, dump_capacity(it));
}

/* The state as the one section of a value of docs/STATE.md, its oldest cell first. */
static void dump_write_value(const struct weir__carried *it, uint8_t *to)
{
    struct weir__state state = it->state;
    uint8_t *section = to + WEIR__VALUE_HEAD;
    to[0] = WEIR__VALUE_MAGIC;
    to[1] = WEIR__VALUE_VERSION;
    if (weir__is_large(&it->rule)) {
        state.ring.capacity = dump_capacity(it);
        state.ring.head = 0;
        struct weir__cell *cells = (struct weir__cell *)(section + WEIR__RING_HEAD);
        for (uint32_t i = 0; i < state.ring.len; i++)
            cells[i] = *weir__ring_cell(&it->state.ring, i);
        memset(cells + state.ring.len, 0,
               (state.ring.capacity - state.ring.len) * sizeof(struct weir__cell));
    }
    weir__section_write(&it->rule, &state, section);
}

/* The value is made in a room of its own, and becomes text. */
static void dump_put_state(struct weir__json *json, const struct weir__carried *it,
                           struct weir__buffer *value)
{
    struct weir__buffer *out = json->out;
    size_t size = dump_value_size(it);
    value->len = 0;
    if (weir__buffer_make_room(value, size) < size) {
        out->cut = true;
        return;
    }
    weir__json_put_text(json, "state", "", 0);
    out->len--; /* the closing quote comes again, behind the value */
    dump_write_value(it, (uint8_t *)value->data);
    weir__put_base64(out, value->data, size);
    weir__put_text(out, "\"");
}

static void dump_put(struct weir__dump_sink *sink, const struct weir__carried *it)
{
    struct weir__json json = {&sink->line, false};
    weir__json_open(&json, NULL, '{');
    dump_put_hex(&json, "tag", &it->tag, 1);
    if (weir__is_mark(&it->rule)) {
        weir__json_put_int(&json, "settled_until", it->state.at + WEIR__SETTLED_US);
    } else {
        weir__json_put_rule(&json, "limit", &it->rule);
        if (it->denied)
            weir__json_put_bool(&json, "denied", true);
        dump_put_state(&json, it, &sink->value);
    }
    dump_close(&json);
}

/* Writes the line, and begins another. */
static int dump_send(struct weir__dump_sink *sink, weir_error *err)
{
    if (sink->line.cut)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a line");
    int code = sink->write(sink->context, sink->line.data, sink->line.len, err);
    sink->line.len = 0;
    return code;
}

/* ---- a whole zone ---- */

/* The states of one page, copied under its lock and written after it. */
struct dump_page {
    struct weir__carried *states;
    struct weir__cell *cells; /* of all rings, one after the other */
    size_t count, room, cell_count, cell_room;
};

/* Room for n more of an array's members; false: there is no memory. */
static bool dump_grow(void **array, size_t size, size_t count, size_t n, size_t *room)
{
    size_t wanted = *room ? *room : 256;
    if (count + n <= *room)
        return true;
    while (wanted < count + n)
        wanted *= 2;
    void *grown = reallocarray(*array, wanted, size);
    if (!grown)
        return false;
    *array = grown;
    *room = wanted;
    return true;
}

static int dump_copy(const struct weir__carried *it, void *context, weir_error *err)
{
    struct dump_page *page = context;
    const struct weir__ring *ring = &it->state.ring;
    size_t cells = weir__is_large(&it->rule) ? ring->len : 0;
    if (!dump_grow((void **)&page->states, sizeof *page->states, page->count, 1, &page->room) ||
        !dump_grow((void **)&page->cells, sizeof *page->cells, page->cell_count, cells,
                   &page->cell_room))
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the states of one page");
    page->states[page->count++] = *it;
    for (uint32_t i = 0; i < cells; i++)
        page->cells[page->cell_count++] = *weir__ring_cell(ring, i);
    return 0;
}

static int dump_put_page(struct dump_page *page, struct weir__dump_sink *sink, weir_error *err)
{
    struct weir__cell *cells = page->cells;
    for (size_t i = 0; i < page->count; i++) {
        struct weir__carried *it = &page->states[i];
        struct weir__ring *ring = &it->state.ring;
        if (weir__is_large(&it->rule)) {
            *ring = (struct weir__ring){cells, ring->len, 0, ring->len, ring->sum};
            cells += ring->len;
        }
        dump_put(sink, it);
        sink->states += !weir__is_mark(&it->rule);
        sink->marks += weir__is_mark(&it->rule);
        int code = dump_send(sink, err);
        if (code)
            return code;
    }
    page->count = page->cell_count = 0;
    return 0;
}

int weir__dump_zone(struct weir__zone *zone, struct weir__dump_sink *sink, weir_error *err)
{
    struct weir__dump_head head = {.size = zone->layout.size,
                                   .large_percent = zone->header->large_percent};
    struct dump_page page = {0};
    memcpy(head.secret, zone->secret, sizeof head.secret);
    sink->line = weir__buffer_growing();
    sink->value = weir__buffer_growing();
    dump_put_head(&sink->line, &head);
    int code = dump_send(sink, err);
    for (uint32_t i = 0; i < zone->layout.pages && code == 0; i++) {
        code = weir__zone_walk_page(zone, i, dump_copy, &page, err);
        if (code == 0)
            code = dump_put_page(&page, sink, err);
    }
    dump_put_end(&sink->line, sink->states, sink->marks);
    if (code == 0)
        code = dump_send(sink, err);
    free(page.states);
    free(page.cells);
    weir__buffer_free(&sink->line);
    weir__buffer_free(&sink->value);
    return code;
}
