/* The order in which this process's threads wait: see wait.h. */
#include "store/wait.h"

#include "base/futex.h"
#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHELVES 64 /* keys that are waited for seldom share a lock */

struct shelf {
    pthread_mutex_t lock;
    pthread_cond_t unclaimed; /* claims have ended */
    struct weir__spot *first, *last;
};

struct weir__waiting {
    pid_t owner;
    _Atomic uint32_t count; /* spots that are taken */
    struct weir__waiting
        *past; /* that of the parent process, unused: another thread may just read it */
    struct weir__watch watch;
    struct shelf shelves[SHELVES];
};

/* ---- the table ---- */

static struct weir__waiting *waiting_make(struct weir__waiting *past)
{
    struct weir__waiting *waiting = calloc(1, sizeof *waiting);
    if (!waiting)
        return NULL;
    waiting->owner = getpid();
    waiting->past = past;
    pthread_mutex_init(&waiting->watch.lock, NULL);
    for (size_t i = 0; i < SHELVES; i++) {
        pthread_mutex_init(&waiting->shelves[i].lock, NULL);
        pthread_cond_init(&waiting->shelves[i].unclaimed, NULL);
    }
    return waiting;
}

struct weir__waiting *weir__waiting_of(weir_store *store)
{
    struct weir__waiting *there = atomic_load(&store->waiting);
    if (there && there->owner == getpid())
        return there;
    struct weir__waiting *made = waiting_make(there);
    if (!made)
        return NULL;
    if (atomic_compare_exchange_strong(&store->waiting, &there, made))
        return made;
    free(made); /* another thread was faster */
    assert(there && there->owner == getpid());
    return there;
}

uint32_t weir__waiting_count(weir_store *store)
{
    struct weir__waiting *waiting = atomic_load_explicit(&store->waiting, memory_order_acquire);
    return waiting ? atomic_load(&waiting->count) : 0;
}

struct weir__watch *weir__waiting_watch(struct weir__waiting *waiting)
{
    return &waiting->watch;
}

void weir__wait_close(weir_store *store)
{
    struct weir__waiting *waiting = atomic_load(&store->waiting);
    if (waiting && waiting->owner == getpid()) {
        assert(atomic_load(&waiting->count) ==
               0); /* no call runs, and wake-ups are closed before */
        weir__watch_stop(&waiting->watch);
    }
    while (waiting) {
        struct weir__waiting *past = waiting->past;
        free(waiting);
        waiting = past;
    }
}

/* ---- spots ---- */

void weir__spot_init(struct weir__spot *spot, weir_key key)
{
    /* A shelf with many keys is slow and no more, so this hash needs no secret. */
    static const uint64_t secret[2] = {UINT64_C(0x7461657365687474), UINT64_C(0x7469617774616873)};
    uint64_t hash[2];
    weir__hash(secret, key.data, key.len, hash);
    *spot = (struct weir__spot){.key = key, .hash = hash[0], .alarm = -1};
    atomic_init(&spot->sleeps_on, &spot->word);
}

void weir__spot_wake(struct weir__spot *spot)
{
    _Atomic uint32_t *on = atomic_load(&spot->sleeps_on);
    atomic_fetch_add(&spot->word, 1);
    if (spot->alarm >= 0) {
        weir__alarm_ring(spot->alarm);
        return;
    }
    if (on != &spot->word)
        atomic_fetch_add(on, 1);
    weir__futex_wake(on, on != &spot->word && spot->bells.shared);
}

static bool rule_queues(const struct weir__rule *rule)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    return !algorithm->waits || algorithm->overflows;
}

bool weir__limit_queues(const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        if (rule_queues(&limit->rules[i]))
            return true;
    }
    return false;
}

/* Whether one who waits for `b` lets another go first who came before it and waits for `a`. Not
 * where `a` is a smaller share of the same states: `b` may have room where `a` still waits. */
static bool limit_goes_before(const weir_limit *a, const weir_limit *b)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct weir__algorithm *algorithm = weir__algorithm_of(&a->rules[i]);
        for (size_t j = 0; rule_queues(&a->rules[i]) && j < b->count; j++) {
            if (weir__rule_same_state(&a->rules[i], &b->rules[j]) &&
                algorithm->most(&a->rules[i]) >= algorithm->most(&b->rules[j]))
                return true;
        }
    }
    return false;
}

static bool spot_is_of(const struct weir__spot *spot, const struct weir__spot *other)
{
    return spot->hash == other->hash && spot->key.len == other->key.len &&
           memcmp(spot->key.data, other->key.data, spot->key.len) == 0;
}

/* Whether the first, which came before, goes before the second. */
static bool spot_goes_before(const struct weir__spot *first, const struct weir__spot *second)
{
    return first->limit && second->limit && spot_is_of(first, second) &&
           limit_goes_before(first->limit, second->limit);
}

/* Whether they stand in one queue, whichever of them goes before the other. */
static bool spots_share_queue(const struct weir__spot *a, const struct weir__spot *b)
{
    return spot_goes_before(a, b) || spot_goes_before(b, a);
}

static struct shelf *shelf_lock(struct weir__waiting *waiting, const struct weir__spot *spot)
{
    struct shelf *shelf = &waiting->shelves[spot->hash % SHELVES];
    assert(waiting->owner == getpid());
    pthread_mutex_lock(&shelf->lock);
    return shelf;
}

void weir__spot_take(struct weir__waiting *waiting, struct weir__spot *spot)
{
    struct shelf *shelf = shelf_lock(waiting, spot);
    uint32_t ahead = 0;
    for (const struct weir__spot *it = shelf->first; it; it = it->next) {
        assert(it != spot);
        ahead += spot_goes_before(it, spot);
    }
    atomic_store(&spot->ahead, ahead);
    spot->next = NULL;
    spot->prev = shelf->last;
    *(shelf->last ? &shelf->last->next : &shelf->first) = spot;
    shelf->last = spot;
    atomic_fetch_add(&waiting->count, 1);
    pthread_mutex_unlock(&shelf->lock);
}

/* Awake, once a claim has ended; its shelf is locked. Whether it was served. A cancellation
 * point. */
static bool spot_rise(struct shelf *shelf, struct weir__spot *spot)
{
    while (spot->turn == WEIR__SPOT_CLAIMED)
        pthread_cond_wait(&shelf->unclaimed, &shelf->lock);
    if (spot->turn == WEIR__SPOT_SERVED)
        return true;
    spot->turn = WEIR__SPOT_AWAKE;
    return false;
}

/* Off its shelf, which is locked. Those who stood behind it move up. */
static void spot_remove(struct weir__waiting *waiting, struct shelf *shelf, struct weir__spot *spot)
{
    for (struct weir__spot *it = spot->next; it; it = it->next) {
        if (!spot_goes_before(spot, it))
            continue;
        assert(atomic_load(&it->ahead) > 0);
        if (atomic_fetch_sub(&it->ahead, 1) == 1)
            weir__spot_wake(it);
    }
    *(spot->prev ? &spot->prev->next : &shelf->first) = spot->next;
    *(spot->next ? &spot->next->prev : &shelf->last) = spot->prev;
    assert(atomic_load(&waiting->count) > 0);
    atomic_fetch_sub(&waiting->count, 1);
}

bool weir__spot_leave(struct weir__waiting *waiting, struct weir__spot *spot)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    struct shelf *shelf = shelf_lock(waiting, spot);
    bool served = spot_rise(shelf, spot);
    if (!served)
        spot_remove(waiting, shelf, spot);
    pthread_mutex_unlock(&shelf->lock);
    pthread_setcancelstate(state, NULL);
    return served;
}

void weir__spot_arm(struct weir__waiting *waiting, struct weir__spot *spot, int64_t quiet_us)
{
    struct shelf *shelf = shelf_lock(waiting, spot);
    if (spot->alarm >= 0)
        weir__alarm_set(spot->alarm, quiet_us);
    if (spot->bells.key) {
        spot->heard = atomic_load(&spot->bells.key->rung);
        atomic_store(&spot->bells.key->wanted, 1);
    }
    pthread_mutex_unlock(&shelf->lock);
}

/* ---- claims ---- */

void weir__spot_lie_down(struct weir__waiting *waiting, struct weir__spot *spot)
{
    struct shelf *shelf = shelf_lock(waiting, spot);
    assert(spot->turn == WEIR__SPOT_AWAKE && spot->limit);
    spot->turn = WEIR__SPOT_ASLEEP;
    pthread_mutex_unlock(&shelf->lock);
}

bool weir__spot_get_up(struct weir__waiting *waiting, struct weir__spot *spot)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    struct shelf *shelf = shelf_lock(waiting, spot);
    bool served = spot_rise(shelf, spot);
    pthread_mutex_unlock(&shelf->lock);
    pthread_setcancelstate(state, NULL);
    return served;
}

size_t weir__spots_claim(struct weir__waiting *waiting, const struct weir__spot *spot, bool gone,
                         struct weir__spot **ret, size_t most)
{
    struct shelf *shelf = shelf_lock(waiting, spot);
    size_t count = 0;
    bool passed = false;
    assert(spot->turn == WEIR__SPOT_AWAKE && (!gone || atomic_load(&spot->ahead) == 0));
    for (struct weir__spot *it = shelf->first; it && count < most; it = it->next) {
        bool related = it == spot || spots_share_queue(it, spot);
        /* of those ahead of it: gone, or claimed */
        uint32_t before = gone && passed && spot_goes_before(spot, it);
        for (size_t i = 0; i < count; i++)
            before += spot_goes_before(ret[i], it);
        passed = passed || it == spot;
        if ((!related && before == 0) || (it == spot && gone))
            continue;
        assert(before <= atomic_load(&it->ahead));
        if (before == atomic_load(&it->ahead) && (it == spot || it->turn == WEIR__SPOT_ASLEEP))
            ret[count++] = it;
    }
    for (size_t i = 0; i < count; i++)
        ret[i]->turn = WEIR__SPOT_CLAIMED;
    pthread_mutex_unlock(&shelf->lock);
    return count;
}

void weir__spots_unclaim(struct weir__waiting *waiting, const struct weir__spot *spot,
                         struct weir__spot *const *claimed, size_t served, size_t count)
{
    struct shelf *shelf = shelf_lock(waiting, spot);
    for (size_t i = 0; i < count; i++) {
        enum weir__spot_turn before = claimed[i] == spot ? WEIR__SPOT_AWAKE : WEIR__SPOT_ASLEEP;
        assert(claimed[i]->turn == WEIR__SPOT_CLAIMED && spot_is_of(claimed[i], spot));
        claimed[i]->turn = i < served ? WEIR__SPOT_SERVED : before;
    }
    for (size_t i = 0; i < served; i++) {
        spot_remove(waiting, shelf, claimed[i]);
        weir__spot_wake(claimed[i]); /* it cannot go away before the shelf is unlocked */
    }
    pthread_cond_broadcast(&shelf->unclaimed);
    pthread_mutex_unlock(&shelf->lock);
}

/* ---- something was given back ---- */

/* Whether its owner would ask the store again. */
static bool spot_asks(const struct weir__spot *spot)
{
    return !spot->limit || atomic_load(&spot->ahead) == 0;
}

void weir__wait_wake(weir_store *store, weir_key key)
{
    struct weir__waiting *waiting = atomic_load(&store->waiting);
    struct weir__spot like;
    if (atomic_load(&waiting->count) == 0 || waiting->owner != getpid())
        return;
    weir__spot_init(&like, key);
    struct shelf *shelf = shelf_lock(waiting, &like);
    for (struct weir__spot *it = shelf->first; it; it = it->next) {
        if (spot_asks(it) && spot_is_of(it, &like))
            weir__spot_wake(it);
    }
    pthread_mutex_unlock(&shelf->lock);
}

void weir__spots_listen(struct weir__waiting *waiting)
{
    for (size_t i = 0; i < SHELVES; i++) {
        struct shelf *shelf = &waiting->shelves[i];
        pthread_mutex_lock(&shelf->lock);
        for (struct weir__spot *it = shelf->first; it; it = it->next) {
            if (it->alarm >= 0 && it->bells.key && spot_asks(it) &&
                atomic_load(&it->bells.key->rung) != it->heard)
                weir__spot_wake(it);
        }
        pthread_mutex_unlock(&shelf->lock);
    }
}
