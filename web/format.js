/* Numbers and times as people read them. */

import { t, tag } from "./language.js";

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/* 1,234,567 */
export function count(number) {
  return grouped.format(number);
}

/* Three digits: 0.42, 8.1, 812, 12.4k, 3.02M */
export function short(number) {
  if (!Number.isFinite(number)) return "–";
  const size = Math.abs(number);
  if (size === 0) return "0";
  if (size < 0.01) return number.toFixed(3);
  if (size < 10) return String(Number(number.toFixed(size < 1 ? 2 : 1)));
  if (size < 999.5) return number.toFixed(0);
  const [unit, divisor] = size < 999.5e3 ? ["k", 1e3] : size < 999.5e6 ? ["M", 1e6] : ["G", 1e9];
  const scaled = number / divisor;
  return `${Number(scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0))}${unit}`;
}

export function percent(part, whole) {
  if (!(whole > 0)) return t("percent", { n: 0 });
  const share = (100 * part) / whole;
  if (share === 0 || share === 100) return t("percent", { n: share });
  if (share < 0.1) return t("percentBelow", { n: 0.1 });
  if (share > 99.9) return t("percentAbove", { n: 99.9 });
  return t("percent", { n: share.toFixed(share < 10 || share > 90 ? 1 : 0) });
}

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (number >= 1024 && i < units.length - 1) {
    number /= 1024;
    i++;
  }
  return `${Number(number.toFixed(number < 10 && i > 0 ? 1 : 0))} ${units[i]}`;
}

const parts = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

/* Seconds in two units: "12 µs", "3.4 ms", "4.2 s", "3 m 20 s", "2 d 3 h"; null means never. */
export function time(seconds) {
  if (seconds === null || seconds === undefined) return t("never");
  if (seconds <= 0) return `0 ${t("second")}`;
  if (seconds < 0.0009995) return `${digits(seconds * 1e6)} ${t("microsecond")}`;
  if (seconds < 0.9995) return `${digits(seconds * 1e3)} ${t("millisecond")}`;
  if (seconds < 59.95) return `${digits(seconds)} ${t("second")}`;
  let rest = Math.round(seconds);
  const shown = [];
  for (const [unit, size] of parts) {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    if (whole > 0 || shown.length > 0) shown.push([whole, unit]);
  }
  return shown.slice(0, 2).filter(([whole]) => whole > 0).map(([whole, unit]) => `${whole} ${t(unit)}`).join(" ");
}

/* "Dec 15, 2026, 16:00" by the reader's clock, or by that of a zone. */
export function date(moment, timeZone) {
  return new Intl.DateTimeFormat(tag(), { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
    hourCycle: "h23", timeZone }).format(moment);
}

function digits(number) {
  return String(Number(number.toFixed(number < 10 ? 2 : number < 100 ? 1 : 0)));
}

/* A span of a limit, exact and always with its number: "1 m". */
export function span(seconds) {
  if (seconds < 0.0009995) return `${digits(seconds * 1e6)} ${t("microsecond")}`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ${t("millisecond")}`;
  return split(seconds).map(([whole, unit]) => `${whole} ${t(unit)}`).join(" ");
}

/* The same on an axis, as short as possible: "1 m 30 s". */
export function tick(seconds) {
  if (seconds < 1) return time(seconds);
  return split(seconds).map(([whole, unit]) => t(`${unit}Tick`, { n: whole })).join(" ");
}

/* [[1, "minute"], [30, "second"]] */
function split(seconds) {
  let rest = Math.round(seconds * 1e6) / 1e6;
  const shown = [];
  for (const [unit, size] of parts) {
    const whole = unit === "second" ? rest : Math.floor(rest / size);
    rest = Number((rest - whole * size).toFixed(6));
    if (whole > 0) shown.push([whole, unit]);
  }
  return shown;
}
