// Which tokens an answer rests on: the words of the text, coloured by their scores.
//
// In: /v1/explain with the method attribution. Out: the answer, its words, the strongest of them, all tokens as a table.

import { h } from "../dom.js";
import { digitsFor, scoredText, signed, signedBars, tiny } from "../parts/signed.js";
import { answerName, scaleName } from "./answer.js";

const RANKED = 8;

export function tokens(page, found, given) {
  const { words, text, pair } = found;
  const digits = digitsFor(words.map((word) => word.score));
  const largest = Math.max(...words.map((word) => Math.abs(word.score)), 1e-9);
  const texts = [text, pair].filter((part) => part !== null);
  const parts = texts.map((part, segment) => {
    const own = words.filter((word) => word.segment === segment).sort((one, other) => one.start - other.start);
    return scoredText(page, part, own, { largest, digits });
  });
  const ranked = words
    .filter((word) => !tiny(word.score, digits))
    .sort((one, other) => Math.abs(other.score) - Math.abs(one.score))
    .slice(0, RANKED);
  const name = answerName(page, found.answer, given);
  const nodes = [
    h("h3", {}, page.t("why.tokens.title", { name })),
    figures(page, found),
    h("div", { class: "scored-area" }, parts),
    h(
      "p",
      { class: "note" },
      h("span", { class: "key for" }, page.t("why.for")),
      h("span", { class: "key against" }, page.t("why.against")),
    ),
    found.answer.kind === "similarity" ? h("p", { class: "note" }, page.t("why.similarity")) : null,
    h("h4", { class: "below" }, page.t("why.strongest")),
    signedBars(
      page,
      ranked.map((word) => ({ label: word.text, value: word.score })),
      { digits },
    ),
    h("details", {}, h("summary", {}, page.t("why.table")), table(page, found, digits)),
  ];
  const said = `${name}: ${ranked
    .slice(0, 3)
    .map((word) => `${word.text} ${signed(page, word.score, digits)}`)
    .join(", ")}`;
  return { nodes: h("div", { class: "card" }, nodes), said };
}

function figures(page, { value, answer, scores, baseline, baseline_value: start, by }) {
  const number = (given) => page.language.number(given, 3);
  const rows = [[scaleName(page, answer), number(value)]];
  if (by === "integrated-gradients") {
    rows.push([page.t("why.baseline", { baseline }), number(start)]);
    rows.push([page.t("why.sum"), number(scores.reduce((sum, score) => sum + score, 0))]);
  }
  return h(
    "dl",
    { class: "tiles" },
    rows.map(([name, shown]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown))),
  );
}

function table(page, { tokens: all, scores }, digits) {
  const head = ["why.token.name", "why.score"].map((key) => h("th", { scope: "col" }, page.t(key)));
  const rows = all.map((token, n) => {
    const score = h("td", { class: "figure" }, signed(page, scores[n], digits));
    return h("tr", {}, h("th", { scope: "row" }, token.text.trim() || token.token), score);
  });
  const frame = { class: "scroll", tabindex: "0", role: "group", "aria-label": page.t("why.table") };
  return h("div", frame, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
}
