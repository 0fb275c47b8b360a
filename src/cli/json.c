/* See json.h. Each call writes one piece into memory that is large enough and passes it on. */
#include "cli/json.h"

#include "cli/cli.h"
#include "wire/decision.h"

#include <stdlib.h>
#include <string.h>

struct piece {
    char room[512];
    char *memory;
    struct weir__buffer buffer;
    struct weir__json json;
};

/* Makes room for a name, a text and what is around them; a byte may become six (\u001b). */
static void start(struct piece *piece, const struct cli_json *json, const char *name, size_t len)
{
    size_t size = 6 * ((name ? strlen(name) : 0) + len) + 64;
    piece->memory = size <= sizeof piece->room ? piece->room : malloc(size);
    if (!piece->memory) {
        fputs("weir: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    piece->buffer = weir__buffer_over(piece->memory, size);
    piece->json = (struct weir__json){&piece->buffer, json->comma};
}

static void finish(struct piece *piece, struct cli_json *json)
{
    fwrite(piece->buffer.data, 1, piece->buffer.len, json->stream);
    json->comma = piece->json.comma;
    if (piece->memory != piece->room)
        free(piece->memory);
}

void cli_json_open(struct cli_json *json, const char *name, char bracket)
{
    struct piece piece;
    start(&piece, json, name, 0);
    weir__json_open(&piece.json, name, bracket);
    finish(&piece, json);
}

void cli_json_close(struct cli_json *json, char bracket)
{
    struct piece piece;
    start(&piece, json, NULL, 0);
    weir__json_close(&piece.json, bracket);
    finish(&piece, json);
}

void cli_json_end(struct cli_json *json)
{
    fputc('\n', json->stream);
    json->comma = false;
}

void cli_json_int(struct cli_json *json, const char *name, int64_t number)
{
    struct piece piece;
    start(&piece, json, name, 0);
    weir__json_put_int(&piece.json, name, number);
    finish(&piece, json);
}

void cli_json_double(struct cli_json *json, const char *name, double number)
{
    struct piece piece;
    start(&piece, json, name, 0);
    weir__json_put_double(&piece.json, name, number);
    finish(&piece, json);
}

void cli_json_bool(struct cli_json *json, const char *name, bool value)
{
    struct piece piece;
    start(&piece, json, name, 0);
    weir__json_put_bool(&piece.json, name, value);
    finish(&piece, json);
}

void cli_json_null(struct cli_json *json, const char *name)
{
    struct piece piece;
    start(&piece, json, name, 0);
    weir__json_put_null(&piece.json, name);
    finish(&piece, json);
}

void cli_json_text(struct cli_json *json, const char *name, const char *text)
{
    struct piece piece;
    size_t len = strlen(text);
    start(&piece, json, name, len);
    weir__json_put_text(&piece.json, name, text, len);
    finish(&piece, json);
}

void cli_json_seconds(struct cli_json *json, const char *name, int64_t microseconds)
{
    struct piece piece;
    start(&piece, json, name, 0);
    weir__json_put_seconds(&piece.json, name, microseconds);
    finish(&piece, json);
}

void cli_json_key(struct cli_json *json, const void *data, size_t len)
{
    struct piece piece;
    start(&piece, json, "key_base64", len);
    weir__json_put_key(&piece.json, data, len);
    finish(&piece, json);
}

#define NUMBERS_BYTES 512 /* a decision's or a state's members at most */

void cli_json_decision(struct cli_json *json, const weir_decision *decision)
{
    struct piece piece;
    start(&piece, json, NULL, NUMBERS_BYTES);
    weir__json_put_decision(&piece.json, decision);
    finish(&piece, json);
}

void cli_json_state(struct cli_json *json, const struct weir__shown *state)
{
    struct piece piece;
    start(&piece, json, NULL, NUMBERS_BYTES);
    weir__json_put_state(&piece.json, state);
    finish(&piece, json);
}
