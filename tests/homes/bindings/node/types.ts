// Compiled by tsc --strict, never run: what users write must have types, and what is wrong must not.
import express from "express";
import fastify from "fastify";
import { rateLimit } from "express-rate-limit";
import { Store, Limit, Decision, WeirError, errors, fields, addressKey, version } from "weir";
import type { LocalStore, RemoteStore, Slot } from "weir";
import { limited } from "weir/express";
import weirFastify from "weir/fastify";
import { WeirStore } from "weir/express-rate-limit";

const local: LocalStore = new Store("shm:/limits?size=1m", { maxWaiting: 5 });
const remote: RemoteStore = new Store("redis://127.0.0.1:6379", { maxCalls: 5 });
const either: Store = new Store(process.env.STORE ?? "memory:");
const limit = new Limit("token-bucket 10/s burst 20");

const allowed: boolean = local.take("user:42", limit).allowed;
const later: Promise<Decision> = remote.take(Buffer.from("user:42"), "token-bucket 10/s", 5n);
const numbers: number[] = local.takeMany([{ key: "a", limit, cost: 5 }]).map((decision) => decision.remaining);
const rows: Decision[] = local.takeAll([{ key: "a", limit, waitMs: Infinity, least: 1 }]).rows;
const pairs: [string, string][] = fields(local.takeAll([{ key: "a", limit }]), limit, { style: "openai", names: ["a", undefined] });
const settled: boolean = local.settle("a", limit, local.take("a", limit).receipt, 5);
const texts: string[] = [addressKey("::1"), version, limit.text, limit.parts[0]!.kind, local.url];
const size: number = local.info().size + local.counts().denied;

async function main(): Promise<void> {
    const decision: Decision = await either.take("a", limit, { cost: 1, waitMs: 5 });
    await local.wait("a", limit, { signal: AbortSignal.timeout(5), waitMs: 100 });
    const slot: Slot = await remote.slot("a", "concurrent 5", { waitMs: 5 });
    slot.signal.throwIfAborted();
    await slot.release();
    const given: number = await local.slot("a", "concurrent 5", async (held) => held.lease);
    const opened: RemoteStore = await Store.open("redis://127.0.0.1");
    await opened.close();
    try {
        local.reset("a");
    } catch (error) {
        if (error instanceof errors.EDENIED)
            console.log(error.decision.retryAfterMs);
        else if (error instanceof errors.EFULL || error instanceof WeirError)
            console.log(error.code, error.column);
    }
    console.log(decision, given);
}

const app = express();
app.use(limited(local, { limit, key: (req: express.Request) => `user:${req.get("x-user")}`, cost: () => 5, skip: (req) => req.path === "/health", onError: "allow" }));
app.use(limited(remote, { limits: [{ limit: "token-bucket 10/s", name: "user" }, { key: "all", limit: async () => limit }], onDenied: (req, res, denied) => res.status(429).end(String(denied.limit)) }));
app.use(rateLimit({ windowMs: 1000, limit: 5, store: new WeirStore(local, { prefix: "x:" }) }));
const server = fastify();
server.register(weirFastify, { store: either, limit: "token-bucket 10/s", style: "ietf" });

// @ts-expect-error a limit is not a number
local.take("a", 5);
// @ts-expect-error a key is not a number
local.take(5, limit);
// @ts-expect-error a promise is not a decision
remote.take("a", limit).allowed;
// @ts-expect-error there is no such option
new Store("memory:", { size: 5 });
// @ts-expect-error there is no such style
limited(local, { limit, style: "draft-7" });
// @ts-expect-error a redis:// store is no zone
remote.info();

export { allowed, later, numbers, rows, pairs, settled, texts, size, main };
