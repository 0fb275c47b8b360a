/* What the files of the RESP reader share: resp_read.c finds lines and messages, resp_element.c
 * makes elements of lines, resp_inline.c makes words of them. */
#ifndef WEIR_RESP_PARTS_H
#define WEIR_RESP_PARTS_H

#include "wire/resp.h"

/* A complete line: its text between the type byte and CR LF, and the offset behind it. */
struct weir__resp_line {
    const char *text;
    size_t len;
    size_t end;
};

/* Says why; returns BROKEN. */
enum weir__resp_status weir__resp_broken(struct weir__resp_reader *reader, const char *format, ...)
    WEIR__PRINTF(2, 3);
/* Returns NEED_MORE. */
enum weir__resp_status weir__resp_need(struct weir__resp_reader *reader, size_t bytes);

/* The element at reader->at, whose first line that is; MESSAGE: it is complete and counted, and
 * reader->at is behind it. */
enum weir__resp_status weir__resp_element(struct weir__resp_reader *reader, const char *data,
                                          size_t len, const struct weir__resp_line *line);

/* Reads a request that is whole and plain: count, size and nodes are set. False: nothing was read. */
bool weir__resp_request(struct weir__resp_reader *reader, const char *data, size_t len);

/* Splits the complete line data[0 … len) into an array of bulk strings. */
enum weir__resp_status weir__resp_inline(struct weir__resp_reader *reader, char *data, size_t len);

#endif
