/* Which section is visible, and whether the server answers. */

import { askAgain } from "./api.js";
import { at, fill, h, say } from "./dom.js";
import { inspector, startInspector } from "./inspector.js";
import { keys, startKeys } from "./keys.js";
import { onLanguage, setText, t } from "./language.js";
import { live, onLive, setPaused, start } from "./live.js";
import { overview, startOverview } from "./overview.js";
import { playground, startPlayground } from "./playground.js";
import { policies, startPolicies } from "./policies.js";

const views = { overview, policies, keys, inspector, playground };
let current = null;

/* #keys, #inspector?policy=api&key=ann */
function place() {
  const [name, ...rest] = location.hash.slice(1).split("?");
  return { name: views[name] ? name : "overview", words: new URLSearchParams(rest.join("?")) };
}

function showTitle(name) {
  document.title = name === "overview" ? "weir" : `${at(`${name}-title`).textContent} – weir`;
}

function go(event) {
  const { name, words } = place();
  for (const view of Object.keys(views)) at(`view-${view}`).hidden = view !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showTitle(name);
  if (event && name !== current) at(`${name}-title`).focus({ preventScroll: true });
  if (event) scrollTo(0, 0);
  current = name;
  views[name].show(words);
}

/* ---- the state of the connection ---- */

const STATES = {
  starting: "stateStarting",
  live: "stateLive",
  paused: "statePaused",
  lost: "stateLost",
  locked: "stateLocked",
};

const notice = (tone, title, text, ...more) =>
  h("div", { class: `notice notice-${tone}` }, h("p", {}, h("strong", {}, `${title} `), text), ...more);

let notices = "";

/* Announced once when it appears, not again every second. */
function showNotices() {
  const list = [];
  if (live.state === "lost") list.push("lost");
  if (live.state === "locked") list.push("locked");
  if (live.stats && live.stats.store && live.stats.store.degraded && live.state !== "lost") list.push("degraded");
  if (list.join() === notices) return;
  notices = list.join();
  const makers = {
    lost: () => notice("bad", t("lostTitle"), t("lostText")),
    locked: () => notice("warn", t("lockedTitle"), "", h("button", {
      type: "button",
      onclick: () => {
        askAgain();
        start();
      },
    }, t("enterToken"))),
    degraded: () => notice("warn", t("degradedTitle"), t("degradedText", { store: live.stats.store.kind })),
  };
  fill(at("notices"), list.map((name) => makers[name]()));
}

function showState() {
  setText(at("state-text"), STATES[live.state]);
  at("state").setAttribute("data-state", live.state);
  setText(at("pause"), live.paused ? "resume" : "pause");
  if (live.stats) say(at("version"), live.stats.version);
  showNotices();
}

startOverview();
startPolicies();
startKeys();
startInspector();
startPlayground();
onLive(showState);
onLanguage(() => {
  notices = "";
  showNotices();
  showTitle(current);
});
at("pause").addEventListener("click", () => setPaused(!live.paused));
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});
addEventListener("hashchange", go);
go();
start();
