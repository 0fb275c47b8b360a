/*
 * `weir replay`: arrivals from a trace or from logs, decided by the engine of the desk, by a store
 * or by policies, and what is printed about it.
 */
#ifndef WEIR_CLI_REPLAY_H
#define WEIR_CLI_REPLAY_H

#include "cli/logs.h"
#include "cli/progress.h"
#include "desk/flow.h"
#include "desk/report.h"
#include "sim/classes.h"
#include "sim/virtual_clock.h"

#define REPLAY_NAME_MAX 32

struct replay_policies;

struct replay {
    const struct cli_call *call;
    /* arguments */
    const char *limits_text, *url, *policies_path, *report_path, *share_text, *share_by;
    struct cli_list limit_texts, spare;
    struct cli_logs logs;
    int64_t wait_us;
    bool decisions, json, follow;
    /* candidates */
    char names[DESK_CANDIDATES_MAX][REPLAY_NAME_MAX + 1];
    weir_limit *limits[DESK_CANDIDATES_MAX];
    struct desk_candidate candidates[DESK_CANDIDATES_MAX];
    struct desk_shown shown[DESK_CANDIDATES_MAX];
    size_t count;
    struct desk_engine *engine;
    /* where arrivals come from */
    bool is_trace;                /* a trace that is read strictly */
    int64_t trace_requests;       /* of it */
    struct weir__classes classes; /* none without --share */
    const char *class_field;      /* what says of which class a request is */
    struct weir__span begun;      /* what was read of standard input to tell */
    struct desk_reader *reader;
    /* what decides, if it is not the engine */
    weir_store *store;
    struct weir__virtual_clock clock;
    struct replay_policies *policies;
    /* what is printed */
    struct weir__buffer lines;
    struct cli_progress progress;
    struct desk_facts facts;
};

/* ---- replay_input.c ---- */

/* Opens the input. A trace is read to its end first: if one line is wrong, nothing is decided. */
int replay_open(struct replay *replay);
void replay_close(struct replay *replay);
/* The class of an arrival; "": it has none. */
struct weir__span replay_class_name(const struct desk_arrival *arrival);
/* Fills source, next and where. */
void replay_connect(struct replay *replay, struct desk_flow *flow);

/* ---- replay_policies.c ---- */

/* Reads the file, and says which attributes logs must carry. */
int replay_policies_open(struct replay *replay);
void replay_policies_close(struct replay *replay);
/* Names the limits that no request was decided by, on standard error: what does nothing must not
 * look harmless. */
void replay_policies_tell_idle(const struct replay *replay);
/* Likewise attributes that no line has: perhaps they are misspelt. */
void replay_policies_tell_unseen(const struct replay *replay);
/* Both as members of JSON. */
void replay_policies_put_idle(struct weir__json *json, const struct replay *replay);
int replay_policies_take(struct replay *replay, const struct desk_arrival *arrival,
                         weir_decision *ret, weir_error *err);

/* ---- replay_print.c ---- */

void replay_print(const struct replay *replay, const struct desk_report *report);

#endif
