/* The pages of `weir replay --report` and `weir suggest --report`: no console errors, no network, readable on a phone, light and dark, on paper. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { shot } from "./harness.mjs";
import { WEIR } from "./server.mjs";

const START = 1794810525;
const LIMITS = ["--limit", "tight=token-bucket 5/m burst 10, fixed-window 100/h", "--limit", "shaped=leaky-bucket 1/s burst 30"];

/* Two hours of a log; one client floods, and calls itself what a browser must not run. */
function log() {
  const lines = [];
  for (let second = 0; second < 7200; second++) {
    const stamp = new Date((START + second) * 1000).toISOString().replace("Z", "+00:00");
    const put = (ip, agent) => lines.push(JSON.stringify({ time: stamp, remote_addr: ip, user_agent: agent }));
    put(`10.1.0.${(second * 7) % 200}`, "curl");
    for (let i = 0; i < 9 && second > 2000 && second < 2600; i++) put("203.0.113.9", "<script>document.title='run'</script>");
  }
  return `${lines.join("\n")}\n<img src=x onerror=alert(1)>\n`;
}

export async function reporting(harness) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "weir-report-"));
  try {
    writeFileSync(path.join(folder, "access.log"), log());
    const page = path.join(folder, "report.html");
    const words = ["replay", ...LIMITS, "--key", "agent, ip", "--json", "--report", page, path.join(folder, "access.log")];
    const told = JSON.parse(execFileSync(WEIR, words, { encoding: "utf8" }));
    const file = { base: `file://${page}` };
    for (const [width, colorScheme] of [[390, "dark"], [1280, "light"]]) {
      const context = { viewport: { width, height: 900 }, colorScheme };
      await harness.test(`report: at ${width} pixels, ${colorScheme}`, file, async (it) => {
        assert.equal(await it.title(), "weir replay");
        assert.equal(await it.evaluate(() => document.documentElement.scrollWidth), width);
        for (const candidate of told.candidates) {
          const section = it.locator("section", { has: it.getByRole("heading", { name: candidate.name, exact: true }) });
          const fact = async (name) => Number((await section.locator(".facts div", { hasText: name }).first().locator("b").textContent()).replace(/\u202f/g, ""));
          assert.equal(await fact("denied"), candidate.denied);
          assert.equal(await fact("allowed"), candidate.allowed);
          assert.ok(await section.locator("svg").isVisible());
        }
        await it.locator("td.key", { hasText: "<script>" }).first().waitFor();
        const [ground, text] = await it.evaluate(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]);
        assert.equal(ground === "rgb(255, 255, 255)", colorScheme === "light", `${ground} ${text}`);
        await shot(it, `report-${width}-${colorScheme}`);
        if (width === 1280) assert.ok((await it.pdf()).length > 10000);
      }, { context });
    }
    const asked = path.join(folder, "suggest.html");
    execFileSync(WEIR, ["suggest", "--spare", "10.1.0.7", "--report", asked, path.join(folder, "access.log")]);
    await harness.test("report: what is suggested, at 390 pixels", { base: `file://${asked}` }, async (it) => {
      assert.equal(await it.evaluate(() => document.documentElement.scrollWidth), 390);
      await it.locator("dd", { hasText: "10.1.0.7 with " }).first().waitFor();
      await it.locator("pre", { hasText: "weir replay --limit " }).waitFor();
    }, { context: { viewport: { width: 390, height: 900 } } });
  } finally {
    rmSync(folder, { recursive: true });
  }
}
