// A translation, and which words of the source each of its words was made from.
//
// In: a text. Out: the translation, and its cross-attention as a table of words.
//
// Notable choice: weights are of tokens. What a word looks at is the mean over its tokens; how much a word is looked at
// is the sum over its tokens, so the weights of a row still sum to 1. The mean of all layers and heads is shown.

import { post } from "../api.js";
import { h } from "../dom.js";
import { matrix } from "../parts/matrix.js";

export async function translate(page, model, given, signal) {
  const body = { model: model.id, texts: [given.text], attention: true };
  const { answers, attention } = await post("/v1/translate", body, signal);
  const { translation, score } = answers[0];
  const shown = h("p", { class: "translation" }, translation || page.t("tasks.empty_translation"));
  const note = h("p", { class: "note" }, page.t("tasks.score", { score: page.language.number(score, 2) }));
  const nodes = [h("div", { class: "card" }, h("h3", {}, page.t("tasks.translation")), shown, note)];
  if (attention) nodes.push(await heat(page, model, given.text, translation, attention, signal));
  return { nodes, said: translation };
}

async function heat(page, model, text, translation, { written, read, weights }, signal) {
  const { texts } = await post("/v1/tokens", { model: model.id, texts: [text, translation] }, signal, false);
  const columns = words(read, texts[0].tokens, 1);
  const rows = words(written, texts[1].tokens, 0);
  const values = rows.map((row) => columns.map((column) => weight(weights, row.places, column.places)));
  const largest = Math.max(...values.flat());
  const table = matrix({
    rows: rows.map((row) => row.text),
    columns: columns.map((column) => column.text),
    values,
    caption: page.t("tasks.cross"),
    write: (value) => page.language.number(value, 2),
    strength: (value) => Math.sqrt(value / largest),
  });
  return h(
    "div",
    { class: "card" },
    h("h3", {}, page.t("tasks.cross")),
    table,
    h("p", { class: "note" }, page.t("tasks.cross.note")),
  );
}

// Tokens joined to words. `before`: special tokens at the beginning. The last one is [SEP] also where a translation was
// cut, and stays alone.
function words(names, tokens, before) {
  const found = [];
  names.forEach((name, place) => {
    const token = place < names.length - 1 ? tokens[place - before] : null;
    if (token && !token.word_start && found.length && place > before) {
      found.at(-1).places.push(place);
      found.at(-1).text += token.text.replace(/^##/, "");
    } else {
      found.push({ text: (token ? token.text : name).trim() || "␣", places: [place] });
    }
  });
  return found;
}

function weight(weights, rows, columns) {
  let sum = 0;
  for (const layer of weights)
    for (const head of layer) for (const row of rows) for (const column of columns) sum += head[row][column];
  return sum / (weights.length * weights[0].length * rows.length);
}
