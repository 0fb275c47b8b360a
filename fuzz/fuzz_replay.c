/* Traces: refused with a message and a place, or a list of requests within bounds that, written as
 * CSV, are read the same. */
#include "fuzz.h"

#include "desk/desk.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

static struct desk_reader *open_trace(int fd, bool classes, weir_error *err)
{
    static const char *const carried[] = {"class"};
    char path[64];
    const char *paths[] = {path};
    struct desk_options options = {.paths = paths,
                                   .path_count = 1,
                                   .format = "trace",
                                   .strict = true,
                                   .disorder_us = -1,
                                   .carried = carried,
                                   .carried_count = classes,
                                   .carried_as_keys = classes};
    struct desk_reader *reader = NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    EXPECT(desk_reader_open(&options, &reader, err) == 0, "not opened: %s", err->message);
    return reader;
}

static int file_of(const char *text, size_t size)
{
    int fd = memfd_create("trace", MFD_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, text, size) == (ssize_t)size, "memfd");
    return fd;
}

static struct weir__span class_of(const struct desk_arrival *arrival, bool classes)
{
    struct weir__span name = {"", 0};
    if (classes)
        desk_arrival_value(arrival, 0, &name);
    return name;
}

static void put_arrival(struct weir__buffer *out, const struct desk_arrival *arrival, bool classes)
{
    struct weir__span name = class_of(arrival, classes);
    EXPECT(arrival->time_us >= 0 && arrival->time_us < WEIR__EXACT_MAX, "time");
    EXPECT(arrival->key.len >= 1 && arrival->key.len <= WEIR_KEY_MAX, "key of %zu bytes",
           arrival->key.len);
    EXPECT(arrival->cost >= 0 && arrival->cost <= WEIR_COST_MAX, "cost");
    weir__put_format(out, "%lld.%06lld,", (long long)(arrival->time_us / 1000000),
                     (long long)(arrival->time_us % 1000000));
    desk_put_csv(out, arrival->key.data, arrival->key.len);
    weir__put_format(out, ",%lld", (long long)arrival->cost);
    if (classes) {
        weir__put_text(out, ",");
        desk_put_csv(out, name.data, name.len);
    }
    weir__put_text(out, "\n");
}

/* All of a trace, written as CSV. False: it is refused. */
static bool read_all(const char *text, size_t size, bool classes, struct weir__buffer *ret)
{
    weir_error err = {0};
    int fd = file_of(text, size), code;
    struct desk_reader *reader = open_trace(fd, classes, &err);
    struct desk_arrival arrival;
    int64_t requests = 0;
    for (; (code = desk_reader_next(reader, &arrival, &err)) == DESK_ARRIVAL; requests++)
        put_arrival(ret, &arrival, classes);
    EXPECT(code == 0 || (code == WEIR_EINVAL && err.message[0] && err.column >= 1),
           "code %d, column %d", code, err.column);
    struct desk_facts facts;
    desk_reader_facts(reader, &facts);
    EXPECT(facts.arrivals == requests, "%lld of %lld", (long long)facts.arrivals,
           (long long)requests);
    desk_reader_close(reader);
    close(fd);
    return code == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int classes = 0; classes < 2; classes++) {
        struct weir__buffer once = weir__buffer_growing(), again = weir__buffer_growing();
        if (read_all((const char *)data, size, classes, &once)) {
            EXPECT(read_all(once.data, once.len, classes, &again), "its own CSV is refused");
            EXPECT(once.len == again.len && !memcmp(once.data, again.data, once.len),
                   "\"%.*s\" reads as another", (int)once.len, once.data);
        }
        weir__buffer_free(&once);
        weir__buffer_free(&again);
    }
    return 0;
}
