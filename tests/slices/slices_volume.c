/*
 * How much slices admit compared with the exact limit, and how many decisions one call gains: the
 * table of docs/SLICES.md. 100,000/s, slices of 5 %, a round trip of 1 ms, in the world of world.h.
 *
 *     slices_volume [SECONDS]
 */
#include "world.h"

#define RATE 100000

static struct world world;
static struct rig exact;
static int64_t exactly;
static int64_t gaps_ns[PROCESSES_MAX], next_ns[PROCESSES_MAX];

static void world_admitted(struct world *it, int64_t time_us, int64_t cost, bool local)
{
    (void)time_us, (void)local;
    it->admitted += cost;
}

static void world_charged(struct world *it, int64_t time_us, int64_t charged_at_us, int64_t cost)
{
    (void)it, (void)time_us, (void)charged_at_us, (void)cost;
}

static void world_corrected(struct world *it, int64_t time_us, const struct message *message)
{
    (void)it, (void)time_us, (void)message;
}

static void world_plan(struct world *it, const struct event *event)
{
    (void)it, (void)event;
}

static void world_arrive(struct world *it, int process)
{
    exactly += take(&exact, T0 + it->now_us, 1, 0).charged;
    process_take(it, process, (struct waiting){1, process_now(it, process) + DEADLINE_US, 0});
    next_ns[process] += 1 + world_below(it, 2 * gaps_ns[process]);
    world_in(it, weir__max(0, next_ns[process] / 1000 - it->now_us), ARRIVE, process);
}

struct figures {
    double volume, per_call;
};

/* Over the limit, of a bucket that was just emptied: it is about the long run. */
static struct figures volume_play(int processes, bool hot, double load, double seconds)
{
    struct weir__slicing slicing = {50000, processes, SECOND};
    double rate = load * RATE;
    world_init(&world, 7, RIGHT, "token-bucket 100000/s", &slicing, processes);
    world.network = (struct network){400, 600, 0, 0, 0, 0};
    rig_init(&exact, "token-bucket 100000/s");
    if (load > 1) {
        take(&exact, T0, exact.rule.burst, 0);
        take(&world.rig, T0, exact.rule.burst - world.terms[0].withheld, 0);
    }
    exactly = 0;
    for (int i = 0; i < processes; i++) {
        double share = !hot ? 1.0 / processes : i == 0 ? 0.91 : 0.09 / (processes - 1);
        gaps_ns[i] = (int64_t)(1e9 / (rate * share));
        next_ns[i] = 2000000 + world_below(&world, gaps_ns[i]); /* when the slots are there */
        world_in(&world, next_ns[i] / 1000, ARRIVE, i);
    }
    world_run(&world, (int64_t)(seconds * SECOND));
    uint64_t calls = world.calls + world.returns;
    return (struct figures){(double)world.admitted / (double)exactly,
                            (double)world.arrivals / (double)(calls ? calls : 1)};
}

static void volume_row(int processes, bool hot, double seconds)
{
    static const double loads[] = {0.5, 0.9, 1.5, 5};
    printf("| %s |",
           hot ? "10, one of them hot"
               : (const char *[]){"", "1", "2", "3", "4", "5", "", "", "", "", "10"}[processes]);
    for (size_t i = 0; i < WEIR__COUNT(loads); i++) {
        struct figures it = volume_play(processes, hot, loads[i], seconds);
        bool under = loads[i] < 1;
        printf(" %.1f %%, %.0f |", 100 * it.volume, it.per_call);
        CHECK(it.volume <= 1.0 + 1.0 / RATE || under);
        CHECK(it.volume >= (under ? 0.98 : 0.95));
        CHECK(it.per_call >= (under ? 150 : 60));
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1.0;
    printf("| processes | 0.5 of the rate | 0.9 | 1.5 | 5 |\n|---|---|---|---|---|\n");
    for (int i = 0; i < 4; i++)
        volume_row((const int[]){1, 2, 5, 10}[i], false, seconds);
    volume_row(10, true, seconds);
    world_free(&world);
    return test_report();
}
