/* `weir serve`: starts the server with its options. */
#include "cli/cli.h"

#include "server/server.h"

#include <assert.h>
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

/* What is not written into the configuration as it is given. */
struct options {
    struct cli_list listens, tls_listens, envoys, hosts;
    const char *style, *token_file, *admin_token_file, *max_memory;
    int64_t threads;
    bool no_watch;
};

static const struct server_config defaults = {
    .store_url = "memory:64m",
    .max_connections = 20000,
    .max_head = 16 * KIB,
    .max_body = 128 * KIB,
    .max_memory = 256 * MIB,
    .idle_timeout_us = 300 * SECOND,
    .request_timeout_us = 10 * SECOND,
    .drain_timeout_us = 10 * SECOND,
    .max_delay_us = 60 * SECOND,
    .access_log_sample = 1,
    .envoy_near_ppm = 800000,
    .max_age_grace_us = 60 * SECOND,
};

/* Reads a token from a file or from the environment: one line. */
static int serve_read_token(const struct cli_call *call, const char *path, const char *variable,
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
        return cli_fail(call, CLI_USAGE, "invalid token: expected at most %d bytes",
                        SERVER_TOKEN_MAX - 1);
    if (path && !text[0])
        return cli_fail(
            call, CLI_USAGE,
            "%s contains no token; create one, for example with `head -c 24 /dev/urandom "
            "| base64 > %s`",
            cli_show_text(path).text, cli_show_text(path).text);
    strcpy(ret, text);
    return CLI_OK;
}

static int serve_set_listens(const struct cli_call *call, const struct options *options,
                             struct server_config *config)
{
    static const char *const preset = "127.0.0.1:7311";
    size_t n = options->listens.count + options->tls_listens.count;
    if (n > SERVER_LISTENERS_MAX)
        return cli_fail(call, CLI_USAGE, "too many addresses: expected at most %d to listen on",
                        SERVER_LISTENERS_MAX);
    for (size_t i = 0; i < options->listens.count; i++)
        config->listens[config->listen_count++] =
            (struct server_listen){options->listens.texts[i], false};
    for (size_t i = 0; i < options->tls_listens.count; i++)
        config->listens[config->listen_count++] =
            (struct server_listen){options->tls_listens.texts[i], true};
    if (n == 0)
        config->listens[config->listen_count++] = (struct server_listen){preset, false};
    assert(config->listen_count >= 1 && config->listen_count <= SERVER_LISTENERS_MAX);
    bool pair = config->tls_cert && config->tls_key;
    if (options->tls_listens.count > 0 && !pair)
        return cli_fail(call, CLI_USAGE, "--listen-tls needs --tls-cert FILE and --tls-key FILE");
    if (config->tls_client_ca && options->tls_listens.count == 0)
        return cli_fail(call, CLI_USAGE,
                        "--tls-client-ca is given, but nothing listens with TLS; add "
                        "--listen-tls ADDRESS");
    if (pair && options->tls_listens.count == 0)
        return cli_fail(call, CLI_USAGE,
                        "--tls-cert is given, but nothing listens with TLS; add "
                        "--listen-tls ADDRESS");
    return CLI_OK;
}

/* Bytes, with an optional k, m, g or t. */
static int serve_read_bytes(const struct cli_call *call, const char *what, const char *text,
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
        return cli_fail(call, CLI_USAGE, "invalid %s \"%s\": expected %lldm to 1t bytes, like 256m",
                        what, cli_show_text(text).text, (long long)(least / MIB));
    *ret = number << shift;
    return CLI_OK;
}

static int serve_threads_of(int64_t asked)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = asked > 0 ? asked : cores;
    return (int)weir__max(1, weir__min(threads, SERVER_THREADS_MAX));
}

static int serve_configure(const struct cli_call *call, struct options *options,
                           struct server_config *config)
{
    config->threads = serve_threads_of(options->threads);
    config->watch = !options->no_watch;
    options->hosts.texts[options->hosts.count] = NULL;
    config->allowed_hosts = options->hosts.texts;
    config->envoy_count = options->envoys.count;
    memcpy(config->envoy_paths, options->envoys.texts,
           options->envoys.count * sizeof *config->envoy_paths);
    if (options->style &&
        !weir__field_style_read(options->style, strlen(options->style), &config->style))
        return cli_fail(call, CLI_USAGE,
                        "invalid --headers \"%s\": expected ietf, ietf-06, x-ratelimit or off",
                        cli_show_text(options->style).text);
    int code = serve_set_listens(call, options, config);
    if (code == CLI_OK && options->max_memory)
        code = serve_read_bytes(call, "--max-memory", options->max_memory, MEMORY_LEAST,
                                &config->max_memory);
    if (code == CLI_OK)
        code = serve_read_token(call, options->token_file, "WEIR_TOKEN", config->token);
    if (code == CLI_OK)
        code = serve_read_token(call, options->admin_token_file, "WEIR_ADMIN_TOKEN",
                                config->admin_token);
    return code;
}

static int cmd_serve(const struct cli_call *call)
{
    static struct options options;
    static struct server_config config;
    config = defaults;
    const struct cli_option known[] = {
        {"listen", CLI_LIST, &options.listens, 0},
        {"listen-tls", CLI_LIST, &options.tls_listens, 0},
        {"tls-cert", CLI_TEXT, &config.tls_cert, 0},
        {"tls-key", CLI_TEXT, &config.tls_key, 0},
        {"tls-client-ca", CLI_TEXT, &config.tls_client_ca, 0},
        {"store", CLI_TEXT, &config.store_url, 0},
        {"policies", CLI_TEXT, &config.policies_path, 0},
        {"envoy", CLI_LIST, &options.envoys, 0},
        {"envoy-charge-denied", CLI_FLAG, &config.envoy_charge_denied, 0},
        {"envoy-headers", CLI_FLAG, &config.envoy_headers, 0},
        {"envoy-merge-domains", CLI_FLAG, &config.envoy_merge, 0},
        {"envoy-near-limit", CLI_RATIO, &config.envoy_near_ppm, 0},
        {"health-store", CLI_FLAG, &config.health_store, 0},
        {"headers", CLI_TEXT, &options.style, 0},
        {"host", CLI_LIST, &options.hosts, 0},
        {"token-file", CLI_TEXT, &options.token_file, 0},
        {"admin-token-file", CLI_TEXT, &options.admin_token_file, 0},
        {"public-without-token", CLI_FLAG, &config.public_without_token, 0},
        {"threads", CLI_COUNT, &options.threads, SERVER_THREADS_MAX},
        {"max-connections", CLI_COUNT, &config.max_connections, 1000000},
        {"max-per-client", CLI_COUNT, &config.max_connections_per_client, 1000000},
        {"max-head", CLI_COUNT, &config.max_head, 64 * KIB},
        {"max-body", CLI_COUNT, &config.max_body, 4 * MIB},
        {"max-memory", CLI_TEXT, &options.max_memory, 0},
        {"max-delay", CLI_SECONDS, &config.max_delay_us, 0},
        {"idle-timeout", CLI_SECONDS, &config.idle_timeout_us, 0},
        {"request-timeout", CLI_SECONDS, &config.request_timeout_us, 0},
        {"drain-timeout", CLI_SECONDS, &config.drain_timeout_us, 0},
        {"shutdown-delay", CLI_DELAY, &config.shutdown_delay_us, 0},
        {"max-connection-age", CLI_SECONDS, &config.max_age_us, 0},
        {"max-connection-age-grace", CLI_SECONDS, &config.max_age_grace_us, 0},
        {"access-log", CLI_TEXT, &config.access_log, 0},
        {"access-log-sample", CLI_COUNT, &config.access_log_sample, 1000000000},
        {"access-log-denials", CLI_FLAG, &config.access_log_denials, 0},
        {"access-log-request", CLI_FLAG, &config.access_log_request, 0},
        {"no-watch", CLI_FLAG, &options.no_watch, 0},
        {"demo-load", CLI_FLAG, &config.demo_load, 0},
        {"test-clock", CLI_FLAG, &config.test_clock, 0},
    };
    int code = cli_parse(call, known, WEIR__COUNT(known), NULL, 0);
    if (code == CLI_OK)
        code = serve_configure(call, &options, &config);
    if (code != CLI_OK)
        return code;
    return server_run(&config, call->argv - 2); /* of the program itself, for a restart */
}

const struct cli_command cli_serve = {
    .name = "serve",
    .summary = "run a server: HTTP, RESP and gRPC on one port, with a dashboard",
    .help = "Usage: weir serve [options]\n"
            "\n"
            "Answers over HTTP/1.1, HTTP/2, RESP (any Redis client) and gRPC (the rate limit\n"
            "service of Envoy), all on one port. Without options it listens on\n"
            "127.0.0.1:7311, keeps its state in memory and uses a demonstration policy. The\n"
            "dashboard is at http://127.0.0.1:7311/.\n"
            "\n"
            "Options:\n"
            "  --listen ADDRESS        127.0.0.1:7311, [::1]:7311 or unix:/path; repeatable\n"
            "  --listen-tls ADDRESS    the same with TLS; needs --tls-cert and --tls-key\n"
            "  --tls-cert FILE         the certificate chain, as PEM\n"
            "  --tls-key FILE          its private key, as PEM\n"
            "  --tls-client-ca FILE    TLS clients need a certificate from one of these\n"
            "                          authorities\n"
            "  --store URL             memory:64m (default), shm:/name, file:/path or\n"
            "                          redis://…\n"
            "  --policies FILE         the policies; `weir check FILE` checks them\n"
            "  --envoy PATH            configuration of envoyproxy/ratelimit: a file, or a\n"
            "                          directory of .yaml and .yml files; repeatable\n"
            "  --envoy-merge-domains   merge files of the same domain\n"
            "  --envoy-charge-denied   charge denied requests, too, like envoyproxy/ratelimit\n"
            "  --envoy-headers         answer Envoy with RateLimit-Limit, -Remaining, -Reset\n"
            "  --envoy-near-limit R    metrics count hits above this part of a limit as near\n"
            "                          it; default 0.8\n"
            "  --headers STYLE         ietf (default), ietf-06, x-ratelimit or off\n"
            "  --host NAME             accept this host name, too; repeatable\n"
            "  --token-file FILE       clients must send this token (or set $WEIR_TOKEN)\n"
            "  --admin-token-file FILE statistics and changes need this token (or set\n"
            "                          $WEIR_ADMIN_TOKEN)\n"
            "  --public-without-token  listen on public addresses without a token\n"
            "  --threads N             default: one per core\n"
            "  --max-connections N     default 20000\n"
            "  --max-per-client N      connections from one address; default: no maximum\n"
            "  --max-head BYTES        of the head of a request; default 16384\n"
            "  --max-body BYTES        of the body of a request; default 131072\n"
            "  --max-memory BYTES      for all connections together: 256m (default), 1g\n"
            "  --max-delay T           hold answers (hold=true) at most this long; default 1m\n"
            "  --idle-timeout T        close an idle connection after this; default 5m\n"
            "  --request-timeout T     from first to last byte of a request; default 10s\n"
            "  --drain-timeout T       time for pending requests at SIGTERM; default 10s\n"
            "  --shutdown-delay T      at SIGTERM, only fail /readyz for T first; default 0s\n"
            "  --max-connection-age T  tell HTTP/2 clients to connect again after this time,\n"
            "                          plus or minus 10 %; default: never\n"
            "  --max-connection-age-grace T\n"
            "                          time for pending requests after that; default 1m\n"
            "  --health-store          report not ready (/readyz, gRPC health) while the\n"
            "                          store cannot decide\n"
            "  --access-log FILE       write decisions as lines of JSON; - is standard output\n"
            "  --access-log-sample N   log one decision in N; default 1\n"
            "  --access-log-denials    log every denial, also of shadow limits\n"
            "  --access-log-request    log the address, method and path of the request, too\n"
            "  --no-watch              do not reload when a file changes; SIGHUP still does\n"
            "  --demo-load             simulate users, so that the dashboard shows something\n"
            "  --test-clock            let clients set the time; for tests only\n"
            "\n"
            "Examples:\n"
            "  weir serve\n"
            "  weir serve --policies policies.yaml --store file:/var/lib/weir/zone\n"
            "  weir serve --listen 127.0.0.1:8081 --envoy ratelimit.yaml\n"
            "  curl 'http://127.0.0.1:7311/v1/take?key=user:42&limit=token-bucket+10/s'\n"
            "  redis-cli -p 7311 WEIR.TAKE user:42 'token-bucket 10/s'\n" CLI_EXIT_CODES,
    .run = cmd_serve,
};
