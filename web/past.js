/* Points of charts that were not seen live: the history of the server, and how old points are kept. A point has t (when it
 * ends, by the clock of the page), s (how many seconds it stands for) and rates; null means unknown. */

export const FINE_S = 120; /* points of a second are kept for so long, */
export const PAST_S = 3600; /* and points of ten seconds for so long */
export const BIN_S = 10;

const NOT_RATES = new Set(["t", "s"]);

/* One point for several that follow each other. Rates are averaged; of latencies the last one counts, since each is that of
 * its last ten seconds. */
export function joined(points) {
  const last = points.at(-1);
  const whole = { ...last, s: points.reduce((sum, point) => sum + point.s, 0) };
  for (const name of Object.keys(last)) {
    if (NOT_RATES.has(name) || name.startsWith("p")) continue;
    const known = points.filter((point) => point[name] !== null && point[name] !== undefined);
    const seconds = known.reduce((sum, point) => sum + point.s, 0);
    whole[name] = seconds > 0 ? known.reduce((sum, point) => sum + point[name] * point.s, 0) / seconds : null;
  }
  return whole;
}

/* Adds a point. Fine points that are too old become coarse ones, coarse ones that are too old go. */
export function push(points, point) {
  points.push(point);
  const first = points.findIndex((candidate) => candidate.s < BIN_S / 2);
  if (first >= 0 && points[first].t < point.t - FINE_S - BIN_S) {
    let end = first + 1;
    while (end < points.length && points[end].s < BIN_S / 2 && points[end].t - points[first].t < BIN_S) end++;
    points.splice(first, end - first, joined(points.slice(first, end)));
  }
  while (points.length > 0 && points[0].t < point.t - PAST_S - BIN_S) points.shift();
}

/* The points of one series: {allowed: [counts], …} with names for the rates. */
function pointsOf(times, counts, names) {
  return times.map(({ t, s }, i) => {
    const point = { t, s };
    for (const [name, source] of Object.entries(names)) point[name] = counts[source] ? counts[source][i] / s : 0;
    return point;
  });
}

/* The answer of /v1/history as {points, policies}, like those of live.js. now: when it came, by the clock of the page. */
export function pastOf(history, now) {
  const times = [];
  for (let i = 0; i + 1 < history.edges.length; i++) {
    times.push({ t: now - (history.time - history.edges[i + 1]), s: history.edges[i + 1] - history.edges[i] });
  }
  const told = times.map(({ s }) => s > 0.5); /* the last bin may have just begun */
  const only = (points) => points.filter((_, i) => told[i]);
  const rates = { allowed: "allowed", denied: "denied", shadow: "shadow_denied" };
  const points = only(pointsOf(times, history.totals, rates).map((point, i) => ({
    ...point,
    p50: history.latency.p50[i],
    p99: history.latency.p99[i],
    p999: history.latency.p999[i],
  })));
  const policies = new Map(history.policies.map((policy) => [policy.name, {
    points: only(pointsOf(times, policy, rates)),
    limits: new Map(policy.limits.map((limit) => [limit.name, only(pointsOf(times, limit, { allowed: "allowed", denied: "denied" }))])),
  }]));
  return { points, policies };
}

/* What was known before the history begins stays. */
export function behind(old, past) {
  const begin = past.length > 0 ? past[0].t - past[0].s : Infinity;
  return [...(old || []).filter((point) => point.t <= begin), ...past];
}
