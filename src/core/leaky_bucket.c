/* The leaky bucket's place in the table; what it decides stands in leaky_bucket.h. */
#include "core/leaky_bucket.h"
#include "core/algorithms.h"

void weir__leaky_bucket_judge(const struct weir__rule *rule, const struct weir__state *state,
                              const struct weir__request *request, weir_decision *ret)
{
    weir__leaky_bucket_decide(rule, state, request, ret);
}
