/*
 * Random plans for a world of slices (world.h): what arrives, which processes stop, die, close and
 * begin again, when the server is away. Prints every admission; check.py judges them.
 *
 *     slices_plans FIRST-SEED PLANS [MISTAKE [WORD]]     WORD: only limits that contain it
 *
 *     plan SEED LIMIT
 *     A TIME COST         an admission, at a time of the server in microseconds
 *     S TIME T0 COST REAL what was admitted at T0 is settled to its real cost
 *     C TIME COST         the server was charged (only for windows that their first charge opens)
 *     R TIME T0 COST      and this much of the charge of T0 was given back
 *     end SIZE MOST       what was withheld, what a process may hold; and counts
 */
#include "world.h"

#define LENGTH_US (25 * SECOND)

static const char *const limits[] = {
    "token-bucket 40/s burst 60",
    "token-bucket 100/s burst 30",
    "token-bucket 600/m burst 100",
    "token-bucket 900/2m burst 50",
    "token-bucket 30/s burst 60 stepped",
    "token-bucket 40/2s burst 40 stepped",
    "leaky-bucket 40/s burst 59 nodelay",
    "leaky-bucket 100/s burst 29 nodelay",
    "fixed-window 60/s",
    "fixed-window 100/3s",
    "fixed-window 60/s from-first",
    "fixed-window 100/3s from-first",
    "fixed-window 60/s zone +05:45",
    "fixed-window 200/d zone -03:00",
    "sliding-log 60/s",
    "sliding-log 100/4s",
    "sliding-window 60/s",
    "sliding-window 100/4s precision 300ms",
    "sliding-counter 60/s",
    "sliding-counter 100/3s",
};

static struct world world;
static struct {
    int64_t gap_us[PROCESSES_MAX]; /* between requests; 0: none come now */
    int64_t most_cost;
    bool tell_charges;
    int other_sizes, trouble; /* in a thousand */
    int pulse;                /* so often more, all ask at once and are silent again */
} plan;

static void world_admitted(struct world *it, int64_t time_us, int64_t cost, bool local)
{
    (void)local;
    it->admitted += cost;
    printf("A %lld %lld\n", (long long)time_us, (long long)cost);
}

static void world_charged(struct world *it, int64_t time_us, int64_t charged_at_us, int64_t cost)
{
    (void)it;
    if (!plan.tell_charges)
        return;
    if (cost > 0)
        printf("C %lld %lld\n", (long long)time_us, (long long)cost);
    else
        printf("R %lld %lld %lld\n", (long long)time_us, (long long)charged_at_us,
               (long long)-cost);
}

static void world_corrected(struct world *it, int64_t time_us, const struct message *message)
{
    (void)it;
    printf("S %lld %lld %lld %lld\n", (long long)time_us, (long long)message->admitted_us,
           (long long)message->cost, (long long)message->actual);
}

/* Where a settle finds the charge of a local answer as an exact limit would find the admission. */
static bool plan_settles(const struct weir__rule *rule)
{
    switch ((enum weir__kind)rule->kind) {
    case WEIR__TOKEN_BUCKET:
    case WEIR__LEAKY_BUCKET:
    case WEIR__FIXED_WINDOW:
    case WEIR__CALENDAR:
    case WEIR__SLIDING_COUNTER:
        return true;
    case WEIR__STEPPED:
    case WEIR__FROM_FIRST:
    case WEIR__SLIDING_LOG:
    case WEIR__SLIDING_WINDOW:
    case WEIR__SMOOTH:
    case WEIR__WARMUP:
    case WEIR__CONCURRENT:
    case WEIR__KIND_COUNT:
        break;
    }
    return false;
}

static void world_arrive(struct world *it, int process)
{
    int64_t gap = plan.gap_us[process];
    int class = world_chance(it, plan.other_sizes) ? 1 : 0;
    int64_t cost = world_chance(it, 700) ? 1 : world_between(it, 1, plan.most_cost);
    if (gap == 0) {
        world_in(it, world_between(it, 5000, 20000), ARRIVE, process);
        return;
    }
    process_take(it, process,
                 (struct waiting){cost, process_now(it, process) + DEADLINE_US, class});
    world_in(it, 1 + world_below(it, 2 * gap), ARRIVE, process);
}

/* How often requests come: a flood, a little, or nothing for a while. */
static int64_t plan_gap(struct world *it)
{
    int64_t turn = world_below(it, 10);
    return turn < 4   ? world_between(it, 2000, 12000)
           : turn < 7 ? world_between(it, 5000, 60000)
                      : 0;
}

/* A process that holds nothing, not even on its way back, releases its slot; the slot of another
 * runs out by itself. */
static void plan_close(struct world *it, int process)
{
    struct process *closing = &it->processes[process];
    int64_t now_us = process_now(it, process);
    struct weir__pool *pool = process_pools(it, process);
    bool holds = pool && now_us < pool->returning_until_us && pool->returning > 0;
    for (size_t i = 0; pool && i < WEIR__POOL_GRANTS; i++)
        holds = holds || pool->grants[i].left > 0;
    process_give_back(it, process, true);
    if (closing->slot_us > now_us && !holds) {
        struct message message = process_message(it, process, RELEASE);
        message.lease = closing->lease;
        world_send(it, &message, AT_SERVER);
    }
}

static void plan_trouble(struct world *it, int process)
{
    struct process *victim = &it->processes[process];
    int64_t life = it->slicing.life_us;
    switch (world_below(it, 9)) {
    case 0: /* dies; another begins, now or after the lease */
        process_begin(it, process);
        victim->paused_until_us = it->now_us + world_below(it, 2) * world_below(it, 3 * SECOND);
        break;
    case 1:
        plan_close(it, process);
        process_begin(it, process);
        break;
    case 2: /* stopped, longer than a life */
        victim->paused_until_us = it->now_us + life + world_below(it, 2 * life);
        break;
    case 3: /* stopped, longer than its lease */
        victim->paused_until_us = it->now_us + LEASE_US + world_below(it, 3 * SECOND);
        break;
    case 4: /* the server is away, and loses nothing */
        it->down_until_us = it->now_us + world_below(it, 2 * SECOND);
        break;
    case 5: /* a network that is slow for a while, and one that loses much */
        it->network.slow = (int)world_below(it, 500);
        break;
    case 6:
        it->network.lost = (int)world_below(it, 300);
        break;
    case 7: /* short hot moments and silence, while what is given back is long on its way */
        it->network.slow = it->network.lost = 0;
        it->network.return_us = WEIR__POOL_DOUBT_US;
        plan.pulse = 2 * (int)world_between(it, 2, 6);
        break;
    default: /* all are silent: what they hold is given back */
        memset(plan.gap_us, 0, sizeof plan.gap_us);
        break;
    }
}

static void world_plan(struct world *it, const struct event *event)
{
    (void)event;
    for (int i = 0; i < it->count; i++) {
        if (world_chance(it, 300))
            plan.gap_us[i] = plan_gap(it);
    }
    if (world_chance(it, 50)) { /* a flood after a silence of all is where limits break */
        for (int i = 0; i < it->count; i++)
            plan.gap_us[i] = world_between(it, 1000, 6000);
    }
    if (world_chance(it, 200))
        it->network.slow = it->network.lost = 3;
    if (plan.pulse > 0) {
        bool silent = --plan.pulse % 2;
        for (int i = 0; i < it->count; i++)
            plan.gap_us[i] = silent && plan.pulse > 1 ? 0 : world_between(it, 1000, 4000);
        int64_t life = it->slicing.life_us;
        world_in(it, silent ? life * 3 / 4 : world_below(it, weir__min(life, 100000)), PLAN, 0);
        return;
    }
    it->network.return_us = 0;
    if (world_chance(it, plan.trouble))
        plan_trouble(it, (int)world_below(it, it->count));
    world_in(it, world_between(it, 20000, 200000), PLAN, 0);
}

/* The limit of a plan: they take turns. */
static const char *plan_limit(uint64_t seed, const char *word)
{
    const char *some[WEIR__COUNT(limits)];
    size_t n = 0;
    for (size_t i = 0; i < WEIR__COUNT(limits); i++) {
        if (strstr(limits[i], word))
            some[n++] = limits[i];
    }
    if (n == 0) {
        fprintf(stderr, "no limit contains \"%s\"\n", word);
        exit(2);
    }
    return some[seed % n];
}

static void plan_play(uint64_t seed, enum mistake mistake, const char *word_of_limits)
{
    uint64_t chance = seed * UINT64_C(0x9e3779b97f4a7c15);
    const char *limit = plan_limit(seed, word_of_limits);
    weir__random_next(&chance);
    uint64_t word = weir__random_next(&chance);
    struct weir__slicing slicing = {.share = 100000 + (uint32_t)(word % 400001),
                                    .peers = 1 + (int32_t)(word >> 20 & 3),
                                    .life_us = 50000 + (int64_t)((word >> 32) % 1000000)};
    static const int more[] = {0, 0, 1, 2};
    int count = slicing.peers + more[word >> 62];
    world_init(&world, chance, mistake, limit, &slicing, count);
    int64_t fast = world_below(&world, 2);
    world.network = (struct network){50, fast ? 1000 : 20000, 3, 3, 3 * SECOND, 0};
    plan.most_cost = world.sliced[0] ? 1 + world_below(&world, world.terms[0].most + 2) : 3;
    plan.tell_charges = world.rules[0].kind == WEIR__FROM_FIRST;
    plan.other_sizes = world_chance(&world, 300) ? 200 : 0;
    plan.trouble = (int)world_below(&world, 150);
    plan.pulse = 0;
    if (plan_settles(&world.rules[0]) && world_chance(&world, 400))
        world.settles = (int)world_below(&world, 300);
    for (int i = 0; i < count; i++) {
        plan.gap_us[i] = plan_gap(&world);
        world_in(&world, world_below(&world, 10000), ARRIVE, i);
    }
    world_in(&world, 0, PLAN, 0);
    printf("plan %llu %s\n", (unsigned long long)seed, limit);
    world_run(&world, LENGTH_US);
    printf("end %lld %lld local %llu denied %llu central %llu calls %llu returned %lld lost %lld\n",
           (long long)world.terms[0].withheld, (long long)world.terms[0].most,
           (unsigned long long)world.local, (unsigned long long)world.denied,
           (unsigned long long)world.central, (unsigned long long)world.calls,
           (long long)world.returned, (long long)world.lost);
}

static enum mistake mistake_named(const char *name)
{
    for (int i = 0; i < MISTAKES; i++) {
        if (!strcmp(mistakes[i], name))
            return (enum mistake)i;
    }
    fprintf(stderr, "unknown mistake \"%s\": world.h has the names\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t plans = argc > 2 ? strtoull(argv[2], NULL, 10) : 20;
    enum mistake mistake = argc > 3 ? mistake_named(argv[3]) : RIGHT;
    for (uint64_t i = 0; i < plans; i++)
        plan_play(first + i, mistake, argc > 4 ? argv[4] : "");
    world_free(&world);
    return 0;
}
