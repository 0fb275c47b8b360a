/*
 * The slot among the peers, which a process needs to hold slices: one key and one limit for
 * library, server and nginx, and why a process has no slot.
 *
 * The limit is `concurrent PEERS lease 10s`. Keys of callers are texts, and do not begin with a
 * zero byte by accident.
 */
#ifndef WEIR_SLOT_H
#define WEIR_SLOT_H

#include "remote/query.h"

struct weir__job;

static inline weir_key weir__slot_key(void)
{
    static const char key[] = "\0weir:slices";
    return weir_key_bytes(key, sizeof key - 1);
}

#define WEIR__SLOT_LIFE_US                                                                         \
    INT64_C(9900000) /* from before it was asked for: a bit below the lease */
#define WEIR__SLOT_RENEW_US INT64_C(3000000) /* how often it is renewed */
#define WEIR__SLOT_RETRY_US INT64_C(1000000) /* and tried again where there was none */

/* 0 or a code. */
int weir__slot_limit(int32_t peers, weir_limit **ret, weir_error *err);

/* ---- why no slices are taken although a key was hot ---- */

enum weir__trouble {
    WEIR__TROUBLE_NONE,
    WEIR__TROUBLE_PEERS,       /* as many processes as there are peers have a slot */
    WEIR__TROUBLE_UNREACHABLE, /* the server of the slots does not answer */
    WEIR__TROUBLE_REFUSED,     /* it does, but says something else */
    WEIR__TROUBLE_LEAST,       /* the module is older than LEAST */
    WEIR__TROUBLES
};

/* What became of the last try to get a slot. Log, metric and statistics read it from here. It stays
 * true, because who has trouble tries again until there is none, also if no key is hot any more.
 * Plain memory, also shared: its user has a lock. */
struct weir__slot_try {
    enum weir__trouble trouble;
    char said[WEIR__ERROR_MAX]; /* by the server, or empty */
};

/* A job that acquires was answered, or was not. True: it has a slot. */
bool weir__slot_tried(struct weir__slot_try *it, const struct weir__job *job);

/* A word for metrics; NULL for none. */
const char *weir__trouble_name(enum weir__trouble trouble);

#define WEIR__TROUBLE_MAX 512
/* For logs and people; empty for none. `said`: by the server, where it refuses. */
void weir__trouble_text(enum weir__trouble trouble, const char *said, char ret[WEIR__TROUBLE_MAX]);

#endif
