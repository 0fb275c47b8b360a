/* The server's clock, and the one tests set. */
#include "weir_redis.h"

#include "base/clock.h"

#define DAY_MS INT64_C(86400000)

bool test_clock_enabled;
static int64_t test_us = -1;

void test_clock_set(int64_t microseconds)
{
    test_us = microseconds;
}

static int64_t real_us(void)
{
    return rm_CachedMicroseconds ? rm_CachedMicroseconds() : weir__clock_us();
}

int64_t now_us(void)
{
    return test_us >= 0 ? test_us : real_us();
}

int64_t expire_at_ms(int64_t fresh_us)
{
    return test_us >= 0 ? real_us() / 1000 + DAY_MS : weir__div_up(fresh_us, 1000);
}
