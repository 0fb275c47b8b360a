/*
 * The value of a field: taken from where it stands, decoded where it must be. Method, target and
 * host may stand in the first line of the request, the query in the target.
 */
#include "desk/select.h"

#include <assert.h>
#include <string.h>

/* ---- decoding ---- */

/* So many hex digits at p; -1: they are not. */
static int32_t values_hex(const char *p, const char *end, int digits)
{
    int32_t code = 0;
    if (end - p < digits)
        return -1;
    for (int i = 0; i < digits; i++) {
        int digit = weir__hex_digit(p[i]);
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* \uXXXX, and two of them that are one character. *p stands at the u, then at the last digit. */
static size_t values_put_code(const char **p, const char *end, char *to)
{
    int32_t code = values_hex(*p + 1, end, 4);
    if (code < 0) {
        *to = **p;
        return 1;
    }
    *p += 4;
    if (code >= 0xd800 && code < 0xdc00 && end - *p > 6 && (*p)[1] == '\\' && (*p)[2] == 'u') {
        int32_t low = values_hex(*p + 3, end, 4);
        if (low >= 0xdc00 && low <= 0xdfff) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            *p += 6;
        }
    }
    return weir__put_utf8((uint32_t)code, to);
}

/* What backslashes stand for, of JSON and of text alike. An escape that nobody knows stands for its
 * letter. */
static size_t values_unescape(struct weir__span text, char *to)
{
    static const char letters[] = "bfnrtv", meanings[] = "\b\f\n\r\t\v";
    const char *end = text.data + text.len;
    size_t n = 0;
    for (const char *p = text.data; p < end; p++) {
        if (*p != '\\' || p + 1 == end) {
            to[n++] = *p;
            continue;
        }
        p++;
        const char *letter = *p ? strchr(letters, *p) : NULL;
        if (*p == 'u') {
            n += values_put_code(&p, end, to + n);
        } else if (*p == 'x' && values_hex(p + 1, end, 2) >= 0) {
            to[n++] = (char)values_hex(p + 1, end, 2);
            p += 2;
        } else {
            to[n++] = letter ? meanings[letter - letters] : *p;
        }
    }
    return n;
}

static size_t values_undouble(struct weir__span text, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        to[n++] = text.data[i];
        i += text.data[i] == '"' && i + 1 < text.len && text.data[i + 1] == '"';
    }
    return n;
}

/* In the room, if it must be decoded. A value never gets longer. */
static struct weir__span values_decode(const struct desk_fields *fields, uint8_t slot,
                                       struct desk_room *room)
{
    struct weir__span value = fields->at[slot];
    bool escaped = fields->escape == DESK_ESCAPE_BACKSLASH
                       ? memchr(value.data, '\\', value.len) != NULL
                       : fields->escaped >> slot & 1;
    if (!escaped || value.len > sizeof room->scratch - room->used)
        return value;
    char *to = room->scratch + room->used;
    value.len = fields->escape == DESK_ESCAPE_QUOTES ? values_undouble(value, to)
                                                     : values_unescape(value, to);
    value.data = to;
    room->used += value.len;
    return value;
}

/* ---- taking ---- */

static bool values_is_there(const struct desk_format *format, struct weir__span value)
{
    return value.len > 0 && !(format->dash_absent && value.len == 1 && value.data[0] == '-');
}

/* "GET /a?b HTTP/1.1": the method or the target. False: it is not a request. */
static bool values_of_request(struct weir__span request, bool method, struct weir__span *ret)
{
    const char *blank = memchr(request.data, ' ', request.len);
    if (!blank)
        return false;
    *ret = (struct weir__span){request.data, (size_t)(blank - request.data)};
    if (method)
        return true;
    *ret = (struct weir__span){blank + 1, request.len - ret->len - 1};
    const char *last = memrchr(ret->data, ' ', ret->len);
    size_t behind = last ? (size_t)(ret->data + ret->len - last) : 0;
    if (last && behind > 5 && !memcmp(last + 1, "HTTP", 4))
        ret->len -= behind;
    return true;
}

static bool values_target(const struct desk_format *format, const struct desk_fields *fields,
                          struct desk_room *room, struct weir__span *ret)
{
    if (desk_fields_has(fields, DESK_TARGET)) {
        *ret = values_decode(fields, DESK_TARGET, room);
        return values_is_there(format, *ret);
    }
    return desk_fields_has(fields, DESK_REQUEST) &&
           values_of_request(values_decode(fields, DESK_REQUEST, room), false, ret) &&
           values_is_there(format, *ret);
}

/* What stands behind the '?' of the target. */
static bool values_query(struct weir__span target, struct weir__span *ret)
{
    const char *mark = memchr(target.data, '?', target.len);
    if (!mark)
        return false;
    *ret = (struct weir__span){mark + 1, (size_t)(target.data + target.len - mark - 1)};
    const char *fragment = memchr(ret->data, '#', ret->len);
    if (fragment)
        ret->len = (size_t)(fragment - ret->data);
    return true;
}

/* The host of "http://host:80/path". */
static bool values_host(struct weir__span target, struct weir__span *ret)
{
    const char *scheme =
        target.len > 0 && target.data[0] != '/' ? memmem(target.data, target.len, "://", 3) : NULL;
    if (!scheme)
        return false;
    const char *start = scheme + 3, *end = target.data + target.len;
    size_t len = 0;
    while (start + len < end && !strchr("/?#", start[len]))
        len++;
    *ret = (struct weir__span){start, len};
    return len > 0;
}

struct weir__span desk_last_address(struct weir__span value)
{
    const char *comma = memrchr(value.data, ',', value.len);
    if (!comma)
        return value;
    size_t skip = (size_t)(comma + 1 - value.data);
    value.data += skip;
    value.len -= skip;
    while (value.len > 0 && value.data[0] == ' ')
        value.data++, value.len--;
    return value;
}

bool desk_value(const struct desk_format *format, const struct desk_fields *fields, uint8_t slot,
                struct desk_room *room, struct weir__span *ret)
{
    assert(slot < DESK_SLOTS);
    struct weir__span target;
    if (slot == DESK_TARGET)
        return values_target(format, fields, room, ret);
    if (desk_fields_has(fields, slot)) {
        *ret = values_decode(fields, slot, room);
        return values_is_there(format, *ret);
    }
    if (slot == DESK_METHOD && desk_fields_has(fields, DESK_REQUEST))
        return values_of_request(values_decode(fields, DESK_REQUEST, room), true, ret) &&
               values_is_there(format, *ret);
    if (slot != DESK_QUERY && slot != DESK_HOST)
        return false;
    return values_target(format, fields, room, &target) &&
           (slot == DESK_QUERY ? values_query(target, ret) : values_host(target, ret));
}
