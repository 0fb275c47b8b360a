/*
 * The states of a zone as text, one JSON object per line (docs/ZONE.md, "Dump"):
 *
 *   {"weir_zone":1,"secret":"…","size":…,"large":…}    the first line
 *   {"tag":"…","limit":"…","state":"…"}                a state: docs/STATE.md in base64
 *   {"tag":"…","settled_until":…}                      a mark: a receipt that was settled
 *   {"states":…,"marks":…}                             the last line
 *
 * Writing gives one line at a time. Reading checks every line, and the end, before anything counts.
 */
#ifndef WEIR_DUMP_H
#define WEIR_DUMP_H

#include "base/buffer.h"
#include "store/zone/carry.h"

#define WEIR__DUMP_VERSION 1
/* The longest line: a ring of the most cells in base64, and what stands around it. */
#define WEIR__DUMP_LINE_MAX (4 * 1024 * 1024)

struct weir__dump_head {
    uint64_t secret[2];
    uint64_t size;
    unsigned large_percent;
};

/* ---- writing: each line with its newline ---- */

/* Where a dump goes: 0, or a code that ends it. */
struct weir__dump_sink {
    int (*write)(void *context, const char *text, size_t len, weir_error *err);
    void *context;
    uint64_t states, marks;          /* how many were written */
    struct weir__buffer line, value; /* of the dump itself */
};

/* A whole zone, page by page: it may be in use. A key's states are of one instant. No lock is held
 * while it writes. */
int weir__dump_zone(struct weir__zone *zone, struct weir__dump_sink *sink, weir_error *err);

/* ---- reading ---- */

struct weir__dump_reader {
    struct weir__dump_head head;
    struct weir__zone
        *zone; /* where the states go; the caller sets it and now_us behind the first line */
    int64_t now_us;
    uint64_t line, states, marks;
    bool ended;
};

/* Reads the first line into reader->head. The line loses its bytes; the message names it. */
int weir__dump_read_head(struct weir__dump_reader *reader, char *line, size_t len, weir_error *err);
/* Reads another line, and puts its state into reader->zone. */
int weir__dump_read(struct weir__dump_reader *reader, char *line, size_t len, weir_error *err);
/* After the last line: whether it was the last. */
int weir__dump_read_end(const struct weir__dump_reader *reader, weir_error *err);

#endif
