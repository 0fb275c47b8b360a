/* Overview, policies and keys: the page shows what the server counts, and it moves. */
import assert from "node:assert/strict";
import { number, shot, text } from "./harness.mjs";
import { Server, until } from "./server.mjs";

const ask = (i) => (i % 10 === 0
  ? { policy: "login", key: "192.0.2.1" }
  : { policy: "api", key: `user:${i % 3 === 0 ? 1 : i % 40}` });

const EXCEPTIONS = `version: 1
policies:
  - name: api
    match: {path: /api/*}
    allow: [{user: {not: [ann, bob]}, ip: 10.0.0.0/8}]
    limits:
      - {name: per-user, key: user, limit: token-bucket 2/s burst 5}
      - {name: per-address, key: ip, limit: token-bucket 2/s burst 5}
    overrides:
      - {when: {user: "pro-*"}, entry: per-user, limit: token-bucket 20/s burst 50}
${Array.from({ length: 11 }, (_, i) => `      - {when: {user: "u${i}"}, entry: per-user, limit: token-bucket 3/s}\n`).join("")}  - name: internal
    deny:
      - {path: /internal/*}
      - {header.x-a: "*"}
`;

async function exceptions(harness) {
  const own = await Server.start({ policies: EXCEPTIONS });
  const rows = (place) => place.locator("li").allTextContents();
  try {
    for (const width of [1280, 390]) {
      await harness.test(`policies: whom a promise is not for, ${width} pixels`, own, async (page) => {
        const api = page.getByRole("article", { name: "api" });
        const limit = api.locator(".limit").filter({ hasText: "per-user" });
        await limit.getByText("Promise for all others: never more than 7 in any 1s").waitFor();
        await api.locator(".limit").filter({ hasText: "per-address" }).getByText("Promise: never more than 7 in any 1s").waitFor();
        const found = await rows(limit);
        assert.deepEqual([found.length, found[0], found[1], found.at(-1)],
          [11, "except: user is pro-*: token-bucket 20/s burst 50", "except: user is u0: token-bucket 3/s", "and 2 more"]);
        assert.deepEqual(await rows(api.locator("header")), ["Allow list: user is not ann or bob and ip is 10.0.0.0/8"]);
        const internal = page.getByRole("article", { name: "internal" });
        assert.deepEqual(await rows(internal), ["Deny list: path is /internal/*", "Deny list: header.x-a is present"]);
        await shot(page, `exceptions-${width}`);
        await page.getByRole("button", { name: "中文" }).click();
        await limit.getByText("其余请求的保证：任意 1 秒内不超过 7").waitFor();
        const chinese = await rows(limit);
        assert.deepEqual([chinese[0], chinese.at(-1)], ["例外：user 匹配 pro-* 时为 token-bucket 20/s burst 50", "另有 2 条"]);
        assert.deepEqual(await rows(api.locator("header")), ["白名单：user 不是 ann 或 bob，并且 ip 是 10.0.0.0/8"]);
        assert.deepEqual(await rows(internal), ["黑名单：path 匹配 /internal/*", "黑名单：有 header.x-a"]);
        await shot(page, `exceptions-${width}-zh`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= width, "it fits");
      }, { open: "#policies", context: { viewport: { width, height: 900 } } });
    }
  } finally {
    await own.close();
  }
}

export async function figures(harness, server) {
  await harness.test("numbers and times as people read them", server, async (page) => {
    const shown = await page.evaluate(async () => {
      const { short, time, span, percent, bytes } = await import("/format.js");
      const { ticks, timeTicks } = await import("/scale.js");
      const { guessQuestion, labelOf } = await import("/names.js");
      return {
        short: [0, 0.004, 0.42, 8.06, 99.6, 999.4, 999.6, 12345, 3.021e6, NaN].map(short),
        time: [null, 0, 8.1e-7, 0.0009994, 0.0034, 0.9996, 4.2, 59.97, 200, 3600, 90061, 31622400].map(time),
        span: [0.5, 1, 1.5, 60, 5400, 86400, 90061.25].map(span),
        percent: [[0, 0], [1, 1], [1, 2000], [1999, 2000], [1, 3]].map(([a, b]) => percent(a, b)),
        bytes: [0, 40, 1023, 1024, 8 << 20].map(bytes),
        ticks: [ticks(7), ticks(0), ticks(240, 3, true), timeTicks(120, 6)],
        label: labelOf("api", "api/per-user/{user=a%2Cb,ip=10.0.0.0/24}"),
        guess: [guessQuestion("api", "api/per-user/{lower(user)=a%2Cb,ip=10.0.0.0/24}"), guessQuestion("api", "api/{user=k%25}"),
          guessQuestion("api", "other/{user=k}"), guessQuestion("api", "api/x/{all}"), guessQuestion("api", "api/{user=a%0Ab}")],
      };
    });
    assert.deepEqual(shown, {
      short: ["0", "0.004", "0.42", "8.1", "100", "999", "1k", "12.3k", "3.02M", "–"],
      time: ["never", "0 s", "0.81 µs", "999 µs", "3.4 ms", "1 s", "4.2 s", "1 m", "3 m 20 s", "1 h", "1 d 1 h", "366 d"],
      span: ["500 ms", "1 s", "1.5 s", "1 m", "1 h 30 m", "1 d", "1 d 1 h 1 m 1.25 s"],
      percent: ["0 %", "100 %", "< 0.1 %", "> 99.9 %", "33 %"],
      bytes: ["0 B", "40 B", "1023 B", "1 KiB", "8 MiB"],
      ticks: [[0, 2, 4, 6, 8], [0, 0.5, 1], [0, 100, 200, 300], [0, 30, 60, 90, 120]],
      label: { text: "user=a,b, ip=10.0.0.0/24", entry: "per-user" },
      guess: [{ policy: "api", attributes: { user: "a,b", ip: "10.0.0.0" } }, { policy: "api", attributes: { user: "k%" } }, null, null, null],
    });
  });

  await harness.test("overview: rates move under load and come to rest", server, async (page) => {
    await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    const stop = server.load(200, ask);
    await until(async () => number(await text(page, "#rate-allowed")) > 10, "an allowed rate");
    await until(async () => number(await text(page, "#rate-denied")) > 1, "a denied rate");
    await until(async () => number(await text(page, "#rate-shadow")) > 0.1, "a shadow rate");
    await until(async () => (await page.getAttribute("#decisions .line-allowed", "d")).includes("L"), "a line of two points");
    const before = await page.getAttribute("#denials .line-denied", "d");
    await until(async () => (await page.getAttribute("#denials .line-denied", "d")) !== before, "the chart to move");
    assert.match(await text(page, "#tile-p99"), /^[\d.]+ (µs|ms|s)$/);
    assert.match(await text(page, "#latency-p999"), /^[\d.]+ (µs|ms|s)$/);
    assert.match(await page.getAttribute("#decisions svg", "aria-label"), /Allowed|allowed: now [\d.]+k? per second/);
    await shot(page, "overview-light");
    await stop();
    await until(async () => number(await text(page, "#rate-allowed")) === 0, "the rate to fall to 0");
  });

  await harness.test("overview: totals, zone and connections are the server's", server, async (page) => {
    await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    await until(async () => {
      const stats = await server.get("v1/stats");
      return number(await text(page, "#total-allowed")) === stats.totals.allowed
        && (await text(page, "#total-denied")).includes(`${stats.totals.denied.toLocaleString("en")} in total`)
        && (await text(page, "#zone")).includes(`${stats.zone.keys.toLocaleString("en")} of ${stats.zone.capacity.toLocaleString("en")}`);
    }, "the figures to agree");
    assert.ok(number(await text(page, "#tile-open")) >= 1);
    assert.ok((await page.getByRole("meter", { name: "States" }).count()) === 1);
  });

  await harness.test("overview: the chart as a table", server, async (page) => {
    const stop = server.load(50, ask);
    await page.getByText("As a table").click();
    const table = page.getByRole("table", { name: /averaged over ten seconds/ });
    await until(async () => number(await table.locator("tbody tr").first().locator("td").first().textContent()) > 10, "a figure in the table");
    await stop();
    assert.equal(await table.locator("tbody tr").count(), 12);
  });

  await harness.test("overview: a page that was just opened shows what was before", server, async (page) => {
    const stop = server.load(50, ask);
    const history = await until(async () => {
      const answer = await server.get("v1/history");
      return answer.totals.allowed.slice(0, -1).filter((allowed) => allowed > 10).length >= 2 && answer;
    }, "two bins of history");
    await stop();
    await page.reload();
    await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    /* The page has the bins that were closed then as its first points, however long it took to load. */
    const told = history.edges.slice(1, -1).map((end, i) => end - history.edges[i] > 0.5);
    const [from, bins] = [told.indexOf(true), told.filter(Boolean).length];
    const seen = await page.evaluate(async (count) => {
      const { live } = await import("/live.js");
      const api = live.policies.get("api");
      const allowed = (points) => points.slice(0, count).map((point) => Math.round(point.allowed * point.s));
      return {
        totals: allowed(live.points), policy: allowed(api.points), limit: allowed(api.limits.get("per-user")),
        seconds: live.points[count - 1].t - live.points[0].t, latency: live.points.slice(0, count).some((point) => point.p99 > 0),
      };
    }, bins);
    const api = history.policies.find((policy) => policy.name === "api");
    const limit = api.limits.find(({ name }) => name === "per-user");
    const closed = (counts) => counts.slice(0, -1).filter((_, i) => told[i]);
    assert.deepEqual([seen.totals, seen.policy, seen.limit], [closed(history.totals.allowed), closed(api.allowed), closed(limit.allowed)]);
    assert.ok(Math.abs(seen.seconds - (history.edges.at(-2) - history.edges[from + 1])) < 0.001 && seen.latency, JSON.stringify(seen));
    assert.ok((await page.getAttribute("#decisions .line-allowed", "d")).includes("L"), "a line at once");
    for (const [name, words, rows] of [["1 h", "The last hour.", 12], ["15 min", "The last 15 minutes.", 15], ["2 min", "The last two minutes.", 12]]) {
      await page.getByRole("radio", { name, exact: true }).check();
      await until(async () => (await page.getAttribute("#denials svg", "aria-label")).startsWith(words), words);
      await page.locator("#decisions-table").evaluate((element) => { element.open = true; });
      await until(async () => (await page.locator("#decisions-rows tr").count()) === rows, `${rows} rows`);
      await shot(page, `overview-${name.replace(" ", "-")}`);
    }
  });

  await harness.test("past: how points are kept", server, async (page) => {
    const found = await page.evaluate(async () => {
      const { behind, joined, pastOf, push } = await import("/past.js");
      const points = [];
      for (let t = 1; t <= 5000; t++) push(points, { t, s: 1, allowed: t % 2, p99: t });
      const seconds = points.reduce((sum, point) => sum + point.s, 0);
      const history = {
        time: 135, edges: [100, 110, 120, 130, 130.2],
        totals: { allowed: [10, 20, 0, 1], denied: [0, 0, 5, 0], shadow_denied: [0, 0, 0, 0] },
        latency: { p50: [1, null, 2, 3], p99: [1, null, 2, 3], p999: [1, null, 2, 3] },
        policies: [{ name: "api", allowed: [1, 2, 3, 4], denied: [0, 0, 0, 0], shadow_denied: [0, 0, 0, 0], limits: [] }],
      };
      const past = pastOf(history, 35);
      return {
        count: points.length, seconds: Math.round(seconds / 10), fine: points.filter((point) => point.s === 1).length,
        mean: points[10].allowed, ordered: points.every((point, i) => i === 0 || point.t > points[i - 1].t),
        joined: joined([{ t: 1, s: 1, allowed: null }, { t: 4, s: 3, allowed: 6 }]),
        past: past.points.map(({ t, s, allowed, denied, p50 }) => [t, s, allowed, denied, p50]), policy: past.policies.get("api").points.length,
        behind: behind([{ t: -5, s: 1 }, { t: 0, s: 1 }, { t: 3, s: 1 }], past.points).map((point) => point.t),
      };
    });
    assert.ok(found.count < 500 && found.fine >= 120 && found.fine <= 131 && found.mean === 0.5 && found.ordered, JSON.stringify(found));
    assert.ok(found.seconds >= 360 && found.seconds <= 362, "an hour");
    assert.deepEqual(found.joined, { t: 4, s: 4, allowed: 6 });
    assert.deepEqual(found.past, [[10, 10, 1, 0, 1], [20, 10, 2, 0, null], [30, 10, 0, 0.5, 2]]);
    assert.deepEqual([found.policy, found.behind], [3, [-5, 0, 10, 20, 30]]);
  });

  await harness.test("overview: pausing asks nothing, nor does a hidden tab", server, async (page) => {
    await until(async () => (await text(page, "#state-text")) === "Live", "the page to be live");
    let asked = 0;
    page.on("request", () => asked++);
    /* What was being asked comes to its end first, however long that takes. A page that is not paused asks every second. */
    const quiet = () => until(async () => {
      asked = 0;
      await page.waitForTimeout(2500);
      return asked === 0;
    }, "the page to ask nothing");
    await page.getByRole("button", { name: "Pause" }).click();
    await quiet();
    assert.equal(await text(page, "#state-text"), "Paused");
    await page.getByRole("button", { name: "Resume" }).click();
    await until(() => asked > 1, "it to go on");
    await page.evaluate(() => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await quiet();
    await page.evaluate(() => {
      delete document.hidden;
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await until(() => asked > 1, "it to go on when seen again");
  });

  await harness.test("policies: words, limits and what they decide now", server, async (page) => {
    const answer = await server.get("v1/policies");
    assert.deepEqual(answer.policies.map((policy) => policy.name), ["api", "login", "search", "shared"]);
    const stop = server.load(100, ask);
    for (const policy of answer.policies) {
      const card = page.getByRole("article", { name: policy.name });
      for (const limit of policy.limits) {
        await card.locator(".limit-code").getByText(limit.limit, { exact: true }).waitFor();
        await card.getByText(limit.meaning).waitFor();
      }
    }
    const api = page.getByRole("article", { name: "api" });
    await until(async () => number(await api.locator("header .pulse-allowed .num").textContent()) > 5, "a rate of the policy");
    await until(async () => number(await api.locator(".limit .pulse-shadow .num").textContent()) > 0.1, "a rate in shadow");
    await until(async () => (await api.locator("header .spark .line-allowed").getAttribute("d")).includes("L"), "a sparkline");
    const shares = page.getByRole("article", { name: "search" }).locator(".limit-shares li");
    assert.deepEqual(await shares.allTextContents(), [
      "100% header.x-class is critical: leaky-bucket 2/s burst 10",
      "12.5% header.x-class is batch-*: leaky-bucket 2/s",
      "50% all others: leaky-bucket 2/s burst 4",
    ]);
    await shot(page, "policies-light");
    await stop();
    await page.getByLabel("Filter").fill("log");
    assert.equal(await page.getByRole("article").filter({ visible: true }).count(), 1);
    await page.getByLabel("Filter").fill("nothing like it");
    await page.getByText("No policy of 4").waitFor();
  }, { open: "#policies" });

  await exceptions(harness);

  await harness.test("keys: the hottest and the most limited, and what is in them is text", server, async (page) => {
    const evil = "<img src=x onerror=\"document.title='owned'\">";
    const stop = server.load(150, (i) => (i % 2 ? { policy: "api", key: evil } : { policy: "api", key: `user:${i % 7}` }));
    const card = page.getByRole("article", { name: "api" });
    const link = card.locator(".keys-hottest").getByRole("link", { name: evil });
    await link.waitFor();
    assert.equal(await page.locator("main img").count(), 0);
    assert.match(await link.textContent(), /\/s$/);
    await card.locator(".keys-denied").getByRole("link", { name: evil }).first().waitFor(); // once per limit that denies it
    await shot(page, "keys-light");
    await link.hover();
    const order = () => card.locator(".keys-hottest .key-name").allTextContents();
    const before = await order();
    await page.waitForTimeout(5000);
    assert.deepEqual(await order(), before, "the order holds still under the pointer");
    await link.click();
    await until(async () => (await page.inputValue("#inspect-attributes")) === `user=${evil}`, "the inspector to have the key");
    await page.locator("#inspect-limits").getByText("api / per-user").waitFor();
    await until(async () => (await text(page, "#verdict")).startsWith("A request would be"), "a verdict");
    assert.equal(await page.locator("main img").count(), 0);
    assert.notEqual(await page.title(), "owned");
    await stop();
  }, { open: "#keys" });

  await namesLeadBack(harness);
}

/* On a server of its own: how hot other keys are depends on how long a machine takes for what comes before. */
async function namesLeadBack(harness) {
  const server = await Server.start();
  try {
    await harness.test("keys: from a key's name back to the request that makes it", server, (page) => leadsBack(page, server),
      { open: "#keys", expected: [/status of 400/] });
  } finally {
    await server.close();
  }
}

async function leadsBack(page, server) {
  const cases = [
    [{ policy: "search", attributes: { ip: "203.0.113.9" } }, "ip=203.0.113.9", "attributes"],
    [{ policy: "api", attributes: { user: "Ann, {100%} = ~" } }, "user=Ann, {100%} = ~", "attributes"],
    [{ policy: "api", attributes: { user: "x".repeat(300) } }, /^user=x{32}~/, "limit"],
  ];
  for (const [body] of cases) for (let i = 0; i < 20; i++) await server.post("v1/take", body);
  for (const [body, name, mode] of cases) {
    await page.goto(`${server.base}#keys`);
    await page.getByRole("article", { name: body.policy }).locator(".keys-hottest").getByRole("link", { name }).first().click();
    await until(async () => (await page.locator("#inspect-form [name=mode]:checked").inputValue()) === mode, `mode ${mode} for ${name}`);
    const whole = (await server.post("v1/explain", body)).body.limits[0];
    await until(async () => (await text(page, "#inspect-limits")).includes(whole.key), `${whole.key} to be on show`);
  }
}
