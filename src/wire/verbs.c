/* See verbs.h. */
#include "wire/verbs.h"

#include <string.h>

enum { LUA = WEIR__VERB_LUA, MODULE = WEIR__VERB_MODULE, RESP = WEIR__VERB_RESP };
enum { HTTP = WEIR__VERB_HTTP };

#define X(constant, number, family, word, keys, caller, homes)                                     \
    [number] = {family word, word, WEIR__VERB_##keys, WEIR__VERB_##caller, homes},
const struct weir__verb_facts weir__verbs[WEIR__VERB_COUNT] = {WEIR__VERBS(X)};
#undef X

/* Numbers are given in order, without gaps: the table has no empty row. */
enum {
#define X(constant, ...) VERB_AT_##constant,
    WEIR__VERBS(X)
#undef X
};
#define X(constant, number, ...) _Static_assert(VERB_AT_##constant == (number), "numbers in order");
WEIR__VERBS(X)
#undef X

bool weir__verb_of_name(const char *name, size_t len, enum weir__verb *ret)
{
    if (WEIR__LIKELY(len == 9 &&
                     (!memcmp(name, "WEIR.TAKE", 9) || !memcmp(name, "weir.take", 9)))) {
        *ret = WEIR__VERB_TAKE; /* nearly every command, as nearly everybody writes it */
        return true;
    }
    for (int verb = 0; verb < WEIR__VERB_COUNT; verb++) {
        const char *known = weir__verbs[verb].name;
        size_t i = 0; /* letter by letter: one call per name would take longer */
        while (i < len && known[i] &&
               (name[i] == known[i] ||
                (name[i] >= 'A' && name[i] <= 'Z' && (name[i] | 32) == known[i])))
            i++;
        if (i == len && !known[i]) {
            *ret = (enum weir__verb)verb;
            return true;
        }
    }
    return false;
}

bool weir__verb_of_word(const char *word, size_t len, enum weir__verb *ret)
{
    for (int verb = 0; verb < WEIR__VERB_COUNT; verb++) {
        const char *known = weir__verbs[verb].word;
        if (strlen(known) == len && !memcmp(known, word, len)) {
            *ret = (enum weir__verb)verb;
            return true;
        }
    }
    return false;
}
