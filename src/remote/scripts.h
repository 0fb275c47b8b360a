/* The Lua scripts inside the library, and which of them a call needs. They are in a header that is
 * made from lua/ when weir is built. */
#ifndef WEIR_SCRIPTS_H
#define WEIR_SCRIPTS_H

#include "base/buffer.h"

struct weir__script;

/* The script for every verb, or the lean one that takes from one key under one limit of a kind.
 * `test`: the one that gets the time as its last argument. */
const struct weir__script *weir__script_general(bool test);
const struct weir__script *weir__script_lean(int kind, bool test);
/* The general one for reset and release alone, which a server without memory runs as well. */
const struct weir__script *weir__script_free(void);

const char *weir__script_sha1(const struct weir__script *script);
/* A lean script's arguments in their order, separated by spaces. */
const char *weir__script_arguments(const struct weir__script *script);
const char *weir__script_text(const struct weir__script *script);

/* All scripts as a library of functions, its version, which calls it serves, and the name of a
 * script in it. */
const char *weir__script_library(void);
int weir__script_library_version(void);
int weir__script_library_serves(void);
void weir__script_put_function(struct weir__buffer *buffer, const struct weir__script *script);

#endif
