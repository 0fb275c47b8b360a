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
                        "invalid --headers \"%s\": expected ietf, ietf-06, x-ratelimit, openai, "
                        "retry-after or off",
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
    .run = cmd_serve,
};
