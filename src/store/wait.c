/*
 * Waiting for a limit.
 *
 * Limits that heed a wait (buckets, smooth, warmup) give a reservation at once, in order, or say
 * that it cannot be in time. The others are asked again: after their retry_after, or when a slot is
 * released. Who is asked again stands in the queue of its key and state (wait.h), so that this
 * process's threads are served in the order in which they came.
 *
 *     ask ── allowed ─────────────────────────────────────────► sleep the delay ─► done
 *      │                                                               │ cancelled
 *      └ denied ─► hopeless: done                                      ▼
 *          │                                                     give it back
 *          ▼
 *        queue ─► first of it? ask ─ denied ─► sleep until the state or the deadline says so …
 *          │ cancelled, or too late: leave, nothing is charged
 *
 * A wait ends in exactly one way: with a decision, or with a code and without a charge.
 */
#include "store/wait.h"

#include "base/clock.h"
#include "base/futex.h"
#include "store/take_or_undo.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOREVER_US WEIR_DURATION_MAX
#define GIVE_BACK_TRIES 12 /* while the zone is held: for more than a second */

/* What waits can be cancelled by. Cancelled once, it stays so. */
struct weir_waiter {
    pthread_mutex_t lock;
    pid_t owner;
    _Atomic bool cancelled;
    struct weir__spot *spots; /* of the waits under way */
};

struct wait {
    weir_store *store;
    weir_request request; /* its details are `rows` */
    const weir_wait_options *options;
    struct weir__waiting *waiting; /* NULL: it has no spot */
    struct weir__spot spot;
    int64_t deadline_us; /* by wait_now */
    unsigned asked;      /* times it was denied a slot */
    uint32_t seen;       /* of the word it will sleep on */
    bool granted;        /* charged, and not given back */
    weir_decision folded;
    weir_decision rows[WEIR_LIMITS_MAX];
    weir_error *err;
    int code;
};

/* ---- time ---- */

static bool wait_is_virtual(const struct wait *wait)
{
    return wait->store->clock.now != NULL;
}

/* A virtual clock that cannot be slept by: then nothing is gained by asking again. */
static bool wait_can_sleep(const struct wait *wait)
{
    return !wait_is_virtual(wait) || wait->store->clock.sleep;
}

/* By this process's clock alone: a store elsewhere may have another. */
static int64_t wait_now(const struct wait *wait)
{
    return wait_is_virtual(wait) ? weir__store_now(wait->store) : weir__mono_us();
}

static int64_t wait_left(const struct wait *wait)
{
    return weir__max(0, wait->deadline_us - wait_now(wait));
}

/* ---- cancelling ---- */

int weir_waiter_create(weir_waiter **ret, weir_error *err)
{
    if (!ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the result is NULL");
    weir_waiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a waiter");
    pthread_mutex_init(&waiter->lock, NULL);
    waiter->owner = getpid();
    *ret = waiter;
    return 0;
}

void weir_waiter_cancel(weir_waiter *waiter)
{
    if (!waiter || waiter->owner != getpid())
        return;
    pthread_mutex_lock(&waiter->lock);
    atomic_store(&waiter->cancelled, true);
    for (struct weir__spot *it = waiter->spots; it; it = it->beside)
        weir__spot_wake(it);
    pthread_mutex_unlock(&waiter->lock);
}

void weir_waiter_free(weir_waiter *waiter)
{
    if (!waiter)
        return;
    assert(!waiter->spots || waiter->owner != getpid());
    free(waiter);
}

static void waiter_add(weir_waiter *waiter, struct weir__spot *spot)
{
    pthread_mutex_lock(&waiter->lock);
    spot->before = NULL;
    spot->beside = waiter->spots;
    if (spot->beside)
        spot->beside->before = spot;
    waiter->spots = spot;
    pthread_mutex_unlock(&waiter->lock);
}

static void waiter_remove(weir_waiter *waiter, struct weir__spot *spot)
{
    pthread_mutex_lock(&waiter->lock);
    *(spot->before ? &spot->before->beside : &waiter->spots) = spot->beside;
    if (spot->beside)
        spot->beside->before = spot->before;
    pthread_mutex_unlock(&waiter->lock);
}

static int wait_fail_cancelled(const struct wait *wait)
{
    return weir__fail(wait->err, WEIR_ECANCELED, 0, "%s", weir_strerror(WEIR_ECANCELED));
}

/* Polls the descriptor that cancels, and the alarm. 0, a code, or EINTR. */
static int wait_poll(const struct wait *wait, int64_t us)
{
    struct pollfd fds[2] = {{.fd = *wait->options->cancel_fd, .events = POLLIN},
                            {.fd = wait->spot.alarm, .events = POLLIN}};
    struct timespec most = {us / 1000000, us % 1000000 * 1000};
    if (ppoll(fds, 2, &most, NULL) < 0)
        return errno == EINTR ? EINTR
                              : weir__fail(wait->err, WEIR_ESYSTEM, 0, "poll: %s", strerror(errno));
    if (fds[0].revents & POLLNVAL)
        return weir__fail(wait->err, WEIR_EINVAL, 0,
                          "invalid cancel_fd %d: expected an open descriptor", fds[0].fd);
    return fds[0].revents ? wait_fail_cancelled(wait) : 0;
}

/* Whether it is cancelled, without sleeping. */
static int wait_look(const struct wait *wait)
{
    if (wait->options->waiter && atomic_load(&wait->options->waiter->cancelled))
        return wait_fail_cancelled(wait);
    int code = wait->options->cancel_fd ? wait_poll(wait, 0) : 0;
    return code == EINTR ? 0 : code;
}

/* ---- sleeping ---- */

/* Before it looks whether there is something to do: who has something for it from now on wakes it.
 * */
static void wait_prepare(struct wait *wait, struct weir__bell *bell)
{
    _Atomic uint32_t *on = bell && wait->spot.alarm < 0 ? &bell->rung : &wait->spot.word;
    atomic_store(&wait->spot.sleeps_on, on);
    wait->seen = atomic_load(on);
    if (wait->spot.alarm >= 0 && wait->waiting)
        weir__spot_arm(wait->waiting, &wait->spot, 0);
    else if (wait->spot.alarm >= 0)
        weir__alarm_set(wait->spot.alarm, 0);
    else if (bell)
        atomic_store(&bell->wanted, 1);
}

/* Sleeps in real time until it is woken, once prepared, and at most so long. 0 or a code. */
static int wait_doze(struct wait *wait, int64_t us)
{
    _Atomic uint32_t *on = atomic_load(&wait->spot.sleeps_on);
    int64_t until = weir__mono_us() + us;
    for (;;) {
        int64_t left = until - weir__mono_us();
        int code = wait_look(wait);
        if (code || left <= 0 || atomic_load(on) != wait->seen)
            return code;
        code = wait->spot.alarm >= 0
                   ? wait_poll(wait, left)
                   : weir__futex_wait(on, wait->seen, left,
                                      on != &wait->spot.word && wait->spot.bells.shared);
        if (code == EINTR && wait->options->interruptible)
            return weir__fail(wait->err, WEIR_EINTR, 0, "%s", weir_strerror(WEIR_EINTR));
        if (code < 0)
            return code;
    }
}

/* The same by the store's clock. */
static int wait_pause(struct wait *wait, int64_t us)
{
    if (!wait_is_virtual(wait))
        return wait_doze(wait, us);
    wait->store->clock.sleep(wait->store->clock.context, us);
    return wait_look(wait);
}

/* Sleeps the whole of a delay. */
static int wait_delay(struct wait *wait)
{
    int64_t until = wait_now(wait) + wait->folded.delay_us;
    int code = 0;
    if (!wait_can_sleep(wait))
        return 0;
    while (code == 0) {
        int64_t left = until - wait_now(wait);
        if (left <= 0)
            break;
        wait_prepare(wait, NULL);
        code = wait_pause(wait, left);
        if (wait_is_virtual(wait))
            break;
    }
    return code;
}

/* ---- what a denial means ---- */

/* Whether waiting is of no use: a limit will never admit it, or gives out its turns in order and
 * has none in time. A full leaky bucket, too, if it is the queue that takes too long, which what
 * costs nothing is told at once; else there will be room after retry_after. */
static bool wait_is_hopeless(const struct wait *wait)
{
    weir_decision free_rows[WEIR_LIMITS_MAX], folded;
    weir_request request = wait->request;
    bool full = false;
    for (size_t i = 0; i < request.limit->count; i++) {
        const struct weir__rule *rule = &request.limit->rules[i];
        const weir_decision *row = &wait->rows[i];
        if (row->allowed || !(row->retry_after_us == WEIR_NEVER || weir__algorithm_of(rule)->waits))
            continue;
        if (row->retry_after_us == WEIR_NEVER || !weir__algorithm_of(rule)->overflows)
            return true;
        full = true;
    }
    request.cost = 0;
    request.acquire = false;
    request.detail = free_rows;
    if (!full || weir__peek_all(wait->store, &request, 1, &folded))
        return full;
    for (size_t i = 0; i < request.limit->count; i++) {
        if (weir__algorithm_of(&request.limit->rules[i])->overflows && !free_rows[i].allowed)
            return true;
    }
    return false;
}

/* How long to sleep after a denial, if nobody wakes it; negative: no use to ask again in time.
 * Slots may be released at any time; what other limits say is certain. */
static int64_t wait_pause_us(struct wait *wait, bool *ret_slots)
{
    int64_t certain = 0, slots = 0, left = wait_left(wait);
    for (size_t i = 0; i < wait->request.limit->count; i++) {
        const weir_decision *row = &wait->rows[i];
        bool leases = weir__algorithm_of(&wait->request.limit->rules[i])->leases;
        int64_t *most = leases ? &slots : &certain;
        if (!row->allowed)
            *most = weir__max(*most, row->retry_after_us);
    }
    *ret_slots = slots > 0;
    if (certain > left || left == 0)
        return -1;
    if (slots > 0 && !wait_is_virtual(wait)) {
        if (!wait->store->engine->bells)
            slots = weir__min(slots, weir__pace_us(wait->asked++));
        else if (wait->spot.bells.shared)
            slots = weir__min(slots, WEIR__BELL_TRUST_US);
    }
    return weir__min(weir__max(certain, slots), left);
}

/* ---- the queue ---- */

/* A spot behind those who came before. 0 or a code. */
static int wait_queue(struct wait *wait)
{
    struct weir__waiting *waiting = weir__waiting_of(wait->store);
    int code = 0;
    assert(!wait->waiting);
    if (!waiting)
        return weir__fail(wait->err, WEIR_ENOMEM, 0, "out of memory for a wait");
    if (weir__has_leases(wait->request.limit) && wait->store->engine->bells)
        wait->store->engine->bells(wait->store, wait->request.key, &wait->spot.bells);
    if (wait->spot.alarm >= 0 && wait->spot.bells.shared)
        code = weir__watch_start(waiting, &wait->spot.bells, wait->err);
    if (code)
        return code;
    wait->spot.limit = wait->request.limit;
    weir__spot_take(waiting, &wait->spot);
    wait->waiting = waiting;
    return 0;
}

static void wait_leave_queue(struct wait *wait)
{
    if (wait->waiting)
        weir__spot_leave(wait->waiting, &wait->spot);
    wait->waiting = NULL;
}

static bool wait_is_first(const struct wait *wait)
{
    return atomic_load(&wait->spot.ahead) == 0;
}

/* What it would be told now, at the most a denial. */
static int wait_peek(struct wait *wait)
{
    wait->request.wait_us = wait_left(wait);
    int code = weir__peek_all(wait->store, &wait->request, 1, &wait->folded);
    if (code)
        return weir__store_fail(wait->store, code, wait->err);
    if (!wait->folded.allowed)
        return 0;
    wait->folded.allowed = false; /* there is something, but others come first */
    wait->folded.retry_after_us = 1;
    wait->folded.delay_us = 0;
    return 0;
}

/* Sleeps until nobody is ahead. *ret: it is first; otherwise it came to its deadline or is
 * hopeless, and the decision says so. */
static int wait_for_turn(struct wait *wait, bool *ret)
{
    bool slots;
    int code = 0;
    *ret = wait_is_first(wait);
    if (*ret)
        return 0;
    code = wait_peek(wait);
    if (code == WEIR_EBUSY)
        code = 0; /* it cannot be told now */
    else if (code || wait_is_hopeless(wait) || wait_pause_us(wait, &slots) < 0)
        return code;
    while (code == 0) {
        wait_prepare(wait, NULL);
        *ret = wait_is_first(wait);
        if (*ret)
            return 0;
        if (wait_left(wait) == 0)
            return wait_peek(wait);
        /* A virtual clock is moved by whoever is first. */
        code = wait_doze(wait, wait_is_virtual(wait) ? FOREVER_US : wait_left(wait));
    }
    return code;
}

/* ---- a wait ---- */

/* Asks until it is allowed, or until it is known that it will not be. 0, or a code; nothing is
 * charged then. */
static int wait_ask(struct wait *wait)
{
    const bool queues = weir__limit_queues(wait->request.limit) && wait->options->max_wait_us > 0 &&
                        wait_can_sleep(wait);
    bool first = true, slots = false;
    int code = queues && weir__waiting_count(wait->store) > 0 ? wait_queue(wait) : 0;
    while (code == 0) {
        if (wait->waiting)
            code = wait_for_turn(wait, &first);
        if (code || !first)
            return code;
        wait_prepare(wait, wait->waiting ? wait->spot.bells.key : NULL);
        wait->request.wait_us = wait_left(wait);
        code = weir__take_all(wait->store, &wait->request, 1, &wait->folded);
        if (code == WEIR_EBUSY && wait_left(wait) > 0 && wait_can_sleep(wait)) {
            int64_t pace = weir__pace_us(wait->asked++);
            code = wait_pause(wait, weir__min(pace, wait_left(wait)));
            continue;
        }
        if (code)
            return weir__store_fail(wait->store, code, wait->err);
        if (wait->folded.allowed || !wait_can_sleep(wait) || wait_is_hopeless(wait))
            return 0;
        int64_t pause = wait_pause_us(wait, &slots);
        if (pause < 0)
            return 0;
        if (queues && !wait->waiting) {
            code = wait_queue(wait);
            if (slots || !wait_is_first(wait))
                continue; /* it may have been released before anybody would have told us */
        }
        if (code == 0)
            code = wait_pause(wait, pause);
    }
    return code;
}

/* ---- giving back ---- */

/* Whether to try once more after a code: another process holds a lock, and nothing was changed. */
static bool wait_retries(int code, unsigned tries)
{
    if (code != WEIR_EBUSY || tries >= GIVE_BACK_TRIES)
        return false;
    weir__clock_sleep_us(weir__pace_us(tries));
    return true;
}

static int wait_release(const struct wait *wait)
{
    int code;
    for (unsigned tries = 0;; tries++) {
        code =
            weir_release(wait->store, wait->request.key, wait->request.limit, wait->folded.lease);
        if (!wait_retries(code, tries))
            return code;
    }
}

static int wait_settle(const struct wait *wait, const weir_limit *limit)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_decision charged = wait->folded;
    int code;
    weir_receipt(&charged, receipt);
    for (unsigned tries = 0;; tries++) {
        code = weir_settle(wait->store, wait->request.key, limit, receipt, 0, NULL);
        if (!wait_retries(code, tries))
            return code;
    }
}

/* Gives back what was charged, once. 0, or why it could not be. What a local fallback charged is its
 * own; only its slots are released. No cancellation point. */
static int wait_give_back(struct wait *wait)
{
    char text[WEIR__LIMITS_TEXT_MAX];
    weir_limit others;
    int state, released = 0, settled = 0;
    wait->granted = false;
    if (wait->request.cost == 0)
        return 0;
    weir__limit_beside_leases(wait->request.limit, text, &others);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (wait->folded.lease)
        released = wait_release(wait);
    if (others.count > 0 && !wait->folded.degraded)
        settled = wait->store->engine->settle ? wait_settle(wait, &others) : WEIR_EUNSUPPORTED;
    pthread_setcancelstate(state, NULL);
    return released ? released : settled;
}

/* ---- a wait, from its beginning to its end ---- */

/* What a wait holds besides its charge. */
static void wait_end(struct wait *wait)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    wait_leave_queue(wait);
    if (wait->options->waiter)
        waiter_remove(wait->options->waiter, &wait->spot);
    if (wait->spot.alarm >= 0)
        close(wait->spot.alarm);
    pthread_setcancelstate(state, NULL);
}

/* The thread was cancelled in its sleep. */
static void wait_abandon(void *argument)
{
    struct wait *wait = argument;
    wait_end(wait);
    if (wait->granted)
        wait_give_back(wait);
}

static int wait_run(struct wait *wait)
{
    int code = wait_look(wait);
    if (code == 0)
        code = wait_ask(wait);
    wait_leave_queue(wait);
    if (code || !wait->folded.allowed)
        return code;
    wait->granted = true;
    code = wait->folded.delay_us > 0 ? wait_delay(wait) : 0;
    if (code == 0)
        return 0;
    int kept = wait_give_back(wait);
    return kept ? weir__fail(wait->err, kept, 0,
                             "the wait was cancelled, but its charge could not be given back: %s",
                             weir_strerror(kept))
                : code;
}

static int wait_check(const weir_store *store, const weir_request *request,
                      const weir_wait_options *options, weir_error *err)
{
    int code = weir__request_check(store, request, err);
    if (code)
        return code;
    if (options->max_wait_us < 0)
        return weir__fail(err, WEIR_EINVAL, 0, "invalid wait of %lld us: expected 0 or more",
                          (long long)options->max_wait_us);
    if (options->cancel_fd && *options->cancel_fd < 0)
        return weir__fail(err, WEIR_EINVAL, 0, "invalid cancel_fd %d: expected an open descriptor",
                          *options->cancel_fd);
    if (options->waiter && options->waiter->owner != getpid())
        return weir__fail(err, WEIR_EINVAL, 0,
                          "the waiter was made before a fork: make another one in the child");
    return 0;
}

/* Slots that a take holds are named, too, so that they can be given back. */
static void wait_begin(struct wait *wait, weir_store *store, const weir_request *asked,
                       const weir_wait_options *options, weir_error *err)
{
    wait->store = store;
    wait->request = *asked;
    wait->request.detail = wait->rows;
    wait->request.acquire = asked->acquire || weir__has_leases(asked->limit);
    wait->options = options;
    wait->waiting = NULL;
    weir__spot_init(&wait->spot, asked->key);
    wait->deadline_us = wait_now(wait) + weir__min(options->max_wait_us, WEIR_DURATION_MAX);
    wait->asked = 0;
    wait->seen = 0;
    wait->granted = false;
    wait->err = err;
    wait->code = 0;
}

int weir__wait(weir_store *store, const weir_request *asked, const weir_wait_options *options,
               weir_decision *ret, weir_error *err)
{
    struct wait wait;
    int code = wait_check(store, asked, options, err);
    if (code)
        return code;
    wait_begin(&wait, store, asked, options, err);
    if (options->cancel_fd) {
        wait.spot.alarm = weir__alarm_open();
        if (wait.spot.alarm < 0)
            return weir__fail(err, WEIR_ESYSTEM, 0, "no descriptor for a wait: %s",
                              strerror(errno));
    }
    if (options->waiter)
        waiter_add(options->waiter, &wait.spot);
    pthread_cleanup_push(wait_abandon, &wait);
    wait.code = wait_run(&wait);
    pthread_cleanup_pop(0);
    wait_end(&wait);
    if (wait.code)
        return wait.code;
    for (size_t i = 0; i < asked->limit->count && !asked->acquire; i++)
        wait.rows[i].lease = 0;
    wait.folded.lease = asked->acquire ? wait.folded.lease : 0;
    if (asked->detail)
        memcpy(asked->detail, wait.rows, asked->limit->count * sizeof *wait.rows);
    *ret = wait.folded;
    return 0;
}

int weir_wait(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              int64_t max_wait_us, weir_decision *ret)
{
    const weir_wait_options options = {.max_wait_us = max_wait_us};
    weir_request request = weir_request_make(key, limit);
    request.cost = cost;
    return ret ? weir__wait(store, &request, &options, ret, NULL) : WEIR_EINVAL;
}

int weir_acquire_wait(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                      int64_t max_wait_us, weir_decision *ret)
{
    const weir_wait_options options = {.max_wait_us = max_wait_us};
    weir_request request = weir_request_make(key, limit);
    request.cost = cost;
    request.acquire = true;
    return ret ? weir__wait(store, &request, &options, ret, NULL) : WEIR_EINVAL;
}
