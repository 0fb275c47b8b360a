/*
 * Logs. The first byte chooses a format and a key; the rest is a file. Whatever it holds: it is
 * refused with words, or every line is an arrival or counted, arrivals are in order and within
 * bounds, and a second reading gives the same.
 */
#include "fuzz.h"

#include "desk/desk.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const formats[] = {NULL,
                                      "combined",
                                      "common",
                                      "json",
                                      "csv",
                                      "haproxy",
                                      "envoy",
                                      "caddy",
                                      "traefik",
                                      "alb",
                                      "weir",
                                      "trace",
                                      "$remote_addr [$time_local] \"$request\" $status"};
static const char *const keys[] = {
    NULL, "ip/24/48", "method, path", "lower(header.user-agent)", "query.a, 'x'", "user"};

struct sum {
    int code;
    int64_t arrivals;
    uint64_t hash;
    struct desk_facts facts;
};

static void add_arrival(struct sum *sum, const struct desk_arrival *arrival, bool ordered,
                        int64_t *last_us)
{
    struct weir__span value;
    EXPECT(arrival->time_us >= 0 && arrival->time_us < WEIR__EXACT_MAX, "time");
    EXPECT(!ordered || arrival->time_us >= *last_us, "order");
    EXPECT(arrival->key.len >= 1 && arrival->key.len <= WEIR_KEY_MAX, "key of %zu bytes",
           arrival->key.len);
    EXPECT(arrival->cost >= 0 && arrival->cost <= WEIR_COST_MAX, "cost");
    EXPECT(arrival->line >= 1 && arrival->file == 0, "line");
    *last_us = arrival->time_us;
    sum->arrivals++;
    sum->hash = (sum->hash ^ (uint64_t)arrival->time_us) * UINT64_C(1099511628211) ^
                arrival->hash[0] ^ (uint64_t)arrival->cost;
    if (desk_arrival_value(arrival, 1, &value))
        sum->hash += value.len;
}

static struct sum read_all(const char *path, const struct desk_options *asked)
{
    struct sum sum = {0};
    struct desk_reader *reader;
    struct desk_arrival arrival;
    weir_error err = {0};
    struct desk_options options = *asked;
    int64_t last_us = 0;
    options.paths = &path;
    options.path_count = 1;
    sum.code = desk_reader_open(&options, &reader, &err);
    if (sum.code) {
        EXPECT(err.message[0], "no message");
        return sum;
    }
    while ((sum.code = desk_reader_next(reader, &arrival, &err)) > 0)
        add_arrival(&sum, &arrival, options.disorder_us > 0, &last_us);
    EXPECT(sum.code == 0 || (options.strict && err.message[0]), "code %d", sum.code);
    desk_reader_facts(reader, &sum.facts);
    EXPECT(sum.facts.arrivals == sum.arrivals, "arrivals");
    int64_t reasons = 0;
    for (int i = 0; i < DESK_REASON_COUNT; i++)
        reasons += sum.facts.reasons[i];
    EXPECT(reasons == sum.facts.unreadable, "reasons");
    EXPECT(sum.code || sum.facts.lines == sum.arrivals + sum.facts.filtered + sum.facts.keyless +
                                              sum.facts.unreadable,
           "a line is lost");
    for (size_t i = 0; i < sum.facts.example_count; i++) {
        for (const char *p = sum.facts.examples[i].text; *p; p++)
            EXPECT((unsigned char)*p >= ' ' && *p != 0x7f, "byte %d in an example", *p);
    }
    desk_reader_close(reader);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const carried[] = {"host", "path"};
    static const char *const wheres[] = {"method!=PUT|DELETE"};
    static const char *const templates[] = {"/users/{id}", "/a/{b}/{c}"};
    struct fuzz_input input = {data, size};
    unsigned choice = fuzz_byte(&input), more = fuzz_byte(&input);
    struct desk_options options = {
        .format = formats[choice % WEIR__COUNT(formats)],
        .key = keys[more % WEIR__COUNT(keys)],
        .cost = more & 64 ? "bytes/7" : NULL,
        .where = wheres,
        .where_count = more >> 7,
        .templates = templates,
        .template_count = 2,
        .disorder_us = choice & 64 ? 2000000 : 0,
        .strict = choice & 128,
        .carried = carried,
        .carried_count = 2,
    };
    char path[64];
    int fd = memfd_create("log", MFD_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, input.data, input.size) == (ssize_t)input.size, "memfd");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct sum first = read_all(path, &options), second = read_all(path, &options);
    EXPECT(first.code == second.code && first.hash == second.hash &&
               first.arrivals == second.arrivals,
           "not the same again");
    close(fd);
    return 0;
}
