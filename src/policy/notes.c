/* What is no mistake in a policy file, but hardly meant. */
#include "policy/policy.h"

#include <string.h>

#define NOTE_NAMED 3               /* overrides in one note */
#define NOTE_WHEN_MAX 160          /* bytes of the conditions of one */
#define NOTE_COMPARED_MAX 10000000 /* patterns; what is left then is not looked at */

bool weir__same_states(const weir_limit *a, const weir_limit *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++)
        same = weir__rule_same_state(&a->rules[i], &b->rules[i]);
    return same;
}

/* A misspelt attribute is always missing: a limit or an override does not apply, unnoticed. */
static bool note_put_meant(struct weir__buffer *out, const struct weir__attributes *attributes,
                           size_t i)
{
    const char *meant = weir__attribute_meant(attributes, i);
    if (meant)
        weir__put_format(out,
                         "note: the attribute \"%s\" looks misspelt (did you mean %s?). If no "
                         "caller sends it, it is always missing",
                         attributes->items[i].name, meant);
    return meant != NULL;
}

/* Where an override is, and for whom: "line 9 (customer is bob)". */
static void note_put_override(struct weir__buffer *out, const struct weir__policies *policies,
                              const struct weir__override *override)
{
    char when[NOTE_WHEN_MAX];
    struct weir__buffer buffer = weir__buffer_over(when, sizeof when);
    weir__put_conditions(&buffer, &override->when, &policies->attributes);
    weir__put_format(out, "line %d (%s)", override->line, when);
}

/* An override of another state gives a fresh start, which is seldom meant. */
static bool note_put_fresh(struct weir__buffer *out, const struct weir__policies *policies,
                           const struct weir__policy *policy, const struct weir__entry *entry)
{
    const struct weir__override *first[NOTE_NAMED];
    size_t count = 0;
    for (size_t i = 0; i < entry->override_count; i++) {
        if (weir__same_states(entry->limit, entry->overrides[i].limit))
            continue;
        if (count < NOTE_NAMED)
            first[count] = &entry->overrides[i];
        count++;
    }
    if (count == 0)
        return false;
    weir__put_format(out,
                     "note: %zu override%s of %s, limit %s, %s another algorithm, period, "
                     "precision, zone or anchor than the limit itself, so whom it applies to "
                     "starts from a fresh state: ",
                     count, count == 1 ? "" : "s", policy->name, entry->name,
                     count == 1 ? "has" : "have");
    for (size_t i = 0; i < count && i < NOTE_NAMED; i++) {
        weir__put_text(out, i > 0 ? ", " : "");
        note_put_override(out, policies, first[i]);
    }
    if (count > NOTE_NAMED)
        weir__put_format(out, " and %zu other%s", count - NOTE_NAMED,
                         count == NOTE_NAMED + 1 ? "" : "s");
    return true;
}

/* An override behind one that matches all that it matches is never reached. */
static bool note_put_hidden(struct weir__buffer *out, const struct weir__policies *policies,
                            const struct weir__policy *policy, const struct weir__entry *entry,
                            size_t i, size_t *compared)
{
    const struct weir__override *it = &entry->overrides[i], *before = entry->overrides;
    size_t left = NOTE_COMPARED_MAX - *compared;
    while (before < it && !weir__conditions_within(&it->when, &before->when, &left))
        before++;
    *compared = NOTE_COMPARED_MAX - left;
    if (before == it)
        return false;
    weir__put_format(out, "note: the override of %s, limit %s, in ", policy->name, entry->name);
    note_put_override(out, policies, it);
    weir__put_text(out, " never applies: that in ");
    note_put_override(out, policies, before);
    weir__put_text(out, " comes first and matches the same requests. Overrides are tried in order: "
                        "put the narrower one first");
    return true;
}

/* How narrow an override is: first by what it says of what keys are made of, as each value of that
 * has a state of its own, then by how many conditions it has. */
static size_t note_narrowness(const struct weir__override *override,
                              const struct weir__policies *policies,
                              const struct weir__entry *entry)
{
    size_t ranks = 0;
    for (size_t i = 0; i < override->when.count; i++) {
        const struct weir__condition *it = &override->when.items[i];
        const char *name = policies->attributes.items[it->attribute].name;
        bool keyed = false;
        for (size_t j = 0; j < entry->key.count && !keyed; j++) {
            int part = entry->key.parts[j].attribute;
            keyed = part >= 0 && !strcmp(policies->attributes.items[part].name, name);
        }
        if (!it->any || it->negated)
            ranks += keyed ? WEIR__CONDITIONS_MAX + 1 : 1;
    }
    return ranks;
}

static size_t note_patterns(const struct weir__override *override)
{
    size_t sum = 1;
    for (size_t i = 0; i < override->when.count; i++)
        sum += override->when.items[i].pattern_count + override->when.items[i].network_count;
    return sum;
}

/* The override before one that takes requests from it, although it is less narrow; NULL: none. One
 * that is hidden as a whole has a note of its own. */
static const struct weir__override *note_find_late(const struct weir__policies *policies,
                                                   const struct weir__entry *entry, size_t i,
                                                   size_t *left)
{
    const struct weir__override *it = &entry->overrides[i], *found = NULL;
    const size_t narrow = note_narrowness(it, policies, entry);
    for (const struct weir__override *before = entry->overrides; before < it; before++) {
        const size_t cost = note_patterns(it) * note_patterns(before);
        if (cost > *left || weir__conditions_within(&it->when, &before->when, left))
            return NULL;
        *left -= weir__min((int64_t)cost, (int64_t)*left);
        if (!found && strcmp(weir_limit_text(it->limit), weir_limit_text(before->limit)) != 0 &&
            note_narrowness(before, policies, entry) < narrow &&
            weir__conditions_overlap(&it->when, &before->when))
            found = before;
    }
    return found;
}

/* An override behind a wider one that matches some of its requests: they get the wider one. */
static bool note_put_late(struct weir__buffer *out, const struct weir__policies *policies,
                          const struct weir__policy *policy, const struct weir__entry *entry,
                          size_t *compared)
{
    const struct weir__override *before = NULL;
    size_t left = NOTE_COMPARED_MAX - *compared, count = 0, first = 0;
    for (size_t i = 1; i < entry->override_count; i++) {
        const struct weir__override *found = note_find_late(policies, entry, i, &left);
        if (found && count++ == 0) {
            before = found;
            first = i;
        }
    }
    *compared = NOTE_COMPARED_MAX - left;
    if (count == 0)
        return false;
    weir__put_format(out, "note: the override of %s, limit %s, in ", policy->name, entry->name);
    note_put_override(out, policies, &entry->overrides[first]);
    weir__put_text(out, " does not apply where that in ");
    note_put_override(out, policies, before);
    weir__put_text(out, " does, which comes first");
    if (count > 1)
        weir__put_format(out, "; likewise %zu other%s", count - 1, count == 2 ? "" : "s");
    weir__put_text(out, ". Overrides are tried in order: put the narrower one first");
    return true;
}

bool weir__policies_note(const struct weir__policies *policies, struct weir__note_at *at,
                         struct weir__buffer *out)
{
    while (at->attribute < policies->attributes.count) {
        if (note_put_meant(out, &policies->attributes, at->attribute++))
            return true;
    }
    for (; at->policy < policies->count; at->policy++, at->entry = 0) {
        const struct weir__policy *policy = &policies->policies[at->policy];
        for (; at->entry < policy->entry_count; at->entry++, at->step = 0) {
            const struct weir__entry *entry = &policy->entries[at->entry];
            while (at->step <= entry->override_count + 1) {
                size_t step = at->step++;
                if (step == 0 ? note_put_fresh(out, policies, policy, entry)
                    : step > entry->override_count
                        ? note_put_late(out, policies, policy, entry, &at->compared)
                        : note_put_hidden(out, policies, policy, entry, step - 1, &at->compared))
                    return true;
            }
        }
    }
    return false;
}
