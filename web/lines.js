/* Lines over the last minutes: the large charts and the sparklines. Gaps stay gaps. */

import { h, s, say } from "./dom.js";
import { t } from "./language.js";
import { decades, linear, ticks, timeTicks } from "./scale.js";

const GAP_S = 6; /* points further apart are not joined, unless they stand for more; polls come every second, or every five seconds when retrying */
const MARGIN = { left: 46, right: 10, top: 8 };

/* "M…h0L…" through points; a null or a long pause makes a gap. h0 makes a single point visible as a dot. */
export function trace(points, name, x, y) {
  let path = "";
  let last = null;
  for (const point of points) {
    const value = point[name];
    if (value === null || value === undefined) {
      last = null;
      continue;
    }
    const joined = last !== null && point.t - last < Math.max(GAP_S, 1.5 * (point.s || 0));
    path += `${joined ? "L" : "M"}${x(point.t).toFixed(1)} ${y(value).toFixed(1)}${joined ? "" : "h0"}`;
    last = point.t;
  }
  return path;
}

function extremes(points, series) {
  let least = Infinity;
  let most = 0;
  for (const point of points) {
    for (const { name } of series) {
      const value = point[name];
      if (value === null || value === undefined) continue;
      if (value > 0) least = Math.min(least, value);
      most = Math.max(most, value);
    }
  }
  return { least, most };
}

/* The area under a line: each part is closed along the bottom. */
function under(path, bottom) {
  return path.split("M").filter((stretch) => stretch.includes("L")).map((stretch) => {
    const from = stretch.split(" ")[0];
    const to = stretch.slice(stretch.lastIndexOf("L") + 1).split(" ")[0];
    return `M${from} ${bottom}L${stretch}L${to} ${bottom}Z`;
  }).join("");
}

/*
 * A chart in `host`. series: [{name, label}], drawn with the class "line-NAME", label makes what it is called; format: makes
 * the text of a value; log: decades instead of a linear scale; times: whether the axis has them.
 */
export class Lines {
  constructor(host, { series, format, log = false, times = true, seconds }) {
    Object.assign(this, { host, series, format, log, times, seconds, points: [], cursor: null, peers: [] });
    this.foot = times ? 20 : 6;
    this.grid = s("g", { class: "grid" });
    this.area = s("path", { class: `area area-${series[0].name}` });
    this.paths = series.map(({ name }) => s("path", { class: `line line-${name}` }));
    this.rule = s("line", { class: "cursor", visibility: "hidden" });
    this.dots = series.map(({ name }) => s("circle", { class: `dot dot-${name}`, r: 3.5, visibility: "hidden" }));
    this.svg = s("svg", { role: "img" }, this.grid, this.area, ...this.paths, this.rule, ...this.dots);
    this.readout = h("p", { class: "readout", hidden: true });
    host.append(this.svg, this.readout);
    const point = (clientX) => [this, ...this.peers].forEach((chart) => chart.point(clientX));
    host.addEventListener("pointermove", (event) => point(event.clientX));
    host.addEventListener("pointerleave", () => point(null));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  show(points, now) {
    this.points = points.filter((point) => point.t > now - this.seconds - 2);
    this.now = now;
    this.draw();
  }

  draw() {
    const width = this.host.clientWidth;
    const height = this.host.clientHeight;
    if (width < 60 || height < 40) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const now = this.now ?? 0;
    const right = width - MARGIN.right;
    const bottom = height - this.foot;
    this.x = linear(now - this.seconds, now, MARGIN.left, right);
    const { least, most } = extremes(this.points, this.series);
    const marks = this.log ? decades(Number.isFinite(least) ? least : 1e-6, most || 1e-5) : ticks(most, height > 150 ? 4 : 2);
    const height01 = this.log
      ? linear(Math.log10(marks[0]), Math.log10(marks.at(-1)), bottom, MARGIN.top)
      : linear(0, marks.at(-1), bottom, MARGIN.top);
    this.y = this.log ? (value) => height01(Math.log10(Math.max(value, marks[0]))) : height01;
    this.drawGrid(marks, right, bottom);
    const clip = this.points.filter((point) => point.t >= now - this.seconds);
    this.series.forEach(({ name }, i) => this.paths[i].setAttribute("d", trace(clip, name, this.x, this.y)));
    this.area.setAttribute("d", this.log ? "" : under(this.paths[0].getAttribute("d"), bottom));
    this.drawCursor();
  }

  drawGrid(marks, right, bottom) {
    const parts = [];
    for (const mark of marks) {
      const y = this.y(mark);
      parts.push(s("line", { x1: MARGIN.left, x2: right, y1: y, y2: y }));
      parts.push(s("text", { x: MARGIN.left - 7, y: y + 3.5, "text-anchor": "end" }, this.format(mark)));
    }
    const narrow = right < 380;
    for (const ago of this.times ? timeTicks(this.seconds, narrow ? 3 : 4) : []) {
      const x = this.x((this.now ?? 0) - ago);
      const text = ago === 0 ? t("now") : ago < 60 ? t("secondsBack", { n: ago }) : t("minutesBack", { n: ago / 60 });
      const anchor = ago === 0 ? "end" : ago === this.seconds ? "start" : "middle";
      parts.push(s("text", { x, y: bottom + 15, "text-anchor": anchor }, text));
    }
    this.grid.replaceChildren(...parts);
  }

  /* The point nearest to the pointer. */
  point(clientX) {
    this.cursor = clientX === null ? null : clientX - this.host.getBoundingClientRect().left;
    if (this.x) this.drawCursor();
  }

  drawCursor() {
    const shown = this.points.filter((point) => point.t >= this.now - this.seconds);
    let best = null;
    if (this.cursor !== null) {
      for (const point of shown) {
        const distance = Math.abs(this.x(point.t) - this.cursor);
        if (best === null || distance < best.distance) best = { point, distance };
      }
    }
    const visible = best !== null && best.distance < 40;
    this.readout.hidden = !visible;
    this.rule.setAttribute("visibility", visible ? "visible" : "hidden");
    this.dots.forEach((dot) => dot.setAttribute("visibility", "hidden"));
    if (!visible) return;
    const x = this.x(best.point.t);
    this.rule.setAttribute("x1", x);
    this.rule.setAttribute("x2", x);
    this.rule.setAttribute("y1", MARGIN.top);
    this.rule.setAttribute("y2", this.host.clientHeight - this.foot);
    const ago = Math.max(0, Math.round(this.now - best.point.t));
    const words = [ago < 120 ? t("secondsAgo", { n: ago }) : t("minutesAgo", { n: Math.round(ago / 60) })];
    this.series.forEach(({ name, label }, i) => {
      const value = best.point[name];
      if (value === null || value === undefined) return;
      this.dots[i].setAttribute("cx", x);
      this.dots[i].setAttribute("cy", this.y(value));
      this.dots[i].setAttribute("visibility", "visible");
      words.push(`${label()} ${this.format(value)}`);
    });
    say(this.readout, words.join("  ·  "));
    const left = Math.min(Math.max(x - this.readout.offsetWidth / 2, 0), this.host.clientWidth - this.readout.offsetWidth);
    this.readout.style.left = `${left}px`;
  }
}

/* A line without axes, scaled to itself. The figures beside it are its text alternative. */
export class Spark {
  constructor(names, seconds) {
    this.names = names;
    this.seconds = seconds;
    this.paths = names.map((name) => s("path", { class: `line line-${name}` }));
    this.svg = s("svg", { class: "spark", viewBox: "0 0 120 28", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("line", { class: "ground", x1: 0, x2: 120, y1: 27.5, y2: 27.5 }), ...this.paths);
  }

  show(points, now) {
    const series = this.names.map((name) => ({ name }));
    const shown = points.filter((point) => point.t >= now - this.seconds);
    const { most } = extremes(shown, series);
    const x = linear(now - this.seconds, now, 0, 120);
    const y = linear(0, most || 1, 27, 1.5);
    this.names.forEach((name, i) => {
      const silent = !shown.some((point) => point[name] > 0);
      this.paths[i].setAttribute("d", silent && i > 0 ? "" : trace(shown, name, x, y));
    });
  }
}
