"use strict";
// Threads that share a zone, and ends of every kind: terminate, exit, close, garbage. ends.js FOLDER REDIS_URL TIMES
const fs = require("node:fs");
const path = require("node:path");
const { spawnSync } = require("node:child_process");
const { Worker, isMainThread, workerData, parentPort } = require("node:worker_threads");

const JOBS = {
    // Takes as often as it is told; how many were allowed.
    take({ url, times, limit }) {
        const { Store } = require("weir");
        const store = new Store(url);
        let allowed = 0;
        for (let i = 0; i < times; i++)
            allowed += store.take("shared", limit).allowed;
        parentPort.postMessage(allowed);
    },
    // In the middle of takes when it is ended.
    busy({ url }) {
        const { Store } = require("weir");
        const store = new Store(url);
        parentPort.postMessage("ready");
        for (;;)
            store.take(`key:${Math.floor(Math.random() * 1000)}`, "token-bucket 10/s");
    },
    // Waits for slots and turns when it is ended.
    waits({ url }) {
        const { Store } = require("weir");
        const store = new Store(url);
        for (let i = 0; i < 20; i++) {
            store.wait(`turn:${i % 3}`, "sliding-log 1/h").catch(() => {});
            store.wait(`slot:${i % 3}`, "concurrent 1 lease 1h", { acquire: true }).catch(() => {});
        }
        setTimeout(() => parentPort.postMessage("ready"), 5);
    },
    // Has calls in progress when it is ended.
    calls({ redis }) {
        const { Store } = require("weir");
        const store = new Store(redis);
        const more = () => store.take("k", "token-bucket 10/s").then(more, more);
        for (let i = 0; i < 200; i++)
            more();
        setTimeout(() => parentPort.postMessage("ready"), 20);
    },
    // Uses everything and comes to its end.
    all({ url }) {
        const { Store } = require("weir");
        const store = new Store(url);
        store.takeMany([{ key: "a", limit: "token-bucket 1/s" }]);
        store.slot("s", "concurrent 1000", (slot) => slot.lease, { waitMs: 1000 }).then((lease) => parentPort.postMessage(lease > 0));
    },
};

function start(job, data) {
    const worker = new Worker(__filename, { workerData: { job, ...data } });
    const first = new Promise((resolve, reject) => {
        worker.once("message", resolve);
        worker.once("error", reject);
    });
    return { worker, first, ended: new Promise((resolve) => worker.once("exit", resolve)) };
}

if (!isMainThread) {
    JOBS[workerData.job](workerData);
} else {
    const { check, same, fails, run } = require("./checks");
    const [folder, redis, times] = process.argv.slice(2);
    const url = `file:${path.join(folder, "threads")}?size=4m`;

    async function threads() { // nobody else has loaded the addon yet
        const limit = "fixed-window 1000/d from-first";
        for (let round = 0; round < 2; round++) {
            const workers = [0, 1, 2, 3].map(() => start("take", { url: `${url}`, times: 2000, limit: `${limit}, sliding-log 700/d` }));
            const allowed = await Promise.all(workers.map((worker) => worker.first));
            same(allowed.reduce((sum, one) => sum + one, 0), round === 0 ? 700 : 0, "four threads are admitted what the limit says, together");
            await Promise.all(workers.map((worker) => worker.ended));
        }
        const { Store } = require("weir");
        const store = new Store(url);
        same(store.peek("shared", "sliding-log 700/d", 0).remaining, 0, "the main thread sees it, too");
        store.check();
        store.close();
    }

    async function terminated() {
        for (const job of ["busy", "waits", "calls"]) {
            for (let i = 0; i < times; i++) {
                const { worker, first, ended } = start(job, { url, redis });
                await first;
                await worker.terminate();
                same(await ended, 1, `${job}: terminated`);
            }
        }
        const { Store } = require("weir");
        const store = new Store(url);
        store.check();
        same(store.take("after", "token-bucket 10/s").allowed, true, "the zone goes on");
        store.close();
        for (let i = 0; i < times; i++) {
            const { first, ended } = start("all", { url, redis });
            same([await first, await ended], [true, 0], "a thread that comes to its end");
        }
    }

    function child(text, options = []) {
        const done = spawnSync(process.execPath, [...options, "-e", `const { Store, errors } = require("weir"); const url = ${JSON.stringify(url)}; const redis = ${JSON.stringify(redis)};\n${text}`],
            { encoding: "utf8", timeout: 120000 });
        return { code: done.status, signal: done.signal, out: done.stdout.trim(), err: done.stderr };
    }

    async function exits() {
        const pending = `const store = new Store(url), far = new Store(redis);
            for (let i = 0; i < 50; i++) { store.wait("exit", "sliding-log 1/h"); store.wait("exit", "concurrent 1", { acquire: true }); far.take("k", "token-bucket 1/s").catch(() => {});
                far.wait("k", "token-bucket 1/h").catch(() => {}); }`;
        const now = child(`${pending} process.exit(7);`);
        same([now.code, now.err], [7, ""], "process.exit with promises pending");
        const later = child(`${pending} setTimeout(() => process.exit(8), 50);`);
        same([later.code, later.err], [8, ""], "process.exit while calls are in progress");
        const thrown = child(`${pending} setTimeout(() => { throw new Error("boom"); }, 20);`);
        check(thrown.code === 1 && thrown.err.includes("boom"), `an error that nobody catches: ${thrown.code} ${thrown.signal} ${thrown.err.slice(-200)}`);
        const over = child(`const store = new Store(url); store.take("a", "token-bucket 1/s"); console.log("end");`);
        same([over.code, over.out, over.err], [0, "end", ""], "an open store does not keep a program going");
        const far = child(`const store = new Store(redis); store.take("a", "token-bucket 1/s").then((decision) => console.log(decision.allowed, decision.degraded));`);
        same([far.code, far.out, far.err], [0, "true false", ""], "nor an open redis:// store, but its calls do");
        const closed = child(`const store = new Store(redis); const all = []; for (let i = 0; i < 300; i++) all.push(store.take("b" + i, "token-bucket 1/s").then((d) => d.allowed, (e) => e.code));
            store.close().then(async () => { const seen = await Promise.all(all); console.log(seen.filter((one) => one === true).length, store.closed); });`);
        same([closed.code, closed.out, closed.err], [0, "300 true", ""], "close lets calls that are in progress end");
        const unhandled = child(`const store = new Store("redis://127.0.0.1:1?fail=closed"); store.reset("a").catch((error) => console.log(error.code));`);
        same([unhandled.code, unhandled.out, unhandled.err], [0, "EUNREACHABLE", ""], "a server that is not there");
        const bad = child(`Store.open("redis://127.0.0.1:1?deadlin=5").catch((error) => console.log(error.code, error instanceof errors.EURL)); const store = new Store("redis://127.0.0.1:1?fail=closed");
            store.take("", "x").catch((error) => console.log(error.code));`);
        same([bad.code, bad.out.split("\n").sort(), bad.err], [0, ["ESYNTAX", "EURL true"].sort(), ""], "a wrong address");
    }

    async function garbage() {
        const text = `const fs = require("fs"); const open = () => fs.readdirSync("/proc/self/fd").length;
            (async () => { for (let i = 0; i < 5; i++) { new Store(url).take("a", "token-bucket 1/s"); } global.gc(); await new Promise((r) => setTimeout(r, 20)); global.gc(); await new Promise((r) => setTimeout(r, 20));
            const before = open();
            for (let i = 0; i < 200; i++) { const store = new Store(url); store.take("a", "fixed-window " + (i + 1) + "/s"); store.wait("slot" + i, "concurrent 1"); if (i % 20 === 19) { global.gc(); await new Promise((r) => setTimeout(r, 5)); } }
            while (open() - before >= 20) { global.gc(); await new Promise((r) => setTimeout(r, 20)); } // child() ends it if that never comes
            console.log("closed"); })();`;
        const done = child(text, ["--expose-gc"]);
        same([done.code, done.out, done.err], [0, "closed", ""], "stores that nobody closes are closed when nobody has them");
    }

    // A zone that was removed and made again: every verb goes on in the new one. The clock stands still; two seconds later the store looks at its path.
    async function replaced() {
        const { Store } = require("weir");
        const place = path.join(folder, "replaced"), address = `file:${place}?size=64k`, limit = "fixed-window 100/h from-first", slots = "concurrent 1 lease 1h";
        const warned = [], onWarning = (warning) => warned.push(warning.message);
        process.on("warning", onWarning);
        const opened = () => {
            const store = new Store(address);
            let now = 1700000000000000;
            const replace = (text) => {
                fs.unlinkSync(place);
                if (text === undefined)
                    new Store(address).close();
                else
                    fs.writeFileSync(place, text);
                store.setTime(now += 2e6);
            };
            store.setTime(now);
            return [store, replace];
        };
        for (const [name, call] of Object.entries({ take: (store) => store.take("k", limit).remaining, peek: (store) => store.peek("k", limit).remaining - 1,
            takeAll: (store) => store.takeAll([{ key: "k", limit }]).remaining, takeMany: (store) => store.takeMany([{ key: "k", limit }, { key: "k", limit }])[1].remaining + 1,
            wait: async (store) => (await store.wait("k", limit)).remaining, reset: (store) => store.reset("k") ?? 99, acquire: (store) => store.acquire("s", slots).allowed && 99,
            check: async (store) => (await store.check()) ?? 99 })) {
            const [store, replace] = opened();
            store.take("k", limit, 50);
            replace();
            same(await call(store), 99, `${name}: in the new zone`);
            same(store.take("other", limit).timeUs, 1700000002000000, `${name}: the clock still stands`);
            store.close();
            fs.unlinkSync(place);
        }
        const [store, replace] = opened();
        const { lease } = store.acquire("s", slots);
        fs.renameSync(place, `${place}.away`);
        const said = await fails(async () => store.check());
        same([said?.code, /the zone was removed while it is in use/.test(said?.message)], ["ESYSTEM", true], `a zone that is not at its path: ${said}`);
        fs.renameSync(`${place}.away`, place);
        replace();
        same([store.renew("s", slots, lease), store.acquire("s", slots).allowed], [false, true], "leases of the old zone are gone");
        const hourly = "fixed-window 100/h", [late, again] = opened(), old = late.take("c", hourly, 50);
        again();
        const other = new Store(address);
        other.setTime(1700000000000001);
        other.take("c", hourly, 60);
        same([late.settle("c", hourly, old.receipt, 10), late.peek("c", hourly, 0).remaining], [true, 40], "what the old zone charged is lost: others stay charged in the new one");
        const charged = late.take("c", hourly, 30);
        same([late.settle("c", hourly, charged.receipt, 10), late.peek("c", hourly, 0).remaining], [true, 30], "charges of the new zone are corrected");
        other.close();
        late.close();
        await new Promise((resolve) => setTimeout(resolve, 1100)); // it is opened again once per second
        replace("no zone");
        for (let i = 0; i < 3; i++)
            same((await fails(() => store.take("k", limit)))?.code, "EGONE", "a file that is no zone");
        store.close();
        await new Promise((resolve) => setImmediate(resolve));
        process.off("warning", onWarning);
        same([warned.length, warned.filter((text) => text.includes("was replaced: what the old zone")).length, warned.filter((text) => text.includes("cannot be opened")).length], [11, 10, 1], `warnings: ${warned}`);
        fs.unlinkSync(place);
    }

    run([threads, terminated, exits, garbage, replaced], process.argv.slice(5)).then(() => fs.rmSync(path.join(folder, "threads"), { force: true }));
}
