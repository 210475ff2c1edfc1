// Ranked values as bars.
//
// In: rows { label, value (0 to 1), shown, mark, pick }. Out: a list. The number stands beside each bar; the bar itself
// is for the eye only.

import { h } from "../dom.js";

export function bars(rows, { longest = 1, ordered = true } = {}) {
  return h("ol", { class: ordered ? "bars" : "bars unranked" }, rows.map((row) => bar(row, longest)));
}

function bar({ label, value, shown, mark, pick, title }, longest) {
  const name = pick
    ? h("button", { type: "button", class: "bar-name quiet", title, on: { click: pick } }, label)
    : h("span", { class: "bar-name", title }, label);
  const width = `${(100 * Math.max(0, Math.min(1, value / longest))).toFixed(2)}%`;
  return h(
    "li",
    { class: mark ? "bar marked" : "bar" },
    name,
    h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill", style: { width } })),
    h("span", { class: "bar-value" }, shown),
    mark && h("span", { class: "bar-mark" }, mark),
  );
}
