/* Tables of frequent keys: recording and reading. */
#include "server/observe/top_table.h"

#include "base/random.h"
#include "server/observe/top_cut.h"

#include <math.h>
#include <string.h>

void server_top_table_place(struct server_top_table *table, void *memory, uint32_t slots)
{
    table->set_count = slots / SERVER_TOP_WAYS;
    table->sets = memory;
    table->slots = (struct server_top_slot *)(table->sets + table->set_count);
}

/* ---- recording ---- */

/* Gives slot i of a set to a key. Release stores: who sees any of them sees that seq was odd. */
static void take_over(struct server_top_set *set, struct server_top_slot *slot, uint32_t i,
                      const struct server_top_key *key, double weight)
{
    uint64_t text[SERVER_TOP_KEY_MAX / 8] = {0};
    const uint16_t len = (uint16_t)server_cut(key->data, key->len, SERVER_TOP_KEY_MAX);
    memcpy(text, key->data, len);
    const double inherited = set->counts[i], count = inherited + weight;
    const uint32_t seq = slot->seq;
    __atomic_store_n(&slot->seq, seq + 1, __ATOMIC_RELAXED);
    __atomic_store(&set->inherited[i], &inherited, __ATOMIC_RELEASE);
    __atomic_store(&set->counts[i], &count, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->len, len, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->cut, key->len > SERVER_TOP_KEY_MAX, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->hash, key->hash[0], __ATOMIC_RELEASE);
    for (size_t word = 0; word < WEIR__COUNT(text); word++)
        __atomic_store_n(&slot->text[word], text[word], __ATOMIC_RELEASE);
    __atomic_store_n(&slot->seq, seq + 2, __ATOMIC_RELEASE);
    set->tags[i] = (uint32_t)key->hash[0];
}

static uint32_t least_of(const struct server_top_set *set)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < SERVER_TOP_WAYS; i++)
        least = set->counts[i] < set->counts[least] ? i : least;
    return least;
}

void server_top_table_record(struct server_top_table *table, const struct server_top_key *key,
                             double weight, uint64_t *random)
{
    const uint32_t at = (uint32_t)key->hash[1] & (table->set_count - 1);
    struct server_top_set *const set = &table->sets[at];
    const uint32_t tag = (uint32_t)key->hash[0];
    for (uint32_t i = 0; i < SERVER_TOP_WAYS; i++) {
        if (set->tags[i] == tag && set->counts[i] > 0) {
            const double count = set->counts[i] + weight;
            __atomic_store(&set->counts[i], &count, __ATOMIC_RELEASE);
            return;
        }
    }
    const uint32_t least = least_of(set);
    const double chance = (double)(weir__random_next(random) >> 11) * 0x1p-53;
    if (chance * (set->counts[least] + weight) < weight)
        take_over(set, &table->slots[at * SERVER_TOP_WAYS + least], least, key, weight);
}

void server_top_table_scale(struct server_top_table *table, int exponent)
{
    for (uint32_t s = 0; s < table->set_count; s++) {
        struct server_top_set *const set = &table->sets[s];
        for (uint32_t i = 0; i < SERVER_TOP_WAYS; i++) {
            const double count = ldexp(set->counts[i], -exponent);
            const double inherited = ldexp(set->inherited[i], -exponent);
            __atomic_store(&set->counts[i], &count, __ATOMIC_RELEASE);
            __atomic_store(&set->inherited[i], &inherited, __ATOMIC_RELEASE);
        }
    }
}

/* ---- reading ---- */

/* One slot, as it stood at one instant. */
static void read_slot(const struct server_top_set *set, uint32_t i,
                      const struct server_top_slot *slot, struct server_top_row *row)
{
    for (;;) {
        const uint32_t seq = __atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE);
        double count, inherited;
        uint64_t text[SERVER_TOP_KEY_MAX / 8];
        __atomic_load(&set->counts[i], &count, __ATOMIC_ACQUIRE);
        __atomic_load(&set->inherited[i], &inherited, __ATOMIC_ACQUIRE);
        row->count = count - inherited;
        row->len = __atomic_load_n(&slot->len, __ATOMIC_ACQUIRE);
        row->cut = __atomic_load_n(&slot->cut, __ATOMIC_ACQUIRE);
        row->hash = __atomic_load_n(&slot->hash, __ATOMIC_ACQUIRE);
        for (size_t word = 0; word < WEIR__COUNT(text); word++)
            text[word] = __atomic_load_n(&slot->text[word], __ATOMIC_ACQUIRE);
        memcpy(row->text, text, sizeof text);
        if (!(seq & 1) && __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) == seq)
            return;
    }
}

size_t server_top_table_read(const struct server_top_table *table, double least,
                             struct server_top_row *rows)
{
    size_t n = 0;
    for (uint32_t s = 0; s < table->set_count; s++) {
        for (uint32_t i = 0; i < SERVER_TOP_WAYS; i++) {
            read_slot(&table->sets[s], i, &table->slots[s * SERVER_TOP_WAYS + i], &rows[n]);
            n += rows[n].count >= least && rows[n].len > 0;
        }
    }
    return n;
}
