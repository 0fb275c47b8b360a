/*
 * The access log: decisions as lines of JSON, written by its own thread.
 *
 *     loop thread i ──► ring i (bytes, one writer, one reader) ──► writer thread ──► file or stdout
 *
 * What holds:
 *   1. A loop never waits: if the ring has no room for a record, it is dropped and counted.
 *   2. Records of one thread keep their order; those of several threads are mixed as they come.
 *   3. Lines are whole: a full disk or a lost reader costs whole lines, which are counted, never
 *      parts
 *      of them. The log goes on when there is room again.
 *   4. Memory: SERVER_LOG_RING bytes per thread, allocated at the start.
 */
#ifndef WEIR_SERVER_ACCESS_LOG_H
#define WEIR_SERVER_ACCESS_LOG_H

#include "server/observe/metrics.h"
#include "wire/decision.h"
#include "wire/http1.h"

#define SERVER_LOG_RING ((size_t)256 << 10)
#define SERVER_LOG_KEY_MAX 1024     /* bytes of a key; a longer one is cut, and the line says so */
#define SERVER_LOG_SHADOWS_MAX 4096 /* bytes of the list of shadow denials */
#define SERVER_LOG_NAME_MAX 256     /* bytes of any other text */

struct server_access_log;
struct server_log_thread;

struct server_access_log_setup {
    const char *path; /* "-": standard output */
    size_t threads;
    uint32_t sample;   /* one decision in that many is logged; 0: none */
    bool every_denial; /* denials are logged always */
};

/* The texts of a record, in the order of a line. */
enum server_log_text {
    SERVER_LOG_CLIENT, /* its address */
    SERVER_LOG_POLICY, /* empty: the request named its limits itself */
    SERVER_LOG_ENTRY,  /* whose limit decided */
    SERVER_LOG_KEY,
    SERVER_LOG_IP, /* of the request, with --access-log-request, and the next two */
    SERVER_LOG_METHOD,
    SERVER_LOG_PATH,
    SERVER_LOG_SHADOWS, /* shadow entries that would have denied, as elements of a JSON array */
    SERVER_LOG_TEXTS
};

/* One decision. Texts are copied; a missing one has len 0. */
struct server_log_record {
    int64_t time_us;
    enum server_protocol protocol;
    struct weir__span texts[SERVER_LOG_TEXTS];
    int64_t cost;
    const weir_decision *decision; /* used if the verdict is LIMITS; otherwise it may be NULL */
    bool allowed;                  /* what the caller got */
    enum weir__verdict verdict;
    uint32_t shadow_denied; /* shadow entries that would have denied */
};

int server_access_log_open(const struct server_access_log_setup *setup,
                           struct server_access_log **ret, weir_error *err);
/* Writes what the rings hold, for at most two seconds, and ends the thread. The loops must have
 * ended before. */
void server_access_log_close(struct server_access_log *log);

struct server_log_thread *server_access_log_thread(struct server_access_log *log, size_t i);

/* ---- the loop thread i ---- */

/* A server_log_thread begins with this. */
struct server_log_sampling {
    uint32_t sample, due; /* due: how many decisions to skip before the next is logged */
    bool every_denial;
    uint64_t random;
};
void server_access_log_next_due(struct server_log_sampling *sampling);

/* Whether to log this decision. Call it exactly once for each decision, before making a record. */
static inline bool server_access_log_wants(struct server_log_thread *thread, bool allowed)
{
    struct server_log_sampling *const sampling = (struct server_log_sampling *)thread;
    if (sampling->sample && sampling->due-- == 0) {
        server_access_log_next_due(sampling);
        return true;
    }
    return !allowed && sampling->every_denial;
}

/* Hands a record over, or drops it. */
void server_access_log_put(struct server_log_thread *thread,
                           const struct server_log_record *record);

/* ---- any thread ---- */

/* The writer thread soon opens the file again (SIGHUP, after the file was renamed). If that fails,
 * the old file stays in use. */
void server_access_log_reopen(struct server_access_log *log);

struct server_access_log_state {
    uint64_t written, dropped; /* lines; dropped: no room in the ring */
    uint64_t failed;           /* lines that could not be written */
    uint64_t reopen_failures;
    int last_errno; /* of the last failure; 0: none yet */
};
void server_access_log_state(struct server_access_log *log, struct server_access_log_state *ret);

#endif
