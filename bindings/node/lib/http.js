"use strict";
// What the middlewares share: which requests a client's request makes, and what the answer says. Frameworks stay outside.
const { STATUS_CODES } = require("node:http");
const { BlockList, isIP } = require("node:net");
const { errors, show, whole, optionsOf } = require("./native");
const { limitOf } = require("./limit");
const { addressKey } = require("./address");
const { Renewal } = require("./slot");
const { Store, fields, keyOf, denyFull } = require("./store");

const RULE = ["key", "limit", "cost", "name", "shadow"];
const OPTIONS = [...RULE, "limits", "skip", "style", "status", "onError", "onDenied", "onShadow"];
const STYLES = ["ietf", "ietf-06", "x-ratelimit", "openai", "retry-after", "off"];
const PROBLEM = "application/problem+json";
const TIMER_MAX_MS = 2 ** 31 - 1;
const COST_MAX = 1e12;
const LIMITS_MAX = 16; // of one call
const WARN_MS = 60e3; // between two warnings of one limiter

function functionOr(value, what, accepts, expected) {
    if (typeof value !== "function" && !accepts(value))
        throw new errors.EINVAL(`invalid ${what} ${show(value)}: expected ${expected}`);
    return typeof value === "function" ? value : () => value;
}

function ruleOf(given, defaultKey) {
    const { key = defaultKey, limit, cost = 1, name, shadow = false } = optionsOf(given ?? null, "rule", RULE);
    const rule = {
        key: functionOr(key, "key", (value) => typeof value === "string" && value !== "", "a function of the request, or a text"),
        cost: functionOr(cost, "cost", (value) => whole(value, "cost", 0, COST_MAX) >= 0, "a whole number, or a function of the request"),
        limit: typeof limit === "function" ? limit : undefined,
        fixed: typeof limit === "function" ? undefined : limitOf(limit), // a mistake is found now, not by the first client
        name,
        shadow,
        begins: typeof key === "string" ? `${key}\0` : key === defaultKey ? "ip:" : "", // what is known of its keys; a text is the whole key
        word: "", // what is put before them
        shadows: [], // so begin the keys of rules in shadow that may share a state
        more: "", // what is put before a key that begins so, too
    };
    if (name !== undefined && (typeof name !== "string" || !/^[\x20-\x7e]+$/.test(name)))
        throw new errors.EINVAL(`invalid name ${show(name)}: expected printable ASCII, which HTTP fields can hold`);
    if (typeof shadow !== "boolean")
        throw new errors.EINVAL(`invalid shadow ${show(shadow)}: expected true or false`);
    if (shadow && rule.fixed && isHeld(rule.fixed))
        throw new errors.EINVAL("a concurrent limit is in shadow: shadow is for the other kinds of limit");
    if (rule.fixed && typeof cost !== "function")
        refuseCost(rule.fixed, whole(cost, "cost", 0, COST_MAX));
    return rule;
}

/** A constant cost that no state of the limit ever admits. */
function refuseCost(limit, cost) {
    const never = cost > 1 ? spare().peekAll([{ key: "cost", limit, cost }]).rows.filter((row) => row.retryAfterUs < 0) : []; // every limit admits one
    if (never.length > 0)
        throw new errors.EINVAL(`invalid cost ${cost}: expected at most ${Math.min(...never.map((row) => row.limit))}, which is all that ${show(limit.text)} admits at once; ` +
            "lower the cost or raise the limit");
}

function rulesOf(options, defaultKey) {
    const { limits, key, limit, cost, name, shadow } = options;
    if (limits === undefined)
        return apart([ruleOf({ key, limit, cost, name, shadow }, defaultKey)]);
    if (!Array.isArray(limits) || limits.length < 1 || limits.length > LIMITS_MAX)
        throw new errors.EINVAL(`invalid limits: expected an array of 1 to ${LIMITS_MAX} rules`);
    if (limit !== undefined)
        throw new errors.EINVAL("there are limit and limits: expected one of them");
    for (const [word, value] of Object.entries({ name, shadow })) {
        if (value !== undefined)
            throw new errors.EINVAL(`${word} stands beside limits: expected it in a rule, as limits: [{ limit, ${word} }]`);
    }
    return apart(limits.map((rule) => ruleOf({ ...(key === undefined ? {} : { key }), ...(cost === undefined ? {} : { cost }), ...rule }, defaultKey)));
}

function isHeld(limit) {
    return limit.parts.some((part) => part.kind === "concurrent");
}

let kept; // nothing is ever taken there: it says how large limits are, and which would share a state. It has room for the largest
const spare = () => kept ??= new Store("memory:8m?large=90%");

/** Whether two rules' limits would have one state under one key. Not known of those that functions return, and of too many for one call. */
function share(one, other) {
    if (!one.fixed || !other.fixed)
        return true;
    try {
        spare().peekAll([one, other].map(({ fixed }) => ({ key: "key", limit: fixed, cost: 0 })));
        return false;
    } catch (error) {
        if (error?.code !== "ESHARED" && error?.code !== "EINVAL")
            throw error;
        return true;
    }
}

const meet = (one, other) => one.startsWith(other) || other.startsWith(one);

/** What begins no key of others: the rule's name, or its number, or a higher one that is nobody's. */
function wordOf({ name, shadow }, number, { length }, taken) {
    const kind = shadow ? "shadow." : "";
    let word = `${kind}${name ?? `rule${number}`}:`;
    for (let n = number; taken.some((other) => meet(word, other)); n += length) // each one that is taken can meet one number
        word = `${kind}rule${n}:`;
    return word;
}

/**
 * A client may choose what a function returns. If an equal key of another rule would share its state, the function's keys always begin with its
 * rule's name: so they never depend on those of other rules. So do those of a rule whose text, or address, an earlier one has.
 * Beside a rule in shadow only keys that begin like its own get a name: to try a rule resets no count.
 */
function apart(rules) {
    const enforced = rules.filter((rule) => !rule.shadow), taken = enforced.flatMap(({ begins }) => (begins ? [begins] : []));
    const always = enforced.reduce((sum, { begins, fixed }) => sum + (begins && fixed ? fixed.length : 0), 0);
    if (always > LIMITS_MAX)
        throw new errors.EINVAL(`invalid limits: ${always} of them apply to each request, expected at most ${LIMITS_MAX}`);
    const numbered = [...rules.entries()].sort(([, one], [, other]) => one.shadow - other.shadow); // those in shadow come last: they change no other word
    for (const [i, rule] of numbered) {
        const others = rule.begins ? enforced.slice(0, enforced.indexOf(rule)).filter((other) => other.begins) : enforced.filter((other) => other !== rule);
        if (!rule.shadow && !others.some((other) => meet(rule.begins, other.begins) && share(rule, other)))
            continue;
        rule.word = wordOf(rule, i + 1, rules, taken);
        taken.push(rule.word);
    }
    for (const [i, rule] of numbered.filter(([, { word, begins }]) => !word && !begins)) {
        rule.shadows = rules.filter((other) => other.shadow && share(rule, other)).map(({ word }) => word);
        rule.more = wordOf(rule, i + 1, rules, taken);
        taken.push(rule.more);
    }
    return rules;
}

function startsWith(key, word) {
    if (typeof key === "string")
        return key.startsWith(word);
    const bytes = Buffer.from(word);
    return key.subarray(0, bytes.length).equals(bytes);
}

/** The key with its rule's word, unless it begins so already. */
function joined(word, key) {
    if (startsWith(key, word))
        return key;
    return typeof key === "string" ? word + key : Buffer.concat([Buffer.from(word), key]);
}

/** What a rule's function returned, as the key that the store gets. */
function ruleKey({ word, shadows, more }, key) {
    const own = joined(word, key);
    return shadows.some((other) => startsWith(own, other)) ? joined(more, own) : own;
}

/** The decision of a store that has no room, or failed: a denial. `requests` is undefined where a function of the program failed. */
function refusal(requests, full) {
    const decision = spare().peekAll(requests?.map(({ limit }, i) => ({ key: `${i}`, limit, cost: 0 })) ?? [{ key: "none", limit: "token-bucket 1/s" }]);
    for (const row of [decision, ...decision.rows])
        Object.assign(row, { allowed: false, full, closed: !full, remaining: 0, granted: 0, delayUs: 0, resetAfterUs: 0, retryAfterUs: 1e6 });
    return Object.assign(decision, { binding: 0, limit: decision.rows[0].limit }); // none of them denies: the first one is told
}

const seconds = (us) => (us < 0 ? null : us / 1e6);

/** An answer that denies, with the status, fields and body of `weir serve`. */
function denial(status, fieldsOf, decision, violated) {
    const reason = decision.full ? "full" : decision.closed ? "closed" : "limit";
    const told = { "violated-policies": violated, allowed: false, limit: decision.limit, remaining: decision.remaining, retry_after: seconds(decision.retryAfterUs),
        reset_after: seconds(decision.resetAfterUs), delay: 0, granted: 0, binding: decision.binding, receipt: null, degraded: decision.degraded, local: decision.local };
    const type = reason === "limit" ? { type: "https://iana.org/assignments/http-problem-types#quota-exceeded" } : {};
    const body = { ...type, title: STATUS_CODES[status] ?? "Denied", status, reason, ...told };
    return { pass: false, status, fields: [["weir-reason", reason], ...fieldsOf], type: PROBLEM, body: JSON.stringify(body), decision };
}

/** One line for the log: a client may have written part of it. */
function printed(text) {
    const line = text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (it) => `\\u{${it.codePointAt(0).toString(16)}}`);
    return line.length > 500 ? `${line.slice(0, 500)}…` : line;
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

/** As the store takes requests. */
function plain(asked) {
    return asked.map(({ rule, ...rest }) => rest);
}

/** One per limit. */
function namesOf(asked) {
    return asked.length === 0 ? undefined : asked.flatMap((one) => new Array(one.limit.length).fill(one.rule.name));
}

class Limiter {
    #warnAt = -Infinity;

    /** `ipOf` gives the client's address, as the framework knows it. */
    constructor(store, options, ipOf) {
        if (!(store instanceof Store))
            throw new errors.EINVAL(`invalid store ${show(store)}: expected a Store`);
        const given = optionsOf(options ?? null, "option", OPTIONS);
        const { style = "ietf", status = 429, onError = "deny", onDenied, onShadow, skip } = given;
        this.store = store;
        denyFull(store);
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
        for (const [name, value] of Object.entries({ onDenied, onShadow, skip })) {
            if (value !== undefined && typeof value !== "function")
                throw new errors.EINVAL(`invalid ${name} ${show(value)}: expected a function`);
            this[name] = value;
        }
    }

    // What the store is asked for a rule; undefined: it does not apply.
    async #asked(rule, request) {
        const key = await rule.key(request);
        if (key === null)
            return undefined;
        const limit = rule.fixed ?? limitOf(await rule.limit(request)), held = isHeld(limit);
        const cost = whole(await rule.cost(request), "cost", 0, COST_MAX);
        if (held && rule.shadow)
            throw new errors.EINVAL(`${limit.text}: a concurrent limit is in shadow`);
        return { key: checked(ruleKey(rule, checked(key))), limit, cost, acquire: held, rule };
    }

    async #requests(request) {
        const requests = [], shadows = [];
        for (const rule of this.rules) {
            try {
                const one = await this.#asked(rule, request);
                if (one)
                    (rule.shadow ? shadows : requests).push(one);
            } catch (error) {
                if (!rule.shadow)
                    throw error;
                this.#shadowFailed(error);
            }
        }
        return { requests, shadows };
    }

    // Rules in shadow: decided each for itself, never enforced.
    async #decideShadows(shadows) {
        try {
            return shadows.length > 0 ? await this.store.takeMany(plain(shadows)) : [];
        } catch (error) {
            this.#shadowFailed(error);
            return [];
        }
    }

    // `denied`: the request goes no further anyway. It does not wait for who is told.
    #tellShadows(request, shadows, decisions, denied) {
        for (const [i, decision] of decisions.entries()) {
            const { key, rule } = shadows[i];
            if (decision.allowed || decision.error)
                continue;
            if (this.onShadow)
                this.#tellShadow(request, decision, { key, name: rule.name, denied });
            else
                this.#tell(`the rule ${show(rule.name ?? rule.fixed?.text)}, in shadow, would deny requests${denied ? ", as one that is denied anyway" : ""}`);
        }
    }

    async #tellShadow(...told) {
        try {
            await this.onShadow(...told);
        } catch (error) {
            this.#shadowFailed(error);
        }
    }

    #shadowFailed(error) {
        this.#tell(`rules in shadow are not decided or told: ${error?.message ?? String(error)}`);
    }

    #denial(named, decision) {
        let row = 0;
        const denies = ({ limit }) => Array.from({ length: limit.length }, () => decision.rows[row++]).some((it) => !it.allowed);
        const violated = (named ?? []).filter(denies).flatMap(({ rule }) => rule.name ?? []);
        return denial(this.status, fields(decision, named?.map((one) => one.limit) ?? ["token-bucket 1/s"], { style: named ? this.style : this.style === "off" ? "off" : "retry-after", names: namesOf(named ?? []) }), decision, violated);
    }

    /**
     * What to do with a request: {pass: true, fields, decision, release} or {pass: false, status, fields, type, body, decision}.
     * `release` gives back the slots that it holds, if any. An `error` without a status is for onError.
     */
    async decide(request) {
        let named, shadows;
        try {
            if (this.skip && await this.skip(request))
                return { pass: true, fields: [] };
            ({ requests: named, shadows } = await this.#requests(request));
        } catch (error) {
            return this.#failed(error);
        }
        const decisions = await this.#decideShadows(shadows), answer = await this.#enforce(named);
        this.#tellShadows(request, shadows, decisions, !answer.pass);
        return answer;
    }

    async #enforce(named) {
        if (named.length === 0)
            return { pass: true, fields: [] };
        try {
            const decision = await this.store.takeAll(plain(named));
            if (!decision.allowed)
                return this.#denial(named, decision);
            const told = fields(decision, named.map((one) => one.limit), { style: this.style, names: namesOf(named) });
            return { pass: true, decision, fields: told, release: this.#hold(named, decision) };
        } catch (error) {
            return this.#failed(error, named);
        }
    }

    // onError: "allow" is for failures of the store. A store without room (full=deny) denies, so does one with too many calls in progress,
    // and a function that found no key or cost: who brings that about does not get through by it.
    #failed(error, named) {
        if (error instanceof BadAddress)
            this.#warn(error, false);
        if (error instanceof BadKey)
            return { pass: false, error, status: 400, type: PROBLEM, fields: [], body: JSON.stringify({ title: "Bad Request", status: 400, detail: error.message }) };
        const full = error?.code === "EFULL";
        if (typeof this.onError === "function" && !full)
            return { pass: false, error, fields: [] };
        const pass = this.onError === "allow" && named !== undefined && !full && error?.code !== "EOVERLOAD";
        this.#warn(error, pass);
        if (pass)
            return { pass, error, fields: [] };
        return { ...this.#refused(named, full), error };
    }

    /** What cannot even be asked about, as too many limits, gets the plain denial. */
    #refused(named, full) {
        try {
            return this.#denial(named, refusal(named, full));
        } catch {
            return this.#denial(undefined, refusal(undefined, full));
        }
    }

    // Nobody else sees the error, so the program's log has it, now and then.
    #warn(error, pass) {
        this.#tell(`requests are ${pass ? "let through" : "denied"} without a decision: ${error?.message ?? String(error)}`);
    }

    #tell(text) {
        const now = performance.now();
        if (now < this.#warnAt + WARN_MS)
            return;
        this.#warnAt = now;
        process.emitWarning(printed(text), "WeirWarning");
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
