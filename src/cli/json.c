/* JSON on a stream: see json.h. Each call writes one piece into memory that is large enough, and
 * prints it. */
#include "cli/json.h"

#include "cli/cli.h"
#include "wire/decision.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    char room[512];
    char *memory;
    struct weir__buffer buffer;
    struct weir__json json;
};

/* Makes room for a name, a text and what is around them. One byte can become six (\u001b). */
static void json_begin_piece(struct piece *piece, const struct cli_json *json, const char *name,
                             size_t len)
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

static void json_end_piece(struct piece *piece, struct cli_json *json)
{
    assert(!piece->buffer.cut);
    fwrite(piece->buffer.data, 1, piece->buffer.len, json->stream);
    json->comma = piece->json.comma;
    if (piece->memory != piece->room)
        free(piece->memory);
}

void cli_json_open(struct cli_json *json, const char *name, char bracket)
{
    struct piece piece;
    json_begin_piece(&piece, json, name, 0);
    weir__json_open(&piece.json, name, bracket);
    json_end_piece(&piece, json);
}

void cli_json_close(struct cli_json *json, char bracket)
{
    struct piece piece;
    json_begin_piece(&piece, json, NULL, 0);
    weir__json_close(&piece.json, bracket);
    json_end_piece(&piece, json);
}

void cli_json_end(struct cli_json *json)
{
    fputc('\n', json->stream);
    json->comma = false;
}

void cli_json_int(struct cli_json *json, const char *name, int64_t number)
{
    struct piece piece;
    json_begin_piece(&piece, json, name, 0);
    weir__json_put_int(&piece.json, name, number);
    json_end_piece(&piece, json);
}

void cli_json_double(struct cli_json *json, const char *name, double number)
{
    struct piece piece;
    json_begin_piece(&piece, json, name, 0);
    weir__json_put_double(&piece.json, name, number);
    json_end_piece(&piece, json);
}

void cli_json_bool(struct cli_json *json, const char *name, bool value)
{
    struct piece piece;
    json_begin_piece(&piece, json, name, 0);
    weir__json_put_bool(&piece.json, name, value);
    json_end_piece(&piece, json);
}

void cli_json_null(struct cli_json *json, const char *name)
{
    struct piece piece;
    json_begin_piece(&piece, json, name, 0);
    weir__json_put_null(&piece.json, name);
    json_end_piece(&piece, json);
}

void cli_json_text(struct cli_json *json, const char *name, const char *text)
{
    struct piece piece;
    size_t len = strlen(text);
    json_begin_piece(&piece, json, name, len);
    weir__json_put_text(&piece.json, name, text, len);
    json_end_piece(&piece, json);
}

void cli_json_seconds(struct cli_json *json, const char *name, int64_t microseconds)
{
    struct piece piece;
    json_begin_piece(&piece, json, name, 0);
    weir__json_put_seconds(&piece.json, name, microseconds);
    json_end_piece(&piece, json);
}

void cli_json_key(struct cli_json *json, const void *data, size_t len)
{
    struct piece piece;
    json_begin_piece(&piece, json, "key_base64", len);
    weir__json_put_key(&piece.json, data, len);
    json_end_piece(&piece, json);
}

#define NUMBERS_BYTES 512 /* at most, of a decision or of a state */

void cli_json_decision(struct cli_json *json, const weir_decision *decision)
{
    struct piece piece;
    json_begin_piece(&piece, json, NULL, NUMBERS_BYTES);
    weir__json_put_decision(&piece.json, decision);
    json_end_piece(&piece, json);
}

void cli_json_state(struct cli_json *json, const struct weir__shown *state)
{
    struct piece piece;
    json_begin_piece(&piece, json, NULL, NUMBERS_BYTES);
    weir__json_put_state(&piece.json, state);
    json_end_piece(&piece, json);
}
