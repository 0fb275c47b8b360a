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
    const { error } = await call(client, 'NoSuchMethod', ask('shop', 'user=x'));
    equal(error.code, grpc.status.UNIMPLEMENTED, 'an unknown method');
    check(error.details.includes('ShouldRateLimit'), `it says what there is: ${error.details}`);
    equal(await status(ask('shop', 'user=x'), zipped), grpc.status.UNIMPLEMENTED, 'a compressed message');
    equal(await code(should(client, ask('shop', 'free=x'))), 'OK', 'the connection goes on');
    client.close();
    zipped.close();
}

// What whoever sends a request through Envoy can make long or many never becomes an error, which Envoy would let pass:
// it is counted against its limit, or denied. The descriptors are those of examples/envoy.
async function bypass(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const metadata = new grpc.Metadata();
    metadata.set('tracestate', 'y'.repeat(20000));
    const example = (path, from, user) => ({ domain: 'shop', descriptors: [
        { entries: [{ key: 'remote_address', value: from }] }, { entries: [{ key: 'path', value: path }] },
        { entries: [{ key: 'path', value: '/login' }, { key: 'user', value: user }] }] });
    for (const length of [10, 300, 5000, 16383, 16384, 60000, 120000]) {
        const path = '/' + 'x'.repeat(length), user = 'u'.repeat(length / 100) + length;
        const got = [];
        for (let i = 0; i < 6; i++) got.push(await code(should(client, example(path, `10.0.0.${length % 251}`, user))));
        equal(got, ['OK', 'OK', 'OK', 'OK', 'OK', 'OVER_LIMIT'], `five logins of one user, a path of ${length} bytes`);
        equal(await code(should(client, example(path, '203.0.113.9', 'y'))), 'OVER_LIMIT', `banned, a path of ${length}`);
        equal(await code(should(client, example('/', '203.0.113.9', path))), 'OVER_LIMIT', `banned, a user of ${length}`);
    }
    const file = (n) => ask('shop', { entries: [{ key: 'path', value: '/files/' + 'x'.repeat(n) }] });
    const got = {};
    for (let i = 0; i < 130; i++) {
        const it = await code(should(client, file(i * 900)));
        got[it] = (got[it] || 0) + 1;
    }
    equal(got, { OK: 100, OVER_LIMIT: 30 }, 'the files together, whatever their names');
    for (const length of [131072, 300000, 4000000])
        equal(await code(should(client, example('/' + 'x'.repeat(length), '10.0.0.1', 'x'))), 'OVER_LIMIT',
            `a message of ${length} bytes`);
    equal(await code(should(client, ask('shop', ...Array(17).fill('nothing=x')))), 'OVER_LIMIT', '17 descriptors');
    equal(await code(should(client, ask('shop', Array(33).fill('nothing=x').join(',')))), 'OVER_LIMIT', '33 entries');
    equal(await code(should(client, ask('shop', 'nothing=x'), metadata)), 'OVER_LIMIT', 'metadata beyond the bound');
    const hits = descriptor('path=/login', { hits_addend: { value: 2e12 } });
    equal(await code(should(client, ask('shop', hits))), 'OVER_LIMIT', 'more hits than there can be');
    const odd = descriptor('path=/login', { limit: { requests_per_unit: 3, unit: 0 } });
    equal(await code(should(client, ask('shop', odd))), 'OVER_LIMIT', 'a limit without a unit');
    for (const value of ['\0', 'a\0b', '\n', '\u0000'.repeat(9000), '%00', '\ud7ff\u{10ffff}'])
        equal([await code(should(client, ask('shop', { entries: [{ key: 'remote_address', value }] }))),
            await code(should(client, ask('shop', { entries: [{ key: 'remote_address', value: '203.0.113.9' }] },
                { entries: [{ key: 'path', value }] })))], ['OK', 'OVER_LIMIT'], `a value ${JSON.stringify(value.slice(0, 9))}`);
    client.close();
}

// A watched health: each status on a line, and how it ended.
async function watch(address, service = '') {
    const client = new Health(address, grpc.credentials.createInsecure());
    const stream = client.Watch({ service });
    stream.on('data', (it) => console.log(it.status));
    await new Promise((resolve) => stream.on('error', (error) => { console.log(grpc.status[error.code]); resolve(); }));
    check(true, 'it ended');
    client.close();
}

async function watches(address) {
    const open = [];
    const client = new Health(address, grpc.credentials.createInsecure());
    const first = (stream) => new Promise((resolve) => {
        stream.on('data', (it) => resolve(it.status));
        stream.on('error', (error) => resolve(grpc.status[error.code]));
    });
    for (const [service, wanted] of [['', 'SERVING'], ['ratelimit', 'SERVING'], ['nothing', 'SERVICE_UNKNOWN'], ['', 'SERVING']]) {
        open.push(client.Watch({ service }));
        equal(await first(open[open.length - 1]), wanted, `watching "${service}"`);
    }
    check(await first(client.Watch({ service: '' })) !== 'SERVING', 'a fifth on one connection');
    equal((await call(client, 'Check', { service: '' })).status, 'SERVING', 'others go on');
    open[0].cancel();
    equal(await first(open[0]), 'CANCELLED', 'one ends');
    equal((await call(client, 'Check', { service: '' })).status, 'SERVING', 'the server has heard of it');
    equal(await first(client.Watch({ service: '' })), 'SERVING', 'another takes its place');
    for (const it of open) it.on('error', () => {}), it.cancel();
    client.close();
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

async function long_token(address, secret) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const long = ask('shop', 'path=' + 'x'.repeat(200000)), metadata = new grpc.Metadata();
    equal(await code(should(client, long)), grpc.status.UNAUTHENTICATED, 'a long message without a token');
    metadata.set('authorization', 'Bearer ' + secret);
    equal(await code(should(client, long, metadata)), 'OVER_LIMIT', 'a long message with one');
    metadata.set('tracestate', 'x'.repeat(20000));
    equal(await code(should(client, ask('shop', 'path=x'), metadata)), 'OVER_LIMIT', 'a long head');
    client.close();
}

async function no_rules(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const { error } = await should(client, ask('shop', 'user=x'));
    equal(error.code, grpc.status.UNIMPLEMENTED, 'without rules');
    check(error.details.includes('--envoy'), `it says how to give some: ${error.details}`);
    client.close();
    await health(address, 'SERVING');
}

// Calls without an end, until the server is gone: none is lost on the way. One that drains lets go of connections that say
// nothing for half a second: what is asked right behind such a silence, into which the machine has put us, is not counted.
async function drain(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const counts = {};
    console.log('ready');
    let over = false, looked = Date.now(), silent = 0;
    const look = () => {
        if (Date.now() - looked > 400) silent = Date.now();
        looked = Date.now();
    };
    const looking = setInterval(look, 20);
    await Promise.all(Array.from({ length: 20 }, async () => {
        while (!over) {
            const it = await should(client, ask('shop', 'free=x'));
            const what = it.error ? grpc.status[it.error.code] : 'answered';
            counts[what] = (counts[what] || 0) + 1;
            if (it.error?.details.includes('ECONNREFUSED') || it.error?.details.includes('No connection')) over = true;
            else if (it.error) {
                look();
                if (Date.now() - silent > 5000) counts.lost = `${it.error.details}`;
            }
        }
    }));
    clearInterval(looking);
    check(counts.answered > 100, `many were answered: ${JSON.stringify(counts)}`);
    equal(counts.lost, undefined, 'none was lost before the port was closed');
    client.close();
}

// Calls for a while, on connections that the server renews: none is lost.
async function aging(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    const begun = Date.now(), counts = {};
    await Promise.all(Array.from({ length: 10 }, async () => {
        while (Date.now() - begun < 2600) {
            const it = await code(should(client, ask('shop', 'listed=x')));
            counts[it] = (counts[it] || 0) + 1;
            await new Promise((resolve) => setTimeout(resolve, 5));
        }
    }));
    equal(Object.keys(counts), ['OK'], `all were answered: ${JSON.stringify(counts)}`);
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

// Requests as JSON, one per line of the input; each is answered by a line of JSON.
async function pipe(address) {
    const client = new RateLimitService(address, grpc.credentials.createInsecure());
    for await (const line of require('readline').createInterface({ input: process.stdin })) {
        const answer = await should(client, JSON.parse(line));
        console.log(JSON.stringify(answer.error ? { error: answer.error.code, details: answer.error.details } : answer));
    }
    client.close();
}

const scenarios = { pipe, rules, errors, bypass, watch, watches, health, load: load_, cancels, token, long_token, no_rules, drain, aging, tls };
const [name, port, ...words] = process.argv.slice(2);
scenarios[name](`127.0.0.1:${port}`, ...words)
    .catch((error) => check(false, `${name}: ${error.stack}`))
    .finally(() => {
        console.log(`${passed} passed, ${failed} failed`);
        process.exit(failed ? 1 : 0);
    });
