/* A policy file as JSON. */
#include "cli/check.h"

#include "cli/json.h"
#include "limit/explain.h"
#include "policy/set.h"

static void put_conditions(struct cli_json *json, const char *name,
                           const struct weir__conditions *conditions,
                           const struct weir__attributes *attributes)
{
    char text[640];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_conditions(&buffer, conditions, attributes);
    cli_json_text(json, name, text);
}

static void put_list(struct cli_json *json, const char *name, const struct weir__any_of *any,
                     const struct weir__attributes *attributes)
{
    cli_json_open(json, name, '[');
    for (size_t i = 0; i < any->count; i++)
        put_conditions(json, NULL, &any->items[i], attributes);
    cli_json_close(json, ']');
}

static void put_meaning(struct cli_json *json, const weir_limit *limit)
{
    cli_json_open(json, "meaning", '[');
    for (size_t i = 0; i < limit->count; i++) {
        struct weir__facts facts;
        weir__explain(&limit->rules[i], &facts);
        cli_json_text(json, NULL, facts.what);
    }
    cli_json_close(json, ']');
}

static void put_cost(struct cli_json *json, const struct weir__cost *cost,
                     const struct weir__attributes *attributes)
{
    if (cost->attribute < 0) {
        cli_json_int(json, "cost", cost->otherwise);
        return;
    }
    cli_json_open(json, "cost", '{');
    cli_json_text(json, "of", attributes->items[cost->attribute].text);
    cli_json_int(json, "default", cost->otherwise);
    cli_json_int(json, "min", cost->least);
    cli_json_int(json, "max", cost->most);
    cli_json_close(json, '}');
}

static void put_entry(struct cli_json *json, const struct weir__entry *entry,
                      const struct weir__entry_body *body,
                      const struct weir__attributes *attributes)
{
    static const char *const missing[] = {"skip", "deny", "empty"};
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", entry->name);
    cli_json_text(json, "key", entry->key_text);
    cli_json_text(json, "limit", weir_limit_text(entry->limit));
    put_meaning(json, entry->limit);
    put_cost(json, &body->cost, attributes);
    cli_json_text(json, "missing", missing[body->missing]);
    cli_json_bool(json, "shadow", entry->shadow);
    cli_json_open(json, "overrides", '[');
    for (size_t i = 0; i < body->override_count; i++) {
        cli_json_open(json, NULL, '{');
        put_conditions(json, "when", &body->overrides[i].when, attributes);
        cli_json_text(json, "limit", weir_limit_text(body->overrides[i].limit));
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
    cli_json_close(json, '}');
}

static void put_policy(struct cli_json *json, const struct weir__policies *set, size_t i)
{
    static const char *const styles[] = {"ietf", "ietf-06", "x-ratelimit", "off"};
    static const char *const fails[] = {"local", "open", "closed"};
    const struct weir__policy *policy = &set->policies[i];
    const struct weir__policy_body *body = &set->bodies[i];
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", policy->name);
    cli_json_text(json, "match", policy->match_text);
    put_list(json, "deny", &body->deny, &set->attributes);
    put_list(json, "allow", &body->allow, &set->attributes);
    cli_json_open(json, "limits", '[');
    for (size_t j = 0; j < policy->entry_count; j++)
        put_entry(json, &policy->entries[j], &body->entries[j], &set->attributes);
    cli_json_close(json, ']');
    cli_json_text(json, "fail", fails[policy->fail]);
    cli_json_text(json, "headers", styles[policy->style]);
    cli_json_int(json, "deny_status", policy->deny_status);
    cli_json_text(json, "cross_slot", policy->give_back ? "give-back" : "refuse");
    cli_json_close(json, '}');
}

static void put_attributes(struct cli_json *json, const struct weir__policies *set)
{
    cli_json_open(json, "attributes", '[');
    for (size_t i = 0; i < set->attributes.count; i++) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "name", set->attributes.items[i].name);
        cli_json_bool(json, "known", weir__attribute_known(&set->attributes.items[i]));
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

void cli_print_policies_json(const struct cli_checked *checked)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "file", checked->path);
    cli_json_bool(&json, "ok", true);
    cli_json_text(&json, "kind", "policies");
    cli_json_open(&json, "policies", '[');
    for (size_t i = 0; i < checked->policies->count; i++)
        put_policy(&json, checked->policies, i);
    cli_json_close(&json, ']');
    put_attributes(&json, checked->policies);
    cli_json_open(&json, "warnings", '[');
    for (const struct weir__warning *it = checked->policies->warnings; it; it = it->next)
        cli_json_text(&json, NULL, it->text);
    cli_json_close(&json, ']');
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

static void put_rule(struct cli_json *json, const struct weir__envoy_rule *rule)
{
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "domain", rule->domain);
    cli_json_text(json, "descriptor", rule->name);
    if (rule->limit)
        cli_json_text(json, "limit", weir_limit_text(rule->limit));
    else
        cli_json_null(json, "limit");
    if (rule->limit)
        put_meaning(json, rule->limit);
    cli_json_bool(json, "unlimited", rule->unlimited);
    cli_json_bool(json, "denies", rule->denies);
    cli_json_bool(json, "shadow", rule->shadow);
    cli_json_bool(json, "quota", rule->quota);
    cli_json_close(json, '}');
}

void cli_print_envoy_json(const struct cli_checked *checked)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "file", checked->path);
    cli_json_bool(&json, "ok", true);
    cli_json_text(&json, "kind", "envoy");
    cli_json_open(&json, "limits", '[');
    for (size_t i = 0; i < weir__envoy_count(checked->envoy); i++)
        put_rule(&json, weir__envoy_at(checked->envoy, i));
    cli_json_close(&json, ']');
    cli_json_close(&json, '}');
    cli_json_end(&json);
}
