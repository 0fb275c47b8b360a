/*
 * Keys held open: their values as sections, written back in place where the layout stays, else as a
 * whole. What is replicated is small: the whole value while it is short, of a long ring only the
 * header and the cell that changed.
 */
#include "weir_redis.h"

#include "base/buffer.h"
#include "core/ring.h"

#include <assert.h>
#include <string.h>

#define DIGITS 24
#define SHORT_VALUE 600 /* up to here the whole value is replicated */

void reply_damaged(RedisModuleCtx *ctx, RedisModuleString *name)
{
    size_t len;
    const char *text = rm_StringPtrLen(name, &len);
    reply_error(ctx,
                "WEIRSTATE key \"%.*s\" holds a value that is not weir's, or is damaged; use "
                "another key or delete it",
                (int)(len > 200 ? 200 : len), text);
}

bool held_open(RedisModuleCtx *ctx, RedisModuleString *name, bool writing, struct held *ret)
{
    int mode = writing ? RM_READ | RM_WRITE : RM_READ;
    size_t len = 0;
    uint8_t *bytes = NULL;
    ret->name = name;
    ret->marks = NULL;
    ret->key = rm_OpenKey(ctx, name, mode);
    int type = ret->key ? rm_KeyType(ret->key) : RM_TYPE_EMPTY;
    if (type == RM_TYPE_STRING)
        bytes = (uint8_t *)rm_StringDMA(ret->key, &len, mode);
    if ((type == RM_TYPE_EMPTY || type == RM_TYPE_STRING) &&
        weir__value_parse(bytes, len, &ret->value) && (type == RM_TYPE_EMPTY || len > 0))
        return true;
    reply_damaged(ctx, name);
    held_close(ret);
    return false;
}

void held_close(struct held *held)
{
    if (held->key)
        rm_CloseKey(held->key);
    held->key = NULL;
}

bool op_load(RedisModuleCtx *ctx, struct op *op, int64_t now, int64_t cost)
{
    assert(op->held && op->held->name);
    op->section = weir__value_find(&op->held->value, op->rule);
    op->moved = NULL;
    op->changed = op->many_cells = false;
    op->state = (struct weir__state){0};
    if (op->section) {
        op->state = op->section->state;
        if (now >= op->section->fresh_at) {
            op->state.present = false;
            op->state.ring.len = 0;
            op->state.ring.sum = 0;
        } else if (!weir__section_readable(op->section, op->rule, now, cost)) {
            reply_damaged(ctx, op->held->name);
            return false;
        }
    }
    weir__load(op->rule, NULL, &op->state, now);
    return true;
}

void op_reserve_cell(struct op *op, int64_t charged_at)
{
    struct weir__ring *ring = &op->state.ring;
    assert(!op->moved && ring->len <= ring->capacity);
    const struct weir__algorithm *algorithm = weir__algorithm_of(op->rule);
    if (!weir__is_large(op->rule) || ring->len < ring->capacity)
        return;
    if (!algorithm->leases && ring->len > 0 &&
        (weir__stamps_join(op->rule, &op->state) || weir__ring_last(ring)->stamp >= charged_at))
        return;
    uint32_t capacity = ring->capacity ? weir__ring_next_capacity(ring->capacity) : 2;
    size_t size = (size_t)capacity * sizeof(struct weir__cell);
    op->moved = rm_Alloc(size);
    memset(op->moved, 0, size);
    for (uint32_t i = 0; i < ring->len; i++)
        op->moved[i] = *weir__ring_cell(ring, i);
    *ring = (struct weir__ring){op->moved, capacity, 0, ring->len, ring->sum};
}

void op_free(struct op *op)
{
    if (op->moved)
        rm_Free(op->moved);
    op->moved = NULL;
}

static struct op *held_op_of(struct op *ops, size_t n, const struct held *held,
                             const struct weir__section *section)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i].held == held && ops[i].changed && ops[i].section == section)
            return &ops[i];
    }
    return NULL;
}

/* Appends one op's section; the bytes it took. */
static size_t op_append(const struct op *op, uint8_t *to)
{
    const struct weir__ring *ring = &op->state.ring;
    weir__section_write(op->rule, &op->state, to);
    if (weir__is_large(op->rule))
        memcpy(to + WEIR__RING_HEAD, ring->cells, ring->capacity * sizeof *ring->cells);
    return weir__section_size(op->rule, ring->capacity);
}

bool held_has_room(const struct held *held, const struct op *ops, size_t n, int64_t now)
{
    size_t live = 0, added = 0;
    for (size_t i = 0; i < held->value.count; i++)
        live += now < held->value.sections[i].fresh_at;
    for (size_t i = 0; i < n; i++) {
        if (ops[i].held != held || !ops[i].changed)
            continue;
        if (!ops[i].section)
            added++;
        else
            live += now >= ops[i].section->fresh_at; /* absent, and about to be there again */
    }
    return added == 0 || live + added <= WEIR_LIMITS_MAX;
}

/* The whole value, into bytes of enough room: kept sections in their places, new ones behind. */
static size_t held_rebuild(struct held *held, struct op *ops, size_t n, int64_t now, bool adding,
                           uint8_t *to)
{
    size_t at = WEIR__VALUE_HEAD;
    to[0] = WEIR__VALUE_MAGIC;
    to[1] = WEIR__VALUE_VERSION;
    for (size_t i = 0; i < held->value.count; i++) {
        const struct weir__section *section = &held->value.sections[i];
        const struct op *op = held_op_of(ops, n, held, section);
        if (op ? !op->state.present : adding && now >= section->fresh_at)
            continue;
        if (op) {
            at += op_append(op, to + at);
        } else {
            memcpy(to + at, held->value.bytes + section->offset, section->len);
            at += section->len;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (ops[i].held != held || !ops[i].changed || ops[i].section || !ops[i].state.present)
            continue;
        at += op_append(&ops[i], to + at);
    }
    bool lapsed = now >= held->value.marks_until_us;
    if (held->marks) {
        memcpy(to + at, held->marks, held->marks_len);
        at += held->marks_len;
    } else if (!lapsed || !(adding || at == WEIR__VALUE_HEAD)) {
        size_t len = held->value.len - held->value.marks_at;
        memcpy(to + at, held->value.bytes + held->value.marks_at, len);
        at += len;
    }
    return at;
}

/* From when on nothing in the value counts any more. */
static int64_t held_fresh_at(const struct held *held, struct op *ops, size_t n)
{
    int64_t latest = held->marks ? held->marks_until_us : held->value.marks_until_us;
    for (size_t i = 0; i < held->value.count; i++) {
        if (!held_op_of(ops, n, held, &held->value.sections[i]))
            latest = weir__max(latest, held->value.sections[i].fresh_at);
    }
    for (size_t i = 0; i < n; i++) {
        if (ops[i].held == held && ops[i].changed && ops[i].state.present)
            latest = weir__max(latest, weir__state_fresh_at(ops[i].rule, &ops[i].state));
    }
    return latest;
}

/* A number as text: the server makes one allocation of it, of a number two. */
static const char *held_digits(int64_t number, char ret[DIGITS])
{
    struct weir__buffer text = weir__buffer_over(ret, DIGITS);
    weir__put_int(&text, number);
    return ret;
}

static void held_replicate(RedisModuleCtx *ctx, struct held *held, const uint8_t *bytes, size_t len,
                           int64_t expire_ms)
{
    static RedisModuleString *pxat; /* made once: a string less to allocate at each charge */
    char digits[DIGITS];
    if (!pxat)
        pxat = rm_CreateString(NULL, "PXAT", 4);
    rm_Replicate(ctx, "SET", "sbsc", held->name, bytes, len, pxat, held_digits(expire_ms, digits));
}

/* What SET with PXAT and SETRANGE with PEXPIREAT would tell those who watch the key, as the
 * scripts' do. */
static void held_notify(RedisModuleCtx *ctx, const struct held *held, const char *event)
{
    rm_NotifyKeyspaceEvent(ctx, RM_NOTIFY_STRING, event, held->name);
    rm_NotifyKeyspaceEvent(ctx, RM_NOTIFY_GENERIC, "expire", held->name);
}

/* A long ring: its header, the newest cell, the expiry, together. */
static void op_replicate_ring(RedisModuleCtx *ctx, const struct op *op, int64_t expire_ms)
{
    const struct held *held = op->held;
    const uint8_t *section = held->value.bytes + op->section->offset;
    const uint8_t *cell = (const uint8_t *)weir__ring_last(&op->state.ring);
    assert(!op->moved); /* the cell lies in the value */
    char digits[DIGITS];
    rm_Replicate(ctx, "SETRANGE", "scb", held->name,
                 held_digits((int64_t)op->section->offset, digits), section,
                 (size_t)WEIR__RING_HEAD);
    rm_Replicate(ctx, "SETRANGE", "scb", held->name, held_digits(cell - held->value.bytes, digits),
                 cell, sizeof(struct weir__cell));
    rm_Replicate(ctx, "PEXPIREAT", "sc", held->name, held_digits(expire_ms, digits));
}

/* Whether nothing but existing sections' own bytes change. */
static bool held_fits_in_place(const struct held *held, const struct op *ops, size_t n,
                               bool *ret_adding)
{
    bool fits = !held->marks;
    *ret_adding = false;
    for (size_t i = 0; i < n; i++) {
        if (ops[i].held != held || !ops[i].changed)
            continue;
        fits = fits && ops[i].section && !ops[i].moved && ops[i].state.present;
        *ret_adding = *ret_adding || !ops[i].section;
    }
    return fits;
}

static void held_write_in_place(RedisModuleCtx *ctx, struct held *held, struct op *ops, size_t n)
{
    int64_t expire_ms = expire_at_ms(held_fresh_at(held, ops, n));
    const struct op *only = NULL;
    size_t changed = 0;
    for (size_t i = 0; i < n; i++) {
        if (ops[i].held != held || !ops[i].changed)
            continue;
        weir__section_write(ops[i].rule, &ops[i].state, held->value.bytes + ops[i].section->offset);
        only = &ops[i];
        changed++;
    }
    rm_SetAbsExpire(held->key, expire_ms);
    bool one_cell = changed == 1 && weir__is_large(only->rule) && !only->many_cells;
    if (one_cell && held->value.len > SHORT_VALUE) {
        op_replicate_ring(ctx, only, expire_ms);
        held_notify(ctx, held, "setrange");
    } else {
        held_replicate(ctx, held, held->value.bytes, held->value.len, expire_ms);
        held_notify(ctx, held, "set");
    }
}

static size_t held_room(const struct held *held, const struct op *ops, size_t n)
{
    size_t room = WEIR__VALUE_HEAD + held->value.len + (held->marks ? held->marks_len : 0);
    for (size_t i = 0; i < n; i++) {
        if (ops[i].held == held && ops[i].changed)
            room += weir__section_size(ops[i].rule, ops[i].state.ring.capacity);
    }
    return room;
}

void held_delete(RedisModuleCtx *ctx, struct held *held)
{
    rm_DeleteKey(held->key);
    rm_Replicate(ctx, "DEL", "s", held->name);
    rm_NotifyKeyspaceEvent(ctx, RM_NOTIFY_GENERIC, "del", held->name);
}

static void held_write_whole(RedisModuleCtx *ctx, struct held *held, struct op *ops, size_t n,
                             int64_t now, bool adding)
{
    size_t room = held_room(held, ops, n);
    uint8_t *bytes = rm_Alloc(room);
    int64_t expire_ms = expire_at_ms(held_fresh_at(held, ops, n));
    size_t size, len = held_rebuild(held, ops, n, now, adding, bytes);
    WEIR__CHECK(len <= room && held->key);
    if (len == WEIR__VALUE_HEAD) {
        held_delete(ctx, held);
    } else {
        rm_StringTruncate(held->key, len);
        char *value = rm_StringDMA(held->key, &size, RM_WRITE);
        WEIR__CHECK(value && size == len);
        memcpy(value, bytes, len);
        rm_SetAbsExpire(held->key, expire_ms);
        held_replicate(ctx, held, bytes, len, expire_ms);
        held_notify(ctx, held, "set");
    }
    rm_Free(bytes);
}

void held_write(RedisModuleCtx *ctx, struct held *held, struct op *ops, size_t n, int64_t now)
{
    bool adding, changed = held->marks != NULL;
    for (size_t i = 0; i < n; i++)
        changed = changed || (ops[i].held == held && ops[i].changed);
    if (!changed)
        return;
    if (held_fits_in_place(held, ops, n, &adding))
        held_write_in_place(ctx, held, ops, n);
    else
        held_write_whole(ctx, held, ops, n, now, adding);
    rm_SignalModifiedKey(ctx, held->name);
}
