// Fields of a form, each tied to a value of the tab's state.
//
// In: a tab's state, a name, a label. Out: { element, control, value }. What is typed or chosen is written to the state
// at once, so the address always says what is asked.

import { freshId, h } from "../dom.js";

function tied(state, name, fallback, control, kind, changed) {
  control.value = state.get(name, fallback);
  control.addEventListener(kind, () => {
    state.set(name, control.value);
    changed?.(control.value);
  });
}

function labelled(label, control, hint) {
  control.id = freshId("field");
  const note = hint && h("span", { class: "note", id: `${control.id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, note);
}

const handle = (element, control) => ({
  element,
  control,
  get value() {
    return control.value;
  },
  set value(text) {
    control.value = text;
  },
});

// `submit` is called on Ctrl-Enter (and Command-Enter).
export function textBox(state, name, { label, fallback = "", rows = 3, hint, changed, submit }) {
  const control = h("textarea", { rows, spellcheck: "false", autocapitalize: "off" });
  tied(state, name, fallback, control, "input", changed);
  control.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit?.();
  });
  return handle(labelled(label, control, hint), control);
}

export function textLine(state, name, { label, fallback = "", hint, changed, submit }) {
  const control = h("input", { type: "text", spellcheck: "false", autocomplete: "off", autocapitalize: "off" });
  tied(state, name, fallback, control, "input", changed);
  control.addEventListener("keydown", (event) => event.key === "Enter" && submit?.());
  return handle(labelled(label, control, hint), control);
}

export function numberLine(state, name, { label, fallback, changed, ...limits }) {
  const control = h("input", { type: "number", ...limits });
  tied(state, name, fallback, control, "change", changed);
  return handle(labelled(label, control), control);
}

// `options`: pairs of value and label.
export function choice(state, name, { label, options, fallback, changed }) {
  const control = h("select", {}, options.map(([value, shown]) => h("option", { value }, shown)));
  tied(state, name, fallback ?? options[0]?.[0] ?? "", control, "change", changed);
  if (control.selectedIndex < 0) control.value = fallback ?? options[0]?.[0] ?? "";
  return handle(labelled(label, control), control);
}

export function check(state, name, { label, fallback = false, changed }) {
  const control = h("input", { type: "checkbox", id: freshId("field") });
  control.checked = state.get(name, fallback ? "1" : "0") === "1";
  control.addEventListener("change", () => {
    state.set(name, control.checked ? "1" : "0");
    changed?.(control.checked);
  });
  const element = h("div", { class: "field check" }, control, h("label", { for: control.id }, label));
  return {
    element,
    control,
    get value() {
      return control.checked;
    },
  };
}

export const button = (label, pressed, props = {}) => h("button", { type: "button", on: { click: pressed }, ...props }, label);
