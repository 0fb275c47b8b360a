/* Store addresses, read only: refused with a message and a place, or within bounds. */
#include "fuzz.h"

#include "store/region.h"

static void check_region(const char *url, const struct weir__region *region)
{
    const char *rest = strchr(url, ':') + 1;
    size_t len = region->kind == WEIR__MEMORY ? 0 : strcspn(rest, "?");
    EXPECT(strlen(region->path) == len && !memcmp(region->path, rest, len), "path \"%s\" of \"%s\"",
           region->path, url);
    EXPECT(region->kind == WEIR__MEMORY || len > 0, "no path in \"%s\"", url);
    EXPECT(region->size == 0 || (region->size >= WEIR__ZONE_SIZE_MIN &&
                                 region->size <= WEIR__ZONE_SIZE_MAX && region->size % 4096 == 0),
           "size %llu", (unsigned long long)region->size);
    EXPECT(region->large_percent >= -1 && region->large_percent <= 90, "large %d",
           region->large_percent);
    EXPECT(region->fd == -1, "opened");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *url = fuzz_text(data, size);
    struct weir__region region;
    weir_error err = {0};
    int code = weir__region_parse(url, &region, &err);
    if (code) {
        EXPECT(code == WEIR_EURL && err.code == code && err.message[0], "code %d", code);
        EXPECT(err.column >= 1 && (size_t)err.column <= strlen(url) + 1, "column %d of \"%s\"",
               err.column, url);
    } else {
        check_region(url, &region);
    }
    free(url);
    return 0;
}
