/* What a command is given: its arguments, read by wire/command.h as in the server, and the time. */
#include "weir_redis.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)

/* ---- the clock ---- */

bool test_clock_enabled;
static int64_t test_us = -1;

void test_clock_set(int64_t microseconds)
{
    test_us = microseconds;
}

static int64_t clock_real_us(void)
{
    return rm_CachedMicroseconds ? rm_CachedMicroseconds() : weir__clock_us();
}

int64_t now_us(void)
{
    return test_us >= 0 ? test_us : clock_real_us();
}

int64_t expire_at_ms(int64_t fresh_us)
{
    return test_us >= 0 ? clock_real_us() / 1000 + DAY_MS : weir__div_up(fresh_us, 1000);
}

/* ---- arguments ---- */

static struct weir__limit_cache cache;

int reply_error(RedisModuleCtx *ctx, const char *format, ...)
{
    char message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    for (char *p = message; *p; p++) /* one line, whatever a key or limit holds */
        *p = *p == '\r' || *p == '\n' ? ' ' : *p;
    return rm_ReplyWithError(ctx, message);
}

static struct weir__span request_span(RedisModuleString *argument)
{
    struct weir__span span;
    span.data = rm_StringPtrLen(argument, &span.len);
    return span;
}

bool read_request(RedisModuleCtx *ctx, enum weir__verb verb, RedisModuleString **argv, int argc,
                  struct request *ret)
{
    struct weir__span args[WEIR__COMMAND_ARGS_MAX];
    weir_error err;
    if (argc > WEIR__COMMAND_ARGS_MAX) {
        reply_error(ctx, "ERR expected at most %d arguments, found %d", WEIR__COMMAND_ARGS_MAX,
                    argc);
        return false;
    }
    for (int i = 0; i < argc; i++)
        args[i] = request_span(argv[i]);
    weir__limit_cache_turn(&cache);
    if (weir__command_read(verb, args, (size_t)argc, &cache, &ret->command, &err)) {
        reply_error(ctx, "ERR %s", err.message);
        return false;
    }
    for (size_t i = 0; i < ret->command.count; i++)
        ret->names[i] = argv[weir__command_key_at(verb, i)];
    return true;
}

bool read_number(RedisModuleCtx *ctx, RedisModuleString *argument, const char *what, int64_t least,
                 int64_t most, int64_t *ret)
{
    weir_error err;
    if (!weir__read_whole(request_span(argument), what, least, most, ret, &err))
        return true;
    reply_error(ctx, "ERR %s", err.message);
    return false;
}
