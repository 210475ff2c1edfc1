// A text as a row of words that can be pressed.
//
// In: a text, and what to do when a word is pressed. Out: a toolbar: Tab enters it once, arrows move in it, Enter or
// Space presses. Marks and white space are shown but cannot be pressed.

import { h, replace } from "../dom.js";
import { roving } from "./roving.js";
import { MASK, units } from "../words.js";

const MOST = 600; // words; more would make every key press slow

export function wordStrip(page, press) {
  const element = h("div", { class: "words", role: "toolbar", "aria-label": page.t("words.label") });
  roving(element);

  function show(text, focused = -1) {
    const found = units(text).slice(0, MOST);
    const nodes = [];
    let end = 0;
    found.forEach((unit, number) => {
      nodes.push(text.slice(end, unit.start), unit.word ? word(unit, number) : unit.text);
      end = unit.end;
    });
    const rest = text.slice(end);
    if (rest.trim()) nodes.push(h("span", { class: "note" }, page.t("words.more")));
    replace(element, nodes);
    element.restore(focused < 0 ? null : element.querySelector(`[data-number="${focused}"]`));
  }

  function word(unit, number) {
    const pressed = String(unit.text === MASK);
    const props = { type: "button", class: "word", "aria-pressed": pressed, "data-number": number };
    return h("button", { ...props, on: { click: () => press(unit, number) } }, unit.text);
  }

  return { element, show };
}
