/* Whether a rule is within its bounds; its row says which they are. */
#include "limit/limit.h"

#include <string.h>

const char *weir__rule_check(struct weir__rule *rule)
{
    const char *flaw = weir__algorithm_of(rule)->flaw(rule);
    if (!flaw)
        weir__rule_derive(rule);
    return flaw;
}

/* What it prints must read as the same bytes again; whatever is out of bounds prints as text that
 * is refused or reads as something else. */
bool weir__rule_sound(const struct weir__rule *rule)
{
    if (rule->kind >= WEIR__KIND_COUNT)
        return false;
    struct weir__rule_text rule_text = weir__rule_text(rule);
    struct weir__rule read[WEIR_LIMITS_MAX];
    size_t count;
    return weir__rules_parse(rule_text.text, read, &count, NULL) == 0 &&
           !memcmp(read, rule, sizeof *rule);
}
