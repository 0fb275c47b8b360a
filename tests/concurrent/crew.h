/* A crew of threads that start together and are waited for, each with a number and its own
 * chance. */
#ifndef WEIR_CREW_H
#define WEIR_CREW_H

#include "base/random.h"

#include <pthread.h>

#define CREW 8

struct hand {
    void (*work)(struct hand *hand);
    void *job;
    int number;
    uint64_t chance;
    pthread_barrier_t *start;
};

static inline uint64_t hand_random(struct hand *hand, uint64_t below)
{
    return weir__random_next(&hand->chance) % below;
}

static inline void *hand_run(void *argument)
{
    struct hand *hand = argument;
    pthread_barrier_wait(hand->start);
    hand->work(hand);
    return NULL;
}

static inline void crew_run(void (*work)(struct hand *hand), void *job, uint64_t seed)
{
    pthread_t threads[CREW];
    struct hand hands[CREW];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, CREW);
    for (int i = 0; i < CREW; i++) {
        hands[i] = (struct hand){work, job, i, seed * CREW + (uint64_t)i, &start};
        pthread_create(&threads[i], NULL, hand_run, &hands[i]);
    }
    for (int i = 0; i < CREW; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

#endif
