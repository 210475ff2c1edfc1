// Choosing among the models of the server.
//
// In: the page, the abilities that are needed. Out: a field, and the description of the chosen model.

import { post } from "../api.js";
import { choice } from "./form.js";

export const able = (page, ...abilities) =>
  page.models.filter((model) => !abilities.length || abilities.some((one) => model.abilities.includes(one)));

// The reason why a tab is disabled, or "".
export function missing(page, ...abilities) {
  if (!page.models.length) return page.t("missing.models");
  return able(page, ...abilities).length ? "" : page.t(`missing.${abilities[0]}`);
}

// `none`: a label for "no model", for a second model that may be chosen.
export function modelChoice(page, state, name, { label, models, none, changed }) {
  const options = models.map((model) => [model.id, `${model.id} (${describe(page, model)})`]);
  const field = choice(state, name, { label, options: none ? [["", none], ...options] : options, changed });
  return {
    ...field,
    get value() {
      return field.value;
    },
    get model() {
      return models.find((model) => model.id === field.value) ?? null;
    },
  };
}

function describe(page, model) {
  const task = model.task ? page.t(`task.${model.task}`) : page.t("models.encoder");
  return page.t("models.shape", { task, kind: model.kind, layers: model.layers, width: model.width });
}

const SAMPLE = "今天天气很好";
const reads = new Map();

// Whether a model's vocabulary has Chinese: a page in Chinese should not open on a row of unknown tokens.
export async function readsChinese(model) {
  if (!reads.has(model.id)) reads.set(model.id, judge(model.id));
  return reads.get(model.id);
}

async function judge(id) {
  const { texts } = await post("/v1/tokens", { model: id, texts: [SAMPLE] }, undefined, false);
  const unknown = texts[0].tokens.filter((token) => isUnknown(token, SAMPLE)).length;
  return unknown <= SAMPLE.length / 3;
}

const UNKNOWN = /^(\[UNK\]|<unk>|<UNK>)$/;

// Whether a token stands for something that the vocabulary does not have.
export const isUnknown = (token, text) =>
  UNKNOWN.test(token.text) && !UNKNOWN.test(Array.from(text).slice(token.start, token.end).join(""));
