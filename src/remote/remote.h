/* The redis:// store: what its files share. */
#ifndef WEIR_REMOTE_H
#define WEIR_REMOTE_H

#include "remote/ask.h"
#include "store/store.h"

#include <sys/types.h>

struct weir__remote {
    weir_store base;
    struct weir__redis_url url;
    struct weir__fleet *fleet;     /* of the process `owner` */
    weir_store *local;             /* fail=local: the stand-in's zone; NULL otherwise */
    _Atomic pid_t owner;           /* whose process fleet and local are */
    _Atomic pid_t reviver;         /* whose process one thread is making them anew for */
    pthread_mutex_t lock;          /* for the text only */
    char refusal[WEIR__ERROR_MAX]; /* the last reply that ended in an error code */
};

static inline struct weir__remote *weir__remote_of(weir_store *store)
{
    return (struct weir__remote *)store;
}

/* open.c: makes fleet and stand-in of this process, after open and in a child. 0 or a code. */
int weir__remote_revive(struct weir__remote *remote);

/* ---- fallback.c: while no server decides ---- */

/* What decides in the servers' place. `rows` has room for all limits, or is NULL. */
int weir__fallback_decide(struct weir__remote *remote, const weir_request *requests, size_t n,
                          enum weir__mode mode, weir_decision *ret);
/* Leases that the stand-in gave. 0, WEIR_ENOLEASE, or WEIR_EUNREACHABLE without a stand-in. */
int weir__fallback_lease(struct weir__remote *remote, weir_key key, const weir_limit *limit,
                         uint64_t lease, enum weir__lease_verb verb);
void weir__fallback_reset(struct weir__remote *remote, weir_key key);
/* A limit's share of one of `peers`, at least 1: over all peers no more than the larger of the
 * limit and their number. */
void weir__share(const weir_limit *limit, int32_t peers, weir_limit *ret);

extern const struct weir__engine weir__remote_engine;

#endif
