/* What a wait was granted is given back, because it was cancelled meanwhile: see wait.h. */
#include "store/wait.h"

#include "base/clock.h"
#include "limit/receipt.h"
#include "store/take_or_undo.h"

#include <pthread.h>

#define GIVE_BACK_TRIES 12 /* while the zone is held: for more than a second */

/* Whether to try once more after a code: another process holds a lock, and nothing was changed. */
static bool wait_retries(int code, unsigned tries)
{
    if (code != WEIR_EBUSY || tries >= GIVE_BACK_TRIES)
        return false;
    weir__clock_sleep_us(weir__pace_us(tries));
    return true;
}

static int wait_release(const struct weir__wait *wait)
{
    int code;
    for (unsigned tries = 0;; tries++) {
        code =
            weir_release(wait->store, wait->request.key, wait->request.limit, wait->folded.lease);
        if (!wait_retries(code, tries))
            return code;
    }
}

static int wait_settle(const struct weir__wait *wait)
{
    weir_decision charged = wait->folded;
    uint64_t id = weir__receipt_id(&charged);
    int code;
    for (unsigned tries = 0;; tries++) {
        code = weir__uncharge(wait->store, wait->request.key, wait->request.limit, charged.time_us,
                              charged.granted, id);
        if (!wait_retries(code, tries))
            return code;
    }
}

int weir__wait_give_back(struct weir__wait *wait)
{
    int state, released = 0, settled = 0;
    wait->granted = false;
    if (wait->request.cost == 0)
        return 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (wait->folded.lease)
        released = wait_release(wait);
    if (!wait->folded.degraded)
        settled = wait->store->engine->settle ? wait_settle(wait) : WEIR_EUNSUPPORTED;
    pthread_setcancelstate(state, NULL);
    return released ? released : settled;
}
