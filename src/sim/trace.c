/* Reading a trace's lines: see trace.h. */
#include "sim/trace.h"

#include "base/buffer.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* A field as it stands in the input, its quotes taken off. */
struct field {
    const char *text;
    size_t len;
    bool doubled; /* holds doubled quotes */
    int64_t line;
    size_t column;
};

#define SHOWN_MAX 40

static int complain(weir_error *err, const struct field *field, const char *what,
                    const char *expected)
{
    char shown[SHOWN_MAX + 8];
    struct weir__buffer buffer = weir__buffer_over(shown, sizeof shown);
    for (size_t i = 0; i < field->len && i < SHOWN_MAX; i++) {
        char c = field->text[i];
        weir__put(&buffer, isprint((unsigned char)c) ? &c : "?", 1);
    }
    if (field->len > SHOWN_MAX)
        weir__put_text(&buffer, "…");
    return weir__fail(err, WEIR_EINVAL, (int)weir__min((int64_t)field->column, INT32_MAX),
                      "line %lld, column %zu: %s \"%s\": expected %s", (long long)field->line,
                      field->column, what, shown, expected);
}

/* ---- lines and fields ---- */

/* Length of the line end at `at`: LF, CRLF, or a CR that ends the input. */
static inline size_t line_end(const struct weir__trace *trace, size_t at)
{
    if (at == trace->size)
        return 0;
    if (trace->data[at] == '\n')
        return 1;
    if (trace->data[at] != '\r')
        return 0;
    if (at + 1 == trace->size)
        return 1;
    return trace->data[at + 1] == '\n' ? 2 : 0;
}

static inline bool at_line_end(const struct weir__trace *trace, size_t at)
{
    return at == trace->size || line_end(trace, at) > 0;
}

static void next_line(struct weir__trace_reader *reader)
{
    reader->at += line_end(reader->trace, reader->at);
    reader->line++;
    reader->line_start = reader->at;
}

/* A quoted field; the reader stands on its opening quote. */
static int read_quoted(struct weir__trace_reader *reader, struct field *ret, weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    size_t at = reader->at + 1;
    ret->text = trace->data + at;
    for (;; at++) {
        const char *quote =
            at < trace->size ? memchr(trace->data + at, '"', trace->size - at) : NULL;
        if (!quote) {
            ret->len = trace->size - reader->at - 1;
            return complain(err, ret, "field", "a closing quote before the end of the input");
        }
        at = (size_t)(quote - trace->data) + 1;
        if (at == trace->size || trace->data[at] != '"')
            break;
        ret->doubled = true;
    }
    ret->len = at - 1 - (reader->at + 1);
    for (const char *p = ret->text; (p = memchr(p, '\n', ret->len - (size_t)(p - ret->text)));
         p++) {
        reader->line++;
        reader->line_start = (size_t)(p + 1 - trace->data);
    }
    reader->at = at;
    return 0;
}

/* The next field; what follows it must be a comma or the line's end. */
static int read_field(struct weir__trace_reader *reader, struct field *ret, weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    *ret = (struct field){.line = reader->line, .column = reader->at - reader->line_start + 1};
    if (reader->at < trace->size && trace->data[reader->at] == '"') {
        int code = read_quoted(reader, ret, err);
        if (code)
            return code;
        if (!at_line_end(trace, reader->at) && trace->data[reader->at] != ',')
            return complain(err, ret, "quoted field",
                            "a comma or the line's end after its closing quote (write \"\" for a "
                            "quote inside)");
        return 0;
    }
    size_t at = reader->at;
    while (at < trace->size && trace->data[at] != ',' && trace->data[at] != '\n' &&
           trace->data[at] != '\r' && trace->data[at] != '"')
        at++;
    ret->text = trace->data + reader->at;
    ret->len = at - reader->at;
    reader->at = at;
    if (!at_line_end(trace, at) && trace->data[at] != ',')
        return complain(
            err, ret, "field",
            "quotes around a field that holds a quote or a line break, like \"a\"\"b\"");
    return 0;
}

/* ---- values ---- */

static int read_time(const struct field *field, int64_t *ret, weir_error *err)
{
    static const char expected[] =
        "seconds with up to six decimals, from 0 to 9007199254.740991, like 1700000000.25";
    int64_t number = 0;
    int decimals = -1;
    for (size_t i = 0; i < field->len; i++) {
        char c = field->text[i];
        if (c == '.' && decimals < 0 && i > 0) {
            decimals = 0;
            continue;
        }
        if (c < '0' || c > '9' || decimals == 6 || number > WEIR__EXACT_MAX)
            return complain(err, field, "time", expected);
        number = number * 10 + (c - '0');
        decimals += decimals >= 0;
    }
    if (field->len == 0 || decimals == 0 || number > WEIR__EXACT_MAX)
        return complain(err, field, "time", expected);
    for (int i = decimals < 0 ? 0 : decimals; i < 6; i++) {
        number *= 10;
        if (number >= WEIR__EXACT_MAX)
            return complain(err, field, "time", expected);
    }
    if (number >= WEIR__EXACT_MAX)
        return complain(err, field, "time", expected);
    *ret = number;
    return 0;
}

static int read_cost(const struct field *field, int64_t *ret, weir_error *err)
{
    int64_t number = 0;
    bool good = field->len > 0;
    for (size_t i = 0; i < field->len && good; i++) {
        char c = field->text[i];
        good = c >= '0' && c <= '9' && number <= WEIR_COST_MAX;
        number = good ? number * 10 + (c - '0') : number;
    }
    if (!good || number > WEIR_COST_MAX)
        return complain(err, field, "cost",
                        "a whole number from 0 to 1000000000000 (without the comma it is 1)");
    *ret = number;
    return 0;
}

/* The key, doubled quotes made one. */
static int read_key(struct weir__trace_reader *reader, const struct field *field,
                    struct weir__arrival *ret, weir_error *err)
{
    ret->key = field->text;
    ret->key_len = field->len;
    if (field->doubled) {
        size_t len = 0, at = 0;
        while (at < field->len && len < WEIR_KEY_MAX) {
            reader->unquoted[len++] = field->text[at];
            at += field->text[at] == '"' ? 2 : 1;
        }
        ret->key = reader->unquoted;
        ret->key_len = at < field->len ? WEIR_KEY_MAX + 1 : len;
    }
    if (ret->key_len == 0)
        return complain(err, field, "key", "1 to 65536 bytes");
    if (ret->key_len > WEIR_KEY_MAX)
        return complain(err, field, "key", "1 to 65536 bytes; this one is longer");
    return 0;
}

/* ---- requests ---- */

static bool field_is(const struct field *field, const char *text)
{
    return field->len == strlen(text) && !strncasecmp(field->text, text, field->len);
}

/* Takes the header line if the trace begins with one: its first field is the word "time". */
static int skip_header(struct weir__trace_reader *reader, weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    size_t from = reader->at;
    int64_t line = reader->line;
    struct field fields[3];
    size_t n = 0;
    int code = read_field(reader, &fields[n++], err);
    if (code || !field_is(&fields[0], "time")) {
        weir__trace_seek(reader, from);
        reader->line = line;
        return 0;
    }
    while (code == 0 && n < 3 && reader->at < trace->size && trace->data[reader->at] == ',') {
        reader->at++;
        code = read_field(reader, &fields[n++], err);
    }
    if (code)
        return code;
    if (n < 2 || !field_is(&fields[1], "key") || (n == 3 && !field_is(&fields[2], "cost")) ||
        !at_line_end(trace, reader->at))
        return complain(err, &fields[0], "header", "time,key or time,key,cost");
    next_line(reader);
    return 0;
}

static int start(struct weir__trace_reader *reader, weir_error *err)
{
    static const char mark[] = "\xef\xbb\xbf";
    reader->started = true;
    if (reader->trace->size >= 3 && !memcmp(reader->trace->data, mark, 3))
        reader->at = reader->line_start = 3;
    while (line_end(reader->trace, reader->at) > 0)
        next_line(reader);
    return skip_header(reader, err);
}

void weir__trace_begin(struct weir__trace_reader *reader, const struct weir__trace *trace)
{
    reader->trace = trace;
    reader->at = reader->line_start = 0;
    reader->line = 1;
    reader->started = false;
}

void weir__trace_seek(struct weir__trace_reader *reader, size_t offset)
{
    reader->at = reader->line_start = offset;
    reader->started = true;
}

static int read_request(struct weir__trace_reader *reader, struct weir__arrival *ret,
                        weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    struct field field;
    int code = read_field(reader, &field, err);
    if (code == 0)
        code = read_time(&field, &ret->time_us, err);
    if (code)
        return code;
    if (at_line_end(trace, reader->at))
        return complain(err, &field, "line", "a comma and a key behind the time");
    reader->at++;
    code = read_field(reader, &field, err);
    if (code == 0)
        code = read_key(reader, &field, ret, err);
    if (code || at_line_end(trace, reader->at))
        return code;
    reader->at++;
    code = read_field(reader, &field, err);
    if (code == 0)
        code = read_cost(&field, &ret->cost, err);
    if (code == 0 && !at_line_end(trace, reader->at))
        code = complain(err, &field, "cost", "the line's end behind it: time,key[,cost]");
    return code;
}

int weir__trace_next(struct weir__trace_reader *reader, struct weir__arrival *ret, weir_error *err)
{
    int code = reader->started ? 0 : start(reader, err);
    if (code)
        return code;
    while (line_end(reader->trace, reader->at) > 0)
        next_line(reader);
    if (reader->at == reader->trace->size)
        return 0;
    ret->offset = reader->at;
    ret->cost = 1;
    code = read_request(reader, ret, err);
    if (code)
        return code;
    next_line(reader);
    return 1;
}

int weir__trace_check(const struct weir__trace *trace, struct weir__trace_facts *ret,
                      weir_error *err)
{
    struct weir__trace_reader reader;
    struct weir__arrival arrival = {0};
    struct weir__trace_facts facts = {0, INT64_MAX, 0};
    int code;
    weir__trace_begin(&reader, trace);
    while ((code = weir__trace_next(&reader, &arrival, err)) > 0) {
        facts.requests++;
        facts.first_us = weir__min(facts.first_us, arrival.time_us);
        facts.last_us = weir__max(facts.last_us, arrival.time_us);
    }
    if (code == 0)
        *ret = facts;
    return code;
}
