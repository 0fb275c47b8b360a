/*
 * One trial: a world, a store of its own, a history of calls, and whether it is linearizable. The
 * seed decides all but the schedule.
 */
#ifndef WEIR_HISTORY_TRIAL_H
#define WEIR_HISTORY_TRIAL_H

#include "history_check.h"
#include "history_record.h"
#include "store/zone/store.h"

struct trial {
    size_t kind; /* index into history_limits: that of the first key */
    size_t hands;
    enum record_clock clock;
    enum test_kind home;
    bool processes;
    /* 0: one key, one limit; 1: one key, two limits; 2: three keys; 3: three keys that share a home
     * and a limit, and are reset all the time, so that they use each other's slots */
    int shape;
    int64_t pace_us;
    uint64_t resets; /* in a hundred calls */
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
    static const int shapes[] = {0, 0, 0, 1, 1, 2, 2, 3};
    trial.shape = shapes[weir__random_next(&chance) % 8];
    trial.pace_us = 1 + (int64_t)(weir__random_next(&chance) % (2 * HISTORY_TOKEN_US));
    trial.resets = trial.shape == 3 ? 15 : 1;
    if (weir__random_next(&chance) % 8 == 0)
        trial.hands = HISTORY_HANDS;
    return trial;
}

static inline void trial_print(const struct trial *it)
{
    static const char *const clocks[] = {"the system's clock", "its own clock", "a virtual clock"};
    static const char *const homes[] = {"memory", "shm", "file"};
    static const char *const shapes[] = {"one limit", "two limits", "three keys",
                                         "three keys in one place"};
    printf("seed %llu: %s, %s, %zu %s on %s, %s\n", (unsigned long long)it->seed,
           history_limits[it->kind][0], shapes[it->shape], it->hands,
           it->processes ? "processes" : "threads", homes[it->home], clocks[it->clock]);
}

/* Where a zone begins to look for a key. */
static inline uint64_t trial_home(weir_store *store, const char *name)
{
    weir_hashed_key hashed;
    if (weir_key_hash(store, weir_key_text(name), &hashed))
        test_give_up(name, "refused");
    return weir__home_of(&weir__store_region(store)->zone, weir__tag_of(hashed.hash));
}

/* Gives a key another name until it has the home of the first. */
static inline void trial_move_in(weir_store *store, const struct history_key *first, size_t number,
                                 struct history_key *key)
{
    uint64_t home = trial_home(store, first->name);
    for (int i = 0; trial_home(store, key->name) != home; i++)
        snprintf(key->name, sizeof key->name, "history/%zu/%d", number, i);
}

static inline void trial_world(const struct trial *it, weir_store *store, struct history_world *ret)
{
    ret->keys = it->shape >= 2 ? 3 : 1;
    for (size_t i = 0; i < ret->keys; i++) {
        size_t first = it->shape == 3 ? it->kind : (it->kind + 3 * i) % HISTORY_LIMITS;
        size_t second = first;
        if (it->shape == 1 || (it->shape == 2 && i == 1))
            second = (first + 1 + it->seed % 5) % HISTORY_LIMITS;
        history_key_make(&ret->key[i], (int)i, first, second);
        if (it->shape == 3 && i > 0)
            trial_move_in(store, &ret->key[0], i, &ret->key[i]);
    }
}

/* Of all trials. */
struct trial_sum {
    long trials, calls, overlaps;
};

/* Whether the history of this trial is explained. */
static inline enum check_verdict trial_run(const struct trial *it, struct record_page *page,
                                           struct check *check, bool tell, struct trial_sum *sum)
{
    struct history_world world;
    struct record record = {.page = page,
                            .world = &world,
                            .clock = it->clock,
                            .pace_us = it->pace_us,
                            .resets = it->resets,
                            .seed = it->seed};
    const char *url = test_url(it->home, "history", "size=256k");
    record.store = test_open(url, NULL);
    trial_world(it, record.store, &world);
    record_run(&record, it->hands, it->processes ? url : NULL);
    weir_zone_info info = test_info(record.store);
    enum check_verdict verdict = check_history(check, &world, &page->history, tell);
    if (tell && verdict != CHECK_EXPLAINED)
        trial_print(it);
    if (tell) /* what was evicted nobody could explain */
        CHECK_INT(info.evicted_fresh + info.evicted_unused + info.evicted_soonest + info.repairs,
                  0);
    sum->trials++;
    sum->overlaps += history_overlaps(&page->history);
    for (size_t i = 0; i < it->hands; i++)
        sum->calls += page->history.count[i];
    weir_store_close(record.store);
    test_remove(it->home, "history");
    history_world_free(&world);
    return verdict;
}

#endif
