"use strict";
// Arguments of every wrong kind: each is an error that names it, nothing is charged, and the store goes on.
const weir = require("weir");
const { Store, Limit, WeirError, errors, fields, addressKey } = weir;
const { check, same, fails, failsWith, run } = require("./checks");

const LIMIT = "fixed-window 1000000/h from-first";
const store = new Store("memory:1m");
const boom = new Error("boom");
const throwing = { valueOf() { throw boom; }, toString() { throw boom; }, [Symbol.toPrimitive]() { throw boom; } };
const taken = () => 1000000 - store.peek("user", LIMIT, 0).remaining;

async function costs() {
    for (const [cost, shown] of [[NaN, "NaN"], [-1, "-1"], [1.5, "1.5"], [Infinity, "Infinity"], [2 ** 53 + 1, "9007199254740992"], [1e12 + 1, "1000000000001"],
        [-1n, "-1"], [2n ** 64n, "18446744073709551616"], ["1", "\"1\""], [true, "true"], [null, "null"], [Symbol("s"), "a symbol"], [() => 1, "a function"],
        ["x".repeat(100), "…"]]) {
        await failsWith(() => store.take("user", LIMIT, cost), "EINVAL", `invalid cost ${shown === "…" ? "\"xxx" : shown}`, `take of ${shown}`);
        await failsWith(() => store.takeAll([{ key: "user", limit: LIMIT, cost }]), "EINVAL", "invalid cost", `takeAll of ${shown}`);
        await failsWith(() => store.takeMany([{ key: "user", limit: LIMIT, cost }]), "EINVAL", "invalid cost", `takeMany of ${shown}`);
        await failsWith(() => store.settle("user", LIMIT, "w1-1-1", cost), "EINVAL", "invalid cost", `settle of ${shown}`);
        await failsWith(() => store.wait("user", LIMIT, { cost }), "EINVAL", "invalid cost", `wait of ${shown}`);
    }
    await failsWith(() => store.take("user", LIMIT, throwing), "EINVAL", "unknown option", "a cost with a valueOf that throws");
    await failsWith(() => store.take("user", LIMIT, { cost: throwing }), "EINVAL", "invalid cost an object", "a cost with a valueOf that throws");
    same(await fails(() => store.take("user", LIMIT, { get cost() { throw boom; } })), boom, "a getter's own error comes out");
    same(taken(), 0, "nothing was charged");
    same([store.take("user", LIMIT, -0).charged, store.take("user", LIMIT, 0n).charged, taken()], [0, 0, 0], "-0 and 0n ask without charging");
    same([store.take("user", LIMIT, 5n).charged, store.take("user", LIMIT, { cost: 2 }).charged, store.take("user", LIMIT, undefined).charged], [5, 2, 1],
        "a BigInt, an object, undefined");
    same(taken(), 8, "and they are charged");
}

async function keys() {
    const detached = new Uint8Array(4);
    structuredClone(detached.buffer, { transfer: [detached.buffer] });
    for (const [key, part] of [["", "0 bytes"], [new Uint8Array(0), "0 bytes"], [detached, "0 bytes"], [5, "invalid key 5"], [null, "invalid key null"], [undefined, "invalid key undefined"],
        [Symbol("s"), "a symbol"], [throwing, "an object"], [new Uint16Array(4), "an object"], [new ArrayBuffer(4), "an object"], [["a"], "an object"], ["\ud800", "surrogate"],
        ["a\udc00b", "surrogate"], ["\udc00\ud800", "surrogate"], ["x".repeat(65537), "65537 bytes"], [Buffer.alloc(65537), "65537 bytes"], ["é".repeat(40000), "80000 bytes"]]) {
        for (const [verb, work] of Object.entries({
            take: () => store.take(key, LIMIT), peek: () => store.peek(key, LIMIT), acquire: () => store.acquire(key, "concurrent 2"),
            takeAll: () => store.takeAll([{ key, limit: LIMIT }]), reset: () => store.reset(key), renew: () => store.renew(key, "concurrent 2", 1),
            settle: () => store.settle(key, LIMIT, "w1-1-1", 0), wait: () => store.wait(key, LIMIT), slot: () => store.slot(key, "concurrent 2"),
        }))
            await failsWith(work, "EINVAL", verb === "reset" || verb === "renew" || verb === "settle" ? part.replace(/\d+ bytes/, "65536") : part, `${verb} of ${typeof key} (${part})`);
    }
    const cluster = new Store("redis+cluster://127.0.0.1:1?fail=open"); // a key's server is looked for before the key is checked
    same((await cluster.take("user", LIMIT)).degraded, true, "nobody is there");
    for (const work of [() => cluster.take(Buffer.alloc(1 << 28), LIMIT), () => cluster.reset("x".repeat(65537)), () => cluster.take("", LIMIT)])
        await failsWith(work, "EINVAL", "65536", "a key that is no key, in a Cluster");
    await cluster.close();
    same(store.takeMany([{ key: "", limit: LIMIT }, { key: "fine", limit: LIMIT }]).map((one) => [one.allowed, one.error?.code]), [[false, "EINVAL"], [true, undefined]],
        "takeMany: one that fails stops no other one");
    const names = ["a", "a\0", "a\0b", "\ufffd", "x\ufffdy", "é", "😀", "e\u0301", "x".repeat(65536), "y".repeat(511), "y".repeat(512), "y".repeat(513), "é".repeat(254) + "aaa",
        "é".repeat(300), "\u{10ffff}".repeat(128)];
    for (const name of names) {
        same(store.take(name, LIMIT).remaining, 999999, `a key of its own: ${name.slice(0, 8)} (${name.length})`);
        same(store.take(Buffer.from(name), LIMIT).remaining, 999998, `the same key as bytes: ${name.slice(0, 8)} (${name.length})`);
        same(store.takeAll([{ key: name, limit: LIMIT }]).remaining, 999997, `the same key in takeAll: ${name.slice(0, 8)}`);
    }
    same(store.take(Buffer.from([0xed, 0xa0, 0x80]), LIMIT).remaining, 999999, "bytes may be anything");
    same(store.take(new Uint8Array(new SharedArrayBuffer(4)), LIMIT).remaining, 999999, "shared bytes");
    same(store.take(new Uint8Array([120, 97, 98, 120]).subarray(1, 3), LIMIT).remaining, 999999, "a part of an array");
    same(store.take("ab", LIMIT).remaining, 999998, "is that part");
}

async function limits() {
    for (const [limit, code, part] of [["", "ESYNTAX", "expected the name"], ["token bucket 1/s", "ESYNTAX", "column 1"], ["token-bucket 1/s\0", "EINVAL", "NUL"], [5, "EINVAL", "invalid limit 5"],
        [null, "EINVAL", "null"], [undefined, "EINVAL", "undefined"], [throwing, "EINVAL", "an object"], [Object.create(Limit.prototype), "EINVAL", "an object"],
        [Symbol("s"), "EINVAL", "a symbol"], ["fixed-window 1/s, fixed-window 2/s", "ESYNTAX", "share its state"], ["token-bucket 1/s".repeat(10000), "EINVAL", "160000 bytes"]]) {
        await failsWith(() => store.take("user", limit), code, part, `take under ${typeof limit}`);
        await failsWith(() => store.takeAll([{ key: "user", limit }]), code, part, `takeAll under ${typeof limit}`);
        await failsWith(() => store.wait("user", limit), code, part, `wait under ${typeof limit}`);
    }
    same((await fails(() => new Limit("token-bucket 10 per second"))).column, 14, "the column of a mistake");
    await failsWith(() => new Limit(), "EINVAL", "undefined", "no text");
    await failsWith(() => store.slot("k", "token-bucket 1/s"), "EUNSUPPORTED", "no slots", "a slot of a bucket");
    await failsWith(() => store.acquire("k", "token-bucket 1/s"), "EUNSUPPORTED", "", "a lease of a bucket");
    for (let i = 0; i < 3000; i++)
        store.take("user", `fixed-window ${i + 1}/${i + 1}s from-first`, 0);
    same(new Limit("GCRA 10r/s burst 20, sliding-window 5k/90m").parts.map((part) => [part.kind, part.amount, part.periodUs, part.burst, part.cost]),
        [["token-bucket", 10, 1000000, 20, 0], ["sliding-window", 5000, 5400000000, 0, 0]], "the parts of a limit");
    same(JSON.stringify(new Limit("token-bucket 1/s, concurrent 5 cost 1")), "\"token-bucket 1/s, concurrent 5 cost 1\"", "as JSON");
}

async function requests() {
    for (const given of [undefined, null, 5, {}, [], [null], [5], ["a"], new Array(17).fill({ key: "a", limit: LIMIT })])
        await failsWith(() => store.takeAll(given), "EINVAL", "", `takeAll(${JSON.stringify(given)?.slice(0, 20)})`);
    await failsWith(() => store.takeAll([{ key: "a", limit: LIMIT, weight: 5 }]), "EINVAL", "unknown request \"weight\"", "a word that is not one");
    await failsWith(() => store.take("a", LIMIT, { wait: 5 }), "EINVAL", "unknown option \"wait\"", "an option that is not one");
    for (const waitMs of [-1, NaN, "1", 367 * 86400e3, 5n, null])
        await failsWith(() => store.take("a", LIMIT, { waitMs }), "EINVAL", "invalid waitMs", `waitMs ${waitMs}`);
    await failsWith(() => store.take("a", LIMIT, { cost: 5, least: 6 }), "EINVAL", "", "a least over the cost");
    await failsWith(() => store.take("a", LIMIT, { acquire: 1 }), "EINVAL", "invalid acquire 1", "acquire 1");
    for (const receipt of [undefined, 5, "x", "w1-1", "w1-1-1\0", "w".repeat(100), throwing])
        check(["EINVAL", "ERECEIPT"].includes((await fails(() => store.settle("a", LIMIT, receipt, 0)))?.code), `a receipt of ${typeof receipt} ${String(receipt === throwing ? "" : receipt).slice(0, 8)}`);
    for (const lease of [-1, 1.5, "1", 2 ** 54, null, undefined, 2n ** 60n])
        await failsWith(() => store.release("a", "concurrent 2", lease), "EINVAL", "invalid lease", `a lease of ${typeof lease}`);
    same([store.release("a", "concurrent 2", 1), store.renew("a", "concurrent 2", 1n)], [false, false], "no such lease");
    await failsWith(() => store.takeMany(new Array(65537).fill({ key: "a", limit: LIMIT })), "EINVAL", "65536", "too many");
    same(store.takeMany(new Array(65536).fill({ key: "most", limit: LIMIT })).at(-1).remaining, 1000000 - 65536, "as many as that");
}

async function stores() {
    for (const [url, code] of [[undefined, "EINVAL"], [5, "EINVAL"], [throwing, "EINVAL"], ["", "EURL"], ["memory", "EURL"], ["memory:1", "EURL"], ["memory:1m\0", "EINVAL"], ["file:/no/such/folder/zone", "ESYSTEM"],
        ["https://example.org", "EURL"], ["redis://h?peer=8", "EURL"], ["redis+cluster://h?fail=close", "EURL"], ["rediss://h?deadline=50", "EURL"]]) {
        const error = await fails(() => new Store(url));
        check(error && (error.code === code) && error instanceof WeirError && error instanceof errors[code], `new Store(${typeof url === "string" ? url : typeof url}): ${error}`);
    }
    await failsWith(() => new Store("memory:1m", { maxCalls: 0 }), "EINVAL", "maxCalls", "maxCalls 0");
    await failsWith(() => new Store("memory:1m", { size: 5 }), "EINVAL", "unknown option", "an unknown option");
    await failsWith(() => Store("memory:1m"), undefined, "new", "without new");
    await failsWith(() => Store.prototype.take.call({}, "a", LIMIT), undefined, "", "take of something else");
    const other = new Store("memory:1m");
    const { take } = other;
    await failsWith(() => take("a", LIMIT), undefined, "", "take of nobody");
    same([other.closed, other.close(), other.closed, other.close()], [false, undefined, true, undefined], "closed once, and again");
    for (const [verb, words] of Object.entries({ take: ["a", LIMIT], peek: ["a", LIMIT], takeAll: [[{ key: "a", limit: LIMIT }]], takeMany: [[{ key: "a", limit: LIMIT }]], acquire: ["a", "concurrent 1"],
        renew: ["a", "concurrent 1", 1], release: ["a", "concurrent 1", 1], settle: ["a", LIMIT, "w1-1-1", 0], reset: ["a"], check: [], info: [], counts: [], setTime: [5],
        wait: ["a", LIMIT], slot: ["a", "concurrent 1"] }))
        await failsWith(() => other[verb](...words), "EINVAL", "closed", `${verb} after close`);
    same(store.remote, false, "a zone is not remote");
    for (const time of [-5, 1.5, "now", NaN, undefined])
        await failsWith(() => store.setTime(time), "EINVAL", "invalid time", `setTime(${String(time)})`);
    for (const [url, shown] of [["redis://:p@ss@127.0.0.1:1", "redis://127.0.0.1:1"], ["redis://:p%2Fs@127.0.0.1:1", "redis://127.0.0.1:1"],
        ["redis+cluster://u:p@127.0.0.1:1,127.0.0.1:2?prefix=a@b", "redis+cluster://127.0.0.1:1,127.0.0.1:2?prefix=a@b"], ["redis+unix://:p@ss@/tmp/a@b", "redis+unix:///tmp/a@b"]])
        same(new Store(url).url, shown, `${url} is shown without its password`);
    await failsWith(() => new Store("redis://:p/s@127.0.0.1:1"), "EURL", "write it as %2F", "a / in a password");
}

async function others() {
    for (const address of ["", "x", "1.2.3", "1.2.3.4.5", "256.1.1.1", "01.2.3.4", ":::", 5, null, undefined, throwing])
        await failsWith(() => addressKey(address), "EINVAL", "invalid address", `addressKey of ${typeof address}`);
    for (const [address, key] of [["192.0.2.7", "192.0.2.7"], ["::ffff:192.0.2.7", "192.0.2.7"], ["::ffff:c000:207", "192.0.2.7"], ["2001:DB8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
        ["2001:db8::1", "2001:db8::/64"], ["::1", "::/64"], ["fe80::1%eth0", "fe80::/64"], ["2001:db8:0:1::", "2001:db8:0:1::/64"], ["64:ff9b::192.0.2.7", "64:ff9b::/64"]])
        same(addressKey(address), key, `addressKey(${address})`);
    const decision = store.takeAll([{ key: "f", limit: "fixed-window 2/h from-first, token-bucket 5/s" }]);
    same(fields(decision, "fixed-window 2/h from-first, token-bucket 5/s", { names: ["daily", undefined] }),
        [["ratelimit", "\"daily\";r=1;t=3600,\"token-bucket\";r=4;t=1"], ["ratelimit-policy", "\"daily\";q=2;w=3600,\"token-bucket\";q=5;w=1"]], "fields");
    for (const [words, part] of [[[decision, "fixed-window 2/h from-first, token-bucket 5/s", { style: "new" }], "invalid style"], [[{}, LIMIT], "invalid decision"], [[null, LIMIT], "invalid decision"],
        [[decision, "fixed-window 2/h from-first, token-bucket 5/s", { names: [5] }], "expected a string"], [[decision, []], "2 rows, not 0"], [[decision, LIMIT], "2 rows, not 1"]])
        await failsWith(() => fields(...words), "EINVAL", part, `fields: ${part}`);
    same(await fails(() => fields(decision, "fixed-window 2/h from-first, token-bucket 5/s", { names: [, { get x() { throw boom; } }] })).then((error) => error.code), "EINVAL", "names of another kind");
    Object.prototype.polluted = 5;
    same(store.take("p", LIMIT, { cost: 1 }).allowed, true, "what others add to all objects is not an option");
    delete Object.prototype.polluted;
    const first = store.take("r", LIMIT, 3);
    check(/^w3-\d+-3-\d+$/.test(first.receipt) && first.receipt === first.receipt, `a receipt, the same each time: ${first.receipt}`);
    same([store.settle("r", LIMIT, first.receipt, 1), store.settle("r", LIMIT, first.receipt, 1), 1000000 - store.peek("r", LIMIT).remaining], [true, false, 1], "settled once");
    const uneven = store.takeAll([{ key: "r2", limit: LIMIT, cost: 5 }, { key: "r3", limit: LIMIT, cost: 2 }]);
    same([uneven.receipt, uneven.rows.map((row) => row.receipt.split("-")[2]), uneven.rows[0].receipt.split("-")[3] === uneven.rows[1].receipt.split("-")[3]],
        [null, ["5", "2"], true], "charges that differ: a receipt per row, of one id");
    await failsWith(() => store.settle("r3", LIMIT, uneven.receipt, 0), "ERECEIPT", "receipt of its row", "settle with null");
    same([store.settle("r3", LIMIT, uneven.rows[1].receipt, 0), store.peek("r3", LIMIT).remaining], [true, 1000000], "settled by its row");
    const even = store.takeAll([{ key: "r2", limit: LIMIT, cost: 4 }, { key: "r3", limit: LIMIT, cost: 4 }]);
    same([store.settle("r3", LIMIT, even.rows[1].receipt, 0), store.settle("r3", LIMIT, even.receipt, 0), even.rows[0].receipt], [true, false, even.receipt], "the same charge, the same receipt");
    same(Object.keys(first), ["allowed", "limit", "remaining", "retryAfterUs", "resetAfterUs", "delayUs", "granted", "charged", "timeUs", "lease", "binding", "degraded", "local", "closed", "full"], "the fields of a decision");
    const never = store.take("n", "token-bucket 1/s", 5);
    same([never.allowed, never.retryAfterUs, never.retryAfterMs, never.never], [false, -1, Infinity, true], "never");
    for (const name of weir.errors ? Object.keys(errors) : [])
        check(new errors[name]("x") instanceof WeirError && new errors[name]("x").code === name, `${name} is a class of its own`);
    same(Object.keys(errors).length, 24, "one class per code, and two of the package");
}

run([costs, keys, limits, requests, stores, others]);
