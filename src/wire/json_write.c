/* Writing JSON: see json.h. */
#include "wire/json.h"

#include "base/duration.h"
#include "base/utf8.h"
#include "wire/scan.h"

#include <string.h>

/* One byte that cannot stand in a string as it is. */
static void put_escaped(struct weir__buffer *out, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    char escape[] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    if (c == '"' || c == '\\') {
        escape[1] = (char)c;
        weir__put(out, escape, 2);
    } else if (c == '\n') {
        weir__put(out, "\\n", 2);
    } else {
        weir__put(out, escape, sizeof escape);
    }
}

static void put_string(struct weir__buffer *out, const char *text, size_t len)
{
    weir__put(out, "\"", 1);
    for (size_t at = 0; at < len;) {
        size_t stop = weir__scan(WEIR__STOP_JSON, text, at, len);
        weir__put(out, text + at, stop - at);
        at = stop;
        if (at == len)
            break;
        unsigned char c = (unsigned char)text[at];
        size_t step = c < 0x80 ? 1 : weir__utf8_length(text + at, len - at);
        if (c < 0x80)
            put_escaped(out, c);
        else if (step > 0)
            weir__put(out, text + at, step);
        else
            weir__put(out, "\xef\xbf\xbd", 3);
        at += step ? step : 1;
    }
    weir__put(out, "\"", 1);
}

/* The comma that is due, and the name; most names are plain and fit, and are written in one go. */
static void begin(struct weir__json *json, const char *name)
{
    struct weir__buffer *out = json->out;
    bool comma = json->comma;
    json->comma = true;
    size_t len = name ? strlen(name) : 0;
    if (WEIR__LIKELY(name && len + 4 < out->size - out->len &&
                     weir__scan(WEIR__STOP_JSON, name, 0, len) == len)) {
        char *to = out->data + out->len;
        *to = ',';
        to += comma;
        *to++ = '"';
        memcpy(to, name, len);
        to += len;
        *to++ = '"';
        *to++ = ':';
        *to = 0;
        out->len = (size_t)(to - out->data);
        return;
    }
    if (comma)
        weir__put(out, ",", 1);
    if (name) {
        put_string(out, name, len);
        weir__put(out, ":", 1);
    }
}

void weir__json_open(struct weir__json *json, const char *name, char bracket)
{
    begin(json, name);
    weir__put(json->out, &bracket, 1);
    json->comma = false;
}

void weir__json_close(struct weir__json *json, char bracket)
{
    weir__put(json->out, &bracket, 1);
    json->comma = true;
}

void weir__json_put_int(struct weir__json *json, const char *name, int64_t number)
{
    begin(json, name);
    weir__put_int(json->out, number);
}

void weir__json_put_uint(struct weir__json *json, const char *name, uint64_t number)
{
    begin(json, name);
    if (number > INT64_MAX) /* in two parts, the last digit alone */
        weir__put_int(json->out, (int64_t)(number / 10));
    weir__put_int(json->out, (int64_t)(number > INT64_MAX ? number % 10 : number));
}

/* libc's decimal point follows the locale of the program around us; JSON's is a full stop. */
void weir__json_put_double(struct weir__json *json, const char *name, double number)
{
    if (number - number != 0) { /* infinite, or no number */
        weir__json_put_null(json, name);
        return;
    }
    begin(json, name);
    char digits[32];
    struct weir__buffer text = weir__buffer_over(digits, sizeof digits);
    weir__put_format(&text, "%.6g", number);
    size_t whole = strspn(digits, "-0123456789");
    weir__put(json->out, digits, whole);
    size_t rest = whole + strcspn(digits + whole, "0123456789e");
    if (rest > whole)
        weir__put(json->out, ".", 1);
    weir__put_text(json->out, digits + rest);
}

void weir__json_put_bool(struct weir__json *json, const char *name, bool value)
{
    begin(json, name);
    weir__put(json->out, value ? "true" : "false", value ? 4 : 5);
}

void weir__json_put_null(struct weir__json *json, const char *name)
{
    begin(json, name);
    weir__put(json->out, "null", 4);
}

void weir__json_put_text(struct weir__json *json, const char *name, const char *text, size_t len)
{
    begin(json, name);
    put_string(json->out, text, len);
}

void weir__json_put_seconds(struct weir__json *json, const char *name, int64_t microseconds)
{
    if (microseconds < 0) {
        weir__json_put_null(json, name);
        return;
    }
    begin(json, name);
    weir__put_seconds(json->out, microseconds);
}

void weir__json_put_key(struct weir__json *json, const void *data, size_t len)
{
    if (weir__utf8_valid(data, len)) {
        weir__json_put_text(json, "key", data, len);
        return;
    }
    begin(json, "key_base64");
    weir__put(json->out, "\"", 1);
    weir__put_base64(json->out, data, len);
    weir__put(json->out, "\"", 1);
}
