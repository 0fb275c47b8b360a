/* What each algorithm offers the table in algorithms.c; those that share a part leave it out. */
#ifndef WEIR_ALGORITHMS_H
#define WEIR_ALGORITHMS_H

#include "core/core.h"

#define DECLARE(prefix)                                                                            \
    void prefix##_load(const struct weir__rule *, struct weir__state *, int64_t);                  \
    void prefix##_judge(const struct weir__rule *, const struct weir__state *,                     \
                        const struct weir__request *, weir_decision *);                            \
    void prefix##_charge(const struct weir__rule *, struct weir__state *,                          \
                         const struct weir__request *);                                            \
    void prefix##_report(const struct weir__rule *, const struct weir__state *, int64_t,           \
                         weir_decision *);                                                         \
    bool prefix##_settle(const struct weir__rule *, struct weir__state *,                          \
                         const struct weir__correction *);                                         \
    int64_t prefix##_fresh_at(const struct weir__rule *, const struct weir__state *);

DECLARE(weir__token_bucket)
DECLARE(weir__stepped)
DECLARE(weir__leaky_bucket)
DECLARE(weir__fixed_window)
DECLARE(weir__sliding_log)
DECLARE(weir__sliding_window)
DECLARE(weir__sliding_counter)
DECLARE(weir__guava)
DECLARE(weir__concurrent)

#undef DECLARE

#endif
