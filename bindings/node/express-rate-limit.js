"use strict";
// A store for express-rate-limit: its counters in a weir store, exact over all workers of a cluster.
//
// Its counters also count what is denied, so they are fixed windows from the first request with a count that nobody reaches.
// The hits are what was taken of it. A counter is known by its key, its period and the generation, which resetAll raises.
const { errors, show, optionsOf } = require("./lib/native");
const { Limit } = require("./lib/limit");
const { Store } = require("./lib/store");

const COUNT = 1e12;
const GENERATION = new Limit(`fixed-window ${COUNT}/366d from-first`);

class WeirStore {
    #store;
    #own;
    #limit;
    #windowMs;

    /** `store` is a Store or an address; an address is opened here, and closed by shutdown. */
    constructor(store, options) {
        const { prefix = "rl:" } = optionsOf(options, "option", ["prefix"]);
        if (typeof prefix !== "string" || prefix.length > 1024)
            throw new errors.EINVAL(`invalid prefix ${show(prefix)}: expected a text of at most 1024 characters`);
        this.#own = typeof store === "string";
        this.#store = this.#own ? new Store(store) : store;
        if (!(this.#store instanceof Store))
            throw new errors.EINVAL(`invalid store ${show(store)}: expected a Store or an address`);
        this.prefix = prefix;
        this.localKeys = this.#store.url.startsWith("memory:");
    }

    /** express-rate-limit calls it once, with its options. */
    init({ windowMs }) {
        if (typeof windowMs !== "number" || !(windowMs >= 1) || !(windowMs <= 366 * 86400e3))
            throw new errors.EINVAL(`invalid windowMs ${show(windowMs)}: expected 1 ms to 366 days`);
        this.#windowMs = windowMs;
        this.#limit = new Limit(`fixed-window ${COUNT}/${Math.round(windowMs * 1000)}us from-first`);
    }

    async increment(key) {
        const told = this.#told(await this.#store.take(await this.#name(key), this.#counter()));
        return Object.assign(told, { totalHits: Math.max(1, told.totalHits) }); // fail=open counts nothing
    }

    async get(key) {
        const now = this.#told(await this.#store.peek(await this.#name(key), this.#counter(), 0));
        return now.totalHits > 0 ? now : undefined;
    }

    /** Takes one hit back. */
    async decrement(key) {
        const name = await this.#name(key), limit = this.#counter();
        const now = await this.#store.peek(name, limit, 0);
        if (now.remaining === now.limit)
            return;
        // The receipt of a hit of this moment: it belongs to the window that is open.
        const hit = Object.assign(now, { allowed: true, charged: 1, granted: 1 });
        await this.#store.settle(name, limit, hit.receipt, 0);
    }

    async resetKey(key) {
        await this.#store.reset(await this.#name(key));
    }

    async resetAll() {
        if (this.#store.remote)
            throw new errors.EUNSUPPORTED("resetAll is for memory:, shm: and file: stores; a redis:// store would be asked twice for every request");
        this.#store.take(this.#generationKey(), GENERATION);
    }

    async shutdown() {
        if (this.#own)
            await this.#store.close();
    }

    #counter() {
        if (!this.#limit)
            throw new errors.EINVAL("init was not called: give the store to rateLimit({ store })");
        return this.#limit;
    }

    #generationKey() {
        return `${this.prefix}\0generation`;
    }

    #name(key) {
        if (typeof key !== "string")
            throw new errors.EINVAL(`invalid key ${show(key)}: expected a text`);
        if (this.#store.remote)
            return `${this.prefix}${key}`;
        const generation = COUNT - this.#store.peek(this.#generationKey(), GENERATION, 0).remaining;
        return `${this.prefix}${generation}\0${key}`; // no key of a client is that of the generation
    }

    #told(decision) {
        // A local fallback has a part of the window, 1/peers, so each of its hits stands for as many: then a limit of 20
        // admits 20/peers here, and at least 1.
        const used = decision.limit - decision.remaining, peers = Math.round(COUNT / Math.max(1, decision.limit));
        const hits = used > 1 ? used * peers : used;
        const resetUs = hits > 0 ? decision.resetAfterUs : this.#windowMs * 1000;
        return { totalHits: hits, resetTime: new Date(Math.floor(decision.timeUs / 1000) + Math.ceil(resetUs / 1000)) };
    }
}

module.exports = { WeirStore };
