"use strict";
// Limits: parsed once. Texts are remembered, so that take("user:42", "token-bucket 10/s") is as fast as a Limit.
const { native, errors, lastError, show } = require("./native");

const CACHED_MAX = 1000; // texts remembered, in two halves: what was not used for a whole half is forgotten
let young = new Map(), old = new Map();
let handleIn;

/** One or several limits: "token-bucket 10/s burst 20, fixed-window 1000/d". Never changes. */
class Limit {
    #handle;
    #told;

    constructor(text) {
        if (typeof text !== "string")
            throw new errors.EINVAL(`invalid limit ${show(text)}: expected a text such as "token-bucket 10/s burst 20"`);
        const handle = native.parse(text);
        if (typeof handle === "number")
            throw lastError();
        this.#handle = handle;
    }

    static {
        handleIn = (limit) => (typeof limit === "object" && limit !== null && #handle in limit ? limit.#handle : undefined);
    }

    #tell() {
        return this.#told ??= native.tell(this.#handle);
    }

    /** The canonical text. */
    get text() {
        return this.#tell()[0];
    }

    /** How many limits it holds. */
    get length() {
        return this.#tell().length - 1;
    }

    /** The limits one by one: kind, amount, periodUs, burst, cost. */
    get parts() {
        return this.#tell().slice(1).map((part) => ({ ...part }));
    }

    toString() {
        return this.text;
    }

    toJSON() {
        return this.text;
    }
}

function remember(text) {
    const limit = old.get(text) ?? new Limit(text);
    if (young.size >= CACHED_MAX / 2) {
        old = young;
        young = new Map();
    }
    young.set(text, limit);
    return limit;
}

/** The Limit of a text or a Limit. */
function limitOf(given) {
    if (typeof given === "string")
        return young.get(given) ?? remember(given);
    if (handleIn(given) === undefined)
        throw new errors.EINVAL(`invalid limit ${show(given)}: expected a text or a Limit`);
    return given;
}

let lastText, lastHandle; // most callers have one limit

/** What the addon knows a limit by. */
function handleOf(given) {
    if (typeof given !== "string")
        return handleIn(limitOf(given));
    if (given !== lastText) {
        lastHandle = handleIn(limitOf(given));
        lastText = given;
    }
    return lastHandle;
}

module.exports = { Limit, limitOf, handleOf, CACHED_MAX };
