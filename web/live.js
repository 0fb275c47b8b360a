/* The counters of the server, read once a second while the page is visible, kept as rates for an hour. What was decided before
 * the page looked, or while it did not look, comes from the history of the server. */

import { get, NoToken, Refused } from "./api.js";
import { behind, FINE_S, pastOf, push } from "./past.js";

export const WINDOW_S = FINE_S; /* of sparklines */
const EVERY_MS = 1000;
const SLOWEST_MS = 5000;
const MISSED_S = 8; /* after a longer pause the history is asked for what was missed */

const listeners = new Set();
let timer = null;
let running = false;
let failures = 0;
let before = null; /* the last counters and when they came */
let lookedAt = -Infinity; /* when the last answer came */

export const live = {
  state: "starting", /* starting, live, paused, hidden, lost, locked */
  why: "", /* lost: the reason */
  stats: null, /* the newest answer */
  points: [], /* {t, s, allowed, denied, shadow, p50, p99, p999}: see past.js */
  policies: new Map(), /* name → {points: [{t, s, allowed, denied, shadow}], limits: Map(name → points)} */
  restarted: false,
  paused: false,
};

export function onLive(listener) {
  listeners.add(listener);
}

function tell() {
  for (const listener of listeners) listener(live);
}

function enter(state, why = "") {
  const changed = live.state !== state || live.why !== why;
  live.state = state;
  live.why = why;
  return changed;
}

/* ---- counters ─► rates ---- */

/* Per second, or null if the counter was reset. */
function rate(now, then, seconds) {
  return then === undefined || now < then ? null : (now - then) / seconds;
}

function latency(stats, name) {
  const value = stats.latency && stats.latency.count > 0 ? stats.latency[name] : null;
  return typeof value === "number" && value > 0 ? value : null;
}

function historyOf(map, name, make) {
  let history = map.get(name);
  if (!history) map.set(name, (history = make()));
  return history;
}

const byName = (list) => new Map((list || []).map((entry) => [entry.name, entry]));

function learnPolicies(t, stats, then, seconds) {
  const earlier = byName(then.policies);
  for (const policy of stats.policies || []) {
    const old = earlier.get(policy.name);
    if (!old) continue;
    const history = historyOf(live.policies, policy.name, () => ({ points: [], limits: new Map() }));
    const oldLimits = byName(old.limits);
    let shadow = 0;
    for (const limit of policy.limits || []) {
      const was = oldLimits.get(limit.name) || {};
      const point = {
        t,
        s: seconds,
        allowed: rate(limit.allowed, was.allowed, seconds),
        denied: rate(limit.denied, was.denied, seconds),
      };
      if (limit.shadow) shadow += point.denied || 0;
      push(historyOf(history.limits, limit.name, () => []), point);
    }
    push(history.points, {
      t,
      s: seconds,
      allowed: rate(policy.allowed, old.allowed, seconds),
      denied: rate(policy.denied, old.denied, seconds),
      shadow,
    });
  }
}

/* When the server began, by its own clock. One that began again has new counters, also if it runs for longer now than it did
 * when it was last asked. */
const beginning = (stats) => stats.time - stats.uptime;

function learn(stats) {
  const t = performance.now() / 1000;
  const then = before;
  before = { stats, t };
  live.stats = stats;
  live.restarted = then !== null && Math.abs(beginning(stats) - beginning(then.stats)) > 0.001;
  if (!then || live.restarted) return;
  const seconds = stats.uptime - then.stats.uptime;
  if (!(seconds > 0.05)) {
    before = then;
    return;
  }
  const was = then.stats.totals;
  push(live.points, {
    t,
    s: seconds,
    allowed: rate(stats.totals.allowed, was.allowed, seconds),
    denied: rate(stats.totals.denied, was.denied, seconds),
    shadow: rate(stats.totals.shadow_denied, was.shadow_denied, seconds),
    p50: latency(stats, "p50"),
    p99: latency(stats, "p99"),
    p999: latency(stats, "p999"),
  });
  learnPolicies(t, stats, then.stats, seconds);
}

/* ---- what was missed ---- */

async function learnPast() {
  let history;
  try {
    history = await get("v1/history");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return; /* the charts begin now, then */
  }
  const past = pastOf(history, performance.now() / 1000);
  live.points = behind(live.points, past.points);
  for (const [name, { points, limits }] of past.policies) {
    const known = historyOf(live.policies, name, () => ({ points: [], limits: new Map() }));
    known.points = behind(known.points, points);
    for (const [limit, own] of limits) known.limits.set(limit, behind(known.limits.get(limit), own));
  }
  before = null; /* the pause is no single point */
}

/* ---- polling ---- */

async function poll() {
  timer = null;
  running = true;
  try {
    if (performance.now() / 1000 - lookedAt > MISSED_S) await learnPast();
    learn(await get("v1/stats"));
    lookedAt = performance.now() / 1000;
    failures = 0;
    enter(live.paused ? "paused" : "live");
  } catch (error) {
    failures++;
    enter(error instanceof NoToken ? "locked" : live.paused ? "paused" : "lost", error.message);
  }
  running = false;
  tell();
  plan();
}

function plan() {
  if (timer !== null || running || live.paused || document.hidden || live.state === "locked") return;
  const pause = failures === 0 ? EVERY_MS : Math.min(SLOWEST_MS, EVERY_MS * 2 ** Math.min(failures - 1, 4));
  timer = setTimeout(poll, pause);
}

function stop() {
  clearTimeout(timer);
  timer = null;
}

/* Now, and then every second. */
export function start() {
  if (running) return;
  stop();
  if (live.state === "locked") enter("starting");
  poll();
}

export function setPaused(paused) {
  live.paused = paused;
  stop();
  if (paused) {
    enter("paused");
    tell();
  } else {
    start();
  }
}

/* Whether views that need more data should get it now. */
export function looking() {
  return !live.paused && !document.hidden && live.state === "live";
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop();
  else if (!live.paused && live.state !== "locked") start();
});
