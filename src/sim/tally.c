/* See tally.h. */
#include "sim/tally.h"

#include "base/hash.h"
#include "base/random.h"

#include <stdlib.h>

#define FIRST_CAPACITY 1024

int weir__tally_init(struct weir__tally *tally, const struct weir__trace_facts *facts, size_t bins,
                     weir_error *err)
{
    *tally = (struct weir__tally){.capacity = FIRST_CAPACITY};
    if (weir__random_bytes(tally->secret, sizeof tally->secret))
        return weir__fail(err, WEIR_ESYSTEM, 0, "the system gives no random bytes");
    tally->table = calloc(tally->capacity, sizeof *tally->table);
    if (!tally->table)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the keys of the trace");
    int64_t start_us = facts->requests > 0 ? facts->first_us : 0;
    weir__timeline_init(&tally->timeline, start_us, facts->last_us - start_us + 1, bins);
    return 0;
}

void weir__tally_free(struct weir__tally *tally)
{
    free(tally->table);
    tally->table = NULL;
}

/* Where a hash is, or belongs; the table is never full. */
static struct weir__tally_key *find(struct weir__tally_key *table, size_t capacity,
                                    const uint64_t hash[2])
{
    size_t i = hash[0] & (capacity - 1);
    while (table[i].requests > 0 && (table[i].hash[0] != hash[0] || table[i].hash[1] != hash[1]))
        i = (i + 1) & (capacity - 1);
    return &table[i];
}

static int grow(struct weir__tally *tally)
{
    size_t capacity = tally->capacity * 2;
    struct weir__tally_key *table = calloc(capacity, sizeof *table);
    if (!table)
        return WEIR_ENOMEM;
    for (size_t i = 0; i < tally->capacity; i++) {
        if (tally->table[i].requests > 0)
            *find(table, capacity, tally->table[i].hash) = tally->table[i];
    }
    free(tally->table);
    tally->table = table;
    tally->capacity = capacity;
    return 0;
}

static void add_saturating(int64_t *sum, int64_t amount)
{
    if (__builtin_add_overflow(*sum, amount, sum))
        *sum = INT64_MAX;
}

int weir__tally_add(struct weir__tally *tally, const struct weir__arrival *arrival,
                    const weir_decision *decision)
{
    if (tally->keys * 2 >= tally->capacity && grow(tally))
        return WEIR_ENOMEM;
    uint64_t hash[2];
    weir__hash(tally->secret, arrival->key, arrival->key_len, hash);
    struct weir__tally_key *key = find(tally->table, tally->capacity, hash);
    if (key->requests == 0) {
        *key = (struct weir__tally_key){{hash[0], hash[1]}, arrival->offset, 0, 0};
        tally->keys++;
    }
    key->requests++;
    tally->requests++;
    struct weir__bin *bin = weir__timeline_bin(&tally->timeline, arrival->time_us);
    if (decision->allowed) {
        tally->allowed++;
        add_saturating(&tally->cost_allowed, arrival->cost);
        bin->through++;
        tally->longest_delay_us = weir__max(tally->longest_delay_us, decision->delay_us);
    } else {
        tally->denied++;
        add_saturating(&tally->cost_denied, arrival->cost);
        bin->denied++;
        key->denied++;
    }
    return 0;
}

/* More denials first; of equals the one met first. */
static bool comes_before(const struct weir__tally_key *a, const struct weir__tally_key *b)
{
    return a->denied != b->denied ? a->denied > b->denied : a->offset < b->offset;
}

size_t weir__tally_most_denied(const struct weir__tally *tally, struct weir__tally_key *ret,
                               size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < tally->capacity; i++) {
        const struct weir__tally_key *key = &tally->table[i];
        if (key->denied == 0 || (found == n && !comes_before(key, &ret[n - 1])))
            continue;
        size_t place = found < n ? found++ : n - 1;
        for (; place > 0 && comes_before(key, &ret[place - 1]); place--)
            ret[place] = ret[place - 1];
        ret[place] = *key;
    }
    return found;
}
