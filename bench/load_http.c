/*
 * HTTP/1.1: a request from method, path and body, responses read by their Content-Length. Status
 * 200 is allowed, 429 denied, any other a failure.
 */
#include "load.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static void compose(struct load *load, char **words, int count, struct template *ret)
{
    (void)load;
    char head[96];
    if (count < 2 || count > 3)
        load_die("http takes METHOD PATH [BODY]");
    template_text(ret, words[0]);
    template_text(ret, " ");
    template_text(ret, words[1]);
    template_text(ret, " HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    if (count == 3) {
        snprintf(head, sizeof head, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(words[2]));
        template_text(ret, head);
    }
    template_text(ret, "\r\n");
    if (count == 3)
        template_text(ret, words[2]);
}

static bool put(struct connection *it, unsigned count)
{
    it->out = requests_next(&it->load->requests, count);
    it->out_len = count * it->load->requests.each;
    it->out_sent = 0;
    return true;
}

struct response {
    int status;
    size_t body_len;
    bool has_length;
};

static void read_field(const char *line, const char *end, struct response *ret)
{
    static const char name[] = "content-length:";
    if ((*line | 0x20) != 'c' || (size_t)(end - line) < sizeof name ||
        strncasecmp(line, name, sizeof name - 1) != 0)
        return;
    const char *p = line + sizeof name - 1;
    while (p < end && *p == ' ')
        p++;
    ret->body_len = 0;
    for (; p < end && *p >= '0' && *p <= '9' && ret->body_len < IN_SIZE; p++)
        ret->body_len = ret->body_len * 10 + (size_t)(*p - '0');
    ret->has_length = true;
}

/* The end of the response that begins here, or NULL while it is not all there. */
static const char *read_response(const char *p, const char *end, struct response *ret)
{
    static const char version[] = "HTTP/1.1 ";
    *ret = (struct response){0};
    if ((size_t)(end - p) < sizeof version + 3)
        return NULL;
    if (memcmp(p, version, sizeof version - 1) != 0)
        load_die("no response: %.*s", 40, p);
    for (size_t i = sizeof version - 1; i < sizeof version + 2; i++)
        ret->status = ret->status * 10 + (p[i] - '0');
    for (;;) {
        p = memchr(p, '\n', (size_t)(end - p));
        if (!p || end - ++p < 2)
            return NULL;
        if (*p == '\r')
            break;
        read_field(p, end, ret);
    }
    p += 2;
    if (!ret->has_length)
        load_die("a response of status %d without Content-Length", ret->status);
    return (size_t)(end - p) < ret->body_len ? NULL : p + ret->body_len;
}

static size_t take(struct connection *it, const char *in, size_t len)
{
    const char *p = in, *end = in + len, *next;
    struct response response;
    while (p < end && (next = read_response(p, end, &response))) {
        enum answer answer = response.status == 200   ? ALLOWED
                             : response.status == 429 ? DENIED
                                                      : FAILED;
        if (answer == FAILED)
            load_complain(it, "the response", p, (size_t)(next - p));
        load_answered(it, answer);
        p = next;
    }
    return (size_t)(p - in);
}

const struct protocol load_http = {
    .name = "http", .words = "METHOD PATH [BODY]", .compose = compose, .put = put, .take = take};
