// Parts of a text marked in their place.
//
// In: a text, spans { start, end, kind, note }, with offsets in code points, as the server counts. Out: nodes: the text
// as it is, with each span in a coloured frame and its note written after it, so colour is never all that tells.

import { h } from "../dom.js";
import { byPoints } from "../words.js";

const COLOURS = 10; // --series-0 ... --series-9 of the style sheet

export const colourOf = (kinds, kind) => `var(--series-${Math.max(0, kinds.indexOf(kind)) % COLOURS})`;

// `kinds`: all kinds in a fixed order, so that a kind keeps its colour.
export function marked(text, spans, kinds) {
  const points = byPoints(text);
  const nodes = [];
  let at = 0;
  for (const { start, end, kind, note } of [...spans].sort((one, other) => one.start - other.start)) {
    if (start < at) continue; // inside the span before
    nodes.push(points.slice(at, start));
    const label = note && h("span", { class: "span-note" }, note);
    nodes.push(
      h(
        "mark",
        { class: "span", style: { "--kind": colourOf(kinds, kind) } },
        h("span", { class: "span-text" }, points.slice(start, end)),
        label,
      ),
    );
    at = end;
  }
  nodes.push(points.slice(at, points.length));
  return h("p", { class: "marked-text" }, nodes);
}

// What the colours stand for, and how often each occurs.
export function legend(page, spans, kinds) {
  const rows = kinds.map((kind) => {
    const count = spans.filter((span) => span.kind === kind).length;
    const swatch = h("span", { class: "swatch", "aria-hidden": "true", style: { "--kind": colourOf(kinds, kind) } });
    return h(
      "li",
      { class: count ? "" : "none" },
      swatch,
      kind,
      h("span", { class: "count" }, page.language.count(count)),
    );
  });
  return h("ul", { class: "legend", "aria-label": page.t("spans.legend") }, rows);
}
