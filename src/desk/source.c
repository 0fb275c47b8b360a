/* See source.h. */
#include "desk/source.h"

#include "base/buffer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#define SHOWN_VALUE 44 /* bytes for 40 of a value, or the beginning of it and "…" */

/* A text that is safe to print, shortened. */
static void source_show(struct weir__span text, char *room, size_t size)
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

/* Where in the file something of a line is: lines of CSV may have line breaks in them. */
struct source_place {
    long long line;
    int column;
};

static struct source_place source_place_of(int64_t line, struct weir__span text,
                                           const struct desk_wrong *wrong)
{
    struct source_place place = {line, wrong ? 1 : 0};
    for (size_t i = 0; wrong && i < wrong->at && i < text.len; i++) {
        place.line += text.data[i] == '\n';
        place.column = text.data[i] == '\n' ? 1 : place.column + 1;
    }
    return place;
}

int desk_source_note(struct desk_shared *shared, const struct desk_source *source, int64_t line,
                     struct weir__span text, enum desk_reason reason,
                     const struct desk_wrong *wrong, weir_error *err)
{
    struct desk_facts *facts = &shared->facts;
    const struct source_place place = source_place_of(line, text, wrong);
    const char *why = wrong ? wrong->why : desk_reason_text(reason);
    bool invalid = wrong && wrong->what;
    facts->unreadable++;
    facts->reasons[reason]++;
    source->facts->unreadable++;
    if (facts->example_count < DESK_EXAMPLES) {
        struct desk_example *example = &facts->examples[facts->example_count++];
        *example = (struct desk_example){.path = source->facts->path,
                                         .line = place.line,
                                         .column = place.column,
                                         .reason = reason};
        snprintf(example->why, sizeof example->why, "%s%s%s%s", invalid ? "invalid " : "",
                 invalid ? wrong->what : "", invalid ? ": expected " : "", why);
        source_show(text, example->text, sizeof example->text);
    }
    if (!shared->options->strict)
        return 0;
    char shown[96];
    source_show(invalid ? wrong->value : text, shown, invalid ? SHOWN_VALUE : sizeof shown);
    if (invalid)
        return weir__fail(err, WEIR_EINVAL, place.column,
                          "line %lld, column %d: invalid %s \"%s\": expected %s", place.line,
                          place.column, wrong->what, shown, why);
    return weir__fail(err, WEIR_EINVAL, place.column, "%s: line %lld: %s: %s", source->input.name,
                      place.line, why, shown);
}

/* ---- one file ---- */

/* The format, shared with other files that have the same. */
static const struct desk_format *source_keep_format(struct desk_shared *shared,
                                                    const struct desk_format *format)
{
    for (struct desk_format_in_use *it = shared->formats; it; it = it->next) {
        if (desk_format_same(&it->format, format))
            return &it->format;
    }
    struct desk_format_in_use *kept = malloc(sizeof *kept);
    if (!kept)
        return NULL;
    kept->format = *format;
    kept->next = shared->formats;
    shared->formats = kept;
    return &kept->format;
}

/* Finds out the format by the beginning of the file, which is not blank. */
static int source_find_format(struct desk_shared *shared, struct desk_source *source,
                              struct weir__span beginning, weir_error *err)
{
    struct desk_format *found = malloc(sizeof *found);
    if (!found)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", source->input.name);
    int code = desk_format_find(shared->options->format, beginning, source->input.name,
                                &shared->selection.wanted, &source->times, found,
                                &source->facts->detected_by, err);
    if (code == 0)
        code = desk_selection_check(&shared->selection, found, source->input.name, err);
    if (code == 0 && !(source->format = source_keep_format(shared, found)))
        code = weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", source->input.name);
    free(found);
    if (code)
        return code;
    if (source->format->family == DESK_TRACE)
        source->input.line_max = DESK_TRACE_LINE_MAX;
    source->facts->format = source->format->name;
    source->header = source->format->skip_header;
    source->times.unit_ns = source->format->time_unit_ns;
    return 0;
}

int64_t desk_source_first_time(const struct desk_source *source)
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

void desk_source_close(struct desk_source *source)
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

int desk_source_open(struct desk_shared *shared, struct desk_source *source, weir_error *err)
{
    assert(!source->open && !source->ended);
    source->room = malloc(sizeof *source->room);
    if (!source->room)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", source->facts->path);
    struct desk_extent *extents = shared->options->extents;
    int code =
        desk_input_open(&source->input, source->facts->path, shared->options->begun,
                        extents ? &extents[source->number] : NULL, shared->options->follow, err);
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
    const char *given = shared->options->format;
    size_t most = given && !strcmp(given, "trace") ? DESK_TRACE_LINE_MAX : DESK_LINE_MAX;
    source->input.line_max = most;
    /* The format of a file that is empty, or begins with a line that is too long, is told later. */
    if (source->format || beginning.len == 0 ||
        (beginning.len > most && !memchr(beginning.data, '\n', most)))
        return 0;
    return source_find_format(shared, source, beginning, err);
}

/* The time of a line. False: noted. */
static bool source_read_time(struct desk_source *source, int64_t *ret_us, bool *ret_whole,
                             struct desk_wrong *wrong, const char *line)
{
    struct desk_fields *fields = &source->fields;
    struct weir__span text;
    source->room->used = 0;
    if (!desk_fields_has(fields, DESK_TIME)) {
        *wrong = (struct desk_wrong){.why = "there is no time", .at = 0};
        return false;
    }
    text = fields->at[DESK_TIME];
    if (fields->escaped >> DESK_TIME & 1)
        desk_value(source->format, fields, DESK_TIME, source->room, &text);
    if (desk_time_read(&source->times, text, ret_us, ret_whole))
        return true;
    *wrong = (struct desk_wrong){.why = "the time cannot be read",
                                 .at = (size_t)(fields->at[DESK_TIME].data - line)};
    return false;
}

/* One line. 1: it is the head; 0: it is not; or an error. */
static int source_take_line(struct desk_shared *shared, struct desk_source *source,
                            struct weir__span line, weir_error *err)
{
    struct desk_wrong wrong = {0};
    struct desk_arrival *head = &source->head;
    enum desk_reason reason = DESK_REASON_BINARY;
    char why[96];
    bool whole = false, readable = false;
    WEIR__CHECK(source->format);
    bool trace = source->format->family == DESK_TRACE;
    if (source->input.has_nul && !trace && memchr(line.data, 0, line.len)) {
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
        return desk_source_note(shared, source, number, line, reason, &wrong, err);
    }
    shared->seen |= source->fields.present;
    if (source->format->family == DESK_JSON && !shared->facts.names[0])
        desk_json_names(line, shared->facts.names, sizeof shared->facts.names);
    switch (desk_select(&shared->selection, source->format, &source->fields, source->room,
                        shared->taken ? NULL : &shared->hints, head, &reason, why)) {
    case DESK_TAKEN:
        shared->taken = true;
        head->line = source->input.line;
        head->file = source->number;
        source->head_whole = whole && source->format->family != DESK_TRACE;
        return 1;
    case DESK_WIDE:
        shared->facts.wide++;
        shared->facts.filtered++;
        return 0;
    case DESK_FILTERED:
        shared->facts.filtered++;
        return 0;
    case DESK_KEYLESS:
        shared->taken = true;
        shared->facts.keyless++;
        return 0;
    case DESK_REFUSED:
        break;
    }
    wrong = (struct desk_wrong){.why = why, .at = 0};
    return desk_source_note(shared, source, source->input.line, line, reason, &wrong, err);
}

/* A header is not a line of the log. One of a trace must be right. */
static int source_pass_header(struct desk_shared *shared, struct desk_source *source,
                              struct weir__span line, weir_error *err)
{
    struct desk_wrong wrong;
    source->header = false;
    if (source->format->family != DESK_TRACE || desk_trace_header(source->format, line, &wrong))
        return 0;
    shared->facts.lines++;
    source->facts->lines++;
    return desk_source_note(shared, source, source->input.line, line, DESK_REASON_SHAPE, &wrong,
                            err);
}

static int source_note_long(struct desk_shared *shared, struct desk_source *source,
                            struct weir__span line, weir_error *err)
{
    struct desk_wrong wrong = {"at most 196608 bytes", 0, "line", line};
    bool trace = source->format && source->format->family == DESK_TRACE;
    return desk_source_note(shared, source, source->input.line, line, DESK_REASON_LONG,
                            trace ? &wrong : NULL, err);
}

int desk_source_next(struct desk_shared *shared, struct desk_source *source, weir_error *err)
{
    struct weir__span line;
    for (;;) {
        bool breaks = source->format &&
                      (source->format->family == DESK_CSV || source->format->family == DESK_TRACE);
        int got = desk_input_line(&source->input, breaks, &line, err);
        if (got < 0)
            return got;
        if (got == DESK_GOT_NOTHING)
            return DESK_IDLE;
        if (got == DESK_GOT_END) {
            source->ended = true;
            desk_source_close(source);
            return DESK_END;
        }
        if (line.len > 0 && !source->format && got == DESK_GOT_LINE) {
            size_t rest = source->input.to - (size_t)(line.data - source->input.data);
            int code =
                source_find_format(shared, source, (struct weir__span){line.data, rest}, err);
            if (code)
                return code;
        }
        if (line.len == 0)
            continue;
        if (source->header && got == DESK_GOT_LINE) {
            int code = source_pass_header(shared, source, line, err);
            if (code)
                return code;
            continue;
        }
        shared->facts.lines++;
        shared->facts.bytes += (int64_t)line.len + 1;
        source->facts->lines++;
        int code = 0;
        if (got == DESK_GOT_LONG)
            code = source_note_long(shared, source, line, err);
        else
            code = source_take_line(shared, source, line, err);
        if (code) {
            source->has_head = code > 0;
            return code;
        }
    }
}
