/*
 * Calendar windows: where they start and end. A rule of the calendar has the longest window of its
 * kind as its period, and the rest in `extra`:
 *
 *     (unit * 512 + anchor) * 2048 + zone + 720
 *
 * That is one number below 2^48, by which states are known and which Redis keeps (docs/STATE.md).
 */
#ifndef WEIR_CALENDAR_H
#define WEIR_CALENDAR_H

#include "core/core.h"
#include "core/date.h"

enum weir__calendar_unit {
    WEIR__SPAN,  /* a duration: no anchor */
    WEIR__WEEK,  /* anchor: the weekday, 1 (mon) … 7 (sun) */
    WEIR__MONTH, /* the day, 1 … 31 */
    WEIR__YEAR   /* month * 32 + day */
};
#define WEIR__CALENDAR_UNITS 4

#define WEIR__ZONE_MIN (-12 * 60) /* minutes */
#define WEIR__ZONE_MAX (14 * 60)

struct weir__calendar {
    enum weir__calendar_unit unit;
    int anchor;
    int zone; /* minutes east of UTC */
};

/* The anchor of a year. */
static inline int weir__year_anchor(int month, int day)
{
    return month * 32 + day;
}

/* What a rule of a fixed window says about the calendar; a plain one: nothing but its length. */
struct weir__calendar weir__calendar_of(const struct weir__rule *rule);
/* Makes a fixed window one of the calendar: kind, period and extra. A rule of a span keeps its
 * period, and becomes a plain fixed window where the zone is UTC. */
void weir__rule_set_calendar(struct weir__rule *rule, struct weir__calendar calendar);

/* Whether a unit has this anchor. */
bool weir__anchor_fits(enum weir__calendar_unit unit, int anchor);
/* The anchor where none is given: 0 for a span and for a week, which needs one. */
int weir__anchor_preset(enum weir__calendar_unit unit);

/* The window that holds a time: it starts at *ret_start (perhaps before the epoch) and ends before
 * *ret_end. */
void weir__calendar_window(const struct weir__rule *rule, int64_t us, int64_t *ret_start,
                           int64_t *ret_end);

#endif
