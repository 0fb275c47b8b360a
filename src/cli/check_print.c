/* A policy file in words. */
#include "cli/check.h"

#include "base/span.h"
#include "limit/explain.h"
#include "policy/set.h"

#include <string.h>

#define LABEL 13
#define TEXT_MAX 100 /* columns of text, however wide the terminal is */

/* ---- layout ---- */

/* Text in lines of `room` bytes; all but the first are indented. */
static void print_wrapped(const char *text, size_t room, int indent)
{
    while (strlen(text) > room) {
        size_t cut = room;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            cut = strcspn(text, " ");
        printf("%.*s\n%*s", (int)cut, text, indent, "");
        text += cut + (text[cut] == ' ');
        if (!*text)
            break;
    }
    printf("%s\n", text);
}

/* What a line holds behind an indent. */
static size_t room_behind(int indent)
{
    return (size_t)weir__max(30, weir__min(cli_width(stdout) - indent, TEXT_MAX));
}

/* Wraps text behind a label; a long label has a line to itself. */
static void print_row(const char *label, const char *text)
{
    struct cli_style style = cli_style_of(stdout);
    printf("  %s%-*s%s", style.bold, LABEL - 2, label, style.off);
    if (strlen(label) > LABEL - 3)
        printf("\n%*s", LABEL, "");
    print_wrapped(text, room_behind(LABEL), LABEL);
}

/* ---- entries ---- */

static void print_meaning(const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        struct weir__facts facts;
        weir__explain(&limit->rules[i], &facts);
        print_row("", facts.what);
    }
}

static void put_cost(struct weir__buffer *buffer, const struct weir__cost *cost,
                     const struct weir__attributes *attributes)
{
    if (cost->attribute < 0) {
        weir__put_int(buffer, cost->otherwise);
        return;
    }
    weir__put_format(buffer, "%s, at least %lld", attributes->items[cost->attribute].text,
                     (long long)cost->least);
    if (cost->most < WEIR_COST_MAX)
        weir__put_format(buffer, ", at most %lld", (long long)cost->most);
    weir__put_format(buffer, "; %lld where it is missing or no number", (long long)cost->otherwise);
}

static void print_overrides(const struct weir__entry_body *body,
                            const struct weir__attributes *attributes)
{
    for (size_t i = 0; i < body->override_count; i++) {
        char text[640];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_format(&buffer, "%s when ", weir_limit_text(body->overrides[i].limit));
        weir__put_conditions(&buffer, &body->overrides[i].when, attributes);
        print_row(i == 0 ? "override" : "", text);
    }
}

static void print_entry(const struct weir__policy *policy, size_t i,
                        const struct weir__policies *set)
{
    static const char *const missing[] = {"", "; denied without it", "; empty without it"};
    const struct weir__entry *entry = &policy->entries[i];
    const struct weir__entry_body *body = &set->bodies[policy->index].entries[i];
    char text[4096];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%s%s", weir_limit_text(entry->limit),
                     entry->shadow ? ", in shadow: counted, not enforced" : "");
    print_row(strcmp(entry->name, policy->name) ? entry->name : "limit", text);
    print_meaning(entry->limit);
    buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%s%s", entry->key_text, missing[body->missing]);
    print_row("key", text);
    if (body->cost.attribute >= 0 || body->cost.otherwise != 1) {
        buffer = weir__buffer_over(text, sizeof text);
        put_cost(&buffer, &body->cost, &set->attributes);
        print_row("cost", text);
    }
    print_overrides(body, &set->attributes);
}

/* ---- policies ---- */

static void print_list(const char *label, const struct weir__any_of *any,
                       const struct weir__attributes *attributes)
{
    for (size_t i = 0; i < any->count; i++) {
        char text[640];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_conditions(&buffer, &any->items[i], attributes);
        print_row(i == 0 ? label : "or", text);
    }
}

static void print_policy(const struct weir__policies *set, size_t i)
{
    static const char *const styles[] = {"ietf", "ietf-06", "x-ratelimit", "off"};
    static const char *const fails[] = {"local", "open", "closed"};
    const struct weir__policy *policy = &set->policies[i];
    const struct weir__policy_body *body = &set->bodies[i];
    struct cli_style style = cli_style_of(stdout);
    printf("\n%s%s%s\n", style.bold, policy->name, style.off);
    print_row("when", policy->match_text);
    print_list("deny", &body->deny, &set->attributes);
    print_list("allow", &body->allow, &set->attributes);
    for (size_t j = 0; j < policy->entry_count; j++)
        print_entry(policy, j, set);
    if (policy->fail != WEIR__FAIL_LOCAL)
        print_row("fail", fails[policy->fail]);
    if (policy->style != set->style)
        print_row("headers", styles[policy->style]);
    if (policy->deny_status != WEIR__DENY_STATUS) {
        char status[16];
        snprintf(status, sizeof status, "%d", policy->deny_status);
        print_row("status", status);
    }
    if (policy->give_back)
        print_row("cross slot", "give-back");
}

/* An attribute that is never there limits nothing: a misspelt one should not go unseen. */
static void print_notes(const struct weir__policies *set)
{
    static const char *const known[] = {"ip", "method", "path", "host", "user", NULL};
    for (size_t i = 0; i < set->attributes.count; i++) {
        const struct weir__attribute *attribute = &set->attributes.items[i];
        if (weir__attribute_known(attribute))
            continue;
        const char *nearest = weir__nearest(attribute->name, attribute->name_len, known);
        printf("\nnote: \"%s\" is for callers to send; the server itself knows ip, method, path,\n"
               "host, user and header.NAME%s%s%s\n",
               attribute->name, nearest ? " (did you mean " : "", nearest ? nearest : "",
               nearest ? "?)" : "");
    }
}

/* Behind a proxy all clients would share what is the proxy's. */
static void print_untrusting(const struct weir__policies *set)
{
    bool needed = false;
    for (size_t i = 0; i < set->attributes.count; i++)
        needed = needed || (weir__attribute_known(&set->attributes.items[i]) &&
                            strncmp(set->attributes.items[i].name, "header.", 7) != 0);
    if (needed && set->trusted_count == 0)
        printf("\nnote: no trusted_proxies: X-Forwarded-For and the like are ignored, whoever\n"
               "sends them. Behind a proxy that asks by GET, name its address there.\n");
}

static void print_warnings(const struct weir__policies *set)
{
    for (const struct weir__warning *it = set->warnings; it; it = it->next) {
        printf("\nwarning:\n");
        print_wrapped(it->text, room_behind(0), 0);
    }
}

void cli_print_policies(const struct cli_checked *checked)
{
    const struct weir__policies *set = checked->policies;
    printf("%s: %zu %s, %zu %s\n", cli_show_text(checked->path).text, set->count,
           set->count == 1 ? "policy" : "policies", set->entries,
           set->entries == 1 ? "limit" : "limits");
    for (size_t i = 0; i < set->count; i++)
        print_policy(set, i);
    print_warnings(set);
    print_notes(set);
    print_untrusting(set);
}

/* ---- Envoy's ---- */

static void put_rule(struct weir__buffer *buffer, const struct weir__envoy_rule *rule)
{
    if (rule->unlimited)
        weir__put_text(buffer, "unlimited");
    else if (rule->denies)
        weir__put_text(buffer, "denied");
    else
        weir__put_text(buffer, weir_limit_text(rule->limit));
    weir__put_format(buffer, "%s%s%s", rule->shadow ? ", in shadow: answered OK in any case" : "",
                     rule->quota ? ", a quota" : "",
                     rule->charge_denied ? ", charged even where it denies" : "");
}

void cli_print_envoy(const struct cli_checked *checked)
{
    size_t count = weir__envoy_count(checked->envoy);
    const char *domain = "";
    struct cli_style style = cli_style_of(stdout);
    printf("%s: a configuration of Envoy's rate limit service, %zu %s\n",
           cli_show_text(checked->path).text, count, count == 1 ? "limit" : "limits");
    for (size_t i = 0; i < count; i++) {
        const struct weir__envoy_rule *rule = weir__envoy_at(checked->envoy, i);
        char text[4096];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        if (strcmp(domain, rule->domain))
            printf("\n%s%s%s\n", style.bold, cli_show_text(rule->domain).text, style.off);
        domain = rule->domain;
        put_rule(&buffer, rule);
        printf("  %s\n", cli_show_text(rule->name).text);
        print_row("limit", text);
        if (rule->limit)
            print_meaning(rule->limit);
    }
}
