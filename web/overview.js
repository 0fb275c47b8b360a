/* The overview: current decisions, latency, and how full the memory is. */

import { at, fill, fillWhen, h, say } from "./dom.js";
import { bytes, count, percent, short, time } from "./format.js";
import { onLanguage, setText, t } from "./language.js";
import { Lines } from "./lines.js";
import { live, onLive } from "./live.js";
import { joined } from "./past.js";

/* What the charts show, in seconds, and what a row of the table stands for. */
const RANGES = {
  120: { words: "last2m", step: 10, caption: "averaged10s" },
  900: { words: "last15m", step: 60, caption: "averaged1m" },
  3600: { words: "last1h", step: 300, caption: "averaged5m" },
};

let range = 120;
let decisions, denials, latencies;

const shown = (value, format) => (value === null || value === undefined ? "–" : format(value));

/* What a chart shows, in a sentence. */
function spoken(points, series) {
  const part = ({ name, label }) => {
    const values = points.map((point) => point[name]).filter((value) => value !== null);
    if (values.length === 0) return t("spokenNothing", { label: label() });
    const [now, least, most] = [values.at(-1), Math.min(...values), Math.max(...values)].map(short);
    return t("spokenRange", { label: label(), now, least, most });
  };
  return t("spokenChart", { last: t(RANGES[range].words), parts: series.map(part).join(t("spokenJoin")) });
}

function showTiles(stats, last) {
  const totals = stats.totals;
  say(at("rate-allowed"), shown(last && last.allowed, short));
  say(at("rate-denied"), shown(last && last.denied, short));
  say(at("rate-shadow"), shown(last && last.shadow, short));
  say(at("total-allowed"), t("inTotal", { n: count(totals.allowed) }));
  const sum = last ? (last.allowed || 0) + (last.denied || 0) : 0;
  const denied = count(totals.denied);
  say(at("total-denied"), sum > 0 ? t("shareInTotal", { share: percent(last.denied || 0, sum), n: denied }) : t("inTotal", { n: denied }));
  say(at("total-shadow"), t("notEnforced", { n: count(totals.shadow_denied) }));
  const latency = stats.latency || {};
  const quiet = !(latency.count > 0);
  say(at("tile-p99"), quiet ? "–" : time(latency.p99));
  say(at("tile-p50"), quiet ? t("noDecisions") : t("median", { time: time(latency.p50) }));
  say(at("tile-open"), count(stats.connections.open));
  say(at("tile-refused"), stats.connections.refused > 0
    ? t("refusedCount", { n: count(stats.connections.refused) }) : t("acceptedCount", { n: count(stats.connections.accepted) }));
}

function showLatency(stats) {
  const latency = stats.latency || {};
  for (const name of ["p50", "p90", "p99", "p999"]) {
    say(at(`latency-${name}`), latency.count > 0 ? time(latency[name]) : "–");
  }
}

/* A bar with its figure. Nearly full is bad, unless it is `good`. */
function meter(label, value, most, text, good) {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  const bar = h("span", { class: "meter-bar" });
  bar.style.width = `${(100 * share).toFixed(2)}%`;
  return h("div", { class: "meter-row" },
    h("div", { class: "meter-text" }, h("span", {}, label), h("span", { class: "num" }, text)),
    h("div", {
      class: `meter${share > 0.9 && !good ? " is-high" : ""}`, role: "meter", "aria-label": label,
      "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * share), "aria-valuetext": text,
    }, bar));
}

const figure = (label, value, note, warn) =>
  h("div", { class: warn ? "pair is-warn" : "pair" },
    h("dt", {}, label), h("dd", { class: "num" }, value), note ? h("dd", { class: "pair-note" }, note) : null);

function sliceParts(slices) {
  const local = slices.by_slice + slices.by_denial;
  const all = local + slices.by_redis;
  const lost = slices.units_lost;
  return [
    meter(t("slicesLocal"), local, all, t("countOfShare", { n: count(local), most: count(all), share: percent(local, all) }), true),
    h("dl", { class: "pairs" },
      figure(t("slicesHeld"), count(slices.units_held), t("slicesHeldNote", { n: count(slices.held) })),
      figure(t("slicesTaken"), count(slices.units_taken)),
      figure(t("slicesReturned"), count(slices.units_returned)),
      figure(t("slicesLost"), count(lost), t("slicesLostNote"), lost > 0),
      figure(t("slicesCalls"), count(slices.calls))),
    slices.trouble ? h("p", { class: "hint" }, t("slicesTrouble")) : null,
  ];
}

function zoneParts(zone, kind, slices) {
  if (!zone) {
    return [
      h("p", { class: "quiet" }, t("storeElsewhere", { store: kind || t("anotherServer") })),
      ...(slices ? sliceParts(slices) : []),
    ];
  }
  const alive = zone.evicted_unused + zone.evicted_soonest;
  const states = t("countOfShare", { n: count(zone.keys), most: count(zone.capacity), share: percent(zone.keys, zone.capacity) });
  const large = t("countOf", { n: bytes(zone.large_used), most: bytes(zone.large_bytes) });
  return [
    meter(t("states"), zone.keys, zone.capacity, states),
    zone.large_bytes > 0 ? meter(t("largeStates"), zone.large_used, zone.large_bytes, large) : null,
    h("dl", { class: "pairs" },
      figure(t("evictedExpired"), count(zone.evicted_fresh), t("changesNothing")),
      figure(t("evictedInUse"), count(zone.evicted_unused), t("inUse"), zone.evicted_unused > 0),
      figure(t("evictedInUse"), count(zone.evicted_soonest), t("whileDenied"), zone.evicted_soonest > 0),
      figure(t("repairs"), count(zone.repairs), t("afterDeath")),
      figure(t("size"), bytes(zone.size), kind)),
    alive > 0
      ? h("p", { class: "hint" }, t("evictedHint"))
      : null,
  ];
}

function showZone(stats) {
  const kind = stats.store ? stats.store.kind : "";
  setText(at("zone-title"), stats.zone ? "zone" : "store");
  const slices = stats.store ? stats.store.slices : null;
  fillWhen(at("zone"), [stats.zone, kind, slices], () => zoneParts(stats.zone, kind, slices));
}

function showTraffic(stats) {
  const requests = stats.requests || {};
  const connections = stats.connections;
  const uptime = time(Math.floor(stats.uptime));
  fillWhen(at("traffic"), [requests, connections, uptime, stats.version], () => [
    figure(t("httpRequests"), count(requests.http || 0)),
    figure(t("respCommands"), count(requests.resp || 0)),
    figure(t("grpcCalls"), count(requests.grpc || 0)),
    figure(t("connectionsOpen"), count(connections.open)),
    figure(t("accepted"), count(connections.accepted)),
    figure(t("refused"), count(connections.refused), null, connections.refused > 0),
    figure(t("upFor"), uptime),
    figure(t("version"), stats.version),
  ]);
}

/* The chart as a table, in steps, while it is open. */
function showTable(points, now) {
  if (!at("decisions-table").open) return;
  const { step, caption } = RANGES[range];
  const [size, last, between] = step < 60 ? [1, "lastSeconds", "betweenSeconds"] : [60, "lastMinutes", "betweenMinutes"];
  const rows = [];
  for (let ago = 0; ago < range; ago += step) {
    const within = points.filter((point) => point.t <= now - ago && point.t > now - ago - step);
    const whole = within.length > 0 ? joined(within) : {};
    const mean = (name) => shown(whole[name], short);
    const when = ago === 0 ? t(last, { n: step / size }) : t(between, { from: ago / size, to: (ago + step) / size });
    rows.push(h("tr", {}, h("th", { scope: "row" }, when),
      ...["allowed", "denied", "shadow"].map((name) => h("td", { class: "num" }, mean(name)))));
  }
  setText(at("decisions-caption"), caption);
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
  speak(points.filter((point) => point.t > now - range));
}

function speak(points) {
  for (const chart of [decisions, denials]) chart.svg.setAttribute("aria-label", spoken(points, chart.series));
  latencies.svg.setAttribute("aria-label", t("spokenLatency", { last: t(RANGES[range].words) }));
}

export function startOverview() {
  decisions = new Lines(at("decisions"), {
    series: [{ name: "allowed", label: () => t("allowedWord") }], format: short, seconds: range, times: false,
  });
  denials = new Lines(at("denials"), {
    series: [{ name: "denied", label: () => t("deniedWord") }, { name: "shadow", label: () => t("shadowWord") }],
    format: short, seconds: range,
  });
  decisions.peers = [denials];
  denials.peers = [decisions];
  latencies = new Lines(at("latencies"), {
    series: [{ name: "p50", label: () => "p50" }, { name: "p99", label: () => "p99" }, { name: "p999", label: () => "p99.9" }],
    format: time, seconds: range, log: true,
  });
  at("decisions-table").addEventListener("toggle", show);
  at("range").addEventListener("change", (event) => {
    range = Number(event.target.value);
    for (const chart of [decisions, denials, latencies]) chart.seconds = range;
    show();
  });
  speak([]);
  onLive(show);
  onLanguage(() => {
    speak([]);
    show();
  });
}

export const overview = { show };
