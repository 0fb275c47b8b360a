/* See futex.h. */
#include "base/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex is four bytes");

/* syscall() is no cancellation point. So for the time of the call alone, a thread may be cancelled
 * at any moment. Nothing is held and nothing is changed here, so there is nothing to be torn. */
__attribute__((noinline, no_sanitize("thread"))) static int
futex_sleep(_Atomic uint32_t *word, int operation, uint32_t seen, const struct timespec *most)
{
    int type;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    long done = syscall(SYS_futex, word, operation, seen, most, NULL, 0);
    int code = done == 0 ? 0 : errno;
    pthread_setcanceltype(type, NULL);
    return code;
}

int weir__futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t us, bool shared)
{
    struct timespec most = {us / 1000000, us % 1000000 * 1000};
    pthread_testcancel();
    int code = futex_sleep(word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, &most);
    return code == ETIMEDOUT || code == EINTR ? code : 0;
}

void weir__futex_wake(_Atomic uint32_t *word, bool shared)
{
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
