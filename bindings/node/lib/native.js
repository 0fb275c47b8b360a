"use strict";
// The addon, and the errors that its codes become: one class per code of the library's list, made from that list.
const path = require("node:path");

function load() {
    try {
        return require(path.join(__dirname, "../build/weir.node"));
    } catch (error) {
        if (error.code !== "MODULE_NOT_FOUND")
            throw error;
        throw new Error(`weir is not compiled: run "node build.js" in ${path.dirname(__dirname)}`, { cause: error });
    }
}

const native = load();

/** Everything that can go wrong. `code` is the name of a code; `column` is the place in a limit or an address, or 0. */
class WeirError extends Error {
    constructor(message, options) {
        super(message, options && "cause" in options ? { cause: options.cause } : undefined);
        this.column = options && options.column || 0;
    }
}

function define(name, shown = name) {
    const made = { [name]: class extends WeirError {} }[name];
    Object.defineProperty(made.prototype, "name", { value: shown, configurable: true, writable: true });
    Object.defineProperty(made.prototype, "code", { value: name, enumerable: true, configurable: true, writable: true });
    return made;
}

const errors = Object.create(null);
for (const name of native.errors)
    errors[name] = define(name, name === "ECANCELED" ? "AbortError" : name); // as others call what a signal has ended
// These two are of this package: too much is asked at a time, and a slot that was not to be had.
errors.EOVERLOAD = define("EOVERLOAD");
errors.EDENIED = define("EDENIED");

/** The error of a code; -1 is EINVAL. */
function errorOf(code, message, column) {
    const name = native.errors[-code - 1];
    return new errors[name](message, { column });
}

/** Of the call that just returned a code. */
function lastError() {
    const [code, column, message] = native.lastError();
    return errorOf(code, message, column);
}

/** A value in an error message. Nothing of the value itself is called. */
function show(value) {
    switch (typeof value) {
    case "string": return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
    case "symbol": return "a symbol";
    case "function": return "a function";
    case "object": return value === null ? "null" : "an object";
    default: return Object.is(value, -0) ? "-0" : String(value);
    }
}

/** A whole number within bounds, given as a number or a BigInt. */
function whole(value, what, least, most) {
    if (typeof value === "number" && Number.isInteger(value) && value >= least && value <= most)
        return value + 0; // -0 is 0
    if (typeof value === "bigint" && value >= BigInt(least) && value <= BigInt(most))
        return Number(value);
    throw new errors.EINVAL(`invalid ${what} ${show(value)}: expected a whole number from ${least} to ${most}`);
}

/** Milliseconds, perhaps with a fraction, or Infinity; as microseconds. */
function durationUs(value, what) {
    if (value === Infinity)
        return Infinity;
    if (typeof value === "number" && value >= 0 && value <= 366 * 86400e3)
        return Math.round(value * 1000) + 0;
    throw new errors.EINVAL(`invalid ${what} ${show(value)}: expected milliseconds, 0 to 366 days, or Infinity`);
}

/** An object of options, or none. */
function optionsOf(value, what, known) {
    if (value === undefined)
        return {};
    if (typeof value !== "object" || value === null)
        throw new errors.EINVAL(`invalid ${what} ${show(value)}: expected an object`);
    for (const name in value) {
        if (!known.includes(name) && Object.hasOwn(value, name))
            throw new errors.EINVAL(`unknown ${what} ${show(name)}: expected ${known.join(", ")}`);
    }
    return value;
}

module.exports = { native, WeirError, errors, errorOf, lastError, show, whole, durationUs, optionsOf };
