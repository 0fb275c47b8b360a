/* Bytes and lines: see input.h. */
#include "desk/input.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_ROOM (DESK_BLOCK + DESK_LINE_MAX)
_Static_assert(DESK_TRACE_LINE_MAX < INPUT_ROOM, "a line fits");
#define INPUT_WAIT_MS 250     /* for a pipe that is followed */
#define INPUT_QUIET_US 250000 /* a renamed file gets no more lines then */
#define INPUT_AGAIN 100
#define INPUT_SHORTENED (-2)

static int input_fail_changed(const struct desk_input *input, const char *what, weir_error *err)
{
    return weir__fail(err, WEIR_ESYSTEM, 0,
                      "%s: %s while it was read; a log is read several times, so read a copy, or "
                      "the file as it is called after a rotation",
                      input->name, what);
}

static int input_fail(const struct desk_input *input, const char *what, weir_error *err)
{
    return weir__fail(err, WEIR_ESYSTEM, 0, "%s: cannot %s: %s", input->name, what,
                      strerror(errno));
}

static int input_fail_read(const struct desk_input *input, ssize_t got, weir_error *err)
{
    return got == INPUT_SHORTENED ? input_fail_changed(input, "it was shortened", err)
                                  : input_fail(input, "read", err);
}

/* ---- bytes ---- */

/* Reads into `to`: how many bytes, 0 at the end, -1: failed, with errno; INPUT_SHORTENED. */
static ssize_t input_read(struct desk_input *input, char *to, size_t room)
{
    size_t begun = input->begun.len < room ? input->begun.len : room;
    if (begun > 0) {
        memcpy(to, input->begun.data, begun);
        input->begun.data += begun;
        input->begun.len -= begun;
        input->offset += (int64_t)begun;
        return (ssize_t)begun;
    }
    if (input->most >= 0)
        room = (size_t)weir__min((int64_t)room, input->most - input->offset);
    if (room == 0)
        return 0;
    for (;;) {
        ssize_t got = read(input->fd, to, room);
        if (got == 0 && input->most > input->offset)
            return INPUT_SHORTENED;
        if (got >= 0) {
            input->offset += got;
            return got;
        }
        if (errno != EINTR)
            return -1;
    }
}

/* Puts more unpacked bytes behind `to`. 0 bytes: the end for now. */
static int input_unpack(struct desk_input *input, size_t *ret, weir_error *err)
{
    *ret = 0;
    while (*ret == 0 && !input->ended) {
        *ret = desk_unpack(input, input->data + input->to, INPUT_ROOM - input->to);
        if (*ret > 0 || input->ended || input->packed_at < input->packed_len)
            continue;
        ssize_t got = input_read(input, input->packed, DESK_BLOCK);
        if (got < 0)
            return input_fail_read(input, got, err);
        input->packed_at = 0;
        input->packed_len = (size_t)got;
        if (got == 0)
            desk_unpack_end(input);
    }
    return 0;
}

/* Reads more; *ret is how many bytes came. */
static int input_fill(struct desk_input *input, size_t *ret, weir_error *err)
{
    *ret = 0;
    if (input->ended)
        return 0;
    if (input->from > 0) {
        memmove(input->data, input->data + input->from, input->to - input->from);
        input->to -= input->from;
        input->from = 0;
    }
    assert(input->to < INPUT_ROOM);
    if (input->packing != DESK_PLAIN) {
        int code = input_unpack(input, ret, err);
        if (code)
            return code;
    } else {
        struct pollfd there = {.fd = input->fd, .events = POLLIN};
        if (input->follow && !input->regular && poll(&there, 1, INPUT_WAIT_MS) == 0)
            return 0;
        ssize_t got = input_read(input, input->data + input->to, INPUT_ROOM - input->to);
        if (got < 0)
            return input_fail_read(input, got, err);
        *ret = (size_t)got;
        input->ended = got == 0 && !(input->follow && input->regular);
    }
    input->to += *ret;
    if (*ret > 0)
        input->quiet_from_us = 0;
    input->has_nul = memchr(input->data, 0, input->to) != NULL;
    return 0;
}

/* ---- opening ---- */

/* The first opening says how much is read. Later ones must find the same file. */
static int input_hold_extent(struct desk_input *input, struct desk_extent *extent, weir_error *err)
{
    const off_t at = lseek(input->fd, 0, SEEK_CUR); /* standard input may be within a file */
    const struct desk_extent now = {(uint64_t)input->device, (uint64_t)input->inode,
                                    weir__max(input->size - weir__max(at, 0), 0)};
    if (extent->size < 0)
        *extent = now;
    else if (extent->device != now.device || extent->inode != now.inode)
        return input_fail_changed(input, "another file took its name", err);
    else if (now.size < extent->size)
        return input_fail_changed(input, "it was shortened", err);
    input->most = input->size = extent->size;
    return 0;
}

static int input_open_file(struct desk_input *input, struct desk_extent *extent, weir_error *err)
{
    struct stat status;
    bool standard = !strcmp(input->path, "-");
    input->fd = standard ? STDIN_FILENO : open(input->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (input->fd < 0 || fstat(input->fd, &status))
        return input_fail(input, "open", err);
    if (S_ISDIR(status.st_mode))
        return weir__fail(err, WEIR_EINVAL, 0, "%s: is a directory; name the files in it",
                          input->name);
    input->regular = S_ISREG(status.st_mode);
    input->device = status.st_dev;
    input->inode = status.st_ino;
    input->size = input->regular ? status.st_size : -1;
    input->offset = 0;
    return extent && input->regular ? input_hold_extent(input, extent, err) : 0;
}

/* The first bytes say what it is packed with; then they are what is to be unpacked. */
static int input_begin(struct desk_input *input, weir_error *err)
{
    size_t got = 1;
    int code = 0;
    while (code == 0 && got > 0 && input->to < 6)
        code = input_fill(input, &got, err);
    if (code)
        return code;
    code = desk_unpack_open(input, desk_input_peek(input), err);
    if (code || input->packing == DESK_PLAIN)
        return code;
    input->packed = malloc(DESK_BLOCK + DESK_LINE_MAX);
    if (!input->packed)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", input->name);
    memcpy(input->packed, input->data, input->to);
    input->packed_len = input->to;
    input->to = 0;
    input->ended = input->has_nul = false;
    return input_fill(input, &got, err);
}

int desk_input_open(struct desk_input *input, const char *path, struct weir__span begun,
                    struct desk_extent *extent, bool follow, weir_error *err)
{
    *input = (struct desk_input){.path = path,
                                 .name = strcmp(path, "-") ? path : "standard input",
                                 .fd = -1,
                                 .most = -1,
                                 .follow = follow,
                                 .was_followed = follow,
                                 .line_max = DESK_LINE_MAX};
    input->data = malloc(INPUT_ROOM);
    if (!input->data)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory", input->name);
    if (!strcmp(path, "-"))
        input->begun = begun;
    int code = input_open_file(input, extent, err);
    if (code == 0)
        code = input_begin(input, err);
    size_t got = 1;
    while (code == 0 && got > 0 && input->to < DESK_BLOCK &&
           (input->regular || !memchr(input->data, '\n', input->to)))
        code = input_fill(input, &got, err);
    if (code) {
        desk_input_close(input);
        return code;
    }
    static const char mark[] = "\xef\xbb\xbf";
    if (input->to >= 3 && !memcmp(input->data, mark, 3))
        input->from = 3;
    return 0;
}

void desk_input_close(struct desk_input *input)
{
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    desk_unpack_close(input);
    free(input->packed);
    free(input->data);
    input->fd = -1;
    input->packed = input->data = NULL;
    input->from = input->to = 0;
}

struct weir__span desk_input_peek(const struct desk_input *input)
{
    return (struct weir__span){input->data + input->from, input->to - input->from};
}

/* ---- following ---- */

/* What comes next is the beginning of a file. A line that has no end yet will not get one. */
static void input_begin_again(struct desk_input *input)
{
    input->offset = 0;
    if (input->from == input->to && !input->skipping)
        return;
    assert(input->to < INPUT_ROOM); /* a line that is too long was dropped */
    input->data[input->to++] = '\n';
}

/* Whether another file that is not empty has the name. Programs write to the old one until they
 * open the new one: an empty one is no reason to go there. */
static bool input_is_replaced(const struct desk_input *input)
{
    struct stat now;
    return input->regular && !stat(input->path, &now) && S_ISREG(now.st_mode) && now.st_size > 0 &&
           (now.st_ino != input->inode || now.st_dev != input->device);
}

/* Goes on with the file that has the name now. */
static bool input_move_on(struct desk_input *input)
{
    struct stat now;
    int fd = open(input->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &now) || !S_ISREG(now.st_mode)) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    close(input->fd);
    input->fd = fd;
    input->inode = now.st_ino;
    input->device = now.st_dev;
    input->quiet_from_us = 0;
    input_begin_again(input);
    return true;
}

/* At the end of a file that is followed: was it replaced or shortened? True: there may be more. */
static bool input_look_again(struct desk_input *input)
{
    struct stat now;
    if (fstat(input->fd, &now))
        return false;
    if (now.st_size < input->offset) {
        if (lseek(input->fd, 0, SEEK_SET) != 0)
            return false;
        input_begin_again(input);
        return true;
    }
    if (now.st_size > input->offset || !input_is_replaced(input)) {
        input->quiet_from_us = 0;
        return now.st_size > input->offset;
    }
    /* Some still write to the old file. It is left when nothing came for a while. */
    int64_t now_us = weir__mono_us();
    if (input->quiet_from_us == 0)
        input->quiet_from_us = now_us;
    return now_us - input->quiet_from_us >= INPUT_QUIET_US && input_move_on(input);
}

/* ---- lines ---- */

/* Where the line ends that begins at `from`, or NULL: not in the data. With breaks, a line break
 * between quotes does not end it. */
static const char *input_line_end(const struct desk_input *input, bool breaks)
{
    const char *start = input->data + input->from, *to = input->data + input->to;
    const char *end = memchr(start, '\n', (size_t)(to - start));
    if (!breaks || !end)
        return end;
    size_t quotes = 0;
    for (const char *p = start;; p = end + 1, end = memchr(p, '\n', (size_t)(to - p))) {
        if (!end)
            return NULL;
        for (const char *q = p; (q = memchr(q, '"', (size_t)(end - q))); q++)
            quotes++;
        if (quotes % 2 == 0)
            return end;
    }
}

/* Whether what there is ends between quotes. */
static bool input_is_within_quotes(const struct desk_input *input)
{
    size_t quotes = 0;
    for (size_t i = input->from; i < input->to; i++)
        quotes += input->data[i] == '"';
    return quotes % 2 == 1;
}

static int input_give(struct desk_input *input, const char *end, size_t next, bool breaks,
                      struct weir__span *ret)
{
    const char *start = input->data + input->from;
    size_t len = (size_t)(end - start);
    bool skipped = input->skipping, too_long = len > input->line_max;
    input->given = input->from;
    input->from = next;
    input->skipping = false;
    if (skipped)
        return DESK_GOT_NOTHING; /* the rest of one that was told already */
    input->line += 1 + input->inner;
    input->inner = 0;
    for (const char *p = start; breaks && (p = memchr(p, '\n', (size_t)(end - p))); p++)
        input->inner++;
    if (len > 0 && start[len - 1] == '\r')
        len--;
    *ret = (struct weir__span){start, too_long ? input->line_max : len};
    return too_long ? DESK_GOT_LONG : DESK_GOT_LINE;
}

bool desk_input_back(struct desk_input *input)
{
    if (input->inner == 0)
        return false;
    const char *start = input->data + input->given;
    const char *end = memchr(start, '\n', input->from - input->given);
    assert(end);
    input->from = (size_t)(end + 1 - input->data);
    input->inner = 0;
    return true;
}

/* A line that does not end within the data, or is too long. 1: look for its end again. */
static int input_go_on(struct desk_input *input, bool *breaks, struct weir__span *ret,
                       weir_error *err)
{
    bool too_long = input->to - input->from > input->line_max;
    size_t got = 0;
    if (too_long && !*breaks) {
        bool first = !input->skipping;
        *ret = (struct weir__span){input->data + input->from, input->line_max};
        input->skipping = true;
        input->from = input->to;
        if (first) {
            input->line += 1 + input->inner;
            input->inner = 0;
            return DESK_GOT_LONG;
        }
    }
    int code = too_long && *breaks ? 0 : input_fill(input, &got, err);
    if (code || got > 0)
        return code ? code : INPUT_AGAIN;
    if (*breaks && (too_long || (input->ended && input_is_within_quotes(input)))) {
        *breaks = false; /* a quote is missing: the line ends where it seems to */
        return INPUT_AGAIN;
    }
    if (!input->ended)
        return input->regular && input_look_again(input) ? INPUT_AGAIN : DESK_GOT_NOTHING;
    /* Nobody follows it any more: what the next file has now still comes. */
    if (input->was_followed && input_is_replaced(input) && input_move_on(input)) {
        input->ended = false;
        return INPUT_AGAIN;
    }
    if (input->to == input->from)
        return DESK_GOT_END;
    int last = input_give(input, input->data + input->to, input->to, *breaks, ret);
    return last == DESK_GOT_NOTHING ? DESK_GOT_END : last;
}

int desk_input_line(struct desk_input *input, bool breaks, struct weir__span *ret, weir_error *err)
{
    for (;;) {
        breaks = breaks && !input->skipping;
        const char *end = input_line_end(input, breaks);
        int got;
        if (!end)
            got = input_go_on(input, &breaks, ret, err);
        else
            got = input_give(input, end, (size_t)(end + 1 - input->data), breaks, ret);
        if (got != INPUT_AGAIN && !(end && got == DESK_GOT_NOTHING))
            return got;
    }
}
