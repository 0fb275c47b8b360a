/*
 * The fast clocks against the real ones, on several threads for about a second: every answer lies
 * between two readings of the real clock (give or take the drift it is allowed), and a thread's
 * clock never runs back by more than a microsecond.
 *
 *     clock [MILLISECONDS]
 */
#include "base/clock.h"

#include "test.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS 4
#define ALLOWED_US                                                                                 \
    50 /* many times the drift of a millisecond; a lost scheduling slice is thousands */

/* A fast clock and what it must agree with. */
struct clocks {
    const char *name;
    int64_t (*fast)(void), (*real)(void);
};

struct watch {
    const struct clocks *clocks;
    int64_t until;
    int64_t early, late, back; /* the worst seen */
    long readings;
};

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t boot_real_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void *compare(void *argument)
{
    struct watch *watch = argument;
    const struct clocks *clocks = watch->clocks;
    int64_t last = 0, before;
    while ((before = clocks->real()) < watch->until) {
        int64_t now = clocks->fast();
        int64_t after = clocks->real();
        watch->early = most(watch->early, now - after);
        watch->late = most(watch->late, before - now);
        watch->back = most(watch->back, last - now);
        last = now;
        watch->readings++;
        for (int i = 0; i < 20; i++) { /* more often than it is anchored */
            now = clocks->fast();
            watch->back = most(watch->back, last - now);
            last = now;
        }
    }
    return NULL;
}

static void run(const struct clocks *clocks, int milliseconds)
{
    pthread_t threads[THREADS];
    struct watch watches[THREADS] = {0};
    struct watch worst = {0};
    int64_t until = clocks->real() + milliseconds * 1000;
    for (int i = 0; i < THREADS; i++) {
        watches[i] = (struct watch){.clocks = clocks, .until = until};
        pthread_create(&threads[i], NULL, compare, &watches[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        worst.early = most(worst.early, watches[i].early);
        worst.late = most(worst.late, watches[i].late);
        worst.back = most(worst.back, watches[i].back);
        worst.readings += watches[i].readings;
    }
    printf("%s clock of %s, %ld comparisons: at worst %lld us early, %lld us late, %lld us back\n",
           weir__clock_is_fast() ? "fast" : "real", clocks->name, worst.readings,
           (long long)worst.early, (long long)worst.late, (long long)worst.back);
    CHECK(worst.readings > 100);
    CHECK(worst.early <= ALLOWED_US);
    CHECK(worst.late <= ALLOWED_US);
    CHECK(worst.back <= 1);
}

int main(int argc, char **argv)
{
    static const struct clocks clocks[] = {
        {"CLOCK_REALTIME", weir__clock_us, weir__clock_real_us},
        {"CLOCK_BOOTTIME", weir__boot_us, boot_real_us},
    };
    int milliseconds = argc > 1 ? atoi(argv[1]) : 1000;
    for (int i = 0; i < 2; i++)
        run(&clocks[i], milliseconds / 2);
    return test_report();
}
