/*
 * The short cut of weir_take for the commonest case: one limit whose row says `quick`, its state in its home
 * group, written under the same rule. The same steps as zone/apply.c with nothing in between, worth a good
 * third of the time (bench/: hot-allowed). Whatever is unusual goes the long way, untouched.
 */
#include "core/bucket.h"
#include "store/zone/zone.h"

bool weir__zone_take_quick(struct weir__zone *zone, const struct weir__op *op)
{
    assert(weir__algorithm_of(op->rule)->quick);
    struct weir__group *group = &zone->groups[op->home];
    uint32_t stripe = weir__stripe_of(zone, op->home);
    if (WEIR__UNLIKELY(!weir__stripe_lock(zone, stripe)))
        return false; /* the long way says so */
    unsigned slot = 0;
    while (slot < WEIR__SLOTS &&
           (weir__slot_tag(group, slot) != op->tag || weir__slot_row(zone, group, slot) != op->row))
        slot++;
    uint32_t sweeps = atomic_load_explicit(&zone->header->sweeps, memory_order_relaxed);
    if (WEIR__UNLIKELY(slot == WEIR__SLOTS || (sweeps & WEIR__SWEEPS_MASK) != op->sweeps))
        goto long_way;

    uint32_t generation = weir__row_generation(zone, op->row);
    struct weir__packed packed =
        weir__seal(weir__load16(&group->states[slot]), op->tag, generation);
    struct weir__state state = {
        .present = true, .at = weir__packed_at(packed), .amount = weir__packed_amount(packed)};
    if (WEIR__UNLIKELY(state.at * weir__tick_us(op->rule) - op->request.now_us >
                       op->rule->horizon_us))
        goto long_way;
    weir__bucket_load(op->rule, &state, op->request.now_us);
    weir_decision *ret = op->ret; /* filled in place: a copy of fresh stores stalls for 20 ns */
    *ret = (weir_decision){.time_us = op->request.now_us};
    weir__bucket_judge(op->rule, &state, &op->request, ret);
    if (ret->allowed && op->request.cost > 0) {
        weir__bucket_charge(op->rule, &state, &op->request);
        ret->charged = op->request.cost;
        weir__store16(
            &group->states[slot],
            weir__seal(weir__pack_amount(op->row, state.at, state.amount), op->tag, generation));
        weir__slot_touch(group, slot);
    }
    weir__stripe_unlock(zone, stripe);
    weir__bucket_report(op->rule, &state, op->request.now_us, ret);
    return true;

long_way:
    weir__stripe_unlock(zone, stripe);
    return false;
}
