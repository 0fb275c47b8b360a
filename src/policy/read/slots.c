/*
 * What a Redis Cluster asks of a file: keys that one request takes together live in one slot, which those
 * with the same key form do, or their policies agree to give back what was taken before a denial.
 */
#include "policy/read/reader.h"

#include <string.h>

/* Whether a request that has no such attribute is all that a policy applies to. */
static bool wants_absent(const struct weir__conditions *match, int attribute)
{
    for (size_t i = 0; i < match->count; i++) {
        const struct weir__condition *item = &match->items[i];
        if (item->attribute == attribute && item->negated && item->any)
            return true;
    }
    return false;
}

/* Whether an entry's key cannot be made where another policy applies. */
static bool never_under(const struct weir__entry_body *entry, const struct weir__conditions *match)
{
    for (size_t i = 0; i < entry->key.count; i++) {
        int attribute = entry->key.parts[i].attribute;
        if (attribute >= 0 && entry->missing != WEIR__MISSING_EMPTY &&
            wants_absent(match, attribute))
            return true;
    }
    return false;
}

/* Whether two entries, both enforced, may be taken by one request under keys of different forms. */
static bool cross(const struct weir__policies *set, size_t a, size_t i, size_t b, size_t j)
{
    const struct weir__entry *x = &set->policies[a].entries[i], *y = &set->policies[b].entries[j];
    return !x->shadow && !y->shadow && strcmp(x->key_text, y->key_text) &&
           !never_under(&set->bodies[a].entries[i], &set->bodies[b].match) &&
           !never_under(&set->bodies[b].entries[j], &set->bodies[a].match);
}

/* An entry of b that crosses one of a, or NULL. */
static const struct weir__entry *find_cross(const struct weir__policies *set, size_t a, size_t b)
{
    for (size_t i = 0; i < set->policies[a].entry_count; i++) {
        for (size_t j = 0; j < set->policies[b].entry_count; j++) {
            if (cross(set, a, i, b, j))
                return &set->policies[b].entries[j];
        }
    }
    return NULL;
}

static int check_alone(const struct weir__reader *reader, const struct weir__yaml_node *node,
                       size_t i)
{
    const struct weir__policy *policy = &reader->set->policies[i];
    const struct weir__entry *other = policy->give_back ? NULL : find_cross(reader->set, i, i);
    if (!other)
        return 0;
    return weir__yaml_fail(reader->yaml, node, reader->err,
                           "the keys of \"%s\" live in different slots of the cluster (\"%s\" has "
                           "another than those before it); add cross_slot: give-back, or give all "
                           "limits one key",
                           policy->name, other->name);
}

static int check_pair(const struct weir__reader *reader, const struct weir__yaml_node *node,
                      size_t i, size_t j)
{
    const struct weir__policies *set = reader->set;
    const struct weir__policy *a = &set->policies[i], *b = &set->policies[j];
    if ((a->give_back && b->give_back) || set->bodies[i].by_name || set->bodies[j].by_name ||
        !weir__conditions_overlap(&set->bodies[i].match, &set->bodies[j].match) ||
        !find_cross(set, i, j))
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
        int code = check_alone(reader, node, j);
        for (size_t i = 0; i < j && code == 0; i++)
            code = check_pair(reader, node, i, j);
        if (code)
            return code;
    }
    return 0;
}
