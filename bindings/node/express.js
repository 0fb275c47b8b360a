"use strict";
// Middleware for Express (4 and 5), and for everything else that calls (req, res, next).
const { Limiter, delay } = require("./lib/http");

/** limited(store, { limit: "token-bucket 10/s burst 20" }); README.md has all options. */
function limited(store, options) {
    // req.ip follows the setting "trust proxy"; without Express there is only the connection.
    const limiter = new Limiter(store, options, (req) => req.ip ?? req.socket?.remoteAddress);
    return async function weirLimited(req, res, next) {
        let answer;
        try {
            answer = await limiter.decide(req);
            for (const [name, value] of answer.fields)
                res.setHeader(name, value);
            if (answer.pass) {
                await proceed(answer, res);
            } else if (answer.error && typeof limiter.onError === "function" && answer.status === undefined) {
                await limiter.onError(answer.error, req, res, next);
                return;
            } else if (answer.decision && limiter.onDenied) {
                await limiter.onDenied(req, res, answer.decision, next);
                return;
            } else {
                res.statusCode = answer.status;
                res.setHeader("content-type", answer.type);
                res.end(answer.body);
                return;
            }
        } catch (error) {
            answer?.release?.();
            next(error);
            return;
        }
        if (!res.destroyed)
            next();
    };
}

/** Before the request goes on: it waits for its turn, and its slots are given back when the answer is over. */
async function proceed(answer, res) {
    if (answer.release) {
        if (res.destroyed || res.writableFinished)
            answer.release();
        else
            res.once("close", answer.release);
    }
    if (answer.decision && answer.decision.delayUs > 0)
        await delay(answer.decision, () => res.destroyed);
}

module.exports = { limited };
