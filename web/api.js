/* The API of the server: JSON in both directions, and a token if the server needs one. */

import { at, say } from "./dom.js";
import { t } from "./language.js";

const TOKEN = "weir-token";
const PATIENCE_MS = 8000;

/* The server answered with an error. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || t("answered", { status }));
    this.status = status;
  }
}

/* The server did not answer. */
export class Unreachable extends Error {}

/* No token was given. */
export class NoToken extends Error {
  constructor() {
    super(t("needsToken"));
  }
}

let token = null;
try {
  token = sessionStorage.getItem(TOKEN);
} catch {
  /* storage is blocked: the token lasts as long as the page */
}

function keep(value) {
  token = value;
  try {
    sessionStorage.setItem(TOKEN, value);
  } catch {
    /* as above */
  }
}

/* One prompt at a time, even if several calls need a token. */
let asking = null;
let declined = false;

function ask(why) {
  if (asking) return asking;
  const dialog = at("token-dialog");
  const input = at("token");
  say(at("token-error"), why);
  input.value = "";
  asking = new Promise((resolve, reject) => {
    dialog.addEventListener("close", () => {
      asking = null;
      if (dialog.returnValue !== "use" || input.value === "") {
        declined = true;
        reject(new NoToken());
        return;
      }
      keep(input.value);
      input.value = "";
      resolve();
    }, { once: true });
    dialog.returnValue = "";
    dialog.showModal();
    input.focus();
  });
  return asking;
}

/* After the user closed the prompt, it appears again only when the user asks for it. */
export function askAgain() {
  declined = false;
}

async function send(method, path, body) {
  const headers = { Accept: "application/json" };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    throw new Unreachable(t(error.name === "TimeoutError" ? "noAnswer" : "noConnection"));
  }
}

async function decode(response) {
  try {
    const answer = await response.json();
    return answer !== null && typeof answer === "object" ? answer : {};
  } catch {
    if (response.ok) throw new Unreachable(t("incomplete"));
    return {};
  }
}

/* No token, a wrong one, or one that is not enough (403: the admin token is needed). */
function lacksToken(status, answer) {
  return status === 401 || (status === 403 && /\btoken\b/.test(answer.detail || ""));
}

/* The decoded answer. 429 is a valid answer to a take: a denial is a decision. */
export async function call(method, path, body) {
  for (;;) {
    const used = token;
    const response = await send(method, path, body);
    const answer = await decode(response);
    if (lacksToken(response.status, answer)) {
      if (declined) throw new NoToken();
      if (token === used) await ask(used === null ? "" : t("badToken", { why: answer.detail || t("unauthorized") }));
      continue;
    }
    if (!response.ok && !(response.status === 429 && "allowed" in answer)) {
      throw new Refused(response.status, answer);
    }
    return answer;
  }
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);
