// Numbers that speak for or against something: words of a text, and ranked bars.
//
// In: values with a sign. Out: elements: blue for positive, orange for negative, and always the number with its sign.

import { h } from "../dom.js";
import { byPoints } from "../words.js";

// Whether a value is shown as zero.
export const tiny = (value, digits) => Math.abs(value) < 0.5 * 10 ** -digits;

// "+0.12", "−0.12"; zero has no sign.
export function signed(page, value, digits = 3) {
  const sign = tiny(value, digits) ? "" : value < 0 ? "−" : "+";
  return `${sign}${page.language.number(Math.abs(value), digits)}`;
}

// How many digits show the largest of some values with two that count.
export const digitsFor = (values) => {
  const largest = Math.max(...values.map(Math.abs), 1e-9);
  return Math.max(2, Math.min(6, 1 - Math.floor(Math.log10(largest))));
};

export const side = (value, digits) => (tiny(value, digits) ? "neither" : value < 0 ? "against" : "for");

export const level = (value, largest) => ({ "--level": String(Math.round((100 * Math.abs(value)) / (largest || 1))) });

// A text whose words have scores { start, end, score }, by code points; the score stands below each word.
export function scoredText(page, text, words, { largest, digits }) {
  const points = byPoints(text);
  const nodes = [];
  let at = 0;
  for (const { start, end, score } of words) {
    if (start > at) nodes.push(h("span", { class: "between" }, points.slice(at, start)));
    const value = h("span", { class: "score" }, signed(page, score, digits));
    nodes.push(
      h(
        "span",
        { class: `scored ${side(score, digits)}`, style: level(score, largest) },
        h("span", {}, points.slice(start, end)),
        value,
      ),
    );
    at = end;
  }
  nodes.push(points.slice(at, points.length));
  return h("p", { class: "scored-text" }, nodes);
}

// Rows { label, value, title }, the largest first; bars go to the right or to the left of a line.
export function signedBars(page, rows, { digits }) {
  const largest = Math.max(...rows.map((row) => Math.abs(row.value)), 1e-9);
  return h(
    "ol",
    { class: "signed-bars" },
    rows.map((row) => signedBar(page, row, largest, digits)),
  );
}

function signedBar(page, { label, value, title }, largest, digits) {
  const width = `${((50 * Math.abs(value)) / largest).toFixed(2)}%`;
  const bar = h("span", { class: `signed-fill ${side(value, digits)}`, style: { width } });
  return h(
    "li",
    { class: "signed-bar" },
    h("span", { class: "bar-name", title }, label),
    h("span", { class: "signed-track", "aria-hidden": "true" }, bar),
    h("span", { class: "bar-value" }, signed(page, value, digits)),
  );
}
