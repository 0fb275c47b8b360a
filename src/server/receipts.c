/*
 * Receipts of the server: `w4-<time µs>-<charged>-<id>-<signature>`, the last two in 7 and 11
 * letters of base64url. The signature is over what was charged, to which keys and to which of their
 * states: algorithm, period, precision, zone and anchor. Counts and bursts are left out, so that a
 * charge can be settled after they have changed. The number is the charge of the key that the
 * receipt tells of.
 *
 * Older forms are still read: `w2-` without the id (what was charged nothing has it, too, but for
 * policies over HTTP), and signatures over the limits' texts instead of their states. The secret is
 * drawn from the zone's own, so that it outlives a restart with a `file:` zone and is shared by
 * servers of one zone; with a remote store it is drawn again at every start, unless one is given.
 */
#include "server/server.h"

#include "base/hash.h"
#include "base/random.h"
#include "limit/limit.h"
#include "limit/receipt.h"
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
#define SIGNATURE 11
#define ID 7

int server_receipts_open(struct server *server, weir_error *err)
{
    const char *given = getenv("WEIR_RECEIPT_SECRET");
    weir_hashed_key own = {0};
    if (given && *given) {
        static const uint64_t none[2];
        weir__hash(none, given, strlen(given), server->receipt_secret);
        return 0;
    }
    if (!server->store->engine->hash)
        server_report(
            "warning: WEIR_RECEIPT_SECRET is not set, so this server's receipts are refused by "
            "others that use this Redis, and by itself after a restart; give all of them the same "
            "secret");
    if (server->store->engine->hash) {
        own.key = weir_key_text("weir: the secret of receipts");
        server->store->engine->hash(server->store, &own);
        memcpy(server->receipt_secret, own.hash, sizeof server->receipt_secret);
        return 0;
    }
    if (weir__random_bytes(server->receipt_secret, sizeof server->receipt_secret))
        return weir__fail(err, WEIR_ESYSTEM, 0, "no randomness for signing receipts");
    return 0;
}

/* What a receipt says. */
struct charge {
    int64_t time_us, amount;
    uint64_t id; /* 0: none, as in the older form */
};

/* A key's hash under the store's secret; a key that was hashed before brings it along. */
static void receipt_hash_key(const struct server *server, const weir_request *request,
                             uint64_t ret[2])
{
    weir_hashed_key own = {.key = request->key};
    const weir_hashed_key *hashed = request->hashed;
    if (!server->store->engine->hash) {
        weir__hash(server->receipt_secret, request->key.data, request->key.len, ret);
        return;
    }
    if (!hashed) {
        server->store->engine->hash(server->store, &own);
        hashed = &own;
    }
    memcpy(ret, hashed->hash, sizeof hashed->hash);
}

/* What is signed of limits. */
enum receipt_form {
    RECEIPT_OF_STATES, /* what tells their states apart, and which of them a settle leaves alone */
    RECEIPT_OF_TEXTS,  /* the older form */
};

static void receipt_hash_limit(const struct server *server, enum receipt_form form,
                               const weir_limit *limit, uint64_t ret[2])
{
    uint64_t states[WEIR_LIMITS_MAX][3];
    if (form == RECEIPT_OF_TEXTS) {
        const char *text = weir_limit_text(limit);
        weir__hash(server->receipt_secret, text, strlen(text), ret);
        return;
    }
    assert(limit->count <= WEIR_LIMITS_MAX);
    for (size_t i = 0; i < limit->count; i++) { /* as weir__rule_same_state compares them */
        const struct weir__rule *rule = &limit->rules[i];
        bool leases = weir__algorithm_of(rule)->leases;
        states[i][0] = rule->kind | (uint64_t)weir__limit_varies(limit, i) << 8;
        states[i][1] = leases ? 0 : (uint64_t)rule->period_us;
        states[i][2] = leases ? 0 : (uint64_t)weir__distinct(rule);
    }
    weir__hash(server->receipt_secret, states, limit->count * sizeof *states, ret);
}

/* Over the hashes of key and limits and over what the receipt says. The limits of most requests are
 * those of the request before. */
static uint64_t receipt_sign(const struct server *server, enum receipt_form form,
                             struct server_receipt_cache *cache, const weir_request *request,
                             const struct charge *charge)
{
    uint64_t all[7], signature[2];
    if (cache->limit != request->limit) {
        receipt_hash_limit(server, form, request->limit, cache->limit_hash);
        cache->limit = request->limit;
    }
    receipt_hash_key(server, request, all);
    memcpy(all + 2, cache->limit_hash, sizeof cache->limit_hash);
    all[4] = (uint64_t)charge->time_us;
    all[5] = (uint64_t)charge->amount;
    all[6] = charge->id;
    weir__hash(server->receipt_secret, all, (charge->id ? 7 : 6) * sizeof *all, signature);
    return signature[0];
}

/* Over several requests: what one signature covers is part of the next. */
static uint64_t receipt_sign_all(const struct server *server, enum receipt_form form,
                                 struct server_receipt_cache *cache,
                                 const struct server_charged *charged, const struct charge *charge)
{
    const weir_request *requests = charged->requests;
    assert(charged->count > 0 && requests[0].limit);
    uint64_t signature = receipt_sign(server, form, cache, &requests[0], charge);
    uint32_t settled = form == RECEIPT_OF_TEXTS ? UINT32_MAX : charged->settled;
    /* The cost of the first is what the receipt says, or is covered like those of the others. What
     * has a least was charged what the receipt says, the rest its cost: that is covered, too. Of
     * what a settle leaves alone, the cost may change, but not which request the receipt tells of
     * (plan_told_item). */
    size_t first = requests[0].cost == charge->amount && !requests[0].least && settled & 1;
    for (size_t i = first; i < charged->count && charged->count > 1; i++) {
        bool alone = !(settled >> i & 1);
        struct charge chained = {(int64_t)signature,
                                 alone ? requests[i].cost > 0 : requests[i].cost,
                                 (uint64_t)(requests[i].least > 0) | (uint64_t)alone << 1};
        signature = receipt_sign(server, form, cache, &requests[i], &chained);
    }
    return signature;
}

/* The lowest six bits first. */
static inline void receipt_put_letters(uint64_t bits, int count, char *ret)
{
    for (int i = 0; i < count; i++, bits >>= 6)
        ret[i] = alphabet[bits & 63];
}

/* An id as written; 0: it is not one. */
static uint64_t receipt_read_id(const char *letters)
{
    uint64_t id = 0;
    for (int i = ID - 1; i >= 0; i--) {
        const char *found = memchr(alphabet, letters[i], sizeof alphabet - 1);
        if (!found)
            return 0;
        id = id << 6 | (uint64_t)(found - alphabet);
    }
    return id <= WEIR__RECEIPT_ID_MAX ? id : 0;
}

/* A time's digits; requests decided together have one. */
static size_t receipt_put_time(struct server_receipt_cache *cache, char *p, int64_t time_us)
{
    if (cache->time_us != time_us || cache->digit_count == 0) {
        char room[WEIR__DIGITS];
        const char *first = weir__digits(room, time_us);
        cache->time_us = time_us;
        cache->digit_count = (size_t)(room + sizeof room - first);
        memcpy(cache->digits, first, cache->digit_count);
    }
    memcpy(p, cache->digits, sizeof cache->digits); /* more than need be: of a known length */
    return cache->digit_count;
}

static size_t receipt_put_number(char *p, int64_t number)
{
    char room[WEIR__DIGITS];
    if (number >= 0 && number < 10) {
        *p = (char)('0' + number);
        return 1;
    }
    const char *first = weir__digits(room, number);
    size_t len = (size_t)(room + sizeof room - first);
    memcpy(p, first, len);
    return len;
}

/* The decision's id, or a new one. */
static uint64_t receipt_id_of(const weir_decision *decision)
{
    weir_decision named = {
        .charged = decision->charged, .allowed = decision->allowed, .degraded = decision->degraded};
    memcpy(named.receipt, decision->receipt, sizeof named.receipt);
    return weir__receipt_id(&named);
}

size_t server_receipt_write(const struct server *server, struct server_receipt_cache *cache,
                            const struct server_charged *charged, const weir_decision *decision,
                            char ret[SERVER_RECEIPT_SIZE])
{
    char *p = ret;
    struct charge charge = {decision->time_us, decision->charged, receipt_id_of(decision)};
    memcpy(p, charge.id ? "w4-" : "w2-", 3);
    p += 3;
    p += receipt_put_time(cache, p, decision->time_us);
    *p++ = '-';
    p += receipt_put_number(p, decision->charged);
    if (charge.id) {
        *p = '-';
        receipt_put_letters(charge.id, ID, p + 1);
        p += 1 + ID;
    }
    uint64_t signature = receipt_sign_all(server, RECEIPT_OF_STATES, cache, charged, &charge);
    receipt_put_letters(signature, SIGNATURE, p + 1);
    *p = '-';
    p += 1 + SIGNATURE;
    *p = 0;
    assert(p < ret + SERVER_RECEIPT_SIZE);
    return (size_t)(p - ret);
}

/* What a receipt says, its signature left out; false: it is not a receipt. */
static bool receipt_read_charge(const char *text, size_t len, struct charge *ret)
{
    char plain[WEIR_RECEIPT_SIZE];
    struct weir__correction said;
    bool has_id = !memcmp(text, "w4-", 3);
    uint64_t id = 0;
    if (has_id) {
        if (len <= 3 + 1 + ID || text[len - ID - 1] != '-' ||
            !(id = receipt_read_id(text + len - ID)))
            return false;
        len -= ID + 1;
    }
    if ((!has_id && memcmp(text, "w2-", 3)) || len >= sizeof plain || memchr(text, 0, len))
        return false;
    memcpy(plain, text, len);
    plain[len] = 0;
    plain[1] = '1'; /* the rest is as the library writes it */
    if (!weir__receipt_read(plain, &said))
        return false;
    *ret = (struct charge){said.charged_at_us, said.charged, id};
    return true;
}

static bool receipt_is_signed(const struct server *server, enum receipt_form form,
                              const struct server_charged *charged, const struct charge *charge,
                              const char signature[SIGNATURE])
{
    char expected[SIGNATURE];
    struct server_receipt_cache cache = {0};
    receipt_put_letters(receipt_sign_all(server, form, &cache, charged, charge), SIGNATURE,
                        expected);
    unsigned differs = 0;
    for (int i = 0; i < SIGNATURE; i++)
        differs |= (unsigned)(expected[i] ^ signature[i]);
    return differs == 0;
}

bool server_receipt_read(const struct server *server, const struct server_charged *charged,
                         struct weir__span text, char ret[WEIR_RECEIPT_SIZE])
{
    struct charge charge;
    if (text.len <= SIGNATURE + 4 || text.len >= SERVER_RECEIPT_SIZE)
        return false;
    size_t body = text.len - SIGNATURE - 1;
    if (text.data[body] != '-' || !receipt_read_charge(text.data, body, &charge))
        return false;
    const char *signature = text.data + body + 1;
    if (!receipt_is_signed(server, RECEIPT_OF_STATES, charged, &charge, signature) &&
        !receipt_is_signed(server, RECEIPT_OF_TEXTS, charged, &charge, signature))
        return false;
    weir__receipt_write(charge.time_us, charge.amount, charge.id, ret);
    return true;
}
