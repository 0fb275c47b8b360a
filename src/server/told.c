/*
 * What operators are told on stderr by the loops, once for each address: a mistake in a configuration shows in
 * every request, and one line of it is enough. At most SERVER_TOLD_MAX lines are written in a server's life, so
 * that nobody can fill a log, or block a loop by a reader that is slow.
 */
#include "server/server.h"

#include "base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SERVER_TOLD_MAX 256
#define PROBES 8

static atomic_uint_fast64_t told[SERVER_TOLD_MAX]; /* hashes of address and message; 0: free */

/* Whether it is new, and there is a place to remember it. */
static bool report_remember(uint64_t hash)
{
    for (size_t i = 0; i < PROBES; i++) {
        atomic_uint_fast64_t *slot = &told[(hash + i) % SERVER_TOLD_MAX];
        uint_fast64_t found = atomic_load_explicit(slot, memory_order_relaxed);
        if (found == 0 && atomic_compare_exchange_strong(slot, &found, hash))
            return true;
        if (found == hash)
            return false;
    }
    return false;
}

void server_tell(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "weir serve: %s\n", line);
}

void server_tell_once(const char *address, const char *format, ...)
{
    static const uint64_t unkeyed[2];
    char line[512];
    uint64_t a[2], b[2];
    va_list args;
    weir__hash(unkeyed, address, strlen(address), a);
    weir__hash(unkeyed, format, strlen(format), b);
    uint64_t hash = a[0] ^ (b[0] << 1);
    if (!report_remember(hash ? hash : 1))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "weir serve: %s\n", line);
}
