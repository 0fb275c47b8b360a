"use strict";
// Counting what held, as tests/lib/checks.py does; every script ends in done().
let passed = 0, failed = 0;

function check(right, what) {
    if (right) {
        passed++;
    } else if (++failed <= 50) {
        console.log(`FAIL ${what}`);
    }
    return right;
}

function same(got, wanted, what) {
    const text = (value) => JSON.stringify(value, (_, inner) => (inner === Infinity ? "Infinity" : typeof inner === "bigint" ? `${inner}n` : inner));
    return check(text(got) === text(wanted), `${what}: got ${text(got)}, expected ${text(wanted)}`);
}

/** The error that a function or a promise ends with. */
async function fails(work) {
    try {
        await (typeof work === "function" ? work() : work);
    } catch (error) {
        return error;
    }
    return undefined;
}

async function failsWith(work, code, part, what) {
    const error = await fails(work);
    check(error && error.code === code && error.message.includes(part), `${what}: got ${error && `${error.code}: ${error.message}`}, expected ${code}: …${part}…`);
    return error;
}

function done() {
    console.log(`${passed} passed, ${failed} failed`);
    process.exitCode = failed ? 1 : 0;
}

/** Runs tests one after the other; one that throws is one failure. */
async function run(tests, words = process.argv.slice(2)) {
    const chosen = tests.filter((one) => !words.length || words.some((word) => one.name.includes(word)));
    check(chosen.length > 0, `no test is called ${words}`);
    for (const test of chosen) {
        try {
            await test();
        } catch (error) {
            check(false, `${test.name}: ${error && error.stack || error}`);
        }
    }
    done();
}

module.exports = { check, same, fails, failsWith, done, run };
