/*
 * Classes of requests, each with its share of a limit (limit/limit.h): what --share of
 * `weir replay` says. The last is `default`, for requests of no other class.
 */
#ifndef WEIR_CLASSES_H
#define WEIR_CLASSES_H

#include "limit/limit.h"

#define WEIR__CLASSES_MAX 17 /* default included */

struct weir__class {
    struct weir__span name; /* a part of the text that was read */
    uint32_t millionths;
    weir_limit *limit;         /* the share */
    int64_t requests, allowed; /* counted by who decides */
};

struct weir__classes {
    struct weir__class items[WEIR__CLASSES_MAX];
    size_t count;
};

/* Reads "critical=100%,batch=50%,default=80%", and makes the shares of a limit. *ret is to be freed
 * whatever the code is. */
int weir__classes_read(const char *text, const weir_limit *limit, struct weir__classes *ret,
                       weir_error *err);
void weir__classes_free(struct weir__classes *classes);
struct weir__class *weir__classes_find(struct weir__classes *classes, struct weir__span name);

#endif
