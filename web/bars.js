/* The plots of the playground: up is what goes ahead, down is what is denied, the outline is what arrives.
 * All plots share one scale and one cursor. */

import { h, s, say } from "./dom.js";
import { count, span, tick, time } from "./format.js";
import { t } from "./language.js";
import { linear, ticks, timeTicks } from "./scale.js";

const MARGIN = { left: 40, right: 10, top: 22, bottom: 20 };
const EDGES_MOST = 40; /* more edges than that would be too dense */

/* Bars from `from(i)` to `to(i)`, one path. */
function bars(length, x, y, from, to) {
  const gap = x(1) - x(0) >= 4 ? 0.5 : 0;
  let path = "";
  for (let i = 0; i < length; i++) {
    const low = from(i);
    const high = to(i);
    if (low === high) continue;
    path += `M${(x(i) + gap).toFixed(2)} ${y(low).toFixed(2)}V${y(high).toFixed(2)}H${(x(i + 1) - gap).toFixed(2)}V${y(low).toFixed(2)}Z`;
  }
  return path;
}

/* The outline of what arrives. */
function outline(values, x, y) {
  let path = `M${x(0).toFixed(2)} ${y(0).toFixed(2)}`;
  values.forEach((value, i) => {
    path += `V${y(value).toFixed(2)}H${x(i + 1).toFixed(2)}`;
  });
  return `${path}V${y(0).toFixed(2)}`;
}

/* The scale that fits every plot of an answer. */
export function scaleOf(answer) {
  let up = 1;
  let down = 0;
  for (const limit of answer.limits) {
    limit.ahead_bins.forEach((value, i) => {
      up = Math.max(up, value, limit.arrivals[i]);
      down = Math.max(down, limit.arrivals[i] - limit.admitted_bins[i]);
    });
  }
  return { up, down };
}

export class Bars {
  /* `moved` gets the bin under the pointer, or null. */
  constructor(answer, limit, scale, moved) {
    Object.assign(this, { answer, limit, scale });
    this.grid = s("g", { class: "grid" });
    this.through = s("path", { class: "bar-allowed" });
    this.waited = s("path", { class: "bar-waited" });
    this.denied = s("path", { class: "bar-denied" });
    this.arrivals = s("path", { class: "bar-arrivals" });
    this.crowd = s("g", { class: "crowd" });
    this.cursor = s("rect", { class: "cursor-bin", visibility: "hidden" });
    this.svg = s("svg", { role: "img", "aria-label": this.spoken(), tabindex: 0 },
      this.cursor, this.grid, this.through, this.waited, this.denied, this.arrivals, this.crowd);
    this.readout = h("p", { class: "bars-readout num" }, " ");
    this.host = h("div", { class: "bars" }, this.svg);
    this.element = h("div", {}, this.host, this.readout);
    this.bin = null;
    this.svg.addEventListener("pointermove", (event) => moved(this.binAt(event.clientX)));
    this.svg.addEventListener("pointerleave", () => moved(null));
    this.svg.addEventListener("keydown", (event) => this.key(event, moved));
    this.svg.addEventListener("blur", () => moved(null));
    new ResizeObserver(() => this.draw()).observe(this.host);
  }

  spoken() {
    const { limit } = this;
    const worst = limit.rules.map((rule) => t("plotWorst", { n: count(rule.most), span: span(rule.span) })).join(t("listJoin"));
    const [requests, admitted, denied, delayed] = [limit.requests, limit.admitted, limit.denied, limit.delayed].map(count);
    return t("plotSpoken", { limit: limit.limit, requests, admitted, denied, delayed, worst });
  }

  draw() {
    const width = this.host.clientWidth;
    const height = this.host.clientHeight;
    if (width < 60 || height < 60) return;
    const { answer, limit, scale } = this;
    const length = answer.arrivals.length;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.box = { right: width - MARGIN.right, bottom: height - MARGIN.bottom };
    const x = linear(0, length * answer.bin, MARGIN.left, this.box.right);
    this.x = x;
    this.y = linear(-scale.down, scale.up, this.box.bottom, MARGIN.top);
    const bin = (i) => x(i * answer.bin);
    this.drawGrid();
    this.through.setAttribute("d", bars(length, bin, this.y, (i) => limit.waited_bins[i], (i) => limit.ahead_bins[i]));
    this.waited.setAttribute("d", bars(length, bin, this.y, () => 0, (i) => limit.waited_bins[i]));
    this.denied.setAttribute("d", bars(length, bin, this.y, () => 0, (i) => limit.admitted_bins[i] - limit.arrivals[i]));
    this.arrivals.setAttribute("d", outline(limit.arrivals, bin, this.y));
    this.drawCrowd();
    this.show(this.bin);
  }

  drawGrid() {
    const { answer, limit, scale } = this;
    const { right, bottom } = this.box;
    const parts = [];
    for (const mark of ticks(Math.max(scale.up, scale.down), 3, true)) {
      for (const value of mark === 0 ? [0] : [mark, -mark]) {
        if (value > scale.up || value < -scale.down) continue;
        const y = this.y(value);
        parts.push(s("line", { x1: MARGIN.left, x2: right, y1: y, y2: y, class: value === 0 ? "zero" : "" }));
        parts.push(s("text", { x: MARGIN.left - 6, y: y + 3.5, "text-anchor": "end" }, count(mark)));
      }
    }
    const end = answer.bin * answer.arrivals.length;
    for (const mark of timeTicks(end, right < 420 ? 4 : 6)) {
      const anchor = mark === 0 ? "start" : this.x(mark) > right - 20 ? "end" : "middle";
      parts.push(s("text", { x: this.x(mark), y: bottom + 15, "text-anchor": anchor }, mark === 0 ? "0" : tick(mark)));
    }
    for (const rule of limit.rules) {
      if (rule.first_edge === undefined || end / rule.span > EDGES_MOST) continue;
      for (let edge = rule.first_edge; edge <= end; edge += rule.span) {
        parts.push(s("line", { class: "edge", x1: this.x(edge), x2: this.x(edge), y1: MARGIN.top - 6, y2: bottom }));
      }
    }
    this.grid.replaceChildren(...parts);
  }

  /* A bracket over the fullest span of the period of the limit. */
  drawCrowd() {
    const rule = this.limit.rules[0];
    const end = this.answer.bin * this.answer.arrivals.length;
    if (rule.most === 0) return;
    const left = this.x(Math.min(rule.most_from, end));
    const right = this.x(Math.min(rule.most_from + rule.span, end));
    const top = MARGIN.top - 10;
    const text = t("crowd", { n: count(rule.most), span: span(rule.span) });
    const middle = Math.min(Math.max((left + right) / 2, MARGIN.left + 45), this.box.right - 45);
    this.crowd.setAttribute("class", rule.most > rule.count ? "crowd is-over" : "crowd");
    this.crowd.replaceChildren(
      s("path", { d: `M${left} ${top + 5}V${top}H${Math.max(right, left + 3)}V${top + 5}` }),
      s("text", { x: middle, y: top - 3, "text-anchor": "middle" }, text));
  }

  binAt(clientX) {
    if (!this.x) return null;
    const place = clientX - this.svg.getBoundingClientRect().left;
    const i = Math.floor(((place - MARGIN.left) / (this.box.right - MARGIN.left)) * this.answer.arrivals.length);
    return i >= 0 && i < this.answer.arrivals.length ? i : null;
  }

  key(event, moved) {
    const last = this.answer.arrivals.length - 1;
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const from = this.bin ?? (steps[event.key] > 0 ? -1 : last + 1);
    moved(Math.min(last, Math.max(0, from + steps[event.key])), this);
  }

  words(i) {
    const { answer, limit } = this;
    const denied = limit.arrivals[i] - limit.admitted_bins[i];
    const waited = limit.waited_bins[i] > 0 ? t("binWaited", { n: count(limit.waited_bins[i]) }) : "";
    const [arrived, ahead] = [limit.arrivals[i], limit.ahead_bins[i]].map(count);
    return t("binWords", { time: time(i * answer.bin), arrived, ahead, waited, denied: count(denied) });
  }

  show(i) {
    this.bin = i;
    this.cursor.setAttribute("visibility", i === null ? "hidden" : "visible");
    say(this.readout, i === null ? " " : this.words(i));
    if (i === null || !this.x) return;
    const left = this.x(i * this.answer.bin);
    this.cursor.setAttribute("x", left);
    this.cursor.setAttribute("width", Math.max(1, this.x((i + 1) * this.answer.bin) - left));
    this.cursor.setAttribute("y", MARGIN.top);
    this.cursor.setAttribute("height", Math.max(1, this.box.bottom - MARGIN.top));
  }
}
