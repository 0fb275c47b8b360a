"use strict";
// Memory stays flat over many takes, of all kinds. memory.js TAKES
const { Store, Limit } = require("weir");
const { check, done } = require("./checks");

const takes = Number(process.argv[2]);
const store = new Store("memory:4m");
const limit = new Limit("token-bucket 100/s");
const rss = () => {
    global.gc();
    return process.memoryUsage.rss();
};

function some(n) {
    for (let i = 0; i < n; i++) {
        const key = `user:${i % 5000}`;
        store.take(key, limit);
        if (i % 16 === 0) {
            store.take(Buffer.from(key), `fixed-window 5/s, sliding-counter ${i % 3000 + 1}/h`);
            store.takeAll([{ key, limit }, { key: "everybody", limit: "fixed-window 5/m" }]);
        }
        if (i % 64 === 0) {
            const decision = store.acquire(key, "concurrent 2");
            decision.lease && store.release(key, "concurrent 2", decision.lease);
            store.settle(key, limit, decision.receipt, 0);
            store.takeMany([{ key, limit }, { key: "k".repeat(600), limit }]);
            try {
                store.take("", limit);
            } catch {
                // it is one of the ways
            }
        }
    }
}

async function main() {
    some(takes / 5);
    await new Promise((resolve) => setTimeout(resolve, 10)); // finalizers run between turns of the loop
    const before = rss();
    for (let round = 0; round < 4; round++) {
        some(takes / 5);
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
    const grown = (rss() - before) / 2 ** 20;
    check(grown < 24, `memory over ${takes} takes has grown by ${grown.toFixed(1)} MiB`);
    console.log(`${takes} takes: ${grown.toFixed(1)} MiB more`);
    store.close();
    done();
}
main();
