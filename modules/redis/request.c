/* Arguments to requests. Everything is checked before a key is looked at. */
#include "weir_redis.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CACHE_SIZE 256 /* limit texts remembered; a new one takes the place of another */
#define TEXT_MAX 1024  /* of a cached limit; longer ones are refused */

static struct cached {
    char *text;
    size_t len;
    weir_limit *limit;
} cache[CACHE_SIZE];

/* Limits that gave up their place during this command, which may still use them. */
static weir_limit *retired[WEIR_LIMITS_MAX];
static size_t retired_count;

static void free_retired(void)
{
    while (retired_count > 0)
        weir_limit_free(retired[--retired_count]);
}

int reply_error(RedisModuleCtx *ctx, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    for (char *p = message; *p; p++) /* one line, whatever a key or limit holds */
        *p = *p == '\r' || *p == '\n' ? ' ' : *p;
    return rm_ReplyWithError(ctx, message);
}

static size_t place_of(const char *text, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    return (hash ^ hash >> 32) % CACHE_SIZE;
}

static const weir_limit *parse_into(RedisModuleCtx *ctx, struct cached *slot, const char *text,
                                    size_t len)
{
    weir_limit *limit = NULL;
    weir_error err;
    char *copy = len < TEXT_MAX && !memchr(text, 0, len) ? malloc(len + 1) : NULL;
    if (!copy) {
        reply_error(ctx, "ERR limit text must be under %d bytes and hold no zero byte", TEXT_MAX);
        return NULL;
    }
    memcpy(copy, text, len);
    copy[len] = 0;
    if (weir_limit_parse(copy, &limit, &err)) {
        free(copy);
        reply_error(ctx, "ERR limit: %s", err.message);
        return NULL;
    }
    if (slot->limit)
        retired[retired_count++] = slot->limit;
    free(slot->text);
    *slot = (struct cached){copy, len, limit};
    return limit;
}

/* A command asks at most WEIR_LIMITS_MAX times, and what it got lives until the next command. */
const weir_limit *limit_of(RedisModuleCtx *ctx, RedisModuleString *argument)
{
    size_t len;
    const char *text = rm_StringPtrLen(argument, &len);
    static struct cached *slot = cache; /* the last one's first: most callers have one limit */
    if (slot->limit && slot->len == len && !memcmp(slot->text, text, len))
        return slot->limit;
    slot = &cache[place_of(text, len)];
    if (slot->limit && slot->len == len && !memcmp(slot->text, text, len))
        return slot->limit;
    if (retired_count == WEIR_LIMITS_MAX) /* verbs that ask for one limit only */
        free_retired();
    return parse_into(ctx, slot, text, len);
}

bool read_number(RedisModuleCtx *ctx, RedisModuleString *argument, const char *what, int64_t least,
                 int64_t most, int64_t *ret)
{
    size_t len;
    const char *text = rm_StringPtrLen(argument, &len);
    int64_t number = 0;
    bool sound = len > 0 && len < 20;
    for (size_t i = 0; i < len && sound; i++) {
        sound = text[i] >= '0' && text[i] <= '9' && number <= (INT64_MAX - 9) / 10;
        number = sound ? number * 10 + (text[i] - '0') : 0;
    }
    if (!sound || number < least || number > most) {
        reply_error(ctx, "ERR %s must be a whole number from %lld to %lld, not \"%.*s\"", what,
                    (long long)least, (long long)most, (int)(len > 40 ? 40 : len), text);
        return false;
    }
    *ret = number;
    return true;
}

static bool is_word(RedisModuleString *argument, const char *word)
{
    size_t len;
    const char *text = rm_StringPtrLen(argument, &len);
    return len == strlen(word) && !strncasecmp(text, word, len);
}

static bool read_wait(RedisModuleCtx *ctx, RedisModuleString *argument, int64_t *ret)
{
    if (is_word(argument, "any")) {
        *ret = WEIR_WAIT_ANY;
        return true;
    }
    return read_number(ctx, argument, "WAIT", 0, WEIR_DURATION_MAX, ret);
}

/* [COST n] [WAIT us|any] [DETAIL], each once. */
static bool read_options(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, int at,
                         bool with_cost, struct request *request)
{
    bool cost = false, wait = false;
    while (at < argc) {
        bool value = at + 1 < argc;
        if (is_word(argv[at], "DETAIL") && !request->detail) {
            request->detail = true;
            at += 1;
        } else if (is_word(argv[at], "WAIT") && value && !wait) {
            wait = true;
            if (!read_wait(ctx, argv[at + 1], &request->wait_us))
                return false;
            at += 2;
        } else if (with_cost && is_word(argv[at], "COST") && value && !cost) {
            cost = true;
            if (!read_number(ctx, argv[at + 1], "COST", 0, WEIR_COST_MAX, &request->asks[0].cost))
                return false;
            at += 2;
        } else {
            size_t len;
            const char *text = rm_StringPtrLen(argv[at], &len);
            reply_error(ctx, "ERR expected %s[WAIT us|any] [DETAIL], each once, found \"%.*s\"",
                        with_cost ? "[COST n] " : "", (int)(len > 40 ? 40 : len), text);
            return false;
        }
    }
    return true;
}

bool key_in_bounds(RedisModuleCtx *ctx, RedisModuleString *key)
{
    size_t len;
    rm_StringPtrLen(key, &len);
    if (len >= 1 && len <= WEIR_KEY_MAX)
        return true;
    reply_error(ctx, "ERR a key has 1 to %d bytes, this one has %zu", WEIR_KEY_MAX, len);
    return false;
}

bool read_take(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, struct request *ret)
{
    if (argc < 3) {
        rm_WrongArity(ctx);
        return false;
    }
    free_retired();
    ret->count = 1;
    ret->wait_us = WEIR_WAIT_DEFAULT;
    ret->detail = false;
    ret->asks[0] = (struct ask){argv[1], NULL, 1};
    if (!key_in_bounds(ctx, argv[1]) || !read_options(ctx, argv, argc, 3, true, ret))
        return false;
    ret->asks[0].limit = limit_of(ctx, argv[2]);
    return ret->asks[0].limit != NULL;
}

bool read_take_all(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, struct request *ret)
{
    int64_t n;
    size_t limits = 0;
    if (argc < 5) {
        rm_WrongArity(ctx);
        return false;
    }
    if (!read_number(ctx, argv[1], "the number of keys", 1, WEIR_LIMITS_MAX, &n))
        return false;
    if (argc < 2 + 3 * n) {
        reply_error(ctx, "ERR expected %lld times: key limits cost", (long long)n);
        return false;
    }
    free_retired();
    *ret = (struct request){.count = (size_t)n, .wait_us = WEIR_WAIT_DEFAULT};
    for (int i = 0; i < n; i++) {
        RedisModuleString **it = argv + 2 + 3 * i;
        struct ask *ask = &ret->asks[i];
        ask->key = it[0];
        if (!key_in_bounds(ctx, it[0]) ||
            !read_number(ctx, it[2], "a cost", 0, WEIR_COST_MAX, &ask->cost))
            return false;
        ask->limit = limit_of(ctx, it[1]);
        if (!ask->limit)
            return false;
        limits += ask->limit->count;
    }
    if (limits > WEIR_LIMITS_MAX) {
        reply_error(ctx, "ERR at most %d limits a request, these are %zu", WEIR_LIMITS_MAX, limits);
        return false;
    }
    return read_options(ctx, argv, argc, 2 + 3 * (int)n, false, ret);
}
