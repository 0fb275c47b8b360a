/* For everybody: keyboards, screen readers, phones, light and dark. */
import assert from "node:assert/strict";
import { shot, text } from "./harness.mjs";
import { until } from "./server.mjs";

export const PHONE = 360; /* pixels wide; a phone's browser widens the window itself to what does not fit */
export const VIEWS = ["overview", "policies", "keys", "inspector?policy=api&key=ann", "playground"];

/* Keys are forgotten after two minutes: there is one when they are looked at, and it needs much room. */
async function takeForKeys(page) {
  const body = JSON.stringify({ policy: "api", key: `somebody-${"with-a-long-name-".repeat(20)}` });
  await page.evaluate((it) => fetch("/v1/take", { method: "POST", headers: { "Content-Type": "application/json" }, body: it }), body);
}

export async function open(page, view) {
  const name = view.split("?")[0];
  if (name === "keys") await takeForKeys(page);
  await page.evaluate((hash) => {
    location.hash = hash;
  }, view);
  await page.locator(`#view-${name}:visible`).waitFor();
  if (name === "policies") await page.getByRole("article", { name: "api" }).waitFor();
  if (name === "keys") await page.getByRole("article", { name: "api" }).waitFor();
  if (name === "inspector") await page.locator("#inspect-result:visible").waitFor();
  if (name === "playground") await page.locator("#play-result:visible").waitFor();
  await page.waitForTimeout(150);
  return name;
}

/* Text whose contrast with what is behind it is below WCAG's AA. Runs in the page. */
export function faint() {
  const parse = (color) => {
    const room = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    room.fillStyle = color;
    room.fillRect(0, 0, 1, 1);
    return [...room.getImageData(0, 0, 1, 1).data];
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest(":disabled, .unseen, .skip, noscript, option")) continue;
    const style = getComputedStyle(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${walker.currentNode.data.trim().slice(0, 40)}`);
  }
  return found;
}

export async function reaching(harness, server) {
  for (const scheme of ["light", "dark"]) {
    await harness.test(`reach: ${scheme}, every text can be read`, server, async (page) => {
      await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const [red] = /\d+/.exec(ground);
      assert.ok(scheme === "dark" ? Number(red) < 40 : Number(red) > 220, ground);
      for (const view of VIEWS) {
        const name = await open(page, view);
        await shot(page, `${name}-${scheme}`);
        assert.deepEqual(await page.evaluate(faint), [], name);
      }
    }, { context: { colorScheme: scheme } });
  }

  await harness.test("reach: nothing but the server's own files may run", server, async (page) => {
    const response = await page.goto(server.base);
    const policy = response.headers()["content-security-policy"];
    assert.match(policy, /default-src '(none|self)'/);
    assert.doesNotMatch(policy, /unsafe|data:|\*/);
    const kinds = await page.evaluate(() => [...document.querySelectorAll("script, link[rel=stylesheet]")]
      .map((e) => new URL(e.src || e.href).origin === location.origin && !e.textContent.trim()));
    assert.ok(kinds.length >= 3 && kinds.every(Boolean), "no script or style but from files");
  });

  await harness.test("reach: the chosen theme is kept", server, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await page.getByRole("button", { name: "Theme: auto" }).click();
    await page.getByRole("button", { name: "Theme: light" }).click();
    await page.getByRole("button", { name: "Theme: dark" }).waitFor();
    const dark = await ground();
    assert.notEqual(dark, light);
    await page.reload();
    assert.equal(await ground(), dark);
    await page.getByRole("button", { name: "Theme: dark" }).click();
    assert.equal(await ground(), light);
  });

  await harness.test("reach: a phone never scrolls sideways", server, async (page) => {
    await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    for (const view of VIEWS) {
      const name = await open(page, view);
      await shot(page, `${name}-phone`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= PHONE, `${name} is ${wide} px wide`);
      const cut = await page.evaluate((most) => [...document.querySelectorAll("nav a, .top button")]
        .filter((e) => e.getBoundingClientRect().right > most + 1).map((e) => e.textContent), PHONE);
      assert.deepEqual(cut, [], "in the bar at the top");
    }
  }, { context: { viewport: { width: PHONE, height: 740 }, hasTouch: true, isMobile: true } });

  await harness.test("reach: landmarks, and a name for all that can be used", server, async (page, room) => {
    await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    const tools = await room.newCDPSession(page);
    const needName = new Set(["button", "link", "textbox", "searchbox", "combobox", "checkbox", "radio", "radiogroup", "image", "img",
      "meter", "table", "region", "navigation", "dialog", "heading", "article"]);
    for (const view of VIEWS) {
      const name = await open(page, view);
      const { nodes } = await tools.send("Accessibility.getFullAXTree");
      const seen = nodes.filter((node) => !node.ignored).map((node) => [node.role.value, node.name ? node.name.value : ""]);
      const roles = new Set(seen.map(([role]) => role));
      for (const role of ["banner", "navigation", "main", "heading", "status"]) assert.ok(roles.has(role), `${name}: no ${role}`);
      const nameless = seen.filter(([role, label]) => needName.has(role) && !label.trim());
      assert.deepEqual(nameless, [], name);
      assert.equal(seen.filter(([role, label]) => role === "link" && label === "Overview").length, 1);
      assert.equal(await page.getByRole("heading", { level: 1 }).filter({ visible: true }).count(), 1);
      assert.equal(await page.locator("nav [aria-current=page]").count(), 1);
    }
  });

  await harness.test("reach: all of it by keyboard", server, async (page) => {
    const focused = () => page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id);
    await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    await page.keyboard.press("Tab");
    assert.equal(await focused(), "Skip to content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    for (let i = 0; i < 12 && (await focused()) !== "Inspector"; i++) await page.keyboard.press("Shift+Tab");
    assert.equal(await focused(), "Inspector");
    const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(ring, "solid", "the focus can be seen");
    await page.keyboard.press("Enter");
    await until(async () => (await page.evaluate(() => document.activeElement.id)) === "inspector-title", "the heading to have the focus");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.value), "policy");
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.evaluate(() => document.activeElement.value), "limit");
    await page.keyboard.press("Tab");
    await page.keyboard.type("sliding-log 3/m");
    await page.keyboard.press("Tab");
    await page.keyboard.type("keyboard");
    await page.keyboard.press("Enter");
    await page.getByText("A request would be allowed.").waitFor();
    await page.locator("#take").focus();
    await page.keyboard.press("Space");
    await page.getByText("Taken: allowed").waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await until(async () => (await page.getByRole("dialog").count()) === 0, "the dialog to go");
    assert.equal(await page.evaluate(() => document.activeElement.id), "reset", "the focus is back where it was");
  });
}
