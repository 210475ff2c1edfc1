// API: what was just asked on the other tabs, as lines for a shell and for Python.
//
// In: the last questions of this window, or an example. Out: for the chosen one programs that ask the same, each with a button that
// copies it, and the answer as JSON.

import { asked, post } from "../api.js";
import { copy } from "../code/copying.js";
import { curl } from "../code/curl.js";
import { here, overHttp, withOpenai } from "../code/python.js";
import { freshId, h, replace } from "../dom.js";
import { button } from "../parts/form.js";
import { able, missing } from "../parts/models.js";
import { outcome } from "../parts/outcome.js";

const LONGEST = 20_000; // characters of an answer
const LABEL = 60;

export const api = {
  id: "api",
  missing: (page) => missing(page),
  build(page) {
    const place = h("div", {});
    const draw = () => {
      const all = asked().map(plain);
      const note = h("p", { class: "note" }, page.t("api.empty"));
      replace(place, all.length ? questions(page, all) : [note, questions(page, [example(page)])]);
    };
    return { nodes: place, start: draw, show: draw };
  },
};

// As a person would ask: weights as numbers instead of bytes, and no pictures beside them.
function plain({ path, body, ranks }) {
  if (path !== "/v1/explain") return { path, body, ranks };
  const { encoding, thumbnails, ...rest } = body;
  return { path, body: thumbnails && rest.rollout ? { ...rest, thumbnails } : rest };
}

// While nothing was asked.
function example(page) {
  const model = ["fill", "embed"].flatMap((ability) => able(page, ability))[0] ?? page.models[0];
  const [ability = "tokens"] = ["fill", "embed"].filter((one) => model.abilities.includes(one));
  const texts = [page.t(ability === "fill" ? "fill.example.en" : "inputs.text.en")];
  return { path: `/v1/${ability}`, body: { model: model.id, texts } };
}

function questions(page, all) {
  const place = h("div", {});
  const id = freshId("field");
  const options = all.map((one, n) => h("option", { value: String(n) }, labelOf(one)));
  const chooser = h("select", { id, on: { change: () => show() } }, options);
  const show = () => replace(place, programs(page, all[Number(chooser.value)]));
  show();
  return [h("div", { class: "field" }, h("label", { for: id }, page.t("api.question")), chooser), place, more(page)];
}

function labelOf({ path, body }) {
  const given = [body.text ?? body.texts ?? body.inputs].flat(Infinity)[0] ?? "";
  const short = given.length > LABEL ? `${given.slice(0, LABEL)}…` : given;
  return [path, body.model, short].join("  ·  ");
}

function programs(page, question) {
  const { t, server } = page;
  const { origin } = location;
  const key = server.needs_key;
  const cards = [
    program(page, "curl", t("api.curl"), curl(origin, question, key)),
    program(page, "http", t("api.http"), overHttp(origin, question, key)),
    program(page, "here", t("api.here"), here(question), t("api.here.note")),
  ];
  if (question.path === "/v1/embed" && !question.body.prompt) {
    cards.push(program(page, "openai", t("api.openai"), withOpenai(origin, question, key), t("api.openai.note")));
  }
  const answer = outcome(page);
  const ask = button(t("api.ask"), () => answer.run((signal) => answered(page, question, signal)));
  return [key ? h("p", { class: "note" }, t("api.key")) : null, h("div", { class: "programs" }, cards), h("p", {}, ask), answer.element];
}

function program(page, kind, title, text, note) {
  const code = h("code", { "data-program": kind }, text);
  const said = h("span", { class: "note", role: "status" });
  const pressed = async () => {
    said.textContent = page.t((await copy(code)) ? "api.copied" : "api.not_copied");
  };
  const copying = button(page.t("api.copy"), pressed, { "aria-label": `${page.t("api.copy")}: ${title}` });
  return h(
    "div",
    { class: "card program" },
    h("div", { class: "program-top" }, h("h3", {}, title), said, copying),
    h("pre", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, code),
    note && h("p", { class: "note" }, note),
  );
}

async function answered(page, { path, body }, signal) {
  const text = JSON.stringify(await post(path, body, signal, false), null, 2);
  const title = page.t("api.answer");
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}\n…` : text;
  const all = h("pre", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, shown);
  return { nodes: h("div", { class: "card program" }, h("h3", {}, title), all), said: title };
}

const more = (page) => h("p", { class: "note" }, page.t("api.more"), " ", h("a", { href: "/openapi.json", target: "_blank" }, "/openapi.json"));
