// What each head is worth: how the answer changes when it is switched off.
//
// In: /v1/explain with the method heads. Out: all layers and heads as a grid of signed numbers, and the strongest.

import { h, replace } from "../dom.js";
import { headGrid } from "../parts/head_grid.js";
import { tabLink } from "../parts/link.js";
import { digitsFor, level, side, signed, signedBars, tiny } from "../parts/signed.js";
import { answerName, scaleName } from "./answer.js";

const RANKED = 8;

export function heads(page, found, given) {
  const { changes, model, text, pair } = found;
  const all = changes.flatMap((row, n) => row.map((value, m) => ({ layer: n + 1, head: m + 1, value })));
  const ranked = [...all].sort((one, other) => Math.abs(other.value) - Math.abs(one.value)).slice(0, RANKED);
  const digits = digitsFor(all.map((one) => one.value));
  const largest = Math.abs(ranked[0].value);
  const name = (one) => page.t("head.name", one);
  const told = (one) => `${name(one)}: ${signed(page, one.value, digits)}`;
  const detail = h("p", { class: "note" });
  const cell = (layer, head) => {
    const one = all[(layer - 1) * changes[0].length + head - 1];
    return {
      kind: `worth ${side(one.value, digits)}`,
      title: told(one),
      style: level(one.value, largest),
      content: h("span", {}, tiny(one.value, digits) ? "0" : one.value < 0 ? "−" : "+"),
    };
  };
  const choose = (layer, head) => {
    const one = all[(layer - 1) * changes[0].length + head - 1];
    const link = tabLink(page, "attention", { model, text, pair, layer, head }, page.t("why.heads.look"));
    grid.mark(layer, head);
    replace(detail, `${told(one)}. `, link);
  };
  const grid = headGrid(page, {
    layers: changes.length,
    heads: changes[0].length,
    label: page.t("attention.grid"),
    cell,
    choose,
  });
  choose(ranked[0].layer, ranked[0].head);
  const title = page.t(found.answer.kind === "vector" ? "why.heads.vector" : "why.heads.title", {
    name: answerName(page, found.answer, given),
  });
  const note = page.t(found.answer.kind === "vector" ? "why.heads.vector.note" : "why.heads.note", {
    scale: scaleName(page, found.answer),
    value: page.language.number(found.value, 3),
  });
  const nodes = h(
    "div",
    { class: "attention-cards" },
    h("div", { class: "card" }, h("h3", {}, title), h("p", { class: "note first" }, note), grid.element, detail),
    h(
      "div",
      { class: "card" },
      h("h3", {}, page.t("why.heads.strongest")),
      signedBars(
        page,
        ranked.map((one) => ({ label: name(one), value: one.value })),
        { digits },
      ),
    ),
  );
  return { nodes, said: told(ranked[0]) };
}
