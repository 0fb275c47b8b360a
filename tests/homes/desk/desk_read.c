/*
 * Reads logs with src/desk and prints what comes out, for tests:
 *
 *     desk_read [--key K] [--where C] … FILE …
 *
 * Standard output has `time,key,cost` of every arrival, then the facts as `# name value`. With
 * --quiet only the facts. Exit code 1: an error, on standard error.
 */
#include "base/duration.h"
#include "desk/desk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 64

static const char *paths[DESK_FILES_MAX], *wheres[TEXTS_MAX], *templates[TEXTS_MAX],
    *fields[TEXTS_MAX], *carried[TEXTS_MAX];
static struct desk_options options;
static bool quiet;

static bool take_text(const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **ret;
    } texts[] = {{"--key", &options.key},
                 {"--format", &options.format},
                 {"--cost", &options.cost},
                 {"--timezone", &options.timezone}};
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        if (!strcmp(name, texts[i].name)) {
            *texts[i].ret = value;
            return true;
        }
    }
    if (!strcmp(name, "--where"))
        wheres[options.where_count++] = value;
    else if (!strcmp(name, "--template"))
        templates[options.template_count++] = value;
    else if (!strcmp(name, "--field"))
        fields[options.field_count++] = value;
    else if (!strcmp(name, "--carry"))
        carried[options.carried_count++] = value;
    else if (!strcmp(name, "--disorder"))
        options.disorder_us = atoll(value);
    else
        return false;
    return true;
}

static void read_arguments(int argc, char **argv)
{
    options = (struct desk_options){.paths = paths,
                                    .where = wheres,
                                    .templates = templates,
                                    .fields = fields,
                                    .carried = carried,
                                    .secret = {1, 2}};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quiet"))
            quiet = true;
        else if (!strcmp(argv[i], "--no-spread"))
            options.no_spread = true;
        else if (!strcmp(argv[i], "--follow"))
            options.follow = true;
        else if (!strcmp(argv[i], "--strict"))
            options.strict = true;
        else if (i + 1 < argc && take_text(argv[i], argv[i + 1]))
            i++;
        else if (options.path_count < DESK_FILES_MAX)
            paths[options.path_count++] = argv[i];
    }
}

static void print_arrival(const struct desk_arrival *arrival)
{
    char time[32];
    struct weir__buffer buffer = weir__buffer_over(time, sizeof time);
    weir__put_seconds(&buffer, arrival->time_us);
    printf("%s,", time);
    for (size_t i = 0; i < arrival->key.len; i++) {
        if (arrival->key.data[i] == '\n')
            fputs("\\n", stdout);
        else
            putchar(arrival->key.data[i]);
    }
    printf(",%lld", (long long)arrival->cost);
    for (size_t i = 0; i < options.carried_count; i++) {
        struct weir__span value;
        if (desk_arrival_value(arrival, i, &value))
            printf(",%s=%.*s", carried[i], (int)value.len, value.data);
        else
            printf(",%s absent", carried[i]);
    }
    putchar('\n');
}

static void print_facts(const struct desk_facts *facts)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"lines", facts->lines},
        {"arrivals", facts->arrivals},
        {"filtered", facts->filtered},
        {"keyless", facts->keyless},
        {"unreadable", facts->unreadable},
        {"out_of_order", facts->out_of_order},
        {"late", facts->late},
        {"crowded", facts->crowded},
        {"spread", facts->spread},
        {"jumps", facts->jumps},
        {"first_us", facts->first_us},
        {"last_us", facts->last_us},
        {"bytes", facts->bytes},
        {"done", facts->done},
        {"size", facts->size},
        {"damaged", facts->damaged},
    };
    for (size_t i = 0; i < WEIR__COUNT(numbers); i++)
        printf("# %s %lld\n", numbers[i].name, (long long)numbers[i].value);
    for (int i = 0; i < DESK_REASON_COUNT; i++) {
        if (facts->reasons[i])
            printf("# reason %lld %s\n", (long long)facts->reasons[i],
                   desk_reason_text((enum desk_reason)i));
    }
    for (size_t i = 0; i < facts->example_count; i++) {
        const struct desk_example *it = &facts->examples[i];
        printf("# example %s:%lld:%d: %s: %s\n", it->path, (long long)it->line, it->column, it->why,
               it->text);
    }
    for (size_t i = 0; i < facts->file_count; i++) {
        const struct desk_file_facts *it = &facts->files[i];
        printf("# file %s %s %s by %d lines %lld unreadable %lld%s%s%s\n", it->path,
               it->format ? it->format : "empty", it->packing, it->detected_by,
               (long long)it->lines, (long long)it->unreadable,
               it->zone_assumed ? " zone assumed" : "", it->damage[0] ? " damage: " : "",
               it->damage);
    }
}

int main(int argc, char **argv)
{
    struct desk_reader *reader;
    struct desk_arrival arrival;
    struct desk_facts facts;
    weir_error err = {0};
    read_arguments(argc, argv);
    int code = desk_reader_open(&options, &reader, &err);
    if (code) {
        fprintf(stderr, "desk_read: %s\n", err.message);
        return 1;
    }
    while ((code = desk_reader_next(reader, &arrival, &err)) > 0) {
        if (code == DESK_ARRIVAL && !quiet)
            print_arrival(&arrival);
        if (options.follow)
            fflush(stdout);
    }
    desk_reader_facts(reader, &facts);
    print_facts(&facts);
    desk_reader_close(reader);
    if (code)
        fprintf(stderr, "desk_read: %s\n", err.message);
    return code ? 1 : 0;
}
