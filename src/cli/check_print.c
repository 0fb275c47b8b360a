/* A policy file, or a configuration of Envoy, in words and as JSON: what `weir check` prints. */
#include "cli/check.h"

#include "base/span.h"
#include "limit/explain.h"

#include <assert.h>
#include <string.h>

#define LABEL 13 /* columns */

static void check_print_row(const char *label, const char *text)
{
    cli_print_labelled(label, LABEL, text);
}

/* ---- entries ---- */

static void check_print_meaning(const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        struct weir__facts facts;
        weir__explain_limit(limit, i, &facts);
        check_print_row("", facts.what);
    }
}

static void check_put_cost_text(struct weir__buffer *buffer, const struct weir__cost *cost,
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
    bool strangers = !strncmp(attributes->items[cost->attribute].name, "header.", 7);
    weir__put_format(buffer, "; %lld if it is missing%s", (long long)cost->otherwise,
                     strangers ? " or not a number" : "");
}

/* A row of conditions, behind the limit that they are for if there is one. */
static void check_print_conditions(const char *label, const weir_limit *limit,
                                   const struct weir__conditions *conditions,
                                   const struct weir__attributes *attributes)
{
    char text[640];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (limit)
        weir__put_format(&buffer, "%s when ", weir_limit_text(limit));
    weir__put_conditions(&buffer, conditions, attributes);
    check_print_row(label, text);
}

/* One row per class: its share, and what that makes of the limit. */
static void check_print_shares(const struct weir__shares *shares, const weir_limit *const *reduced,
                               const struct weir__attributes *attributes)
{
    for (size_t i = 0; i < shares->count; i++) {
        const struct weir__share *share = &shares->items[i];
        char text[4096];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_share(&buffer, share->millionths);
        weir__put_text(&buffer, i + 1 == shares->count ? " for all others" : " when ");
        weir__put_conditions(&buffer, &share->when, attributes);
        weir__put_format(&buffer, ": %s", weir_limit_text(reduced[i]));
        check_print_row(i == 0 ? "share" : "", text);
    }
}

static void check_print_overrides(const struct weir__entry *entry,
                                  const struct weir__attributes *attributes,
                                  const struct cli_slice_use *use)
{
    for (size_t i = 0; i < entry->override_count; i++) {
        const struct weir__override *it = &entry->overrides[i];
        check_print_conditions(i == 0 ? "override" : "", it->limit, &it->when, attributes);
        if (entry->shares && it->reduced)
            check_print_shares(entry->shares, it->reduced, attributes);
        cli_slicing_print_all(use, it->limit, LABEL);
    }
}

static void check_print_entry(const struct weir__policy *policy, size_t i,
                              const struct weir__policies *set, const struct weir__slicing *slicing)
{
    static const char *const missing[] = {"", "; denied if it is missing",
                                          "; empty if it is missing"};
    const struct weir__entry *entry = &policy->entries[i];
    const struct cli_slice_use use = cli_slice_use_of_entry(slicing, set, policy, entry);
    char text[4096];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%s%s", weir_limit_text(entry->limit),
                     entry->shadow ? ", shadow: counted, not enforced" : "");
    check_print_row(strcmp(entry->name, policy->name) ? entry->name : "limit", text);
    check_print_meaning(entry->limit);
    cli_slicing_print_all(&use, entry->limit, LABEL);
    buffer = weir__buffer_over(text, sizeof text);
    const bool dry = entry->shadow && entry->missing == WEIR__MISSING_DENY;
    weir__put_format(&buffer, "%s%s", entry->key.text,
                     dry ? "; counted as denied if it is missing" : missing[entry->missing]);
    check_print_row("key", text);
    if (entry->cost.attribute >= 0 || entry->cost.otherwise != 1) {
        buffer = weir__buffer_over(text, sizeof text);
        check_put_cost_text(&buffer, &entry->cost, &set->attributes);
        check_print_row("cost", text);
    }
    if (entry->least.attribute >= 0 || entry->least.otherwise > 0) {
        buffer = weir__buffer_over(text, sizeof text);
        check_put_cost_text(&buffer, &entry->least, &set->attributes);
        check_print_row("least", text);
    }
    if (entry->shares)
        check_print_shares(entry->shares, entry->reduced, &set->attributes);
    check_print_overrides(entry, &set->attributes, &use);
}

/* ---- policies ---- */

static void check_print_list(const char *label, const struct weir__any_of *any,
                             const struct weir__attributes *attributes)
{
    for (size_t i = 0; i < any->count; i++)
        check_print_conditions(i == 0 ? label : "or", NULL, &any->items[i], attributes);
}

static void check_print_policy(const struct weir__policies *set, size_t i,
                               const struct weir__slicing *slicing)
{
    const struct weir__policy *policy = &set->policies[i];
    struct cli_style style = cli_style_of(stdout);
    assert(policy->fail <= WEIR__FAIL_CLOSED && policy->style <= WEIR__FIELDS_OFF);
    printf("\n%s%s%s\n", style.bold, policy->name, style.off);
    check_print_row("when", policy->match_text);
    check_print_list("deny", &policy->deny, &set->attributes);
    check_print_list("allow", &policy->allow, &set->attributes);
    for (size_t j = 0; j < policy->entry_count; j++)
        check_print_entry(policy, j, set, slicing);
    if (policy->fail_said)
        check_print_row("fail", weir__redis_fail_names[policy->fail]);
    if (policy->style != set->style)
        check_print_row("headers", weir__field_styles[policy->style]);
    if (policy->deny_status != WEIR__DENY_STATUS) {
        char status[16];
        snprintf(status, sizeof status, "%d", policy->deny_status);
        check_print_row("status", status);
    }
    if (policy->give_back)
        check_print_row("cross slot", "give-back");
}

bool cli_policies_doubtful(const struct weir__policies *set)
{
    char text[WEIR__NOTE_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    struct weir__note_at at = {0};
    return set->warnings || weir__policies_note(set, &at, &buffer);
}

/* Whether nothing stands in for a name somewhere: `account` and `lower(account)` are one name. */
static bool check_is_needed(const struct weir__attributes *attributes, const char *name)
{
    for (size_t i = 0; i < attributes->count; i++) {
        if (attributes->items[i].needed && !strcmp(attributes->items[i].name, name))
            return true;
    }
    return false;
}

static bool check_is_first(const struct weir__attributes *attributes, size_t of)
{
    size_t first = 0;
    while (strcmp(attributes->items[first].name, attributes->items[of].name) != 0)
        first++;
    return first == of;
}

/* The names of attributes that callers send, those that are needed or the others: "a", "b". */
static size_t check_put_names(struct weir__buffer *out, const struct weir__attributes *attributes,
                              bool needed, const char *before)
{
    size_t count = 0;
    for (size_t i = 0; i < attributes->count; i++) {
        const struct weir__attribute *attribute = &attributes->items[i];
        if (weir__attribute_known(attribute) || !check_is_first(attributes, i) ||
            check_is_needed(attributes, attribute->name) != needed)
            continue;
        weir__put_format(out, "%s\"%s\"", count++ ? ", " : before, attribute->name);
    }
    return count;
}

/* What the server cannot know. */
static void check_print_callers(const struct weir__policies *set)
{
    char text[4096];
    struct weir__buffer names = weir__buffer_over(text, sizeof text);
    size_t needed = check_put_names(&names, &set->attributes, true, "note: callers must send ");
    size_t others = check_put_names(&names, &set->attributes, false,
                                    needed ? " and may send " : "note: callers may send ");
    if (needed + others == 0)
        return;
    if (others > 0)
        weir__put_text(&names, others == 1 ? ", which has a default" : ", which have defaults");
    weir__put_text(&names, "; the server itself knows only ip, method, path, host, user and "
                           "header.NAME");
    putchar('\n');
    cli_print_wrapped(text, 0);
}

static void check_print_notes(const struct weir__policies *set)
{
    char text[WEIR__NOTE_MAX];
    struct weir__note_at at = {0};
    for (;;) {
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        if (!weir__policies_note(set, &at, &buffer))
            return;
        putchar('\n');
        cli_print_wrapped(text, 0);
    }
}

/* Behind a proxy all clients would have the address of the proxy. */
static void check_print_untrusting(const struct weir__policies *set)
{
    bool needed = false;
    for (size_t i = 0; i < set->attributes.count; i++)
        needed = needed || (weir__attribute_known(&set->attributes.items[i]) &&
                            strncmp(set->attributes.items[i].name, "header.", 7) != 0);
    if (needed && set->trusted_count == 0)
        printf("\nnote: there are no trusted_proxies, so X-Forwarded-For and similar fields are\n"
               "ignored. Behind a proxy, write its address there.\n");
}

static void check_print_warnings(const struct weir__policies *set)
{
    for (const struct weir__warning *it = set->warnings; it; it = it->next) {
        printf("\nwarning:\n");
        cli_print_wrapped(it->text, 0);
    }
}

void cli_print_policies(const char *path, const struct weir__policies *set,
                        const struct weir__slicing *slicing)
{
    printf("%s: %zu %s, %zu %s\n", cli_show_text(path).text, set->count,
           set->count == 1 ? "policy" : "policies", set->entry_count,
           set->entry_count == 1 ? "limit" : "limits");
    for (size_t i = 0; i < set->count; i++)
        check_print_policy(set, i, slicing);
    check_print_warnings(set);
    check_print_callers(set);
    check_print_notes(set);
    check_print_untrusting(set);
    cli_check_slices_note(slicing, set);
}

/* ---- configurations of Envoy ---- */

static void check_put_rule_text(struct weir__buffer *buffer, const struct weir__envoy_rule *rule)
{
    if (rule->unlimited)
        weir__put_text(buffer, "unlimited");
    else if (rule->denies)
        weir__put_text(buffer, "denied");
    else
        weir__put_text(buffer, weir_limit_text(rule->limit));
    weir__put_format(buffer, "%s%s%s", rule->shadow ? ", shadow: always answered OK" : "",
                     rule->quota ? ", a quota" : "",
                     rule->charge_denied ? ", charged even if it is denied" : "");
}

void cli_print_envoy(const char *path, const struct weir__envoy *envoy,
                     const struct weir__slicing *slicing)
{
    const struct cli_slice_use use = {.slicing = slicing, .cost = 1};
    size_t count = envoy->rule_count;
    const char *domain = "";
    struct cli_style style = cli_style_of(stdout);
    printf("%s: a configuration for the rate limit service of Envoy, %zu %s\n",
           cli_show_text(path).text, count, count == 1 ? "limit" : "limits");
    for (size_t i = 0; i < count; i++) {
        const struct weir__envoy_rule *rule = envoy->rules[i];
        char text[4096];
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        if (strcmp(domain, rule->domain))
            printf("\n%s%s%s\n", style.bold, cli_show_text(rule->domain).text, style.off);
        domain = rule->domain;
        check_put_rule_text(&buffer, rule);
        printf("  %s\n", cli_show_text(rule->name).text);
        check_print_row("limit", text);
        if (rule->limit) {
            check_print_meaning(rule->limit);
            cli_slicing_print_all(&use, rule->limit, LABEL);
        }
    }
}

/* ---- as JSON ---- */

static void check_json_put_list(struct weir__json *json, const char *name,
                                const struct weir__policies *set, const struct weir__any_of *any)
{
    weir__json_open(json, name, '[');
    for (size_t i = 0; i < any->count; i++)
        weir__put_conditions_json(json, NULL, set, &any->items[i]);
    weir__json_close(json, ']');
}

static void check_json_put_meaning(struct weir__json *json, const weir_limit *limit)
{
    weir__json_open(json, "meaning", '[');
    for (size_t i = 0; i < limit->count; i++) {
        struct weir__facts facts;
        weir__explain_limit(limit, i, &facts);
        weir__json_put_string(json, NULL, facts.what);
    }
    weir__json_close(json, ']');
}

static void check_json_put_cost(struct weir__json *json, const char *name,
                                const struct weir__cost *cost,
                                const struct weir__attributes *attributes)
{
    if (cost->attribute < 0) {
        weir__json_put_int(json, name, cost->otherwise);
        return;
    }
    weir__json_open(json, name, '{');
    weir__json_put_string(json, "of", attributes->items[cost->attribute].text);
    weir__json_put_int(json, "default", cost->otherwise);
    weir__json_put_int(json, "min", cost->least);
    weir__json_put_int(json, "max", cost->most);
    weir__json_close(json, '}');
}

static void check_json_put_entry(struct weir__json *json, const struct weir__entry *entry,
                                 const struct weir__policies *set, const struct cli_slice_use *use)
{
    const struct weir__attributes *attributes = &set->attributes;
    static const char *const missing[] = {"skip", "deny", "empty"};
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "name", entry->name);
    weir__json_put_string(json, "key", entry->key.text);
    weir__json_put_string(json, "limit", weir_limit_text(entry->limit));
    check_json_put_meaning(json, entry->limit);
    cli_slicing_put_all(json, use, entry->limit);
    check_json_put_cost(json, "cost", &entry->cost, attributes);
    if (entry->least.attribute >= 0 || entry->least.otherwise > 0)
        check_json_put_cost(json, "least", &entry->least, attributes);
    weir__json_put_string(json, "missing", missing[entry->missing]);
    weir__json_put_bool(json, "shadow", entry->shadow);
    weir__put_shares_json(json, set, entry->shares, entry->reduced);
    weir__json_open(json, "overrides", '[');
    for (size_t i = 0; i < entry->override_count; i++) {
        weir__json_open(json, NULL, '{');
        weir__put_conditions_json(json, "when", set, &entry->overrides[i].when);
        weir__json_put_string(json, "limit", weir_limit_text(entry->overrides[i].limit));
        weir__json_put_bool(json, "same_state",
                            weir__same_states(entry->limit, entry->overrides[i].limit));
        weir__put_shares_json(json, set, entry->shares, entry->overrides[i].reduced);
        cli_slicing_put_all(json, use, entry->overrides[i].limit);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

static void check_json_put_policy(struct weir__json *json, const struct weir__policies *set,
                                  size_t i, const struct weir__slicing *slicing)
{
    const struct weir__policy *policy = &set->policies[i];
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "name", policy->name);
    weir__json_put_string(json, "match", policy->match_text);
    check_json_put_list(json, "deny", set, &policy->deny);
    check_json_put_list(json, "allow", set, &policy->allow);
    weir__json_open(json, "limits", '[');
    for (size_t j = 0; j < policy->entry_count; j++) {
        const struct weir__entry *entry = &policy->entries[j];
        const struct cli_slice_use use = cli_slice_use_of_entry(slicing, set, policy, entry);
        check_json_put_entry(json, entry, set, &use);
    }
    weir__json_close(json, ']');
    if (policy->fail_said)
        weir__json_put_string(json, "fail", weir__redis_fail_names[policy->fail]);
    else
        weir__json_put_null(json, "fail"); /* the store's address says it */
    weir__json_put_string(json, "headers", weir__field_styles[policy->style]);
    weir__json_put_int(json, "deny_status", policy->deny_status);
    weir__json_put_string(json, "cross_slot", policy->give_back ? "give-back" : "refuse");
    weir__json_close(json, '}');
}

static void check_json_put_attributes(struct weir__json *json, const struct weir__policies *set)
{
    weir__json_open(json, "attributes", '[');
    for (size_t i = 0; i < set->attributes.count; i++) {
        weir__json_open(json, NULL, '{');
        weir__json_put_string(json, "name", set->attributes.items[i].name);
        weir__json_put_bool(json, "known", weir__attribute_known(&set->attributes.items[i]));
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void check_json_put_notes(struct weir__json *json, const struct weir__policies *set)
{
    char text[WEIR__NOTE_MAX];
    struct weir__note_at at = {0};
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__json_open(json, "notes", '[');
    for (; weir__policies_note(set, &at, &buffer); buffer = weir__buffer_over(text, sizeof text))
        weir__json_put_string(json, NULL, text);
    weir__json_close(json, ']');
}

void cli_print_policies_json(const char *path, const struct weir__policies *set,
                             const struct weir__slicing *slicing)
{
    struct weir__json json = cli_json_begin('{');
    weir__json_put_string(&json, "file", path);
    weir__json_put_bool(&json, "ok", true);
    weir__json_put_string(&json, "kind", "policies");
    weir__json_open(&json, "policies", '[');
    for (size_t i = 0; i < set->count; i++)
        check_json_put_policy(&json, set, i, slicing);
    weir__json_close(&json, ']');
    check_json_put_attributes(&json, set);
    weir__json_open(&json, "warnings", '[');
    for (const struct weir__warning *it = set->warnings; it; it = it->next)
        weir__json_put_string(&json, NULL, it->text);
    weir__json_close(&json, ']');
    check_json_put_notes(&json, set);
    cli_json_end(&json, '}');
}

static void check_json_put_rule(struct weir__json *json, const struct weir__envoy_rule *rule,
                                const struct cli_slice_use *use)
{
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "domain", rule->domain);
    weir__json_put_string(json, "descriptor", rule->name);
    weir__json_put_string(json, "limit", rule->limit ? weir_limit_text(rule->limit) : NULL);
    if (rule->limit) {
        check_json_put_meaning(json, rule->limit);
        cli_slicing_put_all(json, use, rule->limit);
    }
    weir__json_put_bool(json, "unlimited", rule->unlimited);
    weir__json_put_bool(json, "denies", rule->denies);
    weir__json_put_bool(json, "shadow", rule->shadow);
    weir__json_put_bool(json, "quota", rule->quota);
    weir__json_close(json, '}');
}

void cli_print_envoy_json(const char *path, const struct weir__envoy *envoy,
                          const struct weir__slicing *slicing)
{
    const struct cli_slice_use use = {.slicing = slicing, .cost = 1};
    struct weir__json json = cli_json_begin('{');
    weir__json_put_string(&json, "file", path);
    weir__json_put_bool(&json, "ok", true);
    weir__json_put_string(&json, "kind", "envoy");
    weir__json_open(&json, "limits", '[');
    for (size_t i = 0; i < envoy->rule_count; i++)
        check_json_put_rule(&json, envoy->rules[i], &use);
    weir__json_close(&json, ']');
    cli_json_end(&json, '}');
}
