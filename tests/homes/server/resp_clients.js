// Node's Redis clients against a running `weir serve`: node-redis (Debian's 4, npm's 5) and ioredis.
//   node resp_clients.js PORT TOKEN NODE_MODULES     TOKEN "" where none is asked for
// Prints a line for what does not hold, then "N passed, N failed".
"use strict";
const path = require("path");
const [port, token, modules] = [Number(process.argv[2]), process.argv[3], process.argv[4]];
const debian = require("/usr/share/nodejs/redis");
const newest = require(path.join(modules, "redis"));
const Ioredis = require(path.join(modules, "ioredis"));

let passed = 0, failed = 0;
function check(right, what) {
    if (right) {
        passed++;
    } else {
        failed++;
        console.log(`FAIL ${what}`);
    }
}
function equal(got, wanted, what) {
    const [a, b] = [got, wanted].map((it) => JSON.stringify(it));
    check(a === b, `${what}: got ${a}, expected ${b}`);
}
async function refused(promise, words, what) {
    try {
        const got = await promise;
        check(false, `${what}: was answered by ${JSON.stringify(got)}`);
    } catch (error) {
        check(String(error.message).includes(words), `${what}: ${error.message}`);
    }
}
const countdown = (n) => Array.from({length: n}, (_, i) => n - 1 - i);

async function nodeRedis(redis, name, options) {
    const socket = {host: "127.0.0.1", port, reconnectStrategy: false};
    const client = redis.createClient({socket, password: token || undefined, name: "tests", database: 0, ...options});
    client.on("error", (error) => check(false, `${name}: ${error.message}`));
    await client.connect();
    const call = (...words) => client.sendCommand(words.map(String));
    equal(await client.ping(), "PONG", `${name}: ping`);
    await client.select(0);
    const one = await call("WEIR.TAKE", name, "fixed-window 5/366d");
    equal(one.slice(0, 4), [1, 5, 4, 0], `${name}: take`);
    equal(await call("WEIR.SETTLE", name, "fixed-window 5/366d", one[6], 0), "OK", `${name}: settle`);
    const many = await Promise.all(countdown(1000).map(() => call("WEIR.TAKE", `${name}-many`, "fixed-window 1000/366d")));
    equal(many.map((reply) => reply[2]), countdown(1000), `${name}: 1000 under way at once, in order`);
    equal(await call("CL.THROTTLE", `${name}-cell`, 2, 30, 60), [0, 3, 2, -1, 2], `${name}: CL.THROTTLE`);
    const detail = await call("WEIR.TAKE", `${name}-d`, "fixed-window 5/366d, token-bucket 9/s", "DETAIL");
    equal([detail[7], detail.length, detail[8].length], [0, 10, 6], `${name}: detail`);
    await refused(call("WEIR.TAKE", "k"), "wrong number", `${name}: too few`);
    await refused(call("WEIR.TAKE", "k", "nonsense"), "limit", `${name}: a wrong limit`);
    await refused(call("GET", "k"), "unknown command", `${name}: no data commands`);
    const mixed = await Promise.allSettled([call("PING"), call("NONSENSE"), call("WEIR.PEEK", name, "fixed-window 5/366d")]);
    equal(mixed.map((it) => it.status), ["fulfilled", "rejected", "fulfilled"], `${name}: errors stay in their place`);
    const second = client.duplicate();
    second.on("error", (error) => check(false, `${name}: ${error.message}`));
    await second.connect();
    equal((await second.sendCommand(["WEIR.PEEK", name, "fixed-window 5/366d"]))[2], 5, `${name}: a duplicate`);
    await second.quit();
    await client.quit();
    if (token) {
        const stranger = redis.createClient({socket, password: "wrong", ...options});
        const told = new Promise((_, fail) => stranger.once("error", fail));
        stranger.on("error", () => {}); // it tries again and again
        stranger.connect().catch(() => {});
        await refused(told, "WRONGPASS", `${name}: a wrong token`);
        try {
            await stranger.disconnect();
        } catch (error) {
            check(/closed/i.test(error.message), `${name}: ${error.message}`); // it has given up by itself
        }
    }
}

async function ioredis() {
    const client = new Ioredis({host: "127.0.0.1", port, password: token || undefined, connectionName: "tests", db: 0,
                                maxRetriesPerRequest: 1});
    client.on("error", (error) => check(false, `ioredis: ${error.message}`));
    await new Promise((ready) => client.once("ready", ready));
    equal(await client.ping(), "PONG", "ioredis: ping");
    const one = await client.call("WEIR.TAKE", "io", "fixed-window 5/366d");
    equal(one.slice(0, 4), [1, 5, 4, 0], "ioredis: take");
    const pipeline = client.pipeline();
    for (let i = 0; i < 1000; i++)
        pipeline.call("WEIR.TAKE", "io-many", "fixed-window 1000/366d");
    const replies = await pipeline.exec();
    equal(replies.map(([error, reply]) => error || reply[2]), countdown(1000), "ioredis: a pipeline of 1000");
    const mixed = await client.pipeline().call("PING").call("NONSENSE").call("WEIR.PEEK", "io", "fixed-window 5/366d").exec();
    equal(mixed.map(([error]) => error !== null), [false, true, false], "ioredis: errors stay in their place");
    await refused(client.call("WEIR.TAKE"), "wrong number", "ioredis: too few");
    equal(await client.call("CL.THROTTLE", "io-cell", 2, 30, 60), [0, 3, 2, -1, 2], "ioredis: CL.THROTTLE");
    const buffer = await client.callBuffer("WEIR.TAKE", Buffer.from([0, 255, 10]), "fixed-window 5/366d");
    check(Buffer.isBuffer(buffer[6]), "ioredis: buffers");
    equal(await client.quit(), "OK", "ioredis: quit");
    const auto = new Ioredis({host: "127.0.0.1", port, password: token || undefined, enableAutoPipelining: true});
    const many = await Promise.all(countdown(500).map(() => auto.call("WEIR.TAKE", "io-auto", "fixed-window 500/366d")));
    equal(many.map((reply) => reply[2]).sort((a, b) => b - a), countdown(500), "ioredis: pipelined by itself");
    auto.disconnect();
    if (token) {
        const stranger = new Ioredis({host: "127.0.0.1", port, password: "wrong", retryStrategy: null});
        stranger.on("error", () => {});
        await refused(stranger.call("WEIR.PEEK", "k", "fixed-window 5/366d"), "", "ioredis: a wrong token");
        stranger.disconnect();
    }
}

async function main() {
    await nodeRedis(debian, "node-redis 4", {});
    await nodeRedis(newest, "node-redis 5", {});
    await nodeRedis(newest, "node-redis 5, RESP3", {RESP: 3});
    await ioredis();
}

main().catch((error) => check(false, error.stack)).finally(() => {
    console.log(`${passed} passed, ${failed} failed`);
    process.exit(failed ? 1 : 0);
});
