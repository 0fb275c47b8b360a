/* Interesting loads, each with limits that react differently. Name and story are texts of texts.js. */

export const presets = [
  {
    name: "presetEdge",
    story: "storyEdge",
    load: { kind: "edge", burst: 120, every: 60, rate: 0, seconds: 120 },
    limits: ["fixed-window 120/m", "sliding-counter 120/m", "sliding-window 120/m", "sliding-log 120/m", "token-bucket 120/m", "token-bucket 120/m burst 20"],
  },
  {
    name: "presetBursts",
    story: "storyBursts",
    load: { kind: "bursts", burst: 60, every: 10, rate: 0, seconds: 60 },
    limits: ["token-bucket 4/s burst 30", "leaky-bucket 4/s burst 30", "leaky-bucket 4/s burst 30 nodelay", "leaky-bucket 4/s burst 30 delay 15", "fixed-window 40/10s", "smooth 4/s"],
  },
  {
    name: "presetTooMuch",
    story: "storyTooMuch",
    load: { kind: "steady", rate: 30, seconds: 30 },
    limits: ["token-bucket 10/s burst 30", "token-bucket 50/5s stepped", "fixed-window 50/5s", "sliding-window 50/5s", "sliding-counter 50/5s", "leaky-bucket 10/s burst 20"],
  },
  {
    name: "presetAlmost",
    story: "storyAlmost",
    load: { kind: "poisson", rate: 9, seconds: 60, seed: 7 },
    limits: ["token-bucket 10/s burst 1", "token-bucket 10/s", "token-bucket 10/s burst 30", "fixed-window 10/s", "sliding-log 10/s", "leaky-bucket 10/s burst 10"],
  },
  {
    name: "presetShares",
    story: "storyShares",
    load: { kind: "poisson", rate: 15, seconds: 60, seed: 5 },
    limits: ["token-bucket 10/s burst 40", "token-bucket 10/s burst 32", "token-bucket 10/s burst 20"],
    shared: true,
  },
  {
    name: "presetCold",
    story: "storyCold",
    load: { kind: "steady", rate: 20, seconds: 20 },
    limits: ["warmup 20/s over 10s", "smooth 20/s", "token-bucket 20/s"],
  },
  {
    name: "presetMany",
    story: "storyMany",
    load: { kind: "poisson", rate: 200, seconds: 30, keys: 50, cost: 5, seed: 3 },
    limits: ["token-bucket 20/s burst 40", "sliding-log 20/s", "token-bucket 20/s burst 40, fixed-window 400/m"],
  },
];
