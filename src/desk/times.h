/*
 * Times as logs write them, to microseconds since the epoch:
 *
 *     16/Nov/2026:06:28:45 +0100          nginx, Apache; also with decimals, or without a zone
 *     2026-11-16T06:28:45.123456789Z      ISO 8601; also with a blank, '/', or without a zone
 *     1794810525.123                      seconds, milliseconds, microseconds or nanoseconds
 *
 * Most lines have the second of the line before, which is remembered with its text.
 */
#ifndef WEIR_DESK_TIMES_H
#define WEIR_DESK_TIMES_H

#include "base/base.h"
#include "base/span.h"

struct desk_times {
    int64_t zone_us;   /* of times without one */
    bool zone_assumed; /* there was such a time */
    int64_t unit_ns;   /* of plain numbers; 0: told by the first of them */
    char head[20];     /* the last text, up to its seconds, and what it stands for */
    size_t head_len;
    char zone[8];
    size_t zone_len;
    int64_t head_us;
};

/* False: it is not a time from 1970 to 2255. ret_whole: it is in whole seconds. */
bool desk_time_read(struct desk_times *times, struct weir__span text, int64_t *ret_us,
                    bool *ret_whole);
/* "+01:00", "-0330", "Z" or "UTC". */
bool desk_zone_read(struct weir__span text, int64_t *ret_us);
/* A decimal number of so many nanoseconds, in nanoseconds, rounded down; a unit behind it ("12ms")
 * counts more. False: it is not a number from 0 to 2^53 microseconds. */
bool desk_nanoseconds(struct weir__span text, int64_t unit_ns, int64_t *ret);

#endif
