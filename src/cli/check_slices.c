/* Which limits of a file are sliced by the store that will be used, and which are not but lose the
 * withheld part all the same. */
#include "cli/check.h"

#define SEVERAL "a request under several limits is always asked"
#define WITH_LEAST "a request with a least is always asked"

/* Shadow limits are decided each by itself, and in a cluster so are those of give-back. */
static bool slices_are_alone(const struct weir__policies *set, const struct weir__policy *policy,
                             const struct weir__entry *entry)
{
    size_t enforced = 0;
    for (size_t i = 0; i < policy->entry_count; i++)
        enforced += !policy->entries[i].shadow;
    return entry->shadow || enforced <= 1 || (set->cluster && policy->give_back);
}

struct cli_slice_use cli_slice_use_of_entry(const struct weir__slicing *slicing,
                                            const struct weir__policies *set,
                                            const struct weir__policy *policy,
                                            const struct weir__entry *entry)
{
    const struct weir__cost *cost = &entry->cost;
    struct cli_slice_use use = {.slicing = slicing, .cost = cost->otherwise};
    if (cost->attribute >= 0)
        use.cost = weir__max(1, cost->least);
    if (entry->least.attribute >= 0 || entry->least.otherwise > 0)
        use.why = WITH_LEAST;
    else if (!slices_are_alone(set, policy, entry))
        use.why = SEVERAL;
    return use;
}

struct cli_slice_use cli_slice_use_of_item(const struct weir__slicing *slicing,
                                           const struct weir__plan *plan,
                                           const struct weir__item *item)
{
    bool enforced = item >= plan->enforced && item < plan->enforced + plan->enforced_count;
    struct cli_slice_use use = {.slicing = slicing, .cost = item->cost};
    if (item->least)
        use.why = WITH_LEAST;
    else if (enforced && plan->enforced_count > 1 && plan->together != WEIR__APART)
        use.why = SEVERAL;
    return use;
}

void cli_check_slices_note(const struct weir__slicing *slicing, const struct weir__policies *set)
{
    size_t matching = 0;
    for (size_t i = 0; i < set->count; i++)
        matching += !set->policies[i].by_name;
    if (slicing && matching > 1)
        printf("\nnote: a request that several policies apply to takes several limits, and is\n"
               "always asked of Redis. --request says what one takes.\n");
    const char *why = slicing ? weir__slicing_note(slicing) : NULL;
    char text[256];
    if (!why)
        return;
    snprintf(text, sizeof text, "note: %s", why);
    putchar('\n');
    cli_print_wrapped(text, 0);
}
