/*
 * The desk reads access logs. Files in any known format become requests in the order of their
 * times, each with a key and a cost:
 *
 *     bytes ──► lines ──► fields ──► key, cost ──► order ──► desk_reader_next
 *     input.c   input.c   text.c     select.c      order.c   reader.c: all files
 *     unpack.c            json.c     values.c                source.c: one file
 *                         csv.c
 *
 * What holds: every line is an arrival, or it is counted with a reason. The same files and options
 * give the same arrivals. Memory is bounded whatever the input: a line, the fields of a line and
 * the arrivals that wait for their turn have bounds. Nothing is allocated per line.
 *
 * Several files are merged by time, so that neither the order of rotated files nor logs of several
 * servers matter.
 */
#ifndef WEIR_DESK_H
#define WEIR_DESK_H

#include "base/base.h"
#include "base/buffer.h"
#include "base/span.h"

#define DESK_FILES_MAX 4096
#define DESK_LINE_MAX 65536                     /* bytes */
#define DESK_TRACE_LINE_MAX (3 * DESK_LINE_MAX) /* a key of quotes is twice as long in its line */
#define DESK_DISORDER_US INT64_C(10000000)      /* unless told otherwise */
#define DESK_DISORDER_MAX INT64_C(3600000000)
#define DESK_WAITING_MAX (1 << 20) /* arrivals that wait for their turn */
#define DESK_EXAMPLES 5
#define DESK_CARRIED_MAX 64 /* desk_facts.unseen_carried has a bit for each */

/* ---- what is asked for ---- */

/* Which file it is, and how much of it is read. Whoever reads files several times keeps one for
 * each path: at first size is -1, the first opening sets it, and later ones read no more than that.
 * A file that was replaced or shortened meanwhile is an error. */
struct desk_extent {
    uint64_t device, inode;
    int64_t size; /* bytes; -1: not known yet, or not a file */
};

/* Everything may be 0. Texts must live as long as the reader. */
struct desk_options {
    const char *const *paths; /* "-" is standard input; none: standard input */
    size_t path_count;
    const char *format;       /* a name, or text in nginx's notation; NULL: detect it */
    const char *key;          /* as in policies: "ip/24/48", "user, path"; NULL: ip, or the key that
                                 the log has */
    const char *const *where; /* "method=POST", "path!=/health|/ready", "status=4xx" */
    size_t where_count;
    const char *const *wide; /* lines that are as these ask, but not as `where`, are counted */
    size_t wide_count;
    const char *cost;             /* "bytes", "bytes/1000", "duration/100ms"; NULL: 1, or the cost
                                     that the log has */
    const char *const *templates; /* of paths in keys: "/users/{id}" */
    size_t template_count;
    const char *const *fields; /* "ip=my.client": where a field is found */
    size_t field_count;
    const char *timezone; /* of times without one: "+01:00"; NULL: UTC */
    /* How far lines may be out of order. 0: DESK_DISORDER_US, but traces stay as they are; -1: all
     * arrivals come as they stand in the files, and times are not spread. */
    int64_t disorder_us;
    bool no_spread;              /* leave times in whole seconds as they are */
    bool follow;                 /* wait for more at the end of a file */
    bool strict;                 /* the first line that cannot be read is an error */
    uint64_t secret[2];          /* of the hashes of keys */
    struct weir__span begun;     /* of standard input: what was read of it already */
    struct desk_extent *extents; /* one for each path, at least one; NULL: files are read once */
    /* Attributes to hand on with every arrival, for policies: any names that keys may have. */
    const char *const *carried;
    size_t carried_count;
    bool carried_as_keys; /* in the spelling of keys; and a format that cannot have them is an error
                           */
};

/* ---- what comes out ---- */

/* One request. Key and values live until the next call of desk_reader_next. */
struct desk_arrival {
    int64_t time_us; /* in order, unless options->disorder_us says otherwise */
    uint64_t hash[2];
    struct weir__span key; /* 1 … WEIR_KEY_MAX bytes */
    int64_t cost;
    int64_t line;  /* its number in the file, from 1 */
    uint32_t file; /* its number among the paths */
    uint32_t carried_len;
    const char *carried; /* the carried values, packed: desk_arrival_value */
};

/* A carried value by its place among options->carried; false: the line does not have it. */
bool desk_arrival_value(const struct desk_arrival *arrival, size_t i, struct weir__span *ret);

/* Why a line could not be read. */
#define DESK_REASONS(X)                                                                            \
    X(LONG, "longer than 64 KiB")                                                                  \
    X(BINARY, "binary data")                                                                       \
    X(SHAPE, "not in the format of the file")                                                      \
    X(TIME, "no readable time")                                                                    \
    X(VALUE, "a value that cannot be read")                                                        \
    X(COST, "no readable cost")                                                                    \
    X(ALONE, "a time far away from the lines around it")

enum desk_reason {
#define DESK_NAME(name, text) DESK_REASON_##name,
    DESK_REASONS(DESK_NAME)
#undef DESK_NAME
        DESK_REASON_COUNT
};

const char *desk_reason_text(enum desk_reason reason);

/* A line that could not be read. The texts are safe to print. */
struct desk_example {
    const char *path;
    int64_t line;
    int column; /* from 1; 0: the whole line */
    enum desk_reason reason;
    char why[96];
    char text[96]; /* the line, shortened */
};

struct desk_file_facts {
    const char *path;
    const char *format;  /* its name; NULL: the file is empty */
    const char *packing; /* "plain", "gzip" or "zstd" */
    int detected_by;     /* lines that the format was told by; 0: it was given */
    int64_t lines, unreadable;
    bool zone_assumed; /* times without a zone: they were read as options->timezone says */
    char damage[96];   /* why the rest of the file could not be read; "": it was read to its end */
};

struct desk_facts {
    /* lines = arrivals + filtered + keyless + unreadable + those that still wait */
    int64_t lines;    /* without empty ones and headers */
    int64_t arrivals; /* that desk_reader_next gave */
    int64_t filtered; /* by options->where */
    int64_t wide;     /* of these: as options->wide asks */
    int64_t keyless;  /* without a value for the key: the limit would not apply */
    char names[400];  /* of the members that the first line of JSON has, as they stand in the
                                log: "ts, client.ip" */
    const char
        *unseen_field; /* of options->fields: no line has what it names; NULL: all are there */
    const char *unseen_where; /* likewise of options->where; but NAME!=* needs nothing */
    const char *unseen_key;   /* a field that options->key names */
    uint64_t unseen_carried;  /* a bit for each of options->carried that no line has */
    const char *const *where; /* options->where */
    size_t where_count;
    char hint[400]; /* no line is as `where` asks: what lines have instead, safe to print; or "" */
    int64_t unreadable;
    int64_t reasons[DESK_REASON_COUNT]; /* of the unreadable ones */
    struct desk_example examples[DESK_EXAMPLES];
    size_t example_count;
    int64_t out_of_order;      /* but within the bound: they were put in order */
    int64_t late;              /* beyond the bound: decided at the time of the line before */
    int64_t crowded;           /* arrivals that could not wait for their turn: too many at once */
    int64_t spread;            /* times in whole seconds that were spread over their second */
    int64_t jumps;             /* of the clock by more than a day, forward */
    int64_t first_us, last_us; /* of the arrivals; first_us is -1 without any */
    int64_t bytes;             /* of all lines, unpacked */
    int64_t done, size;        /* bytes of the files as they are stored; size -1: unknown */
    const struct desk_file_facts *files; /* in the order of the paths */
    size_t file_count;
    bool damaged; /* at least one file */
};

/* ---- reading ---- */

struct desk_reader;

enum desk_next {
    DESK_END = 0,
    DESK_ARRIVAL = 1,
    DESK_IDLE = 2, /* only with follow: nothing came for a quarter of a second; ask again */
};

int desk_reader_open(const struct desk_options *options, struct desk_reader **ret, weir_error *err);
/* An enum desk_next, or a WEIR_E…. */
int desk_reader_next(struct desk_reader *reader, struct desk_arrival *ret, weir_error *err);
/* Waits for nothing more: what files have now and what waits for its order still comes, then
 * DESK_END. */
void desk_reader_finish(struct desk_reader *reader);
/* At any time; what it points to lives as long as the reader. */
void desk_reader_facts(const struct desk_reader *reader, struct desk_facts *ret);
void desk_reader_close(struct desk_reader *reader);

/* Whether a file with this beginning is packed with gzip or zstd. */
bool desk_is_packed(struct weir__span beginning);
/* The name of the format that a log with this beginning has; NULL: it is not known. */
const char *desk_detect(struct weir__span beginning);
/* The names of the formats, one after the other, ended by NULL. */
extern const char *const desk_format_names[];

/* A text as a field of CSV, quoted where it must be. */
void desk_put_csv(struct weir__buffer *buffer, const char *text, size_t len);

#endif
