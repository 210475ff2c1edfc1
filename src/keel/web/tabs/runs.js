// Runs: the training runs below the folder of --runs, and the curves of one of them while it trains.
//
// In: /v1/runs and a run's log. Out: a table, charts that grow, the way to the report. Only what was written since is
// asked again, and nothing while the tab is not looked at.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { choice } from "../parts/form.js";
import { errorCard, outcome } from "../parts/outcome.js";
import { AXES, charts } from "../runs/charts.js";
import { known, stepsOf, table } from "../runs/list.js";
import { Log } from "../runs/log.js";

const SOON = 1500; // ms between two looks at a run that trains
const LATER = 6000; // at runs that do not

export const runs = {
  id: "runs",
  build: (page, state) => new Runs(page, state).made,
};

class Runs {
  constructor(page, state) {
    Object.assign(this, { page, state, t: page.t, runs: [], log: null });
    this.list = h("div", {});
    this.problem = h("div", {});
    this.about = h("div", { class: "about-run" });
    this.charts = h("div", {});
    this.outcome = outcome(page);
    const axes = Object.keys(AXES).map((axis) => [axis, this.t(`runs.axis.${axis}`)]);
    this.axis = choice(state, "axis", { label: this.t("runs.axis"), options: axes, changed: () => this.draw() });
    this.chosen = h("section", { hidden: true, "aria-label": this.t("runs.chosen") }, this.about, this.axis.element, this.charts);
    this.place = h("div", {}, this.outcome.element, this.problem);
    this.made = { nodes: this.place, start: () => this.start(), show: () => this.look() };
  }

  start() {
    return this.outcome.run(async (signal) => {
      const { enabled } = await this.ask(signal);
      if (!enabled) return { nodes: hint(this.page, "runs.disabled", "keel serve MODEL --runs DIR") };
      this.later();
      return { nodes: [this.list, this.chosen] };
    });
  }

  later() {
    clearTimeout(this.timer);
    const trains = this.runs.some((run) => run.state === "running");
    this.timer = setTimeout(() => this.look(), trains ? SOON : LATER);
  }

  // Once more, for as long as somebody looks.
  async look() {
    if (!this.place.isConnected) return;
    if (this.place.offsetParent && !document.hidden && this.listed) {
      try {
        await this.ask();
        replace(this.problem);
      } catch (error) {
        replace(this.problem, errorCard(this.page, error, () => this.look()));
      }
    }
    this.later();
  }

  async ask(signal) {
    const before = this.run;
    const answer = await get("/v1/runs", signal);
    this.runs = answer.runs;
    this.listed = answer.enabled;
    this.run = this.runs.find((run) => run.id === this.state.get("run")) ?? this.runs[0];
    if (this.run && this.log?.id !== this.run.id) this.log = new Log(this.run.id);
    const same = this.log === null || before?.id === this.run?.id;
    const grown = this.log ? await this.log.grow(signal) : false;
    this.tell(before);
    this.show(grown || !same);
    return answer;
  }

  tell(before) {
    if (before?.state !== "running" || before.id !== this.run?.id || this.run.state === "running") return;
    this.page.announce(this.t("runs.ended", { folder: this.run.folder, state: known(this.page, "runs.state", this.run.state) }));
  }

  show(changed) {
    const listed = JSON.stringify([this.runs, this.run?.id]);
    if (listed !== this.drawn) {
      this.drawn = listed;
      const focused = document.activeElement?.dataset?.run;
      const choose = (id) => {
        this.state.set("run", id);
        this.look();
      };
      const none = () => hint(this.page, "runs.none", "keel pretrain modern-mini --corpus CORPUS --out DIR/NAME");
      replace(this.list, this.runs.length ? table(this.page, this.runs, this.run.id, choose) : none());
      if (focused) this.list.querySelector(`[data-run="${focused}"]`)?.focus();
      this.describe();
    }
    this.chosen.hidden = !this.run;
    if (changed) this.draw();
  }

  describe() {
    const { run, t } = this;
    if (!run) return;
    const report = { href: `/v1/runs/${encodeURIComponent(run.id)}/report`, target: "_blank" };
    replace(
      this.about,
      h("h3", {}, run.folder),
      h("p", {}, [known(this.page, "runs.state", run.state), stepsOf(this.page, run)].filter(Boolean).join(", ")),
      run.problem ? h("p", { class: "warn" }, run.problem) : null,
      run.resume ? h("p", {}, `${t("runs.resume")} `, h("code", {}, run.resume)) : null,
      run.report ? h("p", {}, h("a", report, t("runs.report"))) : null,
    );
  }

  draw() {
    const { log } = this;
    if (!log) return;
    const empty = !log.train.length && !log.evaluation.length;
    replace(this.charts, empty ? h("p", { class: "note" }, this.t("runs.empty")) : charts(this.page, log, this.axis.value));
    this.charts.dataset.last = String(log.train.at(-1)?.step ?? log.evaluation.at(-1)?.step ?? 0);
  }
}

const hint = (page, key, command) =>
  h("div", { class: "card" }, h("p", {}, page.t(key)), h("pre", { class: "command" }, h("code", {}, command)));
