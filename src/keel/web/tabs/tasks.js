// Tasks: what the chosen model was fine-tuned to do, on texts of one's own.
//
// In: what the model reads. Out: its answer, drawn as suits the task: bars, spans in the text, a value, a translation
// with its attention; for an encoder without a task how alike several lines are.

import { ASK, kindOf } from "../answers/index.js";
import { h } from "../dom.js";
import { button } from "../parts/form.js";
import { inputs, shapeOf } from "../parts/inputs.js";
import { able, missing, modelChoice } from "../parts/models.js";
import { outcome } from "../parts/outcome.js";

const ABILITIES = ["predict", "translate", "embed"];

export const tasks = {
  id: "tasks",
  missing: (page) => missing(page, ...ABILITIES),
  build(page, state) {
    const found = able(page, ...ABILITIES);
    const models = [...found.filter((one) => one.task), ...found.filter((one) => !one.task)];
    const place = outcome(page, page.t("tasks.empty"));
    const model = modelChoice(page, state, "model", { label: page.t("model"), models, changed: run });
    const shape = (chosen) => (kindOf(chosen) === "similarity" ? "lines" : shapeOf(chosen, true));
    const fields = inputs(page, state, { submit: run, shape });

    function run() {
      const chosen = model.model;
      return place.run(async (signal) => {
        await fields.show(chosen);
        const given = fields.given();
        if (!given.complete) return { nodes: h("p", { class: "note" }, page.t("tasks.empty")) };
        return ASK[kindOf(chosen)](page, chosen, given, signal);
      });
    }

    const asking = button(page.t("tasks.ask"), run, { class: "main" });
    const options = h("div", { class: "options" }, model.element);
    return {
      nodes: [h("div", { class: "form" }, fields.element, h("div", {}, options, asking)), place.element],
      start: run,
    };
  },
};
