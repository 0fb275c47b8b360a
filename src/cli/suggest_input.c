/*
 * Reading a log several times. Files are opened again for each pass, and read as far as they went
 * at first, so that a log may grow. Of a pipe a copy is kept, in a
 * file without a name in $TMPDIR or /tmp, that takes the place of standard input: bounded, and gone
 * when the program ends, however it ends.
 */
#include "cli/suggest.h"

#include "base/clock.h"
#include "desk/flow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK (1 << 16)

/* ---- a copy of standard input ---- */

static int input_make_copy(const struct suggest *suggest, const char **ret_folder)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    struct weir__buffer buffer = weir__buffer_over(path, sizeof path);
    *ret_folder = folder && *folder ? folder : "/tmp";
    weir__put_format(&buffer, "%s/weir-suggest-XXXXXX", *ret_folder);
    int fd = buffer.cut ? -1 : mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    else
        cli_fail(suggest->call, CLI_FAILED, "cannot keep a copy of standard input in %s: %s",
                 cli_show_text(*ret_folder).text, strerror(errno));
    return fd;
}

static bool input_write(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, data, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        data += put;
        len -= (size_t)put;
    }
    return true;
}

static int input_copy(struct suggest *suggest)
{
    const char *folder;
    static char block[BLOCK];
    int64_t copied = 0;
    if (fcntl(STDIN_FILENO, F_GETFD) < 0) /* the copy would take its place */
        return cli_fail(suggest->call, CLI_FAILED, "standard input: cannot read: %s",
                        strerror(errno));
    int fd = input_make_copy(suggest, &folder);
    if (fd < 0)
        return CLI_FAILED;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cli_fail(suggest->call, CLI_FAILED, "standard input: cannot read: %s",
                            strerror(errno));
        if (got == 0)
            break;
        copied += got;
        if (copied > SUGGEST_COPY_MOST)
            return cli_fail(suggest->call, CLI_USAGE,
                            "standard input is longer than 4 GiB: a log is read several times, so "
                            "write it to a file, and name the file");
        if (!input_write(fd, block, (size_t)got))
            return cli_fail(suggest->call, CLI_FAILED,
                            "cannot keep a copy of standard input in %s: %s; set TMPDIR to another "
                            "folder, or name a file",
                            cli_show_text(folder).text, strerror(errno));
    }
    bool good = dup2(fd, STDIN_FILENO) == STDIN_FILENO && lseek(STDIN_FILENO, 0, SEEK_SET) == 0;
    if (fd != STDIN_FILENO)
        close(fd);
    suggest->begin = 0;
    return good ? CLI_OK : cli_fail(suggest->call, CLI_FAILED, "standard input: cannot copy");
}

/* ---- opening ---- */

/* A pipe that has a name becomes standard input. */
static int input_check_path(struct suggest *suggest, size_t i)
{
    struct stat status;
    const char **path = &suggest->logs.paths[i];
    bool standard = !strcmp(*path, "-");
    if (!standard && (stat(*path, &status) || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
        return CLI_OK; /* what cannot be opened, the reader says */
    if (suggest->logs.path_count > 1)
        return cli_fail(suggest->call, CLI_USAGE,
                        "%s: a log is read several times, and of several logs each must be a file",
                        standard ? "standard input" : cli_show_text(*path).text);
    if (standard)
        return CLI_OK;
    int fd = open(*path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || dup2(fd, STDIN_FILENO) < 0)
        return cli_fail(suggest->call, CLI_FAILED, "%s: cannot open: %s", cli_show_text(*path).text,
                        strerror(errno));
    if (fd != STDIN_FILENO)
        close(fd);
    *path = "-";
    return CLI_OK;
}

int suggest_input_open(struct suggest *suggest)
{
    struct cli_logs *logs = &suggest->logs;
    struct stat status;
    size_t count = weir__max(logs->path_count, 1);
    suggest->begin = -1;
    suggest->extents = calloc(count, sizeof *suggest->extents);
    if (!suggest->extents)
        return cli_fail(suggest->call, CLI_FAILED, "out of memory");
    for (size_t i = 0; i < count; i++)
        suggest->extents[i].size = -1;
    logs->options.extents = suggest->extents;
    for (size_t i = 0; i < logs->path_count; i++) {
        int code = input_check_path(suggest, i);
        if (code)
            return code;
    }
    if (logs->path_count == 0 && isatty(STDIN_FILENO))
        return cli_fail(suggest->call, CLI_USAGE, "LOG is missing; see `weir suggest --help`");
    if (logs->path_count > 0 && strcmp(logs->paths[0], "-"))
        return CLI_OK;
    suggest->begin = lseek(STDIN_FILENO, 0, SEEK_CUR);
    bool regular = fstat(STDIN_FILENO, &status) == 0 && S_ISREG(status.st_mode);
    return regular && suggest->begin >= 0 ? CLI_OK : input_copy(suggest);
}

void suggest_input_close(struct suggest *suggest)
{
    desk_reader_close(suggest->first);
    free(suggest->extents);
}

/* ---- one pass ---- */

struct input_pass {
    struct suggest *suggest;
    struct desk_pass *pass;
    struct desk_reader *reader;
};

static int input_next(void *source, struct desk_arrival *ret, weir_error *err)
{
    return desk_reader_next(((struct input_pass *)source)->reader, ret, err);
}

static void input_where(void *source, int64_t *ret_done, int64_t *ret_size)
{
    struct desk_facts facts;
    desk_reader_facts(((struct input_pass *)source)->reader, &facts);
    *ret_done = facts.done;
    *ret_size = facts.size;
}

static int input_take(void *context, const struct desk_arrival *arrival, weir_error *err)
{
    struct input_pass *it = context;
    (void)err;
    if (arrival->time_us >= it->pass->to_us && it->suggest->timed)
        it->suggest->stop = 1;
    return desk_pass_take(it->pass, arrival);
}

static void input_passed(void *context, int64_t done, int64_t size, bool idle)
{
    struct input_pass *it = context;
    struct cli_progress *progress = &it->suggest->progress;
    (void)idle;
    progress->bytes = done;
    progress->total = size;
    progress->units = it->pass->engine ? it->pass->engine->requests : 0;
    cli_progress_show(progress, weir__mono_us());
}

/* Whether arrivals come in the order of their times: those of a trace stay as they stand. */
static bool input_is_timed(const struct desk_facts *facts)
{
    for (size_t i = 0; i < facts->file_count; i++) {
        if (facts->files[i].format && !strcmp(facts->files[i].format, "trace"))
            return false;
    }
    return true;
}

static int input_run(struct input_pass *it, weir_error *err)
{
    struct suggest *suggest = it->suggest;
    struct desk_flow flow = {.source = it,
                             .next = input_next,
                             .where = input_where,
                             .context = it,
                             .take = input_take,
                             .passed = input_passed,
                             .engine = it->pass->engine,
                             .stop = &suggest->stop};
    const char *term = getenv("TERM");
    struct weir__buffer label = weir__buffer_over(suggest->label, sizeof suggest->label);
    suggest->stop = 0;
    memset(&suggest->progress, 0, sizeof suggest->progress);
    suggest->progress.on = isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
    suggest->progress.lines = true;
    weir__put_format(&label, "pass %d", it->pass->number);
    suggest->progress.label = suggest->label;
    cli_progress_begin(&suggest->progress, weir__mono_us());
    int code = desk_flow_run(&flow, err);
    if (suggest->progress.drawn > 1)
        fputs("\r\033[K", stderr);
    return code;
}

int suggest_input_read(void *context, struct desk_pass *pass, weir_error *err)
{
    struct suggest *suggest = context;
    struct input_pass it = {.suggest = suggest, .pass = pass};
    if (suggest->begin >= 0 && lseek(STDIN_FILENO, (off_t)suggest->begin, SEEK_SET) < 0)
        return weir__fail(err, WEIR_ESYSTEM, 0, "standard input: cannot read it again: %s",
                          strerror(errno));
    struct desk_options options = suggest->logs.options;
    if (pass->profile_count > 0 || pass->asked) {
        options.carried = desk_profile_carried;
        options.carried_count = WEIR__COUNT(desk_profile_carried);
    }
    if (pass->answers) {
        options.carried = desk_suspects_carried;
        options.carried_count = WEIR__COUNT(desk_suspects_carried);
    }
    if (pass->number == 1) {
        options.wide = suggest->wide.texts;
        options.wide_count = suggest->wide.count;
    }
    if (pass->every_status) {
        options.where = suggest->every_status.texts;
        options.where_count = suggest->every_status.count;
    }
    int code = desk_reader_open(&options, &it.reader, err);
    if (code)
        return code;
    code = input_run(&it, err);
    if (pass->number > 1 || code) {
        desk_reader_close(it.reader);
        return code;
    }
    suggest->first = it.reader;
    desk_reader_facts(it.reader, &suggest->facts);
    suggest->timed = input_is_timed(&suggest->facts);
    return 0;
}
