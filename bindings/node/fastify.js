"use strict";
// Plugin for Fastify (4 and 5): register(require("weir/fastify"), { store, limit: "token-bucket 10/s burst 20" })
// A route may have its own options, or none: { config: { weir: { limit: "…" } } }, { config: { weir: false } }.
const { Limiter, delay } = require("./lib/http");
const { errors, show } = require("./lib/native");

async function weirLimits(fastify, options) {
    const { store, ...rest } = options;
    const limiterOf = (given) => new Limiter(store, given, (request) => request.ip); // request.ip follows trustProxy
    const everywhere = rest.limit === undefined && rest.limits === undefined ? undefined : limiterOf(rest);
    const ofRoute = new Map(); // options of a route to their limiter

    // Whoever does not await register() makes routes before this runs: their options are read by the first request.
    const limiterOfRoute = (own) => {
        if (typeof own !== "object" || own === null)
            throw new errors.EINVAL(`invalid config.weir ${show(own)}: expected options, or false`);
        let limiter = ofRoute.get(own);
        if (!limiter) {
            limiter = limiterOf({ ...rest, ...(own.limits ? { limit: undefined, name: undefined, shadow: undefined } : {}), ...(own.limit ? { limits: undefined } : {}), ...own });
            ofRoute.set(own, limiter);
        }
        return limiter;
    };

    fastify.addHook("onRoute", (route) => { // a mistake is found when the route is made
        const own = route.config?.weir;
        if (own !== undefined && own !== false)
            limiterOfRoute(own);
    });

    fastify.addHook("onRequest", async (request, reply) => {
        const own = request.routeOptions?.config?.weir;
        if (own === false)
            return undefined;
        const limiter = own === undefined ? everywhere : limiterOfRoute(own);
        return limiter && answer(limiter, request, reply);
    });
}

async function answer(limiter, request, reply) {
    const told = await limiter.decide(request);
    for (const [name, value] of told.fields)
        reply.header(name, value);
    if (told.pass) {
        if (told.release) {
            if (reply.raw.destroyed || reply.raw.writableFinished)
                told.release();
            else
                reply.raw.once("close", told.release);
        }
        if (told.decision && told.decision.delayUs > 0)
            await delay(told.decision, () => reply.raw.destroyed);
        return undefined;
    }
    if (told.error && typeof limiter.onError === "function" && told.status === undefined)
        return limiter.onError(told.error, request, reply);
    if (told.decision && limiter.onDenied) {
        await limiter.onDenied(request, reply, told.decision);
        return reply; // now or later it answers: the handler of the route is not for a request that was denied
    }
    reply.code(told.status).type(told.type).send(told.body);
    return reply;
}

// The hooks are for whoever registers the plugin, not for the plugin alone.
weirLimits[Symbol.for("skip-override")] = true;
weirLimits[Symbol.for("fastify.display-name")] = "weir";

module.exports = weirLimits;
module.exports.default = weirLimits;
module.exports.weirLimits = weirLimits;
