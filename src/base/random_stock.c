/*
 * Random words from a stock, hundreds per system call, for leases; and words that differ, from a generator per
 * thread, for receipts. Neither repeats in a child of fork: it finds the page below zeroed.
 */
#include "base/random.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A page that a child of fork finds zeroed. A word is zeroed when it is given out. */
struct stock {
    _Atomic uint32_t busy;
    uint32_t left;
    _Atomic uint64_t process; /* names this process to its threads' generators; 0: not drawn yet */
    uint64_t words[510];
};
_Static_assert(sizeof(struct stock) == 4096, "one page");

static struct stock *_Atomic stock;

/* The stock, made once; NULL: there is none to be had. */
static struct stock *get_stock(void)
{
    struct stock *it = atomic_load_explicit(&stock, memory_order_acquire);
    if (it)
        return it;
    it = mmap(NULL, sizeof *it, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (it == MAP_FAILED)
        return NULL;
    struct stock *other = NULL;
    if (madvise(it, sizeof *it, MADV_WIPEONFORK) ||
        !atomic_compare_exchange_strong(&stock, &other, it)) {
        munmap(it, sizeof *it);
        return other;
    }
    return it;
}

static bool draw(struct stock *it, uint64_t *ret)
{
    if (it->left == 0) {
        if (weir__random_bytes(it->words, sizeof it->words))
            return false;
        it->left = sizeof it->words / sizeof it->words[0];
    }
    uint64_t *word = &it->words[--it->left];
    *ret = *word;
    *word = 0;
    return true;
}

int weir__random_word(uint64_t *ret)
{
    struct stock *it = get_stock();
    uint32_t free = 0;
    if (!it || !atomic_compare_exchange_strong(&it->busy, &free, 1)) /* another thread is at it */
        return weir__random_bytes(ret, sizeof *ret);
    bool drawn = draw(it, ret);
    atomic_store(&it->busy, 0);
    return drawn ? 0 : -1;
}

/* ---- words that differ ---- */

static _Thread_local struct {
    uint64_t process; /* the process that seeded it */
    uint64_t state;
} generator;

/* What differs between threads and moments, where there is no randomness. */
static uint64_t generator_guess(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 20 ^
           (uint64_t)getpid() << 48 ^ (uintptr_t)&generator;
}

static void generator_seed(struct stock *it)
{
    uint64_t process = atomic_load(&it->process), seed, drawn;
    if (weir__random_word(&seed) || weir__random_word(&drawn))
        drawn = seed = generator_guess();
    drawn |= 1;
    if (process == 0 && atomic_compare_exchange_strong(&it->process, &process, drawn))
        process = drawn;
    generator.state = seed;
    generator.process = process;
}

uint64_t weir__random_distinct(void)
{
    struct stock *it = get_stock();
    uint64_t process = it ? atomic_load_explicit(&it->process, memory_order_relaxed) : 0;
    if (it && (process == 0 || generator.process != process))
        generator_seed(it);
    else if (!it)
        generator.state = generator_guess();
    return weir__random_next(&generator.state);
}
