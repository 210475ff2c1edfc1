// The tabs: a tablist with one panel, as the ARIA authoring practices describe it.
//
// In: the page and the tabs, each { id, missing(page), build(page, state) }. Out: elements. A tab that no model serves
// stays in its place, says why, and does not open. Panels are built when they are first shown.

import { h, replace } from "../dom.js";

const KEYS = { ArrowLeft: -1, ArrowRight: 1 };

export function tabStrip(page, tabs) {
  const panels = new Map();
  const hint = h("p", { class: "note hint", role: "status" });
  const panel = h("div", { class: "panels" });
  const buttons = tabs.map((tab) => button(page, tab, () => open(tab)));
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": page.t("page.tabs") }, buttons);
  list.addEventListener("keydown", (event) => move(event, buttons));

  function open(tab) {
    const reason = tab.missing?.(page);
    hint.textContent = reason ? `${page.t(`${tab.id}.tab`)}: ${reason}` : "";
    if (reason) return;
    page.state.open(tab.id);
    mark(buttons, tabs.indexOf(tab));
    reveal(list, buttons[tabs.indexOf(tab)]);
    for (const shown of panel.children) shown.hidden = true;
    if (!panels.has(tab.id)) {
      const built = makePanel(page, tab);
      panels.set(tab.id, built);
      panel.append(built.element);
      built.element.hidden = false;
      built.start?.();
    } else {
      panels.get(tab.id).element.hidden = false;
      panels.get(tab.id).show?.();
    }
  }

  const wanted = tabs.find((tab) => tab.id === page.state.tab);
  const first = tabs.find((tab) => !tab.missing?.(page));
  queueMicrotask(() => {
    if (wanted?.missing?.(page)) {
      open(first);
      open(wanted); // says the reason
    } else {
      open(wanted ?? first);
    }
  });
  return [list, hint, panel];
}

function button(page, tab, open) {
  const reason = tab.missing?.(page);
  return h(
    "button",
    {
      type: "button",
      role: "tab",
      id: `tab-${tab.id}`,
      "aria-controls": `panel-${tab.id}`,
      "aria-selected": "false",
      "aria-disabled": reason ? "true" : null,
      title: reason,
      tabindex: "-1",
      on: { click: open },
    },
    page.t(`${tab.id}.tab`),
    reason && h("span", { class: "unseen" }, ` (${reason})`),
  );
}

function makePanel(page, tab) {
  const made = tab.build(page, page.state.of(tab.id));
  const names = { role: "tabpanel", id: `panel-${tab.id}`, "aria-labelledby": `tab-${tab.id}` };
  const title = h("h2", {}, page.t(`${tab.id}.title`));
  const intro = h("p", { class: "intro" }, page.t(`${tab.id}.intro`));
  return { ...made, element: h("section", names, title, intro, made.nodes) };
}

function mark(buttons, selected) {
  buttons.forEach((button, number) => {
    button.setAttribute("aria-selected", String(number === selected));
    button.tabIndex = number === selected ? 0 : -1;
  });
  buttons[selected].scrollIntoView({ block: "nearest", inline: "nearest" });
}

// Where the strip is wider than the window: scrolls it, and nothing around it.
function reveal(list, button) {
  const [view, box] = [list.getBoundingClientRect(), button.getBoundingClientRect()];
  list.scrollLeft += Math.min(0, box.left - view.left) + Math.max(0, box.right - view.right);
}

// Arrows move the focus, and open what they reach unless it is disabled.
function move(event, buttons) {
  const at = buttons.indexOf(document.activeElement);
  const edges = { Home: 0, End: buttons.length - 1 };
  const step = KEYS[event.key];
  if (at < 0 || (step === undefined && !(event.key in edges))) return;
  event.preventDefault();
  const next = buttons[edges[event.key] ?? (at + step + buttons.length) % buttons.length];
  next.focus();
  next.click();
}
