/* Loads worth seeing, each with limits that tell it apart. */

export const presets = [
  {
    name: "A window's edge",
    story: "120 a minute, and 120 requests on either side of the minute: the fixed window counts them apart and lets 240 through within twelve seconds.",
    load: { kind: "edge", burst: 120, every: 60, rate: 0, seconds: 120 },
    limits: ["fixed-window 120/m", "sliding-counter 120/m", "sliding-window 120/m", "sliding-log 120/m", "token-bucket 120/m", "token-bucket 120/m burst 20"],
  },
  {
    name: "Bursts",
    story: "60 requests at one instant every ten seconds. A bucket lets a part through at once; a queue spaces them out; a smooth limiter makes each wait its turn.",
    load: { kind: "bursts", burst: 60, every: 10, rate: 0, seconds: 60 },
    limits: ["token-bucket 4/s burst 30", "leaky-bucket 4/s burst 30", "leaky-bucket 4/s burst 30 nodelay", "leaky-bucket 4/s burst 30 delay 15", "fixed-window 40/10s", "smooth 4/s"],
  },
  {
    name: "Three times too much",
    story: "A steady 30 a second against 10 a second. Everybody admits the same in the long run; they differ in when.",
    load: { kind: "steady", rate: 30, seconds: 30 },
    limits: ["token-bucket 10/s burst 30", "token-bucket 50/5s stepped", "fixed-window 50/5s", "sliding-window 50/5s", "sliding-counter 50/5s", "leaky-bucket 10/s burst 20"],
  },
  {
    name: "Just about enough",
    story: "Random arrivals at 9 a second under limits of 10 a second: what matters is how much each forgives.",
    load: { kind: "poisson", rate: 9, seconds: 60, seed: 7 },
    limits: ["token-bucket 10/s burst 1", "token-bucket 10/s", "token-bucket 10/s burst 30", "fixed-window 10/s", "sliding-log 10/s", "leaky-bucket 10/s burst 10"],
  },
  {
    name: "A cold start",
    story: "A cache that is slow while cold: warmup starts gently and speeds up, the others are at full speed at once.",
    load: { kind: "steady", rate: 20, seconds: 20 },
    limits: ["warmup 20/s over 10s", "smooth 20/s", "token-bucket 20/s"],
  },
  {
    name: "Many keys, costly requests",
    story: "Two hundred requests a second of fifty users, each costing 5 units of a budget of 20 a second.",
    load: { kind: "poisson", rate: 200, seconds: 30, keys: 50, cost: 5, seed: 3 },
    limits: ["token-bucket 20/s burst 40", "sliding-log 20/s", "token-bucket 20/s burst 40, fixed-window 400/m"],
  },
];
