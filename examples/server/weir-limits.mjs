// Requests that `weir serve` decides: a middleware for node:http, Connect and Express.
//
//     import { limited } from "./weir-limits.mjs";
//     app.use(limited("http://localhost:7311"));             // Express, before all routes
//     app.use("/api", limited("http://localhost:7311"));     // or before some of them
import { setTimeout } from "node:timers/promises";

const PASSED_ON = ["retry-after", "ratelimit", "ratelimit-policy"];
const LONGEST = 16384; // bytes of a path; weir would refuse a longer one, or hang up on it, which looks like no answer

/** The path as the client sent it. Express takes off of `url` what a middleware is mounted at; `originalUrl` keeps it. */
function pathOf(request) {
  const target = (request.originalUrl ?? request.url).split("?")[0];
  return target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/]*/i, "") || "/"; // some clients send whole addresses
}

/** What weir says of a request: { status, headers, body }; null: no answer, or a failure (5xx), and the request goes
 *  ahead. Whatever else is not a 200 is a refusal: 429 of a limit, 403 of a deny list, 400 of what weir cannot read. */
async function ask(weir, deadline, request) {
  const attributes = {
    ip: request.socket.remoteAddress,
    method: request.method,
    path: pathOf(request),
    user: request.user ?? null, // whoever logs people in sets it
  };
  if (attributes.path.length > LONGEST) return { status: 414, headers: new Headers(), body: "" };
  try {
    const answer = await fetch(`${weir}/v1/take`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ attributes }),
      redirect: "manual",
      signal: AbortSignal.timeout(deadline * 1000),
    });
    const { status, headers } = answer;
    const body = await answer.text();
    if (![200, 403, 429].includes(status)) console.error(`weir answers ${status}: ${body}`); // a mistake to mend
    if (status >= 500) return null;
    if (status !== 200 && status < 400) return { status: 500, headers, body: "" }; // not weir's: refused
    return { status, headers, body };
  } catch (error) {
    console.error(`weir does not answer: ${error.cause ?? error}`);
  }
  return null;
}

/** A middleware: limited(url, seconds)(request, response, next). */
export function limited(weir, deadline = 0.05) {
  return async (request, response, next) => {
    const decided = await ask(weir, deadline, request);
    if (!decided) return next();
    for (const name of PASSED_ON) {
      const value = decided.headers.get(name);
      if (value !== null) response.setHeader(name, value);
    }
    if (decided.status !== 200) {
      response.writeHead(decided.status, { "content-type": "application/problem+json" });
      return response.end(decided.body);
    }
    const { delay } = JSON.parse(decided.body); // of limits that shape: leaky-bucket, smooth, warmup
    if (delay > 0) await setTimeout(delay * 1000);
    return next();
  };
}
