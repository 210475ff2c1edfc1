// Tokens: how one or two tokenizers cut a text.
//
// In: a text, one or two models. Out: the pieces with ids, offsets and word starts of /v1/tokens, and their counts.

import { post } from "../api.js";
import { h } from "../dom.js";
import { button, textBox } from "../parts/form.js";
import { able, isUnknown, missing, modelChoice } from "../parts/models.js";
import { outcome } from "../parts/outcome.js";
import { byPoints, units } from "../words.js";

const PAUSE = 300; // ms after the last key
const MOST = 3000; // pieces that are drawn

export const tokens = {
  id: "tokens",
  missing: (page) => missing(page),
  build(page, state) {
    const models = able(page);
    const place = outcome(page, page.t("tokens.empty"));
    let pause = 0;
    const later = () => {
      clearTimeout(pause);
      pause = setTimeout(run, PAUSE);
    };
    const fields = { label: page.t("text"), fallback: page.t("tokens.example"), changed: later, submit: () => run() };
    const text = textBox(state, "text", fields);
    const model = modelChoice(page, state, "model", { label: page.t("model"), models, changed: () => run() });
    const beside = { label: page.t("model.second"), models, none: page.t("model.none"), changed: () => run() };
    const second = modelChoice(page, state, "second", beside);

    function run() {
      clearTimeout(pause);
      if (!text.value.trim()) return place.clear();
      const chosen = [model.model, second.model].filter(Boolean);
      return place.run(async (signal) => {
        const ask = ({ id }) => post("/v1/tokens", { model: id, texts: [text.value] }, signal);
        const answers = await Promise.all(chosen.map(ask));
        const said = answers.map((one) => page.t("tokens.said", { model: one.model, count: one.texts[0].tokens.length }));
        const columns = answers.map((answer) => column(page, answer));
        return { nodes: h("div", { class: `columns of-${columns.length}` }, columns), said: said.join(" ") };
      });
    }

    const options = h("div", { class: "options" }, model.element, second.element);
    const asking = button(page.t("tokens.ask"), () => run(), { class: "main" });
    const form = h("div", { class: "form" }, h("div", { class: "texts" }, text.element), h("div", {}, options, asking));
    return { nodes: [form, place.element], start: run };
  },
};

function column(page, { model, texts: [{ text, tokens: found }] }) {
  const shown = found.slice(0, MOST);
  const more = found.length - shown.length;
  return h(
    "div",
    { class: "card" },
    h("h3", {}, model),
    counts(page, text, found),
    h("div", { class: "pieces" }, pieces(page, text, shown)),
    more > 0 && h("p", { class: "note" }, page.t("tokens.more", { count: page.language.count(more) })),
    h("details", {}, h("summary", {}, page.t("tokens.table")), table(page, text, shown)),
  );
}

function counts(page, text, found) {
  const words = units(text).filter((unit) => unit.word).length;
  const unknown = found.filter((token) => isUnknown(token, text)).length;
  const rows = [
    ["tokens.count", page.language.count(found.length)],
    ["tokens.characters", page.language.count(byPoints(text).length)],
    ["tokens.words", page.language.count(words)],
    ["tokens.rate", words ? page.language.number(found.length / words, 2) : "-"],
    ["tokens.unknown", page.language.count(unknown)],
  ];
  return h("dl", { class: "tiles" }, rows.map(([key, value]) => h("div", {}, h("dt", {}, page.t(key)), h("dd", {}, value))));
}

// A piece that begins a word stands apart from the one before it; every second word is shaded.
function pieces(page, text, found) {
  const points = byPoints(text);
  let words = 0;
  return found.map((token) => {
    if (token.word_start) words += 1;
    const unknown = isUnknown(token, text);
    const kind = ["piece", token.word_start && "begins", words % 2 && "odd", unknown && "unknown"].filter(Boolean).join(" ");
    const covers = points.slice(token.start, token.end);
    const title = page.t("tokens.piece.title", { id: token.id, start: token.start, end: token.end, covers });
    return h("span", { class: kind, title }, h("span", { class: "piece-text" }, token.text), h("span", { class: "piece-id" }, String(token.id)));
  });
}

function table(page, text, found) {
  const points = byPoints(text);
  const names = ["tokens.number", "tokens.piece", "tokens.id", "tokens.offsets", "tokens.covers", "tokens.start"];
  const head = h("tr", {}, names.map((key) => h("th", { scope: "col" }, page.t(key))));
  const rows = found.map((token, number) =>
    h(
      "tr",
      {},
      h("td", { class: "figure" }, String(number)),
      h("th", { scope: "row" }, token.text),
      h("td", { class: "figure" }, String(token.id)),
      h("td", { class: "figure" }, `${token.start}–${token.end}`),
      h("td", {}, points.slice(token.start, token.end)),
      h("td", {}, token.word_start ? page.t("yes") : ""),
    ),
  );
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": page.t("tokens.table") }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows)));
}
