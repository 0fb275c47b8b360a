/* What a replay found, for machines and as a page. Every count stands in the engine; terminal, JSON
 * and page read it from there, so they agree. */
#ifndef WEIR_DESK_REPORT_H
#define WEIR_DESK_REPORT_H

#include "desk/engine.h"
#include "wire/json.h"

#define DESK_TOP 10

/* A line of the page: "goal", "deny at most 1% of the keys". */
struct desk_said {
    const char *label;
    const char *text;
    bool code; /* to be copied, in lines */
};

/* One of the candidates, as it is shown. */
struct desk_shown {
    const char *name;
    const weir_limit *limit;  /* NULL: policies */
    const char *text;         /* its limits, or the file of policies */
    const char *const *parts; /* of policies: names of what can deny */
    size_t part_count;
    const int64_t *shadowed; /* of policies: what each part would deny in shadow; NULL: none is */
    int64_t shadow_denied;   /* requests that went ahead and one of these would have denied */
    const struct desk_said *said; /* what else is known about it; may be NULL */
    size_t said_count;
};

struct desk_report {
    const struct desk_engine *engine; /* at its end */
    const struct desk_shown *shown;   /* one for each candidate */
    const struct desk_facts *facts;   /* NULL: a trace, all of which was read */
    const char *path;                 /* of a trace */
    const char *key;                  /* what keys are: "ip" */
    const char *command, *heading;    /* of the page: "weir replay", its first words */
    const struct desk_said *said;     /* at the beginning of the page; may be NULL */
    size_t said_count;
    bool several; /* candidates are named, and stand in a list */
    void (*more)(struct weir__json *json, void *context); /* members at the end; may be NULL */
    void *context;
};

/* The name of part i that denied. */
void desk_report_part(struct weir__buffer *buffer, const struct desk_shown *shown, size_t i);
/* A part of all in percent. */
static inline double desk_percent(int64_t part, int64_t all)
{
    return all > 0 ? 100.0 * (double)part / (double)all : 0;
}

/* The members of an object that is open. */
void desk_report_json(const struct desk_report *report, struct weir__json *json);
/* The member "log": what was read. */
void desk_report_put_log(struct weir__json *json, const struct desk_facts *facts);
/* Members about the keys that a candidate denied most, and those that it delayed most. */
void desk_report_put_most(struct weir__json *json, const struct desk_engine *engine,
                          size_t candidate);
/* Members about the keys that are spared. */
void desk_report_put_spared(struct weir__json *json, const struct desk_engine *engine);
/* A whole page. */
void desk_report_html(const struct desk_report *report, struct weir__buffer *out);

/* ---- times for people, in UTC ---- */

/* 2026-11-16 07:30:00, or its end where the rest is not needed. Times before 2001 are those of
 * traces that count from 0: in seconds. */
void desk_put_time(struct weir__buffer *buffer, int64_t us);
/* " UTC", if it is a date: times of a trace may count from 0. */
void desk_put_zone(struct weir__buffer *buffer, int64_t us);
/* Where ticks of an axis stand: the distance, at most so many fit. */
int64_t desk_tick_us(int64_t span_us, size_t most);
/* The label of a tick: a time of day, or a date at midnight. */
void desk_put_tick(struct weir__buffer *buffer, int64_t us, int64_t tick_us);

#endif
