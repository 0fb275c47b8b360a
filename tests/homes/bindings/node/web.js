"use strict";
// The middlewares in real frameworks, and the store of express-rate-limit with the real package.
const http = require("node:http");
const net = require("node:net");
const express = require("express");
const fastify = require("fastify");
const { rateLimit, MemoryStore } = require("express-rate-limit");
const { Store } = require("weir");
const { limited } = require("weir/express");
const weirFastify = require("weir/fastify");
const { WeirStore } = require("weir/express-rate-limit");
const { check, same, failsWith, run } = require("./checks");

const store = new Store("memory:1m");
const still = new Store("memory:1m"); // its clock stands still: times in answers are what they are
still.setTime(1700000000000000);

async function serving(app, work) {
    const server = await new Promise((resolve) => { const it = app.listen(0, "127.0.0.1", () => resolve(it)); });
    try {
        return await work(async (path, options) => {
            const answer = await fetch(`http://127.0.0.1:${server.address().port}${path}`, options);
            const fields = Object.fromEntries(answer.headers);
            return { status: answer.status, fields, body: await answer.text() };
        }, server.address().port);
    } finally {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
    }
}

async function expressLimits() {
    const app = express();
    const broken = new Store("memory:1m");
    broken.close();
    let seen;
    app.get("/one", limited(still, { limit: "fixed-window 2/h from-first", name: "hourly" }), (req, res) => res.send("ok"));
    app.get("/several", limited(store, { limits: [{ key: (req) => `user:${req.query.u}`, limit: "fixed-window 2/h from-first", name: "user" },
        { key: "everybody", limit: "fixed-window 3/h from-first", name: "all" }] }), (req, res) => res.send("ok"));
    app.get("/cost", limited(store, { key: "cost", limit: "fixed-window 10/h from-first", cost: (req) => Number(req.query.n), skip: (req) => req.query.vip === "1" }), (req, res) => res.send("ok"));
    app.get("/x", limited(store, { key: "x", limit: "fixed-window 1/h from-first", style: "x-ratelimit", status: 503 }), (req, res) => res.send("ok"));
    app.get("/less", limited(still, { key: "less", limit: "fixed-window 1/h from-first", style: "retry-after" }), (req, res) => res.send("ok"));
    app.get("/own", limited(store, { key: "own", limit: async () => "fixed-window 1/h from-first", style: "off", onDenied: (req, res, decision) => res.status(418).send(`wait ${decision.retryAfterMs > 0}`) }), (req, res) => res.send("ok"));
    app.get("/broken", limited(broken, { key: "k", limit: "fixed-window 1/h" }), (req, res) => res.send("ok"));
    app.get("/open", limited(broken, { key: "k", limit: "fixed-window 1/h", onError: "allow" }), (req, res) => res.send("ok"));
    app.get("/mine", limited(broken, { key: "k", limit: "fixed-window 1/h", onError: (error, req, res) => res.status(500).send(error.code) }), (req, res) => res.send("ok"));
    app.get("/nokey", limited(store, { key: () => undefined, limit: "fixed-window 1/h" }), (req, res) => res.send("ok"));
    app.get("/header", limited(store, { key: (req) => req.get("x-key") ?? null, limit: "fixed-window 1/h from-first" }), (req, res) => res.send("ok"));
    app.get("/query", limited(store, { key: (req) => req.query.k, limit: "fixed-window 9/h from-first" }), (req, res) => res.send("ok"));
    app.get("/full", limited(new Store("memory:64k?full=deny"), { key: (req) => req.query.k, limit: "sliding-log 100/h", onError: "allow" }), (req, res) => res.send("ok"));
    app.get("/slots", limited(store, { key: "slots", limit: "concurrent 1 lease 1h" }), async (req, res) => { seen = res; });
    app.get("/shaped", limited(store, { key: "shaped", limit: "leaky-bucket 20/s burst 5" }), (req, res) => res.send("ok"));
    await serving(app, async (get, port) => {
        const one = [await get("/one"), await get("/one"), await get("/one")];
        same(one.map((answer) => answer.status), [200, 200, 429], "two pass");
        same([one[0].fields.ratelimit, one[0].fields["ratelimit-policy"], one[0].fields["retry-after"]], ["\"hourly\";r=1;t=3600", "\"hourly\";q=2;w=3600", undefined], "fields of one that passes");
        same([one[2].fields["retry-after"], one[2].fields["content-type"], JSON.parse(one[2].body).title], ["3600", "application/problem+json", "Too Many Requests"], "one that is denied");
        same(still.peek("ip:127.0.0.1", "fixed-window 2/h from-first").remaining, 0, "the key is the address");
        const several = [];
        for (const user of ["a", "a", "a", "b", "b"])
            several.push((await get(`/several?u=${user}`)).status);
        same(several, [200, 200, 429, 200, 429], "several limits, all or nothing");
        const costs = [];
        for (const query of ["n=9", "n=2", "n=2&vip=1", "n=1", "n=0", "n=x", "n=-1"])
            costs.push((await get(`/cost?${query}`)).status);
        same(costs, [200, 429, 200, 200, 200, 429, 429], "costs, exemptions; a cost that is none is no free pass");
        await get("/x");
        const x = await get("/x");
        same([x.status, x.fields["x-ratelimit-limit"], x.fields["x-ratelimit-remaining"], x.fields.ratelimit], [503, "1", "0", undefined], "another style and status");
        await get("/less");
        const less = await get("/less");
        same([less.status, less.fields["retry-after"], less.fields.ratelimit], [429, "3600", undefined], "only Retry-After");
        await get("/own");
        const own = await get("/own");
        same([own.status, own.body, own.fields["retry-after"]], [418, "wait true", undefined], "an answer of one's own");
        const broke = await get("/broken");
        same([broke.status, broke.fields["retry-after"], broke.fields["weir-reason"], JSON.parse(broke.body).reason], [429, "1", "closed", "closed"], "a store that fails denies");
        same([(await get("/open")).status, (await get("/mine")).body, (await get("/nokey")).status], [200, "EINVAL", 429], "or what onError says; no key is an error");
        same([(await get("/header")).status, (await get("/header", { headers: { "x-key": "a" } })).status, (await get("/header", { headers: { "x-key": "a" } })).status], [200, 200, 429], "a rule that does not apply");
        same([(await get("/query?k=")).status, (await get(`/query?k=${"x".repeat(9)}`)).status, (await get("/query?k=%ED%A0%80")).status], [400, 200, 200], "a key that a client sent wrongly");
        const full = [];
        for (let i = 0; i < 5000 && full.at(-1) !== 429; i++)
            full.push((await get(`/full?k=${i}`)).status);
        same([full.at(-1), (await get("/full?k=new")).fields["weir-reason"]], [429, "full"], "a store without room denies, whatever onError says");
        const abort = new AbortController();
        const first = get("/slots", { signal: abort.signal }).catch(() => "gone");
        while (!seen)
            await new Promise((resolve) => setTimeout(resolve, 5));
        same((await get("/slots")).status, 429, "a slot is held while its request runs");
        abort.abort();
        await first;
        while (store.peek("slots", "concurrent 1 lease 1h", 0).remaining === 0)
            await new Promise((resolve) => setTimeout(resolve, 5));
        check(true, "a client that leaves gives its slot back");
        const second = get("/slots");
        seen = undefined;
        while (!seen)
            await new Promise((resolve) => setTimeout(resolve, 5));
        seen.send("done");
        same((await second).body, "done", "and an answer");
        const began = performance.now();
        same((await Promise.all([0, 1, 2].map(() => get("/shaped")))).map((answer) => answer.status), [200, 200, 200], "shaped requests pass");
        check(performance.now() - began >= 99, "after their delay");
    });
}

/** Every denial is answered and told in one way; rules in shadow; equal keys of two rules. */
async function denials() {
    const warnings = [], warned = (warning) => warnings.push(warning.message);
    process.on("warning", warned);
    const told = [], full = new Store("memory:64k?full=deny"), broken = new Store("memory:1m"), place = new Store("memory:1m"), HOUR = "fixed-window 5/h from-first";
    full.setTime(1700000000000000);
    place.setTime(1700000000000000);
    broken.close();
    const onDenied = (req, res, decision) => { told.push([decision.full, decision.closed]); res.status(503).end(); };
    const usual = (req, res) => res.send("ok");
    const app = express();
    app.get("/full", limited(full, { key: (req) => req.query.k, limit: HOUR, name: "hourly" }), usual);
    app.get("/own", limited(broken, { key: "k", limit: HOUR, onDenied }), usual);
    app.get("/mine", limited(full, { key: (req) => req.query.k, limit: HOUR, onDenied }), usual);
    app.get("/closed", limited(broken, { limits: [{ key: "k", limit: HOUR, name: "hourly" }, { key: "all", limit: "token-bucket 3/s" }] }), usual);
    app.get("/same", limited(place, { limits: [{ key: "ip:1", limit: "fixed-window 9/h from-first" }, { key: () => "ip:1", limit: "fixed-window 2/h from-first" }] }), usual);
    app.get("/shadow", limited(place, { limits: [{ key: "s", limit: "fixed-window 3/h from-first" }, { key: "s", limit: "fixed-window 1/h from-first", name: "strict", shadow: true }],
        onShadow: (req, decision, rule) => told.push([req.path, rule.name, rule.key, decision.retryAfterUs, rule.denied]) }), usual);
    const NINE = "fixed-window 9/h from-first", chosen = { key: (req) => req.query.user ?? "nobody", limit: NINE, name: "user" };
    app.get("/chosen", limited(place, { limits: [chosen, { limit: "fixed-window 2/h from-first" }] }), usual);
    for (const [path, ...limits] of [["/plain", { ...chosen, limit: "fixed-window 9/d" }, { limit: NINE }, { key: "all", limit: NINE }], ["/dynamic", { ...chosen, limit: () => "fixed-window 9/d" }, { limit: NINE }],
        ["/texts", { key: "t", limit: NINE }, { key: "t", limit: HOUR }, { key: "t:", limit: HOUR }], ["/names", { ...chosen, name: "ip" }, { limit: NINE }]])
        app.get(path, limited(place, { limits }), usual);
    app.get("/equal", limited(place, { limits: [{ key: "rule2:k", limit: NINE }, { key: () => "rule2:k", limit: HOUR }] }), usual);
    app.get("/number", limited(place, { limits: [{ key: (req) => req.query.k, limit: HOUR, name: "rule2" }, { key: (req) => req.query.k, limit: NINE }, { key: () => null, limit: NINE }] }), usual);
    const trying = [{ key: (req) => (req.query.bytes ? Buffer.from(req.query.k) : req.query.k), limit: NINE }, { key: "a", limit: HOUR, name: "a", shadow: true },
        { key: "b", limit: "token-bucket 5/s", name: "b", shadow: true }];
    app.get("/trying", limited(place, { limits: trying }), usual);
    for (const [path, before] of [["/tried0", []], ["/tried1", [trying[1]]]])
        app.get(path, limited(place, { limits: [{ key: "c", limit: NINE }, ...before, { key: (req) => req.query.k, limit: NINE, name: "shadow.a" }] }), usual);
    const many = (n) => Array.from({ length: 9 }, (_, i) => `fixed-window 9/${n + i}s`).join(", ");
    app.get("/crowded", limited(place, { limits: [{ key: "c", limit: many(1) }, { key: () => "d", limit: many(60) }] }), usual);
    app.get("/lines", limited(place, { key: () => { throw new Error(`one\nline of\u001b[31m ${"x".repeat(1000)}`); }, limit: HOUR }), usual);
    const never = () => { throw new Error("never"); }, watched = (rule, more) => limited(place, { limits: [{ key: "w", limit: "fixed-window 999/h" }, { key: "v", limit: "fixed-window 1/h", shadow: true, ...rule }], ...more });
    for (const [i, rule] of [{ key: never }, { cost: never }, { limit: never }, { key: () => "" }, { key: () => "k".repeat(65536) }, { key: () => undefined }, { cost: () => NaN }, { limit: () => "concurrent 2" }].entries())
        app.get(`/watched${i}`, watched(rule), usual);
    app.get("/slow", watched({}, { onShadow: () => new Promise(() => {}) }), usual);
    app.get("/fails", watched({}, { onShadow: async () => never() }), usual);
    app.get("/which", limited(place, { limits: [{ key: "w1", limit: "fixed-window 9/h, sliding-log 8/h", name: "wide" }, { key: "w2", limit: "fixed-window 1/d", name: "narrow" }] }), usual);
    app.get("/anyway", limited(place, { limits: [{ key: "any", limit: "fixed-window 1/h from-first" }, { key: "any", limit: "fixed-window 1/h from-first", name: "anyway", shadow: true }] }), usual);
    app.get("/alone", limited(place, { key: "a", limit: "fixed-window 1/h from-first", name: "alone", shadow: true }), usual);
    await serving(app, async (get) => {
        const statuses = async (path, n) => { const all = []; for (let i = 0; i < n; i++) all.push((await get(path)).status); return all; };
        let answer = await get("/full?k=0");
        for (let i = 1; i < 5000 && answer.status === 200; i++)
            answer = await get(`/full?k=${i}`);
        const names = ["title", "status", "reason", "violated-policies", "allowed", "limit", "remaining", "retry_after", "reset_after", "delay", "granted", "binding", "receipt", "degraded", "local"];
        same([answer.status, answer.fields["weir-reason"], answer.fields["retry-after"], answer.fields["ratelimit-policy"]], [429, "full", "3600", "\"hourly\";q=5;w=3600"], "a store without room");
        same(Object.keys(JSON.parse(answer.body)), names, "its body");
        await get("/which");
        same(JSON.parse((await get("/which")).body)["violated-policies"], ["narrow"], "which rules deny");
        answer = await get("/closed");
        same([answer.status, answer.fields["weir-reason"], answer.fields["retry-after"], answer.fields.ratelimit], [429, "closed", "1", "\"hourly\";r=0;t=1,\"token-bucket\";r=0;t=1"], "a store that failed");
        same([JSON.parse(answer.body).binding, JSON.parse(answer.body).limit], [0, 5], "the first rule is told");
        same(Object.keys(JSON.parse(answer.body)), names, "its body");
        let i = 0;
        while ((await get(`/mine?k=new${i}`)).status === 200)
            i++;
        same([(await get("/own")).status, told.splice(0)], [503, [[true, false], [false, true]]], "onDenied is told of both");
        same([await statuses("/same", 3), place.peek("ip:1", "fixed-window 9/h from-first").remaining], [[200, 200, 429], 7], "the same key twice: two counts");
        const left = (...keys) => keys.map((key) => place.peek(key, "fixed-window 9/h from-first").remaining);
        same([...await statuses("/chosen", 1), ...await statuses("/chosen?user=ip:127.0.0.1", 2)], [200, 200, 429], "a client that chooses a key does not get around another rule");
        place.reset("ip:127.0.0.1");
        same([await statuses("/chosen?user=ip:192.0.2.9", 1), left("ip:192.0.2.9", "user:ip:192.0.2.9", "user:nobody")], [[200], [9, 8, 8]], "nor uses up what others have");
        same([await statuses("/plain?user=a", 1), place.peek("a", "fixed-window 9/d").remaining, left("all")], [[200], 8, [8]], "other periods, other texts: the keys are plain");
        same([await statuses("/dynamic?user=b", 1), place.peek("user:b", "fixed-window 9/d").remaining], [[200], 8], "nobody knows what a function returns");
        same([await statuses("/texts", 1), left("t", "rule2:t", "t:")], [[200], [8, 8, 8]], "a text twice");
        same([await statuses("/names?user=c", 1), left("ip:c", "rule1:c")], [[200], [9, 8]], "a name that other keys begin with");
        answer = await get("/equal");
        same([answer.status, left("rule2:k"), place.peek("rule4:rule2:k", HOUR).remaining], [200, [8], 4], "a number that a text begins with");
        await get("/number?k=m");
        same(["rule2:m", "rule5:m"].map((key) => place.peek(key, HOUR).remaining), [4, 4], "and one that is a name");
        for (const k of ["shadow.a:a", "shadow.b:x", "ann", "shadow.a:d&bytes=1"])
            await get(`/trying?k=${k}`);
        same(left("rule1:shadow.a:a", "rule1:shadow.a:d", "shadow.b:x", "ann"), [8, 8, 8, 8], "only a key that begins like those of a rule in shadow changes");
        same(["shadow.a:a", "shadow.a:d"].map((key) => place.peek(key, HOUR).remaining), [1, 5], "whose count is its own");
        same([await statuses("/tried0?k=n", 1), await statuses("/tried1?k=n", 1), left("shadow.a:n")], [[200], [200], [7]], "a name like the beginning of a rule in shadow");
        answer = await get("/crowded");
        same([answer.status, answer.fields["weir-reason"], answer.fields["retry-after"]], [429, "closed", "1"], "more limits than one call can have");
        await get("/lines");
        for (let n = 0; n < 8; n++)
            same(await statuses(`/watched${n}`, 3), [200, 200, 200], `a rule in shadow that fails: ${n}`);
        same(place.peek("shadow.rule2:v", "concurrent 2").remaining, 2, "holds no slot");
        same([await statuses("/slow", 3), await statuses("/fails", 3)], [[200, 200, 200], [200, 200, 200]], "nobody waits for onShadow");
        same([await statuses("/shadow", 4), told.splice(0)], [[200, 200, 200, 429], [false, false, true].map((denied) => ["/shadow", "strict", "shadow.strict:s", 3600e6, denied])], "a rule in shadow, and whether another one denies as well");
        same(await statuses("/alone", 3), [200, 200, 200], "alone");
        same(await statuses("/anyway", 2), [200, 429], "denied anyway");
    });
    await new Promise((resolve) => setImmediate(resolve));
    process.off("warning", warned);
    for (const part of ["the rule \"alone\", in shadow, would deny requests", "the rule \"anyway\", in shadow, would deny requests, as one that is denied anyway"])
        same(warnings.filter((text) => text.includes(part)).length, 1, part);
    check(warnings.some((text) => /denied without a decision: one\\u\{a\}line of\\u\{1b\}\[31m x+…$/.test(text) && text.length < 600), "what a client may have written is one line");
    await failsWith(() => limited(place, { limits: [{ key: "c", limit: many(1) }, { limit: many(60) }] }), "EINVAL", "18 of them apply to each request, expected at most 16", "more limits than one call can have");
    for (const [rule, part] of [[{ limit: HOUR, name: "Ärger" }, "printable ASCII"], [{ limit: HOUR, shadow: 1 }, "expected true or false"], [{ limit: "concurrent 5", shadow: true }, "in shadow"]])
        await failsWith(async () => limited(place, rule), "EINVAL", part, part);
}

async function addresses() {
    const warnings = [];
    const warned = (warning) => warnings.push(warning.message);
    process.on("warning", warned);
    for (const [trust, field, key] of [[1, "198.51.100.9", "ip:198.51.100.9"], [1, "2001:db8:1:2:3::4", "ip:2001:db8:1:2::/64"], [false, "198.51.100.9", "ip:127.0.0.1"],
        [false, "198.51.100.8", "ip:127.0.0.1"]]) {
        const app = express();
        const mine = new Store("memory:1m");
        app.set("trust proxy", trust);
        app.get("/", limited(mine, { limit: "fixed-window 5/h from-first" }), (req, res) => res.send("ok"));
        await serving(app, (get) => get("/", { headers: { "x-forwarded-for": field } }));
        same(mine.peek(key, "fixed-window 5/h from-first").remaining, 4, `trust proxy ${trust}: ${key}`);
        same(warnings.filter((text) => /^requests from [^ ]*127.0.0.1 have X-Forwarded-For, which is not trusted/.test(text)).length, trust ? 0 : 1, `trust proxy ${trust}: the warning, once`);
    }
    process.off("warning", warned);
    const plain = http.createServer((req, res) => limited(store, { limit: "sliding-log 1/h" })(req, res, () => res.end("ok")));
    await serving(plain, async (get) => same([(await get("/")).status, (await get("/")).status], [200, 429], "without Express"));
}

async function mistakes() {
    for (const [options, part] of [[undefined, "an object"], [{}, "invalid limit undefined"], [{ limit: "token bucket" }, "expected the name"], [{ limit: "token-bucket 1/s", burst: 5 }, "unknown option"],
        [{ limit: "token-bucket 1/s", key: 5 }, "invalid key 5"], [{ limit: "token-bucket 1/s", cost: -1 }, "invalid cost -1"], [{ limit: "token-bucket 1/s", style: "draft-7" }, "invalid style"],
        [{ limit: "token-bucket 1/s", status: 200 }, "invalid status 200"], [{ limit: "token-bucket 1/s", onError: "open" }, "invalid onError"], [{ limit: "token-bucket 1/s", skip: true }, "invalid skip"],
        [{ limit: "fixed-window 5/h", cost: 6 }, "invalid cost 6: expected at most 5"], [{ limit: "fixed-window 9/h, sliding-log 5/d", cost: 6n }, "invalid cost 6: expected at most 5"],
        [{ limits: [{ limit: "concurrent 5" }], cost: 6 }, "invalid cost 6: expected at most 5"], [{ limit: "token-bucket 9/s burst 5", cost: 6, shadow: true }, "invalid cost 6: expected at most 5"],
        [{ limit: "token-bucket 1/s", cost: "1" }, "invalid cost \"1\""], [{ limit: "token-bucket 1/s", cost: true }, "invalid cost true"], [{ limit: "token-bucket 1/s", shadow: "false" }, "invalid shadow \"false\""],
        [{ limit: "token-bucket 1/s", status: "503" }, "invalid status \"503\""], [{ limit: "token-bucket 1/s", name: 5 }, "invalid name 5"], [{ limit: "token-bucket 1/s", onDenied: "log" }, "invalid onDenied"],
        [{ limits: [{ limit: "token-bucket 1/s" }], shadow: true }, "shadow stands beside limits"], [{ limits: [{ limit: "token-bucket 1/s" }], name: "all" }, "name stands beside limits"], [{ limits: [] }, "1 to 16"], [{ limits: [{ limit: "token-bucket 1/s" }], limit: "token-bucket 1/s" }, "limit and limits"]])
        check((await failsWith(() => limited(store, options), part === "expected the name" ? "ESYNTAX" : "EINVAL", part === "an object" ? "null" : part, `limited: ${part}`)) !== undefined, part);
    for (const rule of [{ limit: "fixed-window 5/h", cost: 5 }, { limit: "smooth 5/s", cost: 6 }, { limit: "fixed-window 5/h cost 2", cost: 6 }, { limit: "fixed-window 5/h", cost: () => 6 }, { limit: () => "fixed-window 5/h", cost: 6 }])
        check(typeof limited(store, rule) === "function", `a cost that may be admitted: ${JSON.stringify(rule)}`);
    await failsWith(() => limited({}, { limit: "token-bucket 1/s" }), "EINVAL", "invalid store", "no store");
    const app = fastify();
    await failsWith(async () => app.register(weirFastify, { store, limit: "token bucket" }), "ESYNTAX", "", "a plugin with a mistake");
}

// onError: "allow" is for the store. What a client leaves out or sends wrongly is no way around a limit.
async function noWayAround() {
    const app = express();
    const warnings = [];
    const warned = (warning) => warnings.push(`${warning.name}: ${warning.message}`);
    process.on("warning", warned);
    const allow = (options) => limited(store, { key: "around", limit: "fixed-window 9/h from-first", onError: "allow", ...options });
    app.get("/key", allow({ key: (req) => req.get("x-key") }), (req, res) => res.send("ok"));
    app.get("/throws", allow({ key: (req) => req.get("x-key").trim() }), (req, res) => res.send("ok"));
    app.get("/rejects", allow({ skip: async () => { throw new Error("no"); } }), (req, res) => res.send("ok"));
    app.get("/cost", allow({ cost: (req) => Number(req.query.n) }), (req, res) => res.send("ok"));
    app.get("/address", allow({ key: undefined }), (req, res) => res.send("ok"));
    app.set("trust proxy", true); // as one should not
    const late = { limit: "fixed-window 1/h from-first", key: "late" };
    app.get("/denied", limited(store, { ...late, onDenied: async () => { throw new Error("of onDenied"); } }), (req, res) => res.send("ok"));
    app.get("/failed", limited(store, { key: () => undefined, limit: "fixed-window 1/h", onError: async () => { throw new Error("of onError"); } }), (req, res) => res.send("ok"));
    app.use((error, req, res, next) => res.status(500).send(error.message)); // Express knows it by its four arguments
    await serving(app, async (get) => {
        const seen = [];
        for (const path of ["/key", "/throws", "/rejects", "/cost?n=x", "/cost?n=-1", "/cost?n=1.5", "/cost?n=1"])
            seen.push((await get(path)).status);
        same(seen, [429, 429, 429, 429, 429, 429, 200], "no key, no cost, no way");
        const unix = http.createServer((req, res) => allow({ key: undefined })(req, res, () => res.end("ok")));
        await new Promise((resolve) => { unix.listen("\0weir-" + process.pid, resolve); });
        const answer = await new Promise((resolve) => { http.get({ socketPath: "\0weir-" + process.pid, path: "/" }, resolve); });
        answer.resume();
        unix.close();
        same([answer.statusCode, answer.headers["weir-reason"]], [429, "closed"], "a Unix socket without an address");
        const nobody = await get("/address", { headers: { "x-forwarded-for": "nobody" } });
        same([nobody.status, JSON.parse(nobody.body).detail], [400, "invalid address \"nobody\": expected an IPv4 or IPv6 address"], "an address that is none");
        await get("/denied");
        same([(await get("/denied")).body, (await get("/failed")).body], ["of onDenied", "of onError"], "what async functions throw reaches Express");
    });
    process.off("warning", warned);
    for (const why of ["invalid cost NaN", "the client's address is not known, as behind a Unix socket", "invalid address \"nobody\""])
        same(warnings.filter((text) => text.startsWith(`WeirWarning: requests are denied without a decision: ${why}`)).length, 1, `warned, once in a while: ${why}`);
}

// More requests at once than a store has calls: they do not get through by that.
async function crowd() {
    const sockets = [];
    const silent = net.createServer((socket) => sockets.push(socket.on("error", () => {})));
    await new Promise((resolve) => { silent.listen(0, "127.0.0.1", resolve); });
    const remote = new Store(`redis://127.0.0.1:${silent.address().port}?deadline=30s&fail=open`, { maxCalls: 1 });
    const middleware = limited(remote, { key: "crowd", limit: "fixed-window 9/h", onError: "allow" });
    await serving(http.createServer((req, res) => middleware(req, res, () => res.end("ok"))), async (get) => {
        const seen = [];
        const each = async () => {
            seen.push((await get("/")).status);
            if (seen.length === 2) { // the one that waits for Redis need not wait longer
                silent.close();
                sockets.forEach((socket) => socket.destroy());
            }
        };
        await Promise.all([each(), each(), each()]);
        same(seen, [429, 429, 200], "two do not pass; one waits for Redis, and the address lets it through");
    });
    await remote.close();
}

// register() without await, as most programs do: routes are made before the plugin runs.
async function fastifyLate() {
    const app = fastify();
    app.register(weirFastify, { store });
    app.get("/late", { config: { weir: { limit: "fixed-window 1/h from-first", key: "fastify-late" } } }, async () => "late");
    app.get("/wrong", { config: { weir: { limit: "nothing 5/s" } } }, async () => "wrong");
    app.get("/odd", { config: { weir: true } }, async () => "odd");
    const seen = [];
    for (const url of ["/late", "/late", "/wrong", "/odd"])
        seen.push((await app.inject(url)).statusCode);
    same(seen, [200, 429, 500, 500], "routes before the plugin have their limits, and mistakes are no free pass");
    await app.close();
    // An onDenied that answers later, or returns nothing: the route is not served meanwhile.
    const other = fastify();
    let served = 0;
    other.register(weirFastify, { store, limit: "fixed-window 1/h from-first", key: "fastify-denied", onDenied: (request, reply) => {
        setImmediate(() => reply.code(418).send("later"));
    } });
    other.get("/", async () => { served++; return "ok"; });
    const answers = [(await other.inject("/")).statusCode, (await other.inject("/")).statusCode];
    same([answers, served], [[200, 418], 1], "a denied request is not served");
    await other.close();
}

async function fastifyLimits() {
    const app = fastify({ trustProxy: 1 });
    const broken = new Store("memory:1m");
    broken.close();
    await app.register(weirFastify, { store: still, limit: "fixed-window 2/h from-first", key: (request) => `f:${request.ip}`, name: "all" });
    app.get("/", async () => "ok");
    app.get("/free", { config: { weir: false } }, async () => "free");
    app.get("/own", { config: { weir: { limit: "sliding-log 1/h", key: "own", onDenied: (request, reply, decision) => reply.code(418).send({ left: decision.remaining }) } } }, async () => "own");
    app.get("/several", { config: { weir: { limits: [{ limit: "sliding-log 1/h", key: "several", name: "one" }] } } }, async () => "several");
    app.get("/slots", { config: { weir: { limit: "concurrent 1 lease 1h", key: "fs" } } }, async () => `held ${still.peek("fs", "concurrent 1 lease 1h", 0).remaining}`);
    await failsWith(async () => app.get("/bad", { config: { weir: { limit: "nothing 5/s" } } }, async () => "bad"), "ESYNTAX", "nothing", "a route with a mistake");
    await app.register(async (scope) => {
        scope.get("/inner", async () => "inner");
    });
    const get = async (url, headers) => app.inject({ url, headers });
    const seen = [await get("/"), await get("/inner"), await get("/"), await get("/missing")];
    same(seen.map((answer) => answer.statusCode), [200, 200, 429, 429], "one limit for all routes");
    same([seen[0].headers.ratelimit, seen[2].headers["retry-after"], seen[2].headers["content-type"].split(";")[0]], ["\"all\";r=1;t=3600", "3600", "application/problem+json"], "fields");
    same((await get("/", { "x-forwarded-for": "198.51.100.9" })).statusCode, 200, "another address, as trustProxy says");
    same([(await get("/free")).body, (await get("/own")).body, (await get("/own")).body], ["free", "own", "{\"left\":0}"], "routes of their own");
    same((await get("/several")).headers.ratelimit, "\"one\";r=0;t=3600", "several limits instead of the plugin's, and of its name");
    same([(await get("/slots")).body, (await get("/slots")).body], ["held 0", "held 0"], "slots are given back");
    await app.close();
    const other = fastify();
    await other.register(weirFastify, { store: broken, limit: "fixed-window 2/h", key: "k" });
    other.get("/", async () => "ok");
    other.get("/open", { config: { weir: { limit: "fixed-window 2/h", key: "k", onError: "allow" } } }, async () => "open");
    other.get("/mine", { config: { weir: { limit: "fixed-window 2/h", key: "k", onError: (error, request, reply) => reply.code(500).send(error.code) } } }, async () => "mine");
    same([(await other.inject("/")).statusCode, (await other.inject("/open")).body, (await other.inject("/mine")).body], [429, "open", "EINVAL"], "a store that fails");
    await other.close();
}

// ---- express-rate-limit ----

async function contract() {
    for (const own of [new WeirStore(store, { prefix: "c:" }), new WeirStore("memory:1m")]) {
        await own.init({ windowMs: 60000 });
        same(own.localKeys, true, "memory: is local");
        same(await own.get("a"), undefined, "get of nobody");
        const before = Date.now();
        const hits = [await own.increment("a"), await own.increment("a"), await own.increment("a"), await own.increment("b")];
        same(hits.map((hit) => hit.totalHits), [1, 2, 3, 1], "increment counts");
        check(hits.every((hit) => hit.resetTime instanceof Date && hit.resetTime - before >= 59000 && hit.resetTime - Date.now() <= 60000), `resetTime is that of the window: ${hits[0].resetTime - before}`);
        check(+hits[2].resetTime - +hits[0].resetTime <= 1, "which opens with the first hit");
        same((await own.get("a")).totalHits, 3, "get");
        await own.decrement("a");
        await own.decrement("a");
        same((await own.get("a")).totalHits, 1, "decrement");
        await own.decrement("a");
        await own.decrement("a");
        await own.decrement("nobody");
        same([await own.get("a"), await own.get("nobody")], [undefined, undefined], "never below 0");
        await own.increment("a");
        await own.resetKey("b");
        same([(await own.get("a")).totalHits, await own.get("b")], [1, undefined], "resetKey");
        await own.increment("1\0a");
        await own.resetAll();
        same([await own.get("a"), (await own.increment("a")).totalHits], [undefined, 1], "resetAll");
        await own.shutdown();
    }
    same(store.closed, false, "shutdown leaves a store that it was given");
    await failsWith(new WeirStore(store).increment("a"), "EINVAL", "init was not called", "without init");
    for (const [address, hits] of [["?peers=4", [1, 8, 12]], ["", [1, 2, 3]], ["?fail=open", [1, 1, 1]]]) {
        const away = new WeirStore(`redis://127.0.0.1:1${address}`), told = [];
        away.init({ windowMs: 60000 });
        for (let i = 0; i < 3; i++)
            told.push((await away.increment("k")).totalHits);
        same(told, hits, `while Redis is away, a process counts for 1/peers: ${address}`);
        await away.shutdown();
    }
    for (const windowMs of [0, -1, NaN, "1", 367 * 86400e3])
        await failsWith(async () => new WeirStore(store).init({ windowMs }), "EINVAL", "invalid windowMs", `windowMs ${windowMs}`);
    await failsWith(() => new WeirStore({}), "EINVAL", "invalid store", "no store");
}

/** The same traffic through a store of express-rate-limit: what every answer says. */
async function traffic(make) {
    const app = express();
    const options = { windowMs: 3600000, standardHeaders: "draft-6", legacyHeaders: false, keyGenerator: (req) => req.query.k, validate: { default: true } };
    const limiter = rateLimit({ ...options, limit: 3, store: make("one:") });
    app.get("/", limiter, (req, res) => res.send("ok"));
    app.get("/failed", rateLimit({ ...options, limit: 2, skipFailedRequests: true, store: make("two:") }), (req, res) => res.status(Number(req.query.s)).send("x"));
    const seen = [];
    await serving(app, async (get) => {
        const ask = async (path) => {
            const { status, fields } = await get(path);
            seen.push([path, status, fields["ratelimit-limit"], fields["ratelimit-remaining"], Math.abs(fields["ratelimit-reset"] - 3600) <= 600]);
        };
        for (const key of ["a", "a", "b", "a", "a", "a", "b"])
            await ask(`/?k=${key}`);
        for (const status of [200, 500, 500, 500, 200, 200])
            await ask(`/failed?k=a&s=${status}`);
        await limiter.resetKey("a");
        await ask("/?k=a");
        seen.push((await limiter.getKey("a")).totalHits, await limiter.getKey("nobody"));
    });
    return seen;
}

async function migration() {
    const mine = new Store("memory:1m");
    const theirs = await traffic(() => new MemoryStore());
    same(await traffic((prefix) => new WeirStore(mine, { prefix })), theirs, "express-rate-limit answers the same with both stores");
    check(theirs.length === 16 && theirs.filter((one) => one?.[1] === 429).length >= 3, `and some are denied: ${JSON.stringify(theirs)}`);
}

async function flexible() {
    const { RateLimiterMemory } = require("rate-limiter-flexible");
    const theirs = new RateLimiterMemory({ points: 5, duration: 3600 });
    const limit = "fixed-window 5/h from-first";
    const seen = [[], []];
    for (const [key, points] of [["a", 1], ["a", 2], ["b", 5], ["a", 1], ["a", 1], ["a", 1], ["b", 1]]) {
        const there = await theirs.consume(key, points).then((answer) => [true, answer.remainingPoints, answer.msBeforeNext > 3000e3], (answer) => [false, answer.remainingPoints, answer.msBeforeNext > 3000e3]);
        const here = store.take(`flexible:${key}`, limit, points);
        seen[0].push(there);
        seen[1].push([here.allowed, here.remaining, here.resetAfterMs > 3000e3]);
    }
    same(seen[1], seen[0], "rate-limiter-flexible decides the same");
    await theirs.delete("a");
    store.reset("flexible:a");
    same(store.peek("flexible:a", limit).remaining, 5, "delete is reset");
}

run([expressLimits, denials, addresses, noWayAround, crowd, mistakes, fastifyLimits, fastifyLate, contract, migration, flexible]).then(() => {
    store.close();
    still.close();
});
