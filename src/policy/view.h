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

/* ---- addresses (address.c) ----
 *
 * What an address looks like to a client is many things; here it is one of two: IPv4, also where it
 * came mapped into IPv6 (::ffff:1.2.3.4), or IPv6. A zone (%eth0) and a port behind it are dropped.
 */

struct weir__address {
    uint8_t family; /* 4 or 6 */
    uint8_t bytes[16];
};

/* A network: an address whose bits behind the first `bits` are 0. */
struct weir__network {
    struct weir__address address;
    uint8_t bits;
};

/* "1.2.3.4", "1.2.3.4:80", "2001:db8::1", "fe80::1%eth0", "[2001:db8::1]:80"; false: none of these.
 * Numbers of IPv4 with leading zeros are refused: some read them as octal. */
bool weir__address_read(const char *text, size_t len, struct weir__address *ret);
/* An address or ADDRESS/BITS as a file says it: no ports, zones or mapped addresses, no bits set
 * behind the prefix. NULL, or what is wrong. */
const char *weir__network_read(const char *text, size_t len, struct weir__network *ret);
bool weir__network_has(const struct weir__network *network, const struct weir__address *address);
bool weir__networks_overlap(const struct weir__network *a, const struct weir__network *b);

/* As RFC 5952 has it: lower case, the longest run of zeros cut. */
void weir__put_address(struct weir__buffer *buffer, const struct weir__address *address);
/* The address, and /bits unless that is all of them. */
void weir__put_network(struct weir__buffer *buffer, const struct weir__network *network);
/* The network of an address that has so many bits. */
void weir__put_masked(struct weir__buffer *buffer, struct weir__address address, uint8_t bits4,
                      uint8_t bits6);

/* ---- hosts (normal.c); wire/path.h has paths ---- */

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

#define WEIR__IP_BITS4 32 /* what `ip` means by itself: one address of IPv4, one network of IPv6 */
#define WEIR__IP_BITS6 64
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
    bool needed; /* somewhere nothing stands in for it */
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

static inline struct weir__address weir__view_address(const struct weir__view *view, int attribute)
{
    struct weir__address address;
    __builtin_memcpy(&address, view->values[attribute].data, sizeof address);
    return address;
}

#endif
