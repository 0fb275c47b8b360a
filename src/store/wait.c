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
 *          │       │               └ allowed ─► ask for those behind, too
 *          │       └ not the first, and granted by the one that was: as if it had asked
 *          │ cancelled, or too late: leave, nothing is charged
 *
 * A wait ends in exactly one way: with a decision, or with a code and without a charge.
 */
#include "store/wait.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#define FOREVER_US WEIR_DURATION_MAX

/* ---- what a denial means ---- */

/* Whether waiting is of no use: a limit will never admit it, or gives out its turns in order and
 * has none in time. A full leaky bucket, too, if it is the queue that takes too long, which what
 * costs nothing is told at once; else there will be room after retry_after. */
static bool wait_is_hopeless(const struct weir__wait *wait)
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
static int64_t wait_pause_us(struct weir__wait *wait, bool *ret_slots)
{
    int64_t certain = 0, slots = 0, left = weir__wait_left(wait);
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
    if (slots > 0 && !weir__wait_is_virtual(wait)) {
        if (!wait->store->engine->bells)
            slots = weir__min(slots, weir__pace_us(wait->asked++));
        else if (wait->spot.bells.shared)
            slots = weir__min(slots, WEIR__BELL_TRUST_US);
    }
    return weir__min(weir__max(certain, slots), left);
}

/* ---- the queue ---- */

/* A spot behind those who came before. 0 or a code. */
static int wait_queue(struct weir__wait *wait)
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

/* Another thread asked for it meanwhile, and it was allowed: it holds that grant now. */
static void wait_was_served(struct weir__wait *wait)
{
    assert(wait->waiting && wait->granted && wait->folded.allowed);
    wait->waiting = NULL;
}

static void wait_leave_queue(struct weir__wait *wait)
{
    if (wait->waiting && weir__spot_leave(wait->waiting, &wait->spot))
        wait_was_served(wait);
    wait->waiting = NULL;
}

static bool wait_is_first(const struct weir__wait *wait)
{
    return atomic_load(&wait->spot.ahead) == 0;
}

/* What it would be told now, at the most a denial. */
static int wait_peek(struct weir__wait *wait)
{
    wait->request.wait_us = weir__wait_left(wait);
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

/* Sleeps, where it has a spot so that others may ask for it. If it was served, it was, whatever
 * else ended its sleep. */
static int wait_rest(struct weir__wait *wait, int64_t us,
                     int (*sleep)(struct weir__wait *wait, int64_t us))
{
    if (!wait->waiting)
        return sleep(wait, us);
    weir__spot_lie_down(wait->waiting, &wait->spot);
    int code = sleep(wait, us);
    if (!weir__spot_get_up(wait->waiting, &wait->spot))
        return code;
    wait_was_served(wait);
    return 0;
}

/* How long to sleep behind others; negative: no use, and the decision says so. The first few keep
 * watch: they sleep only until there should be something, because one of them may wake up before
 * the first does. 0 or a code. */
static int wait_expect(struct weir__wait *wait, int64_t *ret_us, bool *ret_watch)
{
    int64_t left = weir__wait_left(wait);
    bool slots = false;
    int code = wait_peek(wait);
    *ret_watch = false;
    *ret_us = weir__wait_is_virtual(wait) ? FOREVER_US : left; /* the first moves that clock */
    if (code == WEIR_EBUSY && left > 0)
        return 0; /* it cannot be told now */
    int64_t pause = code == 0 && !wait_is_hopeless(wait) ? wait_pause_us(wait, &slots) : -1;
    *ret_watch = pause > 0 && !slots && weir__wait_keeps_watch(wait);
    if (pause < 0 || *ret_watch)
        *ret_us = pause;
    return code;
}

/* Sleeps until nobody is ahead. *ret: it is first; otherwise it was granted, or it came to its
 * deadline or is hopeless, and the decision says so. */
static int wait_for_turn(struct weir__wait *wait, bool *ret)
{
    int64_t us;
    bool watch;
    for (;;) {
        *ret = wait_is_first(wait);
        if (*ret)
            return 0;
        int code = wait_expect(wait, &us, &watch);
        if (code || us < 0)
            return code;
        weir__wait_prepare(wait, NULL);
        *ret = wait_is_first(wait);
        if (*ret)
            return 0;
        code = wait_rest(wait, us, weir__wait_doze);
        if (code == 0 && !wait->granted && watch && !wait_is_first(wait)) {
            weir__wait_serve(wait);
            if (wait->granted)
                wait_was_served(wait);
        }
        if (code || wait->granted)
            return code;
    }
}

/* ---- a wait ---- */

/* Asks until it is allowed, or until it is known that it will not be. 0, or a code; nothing is
 * charged then. */
static int wait_ask(struct weir__wait *wait)
{
    const bool queues = weir__limit_queues(wait->request.limit) && wait->options->max_wait_us > 0 &&
                        weir__wait_can_sleep(wait);
    bool first = true, slots = false;
    int code = queues && weir__waiting_count(wait->store) > 0 ? wait_queue(wait) : 0;
    while (code == 0 && !wait->granted) {
        if (wait->waiting)
            code = wait_for_turn(wait, &first);
        if (code || !first)
            return code;
        weir__wait_prepare(wait, wait->waiting ? wait->spot.bells.key : NULL);
        wait->request.wait_us = weir__wait_left(wait);
        code = weir__take_all(wait->store, &wait->request, 1, &wait->folded);
        if (code == WEIR_EBUSY && weir__wait_left(wait) > 0 && weir__wait_can_sleep(wait)) {
            int64_t pace = weir__pace_us(wait->asked++);
            code = wait_rest(wait, weir__min(pace, weir__wait_left(wait)), weir__wait_pause);
            continue;
        }
        if (code)
            return weir__store_fail(wait->store, code, wait->err);
        if (wait->folded.allowed)
            weir__wait_grant(wait);
        if (wait->granted || !weir__wait_can_sleep(wait) || wait_is_hopeless(wait))
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
            code = wait_rest(wait, pause, weir__wait_pause);
    }
    return code;
}

/* ---- a wait, from its beginning to its end ---- */

/* What a wait holds besides its charge. */
static void wait_end(struct weir__wait *wait)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    wait_leave_queue(wait);
    if (wait->options->waiter)
        weir__waiter_remove(wait->options->waiter, &wait->spot);
    if (wait->spot.alarm >= 0)
        close(wait->spot.alarm);
    pthread_setcancelstate(state, NULL);
}

/* The thread was cancelled in its sleep. musl 1.2.3 comes here straight from the instruction that
 * was interrupted, so the stack may be off by eight bytes. */
#ifdef __x86_64__
__attribute__((force_align_arg_pointer))
#endif
static void
wait_abandon(void *argument)
{
    struct weir__wait *wait = argument;
#ifdef __SANITIZE_ADDRESS__ /* does not see that the frames of the sleep are gone */
    const size_t deep = 16384;
    __asan_unpoison_memory_region((char *)__builtin_frame_address(0) - deep, deep);
#endif
    wait_end(wait);
    if (wait->granted)
        weir__wait_give_back(wait);
}

static int wait_run(struct weir__wait *wait)
{
    int code = weir__wait_look(wait);
    if (code == 0)
        code = wait_ask(wait);
    if (wait->granted && wait->waiting)
        weir__wait_serve(wait);
    wait_leave_queue(wait);
    if (!wait->granted)
        return code;
    code = wait->folded.delay_us > 0 ? weir__wait_delay(wait) : 0;
    if (code == 0)
        return 0;
    int kept = weir__wait_give_back(wait);
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
    if (options->waiter && !weir__waiter_is_ours(options->waiter))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "the waiter was made before a fork: make another one in the child");
    return 0;
}

/* Slots that a take holds are named, too, so that they can be given back. */
static void wait_begin(struct weir__wait *wait, weir_store *store, const weir_request *asked,
                       const weir_wait_options *options, weir_error *err)
{
    wait->store = store;
    wait->request = *asked;
    wait->request.detail = wait->rows;
    wait->request.acquire = asked->acquire || weir__has_leases(asked->limit);
    wait->options = options;
    wait->waiting = NULL;
    weir__spot_init(&wait->spot, asked->key);
    wait->deadline_us = weir__wait_now(wait) + weir__min(options->max_wait_us, WEIR_DURATION_MAX);
    wait->asked = 0;
    wait->seen = 0;
    wait->due_us = 0;
    wait->granted = false;
    wait->err = err;
    wait->code = 0;
}

int weir__wait(weir_store *store, const weir_request *asked, const weir_wait_options *options,
               weir_decision *ret, weir_error *err)
{
    struct weir__wait wait;
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
        weir__waiter_add(options->waiter, &wait.spot);
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
