/*
 * Small helpers that everything may use: branch hints, bounds, saturating sums, error filling.
 * Layer 0: includes nothing of ours but the public header.
 */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include "weir.h"

#include <stdarg.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "weir needs a little-endian machine: its states in zones and in Redis are little-endian"
#endif
#if UINTPTR_MAX < UINT64_MAX
#error "weir needs a 64-bit machine: its states are swapped and counted in 64-bit words"
#endif

#define WEIR__LIKELY(x) __builtin_expect(!!(x), 1)
#define WEIR__UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WEIR__COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* An invariant that is cheap to check and dear to miss: it is checked in every build. assert() is
 * for the others, which only debug builds and tests check. */
#define WEIR__CHECK(holds)                                                                         \
    (WEIR__LIKELY(holds) ? (void)0 : weir__check_failed(#holds, __FILE__, __LINE__))
_Noreturn void weir__check_failed(const char *what, const char *file, int line);
#define WEIR__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The largest integer that every home (Lua's doubles too) counts exactly. */
#define WEIR__EXACT_MAX (INT64_C(1) << 53)

static inline int64_t weir__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t weir__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A duration or count as answers have it: 2^53 means "this much or more". */
static inline int64_t weir__saturated(int64_t x)
{
    return x < WEIR__EXACT_MAX ? x : WEIR__EXACT_MAX;
}

/* ceil(a / b) for a >= 0, b > 0. */
static inline int64_t weir__div_up(int64_t a, int64_t b)
{
    return (int64_t)(((uint64_t)a + (uint64_t)b - 1) / (uint64_t)b);
}

/* Fills err (may be NULL) and returns code, so that callers can `return weir__fail(...)`. */
int weir__fail(weir_error *err, int code, int column, const char *format, ...) WEIR__PRINTF(4, 5);
#ifdef __clang_analyzer__ /* it cannot look into error.c: the result is the code */
static inline int weir__the_code(int code)
{
    return code;
}
#define weir__fail(err, code, ...)                                                                 \
    weir__the_code(((void)weir__fail(err, code, __VA_ARGS__), (code)))
#endif

#endif
