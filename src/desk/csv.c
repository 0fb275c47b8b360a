/*
 * CSV: see format.h. The header names the columns; commas, semicolons or tabs separate them. A
 * field that has one of these, a quote or a line break is quoted as in RFC 4180.
 */
#include "desk/desk.h"
#include "desk/format.h"

#include <string.h>

/* ---- a field ---- */

static bool csv_fail(struct desk_wrong *ret, const char *what, const struct desk_csv_field *field,
                     const char *expected)
{
    *ret = (struct desk_wrong){expected, field->at, what, field->value};
    return false;
}

static bool csv_quoted(struct weir__span line, char comma, size_t *at, struct desk_csv_field *ret,
                       struct desk_wrong *ret_wrong)
{
    const char *end = line.data + line.len, *start = line.data + *at + 1;
    for (const char *p = start;; p += 2) {
        p = p < end ? memchr(p, '"', (size_t)(end - p)) : NULL;
        ret->value = (struct weir__span){start, (size_t)((p ? p : end) - start)};
        if (!p)
            return csv_fail(ret_wrong, "field", ret, "a closing quote before the end of the input");
        *at = (size_t)(p + 1 - line.data);
        if (p + 1 == end || p[1] == comma)
            return true;
        if (p[1] != '"')
            return csv_fail(ret_wrong, "quoted field", ret,
                            "a comma or the end of the line after its closing quote (write \"\" "
                            "for a quote inside)");
        ret->doubled = true;
    }
}

bool desk_csv_field(struct weir__span line, char comma, size_t *at, struct desk_csv_field *ret,
                    struct desk_wrong *ret_wrong)
{
    *ret = (struct desk_csv_field){.at = *at};
    if (*at < line.len && line.data[*at] == '"')
        return csv_quoted(line, comma, at, ret, ret_wrong);
    const char *p = line.data + *at;
    size_t len = 0, most = line.len - *at;
    while (len < most && p[len] != comma && p[len] != '"' && p[len] != '\r' && p[len] != '\n')
        len++;
    ret->value = (struct weir__span){p, len};
    *at += len;
    return len == most || p[len] == comma ||
           csv_fail(ret_wrong, "field", ret,
                    "quotes around a field that holds a quote or a line break, like \"a\"\"b\"");
}

/* ---- the header ---- */

/* What stands between the columns: what the header has most of. */
static char csv_comma_of(struct weir__span header)
{
    static const char candidates[] = ",;\t";
    size_t most = 0;
    char comma = ',';
    for (const char *c = candidates; *c; c++) {
        size_t n = 0;
        for (size_t i = 0; i < header.len; i++)
            n += header.data[i] == *c;
        if (n > most) {
            most = n;
            comma = *c;
        }
    }
    return comma;
}

static void csv_add_column(struct desk_format *format, const struct desk_wanted *wanted,
                           struct weir__span name, uint8_t ranks[DESK_SLOTS])
{
    struct desk_place place = desk_place_of(wanted, name);
    size_t column = format->column_count++;
    format->columns[column].slot = format->columns[column].named = DESK_NO_SLOT;
    if (place.slot != DESK_NO_SLOT && place.rank < ranks[place.slot]) {
        for (size_t i = 0; i < column; i++) {
            if (format->columns[i].slot == place.slot)
                format->columns[i].slot = DESK_NO_SLOT;
        }
        ranks[place.slot] = place.rank;
        format->columns[column].slot = place.slot;
        format->has |= UINT64_C(1) << place.slot;
        if (place.slot == DESK_DURATION)
            format->duration_ns = place.unit_ns;
    }
    format->columns[column].named = place.named;
    if (place.named != DESK_NO_SLOT)
        format->has |= UINT64_C(1) << place.named;
}

bool desk_csv_compile(struct weir__span header, const struct desk_wanted *wanted,
                      struct desk_format *ret)
{
    uint8_t ranks[DESK_SLOTS];
    memset(ranks, DESK_NO_SLOT, sizeof ranks);
    ret->family = DESK_CSV;
    ret->comma = csv_comma_of(header);
    ret->skip_header = true;
    for (size_t at = 0;; at++) {
        struct desk_csv_field field;
        struct desk_wrong wrong;
        if (ret->column_count == DESK_COLUMNS_MAX ||
            !desk_csv_field(header, ret->comma, &at, &field, &wrong))
            return false;
        struct weir__span name = field.value;
        while (name.len > 0 && name.data[0] == ' ')
            name.data++, name.len--;
        csv_add_column(ret, wanted, name, ranks);
        if (at == header.len)
            break;
    }
    ret->column_least = ret->column_count;
    ret->column_most = true;
    return ret->column_count > 1 && ret->has >> DESK_TIME & 1;
}

/* ---- lines ---- */

bool desk_csv_read(const struct desk_format *format, struct weir__span line,
                   struct desk_fields *fields, struct desk_wrong *ret)
{
    size_t column = 0;
    fields->escape = DESK_ESCAPE_QUOTES;
    for (size_t at = 0;; at++, column++) {
        struct desk_csv_field field;
        if (column == format->column_count) {
            *ret = (struct desk_wrong){.why = "more fields than the format has", .at = at};
            return !format->column_most;
        }
        if (!desk_csv_field(line, format->comma, &at, &field, ret))
            return false;
        const uint8_t slots[] = {format->columns[column].slot, format->columns[column].named};
        for (size_t i = 0; i < WEIR__COUNT(slots); i++) {
            if (slots[i] == DESK_NO_SLOT)
                continue;
            desk_fields_set(fields, slots[i], field.value.data, field.value.data + field.value.len);
            fields->escaped |= (uint64_t)field.doubled << slots[i];
        }
        if (at == line.len)
            break;
    }
    *ret = (struct desk_wrong){.why = "fewer fields than the format has", .at = line.len};
    return column + 1 >= format->column_least;
}

void desk_put_csv(struct weir__buffer *buffer, const char *text, size_t len)
{
    bool plain = true;
    for (size_t i = 0; i < len && plain; i++)
        plain = text[i] != ',' && text[i] != '"' && text[i] != '\n' && text[i] != '\r';
    if (plain) {
        weir__put(buffer, text, len);
        return;
    }
    weir__put(buffer, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            weir__put(buffer, "\"", 1);
        weir__put(buffer, text + i, 1);
    }
    weir__put(buffer, "\"", 1);
}
