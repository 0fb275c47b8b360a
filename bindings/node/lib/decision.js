"use strict";
// Decisions, made of the rows of numbers that the addon writes; src/addon.h has the same order.
const { native, errorOf } = require("./native");

const ROW = { ALLOWED: 0, LIMIT: 1, REMAINING: 2, RETRY: 3, RESET: 4, DELAY: 5, GRANTED: 6, CHARGED: 7, TIME: 8, LEASE: 9, BINDING: 10,
    DEGRADED: 11, LOCAL: 12, CLOSED: 13, FULL: 14, RECEIPT: 15, CODE: 16, SIZE: 17 };
const receipts = new WeakMap();

/** An answer. Times are whole microseconds; all numbers are exact. */
class Decision {
    #id; // of its receipt: one of all rows of a call. 0: not drawn yet; -1: it has no receipt

    constructor(row, at) {
        this.allowed = row[at] !== 0;
        this.limit = row[at + 1];
        this.remaining = row[at + 2];
        this.retryAfterUs = row[at + 3];
        this.resetAfterUs = row[at + 4];
        this.delayUs = row[at + 5];
        this.granted = row[at + 6];
        this.charged = row[at + 7];
        this.timeUs = row[at + 8];
        this.lease = row[at + 9];
        this.binding = row[at + 10];
        this.degraded = row[at + 11] !== 0;
        this.local = row[at + 12] !== 0;
        this.closed = row[at + 13] !== 0;
        this.full = row[at + 14] !== 0;
        this.#id = row[at + ROW.RECEIPT];
    }

    /** Milliseconds, rounded up; Infinity: never. */
    get retryAfterMs() {
        return this.retryAfterUs < 0 ? Infinity : Math.ceil(this.retryAfterUs / 1000);
    }

    get resetAfterMs() {
        return Math.ceil(this.resetAfterUs / 1000);
    }

    get delayMs() {
        return Math.ceil(this.delayUs / 1000);
    }

    /** The cost exceeds the limit: it will never be allowed. */
    get never() {
        return this.retryAfterUs < 0;
    }

    /** Text for settle(), the same each time; null: the requests of the call were charged different amounts, so use those of the rows. */
    get receipt() {
        if (this.#id < 0)
            return null;
        let receipt = receipts.get(this);
        if (receipt === undefined) {
            writeRow(this, 0);
            native.out[ROW.RECEIPT] = this.#id;
            receipt = native.receipt();
            receipts.set(this, receipt);
        }
        return receipt;
    }
}

/** Writes a decision back into the addon's rows. */
function writeRow(decision, at) {
    const { out } = native;
    out[at + ROW.ALLOWED] = decision.allowed ? 1 : 0;
    out[at + ROW.LIMIT] = decision.limit;
    out[at + ROW.REMAINING] = decision.remaining;
    out[at + ROW.RETRY] = decision.retryAfterUs;
    out[at + ROW.RESET] = decision.resetAfterUs;
    out[at + ROW.DELAY] = decision.delayUs;
    out[at + ROW.GRANTED] = decision.granted;
    out[at + ROW.CHARGED] = decision.charged;
    out[at + ROW.TIME] = decision.timeUs;
    out[at + ROW.LEASE] = decision.lease;
    out[at + ROW.BINDING] = decision.binding;
    out[at + ROW.DEGRADED] = decision.degraded ? 1 : 0;
    out[at + ROW.LOCAL] = decision.local ? 1 : 0;
    out[at + ROW.CLOSED] = decision.closed ? 1 : 0;
    out[at + ROW.FULL] = decision.full ? 1 : 0;
}

/** The folded decision of some rows; those behind it, one per limit, are its `rows`. */
function folded(rows) {
    const decision = new Decision(rows, 0);
    decision.rows = [];
    for (let at = ROW.SIZE; at < rows.length; at += ROW.SIZE)
        decision.rows.push(new Decision(rows, at));
    return decision;
}

/** One decision per request; one that failed is denied and has its `error`. */
function each(rows) {
    const decisions = [];
    for (let at = 0; at < rows.length; at += ROW.SIZE) {
        const decision = new Decision(rows, at);
        if (rows[at + ROW.CODE] !== 0) {
            decision.allowed = false;
            decision.error = errorOf(rows[at + ROW.CODE], native.texts[-rows[at + ROW.CODE] - 1], 0);
        }
        decisions.push(decision);
    }
    return decisions;
}

module.exports = { Decision, ROW, writeRow, folded, each };
