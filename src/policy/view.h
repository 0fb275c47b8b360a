/*
 * A request's attributes as a set of policies sees them: each asked for once at most, in its one spelling.
 *
 * Attributes are named in files by an expression: NAME, lower(NAME), ip(NAME). All that a set names are
 * numbered; a view has a place for each.
 */
#ifndef WEIR_VIEW_H
#define WEIR_VIEW_H

#include "policy/address.h"
#include "policy/arena.h"
#include "policy/policy.h"

#define WEIR__ATTRIBUTES_MAX 64
#define WEIR__ATTRIBUTE_NAME_MAX 64
#define WEIR__VALUE_MAX 65536    /* bytes of an attribute's value */
#define WEIR__VIEW_SCRATCH 16384 /* bytes of values that had to be rewritten, all together */

enum weir__spelling {
    WEIR__AS_IT_IS,
    WEIR__AS_PATH,
    WEIR__AS_HOST,
    WEIR__AS_ADDRESS, /* the value is a struct weir__address */
};

struct weir__attribute {
    const char *name; /* what the request is asked for */
    size_t name_len;
    const char *text; /* the expression, in one spelling */
    enum weir__spelling spelling;
    bool lower;
};

struct weir__attributes {
    struct weir__attribute items[WEIR__ATTRIBUTES_MAX];
    size_t count;
};

/* The number of the attribute that an expression names, a new one if need be. -1: *ret_wrong says why; ""
 * is out of memory. */
int weir__attribute_read(struct weir__attributes *attributes, struct weir__arena *arena,
                         const char *text, size_t len, const char **ret_wrong);

/* Whether the server fills it in by itself. */
bool weir__attribute_known(const struct weir__attribute *attribute);

struct weir__view {
    const struct weir__attributes *attributes;
    const struct weir__subject *subject;
    uint64_t asked, present; /* a bit an attribute */
    int too_long;            /* an attribute that could not be taken in, or -1 */
    size_t used;
    struct weir__span values[WEIR__ATTRIBUTES_MAX];
    char scratch[WEIR__VIEW_SCRATCH];
};

void weir__view_begin(struct weir__view *view, const struct weir__attributes *attributes,
                      const struct weir__subject *subject);
bool weir__view_ask(struct weir__view *view, int attribute);

/* Whether the request has the attribute; then view->values[attribute] is it. An address that cannot be
 * read is none. */
static inline bool weir__view_has(struct weir__view *view, int attribute)
{
    uint64_t bit = UINT64_C(1) << attribute;
    if (WEIR__LIKELY(view->asked & bit))
        return view->present & bit;
    return weir__view_ask(view, attribute);
}

static inline struct weir__address weir__view_address(const struct weir__view *view, int attribute)
{
    struct weir__address address;
    __builtin_memcpy(&address, view->values[attribute].data, sizeof address);
    return address;
}

#endif
