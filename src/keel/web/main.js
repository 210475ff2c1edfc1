// Starts the page: reads the address, asks for the models, builds the tabs.
//
// In: the address, /v1/models and /v1/server. Out: the page. A change of the language, or of the address by hand, builds it anew
// from the state.

import * as api from "./api.js";
import { h, replace } from "./dom.js";
import { LANGUAGES, Language, preferred } from "./i18n.js";
import { State } from "./state.js";
import { errorCard } from "./parts/outcome.js";
import { tabStrip } from "./parts/tab_strip.js";
import * as theme from "./theme.js";
import { TABS } from "./tabs/index.js";

const state = new State();
let models = null;
let server = null;
let instead = null; // makes what is shown in place of the tabs while there is nothing to show in them

async function start() {
  theme.apply();
  build(() => h("p", { class: "note" }, language().text("page.loading")));
  try {
    const [listed, told] = await Promise.all([api.get("/v1/models"), api.get("/v1/server")]);
    [models, server] = [listed.data, told];
    build(null);
  } catch (error) {
    build(() => errorCard({ language: language() }, error, start));
  }
}

const language = () => new Language(state.lang ?? preferred());

function build(wanted = instead) {
  instead = wanted;
  const spoken = language();
  state.lang = spoken.name;
  document.documentElement.lang = LANGUAGES[spoken.name].tag;
  document.title = spoken.text("page.title");
  const live = h("div", { class: "unseen", role: "status", "aria-live": "polite" });
  const announce = (text) => {
    live.textContent = text;
  };
  const page = { language: spoken, t: spoken.text.bind(spoken), models, server, state, announce };
  const main = h("main", {}, instead ? instead() : tabStrip(page, TABS));
  replace(document.body, header(page), main, live);
  document.body.dataset.ready = String(!instead);
}

function header(page) {
  const languages = Object.entries(LANGUAGES).map(([name, { name: label, tag }]) =>
    h("button", { type: "button", lang: tag, "aria-pressed": String(name === state.lang), on: { click: () => speak(name) } }, label),
  );
  const themes = theme.THEMES.map((name) => h("option", { value: name }, page.t(`theme.${name}`)));
  const chooser = h("select", { "aria-label": page.t("theme.label"), on: { change: () => theme.choose(chooser.value) } }, themes);
  chooser.value = theme.current();
  const served = models && h("p", { class: "served" }, page.t("page.models", { count: models.length, names: names() }));
  return h(
    "header",
    { class: "top" },
    h("h1", {}, "Keel"),
    served,
    h("div", { class: "segmented", role: "group", "aria-label": page.t("page.language") }, languages),
    chooser,
  );
}

const names = () => models.map((model) => model.id).join(", ");

function speak(name) {
  state.lang = name;
  state.write();
  build();
  document.querySelector(`header [lang="${LANGUAGES[name].tag}"]`)?.focus();
}

addEventListener("popstate", () => {
  if (!state.changed || !models) return;
  state.read();
  build();
});

start();
