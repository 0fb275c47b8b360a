/* What a binding asks of the library before it calls it: sizes and places of the structures in
 * weir.h. Every member that programs read or write is in one list. */
#include "base/base.h"

#include <string.h>

#define KEY(X, S) X(S, data) X(S, len)
#define HASHED_KEY(X, S) X(S, key)
#define ERROR(X, S) X(S, code) X(S, column) X(S, message)
#define CLOCK(X, S) X(S, now) X(S, sleep) X(S, context)
#define REQUEST(X, S)                                                                              \
    X(S, key)                                                                                      \
    X(S, limit)                                                                                    \
    X(S, cost) X(S, wait_us) X(S, detail) X(S, acquire) X(S, hashed) X(S, error) X(S, least)
#define DECISION(X, S)                                                                             \
    X(S, limit)                                                                                    \
    X(S, remaining)                                                                                \
    X(S, retry_after_us)                                                                           \
    X(S, reset_after_us)                                                                           \
    X(S, delay_us)                                                                                 \
    X(S, time_us)                                                                                  \
    X(S, charged)                                                                                  \
    X(S, lease)                                                                                    \
    X(S, allowed)                                                                                  \
    X(S, degraded) X(S, binding) X(S, code) X(S, full) X(S, local) X(S, closed) X(S, granted)
#define LIMIT_NUMBERS(X, S)                                                                        \
    X(S, kind)                                                                                     \
    X(S, nodelay)                                                                                  \
    X(S, unit)                                                                                     \
    X(S, from_month)                                                                               \
    X(S, from_day)                                                                                 \
    X(S, count)                                                                                    \
    X(S, period_us)                                                                                \
    X(S, burst)                                                                                    \
    X(S, delay)                                                                                    \
    X(S, precision_us)                                                                             \
    X(S, burst_for_us) X(S, over_us) X(S, cold_millionths) X(S, zone_minutes) X(S, cost)
#define WAIT_OPTIONS(X, S) X(S, max_wait_us) X(S, waiter) X(S, cancel_fd) X(S, interruptible)
#define COUNTS(X, S) X(S, allowed) X(S, denied) X(S, delayed) X(S, failed) X(S, degraded)
#define ZONE_INFO(X, S)                                                                            \
    X(S, size)                                                                                     \
    X(S, keys)                                                                                     \
    X(S, capacity)                                                                                 \
    X(S, large_bytes)                                                                              \
    X(S, large_used)                                                                               \
    X(S, limits)                                                                                   \
    X(S, evicted_fresh)                                                                            \
    X(S, evicted_unused)                                                                           \
    X(S, evicted_soonest) X(S, repairs) X(S, refused) X(S, limits_max) X(S, evicted_receipts)

#define STRUCTURES(X)                                                                              \
    X(weir_key, KEY)                                                                               \
    X(weir_hashed_key, HASHED_KEY)                                                                 \
    X(weir_error, ERROR)                                                                           \
    X(weir_clock, CLOCK)                                                                           \
    X(weir_request, REQUEST)                                                                       \
    X(weir_decision, DECISION)                                                                     \
    X(weir_limit_numbers, LIMIT_NUMBERS)                                                           \
    X(weir_wait_options, WAIT_OPTIONS)                                                             \
    X(weir_counts, COUNTS) X(weir_zone_info, ZONE_INFO)

struct layout_member {
    const char *structure, *member;
    int offset;
};

static const struct {
    const char *name;
    size_t size;
} layout_structures[] = {
#define SIZE(name, members) {#name, sizeof(name)},
    STRUCTURES(SIZE)};

static const struct layout_member layout_members[] = {
#define MEMBER(structure, member) {#structure, #member, (int)offsetof(structure, member)},
#define MEMBERS(name, members) members(MEMBER, name)
    STRUCTURES(MEMBERS)};

size_t weir_sizeof(const char *structure)
{
    for (size_t i = 0; structure && i < WEIR__COUNT(layout_structures); i++) {
        if (!strcmp(structure, layout_structures[i].name))
            return layout_structures[i].size;
    }
    return 0;
}

int weir_offsetof(const char *structure, const char *member)
{
    for (size_t i = 0; structure && member && i < WEIR__COUNT(layout_members); i++) {
        const struct layout_member *it = &layout_members[i];
        if (!strcmp(structure, it->structure) && !strcmp(member, it->member))
            return it->offset;
    }
    return -1;
}
