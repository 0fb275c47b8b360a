"use strict";
// A Redis that stands still: calls end by their deadline, the event loop goes on, nothing hangs. outage.js URL PID
const { Store } = require("weir");
const { check, same, fails, run } = require("./checks");

const [url, pid] = process.argv.slice(2);
const LIMIT = "fixed-window 5/d from-first";
const MANY = "fixed-window 1000000/d from-first";

async function standing() {
    const store = await Store.open(`${url}?deadline=1s&fail=closed`);
    while ((await store.take("first", MANY)).degraded); // until the server decides, in time
    let turns = 0;
    const ticking = setInterval(() => turns++, 5);
    process.kill(Number(pid), "SIGSTOP");
    const calls = Array.from({ length: 100 }, (_, i) => store.take(`k${i}`, LIMIT));
    const settling = fails(store.settle("a", LIMIT, "w1-1-1", 0));
    const waiting = store.wait("a", LIMIT, { waitMs: 1500 });
    const decisions = await Promise.all(calls);
    check(decisions.every((decision) => decision.degraded && !decision.allowed && decision.closed), "fail=closed denies, and says so");
    same((await settling)?.code, "EUNREACHABLE", "a settle fails");
    same((await waiting).allowed, false, "a wait ends");
    check(turns > 5, `the event loop goes on: ${turns} turns`);
    clearInterval(ticking);
    process.kill(Number(pid), "SIGCONT");
    let back;
    do
        back = await store.take("back", MANY);
    while (back.degraded);
    check(back.allowed, "and the server decides again");
    await store.close();
}

// Both threads of the store wait for a server that is silent. What has waited for them too long is not sent.
async function queued() {
    const store = await Store.open(`${url}?deadline=2s&fail=closed`);
    const both = (key) => store.takeAll([{ key, limit: MANY }, { key, limit: "token-bucket 1000000/s" }]);
    while ((await both("first")).degraded);
    process.kill(Number(pid), "SIGSTOP");
    const calls = [both("busy1"), both("busy2")];
    await new Promise((resolve) => setTimeout(resolve, 100));
    calls.push(store.take("queued", LIMIT));
    check((await Promise.all(calls)).every((decision) => decision.degraded), "none is decided in time");
    process.kill(Number(pid), "SIGCONT");
    let left;
    do
        left = await store.peek("queued", LIMIT);
    while (left.degraded);
    same(left.remaining, 5, "what was queued was not charged");
    await store.close();
}

async function local() {
    const store = new Store(`${url}?deadline=100ms&fail=local`);
    process.kill(Number(pid), "SIGSTOP");
    const decisions = [];
    for (let i = 0; i < 6; i++)
        decisions.push(await store.take("b", LIMIT));
    same(decisions.map((decision) => [decision.allowed, decision.degraded, decision.charged]), [...new Array(5).fill([true, true, 0]), [false, true, 0]], "a local fallback decides");
    const closing = store.close();
    process.kill(Number(pid), "SIGCONT");
    await closing;
    check(store.closed, "closed");
}

async function away() {
    const warnings = [];
    const heard = (warning) => warnings.push(warning.message);
    process.on("warning", heard);
    const store = await Store.open("redis://:s3cret@127.0.0.1:1?fail=local&peers=8");
    const limit = "sliding-log 10/h"; // a share of 1
    for (let i = 0; i < 3; i++) {
        const decision = await store.take("ann", limit);
        same([decision.allowed, decision.degraded, decision.closed], [true, true, false], "a right password");
        same([await store.settle("ann", limit, decision.receipt, 0), await store.settle("ann", limit, decision.receipt, 0)], [true, false], "costs nothing, once");
    }
    same((await fails(store.check()))?.code, "EUNREACHABLE", "check() says it");
    same(warnings.length, 1, `one warning: ${warnings}`);
    check(/cannot be reached: .*127.0.0.1:1.*; meanwhile this process decides alone \(redis:\/\/127\.0\.0\.1:1\?fail=local&peers=8\)$/.test(warnings[0]), warnings[0]);
    process.off("warning", heard);
    await store.close();
}

async function sliced() {
    const store = await Store.open(`${url}?deadline=1m&slices=10%25&peers=2&slice-life=5s`);
    const limit = "fixed-window 1000000/366d";
    const first = await store.take("hot", limit);
    same(first.local, false, "the first one is Redis' own");
    let decisions;
    do
        decisions = await Promise.all(Array.from({ length: 10 }, () => store.take("hot", limit)));
    while (!decisions[9].local); // a slot among the peers comes first
    same([decisions[9].local, decisions[9].limit, decisions[9].charged], [true, 1000000, 1], "a decision from a slice says so");
    await store.close();
}

run([standing, queued, local, away, sliced], []);
