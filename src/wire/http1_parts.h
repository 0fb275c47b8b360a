/* What the files of the HTTP/1 reader share: http1.c drives, http1_head.c reads the request line,
 * http1_fields.c the fields, http1_body.c puts a chunked body together. */
#ifndef WEIR_HTTP1_PARTS_H
#define WEIR_HTTP1_PARTS_H

#include "wire/http1.h"
#include "wire/scan.h"

enum {
    WEIR__HTTP1_IN_LINE,
    WEIR__HTTP1_IN_FIELDS,
    WEIR__HTTP1_IN_BODY,
    WEIR__HTTP1_IN_CHUNK_LINE,
    WEIR__HTTP1_IN_CHUNK,
    WEIR__HTTP1_BEHIND_CHUNK,
    WEIR__HTTP1_IN_TRAILERS,
    WEIR__HTTP1_DONE,
    WEIR__HTTP1_FAILED
};

/* Says what to answer and why; returns BROKEN. */
enum weir__http1_status weir__http1_broken(struct weir__http1_reader *reader, int status,
                                           const char *format, ...) WEIR__PRINTF(3, 4);

/* How long a line may be, CR LF included, and what is answered beyond. */
struct weir__http1_bound {
    size_t most;
    int status;
    const char *why;
};

/* No line ends here: why it is BROKEN, or NEED_MORE. The first control character of data[0 … end) is at
 * stop; bounded: the line may not go on beyond end. */
enum weir__http1_status weir__http1_no_line(struct weir__http1_reader *reader, const char *data,
                                            size_t stop, size_t end, bool bounded,
                                            const struct weir__http1_bound *bound);

/* The line at state.at, without CR LF and without control characters but tabs; state.at and
 * state.scanned are then behind it. REQUEST: it is whole. */
static inline enum weir__http1_status weir__http1_line(struct weir__http1_reader *reader,
                                                       const char *data, size_t len,
                                                       struct weir__http1_bound bound,
                                                       struct weir__span *ret)
{
    struct weir__http1_state *state = &reader->state;
    bool bounded = len - state->at >= bound.most;
    size_t end = bounded ? state->at + bound.most : len;
    size_t stop = weir__scan(WEIR__STOP_CONTROL, data, state->scanned, end);
    *ret = (struct weir__span){data + state->at, stop - state->at};
    if (WEIR__UNLIKELY(end - stop < 2 || data[stop] != '\r' || data[stop + 1] != '\n'))
        return weir__http1_no_line(reader, data, stop, end, bounded, &bound);
    state->at = state->scanned = stop + 2;
    return WEIR__HTTP1_REQUEST;
}

/* The field in a line, checked. */
enum weir__http1_status weir__http1_field(struct weir__http1_reader *reader, struct weir__span line,
                                          struct weir__http_field *ret);

/* Goes on with the fields; REQUEST: the head is whole. */
enum weir__http1_status weir__http1_fields(struct weir__http1_reader *reader, const char *data,
                                           size_t len, struct weir__http_request *ret);

/* Goes on with the head; REQUEST: it is whole, and if it was begun by this very call, in ret. */
enum weir__http1_status weir__http1_head(struct weir__http1_reader *reader, const char *data,
                                         size_t len, struct weir__http_request *ret);

/* Goes on with a chunked body; REQUEST: it is whole, and state.at is behind it. */
enum weir__http1_status weir__http1_chunks(struct weir__http1_reader *reader, char *data,
                                           size_t len);

enum { WEIR__HTTP1_TOKEN = 1, WEIR__HTTP1_HOST = 2 };
extern const unsigned char weir__http1_classes[256];

/* How much of text, from its start on, is of a class. */
static inline size_t weir__http1_run(unsigned char class, struct weir__span text)
{
    size_t i = 0;
    while (i < text.len && weir__http1_classes[(unsigned char)text.data[i]] & class)
        i++;
    return i;
}

static inline int weir__http1_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* As much of a text as an error quotes, for "%.*s". */
#define WEIR__HTTP1_QUOTED(text) (int)((text).len < 40 ? (text).len : 40), (text).data

/* Whether text is word, which is in lower case, whatever the case of text's letters. */
static inline bool weir__http1_is(struct weir__span text, const char *word, size_t len)
{
    if (text.len != len)
        return false;
    unsigned differences = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        differences |= (unsigned)((c >= 'A' && c <= 'Z' ? c | 0x20 : c) ^ (unsigned char)word[i]);
    }
    return differences == 0;
}
#define WEIR__HTTP1_IS(text, word) weir__http1_is(text, word, sizeof(word) - 1)

#endif
