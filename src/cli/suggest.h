/* `weir suggest`: reads the goal and the logs, several times; prints what src/desk found, and texts
 * to paste. */
#ifndef WEIR_CLI_SUGGEST_H
#define WEIR_CLI_SUGGEST_H

#include "cli/logs.h"
#include "cli/progress.h"
#include "desk/suggest.h"

#define SUGGEST_COPY_MOST (INT64_C(4) << 30) /* bytes of standard input that are kept */
#define SUGGEST_PARTS 8                      /* of a key */
#define SUGGEST_NOTES 8
#define SUGGEST_JOINED 16

struct suggest {
    const struct cli_call *call;
    /* arguments */
    struct cli_logs logs;
    const char *keys_text, *requests_text, *protect_text, *report_path;
    struct cli_list spare;
    struct cli_list every_status; /* --where without what it says of the status */
    struct cli_list wide;         /* --where, with all spellings of a path that texts limit */
    struct weir__buffer wide_path;
    struct weir__buffer joined[SUGGEST_JOINED]; /* conditions that were several */
    size_t joined_count;
    bool json;
    struct desk_goal goal;
    /* reading */
    struct desk_extent *extents; /* one for each log: all passes read the same of it */
    int64_t begin;               /* where standard input begins, if it is read; -1: it is not */
    struct desk_reader *first;   /* of the first pass: it has the facts */
    struct desk_facts facts;
    struct cli_progress progress;
    char label[24];
    _Atomic int stop; /* the rest of the log is not needed */
    bool timed;       /* the log is in the order of its times */
    /* what was found */
    struct desk_suggest *result;
    struct weir__span key[SUGGEST_PARTS]; /* the parts of the key */
    size_t key_count;
    char key_text[96]; /* for people */
};

/* ---- suggest_input.c ---- */

/* Makes sure that the log can be read several times: keeps a copy of a pipe. */
int suggest_input_open(struct suggest *suggest);
void suggest_input_close(struct suggest *suggest);
/* For desk_suggest. */
int suggest_input_read(void *context, struct desk_pass *pass, weir_error *err);

/* ---- suggest_goal.c ---- */

int suggest_goal_read(struct suggest *suggest);
/* Joins conditions of --where that leave out values of one field: a!=1 and a!=2 is a!=1|2. */
void suggest_where_join(struct suggest *suggest);
/* Splits the key. Before the log was read, the key may be unknown. */
int suggest_key_read(struct suggest *suggest);

/* ---- suggest_paste.c: what can be pasted ---- */

struct suggest_paste {
    struct weir__buffer policy, file; /* an entry, a whole file; or empty */
    struct weir__buffer nginx;        /* lines for http{}, then locations */
    const char *no_nginx;             /* why there is none; NULL: there is */
    struct weir__buffer why_no_nginx; /* if it names the key */
    weir_error no_policy;             /* likewise; "" */
    struct weir__buffer notes[SUGGEST_NOTES];
    size_t note_count;
};

void suggest_paste_make(const struct suggest *suggest, size_t i, struct suggest_paste *ret);
void suggest_paste_free(struct suggest_paste *paste);
/* What the texts have in common. */
bool suggest_begins(struct weir__span span, const char *text);
struct weir__buffer *suggest_note(struct suggest_paste *paste);
/* What limits for the requests of --where and this key are called, and the name of a suggestion.
 * Keys of nginx begin with the word, so that no value of one is that of another. */
void suggest_put_word(struct weir__buffer *out, const struct suggest *suggest);
void suggest_put_name(struct weir__buffer *out, const struct suggest *suggest, size_t i);
/* A network to spare, as wide as a key. False: it is not one. */
bool suggest_put_network(struct weir__buffer *out, const struct suggest *suggest, const char *text);
/* The header field that says what a request costs. False: there is none. */
bool suggest_cost_header(const struct suggest *suggest, struct weir__span *ret);
/* The keys that a suggestion leaves out: those of --spare, or the heavy ones. */
size_t suggest_left_out(const struct suggest *suggest, const struct desk_suggestion *it,
                        const char *const **ret);
/* The values of a condition that names paths, in any case or as they are: "/a|/b"; NULL: it is
 * another one. */
const char *suggest_path_values(const char *where);
/* These paths in lower case, each once, without a / at their ends; `slashes`: and then with one. */
void suggest_put_paths(struct weir__buffer *out, const char *values, bool slashes);
/* Whether --where names paths. */
bool suggest_selects_path(const struct suggest *suggest);
/* The one condition on the status of answers; NULL: there is none, or several. */
const char *suggest_status(const struct suggest *suggest);
/* suggest_nginx.c */
void suggest_nginx_make(const struct suggest *suggest, size_t i, struct suggest_paste *paste);
/* suggest_policy.c: whether a file of policies is right. 0 or what is wrong. */
int suggest_check_policies(const char *text, size_t len, weir_error *err);

/* ---- suggest_say.c: the same words everywhere ---- */

struct suggest_text {
    char text[160];
};

/* 0.25%: three digits, also of small parts. */
struct suggest_text suggest_percent(double part);
/* Why a limit was chosen, in one sentence. */
void suggest_put_why(struct weir__buffer *buffer, const struct suggest *suggest, size_t i);
/* What is wanted: "deny at most 1% of the keys". */
void suggest_put_goal(struct weir__buffer *buffer, const struct desk_goal *goal);
/* "7456 requests of 372 keys", and when that was. */
void suggest_put_part(struct weir__buffer *buffer, const struct desk_part *part);
/* What a suggestion denied in the second part, and what to expect: requests, and keys. */
void suggest_put_requests(struct weir__buffer *buffer, const struct desk_suggest *result, size_t i);
void suggest_put_keys(struct weir__buffer *buffer, const struct desk_suggest *result, size_t i);
/* Whether a suggestion met the goal, and how much room was left. */
void suggest_put_meets(struct weir__buffer *buffer, const struct desk_suggest *result, size_t i);
/* Which keys are to be spared; nothing: none are. */
void suggest_put_spared(struct weir__buffer *buffer, const struct desk_suggest *result);
/* Keys without a good answer, when they asked; nothing: there are none. What a suggestion denies
 * them. */
void suggest_put_suspects(struct weir__buffer *buffer, const struct desk_suggest *result);
void suggest_put_stops(struct weir__buffer *buffer, const struct desk_suggest *result, size_t i);
/* What to do about suspects that no suggestion stops; nothing: one does. */
void suggest_put_slow(struct weir__buffer *buffer, const struct suggest *suggest);
/* Of the strict suggestion: that somebody must decide about the keys that it leaves out, and what
 * the log says about one of them. */
void suggest_put_decide(struct weir__buffer *buffer, const struct desk_suggest *result);
void suggest_put_heavy_key(struct weir__buffer *buffer, const struct desk_suggest *result,
                           size_t i);
/* The k-th key that a suggestion hurts: one that it denies though it is no suspect. Behind the last
 * one how many more there are, or nothing. False: there are no more. */
bool suggest_put_hurt(struct weir__buffer *buffer, const struct suggest *suggest, size_t i,
                      size_t k);
/* How a suggestion treats them. */
void suggest_put_exempt(struct weir__buffer *buffer, const struct desk_suggest *result, size_t i);
/* What to do about a key that makes most of the traffic. False: none does. */
bool suggest_put_heavy(struct weir__buffer *buffer, const struct suggest *suggest);
/* In which order they come. */
const char *suggest_order(const struct desk_suggest *result);

/* ---- suggest_command.c ---- */

/* Suggestions that one replay can show: those for each key, those for all together, and the strict
 * one, which leaves keys out. */
enum suggest_group { SUGGEST_EACH, SUGGEST_TOTAL, SUGGEST_STRICT, SUGGEST_GROUPS };

/* A `weir replay` of a group; `broken`: into lines. False: it has none, and it is of no use. */
bool suggest_put_command(struct weir__buffer *out, const struct suggest *suggest,
                         enum suggest_group group, bool broken);

/* ---- suggest_print.c, suggest_json.c ---- */

void suggest_print(const struct suggest *suggest);
void suggest_print_json(const struct suggest *suggest);

/* ---- suggest_report.c ---- */

/* Writes the page, if one was asked for. */
int suggest_write_report(const struct suggest *suggest);

#endif
