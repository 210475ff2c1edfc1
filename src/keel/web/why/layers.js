// What each layer would already answer.
//
// In: /v1/explain with the method layers. Out: for each [MASK], for the label, or for the next token a table: a row is
// a layer with its first guesses, and how likely the final answer is there.

import { h } from "../dom.js";

export function layers(page, found) {
  const cards = found.places.map((place, number) => card(page, found, place, number));
  const said = found.places.map((place) => since(page, place)).join(" ");
  return { nodes: h("div", {}, cards), said };
}

function card(page, { kind, places }, place, number) {
  const title =
    places.length > 1
      ? page.t("why.layers.mask", { number: number + 1, answer: place.final })
      : page.t(`why.layers.${kind.replace(" ", "_")}`, { answer: place.final });
  const longest = Math.max(...place.layers.map((one) => one.final_probability), 1e-9);
  const rows = place.layers.map((one) => row(page, place, one, longest));
  const head = ["why.layer", "why.guesses", "why.final"].map((key) =>
    h("th", { scope: "col" }, page.t(key, { answer: place.final })),
  );
  const table = h("table", { class: "layers" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
  const from = h("p", { class: "note first" }, since(page, place));
  return h(
    "div",
    { class: "card" },
    h("h3", {}, title),
    from,
    table,
    h("p", { class: "note" }, page.t("why.layers.note")),
  );
}

const since = (page, { final, from_layer: layer }) =>
  page.t(layer ? "why.layers.from" : "why.layers.always", { answer: final, layer });

function row(page, { final }, { layer, guesses, final_probability: chance }, longest) {
  const chips = guesses.map((guess) =>
    h(
      "li",
      { class: guess.text === final ? "guess right" : "guess" },
      guess.text || "␣",
      h("span", { class: "score" }, page.language.percent(guess.probability)),
    ),
  );
  const width = `${((100 * chance) / longest).toFixed(2)}%`;
  const bar = h(
    "span",
    { class: "bar-track", "aria-hidden": "true" },
    h("span", { class: "bar-fill", style: { width } }),
  );
  const name = layer ? page.language.count(layer) : page.t("why.embeddings");
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, name),
    h("td", {}, h("ol", { class: "guesses" }, chips)),
    h("td", { class: "final" }, bar, h("span", { class: "bar-value" }, page.language.percent(chance))),
  );
}
