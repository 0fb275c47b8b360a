/* What one request would take, by the policies of a file. */
#include "cli/check.h"

#include "cli/json.h"
#include "policy/view.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ATTRIBUTES_MAX 64

struct pairs {
    struct {
        struct weir__span name, value;
    } items[ATTRIBUTES_MAX];
    size_t count;
};

static enum weir__found find(const void *context, const char *name, size_t len,
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
static int read_pairs(const struct cli_call *call, const char *text, char *room, struct pairs *ret)
{
    struct weir__query query = {{text, strlen(text)}, false};
    struct weir__span name, value;
    while (weir__query_next(&query, room, &name, &value)) {
        if (ret->count == ATTRIBUTES_MAX)
            return cli_fail(call, CLI_USAGE, "--request: more than %d attributes", ATTRIBUTES_MAX);
        weir__attribute_fold((char *)name.data, name.len); /* decoded: it is ours */
        struct weir__span before;
        if (find(ret, name.data, name.len, &before) == WEIR__FOUND)
            return cli_fail(call, CLI_USAGE, "--request: attribute \"%s\" is given twice",
                            cli_show(name.data, name.len).text);
        ret->items[ret->count].name = name;
        ret->items[ret->count++].value = value;
        room += name.len + value.len;
    }
    if (query.bad)
        return cli_fail(call, CLI_USAGE,
                        "--request: expected NAME=VALUE&NAME=VALUE, encoded like a query, found "
                        "\"%s\"",
                        cli_show(query.rest.data, query.rest.len).text);
    return CLI_OK;
}

int cli_plan_request(const struct cli_call *call, const struct weir__policies *policies,
                     const char *request, struct weir__plan *ret)
{
    static struct pairs pairs;
    weir_error err = {0};
    struct weir__subject subject = {find, &pairs};
    char *room = malloc(strlen(request) + 1);
    if (!room)
        return cli_fail(call, CLI_FAILED, "out of memory");
    pairs.count = 0;
    int code = read_pairs(call, request, room, &pairs);
    if (code == CLI_OK) {
        int failed = weir__policies_plan(policies, NULL, &subject, NULL, -1, ret, &err);
        if (failed)
            code = cli_fail(call, cli_exit_for(failed), "--request: %s", err.message);
    }
    free(room);
    return code;
}

/* ---- what is printed ---- */

/* A key's values are a stranger's bytes. */
static void print_key(weir_key key)
{
    fputs("    key ", stdout);
    cli_print_masked(key.data, key.len);
    putchar('\n');
}

static void print_planned(const struct weir__item *planned, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        printf("  %" PRId64 " of %s\n", planned[i].cost, weir_limit_text(planned[i].limit));
        print_key(planned[i].key);
    }
}

void cli_print_plan(const struct weir__plan *plan, const char *request)
{
    const struct cli_shown asked = cli_show_text(request);
    const char *shown = asked.text;
    struct cli_style style = cli_style_of(stdout);
    switch (plan->verdict) {
    case WEIR__VERDICT_NONE:
        printf("%sallowed%s: no policy applies to %s\n", style.good, style.off, shown);
        break;
    case WEIR__VERDICT_ALLOW:
        printf("%sallowed%s: %s exempts %s\n", style.good, style.off, plan->by->name, shown);
        break;
    case WEIR__VERDICT_DENY:
        printf("%sdenied%s: %s denies %s\n", style.bad, style.off, plan->by->name, shown);
        break;
    case WEIR__VERDICT_LIMITS:
        if (plan->enforced_count > 0)
            printf("%s takes, all or nothing:\n", shown);
        print_planned(plan->enforced, plan->enforced_count);
        if (plan->shadow_count > 0)
            printf("in shadow, counted and not enforced:\n");
        print_planned(plan->shadow, plan->shadow_count);
        break;
    case WEIR__VERDICT_MISSING:
    case WEIR__VERDICT_UNREADABLE:
        assert(!"a verdict of logs only");
    }
}

static void put_planned(struct cli_json *json, const char *name, const struct weir__item *planned,
                        size_t count)
{
    cli_json_open(json, name, '[');
    for (size_t i = 0; i < count; i++) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "policy", planned[i].policy->name);
        cli_json_text(json, "name", planned[i].entry->name);
        cli_json_key(json, planned[i].key.data, planned[i].key.len);
        cli_json_text(json, "limit", weir_limit_text(planned[i].limit));
        cli_json_int(json, "cost", planned[i].cost);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

void cli_print_plan_json(const struct weir__plan *plan, const char *path, const char *request)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "file", path);
    cli_json_bool(&json, "ok", true);
    cli_json_text(&json, "request", request);
    cli_json_text(&json, "verdict", weir__verdict_word(plan->verdict));
    if (plan->by)
        cli_json_text(&json, "policy", plan->by->name);
    else
        cli_json_null(&json, "policy");
    put_planned(&json, "takes", plan->enforced, plan->enforced_count);
    put_planned(&json, "shadow", plan->shadow, plan->shadow_count);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}
