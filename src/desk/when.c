/* Times for people: see report.h. All of them are in UTC. */
#include "desk/report.h"

#include "base/duration.h"
#include "core/date.h"

#include <assert.h>

#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)
#define HOUR_US (60 * MINUTE_US)
#define DAY_US (24 * HOUR_US)
#define REAL_US (INT64_C(978307200) * SECOND_US) /* 2001-01-01: earlier times count from 0 */

struct when_date {
    int64_t year;
    int month, day;
};

static struct when_date when_date_of(int64_t us)
{
    int64_t day = weir__day_of(us), month = weir__month_of(day);
    int64_t of_year = month % 12; /* from March */
    struct when_date ret = {month / 12 + (of_year >= 10), (int)(of_year + 2) % 12 + 1,
                            (int)(day - weir__month_first(month)) + 1};
    return ret;
}

void desk_put_time(struct weir__buffer *buffer, int64_t us)
{
    if (us < REAL_US) {
        weir__put_seconds(buffer, us);
        return;
    }
    struct when_date date = when_date_of(us);
    int64_t second = us / SECOND_US % 86400;
    weir__put_format(buffer, "%04d-%02d-%02d %02d:%02d:%02d", (int)date.year, date.month, date.day,
                     (int)(second / 3600), (int)(second / 60 % 60), (int)(second % 60));
}

void desk_put_zone(struct weir__buffer *buffer, int64_t us)
{
    weir__put_text(buffer, us < REAL_US ? "" : " UTC");
}

int64_t desk_tick_us(int64_t span_us, size_t most)
{
    static const int64_t ticks[] = {
        1000,          2000,          5000,           10000,           20000,
        50000,         100000,        200000,         500000,          SECOND_US,
        2 * SECOND_US, 5 * SECOND_US, 10 * SECOND_US, 30 * SECOND_US,  MINUTE_US,
        2 * MINUTE_US, 5 * MINUTE_US, 10 * MINUTE_US, 30 * MINUTE_US,  HOUR_US,
        2 * HOUR_US,   3 * HOUR_US,   6 * HOUR_US,    12 * HOUR_US,    DAY_US,
        2 * DAY_US,    5 * DAY_US,    10 * DAY_US,    30 * DAY_US,     100 * DAY_US,
        365 * DAY_US,  1000 * DAY_US, 10000 * DAY_US, 100000 * DAY_US,
    };
    size_t i = 0;
    assert(most >= 1);
    while (i + 1 < WEIR__COUNT(ticks) && span_us / ticks[i] > (int64_t)most)
        i++;
    return ticks[i];
}

void desk_put_tick(struct weir__buffer *buffer, int64_t us, int64_t tick_us)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    if (us < REAL_US) {
        if (tick_us >= SECOND_US)
            weir__put_format(buffer, "%llds", (long long)(us / SECOND_US));
        else
            weir__put_format(buffer, "%lld.%03llds", (long long)(us / SECOND_US),
                             (long long)(us % SECOND_US / 1000));
        return;
    }
    struct when_date date = when_date_of(us);
    int64_t second = us / SECOND_US % 86400;
    if (us % DAY_US == 0)
        weir__put_format(buffer, "%d %s", date.day, months[date.month - 1]);
    else if (tick_us >= MINUTE_US)
        weir__put_format(buffer, "%02d:%02d", (int)(second / 3600), (int)(second / 60 % 60));
    else
        weir__put_format(buffer, "%02d:%02d:%02d", (int)(second / 3600), (int)(second / 60 % 60),
                         (int)(second % 60));
}
