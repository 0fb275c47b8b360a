/* One limit in the inspector: what it is, and below it its state: what is left and used, and when it resets. */

import { h, say } from "./dom.js";
import { count, date, time } from "./format.js";
import { t, told } from "./language.js";

/* "2026-12-15T00:00:00+08:00" by the reader's clock, and by that of the limit where it differs. */
function edgeWords(edge) {
  const zone = edge.slice(19);
  const minutes = (zone.startsWith("-") ? -1 : 1) * (60 * Number(zone.slice(1, 3)) + Number(zone.slice(4)));
  const moment = new Date(edge);
  const there = t("inZone", { date: date(new Date(moment.getTime() + 60000 * minutes), "UTC"), zone: zone === "+00:00" ? "" : zone });
  return minutes === -moment.getTimezoneOffset() ? there : t("yourTime", { date: date(moment), there });
}

/* After a settle it may be more than the limit. An older server, or a store that cannot tell, says only what is left. */
export function usedUnder(limit) {
  return limit.used ?? limit.limit - limit.remaining;
}

export class LimitRow {
  constructor(limit, key) {
    this.says = h("td", {});
    this.left = h("span", { class: "num" });
    this.bar = h("span", { class: "meter-bar" });
    this.used = h("span", { class: "used quiet num" });
    this.retry = h("td", { class: "num" });
    this.reset = h("td", { class: "num" });
    this.edge = h("td", { colspan: 4, class: "edge" });
    this.element = h("tbody", {},
      h("tr", {}, h("th", { scope: "rowgroup", colspan: 4 },
        h("code", { class: "limit-code" }, limit.text),
        h("span", { class: "limit-words" },
          limit.policy ? `${limit.policy} / ${limit.name} ` : null,
          limit.shadow ? [h("span", { class: "tag tag-shadow" }, t("shadow")), " "] : null,
          t("keyWord").trimStart(), h("code", {}, key)),
        h("span", { class: "limit-words quiet" }, told(limit.meaning || "")))),
      h("tr", {},
        h("td", { class: "left" }, this.left, h("span", { class: "meter", "aria-hidden": "true" }, this.bar), this.used),
        this.says, this.retry, this.reset),
      limit.next_edges ? h("tr", {}, this.edge) : null);
  }

  show(limit) {
    say(this.left, t("ofLimit", { n: count(limit.remaining), limit: count(limit.limit) }));
    say(this.used, t("usedOf", { n: count(usedUnder(limit)), limit: count(limit.limit) }));
    this.bar.style.width = `${limit.limit > 0 ? Math.min(100, (100 * limit.remaining) / limit.limit) : 0}%`;
    const wait = limit.delay > 0 ? t("saysAfter", { time: time(limit.delay) }) : t("allowedWord");
    say(this.says, limit.allowed ? wait : t(limit.shadow ? "saysShadow" : "deniedWord"));
    this.says.className = `says ${limit.allowed ? (limit.delay > 0 ? "ink-waited" : "ink-allowed") : limit.shadow ? "ink-shadow" : "ink-denied"}`;
    say(this.retry, limit.allowed ? "–" : time(limit.retry_after));
    say(this.reset, limit.reset_after === 0 ? "–" : time(limit.reset_after));
    if (limit.next_edges) say(this.edge, t("startsAgain", { date: edgeWords(limit.next_edges[0]) })); /* also if nothing is used */
  }
}
