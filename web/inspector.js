/* The inspector: the state of one key, what a request would get, and two actions: take and reset. */

import { post, Refused, Unreachable } from "./api.js";
import { at, fill, h, say } from "./dom.js";
import { count, time } from "./format.js";
import { onLanguage, t } from "./language.js";
import { LimitRow, usedUnder } from "./limitrow.js";
import { looking, onLive } from "./live.js";
import { guessQuestion, readName } from "./names.js";
import { limitOf, policyNames } from "./policies.js";

let asked = null; /* the body of the visible question, or null */
let arrivals = 0; /* addresses that were opened, and what was typed since: an older address changes nothing */
let sent = 0; /* questions so far; a late answer to an older one changes nothing */
let answered = 0;
let waiting = 0; /* questions without an answer yet */
let mistaken = false; /* the form has a mistake; the last valid question is still followed */
let rows = []; /* of the table, updated in place */
let shape = "";
let keys = new Map(); /* of the visible answer: what a reset can forget */
let offered = keys; /* those that the dialog shows */
let last = null; /* the visible answer */
let wrong = null; /* the visible error */
let done = () => ""; /* makes what the last action says */

const form = () => at("inspect-form");
const mode = () => form().elements.mode.value;

/* The address that inspects a state of a policy. */
export function inspectLink(policy, entry) {
  const words = new URLSearchParams({ policy });
  if (entry.key_base64 !== undefined) words.set("state_base64", entry.key_base64);
  else words.set("state", entry.key);
  return `#inspector?${words}`;
}

/* The question about a state: by the attributes of its callers if that leads to it, otherwise by name and limit. */
async function questionAbout(policy, name) {
  const guess = guessQuestion(policy, name);
  try {
    const answer = guess && (await post("v1/explain", guess));
    if (answer && answer.limits.some((limit) => limit.key === name)) return guess;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
  const read = readName(policy, name);
  return { key: name, limit: await limitOf(policy, read ? read.entry : policy) };
}

/* The question for an address with the name of a state. */
async function questionIn(words) {
  const policy = words.get("policy") ?? "";
  if (words.has("state")) return questionAbout(policy, words.get("state"));
  return { key_base64: words.get("state_base64"), limit: await limitOf(policy, policy) };
}

const place = () => new URLSearchParams(location.hash.split("?").slice(1).join("?"));

/* ---- the question ---- */

class Mistake extends Error {
  constructor(field, name, values) {
    super(name);
    Object.assign(this, { field, words: () => t(name, values) });
  }
}

function attributes(text) {
  const found = {};
  text.split("\n").forEach((line, i) => {
    if (line.trim() === "") return;
    const cut = line.indexOf("=");
    if (cut < 1) throw new Mistake("attributes", "invalidLine", { n: i + 1, line: line.trim() });
    found[line.slice(0, cut).trim()] = line.slice(cut + 1);
  });
  if (Object.keys(found).length === 0) throw new Mistake("attributes", "needLine");
  return found;
}

function keyOf(fields) {
  if (fields.key.value === "") throw new Mistake("key", "needKey");
  return fields.binary.checked ? { key_base64: fields.key.value } : { key: fields.key.value };
}

/* The question of the form, as the API expects it. */
function question() {
  const fields = form().elements;
  const body = {};
  if (mode() === "limit") {
    Object.assign(body, keyOf(fields));
    if (fields.limit.value.trim() === "") throw new Mistake("limit", "needLimit");
    body.limit = fields.limit.value.trim();
  } else if (mode() === "policy") {
    if (fields.policy.value === "") throw new Mistake("policy", "needPolicy");
    Object.assign(body, { policy: fields.policy.value }, keyOf(fields));
  } else {
    if (fields.scope.value !== "") body.policy = fields.scope.value;
    body.attributes = attributes(fields.attributes.value);
  }
  const cost = fields.cost.value.trim();
  if (cost === "") return body; /* each limit's own */
  if (!/^\d{1,13}$/.test(cost)) throw new Mistake("cost", "invalidCost", { cost });
  body.cost = Number(cost);
  return body;
}

/* The form in the address, so that a reload or a link asks the same. */
function address(body) {
  const words = new URLSearchParams();
  for (const name of ["policy", "key", "key_base64", "limit", "cost"]) {
    if (body[name] !== undefined) words.set(name, body[name]);
  }
  for (const [name, value] of Object.entries(body.attributes || {})) words.append("attribute", `${name}=${value}`);
  return `#inspector?${words}`;
}

function takeAddress(words) {
  const fields = form().elements;
  const kind = words.has("attribute") ? "attributes" : words.has("limit") ? "limit" : "policy";
  fields.mode.value = kind;
  fields.key.value = words.get("key") ?? words.get("key_base64") ?? "";
  fields.binary.checked = words.has("key_base64");
  fields.limit.value = words.get("limit") ?? "";
  fields.attributes.value = words.getAll("attribute").join("\n");
  fields.cost.value = words.get("cost") ?? "";
  if (kind === "attributes") choosePolicy(fields.scope, words.get("policy") ?? "");
  else if (words.has("policy")) choosePolicy(fields.policy, words.get("policy"));
  showMode();
}

function choosePolicy(select, name) {
  if (![...select.options].some((option) => option.value === name)) select.append(h("option", { value: name }, name));
  select.value = name;
}

function showMode() {
  for (const part of form().querySelectorAll("[data-modes]")) {
    part.hidden = !part.dataset.modes.split(" ").includes(mode());
  }
}

function showError(error) {
  const place = at("inspect-error");
  wrong = error;
  say(place, error ? (error.words ? error.words() : error.message) : "");
  place.hidden = !error;
}

function complain(error) {
  for (const field of form().querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  showError(error);
  mistaken = error instanceof Mistake;
  if (mistaken) {
    const field = form().elements[error.field];
    field.setAttribute("aria-invalid", "true");
    field.focus();
  }
}

/* ---- the answer ---- */

const verdicts = {
  allow: ["allowed", "allowListed"],
  deny: ["denied", "denyListed"],
  none: ["allowed", "noPolicyApplies"],
};

function verdict(answer, cost) {
  if (verdicts[answer.verdict]) {
    const [tone, name] = verdicts[answer.verdict];
    return [tone, t(name)];
  }
  const what = cost === 1 ? t("oneRequest") : t("requestOfCost", { cost: count(cost) });
  if (answer.allowed) {
    return answer.delay > 0
      ? ["waits", t("wouldWait", { what, time: time(answer.delay) })] : ["allowed", t("wouldAllow", { what })];
  }
  return answer.retry_after === null
    ? ["denied", t("wouldNever", { what })]
    : ["denied", t("wouldDeny", { what, time: time(answer.retry_after) })];
}

/* What has the key of a limit: its row, or the question. */
const keyed = (limit) => (limit.key !== undefined || limit.key_base64 !== undefined ? limit : asked);
const nameOf = (limit) => keyed(limit).key_base64 ?? keyed(limit).key;

function showAnswer(answer) {
  last = answer;
  const [tone, words] = verdict(answer, asked.cost ?? 1);
  at("inspect-result").hidden = false;
  say(at("verdict"), words);
  at("verdict").className = `verdict verdict-${tone}`;
  const limits = answer.limits || [];
  const now = JSON.stringify([asked, limits.map((limit) => [limit.policy, limit.name, limit.key, limit.key_base64, limit.text])]);
  if (now !== shape) {
    shape = now;
    rows = limits.map((limit) => new LimitRow(limit, nameOf(limit)));
    const table = at("inspect-limits");
    for (const body of [...table.tBodies]) body.remove();
    table.append(...rows.map((row) => row.element));
  }
  limits.forEach((limit, i) => rows[i].show(limit));
  at("inspect-table").hidden = limits.length === 0;
  keys = keysOf(limits);
  at("reset").disabled = keys.size === 0;
  say(at("take"), takeWords(limits));
}

async function ask(body) {
  const number = ++sent;
  waiting++;
  try {
    const answer = await post("v1/explain", body);
    if (body !== asked || number < answered) return;
    answered = number;
    showAnswer(answer);
    if (!mistaken) complain(null);
  } catch (error) {
    if (body === asked && !mistaken && !(error instanceof Unreachable)) complain(error);
  } finally {
    waiting--;
  }
}

/* ---- take and reset ---- */

/* The keys of the visible answer, each once: what the API expects, {key} or {key_base64}, and the limits that count under it. */
function keysOf(limits) {
  const found = new Map();
  for (const limit of limits) {
    const text = nameOf(limit);
    const body = keyed(limit).key_base64 !== undefined ? { key_base64: text } : { key: text };
    if (!found.has(text)) found.set(text, { body, limits: [] });
    found.get(text).limits.push(limit);
  }
  return found;
}

function showDone(words = () => "") {
  done = words;
  say(at("done"), done());
}

/* What the button charges: one amount, or if they differ the amount of each limit. */
function takeWords(limits) {
  const charged = limits.filter((limit) => !limit.shadow && limit.cost !== undefined);
  const amounts = [...new Set(charged.map((limit) => count(limit.cost)))];
  if (charged.length === 0) return t(limits.length === 0 ? "takeFree" : "takeOne");
  if (amounts.length === 1) return t("takeCharges", { amounts: amounts[0] });
  const each = charged.map((limit) => t("amountOf", { name: limit.name ?? limit.text, n: count(limit.cost) }));
  return t("takeCharges", { amounts: each.join(t("amountsBetween")) });
}

function takenWords(decision) {
  if (!decision.allowed) return t(decision.retry_after === null ? "takeNever" : "takeDenied", { time: time(decision.retry_after) });
  const left = decision.remaining !== undefined ? t("takenLeft", { n: count(decision.remaining) }) : "";
  const after = decision.delay > 0 ? t("takenAfter", { time: time(decision.delay) }) : "";
  return t("taken", { after, left });
}

async function take() {
  const body = asked;
  try {
    const decision = await post("v1/take", body);
    showDone(() => takenWords(decision));
    complain(null);
  } catch (error) {
    showDone();
    complain(error);
  }
  if (asked === body) await ask(body);
}

/* Which keys to reset, and what they forget. Nothing is ticked before: one of them may be shared by all callers. */
function confirmReset() {
  const dialog = at("reset-dialog");
  offered = keys;
  fill(at("reset-keys"), [...offered].map(([text, { limits }]) =>
    h("li", { class: "check" }, h("label", {}, h("input", { type: "checkbox", value: text }), h("span", {}, h("code", {}, text),
      limits.map((limit) => h("span", { class: "limit-words quiet" }, h("code", {}, limit.text), " ",
        t("usedOf", { n: count(usedUnder(limit)), limit: count(limit.limit) }))))))));
  allowReset();
  dialog.returnValue = "";
  dialog.showModal();
}

const ticked = () => [...at("reset-keys").querySelectorAll("input:checked")].map((box) => offered.get(box.value).body);

function allowReset() {
  at("reset-now").disabled = ticked().length === 0;
}

async function reset() {
  const body = asked;
  try {
    let there = false;
    for (const key of ticked()) there = (await post("v1/reset", key)).reset || there;
    showDone(() => t(there ? "resetDone" : "resetNothing"));
    complain(null);
  } catch (error) {
    showDone();
    complain(error);
  }
  if (asked === body) await ask(body);
}

/* ---- together ---- */

function submit(event) {
  event.preventDefault();
  arrivals++;
  showDone();
  try {
    asked = question();
  } catch (error) {
    complain(error);
    return;
  }
  complain(null);
  history.replaceState(null, "", address(asked));
  ask(asked);
}

/* The policies; the current choice is kept, also if it is none of them. */
async function fillPolicies() {
  const names = await policyNames().catch(() => []);
  const fields = form().elements;
  for (const select of [fields.policy, fields.scope]) {
    const chosen = select.value;
    fill(select, select === fields.scope ? h("option", { value: "", "data-t": "allMatching" }, t("allMatching")) : null,
      names.map((name) => h("option", { value: name }, name)));
    if (chosen !== "") choosePolicy(select, chosen);
  }
  return names;
}

/* Without a question: the form waits for one. */
async function arriveEmpty(number) {
  showMode();
  const names = await fillPolicies();
  if (number !== arrivals || names.length > 0) return;
  form().elements.mode.value = "limit";
  showMode();
}

/* The name of a state leads to its question by way of the server. What the reader does meanwhile counts. */
async function arriveAtState(words, number) {
  const body = await questionIn(words);
  if (number !== arrivals || at("view-inspector").hidden) return;
  history.replaceState(null, "", address(body));
  arriveAtQuestion(place());
}

function arriveAtQuestion(words) {
  takeAddress(words);
  asked = question();
  complain(null);
  ask(asked);
}

/* #inspector, or with a query: the question, or the name of a state. The form is filled at once, never under somebody's hands. */
async function arrive(words) {
  const number = ++arrivals;
  if ([...words].length === 0) {
    await arriveEmpty(number);
    return;
  }
  showDone();
  try {
    if (words.has("state") || words.has("state_base64")) await arriveAtState(words, number);
    else arriveAtQuestion(words);
  } catch (error) {
    if (number === arrivals) complain(error);
  }
  fillPolicies();
}

function show(words) {
  if (at("view-inspector").hidden) return;
  if (words !== undefined) arrive(words);
  else if (asked && at("follow").checked && looking() && waiting === 0) ask(asked);
}

export function startInspector() {
  form().addEventListener("submit", submit);
  form().addEventListener("input", () => arrivals++);
  form().addEventListener("change", (event) => event.target.name === "mode" && showMode());
  at("take").addEventListener("click", take);
  at("reset").addEventListener("click", confirmReset);
  at("reset-keys").addEventListener("change", allowReset);
  at("reset-dialog").addEventListener("close", () => at("reset-dialog").returnValue === "reset" && reset());
  onLive(() => show());
  onLanguage(() => {
    shape = "";
    if (last && asked) showAnswer(last);
    showError(wrong);
    showDone(done);
  });
  showMode();
}

export const inspector = { show };
