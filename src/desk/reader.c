/*
 * The reader: see desk.h. It merges the files by the times of their next lines, and puts what comes
 * out in order. A file is opened when its turn comes; before that only its beginning was read, to
 * know its format and its first time.
 *
 * What a clock does: a time that is more than a day ahead of all the others is believed only if the
 * next line is not back where the others were. Otherwise that one line is counted as unreadable;
 * believed, it would make all that follow late.
 */
#include "desk/desk.h"

#include "base/clock.h"
#include "desk/order.h"
#include "desk/source.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DAY_US INT64_C(86400000000)
#define IDLE_NS 250000000
#define DOUBT_BYTES ((size_t)3 * DESK_LINE_MAX)

struct desk_reader {
    struct desk_options options;
    struct desk_shared shared;
    struct desk_source *sources;
    struct desk_file_facts *files;
    size_t count;
    struct desk_source *current; /* it goes on while its head is not after `others_us` */
    int64_t others_us;
    bool ordered, spread, ending;
    struct desk_order order;
    /* What is to be put: the one that was doubted, then the head of `current`. */
    struct desk_arrival queue[2];
    bool queue_whole[2];
    size_t queue_at, queue_count;
    /* An arrival whose time is far ahead, or the first of all. */
    bool doubted, doubt_whole;
    struct desk_arrival doubt;
    int64_t newest_us;      /* that was not doubted */
    int64_t newest_seen_us; /* when: by the clock of this machine */
    char *doubt_bytes;      /* twice DOUBT_BYTES for its key and what it carries: the one before may
                               still be in the queue */
    size_t doubt_at;        /* 0 or DOUBT_BYTES, in turn */
};

/* ---- all files ---- */

static int64_t source_time(const struct desk_source *source)
{
    return source->has_head ? source->head.time_us : source->first_us;
}

/* Chooses the file whose next time is the earliest; sets current, NULL: none has a line. Returns
 * DESK_ARRIVAL, DESK_END, DESK_IDLE or an error. */
static int reader_choose(struct desk_reader *reader, weir_error *err)
{
    for (;;) {
        struct desk_source *best = NULL;
        int64_t others = INT64_MAX;
        bool idle = false;
        for (size_t i = 0; i < reader->count; i++) {
            struct desk_source *it = &reader->sources[i];
            if (it->open && !it->has_head) {
                int got = desk_source_next(&reader->shared, it, err);
                if (got < 0)
                    return got;
                idle |= got == DESK_IDLE;
            }
            if (it->ended || (it->open && !it->has_head))
                continue;
            if (!best || source_time(it) < source_time(best)) {
                others = best ? weir__min(others, source_time(best)) : others;
                best = it;
            } else {
                others = weir__min(others, source_time(it));
            }
        }
        reader->current = best;
        reader->others_us = others;
        if (!best)
            return idle ? DESK_IDLE : DESK_END;
        if (best->has_head)
            return DESK_ARRIVAL;
        int code = desk_source_open(&reader->shared, best, err);
        if (code)
            return code;
    }
}

/* The next arrival of all files is then the head of current. */
static int reader_step(struct desk_reader *reader, weir_error *err)
{
    struct desk_source *source = reader->current;
    if (source && source->open && !source->has_head) {
        int got = desk_source_next(&reader->shared, source, err);
        if (got < 0)
            return got;
        if (got == DESK_ARRIVAL && source->head.time_us <= reader->others_us)
            return DESK_ARRIVAL;
    }
    return reader_choose(reader, err);
}

/* ---- doubts ---- */

/* Keeps an arrival until the next one came. */
static void reader_doubt(struct desk_reader *reader, const struct desk_arrival *arrival, bool whole)
{
    size_t len = arrival->key.len;
    assert(len + arrival->carried_len <= DOUBT_BYTES);
    reader->doubt_at ^= DOUBT_BYTES;
    char *bytes = reader->doubt_bytes + reader->doubt_at;
    memcpy(bytes, arrival->key.data, len);
    if (arrival->carried_len > 0)
        memcpy(bytes + len, arrival->carried, arrival->carried_len);
    reader->doubt = *arrival;
    reader->doubt.key.data = bytes;
    reader->doubt.carried = bytes + len;
    reader->doubt_whole = whole;
    reader->doubted = true;
}

static void reader_enqueue(struct desk_reader *reader, const struct desk_arrival *arrival,
                           bool whole)
{
    assert(reader->queue_count < WEIR__COUNT(reader->queue));
    reader->queue_whole[reader->queue_count] = whole;
    reader->queue[reader->queue_count++] = *arrival;
    reader->newest_us = weir__max(reader->newest_us, arrival->time_us);
    reader->newest_seen_us = reader->options.follow ? weir__clock_us() : 0;
}

/* The one that was doubted is right. */
static void reader_believe(struct desk_reader *reader)
{
    if (!reader->doubted)
        return;
    reader->shared.facts.jumps += reader->newest_us > 0;
    reader_enqueue(reader, &reader->doubt, reader->doubt_whole);
    reader->doubted = false;
}

/* Takes the head of the current file: it is to be put, or to be doubted first. */
static int reader_take_head(struct desk_reader *reader, weir_error *err)
{
    struct desk_source *source = reader->current;
    const struct desk_arrival *head = &source->head;
    reader->queue_at = reader->queue_count = 0;
    source->has_head = false;
    if (reader->doubted && head->time_us < reader->doubt.time_us - DAY_US) {
        struct desk_source *from = &reader->sources[reader->doubt.file];
        reader->doubted = false;
        int code = desk_source_note(&reader->shared, from, reader->doubt.line, reader->doubt.key,
                                    DESK_REASON_ALONE, NULL, err);
        if (code)
            return code;
    }
    reader_believe(reader);
    bool first = reader->newest_us == 0;
    if (first || head->time_us > reader->newest_us + DAY_US)
        reader_doubt(reader, head, source->head_whole);
    else
        reader_enqueue(reader, head, source->head_whole);
    return 0;
}

/* ---- opening ---- */

static int reader_check(const struct desk_options *options, int64_t *ret_zone_us, weir_error *err)
{
    if (options->path_count > DESK_FILES_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "more than %d files", DESK_FILES_MAX);
    if (options->disorder_us > DESK_DISORDER_MAX)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "invalid disorder \"%" PRId64 "s\": lines may be at most 1h out of order",
                          options->disorder_us / 1000000);
    *ret_zone_us = 0;
    if (options->timezone && !desk_zone_read(weir__span_of(options->timezone), ret_zone_us))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "invalid time zone \"%.40s\": expected an offset from UTC, like +01:00",
                          options->timezone);
    return 0;
}

/* Opens each file, to know that it is there, its format and its first time. Those that can be
 * opened again are closed, so that many files need few descriptors. */
static int reader_look(struct desk_reader *reader, weir_error *err)
{
    bool traces = reader->options.disorder_us == 0;
    for (size_t i = 0; i < reader->count; i++) {
        struct desk_source *source = &reader->sources[i];
        int code = desk_source_open(&reader->shared, source, err);
        if (code)
            return code;
        traces = traces && (!source->format || source->format->family == DESK_TRACE);
        source->first_us = desk_source_first_time(source);
        bool again = source->input.regular && source->input.fd != STDIN_FILENO;
        if (reader->count > 1 && again && !reader->options.follow) {
            desk_source_close(source);
            source->facts->damage[0] = 0;
            source->done = 0;
        }
    }
    reader->ordered = !traces && reader->options.disorder_us >= 0;
    if (!reader->ordered)
        return 0;
    int64_t disorder = reader->options.disorder_us;
    reader->doubt_bytes = malloc(2 * DOUBT_BYTES);
    if (!reader->doubt_bytes ||
        desk_order_init(&reader->order, disorder > 0 ? disorder : DESK_DISORDER_US,
                        !reader->options.no_spread))
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    return 0;
}

int desk_reader_open(const struct desk_options *options, struct desk_reader **ret, weir_error *err)
{
    static const char *const standard[] = {"-"};
    int64_t zone_us;
    int code = reader_check(options, &zone_us, err);
    if (code)
        return code;
    struct desk_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    reader->options = *options;
    reader->shared.options = &reader->options;
    if (options->path_count == 0) {
        reader->options.paths = standard;
        reader->options.path_count = 1;
    }
    reader->count = reader->options.path_count;
    reader->shared.facts.first_us = -1;
    reader->sources = calloc(reader->count, sizeof *reader->sources);
    reader->files = calloc(reader->count, sizeof *reader->files);
    if (!reader->sources || !reader->files)
        code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    for (size_t i = 0; code == 0 && i < reader->count; i++) {
        reader->sources[i].facts = &reader->files[i];
        reader->sources[i].number = (uint32_t)i;
        reader->sources[i].input.fd = -1;
        reader->sources[i].times.zone_us = zone_us;
        reader->files[i].path = reader->options.paths[i];
    }
    if (code == 0)
        code = desk_selection_make(options, &reader->shared.selection, err);
    if (code == 0)
        code = reader_look(reader, err);
    if (code) {
        desk_reader_close(reader);
        return code;
    }
    *ret = reader;
    return 0;
}

void desk_reader_close(struct desk_reader *reader)
{
    if (!reader)
        return;
    for (size_t i = 0; reader->sources && i < reader->count; i++)
        desk_source_close(&reader->sources[i]);
    while (reader->shared.formats) {
        struct desk_format_in_use *next = reader->shared.formats->next;
        free(reader->shared.formats);
        reader->shared.formats = next;
    }
    desk_order_free(&reader->order);
    desk_selection_free(&reader->shared.selection);
    free(reader->doubt_bytes);
    free(reader->sources);
    free(reader->files);
    free(reader);
}

/* ---- giving ---- */

static int reader_give(struct desk_reader *reader, const struct desk_arrival *arrival)
{
    struct desk_facts *facts = &reader->shared.facts;
    facts->arrivals++;
    if (facts->first_us < 0 || arrival->time_us < facts->first_us)
        facts->first_us = arrival->time_us;
    facts->last_us = weir__max(facts->last_us, arrival->time_us);
    return DESK_ARRIVAL;
}

/* Without order: as they stand in the files. */
static int reader_next_as_it_is(struct desk_reader *reader, struct desk_arrival *ret,
                                weir_error *err)
{
    int got = reader_step(reader, err);
    if (got != DESK_ARRIVAL)
        return got;
    *ret = reader->current->head;
    reader->current->has_head = false;
    return reader_give(reader, ret);
}

/* Nothing came: what waits is given when its time is over by the clock of this machine. */
static void reader_wait(struct desk_reader *reader)
{
    nanosleep(&(struct timespec){0, IDLE_NS}, NULL);
    if (reader->newest_us > 0)
        desk_order_advance(&reader->order,
                           reader->newest_us + weir__clock_us() - reader->newest_seen_us);
}

int desk_reader_next(struct desk_reader *reader, struct desk_arrival *ret, weir_error *err)
{
    if (!reader->ordered)
        return reader_next_as_it_is(reader, ret, err);
    for (;;) {
        if (desk_order_next(&reader->order, ret))
            return reader_give(reader, ret);
        if (reader->queue_at < reader->queue_count) {
            size_t i = reader->queue_at;
            int code = desk_order_put(&reader->order, &reader->queue[i], reader->queue_whole[i]);
            if (code < 0)
                return weir__fail(err, code, 0, "out of memory for arrivals that wait");
            reader->queue_at += code != DESK_ORDER_GIVE_FIRST;
            continue;
        }
        if (reader->ending)
            return DESK_END;
        int got = reader_step(reader, err);
        if (got < 0)
            return got;
        if (got == DESK_ARRIVAL) {
            int code = reader_take_head(reader, err);
            if (code)
                return code;
        } else if (got == DESK_IDLE) {
            reader_wait(reader);
            if (!desk_order_next(&reader->order, ret))
                return DESK_IDLE;
            return reader_give(reader, ret);
        } else if (reader->doubted) {
            reader->queue_at = reader->queue_count = 0;
            reader_believe(reader);
        } else {
            desk_order_end(&reader->order);
            reader->ending = true;
        }
    }
}

void desk_reader_finish(struct desk_reader *reader)
{
    reader->options.follow = false;
    for (size_t i = 0; i < reader->count; i++) {
        struct desk_source *source = &reader->sources[i];
        source->input.follow = false;
        if (source->open && !source->input.regular)
            source->input.ended = true;
    }
}

void desk_reader_facts(const struct desk_reader *reader, struct desk_facts *ret)
{
    *ret = reader->shared.facts;
    ret->out_of_order = reader->order.out_of_order;
    ret->late = reader->order.late;
    ret->crowded = reader->order.crowded;
    ret->spread = reader->order.spread_count;
    ret->files = reader->files;
    ret->file_count = reader->count;
    if (ret->lines > ret->unreadable)
        desk_selection_unseen(&reader->shared.selection, reader->shared.options,
                              reader->shared.seen, ret);
    ret->where = reader->options.where;
    ret->where_count = reader->options.where_count;
    struct weir__buffer hint = weir__buffer_over(ret->hint, sizeof ret->hint);
    if (ret->filtered > 0 && !reader->shared.taken && !ret->unseen_where)
        desk_hints_say(&reader->shared.hints, &reader->shared.selection, &hint);
    for (size_t i = 0; i < reader->count; i++) {
        const struct desk_source *source = &reader->sources[i];
        struct desk_file_facts *file = &reader->files[i];
        file->zone_assumed = source->times.zone_assumed;
        ret->damaged |= file->damage[0] != 0;
        ret->done += source->open ? source->input.offset : source->done;
        ret->size = ret->size < 0 || source->size < 0 ? -1 : ret->size + source->size;
    }
}
