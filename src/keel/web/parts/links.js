// Lines from one token to those it looks at most, drawn over the strip.
//
// In: the container that the SVG covers, the node of the token, nodes and weights of the others. Out: curves, for the
// eye only: the list of the strongest links says the same.

import { replace, svg } from "../dom.js";

export function links(container) {
  const drawing = svg("svg", { class: "links", "aria-hidden": "true" });

  // `targets`: [{ node, weight (0 to 1) }]
  function draw(source, targets) {
    if (!source) return replace(drawing);
    const frame = container.getBoundingClientRect();
    const place = (node) => {
      const box = node.getBoundingClientRect();
      return { x: box.left + box.width / 2 - frame.left, y: box.top - frame.top + 2 };
    };
    const from = place(source);
    const paths = targets
      .filter(({ node }) => node && node !== source)
      .map(({ node, weight }) => curve(from, place(node), weight));
    replace(drawing, paths);
  }

  return { element: drawing, draw };
}

function curve(from, to, weight) {
  const lift = 10 + Math.min(22, Math.abs(from.x - to.x) * 0.08);
  const path = `M ${from.x} ${from.y} C ${from.x} ${from.y - lift}, ${to.x} ${to.y - lift}, ${to.x} ${to.y}`;
  const style = { "stroke-width": `${(0.8 + 4 * weight).toFixed(2)}px`, opacity: (0.35 + 0.6 * weight).toFixed(2) };
  return svg("path", { d: path, style });
}
