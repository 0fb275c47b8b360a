/* See times.h. */
#include "desk/times.h"

#include "core/date.h"

#define SECOND_NS INT64_C(1000000000)
#define NANOSECONDS_MAX (1000 * WEIR__EXACT_MAX)

/* Two digits, or a number over 99 where they are not. */
static inline unsigned times_two(const char *p)
{
    unsigned a = (unsigned)(unsigned char)p[0] - '0', b = (unsigned)(unsigned char)p[1] - '0';
    return a > 9 || b > 9 ? 1000 : 10 * a + b;
}

/* 1 to 12, or 0. */
static unsigned times_month(const char *p)
{
    static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
    for (unsigned i = 0; i < 12; i++) {
        if ((p[0] | 0x20) == names[3 * i] && (p[1] | 0x20) == names[3 * i + 1] &&
            (p[2] | 0x20) == names[3 * i + 2])
            return i + 1;
    }
    return 0;
}

/* A date, and HH:MM:SS at `clock`; false: there is no such time. A leap second is the next one. */
static bool times_put_together(unsigned year, unsigned month, unsigned day, const char *clock,
                               int64_t *ret_us)
{
    unsigned hour = times_two(clock), minute = times_two(clock + 3), second = times_two(clock + 6);
    if (clock[2] != ':' || clock[5] != ':' || hour > 23 || minute > 59 || second > 60)
        return false;
    if (year < 1970 || year > 2255 || month < 1 || month > 12 || day < 1)
        return false;
    int64_t from_march = (int64_t)year * 12 + month - 3;
    int64_t days = weir__month_first(from_march) + day - 1;
    if (days >= weir__month_first(from_march + 1))
        return false;
    *ret_us = ((days * 24 + hour) * 3600 + minute * 60 + second) * 1000000;
    return true;
}

/* "16/Nov/2026:06:28:45" */
static bool times_read_clf(const char *p, int64_t *ret_us)
{
    if (p[2] != '/' || p[6] != '/' || p[11] != ':')
        return false;
    unsigned year = times_two(p + 7) * 100 + times_two(p + 9);
    return times_put_together(year, times_month(p + 3), times_two(p), p + 12, ret_us);
}

/* "2026-11-16T06:28:45" */
static bool times_read_iso(const char *p, int64_t *ret_us)
{
    if ((p[4] != '-' && p[4] != '/') || p[7] != p[4] ||
        (p[10] != 'T' && p[10] != 't' && p[10] != ' '))
        return false;
    unsigned year = times_two(p) * 100 + times_two(p + 2);
    return times_put_together(year, times_two(p + 5), times_two(p + 8), p + 11, ret_us);
}

bool desk_zone_read(struct weir__span text, int64_t *ret_us)
{
    while (text.len > 0 && text.data[0] == ' ')
        text.data++, text.len--;
    if (weir__span_is_word(text, "z") || weir__span_is_word(text, "utc")) {
        *ret_us = 0;
        return true;
    }
    const char *p = text.data;
    bool colon = text.len == 6 && p[3] == ':';
    if ((text.len != 5 && !colon) || (p[0] != '+' && p[0] != '-'))
        return false;
    unsigned hours = times_two(p + 1), minutes = times_two(p + 3 + colon);
    if (hours > 14 || minutes > 59)
        return false;
    int64_t us = ((int64_t)hours * 60 + minutes) * 60000000;
    *ret_us = p[0] == '-' ? -us : us;
    return true;
}

/* Passes ".123456789"; microseconds, rounded down. */
static int64_t times_fraction(struct weir__span *rest)
{
    size_t i = 1;
    int64_t us = 0, place = 100000;
    for (; i < rest->len && rest->data[i] >= '0' && rest->data[i] <= '9'; i++, place /= 10)
        us += (rest->data[i] - '0') * place;
    rest->data += i;
    rest->len -= i;
    return us;
}

/* Remembers a second with its zone. False: it is not a time. */
static bool times_remember(struct desk_times *times, struct weir__span head, struct weir__span zone)
{
    int64_t us, zone_us = times->zone_us;
    bool clf = head.len == 20;
    if (!(clf ? times_read_clf(head.data, &us) : times_read_iso(head.data, &us)))
        return false;
    if (zone.len > sizeof times->zone || (zone.len > 0 && !desk_zone_read(zone, &zone_us)))
        return false;
    times->zone_assumed |= zone.len == 0;
    memcpy(times->head, head.data, head.len);
    times->head_len = head.len;
    if (zone.len > 0)
        memcpy(times->zone, zone.data, zone.len);
    times->zone_len = zone.len;
    times->head_us = us - zone_us;
    return true;
}

/* A date with a clock; head is how long that is. */
static bool times_read_date(struct desk_times *times, struct weir__span text, size_t head,
                            int64_t *ret_us, bool *ret_whole)
{
    struct weir__span rest = {text.data + head, text.len - head};
    bool whole = rest.len < 2 || (rest.data[0] != '.' && rest.data[0] != ',');
    int64_t fraction = whole ? 0 : times_fraction(&rest);
    bool known = times->head_len == head && !memcmp(times->head, text.data, head) &&
                 times->zone_len == rest.len && !memcmp(times->zone, rest.data, rest.len);
    if (!known && !times_remember(times, (struct weir__span){text.data, head}, rest))
        return false;
    *ret_us = times->head_us + fraction;
    *ret_whole = whole;
    return *ret_us >= 0 && *ret_us < WEIR__EXACT_MAX;
}

bool desk_nanoseconds(struct weir__span text, int64_t unit_ns, int64_t *ret)
{
    static const struct {
        const char *name;
        int64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", SECOND_NS}};
    size_t i = 0;
    int64_t whole = 0, fraction = 0, place = SECOND_NS;
    for (; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++) {
        if (whole > NANOSECONDS_MAX / 10 - 1)
            return false;
        whole = whole * 10 + (text.data[i] - '0');
    }
    if (i == 0)
        return false;
    if (i < text.len && text.data[i] == '.') {
        for (i++; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++) {
            place /= 10;
            fraction += (text.data[i] - '0') * place;
        }
    }
    struct weir__span unit = {text.data + i, text.len - i};
    for (size_t j = 0; j < WEIR__COUNT(units) && unit.len > 0; j++) {
        if (weir__span_is(unit, units[j].name)) {
            unit_ns = units[j].ns;
            unit.len = 0;
        }
    }
    __int128 ns = (__int128)whole * unit_ns + (__int128)fraction * unit_ns / SECOND_NS;
    if (unit.len > 0 || ns > NANOSECONDS_MAX)
        return false;
    *ret = (int64_t)ns;
    return true;
}

/* What a number of today counts: there are 1.8 * 10^9 seconds since the epoch. */
static int64_t times_unit_of(struct weir__span text)
{
    size_t digits = 0;
    while (digits < text.len && text.data[digits] >= '0' && text.data[digits] <= '9')
        digits++;
    return digits <= 11 ? SECOND_NS : digits <= 14 ? 1000000 : digits <= 17 ? 1000 : 1;
}

bool desk_time_read(struct desk_times *times, struct weir__span text, int64_t *ret_us,
                    bool *ret_whole)
{
    int64_t ns;
    if (text.len >= 20 && text.data[2] == '/')
        return times_read_date(times, text, 20, ret_us, ret_whole);
    if (text.len >= 19 && (text.data[4] == '-' || text.data[4] == '/'))
        return times_read_date(times, text, 19, ret_us, ret_whole);
    int64_t unit_ns = times->unit_ns ? times->unit_ns : times_unit_of(text);
    if (text.len == 0 || text.data[text.len - 1] == 's' || !desk_nanoseconds(text, unit_ns, &ns))
        return false;
    times->unit_ns = unit_ns;
    *ret_us = ns / 1000;
    *ret_whole = unit_ns == SECOND_NS && !memchr(text.data, '.', text.len);
    return *ret_us < WEIR__EXACT_MAX;
}
