/*
 * `weir check`: whether a policy file can be read, and what it says; or what one request would take
 * by it. check_print.c prints a whole file.
 */
#include "cli/check.h"

#include "policy/view.h"
#include "policy/yaml.h"
#include "remote/slices.h"
#include "store/region.h"
#include "wire/http1.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SLICES_COLUMN 11

struct job {
    const struct cli_call *call;
    const char *path, *store, *request, *policy;
    bool json, strict;
    char *text;
    size_t len;
    bool cluster;                        /* the store is a Redis Cluster */
    const struct weir__slicing *slicing; /* of the store; NULL: it does not */
};

/* ---- input ---- */

/* Reads all of a file, up to one byte more than allowed. */
static int check_read_file(struct job *job)
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

/* What the store is. Its URL must be valid. */
static int check_read_store(struct job *job)
{
    static struct weir__redis_url url;
    static struct weir__slicing slicing;
    struct weir__region region;
    weir_error err = {0};
    if (!job->store)
        return CLI_OK;
    bool redis = weir__is_redis_url(job->store);
    int code = redis ? weir__redis_url_parse(job->store, &url, &err)
                     : weir__region_parse(job->store, &region, &err);
    if (code)
        return cli_fail(job->call, cli_exit_for(code), "%s", err.message);
    if (redis) {
        slicing = weir__slicing_of(&url);
        job->cluster = url.kind == WEIR__REDIS_CLUSTER;
        job->slicing = slicing.share ? &slicing : NULL;
    }
    return CLI_OK;
}

/* ---- errors ---- */

/* The place that a message names, and the rest of the message. */
struct place {
    int line, column; /* 0: nowhere */
    const char *rest;
};

/* "NAME:3:7: …"; the name may be shortened, and may contain ": ". */
static struct place check_place_of(const struct job *job, const char *message)
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

/* Prints the line of a message, and a mark below the column. */
static void check_show_line(const struct job *job, int line, int column)
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

static int check_fail(const struct job *job, int code, const weir_error *err)
{
    const char *message = err->message[0] ? err->message : weir_strerror(code);
    struct place place = check_place_of(job, message);
    if (job->json) {
        struct weir__json json = cli_json_begin('{');
        weir__json_put_string(&json, "file", job->path);
        weir__json_put_bool(&json, "ok", false);
        weir__json_put_int(&json, "line", place.line);
        weir__json_put_int(&json, "column", place.column);
        weir__json_put_string(&json, "message", place.rest);
        cli_json_end(&json, '}');
    } else {
        cli_fail(job->call, 0, "%s", message);
        if (place.line > 0)
            check_show_line(job, place.line, place.column);
    }
    return cli_exit_for(code);
}

/* ---- one request ---- */

#define ATTRIBUTES_MAX 64

struct pairs {
    struct {
        struct weir__span name, value;
    } items[ATTRIBUTES_MAX];
    size_t count;
};

static enum weir__found check_attribute(const void *context, const char *name, size_t len,
                                        struct weir__span *ret)
{
    const struct pairs *pairs = context;
    for (size_t i = 0; i < pairs->count; i++) {
        if (pairs->items[i].name.len == len && !memcmp(pairs->items[i].name.data, name, len)) {
            *ret = pairs->items[i].value;
            return WEIR__FOUND;
        }
    }
    return WEIR__ABSENT;
}

/* Decodes into room, which is as long as the text. */
static int check_read_pairs(const struct cli_call *call, const char *text, char *room,
                            struct pairs *ret)
{
    struct weir__query query = {{text, strlen(text)}, false};
    struct weir__span name, value;
    while (weir__query_next(&query, room, &name, &value)) {
        if (ret->count == ATTRIBUTES_MAX)
            return cli_fail(call, CLI_USAGE, "invalid --request: expected at most %d attributes",
                            ATTRIBUTES_MAX);
        weir__attribute_fold((char *)name.data, name.len); /* decoded into our own memory */
        struct weir__span before;
        if (check_attribute(ret, name.data, name.len, &before) == WEIR__FOUND)
            return cli_fail(call, CLI_USAGE,
                            "invalid --request: the attribute \"%s\" is given twice",
                            cli_show(name.data, name.len).text);
        ret->items[ret->count].name = name;
        ret->items[ret->count++].value = value;
        room += name.len + value.len;
    }
    if (query.bad)
        return cli_fail(
            call, CLI_USAGE,
            "invalid --request: expected NAME=VALUE&NAME=VALUE, encoded like a query, but "
            "found \"%s\"",
            cli_show(query.rest.data, query.rest.len).text);
    return CLI_OK;
}

static int check_plan_request(const struct job *job, const struct weir__policies *policies,
                              struct weir__plan *ret)
{
    static struct pairs pairs;
    weir_error err = {0};
    const struct cli_call *call = job->call;
    const char *request = job->request;
    struct weir__subject subject = {check_attribute, &pairs};
    struct weir__span name = weir__span_of(job->policy ? job->policy : "");
    char *room = malloc(strlen(request) + 1);
    if (!room)
        return cli_fail(call, CLI_FAILED, "out of memory");
    pairs.count = 0;
    int code = check_read_pairs(call, request, room, &pairs);
    if (code == CLI_OK) {
        int failed = weir__policies_plan(policies, job->policy ? &name : NULL, &subject, NULL, -1,
                                         ret, &err);
        if (failed)
            code = cli_fail(call, cli_exit_for(failed), "%s: %s",
                            job->policy ? "--policy" : "--request", err.message);
    }
    free(room);
    return code;
}

/* ---- what is printed ---- */

/* The values in a key come from strangers. */
static void check_print_key(weir_key key)
{
    fputs("    key ", stdout);
    cli_print_masked(key.data, key.len);
    putchar('\n');
}

static void check_print_planned(const struct job *job, const struct weir__plan *plan,
                                const struct weir__item *planned, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct cli_slice_use use = cli_slice_use_of_item(job->slicing, plan, &planned[i]);
        printf("  %" PRId64 " of %s\n", planned[i].cost, weir_limit_text(planned[i].limit));
        check_print_key(planned[i].key);
        cli_slicing_print_all(&use, planned[i].limit, SLICES_COLUMN);
    }
}

/* A request that names no policy does not meet them. */
static void check_print_by_name(const struct weir__policies *policies)
{
    size_t count = 0;
    for (size_t i = 0; i < policies->count; i++) {
        if (policies->policies[i].by_name)
            printf("%s%s", count++ ? ", " : "note: asked for by name only (--policy NAME): ",
                   policies->policies[i].name);
    }
    if (count > 0)
        putchar('\n');
}

/* Whether "NAME=…" begins here, with an attribute of the file. */
static bool check_begins_attribute(const struct weir__attributes *attributes, const char *text)
{
    char name[WEIR__ATTRIBUTE_NAME_MAX];
    size_t len = strcspn(text, "=&, ");
    if (text[len] != '=' || len > sizeof name)
        return false;
    memcpy(name, text, len);
    weir__attribute_fold(name, len);
    for (size_t i = 0; i < attributes->count; i++) {
        if (attributes->items[i].name_len == len && !memcmp(attributes->items[i].name, name, len))
            return true;
    }
    return false;
}

/* The request, with & where a comma or blanks stand before an attribute of the file; false: they
 * stand nowhere. Such a request has one long value, and matches less than its author thinks. */
static bool check_meant_pairs(const char *text, const struct weir__attributes *attributes,
                              struct weir__buffer *ret)
{
    bool found = false;
    while (*text) {
        size_t gap = strspn(text, ", ");
        bool here = gap > 0 && check_begins_attribute(attributes, text + gap);
        if (here)
            weir__put(ret, "&", 1);
        else
            weir__put(ret, text, weir__max(1, gap));
        text += weir__max(1, gap);
        found = found || here;
    }
    return found;
}

static void check_print_meant(const struct job *job, const struct weir__policies *policies)
{
    char room[1024];
    struct weir__buffer meant = weir__buffer_over(room, sizeof room);
    if (!check_meant_pairs(job->request, &policies->attributes, &meant) || meant.cut)
        return;
    fputs("note: & separates attributes; did you mean ", stdout);
    cli_print_masked(room, meant.len);
    puts("?");
}

/* What in shadow would deny the request, as an attribute is missing. */
static void check_print_lacking(const struct weir__plan *plan)
{
    for (size_t i = 0; i < plan->lacking_count; i++)
        printf("would be denied, were it not in shadow: an attribute in the key of %s, limit %s, "
               "is missing\n",
               plan->lacking[i].policy->name, plan->lacking[i].entry->name);
}

static void check_print_plan(const struct job *job, const struct weir__policies *policies,
                             const struct weir__plan *plan)
{
    const struct cli_shown asked = cli_show_text(job->request);
    const char *shown = asked.text;
    struct cli_style style = cli_style_of(stdout);
    switch (plan->verdict) {
    case WEIR__VERDICT_NONE:
        printf("%sallowed%s: no %s applies to %s\n", style.good, style.off,
               plan->lacking_count > 0 ? "limit" : "policy", shown);
        if (!job->policy && plan->lacking_count == 0)
            check_print_by_name(policies);
        break;
    case WEIR__VERDICT_ALLOW:
        printf("%sallowed%s: the allow list of %s matches %s\n", style.good, style.off,
               plan->by->name, shown);
        break;
    case WEIR__VERDICT_DENY:
        printf("%sdenied%s: %s %s %s %s\n", style.bad, style.off,
               plan->denial == WEIR__DENIED_MISSING ? "an attribute in the key of"
                                                    : "the deny list of",
               plan->by->name, plan->denial == WEIR__DENIED_MISSING ? "is missing in" : "matches",
               shown);
        break;
    case WEIR__VERDICT_LIMITS:
        if (plan->enforced_count > 0)
            printf("%s takes %s:\n", shown,
                   plan->together == WEIR__APART
                       ? "these one after the other, and gives back what it took if one denies"
                       : "all of these, or nothing");
        check_print_planned(job, plan, plan->enforced, plan->enforced_count);
        if (plan->shadow_count > 0)
            printf("shadow limits, counted but not enforced:\n");
        check_print_planned(job, plan, plan->shadow, plan->shadow_count);
        break;
    case WEIR__VERDICT_MISSING:
    case WEIR__VERDICT_UNREADABLE:
        assert(!"a verdict of logs only");
    }
    check_print_lacking(plan);
}

static void check_put_planned(struct weir__json *json, const char *name, const struct job *job,
                              const struct weir__plan *plan, const struct weir__item *planned,
                              size_t count)
{
    weir__json_open(json, name, '[');
    for (size_t i = 0; i < count; i++) {
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "policy", planned[i].policy->name);
        weir__json_put_string(json, "name", planned[i].entry->name);
        weir__json_put_key(json, planned[i].key.data, planned[i].key.len);
        weir__json_put_string(json, "limit", weir_limit_text(planned[i].limit));
        weir__json_put_int(json, "cost", planned[i].cost);
        const struct cli_slice_use use = cli_slice_use_of_item(job->slicing, plan, &planned[i]);
        cli_slicing_put_all(json, &use, planned[i].limit);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void check_print_plan_json(const struct job *job, const struct weir__plan *plan)
{
    struct weir__json json = cli_json_begin('{');
    weir__json_put_string(&json, "file", job->path);
    weir__json_put_bool(&json, "ok", true);
    weir__json_put_string(&json, "request", job->request);
    weir__json_put_string(&json, "verdict", weir__verdict_word(plan->verdict));
    weir__json_put_string(&json, "policy", plan->by ? plan->by->name : NULL);
    check_put_planned(&json, "takes", job, plan, plan->enforced, plan->enforced_count);
    check_put_planned(&json, "shadow", job, plan, plan->shadow, plan->shadow_count);
    if (plan->lacking_count > 0) {
        weir__json_open(&json, "shadow_missing", '[');
        for (size_t i = 0; i < plan->lacking_count; i++) {
            weir__json_open(&json, NULL, '{');
            weir__json_put_string(&json, "policy", plan->lacking[i].policy->name);
            weir__json_put_string(&json, "name", plan->lacking[i].entry->name);
            weir__json_close(&json, '}');
        }
        weir__json_close(&json, ']');
    }
    cli_json_end(&json, '}');
}

/* ---- the two kinds of files ---- */

static int check_envoy(struct job *job)
{
    struct weir__envoy *envoy = NULL;
    weir_error err = {0};
    if (job->request)
        return cli_fail(job->call, CLI_USAGE,
                        "--request needs a policy file; %s is a configuration for Envoy",
                        cli_show_text(job->path).text);
    int code = weir__envoy_parse(job->text, job->len, job->path, &envoy, &err);
    if (code)
        return check_fail(job, code, &err);
    (job->json ? cli_print_envoy_json : cli_print_envoy)(job->path, envoy, job->slicing);
    weir__envoy_free(envoy);
    return CLI_OK;
}

static int check_show_request(const struct job *job, const struct weir__policies *policies)
{
    static struct weir__plan plan;
    int code = check_plan_request(job, policies, &plan);
    if (code == CLI_OK && job->json)
        check_print_plan_json(job, &plan);
    else if (code == CLI_OK)
        check_print_plan(job, policies, &plan);
    if (code == CLI_OK && !job->json)
        check_print_meant(job, policies);
    return code;
}

static int check_policies(struct job *job)
{
    struct weir__policies *policies = NULL;
    weir_error err = {0};
    int code = weir__policies_parse(job->text, job->len, job->path, job->cluster, &policies, &err);
    if (code)
        return check_fail(job, code, &err);
    if (job->request)
        code = check_show_request(job, policies);
    else
        (job->json ? cli_print_policies_json : cli_print_policies)(job->path, policies,
                                                                   job->slicing);
    if (code == CLI_OK && job->strict && cli_policies_doubtful(policies))
        code = CLI_DENIED;
    weir__policies_free(policies);
    return code;
}

/* A file for Envoy has a domain. */
static int check_file(struct job *job)
{
    struct weir__yaml *yaml = NULL;
    weir_error err = {0};
    int code = check_read_store(job);
    if (code)
        return code;
    code = weir__yaml_parse(job->text, job->len, job->path, &yaml, &err);
    if (code)
        return check_fail(job, code, &err);
    bool envoy = weir__yaml_get(yaml->root, "domain") != NULL;
    weir__yaml_free(yaml);
    return envoy ? check_envoy(job) : check_policies(job);
}

static int cmd_check(const struct cli_call *call)
{
    struct job job = {.call = call};
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &job.json, 0},       {"policy", CLI_TEXT, &job.policy, 0},
        {"request", CLI_TEXT, &job.request, 0}, {"store", CLI_TEXT, &job.store, 0},
        {"strict", CLI_FLAG, &job.strict, 0},
    };
    const struct cli_operand operands[] = {{"FILE", &job.path, false}};
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK && job.policy && !job.request)
        code = cli_fail(call, CLI_USAGE, "--policy needs --request ATTRIBUTES, like customer=bob");
    if (code == CLI_OK)
        code = check_read_file(&job);
    if (code == CLI_OK)
        code = check_file(&job);
    free(job.text);
    return code;
}

const struct cli_command cli_check = {
    .name = "check",
    .summary = "check a policy file, and say what it means",
    .run = cmd_check,
};
