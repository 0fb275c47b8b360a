/* Store addresses: memory:64m, shm:/name?size=64m,
 * file:/path?size=64m&large=25%&mode=0660&group=app */
#include "store/region.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEIR__WITH_REMOTE
#define EXAMPLES "memory:64m, shm:/name?size=64m, file:/path?size=64m or redis://host:6379"
#else
#define EXAMPLES "memory:64m, shm:/name?size=64m or file:/path?size=64m"
#endif

/* 64k, 64m, 1g, 65536; powers of 1024. */
static bool url_read_size(const char *text, size_t len, uint64_t *ret)
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

static int url_take_size(const char *url, const char *text, size_t len, struct weir__region *region,
                         weir_error *err)
{
    int column = (int)(text - url) + 1;
    uint64_t size;
    if (!url_read_size(text, len, &size))
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

static int url_take_large(const char *url, const char *text, size_t len,
                          struct weir__region *region, weir_error *err)
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

static int url_take_mode(const char *url, const char *text, size_t len, struct weir__region *region,
                         weir_error *err)
{
    const char *digits = text + (len == 4 && text[0] == '0');
    size_t count = len - (size_t)(digits - text);
    if (count == 3 && !strncmp(digits, "600", 3))
        region->mode = WEIR__MODE_OWN;
    else if (count == 3 && !strncmp(digits, "660", 3))
        region->mode = WEIR__MODE_GROUP;
    else {
        int column = (int)(text - url) + 1;
        return weir__fail(
            err, WEIR_EURL, column,
            "store address \"%s\", column %d: invalid mode \"%.*s\": expected 0600, or "
            "0660 with a group; who may write a zone may change every count",
            url, column, (int)len, text);
    }
    return 0;
}

#define GROUP_ROOM_MIN 1024
#define GROUP_ROOM_MAX (1 << 20) /* a group with more members than that is not looked for */

/* The number of a group, by name or number; false: there is no such group. */
static bool url_group_number(const char *name, gid_t *ret)
{
    struct group group, *found = NULL;
    char *end;
    errno = 0;
    unsigned long number = strtoul(name, &end, 10);
    if (isdigit((unsigned char)name[0]) && !*end && !errno && number < (gid_t)-1) {
        *ret = (gid_t)number;
        return true;
    }
    int code = ERANGE;
    for (size_t room = GROUP_ROOM_MIN; code == ERANGE && room <= GROUP_ROOM_MAX; room *= 4) {
        char *names = malloc(room);
        if (!names)
            return false;
        code = getgrnam_r(name, &group, names, room, &found);
        if (found)
            *ret = found->gr_gid;
        free(names);
    }
    return found != NULL;
}

static int url_take_group(const char *url, const char *text, size_t len,
                          struct weir__region *region, weir_error *err)
{
    char name[256] = "";
    int column = (int)(text - url) + 1;
    if (len < sizeof name)
        memcpy(name, text, len);
    if (!name[0] || !url_group_number(name, &region->group))
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: there is no group \"%.*s\": expected "
                          "its name or number, like group=www-data",
                          url, column, (int)len, text);
    return 0;
}

static int url_take_full(const char *url, const char *text, size_t len, struct weir__region *region,
                         weir_error *err)
{
    int column = (int)(text - url) + 1;
    region->keeps = len == 4 && !strncmp(text, "deny", 4);
    if (!region->keeps && !(len == 5 && !strncmp(text, "evict", 5)))
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: invalid full \"%.*s\": expected deny "
                          "or evict",
                          url, column, (int)len, text);
    return 0;
}

static int url_take_create(const char *url, const char *text, size_t len,
                           struct weir__region *region, weir_error *err)
{
    int column = (int)(text - url) + 1;
    region->present = len == 2 && !strncmp(text, "no", 2);
    if (!region->present && !(len == 3 && !strncmp(text, "yes", 3)))
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: invalid create \"%.*s\": expected no "
                          "or yes",
                          url, column, (int)len, text);
    return 0;
}

/* An option of an address, and where it stands. */
struct option {
    const char *name;
    int (*take)(const char *url, const char *text, size_t len, struct weir__region *region,
                weir_error *err);
    bool shared; /* only where other processes can open the zone */
};

enum { SIZE, LARGE, FULL, CREATE, MODE, GROUP, OPTIONS };
static const struct option options[OPTIONS] = {
    [SIZE] = {"size=", url_take_size, false}, [LARGE] = {"large=", url_take_large, false},
    [FULL] = {"full=", url_take_full, false}, [CREATE] = {"create=", url_take_create, true},
    [MODE] = {"mode=", url_take_mode, true},  [GROUP] = {"group=", url_take_group, true}};

static int url_take_option(const char *url, const char *text, size_t len,
                           struct weir__region *region, bool given[OPTIONS], weir_error *err)
{
    int column = (int)(text - url) + 1, i = 0;
    while (i < OPTIONS && strncmp(text, options[i].name, strlen(options[i].name)))
        i++;
    if (i == OPTIONS || len == strlen(options[i].name))
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: unknown option \"%.*s\": expected "
                          "size=64m, large=12%%, full=deny, create=no, or mode=0660&group=NAME",
                          url, column, (int)len, text);
    if (given[i])
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: \"%.*s\" is given twice; leave one "
                          "out",
                          url, column, (int)strlen(options[i].name) - 1, text);
    if (options[i].shared && region->kind == WEIR__MEMORY)
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: \"%.*s\": no other process can open a "
                          "memory: store; use shm: or file:",
                          url, column, (int)len, text);
    given[i] = true;
    size_t name = strlen(options[i].name);
    return options[i].take(url, text + name, len - name, region, err);
}

/* name=value pairs behind the question mark. */
static int url_take_options(const char *url, const char *text, struct weir__region *region,
                            weir_error *err)
{
    bool given[OPTIONS] = {[SIZE] = region->size > 0};
    int column = (int)(text - url) + 1;
    while (*text) {
        size_t len = strcspn(text, "&");
        int code = url_take_option(url, text, len, region, given, err);
        if (code)
            return code;
        text += len + (text[len] == '&');
    }
    if ((region->mode == WEIR__MODE_GROUP) != given[GROUP])
        return weir__fail(err, WEIR_EURL, column,
                          "store address \"%s\", column %d: mode=0660 and group=NAME need each "
                          "other; give both, like mode=0660&group=www-data, or none",
                          url, column);
    if (region->present) { /* it is opened as it is */
        region->size = 0;
        region->large_percent = -1;
    }
    return 0;
}

static int url_take_path(const char *url, const char *text, size_t len, struct weir__region *region,
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

/* What nobody knows may have a password in it: it ends at the last @. */
static int url_refuse(const char *url, weir_error *err)
{
    const char *end = strrchr(url, '@'), *scheme = strstr(url, "://");
    int len = end && scheme && scheme < end ? (int)weir__min(scheme - url, 20) : 0;
    return weir__fail(err, WEIR_EURL, 1,
                      "invalid store address \"%.*s%s%.200s\": expected " EXAMPLES, len, url,
                      end ? (len ? "://…" : "…") : "", end ? end : url);
}

int weir__region_parse(const char *url, struct weir__region *ret, weir_error *err)
{
    *ret = (struct weir__region){
        .kind = WEIR__MEMORY, .large_percent = -1, .mode = WEIR__MODE_OWN, .fd = -1};
    static const char *const schemes[] = {
        [WEIR__MEMORY] = "memory:", [WEIR__SHM] = "shm:", [WEIR__FILE] = "file:"};
    size_t kind = 0;
    while (kind < WEIR__COUNT(schemes) && strncmp(url, schemes[kind], strlen(schemes[kind])))
        kind++;
    if (kind == WEIR__COUNT(schemes))
        return url_refuse(url, err);
    ret->kind = (enum weir__region_kind)kind;
    const char *rest = url + strlen(schemes[kind]);
    size_t len = strcspn(rest, "?");
    int code = 0;
    if (ret->kind != WEIR__MEMORY)
        code = url_take_path(url, rest, len, ret, err);
    else if (len > 0)
        code = url_take_size(url, rest, len, ret, err);
    if (code == 0 && rest[len] == '?')
        code = url_take_options(url, rest + len + 1, ret, err);
    return code;
}

const char *weir__region_unit(uint64_t *size)
{
    static const char *const units[] = {"", "k", "m", "g"};
    size_t unit = 0;
    while (unit + 1 < WEIR__COUNT(units) && *size && *size % 1024 == 0) {
        *size /= 1024;
        unit++;
    }
    return units[unit];
}
