/* Rows for the limits of a program's policies: for good, whatever others ask for meanwhile. */
#include "store/zone/ops.h"
#include "store/zone/rows.h"

#include <stdlib.h>
#include <string.h>

/* Every rule once. */
static size_t reserve_sort(struct weir__rule *rules, size_t n)
{
    size_t kept = 0;
    if (n > 0)
        qsort(rules, n, sizeof *rules, weir__rule_order);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || weir__rule_order(&rules[kept - 1], &rules[i]) != 0)
            rules[kept++] = rules[i];
    }
    return kept;
}

/* Whether the zone could have a row for each of these rules at once. */
static int reserve_check(const struct weir__zone *zone, const struct weir__rule *rules, size_t n,
                         weir_error *err)
{
    size_t counts[2] = {0, 0};
    for (size_t i = 0; i < n; i++)
        counts[weir__is_narrow(&rules[i])]++;
    for (int narrow = 0; narrow < 2; narrow++) {
        size_t most = weir__rows_most(zone, narrow);
        if (counts[narrow] > most || (zone->layout.chunks == 0 && n > most))
            return weir__fail(
                err, WEIR_EFULL, 0,
                "%zu different limits%s, and the store has rows for %zu; use fewer, or a larger "
                "store",
                zone->layout.chunks ? counts[narrow] : n,
                narrow ? " of sliding-counter, smooth and warmup" : "", most);
    }
    return 0;
}

int weir__zone_reserve(weir_store *store, const weir_limit *const *limits, size_t n, int64_t now,
                       weir_error *err)
{
    struct weir__zone *zone = weir__zone_of(store);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += limits[i]->count;
    struct weir__rule *rules = calloc(count + 1, sizeof *rules);
    if (!rules)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the limits");
    count = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(&rules[count], limits[i]->rules, limits[i]->count * sizeof *rules);
        count += limits[i]->count;
    }
    count = reserve_sort(rules, count);
    int code = reserve_check(zone, rules, count, err);
    if (code == 0) {
        code = weir__rows_pin(zone, rules, count, now);
        if (code)
            weir__fail(err, weir__told(code), 0, "%s", weir_strerror(weir__told(code)));
    }
    if (code)
        free(rules);
    return code ? weir__told(code) : 0;
}
