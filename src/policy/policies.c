/* A file's text becomes a set; what a set can be asked. */
#include "policy/policy.h"

#include "policy/read/reader.h"

#include <stdlib.h>

/* ---- slots of a cluster ----
 *
 * Keys that one request takes together live in one slot, which those with the same key form do, or
 * their policies agree to give back what was taken before a denial. A least is granted in one go,
 * so it needs one slot. */

/* Whether a request that has no such attribute is all that a policy applies to. */
static bool slots_wants_absent(const struct weir__conditions *match, int attribute)
{
    for (size_t i = 0; i < match->count; i++) {
        const struct weir__condition *item = &match->items[i];
        if (item->attribute == attribute && item->negated && item->any)
            return true;
    }
    return false;
}

/* Whether an entry's key cannot be made where another policy applies. */
static bool slots_never_under(const struct weir__entry *entry, const struct weir__conditions *match)
{
    for (size_t i = 0; i < entry->key.count; i++) {
        int attribute = entry->key.parts[i].attribute;
        if (attribute >= 0 && entry->missing != WEIR__MISSING_EMPTY &&
            slots_wants_absent(match, attribute))
            return true;
    }
    return false;
}

/* Whether two entries, both enforced, may be taken by one request under keys of different forms. */
static bool slots_cross(const struct weir__policies *set, size_t a, size_t i, size_t b, size_t j)
{
    const struct weir__entry *x = &set->policies[a].entries[i], *y = &set->policies[b].entries[j];
    return !x->shadow && !y->shadow && strcmp(x->key.text, y->key.text) &&
           !slots_never_under(x, &set->policies[b].match) &&
           !slots_never_under(y, &set->policies[a].match);
}

/* An entry of b that crosses one of a, or NULL. */
static const struct weir__entry *slots_find_cross(const struct weir__policies *set, size_t a,
                                                  size_t b)
{
    for (size_t i = 0; i < set->policies[a].entry_count; i++) {
        for (size_t j = 0; j < set->policies[b].entry_count; j++) {
            if (slots_cross(set, a, i, b, j))
                return &set->policies[b].entries[j];
        }
    }
    return NULL;
}

/* An entry that grants less than its cost, or NULL. */
static const struct weir__entry *slots_find_least(const struct weir__policy *policy)
{
    for (size_t i = 0; i < policy->entry_count; i++) {
        const struct weir__entry *entry = &policy->entries[i];
        if (!entry->shadow && (entry->least.attribute >= 0 || entry->least.otherwise > 0))
            return entry;
    }
    return NULL;
}

/* Refuses a least where keys live in different slots. */
static void slots_refuse_least(struct weir__reader *reader, const struct weir__yaml_node *node,
                               const struct weir__policy *a, const struct weir__policy *b)
{
    const struct weir__entry *of_a = slots_find_least(a), *of_b = slots_find_least(b);
    if (of_a || of_b)
        weir__yaml_fail(reader->yaml, node,
                        "\"%s\" of \"%s\" has a least, which needs all keys of a request in one "
                        "slot of the cluster; give all limits one key, or leave out the least",
                        (of_a ? of_a : of_b)->name, (of_a ? a : b)->name);
}

static void slots_check_alone(struct weir__reader *reader, const struct weir__yaml_node *node,
                              size_t i)
{
    const struct weir__policy *policy = &reader->set->policies[i];
    const struct weir__entry *other = slots_find_cross(reader->set, i, i);
    if (other && policy->give_back)
        slots_refuse_least(reader, node, policy, policy);
    else if (other)
        weir__yaml_fail(reader->yaml, node,
                        "the keys of \"%s\" live in different slots of the cluster (\"%s\" has "
                        "another than those before it); add cross_slot: give-back, or give all "
                        "limits one key",
                        policy->name, other->name);
}

static void slots_check_pair(struct weir__reader *reader, const struct weir__yaml_node *node,
                             size_t i, size_t j)
{
    const struct weir__policy *a = &reader->set->policies[i], *b = &reader->set->policies[j];
    if (a->by_name || b->by_name || !weir__conditions_overlap(&a->match, &b->match) ||
        !slots_find_cross(reader->set, i, j))
        return;
    if (a->give_back && b->give_back)
        slots_refuse_least(reader, node, a, b);
    else
        weir__yaml_fail(reader->yaml, node,
                        "\"%s\" and \"%s\" may apply to one request, and their keys live in "
                        "different slots of the cluster; add cross_slot: give-back to both",
                        a->name, b->name);
}

static void slots_check(struct weir__reader *reader, const struct weir__yaml_node *policies)
{
    size_t j = 0;
    for (const struct weir__yaml_node *node = policies->child; node && !reader->yaml->code;
         node = node->next, j++) {
        slots_check_alone(reader, node, j);
        for (size_t i = 0; i < j && !reader->yaml->code; i++)
            slots_check_pair(reader, node, i, j);
    }
}

/* ---- reading ---- */

static void policies_read_version(struct weir__reader *reader, const struct weir__yaml_node *root)
{
    const struct weir__yaml_node *node = weir__yaml_get(root, "version");
    struct weir__span text = weir__yaml_text(reader->yaml, node, "version");
    if (!node)
        weir__yaml_fail(reader->yaml, root,
                        "the version is missing; begin the file with version: 1");
    else if (strcmp(text.data, "1"))
        weir__yaml_refuse(reader->yaml, node, "this weir reads version 1");
}

static int policies_compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct weir__policy *const *)a)->name,
                  (*(const struct weir__policy *const *)b)->name);
}

static void policies_read_all(struct weir__reader *reader, const struct weir__yaml_node *list)
{
    struct weir__policies *set = reader->set;
    size_t count = weir__yaml_count(list);
    if (count > WEIR__POLICIES_MAX)
        weir__yaml_fail(reader->yaml, list, "more than %d policies", WEIR__POLICIES_MAX);
    set->policies = weir__yaml_new(reader->yaml, count, sizeof(struct weir__policy));
    set->gates = weir__yaml_new(reader->yaml, count, sizeof(struct weir__gate));
    set->by_name = weir__yaml_new(reader->yaml, count, sizeof(struct weir__policy *));
    for (const struct weir__yaml_node *node = list->child; node && !reader->yaml->code;
         node = node->next) {
        struct weir__policy *policy = &set->policies[set->count];
        policy->index = (uint32_t)set->count;
        weir__read_policy(reader, node, policy);
        set->gates[set->count] = weir__gate_of(&policy->match);
        set->by_name[set->count++] = policy;
    }
    if (count > 0 && !reader->yaml->code)
        qsort(set->by_name, count, sizeof(struct weir__policy *), policies_compare_names);
}

static void policies_read_file(struct weir__reader *reader)
{
    static const char *const allowed[] = {
        "version", "headers", "trusted_proxies", "path_parameters", "tiers", "policies", NULL};
    static const char *const parameters[] = {"ignore", "keep", NULL};
    struct weir__yaml *yaml = reader->yaml;
    struct weir__policies *set = reader->set;
    const struct weir__yaml_node *root = yaml->root;
    const struct weir__yaml_node *trusted = weir__yaml_get(root, "trusted_proxies");
    const struct weir__yaml_node *list = weir__yaml_get(root, "policies");
    if (!weir__yaml_only(yaml, root, allowed))
        return;
    policies_read_version(reader, root);
    set->style = weir__read_style(reader, root, set->style);
    set->styled = weir__yaml_get(root, "headers") != NULL;
    set->attributes.keep_parameters =
        weir__yaml_get_word(yaml, root, "path_parameters", parameters, 0) == 1;
    if (trusted)
        weir__read_networks(reader, trusted, "trusted_proxies", &set->trusted, &set->trusted_count);
    weir__read_tiers(reader, weir__yaml_get(root, "tiers"));
    if (!list || list->type != WEIR__YAML_LIST)
        weir__yaml_fail(yaml, list ? list : root, "expected policies: and a list of them");
    else if (!list->child)
        weir__reader_warn(reader, list, "there are no policies: every request is allowed");
    if (!yaml->code)
        policies_read_all(reader, list);
    if (!yaml->code && set->cluster)
        slots_check(reader, list);
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
        struct weir__reader reader = {yaml, set};
        yaml->arena = &set->arena;
        yaml->becomes = "the policies";
        policies_read_file(&reader);
        code = yaml->code;
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

void weir__policies_set_secret(struct weir__policies *policies, const uint64_t secret[2])
{
    memcpy(policies->secret, secret, sizeof policies->secret);
    policies->keyed = true;
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
