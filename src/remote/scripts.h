/*
 * The Lua scripts inside the library, which of them a call needs, and the numbers that it is called
 * with. The table is made from lua/ when weir is built.
 */
#ifndef WEIR_SCRIPTS_H
#define WEIR_SCRIPTS_H

#include "base/buffer.h"
#include "core/core.h"

/* A script. A lean one takes from one key under one limit of a kind. */
struct weir__script {
    const char *name;
    const char *sha1;      /* 40 hexadecimal digits */
    int kind;              /* enum weir__kind of a lean script, else -1 */
    const char *arguments; /* of a lean script, in their order, separated by spaces */
    const char *text;
};

extern const struct weir__script weir__scripts[];
extern const size_t weir__script_count;
/* The function library: its version, and the number of the calls that it understands. */
extern const int weir__library_version, weir__library_serves;

/* The general script for every verb; the general one for reset and release alone, which a server
 * without memory runs as well; all scripts as a library of functions. */
#define WEIR__SCRIPT_GENERAL "weir"
#define WEIR__SCRIPT_FREE "weir_free"
#define WEIR__SCRIPT_LIBRARY "weir_library"

/* NULL: there is no such script. */
const struct weir__script *weir__script_named(const char *name);
/* The lean script of a kind. `test`: the one that gets the time as its last argument. */
const struct weir__script *weir__script_lean(int kind, bool test);
/* The name of a script in the library. */
void weir__script_put_function(struct weir__buffer *buffer, const struct weir__script *script);

#define WEIR__LEAN_NUMBERS 8 /* at most */
/* The arguments of a lean script for a take; how many. */
size_t weir__script_lean_numbers(const struct weir__script *script, const struct weir__rule *rule,
                                 int64_t cost, int64_t wait_us, int64_t ret[WEIR__LEAN_NUMBERS]);
#define WEIR__RULE_NUMBERS 7
/* A rule as the general script takes it. */
void weir__script_rule_numbers(const struct weir__rule *rule, int64_t ret[WEIR__RULE_NUMBERS]);

#endif
