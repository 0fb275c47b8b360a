/*
 * What a Redis Cluster asks of a file: keys that one request takes together live in one slot, which those
 * with the same key form do, or their policies agree to give back what was taken before a denial.
 */
#include "policy/reader.h"

#include <string.h>

/* An enforced entry of b whose key form is not the first one's of a, or NULL. */
static const struct weir__entry *other_form(const struct weir__policy *a,
                                            const struct weir__policy *b)
{
    const char *form = NULL;
    for (size_t i = 0; i < a->entry_count && !form; i++)
        form = a->entries[i].shadow ? NULL : a->entries[i].key_text;
    for (size_t i = 0; form && i < b->entry_count; i++) {
        if (!b->entries[i].shadow && strcmp(b->entries[i].key_text, form))
            return &b->entries[i];
    }
    return NULL;
}

static int check_alone(const struct weir__reader *reader, const struct weir__yaml_node *node,
                       const struct weir__policy *policy)
{
    const struct weir__entry *other = policy->give_back ? NULL : other_form(policy, policy);
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
        !other_form(a, b) ||
        !weir__conditions_overlap(&set->bodies[i].match, &set->bodies[j].match))
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
        int code = check_alone(reader, node, &reader->set->policies[j]);
        for (size_t i = 0; i < j && code == 0; i++)
            code = check_pair(reader, node, i, j);
        if (code)
            return code;
    }
    return 0;
}
