/* From a descriptor's rate_limit, or our `limit`, to a rule; and single values of a configuration,
 * as its YAML readers have always taken them: see envoy.h. */
#include "policy/envoy/envoy.h"

#include "base/hash.h"
#include "core/calendar.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- values ---- */

static bool text_is_null(const struct weir__yaml_node *node)
{
    return node->type == WEIR__YAML_SCALAR && node->plain &&
           (node->len == 0 || !strcmp(node->text, "~") || !strcasecmp(node->text, "null"));
}

const struct weir__yaml_node *weir__envoy_get(const struct weir__yaml_node *map, const char *key)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, key);
    return node && text_is_null(node) ? NULL : node;
}

struct weir__span weir__envoy_read_text(struct weir__envoy_loading *loading,
                                        const struct weir__yaml_node *map, const char *key,
                                        size_t most)
{
    const struct weir__yaml_node *node = weir__envoy_get(map, key);
    const char *copy = NULL;
    if (node && node->type != WEIR__YAML_SCALAR)
        weir__yaml_fail(loading->yaml, node, "%s must be a text", key);
    else if (node && node->len > most)
        weir__yaml_fail(loading->yaml, node, "%s has %zu bytes, at most %zu fit", key, node->len,
                        most);
    else if (node)
        copy = weir__yaml_copy(loading->yaml, node->text, node->len);
    return copy ? (struct weir__span){copy, node->len} : (struct weir__span){"", 0};
}

bool weir__envoy_read_bool(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                           const char *key)
{
    static const char *const words[] = {"true", "yes", "on", "false", "no", "off"};
    const struct weir__yaml_node *node = weir__envoy_get(map, key);
    if (!node)
        return false;
    for (size_t i = 0; i < WEIR__COUNT(words) && node->type == WEIR__YAML_SCALAR && node->plain;
         i++) {
        if (!strcasecmp(node->text, words[i]))
            return i < 3;
    }
    weir__yaml_fail(loading->yaml, node, "%s must be true or false", key);
    return false;
}

/* ---- units ---- */

static const struct unit {
    const char *name, *period;
    int64_t us;
} units[WEIR__RLS_UNITS] = {
    [WEIR__RLS_UNKNOWN_UNIT] = {"UNKNOWN", "", 0},
    [WEIR__RLS_SECOND] = {"SECOND", "s", INT64_C(1000000)},
    [WEIR__RLS_MINUTE] = {"MINUTE", "m", INT64_C(60000000)},
    [WEIR__RLS_HOUR] = {"HOUR", "h", INT64_C(3600000000)},
    [WEIR__RLS_DAY] = {"DAY", "d", INT64_C(86400000000)},
    [WEIR__RLS_MONTH] = {"MONTH", "30d", INT64_C(2592000000000)},
    [WEIR__RLS_YEAR] = {"YEAR", "365d", INT64_C(31536000000000)},
    [WEIR__RLS_WEEK] = {"WEEK", "w", INT64_C(604800000000)},
};

int64_t weir__envoy_unit_us(enum weir__rls_unit unit)
{
    return units[unit].us;
}

const char *weir__envoy_unit_name(enum weir__rls_unit unit)
{
    return units[unit].name;
}

enum weir__rls_unit weir__envoy_unit(const char *name, size_t len)
{
    for (int i = WEIR__RLS_SECOND; i < WEIR__RLS_UNITS; i++) {
        if (strlen(units[i].name) == len && !strncasecmp(units[i].name, name, len))
            return (enum weir__rls_unit)i;
    }
    return WEIR__RLS_UNKNOWN_UNIT;
}

enum weir__rls_unit weir__envoy_unit_of(const struct weir__rule *rule, uint32_t *ret_requests)
{
    bool calendar = weir__algorithm_of(rule)->extra == WEIR__EXTRA_CALENDAR;
    if (calendar && weir__calendar_of(rule).unit >= WEIR__MONTH) {
        *ret_requests = (uint32_t)weir__min(rule->count, UINT32_MAX);
        return weir__calendar_of(rule).unit == WEIR__MONTH ? WEIR__RLS_MONTH : WEIR__RLS_YEAR;
    }
    for (int i = WEIR__RLS_SECOND; i < WEIR__RLS_UNITS; i++) {
        if (rule->period_us == units[i].us) {
            *ret_requests = (uint32_t)weir__min(rule->count, UINT32_MAX);
            return (enum weir__rls_unit)i;
        }
    }
    *ret_requests = 0;
    return WEIR__RLS_UNKNOWN_UNIT;
}

void weir__envoy_put_limit(struct weir__buffer *buffer, uint32_t requests, enum weir__rls_unit unit)
{
    weir__put_format(buffer, "fixed-window %u/%s", requests, units[unit].period);
}

/* ---- limits ---- */

/* The set's own limit that means the same; takes over `limit`, which may be NULL. */
static const weir_limit *rule_intern(struct weir__envoy_loading *loading, weir_limit *limit)
{
    if (!limit)
        return NULL;
    const char *text = weir_limit_text(limit);
    uint64_t hash[2];
    weir__hash((const uint64_t[2]){0, 0}, text, strlen(text), hash);
    struct weir__envoy_interned **at = &loading->envoy->interned[hash[0] % WEIR__ENVOY_INTERNED];
    while (*at && strcmp(weir_limit_text((*at)->limit), text))
        at = &(*at)->next;
    struct weir__envoy_interned *item = *at ? NULL : weir__yaml_new(loading->yaml, 1, sizeof *item);
    if (item) {
        item->limit = limit;
        loading->envoy->limit_count++;
        *at = item;
    } else {
        weir_limit_free(limit);
    }
    return *at ? (*at)->limit : NULL;
}

static void rule_read_extension(struct weir__envoy_loading *loading,
                                const struct weir__yaml_node *node, struct weir__envoy_rule *rule)
{
    if (node->type != WEIR__YAML_SCALAR)
        weir__yaml_fail(loading->yaml, node, "limit must be a text like \"sliding-window 100/m\"");
    weir_limit *limit = weir__yaml_limit(loading->yaml, node);
    if (limit && weir__has_leases(limit)) {
        weir_limit_free(limit);
        limit = NULL;
        weir__yaml_fail(loading->yaml, node,
                        "Envoy does not say when a request ends, so that a concurrent limit would "
                        "never be released; use a limit over time");
    }
    rule->limit = rule_intern(loading, limit);
    if (rule->limit && rule->limit->count == 1) /* what the answers call it */
        rule->unit = weir__envoy_unit_of(&rule->limit->rules[0], &rule->requests_per_unit);
}

/* ---- rate_limit ---- */

static uint32_t rule_read_requests(struct weir__envoy_loading *loading,
                                   const struct weir__yaml_node *map)
{
    const struct weir__yaml_node *node = weir__envoy_get(map, "requests_per_unit");
    int64_t number = 0;
    if (!node) {
        weir__yaml_fail(loading->yaml, map,
                        "requests_per_unit is missing; 0 denies everything, unlimited: true "
                        "nothing");
        return 0;
    }
    if (node->type != WEIR__YAML_SCALAR || !node->plain || node->len > 10 ||
        (node->len > 1 && node->text[0] == '0') || /* YAML's octal: elsewhere 010 is 8 */
        !weir__span_whole((struct weir__span){node->text, node->len}, 0, UINT32_MAX, &number))
        weir__yaml_fail(loading->yaml, node,
                        "requests_per_unit must be a whole number within 0 … 4294967295, in "
                        "decimal digits without a leading 0");
    return (uint32_t)number;
}

static enum weir__rls_unit rule_read_unit(struct weir__envoy_loading *loading,
                                          const struct weir__yaml_node *map)
{
    static const char all[] = "expected second, minute, hour, day, week, month or year";
    const struct weir__yaml_node *node = weir__envoy_get(map, "unit");
    enum weir__rls_unit unit = WEIR__RLS_UNKNOWN_UNIT;
    if (!node)
        weir__yaml_fail(loading->yaml, map, "unit is missing: %s", all);
    else if (node->type == WEIR__YAML_SCALAR)
        unit = weir__envoy_unit(node->text, node->len);
    if (node && unit == WEIR__RLS_UNKNOWN_UNIT)
        weir__yaml_fail(loading->yaml, node, "unknown unit: %s", all);
    return unit;
}

static void rule_read_amount(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                             struct weir__envoy_rule *rule)
{
    const struct weir__yaml_node *unit = weir__envoy_get(map, "unit");
    rule->unlimited = weir__envoy_read_bool(loading, map, "unlimited");
    if (rule->unlimited && unit)
        weir__yaml_fail(loading->yaml, unit,
                        "unit and unlimited: true exclude each other; leave one of them out");
    if (rule->unlimited)
        return;
    rule->unit = rule_read_unit(loading, map);
    rule->requests_per_unit = rule_read_requests(loading, map);
    rule->denies = rule->requests_per_unit == 0;
    if (rule->denies || loading->yaml->code)
        return;
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir_limit *limit = NULL;
    weir__envoy_put_limit(&buffer, rule->requests_per_unit, rule->unit);
    loading->yaml->code = weir_limit_parse(text, &limit, loading->yaml->err);
    rule->limit = rule_intern(loading, limit);
}

static const char *rule_read_replaced(struct weir__envoy_loading *loading,
                                      const struct weir__yaml_node *item, const char *own)
{
    static const char *const keys[] = {"name", NULL};
    struct weir__span name = {"", 0};
    if (weir__yaml_only(loading->yaml, item, keys))
        name = weir__envoy_read_text(loading, item, "name", WEIR__RLS_NAME_MAX);
    if (name.len == 0)
        weir__yaml_fail(loading->yaml, item, "replaces needs the name of a limit (\"- name: …\")");
    if (!strcmp(name.data, own))
        weir__yaml_fail(loading->yaml, item, "a limit cannot replace itself (\"%s\")",
                        weir__yaml_quote(own, strlen(own)).text);
    return name.data;
}

static void rule_read_replaces(struct weir__envoy_loading *loading,
                               const struct weir__yaml_node *map, struct weir__envoy_rule *rule)
{
    const struct weir__yaml_node *list = weir__envoy_get(map, "replaces");
    if (!list)
        return;
    if (list->type != WEIR__YAML_LIST)
        weir__yaml_fail(loading->yaml, list, "replaces must be a list of \"- name: …\"");
    const char **names =
        weir__yaml_new(loading->yaml, weir__yaml_count(list) + 1, sizeof(const char *));
    for (const struct weir__yaml_node *it = list->child; it && !loading->yaml->code; it = it->next)
        names[rule->replace_count++] = rule_read_replaced(loading, it, rule->limit_name);
    rule->replaces = names;
}

static void rule_read_rate_limit(struct weir__envoy_loading *loading,
                                 const struct weir__yaml_node *map, struct weir__envoy_rule *rule)
{
    static const char *const keys[] = {"unit",  "requests_per_unit", "unlimited", "name",
                                       "limit", "replaces",          NULL};
    const struct weir__yaml_node *limit = weir__envoy_get(map, "limit");
    if (!weir__yaml_only(loading->yaml, map, keys))
        return;
    rule->limit_name = weir__envoy_read_text(loading, map, "name", WEIR__RLS_NAME_MAX).data;
    if (limit && (weir__envoy_get(map, "unit") || weir__envoy_get(map, "requests_per_unit") ||
                  weir__envoy_get(map, "unlimited")))
        weir__yaml_fail(loading->yaml, limit,
                        "limit replaces unit, requests_per_unit and unlimited; leave them out");
    if (limit)
        rule_read_extension(loading, limit, rule);
    else
        rule_read_amount(loading, map, rule);
    rule_read_replaces(loading, map, rule);
}

static void rule_read_flags(struct weir__envoy_loading *loading,
                            const struct weir__yaml_node *descriptor, struct weir__envoy_rule *rule)
{
    rule->shadow = weir__envoy_read_bool(loading, descriptor, "shadow_mode");
    rule->quota = weir__envoy_read_bool(loading, descriptor, "quota_mode");
    rule->charge_denied = weir__envoy_read_bool(loading, descriptor, "charge_denied");
    /* What these would count is counted otherwise: see docs/ENVOY.md. */
    weir__envoy_read_bool(loading, descriptor, "detailed_metric");
    weir__envoy_read_bool(loading, descriptor, "value_to_metric");
}

/* Keeps a rule. */
static const struct weir__envoy_rule *rule_add(struct weir__envoy_loading *loading,
                                               const struct weir__envoy_rule *like)
{
    struct weir__envoy *envoy = loading->envoy;
    struct weir__envoy_rule *rule = weir__yaml_new(loading->yaml, 1, sizeof *rule);
    if (rule && envoy->rule_count == envoy->rule_room) {
        size_t room = envoy->rule_room ? envoy->rule_room * 2 : 64;
        const struct weir__envoy_rule **rules =
            realloc(envoy->rules, room * sizeof(const struct weir__envoy_rule *));
        if (!rules) {
            weir__yaml_no_memory(loading->yaml);
            return NULL;
        }
        envoy->rules = rules;
        envoy->rule_room = room;
    }
    if (!rule)
        return NULL;
    *rule = *like;
    rule->index = (uint32_t)envoy->rule_count;
    return envoy->rules[envoy->rule_count++] = rule;
}

const struct weir__envoy_rule *weir__envoy_read_rule(struct weir__envoy_loading *loading,
                                                     const struct weir__yaml_node *descriptor,
                                                     const char *domain, const char *name)
{
    struct weir__envoy_rule rule = {.domain = domain, .name = name, .limit_name = ""};
    const struct weir__yaml_node *rate_limit = weir__envoy_get(descriptor, "rate_limit");
    const struct weir__yaml_node *limit = weir__envoy_get(descriptor, "limit");
    if (rate_limit && limit)
        weir__yaml_fail(loading->yaml, limit,
                        "limit and rate_limit together; leave one of them out");
    rule_read_flags(loading, descriptor, &rule);
    if (!rate_limit && !limit)
        return NULL;
    if (limit)
        rule_read_extension(loading, limit, &rule);
    else
        rule_read_rate_limit(loading, rate_limit, &rule);
    return rule_add(loading, &rule);
}
