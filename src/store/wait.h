/*
 * Who waits, in this process. Shared by wait.c (a wait), wait_serve.c (who is served asks for those
 * behind it), wait_back.c (a charge is given back), spots.c (the order) and wakeup.c (descriptors).
 *
 *     store.waiting ─► shelves, one lock each ─► spots in the order of arrival
 *
 * A spot is a wait that stands in a queue, or a wake-up descriptor, which only looks on. It lies on
 * the stack of its thread (a descriptor: on the heap), so the table needs no room per waiter. What
 * holds:
 *   1. A spot's key lives as long as the spot is taken.
 *   2. `ahead` is the number of spots of the same key that came before and want a state that this
 *      one wants, too. Only who has none ahead asks the store, or is asked for by another of its
 *      queue. The one that came first of all has none ahead, so somebody always goes on.
 *   3. A spot is woken after something has changed that its owner looks at: `ahead`, a
 *      cancellation, or the store.
 *   4. Lock order: a waiter's lock or a shelf's lock, never both; no lock is held while a store is
 *      asked.
 *   5. The table belongs to the process that made it. A child makes another one, because the spots
 *      that it inherits are those of threads that it does not have.
 *   6. Another thread uses a wait only while its spot is claimed. Its own thread sleeps then, or
 *      waits until the claim has ended, whatever wakes it. A claim lasts for a few calls of a zone.
 */
#ifndef WEIR_WAIT_H
#define WEIR_WAIT_H

#include "base/clock.h"
#include "store/store.h"

#include <sys/types.h>

/*
 *     awake ⇄ asleep ⇄ claimed ─► served
 *
 * Its own thread lies down and gets up. Who has a claim asks for it, and serves it or lets it sleep
 * on.
 */
enum weir__spot_turn {
    WEIR__SPOT_AWAKE,
    WEIR__SPOT_ASLEEP,  /* others may ask for it */
    WEIR__SPOT_CLAIMED, /* somebody asks for it at this moment */
    WEIR__SPOT_SERVED   /* its request was granted, and it has left its shelf */
};

struct weir__spot {
    struct weir__spot *next, *prev;     /* on its shelf */
    struct weir__spot *beside, *before; /* of the same waiter: wait_sleep.c */
    weir_key key;
    uint64_t hash;           /* of the key */
    const weir_limit *limit; /* NULL: it stands in no queue */
    _Atomic uint32_t ahead;
    enum weir__spot_turn turn;             /* its shelf's lock guards it */
    _Atomic uint32_t word;                 /* changed by each wake-up */
    _Atomic(_Atomic uint32_t *) sleeps_on; /* `word`, or the bell's */
    struct weir__bells bells;              /* key NULL: it listens to none */
    uint32_t heard; /* bells.key->rung when it was armed; its shelf's lock guards it */
    int alarm;      /* a timer's descriptor that a wake-up makes readable; -1: none */
};

/* A wait that has begun, on the stack of its thread. */
struct weir__wait {
    weir_store *store;
    weir_request request; /* its details are `rows` */
    const weir_wait_options *options;
    struct weir__waiting *waiting; /* NULL: it has no spot */
    struct weir__spot spot;
    int64_t deadline_us; /* by weir__wait_now */
    unsigned asked;      /* times it was denied a slot */
    uint32_t seen;       /* of the word it will sleep on */
    int64_t due_us;      /* by the same clock: when the delay of a grant is over */
    bool granted;        /* charged, and not given back */
    weir_decision folded;
    weir_decision rows[WEIR_LIMITS_MAX];
    weir_error *err;
    int code;
};

/* ---- spots.c ---- */

/* A spot of nobody yet. */
void weir__spot_init(struct weir__spot *spot, weir_key key);
/* The table of this process, made if need be; NULL: no memory. */
struct weir__waiting *weir__waiting_of(weir_store *store);
/* How many have a spot; a guess by the time it is read. */
uint32_t weir__waiting_count(weir_store *store);
void weir__spot_take(struct weir__waiting *waiting, struct weir__spot *spot);
/* Those who stood behind it move up. Whether it was served before it could leave. */
bool weir__spot_leave(struct weir__waiting *waiting, struct weir__spot *spot);
/* It goes to sleep: from now on others may claim it. */
void weir__spot_lie_down(struct weir__waiting *waiting, struct weir__spot *spot);
/* It is awake, once a claim has ended. Whether it was served; then it stands in no queue any more.
 * No cancellation point. */
bool weir__spot_get_up(struct weir__waiting *waiting, struct weir__spot *spot);
/* Claims those of the queues of `spot` who would be first if the claimed ones before them were
 * gone, in order, at most `most` of them: `spot` itself, unless it is as good as gone, and others
 * who are asleep. Who is awake asks for itself. */
size_t weir__spots_claim(struct weir__waiting *waiting, const struct weir__spot *spot, bool gone,
                         struct weir__spot **ret, size_t most);
/* Ends the claims of `spot`: the first `served` leave and are woken, the others sleep on. */
void weir__spots_unclaim(struct weir__waiting *waiting, const struct weir__spot *spot,
                         struct weir__spot *const *claimed, size_t served, size_t count);
void weir__spot_wake(struct weir__spot *spot);
/* From now on the bell rings for it. A spot with an alarm: it is quiet until then, or for so long
 * (0: for ever). */
void weir__spot_arm(struct weir__waiting *waiting, struct weir__spot *spot, int64_t quiet_us);
/* Whether a limit needs a queue. The others give out their turns in order by themselves. */
bool weir__limit_queues(const weir_limit *limit);

/* ---- wait_sleep.c ---- */

static inline bool weir__wait_is_virtual(const struct weir__wait *wait)
{
    return wait->store->clock.now != NULL;
}

/* A virtual clock that cannot be slept by: then nothing is gained by asking again. */
static inline bool weir__wait_can_sleep(const struct weir__wait *wait)
{
    return !weir__wait_is_virtual(wait) || wait->store->clock.sleep;
}

/* By this process's clock alone: a store elsewhere may have another. */
static inline int64_t weir__wait_now(const struct weir__wait *wait)
{
    return weir__wait_is_virtual(wait) ? weir__store_now(wait->store) : weir__mono_us();
}

static inline int64_t weir__wait_left(const struct weir__wait *wait)
{
    return weir__max(0, wait->deadline_us - weir__wait_now(wait));
}

/* Whether a waiter was made by this process. */
bool weir__waiter_is_ours(const weir_waiter *waiter);
/* A wait that it cancels from now on, or no longer. */
void weir__waiter_add(weir_waiter *waiter, struct weir__spot *spot);
void weir__waiter_remove(weir_waiter *waiter, struct weir__spot *spot);
/* Before a wait looks whether there is something to do: who has something for it from now on wakes
 * it. `bell`: NULL, or that of its key. */
void weir__wait_prepare(struct weir__wait *wait, struct weir__bell *bell);
/* These: 0, or the code with which the wait ends. Whether it is cancelled, without sleeping; */
int weir__wait_look(const struct weir__wait *wait);
/* sleeps in real time until it is woken, once prepared, and at most so long; */
int weir__wait_doze(struct weir__wait *wait, int64_t us);
/* the same by the store's clock; */
int weir__wait_pause(struct weir__wait *wait, int64_t us);
/* sleeps until its decision's delay is over. */
int weir__wait_delay(struct weir__wait *wait);

/* ---- wait_serve.c ---- */

/* A wait was granted what it asked for. */
void weir__wait_grant(struct weir__wait *wait);
/* Whether it stands so far in front that it should serve its queue when it wakes up. */
bool weir__wait_keeps_watch(const struct weir__wait *wait);
/* Asks for those at the front of its queues who are asleep, and for itself unless it was granted
 * before. It stands in the queue, awake. */
void weir__wait_serve(struct weir__wait *wait);

/* ---- wait_back.c ---- */

/* Gives back what was charged, once. 0, or why it could not be. What a local fallback charged is
 * its own; only its slots are released. No cancellation point. */
int weir__wait_give_back(struct weir__wait *wait);

/* ---- wakeup.c ---- */

/* An alarm, quiet; -1 with errno. */
int weir__alarm_open(void);
/* Readable after so long; 0: no longer, and not again. */
void weir__alarm_set(int alarm, int64_t us);
void weir__alarm_ring(int alarm);
/* Spots with an alarm that listen to bells which are shared: a thread listens for them. 0 or a
 * code. */
int weir__watch_start(struct weir__waiting *waiting, const struct weir__bells *bells,
                      weir_error *err);

/* How a spot asks again where nobody tells it of a release: after 10 ms, then twice as long each
 * time, up to 250 ms, less up to a half at random. */
int64_t weir__pace_us(unsigned asked);
/* How long a bell that other processes ring is trusted: one of them may be killed between its
 * release and its ringing. */
#define WEIR__BELL_TRUST_US INT64_C(1000000)

/* ---- of spots.c, for the thread of wakeup.c ---- */

struct weir__watch {
    pthread_mutex_t lock; /* for starting it */
    bool running;
    pthread_t thread;
    struct weir__bells bells;
    _Atomic uint32_t stop;
};
struct weir__watch *weir__waiting_watch(struct weir__waiting *waiting);
/* Rings the alarms of those whose bell has rung. */
void weir__spots_listen(struct weir__waiting *waiting);
/* Stops the thread, if it is this process's. */
void weir__watch_stop(struct weir__watch *watch);

#endif
