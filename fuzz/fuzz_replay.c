/* Traces for replay: refused with a message and a place, or a list of requests within bounds
 * that can be found again and, written as CSV, read the same. */
#include "fuzz.h"

#include "sim/replay.h"
#include "sim/trace.h"

/* The same request from its line alone. */
static void check_seek(const struct weir__trace *trace, const struct weir__arrival *arrival)
{
    struct weir__trace_reader reader;
    struct weir__arrival again;
    weir__trace_begin(&reader, trace);
    weir__trace_seek(&reader, arrival->offset);
    EXPECT(weir__trace_next(&reader, &again, NULL) == 1 && again.time_us == arrival->time_us &&
               again.cost == arrival->cost && again.key_len == arrival->key_len &&
               !memcmp(again.key, arrival->key, again.key_len) &&
               again.class_name.len == arrival->class_name.len,
           "offset %zu leads elsewhere", arrival->offset);
}

/* The same request written out and read back. */
static void check_csv(const struct weir__arrival *arrival)
{
    size_t room = 2 * arrival->key_len + 2 * arrival->class_name.len + 64;
    char *line = malloc(room);
    EXPECT(line, "out of memory");
    struct weir__buffer buffer = weir__buffer_over(line, room);
    weir__put_format(&buffer, "%lld.%06lld,", (long long)(arrival->time_us / 1000000),
                     (long long)(arrival->time_us % 1000000));
    weir__put_csv(&buffer, arrival->key, arrival->key_len);
    weir__put_format(&buffer, ",%lld,", (long long)arrival->cost);
    weir__put_csv(&buffer, arrival->class_name.data, arrival->class_name.len);
    weir__put_text(&buffer, "\n");
    struct weir__trace trace = {line, buffer.len, NULL, 0, true};
    struct weir__trace_reader reader;
    struct weir__arrival again;
    weir_error err = {0};
    weir__trace_begin(&reader, &trace);
    EXPECT(weir__trace_next(&reader, &again, &err) == 1, "\"%s\": %s", line, err.message);
    EXPECT(again.time_us == arrival->time_us && again.cost == arrival->cost &&
               again.key_len == arrival->key_len &&
               !memcmp(again.key, arrival->key, again.key_len) &&
               again.class_name.len == arrival->class_name.len &&
               !memcmp(again.class_name.data, arrival->class_name.data, again.class_name.len),
           "\"%s\" reads as another", line);
    free(line);
}

static void check_requests(const struct weir__trace *trace, const struct weir__trace_facts *facts)
{
    struct weir__trace_reader reader;
    struct weir__arrival arrival;
    int64_t requests = 0;
    weir__trace_begin(&reader, trace);
    while (weir__trace_next(&reader, &arrival, NULL) > 0) {
        requests++;
        EXPECT(arrival.time_us >= facts->first_us && arrival.time_us <= facts->last_us &&
                   arrival.time_us < WEIR__EXACT_MAX,
               "time %lld", (long long)arrival.time_us);
        EXPECT(arrival.key_len >= 1 && arrival.key_len <= WEIR_KEY_MAX, "key of %zu bytes",
               arrival.key_len);
        EXPECT(arrival.cost >= 0 && arrival.cost <= WEIR_COST_MAX, "cost %lld",
               (long long)arrival.cost);
        check_seek(trace, &arrival);
        check_csv(&arrival);
    }
    EXPECT(requests == facts->requests, "%lld requests of %lld", (long long)requests,
           (long long)facts->requests);
}

static void check_trace(const char *text, size_t size, bool classes)
{
    struct weir__trace trace = {text, size, NULL, 0, classes};
    struct weir__trace_facts facts;
    weir_error err = {0};
    int code = weir__trace_check(&trace, &facts, &err);
    if (code)
        EXPECT(code == WEIR_EINVAL && err.message[0] && err.column >= 1, "code %d, column %d", code,
               err.column);
    else
        check_requests(&trace, &facts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Without a NUL at its end: only the length ends it. */
    char *text = malloc(size + !size);
    EXPECT(text, "out of memory");
    memcpy(text, data, size);
    check_trace(text, size, false);
    check_trace(text, size, true);
    free(text);
    return 0;
}
