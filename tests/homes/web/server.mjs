/* Real servers for the browser tests: weir serve with a policies file of its own, on a free port. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const PORTS = fileURLToPath(new URL("../../lib/ports.py", import.meta.url));
export const WEIR = path.resolve(process.env.WEIR || "build/weir");
const PATIENCE_MS = 60000;

export const POLICIES = `version: 1
policies:
  - name: api
    match: {path: /api/*}
    limits:
      - {name: per-user, key: user, limit: token-bucket 20/s burst 40}
      - {name: stricter, key: user, limit: token-bucket 5/s, shadow: true}
  - name: login
    match: {path: /login, method: POST}
    key: ip
    limit: fixed-window 5/h from-first
  - name: search
    match: {path: /search}
    key: ip
    limit: leaky-bucket 2/s burst 10
    share: {by: header.x-class, critical: 100%, "batch-*": 12.5%, default: 50%}
  - name: shared
    match: {path: /shared}
    limits:
      - {name: mine, key: user, limit: fixed-window 10/d from-first}
      - {name: everybody, key: "'all'", limit: fixed-window 100/d from-first}
`;

/* A port that no other test gets while this process lives: tests/lib/ports.py holds it until its input ends. */
export async function freePort() {
  const holder = spawn("python3", [PORTS], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(holder, "exit").then(([how]) => {
    throw new Error(`${PORTS} ended with ${how}`);
  });
  ended.catch(() => {}); /* after it has said the port, it may */
  const [said] = await Promise.race([once(holder.stdout, "data"), ended]);
  holder.unref();
  return Number(said);
}

/* Waits until `question` gives something true; what it gave. */
export async function until(question, what, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  let last = null;
  while (Date.now() < end) {
    try {
      const answer = await question();
      if (answer) return answer;
    } catch (error) {
      last = error;
    }
    await sleep(50);
  }
  throw new Error(`waited in vain for ${what}${last ? `: ${last.message}` : ""}`);
}

export class Process {
  constructor(command, args, options = {}) {
    this.said = "";
    this.child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
    this.ended = new Promise((resolve) => this.child.on("close", (code, signal) => resolve(signal || code)));
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.on("data", (bytes) => {
        this.said = (this.said + bytes).slice(-20000);
      });
    }
    this.child.on("error", (error) => {
      this.said += error.message;
    });
  }

  async stop(signal = "SIGTERM") {
    this.child.kill(signal);
    const how = await Promise.race([this.ended, sleep(PATIENCE_MS, "late", { ref: false })]);
    if (how === "late") this.child.kill("SIGKILL");
    return how;
  }
}

export class Server {
  /* options: policies (text), args (more words), token, store */
  static async start(options = {}) {
    const server = new Server();
    server.options = options;
    server.folder = mkdtempSync(path.join(tmpdir(), "weir-web-"));
    server.port = options.port || (await freePort());
    server.base = `http://127.0.0.1:${server.port}/`;
    writeFileSync(path.join(server.folder, "policies.yaml"), options.policies || POLICIES);
    if (options.token) writeFileSync(path.join(server.folder, "token"), `${options.token}\n`, { mode: 0o600 });
    await server.launch();
    return server;
  }

  async launch() {
    const { options, folder } = this;
    const words = ["serve", "--listen", `127.0.0.1:${this.port}`, "--store", options.store || "memory:64m",
      "--policies", path.join(folder, "policies.yaml"), ...(options.args || [])];
    if (options.token) words.push("--token-file", path.join(folder, "token"));
    this.process = new Process(WEIR, words);
    let gone = null;
    this.process.ended.then((how) => {
      gone = how;
    });
    await until(async () => {
      if (gone !== null) throw new Error(`weir serve ended with ${gone}: ${this.process.said}`);
      return (await fetch(this.base)).ok;
    }, "weir serve to answer");
  }

  async call(method, where, body) {
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (this.options.token) headers.Authorization = `Bearer ${this.options.token}`;
    const response = await fetch(this.base + where, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    return { status: response.status, body: await response.json() };
  }

  get(where) {
    return this.call("GET", where).then((answer) => answer.body);
  }

  post(where, body) {
    return this.call("POST", where, body);
  }

  /* Requests that go on until the returned function is called. What was not asked in time is left out: no burst follows
   * when a slow machine, or the server, is back. */
  load(perSecond, makeBody) {
    let going = true;
    let i = 0;
    const loop = (async () => {
      let due = Date.now();
      while (going) {
        due = Math.max(due, Date.now() - 1000);
        if (due < Date.now()) {
          await this.post("v1/take", makeBody(i++)).catch(() => sleep(100));
          due += 1000 / perSecond;
        } else {
          await sleep(10);
        }
      }
    })();
    return async () => {
      going = false;
      await loop;
      return i;
    };
  }

  stop(signal) {
    return this.process.stop(signal);
  }

  async close() {
    await this.stop("SIGTERM");
    rmSync(this.folder, { recursive: true, force: true });
  }
}
