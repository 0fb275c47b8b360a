/*
 * RESP, the Redis protocol, versions 2 and 3: bytes ⇄ messages, no sockets, no allocation.
 *
 * Reading. The caller owns a buffer of received bytes and an array of nodes. It appends what
 * arrives and asks for the next message:
 *
 *     weir__resp_begin(&reader, WEIR__RESP_REPLIES, &limits, nodes, WEIR__COUNT(nodes));
 *     for (;;) {
 *         switch (weir__resp_next(&reader, data + start, end - start)) {
 *         case WEIR__RESP_MESSAGE:   // reader.nodes[0 … reader.count), in reader.size bytes
 *             use(data + start, reader.nodes);
 *             start += reader.size;
 *             continue;
 *         case WEIR__RESP_NEED_MORE: // at least reader.need further bytes
 *             receive more, then ask again;
 *             continue;
 *         case WEIR__RESP_BROKEN:    // reader.why; the stream cannot be read on from here
 *             close;
 *         }
 *     }
 *
 * What holds:
 *   1. While a message is incomplete its bytes stay as they are; the buffer may move and grow.
 *      Places in nodes are offsets from the message's first byte, so they survive a move.
 *   2. What was scanned is not scanned again: the work is linear in the bytes, in whatever portions
 *      they arrive.
 *   3. How the bytes are cut into portions changes nothing: the same messages, or the same failure.
 *   4. NEED_MORE is answered only below limits.message bytes: a buffer of that size is enough.
 *   5. Every number is range-checked, and every length and count is held against its limit when its
 *      header is read, before anything is awaited or stored.
 *   6. Bytes are read, never written, with one exception: escapes in an inline command ("a\"b") are
 *      decoded in place once its line is complete.
 *
 * Writing goes into a struct weir__buffer, whose `cut` says that something did not fit.
 */
#ifndef WEIR_RESP_H
#define WEIR_RESP_H

#include "base/buffer.h"

/* The type bytes of the wire. Three spellings of null are one type here, two of errors as well. */
enum weir__resp_type {
    WEIR__RESP_SIMPLE = '+',
    WEIR__RESP_ERROR = '-', /* and '!', the bulk error */
    WEIR__RESP_INTEGER = ':',
    WEIR__RESP_BULK = '$',
    WEIR__RESP_ARRAY = '*',
    WEIR__RESP_NULL = '_', /* and "$-1", "*-1" of RESP2 */
    WEIR__RESP_BOOLEAN = '#',
    WEIR__RESP_DOUBLE = ',',
    WEIR__RESP_BIG = '(',      /* an integer of any length, as text */
    WEIR__RESP_VERBATIM = '=', /* its text; the three bytes of its format stand at text - 4 */
    WEIR__RESP_MAP = '%',
    WEIR__RESP_SET = '~',
    WEIR__RESP_PUSH = '>',
};

/* One element of a message. A message is its elements in the order of the wire: a parent stands
 * before its children, and nodes[0] is the message itself. */
struct weir__resp_node {
    enum weir__resp_type type;
    uint32_t next; /* the node after this one and all its children: nodes[i].next is i's sibling */
    uint32_t at;   /* text: where it starts, from the message's first byte */
    uint32_t len;  /* text: its bytes; array, set, push: its children; map: its keys and values */
    union {
        int64_t integer; /* INTEGER; BOOLEAN: 0 or 1 */
        double number;   /* DOUBLE */
    };
};

/* ---- reading ------------------------------------------------------------------------------- */

#define WEIR__RESP_DEPTH_MAX                                                                       \
    16 /* the reader's stack; our own replies are 2 deep, CLUSTER SLOTS 5 */
#define WEIR__RESP_MESSAGE_MAX (1u << 30) /* offsets are 32 bits and must not overflow in sums */
#define WEIR__RESP_NUMBER_MAX 32          /* bytes of a number or length: 20 and some zeros */
#define WEIR__RESP_DOUBLE_MAX 64          /* bytes of a double: 17 digits need 24 */

/* What one message may take; how many elements, the room for nodes says. */
struct weir__resp_limits {
    uint32_t depth;   /* aggregates within one another, attributes too; 1 to WEIR__RESP_DEPTH_MAX */
    uint32_t bulk;    /* bytes of a bulk string */
    uint32_t line;    /* bytes of a simple string, an error, a big number or an inline command */
    uint32_t message; /* bytes of a whole message; at most WEIR__RESP_MESSAGE_MAX */
};

enum weir__resp_side {
    WEIR__RESP_REPLIES,  /* any type may come */
    WEIR__RESP_REQUESTS, /* arrays of bulk strings, or inline commands, given as the same nodes */
};

enum weir__resp_status { WEIR__RESP_MESSAGE, WEIR__RESP_NEED_MORE, WEIR__RESP_BROKEN };

struct weir__resp_frame {
    uint32_t left; /* elements still to come */
    uint32_t node; /* whose they are */
    bool skipped;  /* an attribute, or within one */
};

struct weir__resp_reader {
    /* the answer */
    struct weir__resp_node *nodes;
    uint32_t count; /* MESSAGE: how many */
    size_t size;    /* MESSAGE: bytes it took */
    size_t need;    /* NEED_MORE: no message will come of fewer further bytes; at least 1 */
    char why[128];  /* BROKEN: for people, and fit for an error reply */
    /* the state */
    enum weir__resp_status status;
    enum weir__resp_side side;
    struct weir__resp_limits limits;
    uint32_t room;
    uint32_t promised; /* nodes that there are or that headers announced; at most room */
    uint32_t depth;
    size_t at;                       /* the element being read */
    size_t scanned;                  /* no line ends between at and here */
    struct weir__resp_node unwanted; /* where skipped elements go */
    struct weir__resp_frame frames[WEIR__RESP_DEPTH_MAX + 1];
};

/* Starts a stream; room is at least 1. Also the way back from BROKEN, on a new connection. */
void weir__resp_begin(struct weir__resp_reader *reader, enum weir__resp_side side,
                      const struct weir__resp_limits *limits, struct weir__resp_node *nodes,
                      uint32_t room);

/* `data` is the first byte of the message being read, `len` all that is there. After MESSAGE the
 * next call is for the bytes after it. An empty request (a blank line, "*0", "*-1") is an array of
 * none; servers pass over it. Attributes are skipped. */
enum weir__resp_status weir__resp_next(struct weir__resp_reader *reader, char *data, size_t len);

/* An integer as the wire has it, [+-] and digits, the whole text: also for arguments. */
bool weir__resp_read_integer(const char *text, size_t len, int64_t *ret);
/* A double likewise, also inf and nan; the same in every locale. */
bool weir__resp_read_double(const char *text, size_t len, double *ret);

/* ---- writing ------------------------------------------------------------------------------- */

/* Replies and commands piece by piece. Where a type is RESP3's, `protocol` (2
 * or 3) says what the reader understands; 2 gets what Redis gives it in its place. */

#define WEIR__RESP_NUMBER_LINE (1 + WEIR__DIGITS + 2) /* bytes of a number's line at most */

/* Writes ":NUMBER\r\n" where there are WEIR__RESP_NUMBER_LINE bytes; returns the byte after it.
 * Most numbers are short and are written where they belong. */
static inline char *weir__resp_write_number(char *p, char type, int64_t number)
{
    *p++ = type;
    if ((uint64_t)number < 10) {
        *p++ = (char)('0' + number);
    } else if (WEIR__LIKELY((uint64_t)number < 1000000)) {
        uint32_t rest = (uint32_t)number;
        p += 2 + (rest > 99) + (rest > 999) + (rest > 9999) + (rest > 99999);
        char *digit = p;
        do
            *--digit = (char)('0' + rest % 10);
        while (rest /= 10);
    } else {
        char room[WEIR__DIGITS];
        const char *first = weir__digits(room, number);
        size_t len = (size_t)(room + sizeof room - first);
        memcpy(p, first, len);
        p += len;
    }
    *p++ = '\r';
    *p++ = '\n';
    return p;
}

/* ARRAY, SET, PUSH or MAP of n elements (a map: n pairs), which the caller writes next. */
void weir__resp_put_header(struct weir__buffer *buffer, enum weir__resp_type type, size_t n,
                           int protocol);
void weir__resp_put_bulk(struct weir__buffer *buffer, const void *data, size_t len);
/* The integer as a bulk string, as arguments are written. */
void weir__resp_put_bulk_integer(struct weir__buffer *buffer, int64_t integer);
void weir__resp_put_integer(struct weir__buffer *buffer, int64_t integer);
/* One line: control characters become spaces, so that the text cannot end it early. */
void weir__resp_put_simple(struct weir__buffer *buffer, const char *text, size_t len);
/* Likewise. The first word is the error's code: "ERR …". */
void weir__resp_put_error(struct weir__buffer *buffer, const char *text, size_t len);
void weir__resp_put_null(struct weir__buffer *buffer, int protocol);

#endif
