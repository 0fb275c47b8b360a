/* The sentences of the server about limits and policies, in Chinese. Each has the form of src/limit/explain.c and
 * src/policy/conditions.c; one that has no such form stays English. */

const UNITS = { us: "微秒", ms: "毫秒", s: "秒", m: "分钟", h: "小时", d: "天", w: "周" };
const DAYS = { mon: "周一", tue: "周二", wed: "周三", thu: "周四", fri: "周五", sat: "周六", sun: "周日" };

const ANY_Y = ["(in any Y: {d} + {e} * Y/{q}, rounded down)", "（任意时长 Y 内：{d} + {e} × Y / {q}，向下取整）"];
const ANY_COST = [" (a request of any cost goes ahead in its turn, the next ones pay for it)", "（无论消耗多少，轮到的请求都先放行，由后面的请求偿还）"];
const QUEUE = ["A queue that lets {a} through every {p}, evenly spaced", "排队的漏桶，每 {p}匀速放行 {a} 个"];
const ROOM = ["; room for {m} to wait (the answer says how long), others are denied.", "；最多 {m} 个排队（响应给出等待时长），其余拒绝。"];
const EDGE = "in a window, but up to {b} in any {q}: a window filled at its end, then";
const EDGE_ZH = "每个窗口内不超过 {a}，但任意 {q}内可达 {b}：前一个窗口在末尾用满，";

const SENTENCES = [
  ["A bucket with room for {a}, refilled by {b} every {p}, evenly; a request takes its cost out of it, or is denied.",
    "容量为 {a} 的令牌桶，每 {p}匀速补充 {b} 个令牌；请求按消耗量取走令牌，不够则拒绝。"],
  ["A bucket with room for {a}, refilled by {b} at once every {p} from its first use on; a request takes its cost out of it, or is denied.",
    "容量为 {a} 的令牌桶，从首次使用起每 {p}一次性补充 {b} 个令牌；请求按消耗量取走令牌，不够则拒绝。"],
  ["A bucket with room for {a}, leaking {b} every {p}, evenly; a request that fits goes ahead at once, others are denied.",
    "容量为 {a} 的漏桶，每 {p}匀速漏出 {b}；装得下的请求立即放行，其余拒绝。"],
  [`${QUEUE[0]}; one that comes too early is denied.`, `${QUEUE[1]}；来得过早的请求直接拒绝。`],
  [`${QUEUE[0]}${ROOM[0]}`, `${QUEUE[1]}${ROOM[1]}`],
  [`${QUEUE[0]}, the first {n} of a burst at once${ROOM[0]}`, `${QUEUE[1]}，突发的前 {n} 个立即放行${ROOM[1]}`],
  ["Counts in {calendar}; each admits {a}, then denies until the next begins.", "按{calendar}计数；每个窗口放行 {a}，用完后拒绝，直到下一个窗口开始。"],
  ["Counts in windows of {p}, each opened by the first request after the last one closed; each admits {a}.",
    "以 {p}为窗口计数，上一个窗口结束后的第一个请求开启新窗口；每个窗口放行 {a}。"],
  ["Remembers the time of each admitted request; admits while the total of the last {p} is at most {a}.",
    "记录每个放行请求的时间，最近 {p}内的总量不超过 {a} 时放行。"],
  ["Counts in slots of {s}; admits while the total of the last {p} is at most {a}. A slot counts until its last request is {q} old.",
    "以 {s}为一格计数，最近 {p}内各格之和不超过 {a} 时放行；一格要等其中最后一个请求满 {q}后才失效。"],
  ["Counts two aligned windows of {p} and weighs the earlier by how much of it the last {q} still covers; admits while that estimate is at most {a}.",
    "统计两个对齐的 {p}窗口，前一个窗口按它与最近 {q}的重叠比例加权；估算值不超过 {a} 时放行。"],
  ["Guava's SmoothBursty: spaces requests at {a} every {p} and saves up to {s} permits while idle; a request goes ahead and the next one waits for it.",
    "Guava 的 SmoothBursty：每 {p}匀速放行 {a} 个，空闲时最多积攒 {s} 个许可；当前请求先放行，由下一个请求等待偿还。"],
  ["Guava's SmoothWarmingUp: spaces requests at {a} every {p} when warm; after idling it starts {c} times slower and warms up over {w}.",
    "Guava 的 SmoothWarmingUp：预热后每 {p}匀速放行 {a} 个；空闲后以 1/{c} 的速率起步，经过 {w}升到正常速率。"],
  ["At most {a} slots are held at a time; a lease that is neither released nor renewed lapses after {p}.",
    "同一时刻最多占用 {a} 个名额；租约 {p}内既未归还也未续租的名额自动释放。"],

  [`never more than {a} in any {p}: the burst of {b}, and {c} refilled meanwhile ${ANY_Y[0]}`, `任意 {p}内不超过 {a}：突发 {b}，加上期间补充的 {c}${ANY_Y[1]}`],
  ["never more than {a} in any {p}: the burst of {b}, and one refill of {c} (in any Y: {d} + {e} for each {q} begun)",
    "任意 {p}内不超过 {a}：突发 {b}，加上一次补充的 {c}（任意时长 Y 内：{d}，每 {q}再加 {e}，不足 {q}也算）"],
  ["never more than {a} in any {p}: the burst of {b}, and one refill of {c} (in any Y: {d} + {e} for each {q} begun); if nobody waits, never more than {n}",
    "任意 {p}内不超过 {a}：突发 {b}，加上一次补充的 {c}（任意时长 Y 内：{d}，每 {q}再加 {e}，不足 {q}也算）；如果没有请求等待，不超过 {n}"],
  [`never more than {a} in any {p}: a bucketful of {b}, and {c} leaked meanwhile ${ANY_Y[0]}`, `任意 {p}内不超过 {a}：一整桶 {b}，加上期间漏出的 {c}${ANY_Y[1]}`],
  [`never more than {a} go ahead in any {p} if each costs 1 ${ANY_Y[0]}; at most {n} are accepted at one instant`,
    `每个请求消耗 1 时，任意 {p}内放行不超过 {a}${ANY_Y[1]}；同一瞬间最多接受 {n} 个`],
  ["never more than {a} in an aligned {p}, but up to {b} in any {q}: a window filled at its end, then the next at its beginning",
    "对齐的 {p}内不超过 {a}，但任意 {q}内可达 {b}：前一个窗口在末尾用满，后一个在开头用满"],
  [`never more than {a} ${EDGE} the next at its beginning`, `${EDGE_ZH}后一个在开头用满`],
  [`never more than {a} ${EDGE} a short one, then the next at its beginning`, `${EDGE_ZH}接着是一个较短的窗口，再下一个又在开头用满`],
  [`never more than {a} ${EDGE} a new one`, `${EDGE_ZH}随即开启新窗口`],
  ["never more than {a} in any {p}; exact", "任意 {p}内不超过 {a}，精确"],
  ["never more than {a} in any {p}; a request may be denied up to {s} longer than necessary", "任意 {p}内不超过 {a}；偏严：请求被拒绝的时间最多比必要的长 {s}"],
  ["about {a} in any {p} if requests come evenly; never more than {b}, and that only if one window is filled at its very end",
    "请求均匀到达时，任意 {p}内约为 {a}；最多不超过 {b}，只有某个窗口恰好在末尾用满时才会达到"],
  ["none: Guava counts intervals in whole microseconds, and this one rounds to 0; use token-bucket for such rates",
    "无：Guava 的间隔以整微秒计，这个速率会舍入为 0；这样的速率请用 token-bucket"],
  [`never more than {a} go ahead in any {p} if each costs 1: what was saved, one on credit, and the rate${ANY_COST[0]}`,
    `每个请求消耗 1 时，任意 {p}内放行不超过 {a}：积攒的许可、预支的一个，加上这段时间的速率${ANY_COST[1]}`],
  [`never more than {a} go ahead in any {p} if each costs 1${ANY_COST[0]}`, `每个请求消耗 1 时，任意 {p}内放行不超过 {a}${ANY_COST[1]}`],
  ["never more than {a} held at any instant", "任何时刻占用不超过 {a} 个"],
];

const CALENDARS = [
  ["windows of {p} aligned to the clock ({zone})", "与时钟对齐（{zone}）的 {p}窗口"],
  ["weeks from {day} ({zone})", "以{day}为起点的周（{zone}）"],
  ["calendar months from day {n} ({zone})", "每月 {n} 日起算的月份（{zone}）"],
  ["calendar months from day {n} ({zone}), or the last day of a shorter month", "每月 {n} 日（天数不足的月份取最后一天）起算的月份（{zone}）"],
  ["calendar years from {date} ({zone})", "每年 {date} 起算的年度（{zone}）"],
];

/* "1h30m" ─► "1 小时 30 分钟", "31 days" ─► "31 天", "mon" ─► "周一"; other values as they are. */
function valueInChinese(value) {
  if (Object.hasOwn(DAYS, value)) return DAYS[value];
  const whole = /^(\d+) days$/.exec(value);
  if (whole) return `${whole[1]} 天`;
  if (!/^(?:[\d.]+(?:us|ms|s|m|h|d|w))+$/.test(value)) return value;
  return [...value.matchAll(/([\d.]+)([a-z]+)/g)].map(([, number, unit]) => `${number} ${UNITS[unit]}`).join(" ");
}

/* [pattern, names, Chinese] for each pair. */
function compile(pairs) {
  return pairs.map(([english, chinese]) => {
    const names = [];
    const source = english.split(/(\{\w+\})/).map((part) => {
      if (!/^\{\w+\}$/.test(part)) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      names.push(part.slice(1, -1));
      return part === "{calendar}" ? "(.+?)" : "([^;,:() ]+|\\d+ days|UTC[^)]*)";
    }).join("");
    return [new RegExp(`^${source}$`), names, chinese];
  });
}

function translate(compiled, text) {
  for (const [pattern, names, chinese] of compiled) {
    const found = pattern.exec(text);
    if (!found) continue;
    const values = Object.fromEntries(names.map((name, i) => [name, found[i + 1]]));
    if (values.calendar !== undefined) {
      values.calendar = translate(calendars, values.calendar);
      if (values.calendar === null) return null;
    }
    return chinese.replace(/\{(\w+)\}/g, (_, name) => (name === "calendar" ? values.calendar : valueInChinese(values[name])))
      .replace(/每 1 (秒|分钟|小时|天|周)(?! \d)/g, "每$1");
  }
  return null;
}

const sentences = compile(SENTENCES);
const calendars = compile(CALENDARS);

/* What a limit does, or what it promises. */
export function meaningInChinese(english) {
  const charged = / Each request is charged (\d+) here, whatever it costs\.$/.exec(english);
  const chinese = translate(sentences, charged ? english.slice(0, charged.index) : english);
  if (chinese === null) return english;
  return charged ? `${chinese}这条规则对每个请求固定计 ${charged[1]}，与其消耗量无关。` : chinese;
}

/* When a policy applies: "path is /api/* and method is GET or 2 others". */
export function matchInChinese(english) {
  return english.split(/ and (?=\S+ is )/).map((condition) => {
    const found = /^(\S+) is (?:(present|absent)$|(not )?(.*))$/s.exec(condition);
    if (!found) return condition;
    const [, name, there, not, values] = found;
    if (there) return there === "present" ? `有 ${name}` : `没有 ${name}`;
    const list = values.replace(/ or (\d+) others$/, " 或另外 $1 个").replaceAll(" or ", " 或 ").replaceAll(", ", "、");
    const wild = list.includes("*");
    return `${name} ${not ? "不" : ""}${wild ? "匹配" : "是"} ${list}`;
  }).reduce((all, condition) => `${all}，并且${/^[\w"]/.test(condition) ? " " : ""}${condition}`);
}
