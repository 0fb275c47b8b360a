/* What a wait was granted is given back, because it was cancelled meanwhile: see wait.h. */
#include "store/wait.h"

#include "base/clock.h"
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

static int wait_settle(const struct weir__wait *wait, const weir_limit *limit)
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

int weir__wait_give_back(struct weir__wait *wait)
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
