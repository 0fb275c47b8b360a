/* A file's text becomes a set; what a set can be asked. */
#include "policy/policy.h"

#include "policy/read/reader.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static int policies_read_version(const struct weir__reader *reader,
                                 const struct weir__yaml_node *root)
{
    const struct weir__yaml_node *node = weir__yaml_get(root, "version");
    struct weir__span text = {"", 0};
    int code = weir__read_text(reader, node, "version", &text);
    if (code == 0 && !node)
        return weir__yaml_fail(reader->yaml, root, reader->err,
                               "the version is missing; begin the file with version: 1");
    if (code == 0 && strcmp(text.data, "1"))
        return weir__reader_fail(reader, node, "this weir reads version 1");
    return code;
}

static int policies_compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct weir__policy *const *)a)->name,
                  (*(const struct weir__policy *const *)b)->name);
}

static int policies_read_all(struct weir__reader *reader, const struct weir__yaml_node *list)
{
    struct weir__policies *set = reader->set;
    size_t count = weir__node_count(list);
    if (count > WEIR__POLICIES_MAX)
        return weir__yaml_fail(reader->yaml, list, reader->err, "more than %d policies",
                               WEIR__POLICIES_MAX);
    set->policies = weir__arena_new(&set->arena, count, sizeof(struct weir__policy));
    set->bodies = weir__arena_new(&set->arena, count, sizeof(struct weir__policy_body));
    set->gates = weir__arena_new(&set->arena, count, sizeof(struct weir__gate));
    set->by_name = weir__arena_new(&set->arena, count, sizeof(struct weir__policy *));
    if (!set->policies || !set->bodies || !set->gates || !set->by_name)
        return weir__reader_no_memory(reader);
    for (const struct weir__yaml_node *node = list->child; node; node = node->next) {
        int code = weir__read_policy(reader, node, set->count);
        if (code)
            return code;
        set->gates[set->count] = weir__gate_of(&set->bodies[set->count].match);
        set->by_name[set->count] = &set->policies[set->count];
        set->count++;
    }
    if (count > 0)
        qsort(set->by_name, count, sizeof(struct weir__policy *), policies_compare_names);
    return 0;
}

static int policies_read_file(struct weir__reader *reader, const struct weir__yaml_node *root)
{
    static const char *const allowed[] = {
        "version", "headers", "trusted_proxies", "path_parameters", "tiers", "policies", NULL};
    static const char *const parameters[] = {"ignore", "keep", NULL};
    int keep = 0;
    const struct weir__yaml_node *trusted = weir__yaml_get(root, "trusted_proxies");
    const struct weir__yaml_node *list = weir__yaml_get(root, "policies");
    struct weir__policies *set = reader->set;
    int code = weir__yaml_only(reader->yaml, root, allowed, reader->err);
    if (code == 0)
        code = policies_read_version(reader, root);
    if (code == 0)
        code = weir__read_style(reader, weir__yaml_get(root, "headers"), &set->style);
    set->styled = weir__yaml_get(root, "headers") != NULL;
    if (code == 0)
        code = weir__read_word(reader, weir__yaml_get(root, "path_parameters"), "path_parameters",
                               parameters, &keep);
    set->attributes.keep_parameters = keep == 1;
    if (code == 0 && trusted)
        code = weir__read_networks(reader, trusted, "trusted_proxies", &set->trusted,
                                   &set->trusted_count);
    if (code == 0)
        code = weir__read_tiers(reader, weir__yaml_get(root, "tiers"));
    if (code == 0 && (!list || list->type != WEIR__YAML_LIST))
        code = weir__yaml_fail(reader->yaml, list ? list : root, reader->err,
                               "expected policies: and a list of them");
    if (code == 0)
        code = policies_read_all(reader, list);
    if (code == 0 && set->cluster)
        code = weir__check_slots(reader, list);
    return code;
}

int weir__policies_parse(const char *text, size_t len, const char *name, bool cluster,
                         struct weir__policies **ret, weir_error *err)
{
    struct weir__yaml *yaml = NULL;
    struct weir__policies *set = calloc(1, sizeof *set);
    if (!set)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the policies");
    set->cluster = cluster;
    set->last_warning = &set->warnings;
    int code = weir__yaml_parse(text, len, name, &yaml, err);
    if (code == 0) {
        struct weir__reader reader = {.yaml = yaml, .set = set, .err = err};
        code = policies_read_file(&reader, weir__yaml_root(yaml));
    }
    weir__yaml_free(yaml);
    if (code)
        weir__policies_free(set);
    else
        *ret = set;
    return code;
}

void weir__policies_free(struct weir__policies *policies)
{
    if (!policies)
        return;
    for (size_t i = 0; i < policies->limit_count; i++)
        weir_limit_free(policies->limits[i]);
    free(policies->limits);
    weir__arena_free(&policies->arena);
    free(policies);
}

/* ---- asking ---- */

size_t weir__policies_count(const struct weir__policies *policies)
{
    return policies->count;
}

size_t weir__policies_entries(const struct weir__policies *policies)
{
    return policies->entries;
}

size_t weir__policies_attributes(const struct weir__policies *policies)
{
    return policies->attributes.count;
}

const char *weir__policies_attribute(const struct weir__policies *policies, size_t i,
                                     bool *ret_known)
{
    *ret_known = weir__attribute_known(&policies->attributes.items[i]);
    return policies->attributes.items[i].text;
}

bool weir__policies_hash(const struct weir__policies *policies)
{
    return policies->hashes;
}

void weir__policies_set_secret(struct weir__policies *policies, const uint64_t secret[2])
{
    memcpy(policies->secret, secret, sizeof policies->secret);
    policies->keyed = true;
}

const weir_limit *const *weir__policies_limits(const struct weir__policies *policies,
                                               size_t *ret_count)
{
    *ret_count = policies->limit_count;
    return (const weir_limit *const *)policies->limits;
}

const char *weir__policies_warning(const struct weir__policies *policies, size_t i)
{
    const struct weir__warning *warning = policies->warnings;
    for (; warning && i > 0; i--)
        warning = warning->next;
    return warning ? warning->text : NULL;
}

const struct weir__policy *weir__policies_at(const struct weir__policies *policies, size_t i)
{
    return &policies->policies[i];
}

static int policies_compare_name(const char *ours, const char *name, size_t len)
{
    size_t ours_len = strlen(ours);
    int sign = memcmp(ours, name, ours_len < len ? ours_len : len);
    return sign ? sign : (ours_len > len) - (ours_len < len);
}

const struct weir__policy *weir__policies_find(const struct weir__policies *policies,
                                               const char *name, size_t len)
{
    size_t low = 0, count = len > 0 ? policies->count : 0;
    while (count > 0) {
        const struct weir__policy *policy = policies->by_name[low + count / 2];
        int sign = policies_compare_name(policy->name, name, len);
        if (sign == 0)
            return policy;
        if (sign < 0) {
            low += count / 2 + 1;
            count -= count / 2 + 1;
        } else {
            count /= 2;
        }
    }
    return NULL;
}

bool weir__policies_trusts(const struct weir__policies *policies, const char *ip, size_t len)
{
    struct weir__address address;
    bool found = false;
    if (policies->trusted_count == 0 || !weir__address_read(ip, len, &address))
        return false;
    for (size_t i = 0; i < policies->trusted_count && !found; i++)
        found = weir__network_has(&policies->trusted[i], &address);
    return found;
}
