/* The playground: a load, some limits, and what each limit decides about it, simulated by the server. All of it
 * is in the address, so that a link shows the same to others. */

import { post } from "./api.js";
import { Bars, scaleOf } from "./bars.js";
import { at, fill, h, say } from "./dom.js";
import { bytes, count, percent, span, time } from "./format.js";
import { onLanguage, setText, t, told } from "./language.js";
import { presets } from "./presets.js";

const LIMITS_MOST = 6;
/* What each kind of load is made of; the rest is common to all. */
const FIELDS = {
  steady: ["rate"],
  poisson: ["rate", "seed"],
  bursts: ["burst", "every", "rate"],
  edge: ["burst", "every", "rate"],
};
const COMMON = ["seconds", "keys", "cost", "wait"];
const EMPTY = { rate: "10", burst: "50", every: "60", seconds: "60", keys: "1", cost: "1", seed: "1", wait: "" };

let plays = 0;
let plots = [];
let last = null; /* the visible answer */
let wrong = null; /* the visible error */

const form = () => at("play-form");
const kind = () => form().elements.kind.value;

/* ---- the limits ---- */

function limitInputs() {
  return [...at("play-limits").querySelectorAll("input")];
}

function addLimit(text, focus) {
  const input = h("input", { type: "text", name: "limit", spellcheck: "false", autocapitalize: "off", autocomplete: "off", maxlength: 1023, required: true });
  input.value = text;
  const row = h("li", {}, input, h("button", { type: "button", class: "plain", onclick: () => removeLimit(row), "data-t": "remove" }, t("remove")));
  at("play-limits").append(row);
  numberLimits();
  if (focus) input.focus();
}

function removeLimit(row) {
  const next = row.nextElementSibling || row.previousElementSibling;
  row.remove();
  numberLimits();
  (next ? next.querySelector("input") : at("add-limit")).focus();
}

function numberLimits() {
  const inputs = limitInputs();
  inputs.forEach((input, i) => {
    input.setAttribute("aria-label", t("limitNumber", { n: i + 1 }));
    input.nextElementSibling.setAttribute("aria-label", t("removeNumber", { n: i + 1 }));
    input.nextElementSibling.hidden = inputs.length === 1;
  });
  at("add-limit").disabled = inputs.length >= LIMITS_MOST;
}

/* ---- form ⇄ address ⇄ body ---- */

function showKind() {
  const shown = new Set([...FIELDS[kind()], ...COMMON]);
  for (const part of form().querySelectorAll("[data-field]")) part.hidden = !shown.has(part.dataset.field);
  setText(at("rate-label"), kind() === "bursts" || kind() === "edge" ? "background" : "requests");
  setText(at("every-label"), kind() === "edge" ? "windowOf" : "every");
  setText(at("burst-label"), kind() === "edge" ? "onEachSide" : "atOnce");
}

function setForm(load, limits, shared) {
  const fields = form().elements;
  fields.shared.checked = shared;
  fields.kind.value = FIELDS[load.kind] ? load.kind : "steady";
  for (const [name, otherwise] of Object.entries(EMPTY)) fields[name].value = load[name] ?? otherwise;
  fill(at("play-limits"));
  for (const text of limits.slice(0, LIMITS_MOST)) addLimit(text, false);
  showKind();
}

/* Only values that differ from the defaults are included. */
function words() {
  const fields = form().elements;
  const said = new URLSearchParams({ kind: kind() });
  for (const name of [...FIELDS[kind()], ...COMMON]) {
    const value = fields[name].value.trim();
    if (value !== "" && (name === "seconds" || FIELDS[kind()].includes(name) || value !== EMPTY[name])) said.set(name, value);
  }
  if (fields.shared.checked) said.set("shared", "yes");
  for (const input of limitInputs()) said.append("limit", input.value.trim());
  return said;
}

class Mistake extends Error {
  constructor(field, name, values) {
    super(name);
    Object.assign(this, { field, words: () => t(name, values) });
  }
}

function body(said) {
  const load = { kind: said.get("kind") };
  for (const [name, value] of said) {
    if (name === "kind" || name === "limit" || name === "shared") continue;
    const number = Number(value);
    if (name === "wait" && value.toLowerCase() === "any") load.wait = "any";
    else if (Number.isFinite(number)) load[name] = number;
    else throw new Mistake(name, name === "wait" ? "invalidWait" : "invalidNumber", { value });
  }
  return { limits: said.getAll("limit"), load, ...(said.has("shared") ? { shared: true } : {}) };
}

/* The field that an error names: "load.rate is …", "limits[2] …". */
function blame(message) {
  const limit = /^limits\[(\d+)\]/.exec(message);
  if (limit) return limitInputs()[Number(limit[1])];
  const field = /^load\.(\w+)/.exec(message);
  return field ? form().elements[field[1]] : null;
}

function complain(error) {
  for (const field of form().querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  const place = at("play-error");
  wrong = error;
  say(place, error ? (error.words ? error.words() : error.message) : "");
  place.hidden = !error;
  if (!error) return;
  const field = error instanceof Mistake ? form().elements[error.field] : blame(error.message);
  if (field && field.setAttribute) field.setAttribute("aria-invalid", "true");
}

/* ---- the answer ---- */

function moved(i, by) {
  for (const plot of plots) plot.show(i);
  if (by && i !== null) say(at("play-spoken"), by.words(i));
}

function panel(answer, limit, scale, index) {
  const plot = new Bars(answer, limit, scale, moved);
  plots.push(plot);
  const id = `play-${index}`;
  return h("article", { class: "card panel", "aria-labelledby": id },
    h("h3", { id }, h("code", { class: "limit-code" }, limit.limit)),
    plot.element,
    limit.rules.map((rule) => h("p", { class: "limit-words" }, told(rule.meaning), " ",
      h("span", { class: "quiet" }, t("promise", { text: told(rule.guarantee) })))));
}

/* The most in any span of its period, and how many times the number in the limit that is. */
function worst(rule) {
  const times = rule.most / rule.count;
  return h("div", {}, h("strong", { class: "num" }, count(rule.most)), t("inSpan", { span: span(rule.span) }),
    times > 1 ? h("span", { class: "tag tag-over" }, `${Number(times.toFixed(2))} ×`) : null);
}

const promise = (rule) => h("div", {}, rule.bound === null ? "–" : `≤ ${count(rule.bound)}`);

function row(limit) {
  const bar = h("span", { class: "meter-bar" });
  bar.style.width = `${(100 * limit.admitted) / Math.max(1, limit.requests)}%`;
  const figure = (text) => h("td", { class: "num" }, text);
  return h("tr", {},
    h("th", { scope: "row" }, h("code", { class: "limit-code" }, limit.limit)),
    h("td", { class: "num" }, `${count(limit.admitted)} (${percent(limit.admitted, limit.requests)})`,
      h("span", { class: "meter", "aria-hidden": "true" }, bar)),
    figure(count(limit.denied)),
    figure(count(limit.delayed)),
    figure(limit.delayed > 0 ? time(limit.longest_delay) : "–"),
    h("td", { class: "nowrap" }, limit.rules.map(worst)),
    h("td", { class: "num" }, limit.rules.map(promise)),
    figure(bytes(limit.rules.reduce((sum, rule) => sum + rule.key_bytes, 0))));
}

function summary(answer) {
  const keys = answer.keys > 1 ? t("summaryKeys", { n: count(answer.keys) }) : "";
  const cost = answer.cost > 1 ? t("summaryCost", { n: count(answer.cost) }) : "";
  return t("summary", { requests: count(answer.requests), keys, cost, span: span(answer.seconds) });
}

/* Every bin as a table, made when it is opened. */
function binsTable(answer) {
  const table = h("div", { class: "scroll", role: "region", "aria-label": t("allBins"), tabindex: 0 });
  const details = h("details", { class: "card" }, h("summary", {}, t("allBinsTable")), table);
  details.addEventListener("toggle", () => {
    if (!details.open || table.firstChild) return;
    const head = answer.limits.map((limit) => h("th", { scope: "col" }, h("code", {}, limit.limit)));
    const rows = answer.arrivals.map((arrived, i) => h("tr", {}, h("th", { scope: "row", class: "num" }, time(i * answer.bin)),
      h("td", { class: "num" }, count(arrived)), answer.limits.map((limit) => h("td", { class: "num" }, count(limit.ahead_bins[i])))));
    fill(table, h("table", {}, h("caption", {}, t("binsCaption", { span: span(answer.bin) })),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("from")), h("th", { scope: "col" }, t("came")), head)), h("tbody", {}, rows)));
  });
  return details;
}

/* Limits that share a state have requests of their own; otherwise each gets all of them. */
function showAnswer(answer) {
  last = answer;
  plots = [];
  for (const limit of answer.limits) {
    limit.arrivals ??= answer.arrivals;
    limit.requests ??= answer.requests;
  }
  const scale = scaleOf(answer);
  fill(at("play-rows"), answer.limits.map(row));
  say(at("play-caption"), t("results", { summary: summary(answer) }));
  fill(at("play-panels"), answer.limits.map((limit, i) => panel(answer, limit, scale, i)));
  fill(at("play-bins"), binsTable(answer));
  say(at("play-key"), t("barsAre", { span: span(answer.bin) }));
  at("play-result").hidden = false;
  for (const plot of plots) plot.draw();
}

async function play() {
  const number = ++plays;
  const said = words();
  at("play-run").setAttribute("aria-busy", "true");
  history.replaceState(null, "", `#playground?${said}`);
  try {
    const answer = await post("v1/simulate", body(said));
    if (number !== plays) return;
    complain(null);
    showAnswer(answer);
    say(at("play-spoken"), t(answer.limits.length === 1 ? "playedOne" : "played", { summary: summary(answer), n: answer.limits.length }));
  } catch (error) {
    if (number === plays) complain(error);
  } finally {
    if (number === plays) at("play-run").removeAttribute("aria-busy");
  }
}

/* ---- presets and links ---- */

function choose(preset) {
  setForm(preset.load, preset.limits, preset.shared === true);
  markPreset(preset);
  play();
}

function markPreset(chosen) {
  presets.forEach((preset, i) => {
    at("presets").children[i].firstChild.setAttribute("aria-pressed", String(preset === chosen));
  });
  if (chosen) {
    setText(at("story"), chosen.story);
  } else {
    delete at("story").dataset.t;
    say(at("story"), "");
  }
}

async function copyLink() {
  const link = location.href;
  const field = at("play-link");
  try {
    await navigator.clipboard.writeText(link);
    say(at("play-spoken"), t("linkCopied"));
    say(at("play-copied"), t("copied"));
    setTimeout(() => say(at("play-copied"), ""), 3000);
  } catch {
    field.hidden = false;
    field.value = link;
    field.select();
  }
}

function show(said) {
  if (said === undefined) return;
  if (said.has("kind")) {
    setForm(Object.fromEntries(said), said.getAll("limit"), said.has("shared"));
    if (limitInputs().length === 0) addLimit("token-bucket 10/s burst 20", false);
    markPreset(null);
    play();
  } else if (limitInputs().length === 0) {
    choose(presets[0]);
  } else {
    history.replaceState(null, "", `#playground?${words()}`);
  }
}

export function startPlayground() {
  fill(at("presets"), presets.map((preset) =>
    h("li", {}, h("button", { type: "button", "aria-pressed": "false", onclick: () => choose(preset), "data-t": preset.name }, t(preset.name)))));
  form().addEventListener("submit", (event) => {
    event.preventDefault();
    play();
  });
  form().addEventListener("change", (event) => event.target.name === "kind" && showKind());
  form().addEventListener("input", () => markPreset(null));
  at("add-limit").addEventListener("click", () => addLimit("", true));
  at("play-copy").addEventListener("click", copyLink);
  onLanguage(() => {
    numberLimits();
    if (last) showAnswer(last);
    if (wrong) complain(wrong);
  });
}

export const playground = { show };
