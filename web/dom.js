/* Elements from code. Text is always inserted as text: keys and names can come from strangers. */

import { spoken } from "./language.js";

const SVG = "http://www.w3.org/2000/svg";

function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  return element;
}

/* h("p", {class: "note"}, "text", otherElement, null) */
export function h(tag, attributes, ...children) {
  const element = dress(document.createElement(tag), attributes);
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

export function s(tag, attributes, ...children) {
  const element = dress(document.createElementNS(SVG, tag), attributes);
  element.append(...children);
  return element;
}

export const at = (id) => document.getElementById(id);

/* Sets text only if it differs, so that selections and screen readers are not disturbed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

const drawn = new WeakMap();

/* Fills the element again only if its content or the language has changed. */
export function fillWhen(element, facts, make) {
  const key = JSON.stringify([spoken(), facts]);
  if (drawn.get(element) === key) return;
  drawn.set(element, key);
  fill(element, make());
}
