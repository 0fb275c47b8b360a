"use strict";
// Stores. memory:, shm: and file: answer at once. Every call of a redis:// store is a promise.
const { native, errors, errorOf, lastError, show, whole, durationUs, optionsOf } = require("./native");
const { limitOf, handleOf } = require("./limit");
const { Decision, writeRow, folded, each, ROW } = require("./decision");
const { Waiting } = require("./wait");
const { takeSlot } = require("./slot");

const VERB = { TAKE: 0, PEEK: 1, MANY: 2, SETTLE: 3, RESET: 4, RENEW: 5, RELEASE: 6, CHECK: 7, OPEN: 8 };
const GIVES_BACK = new Set([VERB.SETTLE, VERB.RENEW, VERB.RELEASE]);
const NUMBERS = 4; // of a request: cost, wait, least, acquire
const COST_MAX = 1e12;
const LEASE_MAX = 2 ** 53 - 1;
const REQUEST = ["cost", "waitMs", "least", "acquire"];
const NOTHING = new Float64Array(NUMBERS);
const DECIDES = new Set([VERB.TAKE, VERB.PEEK, VERB.MANY]);
const EGONE = -native.errors.indexOf("EGONE") - 1;
const TELL_MS = 10e3; // between two warnings of one store
const BACK_MS = 2e3; // so long without the fallback: servers decide again
const REOPEN_MS = 1e3; // between two attempts to open a zone that was replaced
const HALF_PAIR = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/;

/** A key as the addon takes it. A text may hold the character that stands for broken ones, if it is really there. */
function keyOf(key) {
    if (typeof key === "string") {
        if (!key.includes("\uFFFD") && !HALF_PAIR.test(key))
            return key;
        if (HALF_PAIR.test(key))
            throw new errors.EINVAL("invalid key: it has half of a surrogate pair; expected well-formed text, or a Uint8Array");
        return Buffer.from(key, "utf8");
    }
    if (key instanceof Uint8Array)
        return key;
    throw new errors.EINVAL(`invalid key ${show(key)}: expected a string or a Uint8Array`);
}

/** What a request says beside its key and limit, into numbers[at …]. */
function writeNumbers(options, numbers, at) {
    const { cost = 1, waitMs, least = 0, acquire = false } = options;
    numbers[at] = whole(cost, "cost", 0, COST_MAX);
    numbers[at + 1] = waitMs === undefined ? -1 : durationUs(waitMs, "waitMs");
    numbers[at + 2] = whole(least, "least", 0, COST_MAX);
    if (typeof acquire !== "boolean")
        throw new errors.EINVAL(`invalid acquire ${show(acquire)}: expected true or false`);
    numbers[at + 3] = acquire ? 1 : 0;
}

/** Requests as the addon takes them. */
function readRequests(requests, most) {
    if (!Array.isArray(requests) || requests.length < 1 || requests.length > most)
        throw new errors.EINVAL(`invalid requests: expected an array of 1 to ${most}`);
    const keys = [], limits = [], numbers = new Float64Array(requests.length * NUMBERS);
    for (let i = 0; i < requests.length; i++) {
        const request = optionsOf(requests[i] ?? null, "request", ["key", "limit", ...REQUEST]);
        keys.push(keyOf(request.key));
        limits.push(handleOf(request.limit));
        writeNumbers(request, numbers, i * NUMBERS);
    }
    return [keys, limits, numbers];
}

/** take(key, limit, 5) or take(key, limit, { cost: 5, … }) */
function readRequest(key, limit, options) {
    const numbers = new Float64Array(NUMBERS);
    const given = typeof options === "object" && options !== null ? optionsOf(options, "option", REQUEST) : { cost: options };
    writeNumbers(given, numbers, 0);
    return [[keyOf(key)], [handleOf(limit)], numbers];
}

/** An address for people. A password may hold an @: it ends at the last one before the host. Only paths of sockets hold one behind it. */
function withoutPassword(url) {
    return url.replace(url.startsWith("redis+unix:") ? /\/\/[^/?]*@/ : /\/\/[^?]*@/, "//");
}

let denyFull; // (store): who finds no room is denied, with a decision

class Store {
    static {
        denyFull = (store) => {
            store.#deniesFull = !store.#remote;
            if (!store.#remote && !store.#closed)
                native.denyFull(store.#handle);
        };
    }

    #handle;
    #take; // local stores: the fast path
    #peek;
    #waiting;
    #maxCalls;
    #calls = 0;
    #closed = false;
    #closing;
    #remote;
    #url;
    #away = false; // the program was warned that a local fallback decides
    #tellAt = -Infinity;
    #awayAt = -Infinity; // when the fallback decided last
    #address; // as it was given
    #timeUs = null; // what setTime said
    #reopenAt = -Infinity;
    #deniesFull = false;

    constructor(url, options) {
        if (typeof url !== "string")
            throw new errors.EINVAL(`invalid store ${show(url)}: expected an address such as "shm:/name" or "redis://host:6379"`);
        const { maxCalls = 1024, maxWaiting = 10000 } = optionsOf(options, "option", ["maxCalls", "maxWaiting"]);
        this.#maxCalls = whole(maxCalls, "maxCalls", 1, 1e6);
        const waiting = whole(maxWaiting, "maxWaiting", 1, 1e6);
        const made = native.open(url);
        if (typeof made === "number")
            throw lastError();
        this.#remote = made.remote;
        this.#use(made);
        this.#address = url;
        this.#url = withoutPassword(url);
        this.#waiting = new Waiting(this, waiting, {
            take: (request, waitUs) => this.#with(request, waitUs, VERB.TAKE),
            peek: (request, waitUs) => this.#with(request, waitUs, VERB.PEEK),
            release: (request, lease) => this.#back(VERB.RELEASE, request, lease, undefined, "ENOLEASE"),
            settle: (request, receipt) => this.#back(VERB.SETTLE, request, 0, receipt, "ESETTLED"),
            watch: (request, callback) => {
                const watch = native.watch(this.#handle, request.key, handleOf(request.limit), callback);
                if (typeof watch === "number")
                    throw lastError();
                return () => native.unwatch(watch);
            },
        });
    }

    #use({ handle, take, peek }) {
        this.#handle = handle;
        this.#take = take;
        this.#peek = peek;
    }

    // Somebody has put another zone in the place of ours. Its states are lost, and others count in the new one already: so do we.
    // The old one is closed when nothing uses it any more.
    #reopened() {
        const now = performance.now();
        if (now < this.#reopenAt)
            return false;
        this.#reopenAt = now + REOPEN_MS;
        const made = native.open(this.#address);
        if (typeof made !== "number") {
            this.#use(made);
            if (this.#deniesFull)
                native.denyFull(this.#handle);
            if (this.#timeUs !== null)
                this.setTime(this.#timeUs);
            native.begins(this.#handle);
            process.emitWarning(`${this.#url} was replaced: what the old zone had counted is lost, this process counts in the new one from now on`, "WeirWarning");
            return true;
        }
        if (now >= this.#tellAt) {
            this.#tellAt = now + TELL_MS;
            process.emitWarning(`${this.#url} was replaced, and the new zone cannot be opened, so nothing is decided: ${lastError().message}; it is tried again every second`, "WeirWarning");
        }
        return false;
    }

    /** Opens a store and waits until it is open. */
    static async open(url, options) {
        const store = new Store(url, options);
        try {
            if (store.#remote)
                await store.#later(VERB.OPEN, [], [], NOTHING, undefined, () => undefined);
            if (store.#remote)
                await store.check().catch((error) => store.#tellAway(error.message));
        } catch (error) {
            await store.close();
            throw error;
        }
        return store;
    }

    /** Whether its calls are promises. */
    get remote() {
        return this.#remote;
    }

    /** Its address, without a password. */
    get url() {
        return this.#url;
    }

    get closed() {
        return this.#closed;
    }

    // ---- verbs ----

    /** Decides and charges. */
    take(key, limit, cost = 1) {
        if (this.#take !== undefined && typeof cost === "number") {
            if (this.#take(key, handleOf(limit), cost) === undefined)
                return new Decision(native.out, 0);
        }
        return this.#one(VERB.TAKE, key, limit, cost);
    }

    /** What take would answer; charges nothing. */
    peek(key, limit, cost = 1) {
        if (this.#peek !== undefined && typeof cost === "number") {
            if (this.#peek(key, handleOf(limit), cost) === undefined)
                return new Decision(native.out, 0);
        }
        return this.#one(VERB.PEEK, key, limit, cost);
    }

    /** All of them or none, at one instant; `rows` has one decision per limit. */
    takeAll(requests) {
        return this.#call(VERB.TAKE, () => readRequests(requests, 16), undefined, folded);
    }

    /** takeAll that charges nothing. */
    peekAll(requests) {
        return this.#call(VERB.PEEK, () => readRequests(requests, 16), undefined, folded);
    }

    /** Independent requests, each decided by itself, in one call. */
    takeMany(requests) {
        return this.#call(VERB.MANY, () => readRequests(requests, 65536), undefined, each);
    }

    /** Takes and holds a lease of a `concurrent` limit. */
    acquire(key, limit, cost = 1) {
        return this.#call(VERB.TAKE, () => {
            const request = readRequest(key, limit, cost);
            request[2][3] = 1;
            return request;
        }, undefined, folded);
    }

    /** Starts a lease's time again; false: it has lapsed. */
    renew(key, limit, lease) {
        return this.#lease(VERB.RENEW, key, limit, lease);
    }

    /** Gives a lease back; false: it has lapsed. */
    release(key, limit, lease) {
        return this.#lease(VERB.RELEASE, key, limit, lease);
    }

    /** Corrects a charge to its real cost, once; false: it was settled before. */
    settle(key, limit, receipt, cost) {
        return this.#call(VERB.SETTLE, () => {
            if (receipt === null)
                throw new errors.ERECEIPT("the receipt is null: the requests of the call were charged different amounts, so settle each with the receipt of its row");
            if (typeof receipt !== "string")
                throw new errors.EINVAL(`invalid receipt ${show(receipt)}: expected the receipt of a decision`);
            const numbers = new Float64Array(NUMBERS);
            numbers[0] = whole(cost, "cost", 0, COST_MAX);
            return [[keyOf(key)], [handleOf(limit)], numbers];
        }, receipt, () => true, "ESETTLED");
    }

    /** Forgets a key, under all limits. */
    reset(key) {
        return this.#call(VERB.RESET, () => [[keyOf(key)], [], NOTHING], undefined, () => undefined);
    }

    /** Checks a zone byte by byte, or whether the servers can be reached; throws what is wrong. */
    check() {
        return this.#call(VERB.CHECK, () => [[], [], NOTHING], undefined, () => undefined);
    }

    // ---- waiting: always promises, no thread ----

    /** Takes as soon as it is allowed, within waitMs; otherwise the answer is a denial. */
    async wait(key, limit, options) {
        const { waitMs = Infinity, cost = 1, acquire = false, signal } = optionsOf(options, "option", ["waitMs", "cost", "acquire", "signal"]);
        const request = { key: ownKey(keyOf(key)), limit: limitOf(limit), cost: whole(cost, "cost", 0, COST_MAX), acquire };
        writeNumbers({ cost, acquire }, new Float64Array(NUMBERS), 0);
        this.#mustBeOpen();
        return this.#waiting.wait(request, durationUs(waitMs, "waitMs"), signal);
    }

    /** A slot of a `concurrent` limit, which is renewed until it is released. With a function: it has the slot while it runs. */
    slot(key, limit, work, options) {
        const callback = typeof work === "function" ? work : undefined;
        return takeSlot(this, key, limit, callback, callback ? options : work);
    }

    // ---- the rest ----

    /** How full a zone is, and what was evicted. */
    info() {
        return this.#told(native.info(this.#handle));
    }

    /** How this process's takes were decided. */
    counts() {
        return this.#told(native.counts(this.#handle));
    }

    /** Stops the clock of a local store, for tests; null: the system's clock again. */
    setTime(timeUs) {
        this.#timeUs = timeUs;
        this.#told(native.setTime(this.#handle, timeUs === null ? -1 : whole(timeUs, "time", 0, LEASE_MAX)));
    }

    /** Waits end with ECANCELED, calls in progress are finished. A promise, if the store is remote. */
    close() {
        if (this.#closed)
            return this.#closing;
        this.#closed = true;
        this.#take = this.#peek = undefined;
        const ended = this.#waiting.end();
        if (this.#remote) {
            this.#closing = ended.then(() => new Promise((resolve) => {
                native.close(this.#handle, resolve);
            }));
        } else {
            native.close(this.#handle, () => {});
        }
        return this.#closing;
    }

    #mustBeOpen() {
        if (this.#closed)
            throw new errors.EINVAL("the store is closed");
    }

    #told(answer) {
        if (typeof answer === "number")
            throw lastError();
        return answer;
    }

    // Whether a local fallback begins to decide, or ends. A decision from a slice proves nothing. While one server of a Cluster is away, the
    // others decide: it is over when the fallback has not decided for a while.
    #note(rows) {
        const away = rows[ROW.DEGRADED] !== 0;
        if ((!away && !this.#away) || rows[ROW.LOCAL] !== 0 || rows[ROW.CODE] !== 0 || this.#closed)
            return;
        if (away)
            this.#awayAt = performance.now();
        if (away === this.#away || (!away && performance.now() - this.#awayAt < BACK_MS))
            return;
        if (!away) {
            this.#away = false;
            process.emitWarning(`the store is back: its servers decide again (${this.#url})`, "WeirWarning");
        } else if (performance.now() >= this.#tellAt) {
            this.#away = true;
            this.check().then(() => this.#tellAway(), (error) => this.#tellAway(error.message));
        }
    }

    /** `why` undefined: they can be reached. */
    #tellAway(why) {
        const fail = /[?&]fail=(open|closed)/.exec(this.#url)?.[1];
        const meanwhile = { open: "everything is allowed", closed: "everything is denied" }[fail] ?? "this process decides alone";
        this.#away = true;
        this.#tellAt = performance.now() + TELL_MS;
        const some = this.#url.startsWith("redis+cluster:");
        const what = why === undefined ? `${some ? "do" : "does"} not decide: answers do not come in time` : `cannot be reached: ${why}`;
        process.emitWarning(`${some ? "servers of " : ""}the store ${what}; meanwhile${some ? ", for their keys," : ""} ${meanwhile} (${this.#url})`, "WeirWarning");
    }

    // One key. A failure of the fast path comes here, too: either it is told well now, or the key was only unusual.
    #one(verb, key, limit, options) {
        return this.#call(verb, () => readRequest(key, limit, options), undefined, (rows) => new Decision(rows, 0));
    }

    #lease(verb, key, limit, lease) {
        return this.#call(verb, () => {
            const numbers = new Float64Array(NUMBERS);
            numbers[0] = whole(lease, "lease", 0, LEASE_MAX);
            return [[keyOf(key)], [handleOf(limit)], numbers];
        }, undefined, () => true, "ENOLEASE");
    }

    // Of a wait, which goes on until it has given back what it holds.
    #with(request, waitUs, verb) {
        const numbers = Float64Array.of(request.cost, waitUs, 0, request.acquire ? 1 : 0);
        const keys = [request.key], limits = [handleOf(request.limit)];
        return this.#remote ? this.#later(verb, keys, limits, numbers, undefined, folded) : this.#now(verb, keys, limits, numbers, undefined, folded);
    }

    #back(verb, request, number, text, no) {
        const numbers = Float64Array.of(number, 0, 0, 0);
        const call = [verb, [request.key], [handleOf(request.limit)], numbers, text, () => true, no];
        return this.#remote ? this.#later(...call) : this.#now(...call);
    }

    /** Runs a verb. `no` is the code that means false. */
    #call(verb, read, text, answer, no) {
        if (!this.#remote) {
            this.#mustBeOpen();
            return this.#now(verb, ...read(), text, answer, no);
        }
        try {
            this.#mustBeOpen();
            return this.#later(verb, ...read(), text, answer, no);
        } catch (error) {
            return Promise.reject(error);
        }
    }

    #now(verb, keys, limits, numbers, text, answer, no) {
        const ask = () => native.run(this.#handle, verb, keys, limits, numbers, text);
        let rows = ask();
        if ((typeof rows === "number" ? rows : verb === VERB.MANY ? rows[ROW.CODE] : 0) === EGONE && !this.#closed) {
            const error = typeof rows === "number" ? lastError() : undefined; // before another call has its own
            if (this.#reopened())
                rows = ask();
            else if (error)
                throw error;
        }
        if (typeof rows !== "number")
            return answer(rows);
        const error = lastError();
        if (error.code === no)
            return false;
        throw error;
    }

    #later(verb, keys, limits, numbers, text, answer, no) {
        const room = GIVES_BACK.has(verb) ? 2 * this.#maxCalls : this.#maxCalls; // giving back has room of its own
        if (this.#calls >= room)
            return Promise.reject(new errors.EOVERLOAD(`${this.#calls} calls are in progress: expected at most maxCalls`));
        return new Promise((resolve, reject) => {
            const code = native.submit(this.#handle, verb, keys, limits, numbers, text, (failed, rows, message, column) => {
                this.#calls--;
                if (failed === 0) {
                    if (DECIDES.has(verb))
                        this.#note(rows);
                    resolve(answer(rows));
                    return;
                }
                const error = errorOf(failed, message, column);
                if (error.code === no)
                    resolve(false);
                else
                    reject(error);
            });
            if (code === undefined)
                this.#calls++;
            else
                reject(lastError());
        });
    }
}

/** Bytes that nobody else changes while a wait uses them. */
function ownKey(key) {
    return typeof key === "string" ? key : Buffer.from(key);
}

/** The HTTP fields that tell of a decision: [name, value] pairs, names in lower case. `limits` are those of the requests. */
function fields(decision, limits, options) {
    const { style = "ietf", names } = optionsOf(options, "option", ["style", "names"]);
    if (typeof decision !== "object" || decision === null || !Array.isArray(decision.rows) || decision.rows.length > 16)
        throw new errors.EINVAL("invalid decision: expected one of takeAll or peekAll");
    if (typeof style !== "string")
        throw new errors.EINVAL(`invalid style ${show(style)}: expected ietf, ietf-06, x-ratelimit, openai, retry-after or off`);
    const of = (Array.isArray(limits) ? limits : [limits]).map(limitOf);
    const count = of.reduce((sum, limit) => sum + limit.length, 0);
    if (count !== decision.rows.length)
        throw new errors.EINVAL(`invalid limits: expected those of the decision, which has ${decision.rows.length} rows, not ${count}`);
    const called = names === undefined ? undefined : Array.from(names);
    if (called?.some((name) => name !== undefined && typeof name !== "string"))
        throw new errors.EINVAL("invalid names: expected a string or undefined for each limit");
    writeRow(decision, 0);
    decision.rows.forEach((row, i) => writeRow(row, (i + 1) * ROW.SIZE));
    const text = native.fields(style, of.map(handleOf), called);
    if (typeof text === "number")
        throw lastError();
    return text.split("\n").filter(Boolean).map((line) => {
        const colon = line.indexOf(": ");
        return [line.slice(0, colon), line.slice(colon + 2)];
    });
}

for (const [name, symbol] of [["close", Symbol.dispose], ["close", Symbol.asyncDispose]]) {
    if (symbol !== undefined)
        Object.defineProperty(Store.prototype, symbol, { value: Store.prototype[name], configurable: true, writable: true });
}

module.exports = { Store, fields, keyOf, denyFull };
