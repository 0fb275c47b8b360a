/*
 * CSV: see format.h. The header names the columns; commas, semicolons or tabs separate them. A
 * field that has one of these, a quote or a line break is quoted as in RFC 4180.
 */
#include "desk/format.h"

#include <string.h>

/* The next field; *at stands at it, and then at what ends it. False: a quote is missing. */
static bool csv_field(struct weir__span line, char comma, size_t *at, struct weir__span *ret,
                      bool *ret_doubled)
{
    const char *p = line.data + *at, *end = line.data + line.len;
    *ret_doubled = false;
    if (p < end && *p == '"') {
        const char *start = ++p;
        for (;; p += 2) {
            p = p < end ? memchr(p, '"', (size_t)(end - p)) : NULL;
            if (!p)
                return false;
            if (p + 1 == end || p[1] != '"')
                break;
            *ret_doubled = true;
        }
        *ret = (struct weir__span){start, (size_t)(p - start)};
        *at = (size_t)(p + 1 - line.data);
        return *at == line.len || line.data[*at] == comma;
    }
    const char *stop = p < end ? memchr(p, comma, (size_t)(end - p)) : NULL;
    stop = stop ? stop : end;
    *ret = (struct weir__span){p, (size_t)(stop - p)};
    *at = (size_t)(stop - line.data);
    return !memchr(p, '"', ret->len);
}

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
        struct weir__span name;
        bool doubled;
        if (ret->column_count == DESK_COLUMNS_MAX ||
            !csv_field(header, ret->comma, &at, &name, &doubled))
            return false;
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

bool desk_csv_read(const struct desk_format *format, struct weir__span line,
                   struct desk_fields *fields, struct desk_wrong *ret)
{
    size_t column = 0;
    fields->escape = DESK_ESCAPE_QUOTES;
    for (size_t at = 0;; at++, column++) {
        struct weir__span value;
        bool doubled;
        size_t start = at;
        if (column == format->column_count) {
            *ret = (struct desk_wrong){"more fields than the format has", at};
            return !format->column_most;
        }
        if (!csv_field(line, format->comma, &at, &value, &doubled)) {
            *ret = (struct desk_wrong){
                "quotes are wrong: a field with a quote is written \"a\"\"b\"", start};
            return false;
        }
        const uint8_t slots[] = {format->columns[column].slot, format->columns[column].named};
        for (size_t i = 0; i < WEIR__COUNT(slots); i++) {
            if (slots[i] == DESK_NO_SLOT)
                continue;
            desk_fields_set(fields, slots[i], value.data, value.data + value.len);
            fields->escaped |= (uint64_t)doubled << slots[i];
        }
        if (at == line.len)
            break;
    }
    *ret = (struct desk_wrong){"fewer fields than the format has", line.len};
    return column + 1 >= format->column_least;
}
