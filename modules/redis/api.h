/*
 * The part of the Redis module API that weir uses, declared by ourselves from its documentation:
 * one list yields the pointers and their loading. Valkey offers the same names. Functions marked
 * optional may be missing on a server and are NULL then.
 */
#ifndef WEIR_REDIS_API_H
#define WEIR_REDIS_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleKey RedisModuleKey;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCommand RedisModuleCommand;
typedef int rm_command(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);

enum {
    RM_OK = 0,
    RM_API_VERSION = 1,
    RM_READ = 1 << 0,
    RM_WRITE = 1 << 1,
    RM_TYPE_EMPTY = 0,
    RM_TYPE_STRING = 1,
    RM_NO_IMPLICIT_SIGNAL = 1 << 1,
    RM_NOTIFY_GENERIC = 1 << 2,
    RM_NOTIFY_STRING = 1 << 3,
};

typedef struct RedisModuleInfoCtx RedisModuleInfoCtx;
typedef void rm_info(RedisModuleInfoCtx *ctx, int for_crash_report);

/* How a command's keys are found, and what it says of itself (RedisModule_SetCommandInfo). */
struct rm_info_version {
    int version;
    size_t history_size, key_spec_size, argument_size;
};

struct rm_key_spec {
    const char *notes;
    uint64_t flags;
    int begin_search; /* 2: index */
    union {
        struct {
            int position;
        } index;
        struct {
            const char *keyword;
            int start;
        } keyword;
    } begin;
    int find_keys; /* 2: range, 3: number of keys */
    union {
        struct {
            int last, step, limit;
        } range;
        struct {
            int number_index, first, step;
        } number;
    } find;
};

/* A word of a command, or a group of them; a list ends with one without a name. */
struct rm_argument {
    const char *name;
    int type;
    int key_spec; /* a key: which specification finds it; else -1 */
    const char *token, *summary, *since;
    int flags;
    const char *deprecated_since;
    const struct rm_argument *parts;
    const char *display; /* servers from 7.2 on read it */
};

enum {
    RM_ARG_STRING = 0,
    RM_ARG_INTEGER = 1,
    RM_ARG_KEY = 3,
    RM_ARG_TOKEN = 6,
    RM_ARG_ONE_OF = 7,
    RM_ARG_BLOCK = 8,
    RM_ARG_OPTIONAL = 1 << 0,
    RM_ARG_MULTIPLE = 1 << 1,
};

struct rm_command_info {
    const struct rm_info_version *version;
    const char *summary, *complexity, *since;
    const void *history;
    const char *tips;
    int arity;
    const struct rm_key_spec *key_specs;
    const struct rm_argument *arguments;
};

enum {
    RM_SPEC_INDEX = 2,
    RM_SPEC_RANGE = 2,
    RM_SPEC_NUMBER = 3,
    RM_KEY_RO = 1 << 0,
    RM_KEY_RW = 1 << 1,
    RM_KEY_RM = 1 << 3,
    RM_KEY_ACCESS = 1 << 4,
    RM_KEY_UPDATE = 1 << 5,
    RM_KEY_DELETE = 1 << 7,
    RM_KEY_INCOMPLETE = 1 << 9,
};

/* X(name, optional, result, parameters) */
#define RM_FUNCTIONS(X)                                                                            \
    X(SetModuleAttribs, 0, void, (RedisModuleCtx *, const char *, int, int))                       \
    X(SetModuleOptions, 0, void, (RedisModuleCtx *, int))                                          \
    X(CreateCommand, 0, int,                                                                       \
      (RedisModuleCtx *, const char *, rm_command *, const char *, int, int, int))                 \
    X(GetCommand, 1, RedisModuleCommand *, (RedisModuleCtx *, const char *))                       \
    X(SetCommandInfo, 1, int, (RedisModuleCommand *, const struct rm_command_info *))              \
    X(AddACLCategory, 1, int, (RedisModuleCtx *, const char *))                                    \
    X(SetCommandACLCategories, 1, int, (RedisModuleCommand *, const char *))                       \
    X(IsKeysPositionRequest, 0, int, (RedisModuleCtx *))                                           \
    X(KeyAtPos, 0, void, (RedisModuleCtx *, int))                                                  \
    X(OpenKey, 0, RedisModuleKey *, (RedisModuleCtx *, RedisModuleString *, int))                  \
    X(CloseKey, 0, void, (RedisModuleKey *))                                                       \
    X(KeyType, 0, int, (RedisModuleKey *))                                                         \
    X(StringDMA, 0, char *, (RedisModuleKey *, size_t *, int))                                     \
    X(StringTruncate, 0, int, (RedisModuleKey *, size_t))                                          \
    X(CreateString, 0, RedisModuleString *, (RedisModuleCtx *, const char *, size_t))              \
    X(DeleteKey, 0, int, (RedisModuleKey *))                                                       \
    X(SetAbsExpire, 0, int, (RedisModuleKey *, long long))                                         \
    X(SignalModifiedKey, 0, int, (RedisModuleCtx *, RedisModuleString *))                          \
    X(StringPtrLen, 0, const char *, (const RedisModuleString *, size_t *))                        \
    X(Replicate, 0, int, (RedisModuleCtx *, const char *, const char *, ...))                      \
    X(ReplyWithArray, 0, int, (RedisModuleCtx *, long))                                            \
    X(ReplyWithLongLong, 0, int, (RedisModuleCtx *, long long))                                    \
    X(ReplyWithError, 0, int, (RedisModuleCtx *, const char *))                                    \
    X(ReplyWithSimpleString, 0, int, (RedisModuleCtx *, const char *))                             \
    X(ReplyWithStringBuffer, 0, int, (RedisModuleCtx *, const char *, size_t))                     \
    X(WrongArity, 0, int, (RedisModuleCtx *))                                                      \
    X(Log, 0, void, (RedisModuleCtx *, const char *, const char *, ...))                           \
    X(Alloc, 0, void *, (size_t))                                                                  \
    X(Free, 0, void, (void *))                                                                     \
    X(NotifyKeyspaceEvent, 0, int, (RedisModuleCtx *, int, const char *, RedisModuleString *))     \
    X(RegisterInfoFunc, 1, int, (RedisModuleCtx *, rm_info *))                                     \
    X(InfoAddSection, 1, int, (RedisModuleInfoCtx *, const char *))                                \
    X(InfoAddFieldULongLong, 1, int, (RedisModuleInfoCtx *, const char *, unsigned long long))     \
    X(CachedMicroseconds, 1, int64_t, (void))

#define RM_DECLARE(name, optional, result, parameters) extern result(*rm_##name) parameters;
RM_FUNCTIONS(RM_DECLARE)
#undef RM_DECLARE

#endif
