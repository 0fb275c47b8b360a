/* English or Chinese: as chosen on the page, otherwise as the browser prefers. The choice is remembered. Elements with data-t
 * get their text from the table, those with data-t-NAME their attribute NAME. */

import { matchInChinese, meaningInChinese } from "./meanings.js";
import { TEXTS } from "./texts.js";

const STORED = "weir-language";
const TAGS = { en: "en", zh: "zh-CN" };
const COLUMNS = { en: 0, zh: 1 };
const ATTRIBUTES = ["aria-label", "placeholder"];

/* The first language of the browser that the page has. */
function preferred() {
  for (const tag of navigator.languages || []) {
    const name = tag.toLowerCase().split("-")[0];
    if (Object.hasOwn(TAGS, name)) return name;
  }
  return "en";
}

function remembered() {
  try {
    const name = localStorage.getItem(STORED);
    return Object.hasOwn(TAGS, name ?? "") ? name : null;
  } catch {
    return null; /* storage is blocked: the choice lasts as long as the page */
  }
}

let language = remembered() ?? preferred();
const listeners = [];

export const spoken = () => language;
export const tag = () => TAGS[language];

/* A text of the table, with values for its {names}. */
export function t(name, values) {
  const text = TEXTS[name][COLUMNS[language]];
  return values === undefined ? text : text.replace(/\{(\w+)\}/g, (_, place) => String(values[place]));
}

/* What the server says about a limit, or about when a policy applies: it speaks English. */
export const told = (english) => (language === "zh" ? meaningInChinese(english) : english);
export const toldMatch = (english) => (language === "zh" ? matchInChinese(english) : english);

/* Gives an element a text that follows the language. */
export function setText(element, name) {
  element.dataset.t = name;
  if (element.textContent !== t(name)) element.textContent = t(name);
}

function fillTexts(root) {
  document.documentElement.lang = TAGS[language];
  for (const element of root.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const name of ATTRIBUTES) {
    for (const element of root.querySelectorAll(`[data-t-${name}]`)) {
      element.setAttribute(name, t(element.getAttribute(`data-t-${name}`)));
    }
  }
  document.getElementById("language").lang = TAGS[language === "en" ? "zh" : "en"];
}

/* Called after a switch, when the texts with data-t are new already. */
export function onLanguage(listener) {
  listeners.push(listener);
}

function switchLanguage() {
  language = language === "en" ? "zh" : "en";
  try {
    localStorage.setItem(STORED, language);
  } catch {
    /* as above */
  }
  fillTexts(document);
  for (const listener of listeners) listener();
}

document.getElementById("language").addEventListener("click", switchLanguage);
fillTexts(document);
