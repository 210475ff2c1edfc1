// A link to another tab, with values for it.
//
// In: the page, a tab, values. Out: a link. It is an ordinary address, so it can be copied and opened elsewhere.

import { h } from "../dom.js";

export function tabLink(page, tab, values, label) {
  const query = new URLSearchParams({ lang: page.language.name });
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  return h("a", { href: `#${tab}?${query}` }, label);
}
