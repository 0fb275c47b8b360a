/* Which logs to read, and how: see logs.h. */
#include "cli/logs.h"

#include "policy/view.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 64m, 1g: powers of 1024. */
static int logs_read_memory(const struct cli_call *call, struct cli_logs *logs)
{
    static const char suffixes[] = "kmg";
    const char *text = logs->memory_text;
    char *end = NULL;
    logs->memory = DESK_MEMORY_USUAL;
    if (!text)
        return CLI_OK;
    errno = 0;
    long long size = isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : -1;
    const char *suffix = size > 0 && *end ? strchr(suffixes, tolower((unsigned char)*end)) : NULL;
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    bool good = size > 0 && errno == 0 && (suffix ? !end[1] : !*end) &&
                size <= (INT64_C(1) << 40) >> shift && size << shift >= DESK_MEMORY_LEAST;
    if (!good)
        return cli_fail(call, CLI_USAGE,
                        "invalid --memory \"%s\": expected a size from 1m to 1024g, like 512m",
                        cli_show_text(text).text);
    logs->memory = (int64_t)size << shift;
    return CLI_OK;
}

/* Which file a path leads to. False: it is not a file, or somebody else says what is wrong. */
static bool logs_find_file(const char *path, struct stat *ret)
{
    int failed = strcmp(path, "-") ? stat(path, ret) : fstat(STDIN_FILENO, ret);
    return !failed && S_ISREG(ret->st_mode);
}

/* A file that is named twice, also by another path, would count twice. */
static int logs_check_twice(const struct cli_call *call, const struct cli_logs *logs)
{
    struct stat *files = calloc(logs->path_count + 1, sizeof *files);
    int code = files ? CLI_OK : cli_fail(call, CLI_FAILED, "out of memory");
    for (size_t i = 0; i < logs->path_count && code == CLI_OK; i++) {
        if (!logs_find_file(logs->paths[i], &files[i]))
            files[i].st_nlink = 0;
        size_t j = 0;
        while (j < i && !(files[i].st_nlink > 0 && files[j].st_nlink > 0 &&
                          files[j].st_ino == files[i].st_ino && files[j].st_dev == files[i].st_dev))
            j++;
        if (j == i)
            continue;
        if (!strcmp(logs->paths[i], logs->paths[j]))
            code = cli_fail(call, CLI_USAGE, "%s is given twice: its lines would count twice",
                            cli_logs_name(logs->paths[i]).text);
        else
            code = cli_fail(call, CLI_USAGE,
                            "%s is given twice, also as %s: its lines would count twice",
                            cli_logs_name(logs->paths[j]).text, cli_logs_name(logs->paths[i]).text);
    }
    free(files);
    return code;
}

int cli_logs_read(const struct cli_call *call, struct cli_logs *logs)
{
    struct desk_options *options = &logs->options;
    logs->path_count = 0;
    while (logs->paths[logs->path_count])
        logs->path_count++;
    int code = logs_check_twice(call, logs);
    if (code)
        return code;
    options->paths = logs->paths;
    options->path_count = logs->path_count;
    options->where = logs->where.texts;
    options->where_count = logs->where.count;
    options->templates = logs->templates.texts;
    options->template_count = logs->templates.count;
    options->fields = logs->fields.texts;
    options->field_count = logs->fields.count;
    options->disorder_us = logs->disorder_us;
    options->no_spread = logs->no_spread;
    return logs_read_memory(call, logs);
}

int cli_logs_check_report(const struct cli_call *call, const struct cli_logs *logs,
                          const char *path)
{
    struct stat page, log;
    if (!path || stat(path, &page) || !S_ISREG(page.st_mode))
        return CLI_OK;
    for (size_t i = 0; i == 0 || i < logs->path_count; i++) {
        const char *it = i < logs->path_count ? logs->paths[i] : "-";
        if (logs_find_file(it, &log) && log.st_dev == page.st_dev && log.st_ino == page.st_ino)
            return cli_fail(call, CLI_USAGE,
                            "invalid --report \"%s\": that is the log; name another file",
                            cli_show_text(path).text);
    }
    return CLI_OK;
}

int cli_logs_check_spare(const struct cli_call *call, const struct cli_list *spare)
{
    for (size_t i = 0; i < spare->count; i++) {
        const char *text = spare->texts[i], *slash = strrchr(text, '/');
        struct weir__network network;
        struct weir__address address;
        const char *wrong = weir__network_read(text, strlen(text), &network);
        bool meant = slash && weir__address_read(text, (size_t)(slash - text), &address);
        if (!*text || (wrong && meant))
            return cli_fail(call, CLI_USAGE,
                            "invalid --spare \"%s\": %s; expected a key, or a network like "
                            "10.0.0.0/8",
                            cli_show_text(text).text, *text ? wrong : "it is empty");
    }
    return CLI_OK;
}

int cli_logs_tell_spare(const struct cli_call *call, const struct cli_logs *logs, const char *word)
{
    if (logs->where.count > 0)
        return cli_fail(call, CLI_OK,
                        "--spare \"%s\": no request that --where selects has such a key",
                        cli_show_text(word).text);
    return cli_fail(call, CLI_USAGE,
                    "invalid --spare \"%s\": no key of the log is like this; expected a key as "
                    "the log has it, or a network like 10.0.0.0/8",
                    cli_show_text(word).text);
}

/* ---- after reading ---- */

struct cli_shown cli_logs_name(const char *path)
{
    return cli_show_text(strcmp(path, "-") ? path : "standard input");
}

int cli_logs_check_readable(const struct cli_call *call, const struct desk_facts *facts)
{
    const struct desk_example *first = &facts->examples[0];
    if (facts->unseen_field)
        return cli_fail(call, CLI_USAGE, "invalid --field \"%s\": no line of the log has %s%s%s",
                        cli_show_text(facts->unseen_field).text,
                        cli_show_text(strchr(facts->unseen_field, '=') + 1).text,
                        facts->names[0] ? "; the first line has " : "",
                        cli_show_text(facts->names).text);
    if (facts->lines == 0 || facts->unreadable < facts->lines)
        return CLI_OK;
    return cli_fail(call, CLI_USAGE, "%s:%" PRId64 ": no line can be read; the first: %s: %s",
                    cli_logs_name(first->path).text, first->line, first->why, first->text);
}

int cli_logs_check_damage(const struct cli_call *call, const struct desk_facts *facts)
{
    int code = CLI_OK;
    for (size_t i = 0; i < facts->file_count; i++) {
        if (facts->files[i].damage[0])
            code = cli_fail(call, CLI_FAILED, "%s: %s; what comes after that is missing",
                            cli_logs_name(facts->files[i].path).text, facts->files[i].damage);
    }
    return code;
}

int cli_write_report(const struct cli_call *call, const struct desk_report *report,
                     const char *path)
{
    struct weir__buffer page = weir__buffer_growing();
    desk_report_html(report, &page);
    FILE *file = fopen(path, "wbe");
    bool good = file && !page.cut && fwrite(page.data, 1, page.len, file) == page.len;
    int error = errno;
    good = file && !fclose(file) && good;
    weir__buffer_free(&page);
    return good ? CLI_OK
                : cli_fail(call, CLI_FAILED, "cannot write the report to %s: %s",
                           cli_show_text(path).text, strerror(error));
}
