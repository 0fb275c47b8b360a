/*
 * Civil dates of the Gregorian calendar, by integer arithmetic: no tables, no loops, no time zone
 * database. Lua (lua/calendar.lua) does the same in doubles.
 *
 * A day is counted from 1970-01-01, a month from March of the year 0: then the leap day is the last
 * day of its year. Both are exact for the years 1 to 100,000.
 */
#ifndef WEIR_DATE_H
#define WEIR_DATE_H

#include <stdint.h>

#define WEIR__DAY_US INT64_C(86400000000)
#define WEIR__ZONE_MINUTE_US INT64_C(60000000)

/* The first day of a month. */
static inline int64_t weir__month_first(int64_t month)
{
    int64_t year = month / 12, in_year = month % 12;
    return 365 * year + year / 4 - year / 100 + year / 400 + (153 * in_year + 2) / 5 - 719468;
}

/* The month that a day lies in. */
static inline int64_t weir__month_of(int64_t day)
{
    int64_t days = day + 719468; /* since 0000-03-01 */
    int64_t century = (4 * days + 3) / 146097;
    int64_t in_century = days - 146097 * century / 4;
    int64_t year = (4 * in_century + 3) / 1461;
    int64_t in_year = in_century - 1461 * year / 4;
    return (100 * century + year) * 12 + (5 * in_year + 2) / 153;
}

/* The day of a time; floor also before the epoch. */
static inline int64_t weir__day_of(int64_t us)
{
    return us >= 0 ? us / WEIR__DAY_US : -((-us + WEIR__DAY_US - 1) / WEIR__DAY_US);
}

#endif
