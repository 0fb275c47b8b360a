/*
 * Receipts of the server: `w2-<time µs>-<charged>-<signature>`, 11 characters of base64url over what was
 * charged, to which keys, under which limits (the number is the first key's charge). The secret is drawn from the zone's own, so that it
 * outlives a restart with a `file:` zone and is shared by servers of one zone; with a remote store it is
 * drawn anew at every start, unless one is given.
 */
#include "server/server.h"

#include "base/hash.h"
#include "base/random.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
#define SIGNATURE 11

int server_receipts_open(struct server *server, weir_error *err)
{
    const char *given = getenv("WEIR_RECEIPT_SECRET");
    weir_hashed room = {0};
    if (given && *given) {
        static const uint64_t none[2];
        weir__hash(none, given, strlen(given), server->receipt_secret);
        return 0;
    }
    if (server->store->engine->hash) {
        weir_key_hash(server->store, weir_text("weir: the secret of receipts"), &room);
        memcpy(server->receipt_secret, room.hash, sizeof server->receipt_secret);
        return 0;
    }
    if (weir__random_bytes(server->receipt_secret, sizeof server->receipt_secret))
        return weir__fail(err, WEIR_ESYSTEM, 0, "no randomness for signing receipts");
    return 0;
}

/* A key's hash under the store's secret; a key that was hashed before brings it along. */
static void hash_key(const struct server *server, weir_key key, uint64_t ret[2])
{
    weir_hashed room;
    if (!server->store->engine->hash) {
        weir__hash(server->receipt_secret, key.data, key.len, ret);
        return;
    }
    if (key.len != WEIR_HASHED)
        key = weir_key_hash(server->store, key, &room);
    memcpy(ret, ((const weir_hashed *)key.data)->hash, 2 * sizeof *ret);
}

/* The limits of most requests are those of the one before. A limit that is freed clears it. */
static _Thread_local struct {
    const weir_limit *limit;
    uint64_t hash[2];
} last;

void server_receipts_forget(void)
{
    last.limit = NULL;
}

static uint64_t sign(const struct server *server, weir_key key, const weir_limit *limit,
                     const char *receipt, size_t len)
{
    struct {
        uint64_t key[2], limit[2];
        char receipt[WEIR_RECEIPT_SIZE];
    } all;
    uint64_t signature[2];
    if (last.limit != limit) {
        const char *text = weir_limit_text(limit);
        weir__hash(server->receipt_secret, text, strlen(text), last.hash);
        last.limit = limit;
    }
    hash_key(server, key, all.key);
    memcpy(all.limit, last.hash, sizeof all.limit);
    memcpy(all.receipt, receipt, len);
    weir__hash(server->receipt_secret, &all, offsetof(typeof(all), receipt) + len, signature);
    return signature[0];
}

/* Over several requests: what one signature covers is part of the next. */
static uint64_t sign_all(const struct server *server, const weir_request *requests, size_t n,
                         const char *receipt, size_t len)
{
    uint64_t signature = sign(server, requests[0].key, requests[0].limit, receipt, len);
    for (size_t i = 1; i < n; i++) {
        int64_t chained[2] = {(int64_t)signature, requests[i].cost};
        signature =
            sign(server, requests[i].key, requests[i].limit, (const char *)chained, sizeof chained);
    }
    return signature;
}

static void put_signature(uint64_t signature, char *ret)
{
    for (int i = 0; i < SIGNATURE; i++, signature >>= 6)
        ret[i] = alphabet[signature & 63];
}

size_t server_receipt_write(const struct server *server, const weir_request *requests, size_t n,
                            const weir_decision *decision, char ret[SERVER_RECEIPT_SIZE])
{
    struct weir__buffer buffer = weir__buffer_over(ret, SERVER_RECEIPT_SIZE);
    weir__put(&buffer, "w2-", 3);
    weir__put_int(&buffer, decision->time_us);
    weir__put(&buffer, "-", 1);
    weir__put_int(&buffer, decision->charged);
    uint64_t signature = sign_all(server, requests, n, ret, buffer.len);
    ret[buffer.len] = '-';
    put_signature(signature, ret + buffer.len + 1);
    ret[buffer.len + 1 + SIGNATURE] = 0;
    return buffer.len + 1 + SIGNATURE;
}

bool server_receipt_read(const struct server *server, const weir_request *requests, size_t n,
                         struct weir__span text, char ret[WEIR_RECEIPT_SIZE])
{
    char expected[SIGNATURE];
    if (text.len <= SIGNATURE + 4 || text.len >= SERVER_RECEIPT_SIZE || memcmp(text.data, "w2-", 3))
        return false;
    size_t body = text.len - SIGNATURE - 1;
    if (text.data[body] != '-' || body >= WEIR_RECEIPT_SIZE)
        return false;
    put_signature(sign_all(server, requests, n, text.data, body), expected);
    unsigned differs = 0;
    for (int i = 0; i < SIGNATURE; i++)
        differs |= (unsigned)(expected[i] ^ text.data[body + 1 + (size_t)i]);
    if (differs)
        return false;
    memcpy(ret, text.data, body);
    ret[body] = 0;
    ret[1] = '1'; /* the library's own receipt is the part that was signed */
    return true;
}
