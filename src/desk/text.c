/*
 * Formats of text: see format.h. A field goes on until the literal that follows it in the notation,
 * as a reader of the line would see it: `$remote_user [` ends at the first " [". Between quotes, a
 * quote behind a backslash does not end a field.
 */
#include "desk/format.h"
#include "policy/view.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

/* ---- the notation ---- */

struct text_reader {
    const char *text;
    size_t at;
    const struct desk_wanted *wanted;
    struct desk_format *format;
    uint8_t ranks[DESK_SLOTS]; /* of the name that fills a slot; DESK_NO_SLOT: none does */
    size_t literals;
    weir_error *err;
};

#define TEXT_FAIL(reader, ...)                                                                     \
    weir__fail((reader)->err, WEIR_EINVAL, (int)(reader)->at + 1, __VA_ARGS__)

static bool text_is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The name behind a '$', with or without braces. */
static int text_read_name(struct text_reader *reader, struct weir__span *ret)
{
    const char *start = reader->text + reader->at + 1;
    bool braces = *start == '{';
    start += braces;
    size_t len = 0;
    while (text_is_name(start[len]))
        len++;
    if (len == 0 || (braces && start[len] != '}'))
        return TEXT_FAIL(reader, "column %zu: expected the name of a variable after $",
                         reader->at + 1);
    *ret = (struct weir__span){start, len};
    reader->at = (size_t)(start + len + braces - reader->text);
    return 0;
}

/* A slot is filled by the name that comes first in the table of names. */
static void text_take_slot(struct text_reader *reader, struct desk_step *step,
                           struct desk_place place)
{
    struct desk_format *format = reader->format;
    if (place.slot == DESK_NO_SLOT || reader->ranks[place.slot] <= place.rank)
        return;
    for (size_t i = 0; i < format->step_count; i++) {
        if (format->steps[i].slot == place.slot)
            format->steps[i].slot = DESK_NO_SLOT;
    }
    reader->ranks[place.slot] = place.rank;
    step->slot = place.slot;
    format->has |= UINT64_C(1) << place.slot;
    if (place.slot == DESK_DURATION)
        format->duration_ns = place.unit_ns;
}

static int text_add_step(struct text_reader *reader, struct weir__span name)
{
    struct desk_format *format = reader->format;
    if (format->step_count == DESK_STEPS_MAX)
        return TEXT_FAIL(reader, "a format has at most %d variables", DESK_STEPS_MAX);
    struct desk_step step = {DESK_NO_SLOT, DESK_NO_SLOT, false, 0, 0};
    struct desk_place place = desk_place_of(reader->wanted, name);
    text_take_slot(reader, &step, place);
    step.named = place.named;
    if (place.named != DESK_NO_SLOT)
        format->has |= UINT64_C(1) << place.named;
    format->steps[format->step_count++] = step;
    return 0;
}

/* The literal up to the next '$'; of two variables one would not know where the first ends. */
static int text_add_literal(struct text_reader *reader)
{
    struct desk_format *format = reader->format;
    size_t len = strcspn(reader->text + reader->at, "$");
    if (len == 0 && reader->text[reader->at] == '$' && format->step_count > 0)
        return TEXT_FAIL(reader,
                         "column %zu: nothing stands between two variables, so that nobody can "
                         "tell where the first one ends",
                         reader->at + 1);
    if (len >= DESK_LITERALS_MAX - reader->literals)
        return TEXT_FAIL(reader, "the format is longer than %d bytes", DESK_LITERALS_MAX);
    memcpy(format->literals + reader->literals, reader->text + reader->at, len);
    if (format->step_count == 0) {
        format->head_len = (uint16_t)len;
    } else {
        struct desk_step *step = &format->steps[format->step_count - 1];
        step->until = (uint16_t)reader->literals;
        step->until_len = (uint16_t)len;
        size_t before = step->until;
        step->quoted = len > 0 && reader->text[reader->at] == '"' && before > 0 &&
                       format->literals[before - 1] == '"';
    }
    reader->literals += len;
    reader->at += len;
    return 0;
}

/* A whole directive of nginx: its pieces joined, as nginx joins them. The text, or what stands in
 * room. */
static const char *text_of_directive(const char *text, char room[DESK_LITERALS_MAX])
{
    static const char word[] = "log_format";
    const char *at = text + strspn(text, " \t\n");
    if (strncmp(at, word, sizeof word - 1) || !isspace((unsigned char)at[sizeof word - 1]))
        return text;
    at = strpbrk(at, "'\"");
    size_t len = 0;
    while (at && *at) {
        const char *end = strchr(at + 1, *at);
        size_t piece = end ? (size_t)(end - at - 1) : 0;
        if (!end || piece >= DESK_LITERALS_MAX - len)
            return text;
        memcpy(room + len, at + 1, piece);
        len += piece;
        at = strpbrk(end + 1, "'\"");
    }
    room[len] = 0;
    return len > 0 ? room : text;
}

int desk_text_compile(const char *text, const struct desk_wanted *wanted, struct desk_format *ret,
                      weir_error *err)
{
    char room[DESK_LITERALS_MAX];
    struct text_reader reader = {text_of_directive(text, room), 0, wanted, ret, {0}, 0, err};
    memset(reader.ranks, DESK_NO_SLOT, sizeof reader.ranks);
    ret->family = DESK_TEXT;
    ret->dash_absent = true;
    int code = text_add_literal(&reader);
    while (code == 0 && reader.text[reader.at]) {
        struct weir__span name;
        code = text_read_name(&reader, &name);
        if (code == 0)
            code = text_add_step(&reader, name);
        if (code == 0)
            code = text_add_literal(&reader);
    }
    if (code)
        return code;
    if (!(ret->has >> DESK_TIME & 1))
        return weir__fail(err, WEIR_EINVAL, 1,
                          "the format has no time: expected one of $time_local, $time_iso8601 and "
                          "$msec");
    return 0;
}

/* ---- lines ---- */

/* Whether the byte at p stands behind an odd number of backslashes. */
static bool text_is_escaped(const char *from, const char *p)
{
    size_t n = 0;
    while (p > from && p[-1] == '\\')
        p--, n++;
    return n & 1;
}

/* Where the literal that ends a field begins; NULL: nowhere. */
static inline const char *text_find(const char *at, const char *end, const char *literal,
                                    size_t len, bool escapes)
{
    if ((size_t)(end - at) < len)
        return NULL;
    const char *last = end - len;
    for (const char *p = at; p <= last; p++) {
        p = memchr(p, literal[0], (size_t)(last - p) + 1);
        if (!p)
            return NULL;
        size_t same = 1;
        while (same < len && p[same] == literal[same])
            same++;
        if (same == len && !(escapes && text_is_escaped(at, p)))
            return p;
    }
    return NULL;
}

/* The same for the last literal of a format behind which anything may follow. */
static const char *text_find_last(const char *at, const char *end, const char *literal, size_t len,
                                  bool escapes)
{
    for (;;) {
        const char *p = text_find(at, end, literal, len, escapes);
        if (!p || p + len == end || p[len] == ' ')
            return p;
        at = p + 1;
    }
}

/* Of a line of HAProxy that syslog wrote: where the client's address begins. It is the word before
 * "[06/Feb/2009:". */
static const char *text_behind_syslog(const char *at, const char *end)
{
    for (const char *p = at; (p = memchr(p, '[', (size_t)(end - p))); p++) {
        if (end - p < 14 || p[3] != '/' || p[7] != '/' || p[12] != ':')
            continue;
        const char *space = p > at ? memrchr(at, ' ', (size_t)(p - 1 - at)) : NULL;
        return space ? space + 1 : at;
    }
    return at;
}

/* The end of the last field of a format. */
static const char *text_end_of_last(const struct desk_format *format, const struct desk_step *step,
                                    const char *at, const char *end, bool escapes)
{
    const char *literal = format->literals + step->until;
    size_t len = step->until_len;
    if (len == 0 && format->more) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        return blank ? blank : end;
    }
    if (len == 0)
        return end;
    const char *found = format->more ? text_find_last(at, end, literal, len, escapes)
                                     : text_find(at, end, literal, len, escapes);
    while (found && !format->more && found + len != end)
        found = text_find(found + 1, end, literal, len, escapes);
    return found || !format->open_end ? found : end;
}

/* `escapes`: a backslash means something in quotes. */
static bool text_match(const struct desk_format *format, struct weir__span line, bool escapes,
                       struct desk_fields *fields, struct desk_wrong *ret)
{
    const char *at = line.data, *end = line.data + line.len;
    if (format->syslog)
        at = text_behind_syslog(at, end);
    if ((size_t)(end - at) < format->head_len || memcmp(at, format->literals, format->head_len)) {
        *ret = (struct desk_wrong){.why = "the beginning of the line is another", .at = 0};
        return false;
    }
    at += format->head_len;
    for (size_t i = 0; i < format->step_count; i++) {
        const struct desk_step *step = &format->steps[i];
        bool last = i + 1 == format->step_count;
        const char *stop = last ? text_end_of_last(format, step, at, end, escapes && step->quoted)
                                : text_find(at, end, format->literals + step->until,
                                            step->until_len, escapes && step->quoted);
        if (!stop) {
            *ret = (struct desk_wrong){.why = "a field is missing", .at = (size_t)(at - line.data)};
            return false;
        }
        if (step->slot != DESK_NO_SLOT)
            desk_fields_set(fields, step->slot, at, stop);
        if (step->named != DESK_NO_SLOT)
            desk_fields_set(fields, step->named, at, stop);
        if (!last)
            at = stop + step->until_len;
    }
    return true;
}

/* HAProxy writes the port behind an address of IPv6 without brackets: 2001:db8::5:41234. */
static void text_drop_port(struct desk_fields *fields)
{
    struct weir__span *ip = &fields->at[DESK_IP];
    struct weir__address address;
    const char *colon = desk_fields_has(fields, DESK_IP) ? memrchr(ip->data, ':', ip->len) : NULL;
    size_t len = colon ? (size_t)(colon - ip->data) : 0;
    if (colon && memchr(ip->data, ':', len) && weir__address_read(ip->data, len, &address))
        ip->len = len;
}

bool desk_text_read(const struct desk_format *format, struct weir__span line,
                    struct desk_fields *fields, struct desk_wrong *ret)
{
    fields->escape = DESK_ESCAPE_BACKSLASH;
    bool good = text_match(format, line, true, fields, ret);
    if (!good) { /* a program that does not escape wrote a backslash before a quote */
        struct desk_wrong again;
        fields->present = 0;
        good = memchr(line.data, '\\', line.len) && text_match(format, line, false, fields, &again);
    }
    if (good && format->syslog)
        text_drop_port(fields);
    return good;
}
