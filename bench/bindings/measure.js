"use strict";
// Rows of Node for bench/bindings.py: a line that it reads is a round, and {row: nanoseconds} is the answer. Rows that wait for a
// server are measured by the clock, the others by the time of the processor, garbage collection included.
const readline = require("node:readline");
const Redis = require("ioredis");
const { RateLimiterMemory, RateLimiterRedis } = require("rate-limiter-flexible");
const { Store, Limit, fields } = require("weir");
const native = require(require.resolve("weir").replace(/index\.js$/, "build/weir.node"));

const TEXT = "token-bucket 1000000/s burst 2000000";
const limit = new Limit(TEXT);
const store = new Store("memory:64m");
const keys = Array.from({ length: 1000 }, (_, i) => `user:${i}`);
const hundred = keys.slice(0, 100).map((key) => ({ key, limit }));
const port = process.env.BENCH_REDIS;
const remote = new Store(`redis://127.0.0.1:${port}?deadline=10s`);
const connection = new Redis(Number(port));
const points = { points: 1e9, duration: 3600 };
const flexible = new RateLimiterMemory(points);
const flexibleRedis = new RateLimiterRedis({ ...points, storeClient: connection });

function repeat(calls, call) {
    return (start) => {
        for (let i = 0; i < calls; i++)
            call(i + start);
        return calls;
    };
}

function repeatLater(calls, call) {
    return async (start) => {
        for (let i = 0; i < calls; i++)
            await call(i + start);
        return calls;
    };
}

const LOCAL = {
    "empty Node-API call": repeat(20000, (i) => native.nothing(keys[i % 1000], limit, 1)),
    "weir, a Limit": repeat(20000, (i) => store.take(keys[i % 1000], limit)),
    "weir, a text": repeat(20000, (i) => store.take(keys[i % 1000], TEXT)),
    "weir, a key that is made": repeat(20000, (i) => store.take(`user:${i % 1000}`, limit)),
    "weir, takeMany of 100, each": (start) => {
        for (let i = 0; i < 50; i++)
            store.takeMany(hundred);
        return 5000;
    },
    "weir, takeAll and fields": repeat(2000, (i) => fields(store.takeAll([{ key: keys[(i) % 1000], limit }]), limit)),
    "rate-limiter-flexible, memory": repeatLater(5000, (i) => flexible.consume(keys[i % 1000])),
};
const REMOTE = {
    "weir on Redis, one at a time": repeatLater(200, (i) => remote.take(keys[i % 1000], limit)),
    "rate-limiter-flexible on Redis, one at a time": repeatLater(200, (i) => flexibleRedis.consume(keys[i % 1000])),
    "weir on Redis, 100 at a time, each": async (start) => {
        for (let i = 0; i < 10; i++)
            await Promise.all(keys.slice(0, 100).map((key) => remote.take(key, limit)));
        return 1000;
    },
    "rate-limiter-flexible on Redis, 100 at a time, each": async (start) => {
        for (let i = 0; i < 10; i++)
            await Promise.all(keys.slice(0, 100).map((key) => flexibleRedis.consume(key)));
        return 1000;
    },
};

const busyNs = () => {
    const { user, system } = process.cpuUsage();
    return (user + system) * 1000;
};
const clockNs = () => performance.now() * 1e6;

async function round(turn) {
    const told = {};
    const rows = [...Object.entries(LOCAL).map((row) => [...row, busyNs]), ...Object.entries(REMOTE).map((row) => [...row, clockNs])];
    for (const [name, work, now] of rows.sort(() => Math.random() - 0.5)) {
        const began = now();
        const calls = await work(turn);
        told[name] = (now() - began) / calls;
    }
    return told;
}

async function main() {
    let turn = 0;
    for await (const line of readline.createInterface({ input: process.stdin }))
        line && console.log(JSON.stringify(await round(turn++)));
    await remote.close();
    connection.disconnect();
}
main();
