/* Classes of requests: see classes.h. */
#include "sim/classes.h"

#include <string.h>

#define EXAMPLE "critical=100%%,batch=50%%,default=80%%"

static int classes_fail(weir_error *err, const char *text, struct weir__span part, const char *what)
{
    int column = (int)(part.data - text) + 1;
    return weir__fail(err, WEIR_EINVAL, column,
                      "invalid share \"%.*s\" at column %d: %s, like " EXAMPLE,
                      (int)weir__min((int64_t)part.len, 80), part.data, column, what);
}

static bool classes_is_default(struct weir__span name)
{
    return weir__span_is(name, "default");
}

/* NAME=PERCENT */
static int classes_read_one(const char *text, struct weir__span part, struct weir__classes *ret,
                            weir_error *err)
{
    const char *equals = memchr(part.data, '=', part.len);
    if (!equals || equals == part.data)
        return classes_fail(err, text, part, "expected CLASS=PERCENT");
    size_t len = (size_t)(equals - part.data);
    struct weir__class found = {.name = {part.data, len}};
    const char *wrong =
        weir__share_read((struct weir__span){equals + 1, part.len - len - 1}, &found.millionths);
    if (wrong)
        return classes_fail(err, text, part, wrong);
    for (size_t i = 0; i < ret->count; i++) {
        struct weir__span name = ret->items[i].name;
        if (name.len == len && !memcmp(name.data, part.data, len))
            return classes_fail(err, text, part, "the class is given twice; keep one");
    }
    if (ret->count == WEIR__CLASSES_MAX)
        return classes_fail(err, text, part, "expected at most 16 classes besides default");
    ret->items[ret->count++] = found;
    return 0;
}

/* `default` to the end. */
static int classes_order(const char *text, struct weir__classes *ret, weir_error *err)
{
    size_t last = ret->count - 1;
    for (size_t i = 0; i <= last; i++) {
        if (!classes_is_default(ret->items[i].name))
            continue;
        struct weir__class it = ret->items[i];
        memmove(&ret->items[i], &ret->items[i + 1], (last - i) * sizeof it);
        ret->items[last] = it;
        return 0;
    }
    return classes_fail(err, text, (struct weir__span){text, strlen(text)},
                        "expected default=PERCENT, for requests of no other class");
}

static int classes_check_limit(const weir_limit *limit, weir_error *err)
{
    for (size_t i = 0; i < limit->count; i++) {
        if (!weir__rule_has_size(&limit->rules[i]))
            return weir__fail(err, WEIR_EINVAL, 0,
                              "\"%s\" cannot be shared: smooth and warmup have no size",
                              weir__rule_text(&limit->rules[i]).text);
    }
    return 0;
}

int weir__classes_read(const char *text, const weir_limit *limit, struct weir__classes *ret,
                       weir_error *err)
{
    int code = classes_check_limit(limit, err);
    *ret = (struct weir__classes){.count = 0};
    for (const char *at = text; code == 0 && at;) {
        size_t len = strcspn(at, ",");
        code = classes_read_one(text, (struct weir__span){at, len}, ret, err);
        at = at[len] ? at + len + 1 : NULL;
    }
    if (code == 0)
        code = classes_order(text, ret, err);
    for (size_t i = 0; i < ret->count && code == 0; i++)
        code = weir__limit_reduce(limit, ret->items[i].millionths, &ret->items[i].limit, err);
    return code;
}

void weir__classes_free(struct weir__classes *classes)
{
    for (size_t i = 0; i < classes->count; i++)
        weir_limit_free(classes->items[i].limit);
    classes->count = 0;
}

struct weir__class *weir__classes_find(struct weir__classes *classes, struct weir__span name)
{
    size_t i = 0;
    assert(classes->count > 0);
    while (i + 1 < classes->count &&
           (classes->items[i].name.len != name.len ||
            memcmp(classes->items[i].name.data, name.data, name.len) != 0))
        i++;
    return &classes->items[i];
}
