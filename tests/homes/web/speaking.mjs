/* Two languages: every text has both, the browser's language is followed, and the switch is remembered. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { shot, text } from "./harness.mjs";
import { faint, open, PHONE, VIEWS } from "./reaching.mjs";
import { Server, until } from "./server.mjs";

const PAGE_MOST = 64 << 10; /* bytes of all files of the page, packed as they are sent */
const WEB = fileURLToPath(new URL("../../../web/", import.meta.url));
const CHINESE = /[\u4e00-\u9fff]/;
/* What a Chinese text may have in Latin letters: names of this program, of protocols, and of units. */
const LATIN = new Set(("weir key Key base64 HTTP RESP gRPC Redis JavaScript EN UTC Guava SmoothBursty SmoothWarmingUp token-bucket burst smooth warmup "
  + "ip ip=192.0.2.7 name=value user any ms µs B KiB MiB GiB k M p50 p90 p99 p99.9 s Y v1 stats metrics memory ietf").split(" "));

const latin = (words) => (words.replace(/UTC[+-][\d:]+/, "").match(/[A-Za-zµ][A-Za-z0-9.=_-]*/g) || []).filter((word) => !LATIN.has(word.replace(/[.]$/, "")));

/* Every text that a reader meets: what is seen, what is spoken, what is a hint. Names from policies are in code elements. Runs
 * in the page. */
function readable() {
  const found = [document.title];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (element.closest("code, noscript, script, h3, .tag, .limit-name, .limit-words, .policy-head .quiet, [lang=en], option, #version, #traffic")) continue;
    if (walker.currentNode.data.trim()) found.push(walker.currentNode.data.trim());
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [alt], [placeholder]:not(.mono), [aria-valuetext]")) {
    for (const name of ["aria-label", "title", "alt", "placeholder", "aria-valuetext"]) {
      const value = element.getAttribute(name);
      if (value && !element.closest("svg[tabindex]")) found.push(value);
    }
  }
  for (const element of document.querySelectorAll("option[value='']")) found.push(element.textContent);
  return found;
}

/* Elements that are wider than their place, or that lie upon their neighbours. Runs in the page. */
function crowded() {
  const found = [];
  for (const element of document.querySelectorAll("button, nav a, label, legend, h1, h2, h3, h4, dt, .segments span, .tile p, .tag, summary, .state")) {
    if (!element.checkVisibility() || element.closest(".unseen, .skip, .scroll")) continue;
    const box = element.getBoundingClientRect();
    if (element.matches("button, .segments span, .field-inline label, h2") && !element.closest(".presets, .tile")
      && box.height > 2.6 * parseFloat(getComputedStyle(element).fontSize) + 8) found.push(`broken: ${element.textContent}`);
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== "inline") found.push(`cut: ${element.textContent}`);
    const card = element.closest(".card, .tiles, .top, dialog");
    if (card && box.right > card.getBoundingClientRect().right + 1) found.push(`out: ${element.textContent}`);
  }
  for (const svg of document.querySelectorAll("svg .grid")) {
    const words = [...svg.querySelectorAll("text")].map((word) => word.getBoundingClientRect()).filter((box) => box.width > 0);
    const upon = (a, b) => a !== b && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
    if (words.some((a) => words.some((b) => upon(a, b)))) found.push(`upon each other: ${svg.textContent}`);
  }
  return found;
}

const live = (page, word) => until(async () => (await text(page, "#state-text")) === word, `the page to be live in its language`);

async function table(harness, server) {
  await harness.test("languages: the page stays small", server, async () => {
    const sizes = readdirSync(WEB).filter((name) => !name.endsWith(".py")).map((name) => gzipSync(readFileSync(WEB + name)).length);
    const sum = sizes.reduce((all, size) => all + size, 0);
    assert.ok(sum < PAGE_MOST, `${sum} bytes`);
  });

  await harness.test("languages: every text has both", server, async (page) => {
    const texts = await page.evaluate(async () => (await import("/texts.js")).TEXTS);
    const places = (words) => (words.match(/\{\w+\}/g) || []).sort();
    const same = new Set(["key", "keyWord", "otherLanguage", "countOf", "countOfShare", "ofLimit", "inZone"]);
    for (const [name, pair] of Object.entries(texts)) {
      assert.ok(pair.length === 2 && pair.every((words) => typeof words === "string" && words !== ""), `${name}: ${JSON.stringify(pair)}`);
      assert.deepEqual(places(pair[0]), places(pair[1]), `the values of ${name}`);
      const english = pair[0].replace(/\{\w+\}/g, "");
      if (/[A-Za-z]/.test(english) && !same.has(name)) assert.match(pair[1], CHINESE, name);
      assert.deepEqual(latin(pair[1].replace(/\{\w+\}/g, "")), [], `${name}: ${pair[1]}`);
    }
    const files = readdirSync(WEB).filter((name) => /\.(js|html)$/.test(name) && name !== "texts.js");
    const sources = files.map((name) => readFileSync(WEB + name, "utf8")).join("\n");
    const used = [...sources.matchAll(/\b(?:t|setText)\((?:at\([^)]*\), )?"(\w+)"|data-t(?:-[a-z-]+)?="(\w+)"/g)].map(([, a, b]) => a || b);
    assert.ok(used.length > 150, "they are found");
    assert.deepEqual(used.filter((name) => !texts[name]), [], "texts that are not in the table");
    const unused = Object.keys(texts).filter((name) => !new RegExp(`"${name}"`).test(sources) && !name.endsWith("Tick"));
    assert.deepEqual(unused, [], "texts that nobody shows");
  });

  await harness.test("languages: the program has no other texts", server, async () => {
    for (const name of readdirSync(WEB).filter((file) => file.endsWith(".js") && !["texts.js", "meanings.js"].includes(file))) {
      const code = readFileSync(WEB + name, "utf8").replace(/\/\*.*?\*\//gs, "");
      const words = [...code.matchAll(/"((?:[^"\\\n]|\\.)*)"|`([^`]*)`/g)].map(([, a, b]) => (a ?? b).replace(/\$\{[^}]*\}/g, " "));
      const odd = words.filter((word) => /^[A-Z][a-z]+( [a-z]+)*$|[a-z]{2,} [a-z]{2,} [a-z]{2,}/.test(word))
        .filter((word) => !/^(ArrowLeft|ArrowRight|PageUp|PageDown|Home|End|Authorization|Bearer|Accept|Infinity)$/.test(word) && !/^(asked for by name|[a-z-]+ [a-z-]+ [a-z-]+)$/.test(word));
      assert.deepEqual(odd, [], name);
    }
  });
}

/* Limits of every form that the server has sentences for. */
const LIMITS = ["token-bucket 10/s burst 20", "token-bucket 1000/1h30m", "token-bucket 100/m stepped", "token-bucket 100/m burst 20 stepped",
  "token-bucket 5/s cost 2", "leaky-bucket 10/s", "leaky-bucket 10/s burst 5", "leaky-bucket 10/s burst 5 nodelay", "leaky-bucket 10/s burst 12 delay 8",
  "fixed-window 100/m", "fixed-window 100/1.5s", "fixed-window 9/d zone +08:00", "fixed-window 9/w from mon", "fixed-window 9/w from sun zone -03:30",
  "fixed-window 9/month", "fixed-window 9/month from 31 zone +08:00", "fixed-window 9/year from 04-06", "fixed-window 9/d from-first",
  "sliding-log 5/m", "sliding-window 100/h precision 1m", "sliding-counter 100/h", "smooth 5/s", "smooth 1m/250ms", "smooth 5/s burst-for 3s",
  "warmup 5/s over 3s", "warmup 10m/s over 500us cold 2", "concurrent 5 lease 30s"];

async function sentences(harness) {
  const entries = LIMITS.map((limit, i) => `      - {name: l${i}, key: "'k${i}'", limit: "${limit}"}\n`);
  const parts = [entries.slice(0, 14), entries.slice(14)];
  const matches = ["{path: /api/*, method: [GET, HEAD]}", "{header.x-a: true}", "{method: {not: POST}}"];
  const server = await Server.start({ policies: `version: 1\npolicies:\n${parts.map((list, i) =>
    `  - name: p${i}\n    match: ${matches[i]}\n    limits:\n${list.join("")}`).join("")}` });
  try {
    await harness.test("languages: what the server says about limits is Chinese, too", server, async (page) => {
      const { policies } = await server.get("v1/policies");
      const said = policies.flatMap((policy) => policy.limits.flatMap(({ meaning, guarantee }) => [meaning, guarantee]));
      assert.equal(said.length, 2 * LIMITS.length);
      const told = await page.evaluate(async (list) => {
        const { meaningInChinese } = await import("/meanings.js");
        return list.map(meaningInChinese);
      }, said);
      told.forEach((words, i) => {
        assert.match(words, CHINESE, said[i]);
        assert.deepEqual(latin(words), [], `${said[i]} as ${words}`);
        assert.doesNotMatch(words, /每 1 (?:秒|分钟|小时|天|周)(?! \d)/);
        const numbers = (sentence) => (sentence.match(/\d+(\.\d+)?/g) || []).sort();
        assert.deepEqual(numbers(words).filter((n) => n !== "1"), numbers(said[i]).filter((n) => n !== "1"), words);
      });
      const found = await page.evaluate(async () => {
        const { matchInChinese, meaningInChinese } = await import("/meanings.js");
        return [matchInChinese("path is /api/* and method is not GET, HEAD or 3 others"), matchInChinese("header.x-a is present and user is absent"),
          meaningInChinese("A sentence of a newer server.")];
      });
      assert.deepEqual(found, ["path 匹配 /api/*，并且 method 不是 GET、HEAD 或另外 3 个", "有 header.x-a，并且没有 user", "A sentence of a newer server."]);
      await page.getByText("容量为 20 的令牌桶，每秒匀速补充 10 个令牌").waitFor();
      await page.getByText("每 1 小时 30 分钟匀速补充 1000 个令牌").waitFor();
      await page.getByRole("article", { name: "p1" }).getByText("任意 1 分钟内不超过 5，精确。").waitFor();
    }, { open: "#policies", context: { locale: "zh-CN" } });
  } finally {
    await server.close();
  }
}

async function choosing(harness, server) {
  for (const [locale, lang, word] of [["zh-CN", "zh-CN", "实时"], ["zh-TW", "zh-CN", "实时"], ["zh", "zh-CN", "实时"], ["en-GB", "en", "Live"], ["de-DE", "en", "Live"]]) {
    await harness.test(`languages: a browser of ${locale}`, server, async (page) => {
      await live(page, word);
      assert.equal(await page.getAttribute("html", "lang"), lang);
    }, { context: { locale } });
  }

  await harness.test("languages: the switch turns everything, at once and for later", server, async (page) => {
    await live(page, "Live");
    await page.goto(`${server.base}#inspector?key=switched&limit=sliding-log+3%2Fm`);
    await page.getByText("A request would be allowed.").waitFor();
    await page.getByRole("button", { name: "Take one" }).click();
    await page.getByText("Taken: allowed, 2 left.").waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "中文" }).click();
    await page.getByText("已发起请求：放行，剩余 2。").waitFor();
    await page.getByText("现在发起的请求会被放行。").waitFor();
    assert.deepEqual([await page.title(), await page.getAttribute("html", "lang"), await text(page, "#state-text")], ["Key 诊断 – weir", "zh-CN", "已暂停"]);
    assert.equal(await page.inputValue("#inspect-key"), "switched", "what was typed stays");
    await page.reload();
    await page.getByText("现在发起的请求会被放行。").waitFor();
    await page.locator("#inspect-cost").fill("x");
    await page.getByRole("button", { name: "查看" }).click();
    await page.getByText("消耗量“x”无效").waitFor();
    await page.getByRole("button", { name: "EN" }).click();
    await page.getByText("Invalid cost “x”: expected a whole number").waitFor();
    await page.goto(`${server.base}#playground`);
    await page.locator("#play-result:visible").waitFor();
    await page.getByRole("button", { name: "中文" }).click();
    await page.getByText("结果：2 分钟内 240 个请求").waitFor();
    await page.getByRole("button", { name: "窗口边界" }).waitFor();
    await page.getByRole("button", { name: "EN" }).click();
    await page.getByText("Results for 240 requests in 2 m").waitFor();
    await page.reload();
    await page.getByText("Results for 240 requests in 2 m").waitFor();
  });

  await harness.test("languages: without storage the choice lasts as long as the page", server, async (page) => {
    await page.addInitScript(() => Object.defineProperty(window, "localStorage", { get() { throw new DOMException("blocked", "SecurityError"); } }));
    await page.reload();
    await live(page, "实时");
    await page.getByRole("button", { name: "EN" }).click();
    await live(page, "Live");
    await page.reload();
    await live(page, "实时");
  }, { context: { locale: "zh-CN" } });

  await harness.test("languages: a remembered language that does not exist", server, async (page) => {
    await page.evaluate(() => localStorage.setItem("weir-language", "constructor"));
    await page.reload();
    await live(page, "实时");
  }, { context: { locale: "zh-HK" } });
}

async function reading(harness, server) {
  await harness.test("languages: no English is left on the Chinese page", server, async (page) => {
    await live(page, "实时");
    const times = await page.evaluate(async () => [0, 8.1e-7, 0.0034, 4.2].map((await import("/format.js")).time));
    assert.deepEqual(times, ["0 秒", "0.81 微秒", "3.4 毫秒", "4.2 秒"], "an axis has units of one language");
    await page.locator("#decisions-table").evaluate((element) => { element.open = true; });
    await until(async () => (await page.locator("#decisions-rows tr").count()) > 0, "the table");
    for (const view of VIEWS) {
      const name = await open(page, view);
      if (name === "playground") await page.getByText("以表格查看全部数据").click();
      const texts = await page.evaluate(readable);
      assert.ok(texts.filter((words) => CHINESE.test(words)).length > 50, `${name}: ${texts.length} texts`);
      assert.deepEqual(texts.filter((words) => latin(words).length > 0), [], name);
    }
  }, { context: { locale: "zh-CN" } });

  for (const [scheme, viewport] of [["light", { width: 1280, height: 860 }], ["dark", { width: PHONE, height: 740 }]]) {
    for (const [locale, word] of [["zh-CN", "实时"], ["en-US", "Live"]]) {
      await harness.test(`languages: ${locale} fits, ${scheme}, ${viewport.width} pixels`, server, async (page) => {
        await live(page, word);
        for (const view of VIEWS) {
          const name = await open(page, view);
          await shot(page, `${name}-${locale}-${viewport.width}-${scheme}`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(wide <= viewport.width, `${name} is ${wide} px wide`);
          assert.deepEqual(await page.evaluate(crowded), [], name);
          assert.deepEqual(await page.evaluate(faint), [], name);
        }
      }, { context: { locale, colorScheme: scheme, viewport, hasTouch: viewport.width === PHONE, isMobile: viewport.width === PHONE } });
    }
  }
}

/* When things are not there, in Chinese. */
async function losing(harness) {
  const server = await Server.start({ token: "a-token-of-the-tests-1234567890" });
  try {
    await harness.test("languages: asked for a token, and the server is lost", server, async (page) => {
      const dialog = page.getByRole("dialog", { name: "服务器需要访问令牌" });
      await dialog.waitFor();
      assert.deepEqual((await page.evaluate(readable)).filter((words) => latin(words).length > 0), []);
      await page.keyboard.press("Escape");
      await page.getByRole("alert").filter({ hasText: "服务器需要访问令牌。" }).waitFor();
      await page.getByRole("button", { name: "EN" }).click();
      await page.getByRole("alert").filter({ hasText: "The server needs a token." }).waitFor();
      await page.getByRole("button", { name: "中文" }).click();
      await page.getByRole("button", { name: "输入令牌" }).click();
      await dialog.getByLabel("访问令牌").fill(server.options.token);
      await page.keyboard.press("Enter");
      await live(page, "实时");
      await server.stop("SIGKILL");
      await page.getByRole("alert").filter({ hasText: "服务器没有响应。" }).waitFor();
      assert.equal(await text(page, "#state-text"), "连接中断");
      await shot(page, "lost-zh");
    }, { context: { locale: "zh-CN" }, expected: [/status of 40[13]/, /ERR_/] });
  } finally {
    await server.close();
  }
}

export async function speaking(harness, server) {
  await table(harness, server);
  await choosing(harness, server);
  await reading(harness, server);
  await sentences(harness);
  await losing(harness);
}
