"use strict";
// One of three servers of a Cluster stands still: its keys are decided by the deadline, the others at once. late.js URL PID KEY…
const { Store } = require("weir");
const { check, same, run } = require("./checks");

const [url, pid, ...keys] = process.argv.slice(2); // the first key is that of the server which will stand still
const LIMIT = "fixed-window 1000000/d from-first";
const DEADLINE_MS = 2000;
const warnings = [];
process.on("warning", (warning) => warnings.push(warning.message));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function standing() {
    const store = await Store.open(`${url}?deadline=${DEADLINE_MS}ms&fail=closed`);
    for (const key of keys)
        while ((await store.take(key, LIMIT)).degraded);
    process.kill(Number(pid), "SIGSTOP");
    const slowest = keys.map(() => 0), degraded = keys.map(() => 0), calls = [];
    let late = 0;
    async function ask(i, several) {
        const start = performance.now();
        const decision = several ? await store.takeAll([{ key: keys[i], limit: LIMIT }, { key: keys[i], limit: "token-bucket 1000000/s" }]) : await store.take(keys[i], LIMIT);
        slowest[i] = Math.max(slowest[i], performance.now() - start);
        degraded[i] += decision.degraded;
    }
    for (let start = performance.now(), before = start; performance.now() - start < 1.5 * DEADLINE_MS; before = performance.now()) {
        keys.forEach((_, i) => calls.push(ask(i, calls.length % 2 === 0)));
        await pause(20);
        late = Math.max(late, performance.now() - before - 20); // this process or machine stood still
    }
    await Promise.all(calls);
    process.kill(Number(pid), "SIGCONT");
    same(warnings.length, 1, `one warning, and it is not over meanwhile: ${warnings.join("\n")}`);
    check(/^servers of the store (cannot be reached: 127.0.0.1:.*|do not decide: answers .*); meanwhile, for their keys, everything is denied \(redis\+cluster:.*\)$/.test(warnings[0]), warnings[0]);
    while (warnings.length < 2)
        for (const key of keys)
            await store.take(key, LIMIT);
    check(/is back/.test(warnings[1]), warnings[1]);
    same(degraded.slice(1), keys.slice(1).map(() => 0), "the others decide");
    check(degraded[0] > 0, "the one that stands still does not");
    check(slowest[0] <= DEADLINE_MS + 300 + 2 * late, `no call takes longer than its deadline: ${slowest[0]} ms`);
    check(Math.max(...slowest.slice(1)) <= DEADLINE_MS / 2 + 2 * late, `and the others do not wait for it: ${slowest} ms`);
    await store.close();
}

run([standing], []);
