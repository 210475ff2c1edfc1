// Light, dark, or as the system is set; and the colours of the style sheet, for canvases.
//
// In: a choice. Out: the attribute that the style sheet reads, and an event for what is drawn by hand.

import { local, setLocal } from "./storage.js";

export const THEMES = ["system", "light", "dark"];
const NAME = "keel.theme";

export const current = () => (THEMES.includes(local(NAME)) ? local(NAME) : "system");

export function choose(theme) {
  setLocal(NAME, theme);
  apply(theme);
}

export function apply(theme = current()) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("keel:theme"));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("keel:theme")));

// [red, green, blue] of a variable of the style sheet, as it is now.
export function colour(variable) {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}
