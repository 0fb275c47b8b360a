/*
 * A world in one clock: processes that slice a limit (the library's pools), a network that delays
 * and loses, and a server that decides with the library's core, as Redis does. Nothing is real but
 * the code under test, and everything follows from one seed.
 *
 *     process: spend ─► ask ─► network ─► server: load, judge, charge, settle ─► network ─► answer
 *
 * The program that includes this says what happens to the world, and is told of every
 * admission: world_admitted.
 */
#ifndef WEIR_WORLD_H
#define WEIR_WORLD_H

#include "../unit/core_rig.h"
#include "remote/pool.h"

#define PROCESSES_MAX 12
#define WAITING_MAX 2048
#define CLASSES 2
#define LEASE_US (10 * SECOND)
#define SLOT_US (LEASE_US - 100000)
#define RENEW_US (3 * SECOND)
#define DEADLINE_US 50000

/* Mistakes that somebody could build in. The checker must find each. */
enum mistake {
    RIGHT,
    UNREDUCED,        /* Redis is asked at the whole size */
    GREEDY,           /* held and asked are together more than h */
    FROM_ANSWER,      /* lives, windows and slots counted from when the answer came */
    NO_SLOT,          /* slices without a slot among the peers */
    KEPT,             /* given back, and spent all the same */
    PAST_WINDOW,      /* spent after the end of the window */
    LATE_ANSWER,      /* an answer counts after its call was given up */
    LATE_RETURN,      /* it is given back instead */
    UNCOUNTED_RETURN, /* what is on its way back does not count as held */
    MISTAKES
};
static const char *const mistakes[MISTAKES] = {
    "none", "unreduced",   "greedy",      "from-answer", "no-slot",
    "kept", "past-window", "late-answer", "late-return", "uncounted-return",
};

/* What the network does to a message. */
struct network {
    int64_t least_us, most_us; /* one way */
    int slow, lost;            /* in a thousand */
    int64_t slow_us;           /* at most */
    int64_t return_us;         /* at most, for what is given back */
};

/* CORRECT: a caller settles what it was admitted. */
enum verb { SLICE, TAKE, SETTLE, CORRECT, ACQUIRE, RENEW, RELEASE };

struct message {
    enum verb verb;
    int process, class;
    uint32_t birth; /* of that process */
    int64_t cost, withheld, deadline_us;
    struct weir__pool_call call;
    struct weir__pool_return back;
    int64_t admitted_us, charged_us, actual; /* CORRECT */
    uint64_t lease;
    int64_t sent_us; /* of the process */
    weir_decision row;
};

enum event_kind { ARRIVE, TICK, REFILL, AT_SERVER, AT_PROCESS, PLAN };

struct event {
    int64_t at_us;
    uint64_t order;
    enum event_kind kind;
    int process;
    struct message message;
};

struct waiting {
    int64_t cost, deadline_us;
    int class;
};

struct process {
    struct weir__pools *pools;
    uint32_t birth;
    int64_t offset_us; /* of its clock */
    int64_t paused_until_us;
    bool gone;       /* it does not come back */
    int64_t slot_us; /* of its clock */
    uint64_t lease;
    int64_t acquire_us, renew_us; /* when next, 0: it was sent */
    struct waiting waiting[WAITING_MAX];
    size_t waits;
};

struct world {
    uint64_t seed, orders;
    int64_t now_us;
    enum mistake mistake;
    struct event *heap;
    size_t events, room;
    /* the limit */
    struct weir__slicing slicing;
    struct weir__rule rules[CLASSES];
    struct weir__slice_terms terms[CLASSES];
    bool sliced[CLASSES];
    /* the server */
    struct rig rig, slots;
    int64_t down_until_us;
    int settles; /* so many in a thousand admissions are corrected later */
    struct network network;
    /* the others */
    int count;
    struct process processes[PROCESSES_MAX];
    /* what happened */
    uint64_t local, denied, central, calls, arrivals, returns;
    int64_t admitted, returned, lost;
};

/* By the program: an admission at a time of the server, and what the server was charged. */
static void world_admitted(struct world *world, int64_t time_us, int64_t cost, bool local);
static void world_charged(struct world *world, int64_t time_us, int64_t charged_at_us,
                          int64_t cost);
/* What was admitted then has become less. */
static void world_corrected(struct world *world, int64_t time_us, const struct message *message);
/* How much a process asks for at once; what happens to the world now. */
static void world_arrive(struct world *world, int process);
static void world_plan(struct world *world, const struct event *event);

/* ---- chance and time ---- */

static int64_t world_below(struct world *world, int64_t n)
{
    return (int64_t)(weir__random_next(&world->seed) % (uint64_t)n);
}

static int64_t world_between(struct world *world, int64_t least, int64_t most)
{
    return least + world_below(world, most - least + 1);
}

static bool world_chance(struct world *world, int of_1000)
{
    return world_below(world, 1000) < of_1000;
}

static bool event_before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void world_push(struct world *world, struct event event)
{
    if (world->events == world->room) {
        world->room = world->room ? 2 * world->room : 1024;
        world->heap = realloc(world->heap, world->room * sizeof *world->heap);
    }
    event.order = world->orders++;
    size_t i = world->events++;
    for (; i > 0 && event_before(&event, &world->heap[(i - 1) / 2]); i = (i - 1) / 2)
        world->heap[i] = world->heap[(i - 1) / 2];
    world->heap[i] = event;
}

static struct event world_pop(struct world *world)
{
    struct event first = world->heap[0], last = world->heap[--world->events];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < world->events; i = child) {
        if (child + 1 < world->events && event_before(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!event_before(&world->heap[child], &last))
            break;
        world->heap[i] = world->heap[child];
    }
    world->heap[i] = last;
    return first;
}

static void world_in(struct world *world, int64_t in_us, enum event_kind kind, int process)
{
    world_push(world,
               (struct event){.at_us = world->now_us + in_us, .kind = kind, .process = process});
}

static int64_t process_now(const struct world *world, int process)
{
    return world->now_us + world->processes[process].offset_us;
}

/* ---- network ---- */

/* A return arrives in time or never: that much docs/SLICES.md supposes. */
static void world_send(struct world *world, const struct message *message, enum event_kind to)
{
    struct network *network = &world->network;
    int64_t delay = world_between(world, network->least_us, network->most_us);
    if (world_chance(world, network->slow))
        delay += world_below(world, network->slow_us);
    if (message->verb == SETTLE && network->return_us > 0)
        delay += world_below(world, network->return_us);
    if (message->verb == SETTLE && to == AT_SERVER)
        delay = weir__min(delay, WEIR__POOL_DOUBT_US - 1);
    if (world_chance(world, network->lost))
        return;
    world_push(world, (struct event){.at_us = world->now_us + delay,
                                     .kind = to,
                                     .process = message->process,
                                     .message = *message});
}

static struct message process_message(const struct world *world, int process, enum verb verb)
{
    return (struct message){.verb = verb,
                            .process = process,
                            .birth = world->processes[process].birth,
                            .sent_us = process_now(world, process)};
}

/* ---- the server ---- */

/* A charge of at most `cost` and at least `least`, as the module does it. */
static weir_decision server_take(struct rig *rig, int64_t now_us, int64_t cost, int64_t least)
{
    if (least && least < cost) {
        struct weir__state state = rig_load(rig, now_us);
        cost = weir__max(least, weir__min(cost, weir__left(&rig->rule, &state, now_us)));
    }
    return take(rig, now_us, cost, 0);
}

static void server_charge(struct world *world, struct message *message, int64_t now_us)
{
    struct weir__rule rule = world->rules[message->class];
    int64_t withheld = world->mistake == UNREDUCED ? 0 : message->withheld;
    bool slice = message->verb == SLICE;
    world->calls++;
    message->row = (weir_decision){.retry_after_us = WEIR_NEVER, .time_us = now_us};
    if (withheld >= weir__algorithm_of(&rule)->most(&rule))
        return;
    weir__rule_withhold(&rule, withheld);
    world->rig.rule = rule;
    message->row = server_take(&world->rig, now_us, slice ? message->call.cost : message->cost,
                               slice ? message->call.least : 0);
    if (message->row.allowed)
        world_charged(world, now_us, now_us, message->row.charged);
}

static void server_settle(struct world *world, const struct message *message, int64_t now_us)
{
    world->rig.rule = world->rules[message->class];
    world->returns++;
    settle(&world->rig, now_us, message->back.time_us, message->back.left, 0);
    world_charged(world, now_us, message->back.time_us, -message->back.left);
}

static void server_correct(struct world *world, const struct message *message, int64_t now_us)
{
    world->rig.rule = world->rules[message->class];
    settle(&world->rig, now_us, message->charged_us, message->cost, message->actual);
    world_corrected(world, now_us, message);
}

/* The slots of the peers: an acquire, a renewal or a release of the same limit by the core. */
static void server_slot(struct world *world, struct message *message, int64_t now_us)
{
    struct weir__state state = rig_load(&world->slots, now_us);
    bool done = true;
    if (message->verb == ACQUIRE) {
        weir_decision row = peek(&world->slots, now_us, 1, DEFAULT);
        done = row.allowed;
        if (done)
            weir__lease_acquire(&world->slots.rule, &state, 1, message->lease);
    } else if (message->verb == RENEW) {
        done = weir__lease_renew(&world->slots.rule, &state, message->lease);
    } else {
        done = weir__lease_release(&state, message->lease);
    }
    message->row.allowed = done;
    if (done)
        rig_store(&world->slots, &state);
}

static void server_handle(struct world *world, struct message *message)
{
    int64_t now_us = T0 + world->now_us;
    if (world->now_us < world->down_until_us)
        return; /* the connection is reset: no answer */
    switch (message->verb) {
    case SLICE:
    case TAKE:
        server_charge(world, message, now_us);
        break;
    case SETTLE:
        server_settle(world, message, now_us);
        break;
    case CORRECT:
        server_correct(world, message, now_us);
        break;
    case ACQUIRE:
    case RENEW:
    case RELEASE:
        server_slot(world, message, now_us);
        break;
    }
    world_send(world, message, AT_PROCESS);
}

/* ---- a process ---- */

static struct weir__pool_now pool_time(const struct world *world, int process)
{
    int64_t now_us = process_now(world, process), slot_us = world->processes[process].slot_us;
    if (world->mistake == NO_SLOT)
        slot_us = now_us + SLOT_US;
    return (struct weir__pool_now){now_us, slot_us, world->slicing.life_us};
}

static struct weir__pool *process_pool(struct world *world, int process, int class,
                                       int64_t *ret_withheld)
{
    struct weir__pools *pools = world->processes[process].pools;
    weir_key key = {"hot", 3};
    uint64_t tag[2];
    weir__pools_tag(pools, key, &world->rules[class], tag);
    return weir__pools_place(pools, tag, key, &world->rules[class], &world->terms[class],
                             process_now(world, process), ret_withheld);
}

/* The pool there is, of whatever class. */
static struct weir__pool *process_pools(struct world *world, int process)
{
    struct weir__pools *pools = world->processes[process].pools;
    for (size_t i = 0; i < WEIR__POOLS_WAYS; i++) {
        if (pools->pools[i].tag[0] || pools->pools[i].tag[1])
            return &pools->pools[i];
    }
    return NULL;
}

static int pool_class(const struct world *world, const struct weir__pool *pool)
{
    return pool->size == world->terms[0].size ? 0 : 1;
}

static bool process_ask(struct world *world, int process, struct weir__pool *pool, int64_t need)
{
    struct weir__pool_now now = pool_time(world, process);
    struct message message = process_message(world, process, SLICE);
    int64_t most = pool->most;
    if (world->mistake == GREEDY)
        pool->most += weir__pool_held(pool, now.now_us);
    bool asked = weir__pool_ask(pool, &now, need, now.now_us + DEADLINE_US, &message.call);
    pool->most = most;
    if (!asked)
        return false;
    message.class = pool_class(world, pool);
    message.withheld = pool->withheld;
    world_send(world, &message, AT_SERVER);
    return true;
}

static void process_wait(struct world *world, int process, struct waiting caller)
{
    struct process *it = &world->processes[process];
    if (it->waits < WAITING_MAX)
        it->waiting[it->waits++] = caller;
}

static void process_ask_centrally(struct world *world, int process, struct waiting caller,
                                  int64_t withheld)
{
    struct message message = process_message(world, process, TAKE);
    message.cost = caller.cost;
    message.class = caller.class;
    message.withheld = withheld;
    message.deadline_us = caller.deadline_us;
    world->central++;
    world_send(world, &message, AT_SERVER);
}

/* Some of what was admitted turns out to cost less; charged_us: what its receipt says. */
static void process_correct(struct world *world, int process, struct waiting caller,
                            int64_t admitted_us, int64_t charged_us)
{
    struct message message = process_message(world, process, CORRECT);
    if (!world_chance(world, world->settles))
        return;
    message.class = caller.class;
    message.cost = caller.cost;
    message.actual = world_below(world, caller.cost);
    message.admitted_us = admitted_us;
    message.charged_us = charged_us;
    world_send(world, &message, AT_SERVER);
}

static void process_take(struct world *world, int process, struct waiting caller)
{
    int64_t withheld = 0;
    struct weir__pool_now now = pool_time(world, process);
    struct weir__pool *pool = NULL;
    weir_decision row;
    bool refill = false;
    if (now.now_us >= caller.deadline_us)
        return; /* its local fallback decides */
    if (world->sliced[caller.class])
        pool = process_pool(world, process, caller.class, &withheld);
    if (!pool) {
        process_ask_centrally(world, process, caller, withheld);
        return;
    }
    switch (weir__pool_spend(pool, &now, caller.cost, &row, &refill)) {
    case WEIR__SPEND_LOCAL:
        world->local++;
        world_admitted(world, T0 + world->now_us, caller.cost, true);
        process_correct(world, process, caller, T0 + world->now_us, row.time_us);
        break;
    case WEIR__SPEND_DENIED:
        world->denied++;
        assert(row.retry_after_us > 0 && !row.allowed);
        break;
    case WEIR__SPEND_REFILL:
        if (process_ask(world, process, pool, caller.cost))
            process_wait(world, process, caller);
        else
            process_ask_centrally(world, process, caller, withheld);
        break;
    case WEIR__SPEND_JOIN:
        process_wait(world, process, caller);
        break;
    case WEIR__SPEND_ASK:
        process_ask_centrally(world, process, caller, withheld);
        break;
    }
    if (refill) {
        pool->queued = true;
        world_in(world, world_below(world, 50), REFILL, process);
    }
}

static void process_serve_waiting(struct world *world, int process)
{
    struct process *it = &world->processes[process];
    struct waiting callers[WAITING_MAX];
    size_t n = it->waits;
    memcpy(callers, it->waiting, n * sizeof *callers);
    it->waits = 0;
    for (size_t i = 0; i < n; i++)
        process_take(world, process, callers[i]);
}

/* Whether a grant without a place in the pool's own books: what mistakes make of late answers. */
static void pool_force(struct weir__pool *pool, int64_t left, int64_t end_us, int64_t time_us)
{
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++) {
        if (pool->grants[i].left == 0) {
            pool->grants[i] = (struct weir__grant){left, end_us, end_us, time_us};
            return;
        }
    }
}

static void process_send_back(struct world *world, int process, const struct weir__pool *pool,
                              const struct weir__pool_return *back)
{
    struct message message = process_message(world, process, SETTLE);
    message.class = pool_class(world, pool);
    message.back = *back;
    world_send(world, &message, AT_SERVER);
}

static void process_late(struct world *world, int process, struct weir__pool *pool,
                         const struct message *message)
{
    int64_t now_us = process_now(world, process);
    world->lost += message->row.granted;
    if (world->mistake == LATE_ANSWER)
        pool_force(pool, message->row.granted, now_us + world->slicing.life_us,
                   message->row.time_us);
    if (world->mistake == LATE_RETURN)
        process_send_back(world, process, pool,
                          &(struct weir__pool_return){.left = message->row.granted,
                                                      .time_us = message->row.time_us});
}

static void process_slice_answer(struct world *world, int process, struct message *message)
{
    struct weir__pool *pool = process_pools(world, process);
    struct weir__pool_now now = pool_time(world, process);
    if (!pool)
        return;
    if (world->mistake == FROM_ANSWER) {
        message->call.end_us += now.now_us - message->call.sent_us;
        message->call.sent_us = now.now_us;
    }
    if (!weir__pool_answer(pool, &now, &message->call, &message->row) && message->row.allowed)
        process_late(world, process, pool, message);
    if (world->mistake == PAST_WINDOW && message->row.allowed) {
        for (size_t i = 0; i < WEIR__POOL_GRANTS; i++)
            pool->grants[i].end_us =
                weir__max(pool->grants[i].end_us, message->call.sent_us + world->slicing.life_us);
    }
    process_serve_waiting(world, process);
}

static void process_slot_answer(struct world *world, int process, const struct message *message)
{
    struct process *it = &world->processes[process];
    int64_t now_us = process_now(world, process);
    int64_t from_us = world->mistake == FROM_ANSWER ? now_us : message->sent_us;
    if (message->verb == ACQUIRE && it->slot_us > now_us)
        return; /* of an earlier try: that lease runs out by itself */
    if (message->row.allowed) {
        it->lease = message->lease;
        it->slot_us = weir__max(it->slot_us, from_us + SLOT_US);
    } else if (message->verb == RENEW && message->lease == it->lease) {
        it->slot_us = 0;
    }
}

static void process_hear(struct world *world, int process, struct message *message)
{
    struct weir__pool *pool = process_pools(world, process);
    int64_t now_us = process_now(world, process);
    if (message->birth != world->processes[process].birth)
        return;
    switch (message->verb) {
    case SLICE:
        process_slice_answer(world, process, message);
        break;
    case TAKE:
        if (message->row.allowed && now_us < message->deadline_us)
            world_admitted(world, message->row.time_us, message->cost, false);
        break;
    case SETTLE:
        if (pool)
            weir__pool_gave_back(pool, &message->back);
        break;
    case CORRECT:
        if (pool)
            weir__pool_forgive(pool);
        break;
    case ACQUIRE:
    case RENEW:
    case RELEASE:
        process_slot_answer(world, process, message);
        break;
    }
}

/* ---- its thread ---- */

static void process_give_back(struct world *world, int process, bool all)
{
    struct weir__pool *pool = process_pools(world, process);
    struct weir__pool_now now = pool_time(world, process);
    struct weir__pool_return back;
    int64_t end_us = now.now_us + world->slicing.life_us;
    for (int i = 0; pool && i < WEIR__POOL_GRANTS && weir__pool_give_back(pool, &now, all, &back);
         i++) {
        world->returned += back.left;
        world->lost += back.lost;
        if (back.left == 0)
            continue;
        process_send_back(world, process, pool, &back);
        if (world->mistake == KEPT)
            pool_force(pool, back.left, end_us, back.time_us);
        if (world->mistake == UNCOUNTED_RETURN)
            pool->returning = 0;
    }
}

static void process_keep_slot(struct world *world, int process)
{
    struct process *it = &world->processes[process];
    int64_t now_us = process_now(world, process);
    bool has = it->slot_us > now_us;
    if (has ? now_us < it->renew_us : now_us < it->acquire_us)
        return;
    struct message message = process_message(world, process, has ? RENEW : ACQUIRE);
    message.lease = has ? it->lease : 1 + (weir__random_next(&world->seed) & WEIR__LEASE_MASK) / 2;
    it->renew_us = now_us + RENEW_US;
    it->acquire_us = now_us + SECOND;
    world_send(world, &message, AT_SERVER);
}

static void process_tick(struct world *world, int process)
{
    process_keep_slot(world, process);
    process_give_back(world, process, false);
    process_serve_waiting(world, process);
    world_in(world, world->slicing.life_us / 8 + world_below(world, 5000), TICK, process);
}

static void process_refill(struct world *world, int process)
{
    struct weir__pool *pool = process_pools(world, process);
    if (pool)
        process_ask(world, process, pool, 0);
}

/* A process that begins, in the place of one that ended. */
static void process_begin(struct world *world, int process)
{
    struct process *it = &world->processes[process];
    struct weir__pools *pools = it->pools;
    uint32_t birth = it->birth;
    *it = (struct process){.birth = birth + 1};
    it->pools = pools ? pools : malloc(weir__pools_size(1));
    weir__pools_init(it->pools, 1);
    it->offset_us = world_between(world, 0, 1000 * SECOND);
}

/* ---- the world ---- */

static void world_init(struct world *world, uint64_t seed, enum mistake mistake, const char *limit,
                       const struct weir__slicing *slicing, int count)
{
    char slots[64];
    struct world empty = {.seed = seed,
                          .mistake = mistake,
                          .slicing = *slicing,
                          .count = count,
                          .heap = world->heap,
                          .room = world->room};
    for (int i = 0; i < PROCESSES_MAX; i++)
        empty.processes[i].pools = world->processes[i].pools;
    *world = empty;
    rig_init(&world->rig, limit);
    snprintf(slots, sizeof slots, "concurrent %d lease 10s", slicing->peers);
    rig_init(&world->slots, slots);
    world->rules[0] = world->rules[1] = world->rig.rule;
    struct weir__rule *half = &world->rules[1];
    if (weir__algorithm_of(half)->shape == WEIR__SHAPE_DEBT)
        half->burst = weir__max(1, half->burst / 2);
    else
        half->count = weir__max(1, half->count / 2);
    weir__rule_derive(half);
    for (int i = 0; i < CLASSES; i++)
        world->sliced[i] = weir__slice_terms(slicing, &world->rules[i], &world->terms[i]);
    for (int i = 0; i < count; i++) {
        process_begin(world, i);
        world_in(world, world_below(world, 1000), TICK, i);
    }
}

static void world_step(struct world *world)
{
    struct event event = world_pop(world);
    struct process *it = &world->processes[event.process];
    world->now_us = event.at_us;
    bool of_process = event.kind != AT_SERVER && event.kind != PLAN;
    if (of_process && it->gone)
        return;
    if (of_process && world->now_us < it->paused_until_us) {
        event.at_us = it->paused_until_us;
        world_push(world, event);
        return;
    }
    switch (event.kind) {
    case ARRIVE:
        world->arrivals++;
        world_arrive(world, event.process);
        break;
    case TICK:
        process_tick(world, event.process);
        break;
    case REFILL:
        process_refill(world, event.process);
        break;
    case AT_SERVER:
        server_handle(world, &event.message);
        break;
    case AT_PROCESS:
        process_hear(world, event.process, &event.message);
        break;
    case PLAN:
        world_plan(world, &event);
        break;
    }
}

static void world_run(struct world *world, int64_t until_us)
{
    while (world->events > 0 && world->heap[0].at_us < until_us)
        world_step(world);
}

static void world_free(struct world *world)
{
    for (int i = 0; i < PROCESSES_MAX; i++)
        free(world->processes[i].pools);
    free(world->heap);
}

#endif
