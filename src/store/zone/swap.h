/*
 * Sixteen bytes at once: how a state is read, and how it is changed only if it is still the one
 * that was read.
 *
 * x86-64: cmpxchg16b, and one aligned load, which every processor with AVX promises to be whole.
 * aarch64: the compiler's exclusive pair or CASP. Elsewhere a swap is two stores, which is right
 * only under the stripe's lock, so that a zone there takes the lock for everything
 * (weir__zone_has_swap).
 */
#ifndef WEIR_ZONE_SWAP_H
#define WEIR_ZONE_SWAP_H

#include <stdbool.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define WEIR__THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEIR__THREAD_SANITIZER 1
#endif
#endif

struct weir__packed {
    uint64_t lo, hi;
} __attribute__((aligned(16)));

typedef unsigned __int128 weir__word16 __attribute__((may_alias));

static inline bool weir__packed_same(struct weir__packed a, struct weir__packed b)
{
    return ((a.lo ^ b.lo) | (a.hi ^ b.hi)) == 0;
}

static inline weir__word16 weir__word16_of(struct weir__packed packed)
{
    return (weir__word16)packed.hi << 64 | packed.lo;
}

#if defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16) || defined(__aarch64__)
#define WEIR__HAS_SWAP 1
#else
#define WEIR__HAS_SWAP 0
#endif

#if defined(WEIR__THREAD_SANITIZER) && defined(__x86_64__)
/* The sanitizer's runtime swaps sixteen bytes under a lock of its own process, of which other
 * processes know nothing. So here stands the instruction, and the sanitizer is told its order. */
void __tsan_acquire(void *at);
void __tsan_release(void *at);
#define WEIR__LOADS_BY_SWAP 1
#define WEIR__TELL_ACQUIRE(at) __tsan_acquire(at)
#define WEIR__TELL_RELEASE(at) __tsan_release(at)
#else
#define WEIR__LOADS_BY_SWAP 0
#define WEIR__TELL_ACQUIRE(at) (void)0
#define WEIR__TELL_RELEASE(at) (void)0
#endif

/* Puts `next` there if *seen is there; a full barrier. False: *seen is what is there instead. */
static inline bool weir__swap16(struct weir__packed *at, struct weir__packed *seen,
                                struct weir__packed next)
{
#if WEIR__HAS_SWAP && defined(__x86_64__)
    bool done;
    WEIR__TELL_RELEASE(at);
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(done), "+m"(*at), "+a"(seen->lo), "+d"(seen->hi)
                     : "b"(next.lo), "c"(next.hi)
                     : "memory");
    WEIR__TELL_ACQUIRE(at);
    return done;
#elif WEIR__HAS_SWAP
    weir__word16 there = __sync_val_compare_and_swap((weir__word16 *)at, weir__word16_of(*seen),
                                                     weir__word16_of(next));
    bool done = there == weir__word16_of(*seen);
    *seen = (struct weir__packed){(uint64_t)there, (uint64_t)(there >> 64)};
    return done;
#else
    bool done = weir__packed_same(*at, *seen);
    if (done)
        *(volatile struct weir__packed *)at = next;
    else
        *seen = *at;
    return done;
#endif
}

/* All sixteen bytes as they were at one moment. */
static inline struct weir__packed weir__load16(const struct weir__packed *from)
{
#if WEIR__LOADS_BY_SWAP
    struct weir__packed value = {0, 0};
    weir__swap16((struct weir__packed *)(uintptr_t)from, &value, value);
    return value;
#elif defined(__x86_64__)
    typedef uint64_t pair __attribute__((vector_size(16)));
    pair value = *(const volatile pair *)from;
    __asm__ volatile(
        "" ::
            : "memory"); /* loads stay in order on this processor; in the compiler, too */
    return (struct weir__packed){value[0], value[1]};
#elif WEIR__HAS_SWAP
    struct weir__packed *at = (struct weir__packed *)(uintptr_t)from;
    weir__word16 value = __sync_val_compare_and_swap((weir__word16 *)at, 0, 0);
    return (struct weir__packed){(uint64_t)value, (uint64_t)(value >> 64)};
#else
    return *(const volatile struct weir__packed *)from;
#endif
}

/* The same in two halves, which is cheaper: each was there, perhaps not at one moment. For those
 * who go on only if a swap or a second look finds both together. */
static inline struct weir__packed weir__look16(const struct weir__packed *from)
{
    uint64_t lo = __atomic_load_n(&from->lo, __ATOMIC_ACQUIRE);
    return (struct weir__packed){lo, __atomic_load_n(&from->hi, __ATOMIC_ACQUIRE)};
}

/* All sixteen bytes at once, whatever was there. One store instruction: a process killed anywhere
 * has done it or not. */
static inline void weir__store16(struct weir__packed *to, struct weir__packed value)
{
#if WEIR__LOADS_BY_SWAP || (WEIR__HAS_SWAP && !defined(__x86_64__))
    struct weir__packed there = weir__load16(to);
    while (!weir__swap16(to, &there, value))
        ;
#else
    typedef uint64_t pair __attribute__((vector_size(16)));
    __asm__ volatile("" ::: "memory");
    *(volatile pair *)to = (pair){value.lo, value.hi};
    __asm__ volatile("" ::: "memory");
#endif
}

/* Whether states may be swapped without a lock here. */
static inline bool weir__zone_has_swap(void)
{
#if defined(__x86_64__) && WEIR__HAS_SWAP
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_AVX) && (c & bit_CMPXCHG16B);
#else
    return WEIR__HAS_SWAP;
#endif
}

#endif
