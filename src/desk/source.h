/*
 * One file of a log: its lines, one after the other, become arrivals or are counted. The next
 * arrival is its head; it lives until the next one is read.
 */
#ifndef WEIR_DESK_SOURCE_H
#define WEIR_DESK_SOURCE_H

#include "desk/format.h"
#include "desk/input.h"
#include "desk/select.h"

/* A format in use; several files may have it. */
struct desk_format_in_use {
    struct desk_format_in_use *next;
    struct desk_format format;
};

struct desk_source {
    struct desk_input input;
    bool open, ended;
    const struct desk_format *format; /* NULL: not known yet, or the file is empty */
    bool header;                      /* is still to be passed */
    struct desk_times times;
    struct desk_fields fields;
    struct desk_room *room;
    bool has_head, head_whole;
    struct desk_arrival head; /* the next one */
    int64_t first_us;         /* of a file that is not open: its first time */
    int64_t size, done;       /* bytes of the file */
    uint32_t number;          /* among the files */
    struct desk_file_facts *facts;
};

/* What all files of a reader share. */
struct desk_shared {
    const struct desk_options *options;
    struct desk_selection selection;
    struct desk_format_in_use *formats;
    struct desk_facts facts;
    uint64_t seen; /* slots that some line has */
    bool taken;    /* a line is as --where asks */
    struct desk_hints hints;
};

/* Opens the file, and finds out its format unless that is known. */
int desk_source_open(struct desk_shared *shared, struct desk_source *source, weir_error *err);
void desk_source_close(struct desk_source *source);
/* The first time in the beginning of a file; 0: there is none. */
int64_t desk_source_first_time(const struct desk_source *source);
/* Reads to the next arrival: DESK_ARRIVAL and it is the head, DESK_END, DESK_IDLE or an error. */
int desk_source_next(struct desk_shared *shared, struct desk_source *source, weir_error *err);
/* Counts a line that cannot be read, and keeps it if it is one of the first. 0, or WEIR_EINVAL if
 * all must be readable. */
int desk_source_note(struct desk_shared *shared, const struct desk_source *source, int64_t line,
                     struct weir__span text, enum desk_reason reason,
                     const struct desk_wrong *wrong, weir_error *err);

#endif
