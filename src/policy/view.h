/*
 * A request's attributes as a set of policies sees them: each asked for once at most, in its one
 * spelling.
 *
 * Attributes are named in files by an expression: NAME, lower(NAME), ip(NAME). All that a set names
 * are numbered; a view has a place for each.
 */
#ifndef WEIR_VIEW_H
#define WEIR_VIEW_H

#include "base/buffer.h"
#include "base/span.h"
#include "policy/arena.h"
#include "wire/address.h"
#include "wire/path.h"

/* ---- subjects ---- */

/* What a request says of itself: an attribute's value by its name ("ip", "method", "path", "host",
 * "user", "header.x-api-key", any name that a caller sends), names as weir__attribute_fold spells
 * them. Each is asked for once at most, and its bytes must stay as they are until the plan is made.
 * UNUSABLE: the request has it in a way that cannot be told from a way around (twice, with
 * different values); ret->data is what is wrong, a text that stays ("was sent twice"), and there is
 * no plan. */
enum weir__found { WEIR__ABSENT, WEIR__FOUND, WEIR__UNUSABLE };

struct weir__subject {
    enum weir__found (*find)(const void *context, const char *name, size_t len,
                             struct weir__span *ret);
    const void *context;
};

/* ---- hosts (normal.c); wire/path.h has paths, wire/address.h addresses ---- */

/* In lower case, without port and closing dots. The answer is a part of the text, or written to
 * room. NULL, or what is wrong: there is not enough room, or it is no host. */
const char *weir__normal_host(struct weir__span text, char *room, size_t size,
                              struct weir__span *ret);
/* In lower case (ASCII). The answer likewise; false: there is not enough room. */
bool weir__normal_lower(struct weir__span text, char *room, size_t size, struct weir__span *ret);
/* NULL, or why no host in its one spelling matches this pattern. Where ret_right is not empty then,
 * it is the right spelling; room has len + 1 bytes for it. */
const char *weir__normal_host_pattern(struct weir__span text, char *room,
                                      struct weir__span *ret_right);

/* ---- attributes (view.c) ---- */

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
    bool needed;   /* somewhere nothing stands in for it */
    bool counted;  /* a key or a cost is made of it */
    unsigned uses; /* how often the file has the expression */
};

struct weir__attributes {
    struct weir__attribute items[WEIR__ATTRIBUTES_MAX];
    size_t count;
    bool keep_parameters; /* of paths: what follows a ; in a segment */
};

/* Names of HTTP fields and of what every request has are the same in any case: "Header.X-Api-Key"
 * becomes "header.x-api-key", "Path" becomes "path", in place. Names reach find() in this spelling
 * only, so everything that takes a request's attributes in spells them by this. */
void weir__attribute_fold(char *name, size_t len);

/* The number of the attribute that an expression names, a new one if need be. -1: *ret_wrong says
 * why; "" is out of memory. */
int weir__attribute_read(struct weir__attributes *attributes, struct weir__arena *arena,
                         const char *text, size_t len, const char **ret_wrong);

/* Whether the server fills it in by itself. */
bool weir__attribute_known(const struct weir__attribute *attribute);
/* What the file perhaps means by attribute i, which callers would have to send: one that the server
 * fills in, or, if its name stands in the file once, another of the file. NULL: what it says. */
const char *weir__attribute_meant(const struct weir__attributes *attributes, size_t i);

/* One attribute of a request as a key by itself: in its one spelling, an address as `key: ip` has
 * it. The value is a part of the request's, or written to room. */
enum weir__found weir__attribute_text(const struct weir__subject *subject, struct weir__span name,
                                      char *room, size_t size, struct weir__span *ret);

struct weir__view {
    const struct weir__attributes *attributes;
    const struct weir__subject *subject;
    uint64_t asked, present; /* a bit an attribute */
    int wrong;               /* an attribute that could not be taken in, or -1 */
    const char *why;         /* then: "is too long" */
    struct weir__span said;  /* then: its value */
    size_t used;
    struct weir__span values[WEIR__ATTRIBUTES_MAX];
    char scratch[WEIR__VIEW_SCRATCH];
};

void weir__view_begin(struct weir__view *view, const struct weir__attributes *attributes,
                      const struct weir__subject *subject);
bool weir__view_ask(struct weir__view *view, int attribute);

/* Whether the request has the attribute; then view->values[attribute] is it. One that cannot be
 * read, an address that is none or an empty one, is not there either, but sets view->wrong: a
 * request is refused for it, since otherwise a client could choose not to have what it is limited
 * by. */
static inline bool weir__view_has(struct weir__view *view, int attribute)
{
    uint64_t bit = UINT64_C(1) << attribute;
    if (WEIR__LIKELY(view->asked & bit))
        return view->present & bit;
    return weir__view_ask(view, attribute);
}

/* A value that could not be read does not matter after all, unless it is asked for again. */
static inline void weir__view_forgive(struct weir__view *view)
{
    if (view->wrong >= 0)
        view->asked &= ~(UINT64_C(1) << view->wrong);
    view->wrong = -1;
}

static inline struct weir__address weir__view_address(const struct weir__view *view, int attribute)
{
    struct weir__address address;
    __builtin_memcpy(&address, view->values[attribute].data, sizeof address);
    return address;
}

#endif
