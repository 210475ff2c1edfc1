// The fields for what a model reads: a text, a pair, a question and a text, a text and its choices, lines.
//
// In: the tab's state, the model, what for. Out: { element, show(model), given() }. All tabs use the same names in the
// state (text, pair, lines), so a link from one tab to another takes the texts along.

import { h, replace } from "../dom.js";
import { textBox, textLine } from "./form.js";
import { readsChinese } from "./models.js";

// What a model reads. `whole`: as its task does; else as an encoder, which reads any text or pair.
export function shapeOf(model, whole) {
  if (model.task === "answer") return "question";
  if (model.task === "choose") return whole ? "choices" : "pair";
  if (model.task === "classify" || model.task === "regress") return model.pair ? "pair" : "text";
  if (model.task || model.abilities.includes("generate")) return "text";
  return "maybe";
}

const SHAPES = {
  text: [["text", "text", textBox, 3]],
  pair: [
    ["text", "first", textBox, 2],
    ["pair", "second", textBox, 2],
  ],
  maybe: [
    ["text", "text", textBox, 2],
    ["pair", "maybe", textBox, 2],
  ],
  masked: [
    ["text", "masked", textBox, 2],
    ["pair", "maybe", textBox, 2],
  ],
  question: [
    ["text", "question", textLine],
    ["pair", "context", textBox, 4],
  ],
  choices: [
    ["text", "text", textBox, 2],
    ["pair", "choices", textBox, 4],
  ],
  lines: [["lines", "lines", textBox, 6]],
};

export function inputs(page, state, { changed, submit, shape }) {
  const element = h("div", { class: "texts" });
  let fields = {};
  let shown = "";

  async function show(model) {
    const wanted = shape(model);
    const chinese = page.language.name === "zh" && (await readsChinese(model).catch(() => false));
    const example = (name) => page.t(`inputs.${name}.${chinese ? "zh" : "en"}`);
    if (wanted === shown) return;
    shown = wanted;
    fields = {};
    for (const [name, label, make, rows] of SHAPES[wanted]) {
      const fallback = label === "maybe" ? "" : example(label);
      fields[name] = make(state, name, { label: page.t(`inputs.${label}`), fallback, rows, changed, submit });
    }
    replace(
      element,
      Object.values(fields).map((field) => field.element),
    );
  }

  // `pair` is undefined where there is none; `complete`: nothing that is needed is empty.
  function given() {
    const value = (name) => fields[name]?.value ?? "";
    const pair = shown === "choices" ? linesOf(value("pair")) : value("pair").trim() ? value("pair") : undefined;
    const needsPair = ["pair", "question"].includes(shown);
    const first = shown === "lines" ? value("lines") : value("text");
    const complete =
      first.trim() !== "" && (!needsPair || pair !== undefined) && (shown !== "choices" || pair.length > 1);
    return { shape: shown, text: value("text"), pair, lines: linesOf(value("lines")), complete };
  }

  return { element, show, given };
}

export const linesOf = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
