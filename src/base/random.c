/* See random.h. */
#include "base/random.h"

#include <errno.h>
#include <sys/random.h>

int weir__random_bytes(void *ret, size_t len)
{
    uint8_t *p = ret;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
    return 0;
}
