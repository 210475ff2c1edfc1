// The curves of a run: one chart for each figure of its log, so a new objective needs no change here.
//
// In: a log, what x is (steps, minutes or tokens). Out: figures. Training is smoothed over a fortieth of the run, with
// the measured values faint below; what was held out is shown as measured.

import { h } from "../dom.js";
import { curve, smooth } from "../parts/curve.js";

export const AXES = { step: (entry) => entry.step, time: (entry) => entry.elapsed / 60, tokens: (entry) => entry.tokens };
const CIRCUMSTANCES = ["learning_rate", "tokens_per_second", "gradient_norm"];

export function charts(page, log, axis) {
  const x = AXES[axis];
  const points = (entries, name) =>
    entries.filter((entry) => typeof entry[name] === "number").map((entry) => [x(entry), entry[name]]);
  const digits = new Intl.NumberFormat(page.language.name, { maximumSignificantDigits: 4, notation: "compact" });
  const write = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? Number(value.toPrecision(3)).toExponential() : digits.format(value));
  const drawn = namesOf(log).flatMap((name) => {
    const [train, held] = [points(log.train, name), points(log.evaluation, name)];
    const level = name.endsWith(".loss") ? points(log.evaluation, name.replace(".loss", "_without_context")) : [];
    const line = name === "learning_rate" ? train : smooth(train); // its peak is what it is
    const series = [
      { name: page.t("runs.train"), points: line === train ? [] : train, style: "faint", colour: 0 },
      { name: page.t("runs.train"), points: line, style: "line", colour: 0 },
      { name: page.t("runs.held_out"), points: held, style: "dots", colour: 1 },
      { name: page.t("runs.level"), points: level, style: "level", colour: 2 },
    ];
    const title = page.language.has(`runs.figure.${name}`) ? page.t(`runs.figure.${name}`) : name;
    return train.length + held.length ? [curve(page, { title, series, writeX: write, writeY: write })] : [];
  });
  return h("div", { class: "curves" }, drawn);
}

// Of objectives first; their sum only if there are several.
function namesOf({ train, evaluation }) {
  const names = new Set();
  for (const entry of [...train.slice(-1), ...train.slice(0, 1), ...evaluation]) {
    for (const [name, value] of Object.entries(entry)) if (name.includes(".") && typeof value === "number") names.add(name);
  }
  const objectives = new Set([...names].map((name) => name.split(".")[0]));
  return [...(objectives.size > 1 ? ["loss"] : []), ...names, ...CIRCUMSTANCES];
}
