/* The inspector: what it says is what the API says, and its two buttons do what they say. */
import assert from "node:assert/strict";
import { shot, text } from "./harness.mjs";
import { Server, until } from "./server.mjs";

const REFUSED = [/status of 4\d\d/]; /* the browser's own line on an answer of that kind */

export async function inspecting(harness, server) {
  const left = (page) => text(page, "#inspect-limits .left .num");

  await harness.test("inspector: a policy's key, taken, denied and reset", server, async (page) => {
    await page.locator("#inspect-policy").selectOption("login");
    await page.getByLabel("Key", { exact: true }).fill("198.51.100.7");
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.getByText("A request would be allowed.").waitFor();
    assert.equal(await left(page), "5 of 5");
    await page.locator("#inspect-limits").getByText("fixed-window 5/h from-first").waitFor();
    for (let i = 4; i >= 0; i--) {
      await page.getByRole("button", { name: "Take one" }).click();
      await until(async () => (await left(page)) === `${i} of 5`, `${i} left`);
    }
    await page.getByText(/A request would be denied. It would be allowed in (1 h|5\d m)/).waitFor();
    await page.getByRole("button", { name: "Take one" }).click();
    await page.getByText("Denied. Nothing was charged").waitFor();
    const api = (await server.post("v1/explain", { policy: "login", key: "198.51.100.7" })).body;
    assert.equal(api.allowed, false);
    assert.equal(api.limits[0].remaining, 0);
    await shot(page, "inspector-denied");

    await page.getByRole("button", { name: "Reset…" }).click();
    const dialog = page.getByRole("dialog", { name: "Which keys should start again?" });
    const box = dialog.getByRole("checkbox", { name: "login/{ip=198.51.100.7}" });
    await box.waitFor();
    assert.equal(await box.isChecked(), false, "nothing is chosen for the reader");
    assert.ok(await dialog.getByRole("button", { name: "Reset" }).isDisabled(), "nor can it be reset");
    await dialog.getByText("fixed-window 5/h from-first used 5 of 5").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    assert.equal((await server.post("v1/explain", { policy: "login", key: "198.51.100.7" })).body.allowed, false);
    await page.getByRole("button", { name: "Reset…" }).click();
    await box.check();
    await dialog.getByRole("button", { name: "Reset" }).click();
    await page.getByText("Reset done.").waitFor();
    await until(async () => (await left(page)) === "5 of 5", "all of it back");
    assert.equal((await server.post("v1/explain", { policy: "login", key: "198.51.100.7" })).body.allowed, true);
    await page.getByRole("button", { name: "Reset…" }).click();
    await box.check();
    await dialog.getByRole("button", { name: "Reset" }).click();
    await page.getByText("Nothing to reset: there was no state.").waitFor();
    await server.post("v1/take", { attributes: { path: "/login", method: "POST", ip: "198.51.100.7" } });
    await until(async () => (await left(page)) === "4 of 5", "what its requests take is what is on show");
    await page.getByLabel("Key", { exact: true }).fill("ann");
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.getByText("is not an address").waitFor();
  }, { open: "#inspector", expected: REFUSED });

  await harness.test("inspector: a limit of one's own, followed as it refills", server, async (page) => {
    await page.getByRole("radio", { name: "A limit" }).check();
    await page.getByLabel("Limit", { exact: true }).fill("token-bucket 1/s burst 30");
    await page.getByLabel("Key", { exact: true }).fill("followed");
    await server.post("v1/take", { key: "followed", limit: "token-bucket 1/s burst 30", cost: 30 });
    await page.getByRole("button", { name: "Inspect" }).click();
    await until(async () => Number((await left(page)).split(" ")[0]) >= 3, "it to refill before our eyes");
    await page.getByRole("textbox", { name: "Cost" }).fill("31");
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.getByText("would never be allowed").waitFor();
    assert.match(page.url(), /#inspector\?.*limit=token-bucket/);
    await page.reload();
    await page.getByText("would never be allowed").waitFor();
    assert.equal(await page.inputValue("#inspect-cost"), "31");
  }, { open: "#inspector" });

  await harness.test("inspector: attributes find their policies", server, async (page) => {
    await page.getByRole("radio", { name: "Attributes" }).check();
    await page.getByLabel("Attributes, one per line").fill("path=/api/things\nuser=ann=1");
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.locator("#inspect-limits").getByText("api / per-user").waitFor();
    await page.locator("#inspect-limits").getByText("api / stricter").waitFor();
    await page.getByRole("button", { name: "Take one" }).click();
    await page.getByText("Taken: allowed").waitFor();
    await page.getByLabel("Attributes, one per line").fill("path=/nobody");
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.getByText("no policy applies").waitFor();
    await page.getByLabel("Attributes, one per line").fill("nonsense");
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.getByText("expected name=value").waitFor();
    await page.waitForResponse(/v1\/explain/); /* what was asked before is followed, and does not wipe it away */
    await page.waitForResponse(/v1\/explain/);
    assert.ok(await page.getByText("expected name=value").isVisible());
  }, { open: "#inspector", expected: REFUSED });

  await harness.test("inspector: a reset forgets the chosen keys only", server, async (page) => {
    const attributes = { path: "/shared", user: "eve" };
    for (let i = 0; i < 3; i++) await server.post("v1/take", { attributes });
    await page.goto(`${server.base}#inspector?attribute=path%3D%2Fshared&attribute=user%3Deve`);
    await page.getByRole("button", { name: "Reset…" }).click();
    await page.getByRole("checkbox", { name: "shared/everybody/{all}" }).check();
    await page.getByRole("checkbox", { name: "shared/everybody/{all}" }).uncheck();
    assert.ok(await page.getByRole("dialog").getByRole("button", { name: "Reset" }).isDisabled());
    await page.getByRole("checkbox", { name: "shared/mine/{user=eve}" }).check();
    await page.getByRole("dialog").getByRole("button", { name: "Reset" }).click();
    await page.getByText("Reset done.").waitFor();
    const limits = (await server.post("v1/explain", { attributes })).body.limits;
    assert.deepEqual(limits.map((limit) => [limit.name, limit.remaining]), [["mine", 10], ["everybody", 97]]);
  }, { open: "#inspector" });

  await harness.test("inspector: mistakes are named where they are", server, async (page) => {
    await page.getByRole("radio", { name: "A limit" }).check();
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.getByText("Expected a key").waitFor();
    assert.equal(await page.getAttribute("#inspect-key", "aria-invalid"), "true");
    await page.getByLabel("Key", { exact: true }).fill("k");
    await page.getByLabel("Limit", { exact: true }).fill("token-bucket 10");
    await page.getByRole("button", { name: "Inspect" }).click();
    await page.getByRole("alert").filter({ hasText: "expected a rate like 10/s" }).waitFor();
  }, { open: "#inspector", expected: REFUSED });

  await harness.test("inspector: answers that come late change nothing that was typed", server, async (page) => {
    const fields = async () => [await page.inputValue("#inspect-policy"), await page.inputValue("#inspect-key"), await page.inputValue("#inspect-cost")];
    const inspects = async (key, cost) => {
      await page.getByLabel("Key", { exact: true }).fill(key);
      await page.getByRole("textbox", { name: "Cost" }).fill(cost);
      await page.getByRole("button", { name: "Inspect" }).click();
      await page.locator("#inspect-limits").getByText(key).waitFor();
    };
    const policies = await hold(page, "**/v1/policies");
    await page.goto(`${server.base}#inspector?policy=login&key=198.51.100.20`);
    assert.deepEqual(await fields(), ["login", "198.51.100.20", ""], "the question is there before the names of all policies");
    await inspects("198.51.100.21", "2");
    policies.release();
    await until(async () => (await page.locator("#inspect-policy option").count()) === 4, "all policies");
    assert.deepEqual(await fields(), ["login", "198.51.100.21", "2"]);

    const state = await hold(page, "**/v1/explain");
    await page.goto(`${server.base}#inspector?policy=login&state=${encodeURIComponent("login/{ip=198.51.100.22}")}`);
    await state.reached;
    await inspects("198.51.100.23", "3");
    state.release();
    await page.waitForResponse(/v1\/explain/); /* what was asked is followed */
    await page.waitForResponse(/v1\/explain/);
    assert.deepEqual(await fields(), ["login", "198.51.100.23", "3"]);
    assert.match(page.url(), /key=198.51.100.23&cost=3$/);
  }, { open: null });

  await months(harness);
}

/* Holds the page's next request of that address until it is released; those after it go on. */
async function hold(page, address) {
  const held = {};
  const released = new Promise((resolve) => { held.release = resolve; });
  held.reached = new Promise((resolve) => {
    page.route(address, async (route) => {
      resolve();
      await released;
      await route.continue();
    }, { times: 1 });
  });
  return held;
}

const MONTHS = `version: 1
policies:
  - name: tokens
    match: by-name
    key: customer
    limits:
      - {name: minute, limit: fixed-window 20k/m from-first}
      - {name: month, limit: fixed-window 1m/month from 15 zone +08:00, cost: {of: tokens, default: 400}}
`;

/* What is used, and when the month ends: for a reader whose clock is not that of the limit, and also if nothing is used. */
async function months(harness) {
  const server = await Server.start({ policies: MONTHS, args: ["--test-clock"] });
  const chinese = "UTC+08:00 2026年12月15日 00:00";
  const readings = [
    ["en-US", "Europe/Berlin", "light", 1280, "used 1,200 of", "28 d 4 h", "Starts again on Dec 14, 2026, 17:00 your time (Dec 15, 2026, 00:00 UTC+08:00)"],
    ["en-US", "UTC", "dark", 390, "used 1,200 of", "28 d 4 h", "Starts again on Dec 14, 2026, 16:00 your time (Dec 15, 2026, 00:00 UTC+08:00)"],
    ["zh-CN", "UTC", "dark", 1280, "已用 1,200 /", "28 天 4 小时", `重新计数：本地时间 2026年12月14日 16:00（${chinese}）`],
    ["zh-CN", "America/New_York", "light", 390, "已用 1,200 /", "28 天 4 小时", `重新计数：本地时间 2026年12月14日 11:00（${chinese}）`],
    ["zh-CN", "Asia/Shanghai", "dark", 390, "已用 1,200 /", "28 天 4 小时", `重新计数：${chinese}`],
  ];
  await fetch(`${server.base}v1/clock`, { method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ now: Date.parse("2026-11-16T12:00:00Z") / 1000 }) });
  await server.post("v1/take", { policy: "tokens", key: "bob", cost: 1200 });
  try {
    for (const [locale, timezoneId, colorScheme, width, used, after, edge] of readings) {
      await harness.test(`inspector: a month for ${locale} in ${timezoneId}, ${width} pixels`, server, async (page) => {
        const month = page.locator("#inspect-limits tbody").filter({ hasText: "tokens / month" });
        const shown = async () => [(await month.locator(".used").textContent()), (await month.locator("td").nth(3).textContent()),
          (await month.locator(".edge").textContent())];
        const picture = (name) => shot(page, `${name}-${locale}-${timezoneId.replace("/", "-")}-${width}-${colorScheme}`);
        await month.waitFor();
        assert.deepEqual(await shown(), [`${used} 1,000,000`, after, edge]);
        const widest = await page.evaluate(() => Math.max(...["inspect-limits", "inspect-table"]
          .map((id) => document.getElementById(id).getBoundingClientRect().right)));
        assert.ok(widest <= width, `the table ends at ${widest}`);
        await picture("month");
        await page.locator("#reset").click();
        await picture("month-reset");
        await page.keyboard.press("Escape");
        await page.goto(`${server.base}#inspector?policy=tokens&key=nobody`);
        await month.getByText("nobody").waitFor();
        assert.deepEqual(await shown(), [`${used.replace("1,200", "0")} 1,000,000`, "–", edge], "nothing is used, but the month ends");
        await picture("month-unused");
      }, { open: "#inspector?policy=tokens&key=bob", context: { locale, timezoneId, colorScheme, viewport: { width, height: 860 } } });
    }
    await harness.test("inspector: what charges is far from what resets", server, async (page) => {
      await page.getByRole("button", { name: "Take one: charges minute 1, month 400", exact: true }).waitFor();
      const [take, reset] = await page.evaluate(() => ["take", "reset"].map((id) => document.getElementById(id).getBoundingClientRect()));
      assert.ok(reset.left - take.right > 100, `${take.right} to ${reset.left}`);
      await page.locator("#language").click();
      await page.getByRole("button", { name: "发起一次请求，扣减 minute 1、month 400", exact: true }).waitFor();
    }, { open: "#inspector?policy=tokens&key=bob" });
    await harness.test("inspector: the button names what it charges", server, async (page) => {
      const named = (amount) => page.getByRole("button", { name: `Take one: charges ${amount}`, exact: true });
      assert.equal(await page.getAttribute("#inspect-cost", "placeholder"), "the policy's own, or 1");
      for (const cost of ["1", "2000"]) {
        await page.locator("#inspect-cost").fill(cost);
        await page.getByRole("button", { name: "Inspect" }).click();
        await named(cost === "1" ? "1" : "2,000").waitFor();
      }
      await named("2,000").click();
      await page.getByText("Taken: allowed").waitFor();
      const { limits } = (await server.post("v1/explain", { policy: "tokens", key: "eve" })).body;
      assert.deepEqual(limits.map((limit) => [limit.cost, limit.limit - limit.remaining]), [[1, 2000], [400, 2000]]);
    }, { open: "#inspector?policy=tokens&key=eve" });
  } finally {
    await server.close();
  }
}
