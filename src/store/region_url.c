/* Store addresses: memory:64m, shm:/name?size=64m, file:/path?size=64m&large=25% */
#include "store/region.h"

#include <ctype.h>
#include <string.h>

#ifdef WEIR__WITH_REMOTE
#define EXAMPLES "memory:64m, shm:/name?size=64m, file:/path?size=64m or redis://host:6379"
#else
#define EXAMPLES "memory:64m, shm:/name?size=64m or file:/path?size=64m"
#endif

/* 64k, 64m, 1g, 65536; powers of 1024. */
static bool read_size(const char *text, size_t len, uint64_t *ret)
{
    uint64_t size = 0;
    size_t at = 0;
    for (; at < len && isdigit((unsigned char)text[at]); at++) {
        size = size * 10 + (uint64_t)(text[at] - '0');
        if (size > WEIR__ZONE_SIZE_MAX)
            return false;
    }
    if (at == 0)
        return false;
    if (at < len) {
        const char *suffixes = "kmg";
        const char *suffix = strchr(suffixes, tolower((unsigned char)text[at]));
        if (!suffix)
            return false;
        unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
        if (size > WEIR__ZONE_SIZE_MAX >> shift)
            return false;
        size <<= shift;
        at++;
    }
    *ret = size;
    return at == len && size <= WEIR__ZONE_SIZE_MAX;
}

static int take_size(const char *url, const char *text, size_t len, struct weir__region *region,
                     weir_error *err)
{
    int column = (int)(text - url) + 1;
    uint64_t size;
    if (!read_size(text, len, &size))
        return weir__fail(
            err, WEIR_EURL, column,
            "store address \"%s\", column %d: expected a size like 64m, found \"%.*s\"", url,
            column, (int)len, text);
    if (size < WEIR__ZONE_SIZE_MIN)
        return weir__fail(
            err, WEIR_EURL, column,
            "store address \"%s\", column %d: size %.*s is too small to be useful, use "
            "at least 64k",
            url, column, (int)len, text);
    region->size = size - size % 4096;
    return 0;
}

static int take_large(const char *url, const char *text, size_t len, struct weir__region *region,
                      weir_error *err)
{
    int percent = 0;
    size_t at = 0;
    for (; at < len && isdigit((unsigned char)text[at]) && percent <= 90; at++)
        percent = percent * 10 + (text[at] - '0');
    bool ends = at == len || (at + 1 == len && text[at] == '%');
    if (at == 0 || !ends || percent > 90) {
        int column = (int)(text - url) + 1;
        return weir__fail(
            err, WEIR_EURL, column,
            "store address \"%s\", column %d: large is a share from 0%% to 90%%, found "
            "\"%.*s\"",
            url, column, (int)len, text);
    }
    region->large_percent = percent;
    return 0;
}

/* name=value pairs behind the question mark. */
static int take_options(const char *url, const char *text, struct weir__region *region,
                        weir_error *err)
{
    while (*text) {
        size_t len = strcspn(text, "&");
        int code;
        bool twice = (region->size && !strncmp(text, "size=", 5)) ||
                     (region->large_percent >= 0 && !strncmp(text, "large=", 6));
        if (twice) {
            int column = (int)(text - url) + 1;
            code = weir__fail(err, WEIR_EURL, column,
                              "store address \"%s\", column %d: \"%.*s\" is given twice; leave one "
                              "out",
                              url, column, (int)strcspn(text, "=&"), text);
        } else if (len > 5 && !strncmp(text, "size=", 5)) {
            code = take_size(url, text + 5, len - 5, region, err);
        } else if (len > 6 && !strncmp(text, "large=", 6)) {
            code = take_large(url, text + 6, len - 6, region, err);
        } else {
            int column = (int)(text - url) + 1;
            code = weir__fail(err, WEIR_EURL, column,
                              "store address \"%s\", column %d: unknown option \"%.*s\": expected "
                              "size=64m or large=12%%",
                              url, column, (int)len, text);
        }
        if (code)
            return code;
        text += len + (text[len] == '&');
    }
    return 0;
}

static int take_path(const char *url, const char *text, size_t len, struct weir__region *region,
                     weir_error *err)
{
    int column = (int)(text - url) + 1;
    bool named = len > 1 && text[0] == '/';
    if (region->kind == WEIR__SHM && (!named || memchr(text + 1, '/', len - 1) || len > 250))
        return weir__fail(
            err, WEIR_EURL, column,
            "store address \"%s\", column %d: shared memory has a name like /weir, one "
            "slash at its start",
            url, column);
    if (len == 0 || len >= sizeof region->path)
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: expected a path, like file:/path", url,
                          column);
    memcpy(region->path, text, len);
    region->path[len] = 0;
    return 0;
}

int weir__region_parse(const char *url, struct weir__region *ret, weir_error *err)
{
    *ret = (struct weir__region){.kind = WEIR__MEMORY, .large_percent = -1, .fd = -1};
    static const char *const schemes[] = {
        [WEIR__MEMORY] = "memory:", [WEIR__SHM] = "shm:", [WEIR__FILE] = "file:"};
    size_t kind = 0;
    while (kind < WEIR__COUNT(schemes) && strncmp(url, schemes[kind], strlen(schemes[kind])))
        kind++;
    if (kind == WEIR__COUNT(schemes))
        return weir__fail(err, WEIR_EURL, 1, "invalid store address \"%.200s\": expected " EXAMPLES,
                          url);
    ret->kind = (enum weir__region_kind)kind;
    const char *rest = url + strlen(schemes[kind]);
    size_t len = strcspn(rest, "?");
    int code = 0;
    if (ret->kind != WEIR__MEMORY)
        code = take_path(url, rest, len, ret, err);
    else if (len > 0)
        code = take_size(url, rest, len, ret, err);
    if (code == 0 && rest[len] == '?')
        code = take_options(url, rest + len + 1, ret, err);
    return code;
}
