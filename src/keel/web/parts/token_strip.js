// The tokens of a row as they stand in the text; one of them looks at others.
//
// In: tokens, what to do when one is pointed at, focused or pressed, and when the strip is scrolled. Out: { element,
// show(tokens), weigh(values, largest, source), reveal(place), nodeOf(place) }. Tab enters the strip once, arrows move in it. How much each token is looked at is a colour
// and a bar below it.

import { h, replace } from "../dom.js";
import { roving } from "./roving.js";

export function tokenStrip({ label, over, out, press, focused, scrolled }) {
  const element = h("div", { class: "token-strip", role: "toolbar", "aria-label": label });
  let nodes = [];
  let levels = [];
  let source = -1;
  roving(element);
  const at = (event) => nodes.indexOf(event.target.closest("button"));
  const tell = (react) => (event) => {
    const place = at(event);
    if (place >= 0) react(place);
  };
  element.addEventListener("pointerover", tell(over));
  element.addEventListener("pointerleave", () => out());
  element.addEventListener("focusin", tell(focused));
  element.addEventListener("click", tell(press));
  element.addEventListener("scroll", scrolled);

  function show(tokens) {
    nodes = tokens.map(token);
    levels = nodes.map(() => 0);
    source = -1;
    const parts = [];
    tokens.forEach((one, n) => {
      if (n && one.segment !== tokens[n - 1].segment) parts.push(h("br"));
      else if (n && one.start !== tokens[n - 1].end) parts.push(" ");
      parts.push(nodes[n]);
    });
    replace(element, parts);
    element.restore(null);
  }

  // Touches only what changed: with 512 tokens most weights stay at nothing.
  function weigh(values, largest, from) {
    nodes.forEach((node, n) => {
      const level = values ? Math.round((100 * values[n]) / largest) : 0;
      if (level === levels[n]) return;
      levels[n] = level;
      node.style.setProperty("--level", String(level));
    });
    if (source === from) return;
    nodes[source]?.removeAttribute("aria-current");
    nodes[from]?.setAttribute("aria-current", "true");
    source = from;
  }

  // Scrolls the strip, and nothing around it, to a token of which nothing can be seen.
  function reveal(place) {
    const [view, box] = [element.getBoundingClientRect(), nodes[place].getBoundingClientRect()];
    if (box.bottom > view.top && box.top < view.bottom) return;
    element.scrollTop += (box.top + box.bottom - view.top - view.bottom) / 2;
  }

  return { element, show, weigh, reveal, nodeOf: (place) => nodes[place] };
}

function token(one) {
  const kind = one.start === null ? "token frame" : one.glued ? "token glued" : "token";
  return h("button", { type: "button", class: kind, tabindex: "-1" }, one.label);
}
