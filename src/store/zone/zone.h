/*
 * The zone: limit states in one contiguous region, the same code over private memory, shared
 * memory, a mapped file and nginx's shared zone. This header has its verbs; what they work on:
 *
 *   layout.h   what lies where in the region, and what holds
 *   lock.h     stripes and their locks; fork
 *   row.h      rows: the rules that states are known by
 *   pack.h     a state in sixteen bytes; swap.h changes them at once
 *   slot.h     groups of slots: where a key's states lie
 *   large.h    blocks for logs, windows and leases
 *   take.h     a take without any lock
 *
 * docs/THREADS.md argues why no charge is lost.
 */
#ifndef WEIR_ZONE_H
#define WEIR_ZONE_H

#include "store/zone/large.h"

/* ---- zone/open.c: making and opening ---- */

/* The layout for a size; false if the size is useless. */
bool weir__zone_plan(uint64_t size, unsigned large_percent, struct weir__layout *ret);
/* Makes an empty zone in memory that is zeroed but for the magic. */
int weir__zone_format(uint8_t *base, uint64_t size, unsigned large_percent, bool shared,
                      struct weir__zone *ret, weir_error *err);
/* Before the first key: the tags of these keys were made with another one. Nobody else has the zone
 * open. */
void weir__zone_set_secret(struct weir__zone *zone, const uint64_t secret[2]);
/* Opens one that is there: checks header and layout, not the contents. */
int weir__zone_attach(uint8_t *base, uint64_t size, bool shared, struct weir__zone *ret,
                      weir_error *err);
/* Nobody else has it open: one of version 2 becomes one of this version, in its place. Only what
 * every opening makes again differs: what is known of free blocks, and what of torn pages. Others
 * are left as they are. */
#define WEIR__ZONE2_VERSION 2
void weir__zone_raise(uint8_t *base);
/* Over the header, as one of that version has it. */
uint64_t weir__zone_sum(const struct weir__zone_header *header, uint32_t version);
/* Whether a zone that is open still has its own header, and not that of another zone. */
bool weir__zone_is_whole(const struct weir__zone *zone);
/* Nobody else has it open: new locks, repairs, full check. */
int weir__zone_recover(struct weir__zone *zone, weir_error *err);
int weir__zone_info(struct weir__zone *zone, weir_zone_info *ret);
/* What to do about a damaged zone. */
#define WEIR__ZONE_REMEDY                                                                          \
    "restore a backup (docs/BACKUP.md), or remove it and let weir make a new one"
/* What is wrong with a zone that is opened: its header or its layout, or that it is too short. */
int weir__zone_fail_part(weir_error *err, const char *part);
int weir__zone_fail_short(weir_error *err, uint64_t size, uint64_t expected);

/* ---- zone/take.c ---- */

/* A take or peek of a small state that is there already, without a lock. 0, WEIR__STALE, or
 * WEIR__LOCKED: nothing was done, it needs the stripe's lock. */
int weir__zone_take_free(struct weir__zone *zone, const struct weir__op *op, enum weir__mode mode);

/* ---- zone/check.c ---- */

/* Everything that can be checked, page by page, one lock at a time. Blocks that are nobody's are
 * freed. */
int weir__zone_check(struct weir__zone *zone, weir_error *err);
/* What is wrong with a state; and where its row is of a kind that only a newer weir knows. */
int weir__zone_fail_slot(weir_error *err, const char *what, uint64_t group, unsigned slot);
int weir__zone_fail_newer(weir_error *err, const struct weir__zone *zone, uint32_t row);

/* ---- zone/repair.c: after a death; the stripe's lock is held ---- */

/* Counts a ring again; false if its cells are out of order or without weight. */
bool weir__ring_recount(const struct weir__rule *rule, const struct weir__ring *ring,
                        int64_t *ret_sum);
/* Sums, newest times and counts of the stripe's states may be wrong, and some are frozen. */
void weir__stripe_tear(struct weir__zone *zone, uint32_t stripe);
/* Puts one of its torn pages in order; false: there is none. */
bool weir__stripe_mend_one(struct weir__zone *zone, uint32_t stripe);

/* ---- zone/apply.c ---- */

/* Internal: a rule's row is no longer its. */
#define WEIR__STALE (-1000)
/* Internal: a lock is held longer than we wait for it; WEIR_EBUSY for callers. */
#define WEIR__HELD (-1001)
/* Internal: this needs the stripe's lock. */
#define WEIR__LOCKED (-1003)
/* Internal: room may be had under a stripe that another holds, who may want one of ours: let go of
 * them and try again. Nothing was changed. */
#define WEIR__WANTED (-1004)
/* Internal: the clock was read before the locks were ours, and others were served in between. A log
 * or window has an entry of ops->ahead_us, which is later. The caller reads the clock again. */
#define WEIR__BEHIND (-1002)

/* An all-or-nothing group at one instant: n ops, at most WEIR_LIMITS_MAX, each with its own
 * answer. */
int weir__zone_apply(struct weir__zone *zone, struct weir__op *ops, size_t n, enum weir__mode mode);
/* The same, with locks at once. */
int weir__zone_apply_locked(struct weir__zone *zone, struct weir__op *ops, size_t n,
                            enum weir__mode mode);

/* The requests that ops were made of, in order. */
struct weir__group_of {
    const weir_request *requests;
    size_t count;
};

/* The same where a request has a least: its ops are judged by that, and charged what they allow
 * together. */
int weir__zone_grant(struct weir__zone *zone, struct weir__op *ops, size_t n, enum weir__mode mode,
                     const struct weir__group_of *asked);
/* ops: of n limits, and where the receipt has an id of n marks behind them. A limit
 * whose mark is there was settled before; WEIR_ESETTLED: all of them were. */
int weir__zone_settle(struct weir__zone *zone, struct weir__op *ops, size_t n,
                      const struct weir__correction *correction);
int weir__zone_lease(struct weir__zone *zone, struct weir__op *op, enum weir__lease_verb verb);
/* Leases of a stripe's keys were released: who waits for one is woken. No lock is held. */
void weir__zone_ring(struct weir__zone *zone, uint32_t stripe);
/* *ret_live: whether there was a state that is not fresh. */
int weir__zone_reset(struct weir__zone *zone, uint64_t tag, int64_t now_us, bool *ret_live);
/* Every state of a key as it stands now, room for WEIR__SHOWN_MAX. */
int weir__zone_show(struct weir__zone *zone, uint64_t tag, int64_t now_us, struct weir__shown *ret,
                    size_t *ret_count);

#endif
