// Why: which tokens an answer rests on, what each head is worth, what each layer would already answer.
//
// In: what the model reads, which answer, which of the three questions. Out: the explanation, drawn.

import { post } from "../api.js";
import { h, replace } from "../dom.js";
import { button, choice, textLine } from "../parts/form.js";
import { inputs, shapeOf } from "../parts/inputs.js";
import { able, missing, modelChoice } from "../parts/models.js";
import { outcome } from "../parts/outcome.js";
import { heads } from "../why/heads.js";
import { layers } from "../why/layers.js";
import { tokens } from "../why/tokens.js";
import { MASK } from "../words.js";

const VIEWS = { attribution: tokens, heads, layers };
const can = (model, ability) => model.abilities.includes(ability);
const answers = (model) => Boolean(model.task) || can(model, "fill") || can(model, "generate");

export const why = {
  id: "why",
  missing: (page) => (missing(page) ? missing(page) : explained(page).length ? "" : page.t("missing.why")),
  build: (page, state) => new Why(page, state).made,
};

// Translations are not explained, only their attention is shown.
const explained = (page) => {
  const models = able(page).filter((model) => model.task !== "translate");
  return [...models.filter(answers), ...models.filter((model) => !answers(model))];
};

function viewsOf(model) {
  const layered = model.task ? model.task === "classify" : answers(model);
  return ["attribution", ...(model.heads ? ["heads"] : []), ...(layered ? ["layers"] : [])];
}

function shape(model) {
  if (!model.task && can(model, "fill")) return "masked";
  return !model.task && !answers(model) ? "pair" : shapeOf(model, true);
}

// Nothing to explain yet: a model that predicts masked tokens, and a text without one. Heads are then judged by how
// they move the text's vector.
function asksNothing(model, given, view) {
  const mask = given.text.includes(MASK) || given.text.includes(model.mask);
  return (
    given.shape === "masked" && !mask && (view === "layers" || (view === "attribution" && given.pair === undefined))
  );
}

class Why {
  constructor(page, state) {
    Object.assign(this, { page, state, t: page.t });
    const again = () => this.run();
    const models = explained(page);
    this.model = modelChoice(page, state, "model", { label: page.t("model"), models, changed: again });
    this.inputs = inputs(page, state, { submit: again, shape });
    this.more = h("div", { class: "options" });
    this.outcome = outcome(page, page.t("why.empty"));
    const asking = button(page.t("why.ask"), again, { class: "main" });
    const options = h("div", { class: "options" }, this.model.element);
    const form = h("div", { class: "form" }, this.inputs.element, h("div", {}, options, this.more, asking));
    this.made = { nodes: [form, this.outcome.element], start: again };
  }

  run() {
    const model = this.model.model;
    return this.outcome.run(async (signal) => {
      await this.inputs.show(model);
      this.offer(model);
      const given = this.inputs.given();
      if (!given.complete) return { nodes: h("p", { class: "note" }, this.t("why.empty")) };
      const view = this.fields.view.value;
      if (asksNothing(model, given, view)) return { nodes: h("p", { class: "note" }, this.t("why.mask")) };
      const body = { model: model.id, text: given.text, method: view, ...this.chosen(view) };
      if (given.pair !== undefined) body.pair = given.pair;
      const found = await post("/v1/explain", body, signal);
      return VIEWS[view](this.page, found, given);
    });
  }

  // The fields that go with a model: which question, which answer.
  offer(model) {
    if (this.offered === model) return;
    this.offered = model;
    const changed = () => this.run();
    const views = viewsOf(model).map((one) => [one, this.t(`why.view.${one}`)]);
    const ways = ["integrated-gradients", "occlusion"].map((one) => [one, this.t(`why.by.${one}`)]);
    this.fields = {
      view: choice(this.state, "view", { label: this.t("why.view"), options: views, changed }),
      by: choice(this.state, "by", { label: this.t("why.by"), options: ways, changed }),
    };
    if (model.labels && (model.task === "classify" || model.task === "tag")) {
      const options = [["", this.t("why.own")], ...model.labels.map((label) => [label, label])];
      this.fields.label = choice(this.state, "label", { label: this.t("why.label"), options, changed });
    }
    const line = (name) =>
      textLine(this.state, name, { label: this.t(`why.${name}`), hint: this.t(`why.${name}.hint`), submit: changed });
    if (model.task === "tag") this.fields.word = line("word");
    if (!model.task && answers(model)) this.fields.token = line("token");
    replace(
      this.more,
      Object.values(this.fields).map((field) => field.element),
    );
  }

  chosen(view) {
    const names = { attribution: ["by", "label", "word", "token"], heads: ["label", "word", "token"], layers: [] }[
      view
    ];
    const shown = names.filter((name) => this.fields[name]?.value.trim());
    for (const [name, field] of Object.entries(this.fields))
      field.element.hidden = name !== "view" && !names.includes(name);
    return Object.fromEntries(shown.map((name) => [name, this.fields[name].value.trim()]));
  }
}
