/* The names of fields: see fields.h. */
#include "desk/fields.h"

#include <assert.h>

#define SECOND INT64_C(1000000000)
#define MILLI INT64_C(1000000)

/* Names as they are compared: lower case, '_' for '-'. Of two names for one slot in one line the
 * first in this table counts. */
#define NAME(text) text, sizeof(text) - 1
static const struct {
    const char *name;
    size_t len;
    uint8_t slot;
    int64_t unit_ns;
} known_names[] = {
    {NAME("startutc"), DESK_TIME, 0}, /* Traefik; `time` there is when the line was written */
    {NAME("msec"), DESK_TIME, 0},
    {NAME("time"), DESK_TIME, 0},
    {NAME("timestamp"), DESK_TIME, 0},
    {NAME("@timestamp"), DESK_TIME, 0},
    {NAME("time_iso8601"), DESK_TIME, 0},
    {NAME("time_local"), DESK_TIME, 0},
    {NAME("start_time"), DESK_TIME, 0},
    {NAME("startlocal"), DESK_TIME, 0},
    {NAME("ts"), DESK_TIME, 0},
    {NAME("request_creation_time"), DESK_TIME, 0},
    {NAME("accept_date"), DESK_TIME, 0},
    {NAME("datetime"), DESK_TIME, 0},
    {NAME("date"), DESK_TIME, 0},
    {NAME("ip"), DESK_IP, 0},
    {NAME("client_ip"), DESK_IP, 0},
    {NAME("clientip"), DESK_IP, 0},
    {NAME("request.client_ip"), DESK_IP, 0},
    {NAME("request.remote_ip"), DESK_IP, 0},
    {NAME("remote_ip"), DESK_IP, 0},
    {NAME("remote_addr"), DESK_IP, 0},
    {NAME("clienthost"), DESK_IP, 0},
    {NAME("downstream_remote_address"), DESK_IP, 0},
    {NAME("client.ip"), DESK_IP, 0},
    {NAME("source.ip"), DESK_IP, 0},
    {NAME("client"), DESK_IP, 0},
    {NAME("remote_host"), DESK_IP, 0},
    {NAME("x_forwarded_for"), DESK_IP, 0},
    {NAME("method"), DESK_METHOD, 0},
    {NAME("request_method"), DESK_METHOD, 0},
    {NAME("requestmethod"), DESK_METHOD, 0},
    {NAME("request.method"), DESK_METHOD, 0},
    {NAME("http_method"), DESK_METHOD, 0},
    {NAME("http.request.method"), DESK_METHOD, 0},
    {NAME("verb"), DESK_METHOD, 0},
    {NAME("path"), DESK_TARGET, 0},
    {NAME("request_uri"), DESK_TARGET, 0},
    {NAME("uri"), DESK_TARGET, 0},
    {NAME("url"), DESK_TARGET, 0},
    {NAME("requestpath"), DESK_TARGET, 0},
    {NAME("request.uri"), DESK_TARGET, 0},
    {NAME("request_path"), DESK_TARGET, 0},
    {NAME("url.path"), DESK_TARGET, 0},
    {NAME("x_envoy_origin_path"), DESK_TARGET, 0},
    {NAME("x_envoy_original_path"), DESK_TARGET, 0},
    {NAME("query"), DESK_QUERY, 0},
    {NAME("args"), DESK_QUERY, 0},
    {NAME("query_string"), DESK_QUERY, 0},
    {NAME("request"), DESK_REQUEST, 0},
    {NAME("request_line"), DESK_REQUEST, 0},
    {NAME("host"), DESK_HOST, 0},
    {NAME("http_host"), DESK_HOST, 0},
    {NAME("request.host"), DESK_HOST, 0},
    {NAME("requesthost"), DESK_HOST, 0},
    {NAME("authority"), DESK_HOST, 0},
    {NAME(":authority"), DESK_HOST, 0},
    {NAME("vhost"), DESK_HOST, 0},
    {NAME("server_name"), DESK_HOST, 0},
    {NAME("status"), DESK_STATUS, 0},
    {NAME("status_code"), DESK_STATUS, 0},
    {NAME("response_code"), DESK_STATUS, 0},
    {NAME("downstreamstatus"), DESK_STATUS, 0},
    {NAME("http.response.status_code"), DESK_STATUS, 0},
    {NAME("code"), DESK_STATUS, 0},
    {NAME("bytes"), DESK_BYTES, 0},
    {NAME("body_bytes_sent"), DESK_BYTES, 0},
    {NAME("bytes_sent"), DESK_BYTES, 0},
    {NAME("downstreamcontentsize"), DESK_BYTES, 0},
    {NAME("sent_bytes"), DESK_BYTES, 0},
    {NAME("size"), DESK_BYTES, 0},
    {NAME("duration"), DESK_DURATION, SECOND}, /* formats say otherwise: formats.c */
    {NAME("duration_ms"), DESK_DURATION, MILLI},
    {NAME("request_time"), DESK_DURATION, SECOND},
    {NAME("request_time_ms"), DESK_DURATION, MILLI},
    {NAME("latency"), DESK_DURATION, SECOND},
    {NAME("latency_ms"), DESK_DURATION, MILLI},
    {NAME("user"), DESK_USER, 0},
    {NAME("remote_user"), DESK_USER, 0},
    {NAME("clientusername"), DESK_USER, 0},
    {NAME("user_id"), DESK_USER, 0},
    {NAME("username"), DESK_USER, 0},
    {NAME("agent"), DESK_AGENT, 0},
    {NAME("http_user_agent"), DESK_AGENT, 0},
    {NAME("user_agent"), DESK_AGENT, 0},
    {NAME("request.headers.user_agent"), DESK_AGENT, 0},
    {NAME("request_user_agent"), DESK_AGENT, 0},
    {NAME("useragent"), DESK_AGENT, 0},
    {NAME("referer"), DESK_REFERER, 0},
    {NAME("http_referer"), DESK_REFERER, 0},
    {NAME("referrer"), DESK_REFERER, 0},
    {NAME("request.headers.referer"), DESK_REFERER, 0},
    {NAME("request_referer"), DESK_REFERER, 0},
    {NAME("key"), DESK_KEY, 0},
    {NAME("cost"), DESK_COST, 0},
};
_Static_assert(WEIR__COUNT(known_names) < DESK_NO_SLOT, "a rank is one byte");

/* What a header field or an argument may be called in a log, and the words for it. */
static const struct {
    const char *log, *word;
} known_beginnings[] = {
    {"request.headers.", "header."},
    {"headers.", "header."},
    {"http_", "header."},
    {"arg_", "query."},
    {"request_", "header."},
};

static const char *const slot_words[DESK_NAMED] = {
    [DESK_TIME] = "time",         [DESK_IP] = "ip",         [DESK_METHOD] = "method",
    [DESK_TARGET] = "path",       [DESK_QUERY] = "query",   [DESK_REQUEST] = "request",
    [DESK_HOST] = "host",         [DESK_STATUS] = "status", [DESK_BYTES] = "bytes",
    [DESK_DURATION] = "duration", [DESK_USER] = "user",     [DESK_AGENT] = "agent",
    [DESK_REFERER] = "referer",   [DESK_KEY] = "key",       [DESK_COST] = "cost",
};

bool desk_names_equal(struct weir__span a, struct weir__span b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++) {
        if (desk_name_char(a.data[i]) != desk_name_char(b.data[i]))
            return false;
    }
    return true;
}

const char *desk_slot_word(uint8_t slot)
{
    assert(slot < DESK_NAMED);
    return slot_words[slot];
}

uint8_t desk_slot_of_word(struct weir__span word)
{
    static const struct {
        const char *name;
        uint8_t slot;
    } headers[] = {{"header.user-agent", DESK_AGENT},
                   {"header.referer", DESK_REFERER},
                   {"header.host", DESK_HOST}};
    for (size_t i = 0; i < WEIR__COUNT(headers); i++) {
        if (weir__span_is(word, headers[i].name))
            return headers[i].slot;
    }
    for (unsigned slot = 0; slot < DESK_NAMED; slot++) {
        if (weir__span_is(word, slot_words[slot]))
            return (uint8_t)slot;
    }
    return DESK_NO_SLOT;
}

uint8_t desk_wanted_slot(struct desk_wanted *wanted, struct weir__span name)
{
    uint8_t slot = desk_slot_of_word(name);
    if (slot != DESK_NO_SLOT)
        return slot;
    for (size_t i = 0; i < wanted->count; i++) {
        if (weir__span_is(name, wanted->names[i]))
            return (uint8_t)(DESK_NAMED + i);
    }
    if (wanted->count == DESK_NAMED_MAX || name.len > DESK_NAME_MAX)
        return DESK_NO_SLOT;
    memcpy(wanted->names[wanted->count], name.data, name.len);
    wanted->names[wanted->count][name.len] = 0;
    return (uint8_t)(DESK_NAMED + wanted->count++);
}

/* Whether a name of a log, like http_x_real_ip, is the word header.x-real-ip. */
static bool fields_is_word(struct weir__span name, struct weir__span word)
{
    if (desk_names_equal(name, word))
        return true;
    for (size_t i = 0; i < WEIR__COUNT(known_beginnings); i++) {
        struct weir__span log = weir__span_of(known_beginnings[i].log);
        struct weir__span ours = weir__span_of(known_beginnings[i].word);
        if (name.len > log.len && word.len > ours.len && !memcmp(word.data, ours.data, ours.len) &&
            desk_names_equal((struct weir__span){name.data, log.len}, log) &&
            desk_names_equal((struct weir__span){name.data + log.len, name.len - log.len},
                             (struct weir__span){word.data + ours.len, word.len - ours.len}))
            return true;
    }
    return false;
}

/* Where a name leads. `known` is its place in the table, WEIR__COUNT(known_names): it has none. */
static struct desk_place fields_place(const struct desk_wanted *wanted, struct weir__span name,
                                      size_t known)
{
    struct desk_place place = {DESK_NO_SLOT, DESK_NO_SLOT, DESK_NO_SLOT, 0};
    for (size_t i = 0; i < wanted->count && place.named == DESK_NO_SLOT; i++) {
        if (fields_is_word(name, weir__span_of(wanted->names[i])))
            place.named = (uint8_t)(DESK_NAMED + i);
    }
    if (known < WEIR__COUNT(known_names)) {
        place.slot = known_names[known].slot;
        place.rank = (uint8_t)(known + 1);
        place.unit_ns = known_names[known].unit_ns;
    }
    for (size_t i = 0; i < wanted->moved_count; i++) {
        struct weir__span moved = {wanted->moved[i].name, wanted->moved[i].len};
        bool is = desk_names_equal(name, moved);
        if (is && wanted->moved[i].slot >= DESK_NAMED) {
            place.named = wanted->moved[i].slot;
        } else if (is) {
            place.slot = wanted->moved[i].slot;
            place.rank = 0;
            place.unit_ns = place.unit_ns ? place.unit_ns : SECOND;
        } else if (place.slot == wanted->moved[i].slot) {
            place.slot = DESK_NO_SLOT; /* it is to be found elsewhere */
        } else if (place.named == wanted->moved[i].slot) {
            place.named = DESK_NO_SLOT;
        }
    }
    return place;
}

struct desk_place desk_place_of(const struct desk_wanted *wanted, struct weir__span name)
{
    size_t i = 0;
    while (i < WEIR__COUNT(known_names) &&
           (name.len != known_names[i].len ||
            !desk_names_equal(name, (struct weir__span){known_names[i].name, name.len})))
        i++;
    return fields_place(wanted, name, i);
}

bool desk_known_place(const struct desk_wanted *wanted, size_t i, struct weir__span *ret_name,
                      struct desk_place *ret)
{
    if (i >= WEIR__COUNT(known_names))
        return false;
    *ret_name = (struct weir__span){known_names[i].name, known_names[i].len};
    *ret = fields_place(wanted, *ret_name, i);
    return true;
}
