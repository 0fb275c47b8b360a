/* `weir serve`: the server, from its options. */
#include "cli/cli.h"

#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB INT64_C(1024)
#define MIB (KIB * KIB)
#define SECOND INT64_C(1000000)
#define BYTES_MAX (INT64_C(1) << 40)
#define MEMORY_LEAST (4 * MIB)

struct options {
    struct cli_list listens, tls_listens, envoys, hosts;
    const char *store, *policies, *style, *token_file, *admin_token_file, *tls_cert, *tls_key,
        *tls_client_ca, *access_log, *max_memory;
    int64_t near_limit, max_age, max_age_grace;
    int64_t threads, max_connections, max_per_client, max_head, max_body, idle, request, drain,
        shutdown_delay, max_delay, sample;
    bool public_without_token, charge_denied, envoy_headers, envoy_merge, health_store, no_watch,
        test_clock, demo_load, denials, log_request;
};

static const struct options defaults = {
    .store = "memory:64m",
    .max_connections = 20000,
    .max_per_client = 0,
    .max_head = 16 * KIB,
    .max_body = 128 * KIB,
    .idle = 300 * SECOND,
    .request = 10 * SECOND,
    .drain = 10 * SECOND,
    .max_delay = 60 * SECOND,
    .sample = 1,
    .near_limit = 800000,
    .max_age_grace = 60 * SECOND,
};

/* A token of a file, or of the environment; its one line. */
static int read_token(const struct cli_call *call, const char *path, const char *variable,
                      char *ret)
{
    const char *given = getenv(variable);
    char text[SERVER_TOKEN_MAX + 1] = "";
    if (!path && given)
        snprintf(text, sizeof text, "%s", given);
    if (path) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        int failed = errno;
        if (fd >= 0)
            close(fd);
        if (got < 0)
            return cli_fail(call, CLI_FAILED, "cannot read %s: %s", cli_show_text(path).text,
                            strerror(failed));
        text[got] = 0;
    }
    text[strcspn(text, "\r\n")] = 0;
    if (strlen(text) >= SERVER_TOKEN_MAX)
        return cli_fail(call, CLI_USAGE, "a token has at most %d bytes", SERVER_TOKEN_MAX - 1);
    if (path && !text[0])
        return cli_fail(call, CLI_USAGE,
                        "%s holds no token; write one, like `head -c 24 /dev/urandom "
                        "| base64 > %s`",
                        cli_show_text(path).text, cli_show_text(path).text);
    strcpy(ret, text);
    return CLI_OK;
}

static int set_listens(const struct cli_call *call, const struct options *options,
                       struct server_config *config)
{
    static const char *const preset = "127.0.0.1:7311";
    size_t n = options->listens.count + options->tls_listens.count;
    if (n > SERVER_LISTENERS_MAX)
        return cli_fail(call, CLI_USAGE, "at most %d addresses to listen on", SERVER_LISTENERS_MAX);
    for (size_t i = 0; i < options->listens.count; i++)
        config->listens[config->listen_count++] =
            (struct server_listen){options->listens.texts[i], false};
    for (size_t i = 0; i < options->tls_listens.count; i++)
        config->listens[config->listen_count++] =
            (struct server_listen){options->tls_listens.texts[i], true};
    if (n == 0)
        config->listens[config->listen_count++] = (struct server_listen){preset, false};
    bool pair = options->tls_cert && options->tls_key;
    if (options->tls_listens.count > 0 && !pair)
        return cli_fail(call, CLI_USAGE, "--listen-tls needs --tls-cert FILE and --tls-key FILE");
    if (options->tls_client_ca && options->tls_listens.count == 0)
        return cli_fail(call, CLI_USAGE,
                        "--tls-client-ca is given, but nothing listens with TLS; say "
                        "--listen-tls ADDRESS");
    if (pair && options->tls_listens.count == 0)
        return cli_fail(call, CLI_USAGE,
                        "--tls-cert is given, but nothing listens with it; say "
                        "--listen-tls ADDRESS");
    config->tls_cert = options->tls_cert;
    config->tls_key = options->tls_key;
    config->tls_client_ca = options->tls_client_ca;
    return CLI_OK;
}

/* Bytes, with k, m or g behind them. */
static int read_bytes(const struct cli_call *call, const char *what, const char *text,
                      int64_t least, int64_t *ret)
{
    static const char units[] = "kmgt";
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    const char *unit = *end ? strchr(units, *end | 32) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    bool sound = text[0] >= '0' && text[0] <= '9' && errno == 0 && end > text &&
                 (unit ? end[1] == 0 : *end == 0) && number <= INT64_MAX >> shift;
    if (!sound || number << shift < least || number << shift > BYTES_MAX)
        return cli_fail(call, CLI_USAGE, "%s must be %lldm to 1t bytes, like 256m, not \"%s\"",
                        what, (long long)(least / MIB), cli_show_text(text).text);
    *ret = number << shift;
    return CLI_OK;
}

static int threads_of(int64_t asked)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = asked > 0 ? asked : cores;
    return (int)weir__max(1, weir__min(threads, SERVER_THREADS_MAX));
}

static void set_bounds(const struct options *options, struct server_config *config)
{
    config->threads = threads_of(options->threads);
    config->max_connections = options->max_connections;
    config->max_connections_per_client = options->max_per_client;
    config->max_head = options->max_head;
    config->max_body = options->max_body;
    config->idle_timeout_us = options->idle;
    config->request_timeout_us = options->request;
    config->drain_timeout_us = options->drain;
    config->shutdown_delay_us = options->shutdown_delay;
    config->max_delay_us = options->max_delay;
    config->access_log = options->access_log;
    config->access_log_sample = options->sample;
    config->access_log_denials = options->denials;
    config->access_log_request = options->log_request;
    config->public_without_token = options->public_without_token;
    config->envoy_charge_denied = options->charge_denied;
    config->envoy_headers = options->envoy_headers;
    config->envoy_merge = options->envoy_merge;
    config->envoy_near_ppm = options->near_limit;
    config->health_store = options->health_store;
    config->max_age_us = options->max_age;
    config->max_age_grace_us = options->max_age_grace;
    config->watch = !options->no_watch;
    config->test_clock = options->test_clock;
    config->demo_load = options->demo_load;
    config->store_url = options->store;
    config->policies_path = options->policies;
}

static int configure(const struct cli_call *call, struct options *options,
                     struct server_config *config)
{
    set_bounds(options, config);
    options->hosts.texts[options->hosts.count] = NULL;
    config->allowed_hosts = options->hosts.texts;
    config->envoy_count = options->envoys.count;
    memcpy(config->envoy_paths, options->envoys.texts,
           options->envoys.count * sizeof *config->envoy_paths);
    if (options->style &&
        !weir__field_style_read(options->style, strlen(options->style), &config->style))
        return cli_fail(call, CLI_USAGE,
                        "--headers must be ietf, ietf-06, x-ratelimit or off, not \"%s\"",
                        cli_show_text(options->style).text);
    int code = set_listens(call, options, config);
    config->max_memory = 256 * MIB;
    if (code == CLI_OK && options->max_memory)
        code = read_bytes(call, "--max-memory", options->max_memory, MEMORY_LEAST,
                          &config->max_memory);
    if (code == CLI_OK)
        code = read_token(call, options->token_file, "WEIR_TOKEN", config->token);
    if (code == CLI_OK)
        code = read_token(call, options->admin_token_file, "WEIR_ADMIN_TOKEN", config->admin_token);
    return code;
}

static int run(const struct cli_call *call)
{
    static struct options options;
    static struct server_config config;
    options = defaults;
    const struct cli_option known[] = {
        {"listen", CLI_LIST, &options.listens, 0},
        {"listen-tls", CLI_LIST, &options.tls_listens, 0},
        {"tls-cert", CLI_TEXT, &options.tls_cert, 0},
        {"tls-key", CLI_TEXT, &options.tls_key, 0},
        {"tls-client-ca", CLI_TEXT, &options.tls_client_ca, 0},
        {"store", CLI_TEXT, &options.store, 0},
        {"policies", CLI_TEXT, &options.policies, 0},
        {"envoy", CLI_LIST, &options.envoys, 0},
        {"envoy-charge-denied", CLI_FLAG, &options.charge_denied, 0},
        {"envoy-headers", CLI_FLAG, &options.envoy_headers, 0},
        {"envoy-merge-domains", CLI_FLAG, &options.envoy_merge, 0},
        {"envoy-near-limit", CLI_RATIO, &options.near_limit, 0},
        {"health-store", CLI_FLAG, &options.health_store, 0},
        {"headers", CLI_TEXT, &options.style, 0},
        {"host", CLI_LIST, &options.hosts, 0},
        {"token-file", CLI_TEXT, &options.token_file, 0},
        {"admin-token-file", CLI_TEXT, &options.admin_token_file, 0},
        {"public-without-token", CLI_FLAG, &options.public_without_token, 0},
        {"threads", CLI_COUNT, &options.threads, SERVER_THREADS_MAX},
        {"max-connections", CLI_COUNT, &options.max_connections, 1000000},
        {"max-per-client", CLI_COUNT, &options.max_per_client, 1000000},
        {"max-head", CLI_COUNT, &options.max_head, 64 * KIB},
        {"max-body", CLI_COUNT, &options.max_body, 4 * MIB},
        {"max-memory", CLI_TEXT, &options.max_memory, 0},
        {"max-delay", CLI_SECONDS, &options.max_delay, 0},
        {"idle-timeout", CLI_SECONDS, &options.idle, 0},
        {"request-timeout", CLI_SECONDS, &options.request, 0},
        {"drain-timeout", CLI_SECONDS, &options.drain, 0},
        {"shutdown-delay", CLI_DELAY, &options.shutdown_delay, 0},
        {"max-connection-age", CLI_SECONDS, &options.max_age, 0},
        {"max-connection-age-grace", CLI_SECONDS, &options.max_age_grace, 0},
        {"access-log", CLI_TEXT, &options.access_log, 0},
        {"access-log-sample", CLI_COUNT, &options.sample, 1000000000},
        {"access-log-denials", CLI_FLAG, &options.denials, 0},
        {"access-log-request", CLI_FLAG, &options.log_request, 0},
        {"no-watch", CLI_FLAG, &options.no_watch, 0},
        {"demo-load", CLI_FLAG, &options.demo_load, 0},
        {"test-clock", CLI_FLAG, &options.test_clock, 0},
    };
    int code = cli_parse(call, known, WEIR__COUNT(known), NULL, 0);
    if (code == CLI_OK)
        code = configure(call, &options, &config);
    if (code != CLI_OK)
        return code;
    return server_run(&config, call->argv - 2); /* the program's own, to start anew with */
}

const struct cli_command cli_serve = {
    .name = "serve",
    .summary = "a server: HTTP, RESP and gRPC on one port, with a dashboard",
    .help = "Usage: weir serve [options]\n"
            "\n"
            "Answers over HTTP/1.1, HTTP/2, RESP (any Redis client) and gRPC (Envoy's rate\n"
            "limit service), all on one port. Without options: on 127.0.0.1:7311, in memory,\n"
            "with a demonstration policy; the dashboard is at http://127.0.0.1:7311/.\n"
            "\n"
            "Options:\n"
            "  --listen ADDRESS        127.0.0.1:7311, [::1]:7311 or unix:/path; repeatable\n"
            "  --listen-tls ADDRESS    the same with TLS, by --tls-cert FILE and --tls-key FILE\n"
            "  --tls-client-ca FILE    with TLS, clients need a certificate by one of these\n"
            "  --store URL             memory:64m (default), shm:/name, file:/path or redis://…\n"
            "  --policies FILE         what limits whom; `weir check FILE` reads it first\n"
            "  --envoy PATH            configuration of envoyproxy/ratelimit: a file, or a\n"
            "                          directory of .yaml and .yml files; repeatable\n"
            "  --envoy-merge-domains   put files of the same domain together\n"
            "  --envoy-charge-denied   charge as envoyproxy/ratelimit does, denied or not\n"
            "  --envoy-headers         answer Envoy with RateLimit-Limit, -Remaining, -Reset\n"
            "  --envoy-near-limit R    hits beyond this part of a limit count as near it in the\n"
            "                          metrics; default 0.8\n"
            "  --headers STYLE         ietf (default), ietf-06, x-ratelimit or off\n"
            "  --host NAME             answer for this name, too; repeatable\n"
            "  --token-file FILE       clients must send this token (or $WEIR_TOKEN)\n"
            "  --admin-token-file FILE statistics and changes need this one (or\n"
            "                          $WEIR_ADMIN_TOKEN)\n"
            "  --public-without-token  listen on public addresses without a token\n"
            "  --threads N             default: one a core\n"
            "  --max-connections N     default 20000\n"
            "  --max-per-client N      connections of one address; default: no bound\n"
            "  --max-head BYTES        of a request's line and fields; default 16384\n"
            "  --max-body BYTES        of a request's body; default 131072\n"
            "  --max-memory BYTES      kept for all connections together: 256m (default), 1g\n"
            "  --max-delay T           the longest that an answer is held (hold=true); default 1m\n"
            "  --idle-timeout T        a connection without requests; default 5m\n"
            "  --request-timeout T     from a request's first byte to its last; default 10s\n"
            "  --drain-timeout T       how long SIGTERM waits for what is under way; default 10s\n"
            "  --shutdown-delay T      SIGTERM first fails /readyz for so long; default 0s\n"
            "  --max-connection-age T  ask HTTP/2 clients to connect again after this time, 10 %\n"
            "                          more or less; default: never\n"
            "  --max-connection-age-grace T\n"
            "                          what is under way then has so long; default 1m\n"
            "  --health-store          not ready (/readyz, gRPC health) while the store cannot\n"
            "                          decide\n"
            "  --access-log FILE       decisions as lines of JSON; - is standard output\n"
            "  --access-log-sample N   one in N; default 1\n"
            "  --access-log-denials    every denial, of shadows too, whatever the sample\n"
            "  --access-log-request    with the address, method and path of the request\n"
            "  --no-watch              do not reload when a file changes; SIGHUP still does\n"
            "  --demo-load             make-believe users, so that the dashboard shows life\n"
            "  --test-clock            let clients set the time; for tests only\n"
            "\n"
            "Examples:\n"
            "  weir serve\n"
            "  weir serve --policies policies.yaml --store file:/var/lib/weir/zone\n"
            "  weir serve --listen 127.0.0.1:8081 --envoy ratelimit.yaml\n"
            "  curl 'http://127.0.0.1:7311/v1/take?key=user:42&limit=token-bucket+10/s'\n"
            "  redis-cli -p 7311 WEIR.TAKE user:42 'token-bucket 10/s'\n" CLI_EXIT_CODES,
    .run = run,
};
