#!/usr/bin/env node
/*
 * Makes the pictures of README and manuals from the running program, light and dark, into docs/images. Those of the Chinese
 * pages have -zh in their names; the machine needs a Chinese font to make them, for example fonts-wqy-microhei.
 *
 *     tools/pictures.mjs [edge|kinds|suggest|dashboard]      WEIR=build/weir
 *
 * edge: `weir replay` decides the same requests around a full hour under two limits; the bars count its decisions.
 * kinds: `weir replay` decides the same two minutes under four kinds of limit.
 * suggest: the page of `weir suggest --report` about examples/access.log.gz, in Chromium.
 * dashboard: the page of `weir serve --demo-load` in Chromium, after it has run for a while.
 */
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const images = path.join(root, "docs", "images");
const weir = path.resolve(process.env.WEIR || path.join(root, "build", "weir"));

/* ---- the window's edge ---- */

const HOUR = 1760000400; /* a full hour, in seconds since the epoch */
const BIN_SECONDS = 7.5;
const PANELS = [
  { limit: "fixed-window 240/h", title: ["fixed window", "固定窗口"], note: ["A new window starts from 0: 440 in two minutes.", "窗口一换就重新计数：两分钟内放行了 440 个。"] },
  { limit: "sliding-log 240/h", title: ["sliding log", "滑动日志"], note: ["Never more than 240 in any hour.", "任意一小时内绝不超过 240 个。"] },
];
const LANGUAGES = ["", "-zh"]; /* in names of files; texts are [English, Chinese] */
const EDGE_WORDS = {
  admits: [(some, all) => `admits ${some} of ${all}`, (some, all) => `${all} 个请求，放行 ${some} 个`],
  allowed: ["admitted", "放行"],
  denied: ["denied", "拒绝"],
  all: ["440 requests around eleven o'clock: a fixed window admits all, a sliding log 240", "十一点前后的 440 个请求：固定窗口全部放行，滑动日志放行 240 个"],
};
const COLOURS = {
  light: { ground: "#ffffff", ink: "#1f2430", faint: "#8a93a5", line: "#d5dae3", allowed: "#2f6fde", denied: "#e3a29b" },
  dark: { ground: "#0d1117", ink: "#e6e9ef", faint: "#8b94a7", line: "#30363f", allowed: "#6ea2ff", denied: "#7c4340" },
};

/* 200 requests in the last minute before the hour, 240 in the first minute after it. */
function trace() {
  const times = [];
  for (let i = 0; i < 200; i++) times.push(HOUR - 60 + (i + 0.5) * (60 / 200));
  for (let i = 0; i < 240; i++) times.push(HOUR + (i + 0.5) * (60 / 240));
  return times.map((time) => `${time.toFixed(6)},client\n`).join("");
}

/* [{allowed, denied}] for each bin, as weir decides. */
function decide(limit) {
  const said = execFileSync(weir, ["replay", limit, "--decisions"], { input: trace(), encoding: "utf8" });
  const [header, ...lines] = said.trim().split("\n").map((line) => line.split(","));
  const bins = Array.from({ length: 16 }, () => ({ allowed: 0, denied: 0 }));
  for (const line of lines) {
    const bin = Math.floor((Number(line[header.indexOf("time")]) - (HOUR - 60)) / BIN_SECONDS);
    bins[bin][line[header.indexOf("allowed")] === "1" ? "allowed" : "denied"]++;
  }
  return bins;
}

function drawPanel({ title, note, bins }, left, colours, language) {
  const [top, height, step, bar] = [84, 120, 22, 17];
  const scale = height / 32;
  const out = [];
  const sum = (what) => bins.reduce((total, bin) => total + bin[what], 0);
  const text = (x, y, size, colour, words, extra = "") =>
    out.push(`<text x="${x}" y="${y}" font-size="${size}" fill="${colour}" ${extra}>${words}</text>`);
  text(left, 34, 17, colours.ink, title[language], 'font-weight="600"');
  text(left, 58, 14, colours.faint, EDGE_WORDS.admits[language](sum("allowed"), sum("allowed") + sum("denied")));
  bins.forEach((bin, i) => {
    const x = left + i * step;
    const allowed = bin.allowed * scale;
    const denied = bin.denied * scale;
    const floor = top + height;
    out.push(`<rect x="${x}" y="${floor - allowed}" width="${bar}" height="${allowed}" fill="${colours.allowed}"/>`);
    if (denied)
      out.push(`<rect x="${x}" y="${floor - allowed - denied}" width="${bar}" height="${denied}" fill="${colours.denied}"/>`);
  });
  const middle = left + 8 * step - 2.5;
  out.push(`<line x1="${left}" x2="${left + 16 * step}" y1="${top + height}" y2="${top + height}" stroke="${colours.line}"/>`);
  out.push(`<line x1="${middle}" x2="${middle}" y1="${top - 12}" y2="${top + height + 8}" stroke="${colours.faint}" stroke-dasharray="3 3"/>`);
  text(left, top + height + 24, 12, colours.faint, "10:59");
  text(middle, top + height + 24, 12, colours.faint, "11:00", 'text-anchor="middle"');
  text(left + 16 * step - 5, top + height + 24, 12, colours.faint, "11:01", 'text-anchor="end"');
  text(left, top + height + 52, 13, colours.ink, note[language]);
  return out.join("\n");
}

/* [theme, index of the language] */
const inAll = () => Object.keys(COLOURS).flatMap((theme) => LANGUAGES.map((_, language) => [theme, language]));

function edge() {
  const panels = PANELS.map((panel) => ({ ...panel, bins: decide(panel.limit) }));
  for (const [theme, language] of inAll()) {
    const colours = COLOURS[theme];
    const drawn = panels.map((panel, i) => drawPanel(panel, 28 + i * 400, colours, language)).join("\n");
    const key = ["allowed", "denied"].map((name, i) =>
      `<rect x="${640 + i * 90}" y="10" width="11" height="11" fill="${colours[name]}"/>` +
      `<text x="${657 + i * 90}" y="20" font-size="12" fill="${colours.faint}">${EDGE_WORDS[name][language]}</text>`).join("");
    writeFileSync(path.join(images, `edge${LANGUAGES[language]}-${theme}.svg`),
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 808 276" font-family="system-ui, sans-serif" role="img" ` +
      `aria-label="${EDGE_WORDS.all[language]}">\n` +
      `<rect width="808" height="276" rx="8" fill="${colours.ground}"/>\n${drawn}\n${key}\n</svg>\n`);
  }
}

/* ---- kinds of limit ---- */

const KINDS = [
  { limit: "token-bucket 60/m burst 20", note: ["20 at once, then one per second", "先一次放行 20 个，之后每秒 1 个"] },
  { limit: "leaky-bucket 60/m burst 20", note: ["a queue: never more than one per second", "排队，每秒最多 1 个"] },
  { limit: "fixed-window 60/m", note: ["60 per minute of the clock, which begins at 0:30", "每个窗口 60 个，在 0:30 换窗口"] },
  { limit: "sliding-log 60/m", note: ["never more than 60 in any minute", "任意一分钟内绝不超过 60 个"] },
];
const KIND_WORDS = {
  allowed: ["at once", "立即放行"],
  delayed: ["after a delay", "延迟放行"],
  denied: ["denied", "拒绝"],
  all: ["240 requests in two minutes under a token bucket, a leaky bucket, a fixed window and a sliding log", "两分钟内 240 个请求在令牌桶、漏桶、固定窗口和滑动日志下的结果"],
};
const KINDS_START = 1760000430; /* half a minute past: a window of the clock ends at 0:30 */
const KINDS_BIN = 2;
const KINDS_BINS = 70; /* a queue goes on after the last request */

/* 4 per second for 20 s, then 40 at once, then 2 per second: two minutes. */
function visits() {
  const times = [];
  for (let i = 0; i < 80; i++) times.push(i / 4);
  for (let i = 0; i < 40; i++) times.push(40 + i / 1000);
  for (let i = 0; i < 120; i++) times.push(60 + i / 2);
  return times.map((time) => `${(KINDS_START + time).toFixed(6)},client\n`).join("");
}

/* What went ahead in each bin, at once or after a delay, and what was denied. */
function tally(limit) {
  const said = execFileSync(weir, ["replay", limit, "--decisions"], { input: visits(), encoding: "utf8" });
  const [header, ...lines] = said.trim().split("\n").map((line) => line.split(","));
  const bins = Array.from({ length: KINDS_BINS }, () => ({ allowed: 0, delayed: 0, denied: 0 }));
  for (const line of lines) {
    const [time, delay] = ["time", "delay"].map((name) => Number(line[header.indexOf(name)]));
    const what = line[header.indexOf("allowed")] === "0" ? "denied" : delay > 0 ? "delayed" : "allowed";
    bins[Math.min(KINDS_BINS - 1, Math.floor((time + delay - KINDS_START) / KINDS_BIN))][what]++;
  }
  return bins;
}

function drawKind({ limit, note, bins }, left, top, colours, language) {
  const [height, step, bar] = [90, 5.3, 4.3];
  const floor = top + 52 + height;
  const out = [`<text x="${left}" y="${top + 20}" font-size="15" font-weight="600" fill="${colours.ink}">${limit}</text>`,
    `<text x="${left}" y="${top + 40}" font-size="13" fill="${colours.faint}">${note[language]}</text>`];
  bins.forEach((bin, i) => {
    let y = floor;
    for (const what of ["allowed", "delayed", "denied"]) {
      const tall = bin[what] * (height / 40);
      y -= tall;
      if (tall) out.push(`<rect x="${(left + i * step).toFixed(1)}" y="${y.toFixed(2)}" width="${bar}" height="${tall.toFixed(2)}" fill="${colours[what]}"/>`);
    }
  });
  out.push(`<line x1="${left}" x2="${left + KINDS_BINS * step}" y1="${floor}" y2="${floor}" stroke="${colours.line}"/>`);
  for (const minute of [0, 1, 2])
    out.push(`<text x="${left + minute * (60 / KINDS_BIN) * step}" y="${floor + 17}" font-size="12" fill="${colours.faint}">${minute}:00</text>`);
  return out.join("\n");
}

function kinds() {
  const panels = KINDS.map((panel) => ({ ...panel, bins: tally(panel.limit) }));
  for (const [theme, language] of inAll()) {
    const colours = { ...COLOURS[theme], delayed: theme === "light" ? "#e0a526" : "#c9962f" };
    const drawn = panels.map((panel, i) => drawKind(panel, 28 + (i % 2) * 400, 34 + Math.floor(i / 2) * 180, colours, language)).join("\n");
    const key = ["allowed", "delayed", "denied"].map((name, i) =>
      `<rect x="${28 + i * 120}" y="14" width="11" height="11" fill="${colours[name]}"/>` +
      `<text x="${45 + i * 120}" y="24" font-size="12" fill="${colours.faint}">${KIND_WORDS[name][language]}</text>`).join("");
    writeFileSync(path.join(images, `kinds${LANGUAGES[language]}-${theme}.svg`),
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 808 396" font-family="system-ui, sans-serif" role="img" ` +
      `aria-label="${KIND_WORDS.all[language]}">\n` +
      `<rect width="808" height="396" rx="8" fill="${colours.ground}"/>\n${drawn}\n${key}\n</svg>\n`);
  }
}

/* ---- the report of a log ---- */

async function suggest() {
  const { launch } = await import("../tests/homes/web/harness.mjs");
  const folder = mkdtempSync(path.join(tmpdir(), "weir-pictures-"));
  const browser = await launch();
  try {
    const page = path.join(folder, "report.html");
    execFileSync(weir, ["suggest", "--report", page, "examples/access.log.gz"], { cwd: root });
    for (const theme of ["light", "dark"]) {
      const view = await browser.newPage({ viewport: { width: 1000, height: 1000 }, colorScheme: theme, deviceScaleFactor: 1 });
      await view.goto(`file://${page}`);
      const end = await view.evaluate(() => document.querySelector(".legend").getBoundingClientRect().bottom); /* of the first chart */
      await view.screenshot({ path: path.join(images, `suggest-${theme}.png`), clip: { x: 0, y: 0, width: 1000, height: Math.ceil(end) + 2 } });
    }
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/* ---- the dashboard ---- */

const WARM_MS = 130000; /* so that the curves have a past */
const BUSY_DENIED = 50; /* per second */

/* A server with the demonstration's load; resolves to its address when it listens. */
function serve(folder) {
  const process = spawn(weir, ["serve", "--demo-load", "--listen", "127.0.0.1:0"],
    { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((resolve, reject) => {
    let said = "";
    process.on("exit", (code) => reject(new Error(`weir serve ended with ${code}`)));
    process.stdout.on("data", (data) => {
      said += data;
      const found = /dashboard: (http\S+)/.exec(said);
      if (found) resolve({ process, base: found[1] });
    });
  });
}

async function dashboard() {
  const { launch } = await import("../tests/homes/web/harness.mjs");
  const folder = mkdtempSync(path.join(tmpdir(), "weir-pictures-"));
  const server = await serve(folder);
  const browser = await launch();
  try {
    const pages = [];
    for (const [theme, language] of inAll()) {
      const page = await browser.newPage({ viewport: { width: 1240, height: 622 }, colorScheme: theme, locale: ["en-US", "zh-CN"][language], deviceScaleFactor: 1 });
      await page.goto(server.base);
      pages.push([`dashboard${LANGUAGES[language]}-${theme}.png`, page]);
    }
    await new Promise((resolve) => setTimeout(resolve, WARM_MS));
    for (const [name, page] of pages) {
      await page.waitForFunction((least) => Number(document.getElementById("rate-denied").textContent) >= least, BUSY_DENIED); /* not in a trough of the load */
      await page.screenshot({ path: path.join(images, name) });
    }
  } finally {
    await browser.close();
    server.process.removeAllListeners("exit");
    server.process.kill();
    rmSync(folder, { recursive: true, force: true });
  }
}

mkdirSync(images, { recursive: true });
const wanted = process.argv[2];
if (!wanted || wanted === "edge") edge();
if (!wanted || wanted === "kinds") kinds();
if (!wanted || wanted === "suggest") await suggest();
if (!wanted || wanted === "dashboard") await dashboard();
