/* From values to pixels, and the positions of the ticks. */

/* Steps of 1, 2 or 5 that cut 0 … most into at most `pieces`. */
export function ticks(most, pieces = 4, whole = false) {
  if (!(most > 0)) most = 1;
  let step = 10 ** Math.floor(Math.log10(most / pieces));
  for (const factor of [1, 2, 5, 10]) {
    if ((most / (step * factor)) <= pieces) {
      step *= factor;
      break;
    }
  }
  if (whole) step = Math.max(1, step);
  const list = [];
  for (let i = 0; i * step < most * (1 + 1e-9); i++) list.push(Number((i * step).toPrecision(12)));
  const top = list[list.length - 1];
  if (top < most * (1 - 1e-9)) list.push(Number((top + step).toPrecision(12)));
  return list;
}

export function linear(from, to, low, high) {
  const width = to - from || 1;
  return (value) => low + ((value - from) / width) * (high - low);
}

/* Decades that contain all values. */
export function decades(least, most) {
  const low = Math.floor(Math.log10(least) + 1e-9);
  const high = Math.max(low + 1, Math.ceil(Math.log10(most) - 1e-9));
  const list = [];
  for (let i = low; i <= high; i++) list.push(10 ** i);
  return list;
}

const TIMES = [
  1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60,
  120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 5184000,
];

/* Times for an axis of that many seconds. */
export function timeTicks(seconds, pieces) {
  const step = TIMES.find((candidate) => seconds / candidate <= pieces) || seconds / pieces;
  const list = [];
  for (let i = 0; i * step <= seconds * (1 + 1e-9); i++) list.push(Number((i * step).toPrecision(12)));
  return list;
}
