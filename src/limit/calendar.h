/*
 * The calendar in the limit language: `month`, `from 15`, `zone +08:00` as numbers and back. Words
 * are read whole, without regard to case.
 */
#ifndef WEIR_LIMIT_CALENDAR_H
#define WEIR_LIMIT_CALENDAR_H

#include "base/buffer.h"
#include "core/calendar.h"

/* A period that is a civil unit: WEIR__MONTH or WEIR__YEAR; WEIR__SPAN: it is not. *ret_plain:
 * whether it is the word alone; `2months` names a unit, too, but is not a period. */
enum weir__calendar_unit weir__unit_read(const char *text, size_t len, bool *ret_plain);

/* A start of a week, a month or a year: `mon`, `15`, `04-06`. */
bool weir__anchor_read(enum weir__calendar_unit unit, const char *text, size_t len, int *ret);
/* What weir__anchor_read reads, in words. */
const char *weir__anchor_expected(enum weir__calendar_unit unit);

/* An offset within bounds, `+08:00` or `-03`, in minutes. */
bool weir__zone_read(const char *text, size_t len, int *ret);

/* The period of a rule, `month` or `1h30m`. */
void weir__put_period(struct weir__buffer *buffer, const struct weir__rule *rule);
/* The anchor of a calendar. */
void weir__put_anchor(struct weir__buffer *buffer, struct weir__calendar calendar);

/* An offset from UTC, "+08:00". */
void weir__put_zone(struct weir__buffer *buffer, int zone_minutes);
/* A time as clocks of a zone show it, "2026-12-15T00:00:00+08:00"; microseconds where there are
 * some. */
void weir__put_time(struct weir__buffer *buffer, int64_t us, int zone_minutes);

#endif
