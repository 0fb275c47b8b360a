/*
 * The one list of verbs: what can be asked of weir, in any protocol.
 *
 * Each row is X(constant, number, family, word, keys, caller, homes):
 *
 *   number   Stable. Programs send it to Lua scripts and function libraries that were installed
 *            earlier; lua/assemble.py reads it from this file. A new verb takes the next number.
 *   family   With the word it is the name of the command, "weir." "take". In HTTP the path is
 *   word     "/v1/" and the word.
 *   keys     What it does to the keys it names: READS, WRITES, or NO_KEYS where it names none.
 *   caller   Of the server. DATA: who may decide. ADMIN: who has the admin token.
 *   homes    Where it exists: LUA (the general script), MODULE (the Redis module), RESP and HTTP
 *            (the server).
 *
 * Arity and syntax belong to each protocol: wire/command.h, server/http, modules/redis,
 * lua/verbs.lua.
 */
#ifndef WEIR_VERBS_H
#define WEIR_VERBS_H

#include "base/base.h"

#define WEIR__VERBS(X)                                                                             \
    X(TAKE, 0, "weir.", "take", WRITES, DATA, LUA | MODULE | RESP | HTTP)                          \
    X(PEEK, 1, "weir.", "peek", READS, DATA, LUA | MODULE | RESP | HTTP)                           \
    X(SETTLE, 2, "weir.", "settle", WRITES, DATA, LUA | MODULE | RESP | HTTP)                      \
    X(RESET, 3, "weir.", "reset", WRITES, ADMIN, LUA | MODULE | RESP | HTTP)                       \
    X(ACQUIRE, 4, "weir.", "acquire", WRITES, DATA, LUA | MODULE | RESP | HTTP)                    \
    X(RENEW, 5, "weir.", "renew", WRITES, DATA, LUA | MODULE | RESP | HTTP)                        \
    X(RELEASE, 6, "weir.", "release", WRITES, DATA, LUA | MODULE | RESP | HTTP)                    \
    X(SHOW, 7, "weir.", "show", READS, DATA, LUA | MODULE | RESP | HTTP)                           \
    X(TAKEALL, 8, "weir.", "takeall", WRITES, DATA, MODULE | RESP | HTTP)                          \
    X(THROTTLE, 9, "cl.", "throttle", WRITES, DATA, MODULE | RESP)                                 \
    X(CLOCK, 10, "weir.", "clock", NO_KEYS, ADMIN, MODULE | RESP)                                  \
    X(DECIDE, 11, "weir.", "decide", NO_KEYS, DATA, RESP)

enum weir__verb {
#define X(constant, number, ...) WEIR__VERB_##constant = (number),
    WEIR__VERBS(X)
#undef X
};

#define WEIR__VERB_ONE(...) +1
#define WEIR__VERB_COUNT (0 WEIR__VERBS(WEIR__VERB_ONE))

enum weir__verb_keys { WEIR__VERB_READS, WEIR__VERB_WRITES, WEIR__VERB_NO_KEYS };
enum weir__verb_caller { WEIR__VERB_DATA, WEIR__VERB_ADMIN };
enum weir__verb_home {
    WEIR__VERB_LUA = 1,
    WEIR__VERB_MODULE = 2,
    WEIR__VERB_RESP = 4,
    WEIR__VERB_HTTP = 8,
};

/* The list as a table; a verb is its index. */
extern const struct weir__verb_facts {
    const char *name; /* of the command, in lower case: "weir.take" */
    const char *word; /* "take" */
    enum weir__verb_keys keys;
    enum weir__verb_caller caller;
    unsigned homes; /* of enum weir__verb_home */
} weir__verbs[WEIR__VERB_COUNT];

/* Whether it only looks: nothing is charged. */
static inline bool weir__verb_reads(enum weir__verb verb)
{
    return weir__verbs[verb].keys == WEIR__VERB_READS;
}

/* Whether the answer is a decision. */
static inline bool weir__verb_decides(enum weir__verb verb)
{
    switch (verb) {
    case WEIR__VERB_TAKE:
    case WEIR__VERB_PEEK:
    case WEIR__VERB_TAKEALL:
    case WEIR__VERB_ACQUIRE:
    case WEIR__VERB_THROTTLE:
    case WEIR__VERB_DECIDE:
        return true;
    case WEIR__VERB_SETTLE:
    case WEIR__VERB_RESET:
    case WEIR__VERB_RENEW:
    case WEIR__VERB_RELEASE:
    case WEIR__VERB_SHOW:
    case WEIR__VERB_CLOCK:
        return false;
    }
    return false;
}

/* Whether it is about leases, and needs a concurrent limit. */
static inline bool weir__verb_leases(enum weir__verb verb)
{
    return verb == WEIR__VERB_ACQUIRE || verb == WEIR__VERB_RENEW || verb == WEIR__VERB_RELEASE;
}

/* The verb of a command's name, in any case; false: there is no such verb. */
bool weir__verb_of_name(const char *name, size_t len, enum weir__verb *ret);
/* The verb of its word, in lower case; false: there is no such verb. */
bool weir__verb_of_word(const char *word, size_t len, enum weir__verb *ret);

#endif
