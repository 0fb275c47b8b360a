/* The playground: it draws what POST /v1/simulate says, and links say it again. */
import assert from "node:assert/strict";
import { number, shot, text } from "./harness.mjs";
import { until } from "./server.mjs";

const REFUSED = [/status of 400/];

/* The body that the page sends for its own address. */
function bodyOf(url) {
  const words = new URLSearchParams(url.split("#playground?")[1]);
  const load = { kind: words.get("kind") };
  for (const [name, value] of words) {
    if (name !== "kind" && name !== "limit" && name !== "shared") load[name] = Number(value);
  }
  return { limits: words.getAll("limit"), load, shared: words.has("shared") };
}

const settled = (page) => page.locator("#play-result:visible").waitFor();

async function agrees(page, server) {
  const { status, body } = await server.post("v1/simulate", bodyOf(page.url()));
  assert.equal(status, 200);
  const rows = page.locator("#play-rows tr");
  assert.equal(await rows.count(), body.limits.length);
  for (const [i, limit] of body.limits.entries()) {
    const cells = await rows.nth(i).locator("th, td").allTextContents();
    assert.equal(cells[0], limit.limit);
    assert.equal(number(cells[1]), limit.admitted);
    assert.equal(number(cells[2]), limit.denied);
    assert.equal(number(cells[3]), limit.delayed);
    assert.ok(cells[5].startsWith(limit.rules[0].most.toLocaleString("en")), `${cells[5]} for ${limit.rules[0].most}`);
    const panel = page.getByRole("article", { name: limit.limit, exact: true });
    const bars = async (name) => ((await panel.locator(`.bar-${name}`).getAttribute("d")).match(/M/g) || []).length;
    const full = (bins) => bins.filter((n) => n > 0).length;
    assert.equal(await bars("allowed"), full(limit.ahead_bins.map((n, k) => n - limit.waited_bins[k])));
    assert.equal(await bars("waited"), full(limit.waited_bins));
    assert.equal(await bars("denied"), full(limit.admitted_bins.map((n, k) => (limit.arrivals || body.arrivals)[k] - n)));
  }
  return body;
}

/* Heights of the bars, in the order of the bins that have one. */
async function heights(page, limit) {
  const path = await page.getByRole("article", { name: limit, exact: true }).locator(".bar-allowed").getAttribute("d");
  return path.split("M").slice(1).map((bar) => {
    const [, low, high] = /^\S+ ([\d.]+)V([\d.]+)/.exec(bar);
    return Number(low) - Number(high);
  });
}

/* Whether an element has shown a text since: the page itself looks, since the text may go before a slow machine does. */
async function noticed(page, selector, words) {
  const found = await page.evaluateHandle(([place, wanted]) => {
    const [element, it] = [document.querySelector(place), { seen: false }];
    new MutationObserver(() => {
      it.seen ||= element.textContent === wanted && element.checkVisibility();
    }).observe(element, { childList: true, characterData: true, subtree: true });
    return it;
  }, [selector, words]);
  return () => found.evaluate((it) => it.seen);
}

export async function playing(harness, server) {
  await harness.test("playground: the trap at a window's edge", server, async (page) => {
    await settled(page);
    const answer = await agrees(page, server);
    const fixed = answer.limits.find((limit) => limit.limit === "fixed-window 120/m");
    assert.equal(fixed.rules[0].most, 240);
    await page.locator("#play-rows").getByText("2 ×").waitFor();
    const drawn = await heights(page, "fixed-window 120/m");
    const bins = fixed.ahead_bins.filter((n) => n > 0);
    drawn.forEach((height, i) => assert.ok(Math.abs(height / drawn[0] - bins[i] / bins[0]) < 0.02));
    await shot(page, "playground-light");
  }, { open: "#playground" });

  await harness.test("playground: every example plays", server, async (page) => {
    await settled(page);
    for (const button of await page.getByRole("list", { name: "Examples" }).getByRole("button").all()) {
      await button.click();
      const name = await button.textContent();
      await until(async () => (await button.getAttribute("aria-pressed")) === "true", name);
      await until(async () => (await page.getAttribute("#play-run", "aria-busy")) === null, "the answer");
      assert.equal(await page.locator("#play-error:visible").count(), 0, name);
      await agrees(page, server);
    }
  }, { open: "#playground" });

  await harness.test("playground: classes that share a state", server, async (page, room) => {
    await settled(page);
    await page.getByRole("button", { name: "Shares", exact: true }).click();
    await until(async () => (await page.locator("#play-rows tr").count()) === 3, "three rows");
    assert.ok(await page.getByLabel("They share one state").isChecked());
    const { limits, requests } = await agrees(page, server);
    assert.equal(limits.reduce((sum, limit) => sum + limit.requests, 0), requests);
    const parts = limits.map((limit) => limit.admitted / limit.requests);
    assert.ok(parts[0] > parts[1] && parts[1] > parts[2], parts.join(" "));
    await shot(page, "playground-shares");
    const before = await page.locator("#play-rows").textContent();
    const other = await room.newPage();
    await other.goto(page.url());
    await settled(other);
    await until(async () => (await other.locator("#play-rows").textContent()) === before, "the link to show the same");
    await page.getByRole("textbox", { name: "Limit 2" }).fill("token-bucket 10/m burst 32");
    await page.getByRole("button", { name: "Play" }).click();
    await page.getByText("does not share the state of limits[0]").waitFor();
    assert.equal(await page.getByRole("textbox", { name: "Limit 2" }).getAttribute("aria-invalid"), "true");
    await page.getByLabel("They share one state").uncheck();
    await page.getByRole("button", { name: "Play" }).click();
    await until(async () => (await page.locator("#play-error:visible").count()) === 0, "it to play again");
    const { limits: apart } = await agrees(page, server);
    assert.equal(apart[0].arrivals, undefined);
  }, { open: "#playground", expected: REFUSED });

  await harness.test("playground: a load of one's own, and its link", server, async (page, room) => {
    await settled(page);
    await page.getByRole("radio", { name: "Bursts" }).check();
    await page.getByLabel("At once").fill("25");
    await page.getByLabel("Every").fill("2");
    await page.getByLabel("Steady background").fill("3");
    await page.getByLabel("For", { exact: true }).fill("20");
    while ((await page.getByRole("button", { name: /^Remove limit/ }).count()) > 1) {
      await page.getByRole("button", { name: /^Remove limit/ }).last().click();
    }
    await page.getByRole("textbox", { name: "Limit 1" }).fill("Leaky-Bucket 5/s burst 20");
    await page.getByRole("button", { name: "Add a limit" }).click();
    await page.getByRole("textbox", { name: "Limit 2" }).fill("token-bucket 5/s, fixed-window 60/m");
    await page.keyboard.press("Enter");
    await until(async () => (await page.locator("#play-rows tr").count()) === 2, "two rows");
    const answer = await agrees(page, server);
    assert.equal(answer.requests, 250 + 60);
    assert.ok(answer.limits[0].delayed > 0);
    const before = await page.locator("#play-rows").textContent();
    const other = await room.newPage();
    await other.goto(page.url());
    await settled(other);
    await until(async () => (await other.locator("#play-rows").textContent()) === before, "the link to show the same");
    assert.equal(await other.inputValue("#play-burst"), "25");
    await room.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.bringToFront();
    const copied = await noticed(page, "#play-copied", "Copied");
    await page.getByRole("button", { name: "Copy link" }).click();
    await until(copied, "the word that it is copied");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), page.url());
  }, { open: "#playground" });

  await harness.test("playground: what is wrong is shown where it is", server, async (page) => {
    await settled(page);
    await page.getByRole("textbox", { name: "Limit 2" }).fill("token-bucket 10");
    await page.getByRole("button", { name: "Play" }).click();
    await page.getByText("expected a rate like 10/s").waitFor();
    assert.equal(await page.getByRole("textbox", { name: "Limit 2" }).getAttribute("aria-invalid"), "true");
    await page.getByRole("textbox", { name: "Limit 2" }).fill("token-bucket 10/s");
    await page.getByLabel("For", { exact: true }).fill("-1");
    await page.getByRole("button", { name: "Play" }).click();
    await page.getByText("load.seconds is -1").waitFor();
    assert.equal(await page.getAttribute("#play-seconds", "aria-invalid"), "true");
    await page.getByLabel("For", { exact: true }).fill("120");
    await page.getByLabel("On each side").fill("100000");
    await page.getByRole("button", { name: "Play" }).click();
    await page.getByText("lower load.seconds").waitFor();
    await page.getByLabel("On each side").fill("10");
    await page.getByRole("button", { name: "Play" }).click();
    await until(async () => (await text(page, "#play-caption")).includes("20 requests"), "it to play again");
    assert.equal(await page.locator("#play-error:visible").count(), 0);
    assert.ok(await page.getByRole("button", { name: "Add a limit" }).isDisabled());
  }, { open: "#playground", expected: REFUSED });

  await harness.test("playground: bins are read by keyboard, pointer and table", server, async (page) => {
    await settled(page);
    const plot = page.getByRole("img", { name: /^fixed-window 120\/m:/ });
    await plot.focus();
    await page.keyboard.press("End");
    await page.keyboard.press("ArrowLeft");
    await until(async () => /0 arrived, 0 went ahead/.test(await text(page, "#play-spoken")), "a spoken bin");
    for (let i = 0; i < 58; i++) await page.keyboard.press("ArrowLeft");
    await until(async () => /^1 m: 20 arrived, 20 went ahead, 0 denied$/.test(await text(page, "#play-spoken")), "the bin behind the edge");
    await plot.hover();
    await until(async () => /20 arrived/.test(await page.locator(".bars-readout").first().textContent()), "what the pointer is at");
    await until(async () => /20 arrived/.test(await page.locator(".bars-readout").last().textContent()), "all plots to share the cursor");
    await page.getByText("All bins as a table").click();
    const table = page.getByRole("table", { name: /that went ahead, per 1 s/ });
    await until(async () => (await table.locator("tbody tr").count()) === 120, "one row per bin");
    assert.equal(await table.locator("tbody tr").nth(60).locator("td").first().textContent(), "20");
  }, { open: "#playground" });
}
