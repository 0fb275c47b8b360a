/* See explained.h. The answer's members are described in docs/SERVER.md. */
#include "cli/explained.h"

#include "wire/json.h"

#include <inttypes.h>

#define NODES_MAX 4096

static struct weir__json_node nodes[NODES_MAX];

static const struct weir__json_node *member(const struct weir__json_node *object, const char *name,
                                            enum weir__json_type type)
{
    const struct weir__json_node *node = weir__json_member(nodes, object, name);
    return node && node->type == type ? node : NULL;
}

static void print_text(const struct weir__json_node *object, const char *name, const char *before)
{
    const struct weir__json_node *node = member(object, name, WEIR__JSON_STRING);
    if (!node || node->len == 0)
        return;
    fputs(before, stdout);
    cli_print_masked(node->text, node->len);
}

static int64_t number(const struct weir__json_node *object, const char *name)
{
    const struct weir__json_node *node = weir__json_member(nodes, object, name);
    int64_t ret = 0;
    return node && weir__json_integer(node, 0, INT64_MAX, &ret) ? ret : 0;
}

static void print_time(const struct weir__json_node *object, const char *name, const char *before)
{
    const struct weir__json_node *node = weir__json_member(nodes, object, name);
    int64_t us = WEIR_NEVER;
    if (node && (node->type == WEIR__JSON_NULL || (weir__json_seconds(node, &us) && us > 0)))
        printf("%s%s", before, cli_about(us).text);
}

static bool is_true(const struct weir__json_node *object, const char *name)
{
    const struct weir__json_node *node = member(object, name, WEIR__JSON_BOOL);
    return node && node->truth;
}

static void print_row(const struct weir__json_node *row, const struct cli_style *style)
{
    bool allowed = is_true(row, "allowed");
    printf("  %s%s%s", allowed ? style->good : style->bad, allowed ? "yes" : "no ", style->off);
    print_text(row, "text", "  ");
    printf(": %" PRId64 " of %" PRId64 " left", number(row, "remaining"), number(row, "limit"));
    if (!allowed)
        print_time(row, "retry_after", ", retry in ");
    print_time(row, "reset_after", ", as new in ");
    putchar('\n');
    if (member(row, "policy", WEIR__JSON_STRING)) {
        print_text(row, "policy", "       policy ");
        print_text(row, "name", ", limit ");
        printf("%s\n", is_true(row, "shadow") ? ", in shadow" : "");
    }
    print_text(row, "key", "       key ");
    print_text(row, "key_base64", "       key in base64 ");
    putchar('\n');
    print_text(row, "meaning", "       ");
    putchar('\n');
}

static void print_verdict(const struct weir__json_node *answer, const struct cli_style *style)
{
    bool allowed = is_true(answer, "allowed");
    const struct weir__json_node *verdict = member(answer, "verdict", WEIR__JSON_STRING);
    const char *word = verdict ? verdict->text : "limits";
    printf("%s%s%s: ", allowed ? style->good : style->bad, allowed ? "allowed" : "denied",
           style->off);
    switch (word[0]) {
    case 'n':
        puts("no policy applies");
        break;
    case 'a':
        puts("all policies that apply exempt it");
        break;
    case 'd':
        puts("a policy refuses it outright");
        break;
    default:
        printf("%" PRId64 " of %" PRId64 " left\n", number(answer, "remaining"),
               number(answer, "limit"));
    }
}

int cli_print_explained(const struct cli_call *call, struct weir__span answer, bool as_json)
{
    struct cli_style style = cli_style_of(stdout);
    if (as_json) {
        printf("%.*s\n", (int)answer.len, answer.data);
        return CLI_OK;
    }
    int count = weir__json_read((char *)answer.data, answer.len, nodes, NODES_MAX, NULL);
    if (count <= 0 || nodes[0].type != WEIR__JSON_OBJECT)
        return cli_fail(call, CLI_FAILED, "the server's answer is not JSON, or too long");
    print_verdict(nodes, &style);
    const struct weir__json_node *rows = member(nodes, "limits", WEIR__JSON_ARRAY);
    const struct weir__json_node *row = rows ? rows + 1 : NULL;
    for (uint32_t i = 0; rows && i < rows->len; i++, row = &nodes[row->next])
        print_row(row, &style);
    return CLI_OK;
}
