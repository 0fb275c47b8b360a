/* The overview: current decisions, latency, and how full the memory is. */

import { at, fill, fillWhen, h, say } from "./dom.js";
import { bytes, count, percent, short, time } from "./format.js";
import { Lines } from "./lines.js";
import { live, onLive } from "./live.js";
import { joined } from "./past.js";

/* What the charts show, in seconds, and what a row of the table stands for. */
const RANGES = {
  120: { words: "two minutes", step: 10, stepWords: "ten seconds" },
  900: { words: "15 minutes", step: 60, stepWords: "a minute" },
  3600: { words: "hour", step: 300, stepWords: "five minutes" },
};

let range = 120;
let decisions, denials, latencies;

const shown = (value, format) => (value === null || value === undefined ? "–" : format(value));

/* What a chart shows, in a sentence. */
function spoken(points, series) {
  const part = ({ name, label }) => {
    const values = points.map((point) => point[name]).filter((value) => value !== null);
    if (values.length === 0) return `${label}: nothing yet`;
    return `${label}: now ${short(values.at(-1))} per second, between ${short(Math.min(...values))} and ${short(Math.max(...values))}`;
  };
  return `The last ${RANGES[range].words}. ${series.map(part).join(". ")}.`;
}

function showTiles(stats, last) {
  const totals = stats.totals;
  say(at("rate-allowed"), shown(last && last.allowed, short));
  say(at("rate-denied"), shown(last && last.denied, short));
  say(at("rate-shadow"), shown(last && last.shadow, short));
  say(at("total-allowed"), `${count(totals.allowed)} in total`);
  const sum = last ? (last.allowed || 0) + (last.denied || 0) : 0;
  say(at("total-denied"), sum > 0 ? `${percent(last.denied || 0, sum)} of decisions, ${count(totals.denied)} in total` : `${count(totals.denied)} in total`);
  say(at("total-shadow"), `${count(totals.shadow_denied)} in total, not enforced`);
  const latency = stats.latency || {};
  const quiet = !(latency.count > 0);
  say(at("tile-p99"), quiet ? "–" : time(latency.p99));
  say(at("tile-p50"), quiet ? "no recent decisions" : `median ${time(latency.p50)}`);
  say(at("tile-open"), count(stats.connections.open));
  say(at("tile-refused"), stats.connections.refused > 0
    ? `${count(stats.connections.refused)} refused` : `${count(stats.connections.accepted)} accepted`);
}

function showLatency(stats) {
  const latency = stats.latency || {};
  for (const name of ["p50", "p90", "p99", "p999"]) {
    say(at(`latency-${name}`), latency.count > 0 ? time(latency[name]) : "–");
  }
}

/* A bar with its figure; `state` colours it. */
function meter(label, value, most, text) {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  const bar = h("span", { class: "meter-bar" });
  bar.style.width = `${(100 * share).toFixed(2)}%`;
  return h("div", { class: "meter-row" },
    h("div", { class: "meter-text" }, h("span", {}, label), h("span", { class: "num" }, text)),
    h("div", {
      class: `meter${share > 0.9 ? " is-high" : ""}`, role: "meter", "aria-label": label,
      "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * share), "aria-valuetext": text,
    }, bar));
}

const figure = (label, value, note, warn) =>
  h("div", { class: warn ? "pair is-warn" : "pair" },
    h("dt", {}, label), h("dd", { class: "num" }, value), note ? h("dd", { class: "pair-note" }, note) : null);

function zoneParts(zone, kind) {
  if (!zone) {
    return [h("p", { class: "quiet" }, `The state is kept in ${kind || "another server"}. Ask that server how full it is.`)];
  }
  const alive = zone.evicted_unused + zone.evicted_soonest;
  const states = `${count(zone.keys)} of ${count(zone.capacity)} (${percent(zone.keys, zone.capacity)})`;
  const large = `${bytes(zone.large_used)} of ${bytes(zone.large_bytes)}`;
  return [
    meter("States", zone.keys, zone.capacity, states),
    zone.large_bytes > 0 ? meter("Logs, windows, leases", zone.large_used, zone.large_bytes, large) : null,
    h("dl", { class: "pairs" },
      figure("Evicted, expired", count(zone.evicted_fresh), "changes nothing"),
      figure("Evicted in use", count(zone.evicted_unused), "in use", zone.evicted_unused > 0),
      figure("Evicted in use", count(zone.evicted_soonest), "while denied", zone.evicted_soonest > 0),
      figure("Repairs", count(zone.repairs), "after a process died"),
      figure("Size", bytes(zone.size), kind)),
    alive > 0
      ? h("p", { class: "hint" }, "States in use were evicted: those keys started again. Make the store larger.")
      : null,
  ];
}

function showZone(stats) {
  const kind = stats.store ? stats.store.kind : "";
  say(at("zone-title"), stats.zone ? "Zone" : "Store");
  fillWhen(at("zone"), [stats.zone, kind], () => zoneParts(stats.zone, kind));
}

function showTraffic(stats) {
  const requests = stats.requests || {};
  const connections = stats.connections;
  const uptime = time(Math.floor(stats.uptime));
  fillWhen(at("traffic"), [requests, connections, uptime, stats.version], () => [
    figure("HTTP requests", count(requests.http || 0)),
    figure("RESP commands", count(requests.resp || 0)),
    figure("gRPC calls", count(requests.grpc || 0)),
    figure("Connections open", count(connections.open)),
    figure("Accepted", count(connections.accepted)),
    figure("Refused", count(connections.refused), null, connections.refused > 0),
    figure("Up for", uptime),
    figure("Version", stats.version),
  ]);
}

/* The chart as a table, in steps, while it is open. */
function showTable(points, now) {
  if (!at("decisions-table").open) return;
  const { step, stepWords } = RANGES[range];
  const [size, unit] = step < 60 ? [1, "s"] : [60, "min"];
  const rows = [];
  for (let ago = 0; ago < range; ago += step) {
    const within = points.filter((point) => point.t <= now - ago && point.t > now - ago - step);
    const whole = within.length > 0 ? joined(within) : {};
    const mean = (name) => shown(whole[name], short);
    const when = ago === 0 ? `last ${step / size} ${unit}` : `${ago / size} to ${(ago + step) / size} ${unit} ago`;
    rows.push(h("tr", {}, h("th", { scope: "row" }, when),
      ...["allowed", "denied", "shadow"].map((name) => h("td", { class: "num" }, mean(name)))));
  }
  say(at("decisions-caption"), `Decisions per second, averaged over ${stepWords} each`);
  fill(at("decisions-rows"), rows);
}

function show() {
  if (at("view-overview").hidden || !live.stats) return;
  const now = performance.now() / 1000;
  const points = live.points;
  showTiles(live.stats, points.at(-1));
  showLatency(live.stats);
  showZone(live.stats);
  showTraffic(live.stats);
  showTable(points, now);
  for (const chart of [decisions, denials, latencies]) chart.show(points, now);
  const seen = points.filter((point) => point.t > now - range);
  for (const chart of [decisions, denials]) chart.svg.setAttribute("aria-label", spoken(seen, chart.series));
  latencies.svg.setAttribute("aria-label", `Decision latency over the last ${RANGES[range].words}; the figures are below`);
}

export function startOverview() {
  decisions = new Lines(at("decisions"), {
    series: [{ name: "allowed", label: "allowed" }], format: short, seconds: range, times: false, spoken: "Allowed per second",
  });
  denials = new Lines(at("denials"), {
    series: [{ name: "denied", label: "denied" }, { name: "shadow", label: "denied by shadow limits" }],
    format: short, seconds: range, spoken: "Denied per second",
  });
  decisions.peers = [denials];
  denials.peers = [decisions];
  latencies = new Lines(at("latencies"), {
    series: [{ name: "p50", label: "p50" }, { name: "p99", label: "p99" }, { name: "p999", label: "p99.9" }],
    format: time, seconds: range, log: true, spoken: "Decision latency; the figures are below",
  });
  at("decisions-table").addEventListener("toggle", show);
  at("range").addEventListener("change", (event) => {
    range = Number(event.target.value);
    for (const chart of [decisions, denials, latencies]) chart.seconds = range;
    show();
  });
  onLive(show);
}

export const overview = { show };
