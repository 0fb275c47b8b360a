/* See zone.h; the text is wire/dump.h's. */
#include "cli/zone.h"

#include "base/clock.h"
#include "store/zone/store.h"
#include "wire/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- dumping ---- */

static int dump_write(void *context, const char *text, size_t len, weir_error *err)
{
    if (fwrite(text, 1, len, context) == len)
        return 0;
    return weir__fail(err, WEIR_ESYSTEM, 0, "cannot write the dump: %s", strerror(errno));
}

/* A dump has the zone's secret in it. */
static void dump_warn(const struct cli_call *call)
{
    struct stat status;
    if (fstat(STDOUT_FILENO, &status) == 0 && S_ISREG(status.st_mode) && status.st_mode & 0077)
        fprintf(
            stderr,
            "weir %s: the dump contains the zone's secret, and its file has mode %04o: chmod 600 "
            "it\n",
            call->command->name, (unsigned)(status.st_mode & 07777));
}

int cli_zone_dump(const struct cli_call *call, weir_store *store, const char *url)
{
    weir_error err = {0};
    struct weir__dump_sink sink = {.write = dump_write, .context = stdout};
    dump_warn(call);
    int code = weir__dump_zone(&((struct weir__zone_store *)store)->region.zone, &sink, &err);
    if (code == 0)
        return CLI_OK;
    return cli_fail(call, cli_exit_for(code), "%s: %s", cli_show_text(url).text, err.message);
}

/* ---- loading ---- */

struct load {
    FILE *file;
    char *line;
    size_t room;
    struct weir__dump_reader reader;
};

/* The next line; its length, 0 at the end, or a code. */
static ssize_t load_line(struct load *load, weir_error *err)
{
    errno = 0;
    ssize_t len = getline(&load->line, &load->room, load->file);
    if (len < 0 && errno)
        return weir__fail(err, WEIR_ESYSTEM, 0, "line %" PRIu64 ": cannot read it: %s",
                          load->reader.line + 1, strerror(errno));
    if (len > WEIR__DUMP_LINE_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "line %" PRIu64 " is too long; make the dump again",
                          load->reader.line + 1);
    return len < 0 ? 0 : len;
}

static int load_fill(struct weir__zone *zone, void *context, weir_error *err)
{
    struct load *load = context;
    load->reader.zone = zone;
    load->reader.now_us = weir__clock_us();
    for (;;) {
        ssize_t len = load_line(load, err);
        if (len == 0)
            return weir__dump_read_end(&load->reader, err);
        int code =
            len < 0 ? (int)len : weir__dump_read(&load->reader, load->line, (size_t)len, err);
        if (code)
            return code;
    }
}

static int load_all(struct load *load, const char *url, weir_error *err)
{
    ssize_t len = load_line(load, err);
    int code = len < 0 ? (int)len
                       : weir__dump_read_head(&load->reader, load->line ? load->line : "",
                                              (size_t)len, err);
    if (code)
        return code;
    struct weir__load what = {.size = load->reader.head.size,
                              .large_percent = load->reader.head.large_percent,
                              .fill = load_fill,
                              .context = load};
    memcpy(what.secret, load->reader.head.secret, sizeof what.secret);
    return weir__region_load(url, &what, err);
}

int cli_zone_load(const struct cli_call *call, const char *url, const char *path)
{
    struct load load = {.file = strcmp(path, "-") ? fopen(path, "re") : stdin};
    weir_error err = {0};
    if (!load.file)
        return cli_fail(call, CLI_FAILED, "cannot open %s: %s", cli_show_text(path).text,
                        strerror(errno));
    int code = load_all(&load, url, &err);
    free(load.line);
    if (load.file != stdin)
        fclose(load.file);
    if (code)
        return cli_fail(call, cli_exit_for(code), "%s: %s; nothing was changed",
                        cli_show_text(path).text, err.message);
    printf("%s: %" PRIu64 " states and %" PRIu64 " settled receipts were loaded\n", url,
           load.reader.states, load.reader.marks);
    return CLI_OK;
}
