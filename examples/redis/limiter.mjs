/*
 * A limit that a fleet shares, from Node without weir's library.
 *
 *     node limiter.mjs             on a server with the module
 *     node limiter.mjs weir.lua    on any server, by the script that `weir lua` prints
 *
 * REDIS_URL says where the server is. Needs node-redis.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createClient } from "redis";

const LIMIT = "token-bucket 3/h";
const NUMBERS = "0 0 -1 0 1 1 0 3 3600000000 3 0 0 0".split(" "); // weir lua --args "token-bucket 3/h"
const DEADLINE_MS = 1000 * (process.env.WEIR_DEADLINE ?? 0.05);

class Limiter {
  constructor(client, script) {
    this.client = client;
    this.script = script;
    this.sha = script && createHash("sha1").update(script).digest("hex");
  }

  send(key) {
    if (!this.script) return this.client.sendCommand(["WEIR.TAKE", key, LIMIT]);
    const call = { keys: [key], arguments: NUMBERS };
    return this.client.evalSha(this.sha, call).catch((error) => {
      if (!error.message.startsWith("NOSCRIPT")) throw error;
      return this.client.eval(this.script, call); // from now on the server knows it
    });
  }

  /* The decision; null while no server answers. A take is never sent again: it may have been charged. */
  async take(key) {
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, DEADLINE_MS, null)));
    try {
      if (!this.client.isReady) return null;
      const reply = await Promise.race([this.send(key), late]);
      if (!reply) return null;
      const [allowed, limit, remaining, retryAfterUs, resetAfterUs, delayUs, receipt] = reply;
      return { allowed: allowed === 1, limit, remaining, retryAfterUs, resetAfterUs, delayUs, receipt };
    } finally {
      clearTimeout(timer);
    }
  }
}

const client = createClient({
  url: process.env.REDIS_URL ?? "redis://127.0.0.1:6379",
  disableOfflineQueue: true,
  socket: { connectTimeout: 1000 },
});
client.on("error", () => {}); // it connects again by itself
await Promise.race([client.connect(), new Promise((resolve) => setTimeout(resolve, 1000))]);

const script = process.argv[2] && readFileSync(process.argv[2], "utf8");
const limiter = new Limiter(client, script);
for (let number = 1; number <= 4; number++) {
  const decision = await limiter.take("example:node");
  if (!decision) console.log(`request ${number}: allowed, no server answers`);
  else if (decision.allowed) console.log(`request ${number}: allowed, ${decision.remaining} left`);
  else console.log(`request ${number}: denied, retry in ${Math.ceil(decision.retryAfterUs / 60e6)} min`);
}
process.exit(0);
