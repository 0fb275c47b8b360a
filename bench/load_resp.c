/*
 * RESP: a command from words, replies read whole. A reply's first integer tells: 1 is allowed, 0
 * denied.
 */
#include "load.h"

#include <stdio.h>
#include <string.h>

static void compose(struct load *load, char **words, int count, struct template *ret)
{
    (void)load;
    char head[32];
    snprintf(head, sizeof head, "*%d\r\n", count);
    template_text(ret, head);
    for (int i = 0; i < count; i++) {
        snprintf(head, sizeof head, "$%zu\r\n", strlen(words[i]));
        template_text(ret, head);
        template_text(ret, words[i]);
        template_text(ret, "\r\n");
    }
}

static bool put(struct connection *it, unsigned count)
{
    it->out = requests_next(&it->load->requests, count);
    it->out_len = count * it->load->requests.each;
    it->out_sent = 0;
    return true;
}

/* Reads "123\r\n"; NULL: not all there. */
static const char *read_number(const char *p, const char *end, int64_t *ret)
{
    int64_t value = 0;
    bool negative = p < end && *p == '-';
    for (p += negative; p < end && *p >= '0' && *p <= '9'; p++)
        value = value * 10 + (*p - '0');
    *ret = negative ? -value : value;
    return end - p >= 2 ? p + 2 : NULL;
}

/* The end of the reply that begins here, or NULL while it is not all there. */
static const char *read_reply(const char *p, const char *end, enum answer *ret)
{
    bool known = *p == '-';
    *ret = known ? FAILED : OTHER;
    for (int64_t due = 1, value; due > 0; due--) {
        if (p == end)
            return NULL;
        char kind = *p++;
        if (kind == '+' || kind == '-') {
            p = memchr(p, '\n', (size_t)(end - p));
            if (!p)
                return NULL;
            p++;
            continue;
        }
        if (kind != ':' && kind != '$' && kind != '*')
            load_die("no reply begins with byte %d", kind);
        p = read_number(p, end, &value);
        if (!p)
            return NULL;
        if (kind == ':') {
            if (!known)
                *ret = value == 1 ? ALLOWED : value == 0 ? DENIED : OTHER;
            known = true;
        } else if (kind == '*') {
            due += value > 0 ? value : 0;
        } else if (value >= 0) {
            if (end - p < value + 2)
                return NULL;
            p += value + 2;
        }
    }
    return p;
}

static size_t take(struct connection *it, const char *in, size_t len)
{
    const char *p = in, *end = in + len, *next;
    enum answer answer;
    while (p < end && (next = read_reply(p, end, &answer))) {
        if (answer == FAILED)
            load_complain(it, "the reply", p, (size_t)(next - p));
        load_answered(it, answer);
        p = next;
    }
    return (size_t)(p - in);
}

const struct protocol load_resp = {
    .name = "resp", .words = "COMMAND [ARGUMENT...]", .compose = compose, .put = put, .take = take};
