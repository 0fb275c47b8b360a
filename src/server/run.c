/*
 * A server's life: open everything, start the loops, wait for signals, drain.
 *
 *     SIGTERM, SIGINT   not ready any more; after --shutdown-delay stop accepting, answer what is
 *                       pending, end; once more: end at once
 *     SIGHUP            read policies and certificates again, open the access log again
 *     SIGUSR2           start the program again, from where it was started, on the same sockets;
 *                       when that says that it is ready, drain
 */
#include "server/conn.h"

#include "base/clock.h"
#include "remote/slices.h"
#include "server/listen.h"
#include "server/server.h"
#include "store/store.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define EXIT_USAGE 2
#define EXIT_STORE 3
#define FEW_CONNECTIONS 4096              /* worth a word */
#define FILES_SPARE 64                    /* descriptors for what is no connection */
#define PLACE_ROOM 8400                   /* a path and what was there */
#define STORE_PATIENCE_US INT64_C(250000) /* for a lock that another process holds */

static struct server server;

/* ---- opening ---- */

static int64_t run_test_now(void *context)
{
    const struct server *it = context;
    int64_t us = atomic_load(&it->test_now_us);
    return us >= 0 ? us : weir__clock_us();
}

static const char *run_kind_of(const char *url)
{
    static const char *const kinds[] = {"memory", "shm", "file"};
    for (size_t i = 0; i < WEIR__COUNT(kinds); i++) {
        if (!strncmp(url, kinds[i], strlen(kinds[i])))
            return kinds[i];
    }
    return "redis";
}

static int run_open_store(weir_error *err)
{
    int code = weir_store_open(server.config.store_url, &server.store, err);
    if (code)
        return code;
    weir__store_be_patient(server.store, STORE_PATIENCE_US);
    weir__store_deny_full(
        server.store); /* clients take a failure of the limiter for a yes, often */
    weir__store_guard(server.store, "weir serve", server.config.store_url);
    server.store_kind = run_kind_of(server.config.store_url);
    server.remote = !strcmp(server.store_kind, "redis");
    if (server.config.test_clock) {
        weir_clock clock = {.now = run_test_now, .context = &server};
        weir_store_set_clock(server.store, &clock);
    }
    return server_receipts_open(&server, err);
}

/* What a cgroup leaves beside a store whose memory cannot be taken back. */
static void run_fit_into_cgroup(void)
{
    weir_zone_info zone = {0};
    struct server_memory memory = {(uint64_t)server.config.max_memory,
                                   (uint64_t)server.config.max_connections};
    bool lasting = !server.remote && strcmp(server.store_kind, "file") != 0;
    if (lasting && weir_store_info(server.store, &zone))
        zone.size = 0;
    uint64_t bound = server_cgroup_bound("");
    bool less = server_memory_fit(bound, lasting ? zone.size : 0, server.tls, &memory);
    server.max_memory = memory.kept;
    server.config.max_connections = (int64_t)memory.connections;
    if (less)
        server_report(
            "the cgroup allows %llu MiB: %llu connections, %llu MiB for their requests and answers",
            (unsigned long long)(bound >> 20), (unsigned long long)memory.connections,
            (unsigned long long)(memory.kept >> 20));
}

static int run_open_log(weir_error *err)
{
    struct server_access_log_setup setup = {
        .path = server.config.access_log,
        .threads = (size_t)server.config.threads,
        .sample = (uint32_t)server.config.access_log_sample,
        .every_denial = server.config.access_log_denials,
    };
    return server.config.access_log ? server_access_log_open(&setup, &server.access_log, err) : 0;
}

static int run_open_counters(weir_error *err)
{
    struct weir__slices_counts slices = {.on = false};
    if (server.remote)
        weir__slices_count(server.store, &slices);
    struct server_metrics_setup setup = {
        .threads = (size_t)server.config.threads,
        .now_us = weir__clock_us(),
        .store = server.remote ? NULL : server.store,
        .remote = server.remote ? server.store : NULL,
        .sliced = slices.on ? server.store : NULL,
        .store_kind = server.store_kind,
        .access_log = server.access_log,
        .kept = &server.kept,
    };
    int code = server_metrics_create(&setup, &server.metrics, err);
    return code ? code
                : server_top_create((size_t)server.config.threads, setup.now_us, &server.top, err);
}

static int run_open_all(weir_error *err)
{
    int code = server_listeners_open(&server, err);
    if (code == 0 && server.config.tls_cert)
        code = server_tls_create(&server.config, &server.tls, err);
    if (code == 0)
        code = run_open_store(err);
    if (code == 0)
        run_fit_into_cgroup();
    if (code == 0)
        code = run_open_log(err);
    if (code == 0)
        code = run_open_counters(err);
    if (code == 0)
        code = server_rules_load(&server, NULL, err);
    if (code == 0)
        code = server_clients_create(server.config.max_connections_per_client,
                                     server.config.max_connections, &server.clients);
    if (code == 0)
        code = server_failures_create(&server.failures);
    if (code == 0 && server.remote)
        code = server_askers_create(&server, &server.askers, err);
    if (code == 0 && server.remote)
        code = server_spelling_create(&server.spelling, err);
    if (code == 0 && server.remote)
        code = server_near_create(&server, err);
    if (code == 0)
        code = server_workers_create(&server, &server.workers, err);
    if (code == 0)
        code = server_health_start(&server, err);
    if (code == 0 && server.remote)
        code = server_store_watch_start(&server, err);
    for (int i = 0; i < server.config.threads && code == 0; i++)
        code = server_thread_start(&server, i, err);
    return code;
}

/* False: a worker hangs in the system, or an asker at the store, and nothing can be freed under
 * it. */
static bool run_stop_threads(void)
{
    atomic_store(&server.stopping, true);
    for (int i = 0; i < server.thread_count; i++)
        server_thread_wake(server.threads[i]);
    bool ended = server_workers_stop(server.workers); /* what they hold comes back first */
    if (!ended)
        return false;
    ended = server_askers_stop(server.askers);
    for (int i = 0; i < server.thread_count; i++) { /* each says what it can say */
        if (ended)
            server_thread_join(server.threads[i]);
        else
            pthread_join(server.threads[i]->thread, NULL);
    }
    server.thread_count = 0;
    return ended;
}

static void run_close_all(void)
{
    server_demo_stop();
    if (!run_stop_threads()) {
        server_report("%s; ending without it", server.thread_count > 0
                                                   ? "a reload hangs while it reads its files"
                                                   : "the store does not answer");
        if (server.access_log)
            server_access_log_close(server.access_log);
        server_listeners_remove(&server);
        _exit(0);
    }
    server_listeners_remove(&server);
    server_askers_destroy(server.askers);
    server_workers_destroy(server.workers);
    server_clients_destroy(server.clients);
    server_failures_destroy(server.failures);
    server_spelling_destroy(server.spelling);
    if (server.rules)
        server_rules_release(server.rules);
    if (server.access_log)
        server_access_log_close(server.access_log);
    server_top_destroy(server.top);
    server_store_watch_stop(&server); /* it reads the metrics */
    server_metrics_destroy(server.metrics);
    server_tls_destroy(server.tls);
    if (!server_health_stop(&server))
        _exit(0); /* all else is in order */
    server_near_destroy(&server);
    weir_store_close(server.store);
}

/* ---- the descriptors that connections need ---- */

static void run_raise_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files))
        return;
    rlim_t wanted = (rlim_t)server.config.max_connections + FILES_SPARE;
    if (files.rlim_cur < wanted) {
        files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NOFILE, &files);
    }
    int64_t most = (int64_t)files.rlim_cur - FILES_SPARE;
    if (most < server.config.max_connections) {
        if (most < FEW_CONNECTIONS)
            server_report("%lld connections at most: the limit of open files is %llu",
                          (long long)weir__max(1, most), (unsigned long long)files.rlim_cur);
        server.config.max_connections = weir__max(1, most);
    }
}

/* ---- telling people ---- */

/* On standard output, each line from its beginning: scripts wait for these lines and read them. */
static void run_greet(void)
{
    char place[PLACE_ROOM];
    struct weir__buffer origin = weir__buffer_over(place, sizeof place);
    for (size_t i = 0; i < server_opened.count; i++) {
        char text[192];
        struct weir__buffer address = weir__buffer_over(text, sizeof text);
        server_listener_text(i, &address);
        if (!strncmp(text, "unix:", 5))
            printf("listening on %s\n", text);
        else if (server_opened.addresses[i].tls)
            printf("listening on %s (TLS), dashboard: https://%s/\n", text, text);
        else
            printf("listening on %s, dashboard: http://%s/\n", text, text);
    }
    weir__store_put_origin(server.store, &origin);
    printf("store: %s%s%s, policies: %s\n", server.store_kind, origin.len ? " " : "", place,
           server.config.policies_path ? server.config.policies_path
           : server_has_demo(&server)  ? "the built-in demonstration"
                                       : "none but Envoy's");
    fflush(stdout);
}

static void run_tell_change(void)
{
    char text[128];
    struct weir__buffer change = weir__buffer_over(text, sizeof text);
    weir__store_put_change(server.store, &change);
    if (change.len > 0)
        server_report("the zone %s was made again, with its states: it had %s",
                      server.config.store_url, text);
}

static void run_warn_of_slices(void)
{
    struct weir__redis_url url;
    weir_error unused;
    const char *text = server.config.store_url;
    if (!weir__is_redis_url(text) || weir__redis_url_parse(text, &url, &unused))
        return;
    const struct weir__slicing slicing = weir__slicing_of(&url);
    const char *note = weir__slicing_note(&slicing);
    if (note)
        server_report("warning: %s", note);
}

static void run_tell_ready(void)
{
    char state[64];
    snprintf(state, sizeof state, "READY=1\nMAINPID=%ld", (long)getpid());
    server_notify(state);
    server_listeners_taken_over();
}

/* ---- signals ---- */

/* Waits; true: a second signal came, so that nothing more is waited for. */
static bool run_wait_for_signal(const sigset_t *signals, int64_t until, bool (*done)(void))
{
    struct timespec moment = {.tv_nsec = 20000000};
    while (!done() && weir__mono_us() < until) {
        int got = sigtimedwait(signals, NULL, &moment);
        if (got == SIGTERM || got == SIGINT)
            return true;
        if (got == SIGCHLD)
            server_reap();
    }
    return false;
}

static bool run_never(void)
{
    return false;
}

static bool run_all_gone(void)
{
    return atomic_load(&server.accepting) == 0 && atomic_load(&server.connections) == 0;
}

static void run_drain(const sigset_t *signals)
{
    atomic_store(&server.leaving, true);
    if (!atomic_load(&server.handed_over)) { /* else the service goes on */
        server_notify("STOPPING=1");
        int64_t delay = server.config.shutdown_delay_us;
        if (delay > 0 && run_wait_for_signal(signals, weir__mono_us() + delay, run_never))
            return;
    }
    atomic_store(&server.draining, true);
    for (int i = 0; i < server.thread_count; i++)
        server_thread_wake(server.threads[i]);
    server_demo_stop();
    server_workers_drain(server.workers);
    run_wait_for_signal(signals, weir__mono_us() + server.config.drain_timeout_us, run_all_gone);
}

/* One signal that came; true: stop. */
static bool run_handle_signal(int number, char *const *argv)
{
    switch (number) {
    case SIGTERM:
    case SIGINT:
        return true;
    case SIGHUP:
        server_workers_errand(server.workers, server_errands, SERVER_BY_SIGNAL);
        if (server.access_log)
            server_access_log_reopen(server.access_log);
        break;
    case SIGUSR2:
        server_hand_over(argv);
        break;
    case SIGCHLD:
        server_reap();
        break;
    default:
        break;
    }
    return false;
}

static void run_serve(const sigset_t *signals, char *const *argv)
{
    int64_t ticked = weir__mono_us();
    int told = signalfd(-1, signals, SFD_NONBLOCK | SFD_CLOEXEC);
    for (bool over = told < 0; !over;) {
        struct pollfd wait[] = {{.fd = told, .events = POLLIN},
                                {.fd = server_successor_says(), .events = POLLIN}};
        struct signalfd_siginfo info;
        poll(wait, WEIR__COUNT(wait), 1000);
        while (!over && read(told, &info, sizeof info) == sizeof info)
            over = run_handle_signal((int)info.ssi_signo, argv);
        if (!over && wait[1].revents && server_successor_is_ready()) {
            atomic_store(&server.handed_over, true);
            over = true;
        }
        server_look_after_successor();
        over = over || atomic_load(&server.store_lost);
        if (weir__mono_us() - ticked < 1000000)
            continue;
        ticked += 1000000;
        server_metrics_tick(server.metrics, weir__clock_us());
        server_look_at_log(&server, false);
        server_workers_errand(server.workers, server_errands, SERVER_BY_TIME);
    }
    if (told >= 0)
        close(told);
}

/* What clients made us keep goes back to the system when they are gone, and memory in use is what
 * is kept: glibc would raise this bound by itself, and keep holes between blocks that are still in
 * use. */
static void run_return_large_blocks(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 10);
#endif
}

int server_run(const struct server_config *config, char *const *argv)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD};
    sigset_t signals;
    weir_error err = {0};
    run_return_large_blocks();
    server.config = *config;
    atomic_store(&server.test_now_us, -1);
    sigemptyset(&signals);
    for (size_t i = 0; i < WEIR__COUNT(handled); i++)
        sigaddset(&signals, handled[i]);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* for all threads: the main one waits for them */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGIO,
           SIG_IGN); /* who opens a file for writing while rules.c asks whether somebody does */
    run_raise_files();
    server_program_note();
    int code = run_open_all(&err);
    if (code) {
        server_report_refusal(err.message[0] ? err.message : weir_strerror(code));
        run_close_all();
        return code == WEIR_EINVAL || code == WEIR_ESYNTAX || code == WEIR_EURL ? EXIT_USAGE
                                                                                : EXIT_STORE;
    }
    atomic_store(&server.ready, true);
    run_warn_of_slices();
    run_tell_change();
    run_greet();
    if (server.config.test_clock)
        server_report("warning: --test-clock: clients can set the time, and so pass every limit; "
                      "for tests only");
    server_warn_of_expiry(&server);
    run_tell_ready();
    if (server.config.demo_load)
        server_demo_start(&server);
    run_serve(&signals, argv);
    run_drain(&signals);
    server_look_at_log(&server, true);
    run_close_all();
    return atomic_load(&server.store_lost) ? EXIT_STORE : 0;
}
