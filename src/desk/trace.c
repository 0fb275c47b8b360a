/*
 * The trace: see format.h. Lines `time,key[,cost]`, or where requests have classes
 * `time,key[,cost[,class]]`: plain input for scripts. The time is in seconds with up to six
 * decimals. The first line may name the columns.
 *
 * Whatever is in its place is right or wrong here: a line that is read has a time, a key and a cost
 * within their bounds.
 */
#include "desk/format.h"

#include <string.h>

#define TRACE_COLUMNS 4 /* time, key, cost, class */

static bool trace_has_classes(const struct desk_format *format)
{
    return format->columns[3].named != DESK_NO_SLOT;
}

static bool trace_fail(struct desk_wrong *ret, const char *what, struct desk_csv_field field,
                       const char *expected)
{
    *ret = (struct desk_wrong){expected, field.at, what, field.value};
    return false;
}

/* ---- the header ---- */

static bool trace_is_header(struct weir__span line)
{
    struct desk_csv_field first;
    struct desk_wrong wrong;
    size_t at = 0;
    return desk_csv_field(line, ',', &at, &first, &wrong) &&
           weir__span_is_word(first.value, "time");
}

bool desk_trace_header(const struct desk_format *format, struct weir__span line,
                       struct desk_wrong *ret)
{
    static const char *const names[TRACE_COLUMNS] = {"time", "key", "cost", "class"};
    size_t most = trace_has_classes(format) ? 4 : 3, n = 0;
    struct desk_csv_field first = {0};
    for (size_t at = 0;; at++, n++) {
        struct desk_csv_field field;
        if (!desk_csv_field(line, ',', &at, &field, ret))
            return false;
        first = n == 0 ? field : first;
        if (n == most || !weir__span_is_word(field.value, names[n]))
            break;
        if (at == line.len && n > 0)
            return true;
        if (at == line.len)
            break;
    }
    return trace_fail(ret, "header", first,
                      most == 4 ? "time,key,cost,class"
                                : "time,key or time,key,cost; a class needs --share");
}

void desk_trace_make(struct weir__span first, const struct desk_wanted *wanted,
                     struct desk_format *ret)
{
    static const uint8_t slots[TRACE_COLUMNS] = {DESK_TIME, DESK_KEY, DESK_COST, DESK_NO_SLOT};
    memset(ret, 0, sizeof *ret);
    ret->name = "trace";
    ret->origin = desk_trace_make;
    ret->family = DESK_TRACE;
    ret->comma = ',';
    ret->time_unit_ns = 1000000000;
    ret->column_count = TRACE_COLUMNS;
    for (size_t i = 0; i < TRACE_COLUMNS; i++) {
        ret->columns[i].slot = slots[i];
        ret->columns[i].named = DESK_NO_SLOT;
        if (slots[i] != DESK_NO_SLOT)
            ret->has |= UINT64_C(1) << slots[i];
    }
    for (size_t i = 0; i < wanted->count; i++) {
        if (strcmp(wanted->names[i], "class"))
            continue;
        ret->columns[3].named = (uint8_t)(DESK_NAMED + i);
        ret->has |= UINT64_C(1) << ret->columns[3].named;
    }
    ret->skip_header = trace_is_header(first);
}

/* ---- values ---- */

/* Seconds that are less than 2^53 microseconds. */
static bool trace_is_time(struct weir__span text)
{
    int64_t number = 0;
    int decimals = -1;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '.' && decimals < 0 && i > 0) {
            decimals = 0;
            continue;
        }
        if (c < '0' || c > '9' || decimals == 6 || number > WEIR__EXACT_MAX)
            return false;
        number = number * 10 + (c - '0');
        decimals += decimals >= 0;
    }
    for (int i = decimals < 0 ? 0 : decimals; i < 6 && number < WEIR__EXACT_MAX; i++)
        number *= 10;
    return text.len > 0 && decimals != 0 && number < WEIR__EXACT_MAX;
}

/* Bytes of a field whose doubled quotes are one each. */
static size_t trace_length(const struct desk_csv_field *field)
{
    size_t quotes = 0;
    for (size_t i = 0; field->doubled && i < field->value.len; i++)
        quotes += field->value.data[i] == '"';
    return field->value.len - quotes / 2;
}

/* ---- lines ---- */

bool desk_trace_is_like(struct weir__span line)
{
    struct desk_csv_field first;
    struct desk_wrong wrong;
    size_t at = 0;
    return desk_csv_field(line, ',', &at, &first, &wrong) && at < line.len &&
           trace_is_time(first.value);
}

static bool trace_check(const struct desk_format *format, size_t column,
                        const struct desk_csv_field *field, bool last, struct desk_wrong *ret)
{
    struct weir__span value = field->value;
    int64_t cost;
    switch (column) {
    case 0:
        if (!trace_is_time(value))
            return trace_fail(ret, "time", *field,
                              "seconds with up to six decimals, from 0 to 9007199254.740991, like "
                              "1700000000.25");
        return !last || trace_fail(ret, "line", *field, "a comma and a key after the time");
    case 1:
        if (value.len == 0)
            return trace_fail(ret, "key", *field, "1 to 65536 bytes");
        return trace_length(field) <= WEIR_KEY_MAX ||
               trace_fail(ret, "key", *field, "1 to 65536 bytes; this one is longer");
    case 2:
        if (!weir__span_whole(value, 0, WEIR_COST_MAX, &cost))
            return trace_fail(ret, "cost", *field,
                              "a whole number from 0 to 1000000000000 (without a third field the "
                              "cost is 1)");
        return last || trace_has_classes(format) ||
               trace_fail(ret, "cost", *field,
                          "the end of the line after it: time,key[,cost]; a class needs --share");
    default:
        if (!last)
            return trace_fail(ret, "class", *field,
                              "the end of the line after it: time,key[,cost[,class]]");
        return !field->doubled || trace_fail(ret, "class", *field, "a name without quotes in it");
    }
}

bool desk_trace_read(const struct desk_format *format, struct weir__span line,
                     struct desk_fields *fields, struct desk_wrong *ret)
{
    fields->escape = DESK_ESCAPE_QUOTES;
    for (size_t at = 0, column = 0;; at++, column++) {
        struct desk_csv_field field;
        if (!desk_csv_field(line, ',', &at, &field, ret))
            return false;
        bool last = at == line.len;
        if (!trace_check(format, column, &field, last, ret))
            return false;
        uint8_t slot = column < 3 ? format->columns[column].slot : format->columns[column].named;
        desk_fields_set(fields, slot, field.value.data, field.value.data + field.value.len);
        fields->escaped |= (uint64_t)field.doubled << slot;
        if (last)
            return true;
    }
}
