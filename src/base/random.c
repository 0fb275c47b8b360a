/*
 * See random.h. Random words come from a stock, hundreds per system call, for leases. Words that
 * differ come from a generator per thread, for receipts. Neither repeats in a child of fork, which
 * finds the page of the stock zeroed: by the kernel, and by ourselves, because there are emulators
 * that say that they do it and do not.
 */
#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static int random_fill(uint8_t *p, size_t len)
{
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

int weir__random_bytes(void *ret, size_t len)
{
    int state; /* getrandom is a cancellation point, which verbs are not */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int code = random_fill(ret, len);
    pthread_setcancelstate(state, NULL);
    return code;
}

/* ---- the stock ---- */

/* A page that a child of fork finds zeroed. A word is zeroed when it is given out. */
struct random_stock {
    _Atomic uint32_t busy;
    uint32_t left;
    _Atomic uint64_t process; /* names this process to its threads' generators; 0: not drawn yet */
    uint64_t words[510];
};
_Static_assert(sizeof(struct random_stock) == 4096, "one page");

static struct random_stock *_Atomic shared_stock;

/* In a child of fork. */
static void random_forget(void)
{
    memset(shared_stock, 0, sizeof *shared_stock);
}

/* The stock, made once; NULL: there is no memory for it. */
static struct random_stock *random_stock(void)
{
    struct random_stock *it = atomic_load_explicit(&shared_stock, memory_order_acquire);
    if (it)
        return it;
    it = mmap(NULL, sizeof *it, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (it == MAP_FAILED)
        return NULL;
    struct random_stock *other = NULL;
    if (madvise(it, sizeof *it, MADV_WIPEONFORK) ||
        !atomic_compare_exchange_strong(&shared_stock, &other, it)) {
        munmap(it, sizeof *it);
        return other;
    }
    pthread_atfork(NULL, NULL, random_forget);
    return it;
}

static bool random_draw(struct random_stock *it, uint64_t *ret)
{
    if (it->left == 0) {
        if (weir__random_bytes(it->words, sizeof it->words))
            return false;
        it->left = sizeof it->words / sizeof it->words[0];
    }
    assert(it->left <= sizeof it->words / sizeof it->words[0]);
    uint64_t *word = &it->words[--it->left];
    *ret = *word;
    *word = 0;
    return true;
}

int weir__random_word(uint64_t *ret)
{
    struct random_stock *it = random_stock();
    uint32_t free = 0;
    if (!it || !atomic_compare_exchange_strong(&it->busy, &free, 1)) /* another thread is at it */
        return weir__random_bytes(ret, sizeof *ret);
    bool drawn = random_draw(it, ret);
    atomic_store(&it->busy, 0);
    return drawn ? 0 : -1;
}

/* ---- words that differ ---- */

static _Thread_local struct {
    uint64_t process; /* the process that seeded it */
    uint64_t state;
} generator;

/* What differs between threads and moments, where there is no randomness. */
static uint64_t random_guess(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec << 20 ^
           (uint64_t)getpid() << 48 ^ (uintptr_t)&generator;
}

static void random_seed(struct random_stock *it)
{
    uint64_t process = atomic_load(&it->process), seed, drawn;
    if (weir__random_word(&seed) || weir__random_word(&drawn))
        drawn = seed = random_guess();
    drawn |= 1;
    if (process == 0 && atomic_compare_exchange_strong(&it->process, &process, drawn))
        process = drawn;
    generator.state = seed;
    generator.process = process;
}

uint64_t weir__random_distinct(void)
{
    struct random_stock *it = random_stock();
    uint64_t process = it ? atomic_load_explicit(&it->process, memory_order_relaxed) : 0;
    if (it && (process == 0 || generator.process != process))
        random_seed(it);
    else if (!it)
        generator.state = random_guess();
    return weir__random_next(&generator.state);
}
