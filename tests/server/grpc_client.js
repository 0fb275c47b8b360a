// A gRPC client of others (grpc-js) against a running server: node grpc_client.js SCENARIO PORT [WORD …]
// Prints what fails, and at the end "N passed, N failed". grpc_service.py starts the servers.
'use strict';
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const load = (name) => grpc.loadPackageDefinition(loader.loadSync(path.join(__dirname, name),
    { keepCase: true, enums: String, longs: Number, defaults: true }));
const { RateLimitService } = load('grpc_ratelimit.proto').envoy.service.ratelimit.v3;
const { Health } = load('grpc_health.proto').grpc.health.v1;

let passed = 0, failed = 0;
function check(right, what) {
    if (right) { passed++; return; }
    failed++;
    console.log('FAIL ' + what);
}
function equal(got, wanted, what) {
    const [a, b] = [got, wanted].map((value) => JSON.stringify(value));
    check(a === b, `${what}: got ${a}, expected ${b}`);
}

const descriptor = (words, more = {}) => ({
    entries: words.split(',').map((pair) => ({ key: pair.split('=')[0], value: pair.split('=')[1] || '' })), ...more });
const ask = (domain, ...words) => ({ domain,
    descriptors: words.map((it) => typeof it === 'string' ? descriptor(it) : it) });

// A call's answer, or its error.
function call(client, method, message, metadata = new grpc.Metadata(), options = {}) {
    return new Promise((resolve) => client[method](message, metadata, options,
        (error, answer) => resolve(error ? { error } : answer)));
}
const should = (client, message, metadata, options) => call(client, 'ShouldRateLimit', message, metadata, options);
const code = async (answer) => { const it = await answer; return it.error ? it.error.code : it.overall_code; };

async function rules(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const first = await should(client, ask('shop', 'user=ann'));
    equal(first.overall_code, 'OK', 'the first request');
    equal(first.statuses[0].code, 'OK', 'its descriptor');
    equal(first.statuses[0].current_limit, { requests_per_unit: 3, unit: 'YEAR', name: 'users' }, 'its limit');
    equal(first.statuses[0].limit_remaining, 2, 'what remains');
    const until = first.statuses[0].duration_until_reset;
    check(until.seconds >= 0 && until.seconds <= 366 * 86400, `the time until the window is over: ${JSON.stringify(until)}`);
    equal([await code(should(client, ask('shop', 'user=ann'))), await code(should(client, ask('shop', 'user=ann')))],
        ['OK', 'OK'], 'the second and the third');
    const over = await should(client, ask('shop', 'user=ann'));
    equal(over.overall_code, 'OVER_LIMIT', 'the fourth');
    equal(over.statuses[0].limit_remaining, 0, 'nothing remains');
    equal(await code(should(client, ask('shop', 'user=bob'))), 'OK', 'another user');
    equal((await should(client, ask('elsewhere', 'user=ann'))).statuses[0],
        { code: 'OK', current_limit: null, limit_remaining: 0, duration_until_reset: null }, 'an unknown domain');
    equal(await code(should(client, ask('shop', 'nothing=x'))), 'OK', 'no rule');
    equal(await code(should(client, { ...ask('shop', 'user=dan'), hits_addend: 4 })), 'OVER_LIMIT', 'four at once');
    equal((await should(client, ask('shop', 'user=dan'))).statuses[0].limit_remaining, 2, 'they were not charged');
    equal(await code(should(client, ask('shop', descriptor('user=eve', { hits_addend: { value: 0 } })))), 'OK',
        'asking without charging');
    equal((await should(client, ask('shop', 'user=eve'))).statuses[0].limit_remaining, 2, 'it was not charged');
    const brought = descriptor('any=thing', { limit: { requests_per_unit: 1, unit: 'YEAR' } });
    equal([await code(should(client, ask('shop', brought))), await code(should(client, ask('shop', brought)))],
        ['OK', 'OVER_LIMIT'], 'a limit that the request brings');
    const both = await should(client, ask('shop', 'user=ann', 'user=fay'));
    equal([both.overall_code, ...both.statuses.map((it) => it.code)], ['OVER_LIMIT', 'OVER_LIMIT', 'OK'],
        'two descriptors, one is over');
    equal((await should(client, ask('shop', 'user=fay'))).statuses[0].limit_remaining, 2,
        'the other was not charged');
    equal(await code(should(client, ask('shop', 'user=' + 'x'.repeat(9000)))), 'OK', 'a long value');
    equal(await code(should(client, ask('shop', 'user=\u00e4\u{1f600}'))), 'OK', 'a value of other letters');
    client.close();
}

async function errors(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const zipped = new RateLimitService(address, grpc.credentials.createInsecure(),
        { 'grpc.default_compression_algorithm': 2 });
    const status = async (message, using = client) => (await should(using, message)).error?.code;
    equal(await status(ask('', 'user=x')), grpc.status.INVALID_ARGUMENT, 'no domain');
    equal(await status(ask('shop')), grpc.status.INVALID_ARGUMENT, 'no descriptors');
    equal(await status(ask('shop', ...Array(17).fill('user=x'))), grpc.status.INVALID_ARGUMENT, '17 descriptors');
    equal(await status(ask('shop', 'user=' + 'x'.repeat(30000))), grpc.status.INVALID_ARGUMENT, 'a value too long');
    const { error } = await call(client, 'NoSuchMethod', ask('shop', 'user=x'));
    equal(error.code, grpc.status.UNIMPLEMENTED, 'an unknown method');
    check(error.details.includes('ShouldRateLimit'), `it says what there is: ${error.details}`);
    equal(await status(ask('shop', 'user=x'), zipped), grpc.status.UNIMPLEMENTED, 'a compressed message');
    equal(await status(ask('shop', 'user=' + 'x'.repeat(300000))), grpc.status.RESOURCE_EXHAUSTED,
        'a message beyond the bound');
    const metadata = new grpc.Metadata();
    metadata.set('x', 'y'.repeat(20000));
    const large = await should(client, ask('shop', 'user=x'), metadata);
    check(large.error !== undefined, `metadata beyond the bound: ${JSON.stringify(large)}`);
    equal(await code(should(client, ask('shop', 'free=x'))), 'OK', 'the connection goes on');
    client.close();
    zipped.close();
}

async function health(address, wanted) {
    const client = new Health(address, grpc.credentials.createInsecure());
    for (const service of ['', 'ratelimit'])
        equal((await call(client, 'Check', { service })).status, wanted, `health of "${service}"`);
    equal((await call(client, 'Check', { service: 'nothing' })).error?.code, grpc.status.NOT_FOUND, 'of nothing');
    client.close();
}

// n calls, `width` of them at once; how often each answer came.
async function many(client, n, width, message) {
    const counts = {};
    let left = n;
    await Promise.all(Array.from({ length: width }, async () => {
        while (left-- > 0) {
            const it = await code(should(client, message(left)));
            counts[it] = (counts[it] || 0) + 1;
        }
    }));
    return counts;
}

async function load_(address, n = '6000', limit = '5000') {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const counts = await many(client, Number(n), 100, () => ask('shop', 'load=x'));
    equal(counts, { OK: Number(limit), OVER_LIMIT: Number(n) - Number(limit) }, 'exactly the limit');
    client.close();
}

// Streams reset by their clients before they are answered.
async function cancels(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    let cancelled = 0, answered = 0;
    for (let round = 0; round < 10; round++) {
        await Promise.all(Array.from({ length: 60 }, () => new Promise((resolve) => {
            const it = client.ShouldRateLimit(ask('shop', 'free=x'), (error) => {
                if (error?.code === grpc.status.CANCELLED) cancelled++;
                else if (!error) answered++;
                resolve();
            });
            setImmediate(() => it.cancel());
        })));
    }
    equal(cancelled + answered, 600, 'each is either cancelled or answered');
    check(cancelled > 0, 'some were cancelled in time');
    equal(await code(should(client, ask('shop', 'free=x'))), 'OK', 'the connection goes on');
    client.close();
}

async function token(address, secret) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const metadata = (text) => { const it = new grpc.Metadata(); it.set('authorization', text); return it; };
    const status = async (it) => (await should(client, ask('shop', 'free=x'), it)).error?.code ?? 0;
    equal(await status(), grpc.status.UNAUTHENTICATED, 'no token');
    equal(await status(metadata('Bearer wrong')), grpc.status.UNAUTHENTICATED, 'a wrong one');
    equal(await status(metadata(secret)), grpc.status.UNAUTHENTICATED, 'not as a bearer');
    equal(await status(metadata('Bearer ' + secret)), 0, 'the right one');
    equal(await status(metadata('bearer ' + secret)), 0, 'whatever the case of the word');
    client.close();
    await health(address, 'SERVING');
}

async function no_rules(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const { error } = await should(client, ask('shop', 'user=x'));
    equal(error.code, grpc.status.UNIMPLEMENTED, 'without rules');
    check(error.details.includes('--envoy'), `it says how to give some: ${error.details}`);
    client.close();
    await health(address, 'SERVING');
}

// Calls without an end, until the server is gone: none is lost on the way.
async function drain(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const counts = {};
    console.log('ready');
    let over = false;
    await Promise.all(Array.from({ length: 20 }, async () => {
        while (!over) {
            const it = await should(client, ask('shop', 'free=x'));
            const what = it.error ? grpc.status[it.error.code] : 'answered';
            counts[what] = (counts[what] || 0) + 1;
            if (it.error?.details.includes('ECONNREFUSED') || it.error?.details.includes('No connection')) over = true;
            else if (it.error) counts.lost = `${it.error.details}`;
        }
    }));
    check(counts.answered > 100, `many were answered: ${JSON.stringify(counts)}`);
    equal(counts.lost, undefined, 'none was lost before the port was closed');
    client.close();
}

async function tls(address, authority) {
    const roots = require('fs').readFileSync(authority);
    const client = new RateLimitService(address, grpc.credentials.createSsl(roots));
    equal(await code(should(client, ask('shop', 'free=x'))), 'OK', 'over TLS');
    const counts = await many(client, 2000, 50, () => ask('shop', 'free=y'));
    equal(counts, { OK: 2000 }, 'many over TLS');
    const stranger = new RateLimitService(address, grpc.credentials.createSsl());
    equal((await should(stranger, ask('shop', 'free=x'), undefined, { deadline: Date.now() + 60000 })).error?.code,
        grpc.status.UNAVAILABLE, 'an authority that the client does not know');
    client.close();
    stranger.close();
}

const scenarios = { rules, errors, health, load: load_, cancels, token, no_rules, drain, tls };
const [name, port, ...words] = process.argv.slice(2);
scenarios[name](`127.0.0.1:${port}`, ...words)
    .catch((error) => check(false, `${name}: ${error.stack}`))
    .finally(() => {
        console.log(`${passed} passed, ${failed} failed`);
        process.exit(failed ? 1 : 0);
    });
