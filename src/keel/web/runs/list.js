// The runs of the server as a table; one of them is chosen.
//
// In: what /v1/runs lists. Out: a table, whose rows say what `keel runs` says.

import { h } from "../dom.js";

export function table(page, runs, chosen, choose) {
  const names = ["runs.folder", "runs.kind", "runs.state", "runs.steps", "runs.figure", "runs.took", "runs.when"];
  const head = h("tr", {}, names.map((name) => h("th", { scope: "col" }, page.t(name))));
  const rows = runs.map((run) => row(page, run, run.id === chosen, choose));
  const all = h("table", { class: "runs" }, h("thead", {}, head), h("tbody", {}, rows));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": page.t("runs.list") }, all);
}

function row(page, run, pressed, choose) {
  const { language } = page;
  const props = { type: "button", class: "quiet", "aria-pressed": String(pressed), "data-run": run.id };
  const value = run.value === null ? "" : `${run.figure} ${language.number(run.value, 4)}`;
  return h(
    "tr",
    { class: pressed ? "chosen" : "" },
    h("th", { scope: "row" }, h("button", { ...props, on: { click: () => choose(run.id) } }, run.folder)),
    h("td", {}, known(page, "runs.kind", run.kind), run.name && h("span", { class: "note-line" }, run.name)),
    h("td", {}, h("span", { class: `state ${run.state}` }, known(page, "runs.state", run.state))),
    h("td", { class: "figure" }, stepsOf(page, run)),
    h("td", {}, value, run.plateau && h("span", { class: "note-line" }, page.t("runs.plateau"))),
    h("td", { class: "figure" }, run.seconds === null ? "" : duration(page, run.seconds)),
    h("td", { class: "figure" }, when(run.when)),
  );
}

export const known = (page, prefix, name) => (page.language.has(`${prefix}.${name}`) ? page.t(`${prefix}.${name}`) : name);

export function stepsOf(page, { step, planned }) {
  const count = (value) => page.language.count(value);
  if (step === null) return "";
  if (typeof planned === "number") return `${count(step)} / ${count(planned)}`;
  return planned === null ? count(step) : page.t("runs.budget", { step: count(step), budget: planned });
}

export function duration(page, seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  if (hours) return page.t("runs.hours", { hours, minutes });
  return minutes ? page.t("runs.minutes", { minutes, seconds: Math.round(seconds % 60) }) : page.t("runs.seconds", { seconds: seconds.toFixed(1) });
}

// "2026-11-19T21:49:47+00:00" without its zone: the server's clock
const when = (text) => text.replace("T", " ").slice(0, 16);
