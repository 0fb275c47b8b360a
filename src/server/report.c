/*
 * What operators are reported, on stderr and by systemd, and what is looked after for it: files,
 * certificate, zone, log.
 *
 * Lines of the loops come once for each address: a mistake in a configuration shows in every
 * request, and one line of it is enough. At most SERVER_REPORTED_MAX of them are written in a
 * server's life, so that nobody can fill a log, or block a loop by a reader that is slow. A worker
 * looks after files and disks, so that signals are heard whatever these do.
 */
#include "server/conn.h"

#include "base/clock.h"
#include "base/hash.h"
#include "server/server.h"
#include "store/store.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SERVER_REPORTED_MAX 256
#define PROBES 8
#define REPORT_TIME 32

static atomic_uint_fast64_t
    reported[SERVER_REPORTED_MAX]; /* hashes of address and message; 0: free */

/* Whether it is new, and there is a place to remember it. */
static bool report_remember(uint64_t hash)
{
    for (size_t i = 0; i < PROBES; i++) {
        atomic_uint_fast64_t *slot = &reported[(hash + i) % SERVER_REPORTED_MAX];
        uint_fast64_t found = atomic_load_explicit(slot, memory_order_relaxed);
        if (found == 0 && atomic_compare_exchange_strong(slot, &found, hash))
            return true;
        if (found == hash)
            return false;
    }
    return false;
}

/* Whether stderr is systemd's journal, which has a time for each line: $JOURNAL_STREAM names the
 * device and the inode that it was at the start. */
static bool report_goes_to_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat file;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &file) == 0 && file.st_dev == device && file.st_ino == inode;
}

/* The time in UTC and a space; empty where others note it. */
static void report_time(char ret[REPORT_TIME])
{
    struct timespec now;
    struct tm tm;
    ret[0] = 0;
    if (report_goes_to_journal())
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t len = strftime(ret, REPORT_TIME, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret + len, REPORT_TIME - len, ".%03dZ ", (int)(now.tv_nsec / 1000000));
}

/* A line of at most so many bytes, in one go: other threads write, too. */
static void report_line(size_t most, const char *format, va_list args)
{
    char line[1024], time[REPORT_TIME];
    vsnprintf(line, most, format, args);
    report_time(time);
    fprintf(stderr, "%sweir serve: %s\n", time, line);
}

void server_report_refusal(const char *message)
{
    fprintf(stderr, "weir serve: %s\n", message);
}

void server_report(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_line(1024, format, args);
    va_end(args);
}

void server_report_once(const char *address, const char *format, ...)
{
    static const uint64_t unkeyed[2];
    uint64_t a[2], b[2];
    va_list args;
    weir__hash(unkeyed, address, strlen(address), a);
    weir__hash(unkeyed, format, strlen(format), b);
    uint64_t hash = a[0] ^ (b[0] << 1);
    if (!report_remember(hash ? hash : 1))
        return;
    va_start(args, format);
    report_line(512, format, args);
    va_end(args);
}

/* ---- systemd ---- */

void server_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@')
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}

/* ---- what is looked after ---- */

/*
 * What a server looks after beside serving: its files, its certificate, its zone, its log. By a
 * worker, so that signals are heard whatever the files and disks are.
 */

#define LOST_LINES_US INT64_C(10000000) /* between two lines about lost ones */
#define EXPIRY_WARNING_S (7 * 86400)

/* ---- reloading ---- */

void server_warn_of_expiry(const struct server *it)
{
    int64_t now = weir__clock_us() / 1000000, expires = it->tls ? server_tls_expires(it->tls) : 0;
    if (expires > 0 && expires - now < EXPIRY_WARNING_S)
        server_report("the certificate %s %s %lld days", it->config.tls_cert,
                      expires < now ? "has expired, for" : "expires in",
                      llabs((long long)(expires - now)) / 86400);
}

int server_reload(struct server *it, const char *why, struct weir__json *told, weir_error *err)
{
    int code = server_rules_load(it, told, err);
    if (code) {
        server_report("%s: the older policies%s stay in force: %s", why,
                      it->tls ? " and certificates" : "", err->message);
        return code;
    }
    server_report("%s: the policies%s are in force", why, it->tls ? " and certificates" : "");
    server_warn_of_expiry(it);
    return 0;
}

static void report_reload_files(struct server *it, int reason)
{
    weir_error err;
    if (reason == SERVER_BY_SIGNAL || server_rules_stale(it))
        server_reload(it, reason == SERVER_BY_SIGNAL ? "SIGHUP" : "a file has changed", NULL, &err);
}

/* ---- what may go wrong with disks: told once, or now and then ---- */

static void report_look_at_zone(struct server *it)
{
    static enum weir__file_state last_state = WEIR__FILE_THERE;
    enum weir__file_state state = weir__store_file_state(it->store);
    if (state == last_state)
        return;
    last_state = state;
    server_metrics_zone_deleted(it->metrics, state == WEIR__FILE_GONE);
    if (state == WEIR__FILE_GONE)
        server_report(
            "the store %s was deleted while it is in use: this server continues with its copy, "
            "other programs do not find it, and it is lost when this server ends; save it first: "
            "Zones in docs/RUNBOOK.md",
            it->config.store_url);
    else if (state == WEIR__FILE_REPLACED) {
        server_report(
            "the store %s was replaced while it is in use: other programs count in another one by "
            "now, so this server ends; start it again",
            it->config.store_url);
        atomic_store(&it->store_lost, true);
    } else if (state == WEIR__FILE_HARMED) {
        server_report("the store %s was truncated or overwritten while it is in use: this server "
                      "ends; restore a backup (docs/BACKUP.md), or remove it, and start again",
                      it->config.store_url);
        atomic_store(&it->store_lost, true);
    } else
        server_report("the store %s is back at its path", it->config.store_url);
}

void server_look_at_log(const struct server *it, bool last)
{
    static uint64_t lost_before;
    static int64_t reported_us;
    struct server_access_log_state state;
    if (!it->access_log)
        return;
    server_access_log_state(it->access_log, &state);
    uint64_t lost = state.dropped + state.failed;
    int64_t now = weir__mono_us();
    if (lost == lost_before || (!last && reported_us && now - reported_us < LOST_LINES_US))
        return;
    server_report("access log %s: %llu line%s lost: %s", it->config.access_log,
                  (unsigned long long)(lost - lost_before),
                  lost - lost_before == 1 ? " was" : "s were",
                  state.failed && state.last_errno ? strerror(state.last_errno)
                                                   : "lines come faster than they can be written");
    lost_before = lost;
    reported_us = now;
}

void server_errands(struct server *it, int reason)
{
    report_look_at_zone(it);
    if (reason == SERVER_BY_SIGNAL || it->config.watch)
        report_reload_files(it, reason);
    server_spelling_look(it);
}
