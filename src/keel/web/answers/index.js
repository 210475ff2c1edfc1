// How the answer of each kind of task is asked and shown.
//
// In: the page, a model, what was given. Out: `ask` resolves to { nodes, said }. A new task is a function here; the
// kind "similarity" is for encoders that have no task.

import { post } from "../api.js";
import { h } from "../dom.js";
import { bars } from "../parts/bars.js";
import { tabLink } from "../parts/link.js";
import { matrix } from "../parts/matrix.js";
import { legend, marked } from "../parts/spans.js";
import { translate } from "./translate.js";

export const kindOf = (model) => model.task ?? "similarity";

export const ASK = { classify, regress, tag, answer, choose, translate, similarity };

async function predict(model, given, signal) {
  const input = given.pair === undefined ? given.text : [given.text, given.pair];
  const found = await post("/v1/predict", { model: model.id, inputs: [input] }, signal);
  return { ...found.answers[0], truncated: found.truncated_tokens };
}

// Below every answer: what was left out, since nothing is truncated silently, and the way to its reasons.
function below(page, model, given, { truncated }) {
  const lost =
    truncated && h("p", { class: "note warn" }, page.t("tasks.truncated", { count: page.language.count(truncated) }));
  const pair = Array.isArray(given.pair) ? given.pair.join("\n") : given.pair;
  const why = tabLink(page, "why", { model: model.id, text: given.text, pair }, page.t("why.link"));
  return [lost, h("p", { class: "below" }, why)];
}

const card = (title, ...nodes) => h("div", { class: "card" }, h("h3", {}, title), nodes);

async function classify(page, model, given, signal) {
  const found = await predict(model, given, signal);
  const chosen = found.labels ?? [found.label];
  // Sorted, because the keys of an object that are numbers, such as the labels 0 and 1, come first and in their order.
  const ranked = Object.entries(found.probabilities).sort(([, one], [, other]) => other - one);
  const rows = ranked.map(([label, value]) => ({
    label,
    value,
    shown: page.language.percent(value),
    mark: found.labels?.includes(label) ? page.t("tasks.chosen") : null,
  }));
  const title = chosen.length ? chosen.join(", ") : page.t("tasks.no_label");
  return { nodes: card(title, bars(rows), below(page, model, given, found)), said: title };
}

async function regress(page, model, given, signal) {
  const found = await predict(model, given, signal);
  const value = page.language.number(found.value);
  return {
    nodes: card(page.t("tasks.value"), h("p", { class: "large-value" }, value), below(page, model, given, found)),
    said: value,
  };
}

async function tag(page, model, given, signal) {
  const found = await predict(model, given, signal);
  const spans = (found.entities ?? found.words).map((one) => ({
    ...one,
    kind: one.label,
    note: `${one.label} ${page.language.percent(one.probability)}`,
  }));
  const kinds = model.labels
    ? [...new Set(model.labels.map((label) => (found.entities ? label.replace(/^[BIES]-/, "") : label)))]
    : [];
  const shown = kinds.filter((kind) => !found.entities || kind !== "O");
  const said = spans.length ? spans.map((one) => `${one.text}: ${one.label}`).join(", ") : page.t("tasks.no_entity");
  const title = page.t("tasks.entities", { count: page.language.count(spans.length) });
  return {
    nodes: card(title, marked(given.text, spans, shown), legend(page, spans, shown), below(page, model, given, found)),
    said,
  };
}

async function answer(page, model, given, signal) {
  const found = await predict(model, given, signal);
  const place = h("div", {});
  const show = (one) =>
    place.replaceChildren(
      marked(given.pair, one && one.start !== null ? [{ ...one, kind: "answer" }] : [], ["answer"]),
    );
  show(found.start === null ? null : found);
  const rows = found.best.map((one) => ({
    label: one.text,
    value: one.probability,
    shown: page.language.percent(one.probability),
    title: page.t("tasks.mark"),
    pick: () => show(one),
  }));
  const title = found.answer || page.t("tasks.no_answer");
  const others = [h("h4", { class: "below" }, page.t("tasks.best")), bars(rows)];
  return { nodes: card(title, place, others, below(page, model, given, found)), said: title };
}

async function choose(page, model, given, signal) {
  const found = await predict(model, given, signal);
  const rows = given.pair.map((label, n) => ({
    label,
    value: found.probabilities[n],
    shown: page.language.percent(found.probabilities[n]),
    mark: n === found.choice ? page.t("tasks.chosen") : null,
  }));
  return {
    nodes: card(found.text, bars(rows, { ordered: false }), below(page, model, given, found)),
    said: found.text,
  };
}

async function similarity(page, model, { lines }, signal) {
  const { vectors } = await post(
    "/v1/embed",
    { model: model.id, texts: lines, normalize: true, truncate: true },
    signal,
  );
  const values = vectors.map((one) => vectors.map((other) => one.reduce((sum, value, n) => sum + value * other[n], 0)));
  const caption = page.t("tasks.similarity");
  const write = (value) => page.language.number(value, 2);
  const names = lines.map((line, n) => `${n + 1}  ${line}`);
  const shown = matrix({
    rows: names,
    columns: lines.map((_, n) => String(n + 1)),
    values,
    caption,
    write,
    strength: (value) => Math.max(0, value),
  });
  return { nodes: card(caption, shown, closest(page, lines, values)), said: caption };
}

// The two lines that are most alike, in words.
function closest(page, lines, values) {
  let best = null;
  lines.forEach((_, n) =>
    lines.slice(0, n).forEach((_, m) => (!best || values[n][m] > best.value) && (best = { n, m, value: values[n][m] })),
  );
  if (!best) return h("p", { class: "note" }, page.t("tasks.more_lines"));
  return h(
    "p",
    {},
    page.t("tasks.closest", { one: best.m + 1, other: best.n + 1, value: page.language.number(best.value, 2) }),
  );
}
