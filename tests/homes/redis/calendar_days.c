/*
 * The windows of the calendar against edges that somebody else reckoned.
 *
 * Input: `limit TEXT`, then one edge per line (µs, ascending, the first at or before the epoch),
 * then `end`. For every day that lies between the epoch and the last edge, several instants must be
 * in the window whose edges stand around them. Prints how many instants were right and wrong.
 */
#include "core/calendar.h"
#include "limit/limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EDGES_MAX 200000

static int64_t edges[EDGES_MAX];
static size_t count;
static long right, wrong;

static void check_instant(const struct weir__rule *rule, const char *text, int64_t us, size_t *at)
{
    int64_t start = 0, end = 0;
    while (*at + 2 < count && us >= edges[*at + 1])
        (*at)++;
    if (us < edges[0] || us >= edges[count - 1])
        return;
    weir__algorithm_of(rule)->window(rule, us, &start, &end);
    bool good = start == edges[*at] && end == edges[*at + 1];
    right += good;
    wrong += !good;
    if (!good && wrong <= 20)
        printf("FAIL %s at %" PRId64 ": %" PRId64 " to %" PRId64 ", expected %" PRId64
               " to %" PRId64 "\n",
               text, us, start, end, edges[*at], edges[*at + 1]);
}

/* Midnights of UTC and of the zone, an instant before, and one somewhere in the day. */
static void check_days(const struct weir__rule *rule, const char *text)
{
    int64_t zone_us = weir__calendar_of(rule).zone * WEIR__ZONE_MINUTE_US;
    uint64_t noise = 88172645463325252;
    size_t at = 0, at_zone = 0, at_any = 0;
    for (int64_t day = 0; day * WEIR__DAY_US < edges[count - 1]; day++) {
        int64_t midnight = day * WEIR__DAY_US, local = midnight - zone_us;
        noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
        if (midnight > 0)
            check_instant(rule, text, midnight - 1, &at);
        check_instant(rule, text, midnight, &at);
        if (local > 0)
            check_instant(rule, text, local - 1, &at_zone);
        if (local >= 0)
            check_instant(rule, text, local, &at_zone);
        check_instant(rule, text, midnight + (int64_t)(noise % (uint64_t)WEIR__DAY_US), &at_any);
    }
}

int main(void)
{
    struct weir__rule rules[WEIR_LIMITS_MAX];
    char line[256], text[256] = "";
    size_t n = 0;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "limit ", 6)) {
            weir_error err = {0};
            strcpy(text, line + 6);
            count = 0;
            if (weir__rules_parse(text, rules, &n, &err) || n != 1 ||
                !weir__algorithm_of(&rules[0])->window) {
                printf("FAIL \"%s\": %s\n0 passed, 1 failed\n", text, err.message);
                return 1;
            }
        } else if (strcmp(line, "end") != 0) {
            if (count == EDGES_MAX)
                return 1;
            edges[count++] = strtoll(line, NULL, 10);
        } else {
            check_days(&rules[0], text);
        }
    }
    printf("%ld passed, %ld failed\n", right, wrong);
    return wrong || !right;
}
