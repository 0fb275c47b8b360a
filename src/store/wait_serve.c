/*
 * Who is awake asks for the others of its queue, too: who was just served, and the first few of a
 * queue when they expect that there is something again. If each of them had to wake up before the
 * next is asked, a queue would move only as fast as threads can be woken, and on a busy machine a
 * window would end before its permits are given out.
 *
 *     claim the front of the queue ─► ask for each, until one is denied ─► wake who was granted
 *
 * What holds:
 *   1. The order is the one in which they came. Nobody is asked for before everybody ahead of it
 *      was granted. The first that is denied sleeps on and asks for itself in time.
 *   2. A grant belongs to the wait that it was asked for, from the moment it is charged. If that
 *      wait was cancelled meanwhile, it was served first: it goes on as if it had just asked by
 *      itself. If its thread was cancelled, the thread gives the grant back.
 *   3. Who came to its deadline is not asked for.
 *   4. It holds up the one that serves by no more than SERVE_US and one call of a zone. A call of a
 *      server takes longer than a wake-up, so there everybody asks for itself.
 */
#include "store/wait.h"

#include <assert.h>
#include <stddef.h>

#define SERVE_MOST 32
#define WATCHERS 8 /* of a queue */
#define SERVE_US 1000

void weir__wait_grant(struct weir__wait *wait)
{
    assert(wait->folded.allowed && !wait->granted);
    wait->granted = true;
    wait->due_us = weir__wait_now(wait) + wait->folded.delay_us;
}

static bool wait_can_serve(const struct weir__wait *wait)
{
    return !wait->store->engine->why; /* no servers */
}

bool weir__wait_keeps_watch(const struct weir__wait *wait)
{
    return wait_can_serve(wait) && !weir__wait_is_virtual(wait) &&
           atomic_load(&wait->spot.ahead) < WATCHERS;
}

/* Asks for a wait, whose spot is claimed. Whether it was granted. */
static bool wait_ask_for(struct weir__wait *wait)
{
    assert(!wait->granted && wait->spot.turn == WEIR__SPOT_CLAIMED);
    wait->request.wait_us = weir__wait_left(wait);
    if (wait->request.wait_us == 0 ||
        weir__take_all(wait->store, &wait->request, 1, &wait->folded) || !wait->folded.allowed)
        return false;
    weir__wait_grant(wait);
    return true;
}

/* Whether there may be something left after a grant. If not, a denial is not worth a call. */
static bool wait_left_some(const struct weir__wait *granted)
{
    return granted->folded.remaining > 0;
}

void weir__wait_serve(struct weir__wait *wait)
{
    struct weir__spot *claimed[SERVE_MOST];
    const int64_t until = weir__mono_us() + SERVE_US;
    size_t served = 0, count = 0;
    bool more = wait_can_serve(wait) && (!wait->granted || wait_left_some(wait));
    assert(wait->waiting);
    if (more)
        count = weir__spots_claim(wait->waiting, &wait->spot, wait->granted, claimed, SERVE_MOST);
    while (more && served < count && weir__mono_us() <= until) {
        char *spot = (char *)claimed[served];
        struct weir__wait *next = (struct weir__wait *)(spot - offsetof(struct weir__wait, spot));
        if (!wait_ask_for(next))
            break;
        more = wait_left_some(next);
        served++;
    }
    if (count > 0)
        weir__spots_unclaim(wait->waiting, &wait->spot, claimed, served, count);
}
