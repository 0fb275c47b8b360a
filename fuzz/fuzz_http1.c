/*
 * HTTP/1 streams: read whole, cut in two and byte by byte they are the same requests and the same
 * error; memory stays bounded; spans lie in the request; what was read, written out plainly and
 * read again, is the same. Byte 0 chooses limits, byte 1 the cut, the rest is the stream.
 */
#include "fuzz.h"

#include "base/buffer.h"
#include "wire/http1.h"

/* What a stream was read as, in text. */
struct story {
    struct weir__buffer out;
    char *stream; /* with chunked bodies put together */
    enum weir__http1_status status;
};

static void put_span(struct weir__buffer *out, struct weir__span span)
{
    weir__put_int(out, (int64_t)span.len);
    weir__put_text(out, span.data ? ":" : "-");
    weir__put(out, span.data ? span.data : "", span.len);
}

static void note(struct weir__buffer *out, const struct weir__http_request *request)
{
    weir__put_format(out, "\n%d %d %d ", (int)request->method, request->minor,
                     (int)request->keep_alive);
    put_span(out, request->method_text);
    put_span(out, request->path);
    put_span(out, request->query);
    put_span(out, request->host);
    for (size_t i = 0; i < request->field_count; i++) {
        put_span(out, request->fields[i].name);
        put_span(out, request->fields[i].value);
    }
    put_span(out, request->body);
}

static void expect_inside(struct weir__span span, const char *data, size_t size)
{
    EXPECT(!span.data || span.len == 0 ||
               (span.data >= data && span.data + span.len <= data + size),
           "a span outside");
    for (size_t i = 0; i < span.len; i++)
        EXPECT((unsigned char)span.data[i] >= ' ' || span.data[i] == '\t', "0x%02x in a span",
               (unsigned char)span.data[i]);
}

static void expect_sound(const struct weir__http_request *request, const char *data, size_t size,
                         const struct weir__http1_limits *limits)
{
    expect_inside(request->method_text, data, size);
    if (request->path.len != 1)
        expect_inside(request->path, data, size);
    EXPECT(request->path.len >= 1 && (request->path.data[0] == '/' || request->path.data[0] == '*'),
           "path %.*s", (int)request->path.len, request->path.data);
    expect_inside(request->query, data, size);
    expect_inside(request->host, data, size);
    EXPECT(request->minor == 0 || request->host.data, "no host");
    EXPECT(request->field_count <= WEIR__HTTP_FIELDS_MAX, "%zu fields", request->field_count);
    for (size_t i = 0; i < request->field_count; i++) {
        expect_inside(request->fields[i].name, data, size);
        expect_inside(request->fields[i].value, data, size);
        EXPECT(request->fields[i].name.len >= 1, "no name");
    }
    EXPECT(request->body.len <= limits->body && request->body.data >= data &&
               request->body.data + request->body.len <= data + size,
           "body of %zu bytes", request->body.len);
}

/* ---- written out again ---- */

static bool is_named(struct weir__span name, const char *word)
{
    return name.len == strlen(word) && !strncasecmp(name.data, word, name.len);
}

/* Whether the host came with an absolute target. */
static bool is_absolute(const struct weir__http_request *request)
{
    struct weir__span value;
    return request->host.data &&
           (!weir__http_field(request, "host", &value) || value.data != request->host.data);
}

static void put_plainly(struct weir__buffer *out, const struct weir__http_request *request)
{
    weir__put(out, request->method_text.data, request->method_text.len);
    weir__put_text(out, " ");
    if (is_absolute(request)) {
        weir__put_text(out, "http://");
        weir__put(out, request->host.data, request->host.len);
    }
    weir__put(out, request->path.data, request->path.len);
    weir__put_text(out, request->query.data ? "?" : "");
    weir__put(out, request->query.data ? request->query.data : "", request->query.len);
    weir__put_format(out, " HTTP/1.%d\r\n", request->minor);
    for (size_t i = 0; i < request->field_count; i++) {
        if (is_named(request->fields[i].name, "content-length") ||
            is_named(request->fields[i].name, "transfer-encoding"))
            continue;
        weir__put(out, request->fields[i].name.data, request->fields[i].name.len);
        weir__put_text(out, ":");
        weir__put(out, request->fields[i].value.data, request->fields[i].value.len);
        weir__put_text(out, "\r\n");
    }
    weir__put_format(out, "Content-Length: %zu\r\n\r\n", request->body.len);
    weir__put(out, request->body.data, request->body.len);
}

/* Without the fields that say how long the body is, which a chunked one's rewriting changes. */
static void forget_lengths(struct weir__http_request *request)
{
    size_t kept = 0;
    for (size_t i = 0; i < request->field_count; i++) {
        if (!is_named(request->fields[i].name, "content-length") &&
            !is_named(request->fields[i].name, "transfer-encoding"))
            request->fields[kept++] = request->fields[i];
    }
    request->field_count = kept;
}

static void rewrite(const struct weir__http_request *request)
{
    static char written[1 << 17], texts[2][1 << 17];
    static const struct weir__http1_limits wide = {1 << 16, 1 << 17, 1 << 17};
    static struct weir__http_request first, again;
    struct weir__buffer out = weir__buffer_over(written, sizeof written);
    put_plainly(&out, request);
    if (out.cut || request->field_count == WEIR__HTTP_FIELDS_MAX)
        return;
    struct weir__http1_reader reader;
    weir__http1_begin(&reader, &wide);
    EXPECT(weir__http1_next(&reader, written, out.len, &again) == WEIR__HTTP1_REQUEST, "%d %s",
           reader.status, reader.why);
    EXPECT(reader.size == out.len, "%zu of %zu bytes", reader.size, out.len);
    struct weir__buffer a = weir__buffer_over(texts[0], sizeof texts[0]);
    struct weir__buffer b = weir__buffer_over(texts[1], sizeof texts[1]);
    first = *request;
    forget_lengths(&first);
    forget_lengths(&again);
    note(&a, &first);
    note(&b, &again);
    EXPECT(a.len == b.len && !memcmp(texts[0], texts[1], a.len), "another request:%s\nthan:%s",
           texts[1], texts[0]);
}

/* ---- in portions ---- */

/* Reads up to `cut`, then on in steps, each time from memory that ends there. */
static void http1_describe(const struct weir__http1_limits *limits, const uint8_t *data,
                           size_t size, size_t cut, size_t step, struct story *story)
{
    static struct weir__http_request request;
    struct weir__http1_reader reader;
    size_t start = 0, end = cut;
    story->out.len = 0;
    story->stream = fuzz_text(data, size);
    weir__http1_begin(&reader, limits);
    for (;;) {
        size_t len = end - start;
        char *copy = malloc(len + !len);
        EXPECT(copy, "out of memory");
        memcpy(copy, story->stream + start, len);
        story->status = weir__http1_next(&reader, copy, len, &request);
        memcpy(story->stream + start, copy, len);
        if (story->status == WEIR__HTTP1_REQUEST) {
            EXPECT(reader.size >= 1 && reader.size <= len, "size %zu", reader.size);
            expect_sound(&request, copy, reader.size, limits);
            note(&story->out, &request);
            if (cut == size)
                rewrite(&request);
            start += reader.size;
        }
        free(copy);
        if (story->status == WEIR__HTTP1_REQUEST)
            continue;
        if (story->status == WEIR__HTTP1_BROKEN)
            break;
        EXPECT(len < 2 * (limits->head + limits->body), "%zu bytes are not enough", len);
        if (end == size)
            break;
        end = size - end < step ? size : end + step;
    }
    if (story->status == WEIR__HTTP1_BROKEN)
        weir__put_format(&story->out, "\n%d %s", reader.status, reader.why);
    else
        weir__put_format(&story->out, "\nat %zu", start);
    free(story->stream);
}

static void compare(const struct story *a, const struct story *b)
{
    EXPECT(a->status == b->status && a->out.len == b->out.len &&
               !memcmp(a->out.data, b->out.data, a->out.len),
           "whole:%s\nin portions:%s", a->out.data, b->out.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char texts[2][1 << 18];
    static const size_t sizes[] = {4096, 256, 64, 16};
    struct story whole = {.out = weir__buffer_over(texts[0], sizeof texts[0])};
    struct story parts = {.out = weir__buffer_over(texts[1], sizeof texts[1])};
    struct fuzz_input input = {data, size};
    uint8_t choice = fuzz_byte(&input);
    size_t cut = fuzz_byte(&input);
    struct weir__http1_limits limits = {sizes[choice & 3], sizes[choice >> 2 & 3],
                                        sizes[choice >> 4 & 3]};
    http1_describe(&limits, input.data, input.size, input.size, 1, &whole);
    http1_describe(&limits, input.data, input.size, cut < input.size ? cut : input.size / 2,
                   input.size, &parts);
    compare(&whole, &parts);
    if (input.size <= 512) { /* byte by byte, every time in new memory: too slow beyond */
        http1_describe(&limits, input.data, input.size, 0, 1, &parts);
        compare(&whole, &parts);
    }
    return 0;
}
