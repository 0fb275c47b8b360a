/* When things are not there: the server, its token, its store. */
import assert from "node:assert/strict";
import { number, shot, text } from "./harness.mjs";
import { freePort, Process, Server, until } from "./server.mjs";

const GONE = [/ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED|ERR_CONNECTION_CLOSED/];

async function serverGone(harness) {
  const server = await Server.start();
  try {
    await harness.test("loss: the server goes away and comes back", server, async (page) => {
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
      const load = server.load(60, (i) => ({ policy: "api", key: `u${i % 20}` }));
      await until(async () => number(await text(page, "#rate-allowed")) > 2, "a rate");
      const total = number(await text(page, "#total-allowed"));
      await server.stop("SIGKILL");
      await page.getByRole("alert").filter({ hasText: "The server does not answer" }).waitFor();
      assert.equal(await text(page, "#state-text"), "No connection");
      assert.ok(number(await text(page, "#total-allowed")) >= total, "the last figures stay");
      await shot(page, "lost");
      await server.launch();
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live again");
      assert.equal(await page.getByText("The server does not answer").count(), 0);
      await until(async () => number(await text(page, "#rate-allowed")) > 2, "a rate again");
      assert.ok(number(await text(page, "#rate-allowed")) < 1000, "a new start is no burst");
      await load();
    }, { expected: GONE });
  } finally {
    await server.close();
  }
}

/* Answers that no server can be made to give in time: the page gets them in its place. */
async function betweenTwoLooks(harness) {
  const server = await Server.start();
  const known = (page) => page.evaluate(async () => {
    const { live } = await import("/live.js");
    return { why: live.why, allowed: live.points.map((point) => Math.round(point.allowed)) };
  });
  try {
    await harness.test("loss: new counters are no burst, even of a server that now runs for longer", server, async (page) => {
      const real = await server.get("v1/stats");
      const answers = [[1000, 3, 100], [1000, 4, 120], [1003, 4.1, 5000], [1003, 5.1, 5010]].map(([begun, uptime, allowed]) =>
        ({ ...real, time: begun + uptime, uptime, totals: { ...real.totals, allowed } }));
      await page.addInitScript((list) => {
        const ask = window.fetch;
        window.fetch = async (path, options) => {
          if (path === "v1/history") return Response.json({}, { status: 404 });
          return path === "v1/stats" ? Response.json(list.length > 1 ? list.shift() : list[0]) : ask(path, options);
        };
      }, answers);
      await page.goto(server.base);
      const { allowed } = await until(async () => {
        const it = await known(page);
        return it.allowed.at(-1) === 10 && it;
      }, "what the new counters say");
      assert.deepEqual(allowed.slice(-2), [20, 10]);
    }, { open: null });

    await harness.test("loss: the server hangs, and goes on", server, async (page) => {
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
      server.process.child.kill("SIGSTOP");
      try {
        await page.getByRole("alert").filter({ hasText: "The server does not answer" }).waitFor();
        assert.equal((await known(page)).why, "no answer in time");
      } finally {
        server.process.child.kill("SIGCONT");
      }
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live again");
    }, { patient: false });

    await harness.test("loss: a page that was paused meanwhile stays so", server, async (page) => {
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
      const held = await new Promise((resolve) => {
        page.route("**/v1/stats", resolve, { times: 1 });
      });
      await page.getByRole("button", { name: "Pause" }).click();
      await held.abort();
      await until(async () => (await known(page)).why !== "", "it to hear that there is no answer");
      assert.equal(await text(page, "#state-text"), "Paused");
      assert.equal(await page.getByText("The server does not answer").count(), 0, "nor does it try again");
      await page.getByRole("button", { name: "Resume" }).click();
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live again");
    }, { expected: [/ERR_FAILED/] });
  } finally {
    await server.close();
  }
}

async function tokenAsked(harness) {
  const server = await Server.start({ token: "a-token-of-the-tests-1234567890" });
  const refused = [/status of 40[13]/];
  const dialog = (page) => page.getByRole("dialog", { name: "This server needs a token" });
  try {
    await harness.test("loss: a token is asked for, checked and kept for the tab", server, async (page, room) => {
      await dialog(page).waitFor();
      await shot(page, "token");
      await page.getByRole("textbox", { name: "Token" }).fill("wrong");
      await page.keyboard.press("Enter");
      await page.getByText("does not accept this token").waitFor();
      await page.getByRole("textbox", { name: "Token" }).fill(server.options.token);
      await page.getByRole("button", { name: "Use token" }).click();
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
      await page.reload();
      await until(async () => (await text(page, "#state-text")) === "Live", "the token to be remembered");
      assert.equal(await page.evaluate(() => JSON.stringify(localStorage)), "{}", "not beyond the tab");
      const other = await room.newPage();
      await other.goto(server.base);
      await dialog(other).waitFor();
    }, { expected: refused });

    await harness.test("loss: no token, no nagging", server, async (page) => {
      await dialog(page).waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("alert").filter({ hasText: "needs a token" }).waitFor();
      assert.equal(await text(page, "#state-text"), "Locked");
      await page.waitForTimeout(2500);
      assert.equal(await dialog(page).count(), 0);
      await page.getByRole("button", { name: "Enter token" }).click();
      await dialog(page).waitFor();
      await page.getByRole("textbox", { name: "Token" }).fill(server.options.token);
      await page.keyboard.press("Enter");
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    }, { expected: refused });
  } finally {
    await server.close();
  }
}

async function storeLost(harness) {
  const port = await freePort();
  const redis = new Process("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
  await until(() => redis.said.includes("Ready to accept connections"), "redis-server");
  const server = await Server.start({ store: `redis://127.0.0.1:${port}` });
  try {
    await harness.test("loss: an unreachable store is reported", server, async (page) => {
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
      const load = server.load(30, (i) => ({ policy: "api", key: `u${i % 5}` }));
      await until(async () => number(await text(page, "#rate-allowed")) > 2, "a rate");
      assert.match(await text(page, "#zone"), /The state is kept in redis/);
      await redis.stop("SIGKILL");
      await page.getByRole("alert").filter({ hasText: "The store is unreachable" }).waitFor();
      await shot(page, "degraded");
      await load();
    });
  } finally {
    await server.close();
    await redis.stop("SIGKILL");
  }
}

async function slicesShown(harness) {
  const port = await freePort();
  const redis = new Process("redis-server", ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
  await until(() => redis.said.includes("Ready to accept connections"), "redis-server");
  const server = await Server.start({ store: `redis://127.0.0.1:${port}?slices=10%25&peers=2&slice-life=5s` });
  try {
    await harness.test("overview: what slices decide, hold and lose", server, async (page) => {
      const load = server.load(60, () => ({ key: "hot", limit: "token-bucket 1000/s" }));
      const plain = (text) => number(text.replaceAll(",", ""));
      await until(async () => plain((await text(page, "#zone")).match(/Decided without asking Redis\s*([\d,]+)/)?.[1] || "0") > 20, "decisions of slices");
      await load();
      const figures = ["Units held", "Units taken", "Units returned", "Units lost", "Calls for slices"];
      const shown = await text(page, "#zone");
      for (const name of figures) assert.ok(shown.includes(name), `${name} in ${shown}`);
      await shot(page, "slices");
    });
  } finally {
    await server.close();
    await redis.stop("SIGKILL");
  }
}

export async function losing(harness) {
  await serverGone(harness);
  await betweenTwoLooks(harness);
  await tokenAsked(harness);
  await storeLost(harness);
  await slicesShown(harness);
}
