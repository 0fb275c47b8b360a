"use strict";
// Slots of `concurrent` limits: held, renewed in time, and given back.
const { errors, optionsOf } = require("./native");
const { limitOf } = require("./limit");

const TIMER_MAX_MS = 2 ** 31 - 1;

/** Renews a lease every third of its time until it is stopped; tells once if it is lost. */
class Renewal {
    constructor(store, key, limit, lease, onLost) {
        Object.assign(this, { store, key, limit, lease, onLost });
        this.leaseMs = limit.parts.find((part) => part.kind === "concurrent").periodUs / 1000;
        this.last = performance.now();
        this.stopped = false;
        this.plan();
    }

    plan() {
        if (this.stopped)
            return;
        this.timer = setTimeout(() => this.renew(), Math.min(Math.max(this.leaseMs / 3, 1), TIMER_MAX_MS));
        this.timer.unref(); // what it is held for keeps the program going, not the slot
    }

    async renew() {
        const began = performance.now();
        let error;
        try {
            if (await this.store.renew(this.key, this.limit, this.lease))
                this.last = began;
            else
                error = new errors.ENOLEASE("the lease has lapsed: somebody else may have the slot");
        } catch (failure) { // it is tried again until the lease must have lapsed
            error = performance.now() - this.last >= this.leaseMs || this.store.closed ? failure : undefined;
        }
        if (error && !this.stopped) {
            this.stop();
            this.onLost(error);
        }
        this.plan();
    }

    stop() {
        this.stopped = true;
        clearTimeout(this.timer);
    }
}

class Slot {
    #store;
    #key;
    #limit;
    #renewal;
    #abort = new AbortController();
    #released = false;

    constructor(store, key, limit, decision) {
        this.#store = store;
        this.#key = key;
        this.#limit = limit;
        this.decision = decision;
        this.lease = decision.lease;
        this.#renewal = new Renewal(store, this.#key, limit, this.lease, (error) => this.#abort.abort(error));
    }

    /** Aborted when the slot is lost: its lease has lapsed, because the process or the store stood still. */
    get signal() {
        return this.#abort.signal;
    }

    get lost() {
        return this.#abort.signal.aborted;
    }

    /** Gives it back, once; false: it was given back before, or it was lost. */
    release() {
        if (this.#released)
            return this.#store.remote ? Promise.resolve(false) : false;
        this.#released = true;
        this.#renewal.stop();
        return this.#store.release(this.#key, this.#limit, this.lease);
    }
}

for (const symbol of [Symbol.dispose, Symbol.asyncDispose]) {
    if (symbol !== undefined)
        Object.defineProperty(Slot.prototype, symbol, { value: Slot.prototype.release, configurable: true, writable: true });
}

async function takeSlot(store, key, limit, work, options) {
    const { waitMs = 0, cost, signal } = optionsOf(options, "option", ["waitMs", "cost", "signal"]);
    const of = limitOf(limit);
    const own = key instanceof Uint8Array ? Buffer.from(key) : key; // nobody else changes it while it is held
    if (!of.parts.some((part) => part.kind === "concurrent"))
        throw new errors.EUNSUPPORTED(`"${of.text}" has no slots: expected a concurrent limit`);
    const decision = await store.wait(own, of, { waitMs, cost, signal, acquire: true });
    if (!decision.allowed) {
        const denied = new errors.EDENIED(`no slot of "${of.text}" was free within ${waitMs} ms`);
        denied.decision = decision;
        throw denied;
    }
    const slot = new Slot(store, own, of, decision);
    if (!work)
        return slot;
    try {
        return await work(slot);
    } finally {
        await slot.release();
    }
}

module.exports = { takeSlot, Renewal };
