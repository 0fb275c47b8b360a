/*
 * How fast a stream may flow: `weir pipe` pays for each piece before it writes it.
 *
 *     pay(units) ─► wait so long ─► write them ─► sent() ─► pay(units) …
 *
 * What holds, for a stream with a limit of its own, with a burst of B and a rate of r:
 *   1. In any span of time T at most B + r*T units are written, however late the writer wakes up
 *      and however long a write takes. A unit that is paid for at one time and written at a later
 *      one could otherwise meet a bucket that has been filled again meanwhile. So the clock of the
 *      bucket stands still for as long as needed: as if the piece had been paid for when it was
 *      written.
 *   2. What a late wake-up costs is made up for, as far as the burst has room for it: pieces are at
 *      most half of the burst.
 *   3. A burst of less than flows in PACE_SMALL_US counts as that much, because no machine wakes up
 *      exactly in time. From its beginning on the stream is still never ahead of its own burst.
 *
 * A limit that streams share is in a store, by whose clock it goes. Together they pay for at most
 * B + r*T. A stream that is held up between paying and writing adds its piece to that.
 */
#ifndef WEIR_CLI_PACE_H
#define WEIR_CLI_PACE_H

#include "store/store.h"

#define CLI_PACE_PIECE_MOST 65536 /* units; also bytes of a buffer */
#define CLI_PACE_SMALL_US 20000
#define CLI_PACE_PIECE_US 10000 /* how much of the rate a piece is */

struct cli_pace {
    weir_store *store;
    weir_key key;
    weir_limit *limit; /* owned */
    bool shared;
    int64_t piece;    /* what to pay for at a time, if the bucket is empty */
    int64_t most;     /* what can be paid for at once */
    weir_clock clock; /* of a private one: what it goes by, and how far it is behind that */
    int64_t behind_us;
    int64_t paid;       /* the last piece */
    weir_decision last; /* and what was said to it */
};

/* Whether a limit can pace a stream: one limit that refills evenly. */
bool cli_pace_can(const weir_limit *limit);
/* What flows in a time. */
int64_t cli_pace_flow(const weir_limit *limit, int64_t us);

/* A stream with a limit of its own; clock NULL: the machine's, which nobody sets. *ret must not
 * move. 0 or a WEIR_E…. */
int cli_pace_open(const weir_limit *limit, const weir_clock *clock, struct cli_pace *ret,
                  weir_error *err);
/* A stream that shares a limit; the store stays the caller's. WEIR_EINVAL: the burst is too
 * small. */
int cli_pace_share(const weir_limit *limit, weir_store *store, weir_key key, struct cli_pace *ret,
                   weir_error *err);
void cli_pace_close(struct cli_pace *pace);

/* Pays for some of so many units, at least one. *ret_units may be written after *ret_wait_us; if it
 * is 0, ask again then. 0 or a WEIR_E…. */
int cli_pace_pay(struct cli_pace *pace, int64_t units, int64_t *ret_units, int64_t *ret_wait_us);
/* They have been written. */
void cli_pace_sent(struct cli_pace *pace);

#endif
