/*
 * gRPC over HTTP/2 without TLS: ShouldRateLimit of Envoy's rate limit service, one stream a
 * request.
 *
 * A request is one HEADERS and one DATA frame, copied together with its stream's number; frames of
 * the answer are read in place. The server's window for a connection is honoured, its window for a
 * stream must hold a whole message. An answer counts when its trailers say grpc-status 0 and its
 * message begins with an overall code: 1 is allowed, 2 denied. Request n has stream 2n + 1.
 */
#include "load_hpack.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_HEAD = 9, OUT_SIZE = 1 << 18, FRAME_MAX = 16384, WINDOW_FIRST = 65535 };
enum { OUR_WINDOW = 1 << 30, STREAMS_MAX = 1 << 30 };
enum { DATA = 0, HEADERS = 1, RESET = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW = 8 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8, PRIORITY = 32 };
enum { SET_MAX_STREAMS = 3, SET_WINDOW = 4, SET_TABLE = 1 };

struct stream {
    uint8_t code; /* 0: no message yet */
    struct hpack_found found;
};

struct h2 {
    struct hpack table;
    int64_t window;    /* bytes of DATA that the server takes yet */
    uint32_t received; /* bytes of DATA since we last widened ours */
    char out[OUT_SIZE];
    struct stream streams[STARTS]; /* by the request's number */
};

/* ---- numbers and frames ---- */

static void put_u32(char *to, uint32_t value)
{
    for (int i = 3; i >= 0; i--, value >>= 8)
        to[i] = (char)value;
}

static uint32_t get_u32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void put_head(char *to, size_t len, int type, int flags, uint32_t stream)
{
    put_u32(to, (uint32_t)len << 8);
    to[3] = (char)type;
    to[4] = (char)flags;
    put_u32(to + 5, stream);
}

/* Room for `len` bytes behind what is unsent. */
static char *reserve(struct connection *it, size_t len)
{
    struct h2 *h2 = it->h2;
    if (it->out_sent == it->out_len)
        it->out_sent = it->out_len = 0;
    if (it->out_len + len > OUT_SIZE) {
        memmove(h2->out, h2->out + it->out_sent, it->out_len - it->out_sent);
        it->out_len -= it->out_sent;
        it->out_sent = 0;
    }
    if (it->out_len + len > OUT_SIZE)
        load_die("the server reads too slowly");
    it->out = h2->out;
    it->out_len += len;
    return h2->out + it->out_len - len;
}

static void put_frame(struct connection *it, int type, int flags, const void *payload, size_t len)
{
    char *to = reserve(it, FRAME_HEAD + len);
    put_head(to, len, type, flags, 0);
    memcpy(to + FRAME_HEAD, payload, len);
}

static void widen(struct connection *it, uint32_t by)
{
    char payload[4];
    put_u32(payload, by);
    put_frame(it, WINDOW, 0, payload, sizeof payload);
}

/* ---- requests ---- */

static void put_varint(struct template *to, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        template_add(to, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_field(struct template *to, unsigned number, const void *bytes, size_t len)
{
    put_varint(to, number << 3 | 2);
    put_varint(to, len);
    template_add(to, bytes, len);
}

static void compose(struct load *load, char **words, int count, struct template *ret)
{
    struct template descriptor = {0}, message = {0};
    if (count < 2)
        load_die("grpc takes DOMAIN KEY=VALUE [KEY=VALUE...]");
    for (int i = 1; i < count; i++) {
        struct template entry = {0};
        const char *equals = strchr(words[i], '=');
        if (!equals)
            load_die("%s is no KEY=VALUE", words[i]);
        put_field(&entry, 1, words[i], (size_t)(equals - words[i]));
        put_field(&entry, 2, equals + 1, strlen(equals + 1));
        put_field(&descriptor, 1, entry.bytes, entry.len);
        free(entry.bytes);
    }
    put_field(&message, 1, words[0], strlen(words[0]));
    put_field(&message, 2, descriptor.bytes, descriptor.len);
    char prefix[5] = {0};
    put_u32(prefix + 1, (uint32_t)message.len);
    template_add(ret, prefix, sizeof prefix);
    template_add(ret, message.bytes, message.len);
    if (ret->len > FRAME_MAX)
        load_die("a message of more than %d bytes", FRAME_MAX);
    free(descriptor.bytes);
    free(message.bytes);
    hpack_request(&load->first_head, &load->head,
                  "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "127.0.0.1");
}

static void greet(struct connection *it)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    char settings[12] = {0, 2, 0, 0, 0, 0, 0, SET_WINDOW}; /* no push, and a wide window */
    it->h2 = load_allocate(sizeof *it->h2);
    it->h2->window = WINDOW_FIRST;
    put_u32(settings + 8, OUR_WINDOW);
    memcpy(reserve(it, sizeof preface - 1), preface, sizeof preface - 1);
    put_frame(it, SETTINGS, 0, settings, sizeof settings);
    widen(it, OUR_WINDOW);
}

static bool put(struct connection *it, unsigned count)
{
    const struct load *load = it->load;
    const struct template *head = it->sent ? &load->head : &load->first_head;
    size_t body = load->requests.each;
    struct stream *stream = &it->h2->streams[it->sent % STARTS];
    if (count != 1 || it->h2->window < (int64_t)body)
        return false;
    if (it->sent >= STREAMS_MAX)
        load_die("a connection's streams are used up");
    uint32_t number = (uint32_t)it->sent * 2 + 1;
    char *to = reserve(it, 2 * FRAME_HEAD + head->len + body);
    put_head(to, head->len, HEADERS, END_HEADERS, number);
    memcpy(to + FRAME_HEAD, head->bytes, head->len);
    to += FRAME_HEAD + head->len;
    put_head(to, body, DATA, END_STREAM, number);
    memcpy(to + FRAME_HEAD, requests_next(&it->load->requests, 1), body);
    it->h2->window -= (int64_t)body;
    *stream = (struct stream){0};
    return true;
}

/* ---- answers ---- */

static struct stream *stream_of(struct connection *it, uint32_t id)
{
    uint64_t number = id >> 1;
    if (!(id & 1) || number >= it->sent || it->sent - number > STARTS)
        load_die("a frame for stream %u, which was not asked or is over", id);
    return &it->h2->streams[number % STARTS];
}

static void end_stream(struct connection *it, uint32_t id, const uint8_t *frame, size_t len)
{
    const struct stream *stream = stream_of(it, id);
    const struct hpack_found *found = &stream->found;
    bool good = found->status && found->status_good && found->grpc && found->grpc_good;
    enum answer answer = !good               ? FAILED
                         : stream->code == 1 ? ALLOWED
                         : stream->code == 2 ? DENIED
                                             : OTHER;
    if (answer == FAILED)
        load_complain(it, "the end of a stream, not status 200 and grpc-status 0",
                      (const char *)frame, len);
    load_answered_number(it, id >> 1, answer);
}

static void take_settings(struct connection *it, const uint8_t *p, size_t len, int flags)
{
    if (flags & ACK)
        return;
    for (; len >= 6; p += 6, len -= 6) {
        unsigned name = (unsigned)p[0] << 8 | p[1];
        uint32_t value = get_u32(p + 2);
        if (name == SET_MAX_STREAMS && value < it->load->depth)
            load_die("the server takes %u streams at once, not %u", value, it->load->depth);
        if (name == SET_WINDOW && value < it->load->requests.each)
            load_die("the server's window for a stream is only %u bytes", value);
        if (name == SET_TABLE && value < 4096)
            load_die("the server's header table is only %u bytes", value);
    }
    put_frame(it, SETTINGS, ACK, "", 0);
    it->ready = true;
}

/* Takes padding and priority off; the payload shrinks to what was meant. */
static const uint8_t *strip(const uint8_t *p, size_t *len, int type, int flags)
{
    size_t before = flags & PADDED ? 1 : 0, after = flags & PADDED && *len ? p[0] : 0;
    if (type == HEADERS && flags & PRIORITY)
        before += 5;
    if (before + after > *len)
        load_die("a frame shorter than its padding");
    *len -= before + after;
    return p + before;
}

static void take_data(struct connection *it, uint32_t id, const uint8_t *p, size_t len)
{
    struct stream *stream = stream_of(it, id);
    if (stream->code == 0 && len >= 7 && p[0] == 0 && p[5] == 0x08)
        stream->code = p[6];
}

static void take_frame(struct connection *it, const uint8_t *frame, size_t len)
{
    int type = frame[3], flags = frame[4];
    uint32_t id = get_u32(frame + 5) & INT32_MAX;
    const uint8_t *payload = frame + FRAME_HEAD, *p = payload;
    size_t body = len;
    switch (type) {
    case DATA:
        it->h2->received += (uint32_t)len;
        p = strip(payload, &body, type, flags);
        take_data(it, id, p, body);
        break;
    case HEADERS:
        p = strip(payload, &body, type, flags);
        if (!(flags & END_HEADERS))
            load_die("a header block in several frames");
        if (!hpack_read(&it->h2->table, p, body, &stream_of(it, id)->found))
            load_die("a malformed header block");
        break;
    case RESET:
        load_complain(it, "a stream was reset", (const char *)payload, len);
        load_answered_number(it, id >> 1, FAILED);
        return;
    case SETTINGS:
        take_settings(it, payload, len, flags);
        return;
    case PING:
        if (!(flags & ACK))
            put_frame(it, PING, ACK, payload, len);
        return;
    case WINDOW:
        if (id == 0 && len == 4)
            it->h2->window += get_u32(payload) & INT32_MAX;
        return;
    case GOAWAY:
        load_die("the server ends the connection, error %u", len >= 8 ? get_u32(payload + 4) : 0);
    default:
        return;
    }
    if (flags & END_STREAM)
        end_stream(it, id, p, body);
}

static size_t take(struct connection *it, const char *in, size_t len)
{
    const uint8_t *bytes = (const uint8_t *)in;
    size_t used = 0;
    while (len - used >= FRAME_HEAD) {
        size_t body = get_u32(bytes + used) >> 8;
        if (body > FRAME_MAX)
            load_die("a frame of %zu bytes", body);
        if (len - used < FRAME_HEAD + body)
            break;
        take_frame(it, bytes + used, body);
        used += FRAME_HEAD + body;
    }
    if (it->h2->received >= OUR_WINDOW / 2) {
        widen(it, it->h2->received);
        it->h2->received = 0;
    }
    return used;
}

const struct protocol load_grpc = {.name = "grpc",
                                   .words = "DOMAIN KEY=VALUE [KEY=VALUE...]",
                                   .compose = compose,
                                   .greet = greet,
                                   .put = put,
                                   .take = take};
