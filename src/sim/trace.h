/*
 * Traces: what replay reads. CSV lines `time,key[,cost]`, or where requests have classes
 * `time,key[,cost[,class]]`, time in seconds with up to six decimals,
 * fields quoted as in RFC 4180 where needed, an optional header line, empty lines skipped, CRLF and
 * a byte order mark accepted. Anything else is an error that names its line and column.
 */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include "base/base.h"
#include "base/span.h"

#include <stddef.h>

/* A whole input in memory. Nobody may shorten a mapped file meanwhile. */
struct weir__trace {
    const char *data;
    size_t size;
    void *mapping; /* to unmap, with its length; NULL: data was allocated */
    size_t mapping_size;
    bool classes; /* a line may have a fourth field; set after opening */
};

/* Reads a file, or standard input if path is NULL or "-". At most 4 GiB. begun: what was read of
 * standard input already. */
int weir__trace_open(const char *path, struct weir__span begun, struct weir__trace *ret,
                     weir_error *err);
void weir__trace_close(struct weir__trace *trace);

/* One request of a trace. The key lives until the next one is read. */
struct weir__arrival {
    int64_t time_us; /* 0 … 2^53 - 1 */
    const char *key;
    size_t key_len;
    int64_t cost;
    struct weir__span class_name; /* empty: it has none */
    size_t offset;                /* of its line in the input: weir__trace_seek finds it again */
};

struct weir__trace_reader {
    const struct weir__trace *trace;
    size_t at;
    size_t line_start;
    int64_t line; /* from 1 */
    bool started;
    char unquoted[WEIR_KEY_MAX];
};

void weir__trace_begin(struct weir__trace_reader *reader, const struct weir__trace *trace);
/* 1 and a request, 0 at the end, or WEIR_EINVAL. */
int weir__trace_next(struct weir__trace_reader *reader, struct weir__arrival *ret, weir_error *err);
/* Goes back to a request that was read before. */
void weir__trace_seek(struct weir__trace_reader *reader, size_t offset);

/* What a whole trace holds. */
struct weir__trace_facts {
    int64_t requests;
    int64_t first_us, last_us; /* the earliest and the latest time, in any order */
};

/* Reads all of it, so that no request is decided if the trace has an error anywhere. */
int weir__trace_check(const struct weir__trace *trace, struct weir__trace_facts *ret,
                      weir_error *err);

#endif
