/* Takes without a lock, where the stages of a limit are called (zone/take.h). */
#include "store/zone/take.h"

bool weir__take_see_far(const struct weir__zone *zone, const struct weir__take_ask *ask,
                        struct weir__take_seen *ret)
{
    uint32_t far = weir__group_far(ask->home), home = (uint32_t)(ask->home - zone->groups);
    for (uint32_t d = 1; d <= far; d++) {
        if (weir__take_see(ask, false, weir__group_at(zone, home, ask->tag, d), ret))
            return true;
    }
    return false;
}

int weir__take_any(struct weir__zone *zone, const struct weir__take_ask *ask, weir_decision *ret)
{
    return weir__take_known(zone, ask, false, ret);
}

int weir__zone_take_free(struct weir__zone *zone, const struct weir__op *op, enum weir__mode mode)
{
    struct weir__take_ask ask = {
        .tag = op->tag, .home = &zone->groups[op->home], .request = op->request, .mode = mode};
    if (!weir__take_prepare(zone, op->rule, op->row, op->generation, &ask.under))
        return WEIR__LOCKED;
    ask.cover = weir__take_cover(&ask.under, op->tag);
    return weir__take_any(zone, &ask, op->ret);
}
