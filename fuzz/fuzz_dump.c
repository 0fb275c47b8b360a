/*
 * Dumps of zones (wire/dump.h): lines of any bytes, put into a zone. Whatever they are, the zone is
 * sound afterwards, and what it then dumps loads into another one.
 */
#include "fuzz.h"

#include "wire/dump.h"

#define SIZE (128 << 10)
#define LARGE_PERCENT 40
#define NOW_US INT64_C(1700000000000000)

struct text {
    char *data;
    size_t len;
};

static int keep(void *context, const char *data, size_t len, weir_error *err)
{
    struct text *text = context;
    (void)err;
    text->data = realloc(text->data, text->len + len);
    EXPECT(text->data, "out of memory");
    memcpy(text->data + text->len, data, len);
    text->len += len;
    return 0;
}

static uint8_t *make_zone(struct weir__zone *ret)
{
    uint8_t *base = aligned_alloc(4096, SIZE);
    weir_error err = {0};
    EXPECT(base, "out of memory");
    memset(base, 0, SIZE);
    EXPECT(weir__zone_format(base, SIZE, LARGE_PERCENT, false, ret, &err) == 0, "%s", err.message);
    return base;
}

/* Each line alone in memory that ends where it ends; a wrong one is passed over. The number that
 * were good. */
static uint64_t read_lines(const uint8_t *data, size_t size, struct weir__zone *zone, bool strict)
{
    struct weir__dump_reader reader = {0};
    uint64_t good = 0;
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - data) - at + 1 : size - at;
        weir_error err = {0};
        char *line = fuzz_text(data + at, len);
        int code = at == 0 ? weir__dump_read_head(&reader, line, len, &err)
                           : weir__dump_read(&reader, line, len, &err);
        EXPECT(code == 0 || code == WEIR_EINVAL || code == WEIR_EFULL, "%s", err.message);
        EXPECT(code == 0 || !strncmp(err.message, "line ", 5), "%s", err.message);
        EXPECT(code == 0 || code == WEIR_EFULL || !strict, "%s", err.message);
        good += code == 0;
        free(line);
        reader.zone = zone;
        reader.now_us = NOW_US;
        if (!strict)
            reader.ended = false;
        at += len;
    }
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir__zone zone, other;
    weir_error err = {0};
    struct text text = {0};
    struct weir__dump_sink sink = {.write = keep, .context = &text};
    fuzz_random_reset();
    uint8_t *base = make_zone(&zone), *base2 = make_zone(&other);
    read_lines(data, size, &zone, false);
    EXPECT(weir__zone_check(&zone, &err) == 0, "%s", err.message);
    EXPECT(weir__dump_zone(&zone, &sink, &err) == 0, "%s", err.message);
    read_lines((const uint8_t *)text.data, text.len, &other, true);
    EXPECT(weir__zone_check(&other, &err) == 0, "%s", err.message);
    free(text.data);
    free(base);
    free(base2);
    return 0;
}
