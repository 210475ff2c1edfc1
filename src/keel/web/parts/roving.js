// One stop of the Tab key for a group of buttons; arrows move inside.
//
// In: a container. Out: the same, listening; `restore(button)` is called after its children changed. `columns`: Up and
// Down move by so many.

const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 };

export function roving(container, columns = () => 1) {
  const all = () => Array.from(container.querySelectorAll("button, [data-stop]"));

  function reach(target) {
    for (const one of all()) one.tabIndex = one === target ? 0 : -1;
  }

  container.addEventListener("keydown", (event) => {
    const stops = all();
    const at = stops.indexOf(document.activeElement);
    if (at < 0) return;
    const edges = { Home: 0, End: stops.length - 1 };
    const vertical = event.key === "ArrowUp" || event.key === "ArrowDown";
    const next = edges[event.key] ?? at + (STEPS[event.key] ?? 0) * (vertical ? columns() : 1);
    if (next === at || !stops[next]) return;
    event.preventDefault();
    reach(stops[next]);
    stops[next].focus();
  });
  container.addEventListener("focusin", (event) => reach(event.target.closest("button, [data-stop]")));

  container.restore = (focused) => {
    reach(focused ?? all()[0]);
    focused?.focus();
  };
}
