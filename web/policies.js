/* The policies: each in words, with its current decisions. The file can change, so the list is read again now and
 * then. */

import { get } from "./api.js";
import { at, fill, h, say } from "./dom.js";
import { short } from "./format.js";
import { onLanguage, t, told, toldMatch } from "./language.js";
import { Spark } from "./lines.js";
import { live, looking, onLive, WINDOW_S } from "./live.js";

const SHOWN_MOST = 100;
const AGAIN_MS = 10000;

let list = null; /* the server's answer */
let readAt = -Infinity;
let reading = null; /* while the server is asked: who also needs the list waits for the same answer */
let cards = []; /* what is on the page */

const FAIL = {
  local: "failLocal",
  open: "failOpen",
  closed: "failClosed",
};

const WORDS = { allowed: "allowedRate", denied: "deniedRate", shadow: "shadowRate" };

/* A sparkline and its rates, updated in place. */
class Pulse {
  constructor(names) {
    this.names = names;
    this.spark = new Spark(names, WINDOW_S);
    this.figures = names.map(() => h("span", { class: "num" }, "–"));
    this.element = h("div", { class: "pulse" }, this.spark.svg, names.map((name, i) =>
      h("p", { class: `pulse-figure pulse-${name}` }, this.figures[i], h("span", { class: "unit" }, t(WORDS[name])))));
  }

  show(points, now) {
    const last = points && points.at(-1);
    this.names.forEach((name, i) => say(this.figures[i], last && last[name] !== null ? short(last[name]) : "–"));
    this.spark.show(points || [], now);
  }
}

/* Which class of requests may use how much of a limit. */
function shareRows(share) {
  return h("ul", { class: "limit-shares" }, share.classes.map((part, i) =>
    h("li", {}, h("span", { class: "num" }, part.share), " ",
      i + 1 < share.classes.length ? h("span", {}, h("code", {}, share.by), t("shareIs"), h("code", {}, part.class)) : t("shareOthers"),
      t("shareColon"), h("code", {}, part.limit))));
}

/* What a list begins with, and how many more it has. */
function listedRows(listed, count, row) {
  return [...listed.map((one) => h("li", {}, row(one))), count > listed.length ? h("li", {}, t("unlisted", { n: count - listed.length })) : null];
}

/* The conditions whose requests have another limit. */
function exceptRows(limit) {
  return h("ul", { class: "limit-shares limit-words" }, listedRows(limit.overrides, limit.override_count, (one) =>
    [t("exceptWord"), toldMatch(one.when), t("exceptIs"), h("code", {}, one.limit)]));
}

/* Who is denied whatever the limits say, and who is exempt from them. */
function listRows(policy) {
  return h("ul", { class: "limit-shares limit-words" },
    listedRows(policy.deny, policy.deny_count, (when) => t("denyList", { when: toldMatch(when) })),
    listedRows(policy.allow, policy.allow_count, (when) => t("allowList", { when: toldMatch(when) })));
}

function limitRow(limit) {
  const promise = limit.override_count > 0 ? "promiseOthers" : "promise";
  const pulse = new Pulse(["allowed", limit.shadow ? "shadow" : "denied"]);
  const row = h("li", { class: "limit" },
    h("div", { class: "limit-text" },
      h("p", { class: "limit-name" }, h("strong", {}, limit.name),
        limit.shadow ? h("span", { class: "tag tag-shadow" }, t("shadow")) : null,
        h("span", { class: "quiet" }, t("keyWord")), h("code", {}, limit.key)),
      h("p", {}, h("code", { class: "limit-code" }, limit.limit)),
      h("p", { class: "limit-words" }, told(limit.meaning)),
      limit.share ? shareRows(limit.share) : null,
      limit.override_count > 0 ? exceptRows(limit) : null,
      limit.guarantee ? h("p", { class: "limit-words quiet" }, t(promise, { text: told(limit.guarantee) })) : null),
    pulse.element);
  return { name: limit.name, shadow: limit.shadow, pulse, row };
}

/* When a policy applies, in words. */
function applies(match) {
  if (match === "every request") return t("everyRequest");
  if (match === "asked for by name") return t("onlyByName");
  return t("appliesWhen", { match: toldMatch(match) });
}

function card(policy, index) {
  const pulse = new Pulse(["allowed", "denied", "shadow"]);
  const limits = policy.limits.map(limitRow);
  const id = `policy-${index}`;
  const degraded = h("span", { class: "tag tag-warn", hidden: true });
  const element = h("article", { class: "card policy", "aria-labelledby": id },
    h("header", { class: "policy-head" },
      h("div", {},
        h("h3", { id }, policy.name, " ", degraded),
        h("p", { class: "quiet" }, applies(policy.match)),
        policy.deny_count + policy.allow_count > 0 ? listRows(policy) : null,
        h("p", { class: "tags" },
          policy.headers && policy.headers !== "off" ? h("span", { class: "tag" }, t("headersTag", { style: policy.headers })) : null,
          policy.fail ? h("span", { class: "tag" }, FAIL[policy.fail] ? t(FAIL[policy.fail]) : policy.fail) : null)),
      pulse.element),
    limits.length > 0
      ? h("ul", { class: "limits" }, limits.map((limit) => limit.row))
      : h("p", { class: "limit-words" }, t("noLimits")));
  return { name: policy.name, pulse, limits, element, degraded };
}

/* ---- drawing ---- */

function build() {
  const wanted = at("policy-filter").value.trim().toLowerCase();
  const all = list.policies;
  const matching = all.filter((policy) => `${policy.name} ${policy.match || ""}`.toLowerCase().includes(wanted));
  const chosen = matching.slice(0, SHOWN_MOST);
  cards = chosen.map(card);
  fill(at("policy-list"), cards.map((entry) => entry.element));
  let note = "";
  if (all.length === 0) note = t("noPolicies");
  else if (matching.length === 0) note = t("noMatch", { n: all.length, text: wanted });
  else if (matching.length > SHOWN_MOST) note = t("firstPolicies", { n: SHOWN_MOST, all: matching.length });
  say(at("policy-note"), note);
  at("policy-filter-row").hidden = all.length < 2;
  beat();
}

function beat() {
  const now = performance.now() / 1000;
  const counters = new Map(((live.stats && live.stats.policies) || []).map((policy) => [policy.name, policy]));
  for (const entry of cards) {
    const history = live.policies.get(entry.name);
    entry.pulse.show(history && history.points, now);
    const degraded = (counters.get(entry.name) || {}).degraded || 0;
    entry.degraded.hidden = degraded === 0;
    say(entry.degraded, t("byFallback", { n: short(degraded) }));
    for (const limit of entry.limits) {
      const points = history && history.limits.get(limit.name);
      const renamed = limit.shadow && points ? points.map((point) => ({ ...point, shadow: point.denied })) : points;
      limit.pulse.show(renamed, now);
    }
  }
}

async function readNow() {
  try {
    const answer = await get("v1/policies");
    readAt = performance.now();
    const changed = JSON.stringify(answer) !== JSON.stringify(list);
    list = answer;
    if (changed) build();
  } catch (error) {
    if (!list) say(at("policy-note"), t("cannotReadPolicies", { why: error.message }));
  }
  reading = null;
}

function read() {
  if (!reading && performance.now() - readAt >= AGAIN_MS) reading = readNow();
  return reading;
}

function show() {
  if (at("view-policies").hidden) return;
  if (looking() || !list) read();
  beat();
}

/* All names, for the lists of other views. */
export async function policyNames() {
  if (!list) await read();
  return list ? list.policies.map((policy) => policy.name) : [];
}

/* The limit of a policy's entry, or "". */
export async function limitOf(policyName, entryName) {
  if (!list) await read();
  const policy = list && list.policies.find((candidate) => candidate.name === policyName);
  const limit = policy && policy.limits.find((candidate) => candidate.name === entryName);
  return limit ? limit.limit : "";
}

export function startPolicies() {
  at("policy-filter").addEventListener("input", () => list && build());
  onLive(show);
  onLanguage(() => list && build());
}

export const policies = { show };
