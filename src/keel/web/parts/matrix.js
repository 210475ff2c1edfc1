// A small matrix of numbers as a table whose cells are coloured.
//
// In: names of rows and columns, numbers, how to write one. Out: a table; up to MOST_NUMBERS columns the numbers stand
// in the cells.

import { h } from "../dom.js";

const MOST_NUMBERS = 14;

// `strength(value)`: 0 to 1, how strongly the cell is coloured. `headless`: column names as numbers.
export function matrix({ rows, columns, values, caption, write, strength }) {
  const numbers = columns.length <= MOST_NUMBERS;
  const head = h(
    "tr",
    {},
    h("td", {}),
    columns.map((name) => h("th", { scope: "col", title: name }, h("span", {}, name))),
  );
  const body = rows.map((name, n) => {
    const cells = columns.map((column, m) => {
      const value = values[n][m];
      const title = `${name} · ${column}: ${write(value)}`;
      return h(
        "td",
        { class: "heat-cell", title, style: { "--level": String(Math.round(100 * strength(value, n, m))) } },
        numbers ? write(value) : h("span", { class: "unseen" }, write(value)),
      );
    });
    return h("tr", {}, h("th", { scope: "row", title: name }, h("span", {}, name)), cells);
  });
  const table = h(
    "table",
    { class: "matrix" },
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, head),
    h("tbody", {}, body),
  );
  return h("div", { class: "matrix-frame", tabindex: "0", role: "group", "aria-label": caption }, table);
}
