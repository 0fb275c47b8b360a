"use strict";
// Waits and slots: no thread, first come first served, cancelled without a trace. waits.js URL
const { Store, errors } = require("weir");
const { check, same, fails, failsWith, run } = require("./checks");

const url = process.argv[2];
const store = new Store(url);
let keys = 0;
const fresh = () => `key:${process.pid}:${keys++}`;
const settled = async (promise) => {
    const mark = {};
    return await Promise.race([promise.then(() => true, () => true), new Promise((resolve) => setImmediate(resolve, mark))]) !== mark;
};

async function reserved() {
    const key = fresh(), limit = "token-bucket 20/s burst 1";
    const began = performance.now();
    const all = await Promise.all([0, 1, 2, 3].map(async (turn) => [turn, await store.wait(key, limit), performance.now()]));
    check(all.every(([, decision]) => decision.allowed), "all are served");
    // Whatever held them up: each comes 50 ms after the one before, or later.
    check(all.every(([turn, decision, at]) => at - began >= decision.delayUs / 1000 && at - began >= turn * 50 - 1), `none goes ahead early: ${all.map((one) => [one[2] - began, one[1].delayUs])}`);
    // By the times that were reserved: who sleeps until two of them are over may wake in any order.
    const due = all.map(([, decision]) => decision.timeUs + decision.delayUs);
    check(due.every((at, i) => i === 0 || at - due[i - 1] >= 50000), `in their order: ${due}`);
}

async function windows() {
    const key = fresh(), limit = "sliding-log 2/100ms";
    const order = [];
    const all = [0, 1, 2, 3, 4].map((turn) => store.wait(key, limit).then((decision) => order.push(turn) && decision));
    check((await Promise.all(all)).every((decision) => decision.allowed), "all of a log are served");
    same(order, [0, 1, 2, 3, 4], "first come, first served");
}

async function deadlines() {
    const key = fresh();
    await store.wait(key, "fixed-window 1/h from-first");
    const denied = await store.wait(key, "fixed-window 1/h from-first", { waitMs: 50 });
    check(!denied.allowed && denied.retryAfterUs > 3e9, "denied at once where that is known");
    same((await store.wait(key, "token-bucket 1/s", { cost: 2, waitMs: Infinity })).never, true, "never is told at once");
    const bucket = fresh();
    await store.wait(bucket, "token-bucket 1/h");
    same((await store.wait(bucket, "token-bucket 1/h", { waitMs: 10000 })).allowed, false, "a reservation that would be too late is none");
    same((await store.wait(bucket, "token-bucket 1/h", { waitMs: 0 })).allowed, false, "a wait of 0 asks once");
    const slots = fresh();
    const held = await store.acquire(slots, "concurrent 1 lease 1h");
    const began = performance.now();
    const behind = store.wait(slots, "concurrent 1 lease 1h", { waitMs: 60, acquire: true });
    const never = store.wait(slots, "concurrent 1 lease 1h", { cost: 2, acquire: true });
    same((await never).never, true, "also of one in a queue");
    same((await behind).allowed, false, "denied at its deadline");
    check(performance.now() - began >= 59, "not before");
    await store.release(slots, "concurrent 1 lease 1h", held.lease);
    for (const bad of [{ waitMs: -1 }, { signal: {} }, { signal: 5 }, { timeout: 5 }, 5, null, { acquire: 1 }])
        await failsWith(() => store.wait("k", "token-bucket 1/s", bad), "EINVAL", "", `wait with ${JSON.stringify(bad)}`);
}

async function leaky() {
    const key = fresh(), limit = "leaky-bucket 20/s burst 1";
    const all = await Promise.all([0, 1, 2, 3].map(() => store.wait(key, limit)));
    check(all.every((decision) => decision.allowed), "a full leaky bucket is waited for");
    const full = fresh(), slow = "leaky-bucket 1/h burst 1";
    await store.take(full, slow);
    await store.take(full, slow);
    same((await store.wait(full, slow, { waitMs: 1000 })).allowed, false, "unless its queue is too long");
}

async function slots() {
    const key = fresh(), limit = "concurrent 2 lease 1h";
    const first = await store.slot(key, limit), second = await store.slot(key, limit);
    const denied = await failsWith(store.slot(key, limit), "EDENIED", "no slot", "a third");
    check(denied.decision && denied.decision.allowed === false && denied instanceof errors.EDENIED, "a denial has its decision");
    const order = [];
    const turns = Array.from({ length: 24 }, (_, i) => i);
    const waiting = turns.map((turn) => store.slot(key, limit, async (slot) => {
        order.push(turn);
        await new Promise((resolve) => setTimeout(resolve, 1));
        return slot.lease > 0 && turn;
    }, { waitMs: Infinity }));
    check(!await settled(waiting[0]), "it waits");
    same([await first.release(), await first.release()], [true, false], "released once");
    same(await Promise.all(waiting), turns, "a release serves those who wait");
    same(order, turns, "in their order");
    await second.release();
    same((await store.peek(key, limit, 0)).remaining, 2, "all are back");
    const bytes = Buffer.from(fresh());
    const own = store.slot(bytes, limit);
    const copy = Buffer.from(bytes);
    bytes.fill(0);
    await (await own).release();
    same((await store.peek(copy, limit, 0)).remaining, 2, "a key that is changed while its slot is held");
    const boom = new Error("boom");
    same((await fails(store.slot(key, limit, () => { throw boom; }))) === boom, true, "an error of the work comes out");
    same((await store.peek(key, limit, 0)).remaining, 2, "and its slot is back");
    if (Symbol.asyncDispose) {
        const slot = await store.slot(key, limit);
        await slot[Symbol.asyncDispose]();
        same((await store.peek(key, limit, 0)).remaining, 2, "await using gives it back");
    }
}

/** Runs work with longer and longer times until this machine has not held the program up for too long. */
async function inTime(work) {
    for (const scale of [1, 3, 12, 48]) {
        let last = performance.now(), longest = 0;
        const timer = setInterval(() => {
            longest = Math.max(longest, performance.now() - last);
            last = performance.now();
        }, 5);
        const judge = await work(scale);
        clearInterval(timer);
        longest = Math.max(longest, performance.now() - last);
        if (longest < 40 * scale) {
            judge();
            return;
        }
    }
    check(false, "this machine holds its processes up for too long");
}

async function leases() {
    await inTime(async (scale) => {
        const key = fresh(), limit = `concurrent 1 lease ${150 * scale}ms`;
        const slot = await store.slot(key, limit);
        await new Promise((resolve) => setTimeout(resolve, 400 * scale));
        const seen = [slot.lost, (await store.peek(key, limit)).allowed];
        await slot.release();
        return () => same(seen, [false, false], "a slot is renewed while it is held");
    });
    const key = fresh(), long = "concurrent 1 lease 8s";
    const slot = await store.slot(key, long);
    await store.release(key, long, slot.lease); // behind its back, before it is renewed for the first time
    await new Promise((resolve) => slot.signal.addEventListener("abort", resolve));
    same([slot.lost, slot.signal.reason.code, await slot.release()], [true, "ENOLEASE", false], "a slot that is lost says so");
    const other = fresh(), short = "concurrent 1 lease 150ms";
    await store.acquire(other, short);
    same((await store.wait(other, short, { acquire: true, waitMs: 60000 })).allowed, true, "a lease that lapses wakes those who wait");
}

async function aborts() {
    const key = fresh(), limit = "token-bucket 1/h";
    await store.wait(key, limit);
    const before = (await store.peek(key, limit)).retryAfterUs;
    const abort = new AbortController();
    const why = new Error("why");
    const waiting = store.wait(key, limit, { signal: abort.signal });
    const error = fails(waiting);
    check(!await settled(waiting), "it waits for an hour");
    setTimeout(() => abort.abort(why), 20);
    const ended = await error;
    same([ended?.name, ended?.code, ended?.cause === why, ended instanceof errors.ECANCELED], ["AbortError", "ECANCELED", true, true], "aborted");
    check((await store.peek(key, limit)).retryAfterUs <= before, "what was reserved is given back");
    same((await fails(store.wait(key, limit, { signal: abort.signal })))?.code, "ECANCELED", "a signal that was aborted before");
    same((await fails(store.wait(key, limit, { signal: AbortSignal.timeout(20) })))?.cause?.name, "TimeoutError", "a timeout");
    const slot = fresh(), one = "concurrent 1 lease 1h";
    const held = await store.acquire(slot, one);
    const stop = new AbortController();
    const queue = [store.wait(slot, one, { acquire: true, signal: stop.signal }), store.wait(slot, one, { acquire: true })];
    const canceled = fails(queue[0]);
    await settled(queue[1]);
    stop.abort();
    same((await canceled)?.code, "ECANCELED", "the first of a queue is aborted");
    await store.release(slot, one, held.lease);
    same((await queue[1]).allowed, true, "and the next is served");
}

async function bounds() {
    const small = new Store(url, { maxWaiting: 2, maxCalls: 3 });
    const key = fresh(), limit = "concurrent 1 lease 1h";
    const held = await small.acquire(key, limit);
    const waiting = [0, 1].map(() => fails(small.wait(key, limit, { acquire: true })));
    await failsWith(small.wait(key, limit, { acquire: true }), "EOVERLOAD", "expected at most maxWaiting", "a third wait");
    if (small.remote) {
        const calls = await Promise.all(new Array(10).fill().map(() => fails(small.take(fresh(), "token-bucket 1/s"))));
        check(calls.filter((error) => error?.code === "EOVERLOAD").length >= 7, `calls over maxCalls fail: ${calls.map((error) => error?.code)}`);
    }
    await store.release(key, limit, held.lease);
    const closing = small.close();
    const errors = await Promise.all(waiting);
    check(errors.every((error) => error === undefined || error.code === "ECANCELED"), `waits end when their store is closed: ${errors}`);
    await closing;
    const left = await store.wait(key, limit, { acquire: true, waitMs: 10000 });
    check(left.allowed || errors.some((error) => error === undefined), "and give back what they hold");
}

async function closed() {
    const other = new Store(url);
    const key = fresh(), limit = "token-bucket 1/h";
    await other.take(key, limit);
    const before = (await store.remote ? 0 : other.peek(key, limit).retryAfterUs);
    const waiting = fails(other.wait(key, limit));
    await new Promise((resolve) => setTimeout(resolve, 30));
    await other.close();
    same((await waiting)?.code, "ECANCELED", "close ends a wait");
    same((await fails(async () => other.take(key, limit)))?.code, "EINVAL", "and everything else");
    if (!url.startsWith("memory:"))
        check((await store.peek(key, limit)).retryAfterUs <= 3600e6 && before >= 0, "what it had reserved is given back");
}

const alive = setInterval(() => {}, 1000); // slots alone do not keep a program going
run([reserved, windows, deadlines, leaky, slots, leases, aborts, bounds, closed], process.argv.slice(3)).then(async () => {
    clearInterval(alive);
    await store.close();
});
