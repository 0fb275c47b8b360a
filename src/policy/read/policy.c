/* One policy of a file, and what a Redis Cluster asks of all of them. */
#include "policy/read/reader.h"

#include <string.h>

/* What only a policy with limits has a use for. */
static const char *const limit_keys[] = {"key",       "cost",  "shadow",     "missing",
                                         "overrides", "allow", "cross_slot", NULL};

static int policy_read_name(struct weir__reader *reader, const struct weir__yaml_node *map,
                            size_t index)
{
    struct weir__policies *set = reader->set;
    const struct weir__yaml_node *node = weir__yaml_get(map, "name");
    if (!node)
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "a policy needs a name, which is a part of its keys; add name: api");
    int code = weir__read_name(reader, node, "a policy's name", &set->policies[index].name);
    for (size_t i = 0; i < index && code == 0; i++) {
        if (!strcmp(set->policies[i].name, set->policies[index].name))
            code = weir__reader_fail(reader, node, "two policies have this name");
    }
    return code;
}

static int policy_read_match(struct weir__reader *reader, const struct weir__yaml_node *node,
                             struct weir__policy_body *body)
{
    static const char *const words[] = {"any", "by-name", NULL};
    if (node && node->type != WEIR__YAML_SCALAR)
        return weir__read_conditions(reader, node, &body->match);
    int word = 0;
    int code =
        weir__read_word(reader, node, "match (unless it is a map of attributes)", words, &word);
    body->by_name = word == 1;
    return code;
}

static int policy_read_words(struct weir__reader *reader, const struct weir__yaml_node *map,
                             struct weir__policy *policy)
{
    static const char *const fails[] = {"local", "open", "closed", NULL};
    static const char *const crosses[] = {"refuse", "give-back", NULL};
    int fail = WEIR__FAIL_LOCAL, cross = 0;
    int64_t status = WEIR__DENY_STATUS;
    policy->style = reader->set->style;
    policy->styled = reader->set->styled || weir__yaml_get(map, "headers");
    int code = weir__read_word(reader, weir__yaml_get(map, "fail"), "fail", fails, &fail);
    if (code == 0)
        code = weir__read_word(reader, weir__yaml_get(map, "cross_slot"), "cross_slot", crosses,
                               &cross);
    if (code == 0)
        code = weir__read_style(reader, weir__yaml_get(map, "headers"), &policy->style);
    if (code == 0)
        code = weir__read_number(reader, weir__yaml_get(map, "deny_status"), "deny_status", 400,
                                 499, &status);
    policy->deny_status = (int)status;
    policy->fail = (enum weir__redis_fail)fail;
    policy->give_back = cross == 1;
    return code;
}

/* Whether it limits at all; a policy may also just deny. */
static int policy_check_use(const struct weir__reader *reader, const struct weir__yaml_node *map,
                            const struct weir__policy *policy, bool limited)
{
    const struct weir__yaml_node *limit = weir__yaml_get(map, "limit");
    const struct weir__yaml_node *tier = weir__yaml_get(map, "tier");
    if (weir__yaml_get(map, "limits") && (limit || tier))
        return weir__yaml_fail(reader->yaml, limit ? limit : tier, reader->err,
                               "\"%s\" has limit and limits; put the single one into the list",
                               policy->name);
    if (limited)
        return 0;
    if (!weir__yaml_get(map, "deny"))
        return weir__yaml_fail(reader->yaml, map, reader->err,
                               "\"%s\" has no limit; add limit: token-bucket 100/s, or limits: for "
                               "several",
                               policy->name);
    for (size_t i = 0; limit_keys[i]; i++) {
        const struct weir__yaml_node *node = weir__yaml_get(map, limit_keys[i]);
        if (node)
            return weir__yaml_fail(reader->yaml, node, reader->err,
                                   "%s without a limit in \"%s\"; add limit: token-bucket 100/s",
                                   limit_keys[i], policy->name);
    }
    return 0;
}

static int policy_read_lists(struct weir__reader *reader, const struct weir__yaml_node *map,
                             struct weir__policy_body *body)
{
    const struct weir__yaml_node *deny = weir__yaml_get(map, "deny");
    bool shadow = false;
    int code = weir__read_any_of(reader, deny, "deny", &body->deny);
    if (code == 0)
        code = weir__read_any_of(reader, weir__yaml_get(map, "allow"), "allow", &body->allow);
    if (code == 0)
        code = weir__read_bool(reader, weir__yaml_get(map, "shadow"), "shadow", &shadow);
    if (code == 0 && shadow && deny)
        code = weir__yaml_fail(reader->yaml, deny, reader->err,
                               "deny is enforced, and shadow: true says that nothing is; put one "
                               "of them into another policy");
    return code;
}

static int policy_put_match_text(struct weir__reader *reader, struct weir__policy *policy,
                                 const struct weir__policy_body *body)
{
    char room[512];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    if (body->by_name)
        weir__put_text(&buffer, "asked for by name");
    else if (body->match.count == 0)
        weir__put_text(&buffer, "every request");
    weir__put_conditions(&buffer, &body->match, &reader->set->attributes);
    policy->match_text = weir__arena_text(&reader->set->arena, room, buffer.len);
    return policy->match_text ? 0 : weir__reader_no_memory(reader);
}

int weir__read_policy(struct weir__reader *reader, const struct weir__yaml_node *map, size_t index)
{
    static const char *const allowed[] = {
        "name",    "match",   "key",        "limit",       "tier",      "limits",
        "cost",    "deny",    "allow",      "shadow",      "overrides", "fail",
        "missing", "headers", "cross_slot", "deny_status", NULL};
    struct weir__policy *policy = &reader->set->policies[index];
    struct weir__policy_body *body = &reader->set->bodies[index];
    bool limited = weir__yaml_get(map, "limit") || weir__yaml_get(map, "tier") ||
                   weir__yaml_get(map, "limits");
    policy->index = (uint32_t)index;
    int code = weir__yaml_only(reader->yaml, map, allowed, reader->err);
    if (code == 0)
        code = policy_read_name(reader, map, index);
    if (code == 0)
        code = policy_check_use(reader, map, policy, limited);
    if (code == 0)
        code = policy_read_match(reader, weir__yaml_get(map, "match"), body);
    if (code == 0)
        code = policy_read_words(reader, map, policy);
    if (code == 0)
        code = policy_read_lists(reader, map, body);
    if (code == 0 && limited)
        code = weir__read_entries(reader, map, policy, body);
    return code ? code : policy_put_match_text(reader, policy, body);
}

/* ---- slots of a cluster ---- */

/* Keys that one request takes together live in one slot, which those with the same key form do, or
 * their policies agree to give back what was taken before a denial. */
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
static bool slots_never_under(const struct weir__entry_body *entry,
                              const struct weir__conditions *match)
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
    return !x->shadow && !y->shadow && strcmp(x->key_text, y->key_text) &&
           !slots_never_under(&set->bodies[a].entries[i], &set->bodies[b].match) &&
           !slots_never_under(&set->bodies[b].entries[j], &set->bodies[a].match);
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

static int slots_check_alone(const struct weir__reader *reader, const struct weir__yaml_node *node,
                             size_t i)
{
    const struct weir__policy *policy = &reader->set->policies[i];
    const struct weir__entry *other =
        policy->give_back ? NULL : slots_find_cross(reader->set, i, i);
    if (!other)
        return 0;
    return weir__yaml_fail(reader->yaml, node, reader->err,
                           "the keys of \"%s\" live in different slots of the cluster (\"%s\" has "
                           "another than those before it); add cross_slot: give-back, or give all "
                           "limits one key",
                           policy->name, other->name);
}

static int slots_check_pair(const struct weir__reader *reader, const struct weir__yaml_node *node,
                            size_t i, size_t j)
{
    const struct weir__policies *set = reader->set;
    const struct weir__policy *a = &set->policies[i], *b = &set->policies[j];
    if ((a->give_back && b->give_back) || set->bodies[i].by_name || set->bodies[j].by_name ||
        !weir__conditions_overlap(&set->bodies[i].match, &set->bodies[j].match) ||
        !slots_find_cross(set, i, j))
        return 0;
    return weir__yaml_fail(reader->yaml, node, reader->err,
                           "\"%s\" and \"%s\" may apply to one request, and their keys live in "
                           "different slots of the cluster; add cross_slot: give-back to both",
                           a->name, b->name);
}

int weir__check_slots(const struct weir__reader *reader, const struct weir__yaml_node *policies)
{
    size_t j = 0;
    for (const struct weir__yaml_node *node = policies->child; node; node = node->next, j++) {
        int code = slots_check_alone(reader, node, j);
        for (size_t i = 0; i < j && code == 0; i++)
            code = slots_check_pair(reader, node, i, j);
        if (code)
            return code;
    }
    return 0;
}
