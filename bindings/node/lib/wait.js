"use strict";
// Waits without a thread. A decision says when to ask again, so a timer is enough; a freed slot is told by the event loop.
//
// Waits for the same key and limit stand in a queue: only the first of them asks. It leaves when it is served (limits that give
// reservations serve at once, with a delay), when it is denied for good, or when it is cancelled; then the next one asks.
const { errors } = require("./native");

const TIMER_MAX_MS = 2 ** 31 - 1;
const RESERVES = new Set(["token-bucket", "leaky-bucket", "smooth", "warmup"]);

const nowUs = () => performance.now() * 1000;

function nameOf(request) {
    return `${request.acquire ? "a" : "t"}${typeof request.key === "string" ? `s${request.key}` : `b${request.key.toString("latin1")}`}\n${request.limit.text}`;
}

/** What a wait ends with when a signal or a close ends it. */
function canceled(reason) {
    return new errors.ECANCELED("the wait was cancelled, nothing is charged", { cause: reason });
}

/** One wait: what it wants, and what can end its sleep. */
class Wait {
    constructor(request, waitUs) {
        this.request = request;
        this.deadlineUs = waitUs === Infinity ? Infinity : nowUs() + waitUs;
        this.parts = request.limit.parts;
        this.error = undefined; // it was cancelled
        this.held = undefined; // the decision it was given, until its delay is over
        this.wake = undefined; // ends its sleep
        this.woken = false; // since it last asked
        this.unwatch = undefined;
        this.done = undefined; // settled when the wait has ended
    }

    leftUs() {
        return this.deadlineUs === Infinity ? Infinity : Math.max(0, Math.floor(this.deadlineUs - nowUs()));
    }

    rouse() {
        this.woken = true;
        if (this.wake)
            this.wake();
    }

    /** Sleeps so long, or until it is roused. */
    sleep(us) {
        if (this.woken || us <= 0)
            return Promise.resolve();
        return new Promise((resolve) => {
            const endUs = nowUs() + us;
            let timer;
            const done = () => {
                clearTimeout(timer);
                this.wake = undefined;
                resolve();
            };
            const nap = () => {
                const left = endUs - nowUs();
                if (left > 0)
                    timer = setTimeout(nap, Math.min(Math.ceil(left / 1000), TIMER_MAX_MS));
                else
                    done();
            };
            this.wake = done;
            nap();
        });
    }
}

class Waiting {
    #store;
    #max;
    #verbs;
    #queues = new Map();
    #waits = new Set();

    constructor(store, max, verbs) {
        this.#store = store;
        this.#max = max;
        this.#verbs = verbs;
    }

    async wait(request, waitUs, signal) {
        if (signal !== undefined && !(typeof signal?.aborted === "boolean" && typeof signal.addEventListener === "function"))
            throw new errors.EINVAL("invalid signal: expected an AbortSignal");
        if (signal?.aborted)
            throw canceled(signal.reason);
        if (this.#waits.size >= this.#max)
            throw new errors.EOVERLOAD(`${this.#waits.size} waits are in progress: expected at most maxWaiting`);
        const wait = new Wait(request, waitUs);
        const abort = () => this.#cancel(wait, canceled(signal.reason));
        signal?.addEventListener("abort", abort, { once: true });
        this.#waits.add(wait);
        wait.done = this.#run(wait);
        try {
            return await wait.done;
        } finally {
            signal?.removeEventListener("abort", abort);
            this.#waits.delete(wait);
        }
    }

    /** Ends all waits. What local ones hold is given back before this returns. */
    async end() {
        const ending = [...this.#waits];
        for (const wait of ending)
            this.#cancel(wait, canceled(new errors.EINVAL("the store was closed")));
        await Promise.allSettled(ending.map((wait) => wait.done));
    }

    #cancel(wait, error) {
        if (wait.error)
            return;
        wait.error = error;
        if (wait.held && !this.#store.remote) {
            const held = wait.held;
            wait.held = undefined;
            this.#undo(wait, held);
        }
        wait.unwatch?.();
        wait.unwatch = undefined;
        wait.rouse();
    }

    // ---- one wait ----

    async #run(wait) {
        const name = nameOf(wait.request);
        let queue = this.#queues.get(name);
        const inQueue = wait.leftUs() > 0;
        const isFirst = !queue;
        if (inQueue) { // before anything is awaited: so the order is that of the calls
            if (!queue)
                this.#queues.set(name, queue = []);
            queue.push(wait);
        }
        let decision;
        try {
            if (inQueue && !isFirst) {
                const now = await this.#verbs.peek(wait.request, 0);
                if (now.never)
                    return now;
            }
            while (inQueue && queue[0] !== wait && wait.leftUs() > 0 && !wait.error)
                await this.#doze(wait);
            decision = await this.#ask(wait);
        } finally {
            wait.unwatch?.();
            wait.unwatch = undefined;
            if (inQueue)
                this.#leave(name, queue, wait);
        }
        return this.#delayed(wait, decision);
    }

    async #doze(wait) {
        wait.woken = false;
        await wait.sleep(Math.min(wait.leftUs(), 1e15));
    }

    #leave(name, queue, wait) {
        const at = queue.indexOf(wait);
        queue.splice(at, 1);
        if (queue.length === 0)
            this.#queues.delete(name);
        else if (at === 0)
            queue[0].rouse();
    }

    /** Asks until it is allowed, or until it is known that it will not be. */
    async #ask(wait) {
        for (;;) {
            if (wait.error)
                throw wait.error;
            wait.woken = false;
            const leftUs = wait.leftUs();
            const answer = this.#verbs.take(wait.request, leftUs);
            const decision = answer instanceof Promise ? await answer : answer;
            if (decision.allowed)
                wait.held = decision; // before anybody else runs: a local store can be closed at any await
            if (decision.allowed || leftUs === 0 || await this.#isHopeless(wait, decision, leftUs))
                return decision;
            const pauseUs = this.#pause(wait, decision, leftUs);
            if (pauseUs < 0)
                return decision;
            if (pauseUs > 0)
                await wait.sleep(pauseUs);
        }
    }

    /** No later moment before the deadline can be better than this one. */
    async #isHopeless(wait, decision, leftUs) {
        if (decision.never)
            return true;
        let full = false;
        for (const [i, row] of decision.rows.entries()) {
            if (row.allowed || !RESERVES.has(wait.parts[i].kind))
                continue;
            if (wait.parts[i].kind !== "leaky-bucket")
                return true;
            full = true; // or its delay would be too long: cost 0 tells which
        }
        if (!full)
            return false;
        const free = await this.#verbs.peek({ ...wait.request, cost: 0, acquire: false }, leftUs);
        return free.rows.some((row, i) => !row.allowed && wait.parts[i].kind === "leaky-bucket");
    }

    /** How long to sleep before it asks again; -1: the deadline is earlier. Opens a watch for slots first. */
    #pause(wait, decision, leftUs) {
        let certainUs = 0, slotsUs = 0;
        for (const [i, row] of decision.rows.entries()) {
            if (row.allowed)
                continue;
            if (wait.parts[i].kind === "concurrent")
                slotsUs = Math.max(slotsUs, row.retryAfterUs);
            else
                certainUs = Math.max(certainUs, row.retryAfterUs);
        }
        if (certainUs > leftUs)
            return -1;
        if (slotsUs > 0 && !wait.unwatch && !wait.error) {
            wait.unwatch = this.#verbs.watch(wait.request, () => wait.rouse());
            return 0; // it may have been released before anybody would have told us
        }
        return Math.min(Math.max(certainUs, slotsUs, 1), leftUs);
    }

    /** Sleeps the delay of what it was given. */
    async #delayed(wait, decision) {
        if (!decision.allowed)
            return decision;
        const endUs = nowUs() + decision.delayUs;
        while (!wait.error && nowUs() < endUs) {
            wait.woken = false;
            await wait.sleep(endUs - nowUs());
        }
        const held = wait.held;
        wait.held = undefined; // from here on it cannot be cancelled
        if (!wait.error)
            return decision;
        if (held)
            await this.#undo(wait, held);
        throw wait.error;
    }

    /** Gives back what it was charged: a slot is released, a reservation is settled to 0. */
    #undo(wait, decision) {
        if (decision.lease)
            return this.#verbs.release(wait.request, decision.lease);
        if (wait.parts.some((part) => part.kind === "concurrent"))
            return undefined; // a slot without a lease is nobody's: it ends by itself
        return decision.charged > 0 || decision.degraded ? this.#verbs.settle(wait.request, decision.receipt) : undefined;
    }
}

module.exports = { Waiting };
