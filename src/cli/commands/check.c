/* `weir check`: whether a policy file can be read, and what it says. */
#include "cli/check.h"

#include "cli/json.h"
#include "policy/yaml.h"
#include "store/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const struct cli_call *call;
    const char *path, *store, *request;
    bool json;
    char *text;
    size_t len;
};

/* ---- input ---- */

/* All of a file, up to one byte more than may be read. */
static int read_file(struct job *job)
{
    FILE *file = strcmp(job->path, "-") ? fopen(job->path, "re") : stdin;
    if (!file)
        return cli_fail(job->call, CLI_FAILED, "cannot open %s: %s", cli_show_text(job->path).text,
                        strerror(errno));
    size_t room = (size_t)WEIR__YAML_BYTES_MAX + 1;
    job->text = malloc(room + 1);
    if (job->text) {
        job->len = fread(job->text, 1, room, file);
        job->text[job->len] = 0;
    }
    int failed = !job->text ? ENOMEM : ferror(file) ? errno : 0;
    if (file != stdin)
        fclose(file);
    if (failed)
        return cli_fail(job->call, CLI_FAILED, "cannot read %s: %s", cli_show_text(job->path).text,
                        strerror(failed));
    return CLI_OK;
}

/* Whether the store is a Redis Cluster; its address must be one that can be read. */
static int is_cluster(const struct job *job, bool *ret)
{
    static struct weir__redis_url url;
    struct weir__region region;
    weir_error err = {0};
    if (!job->store)
        return CLI_OK;
    bool redis = weir__is_redis_url(job->store);
    int code = redis ? weir__redis_url_parse(job->store, &url, &err)
                     : weir__region_parse(job->store, &region, &err);
    if (code)
        return cli_fail(job->call, cli_exit_for(code), "%s", err.message);
    *ret = redis && url.kind == WEIR__REDIS_CLUSTER;
    return CLI_OK;
}

/* ---- complaints ---- */

/* Where a message says that something is wrong, and what it says then. */
struct place {
    int line, column; /* 0: nowhere */
    const char *rest;
};

/* "NAME:3:7: …"; the name may be cut, and have ": " in it. */
static struct place place_of(const struct job *job, const char *message)
{
    struct place place = {0, 0, message};
    size_t name = strlen(job->path);
    const char *end = strstr(strncmp(message, job->path, name) ? message : message + name, ": ");
    const char *start = end;
    while (start && start > message && strchr("0123456789:", start[-1]))
        start--;
    if (start && sscanf(start, ":%d:%d: ", &place.line, &place.column) == 2)
        place.rest = end + 2;
    return place;
}

/* The line that a message is about, and a mark below the column. */
static void show_line(const struct job *job, int line, int column)
{
    const char *at = job->text, *end = job->text + job->len;
    for (int i = 1; i < line && at < end; i++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        at = next ? next + 1 : end;
    }
    if (column <= 60 && at < end)
        fprintf(stderr, "    %s\n    %*s^\n", cli_show(at, strcspn(at, "\r\n")).text, column - 1,
                "");
}

static int complain(const struct job *job, int code, const weir_error *err)
{
    const char *message = err->message[0] ? err->message : weir_strerror(code);
    struct place place = place_of(job, message);
    if (job->json) {
        struct cli_json json = {stdout, false};
        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "file", job->path);
        cli_json_bool(&json, "ok", false);
        cli_json_int(&json, "line", place.line);
        cli_json_int(&json, "column", place.column);
        cli_json_text(&json, "message", place.rest);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else {
        cli_fail(job->call, 0, "%s", message);
        if (place.line > 0)
            show_line(job, place.line, place.column);
    }
    return cli_exit_for(code);
}

/* ---- the two kinds of files ---- */

static int check_envoy(struct job *job)
{
    struct weir__envoy *envoy = NULL;
    weir_error err = {0};
    if (job->request)
        return cli_fail(job->call, CLI_USAGE,
                        "--request is for policies; %s is a configuration of Envoy's",
                        cli_show_text(job->path).text);
    int code = weir__envoy_parse(job->text, job->len, job->path, &envoy, &err);
    if (code)
        return complain(job, code, &err);
    struct cli_checked checked = {.path = job->path, .envoy = envoy};
    if (job->json)
        cli_print_envoy_json(&checked);
    else
        cli_print_envoy(&checked);
    weir__envoy_free(envoy);
    return CLI_OK;
}

static int show_request(const struct job *job, const struct weir__policies *policies)
{
    static struct weir__plan plan;
    int code = cli_plan_request(job->call, policies, job->request, &plan);
    if (code == CLI_OK && job->json)
        cli_print_plan_json(&plan, job->path, job->request);
    else if (code == CLI_OK)
        cli_print_plan(&plan, job->request);
    return code;
}

static int check_policies(struct job *job, bool cluster)
{
    struct weir__policies *policies = NULL;
    weir_error err = {0};
    int code = weir__policies_parse(job->text, job->len, job->path, cluster, &policies, &err);
    if (code)
        return complain(job, code, &err);
    struct cli_checked checked = {.path = job->path, .policies = policies};
    if (job->request)
        code = show_request(job, policies);
    else if (job->json)
        cli_print_policies_json(&checked);
    else
        cli_print_policies(&checked);
    weir__policies_free(policies);
    return code;
}

/* Envoy's files begin with their domain. */
static int check(struct job *job)
{
    struct weir__yaml *yaml = NULL;
    bool cluster = false;
    weir_error err = {0};
    int code = is_cluster(job, &cluster);
    if (code)
        return code;
    code = weir__yaml_parse(job->text, job->len, job->path, &yaml, &err);
    if (code)
        return complain(job, code, &err);
    bool envoy = weir__yaml_get(weir__yaml_root(yaml), "domain") != NULL;
    weir__yaml_free(yaml);
    return envoy ? check_envoy(job) : check_policies(job, cluster);
}

static int run(const struct cli_call *call)
{
    struct job job = {.call = call};
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &job.json, 0},
        {"request", CLI_TEXT, &job.request, 0},
        {"store", CLI_TEXT, &job.store, 0},
    };
    const struct cli_operand operands[] = {{"FILE", &job.path, false}};
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = read_file(&job);
    if (code == CLI_OK)
        code = check(&job);
    free(job.text);
    return code;
}

const struct cli_command cli_check = {
    .name = "check",
    .summary = "whether a policy file can be read, and what it says",
    .help = "Usage: weir check FILE [--request ATTRIBUTES] [--store URL] [--json]\n"
            "\n"
            "Reads a policy file as `weir serve` does (- is stdin) and says in words what it\n"
            "limits; or what is wrong with it, where, and what to write instead. Configurations\n"
            "of Envoy's rate limit service (those with a domain) are read, too.\n"
            "docs/POLICIES.md describes the language.\n"
            "\n"
            "Options:\n"
            "  --request ATTRIBUTES\n"
            "                what one such request would take, and of which keys:\n"
            "                \"path=/login&user=ann&ip=10.1.2.3\", encoded like a query\n"
            "  --store URL   the store that is meant, which is not opened: a Redis Cluster\n"
            "                asks more of a file than others\n"
            "  --json        print one JSON object, for errors too\n"
            "\n"
            "Examples:\n"
            "  weir check policies.yaml\n"
            "  weir check policies.yaml --request \"path=/login&user=ann&ip=10.1.2.3\"\n"
            "  weir check policies.yaml --store redis+cluster://10.0.0.1:6379\n"
            "  weir check --json policies.yaml\n" CLI_EXIT_CODES,
    .run = run,
};
