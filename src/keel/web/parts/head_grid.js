// All layers and heads as a grid of buttons: layers are rows, heads columns, both counted from 1.
//
// In: the numbers of layers and heads, what stands in each cell, what to do when one is chosen. Out: { element,
// choose(layer, head) }. One stop of the Tab key; arrows move in the grid.

import { h } from "../dom.js";
import { roving } from "./roving.js";

export function headGrid(page, { layers, heads, label, cell, choose }) {
  const buttons = [];
  const element = h("div", {
    class: "head-grid",
    role: "group",
    "aria-label": label,
    style: { "--heads": String(heads) },
  });
  element.append(h("span", { "aria-hidden": "true" }));
  for (let head = 1; head <= heads; head += 1) element.append(number(head));
  for (let layer = 1; layer <= layers; layer += 1) {
    element.append(number(layer));
    for (let head = 1; head <= heads; head += 1) {
      const { content, title, style, kind = "" } = cell(layer, head);
      const name = title ?? page.t("head.name", { layer, head });
      const props = {
        type: "button",
        class: `head-cell ${kind}`,
        "aria-label": name,
        title: name,
        "aria-pressed": "false",
        style,
      };
      const button = h("button", { ...props, on: { click: () => choose(layer, head) } }, content);
      buttons.push(button);
      element.append(button);
    }
  }
  roving(element, () => heads);

  function mark(layer, head) {
    buttons.forEach((button, n) => {
      const chosen =
        (layer === null || Math.floor(n / heads) === layer - 1) && (head === null || n % heads === head - 1);
      button.setAttribute("aria-pressed", String(chosen));
      button.tabIndex = -1;
    });
    (buttons[((layer ?? 1) - 1) * heads + (head ?? 1) - 1] ?? buttons[0]).tabIndex = 0;
  }

  return { element, mark };
}

const number = (n) => h("span", { class: "head-number", "aria-hidden": "true" }, String(n));
