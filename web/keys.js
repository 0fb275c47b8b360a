/* The keys: for each policy the hottest, the most denied, and those that shadow limits would deny. A list keeps
 * its order while the pointer or the focus is in it, so that a click always hits the key that was seen. */

import { get } from "./api.js";
import { at, fill, h, say } from "./dom.js";
import { short } from "./format.js";
import { inspectLink } from "./inspector.js";
import { onLanguage, t } from "./language.js";
import { looking, onLive } from "./live.js";
import { labelOf } from "./names.js";

const EVERY_MS = 2000;
const SHOWN_MOST = 50; /* policies */

let readAt = -Infinity;
let reading = false;
let lists = new Map(); /* policy and kind → List */
let names = "";
let last = null; /* the answer on the page */

const idOf = (entry) => (entry.key_base64 !== undefined ? `b ${entry.key_base64}` : `k ${entry.key}`);

/* Without a policy: the request named its limits itself. */
const titleOf = (policy) => policy || t("limitsInRequests");

class Row {
  constructor(policy, entry) {
    this.bar = h("span", { class: "key-bar" });
    this.figure = h("span", { class: "num key-rate" });
    const binary = entry.key_base64 !== undefined;
    const label = binary ? { text: entry.key_base64, entry: "base64" } : labelOf(policy, entry.key);
    this.element = h("li", {},
      h("a", { class: "key-link", href: inspectLink(policy, entry) },
        this.bar, h("code", { class: "key-name" }, label.text),
        label.entry ? h("span", { class: "tag" }, label.entry) : null, this.figure));
  }

  show(rate, most) {
    this.bar.style.width = `${most > 0 ? Math.max(0.5, (100 * rate) / most).toFixed(1) : 0}%`;
    say(this.figure, t("rate", { n: short(rate) }));
  }
}

class List {
  constructor(policy, kind) {
    this.policy = policy;
    this.rows = new Map();
    this.items = h("ol", { class: `keys keys-${kind}` });
    this.note = h("p", { class: "quiet" }, t(kind === "denied" ? "noneDenied" : "noKeysYet"));
  }

  held() {
    return this.items.matches(":hover") || this.items.contains(document.activeElement);
  }

  show(entries) {
    const most = Math.max(0, ...entries.map((entry) => entry.rate));
    const fresh = new Map(entries.map((entry) => [idOf(entry), entry]));
    this.note.hidden = entries.length > 0;
    if (this.held() && this.rows.size > 0) {
      for (const [id, row] of this.rows) row.show(fresh.has(id) ? fresh.get(id).rate : 0, most);
      return;
    }
    const old = this.rows;
    this.rows = new Map();
    for (const [id, entry] of fresh) {
      const row = old.get(id) || new Row(this.policy, entry);
      row.show(entry.rate, most);
      this.rows.set(id, row);
    }
    fill(this.items, [...this.rows.values()].map((row) => row.element));
  }
}

function card(policy, index) {
  const id = `keys-of-${index}`;
  const hottest = new List(policy.name, "hottest");
  const denied = new List(policy.name, "denied");
  const shadow = new List(policy.name, "denied");
  shadow.part = h("div", { hidden: true }, h("h4", {}, t("wouldBeDenied")), shadow.items);
  lists.set(policy.name, { hottest, denied, shadow });
  return h("article", { class: "card", "aria-labelledby": id },
    h("h3", { id }, titleOf(policy.name)),
    h("div", { class: "halves" },
      h("div", {}, h("h4", {}, t("hottest")), hottest.items, hottest.note),
      h("div", {}, h("h4", {}, t("mostDenied")), denied.items, denied.note), shadow.part));
}

function showAnswer(answer) {
  last = answer;
  const wanted = at("keys-policy").value;
  const all = answer.policies;
  const known = JSON.stringify(all.map((policy) => policy.name));
  if (known !== names) {
    names = known;
    fill(at("keys-policy"), h("option", { value: "" }, t("allPolicies")),
      all.map((policy) => h("option", { value: JSON.stringify(policy.name), selected: JSON.stringify(policy.name) === wanted }, titleOf(policy.name))));
    at("keys-policy-row").hidden = all.length < 2;
    build(all);
  }
  for (const policy of all) {
    const shown = lists.get(policy.name);
    if (!shown) continue;
    shown.hottest.show(policy.hottest || []);
    shown.denied.show(policy.denied || []);
    shown.shadow.show(policy.shadow_denied || []);
    shown.shadow.part.hidden = shown.shadow.rows.size === 0;
  }
  let note = "";
  if (all.length === 0) note = t("noRequests");
  else if (wanted === "" && all.length > SHOWN_MOST) note = t("firstOfKeys", { n: SHOWN_MOST, all: all.length });
  say(at("keys-note"), note);
}

function build(all) {
  const wanted = at("keys-policy").value;
  lists = new Map();
  const chosen = all.filter((policy) => wanted === "" || JSON.stringify(policy.name) === wanted);
  fill(at("keys-list"), chosen.slice(0, SHOWN_MOST).map(card));
}

async function read() {
  if (reading) return;
  reading = true;
  readAt = performance.now();
  try {
    showAnswer(await get("v1/top"));
  } catch (error) {
    say(at("keys-note"), t("cannotReadKeys", { why: error.message }));
  }
  reading = false;
}

function show() {
  if (at("view-keys").hidden) return;
  if (performance.now() - readAt >= EVERY_MS - 200 && (looking() || names === "")) read();
}

export function startKeys() {
  at("keys-policy").addEventListener("change", () => {
    names = "";
    read();
  });
  onLive(show);
  onLanguage(() => {
    names = "";
    if (last) showAnswer(last);
  });
}

export const keys = { show };
