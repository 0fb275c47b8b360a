/*
 * Bytes and lines of one file. What a file is packed with is told by its first bytes, not by its
 * name: gzip (also several members), zstd (also several frames), or nothing. Plain files are read,
 * not mapped: a file that is shortened meanwhile must not end the program.
 *
 * A line has at most DESK_LINE_MAX bytes, more only in a trace. A longer one is passed over whole.
 * A file that ends too early, or is damaged, gives the lines before that, and says so.
 */
#ifndef WEIR_DESK_INPUT_H
#define WEIR_DESK_INPUT_H

#include "desk/desk.h"

#include <sys/types.h>

#define DESK_BLOCK (256 << 10) /* bytes that are read at once */

enum desk_packing { DESK_PLAIN, DESK_GZIP, DESK_ZSTD };

struct desk_input {
    const char *path, *name; /* the name is for messages */
    int fd;
    struct weir__span begun; /* comes before what is read */
    bool regular;            /* a file with a size; otherwise a pipe or a terminal */
    bool follow;
    bool was_followed; /* follow was set when it was opened */
    dev_t device;      /* which file it is */
    ino_t inode;
    int64_t quiet_from_us; /* since when another file has its name and nothing came; 0: neither */
    int64_t size;          /* of a regular file, when it was opened; -1 */
    int64_t most;          /* bytes that are read of it; -1: all */
    int64_t offset;        /* bytes that were read of it */
    enum desk_packing packing;
    void *unpacker; /* unpack.c */
    char *packed;   /* DESK_BLOCK bytes that were read and are to be unpacked */
    size_t packed_at, packed_len;
    char *data; /* DESK_BLOCK + DESK_LINE_MAX bytes; [from … to) is to be given */
    size_t from, to;
    size_t line_max; /* bytes of a line; DESK_LINE_MAX, or more in a trace */
    bool ended;      /* nothing comes any more */
    bool skipping;   /* the rest of a line that is too long */
    bool has_nul;    /* a NUL may be in the data */
    int64_t line;    /* the number of the last line given */
    int64_t inner;   /* line breaks within it */
    size_t given;    /* where it begins */
    char damage[96];
};

enum desk_got {
    DESK_GOT_END,
    DESK_GOT_LINE,
    DESK_GOT_LONG,    /* a line that was too long; *ret is its beginning */
    DESK_GOT_NOTHING, /* only with follow: not yet */
};

/* Opens a file and reads its beginning. A directory is an error, and so is what nobody unpacks.
 * begun: what was read of standard input already; it must stay. extent may be NULL. */
int desk_input_open(struct desk_input *input, const char *path, struct weir__span begun,
                    struct desk_extent *extent, bool follow, weir_error *err);
void desk_input_close(struct desk_input *input);
/* What was read and not yet given: the beginning of a file. */
struct weir__span desk_input_peek(const struct desk_input *input);
/* The next line without its end, an enum desk_got, or WEIR_ESYSTEM. breaks: a line break between
 * quotes does not end it. It lives until the next call. */
int desk_input_line(struct desk_input *input, bool breaks, struct weir__span *ret, weir_error *err);
/* The last line given has line breaks in it, and nobody could read it: only its first part was it.
 * False: it has none. */
bool desk_input_back(struct desk_input *input);
enum desk_packing desk_packing_of(struct weir__span beginning);
const char *desk_packing_name(enum desk_packing packing);

/* ---- unpack.c ---- */

/* By the first bytes of a file. 0, or an error for what is known and cannot be unpacked. */
int desk_unpack_open(struct desk_input *input, struct weir__span beginning, weir_error *err);
void desk_unpack_close(struct desk_input *input);
/* Unpacks what was read; how many bytes it wrote to `to`. More must be read if it is 0 and all of
 * `packed` is used up. Damage ends the input. */
size_t desk_unpack(struct desk_input *input, char *to, size_t room);
/* Nothing more can be read. Sets damage, if something is missing. */
void desk_unpack_end(struct desk_input *input);

#endif
