/*
 * The real clock and threads that are held up between reading it and deciding: within any span
 * never more is admitted than the rate allows and the burst. More threads than cores see to some of
 * that, a clock that dozes off after it was read sees to the rest.
 *
 *     threads_clock [MILLISECONDS]
 */
#include "../unit/store_test.h"
#include "base/clock.h"
#include "crew.h"

#define RATE 1000
#define ADMITTED_MAX 100000
#define SLACK 4 /* both ends are whole microseconds, and each thread may be off by under one */

/* When an admitted request was decided: somewhere in between. */
struct span {
    int64_t from, to;
};

struct job {
    weir_store *store;
    weir_limit *limit;
    int64_t until;
    struct span spans[ADMITTED_MAX];
    _Atomic int count;
    _Atomic long failures;
};

static int64_t doze(void *context)
{
    static _Atomic unsigned calls;
    int64_t now = weir__clock_real_us();
    (void)context;
    unsigned call = atomic_fetch_add(&calls, 1);
    if (call % 16 == 0)
        weir__clock_sleep_us(call % 5 * 700);
    return now;
}

static void ask(struct hand *hand)
{
    struct job *job = hand->job;
    int64_t from;
    while ((from = weir__clock_real_us()) < job->until) {
        weir_decision decision = {0};
        if (weir_take(job->store, weir_key_text("key"), job->limit, 1, &decision))
            job->failures++;
        if (!decision.allowed)
            continue;
        int at = atomic_fetch_add(&job->count, 1);
        if (at < ADMITTED_MAX)
            job->spans[at] = (struct span){from, weir__clock_real_us()};
    }
}

static int by_end(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->to > y->to) - (x->to < y->to);
}

/* The most by which any span of time admitted too many: requests that began in it and ended in it,
 * less the burst and what its length earns. */
static int64_t excess(const struct job *job)
{
    int64_t worst = INT64_MIN;
    for (int first = 0; first < job->count; first++) {
        int64_t from = job->spans[first].from, within = 0;
        for (int i = 0; i < job->count; i++) {
            if (job->spans[i].from < from)
                continue;
            within++;
            int64_t over = within - 1 - (job->spans[i].to - from + SLACK) * RATE / SECOND;
            worst = over > worst ? over : worst;
        }
    }
    return worst;
}

static void run(enum test_kind kind, const weir_clock *clock, int milliseconds)
{
    struct job *job = calloc(1, sizeof *job);
    job->store = test_open(test_url(kind, "clock", "size=1m"), NULL);
    job->limit = test_limit_of("token-bucket %d/s burst 1", RATE);
    weir_store_set_clock(job->store, clock);
    int64_t start = weir__clock_real_us();
    job->until = start + milliseconds * 1000;
    crew_run(ask, job, 1);
    int64_t elapsed = weir__clock_real_us() - start;
    int64_t most = elapsed * RATE / SECOND + 1;
    CHECK_INT(job->failures, 0);
    char what[128];
    snprintf(what, sizeof what, "admitted %d in %lld us, at most %lld", job->count,
             (long long)elapsed, (long long)most);
    test_check(job->count <= most, __FILE__, __LINE__, what);
    CHECK(job->count > 0 && job->count < ADMITTED_MAX);
    qsort(job->spans, (size_t)job->count, sizeof job->spans[0], by_end);
    int64_t worst = excess(job);
    snprintf(what, sizeof what, "some span admitted %lld too many", (long long)worst);
    test_check(worst <= 0, __FILE__, __LINE__, what);
    weir_store_close(job->store);
    weir_limit_free(job->limit);
    test_remove(kind, "clock");
    free(job);
}

int main(int argc, char **argv)
{
    int milliseconds = argc > 1 ? atoi(argv[1]) : 700;
    weir_clock dozing = {doze, NULL, NULL};
    run(TEST_MEMORY, NULL, milliseconds);
    run(TEST_MEMORY, &dozing, milliseconds);
    run(TEST_SHM, NULL, milliseconds);
    run(TEST_SHM, &dozing, milliseconds);
    test_remove_directory();
    return test_report();
}
