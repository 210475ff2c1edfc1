// Search: lines of one's own, ranked by how near their meaning is to a query.
//
// In: lines, a query, a model. Out: the lines with the cosines of their vectors (/v1/embed) to that of the query. The
// vectors of the lines are kept, so only the first query takes its time.

import { remember } from "../api.js";
import { h, replace } from "../dom.js";
import { button, choice, textLine } from "../parts/form.js";
import { able, missing, modelChoice, readsChinese } from "../parts/models.js";
import { outcome } from "../parts/outcome.js";
import { hits, rank } from "../search/hits.js";
import { linesField } from "../search/lines.js";
import { cosine, embed, unknown } from "../search/vectors.js";

const PAUSE = 350; // ms after the last key
const TOPS = ["5", "10", "20", "50", "200"];
const EXAMPLES = 100; // lines that the API tab shows at most
const LONGEST = 8000; // characters of these
const QUERIES = ["query", "s2p_query"]; // what models call the prompts for queries and for what is searched
const PASSAGES = ["passage", "document"];

export const search = {
  id: "search",
  missing: (page) => missing(page, "embed"),
  build: (page, state) => new Search(page, state).made,
};

class Search {
  constructor(page, state) {
    Object.assign(this, { page, state, t: page.t });
    const models = able(page, "embed").filter((model) => model.task !== "translate");
    const again = () => this.run();
    this.query = textLine(state, "query", { label: this.t("search.query"), changed: () => this.typed(), submit: again });
    this.lines = linesField(page, state, () => this.typed());
    const ordered = [...models.filter((one) => !one.task), ...models.filter((one) => one.task)];
    this.model = modelChoice(page, state, "model", { label: this.t("model"), models: ordered, changed: again });
    const tops = TOPS.map((count) => [count, count]);
    this.top = choice(state, "top", { label: this.t("search.top"), options: tops, fallback: "10", changed: again });
    this.outcome = outcome(page, this.t("search.empty"));
    this.progress = h("div", { class: "progress", hidden: true });
    const asking = button(this.t("search.ask"), again, { class: "main" });
    const options = h("div", { class: "options" }, this.model.element, this.top.element);
    const texts = h("div", { class: "texts" }, this.query.element, this.lines.element);
    const form = h("div", { class: "form" }, texts, h("div", {}, options, asking));
    this.made = { nodes: [form, this.progress, this.outcome.element], start: () => this.start() };
  }

  async start() {
    const chinese = this.page.language.name === "zh" && (await readsChinese(this.model.model).catch(() => false));
    this.lines.show(this.t(`search.lines.${chinese ? "zh" : "en"}`));
    if (!this.state.has("query")) this.ask(this.t(`search.query.${chinese ? "zh" : "en"}`));
    this.run();
  }

  ask(query) {
    this.query.value = query;
    this.state.set("query", query);
  }

  // While many lines have no vectors yet, nothing is computed before it is asked for.
  typed() {
    clearTimeout(this.pause);
    const missing = unknown(this.model.model, this.lines.lines, this.prompt(PASSAGES)).length;
    if (missing < 200) this.pause = setTimeout(() => this.run(), PAUSE);
  }

  prompt(names) {
    return names.find((name) => this.model.model.prompts?.includes(name)) ?? "";
  }

  run() {
    clearTimeout(this.pause);
    const [model, query, { lines }] = [this.model.model, this.query.value.trim(), this.lines];
    if (!query || !lines.length) {
      this.progress.hidden = true;
      return this.outcome.clear();
    }
    return this.outcome.run(async (signal) => {
      const options = { limits: this.page.server.limits, signal };
      const of = { ...options, prompt: this.prompt(PASSAGES), tell: (done, all) => signal.aborted || this.tell(done, all) };
      try {
        const vectors = await embed(model, lines, of);
        const [asked] = await embed(model, [query], { ...options, prompt: this.prompt(QUERIES) });
        const scores = Float64Array.from(vectors, (vector) => cosine(asked, vector));
        this.keep(model, query, lines);
        return this.show(model, lines, scores);
      } finally {
        if (!signal.aborted) this.progress.hidden = true;
      }
    });
  }

  show(model, lines, scores) {
    const like = (line) => {
      this.ask(line);
      this.query.control.focus();
      this.run();
    };
    const [best] = rank(scores, 1);
    const said = this.t("search.said", { line: lines[best], score: this.page.language.number(scores[best], 3) });
    const ranked = hits(this.page, model, lines, scores, { count: Number(this.top.value), like });
    return { nodes: h("div", { class: "card" }, ranked), said };
  }

  tell(done, all) {
    this.progress.hidden = done === all;
    if (done === all) return;
    const count = (value) => this.page.language.count(value);
    const text = this.t("search.progress", { done: count(done), all: count(all) });
    if (!this.bar || !this.progress.contains(this.bar)) {
      const id = "search-progress";
      this.bar = h("progress", { id, max: all });
      replace(this.progress, h("label", { for: id }, text), this.bar);
    }
    this.progress.firstChild.textContent = text;
    this.bar.max = all;
    this.bar.value = done;
  }

  // For the API tab: one question that gives the same scores, with the first lines if there are many. Where queries have
  // a prompt of their own, it is only the query's vector.
  keep(model, query, lines) {
    const [prompt, passage] = [this.prompt(QUERIES), this.prompt(PASSAGES)];
    const body = { model: model.id, normalize: true, truncate: true };
    if (prompt || passage) return remember({ path: "/v1/embed", body: { ...body, texts: [query], ...(prompt ? { prompt } : {}) } });
    let size = 0;
    const first = lines.filter((line, n) => n < EXAMPLES && (size += line.length) < LONGEST);
    return remember({ path: "/v1/embed", body: { ...body, texts: [query, ...first] }, ranks: true });
  }
}
