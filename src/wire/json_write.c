/* Writing JSON: see json.h. */
#include "wire/json.h"

#include "base/duration.h"
#include "base/span.h"
#include "wire/scan.h"

#include <string.h>

/* One byte that cannot stand in a string as it is. */
static void json_put_escaped(struct weir__buffer *out, unsigned char c)
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

static void json_put_string(struct weir__buffer *out, const char *text, size_t len)
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
            json_put_escaped(out, c);
        else if (step > 0)
            weir__put(out, text + at, step);
        else
            weir__put(out, "\xef\xbf\xbd", 3);
        at += step ? step : 1;
    }
    weir__put(out, "\"", 1);
}

/* The comma that is due, and the name; most names are plain and fit, and are written in one go. */
static void json_begin(struct weir__json *json, const char *name)
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
        json_put_string(out, name, len);
        weir__put(out, ":", 1);
    }
}

void weir__json_open(struct weir__json *json, const char *name, char bracket)
{
    json_begin(json, name);
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
    json_begin(json, name);
    weir__put_int(json->out, number);
}

void weir__json_put_uint(struct weir__json *json, const char *name, uint64_t number)
{
    json_begin(json, name);
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
    json_begin(json, name);
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
    json_begin(json, name);
    weir__put(json->out, value ? "true" : "false", value ? 4 : 5);
}

void weir__json_put_null(struct weir__json *json, const char *name)
{
    json_begin(json, name);
    weir__put(json->out, "null", 4);
}

void weir__json_put_text(struct weir__json *json, const char *name, const char *text, size_t len)
{
    json_begin(json, name);
    json_put_string(json->out, text, len);
}

void weir__json_put_string(struct weir__json *json, const char *name, const char *text)
{
    if (text)
        weir__json_put_text(json, name, text, strlen(text));
    else
        weir__json_put_null(json, name);
}

void weir__json_put_seconds(struct weir__json *json, const char *name, int64_t microseconds)
{
    if (microseconds < 0) {
        weir__json_put_null(json, name);
        return;
    }
    json_begin(json, name);
    weir__put_seconds(json->out, microseconds);
}

void weir__json_put_key(struct weir__json *json, const void *data, size_t len)
{
    if (weir__utf8_valid(data, len)) {
        weir__json_put_text(json, "key", data, len);
        return;
    }
    json_begin(json, "key_base64");
    weir__put(json->out, "\"", 1);
    weir__put_base64(json->out, data, len);
    weir__put(json->out, "\"", 1);
}

/* ---- base64 (RFC 4648, section 4), for keys that are not UTF-8 ---- */

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void weir__put_base64(struct weir__buffer *buffer, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        bits |= n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        bits |= n > 2 ? bytes[i + 2] : 0;
        char group[4] = {base64_digits[bits >> 18], base64_digits[bits >> 12 & 63], '=', '='};
        if (n > 1)
            group[2] = base64_digits[bits >> 6 & 63];
        if (n > 2)
            group[3] = base64_digits[bits & 63];
        weir__put(buffer, group, 4);
    }
}

/* What a digit stands for, or -1. */
static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int64_t weir__base64_decode(char *text, size_t len)
{
    /* One or two '=' fill up the last group of four; without them it is just shorter. */
    if (len % 4 == 0 && len > 0 && text[len - 1] == '=')
        len -= text[len - 2] == '=' ? 2 : 1;
    if (len % 4 == 1)
        return -1;
    uint32_t bits = 0;
    int held = 0; /* bits not written yet */
    char *to = text;
    for (size_t i = 0; i < len; i++) {
        int value = base64_value(text[i]);
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held >= 8) {
            held -= 8;
            *to++ = (char)(bits >> held);
        }
    }
    if (bits & ((1u << held) - 1))
        return -1;
    return to - text;
}
