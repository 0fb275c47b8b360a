/*
 * The key of an entry: its shape in a file, and its text for a request,
 *
 *     POLICY/ENTRY/{NAME=VALUE,…}     login/per-user/{user=ann}
 *     POLICY/{NAME=VALUE,…}           api/{user=ann,ip=10.1.2.0/24}: entry named as its policy
 *
 * What holds: different entries and different values have different keys, whatever the values are.
 * All that means something here is escaped in values (%XX); hash(NAME)=… has 16 digits of a keyed
 * hash in place of it; a value over WEIR__KEY_VALUE_MAX bytes becomes its beginning, '~' and its
 * SHA-1, and if what stands in the braces is still longer than WEIR__KEY_PARTS_MAX, that becomes
 * its beginning, '~~' and its SHA-1. What stands in the braces is what a Redis Cluster places keys
 * by, so that entries with the same key form share a slot.
 */
#ifndef WEIR_KEYS_H
#define WEIR_KEYS_H

#include "policy/plan.h"
#include "policy/view.h"

#define WEIR__POLICY_NAME_MAX 64
#define WEIR__KEY_FORM_MAX 8 /* attributes and constants a key */
#define WEIR__KEY_VALUE_MAX 128
#define WEIR__KEY_PARTS_MAX 256
/* All that a key may take: two names, slashes, braces, parts, a NUL. */
#define WEIR__KEY_ROOM (2 * WEIR__POLICY_NAME_MAX + WEIR__KEY_PARTS_MAX + 8)
_Static_assert(3 * WEIR__ENTRIES_MAX * WEIR__KEY_ROOM <= WEIR__PLAN_KEYS_ROOM,
               "a plan has room for the keys of all its entries");

struct weir__key_part {
    int attribute;        /* -1: a constant */
    bool hashed;          /* hash(…): its value stands in the key by a hash under a secret */
    const char *text;     /* "user=", or the constant, escaped */
    uint8_t bits4, bits6; /* of addresses */
};

struct weir__key_form {
    const struct weir__key_part *parts;
    size_t count;
    const char *text; /* in one spelling: "user, ip/24/64" */
};

/* Writes a request's key. An attribute that is missing or empty counts as empty if `empty`, and
 * otherwise ends it: false. Values of hash(…) are hashed by the secret; without one (NULL) they are
 * "?". */
bool weir__put_key(struct weir__buffer *buffer, const char *policy, const char *entry,
                   const struct weir__key_form *form, bool empty, const uint64_t *secret,
                   struct weir__view *view);

/* What means something where a text stands, and so is written %XX; control characters are so
 * everywhere. The last three are Envoy's (envoy/match.c). */
enum weir__place {
    WEIR__IN_POLICY_KEY = 1,
    WEIR__IN_ENVOY_NAME = 2,
    WEIR__IN_ENVOY_VALUE = 4,
    WEIR__IN_ENVOY_PATTERN = 8,
};
void weir__put_escaped(struct weir__buffer *buffer, struct weir__span text, enum weir__place place);

#endif
