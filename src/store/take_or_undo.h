/*
 * Taking from several parts that no store can take from in one go: keys in different slots of a
 * cluster, limits in different zones. The parts are taken one after the other. Where one denies, or
 * cannot decide, everything that was taken before is given back: a request that is denied is
 * charged nothing.
 *
 *     parts[i] = (struct weir__part){.store = …, .requests = …, .count = …}
 *     taking = (struct weir__taking){.parts = parts, .count = n}
 *     weir__take_or_undo(&taking)     0, or the code of the part that could not decide
 *     taking.denied, parts[i].decision, the rows in the requests' details
 *
 * What holds:
 *   1. Parts behind the one that denies are peeked at, so every part has its decision.
 *   2. After a denial or a failure nothing is charged. One exception: what cannot be given back
 *      because the store went out of reach stays charged. This errs on the strict side, and the
 *      part's decision says so (charged).
 *   3. Between the first take and the last undo others may see the charge. `peek_first` makes that
 *      rare.
 */
#ifndef WEIR_TAKE_OR_UNDO_H
#define WEIR_TAKE_OR_UNDO_H

#include "store/store.h"

/* Requests that one store decides together, all or nothing. */
struct weir__part {
    weir_store *store;
    const weir_request *requests;
    size_t count;
    bool quota; /* its denial counts only once no other quota is left; see weir__taking */
    bool taken; /* out: charged, and not given back */
    weir_decision decision; /* out: all its rows in one */
};

struct weir__taking {
    struct weir__part *parts;
    size_t count;
    /* Quotas of the whole request that are not used up. A part that is a quota and denies takes
     * one away. */
    size_t quotas;
    /* In: it is denied already, so the parts are only peeked at. Out: whether it is denied. */
    bool denied;
    bool peek_first; /* look at all parts before any is charged, if there are several */
    /* How a part is decided, and how one of its requests is given back. NULL: as its store does it.
     * */
    int (*decide)(const struct weir__taking *taking, struct weir__part *part, enum weir__mode mode);
    int (*undo)(const struct weir__taking *taking, const struct weir__part *part,
                const weir_request *request);
    const void *context; /* for these two */
};

int weir__take_or_undo(struct weir__taking *taking);

/* Gives back what a request of a part that was taken was charged, as `limit` says it: its own, or
 * what it was replaced by when it was taken. The slot of a concurrent limit is released. 0 or a
 * code. */
int weir__part_give_back(const struct weir__part *part, const weir_request *request,
                         const weir_limit *limit);

/* Settles to nothing what a request that was granted this much at this time was charged, by each
 * limit beside the one that has leases: those with a cost of their own, too. 0 or the first
 * code. */
int weir__uncharge(weir_store *store, weir_key key, const weir_limit *limit, int64_t time_us,
                   int64_t granted, uint64_t id);

#endif
