// The place where an answer appears: empty, waiting, an error in words, or the result.
//
// In: `run(task)`, where `task(signal)` resolves to { nodes, said, shown }. Out: what is shown, and what a screen reader
// is told; `shown` is called when the nodes have their place in the page. A newer question cancels an older one.

import { h, replace } from "../dom.js";

const PATIENCE = 150; // ms before "computing" appears: a faster answer should not flicker

export function outcome(page, empty = "") {
  const element = h("div", { class: "outcome", "aria-busy": "false" });
  let running = null;

  function clear(text = empty) {
    running?.abort();
    running = null;
    element.setAttribute("aria-busy", "false");
    replace(element, text ? h("p", { class: "note" }, text) : null);
  }

  async function run(task) {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    element.setAttribute("aria-busy", "true");
    const waiting = setTimeout(() => wait(page, element), PATIENCE);
    try {
      const { nodes, said, shown } = await task(mine.signal);
      if (running !== mine) return false;
      replace(element, nodes);
      page.announce(said ?? "");
      shown?.();
      return true;
    } catch (error) {
      if (running === mine && error.name !== "AbortError") replace(element, errorCard(page, error, () => run(task)));
      return false;
    } finally {
      clearTimeout(waiting);
      if (running === mine) element.setAttribute("aria-busy", "false");
      element.classList.remove("stale");
    }
  }

  clear();
  return { element, run, clear };
}

function wait(page, element) {
  page.announce(page.t("outcome.computing"));
  if (element.querySelector(".error, .note") || !element.firstChild) {
    replace(element, h("p", { class: "note" }, page.t("outcome.computing")));
  } else {
    element.classList.add("stale"); // the last result stays readable
  }
}

// What went wrong, in words; with a button where asking again may help, or a key.
export function errorCard({ language }, error, again) {
  const reason = reasonOf(language, error);
  const button = (label, pressed) => h("button", { type: "button", on: { click: pressed } }, language.text(label));
  const way = error.status === 401 ? button("error.enter", () => location.reload()) : error.mayPass && button("error.again", again);
  return h("div", { class: "card error", role: "alert" }, h("p", {}, reason), way);
}

function reasonOf(language, error) {
  if (error.status === undefined) return language.text("error.page", { message: error.message });
  const key = `error.${error.status}`;
  const said = error.message ? language.text("error.said", { message: error.message }) : "";
  const what = language.has(key) ? language.text(key) : language.text("error.other", { status: error.status });
  return [what, said].filter(Boolean).join(" ");
}
