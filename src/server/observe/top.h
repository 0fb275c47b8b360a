/*
 * Which keys are requested most, and which are denied most, policy by policy. Memory is bounded,
 * whatever keys arrive, even from attackers.
 *
 * Each thread has one table per policy, made of sets of 16 slots. A key can be in one set only,
 * chosen by a hash under a random secret. A key that has a slot adds to its count. A key without
 * one takes the slot with the least count c of the set, but only with probability 1/(c + 1), and
 * continues from that count ("randomized admission", Ben Basat and others, 2017). So keys that
 * never come back rarely get in, and a flood of n of them raises the least count by no more than
 * about sqrt(2n / slots). The count that a key found in its slot is remembered and not reported, so
 * no key is reported hotter than it was.
 *
 * Counts decay with a half-life of SERVER_TOP_HALF_LIFE_S: in a rate, what is 30 s old counts half.
 * Time moves with server_top_advance.
 *
 * What holds:
 *   1. One thread records into a server_top_thread; other threads may read meanwhile. The text of a
 *      slot is read under a sequence count. Recording never waits and never allocates.
 *   2. Memory: SERVER_TOP_TABLE_BYTES per policy and thread, allocated when the policy is first
 *      named,
 *      for at most SERVER_TOP_POLICIES_MAX policies. Further ones share the table "(other)".
 *   3. SERVER_TOP_KEY_MAX bytes of a key are kept. A longer key is reported by its beginning, and
 *      as
 *      cut. Two long keys with the same beginning are still two.
 */
#ifndef WEIR_SERVER_TOP_H
#define WEIR_SERVER_TOP_H

#include "base/buffer.h"

#define SERVER_TOP_HALF_LIFE_S 30
#define SERVER_TOP_KEY_MAX 128
#define SERVER_TOP_HOT_SLOTS 128     /* per thread and policy */
#define SERVER_TOP_DENIED_SLOTS 64   /* per thread and policy */
#define SERVER_TOP_TABLE_BYTES 31488 /* of both lists */
#define SERVER_TOP_POLICIES_MAX 256
#define SERVER_TOP_SHOWN_MAX 64 /* keys per list in the report */
/* Appended to the name of a policy: the table of keys that its shadow limits would have denied. */
#define SERVER_TOP_SHADOW "\tshadow"
/* Ids that always exist. */
#define SERVER_TOP_ADHOC 0 /* policy "" */
#define SERVER_TOP_OTHER 1 /* policies that found no room */

struct server_top;
struct server_top_thread;

int server_top_create(size_t threads, int64_t now_us, struct server_top **ret, weir_error *err);
void server_top_destroy(struct server_top *top);

/* What thread i records into. */
struct server_top_thread *server_top_thread(struct server_top *top, size_t i);

/* The id of a policy; it never changes. Thread-safe. Never fails: without room or memory the id is
 * SERVER_TOP_OTHER. Call it when policies are loaded. */
uint32_t server_top_policy(struct server_top *top, const char *name);

/* ---- the owning thread ---- */

/* Moves the time of the thread. Call it whenever the loop wakes; mostly it does nothing. */
void server_top_advance(struct server_top_thread *thread, int64_t now_us);
/* One decision about a key that stands for `times` decisions: a long pipeline is sampled. */
void server_top_record_times(struct server_top_thread *thread, uint32_t policy, const void *key,
                             size_t len, bool denied, unsigned times);
/* One decision about a key. */
void server_top_record(struct server_top_thread *thread, uint32_t policy, const void *key,
                       size_t len, bool denied);

/* ---- any thread ---- */

/* Bytes that are enough for the report now, the NUL included. */
size_t server_top_room(struct server_top *top, size_t shown);
/* The body of GET /v1/top: {"half_life":30,"policies":[{"name","hottest":[{"key","rate"}],
 * "denied":[…],"shadow_denied":[…]}]}, at most `shown` keys per list, rates per second. A key that
 * is not UTF-8 is "key_base64", a cut one has "cut":true. `policy` NULL: all policies that have
 * keys. */
void server_top_json(struct server_top *top, const char *policy, size_t shown, int64_t now_us,
                     struct weir__buffer *out);

#endif
