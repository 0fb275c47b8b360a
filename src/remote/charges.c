/* The last charges of a local fallback, in a ring: see remote.h. */
#include "base/hash.h"
#include "base/random.h"
#include "remote/lock.h"
#include "remote/remote.h"

#include <stdlib.h>

struct charge {
    uint64_t id;  /* of its receipt; 0: none yet */
    uint64_t key; /* hashed */
    int64_t amount;
};

struct weir__charges {
    struct weir__lock lock;
    uint64_t secret[2];
    size_t next;
    struct charge ring[WEIR__CHARGES_MAX];
};

struct weir__charges *weir__charges_create(void)
{
    struct weir__charges *charges = calloc(1, sizeof *charges);
    if (!charges)
        return NULL;
    if (weir__random_bytes(charges->secret, sizeof charges->secret)) {
        free(charges);
        return NULL;
    }
    weir__lock_init(&charges->lock);
    return charges;
}

void weir__charges_free(struct weir__charges *charges)
{
    free(charges);
}

static uint64_t charges_hash(const struct weir__charges *charges, weir_key key)
{
    uint64_t hash[2];
    weir__hash(charges->secret, key.data, key.len, hash);
    return hash[0];
}

void weir__charges_note(struct weir__charges *charges, uint64_t id, weir_key key, int64_t amount)
{
    const struct charge charge = {id, charges_hash(charges, key), amount};
    assert(id != 0 && amount > 0);
    weir__lock_take(&charges->lock);
    charges->ring[charges->next] = charge;
    charges->next = (charges->next + 1) % WEIR__CHARGES_MAX;
    weir__lock_release(&charges->lock);
}

int64_t weir__charges_find(struct weir__charges *charges, uint64_t id, weir_key key)
{
    uint64_t hash = charges_hash(charges, key);
    int64_t least = 0;
    assert(id != 0);
    weir__lock_take(&charges->lock);
    for (size_t i = 0; i < WEIR__CHARGES_MAX; i++) {
        const struct charge *charge = &charges->ring[i];
        if (charge->id == id && charge->key == hash && (least == 0 || charge->amount < least))
            least = charge->amount;
    }
    weir__lock_release(&charges->lock);
    return least;
}
