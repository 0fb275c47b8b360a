"use strict";
// What the middlewares share: which requests a client's request makes, and what the answer says. Frameworks stay outside.
const { STATUS_CODES } = require("node:http");
const { BlockList, isIP } = require("node:net");
const { errors, show, whole, optionsOf } = require("./native");
const { limitOf } = require("./limit");
const { addressKey } = require("./address");
const { Renewal } = require("./slot");
const { Store, fields, keyOf } = require("./store");

const RULE = ["key", "limit", "cost", "name"];
const OPTIONS = [...RULE, "limits", "skip", "style", "status", "onError", "onDenied"];
const STYLES = ["ietf", "ietf-06", "x-ratelimit", "openai", "retry-after", "off"];
const PROBLEM = "application/problem+json";
const TIMER_MAX_MS = 2 ** 31 - 1;
const COST_MAX = 1e12;
const WARN_MS = 60e3; // between two warnings of one limiter

function functionOr(value, what, accepts, expected) {
    if (typeof value !== "function" && !accepts(value))
        throw new errors.EINVAL(`invalid ${what} ${show(value)}: expected ${expected}`);
    return typeof value === "function" ? value : () => value;
}

function ruleOf(given, defaultKey) {
    const { key = defaultKey, limit, cost = 1, name } = optionsOf(given ?? null, "rule", RULE);
    const rule = {
        key: functionOr(key, "key", (value) => typeof value === "string" && value !== "", "a function of the request, or a text"),
        cost: functionOr(cost, "cost", (value) => whole(value, "cost", 0, COST_MAX) >= 0, "a whole number, or a function of the request"),
        limit: typeof limit === "function" ? limit : undefined,
        fixed: typeof limit === "function" ? undefined : limitOf(limit), // a mistake is found now, not by the first client
        name,
    };
    if (name !== undefined && (typeof name !== "string" || name === ""))
        throw new errors.EINVAL(`invalid name ${show(name)}: expected a text`);
    return rule;
}

function rulesOf(options, defaultKey) {
    const { limits, key, limit, cost, name } = options;
    if (limits === undefined)
        return [ruleOf({ key, limit, cost, name }, defaultKey)];
    if (!Array.isArray(limits) || limits.length < 1 || limits.length > 16)
        throw new errors.EINVAL("invalid limits: expected an array of 1 to 16 rules");
    if (limit !== undefined)
        throw new errors.EINVAL("there are limit and limits: expected one of them");
    return limits.map((rule) => ruleOf({ ...(key === undefined ? {} : { key }), ...(cost === undefined ? {} : { cost }), ...rule }, defaultKey));
}

function isHeld(limit) {
    return limit.parts.some((part) => part.kind === "concurrent");
}

const seconds = (us) => (us < 0 ? null : us / 1e6);

/** An answer that denies, with the status, fields and body of `weir serve`. */
function denial(status, reason, fieldsOf, decision) {
    const told = decision ? { allowed: false, limit: decision.limit, remaining: decision.remaining, retry_after: seconds(decision.retryAfterUs),
        reset_after: seconds(decision.resetAfterUs), delay: 0, granted: 0, binding: decision.binding, receipt: null, degraded: decision.degraded, local: decision.local } : {};
    const type = reason === "limit" ? { type: "https://iana.org/assignments/http-problem-types#quota-exceeded" } : {};
    const body = { ...type, title: STATUS_CODES[status] ?? "Denied", status, reason, ...told };
    return { pass: false, status, fields: [["weir-reason", reason], ...fieldsOf], type: PROBLEM, body: JSON.stringify(body), decision };
}

/** What a client sent makes no key. */
class BadKey extends Error {}

/** What a client or a proxy wrote as the client's address is not one: is the number of proxies right? */
class BadAddress extends BadKey {}

function ipKey(address) {
    if (address === undefined || address === null || address === "")
        throw new errors.EINVAL("the client's address is not known, as behind a Unix socket: set \"trust proxy\" (Express) or trustProxy (Fastify) to the number of proxies, " +
            "and let them send X-Forwarded-For");
    try {
        return `ip:${addressKey(address)}`;
    } catch (error) {
        throw new BadAddress(error.message);
    }
}

const NEARBY = new BlockList();
for (const [network, bits, kind] of [["127.0.0.0", 8], ["10.0.0.0", 8], ["172.16.0.0", 12], ["192.168.0.0", 16], ["::1", 128, "ipv6"], ["fc00::", 7, "ipv6"]])
    NEARBY.addSubnet(network, bits, kind);
let proxyTold = false;

// Once per process: a peer nearby that sends X-Forwarded-For is a proxy, whose address all its clients share.
function warnOfProxy(address, { headers, socket }) {
    if (proxyTold || headers?.["x-forwarded-for"] === undefined || address !== socket?.remoteAddress || !isIP(address) || !NEARBY.check(address, `ipv${isIP(address)}`))
        return;
    proxyTold = true;
    process.emitWarning(`requests from ${address} have X-Forwarded-For, which is not trusted: all clients of that proxy count as one address. Set "trust proxy" (Express) or ` +
        "trustProxy (Fastify) to the number of proxies", "WeirWarning");
}

function checked(key) {
    if (typeof key !== "string" && !(key instanceof Uint8Array))
        throw new errors.EINVAL(`invalid key ${show(key)}: expected a text, or null where the rule does not apply`);
    try {
        keyOf(key);
    } catch (error) {
        throw new BadKey(error.message);
    }
    const bytes = Buffer.byteLength(key);
    if (bytes < 1 || bytes > 65536)
        throw new BadKey(`invalid key of ${bytes} bytes: expected 1 to 65536`);
    return typeof key === "string" ? key : Buffer.from(key); // a slot is held under it: nobody else changes it
}

class Limiter {
    #warnAt = -Infinity;

    /** `ipOf` gives the client's address, as the framework knows it. */
    constructor(store, options, ipOf) {
        if (!(store instanceof Store))
            throw new errors.EINVAL(`invalid store ${show(store)}: expected a Store`);
        const given = optionsOf(options ?? null, "option", OPTIONS);
        const { style = "ietf", status = 429, onError = "deny", onDenied, skip } = given;
        this.store = store;
        this.rules = rulesOf(given, (request) => {
            warnOfProxy(ipOf(request), request);
            return ipKey(ipOf(request));
        });
        if (!STYLES.includes(style))
            throw new errors.EINVAL(`invalid style ${show(style)}: expected ${STYLES.join(", ")}`);
        this.style = style;
        this.status = whole(status, "status", 400, 599);
        if (onError !== "deny" && onError !== "allow" && typeof onError !== "function")
            throw new errors.EINVAL(`invalid onError ${show(onError)}: expected "deny", "allow" or a function`);
        this.onError = onError;
        for (const [name, value] of Object.entries({ onDenied, skip })) {
            if (value !== undefined && typeof value !== "function")
                throw new errors.EINVAL(`invalid ${name} ${show(value)}: expected a function`);
            this[name] = value;
        }
    }

    async #requests(request) {
        const requests = [];
        for (const rule of this.rules) {
            const key = await rule.key(request);
            if (key === null)
                continue;
            const limit = rule.fixed ?? limitOf(await rule.limit(request));
            const cost = whole(await rule.cost(request), "cost", 0, COST_MAX);
            requests.push({ key: checked(key), limit, cost, acquire: isHeld(limit), name: rule.name });
        }
        return requests;
    }

    /**
     * What to do with a request: {pass: true, fields, decision, release} or {pass: false, status, fields, type, body, decision}.
     * `release` gives back the slots that it holds, if any. An `error` without a status is for onError.
     */
    async decide(request) {
        let named;
        try {
            named = this.skip && await this.skip(request) ? [] : await this.#requests(request);
        } catch (error) {
            return this.#failed(error, false);
        }
        if (named.length === 0)
            return { pass: true, fields: [] };
        try {
            const requests = named.map(({ name, ...rest }) => rest);
            const decision = await this.store.takeAll(requests);
            const names = named.flatMap((one) => new Array(one.limit.length).fill(one.name));
            const told = fields(decision, requests.map((one) => one.limit), { style: this.style, names });
            if (decision.allowed)
                return { pass: true, decision, fields: told, release: this.#hold(requests, decision) };
            return denial(this.status, decision.closed ? "closed" : "limit", told, decision);
        } catch (error) {
            return this.#failed(error, true);
        }
    }

    // onError: "allow" is for failures of the store. A store without room (full=deny) denies, so does one with too many calls in progress,
    // and a function that found no key or cost: who brings that about does not get through by it.
    #failed(error, byStore) {
        if (error instanceof BadAddress)
            this.#warn(error, false);
        if (error instanceof BadKey)
            return { pass: false, error, status: 400, type: PROBLEM, fields: [], body: JSON.stringify({ title: "Bad Request", status: 400, detail: error.message }) };
        const full = error?.code === "EFULL";
        if (typeof this.onError === "function" && !full)
            return { pass: false, error, fields: [] };
        const pass = this.onError === "allow" && byStore && !full && error?.code !== "EOVERLOAD";
        this.#warn(error, pass);
        if (pass)
            return { pass, error, fields: [] };
        return { ...denial(this.status, full ? "full" : "closed", this.style === "off" ? [] : [["retry-after", "1"]]), error };
    }

    // Nobody else sees the error, so the program's log has it, now and then.
    #warn(error, pass) {
        const now = performance.now();
        if (now < this.#warnAt + WARN_MS)
            return;
        this.#warnAt = now;
        process.emitWarning(`requests are ${pass ? "let through" : "denied"} without a decision: ${error?.message ?? String(error)}`, "WeirWarning");
    }

    /** Keeps the slots until the returned function is called. */
    #hold(requests, decision) {
        const held = requests.filter((one) => one.acquire && decision.lease);
        if (held.length === 0)
            return undefined;
        const renewals = held.map((one) => new Renewal(this.store, one.key, one.limit, decision.lease, () => {}));
        return async () => {
            for (const renewal of renewals) {
                renewal.stop();
                try {
                    await this.store.release(renewal.key, renewal.limit, renewal.lease);
                } catch {
                    // its lease ends by itself
                }
            }
        };
    }
}

/** Sleeps the delay of a shaped request; `gone` tells that the client has left meanwhile. */
async function delay(decision, gone) {
    const end = performance.now() + decision.delayUs / 1000;
    for (let left = end - performance.now(); left > 0 && !gone(); left = end - performance.now())
        await new Promise((resolve) => setTimeout(resolve, Math.min(Math.ceil(left), TIMER_MAX_MS)));
}

module.exports = { Limiter, delay };
