/*
 * Formats of logs. A format is compiled for what is wanted of a line; reading a line fills the
 * fields with parts of the line, and copies nothing.
 *
 * There are four families. Text: what nginx's log_format says; all formats of text are such texts
 * in one table (formats.c). JSON: members by their names. CSV: columns by their names. The trace:
 * CSV that says exactly what is meant (trace.c).
 */
#ifndef WEIR_DESK_FORMAT_H
#define WEIR_DESK_FORMAT_H

#include "desk/fields.h"
#include "desk/times.h"

#define DESK_STEPS_MAX 64
#define DESK_LITERALS_MAX 1024
#define DESK_COLUMNS_MAX 256
#define DESK_MEMBERS 512 /* places in the table of names, a power of two; it is never full */
#define DESK_MEMBER_NAMES 8192

enum desk_family { DESK_TEXT, DESK_JSON, DESK_CSV, DESK_TRACE };

/* A field of text, and the literal that ends it. */
struct desk_step {
    uint8_t slot, named;
    bool quoted; /* stands between quotes: a quote behind a backslash does not end it */
    uint16_t until, until_len; /* in literals */
};

struct desk_member {
    uint32_t name, name_len; /* in names; name_len 0: an empty place */
    uint16_t parent;         /* the place of the member that it is in, + 1; 0: none */
    uint8_t slot, named, rank;
    bool inner; /* has members that are wanted */
};

struct desk_format {
    const char *name;
    const void *origin; /* what it was made from: formats of one origin are the same but for CSV */
    enum desk_family family;
    uint64_t has;         /* a bit for each slot that lines may have */
    int64_t duration_ns;  /* the unit of durations */
    int64_t time_unit_ns; /* of times that are plain numbers; 0: told by the first */
    bool dash_absent;     /* "-" stands for nothing */
    bool open_names;      /* a line may have any name: JSON */
    /* text */
    bool more;         /* anything may follow behind a blank */
    bool syslog;       /* a prefix may stand before the address: HAProxy */
    bool open_end;     /* the last quote may be missing: the line was cut */
    uint16_t head_len; /* of the literal at the start */
    size_t step_count;
    struct desk_step steps[DESK_STEPS_MAX];
    char literals[DESK_LITERALS_MAX];
    /* JSON */
    struct desk_member members[DESK_MEMBERS];
    size_t member_count;
    char names[DESK_MEMBER_NAMES];
    size_t names_used;
    /* CSV, the trace */
    char comma;
    bool skip_header;
    size_t column_least; /* fewer are wrong; more than column_count too if column_most */
    bool column_most;
    size_t column_count;
    struct {
        uint8_t slot, named;
    } columns[DESK_COLUMNS_MAX];
};

/* What is wrong with a line. */
struct desk_wrong {
    const char *why;
    size_t at;               /* in the line */
    const char *what;        /* "time": what is invalid; then `why` is what was expected, … */
    struct weir__span value; /* … and this was found */
};

/* ---- compiling ---- */

/* Text in nginx's notation; also a whole `log_format NAME '…' '…';`. */
int desk_text_compile(const char *text, const struct desk_wanted *wanted, struct desk_format *ret,
                      weir_error *err);
int desk_json_compile(const struct desk_wanted *wanted, struct desk_format *ret, weir_error *err);
/* Of a header. False: it has no time, or too many columns. */
bool desk_csv_compile(struct weir__span header, const struct desk_wanted *wanted,
                      struct desk_format *ret);

/* Of the first line, which may be a header. */
void desk_trace_make(struct weir__span first, const struct desk_wanted *wanted,
                     struct desk_format *ret);

/* Whether both, made for the same that is wanted, read lines in the same way. */
bool desk_format_same(const struct desk_format *a, const struct desk_format *b);

/* ---- reading ---- */

/* False: *ret says what is wrong. */
bool desk_text_read(const struct desk_format *format, struct weir__span line,
                    struct desk_fields *fields, struct desk_wrong *ret);
/* The names of the members of a line, as many as fit: "ts, client.ip". */
void desk_json_names(struct weir__span line, char *ret, size_t size);
bool desk_json_read(const struct desk_format *format, struct weir__span line,
                    struct desk_fields *fields, struct desk_wrong *ret);
bool desk_csv_read(const struct desk_format *format, struct weir__span line,
                   struct desk_fields *fields, struct desk_wrong *ret);

bool desk_trace_read(const struct desk_format *format, struct weir__span line,
                     struct desk_fields *fields, struct desk_wrong *ret);
/* Whether a line was meant as one of a trace: it begins with a time. */
bool desk_trace_is_like(struct weir__span line);
/* The first line, if it is a header. */
bool desk_trace_header(const struct desk_format *format, struct weir__span line,
                       struct desk_wrong *ret);

/* A field of CSV, without its quotes. */
struct desk_csv_field {
    struct weir__span value;
    size_t at;    /* where it begins, with its quote */
    bool doubled; /* has doubled quotes */
};

/* The next field; *at stands at it, and then at the comma or the end behind it. */
bool desk_csv_field(struct weir__span line, char comma, size_t *at, struct desk_csv_field *ret,
                    struct desk_wrong *ret_wrong);

static inline bool desk_format_read(const struct desk_format *format, struct weir__span line,
                                    struct desk_fields *fields, struct desk_wrong *ret)
{
    fields->present = fields->escaped = 0;
    switch (format->family) {
    case DESK_TEXT:
        return desk_text_read(format, line, fields, ret);
    case DESK_JSON:
        return desk_json_read(format, line, fields, ret);
    case DESK_CSV:
        return desk_csv_read(format, line, fields, ret);
    case DESK_TRACE:
        return desk_trace_read(format, line, fields, ret);
    }
    __builtin_unreachable();
}

/* ---- finding out (formats.c) ---- */

/* The format of a file by name or text, or (NULL) by the beginning of the file, whose lines it must
 * fit. *ret_lines: how many lines told it; 0: it was given. `path` is for messages. */
int desk_format_find(const char *given, struct weir__span beginning, const char *path,
                     const struct desk_wanted *wanted, const struct desk_times *times,
                     struct desk_format *ret, int *ret_lines, weir_error *err);

#endif
