/* Responses: status, fields, body. See http.h. */
#include "server/http/http.h"

#include "wire/json.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct {
    int status;
    const char *text;
} texts[] = {
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

const char *server_status_text(int status)
{
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        if (texts[i].status == status)
            return texts[i].text;
    }
    return status < 400 ? "OK" : "Error";
}

const char *server_date(struct server_thread *thread)
{
    time_t now = (time_t)(weir__clock_us() / 1000000);
    if (WEIR__UNLIKELY(now != thread->date_s)) {
        struct tm tm;
        gmtime_r(&now, &tm);
        size_t len =
            strftime(thread->date, sizeof thread->date, "date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
        assert(len == SERVER_DATE_LINE);
        (void)len;
        thread->date_s = now;
    }
    return thread->date;
}

void server_response_begin(struct server_response *response, int status)
{
    response->status = status;
    response->field_count = 0;
    response->body = (struct weir__span){NULL, 0};
    response->owned = NULL;
    response->close = response->head = response->old = false;
    response->room_used = 0;
}

void server_response_field(struct server_response *response, const char *name, const char *value,
                           size_t len)
{
    if (response->field_count < SERVER_FIELDS_MAX)
        response->fields[response->field_count++] = (struct server_field){name, value, len};
}

struct weir__buffer server_response_buffer(struct server_response *response)
{
    return weir__buffer_over(response->room + response->room_used,
                             sizeof response->room - response->room_used);
}

void server_response_body(struct server_response *response, const char *content_type,
                          const struct weir__buffer *body)
{
    server_response_field(response, "content-type", content_type, strlen(content_type));
    response->body = (struct weir__span){body->data, body->len};
    response->room_used += body->len + 1;
}

void server_response_problem(struct server_response *response, int status, const char *format, ...)
{
    char detail[700];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    if (len >= (int)sizeof detail)
        len = sizeof detail - 1;
    server_response_begin(response, status);
    struct weir__buffer body = server_response_buffer(response);
    struct weir__json json = {&body, false};
    const char *title = server_status_text(status);
    weir__json_open(&json, NULL, '{');
    weir__json_put_text(&json, "title", title, strlen(title));
    weir__json_put_int(&json, "status", status);
    weir__json_put_text(&json, "detail", detail, (size_t)len);
    weir__json_close(&json, '}');
    weir__put(&body, "\n", 1);
    server_response_field(response, "cache-control", "no-store", 8);
    if (status == 503)
        server_response_field(response, "retry-after", "1", 1);
    server_response_body(response, "application/problem+json", &body);
}
