/* See log.h. */
#include "cli/log.h"

#include "base/duration.h"
#include "base/random.h"
#include "sim/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRACE_MAX ((size_t)4 << 30)

/* ---- what is it? ---- */

/* Reads the beginning of the first file, or of standard input, which stays as if it were not
 * read. */
static int log_read_beginning(const struct cli_call *call, struct cli_log *log)
{
    const char *path = log->paths[0];
    bool standard = !path || !strcmp(path, "-");
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status))
        return cli_fail(call, CLI_FAILED, "%s: cannot open: %s", standard ? "standard input" : path,
                        strerror(errno));
    off_t from = lseek(fd, 0, SEEK_CUR);
    ssize_t got = 1;
    while (got > 0 && log->begun_len < sizeof log->begun &&
           (S_ISREG(status.st_mode) || !memchr(log->begun, '\n', log->begun_len))) {
        got = read(fd, log->begun + log->begun_len, sizeof log->begun - log->begun_len);
        if (got < 0 && errno == EINTR)
            got = 1;
        else
            log->begun_len += got > 0 ? (size_t)got : 0;
    }
    if (standard && from >= 0)
        lseek(fd, from, SEEK_SET);
    if (!standard && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        dup2(fd, STDIN_FILENO); /* a pipe that has a name: it cannot be opened again */
        log->paths[0] = "-";
    }
    if (!standard)
        close(fd);
    return CLI_OK;
}

/* A line that nobody knows is a trace with a mistake, if it could be one: its first field has no
 * blank in it. */
static bool log_may_be_trace(struct weir__span text)
{
    while (text.len > 0 && text.data[0] == ' ')
        text.data++, text.len--;
    const char *end = memchr(text.data, '\n', text.len);
    size_t len = end ? (size_t)(end - text.data) : text.len;
    const char *comma = memchr(text.data, ',', len);
    return !memchr(text.data, ' ', comma ? (size_t)(comma - text.data) : len) &&
           (len == 0 || text.data[0] != '{');
}

int cli_log_begin(const struct cli_call *call, struct cli_log *log, bool *ret)
{
    *ret = log->format || log->key || log->cost || log->timezone || log->where.count > 0 ||
           log->templates.count > 0 || log->fields.count > 0 || log->disorder_us ||
           log->no_spread || (log->paths[0] && log->paths[1]);
    if (*ret)
        return CLI_OK;
    int code = log_read_beginning(call, log);
    if (code)
        return code;
    struct weir__span text = {log->begun, log->begun_len};
    if (text.len > 8 && !strncasecmp(text.data, "time,key", 8))
        return CLI_OK; /* the header of a trace */
    const char *name = desk_detect(text);
    bool packed = text.len >= 4 &&
                  (!memcmp(text.data, "\x1f\x8b", 2) || !memcmp(text.data, "\x28\xb5\x2f\xfd", 4));
    *ret = packed || (name ? strcmp(name, "trace") != 0 : text.len > 0 && !log_may_be_trace(text));
    return CLI_OK;
}

/* Of a pipe: what cannot be read again. */
struct weir__span cli_log_begun(const struct cli_log *log)
{
    bool standard = !log->paths[0] || !strcmp(log->paths[0], "-");
    bool again = !standard || lseek(STDIN_FILENO, 0, SEEK_CUR) >= 0;
    return again ? (struct weir__span){"", 0} : (struct weir__span){log->begun, log->begun_len};
}

/* ---- reading ---- */

static int log_open(const struct cli_call *call, struct cli_log *log)
{
    struct desk_options options = {
        .paths = log->paths,
        .format = log->format,
        .key = log->key,
        .where = log->where.texts,
        .where_count = log->where.count,
        .cost = log->cost,
        .templates = log->templates.texts,
        .template_count = log->templates.count,
        .fields = log->fields.texts,
        .field_count = log->fields.count,
        .timezone = log->timezone,
        .disorder_us = log->disorder_us,
        .no_spread = log->no_spread,
        .begun = cli_log_begun(log),
    };
    weir_error err = {0};
    while (options.path_count < CLI_MANY_LOGS && log->paths[options.path_count])
        options.path_count++;
    if (weir__random_bytes(options.secret, sizeof options.secret))
        return cli_fail(call, CLI_FAILED, "cannot get random bytes from the system");
    int code = desk_reader_open(&options, &log->reader, &err);
    return code ? cli_fail_with(call, code, &err) : CLI_OK;
}

static void log_put_arrival(struct weir__buffer *lines, const struct desk_arrival *arrival)
{
    weir__put_seconds(lines, arrival->time_us);
    weir__put(lines, ",", 1);
    weir__put_csv(lines, arrival->key.data, arrival->key.len);
    weir__put(lines, ",", 1);
    weir__put_int(lines, arrival->cost);
    weir__put(lines, "\n", 1);
}

int cli_log_to_trace(const struct cli_call *call, struct cli_log *log, struct weir__trace *ret)
{
    struct weir__buffer lines = weir__buffer_growing();
    struct desk_arrival arrival;
    weir_error err = {0};
    int exit = log_open(call, log), code = 0;
    if (exit) {
        weir__buffer_free(&lines);
        return exit;
    }
    while (!lines.cut && lines.len < TRACE_MAX &&
           (code = desk_reader_next(log->reader, &arrival, &err)) > 0)
        log_put_arrival(&lines, &arrival);
    desk_reader_facts(log->reader, &log->facts);
    if (code < 0)
        exit = cli_fail_with(call, code, &err);
    else if (lines.cut || lines.len >= TRACE_MAX)
        exit = cli_fail(call, CLI_FAILED, "the requests of the log take more than %s",
                        lines.cut ? "the memory there is" : "4 GiB; replay a part of it");
    else if (log->facts.lines > 0 && log->facts.unreadable == log->facts.lines)
        exit = cli_fail(call, CLI_USAGE, "%s:%" PRId64 ": no line can be read; the first: %s: %s",
                        log->facts.examples[0].path, log->facts.examples[0].line,
                        log->facts.examples[0].why, log->facts.examples[0].text);
    if (exit) {
        weir__buffer_free(&lines);
        return exit;
    }
    *ret = (struct weir__trace){.data = lines.data, .size = lines.len};
    return CLI_OK;
}

void cli_log_close(struct cli_log *log)
{
    desk_reader_close(log->reader);
    log->reader = NULL;
}

/* ---- saying what was found ---- */

#define FILES_SHOWN 5

static void log_print_file(FILE *to, const struct desk_file_facts *file)
{
    fprintf(to, "%s: ", cli_show_text(file->path).text);
    if (!file->format) {
        fputs("empty\n", to);
        return;
    }
    fprintf(to, "%s%s%s", file->format, strcmp(file->packing, "plain") ? ", " : "",
            strcmp(file->packing, "plain") ? file->packing : "");
    if (file->detected_by > 0)
        fprintf(to, ", as its first %d lines say", file->detected_by);
    if (file->zone_assumed)
        fputs("; its times have no zone, read as --timezone says (UTC)", to);
    fputc('\n', to);
}

/* Counts that are not 0. */
static void log_print_counts(FILE *to, const struct desk_facts *facts)
{
    const struct {
        int64_t n;
        const char *what;
    } counts[] = {
        {facts->unreadable, "cannot be read"},
        {facts->filtered, "do not match --where"},
        {facts->keyless, "have no value for the key"},
        {facts->late, "are too far out of order; they count at the time of the line before"},
        {facts->crowded, "were not put in order: too many at once"},
        {facts->jumps, "come a day or more after the line before"},
    };
    fprintf(to, "  lines          %10" PRId64 "\n", facts->lines);
    for (size_t i = 0; i < WEIR__COUNT(counts); i++) {
        if (counts[i].n > 0)
            fprintf(to, "                 %10" PRId64 "  %s\n", counts[i].n, counts[i].what);
    }
}

static void log_print_examples(FILE *to, const struct desk_facts *facts)
{
    for (size_t i = 0; i < facts->example_count; i++) {
        const struct desk_example *it = &facts->examples[i];
        fprintf(to, "    %s:%" PRId64, cli_show_text(it->path).text, it->line);
        if (it->column > 0)
            fprintf(to, ":%d", it->column);
        fprintf(to, ": %s: %s\n", it->why, it->text);
    }
}

void cli_log_print(const struct cli_log *log)
{
    const struct desk_facts *facts = &log->facts;
    for (size_t i = 0; i < facts->file_count && i < FILES_SHOWN; i++)
        log_print_file(stdout, &facts->files[i]);
    if (facts->file_count > FILES_SHOWN)
        printf("and %zu more files\n", facts->file_count - FILES_SHOWN);
    log_print_counts(stdout, facts);
    log_print_examples(stdout, facts);
    putchar('\n');
}

void cli_log_put_json(const struct cli_log *log, struct weir__json *json)
{
    const struct desk_facts *facts = &log->facts;
    weir__json_open(json, "log", '{');
    weir__json_put_int(json, "lines", facts->lines);
    weir__json_put_int(json, "unreadable", facts->unreadable);
    weir__json_put_int(json, "filtered", facts->filtered);
    weir__json_put_int(json, "keyless", facts->keyless);
    weir__json_put_int(json, "out_of_order", facts->out_of_order);
    weir__json_put_int(json, "late", facts->late);
    weir__json_put_int(json, "crowded", facts->crowded);
    weir__json_put_int(json, "jumps", facts->jumps);
    weir__json_open(json, "examples", '[');
    for (size_t i = 0; i < facts->example_count; i++) {
        const struct desk_example *it = &facts->examples[i];
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "file", it->path);
        weir__json_put_int(json, "line", it->line);
        weir__json_put_string(json, "why", it->why);
        weir__json_put_string(json, "text", it->text);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
    weir__json_open(json, "files", '[');
    for (size_t i = 0; i < facts->file_count; i++) {
        const struct desk_file_facts *it = &facts->files[i];
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "file", it->path);
        weir__json_put_string(json, "format", it->format ? it->format : "empty");
        weir__json_put_string(json, "packing", it->packing);
        weir__json_put_int(json, "lines", it->lines);
        weir__json_put_int(json, "unreadable", it->unreadable);
        weir__json_put_bool(json, "zone_assumed", it->zone_assumed);
        weir__json_put_string(json, "damage", it->damage);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

int cli_log_verdict(const struct cli_call *call, const struct cli_log *log, bool aloud)
{
    const struct desk_facts *facts = &log->facts;
    if (aloud && facts->unreadable + facts->late > 0) {
        log_print_counts(stderr, facts);
        log_print_examples(stderr, facts);
    }
    for (size_t i = 0; i < facts->file_count; i++) {
        if (facts->files[i].damage[0])
            return cli_fail(call, CLI_FAILED, "%s: %s; what comes after that is missing",
                            cli_show_text(facts->files[i].path).text, facts->files[i].damage);
    }
    return CLI_OK;
}
