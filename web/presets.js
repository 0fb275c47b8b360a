/* Interesting loads, each with limits that react differently. */

export const presets = [
  {
    name: "The edge of a window",
    story: "A limit of 120 per minute, and 120 requests on each side of a full minute. The fixed window counts them separately and lets 240 through within twelve seconds.",
    load: { kind: "edge", burst: 120, every: 60, rate: 0, seconds: 120 },
    limits: ["fixed-window 120/m", "sliding-counter 120/m", "sliding-window 120/m", "sliding-log 120/m", "token-bucket 120/m", "token-bucket 120/m burst 20"],
  },
  {
    name: "Bursts",
    story: "60 requests at one instant, every ten seconds. A bucket lets some through at once. A queue spaces them out. A smooth limiter makes each request wait for its turn.",
    load: { kind: "bursts", burst: 60, every: 10, rate: 0, seconds: 60 },
    limits: ["token-bucket 4/s burst 30", "leaky-bucket 4/s burst 30", "leaky-bucket 4/s burst 30 nodelay", "leaky-bucket 4/s burst 30 delay 15", "fixed-window 40/10s", "smooth 4/s"],
  },
  {
    name: "Three times too much",
    story: "A steady load of 30 per second, with limits of 10 per second. In the long run all limits admit the same number, but at different times.",
    load: { kind: "steady", rate: 30, seconds: 30 },
    limits: ["token-bucket 10/s burst 30", "token-bucket 50/5s stepped", "fixed-window 50/5s", "sliding-window 50/5s", "sliding-counter 50/5s", "leaky-bucket 10/s burst 20"],
  },
  {
    name: "Almost too much",
    story: "Random arrivals at 9 per second, with limits of 10 per second. The limits differ in how large a burst they accept.",
    load: { kind: "poisson", rate: 9, seconds: 60, seed: 7 },
    limits: ["token-bucket 10/s burst 1", "token-bucket 10/s", "token-bucket 10/s burst 30", "fixed-window 10/s", "sliding-log 10/s", "leaky-bucket 10/s burst 10"],
  },
  {
    name: "Shares",
    story: "One limit of 10 per second for three classes of requests, which take turns. Batch may use half of it, normal 80 percent, critical all. They share one state, so batch is denied first and critical last.",
    load: { kind: "poisson", rate: 15, seconds: 60, seed: 5 },
    limits: ["token-bucket 10/s burst 40", "token-bucket 10/s burst 32", "token-bucket 10/s burst 20"],
    shared: true,
  },
  {
    name: "A cold start",
    story: "A cache that is slow at first: warmup starts slowly and gets faster. The others are at full speed at once.",
    load: { kind: "steady", rate: 20, seconds: 20 },
    limits: ["warmup 20/s over 10s", "smooth 20/s", "token-bucket 20/s"],
  },
  {
    name: "Many keys, costly requests",
    story: "Two hundred requests per second from fifty users. Each request costs 5 units of a limit of 20 per second.",
    load: { kind: "poisson", rate: 200, seconds: 30, keys: 50, cost: 5, seed: 3 },
    limits: ["token-bucket 20/s burst 40", "sliding-log 20/s", "token-bucket 20/s burst 40, fixed-window 400/m"],
  },
];
