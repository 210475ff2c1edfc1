// Fill: words are masked by a click, and one or two models say what could stand there.
//
// In: a text with [MASK]s, one or two models. Out: for each model and mask the ranked tokens of /v1/fill. `was` holds
// the words that were masked, so that they can come back.

import { post } from "../api.js";
import { h, replace } from "../dom.js";
import { bars } from "../parts/bars.js";
import { button, choice, textBox } from "../parts/form.js";
import { able, missing, modelChoice, readsChinese } from "../parts/models.js";
import { outcome } from "../parts/outcome.js";
import { wordStrip } from "../parts/word_strip.js";
import { MASK, maskCount, units } from "../words.js";

const PAUSE = 500; // ms after the last key
const TOPS = ["3", "5", "10", "20"];

export const fill = {
  id: "fill",
  missing: (page) => missing(page, "fill"),
  build: (page, state) => new Fill(page, state).made,
};

class Fill {
  constructor(page, state) {
    Object.assign(this, { page, state });
    const models = able(page, "fill");
    const again = () => this.run();
    const typed = () => this.typed();
    this.text = textBox(state, "text", {
      label: page.t("fill.text"),
      hint: page.t("fill.hint"),
      changed: typed,
      submit: again,
    });
    this.model = modelChoice(page, state, "model", { label: page.t("model"), models, changed: again });
    const second = { label: page.t("model.second"), models, none: page.t("model.none"), changed: again };
    this.second = modelChoice(page, state, "second", second);
    this.top = choice(state, "top", { label: page.t("fill.top"), options: TOPS.map((n) => [n, n]), fallback: "5", changed: again });
    this.strip = wordStrip(page, (unit, number) => this.toggle(unit, number));
    this.outcome = outcome(page, page.t("fill.empty"));
    const options = h("div", { class: "options" }, this.model.element, this.second.element, this.top.element);
    const asking = button(page.t("fill.ask"), again, { class: "main" });
    const nodes = [
      h("div", { class: "form" }, h("div", { class: "texts" }, this.text.element, this.strip.element), h("div", {}, options, asking)),
      this.outcome.element,
    ];
    this.made = { nodes, start: () => this.start() };
  }

  async start() {
    if (!this.state.has("text")) {
      const chinese = this.page.language.name === "zh" && (await readsChinese(this.model.model).catch(() => false));
      this.write(this.page.t(chinese ? "fill.example.zh" : "fill.example.en"), []);
    }
    this.strip.show(this.text.value);
    this.run();
  }

  get was() {
    return JSON.parse(this.state.get("was", "[]"));
  }

  write(text, was) {
    this.text.value = text;
    this.state.set("text", text);
    this.state.set("was", JSON.stringify(was));
  }

  typed() {
    if (this.was.length !== maskCount(this.text.value)) this.state.set("was", "[]");
    this.strip.show(this.text.value);
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.run(), PAUSE);
  }

  // Masks a word, or brings back what a mask stands for.
  toggle(unit, number) {
    const text = this.text.value;
    const place = maskCount(text.slice(0, unit.start));
    const was = Array.from({ length: maskCount(text) }, (_, n) => this.was[n] ?? "");
    const masked = unit.text === MASK;
    const [word] = masked ? was.splice(place, 1) : [MASK];
    if (!masked) was.splice(place, 0, unit.text);
    const back = word || this.best?.[place] || "";
    if (masked && !back) {
      this.text.control.focus();
      this.text.control.setSelectionRange(unit.start, unit.end);
      return;
    }
    this.write(text.slice(0, unit.start) + back + text.slice(unit.end), was);
    this.strip.show(this.text.value, number);
    this.page.announce(this.page.t(masked ? "fill.unmasked" : "fill.masked", { word: masked ? back : unit.text }));
    this.run();
  }

  // Puts a prediction where a mask is.
  pick(place, token) {
    const unit = units(this.text.value).filter((one) => one.text === MASK)[place];
    const was = this.was;
    was.splice(place, 1);
    this.write(this.text.value.slice(0, unit.start) + token + this.text.value.slice(unit.end), was);
    this.strip.show(this.text.value);
    this.run();
  }

  run() {
    clearTimeout(this.pause);
    const text = this.text.value;
    if (!maskCount(text)) return this.outcome.clear();
    const models = [this.model.model, this.second.model].filter(Boolean);
    const top = Number(this.top.value);
    return this.outcome.run(async (signal) => {
      const ask = ({ id }) => post("/v1/fill", { model: id, texts: [text], top }, signal);
      const answers = await Promise.all(models.map(ask));
      this.best = answers[0].results[0].masks.map((ranked) => ranked[0]?.token);
      const columns = answers.map((answer) => this.column(answer));
      return { nodes: h("div", { class: `columns of-${columns.length}` }, columns), said: this.summary(answers[0]) };
    });
  }

  column({ model, results }) {
    const masks = results[0].masks.map((ranked, place) => {
      const was = this.was[place];
      const caption = was ? this.page.t("fill.mask.was", { number: place + 1, was }) : this.page.t("fill.mask", { number: place + 1 });
      const longest = Math.max(...ranked.map((one) => one.probability));
      const rows = ranked.map(({ token, probability }) => ({
        label: token || "␣",
        value: probability,
        shown: this.page.language.percent(probability),
        mark: was && token.toLowerCase() === was.toLowerCase() ? this.page.t("fill.same") : null,
        title: this.page.t("fill.put"),
        pick: () => this.pick(place, token),
      }));
      return h("div", { class: "mask" }, h("h4", {}, caption), bars(rows, { longest: Math.max(longest, 0.01) }));
    });
    return h("div", { class: "card" }, h("h3", {}, model), h("div", { class: "masks" }, masks));
  }

  summary({ results }) {
    const best = results[0].masks.map((ranked) => ranked[0]?.token).join(", ");
    return this.page.t("fill.said", { best });
  }
}
