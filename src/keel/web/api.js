// Questions to the server, always the one that sent this page.
//
// In: a path under /v1/ and a body. Out: the JSON of the answer, or an ApiError. The last questions are kept for the
// API tab, also over a reload.

import * as storage from "./storage.js";

const KEPT = 6;
const LONGEST = 20_000; // characters of a question that is kept
const BUSY = new Set([0, 429, 502, 503, 504]);
const ASKED = "keel.asked";

export class ApiError extends Error {
  // `status` 0: the server could not be reached.
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  get mayPass() {
    return BUSY.has(this.status);
  }
}

export const get = (path, signal) => send("GET", path, undefined, signal);

// `kept` false: not a question of the person's, so the API tab does not show it.
export async function post(path, body, signal, kept = true) {
  const answer = await send("POST", path, body, signal);
  if (kept) remember({ path, body });
  return answer;
}

async function send(method, path, body, signal) {
  const json = { "content-type": "application/json" };
  const options = body === undefined ? {} : { body: JSON.stringify(body), headers: json };
  const response = await reach(path, { method, signal, ...options });
  const text = await response.text();
  performance.mark("keel:answer");
  const answer = parse(text);
  if (response.ok && answer !== undefined) return answer;
  const message = answer?.error?.message ?? answer?.error ?? answer?.detail ?? "";
  throw new ApiError(response.status, String(message));
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "");
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// The last question first; of the same kind only the last one.
export const asked = () => parse(storage.session(ASKED) ?? "[]") ?? [];

export function remember(question) {
  const size = JSON.stringify(question.body).length;
  if (size > LONGEST) return;
  const others = asked().filter((one) => one.path !== question.path || one.body.model !== question.body.model);
  storage.setSession(ASKED, JSON.stringify([question, ...others].slice(0, KEPT)));
}
