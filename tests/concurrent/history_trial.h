/*
 * One trial: a world, a store of its own, a history of calls, and whether it is linearizable. The seed decides all but
 * the schedule.
 */
#ifndef WEIR_HISTORY_TRIAL_H
#define WEIR_HISTORY_TRIAL_H

#include "history_check.h"
#include "history_record.h"

struct trial {
    size_t kind; /* index into history_limits: that of the first key */
    size_t hands;
    enum record_clock clock;
    enum test_kind home;
    bool processes;
    int shape; /* 0: one key, one limit; 1: one key, two limits; 2: three keys */
    int64_t pace_us;
    uint64_t seed;
};

static inline struct trial trial_of(uint64_t seed)
{
    uint64_t chance = seed;
    struct trial trial = {.kind = seed % HISTORY_LIMITS, .seed = seed};
    trial.hands = 2 + weir__random_next(&chance) % 4;
    trial.clock = weir__random_next(&chance) % RECORD_CLOCKS;
    trial.home = weir__random_next(&chance) % TEST_KINDS;
    trial.processes = trial.home != TEST_MEMORY && weir__random_next(&chance) % 2;
    static const int shapes[] = {0, 0, 1, 2};
    trial.shape = shapes[weir__random_next(&chance) % 4];
    trial.pace_us = (int64_t)(weir__random_next(&chance) % (2 * HISTORY_TOKEN_US));
    if (weir__random_next(&chance) % 8 == 0)
        trial.hands = HISTORY_HANDS;
    return trial;
}

static inline void trial_print(const struct trial *it)
{
    static const char *const clocks[] = {"the system's clock", "its own clock", "a virtual clock"};
    static const char *const homes[] = {"memory", "shm", "file"};
    static const char *const shapes[] = {"one limit", "two limits", "three keys"};
    printf("seed %llu: %s, %s, %zu %s on %s, %s\n", (unsigned long long)it->seed,
           history_limits[it->kind][0], shapes[it->shape], it->hands,
           it->processes ? "processes" : "threads", homes[it->home], clocks[it->clock]);
}

static inline void trial_world(const struct trial *it, struct history_world *ret)
{
    ret->keys = it->shape == 2 ? 3 : 1;
    for (size_t i = 0; i < ret->keys; i++) {
        size_t first = (it->kind + 3 * i) % HISTORY_LIMITS;
        size_t second =
            it->shape == 1 || i == 1 ? (first + 1 + it->seed % 5) % HISTORY_LIMITS : first;
        history_key_make(&ret->key[i], (int)i, first, second);
    }
}

/* Whether the history of this trial is linearizable. *ret_calls grows by its calls. */
static inline bool trial_run(const struct trial *it, struct record_page *page, struct check *check,
                             bool tell, long *ret_calls)
{
    struct history_world world;
    struct record record = {.page = page,
                            .world = &world,
                            .clock = it->clock,
                            .pace_us = it->pace_us,
                            .seed = it->seed};
    trial_world(it, &world);
    const char *url = test_url(it->home, "history", "size=256k");
    record.store = test_open(url, NULL);
    record_run(&record, it->hands, it->processes ? url : NULL);
    weir_zone_info info = test_info(record.store);
    bool linear = check_history(check, &world, &page->history, tell);
    if (tell && !linear)
        trial_print(it);
    if (tell) /* what was evicted nobody could explain */
        CHECK_INT(info.evicted_fresh + info.evicted_unused + info.evicted_soonest + info.repairs,
                  0);
    for (size_t i = 0; i < it->hands; i++)
        *ret_calls += page->history.count[i];
    weir_store_close(record.store);
    test_remove(it->home, "history");
    history_world_free(&world);
    return linear;
}

#endif
