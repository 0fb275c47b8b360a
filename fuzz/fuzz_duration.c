/* Durations: what is read is within bounds, and prints as text that reads the same. */
#include "fuzz.h"

#include "base/duration.h"

static void check_text(int64_t us, bool bare)
{
    char text[64];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_duration(&buffer, us, bare);
    int64_t again = 0;
    const char *why = "";
    size_t used = weir__duration_parse(text, buffer.len, &again, &why);
    EXPECT(!buffer.cut && used == buffer.len && again == us, "%lld is \"%s\": %s", (long long)us,
           text, why);
}

static void check_seconds(int64_t us)
{
    char text[64];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_seconds(&buffer, us);
    long long whole, rest;
    EXPECT(!buffer.cut && sscanf(text, "%lld.%6lld", &whole, &rest) == 2 &&
               whole * 1000000 + rest == us,
           "%lld is %s seconds", (long long)us, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A duration need not end in NUL: only its length ends it. */
    char *text = malloc(size + !size);
    EXPECT(text, "out of memory");
    memcpy(text, data, size);
    int64_t us = -1;
    const char *why = NULL;
    size_t used = weir__duration_parse(text, size, &us, &why);
    if (used == 0) {
        EXPECT(us == -1 && why && *why, "a refusal leaves %lld", (long long)us);
    } else {
        EXPECT(used <= size && us >= 1 && us <= WEIR_DURATION_MAX, "%zu bytes give %lld", used,
               (long long)us);
        check_text(us, false);
        check_text(us, true);
        check_seconds(us);
    }
    free(text);
    return 0;
}
