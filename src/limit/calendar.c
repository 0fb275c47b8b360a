/* See calendar.h. */
#include "limit/calendar.h"

#include "base/duration.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char weekdays[7][4] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

static bool calendar_word_is(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && !strncasecmp(text, word, len);
}

enum weir__calendar_unit weir__unit_read(const char *text, size_t len, bool *ret_plain)
{
    size_t digits = 0;
    while (digits < len && (isdigit((unsigned char)text[digits]) || text[digits] == '.'))
        digits++;
    size_t letters = len - digits;
    const char *word = text + digits;
    bool month = calendar_word_is(word, letters, "month");
    bool year = calendar_word_is(word, letters, "year");
    *ret_plain = digits == 0 && (month || year);
    if (month || calendar_word_is(word, letters, "months"))
        return WEIR__MONTH;
    if (year || calendar_word_is(word, letters, "years"))
        return WEIR__YEAR;
    return WEIR__SPAN;
}

/* A number of exactly so many digits; -1: it is not. */
static int calendar_digits(const char *text, size_t count)
{
    int number = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isdigit((unsigned char)text[i]))
            return -1;
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

static int calendar_read_weekday(const char *text, size_t len)
{
    for (int i = 0; i < 7; i++) {
        if (calendar_word_is(text, len, weekdays[i]))
            return i + 1;
    }
    return -1;
}

static int calendar_read_date(const char *text, size_t len)
{
    if (len != 5 || text[2] != '-')
        return -1;
    int month = calendar_digits(text, 2), day = calendar_digits(text + 3, 2);
    return month < 0 || day < 0 || day > 31 ? -1 : weir__year_anchor(month, day);
}

bool weir__anchor_read(enum weir__calendar_unit unit, const char *text, size_t len, int *ret)
{
    int anchor = -1;
    switch (unit) {
    case WEIR__SPAN:
        break;
    case WEIR__WEEK:
        anchor = calendar_read_weekday(text, len);
        break;
    case WEIR__MONTH:
        anchor = len == 1 || len == 2 ? calendar_digits(text, len) : -1;
        break;
    case WEIR__YEAR:
        anchor = calendar_read_date(text, len);
        break;
    }
    if (anchor < 0 || !weir__anchor_fits(unit, anchor))
        return false;
    *ret = anchor;
    return true;
}

const char *weir__anchor_expected(enum weir__calendar_unit unit)
{
    switch (unit) {
    case WEIR__SPAN:
        break;
    case WEIR__WEEK:
        return "a day of the week: mon, tue, wed, thu, fri, sat or sun";
    case WEIR__MONTH:
        return "a day of the month, 1 to 31";
    case WEIR__YEAR:
        return "a day of the year, month-day like 04-06, from 01-01 to 12-31";
    }
    return "no from: only a week, a month or a year has one";
}

bool weir__zone_read(const char *text, size_t len, int *ret)
{
    if ((len != 3 && len != 6) || (text[0] != '+' && text[0] != '-'))
        return false;
    int hours = calendar_digits(text + 1, 2);
    int minutes = len == 3 ? 0 : text[3] == ':' ? calendar_digits(text + 4, 2) : -1;
    if (hours < 0 || minutes < 0 || minutes > 59)
        return false;
    int zone = (hours * 60 + minutes) * (text[0] == '-' ? -1 : 1);
    if (zone < WEIR__ZONE_MIN || zone > WEIR__ZONE_MAX)
        return false;
    *ret = zone;
    return true;
}

void weir__put_period(struct weir__buffer *buffer, const struct weir__rule *rule)
{
    bool calendar = weir__algorithm_of(rule)->extra == WEIR__EXTRA_CALENDAR;
    enum weir__calendar_unit unit = calendar ? weir__calendar_of(rule).unit : WEIR__SPAN;
    if (unit == WEIR__MONTH || unit == WEIR__YEAR)
        weir__put_text(buffer, unit == WEIR__MONTH ? "month" : "year");
    else
        weir__put_duration(buffer, rule->period_us, true);
}

/* Rules of damaged zones are put, too: then it is text that cannot be read. */
void weir__put_anchor(struct weir__buffer *buffer, struct weir__calendar calendar)
{
    if (calendar.unit == WEIR__WEEK && weir__anchor_fits(WEIR__WEEK, calendar.anchor))
        weir__put_text(buffer, weekdays[calendar.anchor - 1]);
    else if (calendar.unit == WEIR__YEAR)
        weir__put_format(buffer, "%02d-%02d", calendar.anchor / 32, calendar.anchor % 32);
    else
        weir__put_int(buffer, calendar.anchor);
}

void weir__put_zone(struct weir__buffer *buffer, int zone_minutes)
{
    int minutes = abs(zone_minutes);
    weir__put_format(buffer, "%c%02d:%02d", zone_minutes < 0 ? '-' : '+', minutes / 60,
                     minutes % 60);
}

void weir__put_time(struct weir__buffer *buffer, int64_t us, int zone_minutes)
{
    int64_t local = us + zone_minutes * WEIR__ZONE_MINUTE_US;
    int64_t day = weir__day_of(local), month = weir__month_of(day);
    int64_t in_day = local - day * WEIR__DAY_US, seconds = in_day / 1000000;
    weir__put_format(buffer, "%04d-%02d-%02dT%02d:%02d:%02d", (int)((month + 2) / 12),
                     (int)((month + 2) % 12) + 1, (int)(day - weir__month_first(month)) + 1,
                     (int)(seconds / 3600), (int)(seconds / 60 % 60), (int)(seconds % 60));
    if (in_day % 1000000)
        weir__put_format(buffer, ".%06d", (int)(in_day % 1000000));
    weir__put_zone(buffer, zone_minutes);
}
