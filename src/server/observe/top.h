/*
 * Which keys are asked for most, and which are denied most, policy by policy: bounded memory, whatever
 * keys arrive, and they arrive from attackers.
 *
 * Each thread has a table a policy, made of sets of 16 slots; a key may live in one set only, chosen by
 * a hash under a random secret. A key that has a slot adds to its count. One that has none takes the
 * slot with the set's least count c, but only with chance 1/(c + 1), and counts on from there
 * ("randomized admission", Ben Basat and others, 2017): keys that never come back hardly ever get in,
 * and a flood of n of them lifts the least count by no more than about sqrt(2n / slots). What a key
 * found in its slot is remembered and left out of what is told, so that no key is told hotter than it
 * was.
 *
 * Counts decay with a half-life of SERVER_TOP_HALF_LIFE_S; a rate is an average in which what is 30 s
 * old counts half. Time moves with server_top_advance.
 *
 * What holds:
 *   1. One thread records into a server_top_thread; anyone may read meanwhile. A slot's text is read
 *      under a sequence count; recording never waits and never allocates.
 *   2. Memory: SERVER_TOP_TABLE_BYTES a policy and thread, made when the policy is first named, at most
 *      SERVER_TOP_POLICIES_MAX policies; more share the table "(other)".
 *   3. Of a key, SERVER_TOP_KEY_MAX bytes are kept; a longer one is told by its beginning, and as cut.
 *      Two long keys of one beginning are still two.
 */
#ifndef WEIR_SERVER_TOP_H
#define WEIR_SERVER_TOP_H

#include "base/buffer.h"

#define SERVER_TOP_HALF_LIFE_S 30
#define SERVER_TOP_KEY_MAX 128
#define SERVER_TOP_HOT_SLOTS 128     /* a thread and policy */
#define SERVER_TOP_DENIED_SLOTS 64   /* likewise */
#define SERVER_TOP_TABLE_BYTES 31488 /* of both lists, likewise */
#define SERVER_TOP_POLICIES_MAX 256
#define SERVER_TOP_SHOWN_MAX 64 /* keys a list in the report */
/* Behind a policy's name: the table of the keys that its limits in shadow would have denied. */
#define SERVER_TOP_SHADOW "\tshadow"
/* Ids that are always there. */
#define SERVER_TOP_ADHOC 0 /* policy "" */
#define SERVER_TOP_OTHER 1 /* policies for which there was no room */

struct server_top;
struct server_top_thread;

int server_top_create(size_t threads, int64_t now_us, struct server_top **ret, weir_error *err);
void server_top_destroy(struct server_top *top);

/* What thread i records into. */
struct server_top_thread *server_top_thread(struct server_top *top, size_t i);

/* The id of a policy; the same ever after. Thread-safe, never fails: without room or memory it is
 * SERVER_TOP_OTHER. Ask when policies are loaded. */
uint32_t server_top_policy(struct server_top *top, const char *name);

/* ---- the owning thread ---- */

/* Moves the thread's time; call it whenever the loop wakes (it mostly does nothing). */
void server_top_advance(struct server_top_thread *thread, int64_t now_us);
/* One decision about a key, standing for `times` of them: of a long pipeline some are looked at. */
void server_top_record_times(struct server_top_thread *thread, uint32_t policy, const void *key,
                             size_t len, bool denied, unsigned times);
/* One decision about a key. */
void server_top_record(struct server_top_thread *thread, uint32_t policy, const void *key,
                       size_t len, bool denied);

/* ---- any thread ---- */

/* Bytes enough for the report as things stand, the NUL included. */
size_t server_top_room(struct server_top *top, size_t shown);
/* The body of GET /v1/top: {"half_life":30,"policies":[{"name","hottest":[{"key","rate"}],
 * "denied":[…],"shadow_denied":[…]}]}, at most `shown` keys a list, rates per second. A key that is not UTF-8 is
 * "key_base64", a cut one has "cut":true. `policy` NULL: all that have any. */
void server_top_json(struct server_top *top, const char *policy, size_t shown, int64_t now_us,
                     struct weir__buffer *out);

#endif
