/* Durations as text, one way everywhere: `1h30m`, `1.5s`, `s`; units us ms s m h d w and their long
 * names. */
#ifndef WEIR_DURATION_H
#define WEIR_DURATION_H

#include "base/buffer.h"

/* What is wrong with a duration without a unit, or with an unknown one: *ret_why is this very
 * text. */
extern const char weir__duration_needs_unit[];

/* Reads the longest duration at the start of text; returns its length and the microseconds, or 0
 * and in *ret_why what is wrong with it. Zero is refused, and so is anything over 366 days. */
size_t weir__duration_parse(const char *text, size_t len, int64_t *ret_us, const char **ret_why);

/* The same for a wait, which may be zero: `0`, `0us`, `0ms` … */
size_t weir__wait_parse(const char *text, size_t len, int64_t *ret_us, const char **ret_why);

/* `10s`, `1h30m`; with bare, exactly one unit prints without its number (`s`, for "10/s"). */
void weir__put_duration(struct weir__buffer *buffer, int64_t microseconds, bool bare);
/* Rounded up to about three digits: "1.11s", "2m35s", "0s". */
void weir__put_about(struct weir__buffer *buffer, int64_t microseconds);
/* Likewise, rounded to the nearest: how long something was, not how long to wait. */
void weir__put_lasted(struct weir__buffer *buffer, int64_t microseconds);

/* Seconds with six decimals, `never` for a negative time: what replay and the command line
 * print. */
void weir__put_seconds(struct weir__buffer *buffer, int64_t microseconds);

#endif
