/*
 * The sweep: finds rows that no live state needs, and frees them. Where nearly every row has live
 * states, those of the rows with the fewest go: whoever makes up limits by the thousand must not
 * shut out the others'.
 *
 *   COUNT    page by page: how many live states has each row?
 *   PIN      which rows are those of pinned rules?
 *   RETIRE   rows without live states (and if need be those with the fewest) are retired: their
 *            generation is odd, they are no longer found, and no state is written under them
 *   SCAN     page by page: fresh states of retired rows are emptied, and those of rows that must
 *            go. A row with live states stays retired: its limit gets another row and takes its
 *            states along, one by one
 *   FREE     retired rows that the whole scan found without states are free
 *
 * Nobody waits for a sweep. It goes on in portions, by those who make new rows. A step holds one
 * lock, and that for one page or some hundred rows. What a sweep knows is this process's own: one
 * that dies or stops keeps nobody from sweeping. Two processes may sweep at once. A row is freed
 * only if its generation is still that of the retirement. Rows that were retired, or half made, by
 * somebody who died are candidates of every later sweep.
 *
 * Why no state can name a free row: a state under a row is written while its stripe is locked,
 * after looking at the row's generation. (A swap without the lock needs a state of that row to be
 * there.) A scan locks every page's stripe after the retirement, so nothing comes behind it.
 */
#include "store/zone/rows.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#define EVICTED_SHARE 8  /* one row in so many is freed where all have live states */
#define DENIED_WEIGHT 8  /* one state that was denied weighs as much as so many that never were */
#define STEP_ROWS 512    /* looked at in a step */
#define COUNTED_AGAIN 64 /* pages at most, if it has been a while */
#define PAUSE_US 1000000 /* between the beginnings of two sweeps of a kind */

/* What is known of a row: while counting a weight, then one of the others. */
#define WEIGHT_MAX 0x3fff
#define PINNED 0xffff    /* never a candidate */
#define CANDIDATE 0x8000 /* retired: free unless SEEN */
#define EVICTED 0x4000   /* its states go, live or not */
#define SEEN 0x0001

enum sweep_stage { SWEEP_IDLE, SWEEP_COUNT, SWEEP_PIN, SWEEP_RETIRE, SWEEP_SCAN, SWEEP_FREE };

/* ---- one thread of this process at a time ---- */

/* The word holds the process's number: in a child that was forked while a thread of the parent was
 * at it, nobody is, and what that thread has left half done is forgotten. */
static bool sweep_claim(struct weir__zone *zone)
{
    struct weir__sweep *sweep = &zone->sweep;
    int32_t own = (int32_t)getpid(), owner = 0;
    if (atomic_compare_exchange_strong(&sweep->owner, &owner, own))
        return true;
    if (owner == own || !atomic_compare_exchange_strong(&sweep->owner, &owner, own))
        return false;
    sweep->stage = SWEEP_IDLE;
    return true;
}

static void sweep_release(struct weir__zone *zone)
{
    atomic_store_explicit(&zone->sweep.owner, 0, memory_order_release);
}

/* ---- beginning ---- */

/* Whether a pause is over; true also where the clock was set back. */
static bool sweep_is_due(int64_t last_us, int64_t now_us)
{
    return (uint64_t)now_us - (uint64_t)last_us >= PAUSE_US;
}

/* Memory for what is known of rows: verdicts, generations, and which were taken when it began. */
static bool sweep_has_room(struct weir__zone *zone)
{
    struct weir__sweep *sweep = &zone->sweep;
    uint32_t bits = weir__row_bits(zone);
    if (!sweep->verdicts)
        sweep->verdicts = malloc(bits * (2 * sizeof *sweep->verdicts) + bits / 8);
    if (!sweep->verdicts)
        return false;
    sweep->generations = sweep->verdicts + bits;
    sweep->known = (uint64_t *)(sweep->generations + bits);
    return true;
}

static bool sweep_begin(struct weir__zone *zone, int64_t now_us, enum weir__sweep_need need)
{
    struct weir__sweep *sweep = &zone->sweep;
    struct weir__zone_header *header = zone->header;
    if (need == WEIR__SWEEP_GO_ON || !sweep_has_room(zone) ||
        !weir__stripe_lock(zone, weir__rows_stripe(zone)))
        return false;
    bool due = need == WEIR__SWEEP_NOW ||
               sweep_is_due(
                   atomic_load(need == WEIR__SWEEP_SHORT ? &header->evicted_us : &header->swept_us),
                   now_us);
    if (due) {
        atomic_store(&header->swept_us, now_us);
        for (uint32_t word = 0; word < weir__row_bits(zone) / 64; word++)
            sweep->known[word] = weir__taken_word(zone, word);
    }
    weir__stripe_unlock(zone, weir__rows_stripe(zone));
    if (!due)
        return false;
    memset(sweep->verdicts, 0, weir__row_bits(zone) * sizeof *sweep->verdicts);
    sweep->stage = SWEEP_COUNT;
    sweep->cursor = 0;
    sweep->begun_us = now_us;
    sweep->forced = sweep->evicts = false;
    return true;
}

/* ---- pages: counting, scanning ---- */

/* The verdict on a state's row; NULL: nothing is to be known of it. */
static uint16_t *sweep_verdict(struct weir__zone *zone, struct weir__packed sealed)
{
    uint32_t row = weir__packed_row(zone, sealed);
    if (row == WEIR__MARK_ROW || !weir__row_place(zone, row))
        return NULL;
    return &zone->sweep.verdicts[weir__bit_of_row(zone, row)];
}

static bool sweep_is_live(const struct weir__zone *zone, uint64_t tag, struct weir__packed sealed)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    if (!weir__unpack(zone, tag, sealed, &rule, &state, &unit, &order))
        return weir__row_is_newer(zone, weir__packed_row(zone, sealed));
    return !weir__is_fresh(rule, &state, zone->sweep.now_us);
}

static void sweep_count_slot(struct weir__zone *zone, struct weir__group *group, unsigned slot)
{
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    uint16_t *weight = sweep_verdict(zone, sealed);
    if (!weight || *weight >= WEIGHT_MAX ||
        !sweep_is_live(zone, weir__slot_tag(group, slot), sealed))
        return;
    uint32_t sum = *weight + (weir__slot_denied(group, slot) ? DENIED_WEIGHT : 1u);
    *weight = (uint16_t)(sum < WEIGHT_MAX ? sum : WEIGHT_MAX);
}

static void sweep_scan_slot(struct weir__zone *zone, struct weir__group *group, unsigned slot)
{
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    uint16_t *verdict = sweep_verdict(zone, sealed);
    if (!verdict || *verdict == PINNED || !(*verdict & CANDIDATE))
        return;
    bool live = sweep_is_live(zone, weir__slot_tag(group, slot), sealed);
    if (*verdict & EVICTED) {
        uint32_t stripe = weir__stripe_of(zone, (uint32_t)(group - zone->groups));
        zone->stripes[stripe].counters[WEIR__EVICTED_UNUSED] += live;
        weir__slot_clear(zone, group, slot);
    } else if (live || !weir__slot_clear_if(zone, group, slot, sealed)) { /* charged meanwhile */
        *verdict |= SEEN;
    }
}

/* One page; false: its lock is held by somebody. */
static bool sweep_page(struct weir__zone *zone, uint64_t page,
                       void (*look)(struct weir__zone *, struct weir__group *, unsigned))
{
    uint32_t bits = zone->layout.page_bits;
    uint32_t stripe = weir__stripe_of(zone, (uint32_t)(page << bits));
    if (!weir__page_lock(zone, (uint32_t)(page << bits)))
        return false;
    for (uint64_t g = page << bits; g < (page + 1) << bits; g++) {
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(&zone->groups[g], slot))
                look(zone, &zone->groups[g], slot);
        }
    }
    weir__stripe_unlock(zone, stripe);
    return true;
}

/* ---- rows: pinning, choosing, retiring, freeing ---- */

/* The next rules that are pinned; false: that was all. */
static bool sweep_pin_some(struct weir__zone *zone)
{
    struct weir__sweep *sweep = &zone->sweep;
    uint64_t end = weir__min((int64_t)(sweep->cursor + STEP_ROWS), (int64_t)zone->pinned_count);
    for (; sweep->cursor < end; sweep->cursor++) {
        uint32_t generation;
        uint32_t row = weir__index_find(zone, &zone->pinned[sweep->cursor], &generation);
        if (row)
            sweep->verdicts[weir__bit_of_row(zone, row)] = PINNED;
    }
    return sweep->cursor < zone->pinned_count;
}

static bool sweep_knows(const struct weir__sweep *sweep, uint32_t bit)
{
    return sweep->known[bit / 64] >> bit % 64 & 1;
}

/* Whether a row with live states may go for those that need one. Leases never go, nor does what
 * only a newer weir understands; with full=deny nobody does. */
static bool sweep_may_evict(const struct weir__zone *zone, uint32_t bit, const bool wanted[2])
{
    uint32_t row = weir__row_of_bit(zone, bit);
    const struct weir__rule *rule = weir__row_at(zone, row);
    if (zone->keeps || weir__row_is_newer(zone, row) || (rule && weir__algorithm_of(rule)->leases))
        return false;
    return (wanted[0] && weir__row_suits(zone, row, false)) ||
           (wanted[1] && weir__row_suits(zone, row, true));
}

/* How many live states a row may have and must still go, and how many such rows do. */
static void sweep_choose(struct weir__zone *zone)
{
    enum { WEIGHTS = 256 }; /* heavier ones are alike */
    struct weir__sweep *sweep = &zone->sweep;
    const bool wanted[2] = {weir__rows_are_short(zone, false), weir__rows_are_short(zone, true)};
    uint32_t rows[WEIGHTS] = {0}, dead = 0, suitable = 0;
    sweep->lightest = sweep->quota = 0;
    sweep->wanted[0] = wanted[0];
    sweep->wanted[1] = wanted[1];
    if ((!wanted[0] && !wanted[1]) ||
        (!sweep->forced && !sweep_is_due(atomic_load(&zone->header->evicted_us), sweep->now_us)))
        return;
    for (uint32_t bit = 1; bit < weir__row_bits(zone); bit++) {
        uint16_t weight = sweep->verdicts[bit];
        if (!sweep_knows(sweep, bit) || weight > WEIGHT_MAX || !sweep_may_evict(zone, bit, wanted))
            continue;
        suitable++;
        dead += weight == 0;
        rows[weight < WEIGHTS ? weight : WEIGHTS - 1]++;
    }
    uint32_t goal = suitable / EVICTED_SHARE + 1, sum = dead;
    while (sum < goal && sweep->lightest < WEIGHTS - 1)
        sum += rows[++sweep->lightest];
    sweep->quota = goal > dead ? goal - dead : 0;
    if (sweep->lightest == WEIGHTS - 1)
        sweep->lightest = WEIGHT_MAX;
}

/* Retires a row, or finds it retired. */
static void sweep_retire(struct weir__zone *zone, uint32_t bit)
{
    struct weir__sweep *sweep = &zone->sweep;
    uint16_t weight = sweep->verdicts[bit];
    uint32_t row = weir__row_of_bit(zone, bit);
    struct weir__rule *place = weir__row_place(zone, row);
    if (weight > WEIGHT_MAX || !place)
        return;
    uint32_t generation = weir__row_generation(zone, row);
    bool evicted = weight > 0 && weight <= sweep->lightest && sweep->quota > 0 &&
                   sweep_may_evict(zone, bit, sweep->wanted);
    sweep->quota -= evicted; /* also if it is retired: others who sweep choose the same rows */
    sweep->evicts |= evicted;
    if (generation % 2 == 0) {
        if (weight > 0 && !evicted)
            return;
        weir__row_set_generation(place, ++generation);
        weir__index_remove(zone, place, row);
    }
    sweep->generations[bit] = (uint16_t)generation;
    sweep->verdicts[bit] = evicted ? CANDIDATE | EVICTED : CANDIDATE;
}

static void sweep_free(struct weir__zone *zone, uint32_t bit)
{
    const struct weir__sweep *sweep = &zone->sweep;
    uint16_t verdict = sweep->verdicts[bit];
    bool unused = verdict != PINNED && verdict & CANDIDATE && !(verdict & SEEN);
    if (unused &&
        weir__row_generation(zone, weir__row_of_bit(zone, bit)) == sweep->generations[bit])
        weir__row_set_taken(zone, bit, false);
}

/* The next rows that are taken and were when the sweep began; false: their lock is held by
 * somebody. */
static bool sweep_rows(struct weir__zone *zone, void (*change)(struct weir__zone *, uint32_t))
{
    struct weir__sweep *sweep = &zone->sweep;
    uint32_t bits = weir__row_bits(zone);
    if (!weir__stripe_lock(zone, weir__rows_stripe(zone)))
        return false;
    for (unsigned n = 0; n < STEP_ROWS && sweep->cursor < bits; n++, sweep->cursor++) {
        uint32_t bit = (uint32_t)sweep->cursor;
        if (sweep_knows(sweep, bit) && weir__row_is_taken(zone, bit))
            change(zone, bit);
    }
    weir__stripe_unlock(zone, weir__rows_stripe(zone));
    return true;
}

/* ---- going on ---- */

static void sweep_enter(struct weir__sweep *sweep, enum sweep_stage stage)
{
    sweep->stage = stage;
    sweep->cursor = 0;
}

/* One step; false: a lock is held by somebody. */
static bool sweep_step(struct weir__zone *zone)
{
    struct weir__sweep *sweep = &zone->sweep;
    bool done = true;
    switch ((enum sweep_stage)sweep->stage) {
    case SWEEP_IDLE:
        break;
    case SWEEP_COUNT:
        done = sweep_page(zone, sweep->cursor, sweep_count_slot);
        if (done && ++sweep->cursor == zone->layout.pages)
            sweep_enter(sweep, SWEEP_PIN);
        break;
    case SWEEP_PIN:
        if (!sweep_pin_some(zone)) {
            sweep_choose(zone);
            sweep_enter(sweep, SWEEP_RETIRE);
        }
        break;
    case SWEEP_RETIRE:
        done = sweep_rows(zone, sweep_retire);
        if (sweep->cursor >= weir__row_bits(zone))
            sweep_enter(sweep, SWEEP_SCAN);
        break;
    case SWEEP_SCAN:
        done = sweep_page(zone, sweep->cursor, sweep_scan_slot);
        if (done && ++sweep->cursor == zone->layout.pages)
            sweep_enter(sweep, SWEEP_FREE);
        break;
    case SWEEP_FREE:
        done = sweep_rows(zone, sweep_free);
        if (sweep->cursor >= weir__row_bits(zone)) {
            sweep_enter(sweep, SWEEP_IDLE);
            if (sweep->evicts) /* at the end: one cut short does not count */
                atomic_store(&zone->header->evicted_us, sweep->now_us);
            atomic_fetch_add(&zone->header->sweeps, 1);
        }
        break;
    }
    return done;
}

/* Whether what was counted is old, in a zone that is counted again in no time. */
static bool sweep_is_outdated(const struct weir__zone *zone, int64_t now_us)
{
    const struct weir__sweep *sweep = &zone->sweep;
    return (sweep->stage == SWEEP_COUNT || sweep->stage == SWEEP_PIN) &&
           zone->layout.pages <= COUNTED_AGAIN && sweep_is_due(sweep->begun_us, now_us);
}

bool weir__sweep_help(struct weir__zone *zone, int64_t now_us, enum weir__sweep_need need,
                      unsigned steps)
{
    struct weir__sweep *sweep = &zone->sweep;
    if (!sweep_claim(zone))
        return false;
    if (sweep_is_outdated(zone, now_us))
        sweep->stage = SWEEP_IDLE;
    bool any = sweep->stage != SWEEP_IDLE || sweep_begin(zone, now_us, need);
    sweep->now_us = now_us; /* of each portion: to an older one newer states would be nonsense */
    sweep->forced = any && (sweep->forced || need == WEIR__SWEEP_NOW);
    for (unsigned i = 0; i < steps && any && sweep->stage != SWEEP_IDLE; i++)
        any = sweep_step(zone);
    sweep_release(zone);
    return any;
}

void weir__sweep_swap_pinned(struct weir__zone *zone, struct weir__rule **rules, size_t *n)
{
    while (!sweep_claim(zone))
        sched_yield(); /* a thread of ours makes a few steps */
    struct weir__rule *old = zone->pinned;
    size_t old_count = zone->pinned_count;
    zone->pinned = *rules;
    zone->pinned_count = *n;
    *rules = old;
    *n = old_count;
    if (zone->sweep.stage == SWEEP_PIN || zone->sweep.stage == SWEEP_RETIRE)
        sweep_enter(&zone->sweep, SWEEP_PIN); /* what is retired by now stays so */
    sweep_release(zone);
}
