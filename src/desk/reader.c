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

#include "base/buffer.h"
#include "base/clock.h"
#include "desk/format.h"
#include "desk/input.h"
#include "desk/order.h"
#include "desk/select.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY_US INT64_C(86400000000)
#define IDLE_NS 250000000

/* A format in use; several files may have it. */
struct reader_format {
    struct reader_format *next;
    struct desk_format format;
};

struct reader_source {
    struct desk_input input;
    bool open, ended;
    const struct desk_format *format; /* NULL: not known yet, or the file is empty */
    bool header;                      /* is still to be passed */
    struct desk_times times;
    struct desk_fields fields;
    struct desk_room *room;
    bool has_head, head_whole;
    struct desk_arrival head; /* the next one */
    int64_t first_us;         /* of a file that is not open: its first time */
    int64_t size, done;       /* bytes of the file */
    struct desk_file_facts *facts;
};

struct desk_reader {
    struct desk_options options;
    struct desk_selection selection;
    struct reader_format *formats;
    struct reader_source *sources;
    struct desk_file_facts *files;
    size_t count;
    struct reader_source *current; /* it goes on while its head is not after `others_us` */
    int64_t others_us;
    bool ordered, spread, ending;
    struct desk_order order;
    struct desk_facts facts;
    /* What is to be put: the one that was doubted, then the head of `current`. */
    struct desk_arrival queue[2];
    bool queue_whole[2];
    size_t queue_at, queue_count;
    /* An arrival whose time is far ahead, or the first of all. */
    bool doubted, doubt_whole;
    struct desk_arrival doubt;
    int64_t newest_us;      /* that was not doubted */
    int64_t newest_seen_us; /* when: by the clock of this machine */
    char doubt_bytes[3 * DESK_LINE_MAX];
};

const char *desk_reason_text(enum desk_reason reason)
{
    static const char *const texts[] = {
#define DESK_TEXT_OF(name, text) text,
        DESK_REASONS(DESK_TEXT_OF)
#undef DESK_TEXT_OF
    };
    assert((size_t)reason < WEIR__COUNT(texts));
    return texts[reason];
}

/* ---- lines that cannot be read ---- */

/* A text that is safe to print, shortened. */
static void reader_show(struct weir__span text, char *room, size_t size)
{
    static const char more[] = "…";
    struct weir__buffer buffer = weir__buffer_over(room, size);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (buffer.len + sizeof more >= size) {
            weir__put_text(&buffer, more);
            break;
        }
        weir__put(&buffer, (unsigned char)c >= ' ' && (unsigned char)c < 0x7f ? &c : "?", 1);
    }
}

/* Counts it, and keeps it if it is one of the first. 0, or WEIR_EINVAL if all must be readable. */
static int reader_note(struct desk_reader *reader, const struct reader_source *source, int64_t line,
                       struct weir__span text, enum desk_reason reason,
                       const struct desk_wrong *wrong, weir_error *err)
{
    struct desk_facts *facts = &reader->facts;
    int column = wrong ? (int)wrong->at + 1 : 0;
    const char *why = wrong ? wrong->why : desk_reason_text(reason);
    facts->unreadable++;
    facts->reasons[reason]++;
    source->facts->unreadable++;
    if (facts->example_count < DESK_EXAMPLES) {
        struct desk_example *example = &facts->examples[facts->example_count++];
        *example = (struct desk_example){
            .path = source->facts->path, .line = line, .column = column, .reason = reason};
        snprintf(example->why, sizeof example->why, "%s", why);
        reader_show(text, example->text, sizeof example->text);
    }
    if (!reader->options.strict)
        return 0;
    char shown[96];
    reader_show(text, shown, sizeof shown);
    return weir__fail(err, WEIR_EINVAL, column, "%s: line %lld: %s: %s", source->input.name,
                      (long long)line, why, shown);
}

/* ---- one file ---- */

/* The format, shared with other files that have the same. */
static const struct desk_format *reader_keep(struct desk_reader *reader,
                                             const struct desk_format *format)
{
    for (struct reader_format *it = reader->formats; it; it = it->next) {
        if (!memcmp(&it->format, format, sizeof *format))
            return &it->format;
    }
    struct reader_format *kept = malloc(sizeof *kept);
    if (!kept)
        return NULL;
    kept->format = *format;
    kept->next = reader->formats;
    reader->formats = kept;
    return &kept->format;
}

/* Finds out the format by the beginning of the file, which is not blank. */
static int source_find_format(struct desk_reader *reader, struct reader_source *source,
                              struct weir__span beginning, weir_error *err)
{
    struct desk_format *found = malloc(sizeof *found);
    if (!found)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", source->input.name);
    int code = desk_format_find(reader->options.format, beginning, source->input.name,
                                &reader->selection.wanted, &source->times, found,
                                &source->facts->detected_by, err);
    if (code == 0)
        code = desk_selection_check(&reader->selection, found, source->input.name, err);
    if (code == 0 && !(source->format = reader_keep(reader, found)))
        code = weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", source->input.name);
    free(found);
    if (code)
        return code;
    source->facts->format = source->format->name;
    source->header = source->format->skip_header;
    source->times.unit_ns = source->format->time_unit_ns;
    return 0;
}

/* The first time in the beginning of a file; 0: there is none. */
static int64_t source_first_time(const struct reader_source *source)
{
    struct weir__span rest = desk_input_peek(&source->input);
    struct desk_times times = source->times;
    struct desk_fields fields;
    struct desk_wrong wrong;
    int64_t us;
    bool whole;
    while (source->format && rest.len > 0) {
        const char *end = memchr(rest.data, '\n', rest.len);
        struct weir__span line = {rest.data, end ? (size_t)(end - rest.data) : rest.len};
        rest.data += line.len + (end != NULL);
        rest.len -= line.len + (end != NULL);
        if (line.len > 0 && line.data[line.len - 1] == '\r')
            line.len--;
        if (line.len > 0 && desk_format_read(source->format, line, &fields, &wrong) &&
            desk_fields_has(&fields, DESK_TIME) &&
            desk_time_read(&times, fields.at[DESK_TIME], &us, &whole))
            return us;
    }
    return 0;
}

static void source_close(struct reader_source *source)
{
    if (!source->open)
        return;
    source->done = source->input.offset;
    memcpy(source->facts->damage, source->input.damage, sizeof source->facts->damage);
    desk_input_close(&source->input);
    free(source->room);
    source->room = NULL;
    source->open = false;
}

static int source_open(struct desk_reader *reader, struct reader_source *source, weir_error *err)
{
    assert(!source->open && !source->ended);
    source->room = malloc(sizeof *source->room);
    if (!source->room)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", source->facts->path);
    int code = desk_input_open(&source->input, source->facts->path, reader->options.begun,
                               reader->options.follow, err);
    if (code) {
        free(source->room);
        source->room = NULL;
        return code;
    }
    source->open = true;
    source->size = source->input.size;
    source->facts->packing = desk_packing_name(source->input.packing);
    struct weir__span beginning = desk_input_peek(&source->input);
    while (beginning.len > 0 && (beginning.data[0] == '\n' || beginning.data[0] == '\r'))
        beginning.data++, beginning.len--;
    /* The format of a file that is empty, or begins with a line that is too long, is told later. */
    if (source->format || beginning.len == 0 ||
        (beginning.len > DESK_LINE_MAX && !memchr(beginning.data, '\n', DESK_LINE_MAX)))
        return 0;
    return source_find_format(reader, source, beginning, err);
}

/* The time of a line. False: noted. */
static bool source_read_time(struct reader_source *source, int64_t *ret_us, bool *ret_whole,
                             struct desk_wrong *wrong, const char *line)
{
    struct desk_fields *fields = &source->fields;
    struct weir__span text;
    source->room->used = 0;
    if (!desk_fields_has(fields, DESK_TIME)) {
        *wrong = (struct desk_wrong){"there is no time", 0};
        return false;
    }
    text = fields->at[DESK_TIME];
    if (fields->escaped >> DESK_TIME & 1)
        desk_value(source->format, fields, DESK_TIME, source->room, &text);
    if (desk_time_read(&source->times, text, ret_us, ret_whole))
        return true;
    *wrong =
        (struct desk_wrong){"the time cannot be read", (size_t)(fields->at[DESK_TIME].data - line)};
    return false;
}

/* One line. 1: it is the head; 0: it is not; or an error. */
static int source_take_line(struct desk_reader *reader, struct reader_source *source,
                            struct weir__span line, weir_error *err)
{
    struct desk_wrong wrong = {NULL, 0};
    struct desk_arrival *head = &source->head;
    enum desk_reason reason = DESK_REASON_BINARY;
    char why[96];
    bool whole = false, readable = false;
    if (source->input.has_nul && memchr(line.data, 0, line.len)) {
        wrong.why = desk_reason_text(reason);
    } else if (!desk_format_read(source->format, line, &source->fields, &wrong)) {
        reason = DESK_REASON_SHAPE;
    } else if (!source_read_time(source, &head->time_us, &whole, &wrong, line.data)) {
        reason = DESK_REASON_TIME;
    } else {
        readable = true;
    }
    if (!readable) {
        int64_t number = source->input.line;
        desk_input_back(&source->input);
        return reader_note(reader, source, number, line, reason, &wrong, err);
    }
    switch (desk_select(&reader->selection, source->format, &source->fields, source->room, head,
                        &reason, why)) {
    case DESK_TAKEN:
        head->line = source->input.line;
        head->file = (uint32_t)(source - reader->sources);
        source->head_whole = whole && !source->format->exact_times;
        return 1;
    case DESK_FILTERED:
        reader->facts.filtered++;
        return 0;
    case DESK_KEYLESS:
        reader->facts.keyless++;
        return 0;
    case DESK_REFUSED:
        break;
    }
    wrong = (struct desk_wrong){why, 0};
    return reader_note(reader, source, source->input.line, line, reason, &wrong, err);
}

/* Reads to the next arrival: DESK_ARRIVAL and it is the head, DESK_END, DESK_IDLE or an error. */
static int source_next(struct desk_reader *reader, struct reader_source *source, weir_error *err)
{
    struct weir__span line;
    for (;;) {
        bool csv = source->format && source->format->family == DESK_CSV;
        int got = desk_input_line(&source->input, csv, &line, err);
        if (got < 0)
            return got;
        if (got == DESK_GOT_NOTHING)
            return DESK_IDLE;
        if (got == DESK_GOT_END) {
            source->ended = true;
            source_close(source);
            return DESK_END;
        }
        if (line.len > 0 && !source->format && got == DESK_GOT_LINE) {
            size_t rest = source->input.to - (size_t)(line.data - source->input.data);
            int code =
                source_find_format(reader, source, (struct weir__span){line.data, rest}, err);
            if (code)
                return code;
        }
        if (line.len == 0 || (source->header && got == DESK_GOT_LINE)) {
            source->header &= line.len == 0;
            continue;
        }
        reader->facts.lines++;
        reader->facts.bytes += (int64_t)line.len + 1;
        source->facts->lines++;
        int code = 0;
        if (got == DESK_GOT_LONG)
            code =
                reader_note(reader, source, source->input.line, line, DESK_REASON_LONG, NULL, err);
        else
            code = source_take_line(reader, source, line, err);
        if (code) {
            source->has_head = code > 0;
            return code;
        }
    }
}

/* ---- all files ---- */

static int64_t source_time(const struct reader_source *source)
{
    return source->has_head ? source->head.time_us : source->first_us;
}

/* Chooses the file whose next time is the earliest; sets current, NULL: none has a line. Returns
 * DESK_ARRIVAL, DESK_END, DESK_IDLE or an error. */
static int reader_choose(struct desk_reader *reader, weir_error *err)
{
    for (;;) {
        struct reader_source *best = NULL;
        int64_t others = INT64_MAX;
        bool idle = false;
        for (size_t i = 0; i < reader->count; i++) {
            struct reader_source *it = &reader->sources[i];
            if (it->open && !it->has_head) {
                int got = source_next(reader, it, err);
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
        int code = source_open(reader, best, err);
        if (code)
            return code;
    }
}

/* The next arrival of all files is then the head of current. */
static int reader_step(struct desk_reader *reader, weir_error *err)
{
    struct reader_source *source = reader->current;
    if (source && source->open && !source->has_head) {
        int got = source_next(reader, source, err);
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
    assert(len + arrival->carried_len <= sizeof reader->doubt_bytes);
    memcpy(reader->doubt_bytes, arrival->key.data, len);
    if (arrival->carried_len > 0)
        memcpy(reader->doubt_bytes + len, arrival->carried, arrival->carried_len);
    reader->doubt = *arrival;
    reader->doubt.key.data = reader->doubt_bytes;
    reader->doubt.carried = reader->doubt_bytes + len;
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
    reader->facts.jumps += reader->newest_us > 0;
    reader_enqueue(reader, &reader->doubt, reader->doubt_whole);
    reader->doubted = false;
}

/* Takes the head of the current file: it is to be put, or to be doubted first. */
static int reader_take_head(struct desk_reader *reader, weir_error *err)
{
    struct reader_source *source = reader->current;
    const struct desk_arrival *head = &source->head;
    reader->queue_at = reader->queue_count = 0;
    source->has_head = false;
    if (reader->doubted && head->time_us < reader->doubt.time_us - DAY_US) {
        struct reader_source *from = &reader->sources[reader->doubt.file];
        reader->doubted = false;
        int code = reader_note(reader, from, reader->doubt.line, reader->doubt.key,
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
        return weir__fail(err, WEIR_EINVAL, 0, "lines may be at most 1h out of order");
    *ret_zone_us = 0;
    if (options->timezone && !desk_zone_read(weir__span_of(options->timezone), ret_zone_us))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "invalid time zone \"%.40s\": expected an offset from UTC, like +01:00",
                          options->timezone);
    return 0;
}

/* Opens each file, to know that it is there, its format and its first time. */
static int reader_look(struct desk_reader *reader, weir_error *err)
{
    bool traces = reader->options.disorder_us == 0;
    for (size_t i = 0; i < reader->count; i++) {
        struct reader_source *source = &reader->sources[i];
        int code = source_open(reader, source, err);
        if (code)
            return code;
        traces = traces && (!source->format || source->format->exact_times);
        source->first_us = source_first_time(source);
        if (reader->count > 1 && source->input.regular && !reader->options.follow) {
            source_close(source);
            source->facts->damage[0] = 0;
            source->done = 0;
        }
    }
    reader->ordered = !traces && reader->options.disorder_us >= 0;
    if (!reader->ordered)
        return 0;
    int64_t disorder = reader->options.disorder_us;
    if (desk_order_init(&reader->order, disorder > 0 ? disorder : DESK_DISORDER_US,
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
    if (options->path_count == 0) {
        reader->options.paths = standard;
        reader->options.path_count = 1;
    }
    reader->count = reader->options.path_count;
    reader->facts.first_us = -1;
    reader->sources = calloc(reader->count, sizeof *reader->sources);
    reader->files = calloc(reader->count, sizeof *reader->files);
    if (!reader->sources || !reader->files)
        code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    for (size_t i = 0; code == 0 && i < reader->count; i++) {
        reader->sources[i].facts = &reader->files[i];
        reader->sources[i].input.fd = -1;
        reader->sources[i].times.zone_us = zone_us;
        reader->files[i].path = reader->options.paths[i];
    }
    if (code == 0)
        code = desk_selection_make(options, &reader->selection, err);
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
        source_close(&reader->sources[i]);
    while (reader->formats) {
        struct reader_format *next = reader->formats->next;
        free(reader->formats);
        reader->formats = next;
    }
    desk_order_free(&reader->order);
    desk_selection_free(&reader->selection);
    free(reader->sources);
    free(reader->files);
    free(reader);
}

/* ---- giving ---- */

static int reader_give(struct desk_reader *reader, const struct desk_arrival *arrival)
{
    struct desk_facts *facts = &reader->facts;
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

void desk_reader_facts(const struct desk_reader *reader, struct desk_facts *ret)
{
    *ret = reader->facts;
    ret->out_of_order = reader->order.out_of_order;
    ret->late = reader->order.late;
    ret->crowded = reader->order.crowded;
    ret->spread = reader->order.spread_count;
    ret->files = reader->files;
    ret->file_count = reader->count;
    for (size_t i = 0; i < reader->count; i++) {
        const struct reader_source *source = &reader->sources[i];
        struct desk_file_facts *file = &reader->files[i];
        file->zone_assumed = source->times.zone_assumed;
        ret->damaged |= file->damage[0] != 0;
        ret->done += source->open ? source->input.offset : source->done;
        ret->size = ret->size < 0 || source->size < 0 ? -1 : ret->size + source->size;
    }
}
