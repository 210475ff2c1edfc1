// Attention: where every layer and head looks.
//
// In: a text, or a pair. Out: thumbnails of all heads, and one map large: of a head, of the mean of a layer's heads, of
// the rollout through the layers; for a translator also what its decoder reads. A model without attention shows how
// much each layer counts (ELMo), or says why there is nothing.

import { looking } from "../attention/looking.js";
import { Source } from "../attention/source.js";
import { h, replace } from "../dom.js";
import { bars } from "../parts/bars.js";
import { button, check, choice } from "../parts/form.js";
import { headGrid } from "../parts/head_grid.js";
import { image, onTheme } from "../parts/heat.js";
import { inputs, shapeOf } from "../parts/inputs.js";
import { able, missing, modelChoice } from "../parts/models.js";
import { outcome } from "../parts/outcome.js";

export const attention = {
  id: "attention",
  missing: (page) => missing(page),
  build: (page, state) => new Attention(page, state).made,
};

class Attention {
  constructor(page, state) {
    Object.assign(this, { page, state, t: page.t });
    const again = () => this.run();
    this.model = modelChoice(page, state, "model", {
      label: page.t("model"),
      models: withHeadsFirst(able(page)),
      changed: again,
    });
    this.inputs = inputs(page, state, { submit: again, shape: (model) => shapeOf(model, false) });
    this.outcome = outcome(page, page.t("attention.empty"));
    const options = h("div", { class: "options" }, this.model.element);
    const asking = button(page.t("attention.ask"), again, { class: "main" });
    const form = h("div", { class: "form" }, this.inputs.element, h("div", {}, options, asking));
    this.made = { nodes: [form, this.outcome.element], start: again };
  }

  number(name, most) {
    return Math.max(1, Math.min(most || 1, Number(this.state.get(name, "1")) || 1));
  }

  run() {
    const model = this.model.model;
    return this.outcome.run(async (signal) => {
      await this.inputs.show(model);
      const given = this.inputs.given();
      if (!given.complete) return { nodes: h("p", { class: "note" }, this.t("attention.empty")) };
      const first = { layer: this.number("layer", model.layers), head: this.number("head", model.heads) };
      this.source = await Source.open(model, given, first, signal);
      if (this.source.mix) return { nodes: this.mix(), said: this.t("attention.mix") };
      const { layers, heads } = this.shown;
      const said = this.t("attention.said", { model: model.id, layers, heads });
      return { nodes: this.view(), said, shown: () => this.large() };
    });
  }

  // The encoder's heads, or the decoder's.
  get shown() {
    const decoder = this.source.cross && (!this.source.layers || this.state.get("part", "decoder") === "decoder");
    return decoder ? this.source.cross : this.source;
  }

  view() {
    this.looking = looking(this.page, { pin: (token) => this.state.set("token", token) });
    this.place = outcome(this.page);
    this.cards = h("div", { class: "attention-cards" });
    return this.fill();
  }

  // Everything that depends on which part of the model is shown.
  fill() {
    const { layers, heads } = this.shown;
    const small = this.shown.thumbnails();
    const thumbnail = (layer, head) => {
      const { values, width, height } = small(layer, head);
      const frame = h("span", { class: "thumbnail" });
      const draw = () => replace(frame, image(values, width, height, 255));
      draw();
      onTheme(frame, draw);
      return { content: frame };
    };
    const choose = (layer, head) => this.choose(layer, head);
    this.grid = headGrid(this.page, { layers, heads, label: this.t("attention.grid"), cell: thumbnail, choose });
    const part = this.source.cross && this.source.layers ? this.part() : null;
    replace(
      this.cards,
      h(
        "div",
        { class: "card grid-card" },
        h("h3", {}, this.t("attention.heads")),
        part,
        this.grid.element,
        h("p", { class: "note" }, this.t("attention.grid.note")),
      ),
      h("div", { class: "card large-card" }, this.controls(), this.place.element),
    );
    return this.cards;
  }

  part() {
    const options = ["decoder", "encoder"].map((one) => [one, this.t(`attention.part.${one}`)]);
    return choice(this.state, "part", {
      label: this.t("attention.part"),
      options,
      fallback: "decoder",
      changed: () => this.fill() && this.large(),
    }).element;
  }

  controls() {
    const changed = () => this.large();
    const views = ["head", "mean", ...(this.shown.rollout ? ["rollout"] : [])];
    const directions = ["outgoing", "incoming"].map((one) => [one, this.t(`attention.${one}`)]);
    this.show = choice(this.state, "show", {
      label: this.t("attention.show"),
      options: views.map((one) => [one, this.t(`attention.show.${one}`)]),
      changed,
    });
    this.direction = choice(this.state, "direction", {
      label: this.t("attention.direction"),
      options: directions,
      changed,
    });
    this.hide = check(this.state, "hide", { label: this.t("attention.hide"), changed });
    return h("div", { class: "row" }, this.show.element, this.direction.element, this.hide.element);
  }

  choose(layer, head) {
    this.state.set("layer", layer);
    this.state.set("head", head);
    if (this.show.value === "rollout" || (this.show.value === "mean" && head !== this.number("head", this.shown.heads)))
      this.show.value = "head";
    this.state.set("show", this.show.value);
    return this.large();
  }

  large() {
    const source = this.shown;
    const layer = this.number("layer", source.layers);
    const head = this.number("head", source.heads);
    const show = this.show.value;
    this.grid.mark(show === "rollout" ? null : layer, show === "head" ? head : null);
    const name = this.t(`attention.title.${show}`, { layer, head });
    return this.place.run(async (signal) => {
      const map = await {
        head: () => source.head(layer, head, signal),
        mean: () => source.mean(layer, signal),
        rollout: () => source.rollout(signal),
      }[show]();
      const options = {
        label: this.t("attention.picture", { name }),
        hide: this.hide.value,
        direction: this.direction.value,
        token: Number(this.state.get("token", "-1")),
      };
      return {
        shown: () => this.draw(map, options),
        nodes: [
          h("h3", {}, name),
          this.looking.element,
          h("p", { class: "note" }, this.t(options.hide ? "attention.hidden.note" : "attention.note")),
        ],
        said: name,
      };
    });
  }

  draw(map, options) {
    this.looking.show(map, options);
    requestAnimationFrame(() => setTimeout(() => performance.mark("keel:drawn")));
  }

  // How much each layer of a model without attention counts.
  mix() {
    const places = Object.entries(this.source.mix).map(([name, shares]) => {
      const rows = shares.map((share, layer) => ({
        label: this.t("attention.mix.layer", { layer }),
        value: share,
        shown: this.page.language.percent(share),
      }));
      const title = this.t("attention.mix.place", {
        name,
        gamma: this.page.language.number(this.source.answer.gamma[name]),
      });
      return h("div", {}, h("h4", {}, title), bars(rows, { longest: Math.max(...shares), ordered: false }));
    });
    return h("div", { class: "card" }, h("h3", {}, this.t("attention.mix")), places);
  }
}

const withHeadsFirst = (models) => [...models.filter((one) => one.heads), ...models.filter((one) => !one.heads)];
