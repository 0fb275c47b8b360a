/*
 * The browser, and checks that count. A case gets a fresh page and fails if the page writes an error to the
 * console, throws, breaks the content security policy, or asks another host for anything.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const CASE_MS = 900000;
const STEP_MS = 60000;

/* Where screenshots go, if anywhere. */
const shots = process.env.WEIR_SHOTS || "";

export async function launch() {
  const said = execFileSync(path.join(here, "deps.sh"), { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  const [folder, executablePath] = said.trim().split("\n");
  const require = createRequire(path.join(folder, "here.js"));
  const { chromium } = require("playwright-core");
  /* Containers often run as root without user namespaces; what is opened here is our own page only. */
  return chromium.launch({ executablePath, args: ["--no-sandbox"], chromiumSandbox: false });
}

/* The page gives up a question after some seconds. On a slow machine they pass although nothing is wrong: it waits for as long as
 * a step may take. Runs in the page. */
function wait() {
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = (ms) => timeout(10 * ms);
}

export class Harness {
  constructor(wanted) {
    Object.assign(this, { wanted, browser: null, passed: 0, failed: 0 });
    if (shots) mkdirSync(shots, { recursive: true });
  }

  /* test("name", server, async (page, note) => …, {context: {…}, expected: [/console texts/], patient: false}) */
  async test(name, server, body, { context = {}, expected = [], open = "", patient = true } = {}) {
    if (this.wanted && !name.includes(this.wanted)) return;
    const wrong = [];
    const setup = { viewport: { width: 1280, height: 860 }, colorScheme: "light", reducedMotion: "reduce", ...context };
    const room = await this.browser.newContext(setup);
    room.setDefaultTimeout(STEP_MS);
    try {
      if (patient) await room.addInitScript(wait);
      const page = await room.newPage();
      this.watch(page, server, wrong, expected);
      if (open !== null) await page.goto(server.base + open);
      let timer;
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error("took too long")), CASE_MS);
      });
      await Promise.race([body(page, room), late]);
      clearTimeout(timer);
      assert.deepEqual(wrong, [], "what the page did besides");
      this.passed++;
      console.log(`ok   ${name}`);
    } catch (error) {
      this.failed++;
      console.log(`FAIL ${name}: ${error.stack}${wrong.length ? `\nbesides: ${wrong.join("\n")}` : ""}`);
    } finally {
      await room.close();
    }
  }

  watch(page, server, wrong, expected) {
    const allow = (text) => expected.some((pattern) => pattern.test(text));
    page.on("console", (message) => {
      const text = message.text();
      if (["error", "warning"].includes(message.type()) && !allow(text)) wrong.push(`console: ${text}`);
    });
    page.on("pageerror", (error) => wrong.push(`thrown: ${error.stack}`));
    page.on("dialog", (dialog) => {
      wrong.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("request", (request) => {
      if (!request.url().startsWith(server.base)) wrong.push(`asked ${request.url()}`);
    });
  }

  report() {
    console.log(`${this.passed} passed, ${this.failed} failed`);
    return this.failed ? 1 : 0;
  }
}

export async function shot(page, name) {
  if (shots) await page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
}

/* The text of an element, without what is around it. */
export const text = async (page, selector) => ((await page.textContent(selector)) ?? "").trim();

/* "1,234", "12.4k", "3.02M" and "–" as numbers. */
export function number(shown) {
  const found = /^(\d[\d,]*\.?\d*)([kMG]?)/.exec(shown);
  if (!found) return NaN;
  return Number(found[1].replaceAll(",", "")) * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[found[2]];
}
