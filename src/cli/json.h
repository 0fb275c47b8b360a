/*
 * JSON, written piece by piece to a stream: wire/json.h over a FILE. `name` is NULL for a value of
 * an array. The caller makes sure that brackets match.
 */
#ifndef WEIR_CLI_JSON_H
#define WEIR_CLI_JSON_H

#include "core/show.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cli_json {
    FILE *stream;
    bool comma;
};

void cli_json_open(struct cli_json *json, const char *name, char bracket);
/* Closes. After the outermost bracket call cli_json_end, which writes a newline. */
void cli_json_close(struct cli_json *json, char bracket);
void cli_json_end(struct cli_json *json);

void cli_json_int(struct cli_json *json, const char *name, int64_t number);
void cli_json_double(struct cli_json *json, const char *name, double number);
void cli_json_bool(struct cli_json *json, const char *name, bool value);
void cli_json_null(struct cli_json *json, const char *name);
/* UTF-8 text; invalid bytes become U+FFFD. */
void cli_json_text(struct cli_json *json, const char *name, const char *text);
/* Seconds with six decimals, exact; null for a negative time, which means never. */
void cli_json_seconds(struct cli_json *json, const char *name, int64_t microseconds);
/* A key as "key", or as "key_base64" if it is not UTF-8. */
void cli_json_key(struct cli_json *json, const void *data, size_t len);
/* By wire/decision.h: the members of a decision, and a state as an object. */
void cli_json_decision(struct cli_json *json, const weir_decision *decision);
void cli_json_state(struct cli_json *json, const struct weir__shown *state);

#endif
