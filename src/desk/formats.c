/*
 * The formats by their names, and which one a file has. Detection reads the first lines of the file
 * in every format; the first in the table that fits nearly all of them is it. So formats that are
 * special cases of others stand before them.
 */
#include "desk/format.h"

#include "base/buffer.h"
#include "desk/desk.h"
#include "policy/view.h"

#include <stdlib.h>
#include <string.h>

#define DETECT_LINES 200
#define DETECT_PERCENT 90 /* of these must fit */
#define SHOWN 100

/* The fields before the request, as the common log format has them. */
#define COMMON "$remote_addr $ident $remote_user [$time_local] \"$request\" $status $bytes"
#define COMBINED COMMON " \"$http_referer\" \"$http_user_agent\""

#define ENVOY_END                                                                                  \
    "$bytes_received $bytes $duration_ms $upstream_time \"$http_x_forwarded_for\" "                \
    "\"$http_user_agent\" \"$http_x_request_id\" \"$host\" \"$upstream_host\""

static const struct named_format {
    const char *name;
    enum desk_family family;
    const char *text;       /* of text formats */
    const char *members[3]; /* of JSON: a line has all of these */
    int64_t duration_ns;    /* of JSON */
    const char *ip;         /* what holds the address, if it is not found by its usual names */
    bool exact;             /* not followed by more */
    bool syslog, open_end;
    bool address; /* a line fits only if its address is one */
} named_formats[] = {
    {.name = "weir",
     .family = DESK_JSON,
     .members = {"protocol", "verdict", "shadow_denied"},
     .duration_ns = 1000000000},
    {.name = "caddy",
     .family = DESK_JSON,
     .members = {"request.remote_ip", "request.uri", "ts"},
     .duration_ns = 1000000000},
    {.name = "traefik",
     .family = DESK_JSON,
     .members = {"ClientHost", "RequestMethod", "StartUTC"},
     .duration_ns = 1},
    {.name = "envoy",
     .family = DESK_JSON,
     .members = {"start_time", "response_code"},
     .duration_ns = 1000000},
    {.name = "json", .family = DESK_JSON, .duration_ns = 1000000000},
    {.name = "alb",
     .text = "$type $written_time $elb $client_ip $target $request_processing $request_time "
             "$response_processing $status $target_status $received_bytes $bytes \"$request\" "
             "\"$http_user_agent\" $ssl_cipher $ssl_protocol $target_group \"$trace_id\" \"$host\" "
             "\"$certificate\" $rule $request_creation_time \"$actions\""},
    {.name = "envoy", /* as Istio configures it */
     .text = "[$start_time] \"$request\" $status $response_flags $response_details "
             "$termination_details \"$failure\" " ENVOY_END
             " $upstream_cluster $upstream_local $downstream_local $downstream_remote_address",
     .address = true},
    {.name = "envoy",
     .text = "[$start_time] \"$request\" $status $response_flags " ENVOY_END,
     .ip = "http_x_forwarded_for"},
    {.name = "haproxy",
     .text = "$client_ip [$accept_date] $frontend $backend/$server $tr/$tw/$tc/$tresponse/"
             "$duration_ms $status $bytes $request_cookie $response_cookie $state $connections "
             "$queues $captures\"$request\"",
     .exact = true,
     .syslog = true,
     .open_end = true,
     .address = true},
    {.name = "traefik",
     .text = COMBINED " $number \"$router\" \"$server\" ${request_time_ms}ms",
     .exact = true},
    {.name = "combined", /* Apache's vhost_combined */
     .text = "$host:$server_port " COMBINED,
     .address = true},
    {.name = "combined", .text = COMBINED},
    {.name = "common", .text = COMMON},
};

const char *const desk_format_names[] = {"combined", "common", "nginx", "json",    "csv",
                                         "haproxy",  "envoy",  "caddy", "traefik", "alb",
                                         "weir",     "trace",  NULL};

/* ---- one format of the table ---- */

/* The address of a format that has no usual name for it, unless somebody says where it is. */
static void formats_lead_to_ip(const struct named_format *named, struct desk_wanted *wanted)
{
    for (size_t i = 0; i < wanted->moved_count; i++) {
        if (wanted->moved[i].slot == DESK_IP)
            return;
    }
    if (!named->ip || wanted->moved_count == DESK_NAMED_MAX)
        return;
    wanted->moved[wanted->moved_count].slot = DESK_IP;
    wanted->moved[wanted->moved_count].name = named->ip;
    wanted->moved[wanted->moved_count++].len = strlen(named->ip);
}

/* What formats of the table have beside their fields. */
static void formats_name(const struct named_format *named, struct desk_format *ret)
{
    ret->name = named->name;
    ret->origin = named;
    if (named->family == DESK_JSON) {
        ret->duration_ns = named->duration_ns;
        return;
    }
    ret->more = !named->exact;
    ret->syslog = named->syslog;
    ret->open_end = named->open_end;
}

static int formats_compile(const struct named_format *named, const struct desk_wanted *wanted,
                           struct desk_format *ret, weir_error *err)
{
    struct desk_wanted mine = *wanted;
    memset(ret, 0, sizeof *ret);
    formats_lead_to_ip(named, &mine);
    int code = named->family == DESK_JSON ? desk_json_compile(&mine, ret, err)
                                          : desk_text_compile(named->text, &mine, ret, err);
    formats_name(named, ret);
    return code;
}

/* ---- the beginning of a file ---- */

/* The next line that is not empty; false: there is none. One that the beginning has only a part of
 * counts only if it is the first. */
static bool formats_next_line(struct weir__span *rest, bool first, struct weir__span *ret)
{
    while (rest->len > 0) {
        const char *end = memchr(rest->data, '\n', rest->len);
        if (!end && !first)
            return false;
        size_t len = end ? (size_t)(end - rest->data) : rest->len;
        *ret = (struct weir__span){rest->data, len};
        rest->data += len + (end != NULL);
        rest->len -= len + (end != NULL);
        if (ret->len > 0 && ret->data[ret->len - 1] == '\r')
            ret->len--;
        if (ret->len > 0)
            return true;
    }
    return false;
}

static bool formats_has_members(const struct named_format *named, struct weir__span line)
{
    for (size_t i = 0; i < WEIR__COUNT(named->members) && named->members[i]; i++) {
        const char *leaf = strrchr(named->members[i], '.');
        char quoted[64];
        struct weir__buffer buffer = weir__buffer_over(quoted, sizeof quoted);
        weir__put_format(&buffer, "\"%s\"", leaf ? leaf + 1 : named->members[i]);
        if (!memmem(line.data, line.len, quoted, buffer.len))
            return false;
    }
    return true;
}

static bool formats_fits(const struct named_format *named, const struct desk_format *format,
                         struct weir__span line, struct desk_times *times,
                         struct desk_fields *fields)
{
    struct desk_wrong wrong;
    struct weir__address address;
    int64_t us;
    bool whole;
    if (format->family == DESK_TRACE) /* what is wrong with it is said when it is read */
        return desk_trace_is_like(line);
    if (!desk_format_read(format, line, fields, &wrong))
        return false;
    if (named && named->family == DESK_JSON && !formats_has_members(named, line))
        return false;
    if (named && named->address &&
        !(desk_fields_has(fields, DESK_IP) &&
          weir__address_read(fields->at[DESK_IP].data, fields->at[DESK_IP].len, &address)))
        return false;
    return desk_fields_has(fields, DESK_TIME) &&
           desk_time_read(times, fields->at[DESK_TIME], &us, &whole);
}

/* How many of the first lines are in a format, and (ret_lines) how many lines there are. */
static int formats_count(const struct named_format *named, const struct desk_format *format,
                         struct weir__span beginning, const struct desk_times *times,
                         int *ret_lines)
{
    struct desk_times mine = *times;
    struct desk_fields fields;
    struct weir__span line;
    int fit = 0, lines = 0;
    mine.unit_ns = format->time_unit_ns;
    if (format->skip_header)
        formats_next_line(&beginning, true, &line);
    while (lines < DETECT_LINES && formats_next_line(&beginning, lines == 0, &line)) {
        lines++;
        fit += formats_fits(named, format, line, &mine, &fields);
    }
    *ret_lines = lines;
    return fit;
}

/* Other lines are in a file of JSON, too: what the program says of itself. */
static bool formats_enough(enum desk_family family, int fit, int lines)
{
    return fit > 0 &&
           (family == DESK_JSON ? 2 * fit >= lines : 100 * fit >= DETECT_PERCENT * lines);
}

/* Whether there is a line that begins as an object does, and one that does not. */
static void formats_look(struct weir__span beginning, bool ret_families[2])
{
    struct weir__span line;
    ret_families[DESK_TEXT] = ret_families[DESK_JSON] = false;
    for (int i = 0; i < DETECT_LINES && formats_next_line(&beginning, i == 0, &line); i++) {
        size_t blank = 0;
        while (blank < line.len && (line.data[blank] == ' ' || line.data[blank] == '\t'))
            blank++;
        ret_families[blank < line.len && line.data[blank] == '{' ? DESK_JSON : DESK_TEXT] = true;
    }
}

static bool formats_detect_named(struct weir__span beginning, const struct desk_wanted *wanted,
                                 const struct desk_times *times, struct desk_format *ret,
                                 int *ret_lines)
{
    bool families[2], compiled = false; /* all of JSON have the same members */
    _Static_assert(DESK_TEXT + DESK_JSON == 1, "places of an array");
    formats_look(beginning, families);
    for (size_t i = 0; i < WEIR__COUNT(named_formats); i++) {
        const struct named_format *named = &named_formats[i];
        bool json = named->family == DESK_JSON;
        if (!families[named->family])
            continue;
        if (json && compiled)
            formats_name(named, ret);
        else if (formats_compile(named, wanted, ret, NULL))
            continue;
        compiled = json;
        int fit = formats_count(named, ret, beginning, times, ret_lines);
        if (formats_enough(named->family, fit, *ret_lines))
            return true;
    }
    return false;
}

static bool formats_detect_table(struct weir__span beginning, struct weir__span first,
                                 const struct desk_wanted *wanted, const struct desk_times *times,
                                 struct desk_format *ret, int *ret_lines)
{
    struct desk_wrong wrong;
    desk_trace_make(first, wanted, ret);
    int fit = formats_count(NULL, ret, beginning, times, ret_lines);
    if (ret->skip_header ? desk_trace_header(ret, first, &wrong)
                         : formats_enough(DESK_TRACE, fit, *ret_lines))
        return true;
    memset(ret, 0, sizeof *ret);
    if (!desk_csv_compile(first, wanted, ret))
        return false;
    ret->name = "csv";
    /* A header that names a time says enough: a record may have several lines. */
    fit = formats_count(NULL, ret, beginning, times, ret_lines);
    return fit > 0 || *ret_lines == 0;
}

/* ---- finding ---- */

static int formats_unknown(struct weir__span first, const char *path, weir_error *err)
{
    char shown[SHOWN + 8];
    struct weir__buffer buffer = weir__buffer_over(shown, sizeof shown);
    for (size_t i = 0; i < first.len && i < SHOWN; i++) {
        char c = first.data[i];
        weir__put(&buffer, (unsigned char)c >= ' ' && (unsigned char)c < 0x7f ? &c : "?", 1);
    }
    if (first.len > SHOWN)
        weir__put_text(&buffer, "…");
    return weir__fail(err, WEIR_EINVAL, 0,
                      "%s: unknown format; its first line is: %s\nname the format (--format "
                      "combined), or write it as in nginx: --format '$remote_addr [$time_local] "
                      "\"$request\" $status'",
                      path, shown);
}

static int formats_by_name(const char *given, struct weir__span beginning, const char *path,
                           const struct desk_wanted *wanted, const struct desk_times *times,
                           struct desk_format *ret, weir_error *err)
{
    struct weir__span first = {"", 0};
    formats_next_line(&beginning, true, &first);
    if (!strcmp(given, "trace")) {
        desk_trace_make(first, wanted, ret);
        return 0;
    }
    memset(ret, 0, sizeof *ret);
    if (!strcmp(given, "csv")) {
        ret->name = "csv";
        if (desk_csv_compile(first, wanted, ret))
            return 0;
        return weir__fail(err, WEIR_EINVAL, 0,
                          "%s: the first line of CSV names the columns, one of them `time`", path);
    }
    const struct named_format *found = NULL;
    if (!strcmp(given, "nginx"))
        given = "combined";
    /* A name may stand for several: the first that the first line fits, or the last, the usual one.
     */
    int fit = 0, lines;
    for (size_t i = 0; i < WEIR__COUNT(named_formats) && fit == 0; i++) {
        const struct named_format *named = &named_formats[i];
        if (strcmp(named->name, given) || formats_compile(named, wanted, ret, NULL))
            continue;
        fit = formats_count(named, ret, first, times, &lines);
        found = named;
    }
    return found ? formats_compile(found, wanted, ret, err) : WEIR_EINVAL;
}

bool desk_format_same(const struct desk_format *a, const struct desk_format *b)
{
    return a->origin == b->origin && a->skip_header == b->skip_header && a->comma == b->comma &&
           a->column_count == b->column_count && a->duration_ns == b->duration_ns &&
           !memcmp(a->columns, b->columns, a->column_count * sizeof a->columns[0]);
}

const char *desk_detect(struct weir__span beginning)
{
    struct desk_wanted wanted = {.count = 0};
    struct desk_times times = {0};
    struct desk_format *format = malloc(sizeof *format);
    int lines;
    const char *name = NULL;
    if (format && !desk_format_find(NULL, beginning, "", &wanted, &times, format, &lines, NULL))
        name = format->name;
    free(format);
    return name;
}

int desk_format_find(const char *given, struct weir__span beginning, const char *path,
                     const struct desk_wanted *wanted, const struct desk_times *times,
                     struct desk_format *ret, int *ret_lines, weir_error *err)
{
    struct weir__span first = {"", 0}, rest = beginning;
    *ret_lines = 0;
    if (given && strchr(given, '$')) {
        memset(ret, 0, sizeof *ret);
        ret->name = "text";
        ret->origin = given;
        return desk_text_compile(given, wanted, ret, err);
    }
    for (size_t i = 0; given && desk_format_names[i]; i++) {
        if (!strcmp(given, desk_format_names[i]))
            return formats_by_name(given, beginning, path, wanted, times, ret, err);
    }
    if (given) {
        const char *nearest = weir__nearest(given, strlen(given), desk_format_names);
        return weir__fail(
            err, WEIR_EINVAL, 1,
            "unknown format \"%.40s\"%s%s%s: expected combined, common, json, csv, "
            "haproxy, envoy, caddy, traefik, alb, weir, trace, or text with variables "
            "as in nginx",
            given, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    }
    if (!formats_next_line(&rest, true, &first))
        return weir__fail(err, WEIR_EINVAL, 0, "%s: there is no line", path);
    if (formats_detect_named(beginning, wanted, times, ret, ret_lines) ||
        formats_detect_table(beginning, first, wanted, times, ret, ret_lines))
        return 0;
    return formats_unknown(first, path, err);
}
