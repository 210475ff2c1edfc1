// Lines ranked by their similarity to a query.
//
// In: a model, lines, their scores, how many to show, what "more like this" does. Out: a list: score, bar, the line as text with
// its number. The scores of all lines are said below it: 0.9 means nothing where every line has 0.9.

import { h } from "../dom.js";

const FLAT = 0.06; // the best line is hardly above the usual one
const SEVERAL = 8; // lines that make a median mean something

export function rank(scores, count) {
  const order = Array.from(scores, (_, n) => n).sort((one, other) => scores[other] - scores[one] || one - other);
  return order.slice(0, count);
}

export function hits(page, model, lines, scores, { count, like }) {
  const { t, language } = page;
  const length = model.max_length ?? Infinity;
  const write = (value) => language.number(value, 3);
  const order = rank(scores, count);
  const sorted = Float64Array.from(scores).sort();
  const [low, middle, high] = [sorted[0], sorted[sorted.length >> 1], sorted.at(-1)];
  const items = order.map((n) => {
    const width = `${(100 * Math.max(0, scores[n])).toFixed(2)}%`;
    const name = t("search.like.line", { number: n + 1 });
    return h(
      "li",
      { class: "hit" },
      h("span", { class: "hit-score" }, write(scores[n])),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill", style: { width } })),
      h("span", { class: "hit-text" }, lines[n]),
      h("span", { class: "hit-number" }, t("search.number", { number: language.count(n + 1) })),
      h("button", { type: "button", class: "quiet hit-like", "aria-label": name, on: { click: () => like(lines[n]) } }, t("search.like")),
    );
  });
  const spread = { count: language.count(lines.length), low: write(low), middle: write(middle), high: write(high) };
  const flat = lines.length >= SEVERAL && high < 0.999 && high - middle < FLAT;
  return [
    h("ol", { class: "hits", "aria-label": t("search.results") }, items),
    h("p", { class: "note" }, t("search.spread", spread)),
    flat && h("p", { class: "note warn" }, t("search.flat")),
    lines.some((line) => line.length > length) && h("p", { class: "note" }, t("search.long", { length })),
  ];
}
