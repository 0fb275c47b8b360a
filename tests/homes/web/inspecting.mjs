/* The inspector: what it says is what the API says, and its two buttons do what they say. */
import assert from "node:assert/strict";
import { shot, text } from "./harness.mjs";
import { until } from "./server.mjs";

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
    const dialog = page.getByRole("dialog", { name: "Reset these keys?" });
    await dialog.getByRole("checkbox", { name: "login/{ip=198.51.100.7}" }).waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    assert.equal((await server.post("v1/explain", { policy: "login", key: "198.51.100.7" })).body.allowed, false);
    await page.getByRole("button", { name: "Reset…" }).click();
    await dialog.getByRole("button", { name: "Reset" }).click();
    await page.getByText("Reset done.").waitFor();
    await until(async () => (await left(page)) === "5 of 5", "all of it back");
    assert.equal((await server.post("v1/explain", { policy: "login", key: "198.51.100.7" })).body.allowed, true);
    await page.getByRole("button", { name: "Reset…" }).click();
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
    await page.getByRole("checkbox", { name: "shared/everybody/{all}" }).uncheck();
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
}
