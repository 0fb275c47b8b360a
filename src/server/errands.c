/*
 * What a server looks after beside serving: its files, its certificate, its zone, its log. By a worker, so that
 * signals are heard whatever the files and disks are.
 */
#include "server/errands.h"

#include "base/clock.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#define LOST_LINES_US INT64_C(10000000) /* between two lines about lost ones */
#define EXPIRY_WARNING_S (7 * 86400)

/* ---- reloading ---- */

void server_warn_of_expiry(const struct server *it)
{
    int64_t now = weir__clock_us() / 1000000, expires = it->tls ? server_tls_expires(it->tls) : 0;
    if (expires > 0 && expires - now < EXPIRY_WARNING_S)
        server_tell("the certificate %s %s %lld days", it->config.tls_cert,
                    expires < now ? "has expired, for" : "expires in",
                    llabs((long long)(expires - now)) / 86400);
}

static void report_reload_files(struct server *it, int reason)
{
    weir_error err;
    const char *why = reason == SERVER_BY_SIGNAL ? "SIGHUP" : "a file has changed";
    if (reason == SERVER_BY_TIME && !server_rules_stale(it))
        return;
    if (server_rules_load(it, &err)) {
        server_tell("%s: nothing changed, %s", why, err.message);
        return;
    }
    server_tell("%s: the policies%s are in force", why, it->tls ? " and certificates" : "");
    server_warn_of_expiry(it);
}

/* ---- what may go wrong with disks: told once, or now and then ---- */

static void report_look_at_zone(struct server *it)
{
    static enum weir__file_state told = WEIR__FILE_THERE;
    enum weir__file_state state = weir__store_file_state(it->store);
    if (state == told)
        return;
    told = state;
    if (state == WEIR__FILE_GONE)
        server_tell("the store %s was deleted or replaced while it is in use: this server goes on "
                    "with what it has, others will not find it, and it is gone when this one ends",
                    it->config.store_url);
    else if (state == WEIR__FILE_TRUNCATED)
        server_tell("the store %s was truncated while it is in use; remove it and start again",
                    it->config.store_url);
    else
        server_tell("the store %s is where it was again", it->config.store_url);
}

void server_look_at_log(const struct server *it, bool last)
{
    static uint64_t told;
    static int64_t told_us;
    struct server_access_log_state state;
    if (!it->access_log)
        return;
    server_access_log_state(it->access_log, &state);
    uint64_t lost = state.dropped + state.failed;
    int64_t now = weir__mono_us();
    if (lost == told || (!last && told_us && now - told_us < LOST_LINES_US))
        return;
    server_tell("access log %s: %llu line%s lost: %s", it->config.access_log,
                (unsigned long long)(lost - told), lost - told == 1 ? " was" : "s were",
                state.failed && state.last_errno ? strerror(state.last_errno)
                                                 : "it is not written as fast as lines come");
    told = lost;
    told_us = now;
}

void server_errands(struct server *it, int reason)
{
    report_look_at_zone(it);
    if (reason == SERVER_BY_SIGNAL || it->config.watch)
        report_reload_files(it, reason);
}
