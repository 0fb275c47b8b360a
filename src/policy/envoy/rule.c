/* From a descriptor's rate_limit, or our `limit`, to a rule; and single values of a configuration,
 * as its YAML readers have always taken them: see envoy/set.h. */
#include "policy/envoy/set.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- values ---- */

int weir__envoy_no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the configuration");
}

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

int weir__envoy_read_text(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *key, size_t most, struct weir__span *ret)
{
    const struct weir__yaml_node *node = weir__envoy_get(map, key);
    if (!node) {
        *ret = (struct weir__span){"", 0};
        return 0;
    }
    if (node->type != WEIR__YAML_SCALAR)
        return weir__yaml_fail(loading->yaml, node, loading->err, "%s must be a text", key);
    if (node->len > most)
        return weir__yaml_fail(loading->yaml, node, loading->err,
                               "%s has %zu bytes, at most %zu fit", key, node->len, most);
    char *copy = weir__arena_text(&loading->envoy->arena, node->text, node->len);
    if (!copy)
        return weir__envoy_no_memory(loading->err);
    *ret = (struct weir__span){copy, node->len};
    return 0;
}

int weir__envoy_read_bool(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          const char *key, bool *ret)
{
    static const char *const words[] = {"true", "yes", "on", "false", "no", "off"};
    const struct weir__yaml_node *node = weir__envoy_get(map, key);
    *ret = false;
    if (!node)
        return 0;
    for (size_t i = 0; i < WEIR__COUNT(words) && node->type == WEIR__YAML_SCALAR && node->plain;
         i++) {
        if (!strcasecmp(node->text, words[i])) {
            *ret = i < 3;
            return 0;
        }
    }
    return weir__yaml_fail(loading->yaml, node, loading->err, "%s must be true or false", key);
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

/* The set's own limit that means the same; takes over `limit`. */
static int rule_intern(struct weir__envoy_loading *loading, weir_limit *limit,
                       const weir_limit **ret)
{
    const char *text = weir_limit_text(limit);
    uint64_t hash[2];
    weir__hash((const uint64_t[2]){0, 0}, text, strlen(text), hash);
    struct weir__envoy_interned **at = &loading->envoy->interned[hash[0] % WEIR__ENVOY_INTERNED];
    while (*at && strcmp(weir_limit_text((*at)->limit), text))
        at = &(*at)->next;
    if (*at) {
        weir_limit_free(limit);
    } else {
        struct weir__envoy_interned *item =
            weir__arena_new(&loading->envoy->arena, 1, sizeof *item);
        if (!item) {
            weir_limit_free(limit);
            return weir__envoy_no_memory(loading->err);
        }
        item->limit = limit;
        loading->envoy->limit_count++;
        *at = item;
    }
    *ret = (*at)->limit;
    return 0;
}

/* What the answers call a limit of our language. */
static void rule_name_unit(struct weir__envoy_rule *rule)
{
    if (rule->limit->count == 1)
        rule->unit = weir__envoy_unit_of(&rule->limit->rules[0], &rule->requests_per_unit);
}

static int rule_read_extension(struct weir__envoy_loading *loading,
                               const struct weir__yaml_node *node, struct weir__envoy_rule *rule)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    if (node->type != WEIR__YAML_SCALAR)
        return weir__yaml_fail(loading->yaml, node, loading->err,
                               "limit must be a text like \"sliding-window 100/m\"");
    int code = weir_limit_parse(node->text, &limit, &err);
    if (code == WEIR_ENOMEM)
        return weir__envoy_no_memory(loading->err);
    if (code) {
        const char *why = strncmp(err.message, "column ", 7) ? NULL : strstr(err.message, ": ");
        return weir__yaml_fail_within(loading->yaml, node,
                                      err.column > 0 ? (size_t)err.column - 1 : 0, loading->err,
                                      "%s", why ? why + 2 : err.message);
    }
    for (size_t i = 0; i < limit->count; i++) {
        if (weir__algorithm_of(&limit->rules[i])->leases) {
            weir_limit_free(limit);
            return weir__yaml_fail(loading->yaml, node, loading->err,
                                   "Envoy does not say when a request ends, so that a concurrent "
                                   "limit would never be released; use a limit over time");
        }
    }
    code = rule_intern(loading, limit, &rule->limit);
    if (code == 0)
        rule_name_unit(rule);
    return code;
}

/* ---- rate_limit ---- */

static int rule_read_requests(struct weir__envoy_loading *loading,
                              const struct weir__yaml_node *map, uint32_t *ret)
{
    const struct weir__yaml_node *node = weir__envoy_get(map, "requests_per_unit");
    if (!node)
        return weir__yaml_fail(loading->yaml, map, loading->err,
                               "requests_per_unit is missing; 0 denies everything, unlimited: true "
                               "nothing");
    uint64_t number = 0;
    bool good = node->type == WEIR__YAML_SCALAR && node->plain && node->len <= 10 &&
                (node->len == 1 || node->text[0] != '0'); /* YAML's octal: elsewhere 010 is 8 */
    for (size_t i = 0; good && i < node->len; i++) {
        good = node->text[i] >= '0' && node->text[i] <= '9';
        number = number * 10 + (uint64_t)(node->text[i] - '0');
    }
    if (!good || number > UINT32_MAX)
        return weir__yaml_fail(loading->yaml, node, loading->err,
                               "requests_per_unit must be a whole number within 0 … 4294967295, in "
                               "decimal digits without a leading 0");
    *ret = (uint32_t)number;
    return 0;
}

static int rule_read_unit(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                          enum weir__rls_unit *ret)
{
    static const char all[] = "expected second, minute, hour, day, week, month or year";
    const struct weir__yaml_node *node = weir__envoy_get(map, "unit");
    if (!node)
        return weir__yaml_fail(loading->yaml, map, loading->err, "unit is missing: %s", all);
    if (node->type == WEIR__YAML_SCALAR)
        *ret = weir__envoy_unit(node->text, node->len);
    if (node->type != WEIR__YAML_SCALAR || *ret == WEIR__RLS_UNKNOWN_UNIT)
        return weir__yaml_fail(loading->yaml, node, loading->err, "unknown unit: %s", all);
    return 0;
}

static int rule_read_amount(struct weir__envoy_loading *loading, const struct weir__yaml_node *map,
                            struct weir__envoy_rule *rule)
{
    int code = weir__envoy_read_bool(loading, map, "unlimited", &rule->unlimited);
    if (code)
        return code;
    const struct weir__yaml_node *unit = weir__envoy_get(map, "unit");
    if (rule->unlimited && unit)
        return weir__yaml_fail(
            loading->yaml, unit, loading->err,
            "unit and unlimited: true exclude each other; leave one of them out");
    if (rule->unlimited)
        return 0;
    code = rule_read_unit(loading, map, &rule->unit);
    if (code == 0)
        code = rule_read_requests(loading, map, &rule->requests_per_unit);
    rule->denies = code == 0 && rule->requests_per_unit == 0;
    if (code || rule->denies)
        return code;
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir_limit *limit = NULL;
    weir__envoy_put_limit(&buffer, rule->requests_per_unit, rule->unit);
    code = weir_limit_parse(text, &limit, loading->err);
    if (code == 0)
        code = rule_intern(loading, limit, &rule->limit);
    return code;
}

static int rule_read_replaced(struct weir__envoy_loading *loading,
                              const struct weir__yaml_node *item, const char *own, const char **ret)
{
    static const char *const keys[] = {"name", NULL};
    struct weir__span name = {NULL, 0};
    int code = weir__yaml_only(loading->yaml, item, keys, loading->err);
    if (code == 0)
        code = weir__envoy_read_text(loading, item, "name", WEIR__RLS_NAME_MAX, &name);
    if (code)
        return code;
    if (name.len == 0)
        return weir__yaml_fail(loading->yaml, item, loading->err,
                               "replaces needs the name of a limit (\"- name: …\")");
    if (!strcmp(name.data, own))
        return weir__yaml_fail(loading->yaml, item, loading->err,
                               "a limit cannot replace itself (\"%s\")",
                               weir__yaml_quote(own, strlen(own)).text);
    *ret = name.data;
    return 0;
}

static int rule_read_replaces(struct weir__envoy_loading *loading,
                              const struct weir__yaml_node *map, struct weir__envoy_rule *rule)
{
    const struct weir__yaml_node *list = weir__envoy_get(map, "replaces");
    if (!list)
        return 0;
    if (list->type != WEIR__YAML_LIST)
        return weir__yaml_fail(loading->yaml, list, loading->err,
                               "replaces must be a list of \"- name: …\"");
    size_t count = 0;
    for (const struct weir__yaml_node *item = list->child; item; item = item->next)
        count++;
    const char **names = weir__arena_new(&loading->envoy->arena, count + 1, sizeof *names);
    if (!names)
        return weir__envoy_no_memory(loading->err);
    for (const struct weir__yaml_node *item = list->child; item; item = item->next) {
        int code = rule_read_replaced(loading, item, rule->limit_name, &names[rule->replace_count]);
        if (code)
            return code;
        rule->replace_count++;
    }
    rule->replaces = names;
    return 0;
}

static int rule_read_rate_limit(struct weir__envoy_loading *loading,
                                const struct weir__yaml_node *map, struct weir__envoy_rule *rule)
{
    static const char *const keys[] = {"unit",  "requests_per_unit", "unlimited", "name",
                                       "limit", "replaces",          NULL};
    struct weir__span name = {NULL, 0};
    int code = weir__yaml_only(loading->yaml, map, keys, loading->err);
    if (code == 0)
        code = weir__envoy_read_text(loading, map, "name", WEIR__RLS_NAME_MAX, &name);
    if (code)
        return code;
    rule->limit_name = name.data;
    const struct weir__yaml_node *limit = weir__envoy_get(map, "limit");
    if (limit && (weir__envoy_get(map, "unit") || weir__envoy_get(map, "requests_per_unit") ||
                  weir__envoy_get(map, "unlimited")))
        return weir__yaml_fail(
            loading->yaml, limit, loading->err,
            "limit replaces unit, requests_per_unit and unlimited; leave them out");
    code = limit ? rule_read_extension(loading, limit, rule) : rule_read_amount(loading, map, rule);
    return code ? code : rule_read_replaces(loading, map, rule);
}

static int rule_read_flags(struct weir__envoy_loading *loading,
                           const struct weir__yaml_node *descriptor, struct weir__envoy_rule *rule)
{
    bool metrics; /* detailed_metric, value_to_metric: see docs/ENVOY.md */
    int code = weir__envoy_read_bool(loading, descriptor, "shadow_mode", &rule->shadow);
    if (code == 0)
        code = weir__envoy_read_bool(loading, descriptor, "quota_mode", &rule->quota);
    if (code == 0)
        code = weir__envoy_read_bool(loading, descriptor, "charge_denied", &rule->charge_denied);
    if (code == 0)
        code = weir__envoy_read_bool(loading, descriptor, "detailed_metric", &metrics);
    if (code == 0)
        code = weir__envoy_read_bool(loading, descriptor, "value_to_metric", &metrics);
    return code;
}

static int rule_add(struct weir__envoy_loading *loading, struct weir__envoy_rule *rule)
{
    struct weir__envoy *envoy = loading->envoy;
    if (envoy->rule_count == envoy->rule_room) {
        size_t room = envoy->rule_room ? envoy->rule_room * 2 : 64;
        const struct weir__envoy_rule **rules =
            realloc(envoy->rules, room * sizeof(const struct weir__envoy_rule *));
        if (!rules)
            return weir__envoy_no_memory(loading->err);
        envoy->rules = rules;
        envoy->rule_room = room;
    }
    rule->index = (uint32_t)envoy->rule_count;
    envoy->rules[envoy->rule_count++] = rule;
    return 0;
}

int weir__envoy_read_rule(struct weir__envoy_loading *loading,
                          const struct weir__yaml_node *descriptor, const char *domain,
                          const char *name, const struct weir__envoy_rule **ret)
{
    struct weir__envoy_rule rule = {.domain = domain, .name = name, .limit_name = ""};
    const struct weir__yaml_node *rate_limit = weir__envoy_get(descriptor, "rate_limit");
    const struct weir__yaml_node *limit = weir__envoy_get(descriptor, "limit");
    if (rate_limit && limit)
        return weir__yaml_fail(loading->yaml, limit, loading->err,
                               "limit and rate_limit together; leave one of them out");
    int code = rule_read_flags(loading, descriptor, &rule);
    if (code || (!rate_limit && !limit)) {
        *ret = NULL;
        return code;
    }
    code = limit ? rule_read_extension(loading, limit, &rule)
                 : rule_read_rate_limit(loading, rate_limit, &rule);
    if (code)
        return code;
    struct weir__envoy_rule *kept = weir__arena_new(&loading->envoy->arena, 1, sizeof *kept);
    if (!kept)
        return weir__envoy_no_memory(loading->err);
    *kept = rule;
    *ret = kept;
    return rule_add(loading, kept);
}
