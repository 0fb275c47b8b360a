"use strict";
// Plays the golden vectors (tests/vectors/README.md) through the binding, every field of every answer: vectors.js URL FILE …
const fs = require("node:fs");
const { Store, Limit } = require("weir");
const { check, same, done } = require("./checks");

const [url, ...files] = process.argv.slice(2);
const store = new Store(url);
let cases = 0;

const sevenOf = (decision) => [decision.allowed ? 1 : 0, decision.limit, decision.remaining, decision.retryAfterUs, decision.resetAfterUs,
    decision.delayUs, decision.granted];

/** What is expected may leave out granted. */
function sameDecision(decision, wanted, where) {
    const numbers = wanted.split(" ").map(Number);
    same(sevenOf(decision).slice(0, numbers.length), numbers, where);
}

function readCost(word) {
    const [first, last] = word.split("..").map(Number);
    return last === undefined ? { cost: first } : { cost: last, least: first };
}

function optionsOf(cost, wait) {
    return { ...readCost(cost), ...(wait === "default" ? {} : { waitMs: wait === "any" ? Infinity : Number(wait) / 1000 }) };
}

/** The same question in every form that can ask it. */
function ask(verb, state, cost, wait) {
    const options = optionsOf(cost, wait);
    const plain = wait === "default" && options.least === undefined && state.limit.length === 1;
    if (verb === "take")
        return plain ? store.take(state.key, state.text, options.cost) : store.takeAll([{ key: state.key, limit: state.limit, ...options }]);
    if (verb === "peek")
        return plain ? store.peek(state.key, state.text, options.cost) : store.peekAll([{ key: state.key, limit: state.limit, ...options }]);
    return store.acquire(state.key, state.limit, options);
}

function settle(state, words, wanted, where) {
    const [at, t0, c0, c1] = words.map(Number);
    store.setTime(at);
    let answer = "ok";
    try {
        store.settle(state.key, state.limit, `w1-${t0}-${c0}`, c1);
    } catch (error) {
        answer = error.code === "EUNSUPPORTED" ? "refused" : error.code;
    }
    same(answer, wanted, where);
}

function line(state, text, where) {
    const [left, wanted] = text.split(" = ");
    const [verb, ...words] = left.split(" ");
    if (verb === "case") {
        Object.assign(state, { key: `case:${cases++}`, leases: new Map() });
    } else if (verb === "limit") {
        state.text = text.slice("limit ".length);
        state.limit = new Limit(state.text);
    } else if (verb === "take" || verb === "peek") {
        store.setTime(Number(words[0]));
        sameDecision(state.last = ask(verb, state, words[1], words[2]), wanted, where);
    } else if (verb === "grant") { // Guava tells no more
        store.setTime(Number(words[0]));
        const decision = ask("take", state, words[1], words[2]);
        same(`${decision.allowed ? 1 : 0} ${decision.delayUs}`, wanted, where);
    } else if (verb === "acquire") {
        store.setTime(Number(words[0]));
        state.last = ask(verb, state, words[1], words[3]);
        sameDecision(state.last, wanted, where);
        if (state.last.allowed)
            state.leases.set(words[2], state.last.lease);
    } else if (verb === "row") {
        sameDecision(state.last.rows ? state.last.rows[Number(words[0])] : state.last, wanted, where);
    } else if (verb === "bind") {
        same(state.last.binding, Number(words[0]), where);
    } else if (verb === "settle") {
        settle(state, words, wanted, where);
    } else if (verb === "reset") {
        store.setTime(Number(words[0]));
        store.reset(state.key);
    } else if (verb === "renew" || verb === "release") {
        store.setTime(Number(words[0]));
        same(store[verb](state.key, state.limit, state.leases.get(words[1]) ?? 1) ? "1" : "0", wanted, where);
    } else {
        check(false, `${where}: cannot be read`);
    }
}

function parseLine(text, where) {
    const [given, canonical] = text.slice(text.indexOf(" ") + 1).split(" => ");
    let got;
    try {
        got = new Limit(given).text;
    } catch (error) {
        check(error.code === "ESYNTAX" || error.code === "EINVAL" || error.code === "ESHARED", `${where}: ${error}`);
    }
    same(got, text.startsWith("ok ") ? canonical : undefined, where);
}

for (const file of files) {
    const state = {};
    fs.readFileSync(file, "latin1").split("\n").forEach((text, i) => {
        const where = `${file}:${i + 1}: ${text}`;
        if (text === "" || text.startsWith("#"))
            return;
        if (/^(ok|bad) /.test(text))
            parseLine(text, where);
        else
            line(state, text, where);
    });
}
store.check();
store.close();
done();
