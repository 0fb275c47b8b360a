/* Error codes, names and texts, all from the one list in weir.h; the version; failed checks. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

const char *weir_version(void)
{
    return WEIR_VERSION;
}

int weir_version_number(void)
{
    return WEIR_VERSION_NUMBER;
}

int weir_error_count(void)
{
#define ONE(name, number, text) +1
    return 0 WEIR_ERRORS(ONE);
#undef ONE
}

const char *weir_strerror(int code)
{
    switch (code) {
    case WEIR_OK:
        return "success";
#define TEXT(name, number, text)                                                                   \
    case WEIR_##name:                                                                              \
        return text;
        WEIR_ERRORS(TEXT)
#undef TEXT
    }
    return "unknown error";
}

const char *weir_errname(int code)
{
    switch (code) {
    case WEIR_OK:
        return "OK";
#define NAME(name, number, text)                                                                   \
    case WEIR_##name:                                                                              \
        return #name;
        WEIR_ERRORS(NAME)
#undef NAME
    }
    return "UNKNOWN";
}

#undef weir__fail /* for the analyzer: see base.h */
int weir__fail(weir_error *err, int code, int column, const char *format, ...)
{
    if (!err)
        return code;
    err->code = code;
    err->column = column;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    return code;
}

void weir__check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "weir: %s:%d: \"%s\" does not hold; this is a bug in weir\n", file, line, what);
    abort();
}
