/* See json.h. */
#include "cli/json.h"

#include "base/duration.h"
#include "cli/utf8.h"

#include <inttypes.h>
#include <string.h>

static void put_string(FILE *stream, const char *text, size_t len)
{
    fputc('"', stream);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(stream, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", stream);
        else if (c < 0x20 || c == 0x7f)
            fprintf(stream, "\\u%04x", c);
        else
            fputc(c, stream);
    }
    fputc('"', stream);
}

static void put_base64(FILE *stream, const unsigned char *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fputc('"', stream);
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)data[i] << 16;
        bits |= n > 1 ? (uint32_t)data[i + 1] << 8 : 0;
        bits |= n > 2 ? data[i + 2] : 0;
        char group[5] = {digits[bits >> 18], digits[bits >> 12 & 63], '=', '=', 0};
        if (n > 1)
            group[2] = digits[bits >> 6 & 63];
        if (n > 2)
            group[3] = digits[bits & 63];
        fputs(group, stream);
    }
    fputc('"', stream);
}

static void begin(struct cli_json *json, const char *name)
{
    if (json->comma)
        fputc(',', json->stream);
    json->comma = true;
    if (name) {
        put_string(json->stream, name, strlen(name));
        fputc(':', json->stream);
    }
}

void cli_json_open(struct cli_json *json, const char *name, char bracket)
{
    begin(json, name);
    fputc(bracket, json->stream);
    json->comma = false;
}

void cli_json_close(struct cli_json *json, char bracket)
{
    fputc(bracket, json->stream);
    json->comma = true;
}

void cli_json_end(struct cli_json *json)
{
    fputc('\n', json->stream);
    json->comma = false;
}

void cli_json_int(struct cli_json *json, const char *name, int64_t number)
{
    begin(json, name);
    fprintf(json->stream, "%" PRId64, number);
}

void cli_json_double(struct cli_json *json, const char *name, double number)
{
    begin(json, name);
    fprintf(json->stream, "%.6g", number);
}

void cli_json_bool(struct cli_json *json, const char *name, bool value)
{
    begin(json, name);
    fputs(value ? "true" : "false", json->stream);
}

void cli_json_null(struct cli_json *json, const char *name)
{
    begin(json, name);
    fputs("null", json->stream);
}

void cli_json_text(struct cli_json *json, const char *name, const char *text)
{
    begin(json, name);
    put_string(json->stream, text, strlen(text));
}

void cli_json_seconds(struct cli_json *json, const char *name, int64_t microseconds)
{
    if (microseconds < 0) {
        cli_json_null(json, name);
        return;
    }
    char digits[32];
    struct weir__buffer buffer = weir__buffer_over(digits, sizeof digits);
    weir__put_seconds(&buffer, microseconds);
    begin(json, name);
    fputs(digits, json->stream);
}

void cli_json_key(struct cli_json *json, const void *data, size_t len)
{
    bool text = cli_utf8_valid(data, len);
    begin(json, text ? "key" : "key_base64");
    if (text)
        put_string(json->stream, data, len);
    else
        put_base64(json->stream, data, len);
}
