// The field for the lines that are searched: short ones are in the address, long ones stay in this window.
//
// In: the tab's state. Out: { element, control, lines, show(example) }. A browser refuses addresses of many thousand
// characters, and thousands of lines can be pasted here.

import { freshId, h } from "../dom.js";
import { linesOf } from "../parts/inputs.js";
import { session, setSession } from "../storage.js";

const LONGEST = 2000; // characters that are put into the address
const NAME = "keel.search.lines";

let inMemory = null; // where the browser's storage is too small

export function linesField(page, state, changed) {
  const id = freshId("field");
  const control = h("textarea", { id, rows: 8, spellcheck: "false", autocapitalize: "off", "aria-describedby": `${id}-hint` });
  const hint = h("span", { class: "note", id: `${id}-hint` });
  let lines = [];

  function read() {
    lines = linesOf(control.value);
    const key = control.value.length > LONGEST ? "search.lines.kept" : "search.lines.count";
    hint.textContent = page.t(key, { count: page.language.count(lines.length) });
  }

  control.addEventListener("input", () => {
    read();
    inMemory = control.value;
    if (setSession(NAME, control.value) === null) setSession(NAME, ""); // no room: rather none than old ones
    state.set("lines", control.value.length > LONGEST ? "" : control.value);
    changed();
  });

  function show(example) {
    control.value = state.get("lines") || (inMemory ?? session(NAME) ?? example);
    read();
  }

  const element = h("div", { class: "field" }, h("label", { for: id }, page.t("search.lines")), control, hint);
  return {
    element,
    control,
    show,
    get lines() {
      return lines;
    },
  };
}
